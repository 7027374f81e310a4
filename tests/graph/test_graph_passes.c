/* test_graph_passes.c - each pass by the text of a graph before and behind it, and what a pass must leave as it is. */
#include "support/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "graph/passes/passes.h"
#include "mica/ops.h"

/* The pass of that name. */
static const mica__graph_pass *pass_of(const char *name)
{
    uint32_t count = 0;
    const mica__graph_pass *const *passes = mica__graph_passes(&count);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(passes[i]->name, name) == 0)
            return passes[i];
    fail_msg("no pass is called %s", name);
    return NULL;
}

static void has_text(const mica_graph *graph, const char *expected)
{
    static char text[1u << 16];
    uint64_t length = 0;
    must(mica_graph_print(graph, text, sizeof text, &length));
    assert_true(length < sizeof text);
    if (strcmp(text, expected) != 0)
        print_error("is:\n%s\nshould be:\n%s\n", text, expected);
    assert_string_equal(text, expected);
}

/* Runs passes ("algebra", then "dead nodes" behind each, so that the text is short) and takes the graph. */
static void becomes(mica_graph *graph, const char *pass, const char *before, const char *after)
{
    mica_graph *between = NULL, *out = NULL;
    uint64_t changes = 0;
    must(mica_graph_status(graph));
    has_text(graph, before);
    must(mica__graph_pass_run(pass_of(pass), graph, NULL, &between, &changes));
    must(mica__graph_pass_run(pass_of("dead nodes"), between, NULL, &out, NULL));
    has_text(out, after);
    mica_graph_release(graph);
    mica_graph_release(between);
    mica_graph_release(out);
}

static mica_graph *fresh(void)
{
    mica_graph *graph = NULL;
    must(mica_graph_create(&graph));
    return graph;
}

static mica_tensor number(mica_graph *g, mica_dtype dtype, double value)
{
    const float f32 = (float)value;
    const int32_t i32 = (int32_t)value;
    const uint8_t truth = value != 0;
    return dtype == MICA_DTYPE_F32   ? mica_graph_constant(g, dtype, 0, NULL, &f32, 4)
           : dtype == MICA_DTYPE_I32 ? mica_graph_constant(g, dtype, 0, NULL, &i32, 4)
                                     : mica_graph_constant(g, MICA_DTYPE_BOOL, 0, NULL, &truth, 1);
}

static mica_tensor input(mica_graph *g, const char *name, uint64_t rows, uint64_t columns)
{
    return mica_graph_input(g, name, MICA_DTYPE_F32, 2, (const uint64_t[]){rows, columns});
}

/* ---- calls ---- */

static mica_graph *doubled(void)
{
    mica_graph *body = fresh();
    const uint64_t n = mica_graph_symbol(body, "n");
    const mica_tensor x = mica_graph_input(body, "x", MICA_DTYPE_F32, 1, &n);
    (void)mica_graph_label(body, "twice");
    (void)mica_graph_output(body, "y", mica_graph_add(body, x, x));
    return body;
}

static void test_inlining(void **state)
{
    (void)state;
    mica_graph *g = fresh(), *body = doubled();
    const uint64_t rows = mica_graph_symbol(g, "rows");
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, &rows);
    (void)mica_graph_label(g, "layer 1");
    const mica_tensor y = mica_graph_call(g, body, NULL, MICA_CALL_CHECKPOINT, &x, 1, NULL, 0);
    (void)mica_graph_label(g, NULL);
    (void)mica_graph_output(g, "y", mica_graph_neg(g, y));
    mica_graph_release(body);
    becomes(g, "inlining",
            "symbols rows\n"
            "%1 = input(\"x\") : f32 [rows]\n"
            "%2 = call(%1) flags=1 : f32 [rows] {  # layer 1\n"
            "  symbols n\n"
            "  %1 = input(\"x\") : f32 [n]\n"
            "  %2 = add(%1, %1) : f32 [n]  # twice\n"
            "  output \"y\" = %2\n"
            "}\n"
            "%3 = neg(%2) : f32 [rows]\n"
            "output \"y\" = %3\n",
            "symbols rows\n"
            "%1 = input(\"x\") : f32 [rows]\n"
            "%2 = add(%1, %1) : f32 [rows]  # twice\n"
            "%3 = neg(%2) : f32 [rows]\n"
            "output \"y\" = %3\n");
}

static void test_sub_graphs(void **state)
{
    (void)state;
    mica_graph *g = fresh(), *yes = fresh(), *no = fresh();
    const mica_tensor p = mica_graph_input(g, "p", MICA_DTYPE_BOOL, 0, NULL), x = input(g, "x", 2, 3);
    const mica_tensor a = input(yes, "a", 2, 3), b = input(no, "b", 2, 3);
    (void)mica_graph_output(yes, "y", mica_graph_neg(yes, mica_graph_neg(yes, a)));
    (void)mica_graph_output(no, "y", mica_graph_neg(no, b));
    (void)mica_graph_output(g, "y", mica_graph_if(g, p, yes, no, &x, 1, NULL, 0));
    mica_graph_release(yes);
    mica_graph_release(no);
    becomes(g, "sub-graphs",
            "%1 = input(\"p\") : bool []\n"
            "%2 = input(\"x\") : f32 [2, 3]\n"
            "%3 = if(%1, %2) : f32 [2, 3] {\n"
            "  %1 = input(\"a\") : f32 [2, 3]\n"
            "  %2 = neg(%1) : f32 [2, 3]\n"
            "  %3 = neg(%2) : f32 [2, 3]\n"
            "  output \"y\" = %3\n"
            "} {\n"
            "  %1 = input(\"b\") : f32 [2, 3]\n"
            "  %2 = neg(%1) : f32 [2, 3]\n"
            "  output \"y\" = %2\n"
            "}\n"
            "output \"y\" = %3\n",
            "%1 = input(\"p\") : bool []\n"
            "%2 = input(\"x\") : f32 [2, 3]\n"
            "%3 = if(%1, %2) : f32 [2, 3] {\n"
            "  %1 = input(\"a\") : f32 [2, 3]\n"
            "  output \"y\" = %1\n"
            "} {\n"
            "  %1 = input(\"b\") : f32 [2, 3]\n"
            "  %2 = neg(%1) : f32 [2, 3]\n"
            "  output \"y\" = %2\n"
            "}\n"
            "output \"y\" = %3\n");
}

/* ---- merging, dead nodes ---- */

static void test_merging(void **state)
{
    (void)state;
    mica_graph *g = fresh();
    const mica_tensor x = input(g, "x", 2, 3), two = number(g, MICA_DTYPE_F32, 2);
    const mica_tensor a = mica_graph_mul(g, x, two), b = mica_graph_mul(g, x, number(g, MICA_DTYPE_F32, 2));
    const mica_reduce_params params = {.kind = MICA_REDUCE_SUM, .axes = 1};
    const mica_tensor s = mica_graph_op(g, MICA_OP_REDUCE, &params, &a, 1, 1, NULL, NULL, 0);
    const mica_tensor t = mica_graph_op(g, MICA_OP_REDUCE, &params, &b, 1, 1, NULL, NULL, 0);
    (void)mica_graph_output(g, "y", mica_graph_add(g, s, t));
    becomes(g, "merging",
            "%1 = input(\"x\") : f32 [2, 3]\n"
            "%2 = constant(2) : f32 []\n"
            "%3 = mul(%1, %2) : f32 [2, 3]\n"
            "%4 = constant(2) : f32 []\n"
            "%5 = mul(%1, %4) : f32 [2, 3]\n"
            "%6 = reduce(%3) axes=1 : f32 [2]\n"
            "%7 = reduce(%5) axes=1 : f32 [2]\n"
            "%8 = add(%6, %7) : f32 [2]\n"
            "output \"y\" = %8\n",
            "%1 = input(\"x\") : f32 [2, 3]\n"
            "%2 = constant(2) : f32 []\n"
            "%3 = mul(%1, %2) : f32 [2, 3]\n"
            "%4 = reduce(%3) axes=1 : f32 [2]\n"
            "%5 = add(%4, %4) : f32 [2]\n"
            "output \"y\" = %5\n");
}

/* What is computed again stays apart from what was computed first, and is one with itself. */
static void test_rounds(void **state)
{
    (void)state;
    mica_graph *g = fresh();
    const mica_tensor x = input(g, "x", 2, 3), first = mica_graph_exp(g, x);
    g->round = 1;
    const mica_tensor again = mica_graph_exp(g, x), more = mica_graph_exp(g, x);
    g->round = 0;
    (void)mica_graph_output(g, "a", first);
    (void)mica_graph_output(g, "b", mica_graph_mul(g, again, more));
    becomes(g, "merging",
            "%1 = input(\"x\") : f32 [2, 3]\n"
            "%2 = exp(%1) : f32 [2, 3]\n"
            "%3 = exp(%1) round=1 : f32 [2, 3]\n"
            "%4 = exp(%1) round=1 : f32 [2, 3]\n"
            "%5 = mul(%3, %4) : f32 [2, 3]\n"
            "output \"a\" = %2\n"
            "output \"b\" = %5\n",
            "%1 = input(\"x\") : f32 [2, 3]\n"
            "%2 = exp(%1) : f32 [2, 3]\n"
            "%3 = exp(%1) round=1 : f32 [2, 3]\n"
            "%4 = mul(%3, %3) : f32 [2, 3]\n"
            "output \"a\" = %2\n"
            "output \"b\" = %4\n");
}

/* Inputs stay, parameters go; outputs of an op that nobody reads are no longer asked for. */
static void test_dead_nodes(void **state)
{
    (void)state;
    mica_graph *g = fresh();
    const mica_tensor x = input(g, "x", 2, 3);
    (void)input(g, "unused", 2, 3);
    const mica_tensor w = mica_graph_parameter(g, "w", MICA_DTYPE_F32, 1, (const uint64_t[]){3});
    (void)mica_graph_exp(g, w);
    mica_tensor norm[3];
    const mica_normalize_params params = {.kind = MICA_NORMALIZE_LAYER, .eps = 1e-5f};
    (void)mica_graph_op(g, MICA_OP_NORMALIZE, &params, (const mica_tensor[]){x, 0, 0}, 3, 7, NULL, norm, 3);
    (void)mica_graph_output(g, "y", norm[0]);
    (void)mica_graph_output(g, "same", norm[0]);
    (void)mica_graph_neg(g, norm[1]);
    becomes(g, "dead nodes",
            "%1 = input(\"x\") : f32 [2, 3]\n"
            "%2 = input(\"unused\") : f32 [2, 3]\n"
            "%3 = parameter(\"w\") : f32 [3]\n"
            "%4 = exp(%3) : f32 [3]\n"
            "%5, %6, %7 = normalize(%1, -, -) eps=1e-05 : f32 [2, 3], f32 [2], f32 [2]\n"
            "%8 = neg(%6) : f32 [2]\n"
            "output \"y\" = %5\n"
            "output \"same\" = %5\n",
            "%1 = input(\"x\") : f32 [2, 3]\n"
            "%2 = input(\"unused\") : f32 [2, 3]\n"
            "%3, _, _ = normalize(%1, -, -) eps=1e-05 : f32 [2, 3]\n"
            "output \"y\" = %3\n"
            "output \"same\" = %3\n");
}

/* ---- algebra ---- */

/* The one node behind inputs a [2, 3] f32, i [2, 3] i32 and h [2, 3] f16 becomes `after`, given as the rest of the text. */
typedef mica_tensor expression(mica_graph *g, mica_tensor a, mica_tensor i, mica_tensor h);

static void simplifies(expression *make, const char *after)
{
    char text[2048];
    mica_graph *g = fresh(), *one = NULL, *two = NULL;
    const mica_tensor a = input(g, "a", 2, 3);
    const mica_tensor i = mica_graph_input(g, "i", MICA_DTYPE_I32, 2, (const uint64_t[]){2, 3});
    const mica_tensor h = mica_graph_input(g, "h", MICA_DTYPE_F16, 2, (const uint64_t[]){2, 3});
    (void)mica_graph_output(g, "y", make(g, a, i, h));
    must(mica_graph_status(g));
    must(mica__graph_pass_run(pass_of("algebra"), g, NULL, &one, NULL));
    must(mica__graph_pass_run(pass_of("dead nodes"), one, NULL, &two, NULL));
    snprintf(text, sizeof text,
             "%%1 = input(\"a\") : f32 [2, 3]\n%%2 = input(\"i\") : i32 [2, 3]\n%%3 = input(\"h\") : f16 [2, "
             "3]\n%s\n",
             after);
    has_text(two, text);
    mica_graph_release(g);
    mica_graph_release(one);
    mica_graph_release(two);
}

#define NUMBER(value) number(g, MICA_DTYPE_F32, value)
#define WHOLE(value) number(g, MICA_DTYPE_I32, value)
#define RULE(name, expression)                                                          \
    static mica_tensor name(mica_graph *g, mica_tensor a, mica_tensor i, mica_tensor h) \
    {                                                                                   \
        (void)a, (void)i, (void)h;                                                      \
        return expression;                                                              \
    }
#define SHAPE(...)     \
    (const uint64_t[]) \
    {                  \
        __VA_ARGS__    \
    }
#define ORDER(...)     \
    (const uint32_t[]) \
    {                  \
        __VA_ARGS__    \
    }

RULE(add_minus_zero, mica_graph_add(g, a, NUMBER(-0.0)))
RULE(add_zero, mica_graph_add(g, a, NUMBER(0)))
RULE(add_zero_whole, mica_graph_add(g, WHOLE(0), i))
RULE(sub_zero, mica_graph_sub(g, a, NUMBER(0)))
RULE(sub_minus_zero, mica_graph_sub(g, a, NUMBER(-0.0)))
RULE(mul_one, mica_graph_mul(g, NUMBER(1), a))
RULE(mul_one_wider, mica_graph_mul(g, h, NUMBER(1)))
RULE(mul_zero, mica_graph_mul(g, a, NUMBER(0)))
RULE(div_one, mica_graph_div(g, a, NUMBER(1)))
RULE(one_div, mica_graph_div(g, NUMBER(1), a))
RULE(sub_itself, mica_graph_sub(g, a, a))
RULE(neg_neg, mica_graph_neg(g, mica_graph_neg(g, a)))
RULE(abs_neg, mica_graph_abs(g, mica_graph_neg(g, a)))
RULE(relu_relu, mica_graph_relu(g, mica_graph_relu(g, a)))
RULE(pow_one, mica_graph_pow(g, a, NUMBER(1)))
RULE(pow_two, mica_graph_pow(g, a, NUMBER(2)))
RULE(pow_half, mica_graph_pow(g, a, NUMBER(0.5)))
RULE(max_same, mica_graph_max(g, a, a))
RULE(select_same, mica_graph_select(g, mica_graph_less(g, a, h), a, a))
RULE(select_known, mica_graph_select(g, number(g, MICA_DTYPE_BOOL, 0), a, NUMBER(3)))
RULE(cast_back, mica_graph_cast(g, mica_graph_cast(g, h, MICA_DTYPE_F32), MICA_DTYPE_F16))
RULE(cast_there, mica_graph_cast(g, mica_graph_cast(g, a, MICA_DTYPE_F16), MICA_DTYPE_F32))
RULE(cast_through, mica_graph_cast(g, mica_graph_cast(g, h, MICA_DTYPE_F64), MICA_DTYPE_BF16))
RULE(cast_end, mica_graph_cast(g, mica_graph_cast(g, i, MICA_DTYPE_F64), MICA_DTYPE_U32))
RULE(cast_wrap, mica_graph_cast(g, mica_graph_cast(g, i, MICA_DTYPE_I64), MICA_DTYPE_U8))
RULE(reshape_twice, mica_graph_reshape(g, mica_graph_reshape(g, a, 1, SHAPE(6)), 2, SHAPE(3, 2)))
RULE(reshape_back, mica_graph_reshape(g, mica_graph_reshape(g, a, 1, SHAPE(6)), 2, SHAPE(2, MICA_SIZE_REST)))
RULE(permute_back, mica_graph_permute(g, mica_graph_permute(g, a, ORDER(1, 0)), ORDER(1, 0)))
RULE(permute_none, mica_graph_permute(g, a, ORDER(0, 1)))
RULE(slice_all, mica_graph_slice(g, a, 1, 0, 3, 1))
RULE(slice_twice, mica_graph_slice(g, mica_graph_slice(g, a, 1, 1, 2, 1), 1, 1, 1, 1))
RULE(slice_part, mica_graph_slice(g, mica_graph_concat(g, (const mica_tensor[]){a, a}, 2, 1), 1, 4, 2, 1))
RULE(slice_both, mica_graph_slice(g, mica_graph_concat(g, (const mica_tensor[]){a, a}, 2, 1), 1, 2, 2, 1))
RULE(expand_none, mica_graph_expand(g, a, 2, SHAPE(2, 3)))
RULE(expand_twice, mica_graph_expand(g, mica_graph_expand(g, a, 3, SHAPE(1, 2, 3)), 3, SHAPE(5, 2, 3)))
RULE(expand_operand, mica_graph_mul(g, a, mica_graph_expand(g, NUMBER(3), 2, SHAPE(2, 3))))
RULE(expand_later, mica_graph_exp(g, mica_graph_expand(g, a, 3, SHAPE(5, 2, 3))))
RULE(max_repeats, mica_graph_reduce(g, MICA_REDUCE_MAX, mica_graph_expand(g, a, 3, SHAPE(5, 2, 3)),
                                    (const int32_t[]){0}, 1, 0))
RULE(sum_repeats, mica_graph_reduce(g, MICA_REDUCE_SUM, mica_graph_expand(g, a, 3, SHAPE(5, 2, 3)),
                                    (const int32_t[]){0}, 1, 0))
RULE(stop, mica_graph_stop_gradient(g, a))

static void test_algebra(void **state)
{
    (void)state;
    static const char *const is_a = "output \"y\" = %1", *const is_i = "output \"y\" = %2",
                             *const is_h = "output \"y\" = %3";
    expression *const gives_a[] = {add_minus_zero, sub_zero,    mul_one,     div_one,      neg_neg,
                                   pow_one,        max_same,    select_same, permute_back, permute_none,
                                   slice_all,      expand_none, max_repeats, stop,         reshape_back};
    for (size_t k = 0; k < sizeof gives_a / sizeof gives_a[0]; k++)
        simplifies(gives_a[k], is_a);
    simplifies(add_zero_whole, is_i);
    simplifies(cast_back, is_h);
    simplifies(mul_one_wider, "%4 = cast(%3) : f32 [2, 3]\noutput \"y\" = %4");
    simplifies(abs_neg, "%4 = abs(%1) : f32 [2, 3]\noutput \"y\" = %4");
    simplifies(relu_relu, "%4 = relu(%1) : f32 [2, 3]\noutput \"y\" = %4");
    simplifies(pow_two, "%4 = square(%1) : f32 [2, 3]\noutput \"y\" = %4");
    simplifies(select_known,
               "%4 = constant(3) : f32 []\n%5 = expand(%4) shape=[2, 3] : f32 [2, 3]\noutput \"y\" = %5");
    simplifies(cast_through, "%4 = cast(%3) : bf16 [2, 3]\noutput \"y\" = %4");
    simplifies(cast_wrap, "%4 = cast(%2) : u8 [2, 3]\noutput \"y\" = %4");
    simplifies(reshape_twice, "%4 = reshape(%1) shape=[3, 2] : f32 [3, 2]\noutput \"y\" = %4");
    simplifies(slice_twice, "%4 = slice(%1) axis=1 start=2 count=1 step=1 : f32 [2, 1]\noutput \"y\" = %4");
    simplifies(slice_part, "%4 = slice(%1) axis=1 start=1 count=2 step=1 : f32 [2, 2]\noutput \"y\" = %4");
    simplifies(expand_twice, "%4 = expand(%1) shape=[5, 2, 3] : f32 [5, 2, 3]\noutput \"y\" = %4");
    simplifies(expand_operand, "%4 = constant(3) : f32 []\n%5 = mul(%1, %4) : f32 [2, 3]\noutput \"y\" = %5");
    simplifies(
        expand_later,
        "%4 = exp(%1) : f32 [2, 3]\n%5 = expand(%4) shape=[5, 2, 3] : f32 [5, 2, 3]\noutput \"y\" = %5");
}

/* x [1, 4, 5, 6] put together, permuted, and taken apart again: a permutation where each part comes back whole. */
static void parts(const uint64_t apart[4], const char *after)
{
    mica_graph *g = fresh();
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 4, (uint64_t[]){1, 4, 5, 6});
    const mica_tensor few = mica_graph_reshape(g, x, 3, (uint64_t[]){4, 5, 6});
    const mica_tensor turned = mica_graph_permute(g, few, (uint32_t[]){1, 0, 2});
    (void)mica_graph_output(g, "y", mica_graph_reshape(g, turned, 4, apart));
    char before[512];
    snprintf(before, sizeof before,
             "%%1 = input(\"x\") : f32 [1, 4, 5, 6]\n"
             "%%2 = reshape(%%1) shape=[4, 5, 6] : f32 [4, 5, 6]\n"
             "%%3 = permute(%%2) order=(1, 0, 2) : f32 [5, 4, 6]\n"
             "%%4 = reshape(%%3) shape=[%llu, %llu, %llu, %llu] : f32 [%llu, %llu, %llu, %llu]\n"
             "output \"y\" = %%4\n",
             (unsigned long long)apart[0], (unsigned long long)apart[1], (unsigned long long)apart[2],
             (unsigned long long)apart[3], (unsigned long long)apart[0], (unsigned long long)apart[1],
             (unsigned long long)apart[2], (unsigned long long)apart[3]);
    becomes(g, "algebra", before, after == NULL ? before : after);
}

static void test_algebra_parts(void **state)
{
    (void)state;
    parts((uint64_t[]){5, 1, 4, 6}, "%1 = input(\"x\") : f32 [1, 4, 5, 6]\n"
                                    "%2 = permute(%1) order=(2, 0, 1, 3) : f32 [5, 1, 4, 6]\n"
                                    "output \"y\" = %2\n");
    parts((uint64_t[]){5, 2, 2, 6}, NULL);
    parts((uint64_t[]){5, 4, 1, 6}, NULL);
}

/* What would change a bit of some number: -0, infinities, NaN, what is rounded, what ends at the nearest integer. */
static void test_algebra_keeps(void **state)
{
    (void)state;
    simplifies(add_zero, "%4 = constant(0) : f32 []\n%5 = add(%1, %4) : f32 [2, 3]\noutput \"y\" = %5");
    simplifies(sub_minus_zero,
               "%4 = constant(-0) : f32 []\n%5 = sub(%1, %4) : f32 [2, 3]\noutput \"y\" = %5");
    simplifies(mul_zero, "%4 = constant(0) : f32 []\n%5 = mul(%1, %4) : f32 [2, 3]\noutput \"y\" = %5");
    simplifies(sub_itself, "%4 = sub(%1, %1) : f32 [2, 3]\noutput \"y\" = %4");
    simplifies(one_div, "%4 = constant(1) : f32 []\n%5 = div(%4, %1) : f32 [2, 3]\noutput \"y\" = %5");
    simplifies(pow_half, "%4 = constant(0.5) : f32 []\n%5 = pow(%1, %4) : f32 [2, 3]\noutput \"y\" = %5");
    simplifies(cast_there, "%4 = cast(%1) : f16 [2, 3]\n%5 = cast(%4) : f32 [2, 3]\noutput \"y\" = %5");
    simplifies(cast_end, "%4 = cast(%2) : f64 [2, 3]\n%5 = cast(%4) : u32 [2, 3]\noutput \"y\" = %5");
    simplifies(slice_both, "%4 = concat(%1, %1) axis=1 : f32 [2, 6]\n"
                           "%5 = slice(%4) axis=1 start=2 count=2 step=1 : f32 [2, 2]\noutput \"y\" = %5");
    simplifies(sum_repeats, "%4 = expand(%1) shape=[5, 2, 3] : f32 [5, 2, 3]\n"
                            "%5 = reduce(%4) axes=4 : f32 [2, 3]\noutput \"y\" = %5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inlining),      cmocka_unit_test(test_sub_graphs),
        cmocka_unit_test(test_merging),       cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_dead_nodes),    cmocka_unit_test(test_algebra),
        cmocka_unit_test(test_algebra_keeps), cmocka_unit_test(test_algebra_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
