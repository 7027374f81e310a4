//use params/row_dims
//use params/weight_type
/* pack: rows between the canonical layout and that of planes, one work-item a byte. */
typedef struct mk_pack_params {
    mk_u64 from_stride[MK_ROW_DIMS], to_stride[MK_ROW_DIMS];
    mk_u64 bytes; /* of all rows */
    mk_u32 shape[MK_ROW_DIMS];
    mk_u32 ndim;
    mk_u32 row_bytes, block_bytes, blocks, fields;
    mk_u32 offset[MK_FIELDS], size[MK_FIELDS];
    mk_u32 unpack;
} mk_pack_params;
