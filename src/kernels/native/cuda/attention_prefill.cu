//use hopper
//use seen
//use cache_tiles
//use params/attention
/*
 * attention_prefill.cu - attention of many tokens through the matrix units: keys and values of 16 bits as cache_tiles.cu makes
 * them of the caches' types KT and VT, queries and weights as the sum of two f16, so that every product is exact to 2^-22 and
 * sums are f32. Equals attention.kc.
 *
 * A group takes the query heads of one kv head for a tile of tokens, 16 rows a warp. It walks over the keys in tiles of KEYS, the
 * next tile on its way by asynchronous copies while this one is multiplied. Weights are 2^14 times e^(score - greatest), so that
 * small ones keep their bits in f16. Where a row of values has a power of two of its own, weights have it: "greatest" is then
 * that of the scores with the power added, and totals go without it. CAP: scores are capped. MASKED: there is a mask. Tokens of
 * several sequences in a tile are walked one sequence after the other.
 */
#define ROWS (MK_WG / 2)
#define SHARED_QUERY (DIM > 128u) /* registers do not hold the queries: each thread has its own in shared memory */
#define QUERY_BYTES (SHARED_QUERY ? DIM / 16u * MK_WG * 16u : 0u) /* of one of the two parts */
#define K_ROW ROW_BYTES(KT, DIM)
#define V_ROW ROW_BYTES(VT, VDIM)
#define STAGE_VALUES (KEYS * RAW_BYTES(KT, DIM)) /* where they begin */
#define STAGE_BYTES (STAGE_VALUES + KEYS * RAW_BYTES(VT, VDIM))
#define TILES_AT (2u * STAGE_BYTES)
#define VALUES_AT (TILES_AT + (KT == MK_Q8_0 ? KEYS * K_ROW : 0u))
#define QUERIES_AT (VALUES_AT + (VT == MK_Q8_0 ? KEYS * V_ROW : 0u))
#define SIDE (VDIM % 32u == 0u ? 32u : 16u) /* columns of the values whose sums run beside one another */
#define LOG2_E 1.44269504f
#define WEIGHT_POWER 14.0f

extern __shared__ __attribute__((aligned(128))) mk_u8 prefill_memory[]; /* [2] keys, values as they come; decoded blocks; queries */
__shared__ mk_f32 key_scale[KEYS];       /* of the tile in use: what undoes the power of a row of keys */
__shared__ mk_f32 value_power[2 * KEYS]; /* power of a row of values, what undoes it; [2 key + 0 or 1] */

MK_FN void load_matrices(mk_u32 at, mk_u32 *r)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

MK_FN void load_transposed(mk_u32 at, mk_u32 *r)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* d += a . b^T, 16 rows by 8 columns, 16 deep. */
MK_FN void multiply(mk_f32 *d, const mk_u32 *a, const mk_u32 *b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

MK_FN mk_f32 power_of_two(mk_f32 x)
{
    mk_f32 r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

#define copies_commit() asm volatile("cp.async.commit_group;" ::: "memory")
#define copies_wait(n) asm volatile("cp.async.wait_group " #n ";" ::: "memory")

MK_FN mk_f32 quad_max(mk_f32 v)
{
    v = mk_max(__shfl_xor_sync(0xffffffffu, v, 1), v);
    return mk_max(__shfl_xor_sync(0xffffffffu, v, 2), v);
}

MK_FN mk_f32 quad_sum(mk_f32 v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

MK_FN mk_u32 is_page_bad(const mk_attention_params *p, const mk_u8 *pages, mk_u32 sequence, mk_u32 entry)
{
    return mk_ld_u32(pages, sequence * p->pages_sequence + entry * p->pages_entry) >= p->pages;
}

/* Where key and value of a position lie; past the end it is the last one's, which nobody sees there. */
MK_FN void place_of(const mk_attention_params *p, const mk_u8 *pages, mk_u32 sequence, mk_u32 key, mk_u32 end, mk_u64 *out_key,
                    mk_u64 *out_value)
{
    key = key < end ? key : end - 1u;
    mk_u32 page = 0u, slot = key;
    if ((p->flags & (MK_HAS_PAGES | MK_RING)) != 0u)
        slot = key % p->slots;
    if ((p->flags & MK_HAS_PAGES) != 0u) {
        page = mk_ld_u32(pages, sequence * p->pages_sequence + key / p->slots * p->pages_entry);
        page = page < p->pages ? page : 0u; /* between the windows of two tokens: nobody sees it */
    }
    *out_key = page * p->k_page + slot * p->k_slot;
    *out_value = page * p->v_page + slot * p->v_slot;
}

/* A tile of keys and values begins to come to shared memory at `to`. */
MK_FN void fetch_tile(const mk_u8 *k, const mk_u8 *v, const mk_u64 *key_at, const mk_u64 *value_at, mk_u32 to, mk_u32 lid)
{
    fetch_rows(k, key_at, KT, DIM, to, lid);
    fetch_rows(v, value_at, VT, VDIM, to + STAGE_VALUES, lid);
    copies_commit();
}

/* One bit for each half: exponent all ones. */
MK_FN mk_u32 not_finite(mk_u32 pair)
{
    return ((pair & 0x7c007c00u) + 0x04000400u) & 0x80008000u;
}

/* Values that are no numbers would spoil rows that do not see them. This thread's part of a tile of f16, which has arrived:
 * they become zero. Says whether there were any. */
MK_FN mk_u32 clear_values(mk_u8 *values, mk_u32 lid)
{
    mk_u32 found = 0u;
#pragma unroll
    for (mk_u32 i = lid; i < KEYS * (VDIM / 8); i += MK_WG) {
        mk_u32 *word = (mk_u32 *)(values + i / (VDIM / 8) * V_ROW + i % (VDIM / 8) * 16u);
        const mk_u32x4 w = *(const mk_u32x4 *)word;
        if ((not_finite(w.x) | not_finite(w.y) | not_finite(w.z) | not_finite(w.w)) == 0u)
            continue;
        found = 1u;
        for (mk_u32 j = 0; j < 4; j++)
            word[j] &= ~((not_finite(word[j]) >> 15) * 0xffffu);
    }
    return found;
}

/* All threads: the tile that came to a stage is ready for the matrix units after the next barrier. Says whether there were values
 * that are no numbers; they are zero. */
MK_FN mk_u32 prepare_tile(mk_u32 stage, const mk_u8 *k, const mk_u8 *v, const mk_u64 *key_at, const mk_u64 *value_at, mk_u32 lid)
{
    mk_u8 *keys = prefill_memory + stage * STAGE_BYTES, *values = keys + STAGE_VALUES;
    mk_u32 found = 0u, ignored = 0u;
#if KT != MK_F16 || VT != MK_F16
    __syncthreads(); /* others' copies too */
#endif
#if KT != MK_F16
    const mk_i32 key_power =
        convert_rows(keys, KT == MK_Q8_0 ? prefill_memory + TILES_AT : keys, k, key_at, KT, DIM, 0u, lid, &ignored);
    if (lid % TEAM == 0u)
        key_scale[lid / TEAM] = mk_pow2i(key_power);
#endif
#if VT != MK_F16
    const mk_i32 power =
        convert_rows(values, VT == MK_Q8_0 ? prefill_memory + VALUES_AT : values, v, value_at, VT, VDIM, 1u, lid, &found);
    if (lid % TEAM == 0u) {
        value_power[lid / TEAM * 2] = (mk_f32)(power + 14); /* about 0 where values are about 1: scores keep their bits */
        value_power[lid / TEAM * 2 + 1] = mk_pow2i(-power);
    }
#else
    found = clear_values(values, lid);
#endif
    return found;
}

/* The two rows of a thread: which tokens' heads they are and what they see. */
typedef struct seen_rows {
    mk_u32 first[2], last[2];
#if MASKED
    const mk_u8 *mask[2]; /* of key 0 */
#endif
} seen_rows;

#if MASKED
MK_FN mk_f32 mask_of(const mk_attention_params *p, const seen_rows *seen, mk_u32 h, mk_u32 key)
{
    return mk_load(seen->mask[h], key * p->mask_key, p->mask_type);
}
#endif

MK_FN mk_f32 query_value(const mk_attention_params *p, const mk_u8 *q, mk_u64 row, mk_u32 d)
{
    return mk_load(q, row + (mk_u64)d * mk_type_bytes(p->q_type), p->q_type);
}

/* A row's numbers for this thread, times a power of two that brings the greatest just below 2^14; returns what undoes it.
 * Number 4 k + e of a row: column 16 k + 2 t + e, or + 6 for the last two. */
MK_FN mk_f32 load_query(const mk_attention_params *p, const mk_u8 *q, mk_u64 row, mk_u32 column, mk_u32 is_there, mk_u32 *high,
                        mk_u32 *low)
{
    mk_f32 v[DIM / 4], most = 0.0f;
#pragma unroll
    for (mk_u32 i = 0; i < DIM / 4; i++) {
        v[i] = is_there != 0u ? query_value(p, q, row, i / 4 * 16 + column + (i & 1u) + (i & 2u) * 4) : 0.0f;
        most = mk_max(mk_abs(v[i]), most);
    }
    most = quad_max(most);
    const mk_i32 exponent = (mk_i32)(mk_bits_of_f32(most) >> 23) - 127;
    mk_f32 scale = 1.0f;
    if (exponent > -113 && exponent < 128)
        scale = mk_pow2i(13 - exponent > 126 ? 126 : 13 - exponent);
#pragma unroll
    for (mk_u32 k = 0; k < DIM / 16; k++)
#pragma unroll
        for (mk_u32 e = 0; e < 2; e++)
            split_two(v[4 * k + 2 * e] * scale, v[4 * k + 2 * e + 1] * scale, &high[4 * k + 2 * e], &low[4 * k + 2 * e]);
    return 1.0f / scale;
}

/* Queries of 16 columns, as the left operand has them: those of the thread, from registers or its place in shared memory. */
MK_FN void query_part(const mk_u32 *registers, mk_u32 part, mk_u32 k, mk_u32 *out)
{
#if SHARED_QUERY
    const mk_u32x4 w = *(const mk_u32x4 *)(prefill_memory + QUERIES_AT + part * QUERY_BYTES + (k * MK_WG + threadIdx.x) * 16u);
    out[0] = w.x, out[1] = w.y, out[2] = w.z, out[3] = w.w;
#else
    out[0] = registers[4 * k], out[1] = registers[4 * k + 1], out[2] = registers[4 * k + 2], out[3] = registers[4 * k + 3];
#endif
}

MK_FN void keep_queries(const mk_u32 *registers, mk_u32 part)
{
#if SHARED_QUERY
#pragma unroll
    for (mk_u32 k = 0; k < DIM / 16; k++) {
        mk_u32x4 w;
        w.x = registers[4 * k], w.y = registers[4 * k + 1], w.z = registers[4 * k + 2], w.w = registers[4 * k + 3];
        *(mk_u32x4 *)(prefill_memory + QUERIES_AT + part * QUERY_BYTES + (k * MK_WG + threadIdx.x) * 16u) = w;
    }
#endif
}

/* Scores of a warp's 16 rows by KEYS keys, bare: s[4 n + 2 h + e] is row h of the thread, key 8 n + 2 t + e. Products of one sum
 * stand apart, so that none waits for the one before it. */
MK_FN void score_keys(mk_u32 keys, const mk_u32 *high, const mk_u32 *low, mk_u32 lane, mk_f32 *s)
{
    const mk_u32 at = keys + ((lane >> 4) * 8 + (lane & 7u)) * K_ROW + (lane >> 3 & 1u) * 16u * PARTS(KT);
#pragma unroll
    for (mk_u32 i = 0; i < KEYS / 2; i++)
        s[i] = 0.0f;
#pragma unroll
    for (mk_u32 k = 0; k < DIM / 16; k++) {
        mk_u32 b[KEYS / 4], a[4];
#pragma unroll
        for (mk_u32 n = 0; n < KEYS / 16; n++)
            load_matrices(at + n * 16 * K_ROW + k * 32 * PARTS(KT), b + 4 * n);
        query_part(low, 1, k, a);
#pragma unroll
        for (mk_u32 n = 0; n < KEYS / 8; n++)
            multiply(s + 4 * n, a, b + 2 * n);
        query_part(high, 0, k, a);
#pragma unroll
        for (mk_u32 n = 0; n < KEYS / 8; n++)
            multiply(s + 4 * n, a, b + 2 * n);
        if (PARTS(KT) == 1u)
            continue;
#pragma unroll
        for (mk_u32 n = 0; n < KEYS / 16; n++)
            load_matrices(at + n * 16 * K_ROW + k * 64 + 16, b + 4 * n);
#pragma unroll
        for (mk_u32 n = 0; n < KEYS / 8; n++)
            multiply(s + 4 * n, a, b + 2 * n);
    }
}

/* o = o * shrink + weights . values, SIDE columns at a time; the sums of a tile begin at zero, so that long rows add up tiles,
 * not keys. */
MK_FN void add_values(mk_u32 values, const mk_u32 *high, const mk_u32 *low, const mk_f32 *shrink, mk_u32 lane, mk_f32 *o)
{
    const mk_u32 at = values + (lane & 15u) * V_ROW + (lane >> 4) * 16u * PARTS(VT);
#pragma unroll
    for (mk_u32 column = 0; column < VDIM; column += SIDE) {
        mk_f32 d[SIDE / 2];
#pragma unroll
        for (mk_u32 i = 0; i < SIDE / 2; i++)
            d[i] = 0.0f;
#pragma unroll
        for (mk_u32 k = 0; k < KEYS / 16; k++) {
            mk_u32 b[SIDE / 4];
#pragma unroll
            for (mk_u32 n = 0; n < SIDE / 16; n++)
                load_transposed(at + k * 16 * V_ROW + (column + 16 * n) * 2 * PARTS(VT), b + 4 * n);
#pragma unroll
            for (mk_u32 n = 0; n < SIDE / 8; n++)
                multiply(d + 4 * n, low + 4 * k, b + 2 * n);
#pragma unroll
            for (mk_u32 n = 0; n < SIDE / 8; n++)
                multiply(d + 4 * n, high + 4 * k, b + 2 * n);
            if (PARTS(VT) == 1u)
                continue;
#pragma unroll
            for (mk_u32 n = 0; n < SIDE / 16; n++)
                load_transposed(at + k * 16 * V_ROW + (column + 16 * n) * 4 + 16, b + 4 * n);
#pragma unroll
            for (mk_u32 n = 0; n < SIDE / 8; n++)
                multiply(d + 4 * n, high + 4 * k, b + 2 * n);
        }
#pragma unroll
        for (mk_u32 i = 0; i < SIDE / 2; i++)
            o[column / 2 + i] = mk_fma(o[column / 2 + i], shrink[i >> 1 & 1u], d[i]);
    }
}

/* Scores in powers of two, those of the values' rows added, -inf where a row does not see the key. The thread's first key is
 * key0, `column` of the tile. `all`: every row sees every key of the tile. */
MK_FN void finish_scores(const mk_attention_params *p, const mk_f32 *factor, const seen_rows *seen, mk_u32 key0, mk_u32 column,
                         mk_u32 all, mk_f32 *s)
{
#pragma unroll
    for (mk_u32 i = 0; i < KEYS / 2; i++) {
        const mk_u32 h = i >> 1 & 1u;
        s[i] *= factor[h];
#if KT != MK_F16
        s[i] *= key_scale[column + i / 4 * 8 + (i & 1u)];
#endif
#if CAP != 0
        s[i] = p->softcap * LOG2_E * mk_tanh(s[i]);
#endif
#if VT != MK_F16
        s[i] += value_power[2 * (column + i / 4 * 8 + (i & 1u))];
#endif
    }
    if (all != 0u && !MASKED)
        return;
#pragma unroll
    for (mk_u32 i = 0; i < KEYS / 2; i++) {
        const mk_u32 h = i >> 1 & 1u, key = key0 + i / 4 * 8 + (i & 1u);
        if (key < seen->first[h] || key >= seen->last[h])
            s[i] = -MK_INF;
#if MASKED
        else
            s[i] = mk_fma(mask_of(p, seen, h, key), LOG2_E, s[i]);
#endif
    }
}

/* One row's scores s[4 n], s[4 n + 1] become weights. `against`: what was taken off before they did; -inf: no key was seen. */
MK_FN void weigh(mk_u32 column, mk_f32 *s, mk_f32 *greatest, mk_f32 *against, mk_f32 *total, mk_f32 *out_shrink)
{
    mk_f32 most = *greatest, added = 0.0f;
#pragma unroll
    for (mk_u32 n = 0; n < KEYS / 8; n++) /* NaN is never the greatest */
        most = mk_max(s[4 * n + 1], mk_max(s[4 * n], most));
    most = quad_max(most);
    const mk_f32 off = most == -MK_INF ? 0.0f : most - WEIGHT_POWER;
    *out_shrink = power_of_two(*against - off);
    *against = most == -MK_INF ? -MK_INF : off;
    *greatest = most;
#pragma unroll
    for (mk_u32 n = 0; n < KEYS / 8; n++) {
        s[4 * n] = power_of_two(s[4 * n] - off);
        s[4 * n + 1] = power_of_two(s[4 * n + 1] - off);
#if VT != MK_F16
        added = mk_fma(s[4 * n], value_power[2 * (column + 8 * n) + 1], added);
        added = mk_fma(s[4 * n + 1], value_power[2 * (column + 8 * n) + 3], added);
#else
        added += s[4 * n] + s[4 * n + 1];
#endif
    }
    *total = mk_fma(*total, *out_shrink, added);
}

/* Values that are no numbers, which were cleared, for the rows that see them: the weight is above zero, so that they count as
 * they are. */
MK_FN void add_cleared(const mk_attention_params *p, const mk_u8 *v, const mk_u64 *value_at, const seen_rows *seen, mk_u32 base,
                       mk_u32 count, mk_u32 column, mk_f32 *o)
{
    for (mk_u32 key = 0; key < count; key++)
#pragma unroll
        for (mk_u32 i = 0; i < VDIM / 2; i++) {
            const mk_u32 h = i >> 1 & 1u;
            const mk_f32 value = cache_value(v, value_at[key], i / 4 * 8 + column + (i & 1u), VT);
            if (mk_abs(value) < MK_INF || base + key < seen->first[h] || base + key >= seen->last[h])
                continue;
#if MASKED
            if (mask_of(p, seen, h, base + key) == -MK_INF)
                continue;
#endif
            o[i] += value;
        }
}

MK_FN void store_row(const mk_attention_params *p, mk_u8 *y, mk_u64 row, mk_u32 column, const mk_f32 *o, mk_f32 total)
{
    const mk_f32 inverse = total == 0.0f ? 0.0f : 1.0f / total;
    const mk_u32 bytes = mk_type_bytes(p->y_type);
#pragma unroll
    for (mk_u32 n = 0; n < VDIM / 8; n++) {
        const mk_f32 a = total == 0.0f ? 0.0f : o[4 * n] * inverse, b = total == 0.0f ? 0.0f : o[4 * n + 1] * inverse;
        const mk_u64 at = row + (mk_u64)(8 * n + column) * bytes;
        if (p->y_type == MK_F32 && ((mk_u64)(y + at) & 7u) == 0) {
            asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(y + at), "f"(a), "f"(b) : "memory");
        } else {
            mk_store(y, at, p->y_type, a);
            mk_store(y, at + bytes, p->y_type, b);
        }
    }
}

/* ---- a group ---- */

__shared__ mk_u32 row_sequence[ROWS], row_first[ROWS], row_last[ROWS], row_bad[ROWS];
__shared__ mk_u64 key_at[3][KEYS], value_at[3][KEYS]; /* of the tile in use, the one on its way and the one after */

/* A group's rows: row r is token token0 + r / heads, query head head0 + r % heads. */
typedef struct query_tile {
    mk_u32 token0, head0, heads, rows, kv_head;
} query_tile;

/* Rows [begin, end) of one sequence, and the keys [first, last) that they see. */
typedef struct run {
    mk_u32 begin, end, sequence;
    mk_u32 first, last;
} run;

/* Keys [first, last) that some row of a warp sees, and those that all see: [all_first, all_last). */
typedef struct warp_reach {
    mk_u32 first, last, all_first, all_last;
} warp_reach;

/* The queries of a thread's two rows, and what a score is multiplied by. */
typedef struct queries {
    mk_u32 high[DIM / 4], low[DIM / 4];
    mk_f32 factor[2];
} queries;

/* The sums of a thread's two rows so far. */
typedef struct sums {
    mk_f32 greatest[2], against[2], total[2];
    mk_f32 o[VDIM / 2];
} sums;

MK_FN query_tile find_tile(const mk_attention_params *p)
{
    const mk_u32 head_part = blockIdx.x % p->head_parts, ratio = p->heads / p->kv_heads;
    /* the longest first */
    const mk_u32 tile = gridDim.x / p->head_parts / p->kv_heads - 1 - blockIdx.x / p->head_parts / p->kv_heads;
    query_tile t;
    t.kv_head = blockIdx.x / p->head_parts % p->kv_heads;
    t.token0 = tile * p->tile_tokens;
    t.head0 = t.kv_head * ratio + head_part * p->part_heads;
    const mk_u32 heads_left = ratio - head_part * p->part_heads;
    t.heads = heads_left < p->part_heads ? heads_left : p->part_heads;
    const mk_u32 tokens = p->tokens - t.token0 < p->tile_tokens ? p->tokens - t.token0 : p->tile_tokens;
    t.rows = tokens * t.heads;
    return t;
}

/* What each row sees. */
MK_FN void begin_rows(const mk_attention_params *p, const query_tile *t, const mk_u8 *positions, const mk_u8 *lengths,
                      const mk_u8 *sequences, mk_u8 *fault, mk_u32 lid)
{
    for (mk_u32 r = lid; r < ROWS; r += MK_WG) {
        mk_u32 sequence = 0u, first = 0u, last = 0u;
        int good = 1;
        if (r < t->rows)
            good = look(p, positions, lengths, sequences, t->token0 + r / t->heads, &sequence, &first, &last);
        row_sequence[r] = sequence;
        row_first[r] = first;
        row_last[r] = last;
        row_bad[r] = good == 0;
        if (good == 0)
            mk_fault(fault, p->fault_code);
    }
}

MK_FN void load_queries(const mk_attention_params *p, const query_tile *t, const mk_u8 *q, const mk_u32 *row, mk_u32 column,
                        queries *out)
{
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++) {
        const mk_u64 at = (t->token0 + row[h] / t->heads) * p->q_token + (t->head0 + row[h] % t->heads) * p->q_head;
        out->factor[h] = load_query(p, q, at, column, row[h] < t->rows, out->high + h, out->low + h) * p->scale;
#if CAP != 0
        out->factor[h] /= p->softcap;
#else
        out->factor[h] *= LOG2_E;
#endif
    }
    keep_queries(out->high, 0);
    keep_queries(out->low, 1);
}

/* The rows from `begin` on that are of one sequence. */
MK_FN run find_run(const query_tile *t, mk_u32 begin)
{
    run u;
    u.begin = begin;
    u.sequence = row_sequence[begin];
    u.first = 0xffffffffu;
    u.last = 0u;
    for (u.end = begin; u.end < t->rows && row_sequence[u.end] == u.sequence; u.end++) {
        if (row_first[u.end] == row_last[u.end])
            continue;
        u.first = row_first[u.end] < u.first ? row_first[u.end] : u.first;
        u.last = row_last[u.end] > u.last ? row_last[u.end] : u.last;
    }
    return u;
}

/* All threads: rows that see a page outside the cache see nothing. */
MK_FN void drop_bad_rows(const mk_attention_params *p, const run *u, const mk_u8 *pages, mk_u8 *fault, mk_u32 lid)
{
    mk_u32 bad = 0u;
    if ((p->flags & MK_HAS_PAGES) != 0u)
        for (mk_u32 e = u->first / p->slots + lid; e <= (u->last - 1u) / p->slots; e += MK_WG)
            bad |= is_page_bad(p, pages, u->sequence, e);
    if (__syncthreads_or(bad) == 0)
        return;
    for (mk_u32 r = u->begin + lid; r < u->end; r += MK_WG) { /* does a row see it? */
        if (row_first[r] == row_last[r])
            continue;
        bad = 0u;
        for (mk_u32 e = row_first[r] / p->slots; e <= (row_last[r] - 1u) / p->slots; e++)
            bad |= is_page_bad(p, pages, u->sequence, e);
        if (bad != 0u) {
            row_first[r] = row_last[r] = 0u;
            mk_fault(fault, p->fault_code);
        }
    }
    __syncthreads();
}

/* What the thread's rows see of a run's keys, and its warp's. */
MK_FN warp_reach find_reach(const mk_attention_params *p, const query_tile *t, const run *u, const mk_u32 *row, const mk_u8 *mask,
                            seen_rows *seen)
{
    warp_reach w = {0xffffffffu, 0u, 0u, 0xffffffffu};
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++) {
        const mk_u32 inside = row[h] >= u->begin && row[h] < u->end;
        seen->first[h] = inside ? row_first[row[h]] : 0u;
        seen->last[h] = inside ? row_last[row[h]] : 0u;
        if (seen->first[h] < seen->last[h])
            w.first = seen->first[h] < w.first ? seen->first[h] : w.first;
        w.last = seen->last[h] > w.last ? seen->last[h] : w.last;
        w.all_first = seen->first[h] > w.all_first ? seen->first[h] : w.all_first;
        w.all_last = seen->last[h] < w.all_last ? seen->last[h] : w.all_last;
#if MASKED
        seen->mask[h] = mask + (t->head0 + row[h] % t->heads) * p->mask_head + (t->token0 + row[h] / t->heads) * p->mask_token;
#endif
    }
    w.first = __reduce_min_sync(0xffffffffu, w.first);
    w.last = __reduce_max_sync(0xffffffffu, w.last);
    w.all_first = __reduce_max_sync(0xffffffffu, w.all_first);
    w.all_last = __reduce_min_sync(0xffffffffu, w.all_last);
    return w;
}

/* A warp: the tile of keys from `base` on, in the stage at `at`, joins the sums. */
MK_FN void use_tile(const mk_attention_params *p, const queries *q, const seen_rows *seen, const warp_reach *reach, mk_u32 memory,
                    mk_u32 at, mk_u32 base, mk_u32 lane, sums *sum)
{
    const mk_u32 column = 2 * (lane % 4), all = base >= reach->all_first && base + KEYS <= reach->all_last;
    mk_f32 s[KEYS / 2], shrink[2];
    mk_u32 high_weight[KEYS / 4], low_weight[KEYS / 4];
    score_keys(KT == MK_Q8_0 ? memory + TILES_AT : at, q->high, q->low, lane, s);
    finish_scores(p, q->factor, seen, base + column, column, all, s);
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++)
        weigh(column, s + 2 * h, &sum->greatest[h], &sum->against[h], &sum->total[h], &shrink[h]);
#pragma unroll
    for (mk_u32 i = 0; i < KEYS / 4; i++) /* s[2 i], s[2 i + 1]: register i of the left operand */
        split_two(s[2 * i], s[2 * i + 1], &high_weight[i], &low_weight[i]);
    add_values(VT == MK_Q8_0 ? memory + VALUES_AT : at + STAGE_VALUES, high_weight, low_weight, shrink, lane, sum->o);
}

/* All threads: the keys of a run, a tile on its way while the one before it is used. */
MK_FN void walk_keys(const mk_attention_params *p, const run *u, const mk_u8 *k, const mk_u8 *v, const mk_u8 *pages,
                     const queries *q, const seen_rows *seen, const warp_reach *reach, mk_u32 memory, mk_u32 lid, sums *sum)
{
    const mk_u32 tiles = (u->last - u->first + KEYS - 1) / KEYS, lane = lid % 32;
    for (mk_u32 i = lid; i < 2 * KEYS; i += MK_WG)
        place_of(p, pages, u->sequence, u->first + i, u->last, &key_at[i / KEYS][i % KEYS], &value_at[i / KEYS][i % KEYS]);
    __syncthreads();
    for (mk_u32 t = 0; t <= tiles; t++) { /* tile t comes, tile t - 1 is used */
        if (t < tiles)
            fetch_tile(k, v, key_at[t % 3], value_at[t % 3], memory + (t & 1u) * STAGE_BYTES, lid);
        if (t == 0u)
            continue;
        const mk_u32 stage = (t - 1u) & 1u, base = u->first + (t - 1u) * KEYS, at = memory + stage * STAGE_BYTES;
        mk_u64 next_key = 0, next_value = 0;
        if (t + 1u < tiles && lid < KEYS)
            place_of(p, pages, u->sequence, u->first + (t + 1u) * KEYS + lid, u->last, &next_key, &next_value);
        if (t < tiles)
            copies_wait(1);
        else
            copies_wait(0);
        const int cleared =
            __syncthreads_or((int)prepare_tile(stage, k, v, key_at[(t - 1u) % 3], value_at[(t - 1u) % 3], lid));
        if (base < reach->last && base + KEYS > reach->first) {
            use_tile(p, q, seen, reach, memory, at, base, lane, sum);
            if (cleared != 0)
                add_cleared(p, v, value_at[(t - 1u) % 3], seen, base, u->last - base < KEYS ? u->last - base : KEYS,
                            2 * (lane % 4), sum->o);
        }
        if (t + 1u < tiles && lid < KEYS) {
            key_at[(t + 1u) % 3][lid] = next_key;
            value_at[(t + 1u) % 3][lid] = next_value;
        }
        __syncthreads(); /* the stage is free */
    }
}

extern "C" __global__ void __launch_bounds__(MK_WG) attention_prefill(
    const mk_u8 *__restrict__ q, const mk_u8 *__restrict__ k, const mk_u8 *__restrict__ v, const mk_u8 *__restrict__ positions,
    const mk_u8 *__restrict__ lengths, const mk_u8 *__restrict__ sequences, const mk_u8 *__restrict__ pages,
    const mk_u8 *__restrict__ mask, mk_u8 *y, mk_u8 *fault, const __grid_constant__ mk_attention_params p)
{
    const mk_u32 lid = threadIdx.x, lane = lid % 32, warp = lid / 32;
    const mk_u32 column = 2 * (lane % 4), row[2] = {warp * 16 + lane / 4, warp * 16 + lane / 4 + 8};
    const query_tile t = find_tile(&p);
    const mk_u32 memory = shared_at(prefill_memory);
    queries query;
    sums sum = {{-MK_INF, -MK_INF}, {-MK_INF, -MK_INF}, {0.0f, 0.0f}, {0.0f}};
    k += t.kv_head * p.k_head;
    v += t.kv_head * p.v_head;

    begin_rows(&p, &t, positions, lengths, sequences, fault, lid);
    load_queries(&p, &t, q, row, column, &query);
    __syncthreads();
    for (mk_u32 begin = 0; begin < t.rows;) {
        const run u = find_run(&t, begin);
        if (u.first < u.last) {
            seen_rows seen;
            drop_bad_rows(&p, &u, pages, fault, lid);
            const warp_reach reach = find_reach(&p, &t, &u, row, mask, &seen);
            walk_keys(&p, &u, k, v, pages, &query, &seen, &reach, memory, lid, &sum);
        }
        begin = u.end;
    }
#pragma unroll
    for (mk_u32 h = 0; h < 2; h++) {
        const mk_f32 total = quad_sum(sum.total[h]);
        if (row[h] < t.rows) /* o + 2 h: row h of the thread */
            store_row(&p, y, (t.token0 + row[h] / t.heads) * p.y_token + (t.head0 + row[h] % t.heads) * p.y_head, column,
                      sum.o + 2 * h, total);
    }
}
