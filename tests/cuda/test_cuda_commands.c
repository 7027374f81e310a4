/* test_cuda_commands.c - the CUDA backend's table over the stand-in: commands, graphs, faults, parameters. */
#include "cuda_rig.h"

#include "support/random.h"

/* ---- commands ---- */

#define COUNT 33u

static void test_one_shot(void **state)
{
    float a[COUNT], b[COUNT], y[COUNT];
    (void)state;
    rig r = rig_opened();
    test_random random = test_random_from(2);
    for (uint32_t i = 0; i < COUNT; i++) {
        a[i] = (float)test_random_normal(&random);
        b[i] = (float)test_random_normal(&random);
    }
    mica__memory *in = rig_memory(&r, a, COUNT), *other = rig_memory(&r, b, COUNT);
    mica__memory *sum = rig_memory(&r, NULL, COUNT), *copy = rig_memory(&r, NULL, COUNT);
    for (uint32_t round = 0; round < 20; round++) {
        mica__encoding *encoding = rig_begin(&r, 0);
        rig_add(&r, encoding, in, other, sum, NULL, 0);
        r.table->barrier(encoding);
        table_copy(r.table, encoding, rig_whole(sum, 1), rig_whole(copy, 2), NULL);
        const mica__completion done = rig_run(&r, rig_end(&r, encoding));
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
    rig_closed(&r);
}

static void refuse_dispatch(rig *r, const mica__dispatch *dispatch, const char *word)
{
    mica__encoding *encoding = rig_begin(r, 0);
    mica__commands *commands = NULL;
    r->table->dispatch(encoding, dispatch);
    refused(r->table->encoder_end(encoding, false, &commands), MICA_ERR_INVALID_ARGUMENT, word);
    assert_null(commands);
}

static void test_limits(void **state)
{
    (void)state;
    rig r = rig_opened();
    mica__memory *memory = rig_memory(&r, NULL, 4);
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
    mica__encoding *encoding = rig_begin(&r, 0);
    r.table->dispatch(encoding, &bad);
    rig_run(&r, rig_end(&r, encoding));
    encoding = rig_begin(&r, 0);
    table_copy(r.table, encoding, binding, (mica__binding){memory, 0, 4, 2}, NULL);
    mica__commands *commands = NULL;
    refused(r.table->encoder_end(encoding, false, &commands), MICA_ERR_INVALID_ARGUMENT, "copy");
    encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
    r.table->dispatch(encoding, &good);
    must(r.table->encoder_end(encoding, true, &commands)); /* dropped */
    assert_null(commands);
    r.table->buffer_destroy(r.device, memory);
    rig_closed(&r);
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
    mica__memory *memory = rig_memory(r, NULL, 4);
    mica__encoding *encoding = rig_begin(r, MICA__ENCODE_REUSABLE);
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
    mica__commands *commands = rig_end(r, encoding);
    const uint32_t edges = fake_edges(found, 4096, &nodes);
    assert_int_equal(nodes, count);
    assert_int_equal(edges, expected_edges(depends, count, edge));
    for (uint32_t i = 0; i < edges; i++)
        assert_true(edge[found[i][1]][found[i][0]]);
    rig_run(r, commands);
    r->table->commands_destroy(r->device, commands);
    r->table->buffer_destroy(r->device, memory);
}

static void test_edges(void **state)
{
    (void)state;
    rig r = rig_opened();
    test_random random = test_random_from(3);
    for (uint32_t round = 0; round < 50; round++)
        check_graph(&r, &random, 1 + (uint32_t)test_random_below(&random, MOST_NODES));
    rig_closed(&r);
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
    rig r = rig_opened();
    mica__memory *memory = rig_memory(&r, NULL, 4);
    const mica__binding whole = rig_whole(memory, 3);
    mica__encoding *encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
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
    mica__commands *commands = rig_end(&r, encoding);
    const uint32_t count = fake_edges(found, 64, &nodes);
    assert_int_equal(nodes, 7);
    assert_int_equal(count, 6);
    assert_true(has_edge(found, count, 0, 1));
    assert_true(has_edge(found, count, 1, 3));
    assert_true(has_edge(found, count, 2, 3));
    assert_true(has_edge(found, count, 3, 4));
    assert_true(has_edge(found, count, 4, 5));
    assert_true(has_edge(found, count, 5, 6));
    rig_run(&r, commands);
    r.table->commands_destroy(r.device, commands);
    r.table->buffer_destroy(r.device, memory);
    rig_closed(&r);
}

#define AHEAD (MICA_ACCESS_READ | MICA__BIND_AHEAD)

/* x -> middle -> y with weights read ahead; `writes`: a dispatch before writes these weights. Gives the edges. */
static mica__commands *chain_ahead(rig *r, mica__memory *const memory[4], bool writes)
{
    mica__encoding *encoding = rig_begin(r, MICA__ENCODE_REUSABLE);
    mica__memory *x = memory[0], *weights = memory[1], *middle = memory[2], *y = memory[3];
    rig_add(r, encoding, x, x, writes ? weights : middle, NULL, 0);
    rig_add_as(r, encoding, x, weights, AHEAD, middle, (uint32_t[]){0}, 1);
    rig_add_as(r, encoding, middle, x, AHEAD, y, (uint32_t[]){0, 1}, 2);
    return rig_end(r, encoding);
}

/* Kernels that read ahead start early, unless what they read is written before; a change of operands takes that back. */
static void test_early(void **state)
{
    const float ones[COUNT] = {1, 1};
    float back[COUNT];
    mica__memory *memory[4];
    (void)state;
    rig r = rig_opened();
    for (uint32_t i = 0; i < 4; i++)
        memory[i] = rig_memory(&r, i < 2 ? ones : NULL, COUNT);
    mica__commands *commands = chain_ahead(&r, memory, true);
    assert_int_equal(fake_early_edges(), 1); /* the last one */
    r.table->commands_destroy(r.device, commands);
    commands = chain_ahead(&r, memory, false);
    assert_int_equal(fake_early_edges(), 2);
    rig_run(&r, commands);
    const mica__binding other = rig_whole(memory[0], MICA_ACCESS_READ);
    must(r.table->commands_update(commands, 1, 0, &other)); /* not read ahead, not written: in place */
    rig_run(&r, commands);
    assert_int_equal(fake_early_edges(), 2);
    must(r.table->commands_update(commands, 1, 1, &other));
    rig_run(&r, commands);
    assert_int_equal(fake_early_edges(), 0);
    must(r.table->download(r.device, memory[3], 0, back, sizeof back));
    assert_true(back[0] == 3 && back[2] == 0);
    r.table->commands_destroy(r.device, commands);
    for (uint32_t i = 0; i < 4; i++)
        r.table->buffer_destroy(r.device, memory[i]);
    rig_closed(&r);
}

/* Replays y = a + b, then a copy of y, with operands that change between. */
static void replay(rig *r, uint32_t fail_updates)
{
    const float ones[COUNT] = {1, 1}, twos[COUNT] = {2, 2};
    float back[COUNT];
    mica__memory *one = rig_memory(r, ones, COUNT), *two = rig_memory(r, twos, COUNT);
    mica__memory *y = rig_memory(r, NULL, COUNT), *copy = rig_memory(r, NULL, COUNT),
                 *far = rig_memory(r, NULL, COUNT);
    mica__encoding *encoding = rig_begin(r, MICA__ENCODE_REUSABLE);
    rig_add(r, encoding, one, one, y, NULL, 0);
    r->table->barrier(encoding);
    table_copy(r->table, encoding, rig_whole(y, 1), rig_whole(copy, 2), NULL);
    mica__commands *commands = rig_end(r, encoding);
    for (uint32_t i = 0; i < 3; i++)
        rig_run(r, commands);
    must(r->table->download(r->device, copy, 0, back, sizeof back));
    assert_true(back[0] == 2 && back[2] == 0);
    const mica__binding other = rig_whole(two, 1), target = rig_whole(far, 2);
    if (fail_updates != 0)
        fake_fail_call(fail_updates, 1);
    must(r->table->commands_update(commands, 0, 1, &other));
    must(r->table->commands_update(commands, 1, 1, &target));
    fake_fail_call(0, 0);
    rig_run(r, commands);
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
    rig r = rig_opened();
    replay(&r, 0);
    fake_counts counts = fake_get_counts();
    assert_int_equal(counts.graphs, 4);
    assert_int_equal(counts.kernels, 0);
    assert_int_equal(counts.instantiated, 1);
    assert_int_equal(counts.updates, 2);
    replay(&r, 2); /* the driver refuses the change: the graph is made anew */
    counts = fake_get_counts();
    assert_int_equal(counts.instantiated, 3);
    rig_closed(&r);
}

/* ---- faults ---- */

static void test_faults(void **state)
{
    (void)state;
    rig r = rig_opened();
    mica__commands *reused = NULL;
    mica__encoding *encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
    rig_fault(&r, encoding, 1 + MICA_OP_EMBEDDING);
    reused = rig_end(&r, encoding);
    encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
    rig_fault(&r, encoding, 0);
    mica__commands *clean = rig_end(&r, encoding);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(rig_run(&r, reused).fault, 1 + MICA_OP_EMBEDDING);
        assert_int_equal(rig_run(&r, clean).fault, 0);
    }
    for (uint32_t i = 0; i < 10; i++) {
        encoding = rig_begin(&r, 0);
        rig_fault(&r, encoding, i % 2);
        assert_int_equal(rig_run(&r, rig_end(&r, encoding)).fault, i % 2);
    }
    r.table->commands_destroy(r.device, reused);
    r.table->commands_destroy(r.device, clean);
    rig_closed(&r);
}

/* More commands with fault words at one time than a page of them holds. */
static void test_many_faults(void **state)
{
    enum { MANY = 1100 };
    static mica__commands *commands[MANY];
    (void)state;
    rig r = rig_opened();
    for (uint32_t i = 0; i < MANY; i++) {
        mica__encoding *encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
        rig_fault(&r, encoding, i + 1);
        commands[i] = rig_end(&r, encoding);
    }
    for (uint32_t i = 0; i < MANY; i += 37)
        assert_int_equal(rig_run(&r, commands[i]).fault, i + 1);
    for (uint32_t i = 0; i < MANY; i++)
        r.table->commands_destroy(r.device, commands[i]);
    rig_closed(&r);
}

/* ---- parameters that are no arguments ---- */

/* y gets `count` words from `first` on, which come as a parameter block of that size. */
static void add_far(rig *r, mica__encoding *encoding, mica__memory *y, uint32_t first, uint32_t count)
{
    uint32_t *block = malloc(4 * (count + 1));
    const mica__binding bindings[2] = {{NULL, 0, 4 * (count + 1), MICA__BIND_PARAMS},
                                       rig_whole(y, MICA_ACCESS_WRITE)};
    const mica__dispatch dispatch = {.kernel = r->far,
                                     .groups = {1, 1, 1},
                                     .local = {32, 1, 1},
                                     .bindings = bindings,
                                     .binding_count = 2,
                                     .params = block,
                                     .params_size = 4 * (count + 1)};
    assert_non_null(block);
    block[0] = count;
    for (uint32_t i = 0; i < count; i++)
        block[1 + i] = first + i;
    r->table->dispatch(encoding, &dispatch);
    free(block);
}

static void check_far(rig *r, mica__memory *y, uint32_t first, uint32_t count)
{
    uint32_t *back = malloc(4 * count);
    assert_non_null(back);
    must(r->table->download(r->device, y, 0, back, 4 * count));
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(back[i], first + i);
    must(r->table->buffer_fill(r->device, y, 0));
    free(back);
}

static void test_far_parameters(void **state)
{
    enum { MOST = 20000 };
    static const uint32_t counts[] = {1, 600, 1500, MOST, 3};
    (void)state;
    rig r = rig_opened();
    mica__memory *y[5];
    for (uint32_t i = 0; i < 5; i++)
        must(r.table->buffer_create(r.device, 4 * MOST, &y[i]));
    mica__encoding *encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
    for (uint32_t i = 0; i < 5; i++)
        add_far(&r, encoding, y[i], 100 * i, counts[i]);
    mica__commands *reused = rig_end(&r, encoding);
    for (uint32_t round = 0; round < 3; round++) {
        rig_run(&r, reused);
        for (uint32_t i = 0; i < 5; i++)
            check_far(&r, y[i], 100 * i, counts[i]);
        encoding = rig_begin(&r, 0); /* commands, and their buffer, that are used again */
        add_far(&r, encoding, y[0], round, counts[round]);
        add_far(&r, encoding, y[1], round + 7, 5);
        rig_run(&r, rig_end(&r, encoding));
        check_far(&r, y[0], round, counts[round]);
        check_far(&r, y[1], round + 7, 5);
    }
    r.table->commands_destroy(r.device, reused);
    for (uint32_t i = 0; i < 5; i++)
        r.table->buffer_destroy(r.device, y[i]);
    rig_closed(&r);
}

/* A region has some twenty operands: more bindings than bits in a word would be as good. */
static void test_many_bindings(void **state)
{
    enum { MANY = 500 };
    static const unsigned char params[128];
    mica__binding bindings[MANY + 20];
    mica__commands *commands = NULL;
    (void)state;
    rig r = rig_opened();
    mica__memory *memory = rig_memory(&r, NULL, 4);
    for (uint32_t i = 0; i < MANY + 20; i++)
        bindings[i] = rig_whole(memory, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
    mica__program *program = NULL;
    const mica__program_desc desc = {.name = "many", .text = "MK_KERNEL(many)"};
    mica__dispatch dispatch = {.groups = {1, 1, 1}, .local = {32, 1, 1}, .bindings = bindings};
    must(r.table->program_create(r.device, &desc, &program));
    must(r.table->kernel_get(r.device, program, "many", &dispatch.kernel));
    dispatch.binding_count = MANY;
    dispatch.params = params;
    dispatch.params_size = 4096 - 8 * MANY;
    mica__encoding *encoding = rig_begin(&r, MICA__ENCODE_REUSABLE);
    r.table->dispatch(encoding, &dispatch);
    commands = rig_end(&r, encoding);
    rig_run(&r, commands);
    r.table->commands_destroy(r.device, commands);
    dispatch.params_size++;
    encoding = rig_begin(&r, 0);
    r.table->dispatch(encoding, &dispatch);
    refused(r.table->encoder_end(encoding, false, &commands), MICA_ERR_INVALID_ARGUMENT, "4096");
    dispatch.binding_count = MANY + 20;
    dispatch.params_size = 0;
    encoding = rig_begin(&r, 0);
    r.table->dispatch(encoding, &dispatch);
    refused(r.table->encoder_end(encoding, false, &commands), MICA_ERR_INVALID_ARGUMENT, "520 bindings");
    r.table->program_destroy(r.device, program);
    r.table->buffer_destroy(r.device, memory);
    rig_closed(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_shot),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_edges),          cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_early),          cmocka_unit_test(test_faults),
        cmocka_unit_test(test_replay),         cmocka_unit_test(test_many_faults),
        cmocka_unit_test(test_far_parameters), cmocka_unit_test(test_many_bindings),
    };
    return cmocka_run_group_tests_name("commands of the CUDA backend over a stand-in", tests, NULL, NULL);
}
