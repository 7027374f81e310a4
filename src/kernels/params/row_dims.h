/* Rows of up to MK_ROW_DIMS dimensions, the last of them at shape[MK_ROW_DIMS - 1]: row r of an operand lies at the sum of
 * stride[d] * index_d(r). */
#define MK_ROW_DIMS 3
