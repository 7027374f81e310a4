/*
 * config_map.h - GGUF's metadata out of config.json. The table is config.def, the way back config_back.h. Knows the families by
 * their architecture alone; reads and writes no file.
 */
#ifndef MICA_FORMAT_CONFIG_CONFIG_MAP_H
#define MICA_FORMAT_CONFIG_CONFIG_MAP_H

#include "base/json/json.h"
#include "format/config/family.h"
#include "format/config/keys.h"
#include "format/convert/target.h"

/* A config.json on its way. */
typedef struct mica__config {
    mica__target *target;
    const mica__json *json;
    const mica__name_family *family;
    const char *key_class; /* of keys.def */
} mica__config;

/* A member of config.json, or of its text_config where models of several kinds keep it; NULL if it is not there or null. */
const mica__json_node *mica__config_get(const mica__json *json, const char *key);
/* Whether it is there, null or not. */
bool mica__config_has(const mica__json *json, const char *key);
/* What the class has where config.json does not have the key; "" where it has it or there is nothing. */
const char *mica__config_default(const mica__config *c, const char *key);
/* A member whose row says that it is read, NULL where it is null or not there; members of other rows are NULL too. */
const mica__json_node *mica__config_read(const mica__config *c, const char *key);
/* A key that is read, or its default (false, 0). MALFORMED_FILE if it is of another kind or below `least`. */
mica_status mica__config_bool(const mica__config *c, const char *key, bool *out);
mica_status mica__config_u32(const mica__config *c, const char *key, uint32_t least, uint32_t *out);
/* Which layers have a sliding window, and how wide it is: window_map.c. Needs block_count. */
mica_status mica__window_to_gguf(const mica__config *c);
/* Sets what config.json says of the model. MALFORMED_FILE names a key that is missing or of the wrong kind,
 * UNSUPPORTED one that is not known or whose value is not. */
mica_status mica__config_to_gguf(mica__target *target, const mica__json *json,
                                 const mica__name_family *family);
/* Rotary scaling: its keys, and the tensors of factors that GGUF has for Llama 3 and Phi-3. */
mica_status mica__rope_to_gguf(mica__target *target, const mica__json *json, const mica__name_family *family);

#endif
