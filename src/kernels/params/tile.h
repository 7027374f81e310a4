#define MK_TILE 128u /* rows of x of a tile of matmul.kc, and of the map that experts.kc makes for it */
