//use params/stream
//use params/gate
/*
 * matvec_ring.cu - mat-vec: a few rows of x by weights that stream through a ring of shared memory by bulk copies. What of a row
 * a lane takes, and how it meets x, stands before this: dot_planes.cu or dot_blocks.cu.
 *
 * W is the weight's type, ROWS at least the rows of x, XT and NT the types of x and of the norm's weight, NORM 0 without a norm
 * and 2 where it has a weight, EACH the units that a lane takes of a row, GATE the act of act(o_0) * o_1, ADDS 0 without a
 * residual and 1 + its type with one, CAPS whether there is a softcap, YT the type of all results, MANY whether there may be more
 * than one weight. Code that runs once or now and then waits to be fetched, so that its length is what it costs: hence constants
 * for all of these.
 *
 * A group has an even share of the rows of up to four weights, which lie one behind the other in a ring of p.stages stages. A
 * stage holds whole rows, two for each team of warps: row i and row i + teams, or with a gate the same row of the other weight;
 * behind them their scales and biases where those have tables of their own. One warp is the producer: it fills the first stage
 * before it waits for the kernels before it, since no kernel near it writes weights, then the others, fills stages again that
 * were read, and makes results of the sums (the epilogue). The others, the consumers, make x ready in shared memory (the
 * prologue: norm, 8-bit blocks of 32 or f32), keep the part that they meet, and go from stage to stage. The sum of a row: each
 * lane its pieces in order, then the lanes of a warp by halves, then the warps of the team by halves. Equals matvec.kc.
 */
#define WARPS (MK_WG / 32 - 1) /* consumers; the last one is the producer */
#define CONSUMERS (32 * WARPS)
#define MOST_STAGES 8
#define BATCH (NORM != 0 ? 2u : 4u) /* eights of x that a consumer has under way, and with a norm as many of its weights */
#define RESIDENT (LEAN && ROWS == 1 ? 2 : 1) /* by their registers: the next group begins beside one that ends */

extern __shared__ __attribute__((aligned(128))) mk_u8 stream_memory[];

MK_FN const mk_u8 *pick(mk_u32 i, const mk_u8 *a, const mk_u8 *b, const mk_u8 *c, const mk_u8 *d)
{
    return i == 0 ? a : i == 1 ? b : i == 2 ? c : d;
}

MK_FN void consumers_barrier()
{
    asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
}

/* Consumers, once their first loads of x are under way, and the producer, which fills most of the ring only then: loads
 * wait behind all that was asked for before them. */
MK_FN void loads_arrive()
{
    asm volatile("bar.arrive 2, %0;" ::"n"(MK_WG) : "memory");
}

MK_FN void loads_wait()
{
    asm volatile("bar.sync 2, %0;" ::"n"(MK_WG) : "memory");
}

/* ---- x in shared memory ---- */

typedef struct eight {
    mk_f32 v[8];
} eight;

/* The greater of two magnitudes; no number where one of them is none. */
MK_FN mk_f32 greater(mk_f32 a, mk_f32 b)
{
    mk_f32 r;
    asm("{ .reg .f32 a, b; abs.f32 a, %1; abs.f32 b, %2; max.NaN.f32 %0, a, b; }" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

/* Four numbers of up to 127 as signed bytes: added to 1.5 * 2^23 they are rounded to whole ones, in the lowest bits. */
MK_FN mk_u32 four_codes(const mk_f32 *v, mk_f32 inverse)
{
    mk_u32 q[4];
#pragma unroll
    for (mk_u32 i = 0; i < 4; i++)
        q[i] = mk_bits_of_f32(v[i] * inverse + 12582912.0f);
    asm("prmt.b32 %0, %0, %1, 0x0040;" : "+r"(q[0]) : "r"(q[1]));
    asm("prmt.b32 %0, %0, %1, 0x0040;" : "+r"(q[2]) : "r"(q[3]));
    asm("prmt.b32 %0, %0, %1, 0x5410;" : "+r"(q[0]) : "r"(q[2]));
    return q[0];
}

/* 127 / most and most / 127, each rounded once, by the reciprocal and what it leaves: a division takes three times as many
 * instructions. As activation.kc has it: zeros for the smallest, no number for a scale where `most` is none or infinite. */
MK_FN void block_scale(mk_f32 most, mk_f32 *inverse, mk_f32 *scale)
{
    const mk_f32 shrink = most > 8e37f ? 2.3283064365386963e-10f : 1.0f; /* 2^-32: whose reciprocal is no normal number */
    const mk_f32 b = most * shrink, part = 0.00787401574803149606f;
    mk_f32 r, q, d;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = mk_fma(mk_fma(-b, r, 1.0f), r, r);
    q = 127.0f * r;
    q = mk_fma(mk_fma(-b, q, 127.0f), r, q);
    d = most * part;
    d = mk_fma(mk_fma(-127.0f, d, most), part, d);
    const mk_u32 finite = most < MK_INF, enough = most >= 3.8e-37f;
    *inverse = finite & enough ? q * shrink : 0.0f;
    d = finite ? d : MK_NAN;
    *scale = most < 3.8e-37f ? 0.0f : d;
}

/* An eight of row as codes, at `codes` and, by the first of the four lanes of a block, `info`. Whole warps go together. */
MK_FN void store_codes(mk_u64 *codes, x_info *info, mk_u32 lid, mk_u32 there, const eight *x)
{
    mk_f32 most = x->v[0], inverse, scale;
#pragma unroll
    for (mk_u32 e = 1; e < 8; e++)
        most = greater(most, x->v[e]);
    most = greater(most, mk_shuffle_xor(most, 1));
    most = greater(most, mk_shuffle_xor(most, 2));
    block_scale(most, &inverse, &scale);
    const mk_u32 low = four_codes(x->v, inverse), high = four_codes(x->v + 4, inverse);
    const x_info part = x_info_of(scale, low, high, lid);
    if (there != 0)
        *codes = codes_of(low, high);
    if ((there & ((lid & 3u) == 0)) != 0)
        *info = part;
}

/* x as f32: the first fours of all eights, then the second. */
MK_FN void store_floats(mk_u32 *to, mk_u32 i, mk_u32 k, const eight *x)
{
    mk_u32x4 w;
    w.x = mk_bits_of_f32(x->v[0]), w.y = mk_bits_of_f32(x->v[1]), w.z = mk_bits_of_f32(x->v[2]), w.w = mk_bits_of_f32(x->v[3]);
    *(mk_u32x4 *)(to + 4 * i) = w;
    w.x = mk_bits_of_f32(x->v[4]), w.y = mk_bits_of_f32(x->v[5]), w.z = mk_bits_of_f32(x->v[6]), w.w = mk_bits_of_f32(x->v[7]);
    *(mk_u32x4 *)(to + k / 2 + 4 * i) = w;
}

/* Eights base + lid, base + lid + CONSUMERS, .. of a row of `type`; zeros past its end. All loads are under way at once. */
MK_FN void load_batch(const mk_u8 *x, const mk_u32 type, mk_u32 k, mk_u32 base, mk_u32 lid, eight *out)
{
#pragma unroll
    for (mk_u32 j = 0; j < BATCH; j++) {
        const mk_u32 i = base + j * CONSUMERS + lid;
#pragma unroll
        for (mk_u32 e = 0; e < 8; e++)
            out[j].v[e] = 0.0f;
        if (8 * i < k) {
            const mk_f32x4 a = mk_load4(x, (mk_u64)(8 * i) * mk_type_bytes(type), type);
            const mk_f32x4 b = mk_load4(x, (mk_u64)(8 * i + 4) * mk_type_bytes(type), type);
            out[j].v[0] = a.x, out[j].v[1] = a.y, out[j].v[2] = a.z, out[j].v[3] = a.w;
            out[j].v[4] = b.x, out[j].v[5] = b.y, out[j].v[6] = b.z, out[j].v[7] = b.w;
        }
    }
}

/* Into shared memory. All consumers go together. */
MK_FN void store_batch(const mk_stream_params *p, mk_u32 base, const eight *x, mk_u32 *codes, x_info *info, mk_u32 lid)
{
#pragma unroll
    for (mk_u32 j = 0; j < BATCH; j++) {
        const mk_u32 first = base + j * CONSUMERS, i = first + lid;
        if (8 * first >= p->k)
            break;
#if DENSE
        if (8 * i < p->k)
            store_floats(codes, i, p->k, &x[j]);
#else
        store_codes((mk_u64 *)(codes + code_place(2 * lid, p->k) + CODES_STEP(first)), info + i / 4, lid, 8 * i < p->k, &x[j]);
#endif
    }
    (void)info;
}

#if NORM
MK_FN mk_f32 add_squares(const eight *x, mk_f32 sum)
{
#pragma unroll
    for (mk_u32 j = 0; j < BATCH; j++)
#pragma unroll
        for (mk_u32 e = 0; e < 8; e++)
            sum = mk_fma(x[j].v[e], x[j].v[e], sum);
    return sum;
}

/* 1 / rms from each consumer's squares, the same in all of them. `scratch` [WARPS] is of this row alone. */
MK_FN mk_f32 inverse_rms(mk_f32 sum, const mk_stream_params *p, mk_f32 *scratch, mk_u32 lid)
{
    for (mk_u32 step = 16; step > 0; step >>= 1)
        sum += mk_shuffle_xor(sum, step);
    if (lid % 32 == 0)
        scratch[lid / 32] = sum;
    consumers_barrier();
    sum = scratch[lid % WARPS];
    for (mk_u32 step = WARPS / 2; step > 0; step >>= 1)
        sum += mk_shuffle_xor(sum, step);
    return 1.0f / mk_sqrt(sum / (mk_f32)p->k + p->eps);
}

/* x times `scale`, and times the norm's weights where it has some. */
MK_FN void apply_norm(eight *x, const eight *weight, mk_f32 scale)
{
#pragma unroll
    for (mk_u32 j = 0; j < BATCH; j++)
#pragma unroll
        for (mk_u32 e = 0; e < 8; e++)
            x[j].v[e] *= NORM == 2 ? weight[j].v[e] * scale : scale;
}
#endif

/* All consumers: row number `row` of x. `first`: the norm's weights of the first batch. */
MK_FN void prepare_row(const mk_u8 *x, const mk_u8 *norm_weight, const eight *first, const mk_stream_params *p, mk_u32 *codes,
                       x_info *info, mk_f32 *scratch, mk_u32 row, mk_u32 lid)
{
    const mk_u32 step = BATCH * CONSUMERS;
    eight v[BATCH];
#if NORM
    mk_f32 sum = 0.0f;
    for (mk_u32 base = step; 8 * base < p->k; base += step) {
        load_batch(x, XT, p->k, base, lid, v);
        sum = add_squares(v, sum);
    }
    load_batch(x, XT, p->k, 0, lid, v);
    if (row == 0)
        loads_arrive();
    const mk_f32 scale = inverse_rms(add_squares(v, sum), p, scratch, lid);
    apply_norm(v, first, scale);
    store_batch(p, 0, v, codes, info, lid);
    for (mk_u32 base = step; 8 * base < p->k; base += step) {
        eight w[BATCH];
        load_batch(x, XT, p->k, base, lid, v);
        load_batch(norm_weight, NT, p->k, base, lid, w);
        apply_norm(v, w, scale);
        store_batch(p, base, v, codes, info, lid);
    }
#else
    (void)norm_weight, (void)first, (void)scratch;
    for (mk_u32 base = 0; 8 * base < p->k; base += step) {
        load_batch(x, XT, p->k, base, lid, v);
        if (row == 0 && base == 0)
            loads_arrive();
        store_batch(p, base, v, codes, info, lid);
    }
#endif
}

/* ---- units ---- */
/* ---- the ring ---- */

/* Where a walk over the rows of a group is: `left` rows of one weight, from `row` on, and `rest` of the weights after it. */
typedef struct cursor {
    mk_u32 weight, row, left, rest;
} cursor;

MK_FN cursor cursor_at(const mk_stream_params *p, mk_u32 begin, mk_u32 end)
{
    cursor c;
    mk_u32 first = 0;
    c.weight = 0;
    while (MANY && begin >= p->row_end[c.weight])
        first = p->row_end[c.weight++];
    c.row = begin - first;
    c.left = (MANY && end > p->row_end[c.weight] ? p->row_end[c.weight] : end) - begin;
    c.rest = end - begin - c.left;
    return c;
}

/* Rows that the next stage takes. */
MK_FN mk_u32 cursor_rows(const cursor *c, const mk_stream_params *p)
{
    const mk_u32 most = 1u << p->stage_shift;
    return c->left < most ? c->left : most;
}

/* Past those, and on to the next weight of which the group has rows, if any. */
MK_FN void cursor_next(cursor *c, const mk_stream_params *p)
{
    const mk_u32 rows = cursor_rows(c, p);
    c->row += rows;
    c->left -= rows;
    while (MANY && c->left == 0 && c->rest > 0) {
        const mk_u32 there = p->row_end[c->weight + 1] - p->row_end[c->weight];
        c->weight++;
        c->row = 0;
        c->left = there < c->rest ? there : c->rest;
        c->rest -= c->left;
    }
}

/* Slots that rows [begin, end) take. */
MK_FN mk_u32 fills_of(const mk_stream_params *p, mk_u32 begin, mk_u32 end)
{
    const mk_u32 more = (1u << p->stage_shift) - 1;
    mk_u32 fills = 0, first = 0;
    if (!MANY)
        return (end - begin + more) >> p->stage_shift;
    for (mk_u32 i = 0; i < 4; i++) {
        const mk_u32 from = begin > first ? begin : first, to = end < p->row_end[i] ? end : p->row_end[i];
        if (from < to)
            fills += (to - from + more) >> p->stage_shift;
        first = p->row_end[i];
    }
    return fills;
}

/* The tables of one weight, and the weights of a dispatch. */
typedef struct tables {
    const mk_u8 *part[PARTS];
} tables;

typedef struct weights {
    tables of[4];
} weights;

/* What comes into a stage: rows of the tables of a weight, and with a gate the same of the other. */
typedef struct fill {
    const mk_u8 *from[PARTS], *other[PARTS];
    mk_u32 bytes[PARTS]; /* of each; 0: nothing is left */
} fill;

MK_FN fill fill_at(const mk_stream_params *p, const cursor *c, const weights *w)
{
    fill f;
#pragma unroll
    for (mk_u32 i = 0; i < PARTS; i++) {
        const mk_u64 begin = (mk_u64)c->row * p->row_bytes[i];
        f.from[i] = MANY ? pick(c->weight, w->of[0].part[i], w->of[1].part[i], w->of[2].part[i], w->of[3].part[i])
                         : w->of[0].part[i];
        f.from[i] += begin;
        f.other[i] = w->of[1].part[i] + begin;
        f.bytes[i] = cursor_rows(c, p) * p->row_bytes[i];
    }
    return f;
}

/* One lane. */
MK_FN void ring_fill(const ring *r, const mk_stream_params *p, const fill *f)
{
    const mk_u32 bar = r->full + 8 * r->stage, stage = shared_at(stream_memory) + p->ring_at + r->stage * p->stage_bytes;
    mk_u32 bytes = 0;
#pragma unroll
    for (mk_u32 i = 0; i < PARTS; i++)
        bytes += f->bytes[i];
    barrier_expect(bar, GATE != 0 ? 2 * bytes : bytes);
#pragma unroll
    for (mk_u32 i = 0; i < PARTS; i++) {
        const mk_u32 to = i == 0 ? stage : stage + p->part_at[i];
        bulk_load_once(to, f->from[i], f->bytes[i], bar);
        if (GATE != 0)
            bulk_load_once(to + (p->row_bytes[i] << p->stage_shift), f->other[i], f->bytes[i], bar);
    }
}

/* ---- the producer warp ---- */

/* The first stages up to number `end`, while there are rows. */
MK_FN void fill_ahead(ring *to, const mk_stream_params *p, cursor *filled, mk_u32 end, const weights *w,
                   mk_u32 lane)
{
    for (; to->stage < end && filled->left > 0; to->stage++, cursor_next(filled, p)) {
        const fill f = fill_at(p, filled, w);
        if (lane == 0)
            ring_fill(to, p, &f);
    }
}

/* A row's sum becomes a result. */
MK_FN mk_f32 epilogue(const mk_stream_params *p, mk_u32 weight, mk_f32 v, mk_f32 residual)
{
    const mk_f32 other = GATE != 0 ? mk_shuffle_xor(v, 16) : 0.0f;
    if (GATE != 0)
        v = (GATE == MK_GATE_SILU ? mk_silu(v) : mk_gelu(v)) * other;
    if (CAPS && weight == 0)
        v = mk_softcap(v, p->softcap);
    return ADDS != 0 ? v + residual : v;
}

/* All lanes of one warp. What comes next is known before a stage is empty, so that it is filled again at once. */
MK_FN void produce(ring r, const mk_stream_params *p, cursor done, cursor filled, const mk_u8 *residual, const weights *w,
                 mk_u8 *y0, mk_u8 *y1, mk_u8 *y2, mk_u8 *y3, const mk_f32 (*sums)[ROWS][32], mk_u32 lane)
{
    const mk_u32 place = lane >> p->team_shift, first = place << p->team_shift == lane; /* row of the stage; the others help */
    fill next = fill_at(p, &filled, w);
    while (done.left > 0) {
        const mk_u32 row = done.row + place, there = first != 0 && place < cursor_rows(&done, p), weight = done.weight;
        mk_u8 *y = MANY ? (mk_u8 *)pick(weight, y0, y1, y2, y3) : y0;
        mk_f32 add[ROWS], v[ROWS];
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++)
            add[m] = ADDS != 0 && there != 0 && weight == 0 && m < p->rows
                         ? mk_load(residual, m * p->residual_stride + (mk_u64)row * mk_type_bytes(ADDS - 1), ADDS - 1)
                         : 0.0f;
        barrier_wait(r.empty + 8 * r.stage, r.parity);
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++)
            v[m] = sums[r.stage][m][lane];
        __syncwarp();
        if (next.bytes[0] != 0 && lane == 0)
            ring_fill(&r, p, &next);
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++) {
            for (mk_u32 step = 1u << p->team_shift >> 1; step > 0; step >>= 1)
                v[m] += mk_shuffle_xor(v[m], step);
            v[m] = epilogue(p, weight, v[m], add[m]);
            if (there != 0 && m < p->rows)
                mk_store(y, (ROWS == 1 ? 0 : m * p->y_stride[weight]) + (mk_u64)row * mk_type_bytes(YT), YT, v[m]);
        }
        cursor_next(&done, p);
        cursor_next(&filled, p);
        next = fill_at(p, &filled, w);
        ring_next(&r, p->stages);
    }
}

/* ---- the consumer warps ---- */

/* The sums of a warp's part of both rows: lane 0 has the first's, lane 16 the second's. */
MK_FN mk_f32 warp_sums(mk_f32 a, mk_f32 b, mk_u32 lane)
{
    const mk_u32 upper = lane & 16u;
    mk_f32 v = (upper == 0 ? a : b) + mk_shuffle_xor(upper == 0 ? b : a, 16);
#pragma unroll
    for (mk_u32 step = 8; step > 0; step >>= 1)
        v += mk_shuffle_xor(v, step);
    return v;
}

/* All lanes of a warp, which takes pieces `first`, first + apart, .. of its two rows in each of `fills` fills of a stage. */
MK_FN void consume(ring r, const mk_stream_params *p, mk_u32 fills, mk_f32 (*sums)[ROWS][32], mk_u32 warp, mk_u32 lane)
{
    const mk_u32 team = warp >> p->team_shift, teams = WARPS >> p->team_shift, apart = 32u << p->team_shift; /* as many lanes as a team has */
    const mk_u32 first = 32 * warp + lane - team * apart, pieces = p->k / (UNIT * PIECE);
#if ROWS == 1
    x_fragment held[EACH / PIECE];
#pragma unroll
    for (mk_u32 j = 0; j < EACH / PIECE; j++)
        if (first + j * apart < pieces)
            held[j] = x_load(stream_memory, (const x_info *)(stream_memory + p->info_at), p->k, first + j * apart);
#endif
    for (; fills > 0; fills--, ring_next(&r, p->stages)) {
        const mk_u8 *stage = stream_memory + p->ring_at + r.stage * p->stage_bytes;
        const stage_row row = stage_row_at(stage, p, team), other = stage_row_at(stage, p, team + teams);
        mk_f32 a[ROWS], b[ROWS];
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++)
            a[m] = b[m] = 0.0f;
        barrier_wait(r.full + 8 * r.stage, r.parity);
#pragma unroll
        for (mk_u32 j = 0; j < EACH / PIECE; j++) {
            const mk_u32 c = first + j * apart;
            if (c >= pieces)
                break;
            const w_fragment wa = w_load(row, p, c), wb = w_load(other, p, c);
#pragma unroll
            for (mk_u32 m = 0; m < ROWS; m++) {
#if ROWS == 1
                const x_fragment &x = held[j];
#else
                const x_fragment x = x_load(stream_memory + m * p->codes_bytes,
                                         (const x_info *)(stream_memory + p->info_at + m * p->info_bytes), p->k, c);
#endif
                a[m] = fragment_dot(&wa, &x, c, a[m]);
                b[m] = fragment_dot(&wb, &x, c, b[m]);
            }
        }
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++) {
            const mk_f32 v = warp_sums(a[m], b[m], lane);
            if ((lane & 15u) == 0)
                sums[r.stage][m][lane + warp] = v;
        }
        __syncwarp();
        if ((lane & 15u) == 0)
            barrier_arrive(r.empty + 8 * r.stage);
    }
}

extern "C" __global__ void __launch_bounds__(MK_WG, RESIDENT)
    matvec(const mk_u8 *x, const mk_u8 *norm_weight, const mk_u8 *residual, WEIGHT(0), WEIGHT(1), WEIGHT(2), WEIGHT(3), mk_u8 *y0,
           mk_u8 *y1, mk_u8 *y2, mk_u8 *y3, const __grid_constant__ mk_stream_params p)
{
    __shared__ __attribute__((aligned(8))) mk_u64 bars[2 * MOST_STAGES];
    __shared__ mk_f32 sums[MOST_STAGES][ROWS][32]; /* of a stage: by row, then by warp of the team */
    __shared__ mk_f32 scratch[ROWS * WARPS];
    const mk_u32 lid = threadIdx.x, warp = lid / 32, lane = lid % 32;
    const mk_u32 more = blockIdx.x < p.longer, begin = blockIdx.x * p.share + (more != 0 ? blockIdx.x : p.longer);
    const mk_u32 end = begin + p.share + more;
    const ring r = {shared_at(bars), shared_at(bars + MOST_STAGES), 0, 0};
    if (warp == WARPS) {
        const weights w = {{TABLES(0), TABLES(1), TABLES(2), TABLES(3)}};
        const cursor start = cursor_at(&p, begin, end);
        cursor filled = start;
        if (lane == 0)
            ring_init(&r, p.stages, 1, 2 * WARPS);
        __syncwarp();
        ring to = r;
        fill_ahead(&to, &p, &filled, 1, &w, lane);
        launch_dependents();
        __syncthreads();
        wait_for_inputs();
        loads_wait();
        fill_ahead(&to, &p, &filled, p.stages, &w, lane);
        produce(r, &p, start, filled, residual, &w, y0, y1, y2, y3, sums, lane);
        return;
    }
    eight norm[BATCH]; /* no kernel near writes these either */
#if NORM == 2
    load_batch(norm_weight, NT, p.k, 0, lid, norm);
#endif
    __syncthreads();
    launch_dependents();
    wait_for_inputs();
    for (mk_u32 m = 0; m < p.rows; m++)
        prepare_row(x + m * p.x_stride, norm_weight, norm, &p, (mk_u32 *)(stream_memory + m * p.codes_bytes),
                    (x_info *)(stream_memory + p.info_at + m * p.info_bytes), scratch + m * WARPS, m, lid);
    consumers_barrier();
    consume(r, &p, fills_of(&p, begin, end), sums, warp, lane);
}
