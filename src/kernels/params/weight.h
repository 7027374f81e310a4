//use params/weight_type
/* Types of scales beside the three floats. */
#define MK_E8M0 3u
#define MK_E4M3 4u

/* Field f of block b of a weight's row lies at base[f] + b * stride[f]: one after the other in a canonical row, each in its
 * plane in the layout of planes (quant/planes.h). */
typedef struct mk_fields {
    mk_u32 base[MK_FIELDS], stride[MK_FIELDS];
} mk_fields;

/* What a kernel knows about the rows of a weight, all weights of a dispatch alike. */
typedef struct mk_weight {
    mk_fields fields;
    mk_u32 k;          /* values of a row */
    mk_u32 group_size; /* of types with tables of scales */
    mk_u32 groups;     /* of a row */
    mk_u32 scale_type; /* MK_F32 .. MK_E4M3 */
} mk_weight;
