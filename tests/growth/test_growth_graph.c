/*
 * test_growth_graph.c - reading graphs grows at most as n log n with each thing that a stranger may write many of; so do the passes behind it.
 */
#include <stdlib.h>

#include "graph/passes/passes.h"
#include "growth_text.h"

#define X "%%1 = input(\"x\") : f32 [3]\n"

/* Reads the text, and lets it go through all passes. */
static mica_status read_text(growth_text *text)
{
    mica_graph *graph = NULL, *out = NULL;
    mica_status status = mica_graph_parse(text->data, text->length, &graph);
    if (status == MICA_OK)
        status = mica__graph_optimise(graph, NULL, &out);
    mica_graph_release(graph);
    mica_graph_release(out);
    free(text->data);
    return status;
}

static mica_status chain(uint64_t size)
{
    growth_text text = {0};
    growth_put(&text, X);
    for (uint64_t i = 0; i < size; i++)
        growth_put(&text, "%%%llu = neg(%%%llu) : f32 [3]  # node %llu\n", (unsigned long long)i + 2,
                   (unsigned long long)i + 1, (unsigned long long)i);
    growth_put(&text, "output \"y\" = %%%llu\n", (unsigned long long)size + 1);
    return read_text(&text);
}

/* All of them equal. */
static mica_status copies(uint64_t size)
{
    growth_text text = {0};
    growth_put(&text, X);
    for (uint64_t i = 0; i < size; i++)
        growth_put(&text, "%%%llu = exp(%%1)\noutput \"y%llu\" = %%%llu\n", (unsigned long long)i + 2,
                   (unsigned long long)i, (unsigned long long)i + 2);
    return read_text(&text);
}

static mica_status leaves(uint64_t size)
{
    growth_text text = {0};
    for (uint64_t i = 0; i < size; i++)
        growth_put(&text, "%%%llu = input(\"x %llu\") : f32 [3]\n", (unsigned long long)i + 1,
                   (unsigned long long)i);
    return read_text(&text);
}

static mica_status symbols(uint64_t size)
{
    growth_text text = {0};
    growth_put(&text, "symbols s");
    for (uint64_t i = 0; i < size; i++)
        growth_put(&text, ", s%llu", (unsigned long long)i);
    growth_put(&text, "\n");
    for (uint64_t i = 0; i < size; i++)
        growth_put(&text, "%%%llu = input(\"%llu\") : f32 [s%llu]\n", (unsigned long long)i + 1,
                   (unsigned long long)i, (unsigned long long)i);
    return read_text(&text);
}

/* One node of many: joined as often as it may be, again and again. */
static mica_status operands(uint64_t size)
{
    growth_text text = {0};
    growth_put(&text, X);
    for (uint64_t i = 0; i * 1024 < size; i++) {
        growth_put(&text, "%%%llu = concat(", (unsigned long long)i + 2);
        growth_repeat(&text, 1023, "%1, ");
        growth_put(&text, "%%1)\n");
    }
    return read_text(&text);
}

static mica_status bodies(uint64_t size)
{
    growth_text text = {0};
    growth_put(&text, X);
    for (uint64_t i = 0; i < size; i++)
        growth_put(&text, "%%%llu = call(%%%llu) {\n" X "%%2 = neg(%%1)\noutput \"y\" = %%2\n}\n",
                   (unsigned long long)i + 2, (unsigned long long)i + 1);
    growth_put(&text, "output \"y\" = %%%llu\n", (unsigned long long)size + 1);
    return read_text(&text);
}

static mica_status label(uint64_t size)
{
    growth_text text = {0};
    growth_repeat(&text, size, "# nothing\n");
    return read_text(&text);
}

static const growth_row rows[] = {
    {"graph: nodes", chain, 512, 3},        {"graph: equal nodes", copies, 512, 3},
    {"graph: inputs", leaves, 512, 3},      {"graph: symbols", symbols, 512, 3},
    {"graph: operands", operands, 8192, 3}, {"graph: sub-graphs", bodies, 256, 3},
    {"graph: comments", label, 2048, 3},
};

static void test_reading(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        growth_check(&rows[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reading)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
