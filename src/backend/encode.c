/* encode.c - the first failure, arrays that grow, a blob of small things. */
#include "backend/encode.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/status.h"

bool mica__latch_failure(mica__latch *latch, mica_status status)
{
    if (latch->status == MICA_OK) {
        latch->status = status;
        snprintf(latch->sentence, sizeof latch->sentence, "%s", mica_status_message());
    }
    return false;
}

mica_status mica__latch_report(const mica__latch *latch)
{
    return latch->status == MICA_OK ? MICA_OK : mica__fail(latch->status, "%s", latch->sentence);
}

void *mica__encode_grow(mica__latch *latch, void *array, uint64_t least, uint64_t *capacity, size_t size)
{
    const uint64_t wanted = 2 * least + 64;
    size_t bytes;
    void *moved = NULL;
    if (wanted <= SIZE_MAX && mica__mul_size((size_t)wanted, size, &bytes))
        moved = mica__realloc(array, bytes);
    if (moved == NULL)
        mica__latch_failure(latch, mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to encode %llu pieces",
                                              (unsigned long long)least));
    else
        *capacity = wanted;
    return moved;
}

uint64_t mica__blob_put_text(mica__blob *blob, mica__latch *latch, const char *text)
{
    uint64_t place = 0;
    if (text == NULL || text[0] == '\0')
        return 0;
    const size_t bytes = strlen(text) + 1;
    char *copy = mica__blob_take(blob, latch, bytes, &place);
    if (copy != NULL)
        memcpy(copy, text, bytes);
    return place;
}

const char *mica__blob_text(const mica__blob *blob, uint64_t place)
{
    return place == 0 ? "" : (const char *)blob->bytes + place;
}
