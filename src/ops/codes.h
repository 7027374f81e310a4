/*
 * codes.h - what numbers are as codes with scales, and back, as steps of regions. Of a quantizer low, high, code and away are looked at; where its scales
 * lie is the matter of whoever writes the region.
 */
#ifndef MICA_OPS_CODES_H
#define MICA_OPS_CODES_H

#include "ops/steps.h"

typedef struct mica__scaling {
    st_value scale, point, bias; /* st_none: absent */
} mica__scaling;

/* All inputs are there: brings what scales into one type, times `global` (st_none: 1). */
void mica__scaling_finish(mica__scaling *s, st_value global, mica_register type);

/* low and high where both are 0; false where codes of this type are not served. */
bool mica__codes_complete(mica_quantizer *by, mica_dtype dtype);
/* The same where codes are never written: i8's where no others are asked for. False: packed codes. */
bool mica__codes_complete_fake(mica_quantizer *by);

/* The code of x. `whole`: codes are integers; else they are floats that the store rounds. */
st_value mica__code_of(const mica_quantizer *by, st_value x, const mica__scaling *s, bool whole);
/* The code of an i32 sum of products, by a multiplier. */
st_value mica__code_of_sum(const mica_quantizer *by, st_value sum, const mica__scaling *s);
/* What a code stands for. */
st_value mica__value_of(const mica_quantizer *by, st_value code, const mica__scaling *s);
/* Two codes of 4 bits in one byte, the first low; the first or (1) the second of a byte, in `type`. */
st_value mica__codes_pack(const mica_quantizer *by, st_value low, st_value high);
st_value mica__codes_unpack(const mica_quantizer *by, st_value both, uint32_t half, mica_register type);
/* What reaches x, and what each element sends to its scale; either may be NULL. */
void mica__code_slopes(const mica_quantizer *by, mica_straight straight, st_value x, st_value dy,
                       const mica__scaling *s, st_value *out_dx, st_value *out_dscale);
/* The scale for a greatest magnitude; scale and bias for the ends of a range; scales that follow others. */
st_value mica__scale_of_most(const mica_quantizer *by, st_value most);
void mica__scale_of_ends(const mica_quantizer *by, st_value most, st_value least, st_value *out_scale,
                         st_value *out_bias);
st_value mica__scale_that_follows(st_value before, st_value now, double decay);

#endif
