/*
 * bench_weights.c - opening a large model file, and loading one by every way.
 *
 * The files are holes: as much header as the real thing, no disk. So loads show what mica and the system's copying
 * cost, with the file in memory; a cold load adds the disk.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/model_file.h"
#include "support/resident.h"

#define TOKENS 150000u
#define LAYERS 66u /* of nine tensors, and six more: 600 */

/* `layers` layers with matrices of `rows` times 4096 in q4_0. */
static void make_model(const char *path, uint32_t layers, uint64_t rows)
{
    static const char *const names[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                        "ffn_gate", "ffn_up", "ffn_down"};
    const uint64_t vector[] = {4096}, matrix[] = {rows, 4096}, table[] = {TOKENS, 4096};
    test_gguf gguf = {0};
    char name[64];

    test_gguf_string(&gguf, "general.architecture", "llama");
    test_gguf_strings(&gguf, "tokenizer.ggml.tokens", TOKENS, "token number ");
    test_gguf_strings(&gguf, "tokenizer.ggml.merges", TOKENS, "mer ge");
    for (uint32_t layer = 0; layer < layers; layer++) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", layer, names[i]);
            test_gguf_tensor(&gguf, name, MICA_DTYPE_Q4_0, 2, matrix);
        }
        snprintf(name, sizeof name, "blk.%u.attn_norm.weight", layer);
        test_gguf_tensor(&gguf, name, MICA_DTYPE_F32, 1, vector);
        snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", layer);
        test_gguf_tensor(&gguf, name, MICA_DTYPE_F32, 1, vector);
    }
    for (uint32_t i = 0; layers == LAYERS && i < 6; i++) {
        snprintf(name, sizeof name, "table.%u", i);
        test_gguf_tensor(&gguf, name, MICA_DTYPE_Q4_0, 2, table);
    }
    test_gguf_write(&gguf, path);
    test_gguf_free(&gguf);
}

static void open_model(void *path)
{
    mica_weights *weights;

    bench_must(mica_weights_open(path, NULL, &weights));
    mica_weights_release(weights);
}

static void measure_open(char *path)
{
    mica_weights *weights;
    mica_weights_info info;
    uint64_t before;

    make_model(path, LAYERS, 12800);
    before = test_resident();
    bench_must(mica_weights_open(path, NULL, &weights));
    bench_must(mica_weights_get_info(weights, &info));
    bench_row("open, resident memory", (double)(test_resident() - before) / 1e6, "MB", "goal 64");
    mica_weights_release(weights);
    bench_row("open", bench_time(open_model, path, 0.5) * 1e3, "ms",
              "%.1f GB, %llu tensors, %u tokens; warm, goal 50", (double)info.tensor_bytes / 1e9,
              (unsigned long long)info.tensor_count, TOKENS);
    unlink(path);
}

typedef struct loading {
    char *path;
    mica_device *device;
    uint32_t open, load;
    uint64_t bytes;
} loading;

static void load_model(void *argument)
{
    loading *l = argument;
    mica_weights_options options = {.flags = l->open};
    mica_weights *weights;
    mica_weights_info info;

    bench_must(mica_weights_open(l->path, &options, &weights));
    bench_must(mica_weights_get_info(weights, &info));
    l->bytes = info.tensor_bytes;
    uint64_t *index = bench_alloc(info.tensor_count * sizeof *index);
    mica_buffer **buffers = bench_alloc(info.tensor_count * sizeof *buffers);
    for (uint64_t i = 0; i < info.tensor_count; i++)
        index[i] = i;
    bench_must(
        mica_weights_load_all(weights, index, info.tensor_count, l->device, l->load, NULL, NULL, buffers));
    for (uint64_t i = 0; i < info.tensor_count; i++)
        mica_buffer_release(buffers[i]);
    free(index);
    free(buffers);
    mica_weights_release(weights);
}

static void measure_load(char *path)
{
    static const struct {
        const char *name;
        uint32_t open, load;
    } ways[] = {{"load, imported", 0, 0},
                {"load, packed from the map", 0, MICA_LOAD_PACK},
                {"load, read", MICA_WEIGHTS_NO_MAP, 0},
                {"load, read and packed", MICA_WEIGHTS_NO_MAP, MICA_LOAD_PACK}};
    loading l = {.path = path, .device = bench_device(2)};

    make_model(path, bench_settings.quick ? 2 : 10, 8192);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        l.open = ways[i].open;
        l.load = ways[i].load;
        load_model(&l);
        double seconds = bench_time(load_model, &l, 0.5);
        bench_row(ways[i].name, (double)l.bytes / seconds / 1e9, "GB/s",
                  "%.2f GB of q4_0 in %.1f ms, file in memory", (double)l.bytes / 1e9, seconds * 1e3);
    }
    mica_device_release(l.device);
    unlink(path);
}

void bench_weights(void)
{
    char path[64];

    snprintf(path, sizeof path, "%s/mica_bench_%ld.gguf", P_tmpdir, (long)getpid());
    bench_section("weights");
    measure_open(path);
    measure_load(path);
}
