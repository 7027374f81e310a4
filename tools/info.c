/* info.c - `mica info`: what this machine offers, and what was looked for in vain. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "mica/mica.h"
#include "terminal/output.h"

#define MAX_DEVICES 32

/* One device with its facts; `entry.usable` 0 leaves the rest empty. */
typedef struct device_facts {
    mica_device_entry entry;
    mica_device_properties properties;
    mica_device_memory memory;
    mica_registry_stats registry;
    char libraries[2 * MICA_NAME_BYTES];
    int calibrated;                /* the figures are there, else why not: */
    char why[2 * MICA_NAME_BYTES]; /* "": nobody asked */
    mica_calibration calibration;
} device_facts;

/* A device that cannot be opened is a device that is not used: the sentence says why. */
static void gather(device_facts *facts, int calibrate)
{
    mica_device *device = NULL;
    if (!facts->entry.usable)
        return;
    if (mica_device_open(facts->entry.id, NULL, &device) != MICA_OK ||
        mica_device_get_properties(device, &facts->properties) != MICA_OK ||
        mica_device_get_memory(device, &facts->memory) != MICA_OK ||
        mica_device_get_registry(device, &facts->registry) != MICA_OK ||
        mica_device_find_libraries(device, facts->libraries, sizeof facts->libraries) != MICA_OK) {
        facts->entry.usable = 0;
        snprintf(facts->entry.reason, sizeof facts->entry.reason, "%.*s", (int)sizeof facts->entry.reason - 1,
                 mica_status_message());
    } else if (calibrate) {
        facts->calibrated =
            mica_device_calibration(device, MICA_CALIBRATION_ANEW, &facts->calibration) == MICA_OK;
        if (!facts->calibrated)
            snprintf(facts->why, sizeof facts->why, "%.*s", (int)sizeof facts->why - 1,
                     mica_status_message());
    }
    mica_device_release(device);
}

/* Instruction sets of the cpu kernels, and why one is not to be had. */
typedef struct isa_facts {
    const char *name;
    int usable;
    char reason[MICA_NAME_BYTES];
} isa_facts;

static void try_isa(isa_facts *isa)
{
    mica_device *device = NULL;
    mica_device_options options = {.size = sizeof options, .threads = 1};
    snprintf(options.isa, sizeof options.isa, "%s", isa->name);
    isa->usable = mica_device_open("cpu", &options, &device) == MICA_OK;
    if (!isa->usable)
        snprintf(isa->reason, sizeof isa->reason, "%.*s", (int)sizeof isa->reason - 1, mica_status_message());
    mica_device_release(device);
}

/* Figures, with the units in the keys: "memory_gb_s". */
static void print_calibration_json(tool_json *json, const device_facts *f)
{
    static const struct {
        const char *key;
        size_t at;
    } rows[] = {
        {"matmul_large_gflop_s", offsetof(mica_calibration, matmul_large)},
        {"matmul_small_gflop_s", offsetof(mica_calibration, matmul_small)},
        {"attention_gflop_s", offsetof(mica_calibration, attention)},
        {"memory_gb_s", offsetof(mica_calibration, memory)},
        {"reduce_gb_s", offsetof(mica_calibration, reduce)},
        {"transfer_gb_s", offsetof(mica_calibration, transfer)},
        {"roundtrip_ns", offsetof(mica_calibration, roundtrip)},
        {"launch_ns", offsetof(mica_calibration, launch)},
    };
    if (f->why[0] != '\0')
        tool_json_text(json, "not_calibrated", f->why);
    if (!f->calibrated)
        return;
    tool_json_open(json, "calibration", '{');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double value;
        memcpy(&value, (const char *)&f->calibration + rows[i].at, sizeof value);
        tool_json_real(json, rows[i].key, value);
    }
    tool_json_close(json, '}');
}

static void print_json(const device_facts *facts, uint32_t count, const isa_facts *isas, size_t isa_count)
{
    tool_json json = {0};
    tool_json_open(&json, NULL, '{');
    tool_json_text(&json, "version", mica_version());
    tool_json_open(&json, "devices", '[');
    for (uint32_t i = 0; i < count; i++) {
        const device_facts *f = &facts[i];
        tool_json_open(&json, NULL, '{');
        tool_json_text(&json, "id", f->entry.id);
        tool_json_text(&json, "name", f->entry.name);
        tool_json_bool(&json, "usable", (int)f->entry.usable);
        tool_json_text(&json, "reason", f->entry.reason);
        if (f->entry.usable) {
            tool_json_text(&json, "backend", f->properties.backend);
            tool_json_text(&json, "driver", f->properties.driver);
            tool_json_uint(&json, "threads", f->properties.threads);
            tool_json_uint(&json, "processors", f->properties.processors);
            tool_json_text(&json, "features", f->properties.features);
            tool_json_text(&json, "libraries", f->libraries);
            tool_json_uint(&json, "total_memory", f->properties.total_memory);
            tool_json_uint(&json, "free_memory", f->memory.free_bytes);
            tool_json_uint(&json, "max_buffer", f->properties.max_buffer);
            tool_json_uint(&json, "buffer_alignment", f->properties.buffer_alignment);
            tool_json_uint(&json, "subgroup_width", f->properties.subgroup_width);
            tool_json_bool(&json, "unified_memory", (int)f->properties.unified_memory);
            tool_json_bool(&json, "residency", (int)f->properties.residency);
            tool_json_uint(&json, "kernel_rows", f->registry.rows);
            print_calibration_json(&json, f);
        }
        tool_json_close(&json, '}');
    }
    tool_json_close(&json, ']');
    tool_json_open(&json, "cpu_isas", '[');
    for (size_t i = 0; i < isa_count; i++) {
        tool_json_open(&json, NULL, '{');
        tool_json_text(&json, "name", isas[i].name);
        tool_json_bool(&json, "usable", isas[i].usable);
        tool_json_text(&json, "reason", isas[i].reason);
        tool_json_close(&json, '}');
    }
    tool_json_close(&json, ']');
    tool_json_close(&json, '}');
}

/* What works there: threads of the cpu, or the processors of a GPU in its backend's word. */
static const char *workers(const mica_device_properties *p, char *out, size_t capacity)
{
    const uint32_t count = p->threads > 0 ? p->threads : p->processors;
    const char *word = p->threads > 0                    ? "thread"
                       : strcmp(p->backend, "cuda") == 0 ? "multiprocessor"
                                                         : "compute unit";
    snprintf(out, capacity, "%u %s%s", (unsigned)count, word, count == 1 ? "" : "s");
    return out;
}

static void print_calibration(const device_facts *f)
{
    if (f->why[0] != '\0')
        printf("         not calibrated: %s\n", f->why);
    if (!f->calibrated)
        return;
#define PRINT_FIGURE(name, unit, meaning) \
    printf("         %-12s %10.5g %-8s %s\n", #name, f->calibration.name, unit, meaning);
    MICA_CALIBRATION_LIST(PRINT_FIGURE)
#undef PRINT_FIGURE
}

static void print_device(const device_facts *f)
{
    char count[48];
    char free_text[TOOL_SIZE_BYTES], total[TOOL_SIZE_BYTES];
    const mica_device_properties *p = &f->properties;
    int for_tests = strcmp(p->backend, "null") == 0;
    printf("%s%-8s%s %s%s\n", tool_style_begin(for_tests ? TOOL_FAINT : TOOL_GOOD), f->entry.id,
           tool_style_begin(TOOL_PLAIN), f->entry.name, for_tests ? ", for tests: computes nothing" : "");
    if (for_tests)
        return;
    if (p->driver[0] != '\0')
        printf("         %s, %s, %u kernel rows\n", p->driver, workers(p, count, sizeof count),
               (unsigned)f->registry.rows);
    if (p->features[0] != '\0')
        printf("         %s\n", p->features);
    if (f->libraries[0] != '\0')
        printf("         %s\n", f->libraries);
    printf("         memory: %s free of %s, buffers aligned to %u bytes%s\n",
           tool_size_text(f->memory.free_bytes, free_text), tool_size_text(f->memory.total_bytes, total),
           p->buffer_alignment, p->unified_memory ? ", mapped without a copy" : "");
    print_calibration(f);
}

static void print_isas(const isa_facts *isas, size_t count)
{
    fputs("\ncpu instruction sets:", stdout);
    for (size_t i = 0; i < count; i++)
        if (isas[i].usable)
            printf(" %s", isas[i].name);
    putchar('\n');
    for (size_t i = 0; i < count; i++)
        if (!isas[i].usable)
            printf("%s         not used: %s%s\n", tool_style_begin(TOOL_FAINT), isas[i].reason,
                   tool_style_begin(TOOL_PLAIN));
}

int tool_info(const tool_call *call)
{
    mica_device_entry entries[MAX_DEVICES];
    device_facts facts[MAX_DEVICES];
    isa_facts isas[] = {{.name = "portable"}, {.name = "avx2"}, {.name = "avx512"}};
    size_t isa_count = sizeof isas / sizeof *isas;
    uint32_t count = 0;
    if (mica_device_list(entries, MAX_DEVICES, &count) != MICA_OK)
        return tool_fail_status();
    count = count < MAX_DEVICES ? count : MAX_DEVICES;
    memset(facts, 0, sizeof facts);
    for (uint32_t i = 0; i < count; i++) {
        facts[i].entry = entries[i];
        gather(&facts[i], tool_flag(call, "calibrate"));
    }
    for (size_t i = 0; i < isa_count; i++)
        try_isa(&isas[i]);
    if (tool_flag(call, "json")) {
        print_json(facts, count, isas, isa_count);
        return 0;
    }
    printf("%smica %s%s\n\n", tool_style_begin(TOOL_STRONG), mica_version(), tool_style_begin(TOOL_PLAIN));
    for (uint32_t i = 0; i < count; i++)
        if (facts[i].entry.usable)
            print_device(&facts[i]);
    for (uint32_t i = 0; i < count; i++)
        if (!facts[i].entry.usable)
            printf("%s%-8s not used: %s%s\n", tool_style_begin(TOOL_FAINT), facts[i].entry.id,
                   facts[i].entry.reason, tool_style_begin(TOOL_PLAIN));
    print_isas(isas, isa_count);
    return 0;
}
