/*
 * config_map.h - config.json and GGUF's metadata, one out of the other. The table is config.def. Knows the families by
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
/* The other way: writes rope_scaling where the GGUF has any. *out_factors says whether it stands for the tensors of
 * factors, which then need no place of their own. */
mica_status mica__rope_from_gguf(mica__plan *plan, const mica__family *family, mica__json_writer *json,
                                 bool *out_factors);
/* A number of f32 with as few digits as read back to it: 1e-05, not 9.9999997e-06. */
double mica__config_shortest(double number);
/* Writes a member that is a number; values of other kinds are left out. */
void mica__config_put(mica__json_writer *json, const char *key, const mica_value *value);
/* The text of a config.json for what the GGUF `archive` says; *out_text is the plan's memory;
 * out_factors as in mica__rope_from_gguf. */
mica_status mica__config_from_gguf(mica__plan *plan, const mica__family *family, const char **out_text,
                                   bool *out_factors);

#endif
