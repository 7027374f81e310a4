/*
 * mica_bench.c - the table of speeds.
 *
 *   mica-bench [--json] [--quick] [SECTION...]      sections: overhead ops matmul matvec fusion decode weights quantize
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(void);
} sections[] = {
    {"overhead", bench_overhead}, {"ops", bench_ops},           {"matmul", bench_matmul},
    {"matvec", bench_matvec},     {"fusion", bench_fusion},     {"decode", bench_decode},
    {"weights", bench_weights},   {"quantize", bench_quantize},
};
#define SECTIONS (sizeof sections / sizeof *sections)

static int usage(const char *word)
{
    fprintf(stderr, "mica-bench: '%s' is neither --json, --quick nor a section:", word);
    for (size_t i = 0; i < SECTIONS; i++)
        fprintf(stderr, " %s", sections[i].name);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    bool wanted[SECTIONS] = {false}, all = true;

    for (int i = 1; i < argc; i++) {
        size_t s = 0;

        while (s < SECTIONS && strcmp(argv[i], sections[s].name) != 0)
            s++;
        if (strcmp(argv[i], "--json") == 0)
            bench_settings.json = true;
        else if (strcmp(argv[i], "--quick") == 0)
            bench_settings.quick = true;
        else if (s == SECTIONS)
            return usage(argv[i]);
        else
            wanted[s] = true;
        all = all && s == SECTIONS;
    }
    if (!bench_settings.json)
        printf("mica %s\n", mica_version());
    bench_measure_ceilings();
    for (size_t s = 0; s < SECTIONS; s++) {
        if (all || wanted[s])
            sections[s].run();
    }
    return 0;
}
