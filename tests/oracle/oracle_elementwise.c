/*
 * oracle_elementwise.c - add, mul, silu_mul, gelu in its forms, softcap.
 */
#include "oracle/oracle_ops.h"

#include <math.h>

/* The sum of two f32 values is rounded once, so the result is known to the bit. */
void oracle_add(size_t count, const double *a, const double *b, double *y, double *error)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = (float)(a[i] + b[i]);
        error[i] = ORACLE_EXACT;
    }
}

void oracle_mul(size_t count, const double *a, const double *b, double *y, double *error)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = (float)(a[i] * b[i]);
        error[i] = ORACLE_EXACT;
    }
}

/* exp, one addition, one division, one product: a few roundings each relative to the result. */
void oracle_silu_mul(size_t count, const double *gate, const double *up, double *y, double *error)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        error[i] = fabs(y[i]);
    }
}

/* 1 + tanh cancels for negative x, so errors are relative to |x| and not to the result. */
void oracle_gelu(size_t count, const double *x, double *y, double *error)
{
    for (size_t i = 0; i < count; i++) {
        double inner = 0.7978845608 * (x[i] + 0.044715 * x[i] * x[i] * x[i]);

        inner = fmin(fmax(inner, -15), 15);
        y[i] = 0.5 * x[i] * (1 + tanh(inner));
        error[i] = fabs(x[i]);
    }
}

void oracle_gelu_mul(size_t count, const double *gate, const double *up, double *y, double *error)
{
    oracle_gelu(count, gate, y, error);
    for (size_t i = 0; i < count; i++) {
        y[i] *= up[i];
        error[i] = error[i] * fabs(up[i]) + fabs(y[i]);
    }
}

void oracle_gelu_erf(size_t count, const double *x, double *y, double *error)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = 0.5 * x[i] * (1 + erf(x[i] / sqrt(2)));
        error[i] = fabs(x[i]);
    }
}

/* tanh from exp carries an error of one rounding of 1 near zero, hence the term with cap. */
void oracle_softcap(size_t count, const double *x, double cap, double *y, double *error)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = cap * tanh(x[i] / cap);
        error[i] = fabs(y[i]) + 0.25 * cap;
    }
}
