/*
 * tensor.h - a tensor on the host, and the buffer that an op sees of it.
 *
 * The buffer is a view inside a larger allocation. Every byte around it, and between its elements where it is
 * strided, carries a known pattern, so that a stray write is seen. Elements start as NaN (all bits set). Every
 * other one ends, on a device that shares the host's memory, at a page that nobody may touch, so that reading
 * behind the last element is seen too, whatever the instruction set.
 */
#ifndef TEST_SUPPORT_TENSOR_H
#define TEST_SUPPORT_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mica/mica.h"
#include "support/random.h"

typedef enum test_layout {
    TEST_CONTIGUOUS,
    TEST_ALIGNED,    /* as TEST_CONTIGUOUS, from a multiple of 16 bytes on */
    TEST_ROWS,       /* the last dimension contiguous, the others in any order with gaps */
    TEST_ANY,        /* all dimensions in any order, with gaps */
    TEST_REPEAT,     /* as TEST_ANY, and some dimensions repeat with stride 0: only to be read */
    TEST_ROWS_REPEAT /* as TEST_ROWS, and some dimensions above the last repeat: only to be read */
} test_layout;

typedef struct test_tensor {
    const char *name;
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS]; /* stride in bytes */
    uint64_t count;                                       /* elements */
    uint64_t offset, bytes;    /* of the view in the allocation; of the allocation */
    bool walled;               /* the allocation ends with the last element, at that page */
    uint8_t *image, *after;    /* the allocation before and after the work */
    mica_buffer *whole, *view; /* on the device; NULL before test_tensor_upload */
} test_tensor;

/* Memory for tests: never NULL, zeroed. */
void *test_alloc(size_t count, size_t size);

void test_tensor_init(test_tensor *tensor, test_random *random, const char *name, mica_dtype dtype,
                      uint32_t ndim, const uint64_t *shape, test_layout layout);
void test_tensor_free(test_tensor *tensor);

/* Where element `index` of the dense order lies, or the block that it begins. */
uint64_t test_tensor_place(const test_tensor *tensor, uint64_t index);
/* Plain types alone. */
void test_tensor_set(test_tensor *tensor, uint64_t index, double value);
double test_tensor_get(const test_tensor *tensor, uint64_t index);
void test_tensor_normal(test_tensor *tensor, test_random *random, double spread);
void test_tensor_uniform(test_tensor *tensor, test_random *random, double low, double high);
/* Whole numbers 0 .. below-1. */
void test_tensor_indices(test_tensor *tensor, test_random *random, uint64_t below);
/* Raw bytes of any kind. */
void test_tensor_bytes(test_tensor *tensor, test_random *random);
/* Valid blocks of a block type: values of about 1. */
void test_tensor_blocks(test_tensor *tensor, test_random *random);
/* The same into plain memory, values of about `spread`. Types with tables of scales get codes alone. */
void test_blocks_fill(mica_dtype dtype, uint8_t *data, uint64_t blocks, test_random *random, double spread);
/* All elements as double, dense order: of the image, or of what came back. Not of affine types and fp4. The caller
 * frees. */
double *test_tensor_values(const test_tensor *tensor, bool after);

/* Makes the buffer and the view and sends the image there. */
mica_status test_tensor_upload(test_tensor *tensor, mica_device *device);
/* Sends the image again. */
mica_status test_tensor_restore(test_tensor *tensor);
mica_status test_tensor_fetch(test_tensor *tensor);
void test_tensor_unload(test_tensor *tensor);
/* The first byte of `after` that should not have changed, or UINT64_MAX. With `written` the elements may have. */
uint64_t test_tensor_stray(const test_tensor *tensor, bool written);

#endif
