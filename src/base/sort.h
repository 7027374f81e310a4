/* sort.h: one sort for tables whose order comes from a file: n log n on every input, stable, memory from the hook. */
#ifndef MICA_BASE_SORT_H
#define MICA_BASE_SORT_H

#include <stddef.h>

#include "base/status.h"

/* Below 0, 0 or above 0, as memcmp. */
typedef int (*mica__sort_compare)(const void *a, const void *b);

/* Sorts `count` items of `size` bytes. OUT_OF_MEMORY (then the order is as before) if there is no room for as many
 * bytes again; sorted input takes none. Takes as many steps as there are items, times the logarithm: BUDGET, CANCELLED. */
mica_status mica__sort(void *items, size_t count, size_t size, mica__sort_compare compare);

#endif
