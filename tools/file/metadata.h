/* metadata.h - metadata values of a model file as text, as JSON, and compared. */
#ifndef TOOL_FILE_METADATA_H
#define TOOL_FILE_METADATA_H

#include "mica/mica.h"
#include "terminal/output.h"

/* One line; long lists become "[151936 strings]" and long texts end in "...". */
void tool_value_print(const mica_value *value);
/* The value in full under `key`, with its type: {"type": "u32", "value": 1}. */
void tool_value_json(tool_json *json, const char *key, const mica_value *value);
int tool_value_equal(const mica_value *a, const mica_value *b);
/* Item `index` of an array as a value of its own. */
mica_value tool_value_item(const mica_value *array, uint64_t index);
/* 1 and the number if the value is one that is whole and not negative. */
int tool_value_uint(const mica_value *value, uint64_t *out_number);

/* "4096 x 14336"; "scalar" without dimensions. */
#define TOOL_SHAPE_BYTES (MICA_MAX_DIMS * 23 + 1) /* 20 digits and " x " each */
const char *tool_shape_text(const mica_tensor_info *tensor, char out[TOOL_SHAPE_BYTES]);
/* "q4_k"; of MLX weights with the group, "affine4/64"; of an unknown type the file's own word. */
#define TOOL_TYPE_BYTES 48
const char *tool_type_text(const mica_tensor_info *tensor, char out[TOOL_TYPE_BYTES]);
/* Values in a tensor; the largest number if they cannot be counted. */
uint64_t tool_tensor_values(const mica_tensor_info *tensor);

#endif
