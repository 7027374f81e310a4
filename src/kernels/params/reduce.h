//use params/dims
/* reduce: kept dimensions lead to an output, reduced ones to a term of it; shape[0] is the slowest. A group has MK_WG / lanes outputs, lanes
 * work-items to each, and takes one part of their terms. */
typedef struct mk_reduce_params {
    mk_u64 x_stride[MK_DIMS], y_stride[MK_DIMS], reduced_stride[MK_DIMS];
    mk_u64 first; /* a register as bits: the result over nothing */
    mk_u32 shape[MK_DIMS], reduced_shape[MK_DIMS];
    mk_u32 kept, reduced;
    mk_u32 outputs, terms;
    mk_u32 lanes;       /* a power of two */
    mk_u32 lane_stride; /* between the work-items of an output: 1, or as many outputs as a group has */
    mk_u32 parts, part;
    mk_u32 x_type, y_type; /* MK_F32 .., or of integers bytes, 1 above for u32 */
    mk_u32 mean, correction;
} mk_reduce_params;
