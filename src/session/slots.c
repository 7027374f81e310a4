/* slots.c - see slots.h. */
#include "session/slots.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

mica__slot *mica__slots_find(const mica__slots *slots, const char *name)
{
    for (uint32_t i = 0; i < slots->count; i++)
        if (strcmp(slots->slot[i].name, name) == 0)
            return &slots->slot[i];
    return NULL;
}

mica_status mica__slots_add(mica__slots *slots, const char *name, mica_buffer *buffer)
{
    const size_t length = strlen(name);
    if (length == 0 || length >= MICA__SLOT_NAME)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "name has %zu bytes, expected 1 to %d", length,
                          MICA__SLOT_NAME - 1);
    if (mica__slots_find(slots, name) != NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "name is \"%s\", which is there already", name);
    if (slots->count == slots->capacity) {
        const uint32_t capacity = slots->capacity * 2 + 8;
        mica__slot *grown = mica__realloc(slots->slot, capacity * sizeof *grown);
        if (grown == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u slots", capacity);
        slots->slot = grown;
        slots->capacity = capacity;
    }
    mica__slot *slot = &slots->slot[slots->count++];
    memcpy(slot->name, name, length + 1);
    slot->buffer = mica_buffer_retain(buffer);
    return MICA_OK;
}

mica_status mica__slots_copy(const mica__slots *from, mica__slots *to)
{
    mica_status status = MICA_OK;
    memset(to, 0, sizeof *to);
    for (uint32_t i = 0; i < from->count && status == MICA_OK; i++)
        status = mica__slots_add(to, from->slot[i].name, from->slot[i].buffer);
    if (status != MICA_OK)
        mica__slots_free(to);
    return status;
}

void mica__slots_free(mica__slots *slots)
{
    for (uint32_t i = 0; i < slots->count; i++)
        mica_buffer_release(slots->slot[i].buffer);
    mica__free(slots->slot);
    memset(slots, 0, sizeof *slots);
}
