//use delta_tiles
/*
 * delta_forward.cu - the delta rule from chunk to chunk, as delta_prepare.cu left them: a group has 32 columns of a head's state in registers. Equals `forward`
 * of delta_chunk.kc.
 *
 * Everything is transposed: rows of products are columns of the state, and what is summed over is elements of keys first, then tokens. Sums of one
 * product are so the left operand of the next: of the state, of what it does not know, of d.
 *
 * A factor 0 would let a NaN through to the tokens before it. Chunks with anything that is not finite go token by token.
 */
#define FRAGMENT 512u /* bytes of 16 columns by 8 tokens, as lanes have them */
#define PARTIAL_AT (2u * STAGE_BYTES) /* of each warp: [known, out][4 tiles] for the other half; then d, 8 tiles a side; */
#define REST_AT (PARTIAL_AT + 4u * 8u * FRAGMENT) /* what is not known: 8 tiles a side */

MK_FN void load_transposed(mk_u32 at, mk_u32 *r)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* The two warps of a side. */
MK_FN void side_barrier(mk_u32 side)
{
    asm volatile("bar.sync %0, 64;" ::"r"(side + 1u) : "memory");
}

/* Of 32 rows from `at` on and 8 elements: x[2 s + h] is element lane / 4 of row 8 s + 2 (lane % 4) + h. */
MK_FN void load_columns(mk_u32 at, mk_u32 type, mk_u32 lane, mk_f32 *x)
{
    if (type != MK_F32) {
        mk_u32 r[4];
        load_transposed(shared_at(delta_memory) + at + lane * ROW(type), r);
#pragma unroll
        for (mk_u32 s = 0; s < 4u; s++)
            expand(r[s], type, x + 2u * s);
        return;
    }
#pragma unroll
    for (mk_u32 e = 0; e < 8u; e++)
        x[e] = mk_ld_f32(delta_memory, at + (e / 2u * 8u + lane % 4u * 2u + e % 2u) * ROW(type) + lane / 4u * 4u);
}

/* A thread's part of the work: 16 columns are two warps', each has half of the elements of keys and, of eight tiles of tokens, every second. */
typedef struct share_of {
    mk_u32 lid, lane, side, half;
    mk_u32 head, group;
    mk_u32 first; /* column of the group */
} share_of;

#define OWN 4u /* tiles of tokens */
#define KEPT (DIM / 16u) /* tiles of the state, of 16 columns by 8 elements */

/* The first of the thread's two columns; the other is 8 on. */
MK_FN mk_u32 column_of(const share_of *w)
{
    return w->first + 16u * w->side + w->lane / 4u;
}

/* Token 2 (lane % 4) of own tile a, of the chunk. */
MK_FN mk_u32 token_of(const share_of *w, mk_u32 a)
{
    return 8u * (2u * a + w->half) + 2u * (w->lane % 4u);
}

MK_FN void put_fragment(mk_u32 at, mk_u32 lane, const mk_f32 *c)
{
    const mk_u32x4 bits = {mk_bits_of_f32(c[0]), mk_bits_of_f32(c[1]), mk_bits_of_f32(c[2]), mk_bits_of_f32(c[3])};
    mk_st4_u32(delta_memory, at + lane * 16u, bits);
}

MK_FN void get_fragment(mk_u32 at, mk_u32 lane, mk_f32 *c)
{
    const mk_u32x4 bits = shared4(delta_memory, at + lane * 16u);
    c[0] = mk_f32_of_bits(bits.x);
    c[1] = mk_f32_of_bits(bits.y);
    c[2] = mk_f32_of_bits(bits.z);
    c[3] = mk_f32_of_bits(bits.w);
}

/* A column's row of the state before the sequence or behind it: element i of tile n. */
MK_FN mk_u32 element_of(const share_of *w, mk_u32 n, mk_u32 i)
{
    return w->half * (DIM / 2u) + 8u * n + 2u * (w->lane % 4u) + i % 2u;
}

MK_FN void load_state(const mk_delta_params *p, const share_of *w, const mk_u8 *state, mk_u64 from, mk_u32 there, mk_f32 (*kept)[4])
{
#pragma unroll
    for (mk_u32 n = 0; n < KEPT; n++)
#pragma unroll
        for (mk_u32 i = 0; i < 4u; i++) {
            const mk_u32 e = element_of(w, n, i), column = column_of(w) + i / 2u * 8u;
            kept[n][i] = there != 0u && e < p->dim && column < p->columns
                             ? mk_ld_f32(state, from + w->head * p->state_stride[0] + e * p->state_stride[1] + (mk_u64)column * 4u)
                             : 0.0f;
        }
}

MK_FN void store_state(const mk_delta_params *p, const share_of *w, mk_u8 *next_state, mk_u64 to, const mk_f32 (*kept)[4])
{
#pragma unroll
    for (mk_u32 n = 0; n < KEPT; n++)
#pragma unroll
        for (mk_u32 i = 0; i < 4u; i++) {
            const mk_u32 e = element_of(w, n, i), column = column_of(w) + i / 2u * 8u;
            if (e < p->dim && column < p->columns)
                mk_st_f32(next_state, to + w->head * p->next_stride[0] + e * p->next_stride[1] + (mk_u64)column * 4u, kept[n][i]);
        }
}

/* v of a chunk begins to come; what is behind the tokens and the columns, whole pieces of 16 bytes, becomes zero. */
MK_FN void fetch_values(const mk_delta_params *p, const share_of *w, const mk_u8 *v, mk_u32 begin, mk_u32 tokens, mk_u32 stage)
{
    const mk_u32 all = COLUMNS * BYTES(VT) / 16u, to = shared_at(delta_memory) + stage * STAGE_BYTES + VALUES_AT;
    const mk_u32 piece = w->lid % all, there = (w->first + piece * 16u / BYTES(VT)) < p->columns;
    const mk_u8 *from = v + begin * p->v_stride[0] + w->head * p->v_stride[1] + (there != 0u ? w->first * BYTES(VT) + piece * 16u : 0u);
#pragma unroll
    for (mk_u32 i = 0; i < CHUNK; i += MK_WG / all) {
        const mk_u32 t = i + w->lid / all, inside = t < tokens;
        copy_async_part(to + t * VALUE_ROW + piece * 16u, from + (inside != 0u ? t : 0u) * p->v_stride[0],
                        (inside & there) != 0u ? 16u : 0u);
    }
}

/* The chunk that begins with that token, and its room, begin to come to a stage. */
MK_FN void fetch_chunk(const mk_delta_params *p, const share_of *w, const mk_u8 *q, const mk_u8 *k, const mk_u8 *v, const mk_u8 *room,
                       mk_u32 begin, mk_u32 tokens, mk_u32 stage)
{
    const mk_u32 to = shared_at(delta_memory) + stage * STAGE_BYTES + ROOM_AT + 16u * w->lid;
    fetch_keys(p, q, k, w->group, begin, tokens, stage * STAGE_BYTES, w->lid);
    fetch_values(p, w, v, begin, tokens, stage);
#pragma unroll
    for (mk_u32 e = CORRECT != 0u ? 0u : MATRIX / 4u; e < ROOM / 4u; e += MK_WG)
        copy_async(to + 16u * e, room + 16u * (e + w->lid));
    copies_commit();
}

/* v of own tokens, zeros outside. */
MK_FN void load_values(const share_of *w, mk_u32 stage, mk_f32 (*value)[4])
{
    const mk_u32 at = stage * STAGE_BYTES + VALUES_AT + (16u * w->side + w->lane / 4u) * BYTES(VT);
#pragma unroll
    for (mk_u32 i = 0; i < OWN * 4u; i++)
        value[i / 4u][i % 4u] =
            mk_load(delta_memory, at + (token_of(w, i / 4u) + i % 2u) * VALUE_ROW + i / 2u % 2u * 8u * BYTES(VT), VT);
}

/* Tiles 2 a + odd of S^T k and S^T q, summed over the warp's half of the elements: two of them at once, which do not wait for each other. */
MK_FN void apply_state(const share_of *w, mk_u32 stage, mk_u32 odd, const mk_f32 (*kept)[4], mk_f32 (*known)[4], mk_f32 (*out)[4])
{
    const mk_u32 keys = stage * STAGE_BYTES + w->half * (DIM / 2u) * BYTES(KT) + 8u * odd * ROW(KT);
    const mk_u32 queries = stage * STAGE_BYTES + QUERIES_AT + w->half * (DIM / 2u) * BYTES(QT) + 8u * odd * ROW(QT);
#pragma unroll
    for (mk_u32 i = 0; i < OWN * 4u; i++) {
        known[i / 4u][i % 4u] = 0.0f;
        out[i / 4u][i % 4u] = 0.0f;
    }
#pragma unroll
    for (mk_u32 u = 0; u < KEPT / 4u; u++) {
        mk_u32 left[4][8];
#pragma unroll
        for (mk_u32 s = 0; s < 4u; s++)
            split_sums(kept[4u * u + s], left[s]);
#pragma unroll
        for (mk_u32 a = 0; a < OWN; a += 2u) {
            mk_f32 x[4][8]; /* keys, queries of two tiles */
#pragma unroll
            for (mk_u32 b = 0; b < 2u; b++) {
                if (CORRECT != 0u)
                    load_rows(keys + 16u * (a + b) * ROW(KT) + 32u * u * BYTES(KT), KT, w->lane, x[2u * b]);
                load_rows(queries + 16u * (a + b) * ROW(QT) + 32u * u * BYTES(QT), QT, w->lane, x[2u * b + 1u]);
            }
#pragma unroll
            for (mk_u32 s = 0; s < 4u; s++)
#pragma unroll
                for (mk_u32 b = 0; b < 2u; b++) {
                    if (CORRECT != 0u)
                        multiply_parts(left[s], 2u, x[2u * b][2u * s], x[2u * b][2u * s + 1u], PARTS(KT), known[a + b], known[a + b]);
                    multiply_parts(left[s], 2u, x[2u * b + 1u][2u * s], x[2u * b + 1u][2u * s + 1u], PARTS(QT), out[a + b], out[a + b]);
                }
        }
    }
}

/* Both halves' sums of own tiles: each warp makes those of the other first and gives them to it. */
MK_FN void join_halves(const share_of *w, mk_u32 stage, const mk_f32 (*kept)[4], mk_f32 (*known)[4], mk_f32 (*out)[4])
{
    const mk_u32 mine = PARTIAL_AT + w->lid / 32u * 8u * FRAGMENT, other = PARTIAL_AT + (w->lid / 32u ^ 1u) * 8u * FRAGMENT;
    apply_state(w, stage, w->half ^ 1u, kept, known, out);
#pragma unroll
    for (mk_u32 a = 0; a < OWN; a++) {
        if (CORRECT != 0u)
            put_fragment(mine + a * FRAGMENT, w->lane, known[a]);
        put_fragment(mine + (OWN + a) * FRAGMENT, w->lane, out[a]);
    }
    apply_state(w, stage, w->half, kept, known, out);
    side_barrier(w->side);
#pragma unroll
    for (mk_u32 a = 0; a < OWN; a++) {
        mk_f32 more[4];
        if (CORRECT != 0u) {
            get_fragment(other + a * FRAGMENT, w->lane, more);
            for (mk_u32 i = 0; i < 4u; i++)
                known[a][i] += more[i];
        }
        get_fragment(other + (OWN + a) * FRAGMENT, w->lane, more);
        for (mk_u32 i = 0; i < 4u; i++)
            out[a][i] += more[i];
    }
}

/* Own tiles of a lower matrix of the room times what lies at `from`, a fragment for each tile of tokens; above the diagonal it is zero. */
MK_FN void apply_matrix(const share_of *w, const mk_f32 *matrix, mk_u32 from, mk_f32 (*sum)[4])
{
    mk_f32 rest[OWN][4];
#pragma unroll
    for (mk_u32 i = 0; i < OWN * 4u; i++) {
        sum[i / 4u][i % 4u] = 0.0f;
        rest[i / 4u][i % 4u] = 0.0f;
    }
#pragma unroll
    for (mk_u32 j = 0; j < 2u * OWN; j++) {
        mk_f32 c[4];
        mk_u32 left[8];
        get_fragment(from + j * FRAGMENT, w->lane, c);
        split_sums(c, left);
#pragma unroll
        for (mk_u32 a = j / 2u; a < OWN; a++) {
            const two_f32 right = load_two(matrix + tile_at(2u * a + w->half, j) + 2u * w->lane);
            multiply_parts(left, 2u, right.x, right.y, 2u, rest[a], sum[a]);
        }
    }
#pragma unroll
    for (mk_u32 i = 0; i < OWN * 4u; i++)
        sum[i / 4u][i % 4u] += rest[i / 4u][i % 4u];
}

/* d of own tiles; those of both halves lie at *from, for who is behind the next barrier. Not 0: something is not finite. */
MK_FN mk_f32 find_changes(const share_of *w, const mk_f32 *room, const mk_f32 (*value)[4], const mk_f32 (*known)[4],
                          const mk_f32 (*out)[4], mk_u32 *from)
{
    const mk_u32 rest_at = REST_AT + w->side * 8u * FRAGMENT, change_at = PARTIAL_AT + w->side * 8u * FRAGMENT;
    mk_f32 change[OWN][4], odd = room[ODD];
#pragma unroll
    for (mk_u32 a = 0; a < OWN; a++) {
        const two_f32 rate = load_two(room + OF_V + token_of(w, a)), of_known = load_two(room + OF_KNOWN + token_of(w, a));
#pragma unroll
        for (mk_u32 i = 0; i < 4u; i++) {
            const mk_f32 knows = CORRECT != 0u ? (i % 2u == 0u ? of_known.x : of_known.y) * known[a][i] : 0.0f;
            change[a][i] = (i % 2u == 0u ? rate.x : rate.y) * (value[a][i] - knows);
        }
        put_fragment(rest_at + (2u * a + w->half) * FRAGMENT, w->lane, change[a]);
    }
    *from = rest_at;
    if (CORRECT != 0u) {
        side_barrier(w->side); /* what was partial is read */
        apply_matrix(w, room, rest_at, change);
#pragma unroll
        for (mk_u32 a = 0; a < OWN; a++)
            put_fragment(change_at + (2u * a + w->half) * FRAGMENT, w->lane, change[a]);
        *from = change_at;
    }
#pragma unroll
    for (mk_u32 i = 0; i < OWN * 4u; i++)
        odd = add_odd(add_odd(odd, change[i / 4u][i % 4u]), out[i / 4u][i % 4u]);
    return odd;
}

/* y of own tokens. `whole`: nothing of it is outside. */
MK_FN void store_outputs(const mk_delta_params *p, const share_of *w, const mk_f32 *room, mk_u8 *y, mk_u32 tokens, mk_u32 whole,
                         mk_f32 through, const mk_f32 (*value)[4], const mk_f32 (*out)[4], const mk_f32 (*sum)[4])
{
    const mk_u32 column = column_of(w);
#pragma unroll
    for (mk_u32 a = 0; a < OWN; a++) {
        const two_f32 of_out = load_two(room + OF_OUT + token_of(w, a));
#pragma unroll
        for (mk_u32 i = 0; i < 4u; i++) {
            const mk_u32 t = token_of(w, a) + i % 2u;
            const mk_f32 x = mk_fma(through, value[a][i], mk_fma(i % 2u == 0u ? of_out.x : of_out.y, out[a][i], sum[a][i]));
            if (whole != 0u || (t < tokens && column + i / 2u * 8u < p->columns))
                mk_store(y, t * p->y_stride[0] + (column + i / 2u * 8u) * BYTES(YT), YT, x);
        }
    }
}

/* The state behind the chunk, whose d lie at `from`: what comes is summed up by itself, four tiles beside each other. */
MK_FN void add_changes(const share_of *w, mk_u32 stage, const mk_f32 *room, mk_u32 from, mk_f32 (*kept)[4])
{
    const mk_u32 keys = stage * STAGE_BYTES + w->half * (DIM / 2u) * BYTES(KT);
    const mk_f32 decay = room[LAST];
    mk_f32 sum[KEPT][4];
#pragma unroll
    for (mk_u32 i = 0; i < KEPT * 4u; i++)
        sum[i / 4u][i % 4u] = 0.0f;
#pragma unroll
    for (mk_u32 u = 0; u < 2u; u++) { /* 32 tokens */
        mk_u32 left[4][8];
#pragma unroll
        for (mk_u32 s = 0; s < 4u; s++) {
            const two_f32 factor = load_two(room + OF_CHANGE + 32u * u + 8u * s + 2u * (w->lane % 4u));
            mk_f32 c[4];
            get_fragment(from + (4u * u + s) * FRAGMENT, w->lane, c);
            split_left(c[0] * factor.x, c[2] * factor.x, c[1] * factor.y, c[3] * factor.y, 2u, left[s]);
        }
#pragma unroll
        for (mk_u32 n = 0; n < KEPT; n += 4u) {
            mk_f32 x[4][8];
#pragma unroll
            for (mk_u32 b = 0; b < 4u; b++)
                load_columns(keys + 32u * u * ROW(KT) + 8u * (n + b) * BYTES(KT), KT, w->lane, x[b]);
#pragma unroll
            for (mk_u32 s = 0; s < 4u; s++)
#pragma unroll
                for (mk_u32 b = 0; b < 4u; b++)
                    multiply_parts(left[s], 2u, x[b][2u * s], x[b][2u * s + 1u], PARTS(KT), sum[n + b], sum[n + b]);
        }
    }
#pragma unroll
    for (mk_u32 i = 0; i < KEPT * 4u; i++)
        kept[i / 4u][i % 4u] = mk_fma(decay, kept[i / 4u][i % 4u], sum[i / 4u][i % 4u]);
}

/* ---- what is not finite: delta_net.kc's way, a work-item has a column and a quarter of its rows ---- */

typedef struct token_sums {
    mk_f32 known, out, both, keys, queries; /* S^T k, S^T q, k.q, k.k, q.q */
} token_sums;

/* Over all rows of a column, through `parts` [5, MK_WG]. */
MK_FN token_sums add_rows(mk_u32 keys, mk_u32 queries, const mk_f32 *state, mk_f32 *parts, mk_u32 rows, mk_u32 lid)
{
    const mk_u32 lane = lid % 32u, first = lid / 32u * (DIM / 4u), end = rows < first + DIM / 4u ? rows : first + DIM / 4u;
    mk_f32 sum[5] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    for (mk_u32 r = first; r < end; r++) {
        const mk_f32 key = mk_load(delta_memory, keys + r * BYTES(KT), KT), query = mk_load(delta_memory, queries + r * BYTES(QT), QT);
        const mk_f32 row = state[r * COLUMNS + lane];
        sum[0] = mk_fma(row, key, sum[0]);
        sum[1] = mk_fma(row, query, sum[1]);
        sum[2] = mk_fma(key, query, sum[2]);
        sum[3] = mk_fma(key, key, sum[3]);
        sum[4] = mk_fma(query, query, sum[4]);
    }
#pragma unroll
    for (mk_u32 i = 0; i < 5u; i++)
        parts[i * MK_WG + lid] = sum[i];
    __syncthreads();
#pragma unroll
    for (mk_u32 i = 0; i < 5u; i++) {
        const mk_f32 *part = parts + i * MK_WG + lane;
        sum[i] = part[0] + part[32] + part[64] + part[96];
    }
    __syncthreads();
    const token_sums all = {sum[0], sum[1], sum[2], sum[3], sum[4]};
    return all;
}

/* Token i of the chunk changes the state, rows by columns in shared memory. */
MK_FN void pass_token(const mk_delta_params *p, const share_of *w, mk_u32 stage, const mk_u8 *g, const mk_u8 *beta, mk_u8 *y,
                      mk_u32 begin, mk_u32 i, mk_f32 through, mk_f32 *state)
{
    const mk_u64 t = begin + i;
    const mk_u32 column = w->first + w->lane, inside = column < p->columns, first = w->lid / 32u * (DIM / 4u);
    const mk_u32 keys = stage * STAGE_BYTES + i * ROW(KT), queries = stage * STAGE_BYTES + QUERIES_AT + i * ROW(QT);
    const token_sums sum = add_rows(keys, queries, state, (mk_f32 *)(delta_memory + REST_AT), p->dim, w->lid);
    const mk_f32 value = mk_load(delta_memory, stage * STAGE_BYTES + VALUES_AT + i * VALUE_ROW + w->lane * BYTES(VT), VT);
    const mk_f32 decay = (p->present & MK_DELTA_G) != 0u
                             ? mk_exp(mk_load(g, t * p->g_stride[0] + w->head * p->g_stride[1], p->g_type))
                             : 1.0f;
    const mk_f32 rate = (p->present & MK_DELTA_BETA) != 0u
                            ? mk_load(beta, t * p->beta_stride[0] + w->head * p->beta_stride[1], p->beta_type)
                            : 1.0f;
    const mk_f32 of_k = p->normalise != 0u ? 1.0f / mk_sqrt(sum.keys + p->eps) : 1.0f,
                 of_q = p->normalise != 0u ? p->scale / mk_sqrt(sum.queries + p->eps) : p->scale;
    const mk_f32 change = rate * (value - (CORRECT != 0u ? decay * (of_k * sum.known) : 0.0f));
    if (w->lid < 32u && inside != 0u)
        mk_store(y, i * p->y_stride[0] + column * BYTES(YT), YT,
                 mk_fma(decay, of_q * sum.out, mk_fma(of_k * of_q * sum.both, change, through * value)));
    for (mk_u32 r = first; r < first + DIM / 4u && r < p->dim; r++)
        state[r * COLUMNS + w->lane] = mk_fma(of_k * mk_load(delta_memory, keys + r * BYTES(KT), KT), change, decay * state[r * COLUMNS + w->lane]);
}

/* A chunk token by token. All threads; nobody reads what is partial any more. */
MK_FN void walk_tokens(const mk_delta_params *p, const share_of *w, mk_u32 stage, const mk_u8 *g, const mk_u8 *beta, mk_u8 *y,
                       mk_u32 begin, mk_u32 tokens, mk_f32 through, mk_f32 (*kept)[4])
{
    mk_f32 *state = (mk_f32 *)(delta_memory + PARTIAL_AT), *own = state + 16u * w->side + w->lane / 4u;
#pragma unroll
    for (mk_u32 i = 0; i < KEPT * 4u; i++)
        own[element_of(w, i / 4u, i) * COLUMNS + i / 2u % 2u * 8u] = kept[i / 4u][i % 4u];
    __syncthreads();
#pragma unroll 1
    for (mk_u32 i = 0; i < tokens; i++)
        pass_token(p, w, stage, g, beta, y, begin, i, through, state);
    __syncthreads();
#pragma unroll
    for (mk_u32 i = 0; i < KEPT * 4u; i++)
        kept[i / 4u][i % 4u] = own[element_of(w, i / 4u, i) * COLUMNS + i / 2u % 2u * 8u];
}

extern "C" __global__ void __launch_bounds__(MK_WG) delta_forward(
    const mk_u8 *__restrict__ q, const mk_u8 *__restrict__ k, const mk_u8 *__restrict__ v, const mk_u8 *__restrict__ g,
    const mk_u8 *__restrict__ beta, const mk_u8 *__restrict__ skip, const mk_u8 *state, const mk_u8 *__restrict__ starts,
    const mk_u8 *__restrict__ read_slots, const mk_u8 *__restrict__ write_slots, mk_u8 *y, mk_u8 *next_state,
    const mk_u8 *__restrict__ room, mk_u8 *fault, const __grid_constant__ mk_delta_params p)
{
    const mk_u32 lid = MK_THREAD_X, n = MK_BLOCK_X / p.blocks / p.heads, head = MK_BLOCK_X / p.blocks % p.heads;
    const share_of w = {lid, lid % 32u, lid / 64u, lid / 32u % 2u, head, head / p.share, MK_BLOCK_X % p.blocks * COLUMNS};
    const mk_sequence s = sequence_of(&p.of, starts, read_slots, write_slots, n);
    const mk_f32 through = (p.present & MK_DELTA_SKIP) != 0u ? mk_load(skip, head * p.skip_stride, p.skip_type) : 0.0f;
    const mk_u64 step = (mk_u64)p.heads * (ROOM * 4u); /* from a chunk's room to the next one's */
    mk_f32 kept[KEPT][4];
    mk_u32 stage = 0u;
    if (s.fine == 0u)
        mk_fault(fault, p.of.fault_code);
    room += (mk_u64)(s.first / CHUNK + n) * step + head * (ROOM * 4u);
    y += s.first * p.y_stride[0] + head * p.y_stride[1];
    if (s.count > 0u)
        fetch_chunk(&p, &w, q, k, v, room, s.first, s.count < CHUNK ? s.count : CHUNK, 0u);
    load_state(&p, &w, state, s.from, s.fine != 0u && sequence_has(&p.of, MK_SEQUENCES_STATE) != 0u, kept);
#pragma unroll 1
    for (mk_u32 done = 0; done < s.count; done += CHUNK, stage ^= 1u, y += CHUNK * p.y_stride[0]) {
        const mk_u32 left = s.count - done, tokens = left < CHUNK ? left : CHUNK, begin = s.first + done;
        const mk_f32 *rows = (const mk_f32 *)(delta_memory + stage * STAGE_BYTES + ROOM_AT);
        mk_f32 value[OWN][4], known[OWN][4], out[OWN][4];
        mk_u32 from;
        copies_wait();
        __syncthreads(); /* all have come, and nobody reads the other stage */
        room += step;
        if (left > CHUNK)
            fetch_chunk(&p, &w, q, k, v, room, begin + CHUNK, left - CHUNK < CHUNK ? left - CHUNK : CHUNK, stage ^ 1u);
        join_halves(&w, stage, kept, known, out);
        load_values(&w, stage, value);
        if (__syncthreads_or(find_changes(&w, rows, value, known, out, &from) != 0.0f) != 0) {
            walk_tokens(&p, &w, stage, g, beta, y, begin, tokens, through, kept);
            continue;
        }
        apply_matrix(&w, rows + MATRIX, from, known);
        add_changes(&w, stage, rows, from, kept);
        if (left >= CHUNK && w.first + COLUMNS <= p.columns)
            store_outputs(&p, &w, rows, y, tokens, 1u, through, value, out, known);
        else
            store_outputs(&p, &w, rows, y, tokens, 0u, through, value, out, known);
    }
    if (s.fine != 0u && sequence_has(&p.of, MK_SEQUENCES_NEXT) != 0u)
        store_state(&p, &w, next_state, s.to, kept);
}
