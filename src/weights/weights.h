/*
 * weights.h (weights) - what the files of this room share: the open weights, where a tensor goes, and a load under way.
 *
 * The room stands between the archive (bytes, checked) and the device (buffers). It knows no file format, no op and no
 * backend by name.
 */
#ifndef MICA_WEIGHTS_WEIGHTS_H
#define MICA_WEIGHTS_WEIGHTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/objects.h"
#include "format/archive.h"
#include "mica/weights.h"

/* A file in the address space, counted: the weights hold one reference, each buffer that shows it another. */
typedef struct mica__weights_map {
    _Atomic uint32_t references;
    mica__file_map map;
} mica__weights_map;

struct mica_weights {
    mica__archive *archive; /* immutable */
    uint32_t flags;         /* MICA_WEIGHTS_* */
    pthread_mutex_t lock;   /* guards `map` */
    mica__fork_guard guard;
    mica__weights_map **map; /* one a file, NULL until first used */
};

/* INVALID_ARGUMENT for a NULL or for flags that are no MICA_LOAD_*. */
mica_status mica__weights_check(const mica_weights *weights, const mica_device *device, uint32_t flags);
/* The visible tensor of that number; INVALID_ARGUMENT and NULL for NULL weights or where there is none. */
mica_status mica__weights_tensor(const mica_weights *weights, uint64_t index, const mica__tensor **out);

/* The map of a file with one more reference; made at the first call. */
mica_status mica__weights_map_take(mica_weights *weights, uint32_t file, mica__weights_map **out);
/* NULL is fine. The last reference unmaps. */
void mica__weights_map_give(mica__weights_map *map);

/* Data, scales and biases of an MLX weight; data alone of any other tensor. */
#define MICA__PARTS 3u

/* Where a tensor goes. What load does and what place and fit say are both read from this. */
typedef struct mica__place {
    mica_placement kind;
    bool mapped; /* its bytes are read through the map: IMPORT, and PACK where an import is possible */
    uint32_t parts;
    uint32_t group_size;
    const mica__tensor *part[MICA__PARTS];
    mica_buffer_desc desc[MICA__PARTS];
    uint64_t part_bytes[MICA__PARTS];
    mica__packing packing;  /* of PACK */
    uint64_t bytes;         /* that the column of `kind` grows by */
    uint64_t largest_bytes; /* of one buffer */
    uint64_t staging_bytes; /* owned while it is loaded, given back at the end */
} mica__place;

/* UNSUPPORTED with a sentence for a tensor that cannot be used, `kind` NONE then. */
mica_status mica__weights_decide(const mica_weights *weights, const mica__tensor *tensor,
                                 const mica_device *device, uint32_t flags, mica__place *out);

/* Bytes of a row of a part; rows of data that are packed at a time, a multiple of eight or all. PACK alone. */
uint64_t mica__place_row_bytes(const mica__place *place, uint32_t part);
uint64_t mica__place_piece_rows(const mica__place *place);

/* Bytes handled between two looks at the progress callback: well under 100 ms on any disk worth the name. */
#define MICA__LOAD_PIECE ((uint64_t)4 << 20)

typedef struct mica__load_item {
    const mica__tensor *tensor;
    uint64_t slot; /* of the caller's array */
} mica__load_item;

/* A load under way: one thread's. */
typedef struct mica__load {
    mica_weights *weights;
    mica_device *device;
    uint32_t flags; /* MICA_LOAD_* */
    mica_progress progress;
    void *context;
    const char *what; /* the tensor in work */
    uint64_t done, total;
    const mica__load_item *item; /* all of them, in the order of the disk */
    uint64_t item_count;
    uint64_t ahead_item, ahead_offset, ahead_bytes; /* how far the system was told to read */
    void *block; /* a piece on its way to memory that is not the host's; NULL until one is needed */
    uint64_t block_bytes;
} mica__load;

/* `bytes` more are done: keeps the disk reading ahead and tells the caller, who may say stop (CANCELLED). */
mica_status mica__load_advance(mica__load *load, uint64_t bytes);

/* The tensor as a buffer, as decided, piece by piece. */
mica_status mica__load_import(mica__load *load, const mica__place *place, mica_buffer **out);
mica_status mica__load_copy(mica__load *load, const mica__place *place, mica_buffer **out);
mica_status mica__load_pack(mica__load *load, const mica__place *place, mica_buffer **out);

/* For the three of them. One part, imported from the map without reading it. */
mica_status mica__load_import_part(mica__load *load, const mica__place *place, uint32_t part,
                                   mica_buffer **out);
/* Bytes [offset, offset + bytes) of a part, read from the file into `buffer` from `at` on. At most a piece. */
mica_status mica__load_read(mica__load *load, const mica__tensor *part, uint64_t offset, uint64_t bytes,
                            mica_buffer *buffer, uint64_t at);
/* To be called for a new buffer before it is filled. */
void mica__load_prepare(const mica__load *load, mica_buffer *buffer);
/* Bytes [offset, offset + bytes) of a buffer's view locked, if the weights were opened so. */
mica_status mica__load_lock(const mica__load *load, mica_buffer *buffer, uint64_t offset, uint64_t bytes);
/* The parts as one weight with one reference; the references of the parts stay the caller's. */
mica_status mica__load_join(const mica__place *place, mica_buffer *const *part, mica_buffer **out);

#endif
