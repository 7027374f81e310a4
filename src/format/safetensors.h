/* safetensors.h: the words of the format that its reader and its writer share. Knows no file. */
#ifndef MICA_FORMAT_SAFETENSORS_H
#define MICA_FORMAT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "mica/types.h"

#define MICA__SAFETENSORS_MAX_HEADER 100000000u /* bytes; the format's own limit */
#define MICA__SAFETENSORS_METADATA "__metadata__"

typedef struct mica__safetensors_type {
    const char *name;
    uint16_t dtype; /* mica_dtype; NONE: its size is known and nothing else */
    uint16_t bits;  /* of one element */
} mica__safetensors_type;

/* The type of that name, NULL if there is none. */
const mica__safetensors_type *mica__safetensors_type_named(const char *name, size_t length);
/* The type that holds a dtype, NULL if none does. */
const mica__safetensors_type *mica__safetensors_type_of(uint16_t dtype);

#endif
