/*
 * launch.c - `mica bench launch`: chains of small kernels, each of which waits for the one before.
 *
 * The first rows are a kernel that adds one to a word of each of its groups and nothing else, so that its time is the way from
 * one kernel to the next; the words must show afterwards that every kernel saw what the one before had written. The other rows
 * are small ops: a device that starts kernels before their inputs are there shows it in them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/case.h"
#include "bench/weights.h"

#define NODES 320u /* of a recording: ten for each of 32 layers */
#define ITEMS 256u

static const tool_column columns[] = {
    {"op", "op", TOOL_TEXT, 10}, {"type", "type", TOOL_TEXT, 8},       {"shape", "shape", TOOL_TEXT, 20},
    {"us", "us", 2, 12},         {"kernels", "kernels", TOOL_TEXT, 7},
};
#define COLUMNS (sizeof columns / sizeof *columns)

static void step_on_host(const mica_host_binding *bindings, uint32_t count, const void *params,
                         uint32_t first, uint32_t last)
{
    (void)count, (void)params;
    uint32_t *words = bindings[0].data; /* one a group */
    for (uint32_t group = first; group < last; group++)
        words[group]++;
}

static const char step_text[] = "MK_KERNEL(tool_step) MK_OUT(words) MK_END\n"
                                "{\n"
                                "    MK_BIND(words);\n"
                                "    const mk_u64 at = 4u * (mk_u64)MK_GROUP_X;\n"
                                "    if (MK_LID == 0u)\n"
                                "        mk_st_u32(words, at, mk_ld_u32(words, at) + 1u);\n"
                                "}\n";

mica_status bench_step_kernel(mica_device *device, mica_kernel **out)
{
    const mica_kernel_desc desc = {.name = "tool_step", .host = step_on_host, .source = step_text};
    TOOL_TRY(mica_kernel_register(device, &desc));
    return mica_kernel_get(device, desc.name, NULL, 0, out);
}

mica_status bench_step_encode(mica_encoder *encoder, mica_kernel *kernel, uint32_t groups, mica_buffer *words)
{
    const mica_binding binding = {words, MICA_ACCESS_READ | MICA_ACCESS_WRITE};
    const mica_dispatch_desc step = {.kernel = kernel,
                                     .groups = {groups, 1, 1},
                                     .local = {ITEMS, 1, 1},
                                     .bindings = &binding,
                                     .binding_count = 1};
    return mica_encoder_dispatch(encoder, &step);
}

/* What every node of a recording is: an op, or where there is none a step of `groups` groups on buffer 0. */
typedef struct launch_node {
    const bench_case *op;
    mica_kernel *step;
    uint32_t groups;
    bench_set set;
} launch_node;

/* All nodes write the same buffer, so each has to wait. */
static mica_status encode(mica_encoder *encoder, const launch_node *node)
{
    return node->op != NULL ? bench_case_encode(encoder, node->op, &node->set)
                            : bench_step_encode(encoder, node->step, node->groups, node->set.buffer[0]);
}

/* What is known of a row once it has run. */
typedef struct launch_measured {
    double ns;     /* of a node */
    uint32_t runs; /* of each node */
    char kernels[BENCH_KERNELS_BYTES];
} launch_measured;

static mica_status measure(mica_device *device, const launch_node *node, launch_measured *out)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    TOOL_TRY(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < NODES && status == MICA_OK; i++)
        status = encode(mica_session_encoder(session), node);
    if (status == MICA_OK)
        status = mica_session_record(session, 0, NULL, &recording);
    mica_session_release(session);
    if (status == MICA_OK)
        status = bench_best_replay(recording, 0, &out->ns, &out->runs);
    if (status == MICA_OK)
        status = bench_kernels_of(device, recording, out->kernels);
    mica_recording_release(recording);
    out->ns /= NODES;
    out->runs++; /* the one that gave the names */
    return status;
}

/* 0 where a word does not have what all steps together add. */
static int have_counted(mica_buffer *words, uint32_t groups, uint32_t runs)
{
    uint32_t *word = malloc(groups * sizeof *word);
    int right = word != NULL && mica_buffer_read(words, 0, word, groups * sizeof *word) == MICA_OK;
    for (uint32_t i = 0; right && i < groups; i++)
        right = word[i] == NODES * runs;
    free(word);
    return right;
}

static int measure_steps(mica_device *device, uint32_t groups, launch_measured *out)
{
    const uint64_t words = groups;
    launch_node node = {.groups = groups};
    mica_status status = bench_step_kernel(device, &node.step);
    if (status == MICA_OK)
        status = tool_constant_create(device, MICA_DTYPE_U32, 1, &words, 0, &node.set.buffer[0]);
    if (status == MICA_OK)
        status = measure(device, &node, out);
    int result = status == MICA_OK ? 0 : tool_fail_status();
    if (result == 0 && !have_counted(node.set.buffer[0], groups, out->runs))
        result = tool_fail("bench: a kernel of %u groups ran before what it waits for was written", groups);
    mica_buffer_release(node.set.buffer[0]);
    mica_kernel_release(node.step);
    return result;
}

static int measure_op(mica_device *device, const bench_case *op, launch_measured *out)
{
    launch_node node = {.op = op};
    mica_status status = op->family->create(device, op, &node.set);
    if (status == MICA_OK)
        status = measure(device, &node, out);
    int result = status == MICA_OK ? 0 : tool_fail_status();
    for (int i = 0; i < BENCH_BUFFERS; i++)
        mica_buffer_release(node.set.buffer[i]);
    return result;
}

static void print_row(tool_json *json, const char *op, const char *type, const char *shape,
                      const launch_measured *m)
{
    const tool_cell cells[COLUMNS] = {
        {.text = op}, {.text = type}, {.text = shape}, {.number = m->ns / 1000}, {.text = m->kernels}};
    bench_table_row(json, columns, COLUMNS, cells);
}

static int run_rows(mica_device *device, const mica_device_properties *p, tool_json *json)
{
    const uint32_t groups[] = {1, p->threads > 0 ? p->threads : p->processors};
    size_t count = 0;
    const bench_case *ops = bench_small_cases(&count);
    launch_measured m = {.ns = 0};
    char shape[48];
    int result = 0;
    for (size_t i = 0; i < 2 && result == 0; i++) {
        result = measure_steps(device, groups[i], &m);
        snprintf(shape, sizeof shape, "%u group%s", groups[i], groups[i] == 1 ? "" : "s");
        if (result == 0)
            print_row(json, "step", "u32", shape, &m);
    }
    for (size_t i = 0; i < count && result == 0; i++) {
        result = measure_op(device, &ops[i], &m);
        bench_case_shape(&ops[i], shape, sizeof shape);
        if (result == 0)
            print_row(json, bench_case_name(&ops[i]), mica_dtype_name(ops[i].type), shape, &m);
    }
    return result;
}

static int measure_launches(const tool_call *call, mica_device *device, const mica_device_properties *p)
{
    tool_json json = {0}, *list = tool_flag(call, "json") ? &json : NULL;
    bench_device_facts(list, p);
    if (list != NULL)
        tool_json_uint(list, "nodes", NODES);
    else
        printf("recordings of %u kernels, each behind the one before\n", NODES);
    bench_table_open(list, "launches", columns, COLUMNS);
    const int result = run_rows(device, p, list);
    bench_table_close(list);
    return result;
}

int bench_launch(const tool_call *call, uint32_t threads)
{
    return bench_on_device(call, threads, measure_launches);
}
