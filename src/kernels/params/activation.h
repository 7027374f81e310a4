//use params/row_dims
/* activation: one group a row of x. What is made of it: forms. Rows of the results are `padded` values, with zeros. */
#define MK_FORM_CODES 1u /* 8-bit codes, and for each 32 of them scale and sums of both halves (f32, 2 i16) */
#define MK_FORM_PLAIN 2u /* f32 */
#define MK_FORM_ROUNDED 4u /* f32, what the codes stand for */
typedef struct mk_activation_params {
    mk_u64 stride[MK_ROW_DIMS];
    mk_u64 codes, meta, plain, rounded; /* places of the forms in `made` */
    mk_u32 shape[MK_ROW_DIMS], ndim;
    mk_u32 k, padded;
    mk_u32 type;
    mk_u32 norm, has_weight, norm_type;
    mk_u32 forms;
    mk_f32 eps;
} mk_activation_params;
