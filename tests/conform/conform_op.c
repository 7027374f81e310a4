/*
 * conform_op.c - cases out of the table of ops: operands of the sizes, types, strides and places that it allows, some absent, some in
 * place; and calling any op by its number.
 */
#include "conform/conform_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes by their letters as they are drawn; '.' stands for the rest. */
typedef struct draw {
    uint64_t size[128];
    uint64_t rest[3];
    uint32_t rest_count, most; /* elements that an operand may still have */
    bool drawn[128], missing[128];
} draw;

static uint64_t size_of(draw *d, test_random *random, char letter, bool typical)
{
    const uint32_t at = (unsigned char)letter;

    if (!d->drawn[at]) {
        d->drawn[at] = true;
        d->size[at] = typical ? 1024 : test_random_size(random, d->most);
        d->most = d->most / d->size[at] > 1 ? (uint32_t)(d->most / d->size[at]) : 2;
    }
    return d->size[at];
}

static void draw_rest(draw *d, test_random *random, bool typical)
{
    if (d->drawn['.'])
        return;
    d->drawn['.'] = true;
    d->rest_count = typical ? 1 : (uint32_t)test_random_below(random, 4);
    for (uint32_t i = 0; i < d->rest_count; i++)
        d->rest[i] = typical ? 1024 : test_random_size(random, 12);
}

/* The shape that the text of the table ("[.., d]") stands for. */
static uint32_t draw_shape(draw *d, test_random *random, const char *text, bool typical, uint64_t *shape)
{
    uint32_t ndim = 0;

    for (const char *at = text + 1; *at != ']' && *at != 0; at++) {
        if (at[0] == '.' && at[1] == '.') {
            draw_rest(d, random, typical);
            memcpy(shape + ndim, d->rest, d->rest_count * sizeof *shape);
            ndim += d->rest_count;
            at++;
        } else if (*at >= '0' && *at <= '9') {
            shape[ndim++] = strtoull(at, (char **)(uintptr_t)&at, 10);
            at--;
        } else if (*at >= 'a' && *at <= 'z') {
            const uint32_t letter = (unsigned char)*at;

            if (at[1] == '?' && !d->drawn[letter])
                d->missing[letter] = !typical && test_random_one_in(random, 2);
            if (at[1] != '?' || !d->missing[letter])
                shape[ndim++] = size_of(d, random, *at, typical);
        }
    }
    return ndim;
}

static mica_dtype draw_dtype(const conform_case *c, const mica_op_operand *operand, test_random *random)
{
    mica_dtype found[MICA_DTYPE_COUNT];
    uint32_t count = 0;

    if (operand->types == 0)
        return c->operand[operand->same_as].tensor.dtype;
    for (uint32_t d = 1; d < MICA_DTYPE_COUNT; d++)
        if ((operand->types >> d & 1) != 0)
            found[count++] = (mica_dtype)d;
    return found[c->typical ? 0 : test_random_below(random, count)];
}

static test_layout layout_of(const mica_op_operand *operand)
{
    const bool read = operand->access == MICA_ACCESS_READ;

    switch (operand->rows) {
    case 0: return read ? TEST_REPEAT : TEST_ANY;
    case 1: return read ? TEST_ROWS_REPEAT : TEST_ROWS;
    default: return TEST_CONTIGUOUS;
    }
}

void conform_make_op(conform_case *c, test_random *random)
{
    mica_op_info info = {0};
    draw d = {.most = 3000};

    (void)mica_op_get_info(c->row->op, &info);
    for (uint32_t i = 0; i < info.operands; i++) {
        mica_op_operand operand = {0};
        uint64_t shape[MICA_MAX_DIMS] = {0};

        (void)mica_op_get_operand(c->row->op, i, &operand);
        if (operand.optional && !c->typical && test_random_one_in(random, 3)) {
            conform_add_absent(c);
            continue;
        }
        const uint32_t ndim = draw_shape(&d, random, operand.shape, c->typical, shape);
        const mica_dtype dtype = draw_dtype(c, &operand, random);
        if ((operand.access & MICA_ACCESS_WRITE) != 0)
            conform_add_output(c, random, operand.name, dtype, ndim, shape, layout_of(&operand), false, 0);
        else
            conform_add(c, random, operand.name, dtype, ndim, shape, layout_of(&operand));
        /* What is read, also of outputs that keep some of what they were. */
        if (operand.access != MICA_ACCESS_WRITE || operand.part)
            test_tensor_normal(conform_tensor(c, i), random, 1);
        c->bytes += conform_bytes(c, i);
    }
}

uint32_t conform_operands(const conform_case *c, uint32_t *slots)
{
    mica_op_info info = {0};

    (void)mica_op_get_info(c->row->op, &info);
    const uint32_t count = info.operands + info.grouped;
    bool found = false; /* an output in place has no name: it is the first that an op writes */
    for (uint32_t i = 0; i < count; i++) {
        mica_op_operand operand = {0};

        (void)mica_op_get_operand(c->row->op, i, &operand);
        slots[i] = UINT32_MAX;
        const bool first = !found && (operand.access & MICA_ACCESS_WRITE) != 0;
        found = found || first;
        for (uint32_t s = 0; s < c->operand_count; s++) {
            const conform_operand *o = &c->operand[s];
            const bool here = o->shared ? first : o->present && strcmp(o->tensor.name, operand.name) == 0;

            if (here)
                slots[i] = s;
        }
    }
    return count;
}

mica_status conform_encode_op(const conform_case *c, mica_encoder *encoder)
{
    uint32_t slots[CONFORM_OPERANDS];
    mica_buffer *operand[CONFORM_OPERANDS];
    const uint32_t count = conform_operands(c, slots);

    for (uint32_t i = 0; i < count; i++)
        operand[i] = slots[i] == UINT32_MAX ? NULL : conform_buffer(c, slots[i]);
    return mica_op_apply(encoder, c->row->op, &c->params, operand, count);
}
