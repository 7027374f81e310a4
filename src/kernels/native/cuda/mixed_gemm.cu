//use params/direct
/*
 * mixed_gemm.cu - y = x . weight^T for a batch of rows of x that is too small for tiles of weights in memory to be worth making.
 *
 * The matrix unit takes weights as its first operand, from registers: they come straight from memory and are decoded where they
 * are multiplied. x is the second one, COLUMNS rows of it (32, 64 or 128), in the tiles of swizzle.cu, which one thread brings to
 * shared memory by bulk copies, a window of 128 columns a stage. Lane l of a warp has columns 32 (l % 4) to 32 (l % 4) + 31 of a
 * window and of rows l / 4 and l / 4 + 8; pack_x puts the columns of x in that order (MK_X_WINDOWS).
 *
 * A group of four times four warps takes 64 OUT rows of weights, and each four warps every (4 / OUT)th window. SPLIT groups, a
 * cluster, share the windows of these rows. All leave their sums in shared memory, and each adds up what belongs to some rows of
 * x. With GATE the first eight rows of a warp's sixteen are of w0 and the others of w1. Equals matmul of matmul.kc with operands
 * rounded to 16 bits. What unpacks weights stands in front of this text: dequantize.cu (direct.cu) or dequantize_any.cu
 * (direct_any.cu).
 */
#define CONSUMERS (MK_WG - 128u)
#define OUT (COLUMNS == 128 ? 2u : 1u)
#define STAGES (COLUMNS == 128 ? 4u : 8u) /* more than parts: a part gives a stage back when it has its next one */
#define WINDOW_BYTES (COLUMNS * 256u)
#define TILE_ROWS (64u * OUT)
#define TILE_OUTPUTS (GATE != 0 ? TILE_ROWS / 2 : TILE_ROWS)
#define PARTS (CONSUMERS / 128u / OUT) /* of the windows of a group, none without a window */
#define SUM_STRIDE (TILE_ROWS + 4u)   /* of a row of x: two apart are eight banks apart */
#define PART_SUMS (COLUMNS * SUM_STRIDE)

/* Windows whose weights are under way. More of them make the loop longer, which costs more than it gives: the second-level cache
 * reads ahead by itself. */
#define AHEAD (MK_WG == 384 && RAW_WORDS <= 4 ? 2u : 1u)

/* Pieces are what was read, so its registers are free when the unit is through. */
#define UNIT_READS_RAW (RAW_WORDS == 16 && W != MK_W_Q6_K)

extern __shared__ __attribute__((aligned(128))) mk_u8 direct_memory[];

/* A tile's rows of one weight, or with a gate of the first two. */
typedef struct rows_place {
    mk_u32 weight, first; /* output */
} rows_place;

MK_FN rows_place place_of_tile(const mk_direct_params *p, mk_u32 tile)
{
    rows_place at;
    at.weight = 0;
    while (GATE == 0 && at.weight + 1 < p->weights && tile >= p->first_tile[at.weight + 1])
        at.weight++;
    at.first = (tile - p->first_tile[at.weight]) * TILE_OUTPUTS;
    return at;
}

/* ---- the producer of x ---- */

MK_FN void produce(const mk_u8 *x, mk_u32 windows, mk_u32 base, mk_u32 full, mk_u32 empty)
{
    for (mk_u32 i = 0; i < windows; i++, x += 2 * 16384) {
        const mk_u32 stage = i % STAGES, at = base + stage * WINDOW_BYTES, bar = full + 8 * stage;
        barrier_wait(empty + 8 * stage, (i / STAGES & 1u) ^ 1u);
        barrier_expect(bar, WINDOW_BYTES);
        bulk_load(at, x, WINDOW_BYTES / 2, bar);
        bulk_load(at + WINDOW_BYTES / 2, x + 16384, WINDOW_BYTES / 2, bar);
    }
}

/* ---- those who multiply ---- */

typedef struct two_raws {
    raw32 row[2];
} two_raws;

/* This lane's share of a window; `from` are the rows. */
MK_FN two_raws fetch_two(const mk_direct_params *p, const weight_row *from, mk_u32 window)
{
    two_raws r;
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++)
        r.row[h] = fetch32(from[h], WEIGHT_OF(p), p->k, 4 * window + threadIdx.x % 4);
    return r;
}

/* Half a window, four times 16 columns: pieces 2 `half` and the next of the lane's columns are two steps each. */
MK_FN void multiply_half(mk_f32 *d, const two_raws *raw, mk_u32 window, mk_u32 half, mk_u32 x_at, mk_u32 add)
{
    const mk_u64 x = tile_descriptor(x_at);
    mk_u32x4 w[2][2];
#pragma unroll
    for (mk_u32 c = 0; c < 2; c++)
#pragma unroll
        for (mk_u32 h = 0; h < 2; h++)
            w[c][h] = piece_of_raw(&raw->row[h], 4 * window + threadIdx.x % 4, 2 * half + c);
    wgmma_begin();
#pragma unroll
    for (mk_u32 c = 0; c < 2; c++) {
        wgmma_rows(d, w[c][0].x, w[c][1].x, w[c][0].y, w[c][1].y, x + 4 * c, c != 0 ? 1u : add);
        wgmma_rows(d, w[c][0].z, w[c][1].z, w[c][0].w, w[c][1].w, x + 4 * c + 2, 1);
    }
    wgmma_commit();
    wgmma_wait(1);
}

/* Windows `part`, part + PARTS, ... of `count`, the first of which is `first` of the row. */
MK_FN void multiply(const mk_direct_params *p, mk_f32 *d, const weight_row *from, mk_u32 first, mk_u32 count, mk_u32 part,
                    two_raws *next, mk_u32 base, mk_u32 full, mk_u32 empty)
{
    const mk_u32 lane = threadIdx.x % 32;
    mk_u32 before = STAGES;
    for (mk_u32 i = part; i < count; i += AHEAD * PARTS)
#pragma unroll
        for (mk_u32 a = 0; a < AHEAD; a++) {
            const mk_u32 window = i + a * PARTS, stage = window % STAGES, at = base + stage * WINDOW_BYTES;
            if (window >= count)
                break;
            const two_raws raw = next[a];
            const mk_u32 more = window + AHEAD * PARTS < count;
#if !UNIT_READS_RAW
            if (more != 0)
                next[a] = fetch_two(p, from, first + window + AHEAD * PARTS);
#endif
            barrier_wait(full + 8 * stage, window / STAGES & 1u);
            multiply_half(d, &raw, first + window, 0, at, window != part);
            if (before < STAGES && lane == 0)
                barrier_arrive(empty + 8 * before);
            multiply_half(d, &raw, first + window, 1, at + WINDOW_BYTES / 2, 1);
            before = stage;
#if UNIT_READS_RAW
            wgmma_wait(0);
            if (more != 0)
                next[a] = fetch_two(p, from, first + window + AHEAD * PARTS);
#endif
        }
    wgmma_wait(0);
}

MK_FN void consume(const mk_direct_params *p, weight_row w0, weight_row w1, rows_place tile, mk_u32 first, mk_u32 count,
                mk_f32 *sums, mk_u32 base, mk_u32 full, mk_u32 empty)
{
    const mk_u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp / 4 / OUT;
    const mk_u32 row = warp / 4 % OUT * 64 + warp % 4 * 16 + lane / 4, last = p->outputs[tile.weight] - 1;
    weight_row from[2];
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++) {
        const mk_u32 n = tile.first + (GATE != 0 ? row / 16 * 8 + row % 8 : row + 8 * h);
        from[h] = row_behind(GATE != 0 && h != 0 ? w1 : w0, n < last ? n : last, &p->row);
    }
    two_raws next[AHEAD];
    mk_f32 d[COLUMNS / 2];
#pragma unroll
    for (mk_u32 a = 0; a < AHEAD; a++)
        if (part + a * PARTS < count)
            next[a] = fetch_two(p, from, first + part + a * PARTS);
    multiply(p, d, from, first, count, part, next, base, full, empty);
    sums += part * PART_SUMS + row;
#pragma unroll
    for (mk_u32 j = 0; j < COLUMNS / 8; j++)
#pragma unroll
        for (mk_u32 i = 0; i < 4; i++)
            sums[(8 * j + 2 * (lane % 4) + i % 2) * SUM_STRIDE + i / 2 * 8] = d[4 * j + i];
}

/* ---- sums on their way out ---- */

MK_FN mk_f32 sum_of_parts(const mk_f32 *sums)
{
    mk_f32 sum = 0.0f;
#pragma unroll
    for (mk_u32 s = 0; s < SPLIT; s++)
#pragma unroll
        for (mk_u32 part = 0; part < PARTS; part++)
            sum += of_group(sums + part * PART_SUMS, s);
    return sum;
}

/* Rows `rank`, rank + SPLIT, ... of x; neighbours store neighbours. */
MK_FN void store(const mk_direct_params *p, rows_place tile, mk_u32 first_row, mk_u32 rank, const mk_f32 *sums, const mk_u8 *scales,
                 const mk_u8 *residual, mk_u8 *y)
{
    const mk_u32 left = p->rows - first_row, rows = left < COLUMNS ? left : COLUMNS, type = p->y_type[tile.weight];
    const mk_u32 o = threadIdx.x % TILE_OUTPUTS, n = tile.first + o, adds = tile.weight == 0 && p->residual != 0;
    if (n >= p->outputs[tile.weight])
        return;
    for (mk_u32 r = threadIdx.x / TILE_OUTPUTS * SPLIT + rank; r < rows; r += CONSUMERS / TILE_OUTPUTS * SPLIT) {
        const mk_u32 row = first_row + r;
        const mk_f32 *own = sums + r * SUM_STRIDE + (GATE != 0 ? o / 8 * 16 + o % 8 : o);
        const mk_f32 scale = mk_ld_f32(scales, 4ull * row);
        mk_f32 v = sum_of_parts(own) * scale;
#if GATE != 0
        v = ACTIVATE(v) * (sum_of_parts(own + 8) * scale);
#endif
        if (tile.weight == 0 && p->softcap > 0.0f)
            v = mk_softcap(v, p->softcap);
        if (adds != 0)
            v += mk_load(residual, row * p->residual_stride + (mk_u64)n * mk_type_bytes(p->residual_type), p->residual_type);
        mk_store(y, row * p->y_stride[tile.weight] + (mk_u64)n * mk_type_bytes(type), type, v);
    }
}

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(MK_WG, 1)
    direct(const mk_u8 *__restrict__ x_tiles, const mk_u8 *scales, const mk_u8 *residual, WEIGHT(0), WEIGHT(1), WEIGHT(2), WEIGHT(3),
           mk_u8 *y0, mk_u8 *y1, mk_u8 *y2, mk_u8 *y3, const __grid_constant__ mk_direct_params p)
{
    __shared__ __attribute__((aligned(8))) mk_u64 bars[2 * STAGES];
    const mk_u32 skip = (0u - shared_at(direct_memory)) & 1023u, base = shared_at(direct_memory) + skip;
    mk_f32 *sums = (mk_f32 *)(direct_memory + skip + STAGES * WINDOW_BYTES);
    const ring r = {shared_at(bars), shared_at(bars + STAGES), 0, 0};
    const mk_u32 rank = blockIdx.x % SPLIT, first = p.windows * rank / SPLIT, count = p.windows * (rank + 1) / SPLIT - first;
    const rows_place tile = place_of_tile(&p, blockIdx.x / SPLIT);
    if (threadIdx.x == 0)
        ring_init(&r, STAGES, 1, 4 * OUT);
    __syncthreads();
    launch_dependents();
    if (threadIdx.x >= CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        wait_for_inputs();
        if (threadIdx.x == CONSUMERS)
            produce(x_tiles + ((mk_u64)blockIdx.y * p.windows + first) * 2 * 16384, count, base, r.full, r.empty);
    } else {
#if MK_WG == 640
        asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
#else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
        const weight_row w = tile.weight == 0   ? FIRST_ROW(0)
                             : tile.weight == 1 ? FIRST_ROW(1)
                             : tile.weight == 2 ? FIRST_ROW(2)
                                                : FIRST_ROW(3);
        consume(&p, w, FIRST_ROW(1), tile, first, count, sums, base, r.full, r.empty);
        wait_for_inputs();
    }
    cluster_barrier();
    if (threadIdx.x < CONSUMERS)
        store(&p, tile, blockIdx.y * 128, rank, sums, scales, residual,
              tile.weight == 0 ? y0 : tile.weight == 1 ? y1 : tile.weight == 2 ? y2 : y3);
    cluster_barrier(); /* nobody leaves while others read its sums */
}
