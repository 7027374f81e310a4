/*
 * any.cu - 32 columns of a weight's row as 16-bit numbers, for any quantised type W: the values of values.kc, rounded. They are
 * made at once when they are read. fetch32 and piece_of_raw are for block types what decode.cu has by these names.
 */
#define WEIGHT_OF(p) (&(p)->weight)

typedef struct raw32 {
    mk_u32x4 piece[4];
} raw32;

/* Columns 32 b to 32 b + 31 of a row; past k they are zero. */
MK_FN raw32 fetch_row(mk_row row, const mk_weight *weight, mk_u32 k, mk_u32 b)
{
    raw32 r;
#pragma unroll
    for (mk_u32 c = 0; c < 4; c++)
        r.piece[c].x = r.piece[c].y = r.piece[c].z = r.piece[c].w = 0;
    if (32 * b < k) {
        const mk_values values = mk_row_values(row, weight, b);
#pragma unroll
        for (mk_u32 c = 0; c < 4; c++)
            r.piece[c] = piece_of(values.v + 8 * c);
    }
    return r;
}

MK_FN raw32 fetch32(const mk_u8 *w, const mk_weight *weight, mk_u32 k, mk_u32 b)
{
    mk_row row;
    row.q = row.scales = row.biases = w;
    return fetch_row(row, weight, k, b);
}

MK_FN mk_u32x4 piece_of_raw(const raw32 *r, mk_u32 b, mk_u32 c)
{
    (void)b;
    return r->piece[c];
}
