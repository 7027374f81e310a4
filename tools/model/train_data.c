/* train_data.c - reading and drawing what is learned. Lines of JSON are read by the library: a template that gives one of their members. */
#include "model/train_data.h"

#include <stdlib.h>
#include <string.h>

#include "model/generation.h"
#include "model/input.h"
#include "terminal/output.h"

#define PARTS 2

static int no_memory(void)
{
    (void)tool_fail("there is no memory left");
    return 1;
}

static int add_example(tool_train_data *data, const tool_example *example)
{
    if (data->count == data->capacity) {
        const uint32_t capacity = data->capacity * 2 + 64;
        tool_example *grown = realloc(data->example, capacity * sizeof *grown);
        if (grown == NULL)
            return no_memory();
        data->example = grown;
        data->capacity = capacity;
    }
    data->longest = example->count > data->longest ? example->count : data->longest;
    data->example[data->count++] = *example;
    return 0;
}

/* ---- lines ---- */

/* Prompt and completion of a line. */
static int read_parts(mica_template *const *part, const char *line, size_t length, size_t number,
                      tool_input text[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        char *rendered = NULL;
        uint64_t bytes = 0;
        if (mica_template_render(part[i], line, length, &rendered, &bytes) != MICA_OK)
            return tool_fail(
                "train: line %zu of --data is no object with texts \"prompt\" and \"completion\": %s", number,
                mica_status_message());
        int result = tool_input_append(&text[i], rendered, bytes);
        mica_text_free(rendered);
        if (result != 0)
            return result;
    }
    return 0;
}

/* The token that ends a text, after the completion's. */
static uint32_t ending(const mica_tokenizer_info *info)
{
    return info->eot != MICA_NO_TOKEN ? info->eot : info->eos;
}

static int encode_parts(const tool_model *model, const tool_input text[PARTS], size_t number,
                        tool_example *out)
{
    uint32_t *ids[PARTS] = {NULL}, count[PARTS] = {0};
    mica_tokenizer_info info = {.kind = NULL};
    int result = mica_tokenizer_get_info(model->tokenizer, &info) == MICA_OK ? 0 : tool_fail_status();
    for (uint32_t i = 0; i < PARTS && result == 0; i++)
        result = tool_encode(model->tokenizer, text[i].text, text[i].length, MICA_ENCODE_SPECIAL, &ids[i],
                             &count[i]);
    const uint32_t begin = info.add_bos && info.bos != MICA_NO_TOKEN, end = ending(&info) != MICA_NO_TOKEN;
    if (result == 0 && (count[1] == 0 || begin + count[0] == 0))
        result = tool_fail("train: line %zu of --data has an empty %s", number,
                           count[1] == 0 ? "completion" : "prompt");
    *out = (tool_example){.count = begin + count[0] + count[1] + end, .prompt = begin + count[0]};
    if (result == 0 && (out->ids = malloc(out->count * sizeof *out->ids)) == NULL)
        result = no_memory();
    if (result == 0 && ids[0] != NULL && ids[1] != NULL) {
        if (begin)
            out->ids[0] = info.bos;
        if (count[0] > 0)
            memcpy(out->ids + begin, ids[0], count[0] * sizeof *out->ids);
        memcpy(out->ids + out->prompt, ids[1], count[1] * sizeof *out->ids);
        if (end)
            out->ids[out->count - 1] = ending(&info);
    }
    free(ids[0]);
    free(ids[1]);
    return result;
}

static int read_line(const tool_model *model, mica_template *const *part, const char *line, size_t length,
                     size_t number, tool_train_data *data)
{
    tool_input text[PARTS] = {{NULL, 0, 0}, {NULL, 0, 0}};
    tool_example example = {.ids = NULL};
    int result = read_parts(part, line, length, number, text);
    if (result == 0)
        result = encode_parts(model, text, number, &example);
    if (result == 0)
        result = add_example(data, &example);
    if (result != 0)
        free(example.ids);
    tool_input_free(&text[0]);
    tool_input_free(&text[1]);
    return result;
}

static int read_lines(const tool_model *model, const tool_input *file, tool_train_data *data)
{
    static const char *const members[PARTS] = {"{{ prompt + '' }}", "{{ completion + '' }}"};
    mica_template *part[PARTS] = {NULL};
    int result = 0;
    data->is_list = 1;
    for (int i = 0; i < PARTS && result == 0; i++)
        if (mica_template_create(members[i], strlen(members[i]), NULL, &part[i]) != MICA_OK)
            result = tool_fail_status();
    const char *at = file->text, *end = file->text + file->length;
    for (size_t number = 1; at < end && result == 0; number++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        const size_t length = (size_t)((line_end != NULL ? line_end : end) - at);
        if (strspn(at, " \t\r") < length)
            result = read_line(model, part, at, length, number, data);
        at += length + 1;
    }
    for (int i = 0; i < PARTS; i++)
        mica_template_release(part[i]);
    return result != 0 || data->count > 0 ? result : tool_fail("train: --data has no lines");
}

/* ---- files ---- */

static int ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
}

int tool_train_data_read(const char *path, const tool_model *model, tool_train_data *out)
{
    tool_input file = {NULL, 0, 0};
    tool_example all = {.ids = NULL};
    *out = (tool_train_data){.example = NULL};
    int result = tool_input_read(path, &file);
    if (result == 0 && ends_in(path, ".jsonl"))
        result = read_lines(model, &file, out);
    else if (result == 0) {
        result = tool_encode(model->tokenizer, file.text, file.length, MICA_ENCODE_ADD, &all.ids, &all.count);
        if (result == 0)
            result = add_example(out, &all);
        if (result == 0 && all.count < 2)
            result = tool_fail("train: --data has %u tokens, which is nothing to learn from", all.count);
    }
    tool_input_free(&file);
    return result;
}

void tool_train_data_free(tool_train_data *data)
{
    for (uint32_t i = 0; i < data->count; i++)
        free(data->example[i].ids);
    free(data->example);
    *data = (tool_train_data){.example = NULL};
}

/* ---- rows ---- */

/* splitmix64 */
static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint32_t tool_train_row(const tool_train_data *data, uint64_t draw, uint32_t length, uint32_t *tokens,
                        uint32_t *labels, float *learned)
{
    const uint64_t first = mix(draw), second = mix(first);
    const tool_example *e = &data->example[first % data->count];
    /* Of a plain text a window anywhere; of a list each from its beginning. */
    const uint32_t windows = !data->is_list && e->count > length + 1 ? e->count - length : 1;
    const uint32_t at = (uint32_t)(second % windows);
    uint32_t count = 0;
    for (uint32_t i = 0; i < length; i++) {
        const uint32_t next = at + i + 1;
        const int there = next < e->count;
        tokens[i] = at + i < e->count ? e->ids[at + i] : 0;
        labels[i] = there ? e->ids[next] : 0;
        learned[i] = there && next >= e->prompt ? 1.0f : 0.0f;
        count += learned[i] > 0;
    }
    return count;
}
