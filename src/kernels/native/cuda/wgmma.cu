/* wgmma.cu - the matrix unit of sm_90a: a group of four warps multiplies 64 rows of A by COLUMNS rows of B, and what becomes of a
 * thread's sums. A is in shared memory (COLUMNS 128 or 256) or in registers (32, 64 or 128). */

#ifndef COLUMNS
#define COLUMNS 256
#endif

#if HALF == MK_BF16
#define WGMMA_TYPES "bf16.bf16"
#else
#define WGMMA_TYPES "f16.f16"
#endif

/* A tile of rows of 128 bytes at `at`, a multiple of 1024, whose 16-byte pieces are exchanged: piece c of row r lies at
 * c ^ (r & 7). Eight rows are 1024 bytes. */
MK_FN mk_u64 tile_descriptor(mk_u32 at)
{
    return (mk_u64)(at >> 4 & 0x3fffu) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

MK_FN void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

MK_FN void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

#define wgmma_wait(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")

/* The sums of a thread as an instruction names them, and what they are to the compiler. The operands behind them are A and B, both
 * descriptors, and whether to add; or four registers of A and the descriptor of B. */
#define TEN_NAMES(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FOUR_SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SIXTEEN_SUMS(i) FOUR_SUMS(i), FOUR_SUMS(i + 4), FOUR_SUMS(i + 8), FOUR_SUMS(i + 12)
#define SUMS_64(i) SIXTEEN_SUMS(i), SIXTEEN_SUMS(i + 16), SIXTEEN_SUMS(i + 32), SIXTEEN_SUMS(i + 48)
#define NAMES_64 TEN_NAMES() TEN_NAMES(1) TEN_NAMES(2) TEN_NAMES(3) TEN_NAMES(4) TEN_NAMES(5) "%60, %61, %62, %63"
#if COLUMNS == 32
#define WGMMA_SHAPE "m64n32k16"
#define REGISTER_OPERANDS "{" TEN_NAMES() "%10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20"
#define REGISTER_ADD "%21"
#define SUMS SIXTEEN_SUMS(0)
#elif COLUMNS == 64
#define WGMMA_SHAPE "m64n64k16"
#define REGISTER_OPERANDS "{" TEN_NAMES() TEN_NAMES(1) TEN_NAMES(2) "%30, %31}, {%32, %33, %34, %35}, %36"
#define REGISTER_ADD "%37"
#define SUMS SIXTEEN_SUMS(0), SIXTEEN_SUMS(16)
#elif COLUMNS == 128
#define WGMMA_SHAPE "m64n128k16"
#define OPERANDS "{" NAMES_64 "}, %64, %65"
#define REGISTER_OPERANDS "{" NAMES_64 "}, {%64, %65, %66, %67}, %68"
#define REGISTER_ADD "%69"
#define ADD_NAME "%66"
#define SUMS SUMS_64(0)
#else
#define WGMMA_SHAPE "m64n256k16"
#define OPERANDS                                                                                                            \
    "{" NAMES_64 ", %64, %65, %66, %67, %68, %69, " TEN_NAMES(7) TEN_NAMES(8) TEN_NAMES(9) TEN_NAMES(10) TEN_NAMES(11)      \
    "%120, %121, %122, %123, %124, %125, %126, %127}, %128, %129"
#define ADD_NAME "%130"
#define SUMS SUMS_64(0), SUMS_64(64)
#endif

#ifdef REGISTER_OPERANDS
/* d (+)= A . B^T, 16 elements deep, d as below. a0 to a3 of lane l of warp w, two elements each: rows 16 w + l / 4 and that + 8, columns
 * from 2 (l % 4) on; the same rows, columns from 8 + 2 (l % 4) on. */
MK_FN void wgmma_rows(mk_f32 *d, mk_u32 a0, mk_u32 a1, mk_u32 a2, mk_u32 a3, mk_u64 b, mk_u32 add)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, " REGISTER_ADD ", 0;\n"
                 "wgmma.mma_async.sync.aligned." WGMMA_SHAPE ".f32." WGMMA_TYPES " " REGISTER_OPERANDS ", p, 1, 1, 0; }"
                 : SUMS
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}
#endif

#ifdef OPERANDS
/* d (+)= A . B^T, 16 elements deep; d[4 j + 2 h + e] of lane l of warp w: row 16 w + l / 4 + 8 h, column 8 j + 2 (l % 4) + e. */
MK_FN void wgmma(mk_f32 *d, mk_u64 a, mk_u64 b, mk_u32 add)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, " ADD_NAME ", 0;\n"
                 "wgmma.mma_async.sync.aligned." WGMMA_SHAPE ".f32." WGMMA_TYPES " " OPERANDS ", p, 1, 1, 0, 0; }"
                 : SUMS
                 : "l"(a), "l"(b), "r"(add));
}

/* The same 64 elements deep, the width of a tile; products before this one are then done with. No function: where the compiler
 * makes the descriptors, between a wait and the first product, is better left to it than fixed by a call. */
#define wgmma_tile(d, a, b, add)       \
    do {                               \
        wgmma_begin();                 \
        wgmma(d, a, b, add);           \
        wgmma(d, (a) + 2, (b) + 2, 1); \
        wgmma(d, (a) + 4, (b) + 4, 1); \
        wgmma(d, (a) + 6, (b) + 6, 1); \
        wgmma_commit();                \
        wgmma_wait(1);                 \
    } while (0)
#endif

/* ---- sums on their way out ---- */

#if GATE == 1
#define ACTIVATE(v) mk_silu(v)
#else
#define ACTIVATE(v) mk_gelu(v)
#endif

/* Two neighbours of a row; the second only if `both`. */
MK_FN void store_two(mk_u8 *y, mk_u64 at, mk_u32 type, mk_f32 a, mk_f32 b, mk_u32 both)
{
    if (both != 0 && type == MK_F32 && ((mk_u64)(y + at) & 7u) == 0) {
        asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(y + at), "f"(a), "f"(b) : "memory");
        return;
    }
    mk_store(y, at, type, a);
    if (both != 0)
        mk_store(y, at + mk_type_bytes(type), type, b);
}
