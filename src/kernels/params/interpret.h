//use params/dims
/*
 * interpret.h - a region's program as the interpreting kernel takes it, and the types it knows.
 *
 * Code: step s is two words, scalar | type of its values << 8 | type of its result << 16 | slot << 24 and three values | axis << 24.
 * A value is an input's element, MK_LAST (the result of the step before), MK_SLOT + a slot or MK_GIVEN + a constant. Slot MK_NO_SLOT: nobody but
 * the next step reads the result.
 */
#define MK_LAST 32u
#define MK_SLOT 64u
#define MK_GIVEN 128u
#define MK_NOTHING 255u /* a value that is not there */
#define MK_NO_SLOT 255u
#define MK_SLOTS 64u
#define MK_FLOAT_SLOTS 8u /* of programs of floats alone */

/* Memory types: X(dtype, name, register, bytes that are loaded: c64 comes in parts). */
#define MK_MEMORY_TYPES(X)      \
    X(F32, f32, f32, 4)         \
    X(F16, f16, f32, 2)         \
    X(BF16, bf16, f32, 2)       \
    X(F8_E4M3, f8_e4m3, f32, 1) \
    X(F8_E5M2, f8_e5m2, f32, 1) \
    X(E8M0, e8m0, f32, 1)       \
    X(C64, c64, f32, 4)         \
    X(F64, f64, f64, 8)         \
    X(I8, i8, i32, 1)           \
    X(I16, i16, i32, 2)         \
    X(I32, i32, i32, 4)         \
    X(I64, i64, i64, 8)         \
    X(U8, u8, u32, 1)           \
    X(U16, u16, u32, 2)         \
    X(U32, u32, u32, 4)         \
    X(U64, u64, u64, 8)         \
    X(BOOL, bool, bool, 1)
#define MK_MEMORY_NUMBER(D, M, R, bytes) MK_M_##M,
enum { MK_MEMORY_TYPES(MK_MEMORY_NUMBER) MK_M_COUNT };

/* Operands are inputs, then outputs; shape[0] is the slowest. */
#define MK_INTERPRET_PARAMS(name, operands, steps, constants)                                  \
    typedef struct name {                                                                      \
        mk_u64 given[constants];                                                               \
        mk_u64 stride[operands][MK_DIMS];                                                      \
        mk_u64 shape[MK_DIMS];                                                                 \
        mk_u64 elements;                                                                       \
        mk_u32 code[steps][2];                                                                 \
        mk_u32 type[operands];     /* MK_M_.. */                                               \
        mk_u32 result[MK_RESULTS]; /* of each output: value | second value << 8 */             \
        mk_u32 ndim, step_count, input_count, output_count;                                    \
        mk_u32 four; /* 1: four neighbours may be read at once where the binding is aligned */ \
        mk_u32 last; /* dimension: ndim - 1 */                                                 \
    } name;
#define MK_RESULTS 8
#define MK_SMALL_OPERANDS 4
#define MK_SMALL_STEPS 8
#define MK_SMALL_CONSTANTS 4
#define MK_LARGE_OPERANDS 24
#define MK_LARGE_STEPS 72
#define MK_LARGE_CONSTANTS 64
