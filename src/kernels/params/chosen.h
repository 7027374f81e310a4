//use params/dims
/* chosen: which of `elements` are not 0, in runs of MK_WG * MK_CHOSEN_EACH. List entry j is where the j-th one lies, in steps of its place in `shape`,
 * NOWHERE behind the last one. */
#define MK_CHOSEN_EACH 16u /* neighbours that a work-item looks at */
#define MK_CHOSEN_NOWHERE 0xffffffffu
typedef struct mk_chosen_params {
    mk_u64 x_stride[MK_DIMS];
    mk_u64 mask; /* bits of an element that are not all 0 in what is not 0 */
    mk_u64 to_stride[2];
    mk_u32 x_shape[MK_DIMS], shape[MK_DIMS], step[MK_DIMS];
    mk_u32 elements, listed, runs;
    mk_u32 x_ndim, ndim, bytes;
} mk_chosen_params;
