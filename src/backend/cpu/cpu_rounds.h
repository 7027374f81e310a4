/*
 * cpu_rounds.h - units of one dispatch that work in rounds, none of which begins before all of the one before it is done: tokens of a cell, columns of a
 * factorisation. A barrier between threads without a dispatch a round.
 *
 * A round has as many parts as there are units. Whoever runs unit u takes part u of each round, and parts of those who are not there or late. So
 * nobody waits for a unit that has not begun: one thread alone does all of it, and one that comes when all is done has nothing to do.
 * What a part computes must not depend on who computes it.
 */
#ifndef MICA_CPU_ROUNDS_H
#define MICA_CPU_ROUNDS_H

#include <stdatomic.h>
#include <stdint.h>

#define MICA__CPU_ROUNDS_LINE 64u

typedef struct mica__cpu_turn {
    _Alignas(MICA__CPU_ROUNDS_LINE) _Atomic uint64_t taken; /* rounds in which this part was claimed */
    _Atomic uint32_t present;                               /* 1: its unit has begun */
} mica__cpu_turn;

/* Shared by the units, in scratch; begins at a multiple of a line. */
typedef struct mica__cpu_rounds {
    _Alignas(MICA__CPU_ROUNDS_LINE) _Atomic uint64_t now;  /* the round that is open */
    _Alignas(MICA__CPU_ROUNDS_LINE) _Atomic uint64_t done; /* parts of all rounds */
    mica__cpu_turn turn[];
} mica__cpu_rounds;

typedef void (*mica__cpu_rounds_work)(void *context, uint64_t round, uint32_t part);

static inline uint64_t mica__cpu_rounds_bytes(uint32_t parts)
{
    return sizeof(mica__cpu_rounds) + parts * sizeof(mica__cpu_turn);
}

/* In a dispatch before. */
void mica__cpu_rounds_init(mica__cpu_rounds *rounds, uint32_t parts);
/* Unit `own` of `parts`: returns when all of `count` rounds are done. What a round wrote is seen in the next and after the return. */
void mica__cpu_rounds_run(mica__cpu_rounds *rounds, uint32_t own, uint32_t parts, uint64_t count,
                          mica__cpu_rounds_work work, void *context);

#endif
