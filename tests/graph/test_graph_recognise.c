/*
 * test_graph_recognise.c - ops that are written out in small ones, by the text of a graph before and behind all passes; and that both run to the same numbers on the cpu.
 */
#include "support/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "graph/passes/passes.h"
#include "mica/host.h"
#include "mica/ops.h"
#include "support/random.h"

static mica_device *cpu;

static mica_graph *parsed(const char *text)
{
    mica_graph *graph = NULL;
    if (mica_graph_parse(text, strlen(text), &graph) != MICA_OK)
        fail_msg("%s\n%s", mica_status_message(), text);
    return graph;
}

static char *text_of(const mica_graph *graph)
{
    uint64_t length = 0;
    must(mica_graph_print(graph, NULL, 0, &length));
    char *text = malloc(length + 1);
    must(mica_graph_print(graph, text, length + 1, &length));
    return text;
}

/* Inputs and parameters of a graph, drawn; symbols are 3. */
typedef struct drawn {
    mica_array array[16];
    uint32_t count;
} drawn;

static void draw(const mica_graph *graph, drawn *out, test_random *random)
{
    for (uint32_t i = 0; i < graph->input_count + graph->parameter_count; i++) {
        const mica_tensor t =
            i < graph->input_count ? graph->inputs[i] : graph->parameters[i - graph->input_count];
        const mica__type *type = mica__type_of(graph, t);
        mica_array *a = &out->array[out->count++];
        uint64_t elements = 1;
        *a = (mica_array){.dtype = type->dtype, .ndim = type->ndim};
        for (uint32_t d = 0; d < type->ndim; d++) {
            a->shape[d] = mica__size_known(type->shape[d]) ? type->shape[d] : 3;
            elements *= a->shape[d];
        }
        if (i < graph->input_count)
            (void)mica_graph_get_input(graph, i, &a->name);
        else
            (void)mica_graph_get_parameter(graph, i - graph->input_count, &a->name);
        a->bytes = elements * mica_dtype_block_bytes(type->dtype);
        a->data = calloc(1, a->bytes + 8);
        for (uint64_t e = 0; e < elements; e++)
            if (type->dtype == MICA_DTYPE_F32)
                ((float *)a->data)[e] = (float)test_random_normal(random);
            else if (type->dtype == MICA_DTYPE_F16) /* 1 to 2 */
                ((uint16_t *)a->data)[e] = (uint16_t)(0x3c00 + test_random_below(random, 1024));
            else if (type->dtype == MICA_DTYPE_BOOL)
                ((uint8_t *)a->data)[e] = (uint8_t)(e % 4 == 0 || test_random_below(random, 2) != 0);
            else
                fail_msg("no numbers are drawn for %s", mica_dtype_name(type->dtype));
    }
}

static float *run(const mica_graph *graph, const drawn *values, const mica_compile_options *options,
                  uint64_t *out_count)
{
    mica_executable *executable = NULL;
    mica_array y = {.name = "y"};
    if (mica_graph_compile(graph, cpu, options, &executable) != MICA_OK)
        fail_msg("%s", mica_status_message());
    for (uint32_t i = graph->input_count; i < values->count; i++)
        must(mica_executable_set(executable, &values->array[i]));
    if (mica_executable_run(executable, values->array, graph->input_count, &y, 1) != MICA_OK)
        fail_msg("%s", mica_status_message());
    uint64_t count = 1;
    for (uint32_t d = 0; d < y.ndim; d++)
        count *= y.shape[d];
    assert_int_equal(y.dtype, MICA_DTYPE_F32);
    float *numbers = malloc(count * sizeof *numbers);
    must(mica_buffer_read(y.buffer, 0, numbers, count * sizeof *numbers));
    mica_buffer_release(y.buffer);
    mica_executable_release(executable);
    *out_count = count;
    return numbers;
}

/* As written and behind all passes: equal but for `tolerance` of the greatest. */
static void same_numbers(const mica_graph *graph, mica_graph_precision precision, double tolerance)
{
    test_random random = test_random_from(17);
    drawn values = {.count = 0};
    uint64_t count = 0, again = 0;
    draw(graph, &values, &random);
    float *a = run(graph, &values, &(mica_compile_options){.flags = MICA_COMPILE_AS_WRITTEN}, &count);
    float *b = run(graph, &values, &(mica_compile_options){.precision = precision}, &again);
    assert_int_equal(count, again);
    double most = 0;
    for (uint64_t i = 0; i < count; i++)
        most = fmax(most, fabs((double)a[i]));
    for (uint64_t i = 0; i < count; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance * most))
            fail_msg("element %llu is %g, as written %g", (unsigned long long)i, (double)b[i], (double)a[i]);
    for (uint32_t i = 0; i < values.count; i++)
        free(values.array[i].data);
    free(a);
    free(b);
}

/* `has`: a line of the result, without the numbers of tensors; NULL: the graph stays. */
static void becomes(const char *before, const char *after)
{
    mica_graph *graph = parsed(before), *out = NULL;
    must(mica__graph_optimise(graph, NULL, &out));
    must(mica_graph_verify(out));
    char *text = text_of(out);
    if (strcmp(text, after) != 0)
        fail_msg("\n%sbecame\n%sand should be\n%s", before, text, after);
    free(text);
    same_numbers(graph, MICA_GRAPH_PRECISION_AS_WRITTEN, 4e-6);
    mica_graph_release(graph);
    mica_graph_release(out);
}
static void stays(const char *text)
{
    becomes(text, text);
}

#define X "%1 = input(\"x\") : f32 [3, 5]\n"
#define SYMBOLIC "symbols rows\n%1 = input(\"x\") : f32 [rows, 5]\n"

static void test_softmax(void **state)
{
    (void)state;
    becomes(SYMBOLIC "%2 = reduce(%1) kind=2 axes=1 keep_dims=1\n"
                     "%3 = sub(%1, %2)\n%4 = exp(%3)\n"
                     "%5 = reduce(%4) axes=1 keep_dims=1\n%6 = div(%4, %5)\noutput \"y\" = %6\n",
            SYMBOLIC "%2 = softmax(%1, -) scale=1 as=(f32) : f32 [rows, 5]\noutput \"y\" = %2\n");
    becomes(X "%2 = exp(%1)\n%3 = reduce(%2) axes=1\n%4 = reshape(%3) shape=[3, 1]\n%5 = div(%2, %4)\noutput "
              "\"y\" = %5\n",
            X "%2 = softmax(%1, -) scale=1 as=(f32) : f32 [3, 5]\noutput \"y\" = %2\n");
    becomes(X "%2 = reduce(%1) kind=2 axes=1 keep_dims=1\n%3 = sub(%1, %2)\n%4 = exp(%3)\n"
              "%5 = reduce(%4) axes=1 keep_dims=1\n%6 = log(%5)\n%7 = sub(%3, %6)\noutput \"y\" = %7\n",
            X "%2 = softmax(%1, -) scale=1 log=1 as=(f32) : f32 [3, 5]\noutput \"y\" = %2\n");
    /* the exponentials are needed besides; the sum is along another axis */
    stays(X "%2 = exp(%1) : f32 [3, 5]\n%3 = reduce(%2) axes=1 keep_dims=1 : f32 [3, 1]\n%4 = div(%2, %3) : "
            "f32 [3, 5]\n"
            "output \"y\" = %4\noutput \"e\" = %2\n");
    stays(X "%2 = exp(%1) : f32 [3, 5]\n%3 = reduce(%2) axes=2 keep_dims=1 : f32 [1, 5]\n%4 = div(%2, %3) : "
            "f32 [3, 5]\n"
            "output \"y\" = %4\n");
}

static void test_norms(void **state)
{
    (void)state;
    becomes(X "%2 = parameter(\"w\") : f32 [5]\n%3 = constant(2) : f32 []\n%4 = pow(%1, %3)\n"
              "%5 = reduce(%4) kind=1 axes=1 keep_dims=1\n%6 = constant(1e-06) : f32 []\n%7 = add(%5, "
              "%6)\n%8 = rsqrt(%7)\n"
              "%9 = mul(%1, %8)\n%10 = mul(%2, %9)\noutput \"y\" = %10\n",
            X "%2 = parameter(\"w\") : f32 [5]\n%3 = rms_norm(%1, %2) eps=1e-06 as=(f32) : f32 [3, "
              "5]\noutput \"y\" = %3\n");
    becomes(X "%2 = parameter(\"w\") : f32 [5]\n%3 = parameter(\"b\") : f32 [5]\n%4 = reduce(%1) kind=1 "
              "axes=1 keep_dims=1\n"
              "%5 = sub(%1, %4)\n%6 = mul(%5, %5)\n%7 = reduce(%6) kind=1 axes=1 keep_dims=1\n%8 = "
              "constant(1e-05) : f32 []\n"
              "%9 = add(%7, %8)\n%10 = sqrt(%9)\n%11 = div(%5, %10)\n%12 = mul(%11, %2)\n%13 = add(%12, "
              "%3)\noutput \"y\" = %13\n",
            X "%2 = parameter(\"w\") : f32 [5]\n%3 = parameter(\"b\") : f32 [5]\n"
              "%4 = layer_norm(%1, %2, %3) eps=1e-05 as=(f32) : f32 [3, 5]\noutput \"y\" = %4\n");
    becomes(X "%2 = reduce(%1) kind=1 axes=1 keep_dims=1\n%3 = sub(%1, %2)\n%4 = reduce(%1) kind=7 axes=1 "
              "keep_dims=1\n"
              "%5 = constant(0.5) : f32 []\n%6 = add(%5, %4)\n%7 = sqrt(%6)\n%8 = reciprocal(%7)\n%9 = "
              "mul(%8, %3)\noutput \"y\" = %9\n",
            X "%2 = layer_norm(%1, -, -) eps=0.5 as=(f32) : f32 [3, 5]\noutput \"y\" = %2\n");
    /* f16 that goes through f32 and back */
    becomes(
        "%1 = input(\"x\") : f16 [3, 5]\n%2 = cast(%1) : f32 [3, 5]\n%3 = square(%2)\n%4 = reduce(%3) kind=1 "
        "axes=1 keep_dims=1\n"
        "%5 = constant(1) : f32 []\n%6 = add(%4, %5)\n%7 = rsqrt(%6)\n%8 = mul(%2, %7)\noutput \"y\" = %8\n",
        "%1 = input(\"x\") : f16 [3, 5]\n%2 = rms_norm(%1, -) eps=1 as=(f32) : f32 [3, 5]\noutput \"y\" = "
        "%2\n");
    /* the mean is of something else */
    stays(X "%2 = input(\"z\") : f32 [3, 5]\n%3 = square(%2) : f32 [3, 5]\n%4 = reduce(%3) kind=1 axes=1 "
            "keep_dims=1 : f32 [3, 1]\n"
            "%5 = constant(1) : f32 []\n%6 = add(%4, %5) : f32 [3, 1]\n%7 = rsqrt(%6) : f32 [3, 1]\n%8 = "
            "mul(%1, %7) : f32 [3, 5]\n"
            "output \"y\" = %8\n");
}

static void test_activations(void **state)
{
    (void)state;
    becomes(X "%2 = constant(0.70710678) : f32 []\n%3 = mul(%1, %2)\n%4 = erf(%3)\n%5 = constant(1) : f32 "
              "[]\n%6 = add(%4, %5)\n"
              "%7 = mul(%1, %6)\n%8 = constant(0.5) : f32 []\n%9 = mul(%7, %8)\noutput \"y\" = %9\n",
            X "%2 = gelu_erf(%1) : f32 [3, 5]\noutput \"y\" = %2\n");
    becomes(X "%2 = constant(1.4142135) : f32 []\n%3 = div(%1, %2)\n%4 = erf(%3)\n%5 = constant(1) : f32 "
              "[]\n%6 = add(%5, %4)\n"
              "%7 = constant(0.5) : f32 []\n%8 = mul(%7, %1)\n%9 = mul(%8, %6)\noutput \"y\" = %9\n",
            X "%2 = gelu_erf(%1) : f32 [3, 5]\noutput \"y\" = %2\n");
    becomes(X "%2 = constant(3) : f32 []\n%3 = pow(%1, %2)\n%4 = constant(0.044715) : f32 []\n%5 = mul(%4, "
              "%3)\n%6 = add(%1, %5)\n"
              "%7 = constant(0.7978846) : f32 []\n%8 = mul(%6, %7)\n%9 = tanh(%8)\n%10 = constant(1) : f32 "
              "[]\n%11 = add(%9, %10)\n"
              "%12 = constant(0.5) : f32 []\n%13 = mul(%1, %12)\n%14 = mul(%13, %11)\noutput \"y\" = %14\n",
            X "%2 = gelu(%1) : f32 [3, 5]\noutput \"y\" = %2\n");
    becomes(X "%2 = neg(%1)\n%3 = exp(%2)\n%4 = constant(1) : f32 []\n%5 = add(%4, %3)\n%6 = div(%1, "
              "%5)\noutput \"y\" = %6\n",
            X "%2 = silu(%1) : f32 [3, 5]\noutput \"y\" = %2\n");
    becomes(X "%2 = neg(%1)\n%3 = exp(%2)\n%4 = constant(1) : f32 []\n%5 = add(%4, %3)\n%6 = "
              "reciprocal(%5)\n%7 = mul(%6, %1)\noutput \"y\" = %7\n",
            X "%2 = silu(%1) : f32 [3, 5]\noutput \"y\" = %2\n");
    becomes(X "%2 = constant(1.702) : f32 []\n%3 = mul(%1, %2)\n%4 = sigmoid(%3)\n%5 = mul(%1, %4)\noutput "
              "\"y\" = %5\n",
            X "%2 = quick_gelu(%1) : f32 [3, 5]\noutput \"y\" = %2\n");
    /* another number than gelu has */
    stays(X "%2 = constant(0.75) : f32 []\n%3 = mul(%1, %2) : f32 [3, 5]\n%4 = erf(%3) : f32 [3, 5]\n%5 = "
            "constant(1) : f32 []\n"
            "%6 = add(%4, %5) : f32 [3, 5]\n%7 = mul(%1, %6) : f32 [3, 5]\n%8 = constant(0.5) : f32 []\n%9 = "
            "mul(%7, %8) : f32 [3, 5]\n"
            "output \"y\" = %9\n");
}

static void test_weights(void **state)
{
    (void)state;
    becomes(
        X "%2 = parameter(\"w\") : f32 [7, 5]\n%3 = permute(%2) order=(1, 0)\n%4 = product(%1, %3, -, -, "
          "-)\noutput \"y\" = %4\n",
        X
        "%2 = parameter(\"w\") : f32 [7, 5]\n%3 = matmul(%1, %2) as=(f32) : f32 [3, 7]\noutput \"y\" = %3\n");
    becomes(X "%2 = parameter(\"w\") : f32 [5, 7]\n%3 = parameter(\"b\") : f32 [7]\n%4 = product(%1, %2, %3, "
              "-, -)\noutput \"y\" = %4\n",
            X
            "%2 = parameter(\"w\") : f32 [5, 7]\n%3 = parameter(\"b\") : f32 [7]\n%4 = permute(%2) order=(1, "
            "0) : f32 [7, 5]\n"
            "%5 = matmul(%1, %4) as=(f32) : f32 [3, 7]\n%6 = add(%5, %3) : f32 [3, 7]\noutput \"y\" = %6\n");
    becomes(X "%2 = constant(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) : f32 [5, 2]\n%3 = product(%1, %2, -, -, "
              "-)\noutput \"y\" = %3\n",
            X "%2 = constant(1, 3, 5, 7, 9, 2, 4, 6, 8, 10) : f32 [2, 5]\n%3 = matmul(%1, %2) as=(f32) : f32 "
              "[3, 2]\noutput \"y\" = %3\n");
    stays(X
          "%2 = input(\"w\") : f32 [5, 7]\n%3 = product(%1, %2, -, -, -) : f32 [3, 7]\noutput \"y\" = %3\n");
}

static void test_folding(void **state)
{
    (void)state;
    becomes(X "%2 = constant(1, 2, 3, 4, 5) : f32 [5]\n%3 = exp2(%2)\n%4 = constant(4) : f32 []\n%5 = "
              "div(%3, %4)\n%6 = index() shape=[5] : i32 [5]\n"
              "%7 = cast(%6) : f32 [5]\n%8 = add(%5, %7)\n%9 = expand(%8) shape=[3, 5]\n%10 = mul(%1, "
              "%9)\noutput \"y\" = %10\n",
            X
            "%2 = constant(0.5, 2, 4, 7, 12) : f32 [5]\n%3 = mul(%1, %2) : f32 [3, 5]\noutput \"y\" = %3\n");
    /* an index outside stays, and fails where it runs */
    mica_graph *graph = parsed(X "%2 = constant(1, 2) : f32 [2]\n%3 = constant(9) : i32 [1]\n%4 = gather(%2, "
                                 "%3) : f32 [1]\n%5 = mul(%1, %4)\noutput \"y\" = %5\n"),
               *out = NULL;
    must(mica__graph_optimise(graph, NULL, &out));
    assert_int_equal(out->node_count, graph->node_count);
    mica_graph_release(graph);
    mica_graph_release(out);
}

/* Ids are compared as numbers, beside the weights. */
#define BOTH(ids, weights, a, b) \
    a " = cast(" ids ") : f32 [6, 2]\n" b " = add(" a ", " weights ")\noutput \"y\" = " b "\n"
#define ROUTED(params)                                                 \
    "%1 = input(\"x\") : f32 [6, 8]\n%2, %3 = route(%1, -, -) " params \
    " as=(u32 [6, 2], f32 [6, 2]) : u32 [6, 2], f32 [6, 2]\n"          \
    "%4 = cast(%2) : f32 [6, 2]\n%5 = add(%4, %3) : f32 [6, 2]\noutput \"y\" = %5\n"

static void test_routing(void **state)
{
    (void)state;
    becomes("%1 = input(\"x\") : f32 [6, 8]\n%2 = softmax(%1, -) scale=1\n"
            "%3, %4 = sort(%2) descending=1 as=(f32 [6, 2], u32 [6, 2])\n" BOTH("%4", "%3", "%5", "%6"),
            ROUTED("softmax_first=1"));
    becomes("%1 = input(\"x\") : f32 [6, 8]\n%2 = softmax(%1, -) scale=1\n"
            "%3, %4 = sort(%2) descending=1 as=(f32 [6, 2], u32 [6, 2])\n%5 = reduce(%3) axes=1 "
            "keep_dims=1\n%6 = div(%3, %5)\n" BOTH("%4", "%6", "%7", "%8"),
            ROUTED("softmax_first=1 normalise=1"));
    becomes(
        "%1 = input(\"x\") : f32 [6, 8]\n%2, %3 = sort(%1) descending=1 as=(f32 [6, 2], u32 [6, 2])\n%4 = "
        "softmax(%2, -) scale=1\n"
        "%5 = cast(%3) : f32 [6, 2]\n%6 = add(%5, %4)\noutput \"y\" = %6\n",
        "%1 = input(\"x\") : f32 [6, 8]\n%2, %3 = route(%1, -, -) as=(u32 [6, 2], f32 [6, 2]) : u32 [6, "
        "2], f32 [6, 2]\n"
        "%4 = cast(%2) : f32 [6, 2]\n%5 = add(%4, %3) : f32 [6, 2]\noutput \"y\" = %5\n");
    becomes("%1 = input(\"x\") : f32 [6, 8]\n%2 = sigmoid(%1)\n"
            "%3, %4 = sort(%2) descending=1 as=(f32 [6, 2], u32 [6, 2])\n" BOTH("%4", "%3", "%5", "%6"),
            ROUTED("scoring=1"));
}

/* Attention is found, and gives what the small ops gave. */
static void attends(const char *before, const char *has)
{
    mica_graph *graph = parsed(before), *out = NULL;
    must(mica__graph_optimise(graph, NULL, &out));
    must(mica_graph_verify(out));
    char *text = text_of(out);
    if (strstr(text, has) == NULL || strstr(text, "product(") != NULL || strstr(text, "softmax(") != NULL)
        fail_msg("\n%sbecame\n%swithout \"%s\"", before, text, has);
    free(text);
    same_numbers(graph, MICA_GRAPH_PRECISION_AS_WRITTEN, 4e-6);
    mica_graph_release(graph);
    mica_graph_release(out);
}

#define QKV                                                                                                 \
    "%1 = input(\"q\") : f32 [2, 4, 3, 8]\n%2 = input(\"k\") : f32 [2, 4, 5, 8]\n%3 = input(\"v\") : f32 "  \
    "[2, 4, 5, 6]\n"                                                                                        \
    "%4 = permute(%2) order=(0, 1, 3, 2)\n%5 = product(%1, %4, -, -, -)\n%6 = constant(0.25) : f32 []\n%7 " \
    "= mul(%5, %6)\n"
#define SOFTMAX(x, a, b, c, d, e, f)                                                                  \
    a " = reduce(" x ") kind=2 axes=1 keep_dims=1\n" b " = sub(" x ", " a ")\n" c " = exp(" b ")\n" d \
      " = reduce(" c ") axes=1 keep_dims=1\n" e " = div(" c ", " d ")\n" f " = product(" e            \
      ", %3, -, -, -)\noutput \"y\" = " f "\n"

static void test_attention(void **state)
{
    (void)state;
    attends(QKV SOFTMAX("%7", "%8", "%9", "%10", "%11", "%12", "%13"),
            ", -, -, -, -) scale=0.25 bidirectional=1");
    attends(
        "symbols b, t, s\n%1 = input(\"q\") : f32 [b, 4, t, 8]\n%2 = input(\"k\") : f32 [b, 4, s, 8]\n"
        "%3 = input(\"v\") : f32 [b, 4, s, 6]\n%4 = permute(%2) order=(0, 1, 3, 2)\n%5 = product(%1, %4, -, "
        "-, -)\n"
        "%6 = constant(2) : f32 []\n%7 = div(%5, %6)\n" SOFTMAX("%7", "%8", "%9", "%10", "%11", "%12", "%13"),
        "attention(");
    /* no batch; a batch of one */
    attends("%1 = input(\"q\") : f32 [4, 3, 8]\n%2 = input(\"k\") : f32 [4, 8, 5]\n%3 = input(\"v\") : f32 "
            "[4, 5, 8]\n"
            "%4 = product(%1, %2, -, -, -)\n" SOFTMAX("%4", "%5", "%6", "%7", "%8", "%9", "%10"),
            "attention(");
    attends("%1 = input(\"q\") : f32 [1, 4, 3, 8]\n%2 = input(\"k\") : f32 [1, 4, 8, 5]\n%3 = input(\"v\") : "
            "f32 [1, 4, 5, 8]\n"
            "%4 = product(%1, %2, -, -, -)\n" SOFTMAX("%4", "%5", "%6", "%7", "%8", "%9", "%10"),
            "attention(");
    /* masks: added, for each sequence; of each head; of bool, either way round */
    attends(QKV "%8 = input(\"m\") : f32 [2, 1, 1, 5]\n%9 = add(%7, %8)\n" SOFTMAX("%9", "%10", "%11", "%12",
                                                                                   "%13", "%14", "%15"),
            "attention(");
    attends(QKV "%8 = input(\"m\") : f32 [4, 3, 5]\n%9 = add(%8, %7)\n" SOFTMAX("%9", "%10", "%11", "%12",
                                                                                "%13", "%14", "%15"),
            "attention(");
    attends(
        QKV
        "%8 = input(\"m\") : bool [3, 5]\n%9 = constant(-inf) : f32 []\n%10 = select(%8, %7, %9)\n" SOFTMAX(
            "%10", "%11", "%12", "%13", "%14", "%15", "%16"),
        "attention(");
    attends(QKV "%8 = input(\"m\") : bool [2, 1, 3, 5]\n%9 = constant(-inf) : f32 []\n%10 = bit_not(%8)\n%11 "
                "= select(%10, %9, %7)\n" SOFTMAX("%11", "%12", "%13", "%14", "%15", "%16", "%17"),
            "attention(");
    /* a softcap */
    attends(QKV "%8 = constant(5) : f32 []\n%9 = div(%7, %8)\n%10 = tanh(%9)\n%11 = mul(%10, %8)\n" SOFTMAX(
                "%11", "%12", "%13", "%14", "%15", "%16", "%17"),
            "softcap=5");
    /* as PyTorch exports it: keys turned in three dimensions, both operands scaled, rows that see nothing guarded */
    attends(
        "%1 = input(\"q\") : f32 [2, 4, 3, 8]\n%2 = input(\"k\") : f32 [2, 4, 5, 8]\n%3 = input(\"v\") : f32 "
        "[2, 4, 5, 6]\n%4 = reshape(%2) shape=[8, 5, 8]\n%5 = permute(%4) order=(0, 2, 1)\n"
        "%6 = reshape(%5) shape=[2, 4, 8, 5]\n%7 = constant(0.5) : f32 []\n%8 = mul(%1, %7)\n"
        "%9 = mul(%6, %7)\n%10 = product(%8, %9, -, -, -)\n%11 = input(\"m\") : f32 [2, 1, 3, 5]\n"
        "%12 = add(%10, %11)\n%13 = softmax(%12, -) scale=1\n%14 = isnan(%13)\n%15 = constant(0) : f32 []\n"
        "%16 = select(%14, %15, %13)\n%17 = product(%16, %3, -, -, -)\noutput \"y\" = %17\n",
        "scale=0.25 bidirectional=1");
    /* two heads of keys for four of queries */
    attends("%1 = input(\"q\") : f32 [2, 4, 3, 8]\n%2 = input(\"k\") : f32 [2, 2, 5, 8]\n%3 = input(\"w\") : "
            "f32 [2, 2, 5, 6]\n"
            "%4 = reshape(%2) shape=[2, 2, 1, 5, 8]\n%5 = expand(%4) shape=[2, 2, 2, 5, 8]\n%6 = reshape(%5) "
            "shape=[2, 4, 5, 8]\n"
            "%7 = permute(%6) order=(0, 1, 3, 2)\n%8 = reshape(%3) shape=[2, 2, 1, 5, 6]\n%9 = expand(%8) "
            "shape=[2, 2, 2, 5, 6]\n"
            "%10 = reshape(%9) shape=[2, 4, 5, 6]\n%11 = product(%1, %7, -, -, -)\n%12 = exp(%11)\n%13 = "
            "reduce(%12) axes=1 keep_dims=1\n"
            "%14 = div(%12, %13)\n%15 = product(%14, %10, -, -, -)\noutput \"y\" = %15\n",
            "attention(");
}

/* What softmax gives is needed: no attention. */
static void test_attention_keeps(void **state)
{
    (void)state;
    mica_graph *graph =
                   parsed(QKV SOFTMAX("%7", "%8", "%9", "%10", "%11", "%12", "%13") "output \"p\" = %12\n"),
               *out = NULL;
    must(mica__graph_optimise(graph, NULL, &out));
    char *text = text_of(out);
    assert_null(strstr(text, "attention("));
    assert_non_null(strstr(text, "softmax("));
    free(text);
    mica_graph_release(graph);
    mica_graph_release(out);
}

static void test_precision(void **state)
{
    (void)state;
    mica_graph
        *graph = parsed(
            "%1 = input(\"x\") : f32 [3, 5]\n%2 = input(\"w\") : f32 [5, 4]\n%3 = input(\"u\") : f32 [4, 6]\n"
            "%4 = product(%1, %2, -, -, -)\n%5 = product(%4, %3, -, -, -)\n"
            "%6 = reduce(%5) kind=2 axes=1 keep_dims=1\n%7 = sub(%5, %6)\noutput \"y\" = %7\n"),
        *out = NULL;
    must(mica__graph_optimise(graph, &(mica__pass_options){.precision = MICA_GRAPH_PRECISION_F16}, &out));
    char *text = text_of(out);
    assert_string_equal(
        text,
        "%1 = input(\"x\") : f32 [3, 5]\n%2 = input(\"w\") : f32 [5, 4]\n%3 = input(\"u\") : f32 [4, 6]\n"
        "%4 = cast(%1) : f16 [3, 5]\n%5 = cast(%2) : f16 [5, 4]\n%6 = product(%4, %5, -, -, -) as=(f16) : "
        "f16 [3, 4]\n"
        "%7 = cast(%3) : f16 [4, 6]\n%8 = product(%6, %7, -, -, -) as=(f16) : f16 [3, 6]\n%9 = cast(%8) : "
        "f32 [3, 6]\n"
        "%10 = reduce(%9) kind=2 axes=1 keep_dims=1 : f32 [3, 1]\n%11 = sub(%9, %10) : f32 [3, 6]\noutput "
        "\"y\" = %11\n");
    free(text);
    same_numbers(graph, MICA_GRAPH_PRECISION_F16, 4e-3);
    same_numbers(graph, MICA_GRAPH_PRECISION_BF16, 4e-2);
    mica_graph_release(graph);
    mica_graph_release(out);
}

static int open_cpu(void **state)
{
    (void)state;
    return mica_device_open("cpu", &(mica_device_options){.threads = 2}, &cpu) == MICA_OK ? 0 : -1;
}
static int close_cpu(void **state)
{
    (void)state;
    mica_device_release(cpu);
    return mica_host_bytes() == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),     cmocka_unit_test(test_norms),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_folding),     cmocka_unit_test(test_routing),
        cmocka_unit_test(test_attention),   cmocka_unit_test(test_attention_keeps),
        cmocka_unit_test(test_precision),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
