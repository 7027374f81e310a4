/*
 * test_graph_odd.c - NaN, infinities, zeros with a sign, the least and the greatest numbers through every op of the table: called as it is, and
 * as a node of a graph in every mode. Nothing but outputs is written, no call fails, and a node gives the numbers of the call bit for bit
 * (what NaN gives is the table of conformance's to judge). Types with tables of scales, and what is drawn by the host, are left out.
 */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "graph/case_node.h"
#include "graph/graph_rig.h"
#include "oracle/oracle_number.h"

#define SEEDS 8u         /* of which the smallest case is taken */
#define LARGE (4u << 20) /* bytes of a case that is left out */

/* Every element one in `often` is odd. */
static void spoil(test_tensor *tensor, test_random *random, uint32_t often)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, FLT_MAX, -FLT_MAX, FLT_MIN / 4, NAN};
    for (uint64_t i = 0; i < tensor->count; i++)
        if (test_random_one_in(random, often))
            test_tensor_set(tensor, i, odd[test_random_below(random, sizeof odd / sizeof *odd)]);
}

static bool is_float(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16 ||
           dtype == MICA_DTYPE_F64;
}

static uint64_t bytes_of(const conform_case *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->operand_count; i++)
        bytes += c->operand[i].present ? c->operand[i].tensor.bytes : 0;
    return bytes;
}

/* The smallest of some cases of a row that is right as it is; false: there is none. */
static bool make_small(conform_case *out, const conform_row *row)
{
    uint64_t best = 0, least = LARGE;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        conform_case c;
        conform_case_make(&c, row, seed, false);
        const uint64_t bytes = bytes_of(&c);
        if (c.wanted == MICA_OK && c.group_size == 0 && bytes < least) {
            least = bytes;
            best = seed;
        }
        conform_case_free(&c);
    }
    if (best != 0)
        conform_case_make(out, row, best, false);
    return best != 0;
}

/* ---- the call ---- */

static void call(conform_case *c, mica_device *device)
{
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(c->row->encode(c, encoder));
    const mica_status status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    if (status != MICA_OK)
        fail_msg("%s: %s", c->row->name, mica_status_message());
    for (uint32_t i = 0; i < c->operand_count; i++) {
        conform_operand *operand = &c->operand[i];
        if (!operand->present || operand->shared)
            continue;
        must(test_tensor_fetch(&operand->tensor));
        if (test_tensor_stray(&operand->tensor, operand->written) != UINT64_MAX)
            fail_msg("%s: memory beside %s was changed", c->row->name, operand->tensor.name);
        must(test_tensor_restore(&operand->tensor)); /* what it updates is what it was, for the graph */
    }
}

/* ---- the node ---- */

/* Whether an element is what the call gave: the same bits, or NaN for NaN. */
static bool same_element(const test_tensor *tensor, uint64_t i, const uint8_t *got)
{
    const uint64_t unit = mica_dtype_block_bytes(tensor->dtype);
    const uint8_t *right = tensor->after + test_tensor_place(tensor, i);
    if (memcmp(right, got, unit) == 0)
        return true;
    if (tensor->dtype == MICA_DTYPE_C64) {
        float a[2], b[2];
        memcpy(a, right, sizeof a);
        memcpy(b, got, sizeof b);
        return (a[0] == b[0] || (isnan(a[0]) && isnan(b[0]))) &&
               (a[1] == b[1] || (isnan(a[1]) && isnan(b[1])));
    }
    return is_float(tensor->dtype) && isnan(oracle_get(tensor->dtype, right)) &&
           isnan(oracle_get(tensor->dtype, got));
}

static void compare(conform_case *c, const case_node *node, const mica_array *out, mica_graph_mode mode)
{
    for (uint32_t i = 0, o = 0; i < node->count; i++) {
        if (node->output[i] == UINT32_MAX || node->outputs[node->output[i]] == 0)
            continue;
        const test_tensor *tensor = conform_tensor(c, node->slots[i]);
        const uint64_t unit = mica_dtype_block_bytes(tensor->dtype);
        const uint64_t blocks = out[o].bytes / unit;
        for (uint64_t b = 0; b < blocks; b++)
            if (!same_element(tensor, b * (tensor->count / (blocks > 0 ? blocks : 1)),
                              (const uint8_t *)out[o].data + b * unit))
                fail_msg("%s, mode %d: element %llu of %s is not what the call gives", c->row->name,
                         (int)mode, (unsigned long long)b, tensor->name);
        o++;
    }
}

/* The elements, or blocks, of a tensor one after the other. */
static mica_array dense_of(const test_tensor *tensor, const char *name)
{
    const uint64_t block = oracle_block_values(tensor->dtype), unit = mica_dtype_block_bytes(tensor->dtype);
    const uint64_t blocks = tensor->count / block;
    mica_array array = {.name = name, .dtype = tensor->dtype, .ndim = tensor->ndim, .bytes = blocks * unit};
    uint8_t *data = test_alloc(array.bytes, 1);
    for (uint64_t b = 0; b < blocks; b++)
        memcpy(data + b * unit, tensor->image + test_tensor_place(tensor, b * block), unit);
    memcpy(array.shape, tensor->shape, tensor->ndim * sizeof *tensor->shape);
    array.data = data;
    return array;
}

static void set_operand(conform_case *c, const case_node *node, uint32_t i, mica_executable *run)
{
    char name[16];
    case_name(name, i);
    const mica_array array = dense_of(conform_tensor(c, node->slots[i]), name);
    must(mica_executable_set(run, &array));
    free(array.data);
}

static void run_node(conform_case *c, mica_device *device, mica_graph *g, const case_node *node,
                     mica_graph_mode mode)
{
    mica_array out[CONFORM_OPERANDS];
    char names[CONFORM_OPERANDS][16];
    uint32_t outputs = 0;
    mica_executable *run = rig_compile(g, device, mode);
    for (uint32_t i = 0; i < node->count; i++) {
        if (node->reads[i])
            set_operand(c, node, i, run);
        if (node->output[i] == UINT32_MAX || node->outputs[node->output[i]] == 0)
            continue;
        const test_tensor *tensor = conform_tensor(c, node->slots[i]);
        const uint64_t bytes =
            tensor->count / oracle_block_values(tensor->dtype) * mica_dtype_block_bytes(tensor->dtype);
        snprintf(names[outputs], sizeof names[outputs], "o%u", i);
        out[outputs] = (mica_array){.name = names[outputs], .data = test_alloc(bytes, 1), .bytes = bytes};
        outputs++;
    }
    for (int again = 0; again < 2; again++)
        must(mica_executable_run(run, NULL, 0, out, outputs));
    compare(c, node, out, mode);
    while (outputs > 0)
        free(out[--outputs].data);
    mica_executable_release(run);
}

static void walk(conform_case *c, mica_device *device)
{
    case_node node;
    mica_graph *g = NULL;
    must(mica_graph_create(&g));
    if (case_add(g, c, false, &node) == 0)
        fail_msg("%s: %s", c->row->name, mica_status_message());
    for (uint32_t i = 0; i < node.count; i++) {
        char name[16];
        snprintf(name, sizeof name, "o%u", i);
        if (node.output[i] != UINT32_MAX && node.outputs[node.output[i]] != 0)
            mica_graph_output(g, name, node.outputs[node.output[i]]);
    }
    must(mica_graph_status(g));
    must(conform_case_upload(c, device));
    call(c, device);
    EACH_MODE(mode) run_node(c, device, g, &node, mode);
    conform_case_unload(c);
    mica_graph_release(g);
}

static void test_ops(void **state)
{
    (void)state;
    bool seen[MICA_OP_COUNT] = {false};
    test_random random = test_random_from(11);
    for (uint32_t r = 0; r < conform_table_count; r++) {
        conform_case c;
        const mica_op op = conform_table[r].op;
        if (op == MICA_OP_REGION || op == MICA_OP_CUSTOM || !make_small(&c, &conform_table[r]))
            continue;
        for (uint32_t often = 1; often <= 7; often += 6) { /* all, a few */
            for (uint32_t i = 0; i < c.operand_count; i++)
                if (c.operand[i].present && !c.operand[i].shared && is_float(c.operand[i].tensor.dtype))
                    spoil(&c.operand[i].tensor, &random, often);
            walk(&c, devices[0]);
        }
        seen[op] = true;
        conform_case_free(&c);
    }
    for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++)
        if (!seen[op] && op != MICA_OP_REGION)
            fail_msg("%s was not walked through", mica_op_name((mica_op)op));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops)};
    return cmocka_run_group_tests_name("odd numbers through every op", tests, open_devices, close_devices);
}
