/*
 * gpu_region.h - a region record as both of its kernels see it: the generated one (region.kc, a text for each program) and the
 * interpreting one (interpret.kc, a program in its parameters).
 */
#ifndef MICA_GPU_REGION_H
#define MICA_GPU_REGION_H

#include "backend/gpu/gpu_plan.h"
#include "backend/region.h"

#define MICA__GPU_REGION_OPERANDS (MICA_REGION_INPUTS + MICA_REGION_OUTPUTS)
#define MICA__GPU_REGION_TEXT 16384u /* bytes that the constants of any program fit into */

MK_INTERPRET_PARAMS(mk_interpret_small, MK_SMALL_OPERANDS, MK_SMALL_STEPS, MK_SMALL_CONSTANTS)
MK_INTERPRET_PARAMS(mk_interpret_large, MK_LARGE_OPERANDS, MK_LARGE_STEPS, MK_LARGE_CONSTANTS)

/* A type of memory in kernels. */
typedef struct mica__gpu_memory {
    const char *name; /* NULL: no kernel of regions knows it */
    uint32_t number;  /* MK_M_.. */
} mica__gpu_memory;

mica__gpu_memory mica__gpu_memory_of(uint32_t dtype);

/* The operands, inputs first, over as few dimensions as they share; the last one is the fastest of the first output. */
typedef struct mica__gpu_region {
    const mica__region_program *program;
    uint32_t operands, ndim;
    uint64_t elements;
    mica__gpu_view view[MICA__GPU_REGION_OPERANDS];
    uint16_t dtype[MICA__GPU_REGION_OPERANDS];
    uint32_t bytes[MICA__GPU_REGION_OPERANDS]; /* of an element */
} mica__gpu_region;

/* Whether `width` neighbours along the last dimension can be read at once: they are neighbours, or one, in each operand, and begin at a multiple
 * of `width` elements in every row. */
bool mica__gpu_region_takes(const mica__gpu_region *region, uint32_t width);

/* ---- the generated kernel ---- */

/* How much of it a work-item takes: constants of region.kc. */
typedef struct mica__gpu_region_shape {
    uint32_t dims, width, batch;
} mica__gpu_region_shape;

/* The constants of region.kc for this program: its structure and nothing else, so that programs that differ in constants, shapes or
 * strides alone have the same. False: no room. */
bool mica__gpu_region_text(const mica__gpu_region *region, const mica__gpu_region_shape *shape, char *out,
                           size_t out_bytes);
/* A program's constants, in the order of its steps, as 64 bits. Gives how many. */
uint32_t mica__gpu_region_given(const mica__region_program *program, uint64_t *out);

/* ---- the interpreting kernel ---- */

/* Code, constants and results of the program. Gives how many slots it needs. */
uint32_t mica__gpu_region_code(const mica__region_program *program, mk_interpret_large *out);

#endif
