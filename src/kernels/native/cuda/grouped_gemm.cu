//use params/routed
/*
 * grouped_gemm.cu - matmul_experts of many slots through the matrix units: y[slot] = x[slot / x_slots] . weight[id of slot]^T,
 * with GATE act(x . w0^T) * (x . w1^T). Tiles of slots that go to one expert come from the map of experts.kc.
 *
 * One group a multiprocessor goes over tiles of 128 slots by 128 columns. An expert has few slots, so its weights are not
 * unpacked beforehand: eight warps, the producers, bring the next 64 columns of 128 rows to shared memory as 16-bit numbers, half
 * a row a thread, and gather the rows of x (pack_x of tiles.cu, plain) by asynchronous copies, while two groups of four warps
 * multiply 64 slots each. Tiles of shared memory are those of swizzle.cu. Equals matmul of matmul.kc with operands rounded to 16
 * bits. What unpacks weights stands in front of this text: dequantize.cu (routed.cu) or dequantize_any.cu (routed_any.cu).
 */
#define STAGES 6
#define A_BYTES 16384u
#define B_BYTES 16384u
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define GROUP_TILES 16u /* tiles of slots that go together, so that what runs at one time shares operands in the cache */
#define PRODUCERS 256u
#define PIECES 4u /* of x, 16 bytes each, of a stage, for a thread */

extern __shared__ __attribute__((aligned(128))) mk_u8 routed_memory[];

typedef struct routed_tile {
    mk_u32 expert, first, count, column_tile; /* slots: `count` from place `first` of the map's list on */
} routed_tile;

MK_FN routed_tile tile_of(const mk_routed_params *p, const mk_u8 *map, mk_u32 row_tiles, mk_u32 t)
{
    const mk_u32 per_group = GROUP_TILES * p->column_tiles, group = t / per_group, rest = t - group * per_group;
    const mk_u32 left = row_tiles - group * GROUP_TILES, height = left < GROUP_TILES ? left : GROUP_TILES;
    const mk_u32x4 entry = mk_ld4_u32(map, 16ull * (group * GROUP_TILES + rest % height));
    routed_tile tile;
    tile.expert = entry.x;
    tile.first = entry.y;
    tile.count = entry.z;
    tile.column_tile = rest / height;
    return tile;
}

MK_FN mk_u32 slot_at(const mk_routed_params *p, const mk_u8 *map, mk_u32 place)
{
    return mk_ld_u32(map, 16ull * p->tiles + 4ull * place);
}

/* ---- the producers ---- */

/* What a thread brings of a tile: half a row of the weight, and a piece of each of four rows of x, which begin at `x`. */
typedef struct source {
    weight_row weight;
    mk_u32 x[PIECES], pieces; /* in use */
} source;

MK_FN source source_of(const mk_routed_params *p, weight_row w0, weight_row w1, const mk_u8 *map, routed_tile tile)
{
    const mk_u32 lid = threadIdx.x, expert = tile.expert < p->experts ? tile.expert : 0u;
    source s;
    const mk_u32 row = lid / 2;
#if GATE != 0
    mk_u32 n = tile.column_tile * 64 + row / 16 * 8 + row % 8;
    const weight_row w = (row / 8 & 1u) != 0 ? w1 : w0;
#else
    mk_u32 n = tile.column_tile * 128 + row;
    const weight_row w = w0;
#endif
    n = n < p->outputs ? n : p->outputs - 1;
    s.weight = row_behind(row_behind(w, expert, &p->expert), n, &p->row);
    const mk_u32 last = tile.count - 1;
    s.pieces = lid / 8 <= last ? (last - lid / 8) / (PRODUCERS / 8) + 1 : 0;
#pragma unroll
    for (mk_u32 i = 0; i < PIECES; i++) {
        const mk_u32 x_row = lid / 8 + i * (PRODUCERS / 8);
        s.x[i] = slot_at(p, map, tile.first + (x_row < last ? x_row : last)) / p->x_slots * p->k_tiles * 128 + lid % 8 * 16;
    }
    return s;
}

MK_FN void copy_x(mk_u32 stage_at, const mk_u8 *x, const source *s, mk_u32 k_tile)
{
    const mk_u32 row = threadIdx.x / 8, piece = threadIdx.x % 8; /* the other rows are multiples of 8 further on */
#pragma unroll
    for (mk_u32 i = 0; i < PIECES; i++)
        if (i < s->pieces) /* rows of x past the tile's slots keep what they have: nobody stores their sums */
            copy_async(stage_at + (row + i * (PRODUCERS / 8)) * 128 + ((piece ^ (row & 7u)) << 4), x + s->x[i] + k_tile * 128);
    asm volatile("cp.async.commit_group;" ::: "memory");
}

MK_FN void store_weight(mk_u32 stage_at, const raw32 *raw, mk_u32 k_tile)
{
    const mk_u32 row = threadIdx.x / 2, side = threadIdx.x % 2, at = stage_at + A_BYTES + row * 128;
#pragma unroll
    for (mk_u32 c = 0; c < 4; c++) {
        const mk_u32x4 w = piece_of_raw(raw, 2 * k_tile + side, c);
        asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at + (((4 * side + c) ^ (row & 7u)) << 4)), "r"(w.x),
                     "r"(w.y), "r"(w.z), "r"(w.w)
                     : "memory");
    }
}

MK_FN void produce(const mk_routed_params *p, const mk_u8 *x, weight_row w0, weight_row w1, const mk_u8 *map, mk_u32 row_tiles,
                 mk_u32 base, ring r)
{
    const mk_u32 tiles = row_tiles * p->column_tiles;
    mk_u32 t = blockIdx.x, k = 0;
    if (t >= tiles)
        return;
    source s = source_of(p, w0, w1, map, tile_of(p, map, row_tiles, t));
    const mk_u32 side = threadIdx.x % 2;
    copy_x(base, x, &s, 0);
    raw32 raw = fetch32(s.weight, WEIGHT_OF(p), p->k, side);
    while (t < tiles) { /* x of this stage is on its way, what it has of the weight in registers */
        const mk_u32 at = base + r.stage * STAGE_BYTES, bar = r.full + 8 * r.stage, own_k = k;
        ring_next(&r, STAGES);
        if (++k == p->k_tiles) {
            k = 0;
            t += gridDim.x;
            if (t < tiles)
                s = source_of(p, w0, w1, map, tile_of(p, map, row_tiles, t));
        }
        if (t < tiles) {
            barrier_wait(r.empty + 8 * r.stage, r.parity ^ 1u);
            copy_x(base + r.stage * STAGE_BYTES, x, &s, k);
        } else {
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        const raw32 next = fetch32(s.weight, WEIGHT_OF(p), p->k, 2 * k + side); /* at the very end the last tile's again, for nobody */
        store_weight(at, &raw, own_k);
        raw = next;
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(bar);
    }
}

/* ---- those who multiply ---- */

/* One thread's part of a tile: `row` and row + 8 of it, columns 8 j + `column` and the next. */
MK_FN void store_tile(const mk_routed_params *p, const mk_f32 *d, routed_tile tile, mk_u32 row, mk_u32 column, const mk_u8 *scales,
                      const mk_u8 *map, mk_u8 *y)
{
    const mk_u32 first = tile.column_tile * (GATE != 0 ? 64 : 128) + column, bytes = mk_type_bytes(p->y_type);
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++) {
        if (row + 8 * h >= tile.count)
            continue;
        const mk_u32 slot = slot_at(p, map, tile.first + row + 8 * h), good = tile.expert < p->experts;
        const mk_f32 scale = mk_ld_f32(scales, 4ull * (slot / p->x_slots));
        mk_u8 *to = y + slot * p->y_stride;
#pragma unroll
        for (mk_u32 j = 0; j < (GATE != 0 ? 8 : 16); j++) {
            const mk_u32 n = first + 8 * j;
#if GATE != 0
            mk_f32 a = ACTIVATE(d[8 * j + 2 * h] * scale) * (d[8 * j + 4 + 2 * h] * scale);
            mk_f32 b = ACTIVATE(d[8 * j + 2 * h + 1] * scale) * (d[8 * j + 5 + 2 * h] * scale);
#else
            mk_f32 a = d[4 * j + 2 * h] * scale, b = d[4 * j + 2 * h + 1] * scale;
#endif
            if (n < p->outputs)
                store_two(to, (mk_u64)n * bytes, p->y_type, good ? a : 0.0f, good ? b : 0.0f, n + 1 < p->outputs);
        }
    }
}

MK_FN void multiply(const mk_routed_params *p, const mk_u8 *scales, const mk_u8 *map, mk_u8 *y, mk_u32 row_tiles, mk_u32 base,
                    ring r)
{
    const mk_u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, half = (threadIdx.x - PRODUCERS) / 128;
    for (mk_u32 t = blockIdx.x; t < row_tiles * p->column_tiles; t += gridDim.x) {
        const routed_tile tile = tile_of(p, map, row_tiles, t);
        const mk_u32 is_idle = tile.count <= half * 64; /* no slot here: the other half has the unit to itself */
        mk_f32 d[64];
        mk_u32 before = STAGES;
        for (mk_u32 k = 0; k < p->k_tiles; k++) {
            const mk_u32 at = base + r.stage * STAGE_BYTES;
            const mk_u64 a = tile_descriptor(at + half * 8192), b = tile_descriptor(at + A_BYTES);
            barrier_wait(r.full + 8 * r.stage, r.parity);
            if (is_idle == 0)
                wgmma_tile(d, a, b, k != 0);
            if (before < STAGES && lane == 0)
                barrier_arrive(r.empty + 8 * before);
            before = r.stage;
            ring_next(&r, STAGES);
        }
        wgmma_wait(0);
        if (lane == 0)
            barrier_arrive(r.empty + 8 * before);
        if (is_idle == 0)
            store_tile(p, d, tile, half * 64 + warp * 16 + lane / 4, 2 * (lane % 4), scales, map, y);
    }
}

extern "C" __global__ void __launch_bounds__(512, 1) routed(const mk_u8 *__restrict__ x, const mk_u8 *scales,
                                                            WEIGHT(0), WEIGHT(1), const mk_u8 *__restrict__ map, mk_u8 *y,
                                                            const __grid_constant__ mk_routed_params p)
{
    __shared__ __attribute__((aligned(8))) mk_u64 bars[2 * STAGES];
    const mk_u32 base = (shared_at(routed_memory) + 1023u) & ~1023u;
    const ring r = {shared_at(bars), shared_at(bars + STAGES), 0, 0};
    if (threadIdx.x == 0)
        ring_init(&r, STAGES, PRODUCERS / 32, 8);
    __syncthreads();
    launch_dependents();
    wait_for_inputs();
    const mk_u32 row_tiles = mk_ld_u32(map, 12); /* those in use */
    if (threadIdx.x < PRODUCERS) {
        produce(&p, x, FIRST_ROW(0), FIRST_ROW(1), map, row_tiles, base, r);
    } else {
        multiply(&p, scales, map, y, row_tiles, base, r);
    }
}
