/*
 * fuzz_checkpoint.h: a tiny model that runs, of any family, and changes to it that the bytes of an input ask for: other
 * numbers, names, shapes and types, tokens, keys that are gone or there twice, and bytes anywhere. Most inputs make a file
 * that is a model still, or nearly.
 */
#ifndef TEST_FUZZ_CHECKPOINT_H
#define TEST_FUZZ_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void fuzz_require(int condition)
{
    if (!condition)
        __builtin_trap();
}

/* ---- the bytes of an input ------------------------------------------------------------------------------ */

typedef struct fuzz_input {
    const uint8_t *at;
    size_t left;
} fuzz_input;

/* 0 when there are no more. */
static inline uint32_t fuzz_byte(fuzz_input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static inline uint32_t fuzz_below(fuzz_input *in, uint32_t limit)
{
    return fuzz_byte(in) % limit;
}

/* Small ones most of the time; also those at which something overflows. */
static inline uint64_t fuzz_number(fuzz_input *in)
{
    static const uint64_t edges[] = {0,        1,        2,         3,          7,         8,
                                     16,       32,       64,        255,        1024,      65535,
                                     1u << 20, 1u << 24, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    const uint32_t byte = fuzz_byte(in);
    return byte < 128 ? byte : byte < 236 ? edges[byte % 18] : (uint64_t)fuzz_byte(in) << fuzz_byte(in) % 56;
}

/* ---- the parts ------------------------------------------------------------------------------------------ */

enum { FUZZ_METAS = 64, FUZZ_TENSORS = 96, FUZZ_TEXT = 2048 };

typedef struct fuzz_meta {
    char key[64];
    uint32_t type;  /* GGUF's */
    uint64_t count; /* of an array, else 0 */
    uint8_t bytes[FUZZ_TEXT];
    uint32_t size;
} fuzz_meta;

typedef struct fuzz_tensor {
    char name[64];
    uint32_t type, ndim;
    uint64_t shape[4]; /* fastest first, as in the file */
} fuzz_tensor;

typedef struct fuzz_checkpoint {
    fuzz_meta meta[FUZZ_METAS];
    fuzz_tensor tensor[FUZZ_TENSORS];
    uint32_t meta_count, tensor_count;
    uint8_t *bytes; /* the file, 64-aligned */
    size_t size;
} fuzz_checkpoint;

enum { FUZZ_U32 = 4, FUZZ_F32 = 6, FUZZ_STRING = 8, FUZZ_ARRAY = 9 };
enum { FUZZ_WIDTH = 32, FUZZ_HEADS = 2, FUZZ_FFN = 64, FUZZ_VOCABULARY = 48, FUZZ_EXPERTS = 3 };

static inline void fuzz_put(fuzz_meta *meta, const void *bytes, size_t size)
{
    if (meta->size + size > FUZZ_TEXT)
        return;
    memcpy(meta->bytes + meta->size, bytes, size);
    meta->size += (uint32_t)size;
}

static inline fuzz_meta *fuzz_add_meta(fuzz_checkpoint *c, const char *key, uint32_t type)
{
    fuzz_meta *meta = &c->meta[c->meta_count < FUZZ_METAS ? c->meta_count++ : FUZZ_METAS - 1];
    memset(meta, 0, sizeof *meta);
    (void)snprintf(meta->key, sizeof meta->key, "%s", key);
    meta->type = type;
    return meta;
}

static inline void fuzz_put_text(fuzz_meta *meta, const char *text)
{
    const uint64_t length = strlen(text);
    fuzz_put(meta, &length, 8);
    fuzz_put(meta, text, length);
}

static inline void fuzz_add_text(fuzz_checkpoint *c, const char *key, const char *text)
{
    fuzz_put_text(fuzz_add_meta(c, key, FUZZ_STRING), text);
}

static inline void fuzz_add_u32(fuzz_checkpoint *c, const char *arch, const char *key, uint32_t number)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s", arch, key);
    fuzz_put(fuzz_add_meta(c, name, FUZZ_U32), &number, 4);
}

static inline void fuzz_add_f32(fuzz_checkpoint *c, const char *arch, const char *key, float number)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s", arch, key);
    fuzz_put(fuzz_add_meta(c, name, FUZZ_F32), &number, 4);
}

/* An array of `count` items of a type; the caller puts them. */
static inline fuzz_meta *fuzz_add_array(fuzz_checkpoint *c, const char *key, uint32_t item, uint64_t count)
{
    fuzz_meta *meta = fuzz_add_meta(c, key, FUZZ_ARRAY);
    meta->count = count;
    fuzz_put(meta, &item, 4);
    fuzz_put(meta, &count, 8);
    return meta;
}

static inline void fuzz_add_tensor(fuzz_checkpoint *c, const char *name, uint32_t type, uint64_t experts,
                                   uint64_t rows, uint64_t columns)
{
    if (c->tensor_count == FUZZ_TENSORS)
        return;
    fuzz_tensor *t = &c->tensor[c->tensor_count++];
    *t = (fuzz_tensor){.type = type, .shape = {columns, rows, experts}};
    t->ndim = experts != 0 ? 3 : rows != 0 ? 2 : 1;
    (void)snprintf(t->name, sizeof t->name, "%s", name);
}

/* ---- families ------------------------------------------------------------------------------------------- */

enum {
    F_LLAMA,
    F_QWEN2,
    F_QWEN3,
    F_QWEN3MOE,
    F_GEMMA2,
    F_GEMMA3,
    F_PHI3,
    F_GPT2,
    F_BERT,
    F_MIXTRAL,
    F_COUNT
};

static inline const char *fuzz_family(uint32_t family)
{
    static const char *const names[F_COUNT] = {"llama",  "qwen2", "qwen3", "qwen3moe", "gemma2",
                                               "gemma3", "phi3",  "gpt2",  "bert",     "llama"};
    return names[family];
}

/* Tensors of a layer: name, rows, columns in the words of the numbers above; which families have it. */
#define FUZZ_ALL ((1u << F_COUNT) - 1)
#define FUZZ_OF(f) (1u << (f))
#define FUZZ_JOINED (FUZZ_OF(F_PHI3) | FUZZ_OF(F_GPT2))
#define FUZZ_ROUTED (FUZZ_OF(F_QWEN3MOE) | FUZZ_OF(F_MIXTRAL))
#define FUZZ_GEMMA (FUZZ_OF(F_GEMMA2) | FUZZ_OF(F_GEMMA3))
#define FUZZ_BIASED (FUZZ_OF(F_GPT2) | FUZZ_OF(F_BERT))
#define FUZZ_HEADS_NORMED (FUZZ_OF(F_QWEN3) | FUZZ_OF(F_QWEN3MOE) | FUZZ_OF(F_GEMMA3))

static inline void fuzz_add_layer(fuzz_checkpoint *c, uint32_t family, uint32_t layer, uint32_t type)
{
    enum { W = FUZZ_WIDTH, H = FUZZ_WIDTH / FUZZ_HEADS, F = FUZZ_FFN };
    static const struct {
        const char *name;
        uint32_t experts, rows, columns, families;
    } all[] = {
        {"attn_norm.weight", 0, 0, W, FUZZ_ALL & ~FUZZ_OF(F_BERT)},
        {"attn_norm.bias", 0, 0, W, FUZZ_OF(F_GPT2)},
        {"attn_q.weight", 0, W, W, FUZZ_ALL & ~FUZZ_JOINED},
        {"attn_k.weight", 0, W, W, FUZZ_ALL & ~FUZZ_JOINED},
        {"attn_v.weight", 0, W, W, FUZZ_ALL & ~FUZZ_JOINED},
        {"attn_q.bias", 0, 0, W, FUZZ_OF(F_QWEN2) | FUZZ_OF(F_BERT)},
        {"attn_k.bias", 0, 0, W, FUZZ_OF(F_QWEN2) | FUZZ_OF(F_BERT)},
        {"attn_v.bias", 0, 0, W, FUZZ_OF(F_QWEN2) | FUZZ_OF(F_BERT)},
        {"attn_qkv.weight", 0, 3 * W, W, FUZZ_JOINED},
        {"attn_qkv.bias", 0, 0, 3 * W, FUZZ_OF(F_GPT2)},
        {"attn_q_norm.weight", 0, 0, H, FUZZ_HEADS_NORMED},
        {"attn_k_norm.weight", 0, 0, H, FUZZ_HEADS_NORMED},
        {"attn_output.weight", 0, W, W, FUZZ_ALL},
        {"attn_output.bias", 0, 0, W, FUZZ_BIASED},
        {"attn_output_norm.weight", 0, 0, W, FUZZ_OF(F_BERT)},
        {"attn_output_norm.bias", 0, 0, W, FUZZ_OF(F_BERT)},
        {"post_attention_norm.weight", 0, 0, W, FUZZ_GEMMA},
        {"ffn_norm.weight", 0, 0, W, FUZZ_ALL & ~FUZZ_OF(F_BERT)},
        {"ffn_norm.bias", 0, 0, W, FUZZ_OF(F_GPT2)},
        {"ffn_gate.weight", 0, F, W, FUZZ_ALL & ~(FUZZ_JOINED | FUZZ_ROUTED | FUZZ_OF(F_BERT))},
        {"ffn_up.weight", 0, F, W, FUZZ_ALL & ~(FUZZ_OF(F_PHI3) | FUZZ_ROUTED)},
        {"ffn_up.weight", 0, 2 * F, W, FUZZ_OF(F_PHI3)},
        {"ffn_up.bias", 0, 0, F, FUZZ_BIASED},
        {"ffn_down.weight", 0, W, F, FUZZ_ALL & ~FUZZ_ROUTED},
        {"ffn_down.bias", 0, 0, W, FUZZ_BIASED},
        {"post_ffw_norm.weight", 0, 0, W, FUZZ_GEMMA},
        {"layer_output_norm.weight", 0, 0, W, FUZZ_OF(F_BERT)},
        {"layer_output_norm.bias", 0, 0, W, FUZZ_OF(F_BERT)},
        {"ffn_gate_inp.weight", 0, FUZZ_EXPERTS, W, FUZZ_ROUTED},
        {"ffn_gate_exps.weight", FUZZ_EXPERTS, F, W, FUZZ_ROUTED},
        {"ffn_up_exps.weight", FUZZ_EXPERTS, F, W, FUZZ_ROUTED},
        {"ffn_down_exps.weight", FUZZ_EXPERTS, W, F, FUZZ_ROUTED},
    };
    char name[64];
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if ((all[i].families >> family & 1) == 0)
            continue;
        (void)snprintf(name, sizeof name, "blk.%u.%s", layer, all[i].name);
        fuzz_add_tensor(c, name, all[i].rows != 0 ? type : 0, all[i].experts, all[i].rows, all[i].columns);
    }
}

static inline void fuzz_add_numbers(fuzz_checkpoint *c, uint32_t family, uint32_t layers)
{
    char arch[32];
    (void)snprintf(arch, sizeof arch, "%s.", fuzz_family(family));
    fuzz_add_text(c, "general.architecture", fuzz_family(family));
    fuzz_add_u32(c, arch, "block_count", layers);
    fuzz_add_u32(c, arch, "embedding_length", FUZZ_WIDTH);
    fuzz_add_u32(c, arch, "feed_forward_length", FUZZ_FFN);
    fuzz_add_u32(c, arch, "context_length", 96);
    fuzz_add_u32(c, arch, "attention.head_count", FUZZ_HEADS);
    fuzz_add_u32(c, arch, "attention.head_count_kv", FUZZ_HEADS);
    fuzz_add_u32(c, arch, "attention.key_length", FUZZ_WIDTH / FUZZ_HEADS);
    fuzz_add_u32(c, arch, "attention.value_length", FUZZ_WIDTH / FUZZ_HEADS);
    fuzz_add_f32(c, arch,
                 (FUZZ_BIASED >> family & 1) != 0 ? "attention.layer_norm_epsilon"
                                                  : "attention.layer_norm_rms_epsilon",
                 1e-5f);
    if ((FUZZ_BIASED >> family & 1) == 0) {
        fuzz_add_f32(c, arch, "rope.freq_base", 10000);
        fuzz_add_u32(c, arch, "rope.dimension_count", FUZZ_WIDTH / FUZZ_HEADS);
    }
    if ((FUZZ_ROUTED >> family & 1) != 0) {
        fuzz_add_u32(c, arch, "expert_count", FUZZ_EXPERTS);
        fuzz_add_u32(c, arch, "expert_used_count", 2);
        fuzz_add_u32(c, arch, "expert_feed_forward_length", FUZZ_FFN);
    }
    if ((FUZZ_GEMMA >> family & 1) != 0 || family == F_PHI3)
        fuzz_add_u32(c, arch, "attention.sliding_window", 24);
}

/* ---- tokens --------------------------------------------------------------------------------------------- */

static inline void fuzz_token(uint32_t kind, uint32_t id, char *text, size_t size)
{
    static const char *const special[] = {"<unk>", "<s>", "</s>", "[UNK]", "[CLS]", "[SEP]"};
    if (id < 6)
        (void)snprintf(text, size, "%s", special[id]);
    else if (id < 32)
        (void)snprintf(text, size, "%c", 'a' + (int)id - 6);
    else if (id == 32)
        (void)snprintf(text, size, "%s", kind == 0 ? "\xe2\x96\x81" : "\xc4\xa0");
    else if (id < 40)
        (void)snprintf(text, size, "%s%c%c", kind == 2 ? "##" : "", 'a' + (int)id - 33, 'b' + (int)id - 33);
    else
        (void)snprintf(text, size, "<0x%02X>", 0x30 + id);
}

/* Pieces with scores, bytes with merges, or words, by `kind` 0 to 2; 3: none. */
static inline void fuzz_add_tokens(fuzz_checkpoint *c, uint32_t kind)
{
    static const char *const models[] = {"llama", "gpt2", "bert"};
    char text[16];
    if (kind > 2)
        return;
    fuzz_add_text(c, "tokenizer.ggml.model", models[kind]);
    fuzz_meta *tokens = fuzz_add_array(c, "tokenizer.ggml.tokens", FUZZ_STRING, FUZZ_VOCABULARY);
    for (uint32_t i = 0; i < FUZZ_VOCABULARY; i++) {
        fuzz_token(kind, i, text, sizeof text);
        fuzz_put_text(tokens, text);
    }
    fuzz_meta *types = fuzz_add_array(c, "tokenizer.ggml.token_type", 5, FUZZ_VOCABULARY);
    for (uint32_t i = 0; i < FUZZ_VOCABULARY; i++)
        fuzz_put(types, &(uint32_t){i == 0 ? 2 : i < 6 ? 3 : i >= 40 && kind == 0 ? 6 : 1}, 4);
    if (kind == 0) {
        fuzz_meta *scores = fuzz_add_array(c, "tokenizer.ggml.scores", FUZZ_F32, FUZZ_VOCABULARY);
        for (uint32_t i = 0; i < FUZZ_VOCABULARY; i++)
            fuzz_put(scores, &(float){-(float)(i % 7)}, 4);
    } else if (kind == 1) {
        fuzz_add_text(c, "tokenizer.ggml.pre", "gpt-2");
        fuzz_meta *merges = fuzz_add_array(c, "tokenizer.ggml.merges", FUZZ_STRING, 7);
        for (int i = 0; i < 7; i++) {
            (void)snprintf(text, sizeof text, "%c %c", 'a' + i, 'b' + i);
            fuzz_put_text(merges, text);
        }
    }
    fuzz_add_u32(c, "", "tokenizer.ggml.bos_token_id", 1);
    fuzz_add_u32(c, "", "tokenizer.ggml.eos_token_id", 2);
    fuzz_add_u32(c, "", "tokenizer.ggml.unknown_token_id", 0);
    fuzz_add_text(c, "tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
}

/* ---- changes -------------------------------------------------------------------------------------------- */

static inline void fuzz_change_meta(fuzz_checkpoint *c, fuzz_input *in)
{
    static const char *const keys[] = {"rope.scaling.type",
                                       "rope.scaling.factor",
                                       "rope.scaling.original_context_length",
                                       "attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "attention.sliding_window",
                                       "attention.sliding_window_pattern",
                                       "attention.scale",
                                       "expert_count",
                                       "expert_weights_scale",
                                       "pooling_type",
                                       "attention.causal"};
    fuzz_meta *meta = &c->meta[fuzz_below(in, c->meta_count)];
    char arch[64] = "";
    const float reals[] = {0, 1, -1, 0.5f, 8, 1e-45f, 1e38f, 1e-20f};
    const uint64_t number = fuzz_number(in);
    switch (fuzz_below(in, 8)) {
    case 0: /* gone */ *meta = c->meta[--c->meta_count]; break;
    case 1: /* twice */ c->meta[c->meta_count < FUZZ_METAS ? c->meta_count++ : 0] = *meta; break;
    case 2: /* of another type, as long or not */ meta->type = (uint32_t)number % 14; break;
    case 3: /* bytes anywhere in it */
        for (uint32_t n = 1 + fuzz_below(in, 4); n > 0 && meta->size != 0; n--)
            meta->bytes[(fuzz_byte(in) << 8 | fuzz_byte(in)) % meta->size] = (uint8_t)fuzz_byte(in);
        break;
    case 4: /* another key */ meta->key[fuzz_below(in, 24)] = (char)('a' + number % 26); break;
    case 5: /* one that the family may have */
        (void)snprintf(arch, sizeof arch, "%.30s.", (const char *)c->meta[0].bytes + 8);
        if (number % 3 == 0)
            fuzz_add_u32(c, arch, keys[fuzz_below(in, 12)], (uint32_t)fuzz_number(in));
        else
            fuzz_add_f32(c, arch, keys[fuzz_below(in, 12)], reals[fuzz_below(in, 8)]);
        break;
    default: /* another number */
        if (meta->type == FUZZ_U32)
            memcpy(meta->bytes, &(uint32_t){(uint32_t)number}, 4);
        else if (meta->type == FUZZ_F32)
            memcpy(meta->bytes, &reals[number % 8], 4);
        break;
    }
}

static inline void fuzz_change_tensor(fuzz_checkpoint *c, fuzz_input *in)
{
    static const uint32_t types[] = {0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 30, 24, 39};
    fuzz_tensor *t = &c->tensor[fuzz_below(in, c->tensor_count)];
    switch (fuzz_below(in, 6)) {
    case 0: *t = c->tensor[--c->tensor_count]; break;
    case 1: c->tensor[c->tensor_count < FUZZ_TENSORS ? c->tensor_count++ : 0] = *t; break;
    case 2: t->type = types[fuzz_below(in, 16)]; break;
    case 3: t->shape[fuzz_below(in, 4)] = fuzz_number(in); break;
    case 4: t->ndim = fuzz_below(in, 5); break;
    default: t->name[fuzz_below(in, 24)] = (char)fuzz_byte(in); break;
    }
}

/* ---- the file ------------------------------------------------------------------------------------------- */

static inline uint64_t fuzz_tensor_bytes(const fuzz_tensor *t)
{
    /* Values and bytes of a block, by GGUF's number. */
    static const uint8_t blocks[40][2] = {
        {1, 4},   {1, 2},   {32, 18}, {32, 20}, {0, 0},   {0, 0}, {32, 22}, {32, 24}, {32, 34}, {32, 36},
        {0, 84},  {0, 110}, {0, 144}, {0, 176}, {0, 210}, {0, 0}, {0, 0},   {0, 0},   {0, 0},   {0, 0},
        {32, 18}, {0, 0},   {0, 0},   {0, 0},   {1, 1},   {1, 2}, {1, 4},   {1, 8},   {1, 8},   {0, 0},
        {1, 2},   {0, 0},   {0, 0},   {0, 0},   {0, 0},   {0, 0}, {0, 0},   {0, 0},   {0, 0},   {32, 17}};
    uint64_t elements = 1;
    for (uint32_t d = 0; d < t->ndim && d < 4; d++)
        elements *= t->shape[d] < 4096 ? t->shape[d] : 4096;
    if (t->type >= 40 || blocks[t->type][1] == 0)
        return 64;
    const uint64_t values = blocks[t->type][0] == 0 ? 256 : blocks[t->type][0];
    const uint64_t bytes = elements / values * blocks[t->type][1];
    return bytes < 1u << 20 ? bytes : 1u << 20;
}

typedef struct fuzz_bytes {
    uint8_t *data;
    size_t size, room;
} fuzz_bytes;

static inline void fuzz_write(fuzz_bytes *b, const void *data, size_t size)
{
    if (b->size + size > b->room) {
        const size_t room = (b->size + size) * 2 + 4096;
        uint8_t *grown = aligned_alloc(64, (room + 63) / 64 * 64);
        fuzz_require(grown != NULL);
        if (b->size != 0)
            memcpy(grown, b->data, b->size);
        free(b->data);
        b->data = grown;
        b->room = (room + 63) / 64 * 64;
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static inline void fuzz_write_text(fuzz_bytes *b, const char *text)
{
    const uint64_t length = strlen(text);
    fuzz_write(b, &length, 8);
    fuzz_write(b, text, length);
}

/* Floats and half floats near 0.1, blocks of small scales: bytes 0x11 to 0x2f make numbers of that kind in all types. */
static inline void fuzz_write_data(fuzz_bytes *b, const fuzz_tensor *t, uint32_t *seed)
{
    const uint64_t bytes = fuzz_tensor_bytes(t);
    for (uint64_t i = 0; i < bytes; i += 4) {
        *seed = *seed * 1664525u + 1013904223u;
        const float value = (float)(int32_t)*seed * (1.0f / 8589934592.0f);
        const uint32_t word = 0x11111111u + (*seed >> 9 & 0x1e1e1e1eu);
        fuzz_write(b, t->type == 0 ? (const void *)&value : (const void *)&word,
                   bytes - i < 4 ? bytes - i : 4);
    }
    static const uint8_t zeros[32];
    fuzz_write(b, zeros, (32 - b->size % 32) % 32);
}

static inline void fuzz_checkpoint_write(fuzz_checkpoint *c, uint32_t seed)
{
    fuzz_bytes b = {0};
    uint64_t offset = 0;
    static const uint8_t zeros[32];
    fuzz_write(&b, "GGUF\3\0\0\0", 8);
    fuzz_write(&b, &(uint64_t){c->tensor_count}, 8);
    fuzz_write(&b, &(uint64_t){c->meta_count}, 8);
    for (uint32_t i = 0; i < c->meta_count; i++) {
        fuzz_write_text(&b, c->meta[i].key);
        fuzz_write(&b, &c->meta[i].type, 4);
        fuzz_write(&b, c->meta[i].bytes, c->meta[i].size);
    }
    for (uint32_t i = 0; i < c->tensor_count; i++) {
        fuzz_tensor *t = &c->tensor[i];
        fuzz_write_text(&b, t->name);
        fuzz_write(&b, &t->ndim, 4);
        for (uint32_t d = 0; d < t->ndim && d < 4; d++)
            fuzz_write(&b, &t->shape[d], 8);
        fuzz_write(&b, &t->type, 4);
        fuzz_write(&b, &offset, 8);
        offset += (fuzz_tensor_bytes(t) + 31) / 32 * 32;
    }
    fuzz_write(&b, zeros, (32 - b.size % 32) % 32);
    for (uint32_t i = 0; i < c->tensor_count; i++)
        fuzz_write_data(&b, &c->tensor[i], &seed);
    c->bytes = b.data;
    c->size = b.size;
}

/* The model that the input begins with: a family, a type, tokens, then changes. The caller frees c->bytes. */
static inline void fuzz_checkpoint_make(fuzz_checkpoint *c, fuzz_input *in)
{
    static const uint32_t types[] = {0, 0, 1, 8, 2, 30};
    const uint32_t family = fuzz_below(in, F_COUNT), type = types[fuzz_below(in, 6)];
    const uint32_t tokens = fuzz_below(in, 4), layers = 1 + fuzz_below(in, 2), changes = fuzz_below(in, 16);
    c->meta_count = c->tensor_count = 0;
    fuzz_add_numbers(c, family, layers);
    fuzz_add_tokens(c, tokens);
    fuzz_add_tensor(c, "token_embd.weight", type, 0, FUZZ_VOCABULARY, FUZZ_WIDTH);
    if (family != F_BERT)
        fuzz_add_tensor(c, "output_norm.weight", 0, 0, 0, FUZZ_WIDTH);
    if ((FUZZ_BIASED >> family & 1) != 0)
        fuzz_add_tensor(c, "position_embd.weight", 0, 0, 96, FUZZ_WIDTH);
    if (family == F_BERT) {
        fuzz_add_tensor(c, "token_embd_norm.weight", 0, 0, 0, FUZZ_WIDTH);
        fuzz_add_tensor(c, "token_types.weight", 0, 0, 2, FUZZ_WIDTH);
    }
    if (family == F_GPT2)
        fuzz_add_tensor(c, "output_norm.bias", 0, 0, 0, FUZZ_WIDTH);
    if (type != 0 && family != F_BERT)
        fuzz_add_tensor(c, "output.weight", type, 0, FUZZ_VOCABULARY, FUZZ_WIDTH);
    for (uint32_t i = 0; i < layers; i++)
        fuzz_add_layer(c, family, i, type);
    for (uint32_t i = changes > 8 ? changes - 8 : 0; i > 0 && c->meta_count > 1 && c->tensor_count > 1; i--)
        if (fuzz_below(in, 3) == 0)
            fuzz_change_tensor(c, in);
        else
            fuzz_change_meta(c, in);
    fuzz_checkpoint_write(c, fuzz_byte(in));
    for (uint32_t i = fuzz_below(in, 16); i > 12; i--) /* now and then, bytes of the header */
        c->bytes[(fuzz_byte(in) << 8 | fuzz_byte(in)) % c->size] = (uint8_t)fuzz_byte(in);
}

#endif
