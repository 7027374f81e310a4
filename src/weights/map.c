/* map.c - files in the address space: each is mapped once, when first needed, and stays while anyone shows it. */
#include "weights/weights.h"

#include "base/alloc.h"
#include "base/status.h"

/* Lock held. */
static mica_status map_file(mica_weights *weights, uint32_t file)
{
    mica__weights_map *map = mica__alloc(sizeof *map);
    if (map == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to map \"%s\"",
                          mica__file_path(weights->archive->file[file]));
    const mica_status status = mica__file_map_open(weights->archive->file[file], &map->map);
    if (status != MICA_OK) {
        mica__free(map);
        return status;
    }
    atomic_init(&map->references, 1);
    weights->map[file] = map;
    return MICA_OK;
}

mica_status mica__weights_map_take(mica_weights *weights, uint32_t file, mica__weights_map **out)
{
    mica_status status = MICA_OK;
    *out = NULL;
    pthread_mutex_lock(&weights->lock);
    if (weights->map[file] == NULL)
        status = map_file(weights, file);
    if (status == MICA_OK) {
        *out = weights->map[file];
        atomic_fetch_add_explicit(&(*out)->references, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&weights->lock);
    return status;
}

void mica__weights_map_give(mica__weights_map *map)
{
    if (map == NULL || atomic_fetch_sub_explicit(&map->references, 1, memory_order_acq_rel) != 1)
        return;
    mica__file_map_close(&map->map);
    mica__free(map);
}
