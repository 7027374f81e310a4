/*
 * stage.c - how a pass moves from one device to another: through the host, in the open.
 */
#include "base/status.h"
#include "device/objects.h"
#include "mica/session.h"

static mica_status check_contiguous(const mica_buffer *buffer, const char *name, mica_buffer_info *out)
{
    mica_status status = mica_buffer_get_info(buffer, out);
    if (status == MICA_OK && !out->contiguous)
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "stage_copy: %s is not contiguous", name);
    return status;
}

static mica_status check_pair(const mica_buffer *from, const mica_buffer *to, uint64_t *out_bytes)
{
    mica_buffer_info source, target;
    mica_status status = check_contiguous(from, "from", &source);
    if (status == MICA_OK)
        status = check_contiguous(to, "to", &target);
    if (status != MICA_OK)
        return status;
    if (source.byte_length != target.byte_length)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "stage_copy: from has %llu bytes, to has %llu",
                          (unsigned long long)source.byte_length, (unsigned long long)target.byte_length);
    if (from->storage == to->storage && source.byte_offset < target.byte_offset + target.byte_length &&
        target.byte_offset < source.byte_offset + source.byte_length)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "stage_copy: from and to overlap");
    *out_bytes = source.byte_length;
    return MICA_OK;
}

mica_status mica_stage_copy(mica_fence *after, mica_buffer *from, mica_buffer *to)
{
    uint64_t bytes = 0;
    void *source = NULL;
    if (from == NULL || to == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "stage_copy: %s is NULL", from == NULL ? "from" : "to");
    mica_status status = check_pair(from, to, &bytes);
    if (status == MICA_OK && after != NULL)
        status = mica_fence_wait(after, MICA_WAIT_FOREVER);
    if (status == MICA_OK)
        status = mica_buffer_map(from, MICA_ACCESS_READ, &source);
    if (status != MICA_OK)
        return status;
    status = mica_buffer_write(to, 0, source, bytes);
    mica_status unmapped = mica_buffer_unmap(from);
    return status != MICA_OK ? status : unmapped;
}
