/* uses.c - see uses.h. */
#include "session/uses.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/work.h"

static mica_status make_room(uint64_t operands, mica__uses *out)
{
    uint64_t entries = 64;
    while (entries < 4 * operands)
        entries *= 2; /* a quarter full at most: room for storages that come later */
    out->mask = (uint32_t)(entries - 1);
    out->entry = mica__calloc(entries, sizeof *out->entry);
    out->node = mica__alloc((operands + 1) * sizeof *out->node);
    if (out->entry != NULL && out->node != NULL)
        return MICA_OK;
    mica__uses_free(out);
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to find %llu operands by their storages",
                      (unsigned long long)operands);
}

mica_status mica__uses_build(const mica__record_list *list, mica__uses *out)
{
    uint64_t operands = 0;
    uint32_t nodes = 0;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < list->count; i++)
        operands += list->record[i]->operand_count;
    MICA__TRY(make_room(operands, out));
    for (uint32_t i = list->count; i-- > 0;) { /* backwards, so that lists are in the order of records */
        const mica__record *record = list->record[i];
        (void)mica__spend(1);
        for (uint32_t k = record->operand_count; k-- > 0;) {
            if (!mica__operand_present(&record->operand[k]))
                continue;
            uint32_t *first = mica__uses_of(out, record->operand[k].storage);
            out->node[nodes] = (mica__use_node){i, k, *first};
            *first = nodes++;
        }
    }
    return MICA_OK;
}

void mica__uses_free(mica__uses *uses)
{
    mica__free(uses->node);
    mica__free(uses->entry);
    memset(uses, 0, sizeof *uses);
}

uint32_t *mica__uses_of(mica__uses *uses, const void *storage)
{
    uint32_t at =
        (uint32_t)(((uint64_t)(uintptr_t)storage * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & uses->mask;
    while (uses->entry[at].storage != NULL && uses->entry[at].storage != storage)
        at = (at + 1) & uses->mask;
    if (uses->entry[at].storage == NULL) {
        uses->entry[at] = (mica__uses_entry){storage, MICA__USES_END};
        uses->count++;
    }
    return &uses->entry[at].first;
}

bool mica__uses_room(const mica__uses *uses, uint32_t more)
{
    return uses->count + more <= uses->mask / 2;
}
