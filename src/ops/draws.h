/*
 * draws.h - random numbers out of the 64 random bits of an element, as steps of regions (ops_random.h says which numbers). random.c has them; `who` begins
 * the sentence of a refusal.
 */
#ifndef MICA_OPS_DRAWS_H
#define MICA_OPS_DRAWS_H

#include "ops/steps.h"

/* A constant of 64 bits. */
st_value mica__draw_word(mica__steps *steps, uint64_t word);
/* The element's number in the order of its shape; the first size is not looked at. */
st_value mica__draw_place(mica__steps *steps, uint32_t ndim, const uint64_t *shape);

mica_status mica__draw_whole_check(const char *who, mica_dtype dtype, int64_t low, int64_t high);
st_value mica__draw_whole(st_value bits, int64_t low, int64_t high, mica_register type);
mica_status mica__draw_uniform_check(const char *who, mica_dtype dtype, double low, double high);
st_value mica__draw_uniform(st_value bits, mica_dtype dtype, double low, double high);
mica_status mica__draw_normal_check(const char *who, mica_register type, double mean, double deviation);
st_value mica__draw_normal(st_value bits, mica_register type, double mean, double deviation);
/* Whether the element is one of the p * 2^24 of 2^24. */
st_value mica__draw_chosen(st_value bits, st_value p);
mica_status mica__draw_dropout_check(const char *who, double p);
st_value mica__draw_dropout(st_value bits, st_value x, double p);
/* What argmax looks at. */
st_value mica__draw_gumbel(st_value bits, st_value logit);

#endif
