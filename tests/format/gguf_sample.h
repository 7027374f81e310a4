/*
 * gguf_sample.h - one GGUF file with something of everything, and what must hold for any archive that opened.
 */
#ifndef TEST_FORMAT_GGUF_SAMPLE_H
#define TEST_FORMAT_GGUF_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "format/gguf_build.h"

/* What the sample has; the tests spell the values out again. */
#define SAMPLE_METAS 22
#define SAMPLE_TENSORS 6
#define SAMPLE_ALIGNMENT 32

static inline void sample_scalars(build *b)
{
    const float f = 1.5f;
    const double d = -2.25;
    uint32_t f_bits;
    uint64_t d_bits;
    memcpy(&f_bits, &f, 4);
    memcpy(&d_bits, &d, 8);
    build_meta_number(b, "a.u8", 0, 200, 1);
    build_meta_number(b, "a.i8", 1, 0xfb, 1);
    build_meta_number(b, "a.u16", 2, 60000, 2);
    build_meta_number(b, "a.i16", 3, 0xfffe, 2);
    build_meta_number(b, "a.u32", 4, 4000000000u, 4);
    build_meta_number(b, "a.i32", 5, 0xfffffffdu, 4);
    build_meta_number(b, "a.f32", 6, f_bits, 4);
    build_meta_number(b, "a.bool", 7, 1, 1);
    build_meta(b, "a.string", 8);
    build_string(b, "h\xc3\xa9llo");
    build_meta_number(b, "a.u64", 10, UINT64_MAX, 8);
    build_meta_number(b, "a.i64", 11, (uint64_t)-9, 8);
    build_meta_number(b, "a.f64", 12, d_bits, 8);
    build_meta(b, "a.empty", 8);
    build_string(b, "");
}

static inline void sample_arrays(build *b)
{
    build_meta(b, "b.u8", 9);
    build_array(b, 0, 3);
    for (uint32_t i = 1; i <= 3; i++)
        build_number(b, i, 1);
    build_meta(b, "b.i16", 9);
    build_array(b, 3, 2);
    build_number(b, 0xffff, 2);
    build_number(b, 300, 2);
    build_meta(b, "b.u64", 9);
    build_array(b, 10, 2);
    build_number(b, 1ull << 40, 8);
    build_number(b, 7, 8);
    build_meta(b, "b.bool", 9);
    build_array(b, 7, 2);
    build_number(b, 0, 1);
    build_number(b, 1, 1);
    build_meta(b, "b.strings", 9);
    build_array(b, 8, 3);
    build_string(b, "one");
    build_string(b, "");
    build_string(b, "three");
    build_meta(b, "b.none", 9);
    build_array(b, 6, 0);
    build_meta(b, "b.nested", 9); /* [[[1, 2], []], [["x"]]] */
    build_array(b, 9, 2);
    build_array(b, 9, 2);
    build_array(b, 4, 2);
    build_number(b, 1, 4);
    build_number(b, 2, 4);
    build_array(b, 4, 0);
    build_array(b, 9, 1);
    build_array(b, 8, 1);
    build_string(b, "x");
    build_meta(b, "b.empty nest", 9);
    build_array(b, 9, 0);
    build_meta_number(b, "general.alignment", 4, SAMPLE_ALIGNMENT, 4);
}

/* Tensors: f32 [3,5]; q4_0 [2,64]; empty; scalar i32; type 99; f16 [4]. Returns where the header ends. */
static inline size_t sample_build(build *b, bool big)
{
    *b = (build){.big = big};
    build_head(b, 3, SAMPLE_TENSORS, SAMPLE_METAS);
    sample_scalars(b);
    sample_arrays(b);
    build_tensor(b, "weights.f32", 2, (uint64_t[]){5, 3}, 0, 0);     /* 60 bytes */
    build_tensor(b, "weights.q4_0", 2, (uint64_t[]){64, 2}, 2, 64);  /* 72 bytes */
    build_tensor(b, "weights.empty", 2, (uint64_t[]){0, 4}, 1, 160); /* none */
    build_tensor(b, "weights.scalar", 0, NULL, 26, 160);             /* 4 bytes */
    build_tensor(b, "weights.unknown", 1, (uint64_t[]){9}, 99, 192); /* up to the next: 64 */
    build_tensor(b, "weights.f16", 1, (uint64_t[]){4}, 1, 256);      /* 8 bytes */
    const size_t header = b->size;
    build_pad(b, SAMPLE_ALIGNMENT);
    build_data(b, 256 + 8, 3);
    return header;
}

/* Reads every byte that the archive hands out. */
static inline uint64_t sample_sum_value(const mica_value *value, uint32_t depth)
{
    static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    uint64_t sum = value->count;
    assert_true((uint32_t)value->type < MICA_VALUE_TYPE_COUNT);
    if (value->type == MICA_VALUE_STRING) {
        assert_int_equal(value->as.string.data[value->as.string.length], 0);
        for (uint64_t i = 0; i < value->as.string.length; i++)
            sum += (uint8_t)value->as.string.data[i];
    }
    if (value->type != MICA_VALUE_ARRAY)
        return sum;
    assert_true(depth < 8);
    for (uint64_t i = 0; i < value->count; i++) {
        if (value->item_type == MICA_VALUE_ARRAY) {
            sum += sample_sum_value((const mica_value *)value->as.items + i, depth + 1);
        } else if (value->item_type == MICA_VALUE_STRING) {
            const mica_value item = {.type = MICA_VALUE_STRING,
                                     .as.string = ((const mica_string *)value->as.items)[i]};
            sum += sample_sum_value(&item, 0);
        } else {
            for (uint32_t j = 0; j < size[value->item_type]; j++)
                sum += ((const uint8_t *)value->as.items)[i * size[value->item_type] + j];
        }
    }
    return sum;
}

static inline void sample_check_tensor(const mica__archive *archive, uint32_t index)
{
    const mica__tensor *tensor = &archive->tensor[index];
    const uint64_t file_size = mica__file_size(archive->file[tensor->file]);
    assert_true(tensor->offset <= file_size && tensor->bytes <= file_size - tensor->offset);
    assert_int_equal(strlen(tensor->name), tensor->name_length);
    assert_non_null(tensor->type_name);
    assert_int_equal(mica__archive_find(archive, tensor->name, tensor->name_length), index);
    if (tensor->problem != MICA__TENSOR_FINE) {
        assert_int_equal(mica__archive_usable(archive, tensor), MICA_ERR_UNSUPPORTED);
        return;
    }
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        elements *= tensor->shape[i];
    assert_int_equal(elements % mica_dtype_block_elements(tensor->dtype), 0);
    assert_int_equal(tensor->bytes, elements / mica_dtype_block_elements(tensor->dtype) *
                                        mica_dtype_block_bytes(tensor->dtype));
    void *bytes = malloc(tensor->bytes + 1);
    assert_int_equal(mica__archive_read(archive, tensor, 0, bytes, tensor->bytes), MICA_OK);
    assert_int_equal(mica__archive_read(archive, tensor, 1, bytes, tensor->bytes), MICA_ERR_INVALID_ARGUMENT);
    free(bytes);
}

/* What archive.h promises of every archive that opened. Returns something of every byte. */
static inline uint64_t sample_check(const mica__archive *archive)
{
    uint64_t sum = 0;
    assert_int_equal(archive->format, MICA_FORMAT_GGUF);
    for (uint32_t i = 0; i < archive->meta_count; i++) {
        const mica__meta *meta = &archive->meta[i];
        assert_int_equal(strlen(meta->key.data), meta->key.length);
        sum += sample_sum_value(&meta->value, 0);
        assert_ptr_equal(mica__archive_meta(archive, meta->key.data), &meta->value);
    }
    for (uint32_t i = 0; i < archive->visible_count; i++)
        sample_check_tensor(archive, i);
    return sum;
}

#endif
