//use params/dims
#define MK_PAD_CONSTANT 0u
#define MK_PAD_EDGE 1u
#define MK_PAD_REFLECT 2u
#define MK_PAD_SYMMETRIC 3u

/* pad: a work-item an element of y. Pads below 0 are numbers of two's complement. */
typedef struct mk_pad_params {
    mk_u64 x_stride[MK_DIMS], y_stride[MK_DIMS], low[MK_DIMS];
    mk_u64 elements, bits;
    mk_u32 x_shape[MK_DIMS], y_shape[MK_DIMS];
    mk_u32 ndim, bytes, mode, reserved;
} mk_pad_params;

/* gather: a work-item an element of y, whose shape all three have; x stands still along the axis and is `x_step` bytes from one place to the next. */
typedef struct mk_gather_params {
    mk_u64 x_stride[MK_DIMS], ids_stride[MK_DIMS], y_stride[MK_DIMS];
    mk_u64 elements, x_step;
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim, bytes, count, fault_code;
    mk_u32 quiet, reserved; /* quiet: 1: an id outside is none, not a fault */
} mk_gather_params;

/* fold: a work-item a line of ids, whose coordinates become a number of elements; NOWHERE where one is outside its size. */
#define MK_FOLD_NOWHERE 0xffffffffu
typedef struct mk_fold_params {
    mk_u64 ids_stride[MK_DIMS];
    mk_u64 elements, ids_step;
    mk_u32 shape[MK_DIMS], size[MK_DIMS], step[MK_DIMS];
    mk_u32 ndim, components, fault_code, reserved;
} mk_fold_params;

/* Entries of link: how many places further the next equal id is, 0: none; LATER where there is one before; NOWHERE for an id outside. */
#define MK_LINK_LATER 0x80000000u
#define MK_LINK_NOWHERE 0xffffffffu

/* link: a work-item an entry; the axis is the last of `shape`. */
typedef struct mk_link_params {
    mk_u64 ids_stride[MK_DIMS];
    mk_u64 entries;
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim, count, fault_code, reserved;
} mk_link_params;

/* How y and updates are combined: f32, f16 and bf16 as MK_F32 .., then integers. */
#define MK_SCATTER_I32 3u
#define MK_SCATTER_U32 4u
#define MK_SCATTER_I64 5u
#define MK_SCATTER_U64 6u

/* scatter: a work-item an element of updates, whose shape all have; y stands still along the axis. */
typedef struct mk_scatter_params {
    mk_u64 ids_stride[MK_DIMS], link_stride[MK_DIMS], y_stride[MK_DIMS], updates_stride[MK_DIMS];
    mk_u64 elements, y_step, updates_step;
    mk_u32 shape[MK_DIMS];
    mk_u32 ndim, bytes, mode, type;
} mk_scatter_params;
