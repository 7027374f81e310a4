/* diff.c - `mica diff`: what tool_difference_find has found, for people and for programs. Exit status as diff(1). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "file/difference.h"
#include "file/metadata.h"
#include "terminal/output.h"
#include "terminal/text.h"

#define SHOWN 10 /* of each kind, unless all are asked for */
#define WIDEST_NAME 60

enum { EQUAL = 0, DIFFERENT = 1, TROUBLE = 2 };

/* 1: values of both were read and are not the same. */
static int has_distance(const tool_tensor_change *t)
{
    return t->change == TOOL_CHANGE_VALUES || t->change == TOOL_CHANGE_TYPE;
}

static int is_equal(const tool_difference *d)
{
    return d->key_count == 0 && !d->config && d->count[TOOL_CHANGE_NONE] == d->tensor_count;
}

/* ---- for programs ---- */

static void json_side(tool_json *json, const char *key, const tool_tensor *side)
{
    char type[TOOL_TYPE_BYTES];
    if (side->weights == NULL) {
        tool_json_null(json, key);
        return;
    }
    tool_json_open(json, key, '{');
    tool_json_text(json, "type", tool_type_text(&side->info, type));
    tool_json_open(json, "shape", '[');
    for (uint32_t i = 0; i < side->info.ndim; i++)
        tool_json_uint(json, NULL, side->info.shape[i]);
    tool_json_close(json, ']');
    tool_json_uint(json, "bytes", side->info.bytes);
    tool_json_close(json, '}');
}

static void json_tensor(tool_json *json, const tool_tensor_change *t)
{
    const tool_tensor *named = t->side[0].weights != NULL ? &t->side[0] : &t->side[1];
    tool_json_open(json, NULL, '{');
    tool_json_text(json, "name", named->info.name);
    tool_json_text(json, "change", tool_change_name(t->change));
    json_side(json, "a", &t->side[0]);
    json_side(json, "b", &t->side[1]);
    if (has_distance(t) || t->change == TOOL_CHANGE_NONE) {
        tool_json_uint(json, "values", t->distance.values);
        tool_json_uint(json, "different", t->distance.different);
        tool_json_real(json, "max_error", t->distance.largest);
        tool_json_real(json, "rms_error", t->distance.rms);
        tool_json_real(json, "relative_rms", t->distance.relative);
    }
    tool_json_close(json, '}');
}

static void json_key(tool_json *json, const tool_key_change *k)
{
    static const char *const sides[2] = {"a", "b"};
    tool_json_open(json, NULL, '{');
    tool_json_text(json, "key", k->key);
    for (int i = 0; i < 2; i++) {
        if (k->side[i] != NULL)
            tool_value_json(json, sides[i], k->side[i]);
        else
            tool_json_null(json, sides[i]);
    }
    tool_json_close(json, '}');
}

static void print_json(const tool_call *call, const tool_difference *d)
{
    tool_json json = {0};
    tool_json_open(&json, NULL, '{');
    tool_json_text(&json, "a", call->argument[0]);
    tool_json_text(&json, "b", call->argument[1]);
    tool_json_bool(&json, "equal", is_equal(d));
    tool_json_bool(&json, "config_differs", d->config);
    tool_json_open(&json, "metadata", '[');
    for (uint64_t i = 0; i < d->key_count; i++)
        json_key(&json, &d->key[i]);
    tool_json_close(&json, ']');
    tool_json_open(&json, "counts", '{');
    for (int i = 0; i < TOOL_CHANGE_COUNT; i++)
        tool_json_uint(&json, tool_change_name((tool_change)i), d->count[i]);
    tool_json_close(&json, '}');
    tool_json_open(&json, "tensors", '[');
    for (uint64_t i = 0; i < d->tensor_count; i++)
        json_tensor(&json, &d->tensor[i]);
    tool_json_close(&json, ']');
    tool_json_close(&json, '}');
}

/* ---- for people ---- */

static void print_side(char letter, const char *path, const mica_weights_info *info)
{
    char size[TOOL_SIZE_BYTES], count[TOOL_COUNT_BYTES];
    printf("%c  %s, %s tensors, %s: ", letter, mica_format_name(info->format),
           tool_count_text(info->tensor_count, count), tool_size_text(info->tensor_bytes, size));
    tool_text_print(stdout, path, strlen(path), TOOL_NO_LIMIT);
    putchar('\n');
}

static void print_title(const char *text)
{
    printf("\n%s%s%s\n", tool_style_begin(TOOL_STRONG), text, tool_style_begin(TOOL_PLAIN));
}

static void print_keys(const tool_difference *d)
{
    if (d->key_count > 0 || d->config)
        print_title("metadata");
    for (uint64_t i = 0; i < d->key_count; i++) {
        const tool_key_change *k = &d->key[i];
        tool_text_print(stdout, k->key, strlen(k->key), TOOL_NO_LIMIT);
        fputs(k->side[1] == NULL ? " only in A: " : k->side[0] == NULL ? " only in B: " : ": ", stdout);
        if (k->side[0] != NULL)
            tool_value_print(k->side[0]);
        if (k->side[0] != NULL && k->side[1] != NULL)
            fputs(" | ", stdout);
        if (k->side[1] != NULL)
            tool_value_print(k->side[1]);
        putchar('\n');
    }
    if (d->config)
        puts("config.json differs");
}

static void print_tensor_side(const tool_tensor *side)
{
    char type[TOOL_TYPE_BYTES], shape[TOOL_SHAPE_BYTES];
    tool_type_text(&side->info, type);
    tool_text_print(stdout, type, strlen(type), TOOL_NO_LIMIT);
    printf(" %s", tool_shape_text(&side->info, shape));
}

/* Tensors of one kind whose values were not compared. */
static void print_kind(const tool_difference *d, tool_change change, const char *title, uint64_t limit)
{
    uint64_t shown = 0;
    if (d->count[change] > 0)
        print_title(title);
    for (uint64_t i = 0; i < d->tensor_count && shown < limit; i++) {
        const tool_tensor_change *t = &d->tensor[i];
        const tool_tensor *named = t->side[0].weights != NULL ? &t->side[0] : &t->side[1];
        if (t->change != change)
            continue;
        shown++;
        tool_text_print(stdout, named->info.name, strlen(named->info.name), TOOL_NO_LIMIT);
        fputs(": ", stdout);
        print_tensor_side(named);
        if (named == &t->side[0] && t->side[1].weights != NULL) {
            fputs(" | ", stdout);
            print_tensor_side(&t->side[1]);
        }
        putchar('\n');
    }
    if (shown < d->count[change])
        printf("and %llu more; --tensors lists them\n", (unsigned long long)(d->count[change] - shown));
}

/* The worst first; equal ones in the order of A. */
static int compare_distance(const void *a, const void *b)
{
    const tool_tensor_change *x = *(const tool_tensor_change *const *)a,
                             *y = *(const tool_tensor_change *const *)b;
    if (x->distance.relative != y->distance.relative)
        return x->distance.relative > y->distance.relative ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void print_distance(const tool_tensor_change *t, size_t width)
{
    char a[TOOL_TYPE_BYTES], b[TOOL_TYPE_BYTES], both[2 * TOOL_TYPE_BYTES + 4];
    tool_type_text(&t->side[0].info, a);
    tool_type_text(&t->side[1].info, b);
    snprintf(both, sizeof both, t->change == TOOL_CHANGE_TYPE ? "%s | %s" : "%s", a, b);
    tool_text_pad(stdout, t->side[0].info.name, width);
    fputs("  ", stdout);
    tool_text_pad(stdout, both, 18);
    printf("  %11.4g %11.4g %11.4g\n", t->distance.largest, t->distance.rms, t->distance.relative);
}

static mica_status print_values(const tool_difference *d, int all)
{
    size_t count = 0, width = 6;
    const tool_tensor_change **row = calloc((size_t)d->tensor_count + 1, sizeof *row);
    if (row == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < d->tensor_count; i++)
        if (has_distance(&d->tensor[i]) || (all && d->tensor[i].change == TOOL_CHANGE_NONE))
            row[count++] = &d->tensor[i];
    if (!all)
        qsort(row, count, sizeof *row, compare_distance);
    size_t shown = all || count < SHOWN ? count : SHOWN;
    for (size_t i = 0; i < shown; i++) {
        size_t length = strlen(row[i]->side[0].info.name);
        width = length > width && length <= WIDEST_NAME ? length : width;
    }
    if (shown > 0)
        printf("\n%s%-*s  %-18s  %11s %11s %11s%s\n", tool_style_begin(TOOL_STRONG), (int)width, "tensor",
               "type", "max error", "RMS error", "relative", tool_style_begin(TOOL_PLAIN));
    for (size_t i = 0; i < shown; i++)
        print_distance(row[i], width);
    if (shown < count)
        printf("and %zu more, which are better; --tensors lists them\n", count - shown);
    free(row);
    return MICA_OK;
}

static void print_verdict(const tool_difference *d)
{
    static const char *const words[TOOL_CHANGE_COUNT] = {"the same",      "other values", "another type",
                                                         "another shape", "only in A",    "only in B",
                                                         "not comparable"};
    printf("\ntensors:");
    for (int i = 0, first = 1; i < TOOL_CHANGE_COUNT; i++) {
        if (d->count[i] == 0)
            continue;
        printf("%s %llu %s", first ? "" : ",", (unsigned long long)d->count[i], words[i]);
        first = 0;
    }
    printf("%s; metadata: %llu different\n", d->tensor_count == 0 ? " none" : "",
           (unsigned long long)d->key_count);
}

static mica_status print_text(const tool_call *call, const tool_difference *d)
{
    int all = tool_flag(call, "tensors");
    uint64_t limit = all ? UINT64_MAX : SHOWN;
    print_side('A', call->argument[0], &d->info[0]);
    print_side('B', call->argument[1], &d->info[1]);
    print_keys(d);
    print_kind(d, TOOL_CHANGE_ONLY_A, "only in A", limit);
    print_kind(d, TOOL_CHANGE_ONLY_B, "only in B", limit);
    print_kind(d, TOOL_CHANGE_SHAPE, "another shape", limit);
    print_kind(d, TOOL_CHANGE_UNKNOWN, "not comparable", limit);
    mica_status status = print_values(d, all);
    print_verdict(d);
    return status;
}

static int fail(mica_status status)
{
    if (status == MICA_ERR_OUT_OF_MEMORY)
        tool_fail("there is no memory left to compare the files");
    else
        tool_fail_status();
    return TROUBLE;
}

int tool_diff(const tool_call *call)
{
    tool_difference d;
    tool_progress progress;
    tool_progress_begin(&progress, "comparing");
    mica_status status = tool_difference_find(call->argument[0], call->argument[1], &progress, &d);
    int result = is_equal(&d) ? EQUAL : DIFFERENT;
    tool_progress_end(&progress);
    if (status == MICA_OK && tool_flag(call, "json"))
        print_json(call, &d);
    else if (status == MICA_OK)
        status = print_text(call, &d);
    if (status != MICA_OK)
        result = fail(status);
    else if (d.count[TOOL_CHANGE_UNKNOWN] > 0) {
        tool_fail("%s", d.reason);
        result = TROUBLE;
    }
    if (tool_output_flush() != 0 && result <= DIFFERENT)
        result = TROUBLE;
    tool_difference_end(&d);
    return result;
}
