/*
 * shape.c - sizes that may be symbols: broadcasting, counting, and words for sentences.
 */
#include <stdio.h>
#include <string.h>

#include "graph/ir.h"

/* The size that both are, or become; false where they cannot. */
static bool join(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a == b || b == 1)
        *out = a;
    else if (a == 1)
        *out = b;
    else if (mica__size_known(a) && mica__size_known(b))
        return false;
    else if (mica__size_known(a) || mica__size_known(b)) /* what is not known is this, or 1 */
        *out = mica__size_known(a) ? a : b;
    else
        *out = MICA_SIZE_UNKNOWN;
    return true;
}

bool mica__broadcast(uint32_t *ndim, uint64_t *shape, uint32_t other_ndim, const uint64_t *other)
{
    const uint32_t most = *ndim > other_ndim ? *ndim : other_ndim;
    uint64_t joined[MICA_MAX_DIMS] = {0};
    for (uint32_t i = 0; i < most; i++) { /* from the last dimension on */
        const uint64_t a = i < *ndim ? shape[*ndim - 1 - i] : 1;
        const uint64_t b = i < other_ndim ? other[other_ndim - 1 - i] : 1;
        if (!join(a, b, &joined[most - 1 - i]))
            return false;
    }
    memcpy(shape, joined, most * sizeof *shape);
    *ndim = most;
    return true;
}

mica_operand_desc mica__type_desc(const mica__type *type)
{
    mica_operand_desc desc = {.dtype = type->dtype,
                              .ndim = type->ndim,
                              .group_size = type->group_size,
                              .scale_dtype = type->scale_dtype};
    memcpy(desc.shape, type->shape, sizeof desc.shape);
    return desc;
}

uint64_t mica__type_elements(const mica__type *type)
{
    uint64_t elements = 1;
    for (uint32_t d = 0; d < type->ndim; d++)
        if (!mica__size_known(type->shape[d]))
            return MICA_SIZE_UNKNOWN;
    for (uint32_t d = 0; d < type->ndim; d++)
        elements *= type->shape[d];
    return elements;
}

uint64_t mica__type_bytes(const mica__type *type)
{
    const uint64_t elements = mica__type_elements(type);
    return elements / mica_dtype_block_elements(type->dtype) * mica_dtype_block_bytes(type->dtype);
}

const char *mica__shape_words(const mica_graph *graph, uint32_t ndim, const uint64_t *shape, char out[160])
{
    size_t at = (size_t)snprintf(out, 160, "[");
    for (uint32_t d = 0; d < ndim && at < 130; d++) {
        const char *name = mica_graph_symbol_name(graph, shape[d]);
        if (name != NULL)
            at += (size_t)snprintf(out + at, 160 - at, "%s%.20s", d == 0 ? "" : ", ", name);
        else
            at += (size_t)snprintf(out + at, 160 - at, "%s%llu", d == 0 ? "" : ", ",
                                   (unsigned long long)shape[d]);
    }
    if (at < 158)
        snprintf(out + at, 160 - at, "]");
    return out;
}
