//use params/dims
/* hadamard: outer dimensions only in `stride` and `shape`, of which there are ndim - 1; `step` leads to the next element of a row: of x,
 * of y. A pass transforms runs of `length` elements that lie `apart` elements from each other in their rows of n; a group takes
 * `columns` of `runs`. All of n, length, apart and columns are powers of two. */
#define MK_HADAMARD_FIRST 1u /* flags: from x, else from scratch */
#define MK_HADAMARD_LAST 2u  /* to y, scaled; else to scratch */
#define MK_HADAMARD_SIGNS 4u
#define MK_HADAMARD_UNDO 8u
#define MK_HADAMARD_TURBO 16u /* with SIGNS: those of turbo blocks, and no operand */
typedef struct mk_hadamard_params {
    mk_u64 stride[2][MK_DIMS - 1];
    mk_u64 step[2], signs_step;
    mk_u64 runs;
    mk_u32 shape[MK_DIMS - 1];
    mk_u32 ndim;
    mk_u32 n, length, apart, columns;
    mk_u32 flags;
    mk_u32 x_type, y_type, signs_type;
    mk_f32 scale;
} mk_hadamard_params;
