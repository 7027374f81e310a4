/* shards.h: model.safetensors.index.json, which says in which file each tensor of a model is. */
#ifndef MICA_FORMAT_SHARDS_H
#define MICA_FORMAT_SHARDS_H

#include "format/archive.h"

#define MICA__SHARDS_INDEX "model.safetensors.index.json"

typedef struct mica__shards mica__shards;

/* Parses an index; the file stays open as long as the shards. Names of files are plain: no folder, no dots that lead
 * out, the ending .safetensors. The caller releases *out. MALFORMED_FILE, OUT_OF_MEMORY. */
mica_status mica__shards_parse(const mica__file *index, mica__shards **out);
/* NULL is fine. */
void mica__shards_release(mica__shards *shards);

/* The files it names, each once, sorted. The text lives as long as the shards. */
uint32_t mica__shards_count(const mica__shards *shards);
const char *mica__shards_file(const mica__shards *shards, uint32_t index);

/* Whether each tensor of the index is in the file that it names; the archive's files are those of the index, in its
 * order. A tensor that the index does not have is fine: readers take whatever the files hold. MALFORMED_FILE. */
mica_status mica__shards_check(mica__shards *shards, const mica__archive *archive);

#endif
