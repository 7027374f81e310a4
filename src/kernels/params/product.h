//use params/dims
#define MK_PRODUCT_DIMS (MK_DIMS - 2) /* of batches */
/* product: batches are the dimensions of y before the last two, shape[0] the slowest; the last two of each operand have strides of their
 * own. Byte strides, 0 where an operand repeats. */
typedef struct mk_product_params {
    mk_u64 a_stride[MK_PRODUCT_DIMS], b_stride[MK_PRODUCT_DIMS], add_stride[MK_PRODUCT_DIMS],
        y_stride[MK_PRODUCT_DIMS];
    mk_u64 a_zero_stride[MK_PRODUCT_DIMS],
        b_zero_stride[MK_PRODUCT_DIMS]; /* zero points: of integers alone */
    mk_u64 a_row, a_k, b_k, b_column, add_row, add_column, y_row, y_column, a_zero_row, b_zero_column;
    mk_u32 shape[MK_PRODUCT_DIMS];
    mk_u32 batches; /* dimensions */
    mk_u32 rows, columns, k;
    mk_u32 row_tiles, column_tiles;
    /* MK_F32 ..; of integers 1 i8, 2 u8, 4 i32 */
    mk_u32 a_type, b_type, add_type, y_type, a_zero_type, b_zero_type;
    mk_u32 has_add, has_a_zero, has_b_zero;
} mk_product_params;
