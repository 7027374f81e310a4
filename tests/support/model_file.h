/*
 * model_file.h - model files byte by byte, for tests of what reads them. Shares nothing with mica's own writers.
 *
 * A GGUF (version 3, alignment 32): begin, metadata and tensors in any order, write, then put the data. Data that is
 * not put is a hole of zeros. Every function ends the program if the system refuses.
 */
#ifndef TEST_SUPPORT_MODEL_FILE_H
#define TEST_SUPPORT_MODEL_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "mica/types.h"

typedef struct test_bytes {
    unsigned char *data;
    size_t size, room;
} test_bytes;

typedef struct test_gguf {
    test_bytes meta, tensors;
    uint64_t meta_count, tensor_count;
    uint64_t data_bytes; /* so far, each tensor padded to 32 */
    uint64_t data_start; /* in the file, after test_gguf_write */
    uint64_t *offset;    /* of each tensor from data_start */
} test_gguf;

/* A path in the folder for temporary files that no other process uses. */
void test_file_path(char *path, size_t size, const char *name);

void test_bytes_add(test_bytes *bytes, const void *data, size_t size);

void test_gguf_string(test_gguf *gguf, const char *key, const char *text);
void test_gguf_u32(test_gguf *gguf, const char *key, uint32_t number);
void test_gguf_u64(test_gguf *gguf, const char *key, uint64_t number);
void test_gguf_f32(test_gguf *gguf, const char *key, float number);
/* An array of `count` strings, each made of `prefix` and its number. */
void test_gguf_strings(test_gguf *gguf, const char *key, uint64_t count, const char *prefix);
/* `type` is the file's number of the type, `bytes` the size of the data; shape slowest first. The tensor's number. */
uint64_t test_gguf_raw(test_gguf *gguf, const char *name, uint32_t type, uint32_t ndim, const uint64_t *shape,
                       uint64_t bytes);
/* The same for the types that tests use most: f32 f16 bf16 i32 q4_0 q8_0 q4_k q6_k. */
uint64_t test_gguf_tensor(test_gguf *gguf, const char *name, mica_dtype dtype, uint32_t ndim,
                          const uint64_t *shape);
/* Writes the header; the file has its full length, as a hole. */
void test_gguf_write(test_gguf *gguf, const char *path);
/* Data of a tensor, after test_gguf_write. */
void test_gguf_put(const test_gguf *gguf, const char *path, uint64_t tensor, const void *data, size_t size);
void test_gguf_free(test_gguf *gguf);

/* A safetensors file: the header as given, in JSON, then the data. */
void test_safetensors_write(const char *path, const char *header, const void *data, size_t size);
void test_text_write(const char *path, const char *text);
/* Bytes of a canonical tensor. */
uint64_t test_tensor_bytes_of(mica_dtype dtype, uint32_t ndim, const uint64_t *shape);

#endif
