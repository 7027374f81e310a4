//use hopper
//use iq_grid
//use blocks
//use values
//use pieces
//use any
/*
 * unpack.cu - weights of any quantised type W as an operand of gemm.cu: 16-bit numbers (any.cu) in tiles (pieces.cu). A thread
 * takes 32 columns of a row, a group 16 rows by 512 columns.
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
    mk_row from;
    from.q = w + row * p.stride;
    from.scales = MK_TABLE_OF(w, scales) + row * p.scale_stride;
    from.biases = MK_TABLE_OF(w, biases) + row * p.bias_stride;
    const raw32 raw = fetch_row(from, &p.weight, inside != 0 ? p.weight.k : 0, b);
    const weight_place to = place_of(row, p.side, p.first_tile);
    store_block(tiles + (mk_u64)to.tile * p.k_tiles * 32768, to.row, b, inside, raw.piece);
}
