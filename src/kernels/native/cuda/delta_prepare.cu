//use delta_tiles
/*
 * delta_prepare.cu - what chunks of the delta rule need and no state is in: a group for each chunk and head. With L the products of keys with keys
 * below the diagonal, decayed and by beta, its room gets (1 + L)^-1, products of queries with keys, and what rows are multiplied with. Equals `prepare` of
 * delta_chunk.kc but that the inverse is there.
 */
#define PITCH 68u /* of a row of 1 + L */

__shared__ mk_f32 rates[2 * CHUNK];           /* g, beta */
__shared__ mk_f32 factors[2 * CHUNK];         /* of k, of q */
__shared__ mk_f32 ways[CHUNK * (CHUNK + 1u)]; /* sums of g from behind a token up to a token; last from before the chunk */
__shared__ mk_u32 owner;

/* The sequence that has chunk `chunk` of all rooms, in `owner`; nobody's: of.count. */
MK_FN void find_owner(const mk_delta_params *p, const mk_u8 *starts, const mk_u8 *read_slots, const mk_u8 *write_slots, mk_u32 chunk,
                      mk_u32 lid)
{
    if (lid == 0u)
        owner = p->of.count;
    __syncthreads();
    for (mk_u32 n = lid; n < p->of.count; n += MK_WG) {
        const mk_sequence s = sequence_of(&p->of, starts, read_slots, write_slots, n);
        const mk_u32 first = s.first / CHUNK + n;
        if (chunk >= first && chunk - first < (s.count + CHUNK - 1u) / CHUNK)
            owner = n;
    }
    __syncthreads();
}

MK_FN void load_rates(const mk_delta_params *p, const mk_u8 *g, const mk_u8 *beta, mk_u32 head, mk_u32 begin, mk_u32 tokens, mk_u32 lid)
{
    const mk_u64 t = begin + lid;
    if (lid >= CHUNK)
        return;
    rates[lid] = lid < tokens && (p->present & MK_DELTA_G) != 0u
                     ? mk_load(g, t * p->g_stride[0] + head * p->g_stride[1], p->g_type)
                     : 0.0f;
    rates[CHUNK + lid] = lid < tokens && (p->present & MK_DELTA_BETA) != 0u
                             ? mk_load(beta, t * p->beta_stride[0] + head * p->beta_stride[1], p->beta_type)
                             : 1.0f;
}

/* Sums of what lies between alone, exact to their own size. */
MK_FN void add_up_ways(mk_u32 lid)
{
    mk_f32 sum = 0.0f;
    if (lid > CHUNK)
        return;
#pragma unroll 8
    for (mk_u32 i = 0; i < CHUNK; i++) {
        sum = i == lid ? 0.0f : sum + rates[i];
        ways[i * (CHUNK + 1u) + lid] = sum; /* above the diagonal nobody looks */
    }
}

/* Squares of a row that is `at` in shared memory. */
MK_FN mk_f32 add_squares(mk_u32 at, mk_u32 type)
{
    mk_f32 sum[2] = {0.0f, 0.0f};
#pragma unroll 4
    for (mk_u32 e = 0; e < DIM * BYTES(type) / 16u; e++) {
        const mk_u32x4 bits = shared4(delta_memory, at + 16u * e);
        const mk_u32 word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (mk_u32 i = 0; i < 4u; i++) {
            mk_f32 x[2] = {mk_f32_of_bits(word[i]), 0.0f};
            if (type != MK_F32)
                expand(word[i], type, x);
            sum[0] = mk_fma(x[0], x[0], sum[0]);
            sum[1] = mk_fma(x[1], x[1], sum[1]);
        }
    }
    return sum[0] + sum[1];
}

/* Tiles of 16 tokens by 8 of keys and queries with keys, five a warp: those on and below the diagonal. */
#define PAIRS 5u

MK_FN void find_pair(mk_u32 x, mk_u32 warp, mk_u32 *row, mk_u32 *tile)
{
    const mk_u32 e = warp + 4u * x, a = (e >= 2u) + (e >= 6u) + (e >= 12u);
    *row = 16u * a;
    *tile = e - a * (a + 1u);
}

/* Rows [row, row + 16) of keys or queries with tile `tile` of the keys, over 32 elements, whose keys are in `right`. */
MK_FN void add_pair(mk_u32 at, mk_u32 type, mk_u32 lane, const mk_f32 *right, mk_f32 *rest, mk_f32 *sum)
{
    mk_f32 top[8], bottom[8];
    mk_u32 left[8];
    load_rows(at, type, lane, top);
    load_rows(at + 8u * ROW(type), type, lane, bottom);
#pragma unroll
    for (mk_u32 s = 0; s < 4u; s++) {
        split_left(top[2u * s], bottom[2u * s], top[2u * s + 1u], bottom[2u * s + 1u], PARTS(type), left);
        multiply_parts(left, PARTS(type), right[2u * s], right[2u * s + 1u], PARTS(KT), rest, sum);
    }
}

MK_FN void multiply_keys(mk_u32 warp, mk_u32 lane, mk_f32 (*keys)[4], mk_f32 (*queries)[4])
{
#pragma unroll
    for (mk_u32 x = 0; x < PAIRS; x++) {
        mk_f32 right[8], rest[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        mk_u32 row, tile;
        find_pair(x, warp, &row, &tile);
#pragma unroll
        for (mk_u32 i = 0; i < 4u; i++) {
            keys[x][i] = 0.0f;
            queries[x][i] = 0.0f;
        }
#pragma unroll
        for (mk_u32 from = 0; from < DIM; from += 32u) {
            load_rows(8u * tile * ROW(KT) + from * BYTES(KT), KT, lane, right);
            if (CORRECT != 0u)
                add_pair(row * ROW(KT) + from * BYTES(KT), KT, lane, right, rest, keys[x]);
            add_pair(QUERIES_AT + row * ROW(QT) + from * BYTES(QT), QT, lane, right, rest + 4, queries[x]);
        }
#pragma unroll
        for (mk_u32 i = 0; i < 4u; i++) {
            keys[x][i] += rest[i];
            queries[x][i] += rest[4u + i];
        }
    }
}

/* L into `lower`, zeros above; queries with keys into the room, `at` bytes to its beginning. */
MK_FN mk_f32 store_pairs(mk_u32 warp, mk_u32 lane, const mk_f32 (*keys)[4], const mk_f32 (*queries)[4], mk_f32 *lower, mk_u8 *room,
                         mk_u64 at)
{
    mk_f32 odd = 0.0f;
#pragma unroll
    for (mk_u32 x = 0; x < PAIRS; x++) {
        mk_u32 row, tile;
        find_pair(x, warp, &row, &tile);
#pragma unroll
        for (mk_u32 r = 0; r < 2u; r++) {
            const mk_u32 i = row + 8u * r + lane / 4u;
            mk_f32 of_q[2];
#pragma unroll
            for (mk_u32 h = 0; h < 2u; h++) {
                const mk_u32 j = 8u * tile + 2u * (lane % 4u) + h;
                const mk_f32 decay = j <= i ? mk_exp(ways[i * (CHUNK + 1u) + j]) : 0.0f;
                lower[i * PITCH + j] =
                    j < i ? rates[CHUNK + i] * (factors[i] * factors[j] * keys[x][2u * r + h]) * decay : 0.0f;
                of_q[h] = j <= i ? factors[CHUNK + i] * factors[j] * queries[x][2u * r + h] * decay : 0.0f;
                odd = add_odd(odd, of_q[h]);
            }
            const two_f32 both = {of_q[0], of_q[1]};
            MK_AT(two_f32, room, at + (MATRIX + tile_at(row / 8u + r, tile) + 2u * lane) * 4u) = both;
        }
    }
    return odd;
}

/* (1 + L)^-1 in the diagonal blocks of 16: a column by a work-item. */
MK_FN void invert_blocks(mk_f32 *lower, mk_u32 lid)
{
    mk_f32 *block = lower + lid / 16u * 16u * (PITCH + 1u);
    mk_f32 x[16];
    if (lid < CHUNK) {
#pragma unroll
        for (mk_u32 i = 0; i < 16u; i++) {
            x[i] = i == lid % 16u ? 1.0f : 0.0f;
#pragma unroll
            for (mk_u32 m = 0; m < i; m++)
                x[i] = mk_fma(-block[i * PITCH + m], x[m], x[i]);
        }
    }
    __syncthreads();
    if (lid < CHUNK) {
#pragma unroll
        for (mk_u32 i = 0; i < 16u; i++)
            block[i * PITCH + lid % 16u] = x[i];
    }
    __syncthreads();
}

/* 16 rows of a by 8 columns of b, both in `lower`. */
MK_FN void multiply_blocks(const mk_f32 *a, const mk_f32 *b, mk_u32 depth, mk_u32 lane, mk_f32 *sum)
{
    mk_f32 rest[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    mk_u32 left[8];
#pragma unroll
    for (mk_u32 i = 0; i < 4u; i++)
        sum[i] = 0.0f;
#pragma unroll
    for (mk_u32 from = 0; from < depth; from += 8u) {
        const mk_u32 e = from + 2u * (lane % 4u);
        const two_f32 top = load_two(a + lane / 4u * PITCH + e), bottom = load_two(a + (lane / 4u + 8u) * PITCH + e);
        split_left(top.x, bottom.x, top.y, bottom.y, 2u, left);
        multiply_parts(left, 2u, b[e * PITCH + lane / 4u], b[(e + 1u) * PITCH + lane / 4u], 2u, rest, sum);
    }
#pragma unroll
    for (mk_u32 i = 0; i < 4u; i++)
        sum[i] += rest[i];
}

MK_FN void put_block(mk_f32 *to, mk_u32 lane, mk_f32 sign, const mk_f32 *sum)
{
#pragma unroll
    for (mk_u32 i = 0; i < 4u; i++)
        to[(lane / 4u + i / 2u * 8u) * PITCH + 2u * (lane % 4u) + i % 2u] = sign * sum[i];
}

/* Blocks of twice `size` whose diagonal ones, A above B, are inverses already: below A is then -B L A. */
MK_FN void invert_below(mk_f32 *lower, mk_u32 size, mk_u32 lid)
{
    const mk_u32 lane = lid % 32u, across = size / 8u, tiles = size / 16u * across;
    mk_f32 sum[2][4];
#pragma unroll
    for (mk_u32 side = 0; side < 2u; side++) { /* L A, then B times that */
#pragma unroll
        for (mk_u32 x = 0; x < size / 16u; x++) {
            const mk_u32 e = lid / 32u + 4u * x, base = e / tiles * 2u * size * (PITCH + 1u);
            const mk_u32 row = (size + e % tiles / across * 16u) * PITCH, column = e % across * 8u;
            if (side == 0u)
                multiply_blocks(lower + base + row, lower + base + column, size, lane, sum[x]);
            else
                multiply_blocks(lower + base + row + size, lower + base + size * PITCH + column, size, lane, sum[x]);
        }
        __syncthreads();
#pragma unroll
        for (mk_u32 x = 0; x < size / 16u; x++) {
            const mk_u32 e = lid / 32u + 4u * x, base = e / tiles * 2u * size * (PITCH + 1u);
            const mk_u32 row = (size + e % tiles / across * 16u) * PITCH, column = e % across * 8u;
            put_block(lower + base + row + column, lane, side == 0u ? 1.0f : -1.0f, sum[x]);
        }
        __syncthreads();
    }
}

/* The inverse goes from `lower` to the room. */
MK_FN mk_f32 store_inverse(const mk_f32 *lower, mk_u8 *room, mk_u64 at, mk_u32 lid)
{
    const mk_u32 lane = lid % 32u;
    mk_f32 odd = 0.0f;
#pragma unroll 2
    for (mk_u32 tile = lid / 32u; tile < MATRIX / TILE; tile += MK_WG / 32u) {
        const mk_u32 a = (tile >= 4u) + (tile >= 12u) + (tile >= 24u), in = tile - 2u * a * (a + 1u), r = in >= 2u * a + 2u;
        const mk_u32 column = 8u * (in - r * (2u * a + 2u)) + 2u * (lane % 4u);
        const two_f32 both = load_two(lower + (8u * (2u * a + r) + lane / 4u) * PITCH + column);
        odd = add_odd(add_odd(odd, both.x), both.y);
        MK_AT(two_f32, room, at + (tile * TILE + 2u * lane) * 4u) = both;
    }
    return odd;
}

/* What rows are multiplied with. */
MK_FN mk_f32 store_rows(mk_u32 tokens, mk_u8 *room, mk_u64 at, mk_u32 lid)
{
    if (lid >= CHUNK)
        return 0.0f;
    const mk_f32 start = mk_exp(ways[lid * (CHUNK + 1u) + CHUNK]);
    const mk_f32 end = lid < tokens ? mk_exp(ways[(tokens - 1u) * (CHUNK + 1u) + lid]) : 0.0f;
    const mk_f32 row[4] = {rates[CHUNK + lid], start * factors[lid], start * factors[CHUNK + lid], end * factors[lid]};
    mk_f32 odd = 0.0f;
#pragma unroll
    for (mk_u32 i = 0; i < 4u; i++) {
        mk_st_f32(room, at + (OF_V + i * CHUNK + lid) * 4u, row[i]);
        odd = add_odd(odd, row[i]);
    }
    if (lid + 1u == tokens)
        mk_st_f32(room, at + LAST * 4u, start);
    return add_odd(odd, start);
}

extern "C" __global__ void __launch_bounds__(MK_WG) delta_prepare(
    const mk_u8 *__restrict__ q, const mk_u8 *__restrict__ k, const mk_u8 *__restrict__ g, const mk_u8 *__restrict__ beta,
    const mk_u8 *__restrict__ starts, const mk_u8 *__restrict__ read_slots, const mk_u8 *__restrict__ write_slots, mk_u8 *room,
    const __grid_constant__ mk_delta_params p)
{
    const mk_u32 lid = MK_THREAD_X, chunk = MK_BLOCK_X / p.heads, head = MK_BLOCK_X % p.heads;
    const mk_u64 at = (mk_u64)MK_BLOCK_X * (ROOM * 4u);
    mk_f32 *lower = (mk_f32 *)delta_memory; /* where the keys were */
    mk_f32 keys[PAIRS][4], queries[PAIRS][4];
    find_owner(&p, starts, read_slots, write_slots, chunk, lid);
    if (owner >= p.of.count)
        return;
    const mk_sequence s = sequence_of(&p.of, starts, read_slots, write_slots, owner);
    const mk_u32 done = (chunk - s.first / CHUNK - owner) * CHUNK, begin = s.first + done;
    const mk_u32 tokens = s.count - done < CHUNK ? s.count - done : CHUNK;
    fetch_keys(&p, q, k, head / p.share, begin, tokens, 0u, lid);
    copies_commit();
    load_rates(&p, g, beta, head, begin, tokens, lid);
    __syncthreads();
    add_up_ways(lid);
    copies_wait();
    __syncthreads();
    multiply_keys(lid / 32u, lid % 32u, keys, queries);
    const mk_f32 squares = lid < CHUNK ? add_squares(lid * ROW(KT), KT) : add_squares(QUERIES_AT + (lid - CHUNK) * ROW(QT), QT);
    factors[lid] = lid % CHUNK < tokens
                       ? (p.normalise != 0u ? 1.0f / mk_sqrt(squares + p.eps) : 1.0f) * (lid < CHUNK ? 1.0f : p.scale)
                       : 0.0f;
    __syncthreads();
    for (mk_u32 e = lid; e < 512u; e += MK_WG) /* blocks of 16 above the diagonal that the inverse reads */
        lower[(e / 256u * 32u + e / 16u % 16u) * PITCH + e / 256u * 32u + 16u + e % 16u] = 0.0f;
    mk_f32 odd = store_pairs(lid / 32u, lid % 32u, keys, queries, lower, room, at);
    odd += store_rows(tokens, room, at, lid);
    __syncthreads();
    if (CORRECT != 0u) {
        invert_blocks(lower, lid);
        invert_below(lower, 16u, lid);
        invert_below(lower, 32u, lid);
        odd += store_inverse(lower, room, at, lid);
    }
    const int found = __syncthreads_or(odd != 0.0f);
    if (lid == 0u)
        mk_st_f32(room, at + ODD * 4u, found != 0 ? 1.0f : 0.0f);
}
