/*
 * file.c - graphs in files: a safetensors file whose metadata has the text of the graph (text.h) as JSON, {"version": 1, "lines": [..]}, under the key "mica_graph", and
 * whose tensors are the constants that are too long for it: c0, c1, .. in the order of the text. A type that safetensors does not have is a tensor of
 * bytes; what it stands for is in the text.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json.h"
#include "base/work.h"
#include "graph/text/text.h"
#include "graph/text/file.h"
#include "format/safetensors.h"

#define KEY "mica_graph"
enum { VERSION = 1 };

/* ---- writing ---- */

static mica_status make_json(const mica__words *words, char **out_text)
{
    mica__json_writer json;
    size_t length = 0;
    mica__json_writer_init(&json);
    mica__json_begin_object(&json);
    mica__json_key(&json, "version");
    mica__json_uint(&json, VERSION);
    mica__json_key(&json, "lines");
    mica__json_begin_array(&json);
    for (size_t at = 0; at < words->length;) {
        const char *end = memchr(words->data + at, '\n', words->length - at);
        const size_t line = (end == NULL ? words->length : (size_t)(end - words->data)) - at;
        mica__json_string_n(&json, words->data + at, line);
        at += line + 1;
    }
    mica__json_end_array(&json);
    mica__json_end_object(&json);
    return mica__json_writer_finish(&json, out_text, &length);
}

static mica_status declare_constant(mica_writer *writer, uint32_t number, const mica__text_blob *constant)
{
    char name[16];
    const mica__type *type = constant->type;
    snprintf(name, sizeof name, "c%u", number);
    if (mica__safetensors_type_of((uint16_t)type->dtype) != NULL)
        return mica_writer_tensor(writer, name, type->dtype, type->ndim, type->shape);
    return mica_writer_tensor(writer, name, MICA_DTYPE_U8, 1, &constant->blob->bytes);
}

static mica_status write_file(mica_writer *writer, const mica__words *words, const mica__text_blobs *blobs)
{
    char *text = NULL;
    mica_status status = make_json(words, &text);
    if (status == MICA_OK)
        status = mica_writer_string(writer, KEY, text);
    mica__free(text);
    for (uint32_t i = 0; i < blobs->count && status == MICA_OK; i++)
        status = declare_constant(writer, i, &blobs->list[i]);
    for (uint32_t i = 0; i < blobs->count && status == MICA_OK; i++)
        status = mica_writer_write(writer, blobs->list[i].blob->data, blobs->list[i].blob->bytes);
    return status;
}

static mica_status save(const mica_graph *graph, const char *path)
{
    const mica_writer_options options = {.format = MICA_FORMAT_SAFETENSORS, .overwrite = 1};
    mica__words words = {.data = NULL};
    mica__text_blobs blobs = {.list = NULL};
    mica_writer *writer = NULL;
    mica_status status = mica__graph_write(graph, &words, &blobs);
    if (status == MICA_OK)
        status = mica_writer_create(path, &options, &writer);
    if (status == MICA_OK)
        status = write_file(writer, &words, &blobs);
    if (status == MICA_OK)
        status = mica_writer_finish(writer);
    else
        mica_writer_discard(writer);
    mica__words_free(&words);
    mica__free(blobs.list);
    return status;
}

mica_status mica_graph_save(const mica_graph *graph, const char *path)
{
    mica__call call;
    if (graph == NULL || path == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_save: %s is NULL",
                          graph == NULL ? "graph" : "path");
    MICA__TRY(mica_graph_status(graph));
    mica__call_begin(&call, "graph_save");
    return mica__call_end(&call, save(graph, path));
}

/* ---- reading ---- */

typedef struct source {
    const mica_weights *weights;
    uint32_t next; /* constants stand in the order of the text, each once */
} source;

/* mica__text_fetch. */
static mica_status fetch(void *context, uint32_t number, const mica__type *type, void *to, uint64_t bytes)
{
    source *from = context;
    mica_tensor_info info;
    uint64_t index = 0;
    char name[16];
    snprintf(name, sizeof name, "c%u", number);
    if (number != from->next)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "graph_load: constant %s stands where c%u should", name,
                          from->next);
    MICA__TRY(mica_weights_find(from->weights, name, &index));
    MICA__TRY(mica_weights_tensor(from->weights, index, &info));
    if (info.bytes != bytes || (info.dtype != type->dtype && info.dtype != MICA_DTYPE_U8))
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "graph_load: constant %s is %s of %llu bytes, not %s of %llu", name,
                          mica_dtype_name(info.dtype), (unsigned long long)info.bytes,
                          mica_dtype_name(type->dtype), (unsigned long long)bytes);
    if (to == NULL)
        return MICA_OK;
    from->next++;
    return mica_weights_read(from->weights, index, 0, to, bytes);
}

static mica_status read_lines(const mica__json *json, mica__words *words)
{
    const mica__json_node *root = mica__json_root(json), *lines = NULL;
    uint64_t version = 0;
    MICA__TRY(mica__json_get_uint(json, root, "version", 0, UINT32_MAX, &version));
    if (version != VERSION)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "graph_load: the graph has version %llu, this is mica of version %d",
                          (unsigned long long)version, VERSION);
    MICA__TRY(mica__json_get_container(json, root, "lines", MICA__JSON_ARRAY, &lines));
    for (const mica__json_node *line = mica__json_first(lines); line != NULL;
         line = mica__json_next(json, line)) {
        const char *text = NULL;
        size_t length = 0;
        MICA__TRY(mica__json_as_string(line, "a line", &text, &length));
        mica__words_add(words, text, length);
        mica__words_add(words, "\n", 1);
    }
    return words->failed ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "graph_load: no memory for the text") : MICA_OK;
}

mica_status mica__graph_from_weights(const mica_weights *weights, mica_graph **out_graph)
{
    const mica_value *value = NULL;
    mica__json *json = NULL;
    mica__words words = {.data = NULL};
    source from = {.weights = weights};
    *out_graph = NULL;
    MICA__TRY(mica_weights_get(weights, KEY, &value));
    if (value->type != MICA_VALUE_STRING)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "graph_load: the value of " KEY " is no text");
    mica_status status =
        mica__json_parse(value->as.string.data, (size_t)value->as.string.length, NULL, &json);
    if (status == MICA_OK)
        status = read_lines(json, &words);
    mica__json_release(json);
    if (status == MICA_OK)
        status =
            mica__graph_read(words.data == NULL ? "" : words.data, words.length, fetch, &from, out_graph);
    mica__words_free(&words);
    return status;
}

static mica_status load(const char *path, mica_graph **out_graph)
{
    mica_weights *weights = NULL;
    MICA__TRY(mica_weights_open(path, NULL, &weights));
    const mica_status status = mica__graph_from_weights(weights, out_graph);
    mica_weights_release(weights);
    return status;
}

mica_status mica_graph_load(const char *path, mica_graph **out_graph)
{
    mica__call call;
    if (path == NULL || out_graph == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "graph_load: %s is NULL",
                          path == NULL ? "path" : "out_graph");
    *out_graph = NULL;
    mica__call_begin(&call, "graph_load");
    return mica__call_end(&call, load(path, out_graph));
}
