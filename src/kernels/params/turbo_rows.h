/* turbo_rows: one group a token; `type` is one of params/cache. */
typedef struct mk_turbo_rows_params {
    mk_u64 table_stride, ids_stride, y_stride;
    mk_u32 rows, dim;
    mk_u32 type, y_type, fault_code, reserved;
} mk_turbo_rows_params;
