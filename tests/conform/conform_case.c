/*
 * conform_case.c - building cases: operands, shapes, weights, and the buffers of a case on a device.
 */
#include "conform/conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"

void conform_case_make(conform_case *c, const conform_row *row, uint64_t seed, bool typical)
{
    test_random random = test_random_from(seed);

    memset(c, 0, sizeof *c);
    c->row = row;
    c->number = seed;
    c->typical = typical;
    c->weight_slot = c->bits_of = UINT32_MAX;
    row->make(c, &random);
}

void conform_case_expect(conform_case *c)
{
    c->expected = test_alloc(conform_tensor(c, c->output)->count, sizeof(double));
    c->error = test_alloc(conform_tensor(c, c->output)->count, sizeof(double));
    if (c->bits_of == UINT32_MAX)
        c->row->oracle(c);
}

void conform_expect_also(conform_case *c, uint32_t slot, double **out_expected, double **out_error)
{
    conform_operand *operand = &c->operand[slot];

    operand->expected = *out_expected = test_alloc(operand->tensor.count, sizeof(double));
    operand->error = *out_error = test_alloc(operand->tensor.count, sizeof(double));
}

void conform_case_free(conform_case *c)
{
    conform_case_unload(c);
    for (uint32_t i = 0; i < c->operand_count; i++) {
        test_tensor_free(&c->operand[i].tensor);
        free(c->operand[i].expected);
        free(c->operand[i].error);
        free(c->operand[i].right);
    }
    free(c->expected);
    free(c->error);
    free(c->other);
    free(c->wanted_values);
    free(c->other_error);
    memset(c, 0, sizeof *c);
}

static size_t describe_operand(const conform_case *c, uint32_t slot, char *text, size_t bytes)
{
    const conform_operand *operand = &c->operand[slot];
    const test_tensor *tensor = &operand->tensor;
    size_t used;

    if (operand->shared)
        return (size_t)snprintf(text, bytes, "; in place on operand %u", operand->same_as);
    used = (size_t)snprintf(text, bytes, "; %s %s [", tensor->name, mica_dtype_name(tensor->dtype));
    for (uint32_t i = 0; i < tensor->ndim && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%llu/%llu", i ? ", " : "",
                                 (unsigned long long)tensor->shape[i], (unsigned long long)tensor->stride[i]);
    if (used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, "]");
    return used;
}

void conform_case_describe(const conform_case *c, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s%s", c->row->name, c->packed ? " packed" : "");

    for (uint32_t i = 0; i < c->operand_count && used < bytes; i++) {
        if (c->operand[i].present)
            used += describe_operand(c, i, text + used, bytes - used);
    }
}

conform_operand *conform_add(conform_case *c, test_random *random, const char *name, mica_dtype dtype,
                             uint32_t ndim, const uint64_t *shape, test_layout layout)
{
    conform_operand *operand = &c->operand[c->operand_count++];

    operand->present = true;
    test_tensor_init(&operand->tensor, random, name, dtype, ndim, shape,
                     c->typical   ? TEST_CONTIGUOUS
                     : c->aligned ? TEST_ALIGNED
                                  : layout);
    return operand;
}

void conform_add_output(conform_case *c, test_random *random, const char *name, mica_dtype dtype,
                        uint32_t ndim, const uint64_t *shape, test_layout layout, bool in_place,
                        uint32_t same_as)
{
    c->output = c->operand_count;
    if (!in_place) {
        conform_add(c, random, name, dtype, ndim, shape, layout)->written = true;
        return;
    }
    c->operand[c->operand_count].present = true;
    c->operand[c->operand_count].shared = true;
    c->operand[c->operand_count].same_as = same_as;
    c->operand[same_as].written = true;
    c->operand_count++;
}

void conform_add_absent(conform_case *c)
{
    c->operand_count++;
}

static uint32_t draw_group(const conform_case *c, test_random *random)
{
    static const uint32_t groups[] = {1, 3, 16, 32, 64, 128};

    if (c->whole)
        return groups[3 + test_random_below(random, 3)];
    return c->typical ? 64 : groups[test_random_below(random, sizeof groups / sizeof *groups)];
}

/* Scales of fp4 and f8_e4m3: as MLX pairs them, or now and then in another way that is allowed. */
static void add_small_scales(conform_case *c, test_random *random, uint32_t ndim, const uint64_t *shape)
{
    bool halves = c->row->weight == MICA_DTYPE_FP4 && test_random_one_in(random, 2);
    mica_dtype dtype = halves ? MICA_DTYPE_F8_E4M3 : MICA_DTYPE_E8M0;
    uint64_t groups[MICA_MAX_DIMS];
    test_tensor *scales;

    c->group_size = halves ? 16 : 32;
    if (!c->typical && !c->whole && test_random_one_in(random, 4))
        c->group_size = draw_group(c, random);
    memcpy(groups, shape, ndim * sizeof *shape);
    groups[ndim - 1] = (shape[ndim - 1] + c->group_size - 1) / c->group_size;
    scales = &conform_add(c, random, "scales", dtype, ndim, groups, TEST_CONTIGUOUS)->tensor;
    for (uint64_t i = 0; i < scales->count; i++) /* codes: about 2^-7 to 2^-1 */
        test_tensor_set(scales, i,
                        (double)((halves ? 1 : 120) + test_random_below(random, halves ? 0x30 : 7)));
    conform_add_absent(c);
}

void conform_add_weight(conform_case *c, test_random *random, const char *name, uint32_t ndim,
                        const uint64_t *shape)
{
    const bool narrow = c->row->weight == MICA_DTYPE_F64 && !conform_is_wide(c);
    mica_dtype dtype = narrow ? MICA_DTYPE_F32 : c->row->weight, part = conform_float(random);
    conform_operand *operand = conform_add(c, random, name, dtype, ndim, shape, TEST_CONTIGUOUS);
    uint64_t groups[MICA_MAX_DIMS];

    c->weight_slot = c->operand_count - 1;
    c->packed = (c->typical || test_random_one_in(random, 2)) && c->row->weight != MICA_DTYPE_F64;
    if (!oracle_is_block(dtype) && !oracle_has_scales(dtype)) {
        test_tensor_normal(&operand->tensor, random, 1);
        conform_add_absent(c);
        conform_add_absent(c);
        return;
    }
    test_tensor_blocks(&operand->tensor, random);
    if (oracle_has_scales(dtype) && !oracle_is_affine(dtype)) {
        add_small_scales(c, random, ndim, shape);
        return;
    }
    if (!oracle_is_affine(dtype)) {
        conform_add_absent(c);
        conform_add_absent(c);
        return;
    }
    c->group_size = draw_group(c, random);
    if (c->whole)
        part = test_random_one_in(random, 2) ? MICA_DTYPE_F16 : MICA_DTYPE_BF16;
    memcpy(groups, shape, ndim * sizeof *shape);
    groups[ndim - 1] = (shape[ndim - 1] + c->group_size - 1) / c->group_size;
    operand = conform_add(c, random, "scales", part, ndim, groups, TEST_CONTIGUOUS);
    test_tensor_uniform(&operand->tensor, random, 0.25 / (1 << 4), 0.5 / (1 << 4));
    operand = conform_add(c, random, "biases", part, ndim, groups, TEST_CONTIGUOUS);
    test_tensor_normal(&operand->tensor, random, 0.5);
}

bool conform_is_wide(const conform_case *c)
{
    return c->row->weight == MICA_DTYPE_F64 && !conform_kernels;
}

void conform_narrow(conform_case *c)
{
    const test_tensor *y = conform_tensor(c, c->output);

    for (uint64_t i = 0; y->dtype == MICA_DTYPE_F64 && i < y->count; i++)
        c->error[i] *= c->error[i] > 0 ? 2 * 0x1p-29 : 1;
}

test_tensor *conform_tensor(conform_case *c, uint32_t slot)
{
    conform_operand *operand = &c->operand[slot];

    return operand->shared ? &c->operand[operand->same_as].tensor : &operand->tensor;
}

mica_buffer *conform_buffer(const conform_case *c, uint32_t slot)
{
    const conform_operand *operand = &c->operand[slot];

    if (slot == c->weight_slot)
        return c->weight;
    return operand->shared ? c->operand[operand->same_as].tensor.view : operand->tensor.view;
}

double *conform_values(conform_case *c, uint32_t slot)
{
    return c->operand[slot].present ? test_tensor_values(conform_tensor(c, slot), false) : NULL;
}

uint64_t conform_broadcast_place(const test_tensor *from, const test_tensor *to, uint64_t index)
{
    uint64_t place = 0, step = 1;

    for (uint32_t d = 0; d < from->ndim; d++) {
        uint64_t size = to->shape[to->ndim - 1 - d], own = from->shape[from->ndim - 1 - d];

        place += (own == 1 ? 0 : index % size) * step;
        step *= own;
        index /= size;
    }
    return place;
}

mica_dtype conform_float(test_random *random)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16};

    return types[test_random_below(random, 3)];
}

mica_dtype conform_index(test_random *random)
{
    return test_random_one_in(random, 2) ? MICA_DTYPE_U32 : MICA_DTYPE_I32;
}

void conform_shape(test_random *random, uint32_t ndim, uint64_t most, uint64_t *shape)
{
    const uint64_t largest = ndim > 4 ? 4 : most; /* of many dimensions none takes it all */

    for (uint32_t i = ndim; i-- > 0;) {
        shape[i] = test_random_size(random, most < largest ? most : largest);
        most /= shape[i];
    }
}

double conform_bytes(conform_case *c, uint32_t slot)
{
    const test_tensor *tensor = conform_tensor(c, slot);

    if (!c->operand[slot].present)
        return 0;
    return (double)(tensor->count / oracle_block_values(tensor->dtype) * oracle_block_bytes(tensor->dtype));
}

static mica_status join_weight(conform_case *c)
{
    mica_buffer *plain = c->operand[c->weight_slot].tensor.view, *packed = NULL;
    mica_status status = MICA_OK;

    if (c->group_size)
        status = mica_buffer_affine(plain, c->operand[c->weight_slot + 1].tensor.view,
                                    c->operand[c->weight_slot + 2].tensor.view, c->group_size, &c->weight);
    else
        c->weight = mica_buffer_retain(plain);
    if (status != MICA_OK || !c->packed)
        return status;
    status = mica_buffer_pack(c->weight, &packed);
    mica_buffer_release(c->weight);
    c->weight = packed;
    return status;
}

mica_status conform_case_upload(conform_case *c, mica_device *device)
{
    for (uint32_t i = 0; i < c->operand_count; i++) {
        mica_status status = MICA_OK;

        if (c->operand[i].present && !c->operand[i].shared)
            status = test_tensor_upload(&c->operand[i].tensor, device);
        if (status != MICA_OK)
            return status;
    }
    return c->weight_slot == UINT32_MAX ? MICA_OK : join_weight(c);
}

void conform_case_unload(conform_case *c)
{
    mica_buffer_release(c->weight);
    c->weight = NULL;
    for (uint32_t i = 0; i < c->operand_count; i++)
        test_tensor_unload(&c->operand[i].tensor);
}
