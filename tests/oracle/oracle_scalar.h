/* oracle_scalar.h - each scalar function by its name, and the small floats. */
#ifndef ORACLE_SCALAR_H
#define ORACLE_SCALAR_H

#include "oracle/oracle_region.h"

/* The function of values that fit it, as a register of `type`. */
oracle_value oracle_scalar_run(const char *name, uint8_t type, const oracle_value *in);

/* Those of floats alone. */
bool oracle_float_known(const char *name);
oracle_value oracle_float_run(const char *name, uint8_t type, const oracle_value *in);

/* The float with these bits; what a number becomes as that type. f32 f64 f16 bf16 f8_e4m3 f8_e5m2 e8m0. */
long double oracle_float_of(mica_dtype dtype, uint64_t bits);
long double oracle_float_round(mica_dtype dtype, long double value);

#endif
