//use hopper
//use sequences
//use params/delta_net
/*
 * delta_tiles.cu - what delta_prepare.cu and delta_forward.cu share, the gated delta rule by chunks of 64 tokens through the matrix units: the room
 * that the one leaves for the other, keys and queries in shared memory, products. Together they equal delta_chunk.kc.
 * KT, QT, VT, YT: types of k, q, v, y. DIM: elements of keys, 64 or 128, zeros behind p.dim. CORRECT: the rule.
 *
 * The matrix units multiply numbers of 11 bits. One of 16 bits is such a number; one of f32 is the sum of two, of whose four products the least is
 * left out: f32 but for its last bit. What rows are multiplied with (decays, lengths) comes behind the products, so that their operands stay what they are.
 *
 * Sums of a product lie as [row lane / 4 + 0 or 8][2 (lane % 4) + 0 or 1]. Where element 2 t of what is summed over is given to place t of a product and
 * 2 t + 1 to t + 4, a lane has the same elements of a left operand, so sums become one without a move; a right operand is two neighbours of
 * row lane / 4.
 */
#define CHUNK 64u
#define COLUMNS 32u /* of the state, a group's: two sides of 16 */
#define BYTES(type) (type == MK_F32 ? 4u : 2u)
#define PARTS(type) (type == MK_F32 ? 2u : 1u) /* numbers of 11 bits that make one */
#define ROW(type) (DIM * BYTES(type) + 16u) /* bytes of a token in shared memory: 8 rows begin in different banks */
#define QUERIES_AT (CHUNK * ROW(KT)) /* behind the keys */
#define ROOM_AT (QUERIES_AT + CHUNK * ROW(QT)) /* of a stage */
#define TILE 64u /* floats of 8 tokens by 8 */
#define MATRIX (40u * TILE) /* the lower half: two rows of tiles in turn have as many */
#define OF_V (2u * MATRIX) /* floats of a room: (1 + L)^-1, queries with keys, then what rows are multiplied with: v, */
#define OF_KNOWN (OF_V + CHUNK) /* what the state knows of k, */
#define OF_OUT (OF_KNOWN + CHUNK) /* and of q, */
#define OF_CHANGE (OF_OUT + CHUNK) /* d, for the state behind the chunk; */
#define LAST (OF_CHANGE + CHUNK) /* the state itself; */
#define ODD (LAST + 1u) /* not 0: something is not finite */
#define ROOM (LAST + 256u) /* whole copies of a group */
#define VALUES_AT (ROOM_AT + ROOM * 4u) /* v of the group's columns */
#define VALUE_ROW (COLUMNS * BYTES(VT) + 16u)
#define STAGE_BYTES (VALUES_AT + CHUNK * VALUE_ROW)

extern __shared__ __attribute__((aligned(128))) mk_u8 delta_memory[]; /* stages: keys, queries, a room, values */

/* ---- the matrix units ---- */

MK_FN void load_matrices(mk_u32 at, mk_u32 *r)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* d += a . b^T, 16 rows by 8 columns, 8 deep. */
MK_FN void multiply(mk_f32 *d, const mk_u32 *a, const mk_u32 *b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

MK_FN void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

MK_FN void copies_wait()
{
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/* To the nearest of 11 bits. What is left, 12 bits with a sign, the units cut off by one. */
MK_FN mk_u32 high_part(mk_f32 x)
{
    return (mk_bits_of_f32(x) + 0x1000u) & 0xffffe000u;
}

MK_FN mk_u32 low_part(mk_f32 x, mk_u32 high)
{
    return mk_bits_of_f32(x - mk_f32_of_bits(high));
}

/* A left operand, [0, 4) its high parts, [4, 8) the low ones where there are two: rows lane / 4 and 8 on of elements 2 t, the same of 2 t + 1. */
MK_FN void split_left(mk_f32 a, mk_f32 b, mk_f32 c, mk_f32 d, mk_u32 parts, mk_u32 *left)
{
    const mk_f32 x[4] = {a, b, c, d};
#pragma unroll
    for (mk_u32 i = 0; i < 4u; i++) {
        left[i] = parts == 1u ? mk_bits_of_f32(x[i]) : high_part(x[i]);
        left[4u + i] = parts == 1u ? 0u : low_part(x[i], left[i]);
    }
}

/* The sums of a product as a left operand. */
MK_FN void split_sums(const mk_f32 *c, mk_u32 *left)
{
    split_left(c[0], c[2], c[1], c[3], 2u, left);
}

/* sum += left . right: `rest` gets what is small. */
MK_FN void multiply_parts(const mk_u32 *left, mk_u32 left_parts, mk_f32 first, mk_f32 second, mk_u32 parts, mk_f32 *rest,
                          mk_f32 *sum)
{
    mk_u32 high[2], low[2];
    high[0] = parts == 1u ? mk_bits_of_f32(first) : high_part(first);
    high[1] = parts == 1u ? mk_bits_of_f32(second) : high_part(second);
    if (left_parts == 2u)
        multiply(rest, left + 4, high);
    if (parts == 2u) {
        low[0] = low_part(first, high[0]);
        low[1] = low_part(second, high[1]);
        multiply(rest, left, low);
    }
    multiply(sum, left, high);
}

/* ---- keys and queries in shared memory: `at` is bytes of delta_memory ---- */

MK_FN void expand(mk_u32 pair, mk_u32 type, mk_f32 *x)
{
    x[0] = type == MK_F16 ? mk_f32_of_f16((mk_u16)pair) : mk_f32_of_bits(pair << 16);
    x[1] = type == MK_F16 ? mk_f32_of_f16((mk_u16)(pair >> 16)) : mk_f32_of_bits(pair & 0xffff0000u);
}

/* Of 8 rows from `at` on and 32 elements: x[2 s + h] is element 8 s + 2 (lane % 4) + h of row lane / 4. */
MK_FN void load_rows(mk_u32 at, mk_u32 type, mk_u32 lane, mk_f32 *x)
{
    if (type != MK_F32) {
        mk_u32 r[4];
        load_matrices(shared_at(delta_memory) + at + lane % 8u * ROW(type) + lane / 8u * 16u, r);
#pragma unroll
        for (mk_u32 s = 0; s < 4u; s++)
            expand(r[s], type, x + 2u * s);
        return;
    }
#pragma unroll
    for (mk_u32 e = 0; e < 8u; e++)
        x[e] = mk_ld_f32(delta_memory, at + lane / 4u * ROW(type) + (e / 2u * 8u + lane % 4u * 2u + e % 2u) * 4u);
}

/* A chunk's keys or queries begin to come to `to`; what is behind the tokens and behind p.dim, `pieces` of 16 bytes, becomes zero. */
MK_FN void fetch_rows(const mk_u8 *x, mk_u64 stride, mk_u32 type, mk_u32 pieces, mk_u32 begin, mk_u32 tokens, mk_u32 to,
                      mk_u32 lid)
{
    const mk_u32 all = DIM * BYTES(type) / 16u, rows = MK_WG / all, at = shared_at(delta_memory) + to;
    if (tokens == CHUNK && pieces == all) {
        const mk_u8 *from = x + (begin + lid / all) * stride + lid % all * 16u;
#pragma unroll
        for (mk_u32 i = 0; i < CHUNK; i += rows, from += rows * stride)
            copy_async(at + (i + lid / all) * ROW(type) + lid % all * 16u, from);
        return;
    }
#pragma unroll 1
    for (mk_u32 e = lid; e < CHUNK * all; e += MK_WG) {
        const mk_u32 i = e / all, piece = e % all, there = i < tokens && piece < pieces;
        copy_async_part(at + i * ROW(type) + piece * 16u,
                        x + (begin + (there != 0u ? i : 0u)) * stride + (there != 0u ? piece * 16u : 0u), there != 0u ? 16u : 0u);
    }
}

MK_FN void fetch_keys(const mk_delta_params *p, const mk_u8 *q, const mk_u8 *k, mk_u32 group, mk_u32 begin, mk_u32 tokens,
                      mk_u32 to, mk_u32 lid)
{
    fetch_rows(k + group * p->k_stride[1], p->k_stride[0], KT, p->dim * BYTES(KT) / 16u, begin, tokens, to, lid);
    fetch_rows(q + group * p->q_stride[1], p->q_stride[0], QT, p->dim * BYTES(QT) / 16u, begin, tokens, to + QUERIES_AT, lid);
}

/* Floats from the beginning of a matrix to tile j of row i of tiles. */
MK_FN mk_u32 tile_at(mk_u32 i, mk_u32 j)
{
    const mk_u32 a = i / 2u;
    return (2u * a * (a + 1u) + i % 2u * (2u * a + 2u) + j) * TILE;
}

typedef struct __attribute__((aligned(8))) two_f32 {
    mk_f32 x, y;
} two_f32;

MK_FN two_f32 load_two(const mk_f32 *p)
{
    return *(const two_f32 *)p;
}

/* 0, or NaN where x or the sum already is not finite. */
MK_FN mk_f32 add_odd(mk_f32 odd, mk_f32 x)
{
    return mk_fma(x, 0.0f, odd);
}
