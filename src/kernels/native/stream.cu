//use hopper
/*
 * stream.cu - a few rows of x by weights in planes: the weights stream through shared memory by bulk copies.
 *
 * One group a multiprocessor, W the weight's type, ROWS at least the rows of x. Each warp has a ring of p.stages slots of its
 * own; a slot holds one chunk: p.segment elements of a pair of weight rows, the planes one after the other. A warp fills its
 * slots before it waits for the kernels before it, since no kernel near it writes weights; then the group makes x ready in
 * shared memory (norm, 8-bit blocks of 32 or f32), and each warp takes its pairs of rows in turn. The sum of a row: each lane
 * its units in order, then lanes by halves. Equals matvec.kc.
 */
#define WARPS (MK_WG / 32)
#define MOST_STAGES 8
#define DENSE (W == MK_W_F16 || W == MK_W_BF16)
#define HALVES (W == MK_W_Q4_K) /* sums of x are wanted for each 16 elements */
#define BATCH 4 /* words of x that a thread has under way */
#define RESIDENT (ROWS == 1 ? 2 : 1) /* by their registers: a group of attend.cu begins beside one that ends */

extern __shared__ __attribute__((aligned(128))) mk_u8 stream_memory[];

/* What a warp works on. */
typedef struct pair {
    mk_u32 weight; /* of row 0; row 1 is of the next one where there is a gate */
    mk_u32 row, row1;
} pair;

MK_FN const mk_u8 *pick(mk_u32 i, const mk_u8 *a, const mk_u8 *b, const mk_u8 *c, const mk_u8 *d)
{
    return i == 0 ? a : i == 1 ? b : i == 2 ? c : d;
}

MK_FN pair pair_of(const mk_stream_params *p, mk_u32 index)
{
    pair r;
    r.weight = 0;
    if (p->gate != 0) {
        r.row = r.row1 = index;
        return r;
    }
    mk_u32 first = 0;
    while (index >= p->pair_end[r.weight])
        first = p->pair_end[r.weight++];
    r.row = 2 * (index - first);
    r.row1 = r.row + 1 < p->outputs[r.weight] ? r.row + 1 : r.row;
    return r;
}

/* ---- x in shared memory ---- */

/* Where word i (elements 4 i to 4 i + 3) of the codes lies: so that the lanes of a warp read 16 neighbouring bytes each. */
MK_FN mk_u32 code_place(mk_u32 i, mk_u32 k)
{
#if W == MK_W_Q4_0 /* the first halves of all blocks, then the second */
    return (i & 4u) * (k / 32) + (i >> 3) * 4 + (i & 3u);
#elif W == MK_W_Q4_K /* the even blocks, then the odd */
    return (i >> 3 & 1u) * (k / 8) + (i >> 4) * 8 + (i & 7u);
#elif W == MK_W_Q6_K /* the even 64 elements, then the odd */
    return (i >> 4 & 1u) * (k / 8) + (i >> 5) * 16 + (i & 15u);
#else
    (void)k;
    return i;
#endif
}

/* What goes with a block of 32 of x: its scale and 8 * the sum of its codes, a whole number; with HALVES, for each 16 elements
 * the scale and scale * sum. */
typedef struct __attribute__((aligned(8))) x_info {
    mk_f32 scale, sum;
} x_info;

/* One word of codes; the eight lanes of a block agree on its scale. As activation.kc has it. */
MK_FN void store_codes(mk_u32 *codes, x_info *info, mk_u32 word, mk_u32 k, mk_f32x4 v)
{
    mk_f32 most = mk_max(mk_max(mk_abs(v.x), mk_abs(v.y)), mk_max(mk_abs(v.z), mk_abs(v.w)));
    if (mk_is_nan(v.x) || mk_is_nan(v.y) || mk_is_nan(v.z) || mk_is_nan(v.w))
        most = MK_INF;
    most = mk_max(most, mk_shuffle_xor(most, 1));
    most = mk_max(most, mk_shuffle_xor(most, 2));
    most = mk_max(most, mk_shuffle_xor(most, 4));
    mk_f32 inverse = 127.0f / most, scale = most / 127.0f;
    if (most < 3.8e-37f && !(inverse < MK_INF))
        inverse = scale = 0.0f;
    if (most == MK_INF) {
        v.x = v.y = v.z = v.w = inverse = 0.0f;
        scale = MK_NAN;
    }
    const mk_f32 a = mk_rint(v.x * inverse), b = mk_rint(v.y * inverse), c = mk_rint(v.z * inverse),
                 d = mk_rint(v.w * inverse);
    const mk_u32 packed = ((mk_u32)(mk_i32)a & 255u) | ((mk_u32)(mk_i32)b & 255u) << 8 | ((mk_u32)(mk_i32)c & 255u) << 16 |
                          (mk_u32)(mk_i32)d << 24;
    mk_f32 sum = (a + b) + (c + d);
    sum += mk_shuffle_xor(sum, 1);
    sum += mk_shuffle_xor(sum, 2);
    x_info part;
    part.scale = scale;
#if HALVES
    part.sum = scale * sum;
#else
    part.sum = 8.0f * (sum + mk_shuffle_xor(sum, 4));
#endif
    if (4 * word >= k)
        return;
    codes[code_place(word, k)] = packed;
#if HALVES
    if ((word & 3u) == 0)
        info[word >> 2] = part;
#else
    if ((word & 7u) == 0)
        info[word >> 3] = part;
#endif
}

/* x as f32: words 0, 2, 4 .. and then the odd ones. */
MK_FN void store_floats(mk_u32 *to, mk_u32 word, mk_u32 k, mk_f32x4 v)
{
    mk_u32x4 w;
    w.x = mk_bits_of_f32(v.x), w.y = mk_bits_of_f32(v.y), w.z = mk_bits_of_f32(v.z), w.w = mk_bits_of_f32(v.w);
    *(mk_u32x4 *)(to + (word & 1u) * (k / 2) + (word >> 1) * 4) = w;
}

/* Words base + lid, base + lid + MK_WG, .. of a row; zeros past its end. All loads are under way at once. */
MK_FN void load_batch(const mk_u8 *x, mk_u32 type, mk_u32 words, mk_u32 base, mk_u32 lid, mk_f32x4 *v)
{
    const mk_u32 bytes = mk_type_bytes(type);
    mk_f32x4 zero;
    zero.x = zero.y = zero.z = zero.w = 0.0f;
    if (mk_is_aligned(x)) {
#pragma unroll
        for (mk_u32 j = 0; j < BATCH; j++) {
            const mk_u32 word = base + j * MK_WG + lid;
            v[j] = word < words ? mk_load4(x, 4ull * bytes * word, type) : zero;
        }
        return;
    }
#pragma unroll
    for (mk_u32 j = 0; j < BATCH; j++) {
        const mk_u32 word = base + j * MK_WG + lid;
        v[j] = zero;
        if (word < words) {
            const mk_u64 at = 4ull * bytes * word;
            v[j].x = mk_load(x, at, type), v[j].y = mk_load(x, at + bytes, type);
            v[j].z = mk_load(x, at + 2 * bytes, type), v[j].w = mk_load(x, at + 3 * bytes, type);
        }
    }
}

MK_FN mk_f32 add_squares(const mk_f32x4 *v, mk_f32 sum)
{
#pragma unroll
    for (mk_u32 j = 0; j < BATCH; j++)
        sum = mk_fma(v[j].w, v[j].w, mk_fma(v[j].z, v[j].z, mk_fma(v[j].y, v[j].y, mk_fma(v[j].x, v[j].x, sum))));
    return sum;
}

/* 1 / rms from each thread's squares, the same in all threads. `scratch` [WARPS] is of this row alone. */
MK_FN mk_f32 inverse_rms(mk_f32 sum, const mk_stream_params *p, mk_f32 *scratch, mk_u32 lid)
{
    for (mk_u32 step = 16; step > 0; step >>= 1)
        sum += mk_shuffle_xor(sum, step);
    if (lid % 32 == 0)
        scratch[lid / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (mk_u32 i = 0; i < WARPS; i++)
        sum += scratch[i];
    return 1.0f / mk_sqrt(sum / (mk_f32)p->k + p->eps);
}

/* A batch of x times the weight of the norm, whose scale comes later; adds the squares of x to `sum`. */
MK_FN void load_normed(const mk_u8 *x, const mk_u8 *norm_weight, const mk_stream_params *p, mk_u32 base, mk_u32 lid,
                       mk_f32x4 *v, mk_f32 *sum)
{
    load_batch(x, p->x_type, p->k / 4, base, lid, v);
    if (p->norm == 0)
        return;
    mk_f32x4 w[BATCH];
    if (p->norm == 2)
        load_batch(norm_weight, p->norm_type, p->k / 4, base, lid, w);
    *sum = add_squares(v, *sum);
#pragma unroll
    for (mk_u32 j = 0; j < BATCH && p->norm == 2; j++)
        v[j].x *= w[j].x, v[j].y *= w[j].y, v[j].z *= w[j].z, v[j].w *= w[j].w;
}

/* All threads. Whole warps go round together. */
MK_FN void prepare_row(const mk_u8 *x, const mk_u8 *norm_weight, const mk_stream_params *p, mk_u32 *codes, x_info *info,
                       mk_f32 *scratch, mk_u32 lid)
{
    const mk_u32 rounded = (p->k / 4 + 31u) & ~31u;
    mk_f32x4 v[BATCH];
    mk_f32 scale = 1.0f, sum = 0.0f, ignored = 0.0f;
    if (p->norm != 0) /* the first batch stays */
        for (mk_u32 base = BATCH * MK_WG; base < rounded; base += BATCH * MK_WG)
            load_normed(x, norm_weight, p, base, lid, v, &sum);
    load_normed(x, norm_weight, p, 0, lid, v, &sum);
    if (p->norm != 0)
        scale = inverse_rms(sum, p, scratch, lid);
    for (mk_u32 base = 0; base < rounded; base += BATCH * MK_WG) {
        if (base != 0)
            load_normed(x, norm_weight, p, base, lid, v, &ignored);
#pragma unroll
        for (mk_u32 j = 0; j < BATCH; j++) {
            const mk_u32 word = base + j * MK_WG + lid;
            if (word >= rounded)
                continue;
            v[j].x *= scale, v[j].y *= scale, v[j].z *= scale, v[j].w *= scale;
#if DENSE
            if (4 * word < p->k)
                store_floats(codes, word, p->k, v[j]);
#else
            store_codes(codes, info, word, p->k, v[j]);
#endif
        }
    }
    (void)info;
}

/* ---- units: 16 bytes of a row's first plane; `u` counts from the start of the chunk, `unit` from the start of x ---- */

MK_FN mk_u32x4 shared4(const mk_u8 *p, mk_u32 at)
{
    return *(const mk_u32x4 *)(p + at);
}

MK_FN mk_i32 dot16(mk_u32x4 a, mk_u32x4 b)
{
    return mk_dot4(a.w, b.w, mk_dot4(a.z, b.z, mk_dot4(a.y, b.y, mk_dot4(a.x, b.x, 0))));
}

MK_FN mk_u32x4 low_nibbles(mk_u32x4 a)
{
    a.x &= 0x0f0f0f0fu, a.y &= 0x0f0f0f0fu, a.z &= 0x0f0f0f0fu, a.w &= 0x0f0f0f0fu;
    return a;
}

MK_FN mk_u32x4 high_nibbles(mk_u32x4 a)
{
    a.x >>= 4, a.y >>= 4, a.z >>= 4, a.w >>= 4;
    return low_nibbles(a);
}

#if W == MK_W_Q6_K
/* Nibbles and two bits each at `shift` as signed bytes: the number less 32. */
MK_FN mk_u32 six_bits(mk_u32 nibbles, mk_u32 high, mk_u32 shift)
{
    const mk_u32 q = nibbles | (high >> shift & 0x03030303u) << 4;
    return ((q | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}

MK_FN mk_u32x4 six_bits4(mk_u32x4 a, mk_u32x4 high, mk_u32 shift)
{
    a.x = six_bits(a.x, high.x, shift), a.y = six_bits(a.y, high.y, shift);
    a.z = six_bits(a.z, high.z, shift), a.w = six_bits(a.w, high.w, shift);
    return a;
}
#endif

/* A unit of weights and the part of x that it meets. */
#if DENSE
#define UNIT 8u /* elements */
typedef struct w_unit {
    mk_f32 v[8];
} w_unit;
typedef w_unit x_unit;
#else
#if W == MK_W_Q8_0
#define UNIT 16u
#else
#define UNIT 32u
#endif
typedef struct w_unit {
    mk_u32x4 low, high; /* codes; with 16 elements `low` alone */
    mk_f32 a, b;        /* scales of both */
    mk_f32 c, d;        /* q4_k: what is taken away, times the sums of x */
} w_unit;
typedef struct x_unit {
    mk_u32x4 low, high;
    x_info i, i1;
} x_unit;
#endif

MK_FN x_unit x_load(const mk_u8 *codes, const x_info *info, mk_u32 k, mk_u32 unit)
{
    x_unit x;
#if DENSE
    const mk_u32x4 a = shared4(codes, 16 * unit), b = shared4(codes, 2 * k + 16 * unit);
    (void)info;
    x.v[0] = mk_f32_of_bits(a.x), x.v[1] = mk_f32_of_bits(a.y), x.v[2] = mk_f32_of_bits(a.z), x.v[3] = mk_f32_of_bits(a.w);
    x.v[4] = mk_f32_of_bits(b.x), x.v[5] = mk_f32_of_bits(b.y), x.v[6] = mk_f32_of_bits(b.z), x.v[7] = mk_f32_of_bits(b.w);
#else
    x.low = shared4(codes, 16 * unit);
#if W == MK_W_Q8_0
    (void)k;
    x.i = info[unit >> 1];
#else
    x.high = shared4(codes, k / 2 + 16 * unit);
#endif
#if W == MK_W_Q4_0
    x.i = info[unit];
#elif W == MK_W_Q4_K /* halves of blocks 2 g and 2 g + 1 */
    const mk_u32 half = (unit >> 1) * 4 + (unit & 1u);
    x.i = info[half];
    x.i1 = info[half + 2];
#elif W == MK_W_Q6_K
    const mk_u32 block = (unit >> 2) * 4 + (unit >> 1 & 1u);
    x.i = info[block];
    x.i1 = info[block + 2];
#endif
#endif
    return x;
}

/* Unit u of a row whose planes begin at slot + p.slot_at[]. */
MK_FN w_unit w_load(const mk_u8 *slot, const mk_stream_params *p, mk_u32 u)
{
    w_unit w;
    const mk_u32x4 q = shared4(slot, 16 * u);
#if DENSE
    const mk_u32 word[4] = {q.x, q.y, q.z, q.w};
    (void)p;
#pragma unroll
    for (mk_u32 j = 0; j < 4; j++) {
#if W == MK_W_F16
        w.v[2 * j] = mk_f32_of_f16((mk_u16)word[j]);
        w.v[2 * j + 1] = mk_f32_of_f16((mk_u16)(word[j] >> 16));
#else
        w.v[2 * j] = mk_f32_of_bits(word[j] << 16);
        w.v[2 * j + 1] = mk_f32_of_bits(word[j] & 0xffff0000u);
#endif
    }
#elif W == MK_W_Q8_0
    w.low = q;
    w.a = mk_f32_of_f16(*(const mk_u16 *)(slot + p->slot_at[1] + 2 * (u >> 1)));
#elif W == MK_W_Q4_0
    w.low = low_nibbles(q);
    w.high = high_nibbles(q);
    w.a = mk_f32_of_f16(*(const mk_u16 *)(slot + p->slot_at[1] + 2 * u));
#elif W == MK_W_Q4_K
    const mk_u32x4 h = shared4(slot + p->slot_at[1], 16 * (u >> 3));
    const mk_u32 late = u >> 2 & 1u, shift = (u >> 1 & 1u) * 16;
    const mk_u32 s4 = late != 0 ? (h.w & 0x0f0f0f0fu) | (h.y >> 2 & 0x30303030u) : h.y & 0x3f3f3f3fu;
    const mk_u32 m4 = late != 0 ? (h.w >> 4 & 0x0f0f0f0fu) | (h.z >> 2 & 0x30303030u) : h.z & 0x3f3f3f3fu;
    const mk_u32 s = s4 >> shift, m = m4 >> shift;
    const mk_f32 d = mk_f32_of_f16((mk_u16)h.x), low = -mk_f32_of_f16((mk_u16)(h.x >> 16));
    w.low = low_nibbles(q);
    w.high = high_nibbles(q);
    w.a = d * (mk_f32)(s & 255u);
    w.b = d * (mk_f32)(s >> 8 & 255u);
    w.c = low * (mk_f32)(m & 255u);
    w.d = low * (mk_f32)(m >> 8 & 255u);
#else
    const mk_u32 h = u >> 2 & 1u, half = u & 1u, part = u >> 1 & 1u, block = u >> 3;
    const mk_u32x4 high = shared4(slot + p->slot_at[1], 64 * block + 32 * h + 16 * half);
    const mk_u8 *scales = slot + p->slot_at[2] + 16 * block + 8 * h + 2 * part + half;
    const mk_f32 d = mk_f32_of_f16(*(const mk_u16 *)(slot + p->slot_at[3] + 2 * block));
    w.low = six_bits4(low_nibbles(q), high, 2 * part);
    w.high = six_bits4(high_nibbles(q), high, 4 + 2 * part);
    w.a = d * (mk_f32)(mk_i8)scales[0];
    w.b = d * (mk_f32)(mk_i8)scales[4];
#endif
    return w;
}

/* acc + the products of a unit. */
MK_FN mk_f32 unit_dot(const w_unit *w, const x_unit *x, mk_f32 acc)
{
#if DENSE
#pragma unroll
    for (mk_u32 j = 0; j < 8; j++)
        acc = mk_fma(w->v[j], x->v[j], acc);
    return acc;
#elif W == MK_W_Q8_0
    return mk_fma(w->a * x->i.scale, (mk_f32)dot16(w->low, x->low), acc);
#elif W == MK_W_Q4_0
    const mk_i32 dot = dot16(w->low, x->low) + dot16(w->high, x->high);
    return mk_fma(w->a * x->i.scale, (mk_f32)dot - x->i.sum, acc);
#else
    acc = mk_fma(w->a * x->i.scale, (mk_f32)dot16(w->low, x->low), acc);
    acc = mk_fma(w->b * x->i1.scale, (mk_f32)dot16(w->high, x->high), acc);
#if W == MK_W_Q4_K
    acc = mk_fma(w->c, x->i.sum, mk_fma(w->d, x->i1.sum, acc));
#endif
    return acc;
#endif
}

/* ---- the ring of one warp ---- */

typedef struct ring {
    mk_u32 slots, bars;  /* first slot in stream_memory; place of the first barrier */
    mk_u32 issue, stage; /* pair and segment that come next into it */
    mk_u32 segment;
    mk_u32 last;    /* one past the warp's pairs */
    mk_u32 aligned; /* weights begin at multiples of 16, as bulk copies want it */
} ring;

/* `bytes` of one plane of both rows of a pair into a slot. */
MK_FN void ring_copy(const ring *r, mk_u32 slot, mk_u32 half, const mk_u8 *a, const mk_u8 *b, mk_u32 bytes, mk_u32 bar,
                     mk_u32 lane)
{
    if (r->aligned != 0) {
        if (lane == 0) {
            bulk_load_once(shared_at(stream_memory) + slot, a, bytes, bar);
            bulk_load_once(shared_at(stream_memory) + slot + half, b, bytes, bar);
        }
        return;
    }
    for (mk_u32 i = lane; i < bytes; i += 32) {
        stream_memory[slot + i] = a[i];
        stream_memory[slot + half + i] = b[i];
    }
}

/* All lanes: the next chunk into its slot, if there is one. */
MK_FN void ring_issue(ring *r, const mk_stream_params *p, const mk_u8 *w0, const mk_u8 *w1, const mk_u8 *w2,
                      const mk_u8 *w3, mk_u32 lane)
{
    if (r->issue >= r->last)
        return;
    const pair at = pair_of(p, r->issue);
    const mk_u8 *w = pick(at.weight, w0, w1, w2, w3), *other = p->gate != 0 ? w1 : w;
    const mk_u8 *a = w + at.row * p->weight_stride, *b = other + at.row1 * p->weight_stride;
    const mk_u32 slot = r->slots + r->stage * p->slot_bytes, half = p->slot_bytes / 2, bar = r->bars + 8 * r->stage;
    const mk_u32 begin = r->segment * p->segment / p->block;
    const mk_u32 blocks = (r->segment + 1 < p->segments ? p->segment : p->k - r->segment * p->segment) / p->block;
    const mk_u32 whole = p->segments == 1;
    if (r->aligned != 0 && lane == 0)
        barrier_expect(bar, 2 * (whole ? p->row_bytes : blocks * p->block_bytes));
    if (whole) {
        ring_copy(r, slot, half, a, b, p->row_bytes, bar, lane);
    } else {
        for (mk_u32 f = 0; f < p->fields; f++) {
            const mk_u64 from = p->field_at[f] + (mk_u64)begin * p->field_bytes[f];
            ring_copy(r, slot + p->slot_at[f], half, a + from, b + from, blocks * p->field_bytes[f], bar, lane);
        }
    }
    if (r->aligned == 0) {
        __syncwarp();
        if (lane == 0)
            barrier_arrive(bar);
    }
    r->stage = r->stage + 1 == p->stages ? 0 : r->stage + 1;
    if (++r->segment == p->segments) {
        r->segment = 0;
        r->issue += WARPS;
    }
}

/* Lane 0 has row 0's sum, lane 16 row 1's. `m` is the row of x. */
MK_FN void finish(const mk_stream_params *p, pair at, mk_f32 v, mk_u32 m, mk_u32 lane, const mk_u8 *residual, mk_u8 *y)
{
    const mk_u32 row = lane == 0 ? at.row : at.row1, type = p->y_type[at.weight];
    y += m * p->y_stride[at.weight];
    if (p->gate != 0) {
        const mk_f32 other = mk_shuffle_xor(v, 16);
        if (lane == 0)
            mk_store(y, (mk_u64)row * mk_type_bytes(type), type, (p->gate == MK_GATE_SILU ? mk_silu(v) : mk_gelu(v)) * other);
        return;
    }
    if ((lane & 15u) != 0 || (lane == 16 && at.row1 == at.row))
        return;
    if (at.weight == 0) {
        if (p->softcap > 0.0f)
            v = mk_softcap(v, p->softcap);
        if (p->residual != 0)
            v += mk_load(residual, m * p->residual_stride + (mk_u64)row * mk_type_bytes(p->residual_type), p->residual_type);
    }
    mk_store(y, (mk_u64)row * mk_type_bytes(type), type, v);
}

extern "C" __global__ void __launch_bounds__(MK_WG, RESIDENT) matvec(const mk_u8 *x, const mk_u8 *norm_weight,
                                                           const mk_u8 *residual, const mk_u8 *__restrict__ w0,
                                                           const mk_u8 *__restrict__ w1, const mk_u8 *__restrict__ w2,
                                                           const mk_u8 *__restrict__ w3, mk_u8 *y0, mk_u8 *y1,
                                                           mk_u8 *y2, mk_u8 *y3, const __grid_constant__ mk_stream_params p)
{
    __shared__ __attribute__((aligned(8))) mk_u64 bars[WARPS * MOST_STAGES];
    __shared__ mk_f32 scratch[ROWS * WARPS];
    const mk_u32 lid = threadIdx.x, warp = lid / 32, lane = lid % 32;
    const mk_u32 first = (mk_u32)((mk_u64)p.pairs * blockIdx.x / gridDim.x);
    ring r;
    r.slots = p.ring_at + warp * p.stages * p.slot_bytes;
    r.bars = shared_at(bars + warp * MOST_STAGES);
    r.issue = first + warp;
    r.stage = r.segment = 0;
    r.last = (mk_u32)((mk_u64)p.pairs * (blockIdx.x + 1) / gridDim.x);
    r.aligned = (((mk_u64)w0 | (mk_u64)w1 | (mk_u64)w2 | (mk_u64)w3) & 15u) == 0;
    if (lane == 0) {
        for (mk_u32 s = 0; s < p.stages; s++)
            barrier_init(r.bars + 8 * s, 1);
        barrier_init_fence();
    }
    __syncwarp();
    for (mk_u32 s = 0; s < p.stages; s++)
        ring_issue(&r, &p, w0, w1, w2, w3, lane);
    launch_dependents();
    wait_for_inputs();
    for (mk_u32 m = 0; m < p.rows; m++)
        prepare_row(x + m * p.x_stride, norm_weight, &p, (mk_u32 *)(stream_memory + m * p.codes_bytes),
                    (x_info *)(stream_memory + p.info_at + m * p.info_bytes), scratch + m * WARPS, lid);
    __syncthreads();

    mk_u32 stage = 0, parity = 0;
    for (mk_u32 index = first + warp; index < r.last; index += WARPS) {
        mk_f32 a[ROWS], b[ROWS];
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++)
            a[m] = b[m] = 0.0f;
        for (mk_u32 segment = 0; segment < p.segments; segment++) {
            const mk_u32 begin = segment * p.segment;
            const mk_u32 units = (begin + p.segment <= p.k ? p.segment : p.k - begin) / UNIT;
            const mk_u8 *slot = stream_memory + r.slots + stage * p.slot_bytes;
            barrier_wait(r.bars + 8 * stage, parity);
#pragma unroll 2
            for (mk_u32 u = lane; u < units; u += 32) {
                const w_unit wa = w_load(slot, &p, u), wb = w_load(slot + p.slot_bytes / 2, &p, u);
#pragma unroll
                for (mk_u32 m = 0; m < ROWS; m++) {
                    const x_unit xu = x_load(stream_memory + m * p.codes_bytes,
                                             (const x_info *)(stream_memory + p.info_at + m * p.info_bytes), p.k,
                                             begin / UNIT + u);
                    a[m] = unit_dot(&wa, &xu, a[m]);
                    b[m] = unit_dot(&wb, &xu, b[m]);
                }
            }
            __syncwarp();
            ring_issue(&r, &p, w0, w1, w2, w3, lane);
            if (++stage == p.stages) {
                stage = 0;
                parity ^= 1u;
            }
        }
        const pair at = pair_of(&p, index);
        mk_u8 *y = (mk_u8 *)pick(at.weight, y0, y1, y2, y3);
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++) { /* halves of the warp take one row each */
            mk_f32 v = (lane & 16u) == 0 ? a[m] : b[m];
            v += mk_shuffle_xor((lane & 16u) == 0 ? b[m] : a[m], 16);
            for (mk_u32 step = 8; step > 0; step >>= 1)
                v += mk_shuffle_xor(v, step);
            if (m < p.rows)
                finish(&p, at, v, m, lane, residual, y);
        }
    }
}
