/* cursor.c - the bounded walk of cursor.h. */
#include "format/cursor.h"

#include "base/alloc.h"

mica_status mica__cursor_open(mica__cursor *out_cursor, const mica__file *file, uint64_t end, size_t capacity)
{
    if (capacity > end)
        capacity = (size_t)end;
    *out_cursor = (mica__cursor){.file = file, .end = end, .capacity = capacity};
    out_cursor->window = mica__alloc(capacity);
    if (out_cursor->window == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for %zu bytes of its header",
                          mica__file_path(file), capacity);
    return MICA_OK;
}

mica__cursor mica__cursor_over(const mica__file *file, uint8_t *window, size_t size)
{
    return (mica__cursor){.file = file, .window = window, .loaded = size, .capacity = size, .end = size};
}

void mica__cursor_close(mica__cursor *cursor)
{
    mica__free(cursor->window);
    *cursor = (mica__cursor){0};
}

static mica_status too_short(const mica__cursor *cursor, uint64_t size)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE,
                      "\"%s\": %llu bytes wanted at byte %llu, expected at most %llu",
                      mica__file_path(cursor->file), (unsigned long long)size, (unsigned long long)cursor->at,
                      (unsigned long long)mica__cursor_left(cursor));
}

static mica_status move_window(mica__cursor *cursor)
{
    const uint64_t left = mica__cursor_left(cursor);
    const size_t size = left < cursor->capacity ? (size_t)left : cursor->capacity;
    const mica_status status = mica__file_read_at(cursor->file, cursor->at, cursor->window, size);
    cursor->start = cursor->at;
    cursor->loaded = status == MICA_OK ? size : 0;
    return status;
}

mica_status mica__cursor_take(mica__cursor *cursor, size_t size, uint8_t **out_bytes)
{
    *out_bytes = NULL;
    if (size > mica__cursor_left(cursor) || size > cursor->capacity)
        return too_short(cursor, size);
    if (cursor->at < cursor->start || cursor->at - cursor->start > cursor->loaded ||
        size > cursor->loaded - (cursor->at - cursor->start)) {
        const mica_status status = move_window(cursor);
        if (status != MICA_OK)
            return status;
    }
    *out_bytes = cursor->window + (cursor->at - cursor->start);
    cursor->at += size;
    return MICA_OK;
}

mica_status mica__cursor_skip(mica__cursor *cursor, uint64_t size)
{
    if (size > mica__cursor_left(cursor))
        return too_short(cursor, size);
    cursor->at += size;
    return MICA_OK;
}

mica_status mica__cursor_number(mica__cursor *cursor, uint32_t size, uint64_t *out_number)
{
    uint8_t *bytes;
    uint64_t number = 0;
    const mica_status status = mica__cursor_take(cursor, size, &bytes);
    *out_number = 0;
    if (status != MICA_OK || bytes == NULL)
        return status;
    for (uint32_t i = 0; i < size; i++)
        number |= (uint64_t)bytes[cursor->swap ? size - 1 - i : i] << 8 * i;
    *out_number = number;
    return MICA_OK;
}
