//use params/dims
/* cross_entropy: operands logits, labels, targets, weight, then loss and lse, or lse, dloss and dlogits; `stride` of the dimensions of rows, of which there are
 * `ndim`, and of weight from class to class. */
#define MK_CROSS_ENTROPY_OPERANDS 7
#define MK_TARGETS 1u /* flags: those that are there */
#define MK_WEIGHTS 2u
#define MK_LSE 4u
typedef struct mk_cross_entropy_params {
    mk_u64 stride[MK_CROSS_ENTROPY_OPERANDS][MK_DIMS - 1];
    mk_u64 weight_stride;
    mk_u32 shape[MK_DIMS - 1];
    mk_u32 ndim;
    mk_u32 classes;
    mk_u32 flags;
    mk_u32 type[MK_CROSS_ENTROPY_OPERANDS];
    mk_u32 ignore, ignored_label; /* its bits */
    mk_u32 fault_code;
    mk_f32 smoothing;
} mk_cross_entropy_params;
