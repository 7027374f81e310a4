//use hopper
//use iq_grid
//use blocks
//use swizzle
//use dequantize_any
//use params/unpack
/*
 * unpack.cu - weights of any quantised type W as an operand of gemm.cu: 16-bit numbers (dequantize_any.cu) in tiles (swizzle.cu).
 * A thread takes 32 columns of a row, a group 16 rows by 512 columns.
 */
extern "C" __global__ void __launch_bounds__(MK_WG) unpack(WEIGHT(0), mk_u8 *tiles, const __grid_constant__ mk_unpack_params p)
{
    const mk_u32 lid = threadIdx.x, row = blockIdx.x * 16 + lid / 16, b = blockIdx.y * 16 + lid % 16;
    const mk_u32 inside = row < p.outputs && b < 2 * p.k_tiles; /* both threads of a pair, or none */
    launch_dependents();
    wait_for_inputs();
    const weight_row from = row_behind(FIRST_ROW(0), row, &p.row);
    const raw32 raw = fetch32(from, &p.weight, inside != 0 ? p.weight.k : 0, b);
    const weight_place to = place_of(row, p.side, p.first_tile);
    mk_u32x4 piece[4];
#pragma unroll
    for (mk_u32 c = 0; c < 4; c++)
        piece[c] = piece_of_raw(&raw, b, c);
    store_block(tiles + (mk_u64)to.tile * p.k_tiles * 32768, to.row, b, inside, piece);
}
