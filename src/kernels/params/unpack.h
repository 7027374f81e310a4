//use params/steps
//use params/weight
/* native/unpack: one weight; `side` 0, or with a gate 1 and 2. */
typedef struct mk_unpack_params {
    mk_steps row;
    mk_weight weight;
    mk_u32 outputs, k_tiles, side, first_tile;
} mk_unpack_params;
