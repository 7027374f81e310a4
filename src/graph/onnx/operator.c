/*
 * operator.c - what an operator reads of its node: inputs, attributes; and what it gives.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/work.h"
#include "graph/onnx/importer.h"

mica_status mica__ox_fail(const mica__ox_op *o, const char *format, ...)
{
    char sentence[400];
    va_list arguments;
    (void)o;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s", sentence);
}

/* ---- inputs --------------------------------------------------------------------------------------------- */

bool mica__ox_has(const mica__ox_op *o, uint32_t i)
{
    return i < o->input_count && o->node->input[i][0] != '\0';
}

mica_tensor mica__ox_in(mica__ox_op *o, uint32_t i)
{
    return mica__ox_has(o, i) ? mica__ox_materialise(o->graph, &o->in[i]) : 0;
}

mica__type mica__ox_type(const mica__ox_op *o, mica_tensor tensor)
{
    static const mica__type absent = {.ndim = 0};
    return tensor == 0 ? absent : *mica__type_of(o->graph, tensor);
}

mica__type mica__ox_in_type(mica__ox_op *o, uint32_t i)
{
    mica__type type = {.ndim = 0};
    if (!mica__ox_has(o, i))
        return type;
    const mica__ox_host *host = o->in[i].host;
    if (host == NULL)
        return mica__ox_type(o, o->in[i].tensor);
    type.dtype = host->dtype;
    type.ndim = host->ndim;
    memcpy(type.shape, host->shape, sizeof type.shape);
    return type;
}

const mica__ox_host *mica__ox_known(const mica__ox_op *o, uint32_t i)
{
    return mica__ox_has(o, i) ? o->in[i].host : NULL;
}

mica_status mica__ox_need(const mica__ox_op *o, uint32_t i, const mica__ox_host **out)
{
    *out = mica__ox_known(o, i);
    if (!mica__ox_has(o, i))
        return mica__ox_fail(o, "input %u is absent", i);
    return *out != NULL
               ? MICA_OK
               : mica__ox_fail(o, "input \"%.100s\" must be known while importing", o->node->input[i]);
}

mica_status mica__ox_need_ints(const mica__ox_op *o, uint32_t i, int64_t **out, uint32_t *out_count)
{
    const mica__ox_host *host = NULL;
    *out = NULL;
    *out_count = 0;
    MICA__TRY(mica__ox_need(o, i, &host));
    if (host->elements > 1u << 20 || host->dtype == MICA_DTYPE_F32)
        return mica__ox_fail(o, "input %u is no list of at most 2^20 integers", i);
    MICA__TRY(mica__spend(host->elements));
    *out = mica__ox_memory(o->im, host->elements, sizeof **out);
    if (*out == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    *out_count = (uint32_t)host->elements;
    for (uint32_t k = 0; k < *out_count; k++)
        (*out)[k] = mica__ox_host_int(host, k);
    return MICA_OK;
}

mica_status mica__ox_need_int(const mica__ox_op *o, uint32_t i, int64_t *out)
{
    const mica__ox_host *host = NULL;
    *out = 0;
    MICA__TRY(mica__ox_need(o, i, &host));
    if (host->elements != 1)
        return mica__ox_fail(o, "input %u has %llu elements, not one", i, (unsigned long long)host->elements);
    *out = mica__ox_host_int(host, 0);
    return MICA_OK;
}

mica_status mica__ox_need_number(const mica__ox_op *o, uint32_t i, double *out)
{
    const mica__ox_host *host = NULL;
    *out = 0;
    MICA__TRY(mica__ox_need(o, i, &host));
    if (host->elements != 1)
        return mica__ox_fail(o, "input %u has %llu elements, not one", i, (unsigned long long)host->elements);
    *out = mica__ox_host_number(host, 0);
    return MICA_OK;
}

mica_status mica__ox_need_shape(const mica__ox_op *o, mica_tensor tensor, const char *what)
{
    const mica__type type = mica__ox_type(o, tensor);
    for (uint32_t d = 0; d < type.ndim; d++)
        if (!mica__size_known(type.shape[d]))
            return mica__ox_fail(
                o, "size %u of %s must be known while importing: give the shapes of the inputs", d, what);
    return MICA_OK;
}

/* ---- outputs -------------------------------------------------------------------------------------------- */

bool mica__ox_wants(const mica__ox_op *o, uint32_t i)
{
    return i < o->output_count && o->node->output[i][0] != '\0';
}

void mica__ox_out(mica__ox_op *o, uint32_t i, mica_tensor tensor)
{
    if (i < o->output_count)
        o->out[i].tensor = tensor;
}

mica_status mica__ox_out_host(mica__ox_op *o, uint32_t i, mica_dtype dtype, uint32_t ndim,
                              const uint64_t *shape, const void *data)
{
    mica__ox_host *host = mica__ox_memory(o->im, 1, sizeof *host);
    if (host == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    *host = (mica__ox_host){.dtype = dtype, .ndim = ndim, .elements = 1};
    for (uint32_t d = 0; d < ndim; d++) {
        host->shape[d] = shape[d];
        host->elements *= shape[d];
    }
    host->bytes = host->elements * mica_dtype_block_bytes(dtype);
    void *copy = mica__ox_memory(o->im, host->bytes, 1);
    if (copy == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (host->bytes != 0)
        memcpy(copy, data, (size_t)host->bytes);
    host->data = copy;
    if (i < o->output_count)
        o->out[i] = (mica__ox_value){.host = host};
    return mica__spend(host->elements);
}

/* ---- attributes ----------------------------------------------------------------------------------------- */

static const mica__onnx_attribute *find(const mica__onnx_attribute *list, uint32_t count, const char *name,
                                        uint32_t *at)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) {
            *at = i;
            return &list[i];
        }
    return NULL;
}

/* What an attribute of a function's node stands for, which is with the function's caller, or theirs. */
static const mica__onnx_attribute *resolve(const mica__ox_scope *scope, const mica__onnx_attribute *a)
{
    for (uint32_t depth = 0; a != NULL && a->refers[0] != '\0' && depth < MICA__OX_DEPTH; depth++) {
        uint32_t at = 0;
        while (scope != NULL && scope->function == NULL)
            scope = scope->outer;
        if (scope == NULL)
            return NULL;
        const char *name = a->refers;
        a = find(scope->call->attribute, scope->call->attribute_count, name, &at);
        if (a == NULL)
            return find(scope->function->by_default, scope->function->default_count, name, &at);
        scope = scope->caller;
    }
    return a;
}

const mica__onnx_attribute *mica__ox_attribute(mica__ox_op *o, const char *name, mica__onnx_kind kind)
{
    uint32_t at = 0;
    const mica__onnx_attribute *a = find(o->node->attribute, o->node->attribute_count, name, &at);
    if (a == NULL)
        return NULL;
    a = resolve(o->scope, a);
    if (a != NULL && a->kind != kind)
        return NULL; /* not seen, and so refused */
    if (at < 64)
        o->seen |= 1ull << at;
    return a;
}

int64_t mica__ox_int(mica__ox_op *o, const char *name, int64_t otherwise)
{
    const mica__onnx_attribute *a = mica__ox_attribute(o, name, MICA__ONNX_KIND_INT);
    return a == NULL ? otherwise : a->i;
}

float mica__ox_float(mica__ox_op *o, const char *name, float otherwise)
{
    const mica__onnx_attribute *a = mica__ox_attribute(o, name, MICA__ONNX_KIND_FLOAT);
    return a == NULL ? otherwise : a->f;
}

uint32_t mica__ox_word(mica__ox_op *o, const char *name, uint32_t otherwise, const char *const *words)
{
    const mica__onnx_attribute *a = mica__ox_attribute(o, name, MICA__ONNX_KIND_STRING);
    if (a == NULL)
        return otherwise;
    for (uint32_t i = 0; words[i] != NULL; i++)
        if (strlen(words[i]) == a->s.length && memcmp(words[i], a->s.data, (size_t)a->s.length) == 0)
            return i;
    return UINT32_MAX;
}

const int64_t *mica__ox_ints(mica__ox_op *o, const char *name, uint32_t *out_count)
{
    const mica__onnx_attribute *a = mica__ox_attribute(o, name, MICA__ONNX_KIND_INTS);
    *out_count = a == NULL ? 0 : a->count;
    return a == NULL ? NULL : a->ints;
}

mica_status mica__ox_axis(const mica__ox_op *o, int64_t axis, uint32_t ndim, uint32_t *out)
{
    *out = 0;
    if (axis < -(int64_t)ndim || axis >= (int64_t)ndim)
        return mica__ox_fail(o, "axis %lld of %u dimensions", (long long)axis, ndim);
    *out = (uint32_t)(axis < 0 ? axis + ndim : axis);
    return MICA_OK;
}

mica_dtype mica__ox_dtype(const mica__ox_op *o, int64_t onnx_type)
{
    const mica__onnx_type_info *info = mica__onnx_type_get((uint64_t)onnx_type);
    if (info == NULL || info->dtype == MICA_DTYPE_NONE) {
        (void)mica__ox_fail(o, "type %s", info == NULL ? "that is not known" : info->name);
        return MICA_DTYPE_NONE;
    }
    return info->dtype;
}
