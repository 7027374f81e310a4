//use params/weight
/* native/stream and stream_any: a few rows of x, up to four weights alike, whose rows follow each other. Places are bytes; see
 * matvec_ring.cu. */
typedef struct mk_stream_params {
    mk_u64 x_stride, residual_stride, y_stride[4]; /* between rows of x */
    mk_weight weight;
    mk_u32 rows, k;
    mk_u32 row_bytes[3];             /* of codes, and of scales and biases where they have tables */
    mk_u32 part_at[3];               /* where each of these begins in a stage */
    mk_u32 row_end[4];               /* rows of this weight and those before it; with a gate of one */
    mk_u32 share, longer;            /* rows of a group; the first groups have one more */
    mk_u32 team_shift;               /* log2 of the warps to two rows */
    mk_u32 stage_shift, stage_bytes; /* log2 of the rows of a weight in a stage */
    mk_u32 stages;
    mk_u32 codes_bytes, info_bytes, info_at, ring_at; /* of a row of x; shared memory: codes, info, ring */
    mk_f32 eps, softcap;
} mk_stream_params;
