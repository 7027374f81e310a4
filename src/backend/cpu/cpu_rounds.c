/*
 * cpu_rounds.c - rounds of the units of one dispatch. Parts are claimed by a number that only grows, so that a claim of a round that is over fails; the
 * one whose part completes a round opens the next.
 */
#include "backend/cpu/cpu_rounds.h"

#include <stdbool.h>

#include "backend/cpu/cpu_team.h"

#define PATIENCE_NS 5000u /* then the owner of a part may have lost its processor */

void mica__cpu_rounds_init(mica__cpu_rounds *rounds, uint32_t parts)
{
    atomic_init(&rounds->now, 0);
    atomic_init(&rounds->done, 0);
    for (uint32_t part = 0; part < parts; part++) {
        atomic_init(&rounds->turn[part].taken, 0);
        atomic_init(&rounds->turn[part].present, 0);
    }
}

static bool claim(mica__cpu_turn *turn, uint64_t round)
{
    uint64_t expected = round;
    return atomic_load_explicit(&turn->taken, memory_order_relaxed) == round &&
           atomic_compare_exchange_strong_explicit(&turn->taken, &expected, round + 1, memory_order_relaxed,
                                                   memory_order_relaxed);
}

/* Adds a part to what is done: reads what all the others of the round wrote, and shows it to whoever enters the next. */
static void add_done(mica__cpu_rounds *rounds, uint32_t parts, uint64_t round)
{
    if (atomic_fetch_add_explicit(&rounds->done, 1, memory_order_acq_rel) + 1 == (round + 1) * parts)
        atomic_store_explicit(&rounds->now, round + 1, memory_order_release);
}

/* Parts of other units: of all, or of those that have not begun. */
static void help(mica__cpu_rounds *rounds, uint32_t own, uint32_t parts, uint64_t round, bool all,
                 mica__cpu_rounds_work work, void *context)
{
    for (uint32_t i = 1; i < parts; i++) {
        const uint32_t part = (own + i) % parts;
        if ((all || atomic_load_explicit(&rounds->turn[part].present, memory_order_relaxed) == 0) &&
            claim(&rounds->turn[part], round)) {
            work(context, round, part);
            add_done(rounds, parts, round);
        }
    }
}

void mica__cpu_rounds_run(mica__cpu_rounds *rounds, uint32_t own, uint32_t parts, uint64_t count,
                          mica__cpu_rounds_work work, void *context)
{
    uint64_t round;
    atomic_store_explicit(&rounds->turn[own].present, 1, memory_order_relaxed);
    while ((round = atomic_load_explicit(&rounds->now, memory_order_acquire)) < count) {
        mica__cpu_spin spin = {0, 0, 0};
        bool helped = false;
        if (claim(&rounds->turn[own], round)) {
            work(context, round, own);
            add_done(rounds, parts, round);
        }
        help(rounds, own, parts, round, false, work, context);
        while (atomic_load_explicit(&rounds->now, memory_order_acquire) == round)
            if (mica__cpu_spin_once(&spin) >= PATIENCE_NS && !helped) {
                helped = true;
                help(rounds, own, parts, round, true, work, context);
            }
    }
}
