//use params/steps
//use params/weight
/* native/routed: one weight [experts, outputs, k], or with a gate two alike. */
typedef struct mk_routed_params {
    mk_steps expert, row;
    mk_u64 field_at[4]; /* planes: dequantize.cu */
    mk_weight weight;   /* dequantize_any.cu */
    mk_u64 y_stride;    /* of a slot */
    mk_u32 experts, outputs, k, k_tiles;
    mk_u32 tiles; /* of the map */
    mk_u32 column_tiles;
    mk_u32 x_slots; /* slots that share a row of x */
    mk_u32 y_type;
} mk_routed_params;
