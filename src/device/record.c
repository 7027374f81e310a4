/* record.c - records with storage of their own: one block each, holding references on what they name. */
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "device/custom.h"
#include "device/encoder.h"

static size_t round_up(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

/* Header, operands, params, label in one block. */
static mica__record *new_block(uint32_t operand_count, uint32_t params_size, size_t label_bytes)
{
    size_t head = round_up(sizeof(mica__record)), operands = round_up(operand_count * sizeof(mica__operand));
    size_t params = round_up(params_size);
    unsigned char *block = mica__calloc(1, head + operands + params + label_bytes + 1);
    if (block == NULL)
        return NULL;
    mica__record *record = (mica__record *)(void *)block;
    record->operand = (mica__operand *)(void *)(block + head);
    record->params = block + head + operands;
    record->label = (char *)block + head + operands + params;
    record->fused = "";
    record->operand_count = (uint16_t)operand_count;
    record->params_size = (uint16_t)params_size;
    return record;
}

mica_status mica__record_create(uint16_t op, uint32_t operand_count, uint32_t params_size, mica__record **out)
{
    *out = new_block(operand_count, params_size, 0);
    if (*out == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a %s record",
                          mica_op_name((mica_op)op));
    (*out)->op = op;
    return MICA_OK;
}

void mica__record_hold(mica__record *record)
{
    for (uint32_t i = 0; i < record->operand_count; i++)
        if (record->operand[i].storage != NULL)
            mica__storage_retain(record->operand[i].storage);
    if (record->op == MICA_OP_CUSTOM)
        mica__custom_hold(record->params);
}

void mica__record_free(mica__record *record)
{
    if (record == NULL)
        return;
    for (uint32_t i = 0; i < record->operand_count; i++)
        mica__storage_release(record->operand[i].storage);
    if (record->op == MICA_OP_CUSTOM)
        mica__custom_drop(record->params);
    mica__free(record);
}

mica_status mica__record_list_add(mica__record_list *list, const mica__record *record)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity * 2 + 64;
        mica__record **grown = mica__realloc(list->record, capacity * sizeof *grown);
        if (grown == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for %u records", capacity);
        list->record = grown;
        list->capacity = capacity;
    }
    size_t label_bytes = strlen(record->label);
    mica__record *copy = new_block(record->operand_count, record->params_size, label_bytes);
    if (copy == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for a %s record",
                          mica_op_name((mica_op)record->op));
    copy->op = record->op;
    copy->barrier_before = record->barrier_before;
    copy->original_index = record->original_index;
    copy->fused = record->fused;
    memcpy(copy->operand, record->operand, record->operand_count * sizeof *record->operand);
    memcpy(copy->params, record->params, record->params_size);
    memcpy((char *)copy->label, record->label, label_bytes);
    mica__record_hold(copy);
    list->record[list->count++] = copy;
    return MICA_OK;
}

void mica__record_list_free(mica__record_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        mica__record_free(list->record[i]);
    mica__free(list->record);
    memset(list, 0, sizeof *list);
}
