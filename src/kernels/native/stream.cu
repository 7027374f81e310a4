//use hopper
/*
 * stream.cu - a few rows of x by weights in planes: the weights stream through shared memory by bulk copies.
 *
 * W is the weight's type, ROWS at least the rows of x, XT and NT the types of x and of the norm's weight, NORM 0 without a norm
 * and 2 where it has a weight, EACH the units (16 bytes of a row's first plane) that a lane takes of a row.
 *
 * A group has an even share of the rows of up to four weights, which lie one behind the other in a ring of p.stages slots.
 * A slot holds whole rows, two for each team of p.team warps: row i and, half a slot on, row i + teams, or with a gate the
 * same row of the other weight. One warp serves: it fills the ring before it waits for the kernels before it, since no kernel
 * near it writes weights, fills slots again that were read, and makes results of the sums. The others make x ready in shared
 * memory (norm, 8-bit blocks of 32 or f32), keep the part that they meet, and go from slot to slot. The sum of a row: each lane
 * its units in order, then the lanes of a warp by halves, then the warps of the team by halves. Equals matvec.kc.
 */
#define WARPS (MK_WG / 32 - 1) /* that work; the last one serves */
#define WORKERS (32 * WARPS)
#define MOST_STAGES 8
#define DENSE (W == MK_W_F16 || W == MK_W_BF16)
#define HALVES (W == MK_W_Q4_K) /* sums of x are wanted for each 16 elements */
#define BATCH (NORM != 0 ? 2u : 4u) /* eights of x that a worker has under way, and with a norm as many of its weights */
#define RESIDENT (ROWS == 1 ? 2 : 1) /* by their registers: the next group begins beside one that ends */

extern __shared__ __attribute__((aligned(128))) mk_u8 stream_memory[];

MK_FN const mk_u8 *pick(mk_u32 i, const mk_u8 *a, const mk_u8 *b, const mk_u8 *c, const mk_u8 *d)
{
    return i == 0 ? a : i == 1 ? b : i == 2 ? c : d;
}

MK_FN void workers_barrier()
{
    asm volatile("bar.sync 1, %0;" ::"n"(WORKERS) : "memory");
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

/* What goes with a block of 32 of x: its scale and the sum of its codes, a whole number; with HALVES, for each 16 elements the
 * scale and scale * sum. Codes of weights that stay in the upper half of a byte are 16 times too large: see NIBBLE. */
typedef struct __attribute__((aligned(8))) x_info {
    mk_f32 scale, sum;
} x_info;

#define NIBBLE 0.0625f

typedef struct eight {
    mk_f32 v[8];
} eight;

/* Four numbers as signed bytes. */
MK_FN mk_u32 four_codes(const mk_f32 *v, mk_f32 inverse)
{
    mk_i32 q[4];
    mk_u32 packed;
#pragma unroll
    for (mk_u32 i = 0; i < 4; i++)
        asm("cvt.rni.s32.f32 %0, %1;" : "=r"(q[i]) : "f"(v[i] * inverse));
    asm("{ .reg .b32 upper; cvt.pack.sat.s8.s32.b32 upper, %4, %3, 0; cvt.pack.sat.s8.s32.b32 %0, %2, %1, upper; }"
        : "=r"(packed)
        : "r"(q[0]), "r"(q[1]), "r"(q[2]), "r"(q[3]));
    return packed;
}

/* Eight number i as codes; the four lanes of a block agree on its scale. As activation.kc has it. */
MK_FN void store_codes(mk_u32 *codes, x_info *info, mk_u32 i, mk_u32 k, const eight *x)
{
    mk_u32 bits = 0; /* of the greatest: numbers, then infinity, then what is no number */
#pragma unroll
    for (mk_u32 e = 0; e < 8; e++) {
        const mk_u32 b = mk_bits_of_f32(x->v[e]) & 0x7fffffffu;
        bits = b > bits ? b : bits;
    }
#pragma unroll
    for (mk_u32 step = 1; step <= 2; step *= 2) {
        const mk_u32 b = mk_bits_of_f32(mk_shuffle_xor(mk_f32_of_bits(bits), step));
        bits = b > bits ? b : bits;
    }
    const mk_u32 finite = bits < 0x7f800000u;
    const mk_f32 most = finite != 0 ? mk_f32_of_bits(bits) : 0.0f;
    mk_f32 inverse = 127.0f / most, scale = finite != 0 ? most / 127.0f : MK_NAN;
    if (most < 3.8e-37f && !(inverse < MK_INF)) {
        inverse = 0.0f;
        scale *= 0.0f;
    }
    eight v = *x;
#pragma unroll
    for (mk_u32 e = 0; e < 8; e++)
        v.v[e] = finite != 0 ? v.v[e] : 0.0f;
    const mk_u32 low = four_codes(v.v, inverse), high = four_codes(v.v + 4, inverse);
    mk_f32 sum = (mk_f32)mk_dot4(low, 0x01010101u, mk_dot4(high, 0x01010101u, 0));
    sum += mk_shuffle_xor(sum, 1);
    x_info part;
    part.scale = scale;
#if HALVES
    part.sum = scale * sum;
    if ((i & 4u) != 0)
        part.scale *= NIBBLE;
#elif W == MK_W_Q4_0
    part.sum = 128.0f * (sum + mk_shuffle_xor(sum, 2)); /* codes of weights are too large by 8, and by 16 times */
    part.scale *= NIBBLE;
#else
    part.sum = 0.0f;
#endif
    if (8 * i >= k)
        return;
    *(mk_u64 *)(codes + code_place(2 * i, k)) = (mk_u64)high << 32 | low;
#if HALVES
    if ((i & 1u) == 0)
        info[i >> 1] = part;
#else
    if ((i & 3u) == 0)
        info[i >> 2] = part;
#endif
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

/* Eights base + lid, base + lid + WORKERS, .. of a row of `type`; zeros past its end. All loads are under way at once. */
MK_FN void load_batch(const mk_u8 *x, const mk_u32 type, mk_u32 k, mk_u32 base, mk_u32 lid, eight *out)
{
#pragma unroll
    for (mk_u32 j = 0; j < BATCH; j++) {
        const mk_u32 i = base + j * WORKERS + lid;
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

/* Into shared memory. Whole warps go together. */
MK_FN void store_batch(const mk_stream_params *p, mk_u32 base, const eight *x, mk_u32 *codes, x_info *info, mk_u32 lid)
{
#pragma unroll
    for (mk_u32 j = 0; j < BATCH; j++) {
        const mk_u32 i = base + j * WORKERS + lid;
        if ((i & ~31u) * 8 >= p->k)
            continue;
#if DENSE
        if (8 * i < p->k)
            store_floats(codes, i, p->k, &x[j]);
#else
        store_codes(codes, info, i, p->k, &x[j]);
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

/* 1 / rms from each worker's squares, the same in all of them. `scratch` [WARPS] is of this row alone. */
MK_FN mk_f32 inverse_rms(mk_f32 sum, const mk_stream_params *p, mk_f32 *scratch, mk_u32 lid)
{
    for (mk_u32 step = 16; step > 0; step >>= 1)
        sum += mk_shuffle_xor(sum, step);
    if (lid % 32 == 0)
        scratch[lid / 32] = sum;
    workers_barrier();
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

/* All workers. `first`: the norm's weights of the first batch. */
MK_FN void prepare_row(const mk_u8 *x, const mk_u8 *norm_weight, const eight *first, const mk_stream_params *p, mk_u32 *codes,
                       x_info *info, mk_f32 *scratch, mk_u32 lid)
{
    const mk_u32 step = BATCH * WORKERS;
    eight v[BATCH];
#if NORM
    mk_f32 sum = 0.0f;
    for (mk_u32 base = step; 8 * base < p->k; base += step) {
        load_batch(x, XT, p->k, base, lid, v);
        sum = add_squares(v, sum);
    }
    load_batch(x, XT, p->k, 0, lid, v);
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
        store_batch(p, base, v, codes, info, lid);
    }
#endif
}

/* ---- units ---- */

MK_FN mk_u32x4 shared4(const mk_u8 *p, mk_u32 at)
{
    return *(const mk_u32x4 *)(p + at);
}

/* c + the sum of four products, of unsigned bytes in a and signed ones in b. */
MK_FN mk_i32 dot4_unsigned(mk_u32 a, mk_u32 b, mk_i32 c)
{
    mk_i32 r;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

MK_FN mk_i32 dot16(mk_u32x4 a, mk_u32x4 b)
{
    return mk_dot4(a.w, b.w, mk_dot4(a.z, b.z, mk_dot4(a.y, b.y, mk_dot4(a.x, b.x, 0))));
}

/* Those bits of each byte of a alone. */
MK_FN mk_i32 dot16_masked(mk_u32x4 a, mk_u32 mask, mk_u32x4 b, mk_i32 c)
{
    c = dot4_unsigned(a.x & mask, b.x, c);
    c = dot4_unsigned(a.y & mask, b.y, c);
    c = dot4_unsigned(a.z & mask, b.z, c);
    return dot4_unsigned(a.w & mask, b.w, c);
}

#define LOW 0x0f0f0f0fu
#define HIGH 0xf0f0f0f0u /* 16 times the number: NIBBLE */

#if W == MK_W_Q6_K
/* Nibbles and two bits each at `shift` as signed bytes: the number less 32. */
MK_FN mk_u32 six_bits(mk_u32 nibbles, mk_u32 high, mk_u32 shift)
{
    const mk_u32 q = (nibbles & LOW) | (high >> shift & 0x03030303u) << 4;
    return ((q | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}

MK_FN mk_i32 dot16_six(mk_u32x4 a, mk_u32 nibble, mk_u32x4 high, mk_u32 shift, mk_u32x4 b)
{
    a.x = six_bits(a.x >> nibble, high.x, shift), a.y = six_bits(a.y >> nibble, high.y, shift);
    a.z = six_bits(a.z >> nibble, high.z, shift), a.w = six_bits(a.w >> nibble, high.w, shift);
    return dot16(a, b);
}
#endif

/* Elements of a unit, and what of x it meets. Blocks of a unit: `low` with i, `high` with i1 or i. */
#if DENSE
#define UNIT 8u
typedef struct x_unit {
    mk_f32 v[8];
} x_unit;
#else
#if W == MK_W_Q8_0
#define UNIT 16u
#else
#define UNIT 32u
#endif
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

/* What is read of unit u of a row in a slot: its bytes, and what scales them. */
typedef struct w_unit {
    mk_u32x4 q;
    mk_u32x4 more; /* q4_k: the block's scales; q6_k: the upper bits */
    mk_u32 d;      /* f16 */
    mk_u32 scales; /* q6_k: of both, signed bytes */
} w_unit;

MK_FN w_unit w_load(const mk_u8 *row, const mk_stream_params *p, mk_u32 u)
{
    w_unit w;
    w.q = shared4(row, 16 * u);
#if W == MK_W_Q8_0
    w.d = *(const mk_u16 *)(row + p->field_at[1] + 2 * (u >> 1));
#elif W == MK_W_Q4_0
    w.d = *(const mk_u16 *)(row + p->field_at[1] + 2 * u);
#elif W == MK_W_Q4_K
    w.more = shared4(row + p->field_at[1], 16 * (u >> 3));
#elif W == MK_W_Q6_K
    const mk_u8 *scales = row + p->field_at[2] + 2 * (u & ~3u) + (u & 3u);
    w.more = shared4(row + p->field_at[1], 64 * (u >> 3) + 32 * (u >> 2 & 1u) + 16 * (u & 1u));
    w.scales = scales[0] | (mk_u32)scales[4] << 8;
    w.d = *(const mk_u16 *)(row + p->field_at[3] + 2 * (u >> 3));
#else
    (void)p;
#endif
    return w;
}

/* acc + the products of unit u. */
MK_FN mk_f32 unit_dot(const w_unit *w, const x_unit *x, mk_u32 u, mk_f32 acc)
{
#if DENSE
    const mk_u32 word[4] = {w->q.x, w->q.y, w->q.z, w->q.w};
    (void)u;
#pragma unroll
    for (mk_u32 j = 0; j < 4; j++) {
#if W == MK_W_F16
        acc = mk_fma(mk_f32_of_f16((mk_u16)word[j]), x->v[2 * j], acc);
        acc = mk_fma(mk_f32_of_f16((mk_u16)(word[j] >> 16)), x->v[2 * j + 1], acc);
#else
        acc = mk_fma(mk_f32_of_bits(word[j] << 16), x->v[2 * j], acc);
        acc = mk_fma(mk_f32_of_bits(word[j] & 0xffff0000u), x->v[2 * j + 1], acc);
#endif
    }
    return acc;
#elif W == MK_W_Q8_0
    (void)u;
    return mk_fma(mk_f32_of_f16((mk_u16)w->d) * x->i.scale, (mk_f32)dot16(w->q, x->low), acc);
#elif W == MK_W_Q4_0
    const mk_i32 dot = dot16_masked(w->q, HIGH, x->high, 16 * dot16_masked(w->q, LOW, x->low, 0));
    (void)u;
    return mk_fma(mk_f32_of_f16((mk_u16)w->d) * x->i.scale, (mk_f32)dot - x->i.sum, acc);
#elif W == MK_W_Q4_K
    const mk_u32 late = u >> 2 & 1u, shift = (u >> 1 & 1u) * 16;
    const mk_u32 s = late != 0 ? (w->more.w & LOW) | (w->more.y >> 2 & 0x30303030u) : w->more.y & 0x3f3f3f3fu;
    const mk_u32 m = late != 0 ? (w->more.w >> 4 & LOW) | (w->more.z >> 2 & 0x30303030u) : w->more.z & 0x3f3f3f3fu;
    const mk_u32 s2 = s >> shift, m2 = m >> shift;
    const mk_i32 low = dot16_masked(w->q, LOW, x->low, 0) * (mk_i32)(s2 & 255u);
    const mk_i32 high = dot16_masked(w->q, HIGH, x->high, 0) * (mk_i32)(s2 >> 8 & 255u);
    const mk_f32 more = mk_fma((mk_f32)low, x->i.scale, (mk_f32)high * x->i1.scale);
    const mk_f32 less = mk_fma((mk_f32)(m2 & 255u), x->i.sum, (mk_f32)(m2 >> 8 & 255u) * x->i1.sum);
    acc = mk_fma(mk_f32_of_f16((mk_u16)w->more.x), more, acc);
    return mk_fma(-mk_f32_of_f16((mk_u16)(w->more.x >> 16)), less, acc);
#else
    const mk_u32 part = u & 2u;
    const mk_i32 low = dot16_six(w->q, 0, w->more, part, x->low) * (mk_i32)(mk_i8)w->scales;
    const mk_i32 high = dot16_six(w->q, 4, w->more, 4 + part, x->high) * (mk_i32)(mk_i8)(w->scales >> 8);
    return mk_fma(mk_f32_of_f16((mk_u16)w->d), mk_fma((mk_f32)low, x->i.scale, (mk_f32)high * x->i1.scale), acc);
#endif
}

/* ---- the ring ---- */

/* Bytes of shared memory. */
typedef struct ring {
    mk_u32 full, empty; /* places of the first barriers: the bytes came; all workers are through with them */
    mk_u32 stage, parity;
} ring;

MK_FN void ring_next(ring *r, const mk_stream_params *p)
{
    if (++r->stage == p->stages) {
        r->stage = 0;
        r->parity ^= 1u;
    }
}

/* Where a walk over the rows of a group is: `left` rows of one weight, from `row` on, and `rest` of the weights after it. */
typedef struct cursor {
    mk_u32 weight, row, left, rest;
} cursor;

/* To the next weight of which the group has rows, if any. */
MK_FN void cursor_skip(cursor *c, const mk_stream_params *p)
{
    while (c->left == 0 && c->rest > 0) {
        const mk_u32 rows = p->row_end[c->weight + 1] - p->row_end[c->weight];
        c->weight++;
        c->row = 0;
        c->left = rows < c->rest ? rows : c->rest;
        c->rest -= c->left;
    }
}

MK_FN cursor cursor_at(const mk_stream_params *p, mk_u32 begin, mk_u32 end)
{
    cursor c;
    mk_u32 first = 0;
    c.weight = 0;
    while (begin >= p->row_end[c.weight])
        first = p->row_end[c.weight++];
    c.row = begin - first;
    c.left = (end < p->row_end[c.weight] ? end : p->row_end[c.weight]) - begin;
    c.rest = end - begin - c.left;
    return c;
}

/* Rows that the next slot takes. */
MK_FN mk_u32 cursor_rows(const cursor *c, const mk_stream_params *p)
{
    return c->left < p->slot_rows ? c->left : p->slot_rows;
}

MK_FN void cursor_next(cursor *c, const mk_stream_params *p)
{
    const mk_u32 rows = cursor_rows(c, p);
    c->row += rows;
    c->left -= rows;
    if (c->left == 0)
        cursor_skip(c, p);
}

/* Slots that rows [begin, end) take. */
MK_FN mk_u32 slots_of(const mk_stream_params *p, mk_u32 begin, mk_u32 end)
{
    mk_u32 slots = 0, first = 0;
    for (mk_u32 i = 0; i < 4; i++) {
        const mk_u32 from = begin > first ? begin : first, to = end < p->row_end[i] ? end : p->row_end[i];
        if (from < to)
            slots += (to - from + p->slot_rows - 1) / p->slot_rows;
        first = p->row_end[i];
    }
    return slots;
}

/* One lane: the rows at c into the slot of r. */
MK_FN void ring_fill(const ring *r, const mk_stream_params *p, const cursor *c, const mk_u8 *w, const mk_u8 *w1)
{
    const mk_u64 begin = (mk_u64)c->row * p->row_bytes;
    const mk_u32 bytes = cursor_rows(c, p) * p->row_bytes, bar = r->full + 8 * r->stage;
    const mk_u32 slot = shared_at(stream_memory) + p->ring_at + r->stage * p->slot_bytes;
    barrier_expect(bar, p->gate != 0 ? 2 * bytes : bytes);
    bulk_load_once(slot, w + begin, bytes, bar);
    if (p->gate != 0)
        bulk_load_once(slot + p->slot_bytes / 2, w1 + begin, bytes, bar);
}

/* ---- the warp that serves ---- */

/* A row's sum becomes a result. `y` and `residual` are of row 0 of the weight. */
MK_FN void finish(const mk_stream_params *p, mk_u32 weight, mk_u32 row, mk_u32 there, mk_f32 v, mk_f32 residual, mk_u8 *y)
{
    const mk_f32 other = mk_shuffle_xor(v, 16);
    const mk_u32 type = p->y_type[weight];
    if (p->gate != 0)
        v = (p->gate == MK_GATE_SILU ? mk_silu(v) : mk_gelu(v)) * other;
    if (weight == 0) {
        if (p->softcap > 0.0f)
            v = mk_softcap(v, p->softcap);
        if (p->residual != 0)
            v += residual;
    }
    if (there != 0)
        mk_store(y, (mk_u64)row * mk_type_bytes(type), type, v);
}

/* All lanes of one warp. */
MK_FN void serve(ring r, const mk_stream_params *p, cursor done, cursor filled, const mk_u8 *residual, const mk_u8 *w0,
                 const mk_u8 *w1, const mk_u8 *w2, const mk_u8 *w3, mk_u8 *y0, mk_u8 *y1, mk_u8 *y2, mk_u8 *y3,
                 const mk_f32 (*sums)[ROWS][32], mk_u32 lane)
{
    const mk_u32 place = lane / p->team, first = lane % p->team == 0; /* row of the slot; the others of its team help */
    while (done.left > 0) {
        const mk_u32 row = done.row + place, there = first != 0 && place < cursor_rows(&done, p), weight = done.weight;
        const mk_u32 adds = there != 0 && weight == 0 && p->residual != 0;
        mk_f32 add[ROWS], v[ROWS];
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++)
            add[m] = adds != 0 && m < p->rows ? mk_load(residual, m * p->residual_stride + (mk_u64)row * mk_type_bytes(p->residual_type),
                                                        p->residual_type)
                                              : 0.0f;
        cursor_next(&done, p);
        const mk_u8 *w = pick(filled.weight, w0, w1, w2, w3);
        barrier_wait(r.empty + 8 * r.stage, r.parity);
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++)
            v[m] = sums[r.stage][m][lane];
        __syncwarp();
        if (filled.left > 0) {
            if (lane == 0)
                ring_fill(&r, p, &filled, w, w1);
            cursor_next(&filled, p);
        }
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++) {
            for (mk_u32 step = p->team / 2; step > 0; step >>= 1)
                v[m] += mk_shuffle_xor(v[m], step);
            if (m < p->rows)
                finish(p, weight, row, there, v[m], add[m],
                       (mk_u8 *)pick(weight, y0, y1, y2, y3) + (ROWS == 1 ? 0 : m * p->y_stride[weight]));
        }
        ring_next(&r, p);
    }
}

/* ---- the warps that work ---- */

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

/* All lanes of a warp, which takes units `first`, first + 32 p.team, .. of its two rows of each of `slots` slots. */
MK_FN void work(ring r, const mk_stream_params *p, mk_u32 slots, mk_f32 (*sums)[ROWS][32], mk_u32 warp, mk_u32 lane)
{
    const mk_u32 first = warp % p->team * 32 + lane, apart = 32 * p->team, units = p->k / UNIT;
    const mk_u8 *rows = stream_memory + p->ring_at + warp / p->team * p->row_bytes;
#if ROWS == 1
    x_unit held[EACH];
#pragma unroll
    for (mk_u32 j = 0; j < EACH; j++)
        if (first + j * apart < units)
            held[j] = x_load(stream_memory, (const x_info *)(stream_memory + p->info_at), p->k, first + j * apart);
#endif
    for (; slots > 0; slots--, ring_next(&r, p)) {
        const mk_u8 *row = rows + r.stage * p->slot_bytes, *other = row + p->slot_bytes / 2;
        mk_f32 a[ROWS], b[ROWS];
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++)
            a[m] = b[m] = 0.0f;
        barrier_wait(r.full + 8 * r.stage, r.parity);
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j++) {
            const mk_u32 u = first + j * apart;
            if (u >= units)
                break;
            const w_unit wa = w_load(row, p, u), wb = w_load(other, p, u);
#pragma unroll
            for (mk_u32 m = 0; m < ROWS; m++) {
#if ROWS == 1
                const x_unit &x = held[j];
#else
                const x_unit x = x_load(stream_memory + m * p->codes_bytes,
                                        (const x_info *)(stream_memory + p->info_at + m * p->info_bytes), p->k, u);
#endif
                a[m] = unit_dot(&wa, &x, u, a[m]);
                b[m] = unit_dot(&wb, &x, u, b[m]);
            }
        }
#pragma unroll
        for (mk_u32 m = 0; m < ROWS; m++) {
            const mk_f32 v = warp_sums(a[m], b[m], lane);
            if ((lane & 15u) == 0)
                sums[r.stage][m][lane + warp] = v;
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(r.empty + 8 * r.stage);
    }
}

extern "C" __global__ void __launch_bounds__(MK_WG, RESIDENT) matvec(const mk_u8 *x, const mk_u8 *norm_weight,
                                                           const mk_u8 *residual, const mk_u8 *__restrict__ w0,
                                                           const mk_u8 *__restrict__ w1, const mk_u8 *__restrict__ w2,
                                                           const mk_u8 *__restrict__ w3, mk_u8 *y0, mk_u8 *y1,
                                                           mk_u8 *y2, mk_u8 *y3, const __grid_constant__ mk_stream_params p)
{
    __shared__ __attribute__((aligned(8))) mk_u64 bars[2 * MOST_STAGES];
    __shared__ mk_f32 sums[MOST_STAGES][ROWS][32]; /* of a slot: by row, then by warp of the team */
    __shared__ mk_f32 scratch[ROWS * WARPS];
    const mk_u32 lid = threadIdx.x, warp = lid / 32, lane = lid % 32;
    const mk_u32 all = p.row_end[3], begin = (mk_u32)((mk_u64)all * blockIdx.x / gridDim.x);
    const mk_u32 end = (mk_u32)((mk_u64)all * (blockIdx.x + 1) / gridDim.x);
    ring r;
    r.full = shared_at(bars);
    r.empty = shared_at(bars + MOST_STAGES);
    r.stage = r.parity = 0;
    if (warp == WARPS) {
        const cursor start = cursor_at(&p, begin, end);
        cursor filled = start;
        if (lane == 0) {
            for (mk_u32 s = 0; s < p.stages; s++) {
                barrier_init(r.full + 8 * s, 1);
                barrier_init(r.empty + 8 * s, WARPS);
            }
            barrier_init_fence();
        }
        __syncwarp();
        for (ring to = r; to.parity == 0 && filled.left > 0; ring_next(&to, &p), cursor_next(&filled, &p))
            if (lane == 0)
                ring_fill(&to, &p, &filled, pick(filled.weight, w0, w1, w2, w3), w1);
        launch_dependents();
        __syncthreads();
        wait_for_inputs();
        serve(r, &p, start, filled, residual, w0, w1, w2, w3, y0, y1, y2, y3, sums, lane);
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
                    (x_info *)(stream_memory + p.info_at + m * p.info_bytes), scratch + m * WARPS, lid);
    workers_barrier();
    work(r, &p, slots_of(&p, begin, end), sums, warp, lane);
}
