//use params/dims
/* product: batches are the dimensions of y before the last two, shape[0] the slowest; the last two of each operand have strides of their
 * own. Byte strides, 0 where an operand repeats. */
typedef struct mk_product_params {
    mk_u64 a_stride[MK_DIMS], b_stride[MK_DIMS], add_stride[MK_DIMS], y_stride[MK_DIMS];
    mk_u64 a_row, a_k, b_k, b_column, add_row, add_column, y_row, y_column;
    mk_u32 shape[MK_DIMS];
    mk_u32 batches; /* dimensions */
    mk_u32 rows, columns, k;
    mk_u32 row_tiles, column_tiles;
    mk_u32 a_type, b_type, add_type, y_type; /* MK_F32 ..; of integers 1 i8, 2 u8, 4 i32 */
    mk_u32 has_add;
} mk_product_params;
