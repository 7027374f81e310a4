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

#define VERSION "2"
#define PAGE_STEPS 200u /* of moving a page of a layer */

/* Keys that turned as in short contexts are of no use in long ones. */
static const char *turning(const mica_context *context)
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
    snprintf(text, sizeof text, "%016" PRIx64, model->fingerprint);
    MICA__TRY(mica_writer_string(writer, "mica.state", VERSION));
    MICA__TRY(mica_writer_string(writer, "mica.model", text));
    MICA__TRY(mica_writer_string(writer, "mica.family", model->family->name));
    MICA__TRY(mica_writer_string(writer, "mica.cache_k", mica_dtype_name(context->cache_k)));
    MICA__TRY(mica_writer_string(writer, "mica.cache_v", mica_dtype_name(context->cache_v)));
    MICA__TRY(mica_writer_string(writer, "mica.rope", turning(context)));
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
    snprintf(text, sizeof text, "%016" PRIx64, context->model->fingerprint);
    MICA__TRY(expect(weights, path, "mica.state", VERSION));
    MICA__TRY(expect(weights, path, "mica.model", text));
    MICA__TRY(expect(weights, path, "mica.cache_k", mica_dtype_name(context->cache_k)));
    MICA__TRY(expect(weights, path, "mica.cache_v", mica_dtype_name(context->cache_v)));
    return expect(weights, path, "mica.rope", turning(context));
}

/* The tensor of a layer: at most `length` tokens, beginning at a page. */
static mica_status find_layer(const mica_context *context, const mica_weights *weights, uint32_t layer,
                              bool is_value, uint32_t length, uint64_t *out_index, uint32_t *out_first)
{
    char name[32];
    mica_tensor_info info;
    tensor_name(name, sizeof name, is_value, layer);
    if (mica_weights_find(weights, name, out_index) != MICA_OK)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state has no tensor \"%s\"", name);
    MICA__TRY(mica_weights_tensor(weights, *out_index, &info));
    if (info.dtype != MICA_DTYPE_U8 || info.ndim != 2 || info.shape[0] == 0 || info.shape[0] > length ||
        (length - info.shape[0]) % MICA__PAGE_TOKENS != 0 || info.shape[1] != token_bytes(context, is_value))
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state's tensor \"%s\" has not the shape of its cache",
                          name);
    *out_first = length - (uint32_t)info.shape[0];
    if (*out_first != 0 && !context->model->layer[layer].slides)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state's tensor \"%s\" lacks its first tokens", name);
    return MICA_OK;
}

/* Tokens, and pages for what the file holds of each kind of layers. */
static mica_status take_tokens(mica_context *context, const mica_weights *weights, uint32_t sequence)
{
    mica__sequence *s = &context->sequence[sequence];
    mica_tensor_info info;
    uint64_t index;
    if (mica_weights_find(weights, "tokens", &index) != MICA_OK)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state has no tokens");
    MICA__TRY(mica_weights_tensor(weights, index, &info));
    if (info.dtype != MICA_DTYPE_U32 || info.ndim != 1 || info.shape[0] == 0)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the state's tokens are no list of numbers");
    if (info.shape[0] > context->longest)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the state has %llu tokens, the context holds %u",
                          (unsigned long long)info.shape[0], context->longest);
    MICA__TRY(mica_weights_read(weights, index, 0, s->tokens, info.shape[0] * sizeof *s->tokens));
    const uint32_t length = (uint32_t)info.shape[0];
    for (uint32_t i = 0; i < length; i++)
        if (s->tokens[i] >= context->model->h.vocabulary)
            return mica__fail(MICA_ERR_MALFORMED_FILE, "the state's token %u is %u, the vocabulary has %u", i,
                              s->tokens[i], context->model->h.vocabulary);
    for (uint32_t i = 0; i < context->model->h.layers; i++) {
        mica__pages *pages = &context->pages[context->model->layer[i].slides];
        mica__page_copy none;
        uint32_t first;
        MICA__TRY(find_layer(context, weights, i, false, length, &index, &first));
        if (mica__pages_wanted(pages, sequence, first, length) > pages->free_count)
            return mica__fail(MICA_ERR_FULL, "the context is full: %u tokens of a state find no pages",
                              length);
        mica__pages_extend(pages, sequence, first, length, &none);
    }
    s->length = length;
    return MICA_OK;
}

static mica_status read_layer(mica_context *context, const mica_weights *weights, uint32_t sequence,
                              uint32_t layer, bool is_value, void *room)
{
    const uint32_t length = context->sequence[sequence].length;
    const uint64_t bytes = token_bytes(context, is_value);
    uint64_t index;
    uint32_t first, moved;
    MICA__TRY(find_layer(context, weights, layer, is_value, length, &index, &first));
    const mica__pages *pages = &context->pages[context->model->layer[layer].slides];
    for (uint32_t at = first; at < length; at += moved) {
        const uint32_t take = length - at < MICA__PAGE_TOKENS ? length - at : MICA__PAGE_TOKENS;
        if (pages->table[(size_t)sequence * pages->row + at / pages->tokens] == MICA__NO_PAGE)
            return mica__fail(MICA_ERR_MALFORMED_FILE,
                              "the state's layers disagree about which tokens they hold");
        MICA__TRY(mica_weights_read(weights, index, (at - first) * bytes, room, take * bytes));
        MICA__TRY(move_page(context, sequence, layer, is_value, at, write_page, room, &moved));
    }
    return MICA_OK;
}

static mica_status read_all(mica_context *context, const mica_weights *weights, uint32_t sequence, void *room)
{
    MICA__TRY(take_tokens(context, weights, sequence));
    for (uint32_t i = 0; i < 2 * context->model->h.layers; i++)
        MICA__TRY(read_layer(context, weights, sequence, i / 2, i % 2, room));
    for (uint32_t kind = 0; kind < MICA__KINDS; kind++)
        if (context->pages[kind].count != 0)
            context->pages[kind].changed = true;
    return MICA_OK;
}

static mica_status load(mica_context *context, const char *path, uint32_t *out_sequence)
{
    mica_weights *weights = NULL;
    if (path == NULL || out_sequence == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL", path == NULL ? "path" : "out_sequence");
    MICA__TRY(mica_weights_open(path, NULL, &weights));
    void *room = NULL;
    mica_status status = check_file(context, weights, path);
    if (status == MICA_OK)
        status = mica__sequence_create(context, out_sequence);
    if (status == MICA_OK) {
        room = page_room(context);
        status = room == NULL ? MICA_ERR_OUT_OF_MEMORY : read_all(context, weights, *out_sequence, room);
        if (status != MICA_OK)
            mica__sequence_remove(context, *out_sequence);
    }
    mica__free(room);
    mica_weights_release(weights);
    return status;
}

mica_status mica_sequence_load(mica_context *context, const char *path, uint32_t *out_sequence)
{
    mica__call call;
    MICA__TRY(mica__context_enter_work(context, "sequence_load", &call));
    return mica__context_leave(context, &call, load(context, path, out_sequence));
}
