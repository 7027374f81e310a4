//use seen
//use rotate
//use turbo_blocks
//use hopper
//use params/attention_decode
/*
 * attention_decode.cu - attention of a few tokens: a group has one token, ROWS query heads of one kv head and one of SPLITS parts
 * of the keys (split-k); the groups of all parts are a cluster and read each other's results.
 *
 * LANES lanes hold a head, eight values each; ABREAST keys lie side by side in a warp and STEPS of them are under way, so a warp
 * takes PER_WARP keys at a time. Each run of LANES lanes keeps sums of its own keys against the warp's greatest score; the scores
 * of a run are spread over its lanes. Runs, warps and groups are joined at the end, in order. KT and VT are the types of the
 * caches. Equals attention.kc.
 *
 * ROTATED: queries and the new key are rotated here, and the first group of a kv head writes the new key and value to the caches.
 * All groups have the values that are written there, so nobody waits for anybody. Equals rope.kc and then attention.kc.
 *
 * TURBO: keys or values are turbo blocks. Queries are turned into the basis of the keys' blocks here, sums of values back out of theirs.
 */
#define EACH 8u /* values of a lane */
#define LANES (DIM <= 8 ? 1u : DIM <= 16 ? 2u : DIM <= 32 ? 4u : DIM <= 64 ? 8u : DIM <= 128 ? 16u : 32u)
#define ABREAST (32u / LANES)
#define IS_TURBO(type) ((type) >= MK_TURBO2)
#define IS_LARGE(type) ((type) == MK_F32 || (type) > MK_TURBO4) /* in registers */
#define WANTED_STEPS (IS_LARGE(KT) || IS_LARGE(VT) ? 2u : 4u)
#define STEPS (WANTED_STEPS < LANES ? WANTED_STEPS : LANES)
#define PER_WARP (ABREAST * STEPS)
#define WARPS (MK_WG / 32)
#define PER_GROUP (PER_WARP * WARPS) /* keys that a group takes at a time */
#define LEAST_KEYS 128u              /* of a part: fewer take less time than joining them */

/* The SCORES scores of a run of lanes, number i * ROWS + r for step i and row r, lie HELD to a lane, or one in SHARE lanes. */
#define SCORES (STEPS * ROWS)
#define HELD (SCORES > LANES ? SCORES / LANES : 1u)
#define SHARE (SCORES > LANES ? 1u : LANES / SCORES)
#define STEP_LANES (ROWS * SHARE / HELD) /* from a score to the same row's of the next step */

/* Eight values as they lie in a cache. q8_0: eight codes, and the scale; turbo blocks: a byte of each plane, and the scale. */
#define PLANES(type) ((type) == MK_TURBO2 ? 2u : (type) == MK_TURBO2_5 ? 3u : (type) == MK_TURBO8 ? 8u : (type) - MK_TURBO3 + 3u)
#define RAW_WORDS(type) ((type) == MK_F32 ? 8u : (type) == MK_Q8_0 ? 3u : IS_TURBO(type) ? PLANES(type) + 1u : 4u)
#define MOST_WORDS 9u
typedef struct raw_values {
    mk_u32 word[MOST_WORDS];
} raw_values;

#ifdef TURBO
/* The levels of a type; of 2.5 bits those of two bits, then those of three. */
#define FIRST_LEVEL(type) ((type) == MK_TURBO2_5 ? 0u : turbo_first(PLANES(type)))
#define LEVELS(type) ((type) == MK_TURBO2_5 ? 12u : IS_TURBO(type) ? 1u << PLANES(type) : 1u)
__shared__ mk_f32 key_levels[LEVELS(KT)], value_levels[LEVELS(VT)];

/* All threads; known after the next barrier. */
MK_FN void load_levels(mk_f32 *levels, const mk_u32 type, mk_u32 lid)
{
    if (IS_TURBO(type))
        for (mk_u32 i = lid; i < LEVELS(type); i += MK_WG)
            levels[i] = turbo_levels[FIRST_LEVEL(type) + i];
}

MK_FN void load_turbo(const mk_u8 *p, mk_u64 at, mk_u32 d, const mk_u32 type, raw_values *out)
{
    at += (mk_u64)(d >> 6) * turbo_bytes(type);
    out->word[PLANES(type)] = mk_ld_u16(p, at);
    at += 2u + ((d & 63u) >> 3);
#pragma unroll
    for (mk_u32 k = 0; k < PLANES(type); k++)
        out->word[k] = type != MK_TURBO2_5 || k < 2u || (d & 32u) == 0u ? p[at + 8u * k] : 0u;
}

/* Codes 0 to 3 and 4 to 7 in the bytes of two words: a bit of each plane to the lowest of its byte, by a product without carries. */
MK_FN void unpack_turbo(const raw_values *raw, mk_u32 d, const mk_u32 type, const mk_f32 *levels, mk_f32 *v)
{
    const mk_f32 scale = mk_f32_of_f16((mk_u16)raw->word[PLANES(type)]);
    const mk_u32 first = type == MK_TURBO2_5 && (d & 32u) == 0u ? 4u : 0u;
    mk_u32 low = 0, high = 0;
#pragma unroll
    for (mk_u32 k = 0; k < PLANES(type); k++) {
        low |= ((raw->word[k] & 15u) * 0x00204081u & 0x01010101u) << k;
        high |= ((raw->word[k] >> 4) * 0x00204081u & 0x01010101u) << k;
    }
#pragma unroll
    for (mk_u32 j = 0; j < EACH; j++)
        v[j] = scale * levels[first + ((j < 4 ? low : high) >> (j % 4 * 8) & 255u)];
}

/* The Walsh-Hadamard transform of 64 values that lie in eight neighbouring lanes, neighbours first. */
MK_FN void transform(mk_f32 *v, mk_u32 lane)
{
#pragma unroll
    for (mk_u32 h = 1; h < EACH; h *= 2)
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j++)
            if ((j & h) == 0) {
                const mk_f32 a = v[j], b = v[j + h];
                v[j] = a + b;
                v[j + h] = a - b;
            }
#pragma unroll
    for (mk_u32 step = 1; step < 64 / EACH; step *= 2)
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j++) {
            const mk_f32 other = mk_shuffle_xor(v[j], step);
            v[j] = (lane & step) != 0 ? other - v[j] : v[j] + other;
        }
}

/* Into the basis of the blocks, H (s x) / 8, and back, s (H y) / 8; a lane has values d to d + 7. */
MK_FN void turn(mk_f32 *v, mk_u32 d, mk_u32 lane, const int back)
{
    if (!back)
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j++)
            v[j] *= turbo_sign((d + j) & 63u);
    transform(v, lane);
#pragma unroll
    for (mk_u32 j = 0; j < EACH; j++)
        v[j] *= back ? 0.125f * turbo_sign((d + j) & 63u) : 0.125f;
}
#endif

/* Values d to d + 7 of the head at byte `at`; `wide`: at a multiple of 16. */
MK_FN void load_raw(const mk_u8 *p, mk_u64 at, mk_u32 d, const mk_u32 type, mk_u32 wide, raw_values *out)
{
#ifdef TURBO
    if (IS_TURBO(type)) {
        load_turbo(p, at, d, type, out);
        return;
    }
#endif
    if (type == MK_Q8_0) {
        at += (mk_u64)(d >> 5) * 34u;
        out->word[2] = mk_ld_u16(p, at);
        at += 2u + (d & 31u);
        out->word[0] = mk_ld_u32_at2(p, at);
        out->word[1] = mk_ld_u32_at2(p, at + 4);
        return;
    }
    at += (mk_u64)d * mk_type_bytes(type);
#pragma unroll
    for (mk_u32 i = 0; i < RAW_WORDS(type); i += 4) {
        mk_u32x4 w;
        if (wide != 0) {
            w = mk_ld4_u32(p, at + 4 * i);
        } else {
            w.x = mk_ld_u32_at2(p, at + 4 * i), w.y = mk_ld_u32_at2(p, at + 4 * i + 4);
            w.z = mk_ld_u32_at2(p, at + 4 * i + 8), w.w = mk_ld_u32_at2(p, at + 4 * i + 12);
        }
        out->word[i] = w.x, out->word[i + 1] = w.y, out->word[i + 2] = w.z, out->word[i + 3] = w.w;
    }
}

MK_FN void unpack(const raw_values *raw, const mk_u32 type, mk_f32 *v)
{
    const mk_f32 scale = type == MK_Q8_0 ? mk_f32_of_f16((mk_u16)raw->word[2]) : 1.0f;
#pragma unroll
    for (mk_u32 j = 0; j < EACH; j++) {
        const mk_u32 half = raw->word[j / 2] >> (j % 2 * 16);
        v[j] = type == MK_F32    ? mk_f32_of_bits(raw->word[j])
               : type == MK_F16  ? mk_f32_of_f16((mk_u16)half)
               : type == MK_BF16 ? mk_f32_of_bf16((mk_u16)half)
                                 : scale * (mk_f32)(mk_i8)(raw->word[j / 4] >> (j % 4 * 8));
    }
}

MK_FN void unpack_keys(const raw_values *raw, mk_u32 d, mk_f32 *v)
{
#ifdef TURBO
    if (IS_TURBO(KT)) {
        unpack_turbo(raw, d, KT, key_levels, v);
        return;
    }
#endif
    unpack(raw, KT, v);
}

MK_FN void unpack_values(const raw_values *raw, mk_u32 d, mk_f32 *v)
{
#ifdef TURBO
    if (IS_TURBO(VT)) {
        unpack_turbo(raw, d, VT, value_levels, v);
        return;
    }
#endif
    unpack(raw, VT, v);
}

/* e^x. */
MK_FN mk_f32 exp_of(mk_f32 x)
{
    mk_f32 r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f));
    return r;
}

/* What scores are taken away from: their greatest, unless there is none. */
MK_FN mk_f32 against_of(mk_f32 most)
{
    return most == -MK_INF ? 0.0f : most;
}

MK_FN mk_f32 from_lane(mk_f32 v, mk_u32 lane)
{
    mk_f32 r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(v), "r"(lane));
    return r;
}

/* The sums so far. `most` and `total` are of the rows whose scores the lane holds, `value` of the lane's values. */
typedef struct sums {
    mk_f32 most[HELD], total[HELD], value[ROWS][EACH];
} sums;

/* Adds up what the lanes of a run have of each score; those that a lane then holds come first. */
MK_FN void gather_scores(mk_f32 *score, mk_u32 lane)
{
    mk_u32 count = SCORES;
#pragma unroll
    for (mk_u32 step = LANES / 2; step > 0; step /= 2) {
        const mk_u32 upper = lane & step, half = count / 2;
        if (count == 1) {
            score[0] += mk_shuffle_xor(score[0], step);
            continue;
        }
#pragma unroll
        for (mk_u32 j = 0; j < SCORES / 2; j++)
            if (j < half) {
                const mk_f32 low = score[j], high = score[j + half];
                score[j] = (upper != 0 ? high : low) + mk_shuffle_xor(upper != 0 ? low : high, step);
            }
        count = half;
    }
}

/* Number of the j-th score that a lane holds. */
MK_FN mk_u32 score_number(mk_u32 lane, mk_u32 j)
{
    return lane % LANES / SHARE * HELD + j;
}

/* An iteration of a warp: scores of PER_WARP keys (NaN is never the greatest), then their values. */
MK_FN void take_keys(sums *s, const mk_f32 (*q)[EACH], const raw_values *keys, const raw_values *values, mk_u32 seen,
                     const mk_attention_params *p, mk_u32 lane)
{
    const mk_u32 d = lane % LANES * EACH;
    mk_f32 score[SCORES], shrink[HELD];
#pragma unroll
    for (mk_u32 i = 0; i < STEPS; i++) {
        mk_f32 k[EACH];
        unpack_keys(&keys[i], d, k);
#pragma unroll
        for (mk_u32 r = 0; r < ROWS; r++) {
            mk_f32 dot = 0.0f;
#pragma unroll
            for (mk_u32 j = 0; j < EACH; j++)
                dot = mk_fma(q[r][j], k[j], dot);
            score[i * ROWS + r] = dot;
        }
    }
    gather_scores(score, lane);
#pragma unroll
    for (mk_u32 j = 0; j < HELD; j++) {
        mk_f32 v = score[j] * p->scale, most;
        if (p->softcap > 0.0f)
            v = p->softcap * mk_tanh(v / p->softcap);
        v = (seen >> score_number(lane, j) / ROWS & 1u) != 0 ? v : -MK_INF;
        most = v > s->most[j] ? v : s->most[j];
#pragma unroll
        for (mk_u32 step = 16; step >= STEP_LANES; step /= 2) {
            const mk_f32 other = mk_shuffle_xor(most, step);
            most = other > most ? other : most;
        }
        const mk_f32 against = against_of(most);
        shrink[j] = exp_of(s->most[j] - against);
        score[j] = exp_of(v - against);
        s->most[j] = most;
        s->total[j] = mk_fma(s->total[j], shrink[j], score[j]);
    }
#pragma unroll
    for (mk_u32 r = 0; r < ROWS; r++) {
        const mk_f32 by = from_lane(shrink[r % HELD], r / HELD * SHARE);
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j++)
            s->value[r][j] *= by;
    }
#pragma unroll
    for (mk_u32 i = 0; i < STEPS; i++) {
        mk_f32 v[EACH];
        unpack_values(&values[i], d, v);
#pragma unroll
        for (mk_u32 r = 0; r < ROWS; r++) {
            const mk_u32 n = i * ROWS + r;
            const mk_f32 weight = from_lane(score[n % HELD], lane / LANES * LANES + n / HELD * SHARE);
#pragma unroll
            for (mk_u32 j = 0; j < EACH; j++)
                s->value[r][j] = mk_fma(weight, v[j], s->value[r][j]);
        }
    }
}

/* The keys that lie abreast, and the steps: every lane has the sums of all. */
MK_FN void join_runs(sums *s)
{
#pragma unroll
    for (mk_u32 j = 0; j < HELD; j++)
#pragma unroll
        for (mk_u32 step = 16; step >= STEP_LANES; step /= 2)
            s->total[j] += mk_shuffle_xor(s->total[j], step);
#pragma unroll
    for (mk_u32 step = 16; step >= LANES; step /= 2)
#pragma unroll
        for (mk_u32 r = 0; r < ROWS; r++)
#pragma unroll
            for (mk_u32 j = 0; j < EACH; j++)
                s->value[r][j] += mk_shuffle_xor(s->value[r][j], step);
}

/* ---- the kernel ---- */

/* What a group has: a token, query heads [head0, head0 + rows) of one kv head, and part `rank` of the keys. */
typedef struct tile {
    mk_u32 token, kv_head, head_part, head0, rows;
    mk_u32 rank;
} tile;

/* Where the head of a key begins in both caches; page numbers were looked at. */
MK_FN void place_of(const mk_attention_decode_params *all, const mk_u8 *pages, mk_u32 sequence, mk_u32 kv_head, mk_u32 key,
                    mk_u64 *key_at, mk_u64 *value_at)
{
    const mk_attention_params *p = &all->a;
    mk_u32 page = 0, place = key;
    if ((p->flags & (MK_HAS_PAGES | MK_RING)) != 0u) {
        const mk_u32 entry = all->slots_shift < 32u ? key >> all->slots_shift : key / p->slots;
        place = key - entry * p->slots;
        if ((p->flags & MK_HAS_PAGES) != 0u)
            page = mk_ld_u32(pages, sequence * p->pages_sequence + entry * p->pages_entry);
    }
    *key_at = page * p->k_page + place * p->k_slot + kv_head * p->k_head;
    *value_at = page * p->v_page + place * p->v_slot + kv_head * p->v_head;
}

/* Where the keys and values of an iteration lie, and a bit for each step whose key is in the part. */
typedef struct places {
    mk_u64 key[STEPS], value[STEPS];
    mk_u32 seen;
} places;

/* From `base` on; those behind the end are the last, which is not there twice. */
MK_FN void find_places(const mk_attention_decode_params *all, const mk_u8 *pages, mk_u32 sequence, mk_u32 kv_head, mk_u32 base,
                       mk_u32 end, mk_u32 lane, places *out)
{
    out->seen = 0;
#pragma unroll
    for (mk_u32 i = 0; i < STEPS; i++) {
        const mk_u32 key = base + i * ABREAST + lane / LANES;
        place_of(all, pages, sequence, kv_head, key < end ? key : end - 1u, &out->key[i], &out->value[i]);
        out->seen |= key < end ? 1u << i : 0u;
    }
}

MK_FN void load_keys(const mk_u8 *k, const mk_u8 *v, const places *at, mk_u32 lane, raw_values *keys, raw_values *values)
{
    const mk_u32 d = lane % LANES * EACH, k_wide = mk_is_aligned(k), v_wide = mk_is_aligned(v);
#pragma unroll
    for (mk_u32 i = 0; i < STEPS; i++)
        load_raw(k, at->key[i], d < DIM ? d : 0u, KT, k_wide, &keys[i]);
#pragma unroll
    for (mk_u32 i = 0; i < STEPS; i++)
        load_raw(v, at->value[i], d < DIM ? d : 0u, VT, v_wide, &values[i]);
}

/* A value that nobody sees may be anything. Where they are used and not where they are loaded: nobody waits for what is still under way. */
MK_FN void clear_unseen(mk_u32 seen, mk_u32 lane, raw_values *keys, raw_values *values)
{
    const mk_u32 outside = DIM < LANES * EACH && lane % LANES * EACH >= DIM;
#pragma unroll
    for (mk_u32 i = 0; i < STEPS; i++)
#pragma unroll
        for (mk_u32 w = 0; w < MOST_WORDS; w++) {
            if (w >= RAW_WORDS(KT) || outside != 0)
                keys[i].word[w] = 0;
            if (w >= RAW_WORDS(VT) || outside != 0 || (seen >> i & 1u) == 0)
                values[i].word[w] = 0;
        }
}

/* All threads: whether a page of the keys lies outside. */
MK_FN int any_page_outside(const mk_attention_params *p, const mk_u8 *pages, mk_u32 sequence, mk_u32 first, mk_u32 last,
                           int bad, mk_u32 lid)
{
    if ((p->flags & MK_HAS_PAGES) != 0u && first < last)
        for (mk_u32 e = first / p->slots + lid; e <= (last - 1u) / p->slots; e += MK_WG)
            bad |= mk_ld_u32(pages, sequence * p->pages_sequence + e * p->pages_entry) >= p->pages;
    return __syncthreads_or(bad);
}

MK_FN void load_query(const mk_u8 *q, mk_u32 type, mk_u32 d, mk_f32 *out)
{
    const mk_u32 bytes = mk_type_bytes(type);
    if (mk_is_aligned(q) && d < DIM) {
        const mk_f32x4 a = mk_load4(q, d * bytes, type), b = mk_load4(q, (d + 4) * bytes, type);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
        out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
        return;
    }
#pragma unroll
    for (mk_u32 j = 0; j < EACH; j++)
        out[j] = d < DIM ? mk_load(q, (d + j) * bytes, type) : 0.0f;
}

#if ROTATED
/* All threads: cosine and sine of every pair of a head. */
MK_FN void make_angles(const mk_attention_decode_params *p, const mk_u8 *positions, const mk_u8 *factors, mk_f32 *cosine,
                       mk_f32 *sine, mk_u32 lid)
{
    const mk_u32 bits = mk_ld_u32(positions, 0);
    const mk_u64 position = (p->a.flags & MK_SIGNED_POSITIONS) != 0u ? (mk_u64)(mk_i64)(mk_i32)bits : bits;
    for (mk_u32 pair = lid; pair < DIM / 2; pair += MK_WG)
        angle(&p->rope, factors, position, pair, &cosine[pair], &sine[pair]);
}

/* A lane's values of a head, rotated; the other value of a pair is the neighbour, or lies half a head away. */
MK_FN void rotate(const mk_attention_decode_params *p, const mk_f32 *cosine, const mk_f32 *sine, mk_u32 d, mk_f32 *x)
{
    if ((p->rope.flags & MK_NEOX) == 0u) {
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j += 2) {
            const mk_f32 a = x[j], b = x[j + 1], c = cosine[(d + j) / 2], s = sine[(d + j) / 2];
            x[j] = a * c - b * s;
            x[j + 1] = b * c + a * s;
        }
        return;
    }
#pragma unroll
    for (mk_u32 j = 0; j < EACH; j++) {
        const mk_f32 other = mk_shuffle_xor(x[j], LANES / 2);
        const mk_u32 second = d >= DIM / 2, pair = d + j - second * (DIM / 2);
        x[j] = second != 0 ? x[j] * cosine[pair] + other * sine[pair] : x[j] * cosine[pair] - other * sine[pair];
    }
}

/* Eight values as they will lie in a cache; the four lanes of a block of q8_0 agree on its scale. */
MK_FN void pack(const mk_f32 *v, const mk_u32 type, raw_values *out)
{
    mk_f32 most = 0.0f;
    if (type == MK_Q8_0) {
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j++)
            most = mk_max(mk_abs(v[j]), most);
        most = mk_max(most, mk_shuffle_xor(most, 1));
        most = mk_max(most, mk_shuffle_xor(most, 2));
    }
    const mk_f32 scale = most / 127.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
#pragma unroll
    for (mk_u32 w = 0; w < 8; w++)
        out->word[w] = 0;
#pragma unroll
    for (mk_u32 j = 0; j < EACH; j++) {
        if (type == MK_F32)
            out->word[j] = mk_bits_of_f32(v[j]);
        else if (type == MK_Q8_0)
            out->word[j / 4] |= (mk_u32)code_of(v[j] * inverse) << (j % 4 * 8);
        else
            out->word[j / 2] |= (mk_u32)(type == MK_F16 ? mk_f16_of_f32(v[j]) : mk_bf16_of_f32(v[j])) << (j % 2 * 16);
    }
    if (type == MK_Q8_0)
        out->word[2] = mk_f16_of_f32(scale);
}

/* load_raw the other way round, a number at a time. */
MK_FN void store_raw(mk_u8 *p, mk_u64 at, mk_u32 d, const mk_u32 type, const raw_values *raw)
{
    if (type == MK_Q8_0) {
        at += (mk_u64)(d >> 5) * 34u;
        if ((d & 31u) == 0)
            MK_AT(mk_u16, p, at) = (mk_u16)raw->word[2];
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j += 2)
            MK_AT(mk_u16, p, at + 2u + (d & 31u) + j) = (mk_u16)(raw->word[j / 4] >> (j % 4 * 8));
        return;
    }
#pragma unroll
    for (mk_u32 j = 0; j < EACH; j++) {
        if (type == MK_F32)
            MK_AT(mk_u32, p, at + 4 * (d + j)) = raw->word[j];
        else
            MK_AT(mk_u16, p, at + 2 * (d + j)) = (mk_u16)(raw->word[j / 2] >> (j % 2 * 16));
    }
}

/* Whether the slot of a position is there, as kv_write has it. */
MK_FN int has_slot(const mk_attention_params *p, const mk_u8 *pages, mk_u32 sequence, mk_u32 position)
{
    if ((p->flags & MK_SIGNED_POSITIONS) != 0u && position > 0x7fffffffu)
        return 0;
    if ((p->flags & MK_HAS_PAGES) == 0u)
        return (p->flags & MK_RING) != 0u || position < p->slots;
    if (sequence >= p->sequence_count || position / p->slots >= p->max_pages)
        return 0;
    return mk_ld_u32(pages, sequence * p->pages_sequence + position / p->slots * p->pages_entry) < p->pages;
}
/* The new key and value of the token: as they lie in the caches from here on, and where in the sequence. */
typedef struct fresh_pair {
    raw_values key, value;
    mk_u32 position;
    int has_place;
} fresh_pair;

/* Queries and the new key are rotated, the new pair packed; the first group of a kv head writes it. */
MK_FN fresh_pair rotate_and_write(const mk_attention_decode_params *all, const tile *t, const mk_u8 *positions, const mk_u8 *pages,
                                  mk_u32 sequence, const mk_u8 *new_k, const mk_u8 *new_v, const mk_f32 *cosine,
                                  const mk_f32 *sine, mk_u32 lid, mk_u32 d, mk_f32 (*query)[EACH], mk_u8 *k, mk_u8 *v)
{
    fresh_pair fresh;
    mk_f32 new_key[EACH], new_value[EACH];
    fresh.position = mk_ld_u32(positions, 0);
    fresh.has_place = has_slot(&all->a, pages, sequence, fresh.position);
    load_query(new_k + t->kv_head * all->new_k_head, MK_F32, d, new_key);
    load_query(new_v + t->kv_head * all->new_v_head, MK_F32, d, new_value);
#pragma unroll
    for (mk_u32 r = 0; r < ROWS; r++)
        rotate(all, cosine, sine, d, query[r]);
    rotate(all, cosine, sine, d, new_key);
    pack(new_key, KT, &fresh.key);
    pack(new_value, VT, &fresh.value);
    if (t->rank == 0 && t->head_part == 0 && lid < LANES && fresh.has_place) {
        mk_u64 key_at, value_at;
        place_of(all, pages, sequence, t->kv_head, fresh.position, &key_at, &value_at);
        store_raw(k, key_at, d, KT, &fresh.key);
        store_raw(v, value_at, d, VT, &fresh.value);
    }
    return fresh;
}

/* The new pair in place of what the caches had where it belongs, if that is among the keys from `base` on. */
MK_FN void take_fresh(const fresh_pair *fresh, mk_u32 base, mk_u32 end, mk_u32 lane, raw_values *keys, raw_values *values)
{
#pragma unroll
    for (mk_u32 i = 0; i < STEPS; i++)
        if (base + i * ABREAST + lane / LANES == fresh->position && fresh->has_place && fresh->position < end) {
            keys[i] = fresh->key;
            values[i] = fresh->value;
        }
}
#endif

MK_FN tile find_tile(const mk_attention_params *p)
{
    const mk_u32 ratio = p->heads / p->kv_heads;
    tile t;
    t.rank = blockIdx.y;
    t.head_part = blockIdx.x % p->head_parts;
    t.kv_head = blockIdx.x / p->head_parts % p->kv_heads;
    t.token = blockIdx.x / p->head_parts / p->kv_heads;
    t.head0 = t.kv_head * ratio + t.head_part * p->part_heads;
    const mk_u32 left = ratio - t.head_part * p->part_heads;
    t.rows = left < p->part_heads ? left : p->part_heads;
    return t;
}

/* Keys of a part: whole iterations of a group. */
MK_FN mk_u32 keys_of_part(mk_u32 keys)
{
    const mk_u32 part = (keys + SPLITS - 1) / SPLITS;
    return ((part > LEAST_KEYS ? part : LEAST_KEYS) + PER_GROUP - 1) / PER_GROUP * PER_GROUP;
}

MK_FN sums no_sums(void)
{
    sums s;
#pragma unroll
    for (mk_u32 j = 0; j < HELD; j++) {
        s.most[j] = -MK_INF;
        s.total[j] = 0.0f;
    }
#pragma unroll
    for (mk_u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (mk_u32 j = 0; j < EACH; j++)
            s.value[r][j] = 0.0f;
    return s;
}

/* ---- the epilogue: warps, then groups ---- */

__shared__ mk_f32 warp_value[WARPS][ROWS][DIM], warp_most[WARPS][ROWS], warp_total[WARPS][ROWS];
__shared__ mk_f32 value[ROWS * DIM], most[ROWS], total[ROWS]; /* of the group */

MK_FN void share_sums(const sums *s, mk_u32 warp, mk_u32 lane, mk_u32 d)
{
    if (lane < LANES && d < DIM) {
#pragma unroll
        for (mk_u32 r = 0; r < ROWS; r++)
#pragma unroll
            for (mk_u32 j = 0; j < EACH; j++)
                warp_value[warp][r][d + j] = s->value[r][j];
    }
#pragma unroll
    for (mk_u32 j = 0; j < HELD; j++)
        if (lane < STEP_LANES && lane % SHARE == 0) {
            warp_most[warp][score_number(lane, j)] = s->most[j];
            warp_total[warp][score_number(lane, j)] = s->total[j];
        }
}

/* Element i of the tile's heads. */
MK_FN void store_result(const mk_attention_params *p, const tile *t, mk_u32 i, mk_f32 sum, mk_f32 whole, mk_u8 *y)
{
    mk_store(y, t->token * p->y_token + (t->head0 + i / DIM) * p->y_head + (mk_u64)(i % DIM) * mk_type_bytes(p->y_type), p->y_type,
             whole == 0.0f ? 0.0f : sum / whole);
}

/* The warps' sums become the group's; `alone`: they are the result. */
MK_FN void join_warps(const mk_attention_params *p, const tile *t, mk_u32 alone, mk_u32 lid, mk_u8 *y)
{
    for (mk_u32 i = lid; i < ROWS * DIM; i += MK_WG) {
        const mk_u32 r = i / DIM;
        mk_f32 greatest = -MK_INF, sum = 0.0f, whole = 0.0f;
        for (mk_u32 w = 0; w < WARPS; w++)
            greatest = mk_max(warp_most[w][r], greatest);
        for (mk_u32 w = 0; w < WARPS; w++) {
            const mk_f32 weight = exp_of(warp_most[w][r] - against_of(greatest));
            sum = mk_fma(weight, warp_value[w][r][i % DIM], sum);
            whole = mk_fma(weight, warp_total[w][r], whole);
        }
        if (alone != 0 && r < t->rows)
            store_result(p, t, i, sum, whole, y);
        value[i] = sum;
        if (i % DIM == 0) {
            most[r] = greatest;
            total[r] = whole;
        }
    }
}

/* The groups of a cluster, each some elements. */
MK_FN void join_groups(const mk_attention_params *p, const tile *t, mk_u32 lid, mk_u8 *y)
{
    for (mk_u32 i = t->rank * MK_WG + lid; i < t->rows * DIM; i += SPLITS * MK_WG) {
        const mk_u32 r = i / DIM;
        mk_f32 greatest = -MK_INF, sum = 0.0f, whole = 0.0f;
        for (mk_u32 g = 0; g < SPLITS; g++)
            greatest = mk_max(of_group(&most[r], g), greatest);
        for (mk_u32 g = 0; g < SPLITS; g++) {
            const mk_f32 weight = exp_of(of_group(&most[r], g) - against_of(greatest));
            sum = mk_fma(weight, of_group(&value[i], g), sum);
            whole = mk_fma(weight, of_group(&total[r], g), whole);
        }
        store_result(p, t, i, sum, whole, y);
    }
}

extern "C" __global__ void __cluster_dims__(1, SPLITS, 1) __launch_bounds__(MK_WG, 1)
    attention_decode(const mk_u8 *q, mk_u8 *k, mk_u8 *v, const mk_u8 *positions, const mk_u8 *lengths, const mk_u8 *sequences,
           const mk_u8 *pages, const mk_u8 *factors, const mk_u8 *new_k, const mk_u8 *new_v, mk_u8 *y, mk_u8 *fault,
           const __grid_constant__ mk_attention_decode_params all)
{
    const mk_attention_params &p = all.a;
    const mk_u32 lid = threadIdx.x, warp = lid / 32, lane = lid % 32, d = lane % LANES * EACH;
    const tile t = find_tile(&p);
    mk_u32 sequence, first, last;
    mk_f32 query[ROWS][EACH];
#if ROTATED
    __shared__ mk_f32 cosine[DIM / 2], sine[DIM / 2];
    make_angles(&all, positions, factors, cosine, sine, lid);
#endif
#ifdef TURBO /* the barrier is in any_page_outside */
    load_levels(key_levels, KT, lid);
    load_levels(value_levels, VT, lid);
#endif
    int outside = look(&p, positions, lengths, sequences, t.token, &sequence, &first, &last) == 0;
    outside = any_page_outside(&p, pages, sequence, first, last, outside, lid);
    if (outside != 0)
        first = last = 0;
    const mk_u32 each = keys_of_part(last - first), begin = first + t.rank * each;
    const mk_u32 end = begin + each < last ? begin + each : last;
    mk_u32 base = begin + warp * PER_WARP;
    raw_values keys_here[STEPS], values_here[STEPS];
    places here;
#if ROTATED /* nobody but this kernel writes these caches, and only where it does not look */
    if (base < end) {
        find_places(&all, pages, sequence, t.kv_head, base, end, lane, &here);
        load_keys(k, v, &here, lane, keys_here, values_here);
    }
#endif
    wait_for_inputs();
#pragma unroll
    for (mk_u32 r = 0; r < ROWS; r++)
        load_query(q + t.token * p.q_token + (t.head0 + (r < t.rows ? r : 0)) * p.q_head, p.q_type, d, query[r]);
#ifdef TURBO
    if (IS_TURBO(KT))
#pragma unroll
        for (mk_u32 r = 0; r < ROWS; r++)
            turn(query[r], d, lane, 0);
#endif
#if ROTATED
    const fresh_pair fresh =
        rotate_and_write(&all, &t, positions, pages, sequence, new_k, new_v, cosine, sine, lid, d, query, k, v);
    outside |= !fresh.has_place;
#else
    (void)factors, (void)new_k, (void)new_v;
    if (base < end) {
        find_places(&all, pages, sequence, t.kv_head, base, end, lane, &here);
        load_keys(k, v, &here, lane, keys_here, values_here);
    }
#endif
    if (lid == 0 && outside != 0)
        mk_fault(fault, p.fault_code);

    /* The keys behind these are under way while these are used, and the pages of those behind them are asked for. */
    sums s = no_sums();
    places ahead;
    if (base + PER_GROUP < end)
        find_places(&all, pages, sequence, t.kv_head, base + PER_GROUP, end, lane, &ahead);
    for (; base < end; base += PER_GROUP) {
        raw_values keys_next[STEPS], values_next[STEPS];
        const mk_u32 seen = here.seen;
        if (base + PER_GROUP < end) {
            load_keys(k, v, &ahead, lane, keys_next, values_next);
            here = ahead;
        }
        if (base + 2 * PER_GROUP < end)
            find_places(&all, pages, sequence, t.kv_head, base + 2 * PER_GROUP, end, lane, &ahead);
        clear_unseen(seen, lane, keys_here, values_here);
#if ROTATED
        take_fresh(&fresh, base, end, lane, keys_here, values_here);
#endif
        take_keys(&s, query, keys_here, values_here, seen, &p, lane);
#pragma unroll
        for (mk_u32 i = 0; i < STEPS; i++) {
            keys_here[i] = keys_next[i];
            values_here[i] = values_next[i];
        }
    }
    launch_dependents(); /* not earlier: the next kernel's groups would fill the multiprocessors that have none of this one */
    join_runs(&s);
#ifdef TURBO
    if (IS_TURBO(VT))
#pragma unroll
        for (mk_u32 r = 0; r < ROWS; r++)
            turn(s.value[r], d, lane, 1);
#endif
    share_sums(&s, warp, lane, d);
    __syncthreads();
    const mk_u32 alone = SPLITS == 1 || last - first <= each; /* the first group has all keys */
    if (alone != 0 && t.rank != 0)
        return;
    join_warps(&p, &t, alone, lid, y);
    if (alone != 0)
        return;
    cluster_barrier();
    join_groups(&p, &t, lid, y);
    cluster_barrier(); /* nobody leaves while others read */
}
