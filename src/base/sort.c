/* sort.c: merge sort from the bottom up. Runs that are in order already are not touched. */
#include "base/sort.h"

#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/work.h"

#define CANCEL_ITEMS 65536 /* a cancel is looked for once for so many */

static mica_status see_cancel(size_t at)
{
    return at % CANCEL_ITEMS == 0 ? mica__spend(0) : MICA_OK;
}

/* How many items from the first on are in order. */
static size_t sorted_items(const char *items, size_t count, size_t size, mica__sort_compare compare)
{
    size_t i = 1;
    while (i < count && compare(items + (i - 1) * size, items + i * size) <= 0 && see_cancel(i) == MICA_OK)
        i++;
    return i;
}

/* Merges from[begin, middle) and from[middle, end) into to[begin, end). */
static mica_status merge(const char *from, char *to, const size_t bounds[3], size_t size,
                         mica__sort_compare compare)
{
    size_t left = bounds[0], right = bounds[1];
    mica_status status = MICA_OK;
    for (size_t at = bounds[0]; at < bounds[2] && (status = see_cancel(at)) == MICA_OK; at++) {
        const bool take_left =
            left < bounds[1] && (right == bounds[2] || compare(from + left * size, from + right * size) <= 0);
        memcpy(to + at * size, from + (take_left ? left++ : right++) * size, size);
    }
    return status;
}

mica_status mica__sort(void *items, size_t count, size_t size, mica__sort_compare compare)
{
    size_t bytes;
    mica_status status = mica__spend(count);
    if (status != MICA_OK)
        return status;
    if (count < 2 || sorted_items(items, count, size, compare) == count)
        return MICA_OK;
    char *scratch = mica__mul_size(count, size, &bytes) ? mica__alloc(bytes) : NULL;
    if (scratch == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to sort %zu items", count);
    char *from = items, *to = scratch;
    for (size_t width = 1; width < count && status == MICA_OK; width *= 2) {
        for (size_t begin = 0; begin < count && status == MICA_OK; begin += 2 * width) {
            const size_t middle = count - begin < width ? count : begin + width;
            const size_t end = count - middle < width ? count : middle + width;
            status = merge(from, to, (const size_t[3]){begin, middle, end}, size, compare);
        }
        if (status != MICA_OK)
            break; /* `from` still has every item */
        status = mica__spend(count);
        char *swap = from;
        from = to;
        to = swap;
    }
    if (from == scratch)
        memcpy(items, scratch, bytes);
    mica__free(scratch);
    return status;
}
