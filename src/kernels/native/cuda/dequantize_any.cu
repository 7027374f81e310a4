//use params/steps
//use params/weight
/*
 * dequantize_any.cu - 32 columns of a row of weights of any quantised type W but f8_e4m3 as f16, by the names that dequantize.cu
 * has. blocks.kc takes them apart when they are read, and numbers are made when they are asked for. Groups of scales are whole
 * halves of runs.
 */
#define WEIGHT(i) MK_WEIGHT(w##i, s##i, b##i)
#define FIRST_ROW(i) row_of(w##i, MK_TABLE_OF(w##i, s##i), MK_TABLE_OF(w##i, b##i))
#define WEIGHT_OF(p) (&(p)->weight)

typedef mk_row weight_row;

MK_FN weight_row row_of(const mk_u8 *q, const mk_u8 *scales, const mk_u8 *biases)
{
    weight_row row;
    row.q = q;
    row.scales = scales;
    row.biases = biases;
    return row;
}

MK_FN weight_row row_behind(weight_row row, mk_u64 n, const mk_steps *by)
{
    return row_of(row.q + n * by->data, row.scales + n * by->scales, row.biases + n * by->biases);
}

#define RAW_WORDS 12

typedef mk_run raw32;

/* Stored numbers with their zero lie within 2^CODE_BITS. A scale goes with as much and they with as little, so that a small one keeps
 * its digits, and is too large for f16 only where values are. */
#if MK_IS_AFFINE
#define CODE_BITS MK_BITS
#elif W == MK_W_Q2_K || W == MK_W_Q3_K || W == MK_W_TQ1_0 || W == MK_W_TQ2_0
#define CODE_BITS 2u
#elif W == MK_W_Q5_0 || W == MK_W_Q5_1 || W == MK_W_Q5_K || W == MK_W_Q6_K
#define CODE_BITS 5u
#elif W == MK_W_IQ4_NL || W == MK_W_IQ4_XS || W == MK_W_Q8_0 || W == MK_W_Q8_1 || W == MK_W_Q8_K
#define CODE_BITS 7u
#elif W >= MK_W_IQ2_XXS && W <= MK_W_IQ3_S
#define CODE_BITS 6u
#else
#define CODE_BITS 4u
#endif

/* Columns 32 b to 32 b + 31 of a row; past k they are zero. */
MK_FN raw32 fetch32(weight_row row, const mk_weight *weight, mk_u32 k, mk_u32 b)
{
    if (32 * b < k)
        return mk_row_run(row, weight, b);
    raw32 r;
#pragma unroll
    for (mk_u32 i = 0; i < 8; i++)
        r.q[i] = 0;
    return with_scale(r, 0.0f, 0.0f);
}

/* Columns 8 c to 8 c + 7 of them. */
MK_FN mk_u32x4 piece_of_raw(const raw32 *r, mk_u32 b, mk_u32 c)
{
    const two_f16 d = split_scale(r->d[c >> 1] * (mk_f32)(1u << CODE_BITS));
    const mk_u32 low = f16_pair(r->m[c >> 1], r->m[c >> 1]);
    mk_u32 v[4];
    (void)b;
#pragma unroll
    for (mk_u32 i = 0; i < 4; i++) {
        const mk_u32 q = small_numbers(r->q[2 * c + (i >> 1)] ^ 0x80808080u, i & 1u, (mk_u32)(128 - MK_ZERO), CODE_BITS);
        v[i] = MK_HAS_MIN ? f16_fma(d.low, q, f16_fma(d.high, q, low)) : f16_fma(d.high, q, f16_mul(d.low, q));
    }
    mk_u32x4 piece;
    piece.x = v[0], piece.y = v[1], piece.z = v[2], piece.w = v[3];
    return piece;
}
