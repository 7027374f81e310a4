/* model_file.c - GGUF and safetensors files for tests. */
#include "support/model_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGNMENT 32u

static void must(int right, const char *what)
{
    if (right)
        return;
    perror(what);
    exit(1);
}

void test_file_path(char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/mica_test_%ld_%s", P_tmpdir, (long)getpid(), name);
}

void test_bytes_add(test_bytes *bytes, const void *data, size_t size)
{
    if (bytes->size + size > bytes->room) {
        bytes->room = (bytes->size + size) * 2;
        bytes->data = realloc(bytes->data, bytes->room);
        must(bytes->data != NULL, "memory for a test file");
    }
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

static void add_u32(test_bytes *bytes, uint32_t number)
{
    test_bytes_add(bytes, &number, sizeof number);
}

static void add_u64(test_bytes *bytes, uint64_t number)
{
    test_bytes_add(bytes, &number, sizeof number);
}

static void add_text(test_bytes *bytes, const char *text)
{
    add_u64(bytes, strlen(text));
    test_bytes_add(bytes, text, strlen(text));
}

void test_gguf_string(test_gguf *gguf, const char *key, const char *text)
{
    add_text(&gguf->meta, key);
    add_u32(&gguf->meta, 8);
    add_text(&gguf->meta, text);
    gguf->meta_count++;
}

void test_gguf_u32(test_gguf *gguf, const char *key, uint32_t number)
{
    add_text(&gguf->meta, key);
    add_u32(&gguf->meta, 4);
    add_u32(&gguf->meta, number);
    gguf->meta_count++;
}

void test_gguf_u64(test_gguf *gguf, const char *key, uint64_t number)
{
    add_text(&gguf->meta, key);
    add_u32(&gguf->meta, 10);
    test_bytes_add(&gguf->meta, &number, sizeof number);
    gguf->meta_count++;
}

void test_gguf_f32(test_gguf *gguf, const char *key, float number)
{
    add_text(&gguf->meta, key);
    add_u32(&gguf->meta, 6);
    test_bytes_add(&gguf->meta, &number, sizeof number);
    gguf->meta_count++;
}

void test_gguf_strings(test_gguf *gguf, const char *key, uint64_t count, const char *prefix)
{
    char text[80];

    add_text(&gguf->meta, key);
    add_u32(&gguf->meta, 9);
    add_u32(&gguf->meta, 8);
    add_u64(&gguf->meta, count);
    for (uint64_t i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%s%llu", prefix, (unsigned long long)i);
        add_text(&gguf->meta, text);
    }
    gguf->meta_count++;
}

uint64_t test_gguf_raw(test_gguf *gguf, const char *name, uint32_t type, uint32_t ndim, const uint64_t *shape,
                       uint64_t bytes)
{
    add_text(&gguf->tensors, name);
    add_u32(&gguf->tensors, ndim);
    for (uint32_t d = ndim; d-- > 0;)
        add_u64(&gguf->tensors, shape[d]);
    add_u32(&gguf->tensors, type);
    add_u64(&gguf->tensors, gguf->data_bytes);
    gguf->offset = realloc(gguf->offset, (gguf->tensor_count + 1) * sizeof *gguf->offset);
    must(gguf->offset != NULL, "memory for a test file");
    gguf->offset[gguf->tensor_count] = gguf->data_bytes;
    gguf->data_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return gguf->tensor_count++;
}

uint64_t test_tensor_bytes_of(mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    uint64_t elements = 1;

    for (uint32_t d = 0; d < ndim; d++)
        elements *= shape[d];
    return elements / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
}

uint64_t test_gguf_tensor(test_gguf *gguf, const char *name, mica_dtype dtype, uint32_t ndim,
                          const uint64_t *shape)
{
    static const struct {
        mica_dtype dtype;
        uint32_t type;
    } types[] = {{MICA_DTYPE_F32, 0},  {MICA_DTYPE_F16, 1},  {MICA_DTYPE_BF16, 30}, {MICA_DTYPE_I32, 26},
                 {MICA_DTYPE_Q4_0, 2}, {MICA_DTYPE_Q8_0, 8}, {MICA_DTYPE_Q4_K, 12}, {MICA_DTYPE_Q6_K, 14}};
    size_t t = 0;

    while (t < sizeof types / sizeof *types && types[t].dtype != dtype)
        t++;
    must(t < sizeof types / sizeof *types, "a type that test_gguf_tensor knows");
    return test_gguf_raw(gguf, name, types[t].type, ndim, shape, test_tensor_bytes_of(dtype, ndim, shape));
}

static void put(int file, const void *data, size_t size, uint64_t offset)
{
    const unsigned char *at = data;

    while (size != 0) {
        ssize_t done = pwrite(file, at, size, (off_t)offset);
        must(done > 0, "write a test file");
        at += done;
        size -= (size_t)done;
        offset += (uint64_t)done;
    }
}

void test_gguf_write(test_gguf *gguf, const char *path)
{
    test_bytes head = {0};
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);

    must(file >= 0, path);
    test_bytes_add(&head, "GGUF", 4);
    add_u32(&head, 3);
    add_u64(&head, gguf->tensor_count);
    add_u64(&head, gguf->meta_count);
    test_bytes_add(&head, gguf->meta.data == NULL ? (unsigned char *)"" : gguf->meta.data, gguf->meta.size);
    test_bytes_add(&head, gguf->tensors.data == NULL ? (unsigned char *)"" : gguf->tensors.data,
                   gguf->tensors.size);
    gguf->data_start = (head.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    must(ftruncate(file, (off_t)(gguf->data_start + gguf->data_bytes)) == 0, path);
    put(file, head.data, head.size, 0);
    close(file);
    free(head.data);
}

void test_gguf_put(const test_gguf *gguf, const char *path, uint64_t tensor, const void *data, size_t size)
{
    int file = open(path, O_WRONLY);

    must(file >= 0, path);
    put(file, data, size, gguf->data_start + gguf->offset[tensor]);
    close(file);
}

void test_gguf_free(test_gguf *gguf)
{
    free(gguf->meta.data);
    free(gguf->tensors.data);
    free(gguf->offset);
    memset(gguf, 0, sizeof *gguf);
}

void test_safetensors_write(const char *path, const char *header, const void *data, size_t size)
{
    uint64_t length = strlen(header);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    must(file >= 0, path);
    put(file, &length, sizeof length, 0);
    put(file, header, (size_t)length, sizeof length);
    put(file, data, size, sizeof length + length);
    close(file);
}

void test_text_write(const char *path, const char *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    must(file >= 0, path);
    put(file, text, strlen(text), 0);
    close(file);
}
