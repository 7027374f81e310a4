/* safetensors_types.c - the types of the format: their words, their sizes, and what they are here. */
#include "format/safetensors.h"

#include <string.h>

static const mica__safetensors_type types[] = {
    {"BOOL", MICA_DTYPE_BOOL, 8},
    {"F4", MICA_DTYPE_NONE, 4},
    {"F6_E2M3", MICA_DTYPE_NONE, 6},
    {"F6_E3M2", MICA_DTYPE_NONE, 6},
    {"U8", MICA_DTYPE_U8, 8},
    {"I8", MICA_DTYPE_I8, 8},
    {"F8_E5M2", MICA_DTYPE_F8_E5M2, 8},
    {"F8_E4M3", MICA_DTYPE_F8_E4M3, 8},
    {"F8_E8M0", MICA_DTYPE_E8M0, 8},
    {"F8_E4M3FNUZ", MICA_DTYPE_NONE, 8},
    {"F8_E5M2FNUZ", MICA_DTYPE_NONE, 8},
    {"I16", MICA_DTYPE_I16, 16},
    {"U16", MICA_DTYPE_U16, 16},
    {"F16", MICA_DTYPE_F16, 16},
    {"BF16", MICA_DTYPE_BF16, 16},
    {"I32", MICA_DTYPE_I32, 32},
    {"U32", MICA_DTYPE_U32, 32},
    {"F32", MICA_DTYPE_F32, 32},
    {"C64", MICA_DTYPE_C64, 64},
    {"F64", MICA_DTYPE_F64, 64},
    {"I64", MICA_DTYPE_I64, 64},
    {"U64", MICA_DTYPE_U64, 64},
};

#define TYPE_COUNT (sizeof types / sizeof types[0])

const mica__safetensors_type *mica__safetensors_type_named(const char *name, size_t length)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (strncmp(types[i].name, name, length) == 0 && types[i].name[length] == '\0')
            return &types[i];
    return NULL;
}

const mica__safetensors_type *mica__safetensors_type_of(uint16_t dtype)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype && dtype != MICA_DTYPE_NONE)
            return &types[i];
    return NULL;
}
