/*
 * test_graph_special.c - NaN and infinities through every op of the table and every scalar function, as nodes of a graph: three modes give the same, and NaN stands where the
 * oracle of conformance has it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "case_node.h"
#include "graph/graph_rig.h"

static uint64_t seeds = 2;
static bool seen[MICA_OP_COUNT];
static uint32_t wrong;

/* Infinities whose differences and products with 0 depend on the order of a formula: of those NaN alone is drawn. */
static bool has_order(mica_op op)
{
    return op == MICA_OP_DELTA_NET || op == MICA_OP_DELTA_NET_BACKWARD || op == MICA_OP_SSM_CONV_BACKWARD ||
           op == MICA_OP_SELECTIVE_SCAN_BACKWARD || op == MICA_OP_RNN_BACKWARD;
}

/* What meets the zeros of padding, or a query that sees nothing: whether such a product is taken depends on the kernel. */
static bool meets_nothing(mica_op op, const char *name)
{
    return (op == MICA_OP_CONV && strcmp(name, "weight") == 0) ||
           (op == MICA_OP_CONV_WEIGHT_BACKWARD && strcmp(name, "dy") == 0) ||
           (op == MICA_OP_ATTENTION && strcmp(name, "sinks") == 0);
}

/* One NaN and one infinity of each sign among the floats of an operand. */
static void put_special(conform_case *c, test_random *random)
{
    for (uint32_t i = 0; i < c->operand_count; i++) {
        conform_operand *o = &c->operand[i];
        const mica_dtype dtype = o->tensor.dtype;
        if (!o->present || o->shared || o->tensor.count == 0 || test_random_one_in(random, 3) ||
            meets_nothing(c->row->op, o->tensor.name) ||
            (dtype != MICA_DTYPE_F32 && dtype != MICA_DTYPE_F16 && dtype != MICA_DTYPE_BF16 &&
             dtype != MICA_DTYPE_F64))
            continue;
        const uint64_t nan = test_random_below(random, o->tensor.count);
        test_tensor_set(&o->tensor, nan, (double)NAN);
        if (getenv("SPECIAL_SAYS") != NULL)
            print_message("%s: NaN in %s at %llu\n", c->row->name, o->tensor.name, (unsigned long long)nan);
        if (has_order(c->row->op))
            continue;
        if (test_random_one_in(random, 2))
            test_tensor_set(&o->tensor, test_random_below(random, o->tensor.count), (double)INFINITY);
        if (test_random_one_in(random, 2))
            test_tensor_set(&o->tensor, test_random_below(random, o->tensor.count), -(double)INFINITY);
    }
}

/* The elements of a tensor in a row; owned by the caller. */
static unsigned char *packed(const test_tensor *t, uint64_t *bytes)
{
    const uint64_t size = mica_dtype_block_bytes(t->dtype);
    unsigned char *data = calloc(1, t->count * size + 8);
    for (uint64_t i = 0; i < t->count; i++)
        memcpy(data + i * size, t->image + test_tensor_place(t, i), size);
    *bytes = t->count * size;
    return data;
}

typedef struct special {
    conform_case *c;
    case_node node;
    mica_graph *graph;
    mica_array in[CONFORM_OPERANDS];
    char names[CONFORM_OPERANDS][16];
    uint32_t count, output; /* fed; which output is looked at */
} special;

/* False: the case has weights whose types are not fed. */
static bool special_begin(special *s, conform_case *c)
{
    *s = (special){.c = c, .output = UINT32_MAX};
    for (uint32_t i = 0; i < c->operand_count; i++)
        if (c->operand[i].present && mica_register_of(c->operand[i].tensor.dtype) == MICA_REGISTER_NONE)
            return false;
    must(mica_graph_create(&s->graph));
    if (case_add(s->graph, c, true, &s->node) == 0)
        fail_msg("%s: %s", c->row->name, mica_status_message());
    for (uint32_t i = 0; i < s->node.count; i++) {
        const uint32_t slot = s->node.slots[i];
        if (slot == c->output && s->node.output[i] != UINT32_MAX)
            s->output = s->node.output[i];
        if (!s->node.reads[i])
            continue;
        const test_tensor *t = conform_tensor(c, slot);
        mica_array *a = &s->in[s->count];
        case_name(s->names[s->count], i);
        *a = rig_array(s->names[s->count], t->dtype, NULL, 0, t->ndim, t->shape);
        a->data = packed(t, &a->bytes);
        s->count++;
    }
    if (s->output != UINT32_MAX)
        mica_graph_output(s->graph, "y", s->node.outputs[s->output]);
    return s->output != UINT32_MAX;
}

static void special_end(special *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        free(s->in[i].data);
    mica_graph_release(s->graph);
}

/* NULL: the run ended with a status that the device has for such numbers; which. */
static unsigned char *run_mode(const special *s, mica_graph_mode mode, mica_status *status)
{
    const test_tensor *t = conform_tensor(s->c, s->c->output);
    const uint64_t bytes = t->count * mica_dtype_block_bytes(t->dtype);
    unsigned char *data = calloc(1, bytes + 8);
    mica_executable *run = rig_compile(s->graph, devices[0], mode);
    mica_array y = {.name = "y", .data = data, .bytes = bytes};
    *status = mica_executable_run(run, s->in, s->count, &y, 1);
    mica_executable_release(run);
    if (*status == MICA_OK)
        return data;
    free(data);
    return NULL;
}

static void check_oracle(const special *s, const unsigned char *y)
{
    conform_case *c = s->c;
    test_tensor *t = conform_tensor(c, c->output);
    const uint64_t size = mica_dtype_block_bytes(t->dtype);
    const bool wide = t->dtype == MICA_DTYPE_F64, real = wide || t->dtype == MICA_DTYPE_F32 ||
                                                         t->dtype == MICA_DTYPE_F16 ||
                                                         t->dtype == MICA_DTYPE_BF16;
    if (!real || c->expected == NULL || c->bits_of != UINT32_MAX || c->row->judge != NULL)
        return;
    for (uint64_t i = 0; i < t->count; i++) { /* its bytes where the tensor reads them */
        memcpy(t->image + test_tensor_place(t, i), y + i * size, size);
        const double got = test_tensor_get(t, i);
        if ((isnan(got) != 0) != (isnan(c->expected[i]) != 0)) {
            char text[CONFORM_TEXT];
            conform_case_describe(c, text, sizeof text);
            print_error("seed %llu: element %llu is %g, the oracle says %g: %s\n",
                        (unsigned long long)c->number, (unsigned long long)i, got, c->expected[i], text);
            wrong++;
            return;
        }
    }
}

static void check_case(const conform_row *row, uint64_t seed)
{
    conform_case c;
    special s;
    test_random random = test_random_from(seed * 7919);
    conform_case_make(&c, row, seed, false);
    put_special(&c, &random);
    if (special_begin(&s, &c)) {
        mica_status status[3];
        unsigned char *y[3];
        const test_tensor *t = conform_tensor(&c, c.output);
        for (int m = 0; m < 3; m++)
            y[m] = run_mode(&s, rig_modes[m], &status[m]);
        for (int m = 1; m < 3; m++) {
            wrong += status[m] != status[0];
            if (y[m] != NULL && memcmp(y[m], y[0], t->count * mica_dtype_block_bytes(t->dtype)) != 0) {
                print_error("%s, seed %llu: mode %d gives other bits\n", row->name, (unsigned long long)seed,
                            m);
                wrong++;
            }
        }
        if (y[0] != NULL) {
            conform_case_expect(&c);
            check_oracle(&s, y[0]);
        }
        for (int m = 0; m < 3; m++)
            free(y[m]);
        seen[row->op] = true;
    }
    special_end(&s);
    conform_case_free(&c);
}

static void test_ops(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < conform_table_count; r++)
        for (uint64_t seed = 1; seed <= seeds; seed++)
            if (conform_table[r].op != MICA_OP_REGION && conform_table[r].op != MICA_OP_CUSTOM &&
                conform_table[r].weight == MICA_DTYPE_NONE)
                check_case(&conform_table[r], seed);
    assert_int_equal(wrong, 0);
    for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++)
        if (!seen[op] && op != MICA_OP_REGION && op != MICA_OP_MATMUL && op != MICA_OP_MATMUL_EXPERTS)
            fail_msg("%s met no NaN", mica_op_name((mica_op)op));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops)};
    if (argc > 1)
        seeds = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
