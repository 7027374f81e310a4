/* isa.h: the instruction sets that hot code is compiled for, and which of them this machine can run.
 *
 * The build says which forms exist, the processor and the operating system which of them may run. Knows no kernel
 * and no table: a room that compiles files once per instruction set keeps a table per set of its own. */
#ifndef MICA_BASE_ISA_H
#define MICA_BASE_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Worst first. */
typedef enum mica__isa {
    MICA__ISA_PORTABLE = 0,
    MICA__ISA_AVX2,   /* with FMA and F16C */
    MICA__ISA_AVX512, /* F, BW, DQ, VL, VNNI, and all of AVX2 */
    MICA__ISA_COUNT
} mica__isa;

/* "avx2"; isa is below MICA__ISA_COUNT. */
const char *mica__isa_name(mica__isa isa);
/* Whether this build has code for it. */
bool mica__isa_built(mica__isa isa);
/* Whether this build has code for it and this machine runs it; false for a number that is none. */
bool mica__isa_runs(mica__isa isa);
/* The best that runs. Cheap: the machine is asked once. */
mica__isa mica__isa_best(void);

/* The processor's own name, or what kind it is. */
void mica__isa_processor(char *name, size_t bytes);

#endif
