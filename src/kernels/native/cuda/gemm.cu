//use hopper
//use wgmma
//use params/gemm
//arch a
/*
 * gemm.cu - y = x . weight^T from the 16-bit tiles of tiles.cu, through the matrix units, sums in f32.
 *
 * One group a multiprocessor goes over tiles of 128 rows by COLUMNS columns: 256, or 128 where there are too few tiles for all
 * multiprocessors, which is half of one in memory. The first four warps are producers: one thread keeps STAGES pairs of tiles of
 * 64 columns under way by bulk copies. Two groups of four warps are consumers, which multiply 64 rows each. A gate has the rows
 * of both weights interleaved by eights, so that each thread holds both factors. Equals matmul of matmul.kc with operands rounded
 * to 16 bits. CAPS and ADDS say whether there is a softcap and a residual: unrolled for nobody they take most of the compiler's
 * time.
 */
#define STAGES (COLUMNS == 256 ? 4 : 6)
#define PARTS (256u / COLUMNS) /* of a tile of weights */
#define A_BYTES 16384u
#define TILE_BYTES 32768u
#define B_BYTES (TILE_BYTES / PARTS)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define GROUP_TILES 16u /* row tiles that go together, so that what runs at one time shares operands in the cache */

extern __shared__ __attribute__((aligned(128))) mk_u8 gemm_memory[];

MK_FN void tile_of(const mk_gemm_params *p, mk_u32 t, mk_u32 *row_tile, mk_u32 *column_tile)
{
    const mk_u32 per_group = GROUP_TILES * p->column_tiles, group = t / per_group, rest = t - group * per_group;
    const mk_u32 left = p->row_tiles - group * GROUP_TILES, height = left < GROUP_TILES ? left : GROUP_TILES;
    *row_tile = group * GROUP_TILES + rest % height;
    *column_tile = rest / height;
}

#if GATE != 0

/* One thread's part of a tile: `row` and row + 8, columns 8 j + `column` and the next. */
MK_FN void store_tile(const mk_gemm_params *p, mk_f32 *d, mk_u32 row, mk_u32 tile, mk_u32 column, const mk_u8 *scales,
                      const mk_u8 *residual, mk_u8 *y0, mk_u8 *y1, mk_u8 *y2, mk_u8 *y3)
{
    const mk_u32 first = tile * 128 + column, outputs = p->outputs[0], type = p->y_type[0], bytes = mk_type_bytes(type);
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++) {
        const mk_u32 at_row = row + 8 * h;
        if (at_row >= p->rows)
            continue;
        const mk_f32 scale = mk_ld_f32(scales, 4ull * at_row);
        const mk_u64 y_row = at_row * p->y_stride[0];
#pragma unroll
        for (mk_u32 j = 0; j < 16; j++) {
            const mk_u32 n = first + 8 * j;
            const mk_f32 a = ACTIVATE(d[8 * j + 2 * h] * scale) * (d[8 * j + 4 + 2 * h] * scale);
            const mk_f32 b = ACTIVATE(d[8 * j + 2 * h + 1] * scale) * (d[8 * j + 5 + 2 * h] * scale);
            if (n < outputs)
                store_two(y0, y_row + (mk_u64)n * bytes, type, a, b, n + 1 < outputs);
        }
    }
}

#else

#define AHEAD 8u /* pairs of residuals under way at a time */

/* Two neighbours of a row of the residual, zero past its end. */
MK_FN void load_two(const mk_u8 *p, mk_u64 at, mk_u32 type, mk_u32 count, mk_f32 *v)
{
    v[0] = v[1] = 0.0f;
    if (count >= 2 && type == MK_F32 && ((mk_u64)(p + at) & 7u) == 0) {
        asm("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "l"(p + at));
        return;
    }
    if (count >= 1)
        v[0] = mk_load(p, at, type);
    if (count >= 2)
        v[1] = mk_load(p, at + mk_type_bytes(type), type);
}

/* The same. What few tiles need stands apart from the loop that stores, which then is short enough to stay in the cache of
 * instructions. */
MK_FN void store_tile(const mk_gemm_params *p, mk_f32 *d, mk_u32 row, mk_u32 tile, mk_u32 column, const mk_u8 *scales,
                      const mk_u8 *residual, mk_u8 *y0, mk_u8 *y1, mk_u8 *y2, mk_u8 *y3)
{
    mk_u32 weight = 0;
    while (weight + 1 < p->weights && tile >= PARTS * p->first_tile[weight + 1])
        weight++;
    const mk_u32 first = (tile - PARTS * p->first_tile[weight]) * COLUMNS + column;
    mk_u8 *y = weight == 0 ? y0 : weight == 1 ? y1 : weight == 2 ? y2 : y3;
    const mk_u32 outputs = p->outputs[weight], type = p->y_type[weight], bytes = mk_type_bytes(type);
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++) {
        const mk_u32 at_row = row + 8 * h;
        if (at_row >= p->rows)
            continue;
        const mk_f32 scale = mk_ld_f32(scales, 4ull * at_row);
        const mk_u64 y_row = at_row * p->y_stride[weight], residual_row = at_row * p->residual_stride;
#pragma unroll
        for (mk_u32 j = 0; j < COLUMNS / 8; j++) {
            d[4 * j + 2 * h] *= scale;
            d[4 * j + 2 * h + 1] *= scale;
        }
#if CAPS
        if (weight == 0)
#pragma unroll
            for (mk_u32 j = 0; j < COLUMNS / 8; j++) {
                d[4 * j + 2 * h] = mk_softcap(d[4 * j + 2 * h], p->softcap);
                d[4 * j + 2 * h + 1] = mk_softcap(d[4 * j + 2 * h + 1], p->softcap);
            }
#endif
#pragma unroll
        for (mk_u32 from = 0; from < COLUMNS / 8; from += AHEAD) {
#if ADDS
            mk_f32 r[2 * AHEAD];
            if (weight == 0) {
#pragma unroll
                for (mk_u32 j = 0; j < AHEAD; j++) {
                    const mk_u32 n = first + 8 * (from + j);
                    load_two(residual, residual_row + (mk_u64)n * mk_type_bytes(p->residual_type), p->residual_type,
                             n < outputs ? outputs - n : 0, r + 2 * j);
                }
#pragma unroll
                for (mk_u32 j = 0; j < AHEAD; j++) {
                    d[4 * (from + j) + 2 * h] += r[2 * j];
                    d[4 * (from + j) + 2 * h + 1] += r[2 * j + 1];
                }
            }
#endif
#pragma unroll
            for (mk_u32 j = from; j < from + AHEAD; j++) {
                const mk_u32 n = first + 8 * j;
                if (n < outputs)
                    store_two(y, y_row + (mk_u64)n * bytes, type, d[4 * j + 2 * h], d[4 * j + 2 * h + 1], n + 1 < outputs);
            }
        }
    }
}

#endif

extern "C" __global__ void __launch_bounds__(384, 1) gemm(const mk_u8 *__restrict__ x_tiles, const mk_u8 *scales,
                                                          const mk_u8 *__restrict__ w_tiles, const mk_u8 *residual,
                                                          mk_u8 *y0, mk_u8 *y1, mk_u8 *y2, mk_u8 *y3,
                                                          const __grid_constant__ mk_gemm_params p)
{
    __shared__ __attribute__((aligned(8))) mk_u64 bars[2 * STAGES];
    const mk_u32 group = threadIdx.x / 128, tiles = p.row_tiles * p.column_tiles;
    const mk_u32 base = (shared_at(gemm_memory) + 1023u) & ~1023u;
    ring r = {shared_at(bars), shared_at(bars + STAGES), 0, 0};
    if (threadIdx.x == 0)
        ring_init(&r, STAGES, 1, 8);
    __syncthreads();
    launch_dependents();
    wait_for_inputs();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 0)
            return;
        for (mk_u32 t = blockIdx.x; t < tiles; t += gridDim.x) {
            mk_u32 row_tile, column_tile;
            tile_of(&p, t, &row_tile, &column_tile);
            const mk_u8 *a = x_tiles + (mk_u64)row_tile * p.k_tiles * A_BYTES;
            const mk_u8 *b = w_tiles + (mk_u64)(column_tile / PARTS) * p.k_tiles * TILE_BYTES + column_tile % PARTS * B_BYTES;
            for (mk_u32 k = 0; k < p.k_tiles; k++, a += A_BYTES, b += TILE_BYTES) {
                const mk_u32 at = base + r.stage * STAGE_BYTES, bar = r.full + 8 * r.stage;
                barrier_wait(r.empty + 8 * r.stage, r.parity ^ 1u);
                barrier_expect(bar, STAGE_BYTES);
                bulk_load(at, a, A_BYTES, bar);
                bulk_load(at + A_BYTES, b, B_BYTES, bar);
                ring_next(&r, STAGES);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const mk_u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const mk_u32 row = (group - 1) * 64 + warp * 16 + lane / 4, column = 2 * (lane % 4);
        for (mk_u32 t = blockIdx.x; t < tiles; t += gridDim.x) {
            mk_u32 row_tile, column_tile;
            tile_of(&p, t, &row_tile, &column_tile);
            mk_f32 d[COLUMNS / 2];
            mk_u32 before = STAGES;
            for (mk_u32 k = 0; k < p.k_tiles; k++) {
                const mk_u32 at = base + r.stage * STAGE_BYTES;
                const mk_u64 a = tile_descriptor(at + (group - 1) * 8192), b = tile_descriptor(at + A_BYTES);
                barrier_wait(r.full + 8 * r.stage, r.parity);
                wgmma_tile(d, a, b, k != 0); /* the stage before this one has been read */
                if (before < STAGES && lane == 0)
                    barrier_arrive(r.empty + 8 * before);
                before = r.stage;
                ring_next(&r, STAGES);
            }
            wgmma_wait(0);
            if (lane == 0)
                barrier_arrive(r.empty + 8 * before);
            store_tile(&p, d, row_tile * 128 + row, column_tile, column, scales, residual, y0,
                       y1, y2, y3);
        }
    }
}
