/*
 * params.h - the parameter blocks of the portable kernels: one text for the plans, in C, and for the kernels.
 *
 * Only mk_u64, mk_u32, mk_i32, mk_f32 and arrays of them, widest first, so that every compiler lays them out alike; at
 * most 512 bytes (OpenCL promises 1,024 for all arguments together). Byte strides are mk_u64. `fault_code` goes to
 * mk_fault. Types of activations are MK_F32, MK_F16, MK_BF16.
 */
#define MK_DIMS 6

/* elementwise: operand o of element i lies at the sum of stride[o][d] * index_d(i); shape[0] is the slowest. */
#define MK_ELEMENTWISE_OPERANDS 6
typedef struct mk_elementwise_params {
    mk_u64 stride[MK_ELEMENTWISE_OPERANDS][MK_DIMS];
    mk_u64 elements;
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim;
    mk_u32 type[MK_ELEMENTWISE_OPERANDS];
    mk_u32 op; /* MK_OP_* of elementwise.kc */
    mk_u32 bits;
    mk_f32 value;
} mk_elementwise_params;
