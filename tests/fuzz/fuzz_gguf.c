/* fuzz_gguf.c: any bytes as one GGUF file. What opens keeps the promises of archive.h, and every byte of it can be
 * read; what does not leaves nothing behind. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/archive.h"
#include "mica/host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

static uint64_t sum_bytes(const void *bytes, uint64_t size)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < size; i++)
        sum += ((const uint8_t *)bytes)[i];
    return sum;
}

/* Depth is limited by the reader, so recursion is fine here. */
static uint64_t sum_value(const mica_value *value, int depth)
{
    static const uint8_t sizes[MICA_VALUE_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t sum = 0;
    require((uint32_t)value->type < MICA_VALUE_TYPE_COUNT && depth <= 8);
    if (value->type == MICA_VALUE_STRING)
        return sum_bytes(value->as.string.data, value->as.string.length + 1);
    if (value->type != MICA_VALUE_ARRAY)
        return 0;
    for (uint64_t i = 0; i < value->count; i++) {
        if (value->item_type == MICA_VALUE_ARRAY)
            sum += sum_value((const mica_value *)value->as.items + i, depth + 1);
        if (value->item_type == MICA_VALUE_STRING)
            sum += sum_bytes(((const mica_string *)value->as.items)[i].data,
                             ((const mica_string *)value->as.items)[i].length + 1);
    }
    return sum + sum_bytes(value->as.items, value->count * sizes[value->item_type]);
}

static void check_tensor(const mica__archive *archive, uint32_t index)
{
    const mica__tensor *tensor = &archive->tensor[index];
    const uint64_t file_size = mica__file_size(archive->file[0]);
    uint8_t byte;
    float values[256];
    require(tensor->offset <= file_size && tensor->bytes <= file_size - tensor->offset);
    require(tensor->name[tensor->name_length] == 0 && strlen(tensor->name) == tensor->name_length);
    require(mica__archive_find(archive, tensor->name, tensor->name_length) == index);
    if (mica__archive_usable(archive, tensor) != MICA_OK)
        return;
    if (tensor->bytes != 0)
        require(mica__archive_read(archive, tensor, tensor->bytes - 1, &byte, 1) == MICA_OK);
    if (tensor->ndim == 1 && tensor->shape[0] <= 256)
        (void)mica__archive_decode_rows(archive, tensor, 0, 1, values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mica__archive *archive = NULL;
    mica__file *file = NULL;
    uint64_t sum = 0;
    require(mica__archive_create(&archive) == MICA_OK);
    require(mica__file_from_bytes("fuzz.gguf", data, size, &file) == MICA_OK);
    require(mica__archive_add_file(archive, file) == MICA_OK);
    const mica_status status = mica__gguf_read(archive);
    if (status == MICA_OK) {
        for (uint32_t i = 0; i < archive->meta_count; i++)
            sum += sum_value(&archive->meta[i].value, 1);
        require(sum != UINT64_MAX); /* so that the reading is not optimised away */
        for (uint32_t i = 0; i < archive->visible_count; i++)
            check_tensor(archive, i);
        (void)mica__archive_not_found(archive, "blk.0.attn_q.weight");
    } else {
        require(status == MICA_ERR_MALFORMED_FILE || status == MICA_ERR_UNSUPPORTED ||
                status == MICA_ERR_BUDGET);
        require(mica_status_message()[0] != '\0');
    }
    mica__archive_close(archive);
    require(mica_host_bytes() == 0);
    return 0;
}
