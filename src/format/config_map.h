/*
 * config_map.h - GGUF's metadata out of config.json. The table is config.def, the way back config_back.h. Knows the families by
 * their architecture alone; reads and writes no file.
 */
#ifndef MICA_FORMAT_CONFIG_MAP_H
#define MICA_FORMAT_CONFIG_MAP_H

#include "base/json.h"
#include "format/family.h"
#include "format/plan.h"

/* A member of config.json, or of its text_config where models of several kinds keep it; NULL if it is not there or null. */
const mica__json_node *mica__config_get(const mica__json *json, const char *key);
/* Sets what config.json says of the model. MALFORMED_FILE names a key that is missing or of the wrong kind. */
mica_status mica__config_to_gguf(mica__plan *plan, const mica__json *json, const mica__family *family);
/* Rotary scaling: its keys, and the tensors of factors that GGUF has for Llama 3 and Phi-3. */
mica_status mica__rope_to_gguf(mica__plan *plan, const mica__json *json, const mica__family *family);

#endif
