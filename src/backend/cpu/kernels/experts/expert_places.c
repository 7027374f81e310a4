/* expert_places.c - where each slot stands in the row of its expert: one walk over the slots, in their order. */
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"

enum {
    IDS = MICA__EXPERT_PLACES_IDS,
    PLACES = MICA__EXPERT_PLACES_PLACES,
    COUNTS = MICA__EXPERT_PLACES_COUNTS
};

static void put(const mica__cpu_view *view, uint64_t offset, uint64_t value)
{
    const uint32_t bits = (uint32_t)value;
    memcpy(view->data + offset, &bits, sizeof bits);
}

void MICA__ISA(expert_places)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica_expert_places_params *p = args->params;
    const mica__cpu_view *ids = &args->view[IDS], *places = &args->view[PLACES],
                         *counts = &args->view[COUNTS];
    const uint64_t tokens = ids->shape[0], slots = ids->shape[1], experts = counts->shape[0],
                   dropped = experts * p->capacity;
    if (first >= last)
        return;
    for (uint64_t e = 0; e < experts; e++)
        put(counts, e * counts->stride[0], 0);
    for (uint64_t i = 0; i < tokens * slots; i++) {
        const uint64_t token = p->by_choice != 0 ? i % tokens : i / slots,
                       slot = p->by_choice != 0 ? i / tokens : i % slots;
        const int64_t id = index_at(ids, token * ids->stride[0] + slot * ids->stride[1]);
        const uint64_t to = token * places->stride[0] + slot * places->stride[1];
        if (id < 0 || (uint64_t)id >= experts) {
            put(places, to, dropped);
            mica__cpu_fault(args);
            continue;
        }
        const uint64_t at = (uint64_t)id * counts->stride[0], count = (uint64_t)index_at(counts, at);
        put(places, to, count < p->capacity ? (uint64_t)id * p->capacity + count : dropped);
        put(counts, at, count + 1);
    }
}
