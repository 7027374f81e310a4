/* experts_map.c - builds the map of experts.h: counts, tiles, then the slots of each expert in order. */
#include "backend/cpu/kernels/experts.h"

#include <string.h>

#include "backend/cpu/kernels/kernels.h"

static void zero_slot(const mica__cpu_view *y, uint64_t slot)
{
    const uint64_t per_token = y->shape[1], bytes = y->shape[2] * (y->dtype == MICA_DTYPE_F32 ? 4 : 2);
    memset(y->data + slot / per_token * y->stride[0] + slot % per_token * y->stride[1], 0, bytes);
}

/* Slots are counted, then dealt out with one cursor per expert. */
static void build(const mica__cpu_args *args, const mica__experts_map_params *p, void *map, uint64_t slots)
{
    const mica__cpu_view *ids = &args->view[0];
    mica__experts_head *head = map;
    *head = (mica__experts_head){0, (uint32_t)mica__experts_max_tiles(slots, p->experts, p->tile),
                                 (uint32_t)slots, 0};
    mica__experts_tile *tile = mica__experts_tiles(map);
    uint32_t *list = mica__experts_slots(map), *cursor = list + slots, used = 0;
    memset(cursor, 0, ((uint64_t)p->experts + 1) * sizeof *cursor);
    for (uint64_t s = 0; s < slots; s++) {
        const int64_t expert = mica__experts_id(ids, s, p->experts);
        if (expert >= 0) {
            cursor[expert]++;
        } else {
            zero_slot(&args->view[1], s);
            mica__cpu_fault(args);
        }
    }
    for (uint32_t expert = 0; expert < p->experts; expert++) {
        const uint32_t count = cursor[expert];
        cursor[expert] = used;
        for (uint32_t first = 0; first < count; first += p->tile)
            tile[head->tile_count++] =
                (mica__experts_tile){expert, used + first, count - first < p->tile ? count - first : p->tile};
        used += count;
    }
    for (uint64_t s = 0; s < slots; s++) {
        const int64_t expert = mica__experts_id(ids, s, p->experts);
        if (expert >= 0)
            list[cursor[expert]++] = (uint32_t)s;
    }
}

void MICA__ISA(experts_map)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_view *ids = &args->view[0];
    if (first < last)
        build(args, args->params, args->view[2].data, ids->shape[0] * ids->shape[1]);
}
