/*
 * arrays.c - inputs and outputs of graphs as files.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

void graph_free(graph_arrays *arrays)
{
    for (uint32_t i = 0; i < arrays->count; i++) {
        free(arrays->list[i].data);
        free(arrays->name[i]);
    }
    arrays->count = 0;
}

/* One more array of so many bytes; false where there is no memory or place. */
static bool add(graph_arrays *arrays, const char *name, size_t length, uint64_t bytes)
{
    if (arrays->count == GRAPH_MOST_ARRAYS)
        return false;
    mica_array *array = &arrays->list[arrays->count];
    *array = (mica_array){.data = calloc(1, bytes == 0 ? 1 : bytes), .bytes = bytes};
    char *copy = malloc(length + 1);
    if (array->data == NULL || copy == NULL) {
        free(array->data);
        free(copy);
        return false;
    }
    memcpy(copy, name, length);
    copy[length] = '\0';
    array->name = arrays->name[arrays->count++] = copy;
    return true;
}

mica_status graph_read(const char *path, graph_arrays *out)
{
    mica_weights *weights = NULL;
    mica_weights_info info;
    mica_status status = mica_weights_open(path, NULL, &weights);
    if (status == MICA_OK)
        status = mica_weights_get_info(weights, &info);
    for (uint64_t i = 0; status == MICA_OK && i < info.tensor_count; i++) {
        mica_tensor_info tensor;
        status = mica_weights_tensor(weights, i, &tensor);
        if (status == MICA_OK && !add(out, tensor.name, strlen(tensor.name), tensor.bytes))
            status = MICA_ERR_OUT_OF_MEMORY;
        if (status != MICA_OK)
            break;
        mica_array *array = &out->list[out->count - 1];
        array->dtype = tensor.dtype;
        array->ndim = tensor.ndim;
        memcpy(array->shape, tensor.shape, sizeof array->shape);
        status = mica_weights_read(weights, i, 0, array->data, array->bytes);
    }
    mica_weights_release(weights);
    return status;
}

mica_status graph_write(const char *path, const mica_array *list, uint32_t count)
{
    mica_writer *writer = NULL;
    const mica_writer_options options = {.overwrite = 1};
    mica_status status = mica_writer_create(path, &options, &writer);
    for (uint32_t i = 0; status == MICA_OK && i < count; i++)
        status = mica_writer_tensor(writer, list[i].name, list[i].dtype, list[i].ndim, list[i].shape);
    for (uint32_t i = 0; status == MICA_OK && i < count; i++)
        status = mica_writer_write(writer, list[i].data, list[i].bytes);
    if (status != MICA_OK) {
        mica_writer_discard(writer);
        return status;
    }
    return mica_writer_finish(writer);
}

/* ---- drawn ones ---- */

static double drawn(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) { /* about normal, spread 1 */
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        sum += (double)(*state >> 11) * 0x1p-53 - 0.5;
    }
    return sum * 1.7320508;
}

/* f32 as f16 or bf16 of the same value to a few digits: the sign, the exponent and the first digits. */
static uint16_t half_of(float value, bool brain)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (brain)
        return (uint16_t)(bits >> 16);
    const int32_t exponent = (int32_t)(bits >> 23 & 255) - 112;
    return exponent <= 0
               ? 0
               : (uint16_t)((bits >> 16 & 0x8000u) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ffu));
}

static void put(mica_array *array, uint64_t i, double value)
{
    const float single = (float)value;
    const int64_t whole = value > 0;
    const uint16_t half = half_of(single, array->dtype == MICA_DTYPE_BF16);
    const uint32_t bytes = mica_dtype_block_bytes(array->dtype);
    char *to = (char *)array->data + i * bytes;
    switch (array->dtype) {
    case MICA_DTYPE_F32: memcpy(to, &single, 4); break;
    case MICA_DTYPE_F64: memcpy(to, &value, 8); break;
    case MICA_DTYPE_C64: memcpy(to, &single, 4); break;
    case MICA_DTYPE_F16:
    case MICA_DTYPE_BF16: memcpy(to, &half, 2); break;
    default: *to = (char)whole; break; /* little-endian integers and bool */
    }
}

mica_status graph_draw(const mica_graph *graph, uint64_t seed, graph_arrays *out)
{
    uint64_t state = seed * 2 + 1;
    for (uint32_t i = 0; i < mica_graph_input_count(graph); i++) {
        const char *name = NULL;
        mica_graph_tensor_info info;
        uint64_t elements = 1;
        const mica_status status = mica_graph_get_tensor(graph, mica_graph_get_input(graph, i, &name), &info);
        if (status != MICA_OK)
            return status;
        for (uint32_t d = 0; d < info.ndim; d++) {
            info.shape[d] = info.shape[d] >= MICA_SIZE_UNKNOWN ? 1 : info.shape[d];
            elements *= info.shape[d];
        }
        if (!add(out, name, strlen(name), elements * mica_dtype_block_bytes(info.dtype)))
            return MICA_ERR_OUT_OF_MEMORY;
        mica_array *array = &out->list[out->count - 1];
        array->dtype = info.dtype;
        array->ndim = info.ndim;
        memcpy(array->shape, info.shape, sizeof array->shape);
        for (uint64_t e = 0; e < elements; e++)
            put(array, e, drawn(&state));
    }
    return MICA_OK;
}

/* ---- opening ---- */

static bool ends_with(const char *path, const char *end)
{
    const size_t length = strlen(path), tail = strlen(end);
    return length > tail && strcmp(path + length - tail, end) == 0;
}

static mica_status open_onnx(const char *path, const graph_arrays *fed, mica_graph **out_graph)
{
    static mica_onnx_tensor known[GRAPH_MOST_ARRAYS];
    mica_onnx *model = NULL;
    mica_status status = mica_onnx_open(path, &model);
    for (uint32_t i = 0; fed != NULL && i < fed->count; i++) {
        known[i] = (mica_onnx_tensor){.name = fed->list[i].name, .ndim = fed->list[i].ndim};
        memcpy(known[i].shape, fed->list[i].shape, sizeof known[i].shape);
    }
    if (status == MICA_OK)
        status = mica_onnx_graph(model, known, fed != NULL ? fed->count : 0, out_graph);
    mica_onnx_release(model);
    return status;
}

static mica_status open_text(const char *path, mica_graph **out_graph)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t length = 0, room = 0;
    while (file != NULL && !feof(file) && !ferror(file)) {
        if (length == room) {
            char *grown = room > (256u << 20) ? NULL : realloc(text, room = room * 2 + 65536);
            if (grown == NULL)
                break;
            text = grown;
        }
        length += fread(text + length, 1, room - length, file);
    }
    const bool whole = file != NULL && feof(file);
    if (file != NULL)
        fclose(file);
    const mica_status status = whole ? mica_graph_parse(text, length, out_graph) : MICA_ERR_IO;
    free(text);
    return status;
}

mica_status graph_open(const char *path, const graph_arrays *fed, mica_graph **out_graph)
{
    *out_graph = NULL;
    if (ends_with(path, ".onnx"))
        return open_onnx(path, fed, out_graph);
    return ends_with(path, ".txt") ? open_text(path, out_graph) : mica_graph_load(path, out_graph);
}
