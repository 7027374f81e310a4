//use params/dims
/* cross_entropy: operands logits, labels, loss, lse; `stride` of the dimensions of rows, of which there are `ndim`. */
#define MK_CROSS_ENTROPY_OPERANDS 4
typedef struct mk_cross_entropy_params {
    mk_u64 stride[MK_CROSS_ENTROPY_OPERANDS][MK_DIMS - 1];
    mk_u32 shape[MK_DIMS - 1];
    mk_u32 ndim;
    mk_u32 classes;
    mk_u32 logits_type, loss_type, lse_type;
    mk_u32 has_lse;
    mk_u32 ignore, ignored_label; /* its bits */
    mk_u32 fault_code;
    mk_f32 smoothing;
} mk_cross_entropy_params;
