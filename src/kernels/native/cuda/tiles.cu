//use hopper
//use swizzle
//use dequantize
//use params/tiles
/*
 * tiles.cu - operands of gemm.cu: x, and weights of the types that dequantize.cu knows, in tiles (swizzle.cu). unpack.cu has the
 * others.
 *
 * Columns past k are zero; rows past the end are not written. HALF is MK_F16 or MK_BF16; W, where there is one, the type of the
 * weights. In f16 each row of x is multiplied by a power of two that brings its greatest number just below 2^14, so that nothing
 * overflows and what gets lost is 2^-28 of that; gemm.cu takes it out again.
 */
#ifndef W /* ---- x: one group a row ---- */

MK_FN void load8(const mk_u8 *x, mk_u32 type, mk_u32 i, mk_u32 k, mk_f32 *v)
{
    const mk_u64 at = (mk_u64)i * mk_type_bytes(type);
    if (i + 8 <= k && type == MK_F32 && ((mk_u64)(x + at) & 15u) == 0) {
        const mk_u32x4 a = mk_ld4_u32(x, at), b = mk_ld4_u32(x, at + 16);
        v[0] = mk_f32_of_bits(a.x), v[1] = mk_f32_of_bits(a.y), v[2] = mk_f32_of_bits(a.z), v[3] = mk_f32_of_bits(a.w);
        v[4] = mk_f32_of_bits(b.x), v[5] = mk_f32_of_bits(b.y), v[6] = mk_f32_of_bits(b.z), v[7] = mk_f32_of_bits(b.w);
        return;
    }
    for (mk_u32 j = 0; j < 8; j++)
        v[j] = i + j < k ? mk_load(x, at + (mk_u64)j * mk_type_bytes(type), type) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(MK_WG) pack_x(const mk_u8 *x, const mk_u8 *norm_weight, mk_u8 *tiles,
                                                           mk_u8 *scales, const __grid_constant__ mk_tiles_params p)
{
    __shared__ mk_f32 scratch[MK_WG];
    const mk_u32 lid = threadIdx.x, row = blockIdx.x;
    launch_dependents();
    wait_for_inputs();
    mk_f32 v[8], w[8], sum = 0.0f, most = 0.0f;
    x += row * p.stride;
    for (mk_u32 i = 8 * lid; i < p.k; i += 8 * MK_WG) {
        load8(x, p.x_type, i, p.k, v);
        if (p.norm == 2)
            load8(norm_weight, p.norm_type, i, p.k, w);
        for (mk_u32 j = 0; j < 8; j++) {
            sum = mk_fma(v[j], v[j], sum);
            most = mk_max(mk_abs(p.norm == 2 ? v[j] * w[j] : v[j]), most);
        }
    }
    mk_f32 norm = 1.0f, scale = 1.0f;
    if (p.norm != 0)
        norm = 1.0f / mk_sqrt(mk_wg_sum(sum, scratch, lid) / (mk_f32)p.k + p.eps);
#if HALF == MK_F16
    most = mk_wg_max(most, scratch, lid) * norm;
    const mk_i32 exponent = (mk_i32)(mk_bits_of_f32(most) >> 23) - 127; /* most is below 2^(exponent + 1) */
    if (exponent > -113 && exponent < 128)
        scale = mk_pow2i(13 - exponent > 126 ? 126 : 13 - exponent);
    if (lid == 0)
        mk_st_f32(scales, 4ull * row, 1.0f / scale);
#else
    if (lid == 0)
        mk_st_f32(scales, 4ull * row, 1.0f);
#endif
    for (mk_u32 i = 8 * lid; i < 64 * p.k_tiles; i += 8 * MK_WG) {
        load8(x, p.x_type, i, p.k, v);
        for (mk_u32 j = 0; j < 8; j++)
            w[j] = 1.0f;
        if (p.norm == 2)
            load8(norm_weight, p.norm_type, i, p.k, w);
        for (mk_u32 j = 0; j < 8; j++)
            v[j] = v[j] * norm * w[j] * scale;
        mk_u8 *block = tiles + (mk_u64)(row / 128) * p.k_tiles * 16384;
        if (p.order == MK_X_ROWS)
            *(mk_u32x4 *)(tiles + (mk_u64)row * p.k_tiles * 128 + 2 * i) = piece_of(v);
        else if (p.order == MK_X_TILES)
            store_piece(block, 128, row % 128, i >> 3, piece_of(v));
        else
            store_in_window(block, row % 128, i >> 3, piece_of(v));
    }
}

#else /* ---- weights: a thread 32 columns of a row, 16 rows by 512 columns a group; z of the grid: which weight ---- */

extern "C" __global__ void __launch_bounds__(MK_WG) pack_weights(const mk_u8 *__restrict__ w0, const mk_u8 *__restrict__ w1,
                                                                 const mk_u8 *__restrict__ w2, const mk_u8 *__restrict__ w3,
                                                                 mk_u8 *tiles, const __grid_constant__ mk_tiles_params p)
{
    const mk_u32 weight = blockIdx.z, lid = threadIdx.x;
    const mk_u32 row = blockIdx.x * 16 + lid / 16, b = blockIdx.y * 16 + lid % 16;
    launch_dependents();
    wait_for_inputs();
    const mk_u32 inside = row < p.outputs[weight] && b < 2 * p.k_tiles; /* both threads of a pair, or none */
    const mk_u8 *w = (weight == 0 ? w0 : weight == 1 ? w1 : weight == 2 ? w2 : w3) + row * p.stride;
    const raw32 raw = fetch32(w, p.field_at, inside != 0 ? p.k : 0, b);
    const weight_place to = place_of(row, p.gate != 0 ? 1 + weight + p.second : 0, p.first_tile[weight]);
    mk_u32x4 piece[4];
#pragma unroll
    for (mk_u32 c = 0; c < 4; c++)
        piece[c] = piece_of_raw(&raw, b, c);
    store_block(tiles + (mk_u64)to.tile * p.k_tiles * 32768, to.row, b, inside, piece);
}
#endif
