/*
 * Model files: how opening, converting and quantising grow with each dimension of what a file holds. With the argument
 * `long` the sizes are larger and seconds are compared with steps.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mica/host.h"
#include "mica/weights.h"
#include "support/folder.h"
#include "support/growth.h"

static int long_run;

/* ---- bytes ------------------------------------------------------------------------------------------------ */

typedef struct bytes {
    char *data;
    size_t size, room;
} bytes;

static void put(bytes *b, const void *data, size_t size)
{
    if (b->size + size + 1 > b->room) {
        b->room = (b->size + size) * 2 + 64;
        b->data = realloc(b->data, b->room);
        assert_non_null(b->data);
    }
    if (size != 0)
        memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void say(bytes *b, const char *text)
{
    put(b, text, strlen(text));
}

static void sayf(bytes *b, const char *format, uint64_t number)
{
    char text[160];
    snprintf(text, sizeof text, format, (unsigned long long)number);
    say(b, text);
}

static void number(bytes *b, uint64_t value, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        put(b, &(char){(char)(value >> 8 * i)}, 1);
}

static void fill(bytes *b, char letter, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        put(b, &letter, 1);
}

static mica_status open_bytes(bytes *b)
{
    mica_weights *weights = NULL;
    const mica_status status = mica_weights_open_bytes(b->data, b->size, NULL, &weights);
    mica_weights_release(weights);
    free(b->data);
    return status;
}

/* ---- a folder of its own ---------------------------------------------------------------------------------- */

static char folder[256], model[300], result[300];

static int make_folder(void **state)
{
    (void)state;
    assert_int_equal(test_folder_make(folder, sizeof folder, "growth"), 0);
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(result, sizeof result, "%s/result", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return test_folder_remove(folder);
}

/* Writes a file of the folder and frees the bytes. */
static void keep(const char *place, const char *name, bytes *b)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s%s", place, name[0] == '\0' ? "" : "/", name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->data, 1, b->size, file), b->size);
    assert_int_equal(fclose(file), 0);
    free(b->data);
    *b = (bytes){0};
}

static void fresh_model(void)
{
    test_folder_empty(folder);
    assert_int_equal(mkdir(model, 0700), 0);
}

static mica_status open_path(const char *path, uint32_t flags)
{
    mica_weights *weights = NULL;
    const mica_status status = mica_weights_open(path, &(mica_weights_options){.flags = flags}, &weights);
    mica_weights_release(weights);
    return status;
}

/* ---- GGUF ------------------------------------------------------------------------------------------------- */

static void gguf_text(bytes *b, const char *text)
{
    number(b, strlen(text), 8);
    say(b, text);
}

static void gguf_head(bytes *b, uint64_t tensors, uint64_t entries)
{
    say(b, "GGUF");
    number(b, 3, 4);
    number(b, tensors, 8);
    number(b, entries, 8);
}

static void gguf_u32(bytes *b, const char *key, uint32_t value)
{
    gguf_text(b, key);
    number(b, MICA_VALUE_U32, 4);
    number(b, value, 4);
}

/* `count` vectors of 8 floats, named so that neither names nor offsets are in order; the data goes with gguf_data. */
static void gguf_tensors(bytes *b, uint64_t first, uint64_t count, uint64_t name_bytes)
{
    for (uint64_t i = 0; i < count; i++) {
        char tail[32];
        const int length =
            snprintf(tail, sizeof tail, "%llx", (unsigned long long)((first + i) * 2654435761u));
        number(b, name_bytes + (uint64_t)length, 8);
        fill(b, 'n', name_bytes);
        say(b, tail);
        number(b, 1, 4);
        number(b, 8, 8);
        number(b, 0, 4);
        number(b, (count - 1 - i) * 32, 8);
    }
}

static void gguf_data(bytes *b, uint64_t tensors)
{
    fill(b, '\0', (32 - b->size % 32) % 32);
    fill(b, '\0', tensors * 32);
}

static mica_status gguf_many_tensors(uint64_t size)
{
    bytes b = {0};
    gguf_head(&b, size, 0);
    gguf_tensors(&b, 0, size, 1);
    gguf_data(&b, size);
    return open_bytes(&b);
}

static mica_status gguf_long_names(uint64_t size)
{
    bytes b = {0};
    gguf_head(&b, 8, 0);
    gguf_tensors(&b, 0, 8, size);
    gguf_data(&b, 8);
    return open_bytes(&b);
}

static mica_status gguf_many_keys(uint64_t size)
{
    bytes b = {0};
    gguf_head(&b, 0, size);
    for (uint64_t i = 0; i < size; i++) {
        char key[32];
        snprintf(key, sizeof key, "key.%llx", (unsigned long long)(i * 2654435761u));
        gguf_u32(&b, key, 1);
    }
    return open_bytes(&b);
}

static mica_status gguf_array(uint64_t size, mica_value_type type, uint32_t each)
{
    bytes b = {0};
    gguf_head(&b, 0, 1);
    gguf_text(&b, "key");
    number(&b, MICA_VALUE_ARRAY, 4);
    number(&b, type, 4);
    number(&b, size, 8);
    for (uint64_t i = 0; i < size; i++)
        if (type == MICA_VALUE_STRING) {
            gguf_text(&b, "word");
        } else if (type == MICA_VALUE_ARRAY) {
            number(&b, MICA_VALUE_U8, 4);
            number(&b, 1, 8);
            number(&b, 1, 1);
        } else {
            number(&b, 1, each);
        }
    return open_bytes(&b);
}

static mica_status gguf_numbers(uint64_t size)
{
    return gguf_array(size * 16, MICA_VALUE_F64, 8);
}

static mica_status gguf_truths(uint64_t size)
{
    return gguf_array(size * 64, MICA_VALUE_BOOL, 1);
}

static mica_status gguf_strings(uint64_t size)
{
    return gguf_array(size, MICA_VALUE_STRING, 0);
}

static mica_status gguf_arrays(uint64_t size)
{
    return gguf_array(size, MICA_VALUE_ARRAY, 0);
}

static mica_status gguf_long_string(uint64_t size)
{
    bytes b = {0};
    gguf_head(&b, 0, 1);
    gguf_text(&b, "key");
    number(&b, MICA_VALUE_STRING, 4);
    number(&b, size * 64, 8);
    fill(&b, 's', size * 64);
    return open_bytes(&b);
}

static mica_status gguf_dimensions(uint64_t size)
{
    bytes b = {0};
    gguf_head(&b, 1, 0);
    gguf_text(&b, "tensor");
    number(&b, size, 4);
    for (uint64_t i = 0; i < size; i++)
        number(&b, 1, 8);
    number(&b, 0, 4);
    number(&b, 0, 8);
    gguf_data(&b, 1);
    return open_bytes(&b);
}

static mica_status gguf_parts(uint64_t size)
{
    char name[64];
    fresh_model();
    for (uint64_t i = 0; i < size; i++) {
        bytes b = {0};
        gguf_head(&b, 1, 3);
        gguf_u32(&b, "split.no", (uint32_t)i);
        gguf_u32(&b, "split.count", (uint32_t)size);
        gguf_u32(&b, "split.tensors.count", (uint32_t)size);
        gguf_tensors(&b, i, 1, 1);
        gguf_data(&b, 1);
        snprintf(name, sizeof name, "m-%05u-of-%05u.gguf", (unsigned)i + 1, (unsigned)size);
        keep(model, name, &b);
    }
    return open_path(model, 0);
}

/* ---- safetensors ------------------------------------------------------------------------------------------ */

/* A file with that header, whose tensors have `data` bytes. */
static void safetensors(bytes *b, bytes *header, uint64_t data)
{
    number(b, header->size, 8);
    put(b, header->data, header->size);
    fill(b, '\0', data);
    free(header->data);
    *header = (bytes){0};
}

static void one_tensor(bytes *header, uint64_t index, uint64_t at)
{
    char text[160];
    snprintf(text, sizeof text, "%s\"t%llx\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[%llu,%llu]}",
             header->size > 1 ? "," : "", (unsigned long long)(index * 2654435761u), (unsigned long long)at,
             (unsigned long long)at + 8);
    say(header, text);
}

static mica_status open_header(bytes *header, uint64_t data)
{
    bytes b = {0};
    safetensors(&b, header, data);
    return open_bytes(&b);
}

static mica_status st_tensors(uint64_t size)
{
    bytes header = {0};
    say(&header, "{");
    for (uint64_t i = 0; i < size; i++)
        one_tensor(&header, i, (size - 1 - i) * 8);
    say(&header, "}");
    return open_header(&header, size * 8);
}

static mica_status st_metadata(uint64_t size)
{
    bytes header = {0};
    say(&header, "{\"__metadata__\":{\"a\":\"b\"");
    for (uint64_t i = 0; i < size; i++)
        sayf(&header, ",\"k%llx\":\"value\"", i * 2654435761u);
    say(&header, "}}");
    return open_header(&header, 0);
}

static mica_status st_name(uint64_t size)
{
    bytes header = {0};
    say(&header, "{\"");
    fill(&header, 'n', size * 15);
    say(&header, "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
    return open_header(&header, 8);
}

static mica_status st_value(uint64_t size)
{
    bytes header = {0};
    say(&header, "{\"__metadata__\":{\"key\":\"");
    for (uint64_t i = 0; i < size * 8; i++)
        say(&header, "\\n");
    say(&header, "\"}}");
    return open_header(&header, 0);
}

static mica_status st_shape(uint64_t size)
{
    bytes header = {0};
    say(&header, "{\"t\":{\"dtype\":\"F32\",\"shape\":[2");
    for (uint64_t i = 1; i < size; i++)
        say(&header, ",1");
    say(&header, "],\"data_offsets\":[0,8]}}");
    return open_header(&header, 8);
}

static mica_status st_members(uint64_t size)
{
    bytes header = {0};
    say(&header, "{\"t\":{");
    for (uint64_t i = 0; i < size; i++)
        sayf(&header, "\"x%llu\":[[],{\"y\":1}],", i);
    say(&header, "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
    return open_header(&header, 8);
}

static mica_status st_blanks(uint64_t size)
{
    bytes header = {0};
    say(&header, "{");
    fill(&header, ' ', size * 16);
    say(&header, "}");
    return open_header(&header, 0);
}

static mica_status st_shards(uint64_t size)
{
    bytes index = {0}, header = {0}, b = {0};
    char name[64];
    fresh_model();
    say(&index, "{\"weight_map\":{");
    for (uint64_t i = 0; i < size; i++) {
        snprintf(name, sizeof name, "part%llu.safetensors", (unsigned long long)i);
        sayf(&index, i == 0 ? "\"t%llx\":" : ",\"t%llx\":", i * 2654435761u);
        say(&index, "\"");
        say(&index, name);
        say(&index, "\"");
        say(&header, "{");
        one_tensor(&header, i, 0);
        say(&header, "}");
        safetensors(&b, &header, 8);
        keep(model, name, &b);
    }
    say(&index, "}}");
    keep(model, "model.safetensors.index.json", &index);
    return open_path(model, 0);
}

/* ---- npy and npz ------------------------------------------------------------------------------------------ */

static void npy(bytes *b, uint64_t blanks)
{
    static const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
    say(b, "\x93NUMPY");
    number(b, 2, 2);
    number(b, sizeof dict - 1 + blanks, 4);
    say(b, dict);
    fill(b, ' ', blanks);
    fill(b, '\0', 8);
}

static mica_status npy_header(uint64_t size)
{
    bytes b = {0};
    npy(&b, size * 4);
    return open_bytes(&b);
}

static void zip_part(bytes *b, uint32_t signature, const char *name, uint64_t size, bool entry,
                     uint64_t offset)
{
    number(b, signature, 4);
    number(b, 20, entry ? 4 : 2);
    number(b, 0, 4);
    number(b, 0, 4);
    number(b, 0, 4);
    number(b, size, 4);
    number(b, size, 4);
    number(b, strlen(name), 2);
    number(b, 0, entry ? 4 : 2);
    if (entry) {
        number(b, 0, 8);
        number(b, offset, 4);
    }
    say(b, name);
}

static mica_status npz_members(uint64_t size)
{
    bytes b = {0}, directory = {0};
    for (uint64_t i = 0; i < size; i++) {
        bytes member = {0};
        char name[32];
        snprintf(name, sizeof name, "t%llx.npy", (unsigned long long)(i * 2654435761u));
        npy(&member, 0);
        zip_part(&directory, 0x02014b50, name, member.size, true, b.size);
        zip_part(&b, 0x04034b50, name, member.size, false, 0);
        put(&b, member.data, member.size);
        free(member.data);
    }
    const uint64_t at = b.size;
    put(&b, directory.data, directory.size);
    number(&b, 0x06054b50, 4);
    number(&b, 0, 4);
    number(&b, size, 2);
    number(&b, size, 2);
    number(&b, directory.size, 4);
    number(&b, at, 4);
    number(&b, 0, 2);
    free(directory.data);
    return open_bytes(&b);
}

/* ---- MLX folders and checkpoints -------------------------------------------------------------------------- */

static mica_status mlx_weights(uint64_t size)
{
    bytes header = {0}, b = {0}, config = {0};
    uint64_t at = 0;
    fresh_model();
    say(&header, "{");
    say(&config, "{\"quantization\":{\"group_size\":64,\"bits\":4");
    for (uint64_t i = 0; i < size; i++) {
        static const struct {
            const char *name, *type, *shape;
            uint32_t size;
        } parts[] = {
            {"weight", "U32", "[1,8]", 32}, {"scales", "F16", "[1,1]", 2}, {"biases", "F16", "[1,1]", 2}};
        for (size_t p = 0; p < 3; p++) {
            char text[200];
            snprintf(text, sizeof text,
                     "%s\"m%llu.%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%llu,%llu]}",
                     i + p == 0 ? "" : ",", (unsigned long long)i, parts[p].name, parts[p].type,
                     parts[p].shape, (unsigned long long)at, (unsigned long long)at + parts[p].size);
            say(&header, text);
            at += parts[p].size;
        }
        sayf(&config, ",\"m%llu\":{\"group_size\":64,\"bits\":4}", i);
    }
    say(&header, "}");
    say(&config, "}}");
    safetensors(&b, &header, at);
    keep(model, "model.safetensors", &b);
    keep(model, "config.json", &config);
    return open_path(model, 0);
}

/* A Llama of `layers` layers, with a tokenizer of `tokens` tokens. */
static void make_llama(uint64_t layers, uint64_t tokens)
{
    static const struct {
        const char *name;
        uint32_t rows; /* 0: a vector */
    } parts[] = {{"self_attn.q_proj", 8}, {"self_attn.k_proj", 8}, {"self_attn.v_proj", 8},
                 {"self_attn.o_proj", 8}, {"mlp.gate_proj", 8},    {"mlp.up_proj", 8},
                 {"mlp.down_proj", 8},    {"input_layernorm", 0},  {"post_attention_layernorm", 0}};
    bytes header = {0}, b = {0}, config = {0}, tokenizer = {0};
    uint64_t at = 0;
    char text[400];
    fresh_model();
    const uint64_t rows = tokens < 8 ? 8 : tokens;
    snprintf(
        text, sizeof text,
        "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[%llu,8],\"data_offsets\":[0,%llu]},"
        "\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[%llu,%llu]}",
        (unsigned long long)rows, (unsigned long long)rows * 32, (unsigned long long)rows * 32,
        (unsigned long long)rows * 32 + 32);
    say(&header, text);
    at = rows * 32 + 32;
    for (uint64_t i = 0; i < layers; i++)
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            const uint32_t size = parts[p].rows == 0 ? 32 : parts[p].rows * 32;
            snprintf(text, sizeof text,
                     ",\"model.layers.%llu.%s.weight\":{\"dtype\":\"F32\",\"shape\":[%s8],\"data_offsets\":[%"
                     "llu,%llu]}",
                     (unsigned long long)i, parts[p].name, parts[p].rows == 0 ? "" : "8,",
                     (unsigned long long)at, (unsigned long long)at + size);
            say(&header, text);
            at += size;
        }
    say(&header, "}");
    safetensors(&b, &header, at);
    keep(model, "model.safetensors", &b);
    snprintf(
        text, sizeof text,
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,\"intermediate_"
        "size\":8,"
        "\"num_attention_heads\":1,\"num_key_value_heads\":1,\"num_hidden_layers\":%llu,\"vocab_size\":%llu,"
        "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true,\"max_position_embeddings\":64}",
        (unsigned long long)layers, (unsigned long long)rows);
    say(&config, text);
    keep(model, "config.json", &config);
    say(&tokenizer, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0");
    for (uint64_t i = 1; i < tokens; i++) {
        sayf(&tokenizer, ",\"t%llx\":", i * 2654435761u);
        sayf(&tokenizer, "%llu", i);
    }
    say(&tokenizer, "},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}");
    keep(model, "tokenizer.json", &tokenizer);
}

static mica_status hf_layers(uint64_t size)
{
    make_llama(size, 8);
    return open_path(model, MICA_WEIGHTS_AS_GGUF);
}

static mica_status hf_tokens(uint64_t size)
{
    make_llama(1, size);
    return open_path(model, MICA_WEIGHTS_AS_GGUF);
}

/* sentencepiece: pieces of a tokenizer.model instead of a tokenizer.json. */
static mica_status hf_pieces(uint64_t size)
{
    bytes b = {0};
    char path[400];
    make_llama(1, size);
    snprintf(path, sizeof path, "%s/tokenizer.json", model);
    assert_int_equal(remove(path), 0);
    for (uint64_t i = 0; i < size; i++) {
        char text[24];
        const int length = snprintf(text, sizeof text, "t%llx", (unsigned long long)(i * 2654435761u));
        number(&b, 0x0a, 1);
        number(&b, (uint64_t)length + 7, 1);
        number(&b, 0x0a, 1);
        number(&b, (uint64_t)length, 1);
        say(&b, text);
        number(&b, 0x15, 1);
        number(&b, 0, 4);
    }
    say(&b, "\x12\x02\x18\x02"); /* of pairs */
    keep(model, "tokenizer.model", &b);
    return open_path(model, MICA_WEIGHTS_AS_GGUF);
}

static mica_status to_gguf(uint64_t layers, uint64_t tokens)
{
    make_llama(layers, tokens);
    snprintf(result, sizeof result, "%s/result.gguf", folder);
    return mica_convert(model, result, NULL);
}

static mica_status convert_layers(uint64_t size)
{
    return to_gguf(size, 8);
}

static mica_status convert_tokens(uint64_t size)
{
    return to_gguf(1, size);
}

static mica_status quantize_layers(uint64_t size)
{
    make_llama(size, 8);
    snprintf(result, sizeof result, "%s/result.gguf", folder);
    return mica_quantize(model, result, &(mica_quantize_options){.type = "f16", .threads = 1}, NULL);
}

/* A GGUF with many keys, quantised: they are all carried over. */
static mica_status quantize_keys(uint64_t size)
{
    bytes b = {0};
    char input[400];
    fresh_model();
    gguf_head(&b, 1, size);
    for (uint64_t i = 0; i < size; i++) {
        char key[32];
        snprintf(key, sizeof key, "key.%llx", (unsigned long long)(i * 2654435761u));
        gguf_u32(&b, key, 1);
    }
    gguf_tensors(&b, 0, 1, 1);
    gguf_data(&b, 1);
    keep(model, "a.gguf", &b);
    snprintf(input, sizeof input, "%s/a.gguf", model);
    snprintf(result, sizeof result, "%s/result.gguf", folder);
    return mica_quantize(input, result, &(mica_quantize_options){.type = "f16", .threads = 1}, NULL);
}

/* A GGUF of a checkpoint, made without being counted, as a folder again. */
static mica_status to_folder(uint64_t layers, uint64_t tokens)
{
    char input[400];
    make_llama(layers, tokens);
    snprintf(input, sizeof input, "%s/input.gguf", folder);
    mica_work *counting = mica_work_use(NULL);
    must(mica_convert(model, input, NULL));
    mica_work_use(counting);
    snprintf(result, sizeof result, "%s/result", folder);
    return mica_convert(input, result, NULL);
}

static mica_status back_layers(uint64_t size)
{
    return to_folder(size, 8);
}

static mica_status back_tokens(uint64_t size)
{
    return to_folder(1, size);
}

/* An importance matrix for the queries of each layer, whose rows have `row` values: a multiple of 8. */
static void put_matrix(uint64_t layers, uint64_t row)
{
    bytes b = {0};
    gguf_head(&b, layers * 2, 0);
    for (uint64_t i = 0; i < layers; i++)
        for (uint64_t part = 0; part < 2; part++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%llu.attn_q.weight.%s", (unsigned long long)i,
                     part == 0 ? "in_sum2" : "counts");
            gguf_text(&b, name);
            number(&b, 1, 4);
            number(&b, part == 0 ? row : 1, 8);
            number(&b, 0, 4);
            number(&b, i * (row * 4 + 32) + part * row * 4, 8);
        }
    gguf_data(&b, layers * (row / 8 + 1));
    keep(folder, "matrix.gguf", &b);
}

static mica_status quantize_by_matrix(const char *input)
{
    char matrix[400];
    snprintf(matrix, sizeof matrix, "%s/matrix.gguf", folder);
    snprintf(result, sizeof result, "%s/result.gguf", folder);
    return mica_quantize(input, result,
                         &(mica_quantize_options){.type = "f16", .threads = 1, .imatrix = matrix}, NULL);
}

static mica_status matrix_layers(uint64_t size)
{
    make_llama(size, 8);
    put_matrix(size, 8);
    return quantize_by_matrix(model);
}

static mica_status matrix_columns(uint64_t size)
{
    bytes b = {0};
    char input[400];
    const uint64_t row = size * 8;
    fresh_model();
    gguf_head(&b, 1, 0);
    gguf_text(&b, "blk.0.attn_q.weight");
    number(&b, 2, 4);
    number(&b, row, 8);
    number(&b, 2, 8);
    number(&b, 0, 4);
    number(&b, 0, 8);
    gguf_data(&b, size * 2);
    keep(model, "a.gguf", &b);
    put_matrix(1, row);
    snprintf(input, sizeof input, "%s/a.gguf", model);
    return quantize_by_matrix(input);
}

/* Nesting has no row: JSON ends at 64 containers inside each other, GGUF at 8 arrays. */

/* ---- the rows --------------------------------------------------------------------------------------------- */

static void files_grow(void **state)
{
    static const struct {
        growth_row row;
        uint32_t more; /* how many times larger the long run is */
    } rows[] = {
        {{"gguf: tensors", gguf_many_tensors, 1024, 3}, 32},
        {{"gguf: bytes of a name", gguf_long_names, 4096, 3}, 1},
        {{"gguf: keys", gguf_many_keys, 1024, 3}, 32},
        {{"gguf: numbers of an array, sixteens", gguf_numbers, 512, 3}, 64},
        {{"gguf: truths of an array, 64s", gguf_truths, 1024, 3}, 64},
        {{"gguf: strings of an array", gguf_strings, 4096, 3}, 64},
        {{"gguf: arrays of an array", gguf_arrays, 4096, 3}, 64},
        {{"gguf: bytes of a string, 64s", gguf_long_string, 1024, 3}, 64},
        {{"gguf: dimensions", gguf_dimensions, 8192, 3}, 64},
        {{"gguf: parts", gguf_parts, 8, 3}, 4},
        {{"safetensors: tensors", st_tensors, 1024, 3}, 32},
        {{"safetensors: metadata", st_metadata, 1024, 3}, 32},
        {{"safetensors: bytes of a name, fifteens", st_name, 512, 3}, 1},
        {{"safetensors: bytes of a value, sixteens", st_value, 1024, 3}, 32},
        {{"safetensors: dimensions", st_shape, 4096, 3}, 64},
        {{"safetensors: other members", st_members, 1024, 3}, 32},
        {{"safetensors: blanks, sixteens", st_blanks, 1024, 3}, 64},
        {{"safetensors: shards", st_shards, 8, 3}, 8},
        {{"npy: bytes of the header, fours", npy_header, 4096, 3}, 4},
        {{"npz: members", npz_members, 512, 3}, 12},
        {{"mlx: weights and rules", mlx_weights, 128, 3}, 32},
        {{"as gguf: layers", hf_layers, 32, 3}, 16},
        {{"as gguf: tokens", hf_tokens, 1024, 3}, 32},
        {{"as gguf: pieces", hf_pieces, 2048, 3}, 16},
        {{"convert: layers", convert_layers, 32, 3}, 8},
        {{"convert: tokens", convert_tokens, 1024, 3}, 32},
        {{"convert to a folder: layers", back_layers, 32, 3}, 8},
        {{"convert to a folder: tokens", back_tokens, 1024, 3}, 32},
        {{"quantise: layers", quantize_layers, 32, 3}, 8},
        {{"quantise: layers with matrices", matrix_layers, 32, 3}, 8},
        {{"quantise: columns of a matrix, eights", matrix_columns, 1024, 3}, 64},
        {{"quantise: keys", quantize_keys, 1024, 3}, 32},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        growth_row row = rows[i].row;
        row.first *= long_run ? rows[i].more : 1;
        growth_check(&row, long_run);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_grow)};
    long_run = argc > 1 && strcmp(argv[1], "long") == 0;
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
