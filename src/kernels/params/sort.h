//use params/dims
/* sort: rows of n elements, of which the first k in the order are wanted. Runs are sorted stretches of a row, `run` elements each but the last, which
 * has last; those of a row lie one behind the other, `row_runs` to a row. */
#define MK_SORT_TILE 2048u
typedef struct mk_sort_params {
    mk_u64 x_stride[MK_DIMS - 1], values_stride[MK_DIMS - 1], ids_stride[MK_DIMS - 1];
    mk_u64 x_step, values_step, ids_step;
    mk_u64 row_keys; /* keys between rows of scratch */
    mk_u32 shape[MK_DIMS - 1];
    mk_u32 outer;
    mk_u32 rows, n, k;
    mk_u32 slots;           /* of a row in local memory: a power of two, at most MK_SORT_TILE */
    mk_u32 run, last, runs; /* what a pass reads */
    mk_u32 next, next_last; /* the length of the runs that it makes */
    mk_u32 tiles;           /* groups to each of these */
    mk_u32 type, descending;
    mk_u32 has_values, has_ids;
} mk_sort_params;
