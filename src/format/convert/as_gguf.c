/*
 * as_gguf.c - a checkpoint seen as the GGUF it would become: its names, metadata and tokenizer, so that whoever runs models
 * knows one convention. Tensors stay where they are in their files, but for the few that GGUF has in another form (norms
 * with one added, transposed matrices, experts stacked): those are made here, in the archive's memory.
 *
 * Two things are left as the checkpoint has them, since changing them would copy the weights: the types, and the order of
 * the rows of rotary heads, of which MICA__ROPE_HALVES tells.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/work.h"
#include "format/convert/convert.h"
#include "format/convert/piece.h"

static bool stays(const mica__target_tensor *tensor)
{
    return tensor->source_count == 1 && tensor->transform == MICA__TRANSFORM_NONE &&
           tensor->constant == NULL && tensor->dtype == (mica_dtype)tensor->source[0]->dtype;
}

static uint64_t made_bytes(const mica__target_tensor *tensor)
{
    return tensor->rows * tensor->row / mica_dtype_block_elements(tensor->dtype) *
           mica_dtype_block_bytes(tensor->dtype);
}

#define MADE_ALIGN 64u

/* Makes all tensors of `target`, one behind the other, each at a multiple of MADE_ALIGN. */
static mica_status make_all(const mica__target *target, uint8_t *out)
{
    mica__piece_sizes sizes;
    mica__piece_cursor cursor = {0};
    mica__piece piece;
    const mica__target_tensor *last = NULL;
    uint64_t begin = 0, at = 0;
    mica_status status = mica__piece_measure(target, &sizes);
    if (status != MICA_OK)
        return status;
    mica__piece_room room = {mica__alloc((size_t)sizes.raw + 1), mica__alloc((size_t)(sizes.values + 1) * 4)};
    if (room.raw == NULL || room.values == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to rewrite tensors");
    while (status == MICA_OK && mica__piece_next(target, &cursor, &piece)) {
        if (last != NULL && piece.tensor != last) {
            begin += (made_bytes(last) + MADE_ALIGN - 1) / MADE_ALIGN * MADE_ALIGN;
            at = begin;
        }
        last = piece.tensor;
        status = mica__spend(0); /* cancelled? */
        if (status == MICA_OK)
            status = mica__piece_make(target->archive, &piece, &room, out + at);
        at += piece.bytes_out;
    }
    mica__free(room.raw);
    mica__free(room.values);
    return status;
}

/* The tensors of `made` as a file of memory. */
static mica_status add_made(mica__archive *archive, const mica__target *made)
{
    uint64_t total = 0;
    mica__file *file = NULL;
    for (uint32_t i = 0; i < made->tensor_count; i++)
        if (!mica__add_u64(total, made_bytes(&made->tensor[i]) + MADE_ALIGN, &total))
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "the rewritten tensors are too large");
    uint8_t *bytes = mica__archive_alloc(archive, (size_t)total + MADE_ALIGN);
    if (bytes == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    bytes += MADE_ALIGN - (uintptr_t)bytes % MADE_ALIGN;
    mica_status status = make_all(made, bytes);
    if (status == MICA_OK)
        status = mica__file_from_bytes("rewritten tensors", bytes, total, &file);
    if (status == MICA_OK)
        status = mica__archive_add_file(archive, file);
    if (status == MICA_OK)
        archive->made_file = archive->file_count;
    return status;
}

static void describe_made(mica__archive *archive, const mica__target_tensor *from, uint64_t offset,
                          mica__tensor *out)
{
    *out = (mica__tensor){.name = from->name,
                          .name_length = (uint32_t)strlen(from->name),
                          .dtype = (uint16_t)from->dtype,
                          .ndim = (uint8_t)from->ndim,
                          .offset = offset,
                          .bytes = made_bytes(from),
                          .file = archive->file_count - 1,
                          .scales = MICA__NO_TENSOR,
                          .biases = MICA__NO_TENSOR,
                          .type_name = mica_dtype_name(from->dtype)};
    memcpy(out->shape, from->shape, sizeof out->shape);
}

/* The archive's tensors become those of the target, with the hidden ones behind them as before. */
static mica_status replace_tensors(mica__archive *archive, const mica__target *target)
{
    const uint32_t hidden = archive->tensor_count - archive->visible_count, visible = target->tensor_count;
    mica__tensor *list = mica__archive_alloc(archive, ((size_t)visible + hidden + 1) * sizeof *list);
    uint64_t offset = 0;
    if (list == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < visible; i++) {
        const mica__target_tensor *from = &target->tensor[i];
        if (stays(from)) {
            list[i] = *from->source[0];
            list[i].name = from->name;
            list[i].name_length = (uint32_t)strlen(from->name);
            if (list[i].scales != MICA__NO_TENSOR)
                list[i].scales += visible - archive->visible_count;
            if (list[i].biases != MICA__NO_TENSOR)
                list[i].biases += visible - archive->visible_count;
        } else {
            describe_made(archive, from, offset, &list[i]);
            offset += (list[i].bytes + MADE_ALIGN - 1) / MADE_ALIGN * MADE_ALIGN;
        }
    }
    if (hidden != 0)
        memcpy(list + visible, archive->tensor + archive->visible_count, hidden * sizeof *list);
    archive->tensor = list;
    archive->visible_count = visible;
    archive->tensor_count = visible + hidden;
    return mica__archive_index(archive);
}

/* Where the values of a tensor that is made come from must be readable; its type may be coarser than what is needed. */
static mica_status split_made(const mica__target *target, mica__target *made)
{
    mica_status status = MICA_OK;
    made->archive = target->archive;
    for (uint32_t i = 0; i < target->tensor_count && status == MICA_OK; i++)
        if (!stays(&target->tensor[i]))
            status = mica__target_add(made, &target->tensor[i]);
    return status == MICA_OK ? mica__target_check(made) : status;
}

mica_status mica__archive_as_gguf(mica__archive *archive, const char *path, const mica__accepted *accepted)
{
    mica__target target = {.archive = archive, .accepted = *accepted}, made = {0};
    if (archive->format != MICA_FORMAT_SAFETENSORS && archive->format != MICA_FORMAT_MLX)
        return MICA_OK;
    mica_status status = mica__convert_to_gguf(&target, path, true);
    if (status == MICA_OK)
        status = mica__tokenizer_carry(&target, path, true);
    if (status == MICA_OK)
        status = split_made(&target, &made);
    if (status == MICA_OK && made.tensor_count != 0)
        status = add_made(archive, &made);
    if (status == MICA_OK)
        status = replace_tensors(archive, &target);
    mica__meta *meta = NULL;
    if (status == MICA_OK) {
        meta = mica__archive_alloc(archive, ((size_t)target.meta_count + 1) * sizeof *meta);
        status = meta == NULL ? MICA_ERR_OUT_OF_MEMORY : MICA_OK;
    }
    if (meta != NULL) {
        memcpy(meta, target.meta, target.meta_count * sizeof *meta);
        archive->meta = meta;
        archive->meta_count = target.meta_count;
    }
    mica__chunks_join(&archive->chunks, &target.chunks); /* names and values live there */
    mica__target_free(&target);
    mica__target_free(&made);
    return status;
}
