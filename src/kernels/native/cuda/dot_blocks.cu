//use params/stream
/*
 * dot_blocks.cu - what a lane of matvec_ring.cu takes of a row of any type that meets 8-bit activations: runs of 32 as blocks.kc
 * has them, read from shared memory. W is the type, PLANES 1; of types with tables GROUP is the values to a scale and SCALE the
 * type of scales.
 */
#define DENSE 0
#define LEAN 0 /* more registers are worth more than an early start of the kernel behind */
#if MK_IS_AFFINE
#define PARTS 3 /* tables that a weight is made of */
#define TABLES(i) {{w##i, s##i, b##i}} /* as `tables` has them */
#elif MK_IS_GROUPED
#define PARTS 2
#define TABLES(i) {{w##i, s##i}}
#else
#define PARTS 1
#define TABLES(i) {{w##i}}
#endif
#define WEIGHT(i) MK_WEIGHT(w##i, s##i, b##i)
/* A lane takes RUNS neighbouring ones together: two where they are made of the same bytes. Their codes then stay where they lie in
 * these: CODE_BITS each in one plane, for some types one bit more in another. Masks pick those of a run, and what that leaves them too
 * large by goes with the scale of x: TOO_LARGE. So with ZIPPED ones, whose even and odd numbers are the low and the high nibbles of bytes. */
#define RUNS (W == MK_W_Q2_K || W == MK_W_Q3_K || W == MK_W_Q5_K ? 2u : 1u)
#define CODE_BITS (W == MK_W_Q5_K ? 4u : 2u)
#define HAS_MORE (W == MK_W_Q3_K || W == MK_W_Q5_K)
#define ZIPPED (W == MK_W_AFFINE4)
#define TOO_LARGE (RUNS == 2 ? 1 << (8 - CODE_BITS) : ZIPPED ? 16 : 1)
#define UNIT (32u * RUNS)
#define PIECE 1u
#define CODES_STEP(eights) ((eights) / RUNS) /* words that so many take, 512 or a multiple */

/* Where word i (elements 4 i to 4 i + 3) of the codes of x lies: the first halves of the first runs of all lanes, then their second
 * halves, then those of the second runs, so that the lanes of a warp read 16 neighbouring bytes each. */
MK_FN mk_u32 code_place(mk_u32 i, mk_u32 k)
{
    const mk_u32 run = i >> 3, half = i >> 2 & 1u;
    return ((2 * (run % RUNS) + half) * (k / UNIT) + run / RUNS) * 4 + (i & 3u);
}

MK_FN mk_u32 even_bytes(mk_u32 a, mk_u32 b)
{
    mk_u32 r;
    asm("prmt.b32 %0, %1, %2, 0x6420;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Codes 0 to 3 and 4 to 7 of an eight of x in the order that they meet weights in: as they are, or first the even ones. */
MK_FN mk_u64 codes_of(mk_u32 low, mk_u32 high)
{
    const mk_u32 even = ZIPPED ? even_bytes(low, high) : low, odd = ZIPPED ? even_bytes(low >> 8, high >> 8) : high;
    return (mk_u64)odd << 32 | even;
}

/* What goes with a run of x: its scale, and the sums of the codes of both halves, 16 bits each. */
typedef struct __attribute__((aligned(8))) x_info {
    mk_f32 scale;
    mk_u32 halves;
} x_info;

/* From the codes of an eight of x, `low` and `high`. Whole warps go together; of the four lanes of a run the first has it. */
MK_FN x_info x_info_of(mk_f32 scale, mk_u32 low, mk_u32 high, mk_u32 lid)
{
    mk_f32 sum = (mk_f32)mk_dot4(low, 0x01010101u, mk_dot4(high, 0x01010101u, 0));
    x_info part;
    part.scale = scale;
    sum += mk_shuffle_xor(sum, 1);
    part.halves = ((mk_u32)(mk_i32)sum & 0xffffu) | (mk_u32)(mk_i32)mk_shuffle_xor(sum, 2) << 16;
    (void)lid;
    return part;
}

/* What of x a piece meets: codes, scale, and of each half what MK_ZERO and minima are multiplied by. */
typedef struct x_fragment {
    mk_u32x4 low[RUNS], high[RUNS];
    mk_f32 scale[RUNS];
    mk_i32 zero[RUNS][2];
    mk_f32 sum[RUNS][2];
} x_fragment;

MK_FN x_fragment x_load(const mk_u8 *codes, const x_info *info, mk_u32 k, mk_u32 c)
{
    x_fragment x;
#pragma unroll
    for (mk_u32 j = 0; j < RUNS; j++) {
        const x_info i = info[RUNS * c + j];
        mk_i32 sum[2] = {(mk_i32)(i.halves << 16) >> 16, (mk_i32)i.halves >> 16};
        if (!MK_HAS_HALVES)
            sum[0] += sum[1];
        x.low[j] = shared4(codes, 16 * (2 * j * (k / UNIT) + c));
        x.high[j] = shared4(codes, 16 * ((2 * j + 1) * (k / UNIT) + c));
        x.scale[j] = i.scale * (1.0f / TOO_LARGE);
#pragma unroll
        for (mk_u32 h = 0; h < 2; h++) {
            x.zero[j][h] = MK_ZERO * TOO_LARGE * sum[h];
            x.sum[j][h] = i.scale * (mk_f32)sum[h];
        }
    }
    return x;
}

/* Row i of a stage. */
typedef mk_row stage_row;

MK_FN stage_row stage_row_at(const mk_u8 *stage, const mk_stream_params *p, mk_u32 i)
{
    stage_row row;
    row.q = stage + i * p->row_bytes[0];
    row.scales = PARTS > 1 ? stage + p->part_at[1] + i * p->row_bytes[1] : row.q;
    row.biases = PARTS > 2 ? stage + p->part_at[2] + i * p->row_bytes[2] : row.q;
    return row;
}

typedef struct w_fragment {
    mk_run run[RUNS]; /* their scales and minima alone where the codes stay where they lie */
    mk_u32x4 codes[2], more[2];
} w_fragment;

MK_FN w_fragment w_load(stage_row row, const mk_stream_params *p, mk_u32 c)
{
    mk_weight weight = p->weight;
    w_fragment w;
#if MK_IS_GROUPED
    weight.group_size = GROUP;
    weight.scale_type = SCALE;
#endif
#pragma unroll
    for (mk_u32 j = 0; j < RUNS; j++)
        w.run[j] = mk_row_run(row, &weight, RUNS * c | j); /* no sum: it is seen that both are of one block */
#if RUNS == 2
    const mk_u32 codes = field_at(&weight, 0, c >> 2) + 32 * ((c & 3u) * CODE_BITS >> 2), more = field_at(&weight, 1, c >> 2);
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++) {
        w.codes[h] = shared4(row.q, codes + 16 * h);
        w.more[h] = shared4(row.q, more + 16 * h);
    }
#elif ZIPPED
    w.codes[0] = shared4(row.q, 16 * c);
#endif
    return w;
}

#if RUNS == 2
/* c and TOO_LARGE times the products of half h of run j with x. */
MK_FN mk_i32 half_dot(const w_fragment *w, mk_u32 h, mk_u32 j, mk_u32 run, mk_u32x4 x, mk_i32 c)
{
    const mk_u32 at = CODE_BITS * (run % (8u / CODE_BITS)), mask = ((1u << CODE_BITS) - 1) * 0x01010101u;
    c = multiply_add(dot16_masked(w->codes[h], mask << at, x, 0), 1 << (8 - CODE_BITS - at), c);
    if (HAS_MORE)
        c = multiply_add(dot16_masked(w->more[h], 0x01010101u << run, x, 0), 1 << (8 - run), c);
    return c;
}
#elif ZIPPED
MK_FN mk_i32 half_dot(const w_fragment *w, mk_u32 h, mk_u32 j, mk_u32 run, mk_u32x4 x, mk_i32 c)
{
    const mk_u32 a = h == 0 ? w->codes[0].x : w->codes[0].z, b = h == 0 ? w->codes[0].y : w->codes[0].w;
    const mk_i32 even = dot4_unsigned(a & 0x0f0f0f0fu, x.x, dot4_unsigned(b & 0x0f0f0f0fu, x.z, 0));
    (void)j, (void)run;
    return 16 * even + dot4_unsigned(a & 0xf0f0f0f0u, x.y, dot4_unsigned(b & 0xf0f0f0f0u, x.w, c));
}
#else
MK_FN mk_u32x4 four_words(const mk_u32 *q)
{
    mk_u32x4 v;
    v.x = q[0], v.y = q[1], v.z = q[2], v.w = q[3];
    return v;
}

MK_FN mk_i32 half_dot(const w_fragment *w, mk_u32 h, mk_u32 j, mk_u32 run, mk_u32x4 x, mk_i32 c)
{
    (void)run;
    return dot16(four_words(w->run[j].q + 4 * h), x, c);
}
#endif

/* acc + the products of piece c. */
MK_FN mk_f32 fragment_dot(const w_fragment *w, const x_fragment *x, mk_u32 c, mk_f32 acc)
{
#pragma unroll
    for (mk_u32 j = 0; j < RUNS; j++) {
        const mk_run *run = &w->run[j];
        const mk_u32 number = (RUNS * c | j) % 8u; /* in its block */
        const mk_i32 low = half_dot(w, 0, j, number, x->low[j], x->zero[j][0]);
        const mk_i32 high = half_dot(w, 1, j, number, x->high[j], MK_HAS_HALVES ? x->zero[j][1] : low);
        mk_f32 sum = run->d[1] * (mk_f32)high;
        if (MK_HAS_HALVES)
            sum = mk_fma(run->d[0], (mk_f32)low, sum);
        acc = mk_fma(x->scale[j], sum, acc);
        if (MK_HAS_MIN)
            acc = mk_fma(run->m[0], x->sum[j][0], acc);
        if (MK_HAS_MIN && MK_HAS_HALVES)
            acc = mk_fma(run->m[1], x->sum[j][1], acc);
    }
    return acc;
}
