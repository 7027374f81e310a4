//use params/cache
/*
 * cache_tiles.cu - rows of a cache in shared memory as the matrix units read them: f16, eight numbers to a piece of 16 bytes.
 *
 * f16 stays as it came. Other rows become f16 times a power of two of their own, which brings the greatest number just below
 * 2^15, so that nothing overflows and what gets lost is 2^-40 of that: bf16 in one part, where it lies; f32, where it lies, and
 * q8_0 as the sum of two parts, a piece of one behind a piece of the other. These two parts of q8_0 are exact. TEAM threads to a
 * row, KEYS rows to a tile; part `part` of a team takes the units (runs of eight numbers) that lie in banks of its own.
 */
#define TEAM (MK_WG / KEYS)
#define PARTS(type) ((type) == MK_F32 || (type) == MK_Q8_0 ? 2u : 1u)
#define ROW_BYTES(type, dim) (2u * PARTS(type) * (dim) + 16u) /* eight rows begin in different banks */
/* As they come. Blocks begin where the cache has them within 16 bytes: at multiples of the greatest power of two in a row. */
#define BLOCK_BYTES 34u
#define BLOCKS_BYTES(dim) ((dim) / 32u * BLOCK_BYTES)
#define BLOCKS_ALIGN(dim) (BLOCKS_BYTES(dim) & (0u - BLOCKS_BYTES(dim)))
#define BLOCKS_PIECES(dim) ((BLOCKS_BYTES(dim) + 16u - BLOCKS_ALIGN(dim) + 15u) / 16u | 1u)
#define RAW_BYTES(type, dim) ((type) == MK_Q8_0 ? 16u * BLOCKS_PIECES(dim) : ROW_BYTES(type, dim))
#define UNITS(dim) ((dim) / 8u)
#define TEAM_UNITS(type) (8u / PARTS(type)) /* of a row that a team takes at a time: 128 bytes */
#define OWN_UNITS(type) (TEAM_UNITS(type) / TEAM)
#define TEAM_STEPS(type, dim) ((UNITS(dim) + TEAM_UNITS(type) - 1u) / TEAM_UNITS(type))
#define NO_NUMBER 0xff000000u /* bits of an f32 without its sign: infinite or none */
#define LEAST_POWER (-40)     /* of a row: what is all zero must not be far from others */

/* Two numbers as the sums of two f16 each. */
MK_FN void split_two(mk_f32 a, mk_f32 b, mk_u32 *out_high, mk_u32 *out_low)
{
    const mk_u32 high = f16_pair(a, b);
    *out_high = high;
    *out_low = f16_pair(f16_rest(a, high), f16_rest(b, high >> 16));
}

/* The rows of a tile begin to come to shared memory at `to`. */
MK_FN void fetch_rows(const mk_u8 *cache, const mk_u64 *row_at, const mk_u32 type, const mk_u32 dim, mk_u32 to, mk_u32 lid)
{
    if (type == MK_Q8_0) {
#pragma unroll
        for (mk_u32 i = lid; i < KEYS * BLOCKS_PIECES(dim); i += MK_WG) {
            const mk_u8 *row = cache + row_at[i / BLOCKS_PIECES(dim)];
            const mk_u32 before = (mk_u32)(mk_u64)row & 15u, from = i % BLOCKS_PIECES(dim) * 16u;
            const mk_u32 end = before + BLOCKS_BYTES(dim), left = from < end ? end - from : 0u;
            copy_async_part(to + i * 16u, row - before + (left != 0u ? from : 0u), left < 16u ? left : 16u);
        }
        return;
    }
    const mk_u32 pieces = PARTS(type) * dim / 8;
#pragma unroll
    for (mk_u32 i = lid; i < KEYS * pieces; i += MK_WG)
        copy_async(to + i / pieces * ROW_BYTES(type, dim) + i % pieces * 16u, cache + row_at[i / pieces] + i % pieces * 16u);
}

/* Unit number i of this thread; it may lie behind the row. */
MK_FN mk_u32 unit_of(const mk_u32 type, mk_u32 part, mk_u32 i)
{
    return i / OWN_UNITS(type) * TEAM_UNITS(type) + part * OWN_UNITS(type) + i % OWN_UNITS(type);
}

MK_FN void read_unit(const mk_u8 *at, const mk_u32 type, mk_f32 *v)
{
    const mk_u32x4 a = *(const mk_u32x4 *)at;
    if (type == MK_F32) {
        const mk_u32x4 b = *(const mk_u32x4 *)(at + 16);
        v[0] = mk_f32_of_bits(a.x), v[1] = mk_f32_of_bits(a.y), v[2] = mk_f32_of_bits(a.z), v[3] = mk_f32_of_bits(a.w);
        v[4] = mk_f32_of_bits(b.x), v[5] = mk_f32_of_bits(b.y), v[6] = mk_f32_of_bits(b.z), v[7] = mk_f32_of_bits(b.w);
        return;
    }
    v[0] = mk_f32_of_bits(a.x << 16), v[1] = mk_f32_of_bits(a.x & 0xffff0000u);
    v[2] = mk_f32_of_bits(a.y << 16), v[3] = mk_f32_of_bits(a.y & 0xffff0000u);
    v[4] = mk_f32_of_bits(a.z << 16), v[5] = mk_f32_of_bits(a.z & 0xffff0000u);
    v[6] = mk_f32_of_bits(a.w << 16), v[7] = mk_f32_of_bits(a.w & 0xffff0000u);
}

MK_FN void write_unit(mk_u8 *at, const mk_u32 type, const mk_f32 *v)
{
    mk_u32x4 high, low;
    split_two(v[0], v[1], &high.x, &low.x);
    split_two(v[2], v[3], &high.y, &low.y);
    split_two(v[4], v[5], &high.z, &low.z);
    split_two(v[6], v[7], &high.w, &low.w);
    *(mk_u32x4 *)at = high;
    if (PARTS(type) == 2u)
        *(mk_u32x4 *)(at + 16) = low;
}

/* A row with infinite numbers or none in it: `clear` makes these zero. Returns the bits of the greatest of the others. */
MK_FN mk_u32 tame_row(mk_u8 *row, const mk_u32 type, const mk_u32 dim, mk_u32 part, const mk_u32 clear)
{
    mk_u32 most = 0u;
#pragma unroll 1
    for (mk_u32 i = 0; i < TEAM_STEPS(type, dim) * OWN_UNITS(type); i++) {
        mk_u8 *at = row + unit_of(type, part, i) * 16u * PARTS(type);
        if (unit_of(type, part, i) >= UNITS(dim))
            continue;
        for (mk_u32 j = 0; j < 8; j++) {
            const mk_u32 bits = type == MK_F32 ? ((const mk_u32 *)at)[j] << 1 : (mk_u32)((const mk_u16 *)at)[j] << 17;
            if (bits < NO_NUMBER)
                most = bits > most ? bits : most;
            else if (clear != 0u && type == MK_F32)
                ((mk_u32 *)at)[j] = 0u;
            else if (clear != 0u)
                ((mk_u16 *)at)[j] = 0u;
        }
    }
    return most;
}

/* Its rows of f32 or bf16 are multiplied by 2^-power and become f16 where they lie. `found`: there were numbers that are none. */
MK_FN mk_i32 convert_floats(mk_u8 *row, const mk_u32 type, const mk_u32 dim, mk_u32 part, const mk_u32 clear, mk_u32 *found)
{
    mk_u32 most = 0u;
    mk_f32 v[8];
#pragma unroll
    for (mk_u32 i = 0; i < TEAM_STEPS(type, dim) * OWN_UNITS(type); i++)
        if (unit_of(type, part, i) < UNITS(dim)) {
            read_unit(row + unit_of(type, part, i) * 16u * PARTS(type), type, v);
#pragma unroll
            for (mk_u32 j = 0; j < 8; j++) {
                const mk_u32 bits = mk_bits_of_f32(v[j]) << 1;
                most = bits > most ? bits : most;
            }
        }
    if (most >= NO_NUMBER) {
        *found = 1u;
        most = tame_row(row, type, dim, part, clear);
    }
#pragma unroll
    for (mk_u32 step = 1; step < TEAM; step *= 2) {
        const mk_u32 other = __shfl_xor_sync(0xffffffffu, most, step);
        most = other > most ? other : most;
    }
    const mk_i32 wanted = (mk_i32)(most >> 24) - 127 - 14, power = wanted > LEAST_POWER ? wanted : LEAST_POWER;
    const mk_f32 scale = mk_pow2i(-power);
#pragma unroll
    for (mk_u32 i = 0; i < TEAM_STEPS(type, dim) * OWN_UNITS(type); i++)
        if (unit_of(type, part, i) < UNITS(dim)) {
            mk_u8 *at = row + unit_of(type, part, i) * 16u * PARTS(type);
            read_unit(at, type, v);
#pragma unroll
            for (mk_u32 j = 0; j < 8; j++)
                v[j] *= scale;
            write_unit(at, type, v);
        }
    return power;
}

/* Four codes times a scale, each as the exact sum of two f16. */
MK_FN void decode_four(mk_u32 codes, mk_u32 scale, mk_u32 *high, mk_u32 *low)
{
    asm("{ .reg .b32 c, a, b, n;\n"
        "xor.b32 c, %4, 0x80808080;\n" /* code + 128, then 1024 more as an f16 */
        "prmt.b32 a, c, 0x64646464, 0x4140;\n"
        "prmt.b32 b, c, 0x64646464, 0x4342;\n"
        "sub.rn.f16x2 a, a, %6;\n"
        "sub.rn.f16x2 b, b, %6;\n"
        "mul.rn.f16x2 %0, a, %5;\n"
        "neg.f16x2 n, %0;\n"
        "fma.rn.f16x2 %1, a, %5, n;\n"
        "mul.rn.f16x2 %2, b, %5;\n"
        "neg.f16x2 n, %2;\n"
        "fma.rn.f16x2 %3, b, %5, n; }"
        : "=&r"(high[0]), "=&r"(low[0]), "=&r"(high[1]), "=&r"(low[1])
        : "r"(codes), "r"(scale), "r"(0x64806480u));
}

/* The four bytes at an even place of shared memory whose words are given. */
MK_FN mk_u32 word_at(mk_u32 word, mk_u32 next, mk_u32 place)
{
    mk_u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(word), "r"(next), "r"((place & 2u) != 0u ? 0x5432u : 0x3210u));
    return r;
}

/* A row of blocks, which begin `before` bytes behind `raw`, becomes 2^-power times its numbers in two parts at `row`. */
MK_FN mk_i32 convert_blocks(const mk_u8 *raw, mk_u32 before, mk_u8 *row, const mk_u32 dim, mk_u32 part, const mk_u32 clear,
                            mk_u32 *found)
{
    mk_u32 most = 0u;
#pragma unroll
    for (mk_u32 b = 0; b < dim / 32; b++) {
        const mk_u32 d = *(const mk_u16 *)(raw + before + b * BLOCK_BYTES) & 0x7fffu;
        if (d >= 0x7c00u)
            *found = 1u;
        else
            most = d > most ? d : most;
    }
    const mk_i32 exponent = (mk_i32)(mk_bits_of_f32(mk_f32_of_f16((mk_u16)most)) >> 23) - 127 - 7; /* codes: 2^7 at most */
    const mk_i32 power = exponent > LEAST_POWER ? exponent : LEAST_POWER;
    const mk_f32 scale = mk_pow2i(-power);
#pragma unroll
    for (mk_u32 i = 0; i < TEAM_STEPS(MK_Q8_0, dim) * OWN_UNITS(MK_Q8_0); i++) {
        const mk_u32 unit = unit_of(MK_Q8_0, part, i), block = before + unit / 4 * BLOCK_BYTES;
        const mk_u32 place = block + 2 + unit % 4 * 8;
        mk_u32x4 high, low;
        mk_u32 h[4], l[4];
        if (unit >= UNITS(dim))
            continue;
        mk_f32 d = mk_f32_of_f16(*(const mk_u16 *)(raw + block)) * scale;
        if (clear != 0u && !(mk_abs(d) < MK_INF))
            d = 0.0f;
        const mk_u32 *word = (const mk_u32 *)(raw + (place & ~3u));
        const mk_u32 pair = f16_pair(d, d), middle = word[1];
        decode_four(word_at(word[0], middle, place), pair, h, l);
        decode_four(word_at(middle, word[2], place), pair, h + 2, l + 2);
        high.x = h[0], high.y = h[1], high.z = h[2], high.w = h[3];
        low.x = l[0], low.y = l[1], low.z = l[2], low.w = l[3];
        *(mk_u32x4 *)(row + unit * 32u) = high;
        *(mk_u32x4 *)(row + unit * 32u + 16u) = low;
    }
    return power;
}

/* All threads: the tile that came to `raw` becomes f16 at `tile`, which is the same place but for blocks; a row's first thread
 * gets its power, and a row begins at row_at. */
MK_FN mk_i32 convert_rows(mk_u8 *raw, mk_u8 *tile, const mk_u8 *cache, const mk_u64 *row_at, const mk_u32 type, const mk_u32 dim,
                          const mk_u32 clear, mk_u32 lid, mk_u32 *found)
{
    const mk_u32 key = lid / TEAM, part = lid % TEAM;
    if (type == MK_Q8_0)
        return convert_blocks(raw + key * RAW_BYTES(type, dim), (mk_u32)((mk_u64)cache + row_at[key]) & 15u,
                              tile + key * ROW_BYTES(type, dim), dim, part, clear, found);
    return convert_floats(raw + key * ROW_BYTES(type, dim), type, dim, part, clear, found);
}
