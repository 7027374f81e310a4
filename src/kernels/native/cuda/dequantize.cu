//use params/steps
//use params/weight_type
/*
 * dequantize.cu - 32 columns of a weight's row as 16-bit numbers: `fetch32` reads the bytes, `piece_of_raw` makes eight numbers of
 * them, so that what is read can be under way while something else is decoded. W is the type of the weights, HALF MK_F16 or
 * MK_BF16; weights of 16 bits are of type HALF.
 */
#ifdef W

#if W == MK_W_Q4_0
#define RAW_WORDS 4
#elif W == MK_W_Q8_0
#define RAW_WORDS 8
#elif W == MK_W_Q4_K
#define RAW_WORDS 12
#else
#define RAW_WORDS 16
#endif

/* A weight among the parameters of a kernel, its first row, and what fetch32 wants of parameters. */
#define WEIGHT(i) const mk_u8 *__restrict__ w##i
#define FIRST_ROW(i) (w##i)
#define WEIGHT_OF(p) ((p)->field_at)

typedef const mk_u8 *weight_row;

MK_FN weight_row row_behind(weight_row row, mk_u64 n, const mk_steps *by)
{
    return row + n * by->data;
}

/* Codes, then what else a type has in runs of 16 bytes; `meta`: the scale in f16, and behind it two small ones. */
typedef struct raw32 {
    mk_u32 word[RAW_WORDS];
    mk_u32 meta;
} raw32;

#ifdef EVEN /* rows begin at multiples of 16, k is one of 128, and whoever reads goes along the row */

#define IS_INSIDE(end, k) 1

MK_FN void load16(const mk_u8 *p, mk_u64 at, mk_u32 *out)
{
    asm volatile("ld.global.nc.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "l"(p + at));
}

#else

#define IS_INSIDE(end, k) ((end) <= (k))

/* 16 bytes at an even place. */
MK_FN void load16(const mk_u8 *p, mk_u64 at, mk_u32 *out)
{
    if (((mk_u64)(p + at) & 15u) == 0) {
        const mk_u32x4 w = mk_ld4_u32(p, at);
        out[0] = w.x, out[1] = w.y, out[2] = w.z, out[3] = w.w;
        return;
    }
#pragma unroll
    for (mk_u32 i = 0; i < 4; i++)
        out[i] = mk_ld_u32_at2(p, at + 4 * i);
}

#endif

/* Columns 32 b to 32 b + 31 of the row at `w`, whose planes begin at `field_at`; past k they are zero. */
MK_FN raw32 fetch32(weight_row w, const mk_u64 *field_at, mk_u32 k, mk_u32 b)
{
    raw32 r;
    if (!IS_INSIDE(32 * b + 1, k)) {
#pragma unroll
        for (mk_u32 i = 0; i < RAW_WORDS; i++)
            r.word[i] = 0;
        r.meta = 0;
        return r;
    }
    r.meta = 0;
#if W == MK_W_Q4_0
    load16(w, 16ull * b, r.word);
    r.meta = mk_ld_u16(w + field_at[1], 2ull * b);
#elif W == MK_W_Q8_0
    load16(w, 32ull * b, r.word);
    load16(w, 32ull * b + 16, r.word + 4);
    r.meta = mk_ld_u16(w + field_at[1], 2ull * b);
#elif W == MK_W_Q4_K
    const mk_u64 at = 128ull * (b >> 3) + 32 * (b >> 1 & 3u);
    load16(w, at, r.word);
    load16(w, at + 16, r.word + 4);
    load16(w + field_at[1], 16ull * (b >> 3), r.word + 8);
#elif W == MK_W_Q6_K
    const mk_u32 h = b >> 2 & 1u, quarter = b & 3u;
    const mk_u64 block = b >> 3, at = 128 * block + 64 * h + 32 * (quarter & 1u), high = 64 * block + 32 * h;
    load16(w, at, r.word);
    load16(w, at + 16, r.word + 4);
    load16(w + field_at[1], high, r.word + 8);
    load16(w + field_at[1], high + 16, r.word + 12);
    r.meta = mk_ld_u16(w + field_at[3], 2 * block) | (mk_u32)mk_ld_u16(w + field_at[2], 16 * block + 8 * h + 2 * quarter) << 16;
#else
    if (IS_INSIDE(32 * b + 32, k)) {
#pragma unroll
        for (mk_u32 i = 0; i < 4; i++)
            load16(w, 64ull * b + 16 * i, r.word + 4 * i);
        return r;
    }
#pragma unroll
    for (mk_u32 i = 0; i < 16; i++) {
        const mk_u32 column = 32 * b + 2 * i;
        r.word[i] = column < k ? mk_ld_u16(w, 2ull * column) : 0u;
        r.word[i] |= column + 1 < k ? (mk_u32)mk_ld_u16(w, 2ull * column + 2) << 16 : 0u;
    }
#endif
    return r;
}

/* Columns 8 c to 8 c + 7 of block b. */
MK_FN mk_u32x4 piece_of_raw(const raw32 *r, mk_u32 b, mk_u32 c)
{
    mk_u32 v[4];
#if W == MK_W_F16 || W == MK_W_BF16
#pragma unroll
    for (mk_u32 i = 0; i < 4; i++)
        v[i] = r->word[4 * c + i];
#else
    mk_u32 code[2];
#pragma unroll
    for (mk_u32 i = 0; i < 2; i++) {
#if W == MK_W_Q4_0
        code[i] = r->word[2 * (c & 1u) + i] >> 4 * (c >> 1) & 0x0f0f0f0fu;
#elif W == MK_W_Q8_0
        code[i] = r->word[2 * c + i] ^ 0x80808080u;
#elif W == MK_W_Q4_K
        code[i] = r->word[2 * c + i] >> 4 * (b & 1u) & 0x0f0f0f0fu;
#else
        code[i] = (r->word[2 * c + i] >> 4 * (b >> 1 & 1u) & 0x0f0f0f0fu) | (r->word[8 + 2 * c + i] >> 2 * (b & 3u) & 0x03030303u) << 4;
#endif
    }
#if W == MK_W_Q4_K
    const mk_u32 j = b & 7u, shift = 8 * (j & 3u), at = r->word[8], scales = r->word[9] >> shift, mins = r->word[10] >> shift;
    const mk_u32 rest = r->word[11] >> shift;
    const mk_u32 s = j < 4 ? scales & 63u : (rest & 15u) | (scales >> 2 & 48u);
    const mk_u32 m = j < 4 ? mins & 63u : (rest >> 4 & 15u) | (mins >> 2 & 48u);
    const two_f16 d = split_scale(mk_f32_of_f16((mk_u16)at) * (mk_f32)(s << 4));
    const mk_f32 less = -mk_f32_of_f16((mk_u16)(at >> 16)) * (mk_f32)m;
    const mk_u32 low = f16_pair(less, less);
#elif W == MK_W_Q6_K
    const two_f16 d = split_scale(mk_f32_of_f16((mk_u16)r->meta) * (mk_f32)((mk_i8)(r->meta >> (16 + 8 * (c >> 1))) * 32));
#else
    const mk_u32 d = f16_twice(r->meta);
#endif
#pragma unroll
    for (mk_u32 i = 0; i < 4; i++) {
#if W == MK_W_Q4_0
        v[i] = f16_mul(d, small_numbers(code[i >> 1], i & 1u, 8, 0));
#elif W == MK_W_Q8_0
        v[i] = f16_mul(d, small_numbers(code[i >> 1], i & 1u, 128, 0));
#elif W == MK_W_Q4_K
        const mk_u32 q = small_numbers(code[i >> 1], i & 1u, 0, 4);
        v[i] = f16_fma(d.low, q, f16_fma(d.high, q, low));
#else
        const mk_u32 q = small_numbers(code[i >> 1], i & 1u, 32, 5);
        v[i] = f16_fma(d.high, q, f16_mul(d.low, q));
#endif
    }
#endif
    mk_u32x4 piece;
    piece.x = v[0], piece.y = v[1], piece.z = v[2], piece.w = v[3];
    return piece;
}

#endif
