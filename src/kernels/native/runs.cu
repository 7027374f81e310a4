/*
 * runs.cu - what a lane of flow.cu takes of a row of any type that meets 8-bit activations: runs of 32 as blocks.kc has them, read
 * from shared memory. W is the type, PLANES 1; of types with tables GROUP is the values to a scale and SCALE the type of scales.
 */
#define DENSE 0
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
/* A lane takes RUNS neighbouring ones together: two where they are made of the same bytes. */
#define RUNS (W == MK_W_Q2_K || W == MK_W_Q3_K || W == MK_W_Q5_K ? 2u : 1u)
#define IN_TURN (RUNS > 1) /* a row's bytes are read when the other's are done with: there are no registers for both */
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
typedef struct x_piece {
    mk_u32x4 low[RUNS], high[RUNS];
    mk_f32 scale[RUNS];
    mk_i32 zero[RUNS][2];
    mk_f32 sum[RUNS][2];
} x_piece;

MK_FN x_piece x_load(const mk_u8 *codes, const x_info *info, mk_u32 k, mk_u32 c)
{
    x_piece x;
#pragma unroll
    for (mk_u32 j = 0; j < RUNS; j++) {
        const x_info i = info[RUNS * c + j];
        mk_i32 sum[2] = {(mk_i32)(i.halves << 16) >> 16, (mk_i32)i.halves >> 16};
        if (!MK_HAS_HALVES)
            sum[0] += sum[1];
        x.low[j] = shared4(codes, 16 * (2 * j * (k / UNIT) + c));
        x.high[j] = shared4(codes, 16 * ((2 * j + 1) * (k / UNIT) + c));
        x.scale[j] = i.scale;
#pragma unroll
        for (mk_u32 h = 0; h < 2; h++) {
            x.zero[j][h] = MK_ZERO * sum[h];
            x.sum[j][h] = i.scale * (mk_f32)sum[h];
        }
    }
    return x;
}

/* Row i of a slot. */
typedef mk_row slot_row;

MK_FN slot_row slot_row_at(const mk_u8 *slot, const mk_stream_params *p, mk_u32 i)
{
    slot_row row;
    row.q = slot + i * p->row_bytes[0];
    row.scales = PARTS > 1 ? slot + p->part_at[1] + i * p->row_bytes[1] : row.q;
    row.biases = PARTS > 2 ? slot + p->part_at[2] + i * p->row_bytes[2] : row.q;
    return row;
}

typedef struct w_piece {
    mk_run run[RUNS];
} w_piece;

MK_FN w_piece w_load(slot_row row, const mk_stream_params *p, mk_u32 c)
{
    mk_weight weight = p->weight;
    w_piece w;
#if MK_IS_GROUPED
    weight.group_size = GROUP;
    weight.scale_type = SCALE;
#endif
#pragma unroll
    for (mk_u32 j = 0; j < RUNS; j++)
        w.run[j] = mk_row_run(row, &weight, RUNS * c | j); /* no sum: it is seen that both are of one block */
    return w;
}

MK_FN mk_u32x4 four_words(const mk_u32 *q)
{
    mk_u32x4 v;
    v.x = q[0], v.y = q[1], v.z = q[2], v.w = q[3];
    return v;
}

/* acc + the products of piece c. */
MK_FN mk_f32 piece_dot(const w_piece *w, const x_piece *x, mk_u32 c, mk_f32 acc)
{
    (void)c;
#pragma unroll
    for (mk_u32 j = 0; j < RUNS; j++) {
        const mk_run *run = &w->run[j];
        const mk_i32 low = dot16(four_words(run->q), x->low[j], x->zero[j][0]);
        const mk_i32 high = dot16(four_words(run->q + 4), x->high[j], MK_HAS_HALVES ? x->zero[j][1] : low);
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
