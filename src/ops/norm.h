/* norm.h - what the norms of this room share. */
#ifndef MICA_OPS_NORM_ROOM_H
#define MICA_OPS_NORM_ROOM_H

#include "ops/check.h"

/* Where one operand is f64 all are. */
void mica__op_all_double(mica__op_builder *op);
/* rms_norm and layer_norm of f64: a normalize record over the last dimension, whose weight and bias are [dim]. */
mica_status mica__norm_of_doubles(mica_encoder *encoder, mica_normalize_kind kind, mica_buffer *x,
                                  mica_buffer *weight, mica_buffer *bias, float eps, mica_buffer *y);

#endif
