//use params/stream
/*
 * dot_planes.cu - what a lane of matvec_ring.cu takes of a row: units of 16 bytes of codes in planes (q4_0, q4_k, q6_k, q8_0), of
 * which it keeps much where it lies, or of 16-bit numbers (f16, bf16). EACH of them; W is the type.
 */
#define DENSE (W == MK_W_F16 || W == MK_W_BF16)
#define PARTS 1 /* tables that a weight is made of */
#define LEAN 1 /* little besides x is kept in registers */
#define WEIGHT(i) const mk_u8 *__restrict__ w##i
#define TABLES(i) {{w##i}} /* as `tables` has them */

#define CODES_STEP(eights) ((eights) * (W == MK_W_Q8_0 ? 2 : 1)) /* words that so many take, 512 or a multiple */

/* Where word i (elements 4 i to 4 i + 3) of the codes lies: so that the lanes of a warp read 16 neighbouring bytes each. */
MK_FN mk_u32 code_place(mk_u32 i, mk_u32 k)
{
#if W == MK_W_Q4_0 /* the first halves of all blocks, then the second */
    return (i & 4u) * (k / 32) + (i >> 3) * 4 + (i & 3u);
#elif W == MK_W_Q4_K /* the even blocks, then the odd */
    return (i >> 3 & 1u) * (k / 8) + (i >> 4) * 8 + (i & 7u);
#elif W == MK_W_Q6_K /* the even 64 elements, then the odd */
    return (i >> 4 & 1u) * (k / 8) + (i >> 5) * 16 + (i & 15u);
#else
    (void)k;
    return i;
#endif
}

/* What goes with a block of 32 of x: its scale and, where weights have an offset, what that is multiplied by: q4_0 the sum of
 * its codes, q4_k scale * sum. Codes of weights that stay in the upper half of a byte are 16 times too large: see NIBBLE. */
typedef struct __attribute__((aligned(8))) x_info {
    mk_f32 scale, sum;
} x_info;

#define NIBBLE 0.0625f

/* Codes 0 to 3 and 4 to 7 of an eight of x in the order that they meet weights in. */
MK_FN mk_u64 codes_of(mk_u32 low, mk_u32 high)
{
    return (mk_u64)high << 32 | low;
}

/* From the codes of an eight of x, `low` and `high`. Whole warps go together; of the four lanes of a block the first has it. */
MK_FN x_info x_info_of(mk_f32 scale, mk_u32 low, mk_u32 high, mk_u32 lid)
{
    x_info part;
    part.scale = scale;
    part.sum = 0.0f;
#if W == MK_W_Q4_0 || W == MK_W_Q4_K
    mk_f32 sum = (mk_f32)mk_dot4(low, 0x01010101u, mk_dot4(high, 0x01010101u, 0));
    sum += mk_shuffle_xor(sum, 1);
    sum += mk_shuffle_xor(sum, 2);
#if W == MK_W_Q4_0 /* codes of weights are too large by 8, and by 16 times */
    part.sum = 128.0f * sum;
    part.scale *= NIBBLE;
#else
    part.sum = part.scale * sum;
    part.scale *= (lid & 4u) != 0 ? NIBBLE : 1.0f;
#endif
#endif
    (void)low, (void)high, (void)lid;
    return part;
}

/* Row i of a stage. */
typedef const mk_u8 *stage_row;

MK_FN stage_row stage_row_at(const mk_u8 *stage, const mk_stream_params *p, mk_u32 i)
{
    return stage + i * p->row_bytes[0];
}
#define LOW 0x0f0f0f0fu
#define HIGH 0xf0f0f0f0u /* 16 times the number: NIBBLE */

#if W == MK_W_Q6_K
/* Nibbles and two bits each at `shift` as signed bytes: the number less 32. */
MK_FN mk_u32 six_bits(mk_u32 nibbles, mk_u32 high, mk_u32 shift)
{
    const mk_u32 q = (nibbles & LOW) | (high >> shift & 0x03030303u) << 4;
    return ((q | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}

MK_FN mk_i32 dot16_six(mk_u32x4 a, mk_u32 nibble, mk_u32x4 high, mk_u32 shift, mk_u32x4 b)
{
    a.x = six_bits(a.x >> nibble, high.x, shift), a.y = six_bits(a.y >> nibble, high.y, shift);
    a.z = six_bits(a.z >> nibble, high.z, shift), a.w = six_bits(a.w >> nibble, high.w, shift);
    return dot16(a, b, 0);
}
#endif

/* A lane takes units in pieces: those that share what scales them. Elements of a unit, units of a piece, and what of x a piece
 * meets: the lower halves of the weights' bytes `low`, in block i, the upper ones `high`, in block i1 or i as well. */
#if DENSE
#define UNIT 8u
#define PIECE 1u
typedef struct x_fragment {
    mk_f32 v[8];
} x_fragment;
#else
#define UNIT (W == MK_W_Q8_0 ? 16u : 32u)
#define PIECE (W == MK_W_Q8_0 || W == MK_W_Q4_K ? 2u : 1u)
typedef struct x_fragment {
    mk_u32x4 low[PIECE], high[PIECE];
    x_info i, i1;
} x_fragment;
#endif

/* Unit `part` of piece c: of two, every other four lanes take the second first, so that eight lanes read all banks. */
MK_FN mk_u32 unit_of(mk_u32 c, mk_u32 part)
{
    return PIECE == 1 ? c : 2 * c + (part ^ (c >> 2 & 1u));
}

MK_FN x_fragment x_load(const mk_u8 *codes, const x_info *info, mk_u32 k, mk_u32 c)
{
    x_fragment x;
#if DENSE
    const mk_u32x4 a = shared4(codes, 16 * c), b = shared4(codes, 2 * k + 16 * c);
    (void)info;
    x.v[0] = mk_f32_of_bits(a.x), x.v[1] = mk_f32_of_bits(a.y), x.v[2] = mk_f32_of_bits(a.z), x.v[3] = mk_f32_of_bits(a.w);
    x.v[4] = mk_f32_of_bits(b.x), x.v[5] = mk_f32_of_bits(b.y), x.v[6] = mk_f32_of_bits(b.z), x.v[7] = mk_f32_of_bits(b.w);
#else
#pragma unroll
    for (mk_u32 part = 0; part < PIECE; part++) {
        x.low[part] = shared4(codes, 16 * unit_of(c, part));
        if (W != MK_W_Q8_0)
            x.high[part] = shared4(codes, k / 2 + 16 * unit_of(c, part));
    }
#if W == MK_W_Q4_K
    x.i = info[2 * c];
    x.i1 = info[2 * c + 1];
#elif W == MK_W_Q6_K
    const mk_u32 block = (c >> 2) * 4 + (c >> 1 & 1u);
    x.i = info[block];
    x.i1 = info[block + 2];
#else
    x.i = info[c];
#endif
#endif
    return x;
}

/* What is read of piece c of a row in a stage: its bytes, and what scales them. */
typedef struct w_fragment {
    mk_u32x4 q[PIECE];
    mk_u32x4 more; /* q4_k: the block's scales; q6_k: the upper bits */
    mk_u32 d;      /* f16 */
    mk_u32 scales; /* q6_k: of both, signed bytes */
} w_fragment;

MK_FN w_fragment w_load(stage_row row, const mk_stream_params *p, mk_u32 c)
{
    w_fragment w;
#pragma unroll
    for (mk_u32 part = 0; part < PIECE; part++)
        w.q[part] = shared4(row, 16 * unit_of(c, part));
#if W == MK_W_Q8_0 || W == MK_W_Q4_0
    w.d = *(const mk_u16 *)(row + p->weight.fields.base[1] + 2 * c);
#elif W == MK_W_Q4_K
    w.more = shared4(row + p->weight.fields.base[1], 16 * (c >> 2));
#elif W == MK_W_Q6_K
    const mk_u8 *scales = row + p->weight.fields.base[2] + 2 * (c & ~3u) + (c & 3u);
    w.more = shared4(row + p->weight.fields.base[1], 64 * (c >> 3) + 32 * (c >> 2 & 1u) + 16 * (c & 1u));
    w.scales = scales[0] | (mk_u32)scales[4] << 8;
    w.d = *(const mk_u16 *)(row + p->weight.fields.base[3] + 2 * (c >> 3));
#else
    (void)p;
#endif
    return w;
}

/* acc + the products of piece c. */
MK_FN mk_f32 fragment_dot(const w_fragment *w, const x_fragment *x, mk_u32 c, mk_f32 acc)
{
    (void)c;
#if DENSE
    const mk_u32 word[4] = {w->q[0].x, w->q[0].y, w->q[0].z, w->q[0].w};
#pragma unroll
    for (mk_u32 j = 0; j < 4; j++) {
#if W == MK_W_F16
        acc = mk_fma(mk_f32_of_f16((mk_u16)word[j]), x->v[2 * j], acc);
        acc = mk_fma(mk_f32_of_f16((mk_u16)(word[j] >> 16)), x->v[2 * j + 1], acc);
#else
        acc = mk_fma(mk_f32_of_bits(word[j] << 16), x->v[2 * j], acc);
        acc = mk_fma(mk_f32_of_bits(word[j] & 0xffff0000u), x->v[2 * j + 1], acc);
#endif
    }
    return acc;
#elif W == MK_W_Q8_0
    const mk_i32 dot = dot16(w->q[1], x->low[1], dot16(w->q[0], x->low[0], 0));
    return mk_fma(mk_f32_of_f16((mk_u16)w->d) * x->i.scale, (mk_f32)dot, acc);
#elif W == MK_W_Q4_0
    const mk_i32 dot = dot16_masked(w->q[0], HIGH, x->high[0], 16 * dot16_masked(w->q[0], LOW, x->low[0], 0));
    return mk_fma(mk_f32_of_f16((mk_u16)w->d) * x->i.scale, (mk_f32)dot - x->i.sum, acc);
#elif W == MK_W_Q4_K
    const mk_u32 late = c & 2u, shift = (c & 1u) * 16;
    const mk_u32 s = (late != 0 ? (w->more.w & LOW) | (w->more.y >> 2 & 0x30303030u) : w->more.y & 0x3f3f3f3fu) >> shift;
    const mk_u32 m = (late != 0 ? (w->more.w >> 4 & LOW) | (w->more.z >> 2 & 0x30303030u) : w->more.z & 0x3f3f3f3fu) >> shift;
    const mk_i32 low = dot16_masked(w->q[1], LOW, x->low[1], dot16_masked(w->q[0], LOW, x->low[0], 0));
    const mk_i32 high = dot16_masked(w->q[1], HIGH, x->high[1], dot16_masked(w->q[0], HIGH, x->high[0], 0));
    const mk_i32 low_s = low * (mk_i32)(s & 255u), high_s = high * (mk_i32)(s >> 8 & 255u);
    const mk_f32 more = mk_fma((mk_f32)low_s, x->i.scale, (mk_f32)high_s * x->i1.scale);
    const mk_f32 less = mk_fma((mk_f32)(m & 255u), x->i.sum, (mk_f32)(m >> 8 & 255u) * x->i1.sum);
    acc = mk_fma(mk_f32_of_f16((mk_u16)w->more.x), more, acc);
    return mk_fma(-mk_f32_of_f16((mk_u16)(w->more.x >> 16)), less, acc);
#else
    const mk_u32 part = c & 2u;
    const mk_i32 low = dot16_six(w->q[0], 0, w->more, part, x->low[0]) * (mk_i32)(mk_i8)w->scales;
    const mk_i32 high = dot16_six(w->q[0], 4, w->more, 4 + part, x->high[0]) * (mk_i32)(mk_i8)(w->scales >> 8);
    return mk_fma(mk_f32_of_f16((mk_u16)w->d), mk_fma((mk_f32)low, x->i.scale, (mk_f32)high * x->i1.scale), acc);
#endif
}
