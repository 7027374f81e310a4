//use params/row_dims
//use params/weight
/* matvec: a run of MK_SUB work-items takes two rows of a weight, or with a gate one row of each of two weights. */
#define MK_MATVEC_WEIGHTS 4
#define MK_MATVEC_ROWS 8u
typedef struct mk_matvec_params {
    mk_u64 weight_stride[MK_MATVEC_WEIGHTS], scale_stride[MK_MATVEC_WEIGHTS], bias_stride[MK_MATVEC_WEIGHTS];
    mk_u64 weight_batch, scale_batch, bias_batch;
    mk_u64 y_stride[MK_MATVEC_WEIGHTS][MK_ROW_DIMS];
    mk_u64 residual_stride[MK_ROW_DIMS];
    mk_u64 x_stride;
    mk_u64 x_meta; /* where behind the codes of x their scales and sums are */
    mk_u64 ids_stride[2];
    mk_weight weight;
    mk_u32 shape[MK_ROW_DIMS];
    mk_u32 ndim;
    mk_u32 end_group[MK_MATVEC_WEIGHTS]; /* of the groups of a weight; from the last one on 2^32 - 1 */
    mk_u32 n[MK_MATVEC_WEIGHTS];
    mk_u32 slice_bits; /* log2 of the runs of work-items that share a unit */
    mk_u32 batches;    /* weights of a batch, or slots of ids, or rows of x */
    mk_u32 rows;       /* of x for each of them */
    mk_u32 share;      /* batches that have the same weight */
    mk_u32 x_k;        /* values of a row of x, with padding */
    mk_u32 x_type, y_type[MK_MATVEC_WEIGHTS];
    mk_u32 gate, has_residual, residual_type;
    mk_u32 experts; /* that ids choose from */
    mk_u32 slots;   /* of a token */
    mk_u32 x_slots; /* slots that share a row of x */
    mk_u32 fault_code;
    mk_f32 softcap;
} mk_matvec_params;
