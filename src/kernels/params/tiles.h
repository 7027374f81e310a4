/* Orders of x: tiles of 128 rows and 64 columns (swizzle.cu); rows one after the other; tiles in which, of 128 columns, the k-th
 * sixteen has columns 4 k to 4 k + 3 of each 32 (mixed_gemm.cu). */
#define MK_X_TILES 0u
#define MK_X_ROWS 1u
#define MK_X_WINDOWS 2u

/* native/tiles and native/gemm: operands in 16 bits as tiles of 64 columns; see tiles.cu. */
typedef struct mk_tiles_params {
    mk_u64 stride; /* of a row of x or of a weight */
    mk_u64 field_at[4];
    mk_u32 rows, k, k_tiles;
    mk_u32 outputs[4], first_tile[4]; /* weights */
    mk_u32 second;                    /* with a gate: 1 for the weight behind the first */
    mk_u32 order;                     /* of x: MK_X_… */
    mk_u32 gate, norm, x_type, norm_type;
    mk_f32 eps;
} mk_tiles_params;
