/* test_graph_text.c - graphs as text and as files: every kind of node and every op comes back as it was; what is damaged is refused by line and name. */
#include "support/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "case_node.h"
#include "graph/ir.h"
#include "support/folder.h"

static char folder[256];

static mica_graph *fresh(void)
{
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    return graph;
}

/* The caller frees it. */
static char *text_of(const mica_graph *graph)
{
    uint64_t length = 0, again = 0;
    must(mica_graph_print(graph, NULL, 0, &length));
    char *text = malloc(length + 1);
    must(mica_graph_print(graph, text, length + 1, &again));
    assert_int_equal(length, again);
    assert_int_equal(strlen(text), length);
    return text;
}

static void same_text(const mica_graph *graph, const char *text, const char *name)
{
    char *found = text_of(graph);
    if (strcmp(found, text) != 0)
        fail_msg("%s came back as\n%s\nand was\n%s", name, found, text);
    free(found);
}

/* Text and file give the graph back; a copy of it has the same text. */
static void comes_back(const mica_graph *graph, const char *name)
{
    char path[256];
    mica_graph *again = NULL;
    char *text = text_of(graph);
    if (mica_graph_verify(graph) != MICA_OK)
        fail_msg("%s: %s", name, mica_status_message());
    must(mica_graph_clone(graph, &again));
    same_text(again, text, name);
    mica_graph_release(again);
    if (mica_graph_parse(text, strlen(text), &again) != MICA_OK)
        fail_msg("%s: %s\n%s", name, mica_status_message(), text);
    same_text(again, text, name);
    must(mica_graph_verify(again));
    mica_graph_release(again);
    snprintf(path, sizeof path, "%.200s/graph.safetensors", folder);
    must(mica_graph_save(graph, path));
    if (mica_graph_load(path, &again) != MICA_OK)
        fail_msg("%s: %s\n%s", name, mica_status_message(), text);
    same_text(again, text, name);
    mica_graph_release(again);
    free(text);
}

/* ---- every kind of node ---- */

static mica_tensor add_region(mica_graph *g, mica_tensor x, mica_tensor z)
{
    mica_region *region = NULL;
    const mica_region_step steps[] = {
        {.scalar = MICA_SCALAR_CONSTANT,
         .type = MICA_REGISTER_F32,
         .value = {255, 255, 255},
         .constant = {.f32 = 1.1f}},
        {.scalar = MICA_SCALAR_MUL, .type = MICA_REGISTER_F32, .value = {0, 2, 255}},
        {.scalar = MICA_SCALAR_INDEX, .type = MICA_REGISTER_I32, .value = {255, 255, 255}, .axis = 1},
        {.scalar = MICA_SCALAR_IMAG, .type = MICA_REGISTER_F32, .value = {1, 255, 255}}};
    const mica_region_desc desc = {.input_count = 2,
                                   .output_count = 3,
                                   .step_count = 4,
                                   .input = {MICA_REGISTER_F32, MICA_REGISTER_F32},
                                   .output = {3, 4, 3},
                                   .output_imag = {255, 255, 5},
                                   .step = steps};
    must(mica_region_create(&desc, &region));
    const mica_dtype dtypes[] = {MICA_DTYPE_F16, MICA_DTYPE_I16, MICA_DTYPE_C64};
    mica_tensor outputs[3];
    const mica_tensor first = mica_graph_region(g, region, (const mica_tensor[]){x, z}, dtypes, outputs);
    mica_region_release(region);
    return first;
}

/* Sub-graphs of x [3]: what it is times two; whether its sum is below ten; its element. */
static mica_graph *body_of(const char *what)
{
    mica_graph *body = fresh();
    const uint64_t three = 3;
    const bool slice = strcmp(what, "slice") == 0;
    const mica_tensor x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, &three);
    const mica_tensor other = slice ? mica_graph_input(body, "s", MICA_DTYPE_F32, 0, NULL) : 0;
    const mica_tensor sum = mica_graph_reduce(body, MICA_REDUCE_SUM, x, NULL, 0, 0);
    if (strcmp(what, "gradient") == 0) {
        (void)mica_graph_input(body, "y", MICA_DTYPE_F32, 1, &three);
        const mica_tensor dy = mica_graph_input(body, "dy", MICA_DTYPE_F32, 1, &three);
        (void)mica_graph_output(body, "dx", mica_graph_add(body, dy, dy));
    } else if (strcmp(what, "condition") == 0) {
        (void)mica_graph_output(body, "goes on", mica_graph_less(body, sum, mica_graph_exp(body, sum)));
    } else {
        (void)mica_graph_output(body, "y",
                                slice ? mica_graph_mul(body, x, other) : mica_graph_add(body, x, x));
        if (slice)
            (void)mica_graph_output(body, "each", sum);
    }
    return body;
}

static void add_bodies(mica_graph *g)
{
    mica_graph *twice = body_of("twice"), *gradient = body_of("gradient"), *condition = body_of("condition"),
               *slice = body_of("slice");
    const uint64_t three = 3, steps = 5;
    const mica_tensor x = mica_graph_input(g, "carried", MICA_DTYPE_F32, 1, &three);
    const mica_tensor p = mica_graph_input(g, "predicate", MICA_DTYPE_BOOL, 1, (const uint64_t[]){1});
    const mica_tensor s = mica_graph_input(g, "scanned", MICA_DTYPE_F32, 1, &steps);
    mica_tensor two[2];
    (void)mica_graph_label(g, "with sub-graphs");
    (void)mica_graph_output(g, "call",
                            mica_graph_call(g, twice, gradient, MICA_CALL_CHECKPOINT, &x, 1, NULL, 0));
    (void)mica_graph_output(g, "if", mica_graph_if(g, p, twice, twice, &x, 1, NULL, 0));
    (void)mica_graph_output(g, "while", mica_graph_while(g, condition, twice, 9, &x, 1, 1, NULL));
    const mica_scan_desc desc = {.carried = 1, .scanned = 1, .reverse = 1};
    (void)mica_graph_scan(g, slice, &desc, (const mica_tensor[]){x, s}, two, 2);
    (void)mica_graph_label(g, NULL);
    (void)mica_graph_output(g, "stacked", two[1]);
    mica_graph_release(twice);
    mica_graph_release(gradient);
    mica_graph_release(condition);
    mica_graph_release(slice);
}

static void add_constants(mica_graph *g)
{
    static const float numbers[] = {0, -0.0f, 1e-45f, 3.14159274f, -INFINITY, NAN, 1e30f, 16777215};
    static const uint64_t words[] = {0, UINT64_MAX, 1ull << 63};
    static const int64_t whole[] = {INT64_MIN, -1, INT64_MAX};
    static const double doubles[] = {0.1, -1e300, 5e-324};
    static float large[1000];
    uint8_t bytes[144];
    for (uint32_t i = 0; i < 1000; i++)
        large[i] = (float)i * 0.5f;
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37);
    (void)mica_graph_constant(g, MICA_DTYPE_F32, 1, (const uint64_t[]){8}, numbers, sizeof numbers);
    (void)mica_graph_constant(g, MICA_DTYPE_U64, 1, (const uint64_t[]){3}, words, sizeof words);
    (void)mica_graph_constant(g, MICA_DTYPE_I64, 1, (const uint64_t[]){3}, whole, sizeof whole);
    (void)mica_graph_constant(g, MICA_DTYPE_F64, 1, (const uint64_t[]){3}, doubles, sizeof doubles);
    (void)mica_graph_constant(g, MICA_DTYPE_F32, 2, (const uint64_t[]){0, 4}, NULL, 0);
    for (uint32_t dtype = 1; dtype < MICA_DTYPE_COUNT; dtype++) {
        const uint64_t n = mica_dtype_block_elements((mica_dtype)dtype),
                       size = mica_dtype_block_bytes((mica_dtype)dtype);
        if (n <= 64 && dtype != MICA_DTYPE_F16 && dtype != MICA_DTYPE_BF16)
            (void)mica_graph_constant(g, (mica_dtype)dtype, 1, &n, bytes, size);
    }
    (void)mica_graph_constant(g, MICA_DTYPE_F16, 1, (const uint64_t[]){2}, "\x00\x3c\x01\x80", 4);
    (void)mica_graph_constant(g, MICA_DTYPE_BF16, 1, (const uint64_t[]){1}, "\xff\x7f",
                              2); /* a NaN, by its bits */
    (void)mica_graph_output(
        g, "large",
        mica_graph_constant(g, MICA_DTYPE_F32, 2, (const uint64_t[]){10, 100}, large, sizeof large));
    (void)mica_graph_constant(g, MICA_DTYPE_Q4_K, 1, (const uint64_t[]){256}, bytes, 144);
}

static mica_status nothing(void *context, mica_custom_call *call)
{
    (void)context;
    (void)call;
    return MICA_OK;
}

static void test_kinds(void **state)
{
    (void)state;
    bool seen[MICA_NODE_COUNT] = {false};
    mica_graph *g = fresh(), *again = NULL;
    const uint64_t batch = mica_graph_symbol(g, "batch"), odd = mica_graph_symbol(g, "odd \"name\", with \\");
    const mica_tensor x =
        mica_graph_input(g, "x \n\xff", MICA_DTYPE_F32, 3, (const uint64_t[]){batch, 4, MICA_SIZE_UNKNOWN});
    const mica_tensor k = mica_graph_input(g, "k", MICA_DTYPE_F32, 2, (const uint64_t[]){odd, 6});
    const mica_tensor z = mica_graph_input(g, "z", MICA_DTYPE_C64, 2, (const uint64_t[]){1, 6});
    (void)mica_graph_parameter_scaled(g, "w", MICA_DTYPE_AFFINE4, 2, (const uint64_t[]){8, 64}, 32,
                                      MICA_DTYPE_F16);
    (void)mica_graph_label(g, "a label");
    (void)mica_graph_exp(g, x);
    (void)mica_graph_label(g, " \"another\"\t");
    g->round = 7;
    (void)mica_graph_select(g, mica_graph_less(g, k, k), k, k);
    g->round = 0;
    (void)mica_graph_label(g, "#");
    const mica_tensor half = mica_graph_cast(g, k, MICA_DTYPE_F16);
    (void)mica_graph_bits(g, half, MICA_DTYPE_U16);
    (void)mica_graph_index(g, MICA_DTYPE_I64, 2, (const uint64_t[]){batch, 3}, 1);
    (void)mica_graph_reshape(g, k, 3, (const uint64_t[]){MICA_SIZE_REST, 2, 3});
    (void)mica_graph_permute(g, k, (const uint32_t[]){1, 0});
    (void)mica_graph_slice(g, k, 1, 1, 2, 3);
    (void)mica_graph_slice(g, k, 1, 5, 3, -2);
    (void)mica_graph_expand(g, k, 3, (const uint64_t[]){2, odd, 6});
    (void)mica_graph_concat(g, (const mica_tensor[]){k, half, k}, 1, 1);
    (void)mica_graph_concat(g, (const mica_tensor[]){k, k, k}, 3, 1);
    (void)mica_graph_stop_gradient(g, k);
    const mica_custom own = {.name = "a.b-c/9", .params = "\xff\x00\x7f", .params_bytes = 3, .host = nothing};
    (void)mica_graph_custom(g, &own, (const mica_tensor[]){k, half}, 2, NULL, NULL, 2);
    (void)add_region(g, k, z);
    add_constants(g);
    add_bodies(g);
    (void)mica_graph_output(g, "out", k);
    (void)mica_graph_output(g, "the same, too", k);
    must(mica_graph_status(g));
    for (uint32_t i = 0; i < g->node_count; i++)
        seen[g->node[i].kind] = true;
    for (uint32_t kind = MICA_NODE_INPUT; kind < MICA_NODE_COUNT; kind++)
        if (!seen[kind])
            fail_msg("no node is a %s", mica__kind_name((mica_node_kind)kind));
    char path[256];
    char *text = NULL;
    snprintf(path, sizeof path, "%.200s/kinds.safetensors", folder);
    must(mica_graph_save(g, path));
    must(mica_graph_load(path, &again));
    for (uint32_t i = 0; i < g->node_count; i++) /* constants by their bytes, of which a text has the first */
        if (g->node[i].kind == MICA_NODE_CONSTANT) {
            const mica__blob *a = ((const mica__constant_data *)g->node[i].data)->blob,
                             *b = ((const mica__constant_data *)again->node[i].data)->blob;
            assert_int_equal(a->bytes, b->bytes);
            assert_memory_equal(a->data, b->data, (size_t)a->bytes);
        }
    text = text_of(g);
    same_text(again, text, "the file");
    free(text);
    must(mica_graph_verify(g));
    mica_graph_release(again);
    mica_graph_release(g);
}

/* ---- every op ---- */

static void test_ops(void **state)
{
    (void)state;
    bool seen[MICA_OP_COUNT] = {false};
    for (uint32_t r = 0; r < conform_table_count; r++) {
        const mica_op op = conform_table[r].op;
        if (op == MICA_OP_REGION || op == MICA_OP_CUSTOM)
            continue;
        for (uint64_t seed = 1; seed <= 2; seed++) {
            conform_case c;
            case_node node;
            mica_graph *g = fresh();
            conform_case_make(&c, &conform_table[r], seed, false);
            const mica_tensor y = case_add(g, &c, false, &node);
            if (y == 0)
                fail_msg("%s: %s", conform_table[r].name, mica_status_message());
            (void)mica_graph_output(g, "y", y);
            comes_back(g, conform_table[r].name);
            seen[op] = true;
            mica_graph_release(g);
            conform_case_free(&c);
        }
    }
    for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++)
        if (!seen[op] && op != MICA_OP_REGION)
            fail_msg("%s came back from no text", mica_op_name((mica_op)op));
}

/* Two nodes of one name could not be told apart. */
static void test_names(void **state)
{
    (void)state;
    for (uint32_t s = 1; s < MICA_SCALAR_COUNT; s++)
        for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++)
            if (op != MICA_OP_REGION && strcmp(mica_scalar_name(s), mica_op_name((mica_op)op)) == 0)
                fail_msg("%s is a scalar and an op", mica_scalar_name(s));
    for (uint32_t k = MICA_NODE_INPUT; k < MICA_NODE_COUNT; k++)
        for (uint32_t op = MICA_OP_CUSTOM + 1; op < MICA_OP_COUNT; op++)
            if (op != MICA_OP_REGION &&
                strcmp(mica__kind_name((mica_node_kind)k), mica_op_name((mica_op)op)) == 0)
                fail_msg("%s is a kind and an op", mica_op_name((mica_op)op));
}

/* As long as they may be, with characters that a text has in quotes. */
static void test_longest_names(void **state)
{
    (void)state;
    char name[MICA_GRAPH_NAME_BYTES];
    memset(name, '\xff', sizeof name);
    name[sizeof name - 1] = 0;
    mica_graph *g = fresh();
    (void)mica_graph_label(g, name);
    const uint64_t size = mica_graph_symbol(g, name);
    (void)mica_graph_output(g, name, mica_graph_input(g, name, MICA_DTYPE_F32, 1, &size));
    must(mica_graph_status(g));
    comes_back(g, "longest names");
    mica_graph_release(g);
}

/* ---- Graphviz ---- */

static void test_dot(void **state)
{
    (void)state;
    char text[1024];
    uint64_t length = 0;
    mica_graph *g = fresh();
    const uint64_t n = mica_graph_symbol(g, "n");
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, &n);
    (void)mica_graph_output(g, "y", mica_graph_exp(g, x));
    must(mica_graph_print_dot(g, text, sizeof text, &length));
    assert_string_equal(text, "digraph mica {\n  node [shape=box];\n"
                              "  n0 [label=\"input \\\"x\\\"\"];\n"
                              "  n1 [label=\"exp\"];\n"
                              "  n0 -> n1 [label=\"f32 [n]\"];\n"
                              "  o0 [label=\"y\"];\n  n1 -> o0;\n}\n");
    must(mica_graph_print_dot(g, text, 8, &length));
    assert_string_equal(text, "digraph");
    mica_graph_release(g);
}

/* ---- what is refused ---- */

static void wrong(const char *text, const char *words)
{
    mica_graph *g = (mica_graph *)1;
    refused(mica_graph_parse(text, strlen(text), &g), MICA_ERR_MALFORMED_FILE, words);
    assert_null(g);
}

#define X "%1 = input(\"x\") : f32 [2, 3]\n"

static void test_refused(void **state)
{
    (void)state;
    wrong("what", "line 1: it begins neither");
    wrong(X "%2 = add(%1, %3) : f32 [2, 3]\n", "line 2: graph_add: b is tensor 3");
    wrong(X "%2 = add(%2, %1)\n", "line 2: graph_add: a is tensor 2");
    wrong(X "%3 = neg(%1)\n", "line 2: it gives %3, but the next tensor is %2");
    wrong(X "%2 = neg(%1) : f32 [3, 2]\n", "line 2: %2 has another type or shape");
    wrong(X "%2 = neg(%1) : f16 [2, 3]\n", "another type");
    wrong(X "%2 = neg(%1) : f32 [2, 3], f32 [2, 3]\n", "types of 2 tensors, not 1");
    wrong(X "%2 = negate(%1)\n", "line 2: there is no node called 'negate'");
    wrong(X "%2 = neg(%1) axis=1\n", "'neg' has no attribute 'axis'");
    wrong(X "%2 = reduce(%1) kinds=1\n", "'reduce' has no attribute 'kinds'");
    wrong(X "%2 = reduce(%1) kind=1 kind=2\n", "'kind' is there twice");
    wrong(X "%2 = reduce(%1) kind=-1\n", "attribute 'kind' has a value");
    wrong(X "%2 = reduce(%1) kind=(1, 2)\n", "attribute 'kind' has a value");
    wrong(X "%2 = reduce(%1) axes=256\n", "line 2: graph_reduce");
    wrong(X "%2 = softmax(%1) scale=x\n", "attribute 'scale' has a value");
    wrong(X "%2 = cast(%1) : f33 [2, 3]\n", "'f33' is no type");
    wrong(X "%2 = reshape(%1) shape=[2, n]\n", "attribute 'shape' is no shape");
    wrong(X "%2 = reshape(%1) shape=[7]\n", "line 2: graph_reshape");
    wrong(X "%2 = reshape(%1) shape=[1, 1, 1, 1, 1, 1, 1, 2, 3]\n", "shape");
    wrong(X "%2 = permute(%1) order=(0, 1, 2)\n", "attribute 'order' has 3 dimensions, not 2");
    wrong(X "%2 = slice(%1) axis=1 start=2 count=5 step=1\n", "line 2: graph_slice");
    wrong(X "%2 = expand(%1) shape=[281474976710656, 281474976710656, 2, 3]\n", "over 2^56");
    wrong(X "%2 = neg(%1\n", "a bracket without its end");
    wrong(X "%2 = neg(1)\n", "'neg' takes tensors");
    wrong(X "%2 = constant(1, 2) : f32 [3]\n", "other elements");
    wrong("%1 = constant(1, 2)\n", "a constant has one type");
    wrong(X "%2 = constant(300) : u8 []\n", "other elements");
    wrong(X "%2 = constant(c0) : f32 [100]\n", "a constant of 100 elements is not in a text");
    wrong(X "%2 = constant(x00) : f32 []\n", "other elements");
    wrong(X "output \"y\" = %2\n", "line 2: graph_output");
    wrong(X "output \"y\" = %1\noutput \"y\" = %1\n", "line 3: graph_output");
    wrong(X X, "line 2: graph_input");
    wrong("symbols n, n\n", "'n' is there twice");
    wrong("%1 = input(\"x\") : q4_0 [32]\n", "line 1: graph_input");
    wrong("%1 = input(\"x) : f32 [32]\n", "line 1");
    wrong(X "%2 = call(%1) {\n", "a sub-graph without its end");
    wrong(X "%2 = call(%1) {\n" X "}\n", "body has no outputs");
    wrong(X "%2 = if(%1, %1) {\n" X "output \"y\" = %1\n}\n", "'if' has 1 sub-graphs");
    wrong(X "%2 = if(%1) {\n}{\n}\n", "predicate is not one bool");
    wrong(X "%2 = for(%1) carried=2 {\n" X "output \"y\" = %1\n}\n", "'for' has an attribute");
    wrong(X "%2 = neg(%1) {\n}\n", "'neg' has no sub-graphs");
    wrong(X "%2 = customs(%1)\n", "no node called 'customs'");
    wrong(X "%2 = product(%1, %1, -, -, -)\n", "line 2: graph_product");
    wrong(X "%2 = product(%1)\n", "line 2: graph_product: 1 inputs");
    wrong(X "%2 = region(%1) steps=(add f32 0 9) gives=(1)  : f32 [2, 3]\n", "line 2");
    wrong(X "%2 = region(%1) steps=(nothing f32 0) gives=(1)  : f32 [2, 3]\n", "step 0");
    refused(mica_graph_parse(NULL, 1, NULL), MICA_ERR_INVALID_ARGUMENT, "out_graph");
}

/* Sub-graphs within each other, without end. */
static void test_depth(void **state)
{
    (void)state;
    char text[8192] = "";
    for (uint32_t i = 0; i < 100; i++)
        strcat(text, X "%2 = call(%1) {\n");
    wrong(text, "sub-graphs lie over 32 deep");
}

static void damage(const char *text, mica_status status, const char *words)
{
    char path[256];
    mica_writer *writer = NULL;
    mica_graph *g = NULL;
    snprintf(path, sizeof path, "%.200s/damaged.safetensors", folder);
    must(mica_writer_create(path, &(mica_writer_options){.format = MICA_FORMAT_SAFETENSORS, .overwrite = 1},
                            &writer));
    if (text != NULL)
        must(mica_writer_string(writer, "mica_graph", text));
    must(mica_writer_tensor(writer, "c0", MICA_DTYPE_F32, 1, (const uint64_t[]){100}));
    for (uint32_t i = 0; i < 100; i++)
        must(mica_writer_write(writer, &(const float){1}, 4));
    must(mica_writer_finish(writer));
    refused(mica_graph_load(path, &g), status, words);
    assert_null(g);
}

static void test_files(void **state)
{
    (void)state;
    damage(NULL, MICA_ERR_NOT_FOUND, "mica_graph");
    damage("{", MICA_ERR_MALFORMED_FILE, "");
    damage("[]", MICA_ERR_MALFORMED_FILE, "version");
    damage("{\"version\": 2, \"lines\": []}", MICA_ERR_UNSUPPORTED, "version 2");
    damage("{\"version\": 1}", MICA_ERR_MALFORMED_FILE, "lines");
    damage("{\"version\": 1, \"lines\": [1]}", MICA_ERR_MALFORMED_FILE, "line");
    damage("{\"version\": 1, \"lines\": [\"%1 = constant(c1) : f32 [100]\"]}", MICA_ERR_MALFORMED_FILE,
           "c0 should");
    damage("{\"version\": 1, \"lines\": [\"%1 = constant(c0) : f32 [101]\"]}", MICA_ERR_MALFORMED_FILE,
           "404");
    damage("{\"version\": 1, \"lines\": [\"%1 = constant(c0) : f32 [281474976710656]\"]}",
           MICA_ERR_MALFORMED_FILE, "over 2^40");
    damage("{\"version\": 1, \"lines\": [\"%1 = constant(c0) : i32 [100]\"]}", MICA_ERR_MALFORMED_FILE,
           "c0 is f32");
    damage(
        "{\"version\": 1, \"lines\": [\"%1 = constant(c0) : f32 [100]\", \"%2 = constant(c0) : f32 [100]\"]}",
        MICA_ERR_MALFORMED_FILE, "c1 should");
    refused(mica_graph_load("nowhere.safetensors", &(mica_graph *){NULL}), MICA_ERR_IO, "nowhere");
    refused(mica_graph_save(NULL, "x"), MICA_ERR_INVALID_ARGUMENT, "graph is NULL");
}

/* ---- verify ---- */

static void test_verify(void **state)
{
    (void)state;
    mica_graph *g = fresh();
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 2, (const uint64_t[]){2, 3});
    const mica_tensor y = mica_graph_neg(g, mica_graph_exp(g, x));
    (void)mica_graph_output(g, "y", y);
    must(mica_graph_verify(g));
    g->list[g->node[1].inputs] = y; /* a cycle */
    refused(mica_graph_verify(g), MICA_ERR_INVALID_ARGUMENT,
            "node 1, exp: it takes a tensor that comes later, 3");
    g->list[g->node[1].inputs] = 99;
    refused(mica_graph_verify(g), MICA_ERR_INVALID_ARGUMENT, "not there, 99");
    g->list[g->node[1].inputs] = x;
    g->tensor[2].type.shape[1] = 4;
    refused(mica_graph_verify(g), MICA_ERR_INVALID_ARGUMENT,
            "node 1, exp: tensor 2 is f32 [2, 4], but should be f32 [2, 3]");
    g->tensor[2].type.shape[1] = 3;
    g->node[2].kind = 77;
    refused(mica_graph_verify(g), MICA_ERR_INVALID_ARGUMENT, "node 2, none: it is of kind 77");
    g->node[2].kind = MICA_NODE_SCALAR;
    must(mica_graph_verify(g));
    mica_graph_release(g);
    refused(mica_graph_verify(NULL), MICA_ERR_INVALID_ARGUMENT, "NULL");
}

static int make_folder(void **state)
{
    (void)state;
    return test_folder_make(folder, sizeof folder, "graph_text");
}

static int remove_folder(void **state)
{
    (void)state;
    return test_folder_remove(folder) == 0 && mica_host_bytes() == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds), cmocka_unit_test(test_ops),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_dot),   cmocka_unit_test(test_refused), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_files), cmocka_unit_test(test_verify),  cmocka_unit_test(test_longest_names),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
