/* bench.c - `mica bench`: what is to be measured. */
#include "bench/bench.h"

#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "terminal/output.h"

static int read_list(const tool_call *call, const char *option, uint32_t most, bench_list *out)
{
    const char *text = tool_word(call, option), *at = text;
    out->count = 0;
    for (;;) {
        char *end = NULL;
        unsigned long number = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
        if (end == NULL || (*end != ',' && *end != '\0') || number > most || out->count == BENCH_MAX_LIST)
            return tool_misuse(
                "bench: --%s is \"%.40s\", not up to %d numbers from 0 to %u with commas between", option,
                text, BENCH_MAX_LIST, most);
        out->number[out->count++] = (uint32_t)number;
        if (*end == '\0')
            return 0;
        at = end + 1;
    }
}

static int is_nothing(const bench_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->number[i] != 0)
            return 0;
    return 1;
}

static int measure_models(const tool_call *call, const bench_plan *plan)
{
    if (tool_word(call, "model") == NULL)
        return tool_misuse(
            "bench: WHAT is missing: ops, launch, overhead, graph, fusion, region, load, or a model with "
            "--model; 'mica help "
            "bench' says more");
    if (is_nothing(&plan->prompts) && is_nothing(&plan->texts))
        return tool_misuse("bench: --n-prompt and --n-gen are both 0, there is nothing to measure");
    return bench_models(call, plan);
}

/* What is measured besides models, by its word on the command line. */
static const struct {
    const char *name;
    int (*run)(const tool_call *call, uint32_t threads);
} whats[] = {
    {"ops", bench_ops},       {"launch", bench_launch}, {"overhead", bench_overhead}, {"graph", bench_graph},
    {"fusion", bench_fusion}, {"region", bench_region}, {"load", bench_load},
};

static int measure_what(const tool_call *call, const bench_plan *plan)
{
    size_t i = 0;
    while (strcmp(call->argument[0], whats[i].name) != 0) /* the table of options has let no other through */
        i++;
    const int of_model = whats[i].run == bench_load;
    if (of_model && tool_word(call, "model") == NULL)
        return tool_misuse("bench: --model is missing: the file that 'bench load' opens and loads");
    if (!of_model && tool_word(call, "model") != NULL)
        return tool_misuse("bench: WHAT and --model are both given; one is enough");
    if (tool_flag(call, "profile"))
        return tool_misuse("bench: --profile is for models; ops and launches name their kernels always");
    if (plan->threads.count > 1)
        return tool_misuse("bench: --threads is a list; of '%s' one number is measured", whats[i].name);
    if (whats[i].run != bench_ops && (tool_word(call, "op") != NULL || tool_word(call, "type") != NULL))
        return tool_misuse("bench: --op and --type choose rows of 'bench ops' alone");
    if (whats[i].run != bench_ops && whats[i].run != bench_fusion && whats[i].run != bench_region &&
        tool_flag(call, "quick"))
        return tool_misuse("bench: --quick is for 'bench ops', 'bench fusion' and 'bench region' alone");
    return whats[i].run(call, plan->threads.number[0]);
}

int tool_bench(const tool_call *call)
{
    bench_plan plan = {0};
    int result = read_list(call, "n-prompt", 1u << 20, &plan.prompts);
    if (result == 0)
        result = read_list(call, "n-gen", 1u << 20, &plan.texts);
    if (result == 0)
        result = read_list(call, "n-depth", 1u << 20, &plan.depths);
    if (result == 0)
        result = read_list(call, "threads", 1024, &plan.threads);
    if (result != 0)
        return result;
    return call->argument[0] == NULL ? measure_models(call, &plan) : measure_what(call, &plan);
}
