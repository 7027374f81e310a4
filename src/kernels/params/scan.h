//use params/dims
/* scan: rows of n elements; `lanes` work-items to a row, MK_WG / lanes rows to a group, which lie across the group where neighbouring rows
 * are neighbours in memory. Where there are parts, lanes is MK_WG and a group has one part of a row. */
#define MK_SCAN_ITEMS 8u /* elements of a work-item at a time */
typedef struct mk_scan_params {
    mk_u64 x_stride[MK_DIMS - 1], y_stride[MK_DIMS - 1];
    mk_u64 x_step, y_step;
    mk_u64 first; /* a register as bits: the result over nothing */
    mk_u32 shape[MK_DIMS - 1];
    mk_u32 outer; /* how many of these */
    mk_u32 rows, n, lanes, across;
    mk_u32 parts, part; /* part: elements, a multiple of lanes * MK_SCAN_ITEMS */
    mk_u32 exclusive, reverse;
    mk_u32 x_type, y_type; /* as reduce's */
} mk_scan_params;
