/* far.c - one buffer that grows with the blocks of its commands. */
#include "backend/far.h"

#include <string.h>

#include "base/alloc.h"

uint64_t mica__far_put(mica__far *far, mica__latch *latch, const void *params, uint32_t bytes)
{
    uint64_t place = 0;
    void *block = mica__blob_take(&far->blob, latch, bytes, &place);
    if (block != NULL)
        memcpy(block, params, bytes);
    return block != NULL ? place : 0;
}

mica_status mica__far_send(mica__far *far, mica__device *device, const mica__far_calls *calls)
{
    mica_status status = MICA_OK;
    if (far->blob.used == 0)
        return status;
    if (far->memory == NULL || far->memory->bytes < far->blob.used) {
        calls->destroy(device, far->memory);
        far->memory = NULL;
        status = calls->create(device, far->blob.capacity, &far->memory);
    }
    if (status == MICA_OK)
        status = calls->upload(device, far->memory, 0, far->blob.bytes, far->blob.used);
    return status;
}

void mica__far_free(mica__far *far, mica__device *device, const mica__far_calls *calls)
{
    calls->destroy(device, far->memory);
    mica__free(far->blob.bytes);
}
