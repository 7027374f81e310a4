/* value.h: metadata values as numbers, for who reads them in a file (format) and who reads them in weights (model). */
#ifndef MICA_BASE_VALUE_H
#define MICA_BASE_VALUE_H

#include <stdbool.h>

#include "mica/format.h"

/* A number or a truth as a double; false for texts and arrays, and then *out is left alone. */
static inline bool mica__value_number(const mica_value *value, double *out)
{
    switch (value->type) {
    case MICA_VALUE_U8:
    case MICA_VALUE_U16:
    case MICA_VALUE_U32:
    case MICA_VALUE_U64:
    case MICA_VALUE_BOOL: *out = (double)value->as.u; return true;
    case MICA_VALUE_I8:
    case MICA_VALUE_I16:
    case MICA_VALUE_I32:
    case MICA_VALUE_I64: *out = (double)value->as.i; return true;
    case MICA_VALUE_F32:
    case MICA_VALUE_F64: *out = value->as.f; return true;
    default: return false;
    }
}

#endif
