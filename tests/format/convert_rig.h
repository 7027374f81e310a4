/*
 * convert_rig.h - what the tests of convert share: small checkpoint folders with random values, conversions that must
 * succeed, and metadata and tensors compared.
 */
#ifndef TEST_FORMAT_CONVERT_RIG_H
#define TEST_FORMAT_CONVERT_RIG_H

#include <math.h>
#include <sys/stat.h>

#include "rewrite_rig.h"

#define LAYER(n) "model.layers." #n "."

static inline void make_folder(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", rewrite_folder, name);
    test_folder_empty(path);
    rmdir(path);
    assert_int_equal(mkdir(path, 0777), 0);
}

static inline const char *type_word(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 ? "F32" : dtype == MICA_DTYPE_F16 ? "F16" : "BF16";
}

/* A checkpoint folder with random values and this config.json. */
static inline void make_checkpoint(const char *folder, const char *config, const rewrite_tensor *list,
                                   uint32_t count)
{
    test_random random = test_random_from(count);
    rig_bytes header = {0}, data = {0};
    char piece[512];
    make_folder(folder);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bytes = test_tensor_bytes_of(list[i].dtype, list[i].ndim, list[i].shape);
        void *values = rewrite_values(&list[i], &random);
        snprintf(piece, sizeof piece, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i == 0 ? "{" : ",",
                 list[i].name, type_word(list[i].dtype));
        rig_text(&header, piece);
        for (uint32_t d = 0; d < list[i].ndim; d++) {
            snprintf(piece, sizeof piece, "%s%llu", d == 0 ? "" : ",", (unsigned long long)list[i].shape[d]);
            rig_text(&header, piece);
        }
        snprintf(piece, sizeof piece, "],\"data_offsets\":[%zu,%zu]}", data.size, data.size + (size_t)bytes);
        rig_text(&header, piece);
        rig_put(&data, values, (size_t)bytes);
        free(values);
    }
    rig_put(&header, "}", 2);
    snprintf(piece, sizeof piece, "%s/model.safetensors", folder);
    test_safetensors_write(rewrite_path(piece), (const char *)header.data, data.data, data.size);
    snprintf(piece, sizeof piece, "%s/config.json", folder);
    test_text_write(rewrite_path(piece), config);
    rig_free(&header);
    rig_free(&data);
}

static inline void convert_ok(const char *from, const char *to, const mica_convert_options *options)
{
    const mica_convert_options plain = {.overwrite = 1, .threads = 2};
    if (mica_convert(rewrite_path(from), rewrite_path(to), options == NULL ? &plain : options) != MICA_OK)
        fail_msg("%s to %s: %s", from, to, mica_status_message());
}

/* All tensors of two files: the same names, types, shapes and bytes. */
static inline void check_same_tensors(const char *a, const char *b)
{
    mica__archive *x = rewrite_open(rewrite_path(a)), *y = rewrite_open(rewrite_path(b));
    assert_int_equal(x->visible_count, y->visible_count);
    for (uint32_t i = 0; i < x->visible_count; i++) {
        const mica__tensor *was = &x->tensor[i], *is = rig_tensor(y, was->name);
        void *first = malloc((size_t)was->bytes + 1), *second = malloc((size_t)was->bytes + 1);
        assert_int_equal(was->dtype, is->dtype);
        assert_int_equal(was->ndim, is->ndim);
        assert_memory_equal(was->shape, is->shape, was->ndim * sizeof(uint64_t));
        assert_int_equal(mica__archive_read(x, was, 0, first, was->bytes), MICA_OK);
        assert_int_equal(mica__archive_read(y, is, 0, second, is->bytes), MICA_OK);
        if (memcmp(first, second, (size_t)was->bytes) != 0)
            fail_msg("%s differs", was->name);
        free(first);
        free(second);
    }
    mica__archive_close(x);
    mica__archive_close(y);
}

static inline void check_u32(const mica__archive *archive, const char *key, uint64_t number)
{
    const mica_value *value = mica__archive_meta(archive, key);
    if (value == NULL || value->type != MICA_VALUE_U32 || value->as.u != number)
        fail_msg("%s is %lld, expected %llu", key, value == NULL ? -1 : (long long)value->as.u,
                 (unsigned long long)number);
}

static inline void check_f32(const mica__archive *archive, const char *key, double number)
{
    const mica_value *value = mica__archive_meta(archive, key);
    if (value == NULL || value->type != MICA_VALUE_F32 || value->as.f != (double)(float)number)
        fail_msg("%s is %g, expected %g", key, value == NULL ? NAN : value->as.f, number);
}

static inline void check_text(const mica__archive *archive, const char *key, const char *text)
{
    const mica_value *value = mica__archive_meta(archive, key);
    assert_non_null(value);
    assert_string_equal(value->as.string.data, text);
}

/* There and back again, and there: the two GGUF files are alike. */
static inline void check_round_trip(const char *folder)
{
    convert_ok(folder, "a.gguf", NULL);
    make_folder("back");
    convert_ok("a.gguf", "back", NULL);
    convert_ok("back", "b.gguf", NULL);
    check_same_tensors("a.gguf", "b.gguf");
    mica__archive *x = rewrite_open(rewrite_path("a.gguf")), *y = rewrite_open(rewrite_path("b.gguf"));
    for (uint32_t i = 0; i < x->meta_count; i++) {
        const mica__meta *meta = &x->meta[i];
        const mica_value *again = mica__archive_meta(y, meta->key.data);
        if (strncmp(meta->key.data, "tokenizer.", 10) == 0 || strcmp(meta->key.data, "general.name") == 0)
            continue;
        if (again == NULL)
            fail_msg("%s got lost", meta->key.data);
        if (meta->value.type == MICA_VALUE_U32)
            assert_int_equal(again->as.u, meta->value.as.u);
        if (meta->value.type == MICA_VALUE_F32)
            assert_true(again->as.f == meta->value.as.f);
    }
    mica__archive_close(x);
    mica__archive_close(y);
}

static inline void check_bool(const mica__archive *archive, const char *key, bool truth)
{
    const mica_value *value = mica__archive_meta(archive, key);
    if (value == NULL || value->type != MICA_VALUE_BOOL || (value->as.u != 0) != truth)
        fail_msg("%s is not %d", key, truth);
}

/* An array of texts; NULL stands for any text. */
static inline void check_texts(const mica__archive *archive, const char *key, const char *const *texts,
                               uint64_t count)
{
    const mica_value *value = mica__archive_meta(archive, key);
    assert_non_null(value);
    assert_int_equal(value->count, count);
    for (uint64_t i = 0; i < count; i++)
        if (texts[i] != NULL)
            assert_string_equal(((const mica_string *)value->as.items)[i].data, texts[i]);
}

#endif
