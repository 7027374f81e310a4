/*
 * conform_suite.h - one row of the table on every form of a computing device, direct and replayed. The cpu's forms are
 * each instruction set that the machine has with 1, 2 and 3 threads; other devices have one.
 */
#ifndef CONFORM_SUITE_H
#define CONFORM_SUITE_H

#include "conform/conform.h"

#define CONFORM_THREADS 3
#define CONFORM_ISAS 3
#define CONFORM_SEED 20260807u
#define CONFORM_GPU_CASES 4 /* of each row on a GPU */

typedef struct conform_suite {
    const char *id;
    mica_device *device[CONFORM_ISAS][CONFORM_THREADS]; /* NULL: there is no such form here */
} conform_suite;

extern const char *const conform_isa_names[CONFORM_ISAS];

/* Opens `id` in every form. An instruction set that the machine lacks is skipped and named on stdout. */
mica_status conform_suite_open(conform_suite *suite, const char *id);
void conform_suite_close(conform_suite *suite);
/* The widest instruction set that is open. */
uint32_t conform_suite_widest(const conform_suite *suite);
/* Is this instruction set open, and worth a run? The thread sanitizer looks at the widest alone: threads hand out work in the
 * same way whatever it is. */
bool conform_suite_runs(const conform_suite *suite, uint32_t isa);
/* The case of `seed` on all devices in all modes; the output's bits must agree within an instruction set. False with a
 * report in `why` (CONFORM_TEXT bytes). */
bool conform_suite_case(const conform_suite *suite, const conform_row *row, uint64_t seed, char *why);
/* `count` cases from `seed` on. */
bool conform_suite_row(const conform_suite *suite, const conform_row *row, uint64_t seed, uint32_t count,
                       char *why);

#endif
