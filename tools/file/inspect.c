/* inspect.c - `mica inspect`: what a model file holds, for people and for programs. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "file/config.h"
#include "file/footprint.h"
#include "file/metadata.h"
#include "mica/mica.h"
#include "terminal/output.h"
#include "terminal/text.h"

#define MAX_TYPES 64
#define WIDEST_NAME 60
#define CONFIG_KEYS 24   /* columns */
#define CONFIG_VALUES 72 /* characters */

/* Tensors of one type together. The last row takes what finds no room: a hostile file may name many types. */
typedef struct type_total {
    char name[TOOL_TYPE_BYTES];
    uint64_t tensors, bytes, values;
} type_total;

typedef struct contents {
    const char *path;
    const mica_weights *weights;
    mica_weights_info info;
    type_total type[MAX_TYPES];
    size_t type_count;
    uint64_t values;
    size_t name_width;
    tool_footprint footprint;
} contents;

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static type_total *total_of(contents *c, const char *name)
{
    size_t i = 0;
    while (i < c->type_count && strcmp(c->type[i].name, name) != 0)
        i++;
    if (i < c->type_count)
        return &c->type[i];
    if (i == MAX_TYPES)
        return &c->type[MAX_TYPES - 1];
    c->type_count++;
    snprintf(c->type[i].name, sizeof c->type[i].name, "%s", i + 1 < MAX_TYPES ? name : "others");
    return &c->type[i];
}

static mica_status gather(contents *c, uint64_t context)
{
    mica_status status = mica_weights_get_info(c->weights, &c->info);
    for (uint64_t i = 0; i < c->info.tensor_count && status == MICA_OK; i++) {
        mica_tensor_info tensor;
        char type[TOOL_TYPE_BYTES];
        status = mica_weights_tensor(c->weights, i, &tensor);
        if (status != MICA_OK)
            return status;
        type_total *total = total_of(c, tool_type_text(&tensor, type));
        uint64_t values = tool_tensor_values(&tensor);
        size_t width = strlen(tensor.name);
        total->tensors++;
        total->bytes = add(total->bytes, tensor.bytes);
        total->values = add(total->values, values);
        c->values = add(c->values, values);
        c->name_width = width > c->name_width && width <= WIDEST_NAME ? width : c->name_width;
    }
    tool_footprint_estimate(c->weights, context, &c->footprint);
    return status;
}

static double share(const contents *c, const type_total *total)
{
    return c->info.tensor_bytes > 0 ? (double)total->bytes / (double)c->info.tensor_bytes : 0;
}

static double bits(const type_total *total)
{
    return total->values > 0 ? (double)total->bytes * 8 / (double)total->values : 0;
}

/* ---- for programs ---- */

static mica_status json_metadata(const contents *c, tool_json *json)
{
    mica_status status = MICA_OK;
    const char *config = NULL;
    uint64_t length = 0;
    tool_json_open(json, "metadata", '{');
    for (uint64_t i = 0; i < c->info.metadata_count && status == MICA_OK; i++) {
        mica_string key;
        const mica_value *value = NULL;
        status = mica_weights_metadata(c->weights, i, &key, &value);
        if (status == MICA_OK)
            tool_value_json(json, key.data, value);
    }
    tool_json_close(json, '}');
    if (mica_weights_config(c->weights, &config, &length) == MICA_OK && length > 0)
        tool_json_raw(json, "config", config, (size_t)length);
    return status;
}

static mica_status json_tensors(const contents *c, tool_json *json)
{
    mica_status status = MICA_OK;
    tool_json_open(json, "tensors", '[');
    for (uint64_t i = 0; i < c->info.tensor_count && status == MICA_OK; i++) {
        mica_tensor_info tensor;
        status = mica_weights_tensor(c->weights, i, &tensor);
        if (status != MICA_OK)
            break;
        tool_json_open(json, NULL, '{');
        tool_json_text(json, "name", tensor.name);
        tool_json_text(json, "type", mica_dtype_name(tensor.dtype));
        tool_json_text(json, "type_in_file", tensor.type_name != NULL ? tensor.type_name : "");
        tool_json_open(json, "shape", '[');
        for (uint32_t d = 0; d < tensor.ndim; d++)
            tool_json_uint(json, NULL, tensor.shape[d]);
        tool_json_close(json, ']');
        tool_json_uint(json, "bytes", tensor.bytes);
        if (tensor.group_size != 0)
            tool_json_uint(json, "group_size", tensor.group_size);
        tool_json_uint(json, "file", tensor.file);
        tool_json_uint(json, "file_offset", tensor.file_offset);
        tool_json_close(json, '}');
    }
    tool_json_close(json, ']');
    return status;
}

static void json_totals(const contents *c, tool_json *json)
{
    tool_json_open(json, "types", '[');
    for (size_t i = 0; i < c->type_count; i++) {
        tool_json_open(json, NULL, '{');
        tool_json_text(json, "type", c->type[i].name);
        tool_json_uint(json, "tensors", c->type[i].tensors);
        tool_json_uint(json, "bytes", c->type[i].bytes);
        tool_json_uint(json, "parameters", c->type[i].values);
        tool_json_real(json, "share", share(c, &c->type[i]));
        tool_json_real(json, "bits_per_weight", bits(&c->type[i]));
        tool_json_close(json, '}');
    }
    tool_json_close(json, ']');
}

static void json_memory(const contents *c, tool_json *json)
{
    const tool_footprint *f = &c->footprint;
    tool_json_open(json, "memory", '{');
    tool_json_uint(json, "context", f->context);
    tool_json_uint(json, "weights", c->info.tensor_bytes);
    if (f->known) {
        tool_json_uint(json, "kv_cache_f16", f->cache_bytes);
        tool_json_uint(json, "total", add(c->info.tensor_bytes, f->cache_bytes));
    } else {
        tool_json_null(json, "kv_cache_f16");
        tool_json_null(json, "total");
    }
    tool_json_text(json, "note", f->note);
    if (f->trained != 0)
        tool_json_uint(json, "trained_context", f->trained);
    else
        tool_json_null(json, "trained_context");
    tool_json_close(json, '}');
}

static mica_status print_json(const contents *c)
{
    tool_json json = {0};
    tool_json_open(&json, NULL, '{');
    tool_json_text(&json, "path", c->path);
    tool_json_text(&json, "format", mica_format_name(c->info.format));
    tool_json_uint(&json, "version", c->info.version);
    tool_json_bool(&json, "big_endian", (int)c->info.big_endian);
    tool_json_uint(&json, "files", c->info.file_count);
    tool_json_uint(&json, "file_bytes", c->info.file_bytes);
    tool_json_uint(&json, "tensor_bytes", c->info.tensor_bytes);
    tool_json_uint(&json, "parameters", c->values);
    json_totals(c, &json);
    json_memory(c, &json);
    mica_status status = json_metadata(c, &json);
    if (status == MICA_OK)
        status = json_tensors(c, &json);
    tool_json_close(&json, '}');
    return status;
}

/* ---- for people ---- */

static void print_title(const char *text)
{
    printf("\n%s%s%s\n", tool_style_begin(TOOL_STRONG), text, tool_style_begin(TOOL_PLAIN));
}

static void print_summary(const contents *c)
{
    char size[TOOL_SIZE_BYTES], data[TOOL_SIZE_BYTES], count[TOOL_COUNT_BYTES], tensors[TOOL_COUNT_BYTES];
    const mica_weights_info *info = &c->info;
    fputs("path        ", stdout);
    tool_text_print(stdout, c->path, strlen(c->path), TOOL_NO_LIMIT);
    printf("\nformat      %s", mica_format_name(info->format));
    if (info->version != 0)
        printf(" version %u", info->version);
    printf("%s\nfiles       %u, %s\n", info->big_endian ? ", big-endian: its tensors cannot be used" : "",
           info->file_count, tool_size_text(info->file_bytes, size));
    printf("tensors     %s, %s\n", tool_count_text(info->tensor_count, tensors),
           tool_size_text(info->tensor_bytes, data));
    printf("parameters  %s\n", tool_count_text(c->values, count));
}

static mica_status print_metadata(const contents *c)
{
    mica_string key;
    const mica_value *value = NULL;
    size_t width = 0;
    mica_status status = MICA_OK;
    if (c->info.metadata_count > 0)
        print_title("metadata");
    for (uint64_t i = 0; i < c->info.metadata_count && status == MICA_OK; i++) {
        status = mica_weights_metadata(c->weights, i, &key, &value);
        if (status == MICA_OK && key.length > width && key.length <= WIDEST_NAME)
            width = (size_t)key.length;
    }
    for (uint64_t i = 0; i < c->info.metadata_count && status == MICA_OK; i++) {
        status = mica_weights_metadata(c->weights, i, &key, &value);
        if (status != MICA_OK)
            return status;
        tool_text_pad(stdout, key.data, width);
        fputs("  ", stdout);
        tool_value_print(value);
        putchar('\n');
    }
    return status;
}

/* One line for each member; the library has found the text to be JSON. */
static void print_config(const contents *c)
{
    const char *text = NULL;
    uint64_t length = 0;
    tool_member member;
    if (mica_weights_config(c->weights, &text, &length) != MICA_OK)
        return;
    print_title("config.json");
    while (tool_config_next(&text, &member)) {
        size_t columns = tool_text_print(stdout, member.key, member.key_length, TOOL_NO_LIMIT);
        printf("%*s", (int)(columns < CONFIG_KEYS ? CONFIG_KEYS - columns : 0) + 2, "");
        if ((*member.value == '{' || *member.value == '[') && member.value_length > CONFIG_VALUES)
            printf("%c...%c", *member.value, *member.value == '{' ? '}' : ']');
        else
            tool_text_print(stdout, member.value, member.value_length, CONFIG_VALUES);
        putchar('\n');
    }
}

static mica_status print_tensors(const contents *c)
{
    mica_status status = MICA_OK;
    print_title("tensors");
    for (uint64_t i = 0; i < c->info.tensor_count && status == MICA_OK; i++) {
        mica_tensor_info tensor;
        char type[TOOL_TYPE_BYTES], shape[TOOL_SHAPE_BYTES], count[TOOL_COUNT_BYTES];
        status = mica_weights_tensor(c->weights, i, &tensor);
        if (status != MICA_OK)
            return status;
        tool_text_pad(stdout, tensor.name, c->name_width);
        fputs("  ", stdout);
        tool_text_pad(stdout, tool_type_text(&tensor, type), 10);
        printf("  %-20s %16s\n", tool_shape_text(&tensor, shape), tool_count_text(tensor.bytes, count));
    }
    return status;
}

static void print_totals(const contents *c)
{
    static const tool_column columns[] = {
        {"type", "type", TOOL_TEXT, 12},
        {"tensors", "tensors", 0, 8},
        {"bytes", "bytes", 0, 16},
        {"share", "share %", 1, 8},
        {"bits_per_weight", "bits/weight", 2, 11},
    };
    putchar('\n');
    tool_table_head(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < c->type_count; i++) {
        const type_total *total = &c->type[i];
        tool_text_pad(stdout, total->name, 12);
        tool_cell cells[] = {{NULL, (double)total->tensors},
                             {NULL, (double)total->bytes},
                             {NULL, share(c, total) * 100},
                             {NULL, bits(total)}};
        fputs("  ", stdout);
        tool_table_row(columns + 1, sizeof cells / sizeof *cells, cells);
    }
}

static void print_memory(const contents *c)
{
    char weights[TOOL_SIZE_BYTES], cache[TOOL_SIZE_BYTES], sum[TOOL_SIZE_BYTES], context[TOOL_COUNT_BYTES];
    const tool_footprint *f = &c->footprint;
    printf("\n%smemory at a context of %s tokens%s\n", tool_style_begin(TOOL_STRONG),
           tool_count_text(f->context, context), tool_style_begin(TOOL_PLAIN));
    printf("weights     %s\n", tool_size_text(c->info.tensor_bytes, weights));
    printf("KV cache    %s (%s%s)\n", f->known ? tool_size_text(f->cache_bytes, cache) : "unknown",
           f->known && f->cache_bytes > 0 ? "f16, " : "", f->note);
    if (f->known)
        printf("together    %s, without the buffers of a pass\n",
               tool_size_text(add(c->info.tensor_bytes, f->cache_bytes), sum));
    if (f->trained != 0 && f->context > f->trained)
        printf("the model was made for a context of %s\n", tool_count_text(f->trained, context));
}

static mica_status print_text(const contents *c, int tensors)
{
    print_summary(c);
    mica_status status = print_metadata(c);
    print_config(c);
    if (status == MICA_OK && tensors)
        status = print_tensors(c);
    print_totals(c);
    print_memory(c);
    return status;
}

int tool_inspect(const tool_call *call)
{
    contents c = {.path = call->argument[0]};
    mica_weights *weights = NULL;
    if (mica_weights_open(c.path, NULL, &weights) != MICA_OK)
        return tool_fail_status();
    c.weights = weights;
    mica_status status = gather(&c, tool_number(call, "ctx"));
    if (status == MICA_OK)
        status = tool_flag(call, "json") ? print_json(&c) : print_text(&c, tool_flag(call, "tensors"));
    mica_weights_release(weights);
    return status == MICA_OK ? 0 : tool_fail_status();
}
