/*
 * experts.h - the map from experts to the slots that chose them, shared by all expert-routed matmuls.
 *
 * Built on the device by the kernel experts_map because the ids are known only when the work runs; its size,
 * and so every grid that walks it, depends on the shapes alone. The map lives in the record's scratch as u32
 * words: a head, the tiles, then the slots. A tile is up to `tile` slots of one expert; a matmul that works on
 * tile t finds its output rows in experts_slots(map) + tile.first, in rising slot order.
 *
 * Slot s is row s of y [T, S, N] flattened to [T * S, N]; its token is s / S. A slot whose id names no expert is
 * in no tile: experts_map itself writes zeros to its row of y and raises the fault.
 */
#ifndef MICA_CPU_EXPERTS_H
#define MICA_CPU_EXPERTS_H

#include "backend/cpu/cpu_kernel.h"

/* At most this many slots are matrix-vector work, slot by slot and without a map. */
#define MICA__EXPERTS_FEW_SLOTS 8u

/* Parameters of the kernel experts_map: one unit; views ids [T, S], y [T, S, N] (written), the map. */
typedef struct mica__experts_map_params {
    uint32_t experts, tile;
} mica__experts_map_params;

typedef struct mica__experts_tile {
    uint32_t expert;
    uint32_t first, count; /* range in the slot list */
} mica__experts_tile;

typedef struct mica__experts_head {
    uint32_t tile_count; /* tiles in use, at most mica__experts_max_tiles */
    uint32_t max_tiles;
    uint32_t slots; /* T * S */
    uint32_t reserved;
} mica__experts_head;

/* No ids can give more: each expert ends at most one tile that is not full. */
static inline uint64_t mica__experts_max_tiles(uint64_t slots, uint64_t experts, uint64_t tile)
{
    return slots / tile + (experts < slots ? experts : slots);
}

/* Head, tiles, the slot list, and one cursor per expert while it is built. */
static inline uint64_t mica__experts_map_bytes(uint64_t slots, uint64_t experts, uint64_t tile)
{
    return sizeof(mica__experts_head) +
           mica__experts_max_tiles(slots, experts, tile) * sizeof(mica__experts_tile) +
           (slots + experts + 1) * sizeof(uint32_t);
}

static inline mica__experts_tile *mica__experts_tiles(void *map)
{
    return (mica__experts_tile *)((unsigned char *)map + sizeof(mica__experts_head));
}

static inline uint32_t *mica__experts_slots(void *map)
{
    const mica__experts_head *head = map;
    return (uint32_t *)(mica__experts_tiles(map) + head->max_tiles);
}

/* The expert a slot chose, or -1: ids are u32 or i32 with any strides. */
static inline int64_t mica__experts_id(const mica__cpu_view *ids, uint64_t slot, uint64_t experts)
{
    const uint64_t per_token = ids->shape[1];
    const unsigned char *at =
        ids->data + slot / per_token * ids->stride[0] + slot % per_token * ids->stride[1];
    uint32_t id;
    __builtin_memcpy(&id, at, sizeof id);
    return id < experts ? (int64_t)id : -1; /* a negative i32 is a large u32 */
}

#endif
