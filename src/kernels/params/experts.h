//use params/tile
/* experts: the map of a routed matmul, u32: tiles [tiles][4] (expert, first, count, 0; in the first, tiles in use), then slots by
 * expert [slots], then counters [2 (experts + 1)]. An id outside belongs to expert number `experts`, whose rows become zero. */
typedef struct mk_experts_params {
    mk_u64 ids_stride[2];
    mk_u32 experts, tokens, slots;
    mk_u32 tiles; /* room for */
    mk_u32 fault_code;
} mk_experts_params;
