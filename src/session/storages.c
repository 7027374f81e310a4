/*
 * storages.c - see storages.h.
 */
#include "session/storages.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* The place of `storage` in the hash table, or the free one where it belongs. */
static uint32_t find_place(const mica__storages *s, const void *storage)
{
    uint32_t at = (uint32_t)(((uint64_t)(uintptr_t)storage * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & s->mask;
    while (s->place[at] != 0 && s->storage[s->place[at] - 1] != storage)
        at = (at + 1) & s->mask;
    return at;
}

uint32_t mica__storages_find(const mica__storages *storages, const void *storage)
{
    return storages->place[find_place(storages, storage)] - 1;
}

static mica_status make_room(mica__storages *s, uint64_t operands)
{
    uint64_t places = 16;
    while (places < 2 * operands)
        places *= 2; /* at most half full: probing ends */
    s->mask = (uint32_t)(places - 1);
    s->place = mica__calloc(places, sizeof *s->place);
    s->storage = mica__alloc((operands + 1) * sizeof *s->storage);
    if (s->place != NULL && s->storage != NULL)
        return MICA_OK;
    mica__storages_free(s);
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to number the storages of %llu operands",
                      (unsigned long long)operands);
}

mica_status mica__storages_build(const mica__record_list *list, mica__storages *out)
{
    uint64_t operands = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < list->count; i++)
        operands += list->record[i]->operand_count;
    mica_status status = make_room(out, operands);
    if (status != MICA_OK)
        return status;
    for (uint32_t i = 0; i < list->count; i++) {
        const mica__record *record = list->record[i];
        for (uint32_t k = 0; k < record->operand_count; k++) {
            const mica__operand *operand = &record->operand[k];
            uint32_t at = !mica__operand_present(operand) ? 0 : find_place(out, operand->storage);
            if (!mica__operand_present(operand) || out->place[at] != 0)
                continue;
            out->storage[out->count] = operand->storage;
            out->place[at] = ++out->count;
        }
    }
    return MICA_OK;
}

void mica__storages_free(mica__storages *storages)
{
    mica__free(storages->place);
    mica__free(storages->storage);
    memset(storages, 0, sizeof *storages);
}
