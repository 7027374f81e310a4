/*
 * near.c - what to offer when a tensor is asked for by a name that is not there: the names with the fewest letters
 * to change.
 */
#include "format/archive.h"

#include <stdio.h>
#include <string.h>

#include "base/work.h"

#define OFFERS 3
#define LONGEST 127 /* a longer name gets and makes no offer */

typedef struct offer {
    uint32_t tensor, distance;
} offer;

/* Letters to insert, remove or change to get from a to b; `limit` or more is all the same. */
static uint32_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length, uint32_t limit)
{
    uint32_t row[LONGEST + 1];
    for (uint32_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 0; i < a_length; i++) {
        uint32_t corner = row[0], least = row[0] = (uint32_t)i + 1;
        for (size_t j = 0; j < b_length; j++) {
            uint32_t best = corner + (a[i] != b[j]);
            corner = row[j + 1];
            if (corner + 1 < best)
                best = corner + 1;
            if (row[j] + 1 < best)
                best = row[j] + 1;
            row[j + 1] = best;
            if (best < least)
                least = best;
        }
        if (least >= limit)
            return limit;
    }
    return row[b_length];
}

/* A name inside the other counts as one letter: most often a prefix was left out. */
static uint32_t name_distance(const char *name, size_t length, const mica__tensor *tensor, uint32_t limit)
{
    const size_t other = tensor->name_length, apart = length > other ? length - other : other - length;
    if (other > LONGEST || other == 0)
        return limit;
    if (strstr(tensor->name, name) != NULL || strstr(name, tensor->name) != NULL)
        return 1;
    return apart >= limit ? limit : edit_distance(name, length, tensor->name, other, limit);
}

static uint32_t find_offers(const mica__archive *archive, const char *name, size_t length,
                            offer offers[OFFERS])
{
    const uint32_t limit = (uint32_t)length / 2 + 1; /* half of the letters wrong is another name */
    uint32_t count = 0;
    for (uint32_t i = 0; i < archive->visible_count && mica__spend(length * 4) == MICA_OK; i++) {
        const uint32_t bound = count == OFFERS ? offers[OFFERS - 1].distance : limit;
        const uint32_t distance = name_distance(name, length, &archive->tensor[i], bound);
        if (distance >= bound)
            continue;
        uint32_t at = count < OFFERS ? count++ : OFFERS - 1;
        for (; at > 0 && offers[at - 1].distance > distance; at--)
            offers[at] = offers[at - 1];
        offers[at] = (offer){i, distance};
    }
    return count;
}

mica_status mica__archive_not_found(const mica__archive *archive, const char *name)
{
    char text[OFFERS * (LONGEST + 5) + 16] = "";
    offer offers[OFFERS];
    size_t used = 0;
    const size_t length = strlen(name);
    const uint32_t count = length == 0 || length > LONGEST ? 0 : find_offers(archive, name, length, offers);
    for (uint32_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\"", i == 0 ? "; near: " : ", ",
                                 archive->tensor[offers[i].tensor].name);
    return mica__fail(MICA_ERR_NOT_FOUND, "\"%s\": no tensor \"%.*s\"%s", mica__archive_path(archive, 0),
                      LONGEST, name, text);
}
