/*
 * oracle_region.h - regions, one element at a time, from what region.h and scalars.h say of them.
 *
 * Floats are long doubles with a bound of what f32 (or f64) arithmetic may do to them, carried from step to step. A
 * value that the bound leaves open (a comparison of two that are nearer than their errors) promises nothing.
 */
#ifndef ORACLE_REGION_H
#define ORACLE_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "mica/region.h"

typedef struct oracle_value {
    long double x, error; /* floats: how far the right value may be from x; 0: it is x to the bit */
    uint64_t word;        /* integers, widened by their sign, and bool */
    uint8_t type;         /* mica_register */
    bool open;            /* nothing is promised */
} oracle_value;

/* Whether there is a formula for the scalar of that name. */
bool oracle_scalar_known(const char *name);
/* An element as a register has it; of c64 the imaginary part too. */
oracle_value oracle_region_load(mica_dtype dtype, const void *element, oracle_value *imag);
/* All values of the program for one element: `value` and `imag` have those of the inputs, and room for those of the
 * steps behind them in `value`. `index` has the element's place along each axis, the last one first. */
void oracle_region_run(const mica_region_desc *desc, const uint64_t *index, oracle_value *value,
                       const oracle_value *imag);
/* Whether a stored element is what the value (and the imaginary one, for c64) may become there. */
bool oracle_region_near(mica_dtype dtype, const oracle_value *value, const oracle_value *imag,
                        const void *element);

#endif
