/*
 * programs.h - the programs of ops that are regions, apart from the buffers of a call: nodes of graphs are made of them too.
 *
 * A program's inputs are the op's operands in the order of its call, without those that are absent. `who` begins the sentence of a refusal.
 */
#ifndef MICA_OPS_PROGRAMS_H
#define MICA_OPS_PROGRAMS_H

#include "ops/steps.h"

/* ---- region.c ---- */

/* act(gate) up. */
void mica__gate_program(mica_scalar act, mica_register type, mica__region_program *out);
/* leaky_relu, elu or softcap of x and a number. */
mica_status mica__number_program(const char *who, mica_scalar scalar, mica_register type, float number,
                                 mica__region_program *out);
/* x between two bounds. */
mica_status mica__clamp_program(const char *who, mica_register type, double low, double high,
                                mica__region_program *out);

/* ---- index.c ---- */

/* The lower or the upper triangle, converted. */
void mica__triangle_program(bool upper, mica_register from, mica_register to, int32_t diagonal,
                            mica__region_program *out);

/* ---- norm.c ---- */

/* Of x, mean, var, then weight and bias where they are there. */
mica_status mica__batch_norm_program(const char *who, mica_register type, float eps, bool weight, bool bias,
                                     mica__region_program *out);
/* Of running_mean, running_var, mean and var: what runs from here on. `correction`: of var. */
mica_status mica__running_program(const char *who, mica_register type, double momentum, double correction,
                                  mica__region_program *out);
/* x + gate branch. */
void mica__gated_residual_program(mica_register type, mica__region_program *out);

/* ---- recurrent.c ---- */

/* g and beta of a, b, a_log and dt_bias; g and dt of a, a_log and dt_bias. */
void mica__delta_gates_program(mica_register type, mica__region_program *out);
void mica__ssm_gates_program(mica_register type, mica__region_program *out);

/* ---- complex.c ---- */

typedef enum mica__complex {
    MICA__COMPLEX_ADD,
    MICA__COMPLEX_SUB,
    MICA__COMPLEX_MUL,
    MICA__COMPLEX_DIV,  /* up to here of a and b */
    MICA__COMPLEX_CONJ, /* up to here c64 */
    MICA__COMPLEX_ABS,
    MICA__COMPLEX_NORM,
    MICA__COMPLEX_ANGLE
} mica__complex;
void mica__complex_program(mica__complex what, mica__region_program *p);
/* The c64 number of its real and its imaginary part. */
void mica__complex_join_program(mica__region_program *p);

/* ---- log_mel.c ---- */

/* log10(max(x, 1e-10)); of x and the greatest of all: what a log-mel spectrum is. */
void mica__log_mel_program(bool of_greatest, mica__region_program *p);

#endif
