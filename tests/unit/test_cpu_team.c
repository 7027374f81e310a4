/* The cpu's team: lists, steps, threads, waiting, cancelling, forking, through the backend's own table. */
#include <fenv.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "cpu_rig.h"

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

#define ROUNDS (UNDER_TSAN ? 20 : 120)

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 33) % n;
}

static void nap(long ns)
{
    const struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

/* ---- random lists: every unit once, steps never overlap ---- */

#define MAX_STEPS 24
#define MAX_UNITS 4096

typedef struct graph {
    _Atomic uint64_t finished[MAX_STEPS]; /* units */
    uint64_t expected[MAX_STEPS];         /* units of one run */
    uint64_t runs;                        /* that ended before this one */
    _Atomic uint32_t errors;
    uint32_t steps;
    uint32_t count; /* of units in `seen` */
    unsigned char seen[MAX_UNITS];
} graph;

typedef struct node {
    graph *graph;
    uint32_t step, first; /* place of its units in `seen` */
} node;

static void run_node(const mica_host_binding *bindings, uint32_t binding_count, const void *params,
                     uint32_t first, uint32_t last)
{
    const node *n = params;
    graph *g = n->graph;
    (void)bindings;
    if (binding_count != 0 || first >= last)
        atomic_fetch_add(&g->errors, 1);
    if (n->step > 0 && atomic_load(&g->finished[n->step - 1]) != g->expected[n->step - 1] * (g->runs + 1))
        atomic_fetch_add(&g->errors, 1);
    if (n->step + 1 < g->steps &&
        atomic_load(&g->finished[n->step + 1]) != g->expected[n->step + 1] * g->runs)
        atomic_fetch_add(&g->errors, 1);
    for (uint32_t i = first; i < last; i++)
        g->seen[n->first + i]++; /* plain on purpose: two threads here are a race that a sanitizer sees */
    atomic_fetch_add(&g->finished[n->step], last - first);
}

/* Barriers at random places, some of them doubled; steps of one to six dispatches. */
static void encode_graph(rig *r, mica__encoding *encoding, mica__kernel *kernel, graph *g, uint64_t *state)
{
    memset(g, 0, sizeof *g);
    g->steps = 1 + random_below(state, MAX_STEPS - 1);
    for (uint32_t step = 0; step < g->steps; step++) {
        const uint32_t dispatches = 1 + random_below(state, 6);
        for (uint32_t i = 0; i < dispatches; i++) {
            const uint32_t units = 1 + random_below(state, random_below(state, 2) != 0 ? 3 : 25);
            const node n = {g, step, g->count};
            add(r, encoding, kernel, units, random_below(state, 5), &n, sizeof n);
            g->count += units;
            g->expected[step] += units;
        }
        r->table->barrier(encoding);
        if (random_below(state, 4) == 0)
            r->table->barrier(encoding);
    }
    assert_true(g->count <= MAX_UNITS);
}

static void check_graph(const graph *g, uint32_t runs)
{
    assert_int_equal(atomic_load(&g->errors), 0);
    for (uint32_t i = 0; i < g->count; i++)
        assert_int_equal(g->seen[i], runs);
    for (uint32_t i = 0; i < g->steps; i++)
        assert_int_equal(atomic_load(&g->finished[i]), g->expected[i] * runs);
}

/* Random lists, each run some times and looked at. */
static void run_lists(rig *r, uint32_t rounds)
{
    mica__kernel kernel = host_kernel("node", run_node);
    for (uint32_t round = 0; round < rounds; round++) {
        graph g;
        mica__encoding *encoding = begin(r, MICA__ENCODE_REUSABLE);
        encode_graph(r, encoding, &kernel, &g, &random_state);
        mica__commands *commands = end(r, encoding);
        const uint32_t runs = 1 + random_below(&random_state, 5);
        for (uint32_t i = 0; i < runs; i++) {
            g.runs = i;
            const uint64_t value = submit(r, NULL, commands);
            const mica__completion done = wait_for(r, NULL, value);
            assert_int_equal(done.status, MICA_OK);
            assert_int_equal(done.fault, 0);
            assert_true(done.begin_ns <= done.end_ns);
        }
        check_graph(&g, runs);
        r->table->commands_destroy(r->device, commands);
    }
}

static void test_random_lists(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        rig r = open_rig(threads);
        run_lists(&r, ROUNDS);
        close_rig(&r);
    }
}

/* Step tags have 32 bits: as after 2^28 steps in which some slot had no work, and across the end of the range. */
static void test_tags_wrap(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        rig r = open_rig(threads);
        r.device->team.next_tag = UINT32_MAX - 50;
        run_lists(&r, 10);
        for (uint32_t i = 0; i < 20; i++) {
            r.device->team.next_tag += 1u << 28;
            run_lists(&r, 2);
        }
        close_rig(&r);
    }
}

/* ---- more submissions than places, nobody waits until the end ---- */

static void test_many_pending(void **state)
{
    mica__kernel kernel = host_kernel("count", count_units);
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        rig r = open_rig(threads);
        _Atomic uint64_t counter = 0;
        uint64_t value = 0;
        for (uint32_t i = 1; i <= 300; i++) {
            mica__encoding *encoding = begin(&r, 0);
            add_count(&r, encoding, &kernel, 7, &counter);
            value = submit(&r, NULL, end(&r, encoding));
            assert_int_equal(value, i);
        }
        wait_for(&r, NULL, value);
        assert_int_equal(atomic_load(&counter), 300 * 7);
        /* old values are known to be done, values not given out are refused */
        assert_int_equal(wait_for(&r, NULL, 1).status, MICA_OK);
        mica__completion completion;
        assert_int_equal(r.table->wait(r.device, NULL, 301, 0, &completion), MICA_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(mica_status_message(), "301"));
        close_rig(&r);
    }
}

/* ---- several threads submit and wait on one device ---- */

typedef struct submitter {
    rig *r;
    uint64_t seed;
    bool own_queue;
    uint32_t failures;
} submitter;

static void *submit_loop(void *argument)
{
    submitter *s = argument;
    rig *r = s->r;
    mica__kernel kernel = host_kernel("node", run_node);
    mica__queue *queue = NULL;
    graph *g = calloc(1, sizeof *g);
    if (g == NULL || (s->own_queue && r->table->queue_create(r->device, &queue) != MICA_OK)) {
        s->failures++;
        free(g);
        return NULL;
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        mica__encoding *encoding = NULL;
        mica__commands *commands = NULL;
        mica__completion completion;
        uint64_t value;
        s->failures += r->table->encoder_begin(r->device, 0, &encoding) != MICA_OK;
        encode_graph(r, encoding, &kernel, g, &s->seed);
        s->failures += r->table->encoder_end(encoding, false, &commands) != MICA_OK;
        s->failures += r->table->submit(r->device, queue, commands, &value) != MICA_OK;
        while (r->table->wait(r->device, queue, value, random_below(&s->seed, 20000), &completion) ==
               MICA_ERR_TIMEOUT)
            ;
        s->failures += completion.status != MICA_OK || atomic_load(&g->errors) != 0;
        for (uint32_t i = 0; i < g->count; i++)
            s->failures += g->seen[i] != 1;
    }
    r->table->queue_destroy(r->device, queue);
    free(g);
    return NULL;
}

static void test_many_submitters(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        rig r = open_rig(threads);
        submitter submitters[4];
        pthread_t handles[4];
        for (uint32_t i = 0; i < 4; i++) {
            submitters[i] = (submitter){&r, 77 + 13 * i + threads, i % 2 == 0, 0};
            assert_int_equal(pthread_create(&handles[i], NULL, submit_loop, &submitters[i]), 0);
        }
        for (uint32_t i = 0; i < 4; i++) {
            pthread_join(handles[i], NULL);
            assert_int_equal(submitters[i].failures, 0);
        }
        close_rig(&r);
    }
}

/* ---- waiting, polling, cancelling ---- */

typedef struct gate {
    _Atomic uint32_t open, inside;
    _Atomic uint64_t units;
} gate;

static void pass_gate(const mica_host_binding *bindings, uint32_t binding_count, const void *params,
                      uint32_t first, uint32_t last)
{
    gate *g;
    (void)bindings;
    (void)binding_count;
    memcpy(&g, params, sizeof g);
    atomic_store(&g->inside, 1);
    while (atomic_load(&g->open) == 0)
        nap(100000);
    atomic_fetch_add(&g->units, last - first);
}

static void test_poll_and_timeout(void **state)
{
    mica__kernel kernel = host_kernel("gate", pass_gate);
    rig r = open_rig(2);
    gate g = {0, 0, 0}, *pointer = &g;
    mica__completion completion;
    (void)state;
    mica__encoding *encoding = begin(&r, 0);
    add(&r, encoding, &kernel, 1, 1, &pointer, sizeof pointer);
    const uint64_t value = submit(&r, NULL, end(&r, encoding));
    while (atomic_load(&g.inside) == 0)
        nap(10000); /* the helper has it: from now on a wait cannot get stuck in the kernel itself */
    mica__fail(MICA_ERR_STATE, "what was said before");
    assert_int_equal(r.table->wait(r.device, NULL, value, 0, &completion), MICA_ERR_TIMEOUT);
    assert_int_equal(r.table->wait(r.device, NULL, value, 2000000, &completion), MICA_ERR_TIMEOUT);
    assert_string_equal(mica_status_message(),
                        "what was said before"); /* polling leaves the sentence alone */
    atomic_store(&g.open, 1);
    assert_int_equal(wait_for(&r, NULL, value).status, MICA_OK);
    assert_int_equal(atomic_load(&g.units), 1);
    assert_int_equal(r.table->wait(r.device, NULL, value, 0, &completion), MICA_OK);
    close_rig(&r);
}

/* Nobody works along: threads that have gone to sleep must come for it. */
static void test_parked_threads_wake(void **state)
{
    mica__kernel kernel = host_kernel("count", count_units);
    rig r = open_rig(3);
    _Atomic uint64_t counter = 0;
    (void)state;
    for (uint32_t round = 1; round <= 10; round++) {
        mica__completion completion;
        mica_status status = MICA_ERR_TIMEOUT;
        mica__encoding *encoding = begin(&r, 0);
        add_count(&r, encoding, &kernel, 20, &counter);
        const uint64_t value = submit(&r, NULL, end(&r, encoding));
        for (uint32_t i = 0; i < 10000 && status == MICA_ERR_TIMEOUT; i++) {
            status = r.table->wait(r.device, NULL, value, 0, &completion);
            nap(1000000);
        }
        assert_int_equal(status, MICA_OK);
        assert_int_equal(atomic_load(&counter), 20 * round);
        nap(20000000);
    }
    close_rig(&r);
}

static void test_cancel(void **state)
{
    mica__kernel kernel = host_kernel("gate", pass_gate);
    mica__kernel counting = host_kernel("count", count_units);
    rig r = open_rig(3);
    gate g = {0, 0, 0}, *pointer = &g;
    _Atomic uint64_t counter = 0;
    (void)state;
    mica__encoding *encoding = begin(&r, 0);
    add(&r, encoding, &kernel, 1000, 1, &pointer, sizeof pointer);
    r.table->barrier(encoding);
    add_count(&r, encoding, &counting, 5, &counter);
    const uint64_t value = submit(&r, NULL, end(&r, encoding));
    encoding = begin(&r, 0);
    add_count(&r, encoding, &counting, 11, &counter);
    const uint64_t next = submit(&r, NULL, end(&r, encoding));
    while (atomic_load(&g.inside) == 0)
        nap(10000);
    assert_int_equal(r.table->cancel(r.device, NULL, value), MICA_OK);
    atomic_store(&g.open, 1);
    assert_int_equal(wait_for(&r, NULL, value).status, MICA_ERR_CANCELLED);
    assert_true(atomic_load(&g.units) <= 2); /* what the two helpers had begun */
    assert_int_equal(wait_for(&r, NULL, next).status, MICA_OK);
    assert_int_equal(atomic_load(&counter), 11);
    assert_int_equal(r.table->cancel(r.device, NULL, value), MICA_OK); /* done: nothing happens */
    assert_int_equal(wait_for(&r, NULL, value).status, MICA_ERR_CANCELLED);
    close_rig(&r);
}

/* ---- built-in kernels: prepare, local memory, the floating-point state ---- */

typedef struct prepared_params {
    _Atomic uint32_t *errors, *prepared, *units;
    uint32_t mark;
} prepared_params;

static void prepare_mark(const mica__cpu_args *args)
{
    const prepared_params *p = args->params;
    memset(args->local, (int)p->mark, 5000);
    atomic_fetch_add(p->prepared, 1);
}

static void run_mark(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const prepared_params *p = args->params;
    const unsigned char *local = args->local;
    if ((uintptr_t)local % 64 != 0 || local[0] != p->mark || local[4999] != p->mark)
        atomic_fetch_add(p->errors, 1);
    atomic_fetch_add(p->units, last - first);
}

/* Uses the memory without a prepare: the next prepared dispatch must not find its mark gone. */
static void run_scribble(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    (void)first;
    (void)last;
    memset(args->local, 0xee, 64);
}

static void test_prepare(void **state)
{
    mica__kernel mark = {"mark", run_mark, prepare_mark, NULL},
                 scribble = {"scribble", run_scribble, NULL, NULL};
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        rig r = open_rig(threads);
        _Atomic uint32_t errors = 0, prepared = 0, units = 0;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            mica__encoding *encoding = begin(&r, 0);
            for (uint32_t i = 0; i < 20; i++) {
                const prepared_params p = {&errors, &prepared, &units, 1 + i};
                mica__dispatch dispatch = {0};
                dispatch.kernel = i % 4 == 3 ? &scribble : &mark;
                dispatch.groups[0] = 40;
                dispatch.groups[1] = dispatch.groups[2] = 1;
                dispatch.grain = 3;
                dispatch.local_bytes = 5000;
                dispatch.params = &p;
                dispatch.params_size = sizeof p;
                r.table->dispatch(encoding, &dispatch);
                if (i % 3 == 2)
                    r.table->barrier(encoding);
            }
            wait_for(&r, NULL, submit(&r, NULL, end(&r, encoding)));
        }
        assert_int_equal(atomic_load(&errors), 0);
        assert_int_equal(atomic_load(&units), ROUNDS * 15 * 40);
        if (threads == 1)
            assert_int_equal(atomic_load(&prepared), ROUNDS * 15); /* once per thread and dispatch */
        close_rig(&r);
    }
}

/* Upward or downward rounding moves one of the two sums. fegetround would not do: it may look at another unit. */
static bool rounds_to_nearest(void)
{
    volatile double one = 1, tiny = 1e-30;
    return one + tiny == 1 && -one - tiny == -1;
}

static void check_rounding(const mica_host_binding *bindings, uint32_t binding_count, const void *params,
                           uint32_t first, uint32_t last)
{
    if (rounds_to_nearest())
        count_units(bindings, binding_count, params, first, last);
}

static void test_floating_point_state(void **state)
{
    mica__kernel kernel = host_kernel("rounding", check_rounding);
    (void)state;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        rig r = open_rig(threads);
        _Atomic uint64_t counter = 0;
        fesetround(FE_UPWARD);
        mica__encoding *encoding = begin(&r, 0);
        add_count(&r, encoding, &kernel, 500, &counter);
        wait_for(&r, NULL, submit(&r, NULL, end(&r, encoding)));
        const bool nearest = rounds_to_nearest();
        fesetround(FE_TONEAREST);
        assert_false(nearest); /* the caller has its own back */
        assert_int_equal(atomic_load(&counter), 500);
        close_rig(&r);
    }
}

/* ---- a child after fork ---- */

static int in_child(rig *r, uint64_t in_flight)
{
    mica__kernel kernel = host_kernel("count", count_units);
    mica__completion completion;
    _Atomic uint64_t counter = 0, *pointer = &counter;
    if (r->table->wait(r->device, NULL, in_flight, MICA_WAIT_FOREVER, &completion) != MICA_OK)
        return 1;
    if (completion.status != MICA_ERR_DEVICE_LOST)
        return 2;
    for (uint32_t i = 0; i < 100; i++) {
        mica__encoding *encoding;
        mica__commands *commands;
        uint64_t value;
        if (r->table->encoder_begin(r->device, 0, &encoding) != MICA_OK)
            return 3;
        add(r, encoding, &kernel, 1000, 1, &pointer, sizeof pointer);
        if (r->table->encoder_end(encoding, false, &commands) != MICA_OK ||
            r->table->submit(r->device, NULL, commands, &value) != MICA_OK ||
            r->table->wait(r->device, NULL, value, MICA_WAIT_FOREVER, &completion) != MICA_OK ||
            completion.status != MICA_OK)
            return 4;
    }
    r->table->close(r->device);
    if (mica_host_allocations() != 0)
        return 5;
    return atomic_load(&counter) == 100 * 1000 ? 0 : 6;
}

static void test_fork(void **state)
{
    mica__kernel kernel = host_kernel("gate", pass_gate);
    (void)state;
    if (UNDER_TSAN)
        skip(); /* it allows no threads in the child of a threaded process */
    for (uint32_t threads = 2; threads <= 3; threads++) {
        rig r = open_rig(threads);
        gate g = {0, 0, 0}, *pointer = &g;
        int result = -1;
        mica__encoding *encoding = begin(&r, 0);
        add(&r, encoding, &kernel, 1, 1, &pointer, sizeof pointer);
        const uint64_t value = submit(&r, NULL, end(&r, encoding));
        while (atomic_load(&g.inside) == 0)
            nap(10000);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(in_child(&r, value));
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), 0);
        atomic_store(&g.open, 1);
        assert_int_equal(wait_for(&r, NULL, value).status, MICA_OK); /* the parent's is untouched */
        close_rig(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_lists),
        cmocka_unit_test(test_tags_wrap),
        cmocka_unit_test(test_many_pending),
        cmocka_unit_test(test_many_submitters),
        cmocka_unit_test(test_poll_and_timeout),
        cmocka_unit_test(test_parked_threads_wake),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_floating_point_state),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
