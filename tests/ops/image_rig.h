/*
 * image_rig.h - ops of ops_image.h on the cpu for tests: buffers of doubles, gradients against central differences, and what PyTorch gave
 * (tests/golden/image.txt, made by scripts/golden_image.py).
 */
#ifndef TEST_IMAGE_RIG_H
#define TEST_IMAGE_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/status.h"
#include "support/tensor.h"

#define RIG_OPERANDS 4

static mica_device *device;

static inline int open_device(void **state)
{
    (void)state;
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static inline int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

/* A value of operand `slot`: as values() of the script has it. */
static inline double rig_value(uint64_t slot, uint64_t i)
{
    const uint32_t mixed = (uint32_t)((i + 1) * 2654435761u + slot * 40503u);

    return ((double)(mixed / 65536 % 65) - 32) / 16;
}

typedef struct rig_array {
    uint32_t ndim;
    uint64_t shape[MICA_MAX_DIMS], count;
    double *value; /* NULL: absent */
} rig_array;

static inline rig_array rig_array_of(uint32_t ndim, const uint64_t *shape)
{
    rig_array a = {.ndim = ndim, .count = 1};

    for (uint32_t d = 0; d < ndim; d++) {
        a.shape[d] = shape[d];
        a.count *= shape[d];
    }
    a.value = test_alloc(a.count + 1, sizeof *a.value);
    return a;
}

static inline rig_array rig_values(uint64_t slot, uint32_t ndim, const uint64_t *shape)
{
    rig_array a = rig_array_of(ndim, shape);

    for (uint64_t i = 0; i < a.count; i++)
        a.value[i] = rig_value(slot, i);
    return a;
}

static inline mica_buffer *rig_upload(const rig_array *a, mica_dtype dtype)
{
    mica_buffer *buffer = NULL;
    void *data = test_alloc(a->count + 1, sizeof(double));

    if (a->value == NULL)
        return free(data), NULL;
    for (uint64_t i = 0; i < a->count; i++) {
        if (dtype == MICA_DTYPE_F64)
            ((double *)data)[i] = a->value[i];
        else
            ((float *)data)[i] = (float)a->value[i];
    }
    must(mica_buffer_alloc(device, dtype, a->ndim, a->shape, &buffer));
    must(mica_buffer_write(buffer, 0, data, a->count * (dtype == MICA_DTYPE_F64 ? 8 : 4)));
    free(data);
    return buffer;
}

/* An op by its number: `count` operands, the last of which is written. f64 or f32. */
static inline void rig_run(mica_op op, const void *params, rig_array *operand, uint32_t count,
                           mica_dtype dtype)
{
    mica_buffer *buffer[RIG_OPERANDS] = {NULL};
    mica_encoder *encoder = NULL;
    rig_array *out = &operand[count - 1];
    double *wide = test_alloc(out->count + 1, sizeof *wide);

    for (uint32_t i = 0; i < count; i++)
        buffer[i] = rig_upload(&operand[i], dtype);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_op_apply(encoder, op, params, buffer, count));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_buffer_read(buffer[count - 1], 0, wide, out->count * (dtype == MICA_DTYPE_F64 ? 8 : 4)));
    for (uint64_t i = 0; i < out->count; i++)
        out->value[i] = dtype == MICA_DTYPE_F64 ? wide[i] : (double)((float *)wide)[i];
    mica_encoder_release(encoder);
    for (uint32_t i = 0; i < count; i++)
        mica_buffer_release(buffer[i]);
    free(wide);
}

static inline void rig_free(rig_array *operand, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(operand[i].value);
        operand[i].value = NULL;
    }
}

/* `gradient` must be that of sum(dy y) with respect to operand `slot`, in f64. Central differences are off by a rounding of the sum over the
 * step, and by the third derivative times its square. */
static inline void rig_check_gradient(mica_op op, const void *params, rig_array *operand, uint32_t count,
                                      const rig_array *dy, uint32_t slot, const rig_array *gradient)
{
    const double step = 1e-4;
    rig_array *x = &operand[slot];

    assert_int_equal(x->count, gradient->count);
    for (uint64_t i = 0; i < x->count; i++) {
        const double was = x->value[i];
        double sum[2] = {0, 0};

        for (int side = 0; side < 2; side++) {
            x->value[i] = was + (side == 0 ? -step : step);
            rig_run(op, params, operand, count, MICA_DTYPE_F64);
            for (uint64_t k = 0; k < dy->count; k++)
                sum[side] += dy->value[k] * operand[count - 1].value[k];
        }
        x->value[i] = was;
        const double wanted = (sum[1] - sum[0]) / (2 * step);
        if (fabs(wanted - gradient->value[i]) > 1e-6 * (1 + fabs(wanted)))
            fail_msg("element %llu of the gradient is %.12g, differences give %.12g", (unsigned long long)i,
                     gradient->value[i], wanted);
    }
}

/* ---- what PyTorch gave ---- */

/* The body on every device that there is, in f32 and on the cpu in f64 as well. */
static inline void golden_each(void (*body)(mica_dtype dtype))
{
    static const char *const ids[] = {"opencl", "cuda"};
    mica_device *cpu = device;

    body(MICA_DTYPE_F64);
    body(MICA_DTYPE_F32);
    for (size_t i = 0; i < 2; i++) {
        if (mica_device_open(ids[i], NULL, &device) == MICA_OK)
            body(MICA_DTYPE_F32);
        mica_device_release(device);
    }
    device = cpu;
}

typedef struct golden_case {
    char name[32];
    uint32_t number_count, result_count;
    int64_t number[64];
    double *result;
} golden_case;

static inline bool golden_next(FILE *file, golden_case *g)
{
    if (fscanf(file, "%31s %u", g->name, &g->number_count) != 2)
        return false;
    assert_true(g->number_count <= 64);
    for (uint32_t i = 0; i < g->number_count; i++) {
        long long number = 0;

        assert_int_equal(fscanf(file, "%lld", &number), 1);
        g->number[i] = number;
    }
    assert_int_equal(fscanf(file, "%u", &g->result_count), 1);
    g->result = test_alloc(g->result_count + 1, sizeof *g->result);
    for (uint32_t i = 0; i < g->result_count; i++)
        assert_int_equal(fscanf(file, "%lf", &g->result[i]), 1);
    return true;
}

/* Results are kept with nine digits; in f32 sums of a few hundred terms of about 4 stray by 1e-5. */
static inline void golden_compare(const golden_case *g, const rig_array *got, double allowed)
{
    assert_int_equal(got->count, g->result_count);
    for (uint32_t i = 0; i < g->result_count; i++)
        if (!(fabs(got->value[i] - g->result[i]) <= allowed * (1 + fabs(g->result[i]))))
            fail_msg("%s: result %u is %.9g, PyTorch has %.9g", g->name, i, got->value[i], g->result[i]);
}

#endif
