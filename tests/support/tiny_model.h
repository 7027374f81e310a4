/* tiny_model.h - models of any shape with weights of zeros, as GGUF files: for what depends on shapes alone. */
#ifndef TEST_SUPPORT_TINY_MODEL_H
#define TEST_SUPPORT_TINY_MODEL_H

#include <stdint.h>

/* A Llama; what is 0 is as small as can be. */
typedef struct test_tiny {
    uint32_t layers;     /* 1 */
    uint32_t vocabulary; /* 8 */
    uint32_t width;      /* 8: one head */
    uint32_t experts;    /* none; two are used where there are any */
    uint32_t window;     /* none */
    uint32_t context;    /* 64 */
    uint32_t stated;     /* layers that the file states; as many as it has */
    uint32_t wide;       /* 1: numbers are written as u64 */
    const char *besides; /* one more tensor, [width] */
} test_tiny;

void test_tiny_write(const test_tiny *tiny, const char *path);

#endif
