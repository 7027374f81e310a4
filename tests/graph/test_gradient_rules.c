/*
 * test_gradient_rules.c - no rule of derivatives without a test: the cases that others compare with central differences are made once more here, without being run, and every op and kind
 * of node that has a rule must be among what they differentiate; so must each flag of its parameters, set and not set, and each value of their enumerations.
 */
#include "gradient_rig.h"

#include "graph/gradient/rules.h"
#include "graph/text/text.h"

int test_gradient_basic_main(int argc, char **argv);
int test_gradient_ops_main(int argc, char **argv);
int test_gradient_algebra_main(int argc, char **argv);
int test_gradient_bodies_main(int argc, char **argv);
int test_gradient_kinds_main(int argc, char **argv);

void (*rig_sees)(const mica_graph *graph);

enum { FIELDS = 32 };
static bool kind_seen[MICA_NODE_COUNT], op_seen[MICA_OP_COUNT];
static uint64_t values_seen[MICA_OP_COUNT]
                           [FIELDS]; /* bit v: some node had the value v in that field; 63: a greater one */

static void see_params(const mica__node *node)
{
    const mica__field *field = mica__fields_of((mica_op)node->code);
    const unsigned char *params = mica__op_params(node);
    for (uint32_t f = 0; field[f].name != NULL && f < FIELDS; f++)
        for (uint32_t i = 0; i < field[f].count; i++) {
            uint32_t value = 0; /* f32 too: whether it is 0 */
            const size_t size = field[f].form == MICA__FORM_I64 || field[f].form == MICA__FORM_F64 ? 8 : 4;
            uint64_t wide = 0;
            if (params != NULL)
                memcpy(&wide, params + field[f].offset + i * size, size);
            value = wide > 62 ? 63 : (uint32_t)wide;
            values_seen[node->code][f] |= 1ull << value;
        }
}

static void see(const mica_graph *graph)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const mica__node *node = &graph->node[n];
        kind_seen[node->kind] = true;
        if (node->kind == MICA_NODE_OP) {
            op_seen[node->code] = true;
            see_params(node);
        }
        if (node->kind < MICA_NODE_CALL || node->kind > MICA_NODE_SCAN)
            continue;
        const mica__body_data *data = node->data;
        for (int i = 0; i < 2; i++)
            if (data->body[i] != NULL)
                see(data->body[i]);
    }
}

static void every_rule(void **state)
{
    (void)state;
    uint32_t missing = 0;
    for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++)
        if (mica__rule_of_op((mica_op)op) != NULL && !op_seen[op] && ++missing)
            print_error("%s has a rule and no test\n", mica_op_name((mica_op)op));
    for (uint32_t kind = MICA_NODE_SCALAR; kind < MICA_NODE_COUNT; kind++) {
        const mica__node node = {.kind = (uint8_t)kind};
        if (kind != MICA_NODE_OP && mica__rule_of(&node) != NULL && !kind_seen[kind] && ++missing)
            print_error("%s has a rule and no test\n", mica__kind_name((mica_node_kind)kind));
    }
    assert_int_equal(missing, 0);
}

/* The values of an enumeration, as bits; 0: what is none. */
static uint64_t values_of(mica_op op, const char *field)
{
    static const struct {
        mica_op op;
        const char *field;
        uint64_t values;
    } rows[] = {{MICA_OP_REDUCE, "kind", 0x79f}, /* all but ANY and ALL, which are of bools */
                {MICA_OP_PAD, "mode", 0x1f},        {MICA_OP_SCATTER, "mode", 0x1f},
                {MICA_OP_SCATTER_ND, "mode", 0x1f}, {MICA_OP_SCAN, "kind", 0xf},
                {MICA_OP_NORMALIZE, "kind", 7},     {MICA_OP_POOL_WINDOWS, "kind", 0x1f},
                {MICA_OP_RESIZE, "mode", 7},        {MICA_OP_RESIZE, "corners", 7},
                {MICA_OP_GRID_SAMPLE, "mode", 7},   {MICA_OP_GRID_SAMPLE, "padding", 7},
                {MICA_OP_FFT, "kind", 7},           {MICA_OP_FFT, "norm", 7},
                {MICA_OP_RNN, "kind", 0xf},         {MICA_OP_RNN_BACKWARD, "kind", 0xf},
                {MICA_OP_DELTA_NET, "form", 7},     {MICA_OP_ROPE, "axes", 0xf}};
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].op == op && strcmp(rows[i].field, field) == 0)
            return rows[i].values;
    return 0;
}

/* What a gradient does not read, or refuses, with the reason. */
static const char *not_asked(mica_op op, const char *field)
{
    static const struct {
        mica_op op;
        const char *field, *reason;
    } rows[] = {{MICA_OP_PAD, "reserved", "is nothing"},
                {MICA_OP_ATTENTION, "ring", "is refused: a cache that turns has no gradient"},
                {MICA_OP_ATTENTION_BACKWARD, "ring", "likewise"},
                {MICA_OP_MATMUL, "precision", "rounds, and is nothing in the derivative"},
                {MICA_OP_MATMUL_EXPERTS, "precision", "likewise"},
                {MICA_OP_MATMUL_TRANSPOSED, "precision", "likewise"},
                {MICA_OP_CONV, "kernel", "is what weight has"},
                {MICA_OP_CONV_WEIGHT_BACKWARD, "transposed", "is 0: x and dy change places"},
                {MICA_OP_CONV_WEIGHT_BACKWARD, "output_padding", "likewise"}};
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].op == op && strcmp(rows[i].field, field) == 0)
            return rows[i].reason;
    return NULL;
}

static void every_value(void **state)
{
    (void)state;
    uint32_t missing = 0;
    for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++) {
        const mica__field *field = mica__fields_of((mica_op)op);
        for (uint32_t f = 0; mica__rule_of_op((mica_op)op) != NULL && field[f].name != NULL && f < FIELDS;
             f++) {
            const uint64_t saw = values_seen[op][f], all = values_of((mica_op)op, field[f].name);
            const bool is_flag = (saw & ~3ull) == 0 && field[f].count == 1; /* neither a number nor a list */
            const bool is_met = all != 0 ? (saw & all) == all : (saw & ~1ull) != 0 && (!is_flag || saw == 3);
            if (is_met || not_asked((mica_op)op, field[f].name) != NULL)
                continue;
            print_error("%s: no gradient is tested with all of '%s' (saw 0x%llx)\n",
                        mica_op_name((mica_op)op), field[f].name, (unsigned long long)saw);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(every_rule), cmocka_unit_test(every_value)};
    rig_sees = see;
    const int wrong = test_gradient_basic_main(argc, argv) + test_gradient_ops_main(argc, argv) +
                      test_gradient_algebra_main(argc, argv) + test_gradient_bodies_main(argc, argv) +
                      test_gradient_kinds_main(argc, argv);
    rig_sees = NULL;
    return wrong + cmocka_run_group_tests(tests, NULL, NULL);
}
