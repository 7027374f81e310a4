/*
 * scene.h - a small model file with every kind of tensor that matters to loading, and a device to load it on.
 */
#ifndef TEST_WEIGHTS_SCENE_H
#define TEST_WEIGHTS_SCENE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mica/mica.h"
#include "support/model_file.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

#define SCENE_TENSORS 9u

static const struct {
    const char *name;
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[3];
} scene_table[SCENE_TENSORS] = {
    {"token_embd.weight", MICA_DTYPE_Q6_K, 2, {301, 256}},
    {"blk.0.attn_norm.weight", MICA_DTYPE_F32, 1, {257}},
    {"blk.0.attn_q.weight", MICA_DTYPE_Q4_0, 2, {67, 96}},
    {"blk.0.attn_k.weight", MICA_DTYPE_Q8_0, 2, {8, 64}},
    {"blk.0.ffn_up.weight", MICA_DTYPE_F16, 2, {33, 31}},
    {"blk.0.ffn_exps.weight", MICA_DTYPE_Q4_0, 3, {5, 19, 64}},
    {"blk.0.big.weight", MICA_DTYPE_Q4_0, 2, {6001, 1600}}, /* more than one piece */
    {"blk.0.ids", MICA_DTYPE_I32, 1, {7}},
    {"output.weight", MICA_DTYPE_BF16, 2, {3, 5}},
};

typedef struct scene {
    char path[128];
    unsigned char *data[SCENE_TENSORS];
    uint64_t bytes[SCENE_TENSORS];
} scene;

/* Writes the file; random blocks. */
static void scene_make(scene *s, const char *name)
{
    test_gguf gguf = {0};
    test_random random = test_random_from(7);

    test_file_path(s->path, sizeof s->path, name);
    test_gguf_string(&gguf, "general.architecture", "llama");
    test_gguf_u32(&gguf, "llama.block_count", 1);
    test_gguf_strings(&gguf, "tokenizer.ggml.tokens", 301, "tok");
    for (uint32_t i = 0; i < SCENE_TENSORS; i++)
        test_gguf_tensor(&gguf, scene_table[i].name, scene_table[i].dtype, scene_table[i].ndim,
                         scene_table[i].shape);
    test_gguf_write(&gguf, s->path);
    for (uint32_t i = 0; i < SCENE_TENSORS; i++) {
        s->bytes[i] = test_tensor_bytes_of(scene_table[i].dtype, scene_table[i].ndim, scene_table[i].shape);
        s->data[i] = test_alloc(s->bytes[i], 1);
        if (mica_dtype_block_elements(scene_table[i].dtype) > 1)
            test_blocks_fill(scene_table[i].dtype, s->data[i],
                             s->bytes[i] / mica_dtype_block_bytes(scene_table[i].dtype), &random, 1.0);
        else
            for (uint64_t b = 0; b < s->bytes[i]; b++)
                s->data[i][b] = (unsigned char)test_random_below(&random, 0x70);
        test_gguf_put(&gguf, s->path, i, s->data[i], s->bytes[i]);
    }
    test_gguf_free(&gguf);
}

static void scene_free(scene *s)
{
    unlink(s->path);
    for (uint32_t i = 0; i < SCENE_TENSORS; i++)
        free(s->data[i]);
}

#endif
