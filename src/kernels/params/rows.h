//use params/dims
/* rows: operands in the order of the entry's list; outer dimensions only in `stride` and `shape`, of which there are
 * ndim - 1; `step` leads to the next element of a row. */
#define MK_ROWS_OPERANDS 7
typedef struct mk_rows_params {
    mk_u64 stride[MK_ROWS_OPERANDS][MK_DIMS - 1];
    mk_u64 step[MK_ROWS_OPERANDS];
    mk_u32 shape[MK_DIMS - 1];
    mk_u32 ndim;
    mk_u32 rows, n;
    mk_u32 narrow;  /* 1: MK_SUB work-items to a row */
    mk_u32 four;    /* 1: four neighbours may be read at once where the binding is aligned */
    mk_u32 present; /* bits of the operands that are there */
    mk_u32 type[MK_ROWS_OPERANDS];
    mk_u32 truth; /* 1: softmax's mask is of bool */
    mk_f32 value; /* eps, or softmax's scale */
} mk_rows_params;
