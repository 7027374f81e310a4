/* tiny_model.c - see tiny_model.h. */
#include "support/tiny_model.h"

#include <stdio.h>

#include "support/model_file.h"

static void put(test_gguf *gguf, const char *name, uint64_t experts, uint64_t rows, uint64_t columns)
{
    const uint64_t shape[3] = {experts, rows, columns};
    const uint32_t first = experts != 0 ? 0 : rows != 0 ? 1 : 2;
    test_gguf_tensor(gguf, name, MICA_DTYPE_F32, 3 - first, shape + first);
}

static void put_layer(test_gguf *gguf, uint32_t layer, uint32_t width, uint32_t experts)
{
    static const char *const dense[] = {"ffn_gate", "ffn_up", "ffn_down"};
    static const char *const square[] = {"attn_q", "attn_k", "attn_v", "attn_output"};
    char name[64];
    for (int i = 0; i < 4; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.%s.weight", layer, square[i]);
        put(gguf, name, 0, width, width);
    }
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.%s%s.weight", layer, dense[i], experts != 0 ? "_exps" : "");
        put(gguf, name, experts, width, width);
    }
    if (experts != 0) {
        (void)snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", layer);
        put(gguf, name, 0, experts, width);
    }
    (void)snprintf(name, sizeof name, "blk.%u.attn_norm.weight", layer);
    put(gguf, name, 0, 0, width);
    (void)snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", layer);
    put(gguf, name, 0, 0, width);
}

static uint32_t or_else(uint32_t number, uint32_t otherwise)
{
    return number != 0 ? number : otherwise;
}

static void put_number(test_gguf *gguf, const test_tiny *tiny, const char *key, uint32_t number)
{
    if (tiny->wide != 0)
        test_gguf_u64(gguf, key, number);
    else
        test_gguf_u32(gguf, key, number);
}

void test_tiny_write(const test_tiny *tiny, const char *path)
{
    const uint32_t width = or_else(tiny->width, 8), layers = or_else(tiny->layers, 1);
    test_gguf gguf = {0};
    test_gguf_string(&gguf, "general.architecture", "llama");
    put_number(&gguf, tiny, "llama.block_count", or_else(tiny->stated, layers));
    put_number(&gguf, tiny, "llama.embedding_length", width);
    put_number(&gguf, tiny, "llama.feed_forward_length", width);
    put_number(&gguf, tiny, "llama.context_length", or_else(tiny->context, 64));
    put_number(&gguf, tiny, "llama.attention.head_count", width / 8);
    if (tiny->window != 0)
        put_number(&gguf, tiny, "llama.attention.sliding_window", tiny->window);
    if (tiny->experts != 0) {
        put_number(&gguf, tiny, "llama.expert_count", tiny->experts);
        put_number(&gguf, tiny, "llama.expert_used_count", tiny->experts < 2 ? 1 : 2);
    }
    put(&gguf, "token_embd.weight", 0, or_else(tiny->vocabulary, 8), width);
    put(&gguf, "output_norm.weight", 0, 0, width);
    if (tiny->besides != NULL)
        put(&gguf, tiny->besides, 0, 0, width);
    for (uint32_t i = 0; i < layers; i++)
        put_layer(&gguf, i, width, tiny->experts);
    test_gguf_write(&gguf, path);
    test_gguf_free(&gguf);
}
