/* test_cuda_backend.c - the CUDA backend's table over the stand-in: memory, programs, commands, graphs, queues, faults. */
#include "cuda_rig.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "support/random.h"

#define FOREVER UINT64_MAX

static rig opened(void)
{
    rig r;
    fake_reset();
    must(rig_open_index(&r, 0));
    return r;
}

static void closed(rig *r)
{
    rig_close(r);
    rig_check_clean();
}

static mica__memory *memory_of(rig *r, const float *values, uint64_t count)
{
    mica__memory *memory = NULL;
    must(r->table->buffer_create(r->device, count * sizeof *values, &memory));
    if (values != NULL)
        must(r->table->upload(r->device, memory, 0, values, count * sizeof *values));
    return memory;
}

static mica__encoding *begin(rig *r, uint32_t flags)
{
    mica__encoding *encoding = NULL;
    must(r->table->encoder_begin(r->device, flags, &encoding));
    return encoding;
}

static mica__commands *end(rig *r, mica__encoding *encoding)
{
    mica__commands *commands = NULL;
    must(r->table->encoder_end(encoding, false, &commands));
    return commands;
}

/* Submits to the first queue and waits. */
static mica__completion run(rig *r, mica__commands *commands)
{
    mica__completion done;
    uint64_t value = 0;
    must(r->table->submit(r->device, NULL, commands, &value));
    must(r->table->wait(r->device, NULL, value, FOREVER, &done));
    assert_int_equal(done.status, MICA_OK);
    return done;
}

/* ---- what it says of itself ---- */

static void test_facts(void **state)
{
    char name[128], reason[128];
    mica__device_info info;
    (void)state;
    assert_int_equal(mica__backend_cuda.probe(reason, sizeof reason), FAKE_DEVICES);
    assert_string_equal(reason, "");
    must(mica__backend_cuda.describe(1, name, sizeof name));
    assert_string_equal(name, "stand-in 1");
    refused(mica__backend_cuda.describe(FAKE_DEVICES, name, sizeof name), MICA_ERR_DEVICE_NOT_FOUND,
            "cuda:2");
    rig r = opened();
    r.table->info(r.device, &info);
    assert_string_equal(info.properties.id, "cuda:0");
    assert_string_equal(info.target, "MK_CUDA");
    assert_non_null(strstr(info.properties.driver, "12.8"));
    assert_int_equal(info.compute, 90);
    assert_int_equal(info.processors, 132);
    assert_int_equal(info.edges, 1);
    assert_int_equal(info.local_bytes, 232448);
    assert_non_null(strstr(info.identity, "sm_90"));
    assert_non_null(strstr(info.identity, "--fmad=false")); /* what compiled code depends on */
    assert_non_null(info.native);
    closed(&r);
}

static void test_no_such_device(void **state)
{
    mica__device *device = NULL;
    const mica__backend_table *table = NULL;
    (void)state;
    fake_reset();
    refused(mica__backend_cuda.open(FAKE_DEVICES, NULL, &device, &table), MICA_ERR_DEVICE_NOT_FOUND,
            "cuda:2");
    assert_null(device);
    rig_check_clean();
}

/* ---- memory ---- */

static void test_transfers(void **state)
{
    static const uint64_t sizes[] = {1, 255, 4096, (4u << 20) - 1, 4u << 20, (4u << 20) + 1, (13u << 20) + 7};
    (void)state;
    rig r = opened();
    test_random random = test_random_from(1);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const uint64_t size = sizes[s], offset = test_random_below(&random, 100);
        mica__memory *memory = NULL;
        unsigned char *sent = malloc(size), *back = malloc(size + 1);
        for (uint64_t i = 0; i < size; i++)
            sent[i] = (unsigned char)test_random_next(&random);
        back[size] = 0x5c;
        must(r.table->buffer_create(r.device, size + 200, &memory));
        must(r.table->buffer_fill(r.device, memory, 0x17));
        must(r.table->upload(r.device, memory, offset, sent, size));
        must(r.table->download(r.device, memory, offset, back, size));
        assert_memory_equal(sent, back, size);
        assert_int_equal(back[size], 0x5c);
        must(r.table->download(r.device, memory, offset + size, back, 1));
        assert_int_equal(back[0], 0x17);
        refused(r.table->upload(r.device, memory, 201, sent, size), MICA_ERR_INVALID_ARGUMENT, "offset");
        refused(r.table->download(r.device, memory, UINT64_MAX, back, 2), MICA_ERR_INVALID_ARGUMENT,
                "offset");
        r.table->buffer_destroy(r.device, memory);
        free(sent);
        free(back);
    }
    r.table->buffer_destroy(r.device, NULL);
    closed(&r);
}

static void test_out_of_memory(void **state)
{
    mica__memory *memory = NULL;
    uint64_t free_bytes = 0, total = 0;
    (void)state;
    rig r = opened();
    refused(r.table->buffer_create(r.device, FAKE_MEMORY + 1, &memory), MICA_ERR_OUT_OF_MEMORY,
            "OUT_OF_MEMORY");
    assert_null(memory);
    r.table->memory(r.device, &free_bytes, &total);
    assert_int_equal(total, FAKE_MEMORY);
    assert_in_range(free_bytes, 1, FAKE_MEMORY);
    memory = memory_of(&r, NULL, 100); /* everything goes on */
    r.table->buffer_destroy(r.device, memory);
    closed(&r);
}

/* ---- programs ---- */

static void test_programs(void **state)
{
    mica__program *program = NULL, *again = NULL;
    mica__kernel *kernel = NULL;
    void *binary = NULL;
    uint64_t bytes = 0;
    (void)state;
    rig r = opened();
    mica__program_desc desc = {.name = "k|A=1",
                               .text = "#define A 1\n//nvrtc --fmad=true\n//arch a\nMK_KERNEL(k)"};
    must(r.table->program_create(r.device, &desc, &program));
    assert_non_null(strstr(fake_options(), "--gpu-architecture=sm_90a "));
    assert_non_null(strstr(fake_options(), "--fmad=false "));
    assert_non_null(strstr(fake_options(), "--std=c++17 --disable-warnings"));
    assert_non_null(strstr(fake_options(), "--fmad=true "));
    must(r.table->kernel_get(r.device, program, "k", &kernel));
    refused(r.table->kernel_get(r.device, program, "elsewhere", &kernel), MICA_ERR_KERNEL_NOT_FOUND,
            "elsewhere");
    must(r.table->program_binary(program, &binary, &bytes));
    assert_int_equal(bytes, strlen(desc.text) + 1);
    desc = (mica__program_desc){.name = "k", .binary = binary, .binary_bytes = bytes};
    must(r.table->program_create(r.device, &desc, &again));
    mica__free(binary);
    refused(r.table->program_binary(again, &binary, &bytes), MICA_ERR_UNSUPPORTED, "k was not compiled");
    r.table->program_destroy(r.device, again);
    r.table->program_destroy(r.device, program);
    r.table->program_destroy(r.device, NULL);
    closed(&r);
}

static void test_refused_programs(void **state)
{
    mica__program *program = NULL;
    mica__kernel *kernel = NULL;
    (void)state;
    rig r = opened();
    mica__program_desc desc = {.name = "bad", .text = "FAKE_SYNTAX", .portable = "fine", .portable_bytes = 4};
    refused(r.table->program_create(r.device, &desc, &program), MICA_ERR_KERNEL_COMPILATION,
            "no word of this language");
    assert_null(program);
    desc = (mica__program_desc){.name = "bad", .text = "FAKE_REFUSED"};
    refused(r.table->program_create(r.device, &desc, &program), MICA_ERR_KERNEL_COMPILATION,
            "refused as asked");
    desc = (mica__program_desc){.name = "nothing"};
    refused(r.table->program_create(r.device, &desc, &program), MICA_ERR_KERNEL_NOT_FOUND, "nothing");
    desc = (mica__program_desc){.name = "ptx", .portable = "MK_KERNEL(k)FAKE_REFUSED", .portable_bytes = 12};
    must(r.table->program_create(r.device, &desc, &program)); /* what stands behind it is not read */
    must(r.table->kernel_get(r.device, program, "k", &kernel));
    r.table->program_destroy(r.device, program);
    desc = (mica__program_desc){.name = "old", .binary = "FAKE_REFUSED", .binary_bytes = 12, .text = "k"};
    must(r.table->program_create(r.device, &desc,
                                 &program)); /* a binary that is not taken is compiled again */
    r.table->program_destroy(r.device, program);
    refused(r.table->kernel_get(r.device, NULL, "none", &kernel), MICA_ERR_KERNEL_NOT_FOUND, "none");
    closed(&r);
}

/* A compiler of a newer major version than the driver makes nothing that the driver loads: the next name is tried, then what
 * was embedded. */
static void test_newer_compilers(void **state)
{
    const mica__program_desc text = {.name = "mine", .text = rig_text},
                             both = {.name = "mine",
                                     .text = rig_text,
                                     .portable = rig_text,
                                     .portable_bytes = sizeof rig_text - 1};
    mica__device *device = NULL;
    const mica__backend_table *table = NULL;
    mica__program *program = NULL;
    char found[256];
    (void)state;
    fake_reset();
    fake_newer_compilers(1);
    mica__backend_cuda.libraries(found, sizeof found);
    assert_non_null(strstr(found, "NVRTC: libnvrtc.so.12"));
    fake_newer_compilers(1);
    must(mica__backend_cuda.open(0, NULL, &device, &table));
    must(table->program_create(device, &text, &program));
    assert_int_equal(fake_get_counts().compiled, 1);
    table->program_destroy(device, program);
    table->close(device);
    fake_newer_compilers(99);
    must(mica__backend_cuda.open(0, NULL, &device, &table));
    refused(table->program_create(device, &text, &program), MICA_ERR_KERNEL_NOT_FOUND,
            "libnvrtc.so.13 is version 13.1, newer than the driver's CUDA 12.8");
    must(table->program_create(device, &both, &program));
    assert_int_equal(fake_get_counts().compiled, 1);
    fake_newer_compilers(0);
    table->program_destroy(device, program);
    table->close(device);
    rig_check_clean();
}

/* ---- commands ---- */

#define COUNT 33u

static void test_one_shot(void **state)
{
    float a[COUNT], b[COUNT], y[COUNT];
    (void)state;
    rig r = opened();
    test_random random = test_random_from(2);
    for (uint32_t i = 0; i < COUNT; i++) {
        a[i] = (float)test_random_normal(&random);
        b[i] = (float)test_random_normal(&random);
    }
    mica__memory *in = memory_of(&r, a, COUNT), *other = memory_of(&r, b, COUNT);
    mica__memory *sum = memory_of(&r, NULL, COUNT), *copy = memory_of(&r, NULL, COUNT);
    for (uint32_t round = 0; round < 20; round++) {
        mica__encoding *encoding = begin(&r, 0);
        rig_add(&r, encoding, in, other, sum, NULL, 0);
        r.table->barrier(encoding);
        table_copy(r.table, encoding, rig_whole(sum, 1), rig_whole(copy, 2), NULL);
        const mica__completion done = run(&r, end(&r, encoding));
        assert_true(done.end_ns >= done.begin_ns && done.fault == 0);
    }
    must(r.table->download(r.device, copy, 0, y, sizeof y));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(y[i] == a[i] + b[i]);
    const fake_counts counts = fake_get_counts();
    assert_int_equal(counts.kernels, 20);
    assert_int_equal(counts.graphs, 0);
    mica__memory *all[] = {in, other, sum, copy};
    for (uint32_t i = 0; i < 4; i++)
        r.table->buffer_destroy(r.device, all[i]);
    closed(&r);
}

static void refuse_dispatch(rig *r, const mica__dispatch *dispatch, const char *word)
{
    mica__encoding *encoding = begin(r, 0);
    mica__commands *commands = NULL;
    r->table->dispatch(encoding, dispatch);
    refused(r->table->encoder_end(encoding, false, &commands), MICA_ERR_INVALID_ARGUMENT, word);
    assert_null(commands);
}

static void test_limits(void **state)
{
    (void)state;
    rig r = opened();
    mica__memory *memory = memory_of(&r, NULL, 4);
    mica__binding binding = rig_whole(memory, MICA_ACCESS_WRITE);
    const mica__dispatch good = {
        .kernel = r.bare, .groups = {1, 1, 1}, .local = {32, 1, 1}, .bindings = &binding, .binding_count = 1};
    mica__dispatch bad = good;
    bad.groups[1] = 65536;
    refuse_dispatch(&r, &bad, "groups");
    bad = good;
    bad.groups[0] = 0;
    refuse_dispatch(&r, &bad, "groups");
    bad = good;
    bad.local[1] = 33;
    refuse_dispatch(&r, &bad, "local: 32 x 33");
    bad = good;
    bad.local_bytes = 232448;
    refuse_dispatch(&r, &bad, "local_bytes");
    bad = good;
    bad.binding_count = 0;
    refuse_dispatch(&r, &bad, "arguments");
    bad = good;
    bad.params = &bad;
    bad.params_size = 8;
    refuse_dispatch(&r, &bad, "arguments");
    bad = good;
    binding.length = 17;
    refuse_dispatch(&r, &bad, "binding 0");
    binding.length = 16;
    bad.local_bytes = 100000; /* more than every kernel has, and allowed */
    bad.local[0] = 0;
    mica__encoding *encoding = begin(&r, 0);
    r.table->dispatch(encoding, &bad);
    run(&r, end(&r, encoding));
    encoding = begin(&r, 0);
    table_copy(r.table, encoding, binding, (mica__binding){memory, 0, 4, 2}, NULL);
    mica__commands *commands = NULL;
    refused(r.table->encoder_end(encoding, false, &commands), MICA_ERR_INVALID_ARGUMENT, "copy");
    encoding = begin(&r, MICA__ENCODE_REUSABLE);
    r.table->dispatch(encoding, &good);
    must(r.table->encoder_end(encoding, true, &commands)); /* dropped */
    assert_null(commands);
    r.table->buffer_destroy(r.device, memory);
    closed(&r);
}

/* ---- graphs ---- */

#define MOST_NODES 40u

/* The edges that a list of dependencies must become: those that no longer path implies. */
static uint32_t expected_edges(bool depends[MOST_NODES][MOST_NODES], uint32_t count,
                               bool edge[MOST_NODES][MOST_NODES])
{
    bool reach[MOST_NODES][MOST_NODES];
    uint32_t edges = 0;
    memcpy(reach, depends, sizeof reach);
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t j = 0; j < count; j++)
                reach[i][j] = reach[i][j] || (reach[i][k] && reach[k][j]);
    memset(edge, 0, sizeof(bool) * MOST_NODES * MOST_NODES);
    for (uint32_t to = 0; to < count; to++) {
        for (uint32_t from = 0; from < to; from++) {
            bool implied = !depends[to][from];
            for (uint32_t between = 0; between < count && !implied; between++)
                implied = reach[to][between] && reach[between][from];
            edge[to][from] = !implied;
            edges += !implied;
        }
    }
    return edges;
}

static void check_graph(rig *r, test_random *random, uint32_t count)
{
    static bool depends[MOST_NODES][MOST_NODES], edge[MOST_NODES][MOST_NODES];
    uint32_t found[4096][2], nodes = 0;
    mica__memory *memory = memory_of(r, NULL, 4);
    mica__encoding *encoding = begin(r, MICA__ENCODE_REUSABLE);
    memset(depends, 0, sizeof depends);
    for (uint32_t to = 0; to < count; to++) {
        uint32_t list[2 * MOST_NODES], length = 0;
        for (uint32_t from = 0; from < to; from++) {
            depends[to][from] = test_random_one_in(random, 4);
            for (uint32_t i = 0; depends[to][from] && i < 1 + test_random_below(random, 2); i++)
                list[length++] = from; /* now and then twice, in any order */
        }
        for (uint32_t i = length; i > 1; i--) {
            const uint32_t j = (uint32_t)test_random_below(random, i), kept = list[j];
            list[j] = list[i - 1];
            list[i - 1] = kept;
        }
        rig_add(r, encoding, memory, memory, memory, list, length);
    }
    mica__commands *commands = end(r, encoding);
    const uint32_t edges = fake_edges(found, 4096, &nodes);
    assert_int_equal(nodes, count);
    assert_int_equal(edges, expected_edges(depends, count, edge));
    for (uint32_t i = 0; i < edges; i++)
        assert_true(edge[found[i][1]][found[i][0]]);
    run(r, commands);
    r->table->commands_destroy(r->device, commands);
    r->table->buffer_destroy(r->device, memory);
}

static void test_edges(void **state)
{
    (void)state;
    rig r = opened();
    test_random random = test_random_from(3);
    for (uint32_t round = 0; round < 50; round++)
        check_graph(&r, &random, 1 + (uint32_t)test_random_below(&random, MOST_NODES));
    closed(&r);
}

static bool has_edge(uint32_t (*found)[2], uint32_t count, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < count; i++)
        if (found[i][0] == from && found[i][1] == to)
            return true;
    return false;
}

static void test_barriers(void **state)
{
    uint32_t found[64][2], nodes = 0;
    (void)state;
    rig r = opened();
    mica__memory *memory = memory_of(&r, NULL, 4);
    const mica__binding whole = rig_whole(memory, 3);
    mica__encoding *encoding = begin(&r, MICA__ENCODE_REUSABLE);
    r.table->barrier(encoding);                                        /* nothing before it */
    rig_add(&r, encoding, memory, memory, memory, NULL, 0);            /* 0 */
    rig_add(&r, encoding, memory, memory, memory, (uint32_t[]){0}, 1); /* 1 */
    rig_add(&r, encoding, memory, memory, memory, NULL, 0);            /* 2 */
    r.table->barrier(encoding);                                        /* an empty node, 3, behind 1 and 2 */
    r.table->barrier(encoding);
    table_copy(r.table, encoding, whole, whole, NULL); /* 4 */
    r.table->barrier(encoding);                        /* one node: it is the barrier */
    rig_add(&r, encoding, memory, memory, memory, (uint32_t[]){0, 3},
            2);                                                        /* 5: its copy is across the barrier */
    rig_add(&r, encoding, memory, memory, memory, (uint32_t[]){4}, 1); /* 6 waits for 5, its dispatch 4 */
    mica__commands *commands = end(&r, encoding);
    const uint32_t count = fake_edges(found, 64, &nodes);
    assert_int_equal(nodes, 7);
    assert_int_equal(count, 6);
    assert_true(has_edge(found, count, 0, 1));
    assert_true(has_edge(found, count, 1, 3));
    assert_true(has_edge(found, count, 2, 3));
    assert_true(has_edge(found, count, 3, 4));
    assert_true(has_edge(found, count, 4, 5));
    assert_true(has_edge(found, count, 5, 6));
    run(&r, commands);
    r.table->commands_destroy(r.device, commands);
    r.table->buffer_destroy(r.device, memory);
    closed(&r);
}

#define AHEAD (MICA_ACCESS_READ | MICA__BIND_AHEAD)

/* x -> middle -> y with weights read ahead; `writes`: a dispatch before writes these weights. Gives the edges. */
static mica__commands *chain_ahead(rig *r, mica__memory *const memory[4], bool writes)
{
    mica__encoding *encoding = begin(r, MICA__ENCODE_REUSABLE);
    mica__memory *x = memory[0], *weights = memory[1], *middle = memory[2], *y = memory[3];
    rig_add(r, encoding, x, x, writes ? weights : middle, NULL, 0);
    rig_add_as(r, encoding, x, weights, AHEAD, middle, (uint32_t[]){0}, 1);
    rig_add_as(r, encoding, middle, x, AHEAD, y, (uint32_t[]){0, 1}, 2);
    return end(r, encoding);
}

/* Kernels that read ahead start early, unless what they read is written before; a change of operands takes that back. */
static void test_early(void **state)
{
    const float ones[COUNT] = {1, 1};
    float back[COUNT];
    mica__memory *memory[4];
    (void)state;
    rig r = opened();
    for (uint32_t i = 0; i < 4; i++)
        memory[i] = memory_of(&r, i < 2 ? ones : NULL, COUNT);
    mica__commands *commands = chain_ahead(&r, memory, true);
    assert_int_equal(fake_early_edges(), 1); /* the last one */
    r.table->commands_destroy(r.device, commands);
    commands = chain_ahead(&r, memory, false);
    assert_int_equal(fake_early_edges(), 2);
    run(&r, commands);
    const mica__binding other = rig_whole(memory[0], MICA_ACCESS_READ);
    must(r.table->commands_update(commands, 1, 0, &other)); /* not read ahead, not written: in place */
    run(&r, commands);
    assert_int_equal(fake_early_edges(), 2);
    must(r.table->commands_update(commands, 1, 1, &other));
    run(&r, commands);
    assert_int_equal(fake_early_edges(), 0);
    must(r.table->download(r.device, memory[3], 0, back, sizeof back));
    assert_true(back[0] == 3 && back[2] == 0);
    r.table->commands_destroy(r.device, commands);
    for (uint32_t i = 0; i < 4; i++)
        r.table->buffer_destroy(r.device, memory[i]);
    closed(&r);
}

/* Replays y = a + b, then a copy of y, with operands that change between. */
static void replay(rig *r, uint32_t fail_updates)
{
    const float ones[COUNT] = {1, 1}, twos[COUNT] = {2, 2};
    float back[COUNT];
    mica__memory *one = memory_of(r, ones, COUNT), *two = memory_of(r, twos, COUNT);
    mica__memory *y = memory_of(r, NULL, COUNT), *copy = memory_of(r, NULL, COUNT),
                 *far = memory_of(r, NULL, COUNT);
    mica__encoding *encoding = begin(r, MICA__ENCODE_REUSABLE);
    rig_add(r, encoding, one, one, y, NULL, 0);
    r->table->barrier(encoding);
    table_copy(r->table, encoding, rig_whole(y, 1), rig_whole(copy, 2), NULL);
    mica__commands *commands = end(r, encoding);
    for (uint32_t i = 0; i < 3; i++)
        run(r, commands);
    must(r->table->download(r->device, copy, 0, back, sizeof back));
    assert_true(back[0] == 2 && back[2] == 0);
    const mica__binding other = rig_whole(two, 1), target = rig_whole(far, 2);
    if (fail_updates != 0)
        fake_fail_call(fail_updates, 1);
    must(r->table->commands_update(commands, 0, 1, &other));
    must(r->table->commands_update(commands, 1, 1, &target));
    fake_fail_call(0, 0);
    run(r, commands);
    must(r->table->download(r->device, far, 0, back, sizeof back));
    assert_true(back[0] == 3 && back[2] == 0);
    refused(r->table->commands_update(commands, 2, 0, &other), MICA_ERR_INVALID_ARGUMENT, "dispatch: 2");
    refused(r->table->commands_update(commands, 0, 3, &other), MICA_ERR_INVALID_ARGUMENT, "binding: 3");
    const mica__binding outside = {two, 4, COUNT * 4, 1};
    refused(r->table->commands_update(commands, 0, 0, &outside), MICA_ERR_INVALID_ARGUMENT, "binding 0");
    r->table->commands_destroy(r->device, commands);
    mica__memory *all[] = {one, two, y, copy, far};
    for (uint32_t i = 0; i < 5; i++)
        r->table->buffer_destroy(r->device, all[i]);
}

static void test_replay(void **state)
{
    (void)state;
    rig r = opened();
    replay(&r, 0);
    fake_counts counts = fake_get_counts();
    assert_int_equal(counts.graphs, 4);
    assert_int_equal(counts.kernels, 0);
    assert_int_equal(counts.instantiated, 1);
    assert_int_equal(counts.updates, 2);
    replay(&r, 2); /* the driver refuses the change: the graph is made anew */
    counts = fake_get_counts();
    assert_int_equal(counts.instantiated, 3);
    closed(&r);
}

/* ---- faults ---- */

static void test_faults(void **state)
{
    (void)state;
    rig r = opened();
    mica__commands *reused = NULL;
    mica__encoding *encoding = begin(&r, MICA__ENCODE_REUSABLE);
    rig_fault(&r, encoding, 1 + MICA_OP_EMBEDDING);
    reused = end(&r, encoding);
    encoding = begin(&r, MICA__ENCODE_REUSABLE);
    rig_fault(&r, encoding, 0);
    mica__commands *clean = end(&r, encoding);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(run(&r, reused).fault, 1 + MICA_OP_EMBEDDING);
        assert_int_equal(run(&r, clean).fault, 0);
    }
    for (uint32_t i = 0; i < 10; i++) {
        encoding = begin(&r, 0);
        rig_fault(&r, encoding, i % 2);
        assert_int_equal(run(&r, end(&r, encoding)).fault, i % 2);
    }
    r.table->commands_destroy(r.device, reused);
    r.table->commands_destroy(r.device, clean);
    closed(&r);
}

/* More commands with fault words at one time than a page of them holds. */
static void test_many_faults(void **state)
{
    enum { MANY = 1100 };
    static mica__commands *commands[MANY];
    (void)state;
    rig r = opened();
    for (uint32_t i = 0; i < MANY; i++) {
        mica__encoding *encoding = begin(&r, MICA__ENCODE_REUSABLE);
        rig_fault(&r, encoding, i + 1);
        commands[i] = end(&r, encoding);
    }
    for (uint32_t i = 0; i < MANY; i += 37)
        assert_int_equal(run(&r, commands[i]).fault, i + 1);
    for (uint32_t i = 0; i < MANY; i++)
        r.table->commands_destroy(r.device, commands[i]);
    closed(&r);
}

/* ---- queues ---- */

static void test_queues(void **state)
{
    mica__completion done;
    uint64_t value = 0, last = 0;
    mica__queue *queue = NULL;
    (void)state;
    rig r = opened();
    mica__memory *memory = memory_of(&r, NULL, 4);
    must(r.table->queue_create(r.device, &queue));
    mica__encoding *encoding = begin(&r, MICA__ENCODE_REUSABLE);
    rig_add(&r, encoding, memory, memory, memory, NULL, 0);
    mica__commands *commands = end(&r, encoding);
    for (uint32_t i = 0; i < 300; i++) { /* round the ring */
        must(r.table->submit(r.device, i % 3 == 0 ? queue : NULL, commands, &value));
        if (i % 3 == 0)
            assert_int_equal(value, i / 3 + 1);
    }
    must(r.table->wait(r.device, queue, 100, FOREVER, &done));
    must(r.table->wait(r.device, queue, 1, 0, &done)); /* however old */
    refused(r.table->wait(r.device, queue, 101, 0, &done), MICA_ERR_INVALID_ARGUMENT, "value: 101");
    must(r.table->queue_order(r.device, NULL, queue, 100));
    fake_slow(50000000); /* longer than a busy machine keeps this thread from looking */
    must(r.table->submit(r.device, queue, commands, &last));
    const uint64_t start = mica__clock_ns();
    assert_int_equal(r.table->wait(r.device, queue, last, 0, &done), MICA_ERR_TIMEOUT);
    assert_int_equal(r.table->wait(r.device, queue, last, 100000, &done), MICA_ERR_TIMEOUT);
    must(r.table->queue_order(r.device, NULL, queue, last));
    must(r.table->queue_order(r.device, queue, queue, last));
    must(r.table->wait(r.device, queue, last, FOREVER, &done));
    assert_true(mica__clock_ns() - start >= 40000000);
    fake_slow(0);
    r.table->commands_destroy(r.device, commands);
    r.table->queue_destroy(r.device, queue);
    r.table->queue_destroy(r.device, NULL);
    r.table->buffer_destroy(r.device, memory);
    closed(&r);
}

static void test_times(void **state)
{
    mica_profile_entry entries[8];
    uint64_t count = 0;
    (void)state;
    rig r = opened();
    mica__memory *memory = memory_of(&r, NULL, 4);
    const mica__binding whole = rig_whole(memory, 3);
    must(r.table->timestamps(r.device, true, NULL, 0, &count));
    assert_int_equal(count, 0);
    mica__encoding *encoding = begin(&r, MICA__ENCODE_REUSABLE);
    rig_add(&r, encoding, memory, memory, memory, NULL, 0);
    table_copy(r.table, encoding, whole, whole, "layer 0");
    mica__commands *commands = end(&r, encoding);
    run(&r, commands);
    run(&r, commands);
    must(r.table->timestamps(r.device, false, entries, 8, &count));
    assert_int_equal(count, 4);
    assert_string_equal(entries[0].kernel, "rig/fake_add");
    assert_string_equal(entries[0].label, "");
    assert_int_equal(entries[0].op, MICA_OP_ADD);
    assert_string_equal(entries[1].kernel, "copy_bytes");
    assert_string_equal(entries[1].label, "layer 0");
    assert_int_equal(entries[3].index, 1);
    assert_int_equal(entries[3].submission, 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(entries[i].end_ns >= entries[i].begin_ns &&
                    (i == 0 || entries[i].begin_ns >= entries[i - 1].begin_ns));
    assert_int_equal(fake_get_counts().graphs, 0); /* timed: one at a time */
    run(&r, commands);
    assert_int_equal(fake_get_counts().graphs, 1);
    r.table->commands_destroy(r.device, commands);
    r.table->buffer_destroy(r.device, memory);
    closed(&r);
}

/* ---- a lost device ---- */

static void test_lost(void **state)
{
    mica__completion done;
    mica__memory *other = NULL;
    mica__encoding *encoding = NULL;
    mica__queue *queue = NULL;
    uint64_t value = 0;
    rig second;
    (void)state;
    rig r = opened();
    must(rig_open_index(&second, 1));
    mica__memory *memory = memory_of(&r, NULL, 4);
    encoding = begin(&r, MICA__ENCODE_REUSABLE);
    rig_add(&r, encoding, memory, memory, memory, NULL, 0);
    mica__commands *commands = end(&r, encoding);
    fake_slow(1000000);
    must(r.table->submit(r.device, NULL, commands, &value));
    fake_lose(0);
    refused(r.table->wait(r.device, NULL, value, FOREVER, &done), MICA_ERR_DEVICE_LOST, "cuda:0");
    refused(r.table->submit(r.device, NULL, commands, &value), MICA_ERR_DEVICE_LOST, "lost");
    refused(r.table->buffer_create(r.device, 4, &other), MICA_ERR_DEVICE_LOST, "lost");
    refused(r.table->upload(r.device, memory, 0, &value, 4), MICA_ERR_DEVICE_LOST, "lost");
    refused(r.table->encoder_begin(r.device, 0, &encoding), MICA_ERR_DEVICE_LOST, "lost");
    refused(r.table->queue_create(r.device, &queue), MICA_ERR_DEVICE_LOST, "lost");
    fake_slow(0);
    mica__memory *fine = memory_of(&second, NULL, 4); /* the other one works */
    encoding = begin(&second, 0);
    rig_add(&second, encoding, fine, fine, fine, NULL, 0);
    run(&second, end(&second, encoding));
    second.table->buffer_destroy(second.device, fine);
    rig_close(&second);
    r.table->commands_destroy(r.device, commands);
    r.table->buffer_destroy(r.device, memory);
    closed(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),           cmocka_unit_test(test_no_such_device),
        cmocka_unit_test(test_transfers),       cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_programs),        cmocka_unit_test(test_refused_programs),
        cmocka_unit_test(test_newer_compilers), cmocka_unit_test(test_one_shot),
        cmocka_unit_test(test_limits),          cmocka_unit_test(test_edges),
        cmocka_unit_test(test_barriers),        cmocka_unit_test(test_early),
        cmocka_unit_test(test_faults),          cmocka_unit_test(test_replay),
        cmocka_unit_test(test_many_faults),     cmocka_unit_test(test_queues),
        cmocka_unit_test(test_times),           cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests_name("the CUDA backend over a stand-in", tests, NULL, NULL);
}
