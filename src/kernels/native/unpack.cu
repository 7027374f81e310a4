//use hopper
//use iq_grid
//use blocks
//use values
//use pieces
/*
 * unpack.cu - weights of any quantised type W as an operand of gemm.cu: the values of values.kc, rounded to 16 bits, in tiles
 * (pieces.cu). A thread takes 32 columns of a row, a group 16 rows by 512 columns.
 */
extern "C" __global__ void __launch_bounds__(MK_WG) unpack(
#if MK_IS_GROUPED
    const mk_u8 *__restrict__ w, const mk_u8 *__restrict__ scales, const mk_u8 *__restrict__ biases, mk_u8 *tiles,
#else
    const mk_u8 *__restrict__ w, mk_u8 *tiles,
#endif
    const __grid_constant__ mk_unpack_params p)
{
    const mk_u32 lid = threadIdx.x, row = blockIdx.x * 16 + lid / 16, b = blockIdx.y * 16 + lid % 16;
    const mk_u32 inside = row < p.outputs && b < 2 * p.k_tiles; /* both threads of a pair, or none */
    launch_dependents();
    wait_for_inputs();
    mk_u32x4 piece[4];
#pragma unroll
    for (mk_u32 c = 0; c < 4; c++)
        piece[c].x = piece[c].y = piece[c].z = piece[c].w = 0;
    if (inside != 0 && 32 * b < p.weight.k) {
        mk_row from;
        from.q = w + row * p.stride;
        from.scales = MK_TABLE_OF(w, scales) + row * p.scale_stride;
        from.biases = MK_TABLE_OF(w, biases) + row * p.bias_stride;
        const mk_values values = mk_row_values(from, &p.weight, b);
#pragma unroll
        for (mk_u32 c = 0; c < 4; c++)
            piece[c] = piece_of(values.v + 8 * c);
    }
    const weight_place to = place_of(row, p.side, p.first_tile);
    store_block(tiles + (mk_u64)to.tile * p.k_tiles * 32768, to.row, b, inside, piece);
}
