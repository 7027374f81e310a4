/* checks.c - what every backend asks of its callers. */
#include "backend/checks.h"

#include "base/status.h"

mica_status mica__check_range(const mica__memory *memory, uint64_t offset, uint64_t bytes)
{
    if (offset <= memory->bytes && bytes <= memory->bytes - offset)
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "offset: %llu + %llu bytes, expected at most %llu in all",
                      (unsigned long long)offset, (unsigned long long)bytes,
                      (unsigned long long)memory->bytes);
}

mica_status mica__refuse_binding(uint32_t index, const mica__binding *binding)
{
    return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                      "binding %u: %llu bytes at %llu, expected to end within %llu", index,
                      (unsigned long long)binding->length, (unsigned long long)binding->offset,
                      (unsigned long long)binding->memory->bytes);
}

mica_status mica__check_copy(const mica__dispatch *dispatch)
{
    const mica__binding *from = dispatch->bindings, *to = from + 1;
    if (dispatch->binding_count != 2 || from->memory == NULL || to->memory == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "copy: expected two bindings that are there");
    if (from->length != to->length)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "copy: from %llu bytes to %llu, expected equal lengths",
                          (unsigned long long)from->length, (unsigned long long)to->length);
    const mica_status status = mica__check_binding(0, from);
    return status == MICA_OK ? mica__check_binding(1, to) : status;
}

mica_status mica__check_index(const char *what, uint32_t index, uint32_t count)
{
    if (index < count)
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %u, expected less than %u", what, index, count);
}

mica_status mica__check_value(uint64_t value, uint64_t submitted)
{
    if (value <= submitted)
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "value: %llu, expected at most %llu, the last submission",
                      (unsigned long long)value, (unsigned long long)submitted);
}
