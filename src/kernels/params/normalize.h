//use params/dims
/* normalize: the first `outer` dimensions lead to a row, the others to an element of it; shape[0] is the slowest. Operands in the order of the entry's
 * list, all of one shape. Entries of softmax have their scale in `eps` and whether it is the logarithm in `kind`; that of log_softmax
 * whether its mask is of bool. */
#define MK_NORMALIZE_OPERANDS 6
#define MK_NORMALIZE_LAYER 0u
#define MK_NORMALIZE_RMS 1u
#define MK_NORMALIZE_L2 2u
typedef struct mk_normalize_params {
    mk_u64 stride[MK_NORMALIZE_OPERANDS][MK_DIMS];
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim, outer;
    mk_u32 rows, n;
    mk_u32 narrow;  /* 1: MK_SUB work-items to a row */
    mk_u32 kind;    /* MK_NORMALIZE_LAYER .. */
    mk_u32 present; /* bits of the operands that are there */
    mk_u32 type[MK_NORMALIZE_OPERANDS];
    mk_f32 eps, offset;
} mk_normalize_params;

/* Sums over rows: kept dimensions lead to an output, the others to a term of it. A group has MK_WG / lanes outputs, lanes work-items to each. */
#define MK_SUMS_DIMS (MK_DIMS + 1)
typedef struct mk_normalize_sums_params {
    mk_u64 x_stride[MK_SUMS_DIMS], dy_stride[MK_SUMS_DIMS];
    mk_u64 dweight_stride[MK_SUMS_DIMS], dbias_stride[MK_SUMS_DIMS];
    mk_u32 shape[MK_SUMS_DIMS], row_step[MK_SUMS_DIMS]; /* row_step: of statistics */
    mk_u32 kept, ndim;
    mk_u32 outputs, terms;
    mk_u32 lanes; /* a power of two */
    mk_u32 x_type, dy_type, dweight_type, dbias_type;
    mk_u32 has_dweight, has_dbias;
} mk_normalize_sums_params;
