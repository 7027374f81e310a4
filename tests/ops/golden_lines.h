/*
 * golden_lines.h - files of numbers that others made (tests/golden): a case is a line of a name, how many numbers, these, how many results, these. And the
 * formula of its inputs, which scripts/golden_train.py has as well.
 */
#ifndef GOLDEN_LINES_H
#define GOLDEN_LINES_H

#include <stdint.h>
#include <stdio.h>

enum { GOLDEN_NUMBERS = 32, GOLDEN_RESULTS = 1024 };

typedef struct golden_line {
    char name[32];
    int numbers, results;
    double number[GOLDEN_NUMBERS], result[GOLDEN_RESULTS];
} golden_line;

static inline int golden_list(FILE *file, int most, double *to)
{
    int count;

    if (fscanf(file, "%d", &count) != 1 || count < 0 || count > most)
        return -1;
    for (int i = 0; i < count; i++)
        if (fscanf(file, "%lf", &to[i]) != 1)
            return -1;
    return count;
}

/* 1: a case; 0: the end; -1: not such a file. */
static inline int golden_next(FILE *file, golden_line *line)
{
    if (fscanf(file, "%31s", line->name) != 1)
        return 0;
    line->numbers = golden_list(file, GOLDEN_NUMBERS, line->number);
    line->results = line->numbers < 0 ? -1 : golden_list(file, GOLDEN_RESULTS, line->result);
    return line->results < 0 ? -1 : 1;
}

/* Element i of the input of this slot: a sixty-fourth from -2 to 2. */
static inline double golden_value(uint32_t slot, uint64_t i)
{
    const uint32_t mixed = (uint32_t)((i + 1) * 2654435761u + (uint64_t)slot * 40503 * 977);

    return ((double)(mixed / 65536 % 257) - 128) / 64;
}

#endif
