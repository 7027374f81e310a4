/*
 * state.c - a sequence as a file: its tokens, and for each layer the keys and values that later tokens can still see.
 *
 * The file is safetensors: "tokens" u32 [length], and "k.N" and "v.N" as bytes [tokens, bytes of a token]; of layers with a
 * window only the tokens that are still held. Its metadata names the model and the types of the cache.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/context.h"

#define VERSION "3"
#define PAGE_STEPS 200u /* of moving a page of a layer */

/* Keys rotated as in short contexts are of no use in long ones. */
static const char *rope_reach(const mica_context *context)
{
    return mica__rope_is_near(&context->model->rope[0], context->capacity) ? "near" : "far";
}

/* Where the tokens of a layer that are kept begin: the first page that is there. */
static uint32_t first_held(const mica_context *context, uint32_t kind, uint32_t sequence)
{
    const mica__pages *pages = &context->pages[kind];
    const uint32_t *row = pages->table + (size_t)sequence * pages->row;
    const uint32_t length = context->sequence[sequence].length;
    uint32_t page = (length + pages->tokens - 1) / pages->tokens;
    while (page > 0 && row[page - 1] != MICA__NO_PAGE)
        page--;
    return page * pages->tokens;
}

/* Keys without their mean are of no use where they are whole. */
static const char *key_form(const mica_context *context)
{
    return context->mean_key != NULL ? "centred" : "whole";
}

static uint64_t token_bytes(const mica_context *context, bool is_value)
{
    const mica__hparams *h = &context->model->h;
    const mica_dtype type = is_value ? context->cache_v : context->cache_k;
    const uint64_t values = (uint64_t)h->kv_heads * (is_value ? h->head_v : h->head_k);
    return values / mica_dtype_block_elements(type) * mica_dtype_block_bytes(type);
}

static void tensor_name(char *name, size_t size, bool is_value, uint32_t layer)
{
    snprintf(name, size, "%c.%u", is_value ? 'v' : 'k', layer);
}

/* ---- one page at a time --------------------------------------------------------------------------------- */

typedef mica_status (*page_mover)(mica_buffer *page, void *bytes, uint64_t size);

static mica_status read_page(mica_buffer *page, void *bytes, uint64_t size)
{
    return mica_buffer_read(page, 0, bytes, size);
}

static mica_status write_page(mica_buffer *page, void *bytes, uint64_t size)
{
    return mica_buffer_write(page, 0, bytes, size);
}

/* The part of a cache from token `at` to the end of its page or sequence, to or from `bytes`. */
static mica_status move_page(mica_context *context, uint32_t sequence, uint32_t layer, bool is_value,
                             uint32_t at, page_mover move, void *bytes, uint32_t *out_tokens)
{
    const mica__pages *pages = &context->pages[context->model->layer[layer].slides];
    mica_buffer *cache = is_value ? context->v[layer] : context->k[layer], *page = NULL;
    const uint32_t number = pages->table[(size_t)sequence * pages->row + at / pages->tokens];
    const uint32_t left = context->sequence[sequence].length - at;
    MICA__TRY(mica__spend(PAGE_STEPS));
    *out_tokens = left < pages->tokens ? left : pages->tokens;
    MICA__TRY(mica_buffer_slice(cache, 0, number, 1, &page));
    const mica_status status = move(page, bytes, *out_tokens * token_bytes(context, is_value));
    mica_buffer_release(page);
    return status;
}

/* ---- saving --------------------------------------------------------------------------------------------- */

static mica_status declare(mica_context *context, uint32_t sequence, mica_writer *writer)
{
    const mica_model *model = context->model;
    const uint64_t length = context->sequence[sequence].length;
    char text[32];
    snprintf(text, sizeof text, "%016" PRIx64, model->fingerprint ^ context->adapters.fingerprint);
    MICA__TRY(mica_writer_string(writer, "mica.state", VERSION));
    MICA__TRY(mica_writer_string(writer, "mica.model", text));
    MICA__TRY(mica_writer_string(writer, "mica.family", model->family->name));
    MICA__TRY(mica_writer_string(writer, "mica.cache_k", mica_dtype_name(context->cache_k)));
    MICA__TRY(mica_writer_string(writer, "mica.cache_v", mica_dtype_name(context->cache_v)));
    MICA__TRY(mica_writer_string(writer, "mica.rope", rope_reach(context)));
    MICA__TRY(mica_writer_string(writer, "mica.keys", key_form(context)));
    MICA__TRY(mica_writer_tensor(writer, "tokens", MICA_DTYPE_U32, 1, &length));
    for (uint32_t i = 0; i < 2 * model->h.layers; i++) {
        const uint32_t first = first_held(context, model->layer[i / 2].slides, sequence);
        const uint64_t shape[2] = {length - first, token_bytes(context, i % 2)};
        tensor_name(text, sizeof text, i % 2, i / 2);
        MICA__TRY(mica_writer_tensor(writer, text, MICA_DTYPE_U8, 2, shape));
    }
    return MICA_OK;
}

static mica_status write_layer(mica_context *context, uint32_t sequence, uint32_t layer, bool is_value,
                               mica_writer *writer, void *room)
{
    const uint32_t length = context->sequence[sequence].length;
    uint32_t moved;
    for (uint32_t at = first_held(context, context->model->layer[layer].slides, sequence); at < length;
         at += moved) {
        MICA__TRY(move_page(context, sequence, layer, is_value, at, read_page, room, &moved));
        MICA__TRY(mica_writer_write(writer, room, moved * token_bytes(context, is_value)));
    }
    return MICA_OK;
}

static mica_status write_all(mica_context *context, uint32_t sequence, mica_writer *writer, void *room)
{
    const mica__sequence *s = &context->sequence[sequence];
    MICA__TRY(declare(context, sequence, writer));
    MICA__TRY(mica_writer_write(writer, s->tokens, s->length * sizeof *s->tokens));
    for (uint32_t i = 0; i < 2 * context->model->h.layers; i++)
        MICA__TRY(write_layer(context, sequence, i / 2, i % 2, writer, room));
    return MICA_OK;
}

/* Room for one page of keys or values. */
static void *page_room(const mica_context *context)
{
    const uint64_t k = token_bytes(context, false), v = token_bytes(context, true);
    void *room = mica__alloc((size_t)((k > v ? k : v) * MICA__PAGE_TOKENS));
    if (room == NULL)
        mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a page of the cache");
    return room;
}

static mica_status save(mica_context *context, uint32_t sequence, const char *path)
{
    const mica_writer_options options = {.format = MICA_FORMAT_SAFETENSORS, .overwrite = 1};
    mica_writer *writer = NULL;
    MICA__TRY(mica__sequence_check(context, sequence));
    if (path == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "path is NULL");
    if (context->sequence[sequence].length == 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "sequence %u is empty", sequence);
    void *room = page_room(context);
    mica_status status = room == NULL ? MICA_ERR_OUT_OF_MEMORY : mica_writer_create(path, &options, &writer);
    if (status == MICA_OK)
        status = write_all(context, sequence, writer, room);
    mica__free(room);
    if (status == MICA_OK)
        return mica_writer_finish(writer);
    mica_writer_discard(writer);
    return status;
}

mica_status mica_sequence_save(mica_context *context, uint32_t sequence, const char *path)
{
    mica__call call;
    MICA__TRY(mica__context_enter_work(context, "sequence_save", &call));
    return mica__context_leave(context, &call, save(context, sequence, path));
}

/* ---- loading -------------------------------------------------------------------------------------------- */

static mica_status expect(const mica_weights *weights, const char *path, const char *key, const char *wanted)
{
    const mica_value *value;
    if (mica_weights_get(weights, key, &value) != MICA_OK || value->type != MICA_VALUE_STRING)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\" is no state of a sequence: it has no \"%s\"", path,
                          key);
    if (strcmp(value->as.string.data, wanted) != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "\"%s\" is a state of another model or cache: \"%s\" is \"%.60s\", "
                          "expected \"%s\"",
                          path, key, value->as.string.data, wanted);
    return MICA_OK;
}

static mica_status check_file(const mica_context *context, const mica_weights *weights, const char *path)
{
    char text[32];
    snprintf(text, sizeof text, "%016" PRIx64, context->model->fingerprint ^ context->adapters.fingerprint);
    MICA__TRY(expect(weights, path, "mica.state", VERSION));
    MICA__TRY(expect(weights, path, "mica.model", text));
    MICA__TRY(expect(weights, path, "mica.cache_k", mica_dtype_name(context->cache_k)));
    MICA__TRY(expect(weights, path, "mica.cache_v", mica_dtype_name(context->cache_v)));
    MICA__TRY(expect(weights, path, "mica.rope", rope_reach(context)));
    return expect(weights, path, "mica.keys", key_form(context));
}

/* What a state file holds, all of it checked before the context is touched. */
typedef struct held {
    const mica_weights *weights;
    uint64_t tokens;             /* tensors by number: the list of tokens, */
    uint64_t *layer;             /* [2 * layers] keys and values */
    uint32_t length;             /* tokens */
    uint32_t first[MICA__KINDS]; /* that is held, by kind of layers: the beginning of a page */
    uint32_t from[MICA__KINDS];  /* that is of use: as much of the file is taken */
} held;

/* The tensor of a layer: the tokens from a page on that all layers of its kind have, up to the last. */
static mica_status find_layer(const mica_context *context, held *file, uint32_t layer, bool is_value)
{
    const uint32_t kind = context->model->layer[layer].slides;
    char name[32];
    mica_tensor_info info;
    uint64_t *index = &file->layer[2 * layer + is_value];
    tensor_name(name, sizeof name, is_value, layer);
    MICA__TRY(mica__spend(PAGE_STEPS));
    if (mica_weights_find(file->weights, name, index) != MICA_OK)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state has no tensor \"%s\"", name);
    MICA__TRY(mica_weights_tensor(file->weights, *index, &info));
    if (info.dtype != MICA_DTYPE_U8 || info.ndim != 2 || info.shape[1] != token_bytes(context, is_value) ||
        info.shape[0] == 0 || info.shape[0] > file->length)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state's tensor \"%s\" has not the shape of its cache",
                          name);
    const uint32_t first = file->length - (uint32_t)info.shape[0];
    if (file->first[kind] == MICA__NO_PAGE) {
        const uint32_t seen = mica__pages_first(&context->pages[kind], file->length);
        if (first % MICA__PAGE_TOKENS != 0 || first > seen)
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "the state's tensor \"%s\" begins at token %u, later than the next token sees",
                              name, first);
        file->first[kind] = first;
        file->from[kind] = seen - seen % MICA__PAGE_TOKENS;
    }
    if (first != file->first[kind])
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "the state's tensor \"%s\" begins at token %u, others of its kind at %u", name,
                          first, file->first[kind]);
    return MICA_OK;
}

static mica_status find_tokens(const mica_context *context, held *file)
{
    mica_tensor_info info;
    if (mica_weights_find(file->weights, "tokens", &file->tokens) != MICA_OK)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state has no tokens");
    MICA__TRY(mica_weights_tensor(file->weights, file->tokens, &info));
    if (info.dtype != MICA_DTYPE_U32 || info.ndim != 1 || info.shape[0] == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state's tokens are no list of numbers");
    if (info.shape[0] > context->longest)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the state has %llu tokens, the context holds %u",
                          (unsigned long long)info.shape[0], context->longest);
    file->length = (uint32_t)info.shape[0];
    return MICA_OK;
}

/* Whether the file is whole: every tensor there, none besides, each of its shape. */
static mica_status check_tensors(const mica_context *context, held *file)
{
    const uint64_t layers = context->model->h.layers;
    mica_weights_info info;
    MICA__TRY(mica_weights_get_info(file->weights, &info));
    if (info.tensor_count != 2 * layers + 1)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state has %llu tensors, %llu are expected",
                          (unsigned long long)info.tensor_count, (unsigned long long)(2 * layers + 1));
    MICA__TRY(find_tokens(context, file));
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++)
        file->first[kind] = MICA__NO_PAGE;
    for (uint32_t i = 0; i < 2 * layers; i++)
        MICA__TRY(find_layer(context, file, i / 2, i % 2));
    return MICA_OK;
}

/* Tokens, and pages for what the file holds of each kind of layers. */
static mica_status take_tokens(mica_context *context, const held *file, uint32_t sequence)
{
    mica__sequence *s = &context->sequence[sequence];
    MICA__TRY(mica_weights_read(file->weights, file->tokens, 0, s->tokens, file->length * sizeof *s->tokens));
    for (uint32_t i = 0; i < file->length; i++)
        if (s->tokens[i] >= context->model->h.vocabulary)
            return mica__fail(MICA_ERR_MALFORMED_FILE, "the state's token %u is %u, the vocabulary has %u", i,
                              s->tokens[i], context->model->h.vocabulary);
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++) {
        mica__pages *pages = &context->pages[kind];
        mica__page_copy none;
        if (file->first[kind] == MICA__NO_PAGE)
            continue;
        if (mica__pages_wanted(pages, sequence, file->from[kind], file->length) > pages->free_count)
            return mica__fail(MICA_ERR_FULL, "the context is full: %u tokens of a state find no pages",
                              file->length);
        mica__pages_extend(pages, sequence, file->from[kind], file->length, &none);
        pages->changed = true;
    }
    s->length = file->length;
    return MICA_OK;
}

static mica_status read_layer(mica_context *context, const held *file, uint32_t sequence, uint32_t layer,
                              bool is_value, void *room)
{
    const uint64_t bytes = token_bytes(context, is_value);
    const uint32_t kind = context->model->layer[layer].slides;
    uint32_t moved;
    for (uint32_t at = file->from[kind]; at < file->length; at += moved) {
        const uint32_t left = file->length - at, take = left < MICA__PAGE_TOKENS ? left : MICA__PAGE_TOKENS;
        MICA__TRY(mica_weights_read(file->weights, file->layer[2 * layer + is_value],
                                    (at - file->first[kind]) * bytes, room, take * bytes));
        MICA__TRY(move_page(context, sequence, layer, is_value, at, write_page, room, &moved));
    }
    return MICA_OK;
}

static mica_status read_all(mica_context *context, const held *file, uint32_t sequence, void *room)
{
    MICA__TRY(take_tokens(context, file, sequence));
    for (uint32_t i = 0; i < 2 * context->model->h.layers; i++)
        MICA__TRY(read_layer(context, file, sequence, i / 2, i % 2, room));
    return MICA_OK;
}

/* A sequence of a file that was checked; none is left where it cannot be read. */
static mica_status make_sequence(mica_context *context, const held *file, uint32_t *out_sequence)
{
    MICA__TRY(mica__sequence_create(context, out_sequence));
    void *room = page_room(context);
    const mica_status status =
        room == NULL ? MICA_ERR_OUT_OF_MEMORY : read_all(context, file, *out_sequence, room);
    mica__free(room);
    if (status != MICA_OK)
        mica__sequence_remove(context, *out_sequence);
    return status;
}

static mica_status load(mica_context *context, const char *path, uint32_t *out_sequence)
{
    mica_weights *weights = NULL;
    if (path == NULL || out_sequence == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", path == NULL ? "path" : "out_sequence");
    MICA__TRY(mica_weights_open(path, NULL, &weights));
    held file = {.weights = weights};
    mica_status status = check_file(context, weights, path);
    if (status == MICA_OK) {
        file.layer = mica__alloc(2 * (size_t)context->model->h.layers * sizeof *file.layer);
        status = file.layer == NULL ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a list of tensors")
                                    : check_tensors(context, &file);
    }
    if (status == MICA_OK)
        status = make_sequence(context, &file, out_sequence);
    mica__free(file.layer);
    mica_weights_release(weights);
    return status;
}

mica_status mica_sequence_load(mica_context *context, const char *path, uint32_t *out_sequence)
{
    mica__call call;
    MICA__TRY(mica__context_enter_work(context, "sequence_load", &call));
    return mica__context_leave(context, &call, load(context, path, out_sequence));
}
