/* difference.c - joins two models by their names. */
#include "file/difference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/metadata.h"

/* Names of one model in order, so that a join costs n log n whatever the names are. */
typedef struct name_entry {
    const char *name;
    uint64_t index;
    int taken; /* 1: the other model has it too */
} name_entry;

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const name_entry *)a)->name, ((const name_entry *)b)->name);
}

static name_entry *find_name(name_entry *entries, uint64_t count, const char *name)
{
    name_entry wanted = {.name = name};
    return count == 0 ? NULL : bsearch(&wanted, entries, (size_t)count, sizeof *entries, compare_names);
}

const char *tool_change_name(tool_change change)
{
    static const char *const names[TOOL_CHANGE_COUNT] = {"same",   "values", "type",   "shape",
                                                         "only_a", "only_b", "unknown"};
    return names[change];
}

/* ---- metadata ---- */

static mica_status list_keys(const mica_weights *weights, uint64_t count, name_entry *out)
{
    for (uint64_t i = 0; i < count; i++) {
        mica_string key;
        const mica_value *value = NULL;
        mica_status status = mica_weights_metadata(weights, i, &key, &value);
        if (status != MICA_OK)
            return status;
        out[i] = (name_entry){key.data, i, 0};
    }
    qsort(out, (size_t)count, sizeof *out, compare_names);
    return MICA_OK;
}

static mica_status join_keys(tool_difference *d, name_entry *others)
{
    mica_string key;
    for (uint64_t i = 0; i < d->info[0].metadata_count; i++) {
        const mica_value *a = NULL, *b = NULL;
        mica_status status = mica_weights_metadata(d->weights[0], i, &key, &a);
        name_entry *other = status == MICA_OK ? find_name(others, d->info[1].metadata_count, key.data) : NULL;
        if (other != NULL) {
            mica_string same_key;
            other->taken = 1;
            status = mica_weights_metadata(d->weights[1], other->index, &same_key, &b);
        }
        if (status != MICA_OK)
            return status;
        if (b == NULL || !tool_value_equal(a, b))
            d->key[d->key_count++] = (tool_key_change){key.data, {a, b}};
    }
    for (uint64_t i = 0; i < d->info[1].metadata_count; i++) {
        const mica_value *b = NULL;
        mica_status status = mica_weights_metadata(d->weights[1], others[i].index, &key, &b);
        if (status != MICA_OK)
            return status;
        if (!others[i].taken)
            d->key[d->key_count++] = (tool_key_change){key.data, {NULL, b}};
    }
    return MICA_OK;
}

static mica_status find_key_changes(tool_difference *d)
{
    name_entry *others = calloc((size_t)d->info[1].metadata_count + 1, sizeof *others);
    d->key = calloc((size_t)(d->info[0].metadata_count + d->info[1].metadata_count) + 1, sizeof *d->key);
    mica_status status = others != NULL && d->key != NULL ? MICA_OK : MICA_ERR_OUT_OF_MEMORY;
    if (status == MICA_OK)
        status = list_keys(d->weights[1], d->info[1].metadata_count, others);
    if (status == MICA_OK)
        status = join_keys(d, others);
    free(others);
    return status;
}

static int configs_differ(const tool_difference *d)
{
    const char *text[2] = {"", ""};
    uint64_t length[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        if (mica_weights_config(d->weights[i], &text[i], &length[i]) != MICA_OK)
            text[i] = "";
    return length[0] != length[1] || memcmp(text[0], text[1], (size_t)length[0]) != 0;
}

/* ---- tensors ---- */

static mica_status take_tensor(const mica_weights *weights, uint64_t index, tool_tensor *out)
{
    *out = (tool_tensor){.weights = weights, .index = index};
    return mica_weights_tensor(weights, index, &out->info);
}

static mica_status list_tensors(const mica_weights *weights, uint64_t count, name_entry *out)
{
    for (uint64_t i = 0; i < count; i++) {
        mica_tensor_info info;
        mica_status status = mica_weights_tensor(weights, i, &info);
        if (status != MICA_OK)
            return status;
        out[i] = (name_entry){info.name, i, 0};
    }
    qsort(out, (size_t)count, sizeof *out, compare_names);
    return MICA_OK;
}

static mica_status join_tensors(tool_difference *d, name_entry *others)
{
    mica_status status = MICA_OK;
    for (uint64_t i = 0; i < d->info[0].tensor_count && status == MICA_OK; i++) {
        tool_tensor_change *t = &d->tensor[d->tensor_count++];
        t->change = TOOL_CHANGE_ONLY_A;
        status = take_tensor(d->weights[0], i, &t->side[0]);
        name_entry *other =
            status == MICA_OK ? find_name(others, d->info[1].tensor_count, t->side[0].info.name) : NULL;
        if (other == NULL)
            continue;
        other->taken = 1;
        t->change = TOOL_CHANGE_NONE;
        status = take_tensor(d->weights[1], other->index, &t->side[1]);
    }
    for (uint64_t i = 0; i < d->info[1].tensor_count && status == MICA_OK; i++) {
        if (others[i].taken)
            continue;
        d->tensor[d->tensor_count].change = TOOL_CHANGE_ONLY_B;
        status = take_tensor(d->weights[1], others[i].index, &d->tensor[d->tensor_count++].side[1]);
    }
    return status;
}

static int shapes_differ(const mica_tensor_info *a, const mica_tensor_info *b)
{
    return a->ndim != b->ndim || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) != 0;
}

static int types_differ(const mica_tensor_info *a, const mica_tensor_info *b)
{
    char x[TOOL_TYPE_BYTES], y[TOOL_TYPE_BYTES];
    return strcmp(tool_type_text(a, x), tool_type_text(b, y)) != 0;
}

/* Only what cannot be read is forgiven: it is counted. */
static mica_status judge(tool_difference *d, tool_comparer *comparer, tool_tensor_change *t)
{
    const mica_tensor_info *a = &t->side[0].info, *b = &t->side[1].info;
    if (t->change != TOOL_CHANGE_NONE)
        return MICA_OK;
    if (shapes_differ(a, b)) {
        t->change = TOOL_CHANGE_SHAPE;
        return MICA_OK;
    }
    mica_status status = tool_compare(comparer, &t->side[0], &t->side[1], &t->distance);
    if (status == MICA_ERR_UNSUPPORTED) {
        t->change = TOOL_CHANGE_UNKNOWN;
        if (d->reason[0] == '\0')
            snprintf(d->reason, sizeof d->reason, "%s", mica_status_message());
        return MICA_OK;
    }
    t->change = types_differ(a, b) ? TOOL_CHANGE_TYPE
                : t->distance.same ? TOOL_CHANGE_NONE
                                   : TOOL_CHANGE_VALUES;
    return status;
}

static mica_status find_tensor_changes(tool_difference *d, tool_progress *progress)
{
    tool_comparer comparer = {.progress = progress,
                              .total_bytes = d->info[0].tensor_bytes + d->info[1].tensor_bytes};
    name_entry *others = calloc((size_t)d->info[1].tensor_count + 1, sizeof *others);
    d->tensor = calloc((size_t)(d->info[0].tensor_count + d->info[1].tensor_count) + 1, sizeof *d->tensor);
    mica_status status = others != NULL && d->tensor != NULL ? MICA_OK : MICA_ERR_OUT_OF_MEMORY;
    if (status == MICA_OK)
        status = list_tensors(d->weights[1], d->info[1].tensor_count, others);
    if (status == MICA_OK)
        status = join_tensors(d, others);
    for (uint64_t i = 0; i < d->tensor_count && status == MICA_OK; i++) {
        status = judge(d, &comparer, &d->tensor[i]);
        d->count[d->tensor[i].change]++;
    }
    tool_comparer_end(&comparer);
    free(others);
    return status;
}

mica_status tool_difference_find(const char *a, const char *b, tool_progress *progress, tool_difference *out)
{
    const char *path[2] = {a, b};
    mica_status status = MICA_OK;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < 2 && status == MICA_OK; i++) {
        status = mica_weights_open(path[i], NULL, &out->weights[i]);
        if (status == MICA_OK)
            status = mica_weights_get_info(out->weights[i], &out->info[i]);
    }
    if (status == MICA_OK)
        status = find_key_changes(out);
    if (status != MICA_OK)
        return status;
    out->config = configs_differ(out);
    return find_tensor_changes(out, progress);
}

void tool_difference_end(tool_difference *difference)
{
    free(difference->key);
    free(difference->tensor);
    mica_weights_release(difference->weights[0]);
    mica_weights_release(difference->weights[1]);
    memset(difference, 0, sizeof *difference);
}
