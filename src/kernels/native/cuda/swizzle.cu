/*
 * swizzle.cu - tiles of 16-bit numbers (HALF: MK_F16 or MK_BF16) in the order in which the matrix unit reads them: 64 columns, a
 * row is 128 bytes, and its 16-byte piece c lies at c ^ (row & 7). x has tiles of 128 rows, weights of 256; the tiles of one
 * block of rows stand one after the other.
 */
MK_FN mk_u32 half_pair(mk_f32 low, mk_f32 high)
{
#if HALF == MK_BF16
    mk_u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#else
    return f16_pair(low, high);
#endif
}

MK_FN mk_u32x4 piece_of(const mk_f32 *v)
{
    mk_u32x4 w;
    w.x = half_pair(v[0], v[1]), w.y = half_pair(v[2], v[3]);
    w.z = half_pair(v[4], v[5]), w.w = half_pair(v[6], v[7]);
    return w;
}

/* Eight numbers as piece `piece` (of eight columns) of row `row`; `tiles` is the row block's first tile of `tile_rows`. */
MK_FN void store_piece(mk_u8 *tiles, mk_u32 tile_rows, mk_u32 row, mk_u32 piece, mk_u32x4 w)
{
    const mk_u64 tile = (mk_u64)(piece >> 3) * tile_rows * 128;
    *(mk_u32x4 *)(tiles + tile + row * 128 + (((piece & 7u) ^ (row & 7u)) << 4)) = w;
}

/* The same in tiles of 128 rows as mixed_gemm.cu wants them: the piece has two columns of each of four pieces of its window. */
MK_FN void store_in_window(mk_u8 *tiles, mk_u32 row, mk_u32 piece, mk_u32x4 w)
{
    const mk_u32 quarter = piece >> 2 & 3u, first = (piece & ~15u) + 4 * (piece & 3u), word[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (mk_u32 i = 0; i < 4; i++) {
        const mk_u32 to = first + i;
        *(mk_u32 *)(tiles + (mk_u64)(to >> 3) * 16384 + row * 128 + (((to & 7u) ^ (row & 7u)) << 4) + 4 * quarter) = word[i];
    }
}

/* Where row `row` of a weight lies. `side` 0: in a tile of its own weight; 1 or 2: the first or second weight of a gate, whose
 * rows stand eight by eight beside each other. */
typedef struct weight_place {
    mk_u32 tile, row;
} weight_place;

MK_FN weight_place place_of(mk_u32 row, mk_u32 side, mk_u32 first_tile)
{
    weight_place to;
    to.tile = side != 0 ? row / 128 : first_tile + row / 256;
    to.row = side != 0 ? ((row % 128 / 8) * 2 + side - 1) * 8 + row % 8 : row % 256;
    return to;
}

/* Columns 32 b to 32 b + 31 of a weight's row, from a whole warp in which each two neighbours have blocks 2 n and 2 n + 1 of a
 * row. The eight pieces of a row of a tile belong to the two. They exchange half of them, so that what they store at a time are 32
 * bytes side by side: the even one has pieces 0 2 4 6, the odd one 1 3 5 7. */
MK_FN void store_block(mk_u8 *tiles, mk_u32 row, mk_u32 b, mk_u32 inside, const mk_u32x4 *piece)
{
    const mk_u32 odd = b & 1u;
#pragma unroll
    for (mk_u32 c = 0; c < 4; c += 2) {
        const mk_u32x4 kept = odd != 0 ? piece[c + 1] : piece[c], given = odd != 0 ? piece[c] : piece[c + 1];
        mk_u32x4 got;
        got.x = __shfl_xor_sync(0xffffffffu, given.x, 1), got.y = __shfl_xor_sync(0xffffffffu, given.y, 1);
        got.z = __shfl_xor_sync(0xffffffffu, given.z, 1), got.w = __shfl_xor_sync(0xffffffffu, given.w, 1);
        if (inside == 0)
            continue;
        store_piece(tiles, 256, row, 4 * (b & ~1u) + c + odd, odd != 0 ? got : kept);
        store_piece(tiles, 256, row, 4 * (b & ~1u) + c + 4 + odd, odd != 0 ? kept : got);
    }
}
