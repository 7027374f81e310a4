/* The kernel registry: names, specialisation keys, compiled once, replaced, failing. */
#include "device_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "device/once.h"
#include "support/meter.h"

static void noop(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                 uint32_t last)
{
    (void)bindings, (void)count, (void)params, (void)first, (void)last;
}

static void store(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                  uint32_t last)
{
    (void)count;
    for (uint32_t i = first; i < last; i++)
        ((int32_t *)bindings[0].data)[i] = *(const int32_t *)params;
}

static void store_twice(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                        uint32_t last)
{
    (void)count;
    for (uint32_t i = first; i < last; i++)
        ((int32_t *)bindings[0].data)[i] = 2 * *(const int32_t *)params;
}

static mica_registry_stats stats_of(mica_device *device)
{
    mica_registry_stats stats;
    must(mica_device_get_registry(device, &stats));
    return stats;
}

static void constants_make_the_key(void **state)
{
    (void)state;
    const char *ids[] = {"cpu", "null"};
    for (int d = 0; d < 2; d++) {
        mica_device *device = open_device(ids[d], 1);
        mica_kernel *plain = host_kernel(device, "scale", noop), *one = NULL, *other = NULL, *third = NULL;
        mica_constant ab[2] = {{"beta", -7}, {"alpha", 3}}, ba[2] = {{"alpha", 3}, {"beta", -7}};
        mica_constant changed[2] = {{"alpha", 4}, {"beta", -7}};
        uint64_t before = stats_of(device).compilations;
        must(mica_kernel_get(device, "scale", ab, 2, &one));
        must(mica_kernel_get(device, "scale", ba, 2, &other));
        must(mica_kernel_get(device, "scale", changed, 2, &third));
        assert_string_equal(mica_kernel_key(plain), "scale");
        assert_string_equal(mica_kernel_key(one), "scale|alpha=3|beta=-7");
        assert_string_equal(mica_kernel_key(other), mica_kernel_key(one));
        assert_string_equal(mica_kernel_key(third), "scale|alpha=4|beta=-7");
        assert_int_equal(stats_of(device).compilations, before + 2);
        assert_true(mica_kernel_is_cached(device, "scale"));
        assert_false(mica_kernel_is_cached(device, "scal"));
        mica_kernel_release(plain);
        mica_kernel_release(one);
        mica_kernel_release(other);
        mica_kernel_release(third);
        mica_kernel_release(NULL);
        mica_device_release(device);
    }
}

static void every_op_has_a_name(void **state)
{
    (void)state;
    for (uint32_t op = 1; op < MICA_OP_COUNT; op++) {
        mica_op_info info;
        must(mica_op_get_info((mica_op)op, &info));
        assert_string_equal(mica_op_name((mica_op)op), info.name);
        for (uint32_t other = 0; other < op; other++)
            assert_string_not_equal(mica_op_name((mica_op)other), info.name);
    }
    assert_string_equal(mica_op_name(MICA_OP_NONE), "none");
    assert_string_equal(mica_op_name(MICA_OP_COUNT), "none");
}

static void compiled_on_first_use(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_kernel_desc desc = {.name = "lazy", .host = noop};
    mica_registry_stats start = stats_of(device), stats;
    assert_true(start.rows > 0);
    must(mica_kernel_register(device, &desc));
    stats = stats_of(device);
    assert_int_equal(stats.registered, start.registered + 1);
    assert_int_equal(stats.compilations, start.compilations);
    assert_false(mica_kernel_is_cached(device, "lazy"));
    mica_kernel *kernel[3];
    for (int i = 0; i < 3; i++)
        must(mica_kernel_get(device, "lazy", NULL, 0, &kernel[i]));
    stats = stats_of(device);
    assert_int_equal(stats.compilations, start.compilations + 1);
    assert_int_equal(stats.cached, start.cached + 1);
    assert_int_equal(stats.lookups, start.lookups + 3);
    for (int i = 0; i < 3; i++)
        mica_kernel_release(kernel[i]);
    assert_true(mica_kernel_is_cached(device, "lazy")); /* the registry keeps it */
    mica_device_release(device);
}

static void run_store(mica_device *device, mica_kernel *kernel, mica_buffer *buffer, int32_t value,
                      int32_t wanted)
{
    mica_encoder *encoder = NULL;
    mica_binding binding = {buffer, MICA_ACCESS_WRITE};
    mica_dispatch_desc dispatch = {.kernel = kernel,
                                   .groups = {4, 1, 1},
                                   .bindings = &binding,
                                   .binding_count = 1,
                                   .params = &value,
                                   .params_size = sizeof value};
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_encoder_dispatch(encoder, &dispatch));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    int32_t back[4];
    must(mica_buffer_read(buffer, 0, back, sizeof back));
    for (int i = 0; i < 4; i++)
        assert_int_equal(back[i], wanted);
}

static void replacing_leaves_old_handles_alone(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_I32, 4);
    mica_constant constant = {"n", 1};
    mica_kernel *first = host_kernel(device, "store", store), *special = NULL;
    must(mica_kernel_get(device, "store", &constant, 1, &special));
    run_store(device, first, buffer, 5, 5);
    mica_kernel *second = host_kernel(device, "store", store_twice); /* registers the name again */
    run_store(device, second, buffer, 5, 10);
    run_store(device, first, buffer, 6, 6);
    run_store(device, special, buffer, 7, 7);
    mica_kernel_release(special);
    must(mica_kernel_get(device, "store", &constant, 1, &special)); /* its specialisations were dropped too */
    run_store(device, special, buffer, 7, 14);
    mica_kernel_release(special);
    mica_kernel_release(first);
    mica_kernel_release(second);
    mica_buffer_release(buffer);
    mica_device_release(device);
}

/* A handle keeps the device, and so itself, alive. */
static void kernels_outlive_their_device_handle(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_kernel *kernel = host_kernel(device, "noop", noop);
    mica_device_release(device);
    assert_string_equal(mica_kernel_key(kernel), "noop");
    mica_kernel_release(kernel);
}

static void wrong_names_and_constants_are_refused(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_kernel *kernel = (mica_kernel *)&device;
    mica_kernel_desc desc = {.name = "k", .host = noop}, text = {.name = "t", .source = "text"};
    mica_constant nameless = {NULL, 1}, empty = {"", 1};
    mica_registry_stats stats;
    refused(mica_kernel_get(device, "no such kernel", NULL, 0, &kernel), MICA_ERR_KERNEL_NOT_FOUND,
            "no such kernel");
    assert_null(kernel);
    must(mica_kernel_register(device, &desc));
    refused(mica_kernel_get(device, "k", &nameless, 1, &kernel), MICA_ERR_INVALID_ARGUMENT, "constants[0]");
    refused(mica_kernel_get(device, "k", &empty, 1, &kernel), MICA_ERR_INVALID_ARGUMENT, "constants[0]");
    refused(mica_kernel_get(device, "k", NULL, 1, &kernel), MICA_ERR_INVALID_ARGUMENT, "constants");
    refused(mica_kernel_get(device, NULL, NULL, 0, &kernel), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_kernel_get(NULL, "k", NULL, 0, &kernel), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_kernel_get(device, "k", NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "out_kernel");
    refused(mica_kernel_register(device, &text), MICA_ERR_INVALID_ARGUMENT, "t");
    desc.name = NULL;
    refused(mica_kernel_register(device, &desc), MICA_ERR_INVALID_ARGUMENT, "name");
    desc.name = "a|b";
    refused(mica_kernel_register(device, &desc), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_kernel_register(device, NULL), MICA_ERR_INVALID_ARGUMENT, "desc");
    refused(mica_kernel_register(NULL, &text), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_get_registry(NULL, &stats), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_get_registry(device, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    assert_string_equal(mica_kernel_key(NULL), "");
    assert_int_equal(mica_kernel_is_cached(NULL, "k"), 0);
    mica_device_release(device);
}

static void a_failed_compilation_is_tried_again(void **state)
{
    (void)state;
    mica_device *device = open_device("null", 1);
    mica_kernel_desc desc = {.name = "fragile", .host = noop};
    mica_null_faults faults = {.fail_compile = 1};
    mica_kernel *kernel = NULL;
    must(mica_kernel_register(device, &desc));
    must(mica_null_inject(device, &faults));
    assert_int_equal(mica_kernel_get(device, "fragile", NULL, 0, &kernel), MICA_ERR_KERNEL_COMPILATION);
    assert_null(kernel);
    assert_false(mica_kernel_is_cached(device, "fragile"));
    must(mica_kernel_get(device, "fragile", NULL, 0, &kernel));
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void *ask_for_kernels(void *argument)
{
    mica_device *device = argument;
    for (int64_t round = 0; round < 200; round++) {
        mica_constant constant = {"n", round % 10};
        mica_kernel *kernel = NULL;
        if (mica_kernel_get(device, "shared", &constant, 1, &kernel) != MICA_OK)
            return NULL;
        mica_kernel_release(kernel);
    }
    return device;
}

static void threads_compile_once(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_kernel_desc desc = {.name = "shared", .host = noop};
    must(mica_kernel_register(device, &desc));
    uint64_t before = stats_of(device).compilations;
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask_for_kernels, device), 0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(thread[i], &result), 0);
        assert_ptr_equal(result, device);
    }
    assert_int_equal(stats_of(device).compilations, before + 10);
    mica_device_release(device);
}

/* ---- made once: src/device/once.h, which no public call shows ---- */

typedef struct maker {
    mica__once once;
    _Atomic uint32_t inside, most_inside, made;
    uint32_t wait_for; /* makers that must be inside at once before any goes on */
    mica_status status;
} maker;

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

static mica_status make(void *context, const char *key, void **out)
{
    maker *m = context;
    const uint32_t inside = atomic_fetch_add(&m->inside, 1) + 1;
    if (inside > atomic_load(&m->most_inside))
        atomic_store(&m->most_inside, inside);
    for (uint32_t i = 0; i < 500 && atomic_load(&m->most_inside) < m->wait_for; i++)
        sleep_ms(10);
    sleep_ms(5);
    atomic_fetch_sub(&m->inside, 1);
    atomic_fetch_add(&m->made, 1);
    *out = m->status == MICA_OK ? m : NULL;
    if (m->status != MICA_OK)
        mica__fail(m->status, "%s", key);
    return m->status;
}

typedef struct asker {
    maker *maker;
    const char *key;
    pthread_t thread;
    mica_status status;
    void *value;
    char sentence[64];
} asker;

static void *ask(void *context)
{
    asker *a = context;
    a->status = mica__once_get(&a->maker->once, a->key, make, a->maker, &a->value);
    snprintf(a->sentence, sizeof a->sentence, "%.60s", a->status == MICA_OK ? "" : mica_status_message());
    return NULL;
}

static void ask_all(asker *all, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, ask, &all[i]), 0);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(all[i].thread, NULL), 0);
}

static void nothing(void *context, void *value)
{
    (void)context, (void)value;
}

/* Neither of two threads that want two things waits for the other. */
static void two_things_are_made_at_once(void **state)
{
    (void)state;
    maker m = {.wait_for = 2, .status = MICA_OK};
    asker all[2] = {{.maker = &m, .key = "one"}, {.maker = &m, .key = "two"}};
    must(mica__once_init(&m.once));
    ask_all(all, 2);
    assert_int_equal(m.most_inside, 2);
    assert_int_equal(m.made, 2);
    assert_true(all[0].value == &m && all[1].value == &m);
    mica__once_free(&m.once, nothing, NULL);
}

static void one_thing_is_made_once(void **state)
{
    (void)state;
    maker m = {.status = MICA_OK};
    asker all[6];
    for (uint32_t i = 0; i < 6; i++)
        all[i] = (asker){.maker = &m, .key = "one"};
    must(mica__once_init(&m.once));
    ask_all(all, 6);
    assert_int_equal(m.made, 1);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(all[i].status == MICA_OK && all[i].value == &m);
    assert_ptr_equal(mica__once_find(&m.once, "one"), &m);
    assert_null(mica__once_find(&m.once, "two"));
    mica__once_free(&m.once, nothing, NULL);
}

/* Who waits for a thing that cannot be made is told why; who asks later has it tried again. */
static void a_failure_is_given_to_all(void **state)
{
    (void)state;
    maker m = {.status = MICA_ERR_KERNEL_COMPILATION};
    asker all[6];
    void *value = NULL;
    for (uint32_t i = 0; i < 6; i++)
        all[i] = (asker){.maker = &m, .key = "bad key"};
    must(mica__once_init(&m.once));
    ask_all(all, 6);
    assert_true(m.made >= 1 && m.made <= 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(all[i].status, MICA_ERR_KERNEL_COMPILATION);
        assert_null(all[i].value);
        assert_string_equal(all[i].sentence, "bad key");
    }
    assert_int_equal(mica__once_count(&m.once), 0);
    m.status = MICA_OK;
    must(mica__once_get(&m.once, "bad key", make, &m, &value));
    assert_ptr_equal(value, &m);
    mica__once_free(&m.once, nothing, NULL);
}

/* In the child of a fork nobody is making what a thread of the parent was: it is made anew. */
static void a_child_makes_what_was_under_way(void **state)
{
    (void)state;
    maker m = {.wait_for = 2, .status = MICA_OK};
    asker first = {.maker = &m, .key = "one"}, second = {.maker = &m, .key = "two"};
    int result = 0;
    must(mica__once_init(&m.once));
    assert_int_equal(pthread_create(&first.thread, NULL, ask, &first), 0);
    while (atomic_load(&m.inside) == 0)
        sleep_ms(1);
    const pid_t child = fork();
    if (child == 0) {
        void *value = NULL;
        alarm(10);
        m.wait_for = 0;
        const bool good = mica__once_get(&m.once, "one", make, &m, &value) == MICA_OK && value == &m &&
                          mica__once_count(&m.once) == 1;
        mica__once_free(&m.once, nothing, NULL);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    ask_all(&second, 1); /* lets the first go on */
    assert_int_equal(pthread_join(first.thread, NULL), 0);
    assert_true(first.value == &m && second.value == &m);
    mica__once_free(&m.once, nothing, NULL);
}

static mica_status copy_key(void *context, const char *key, void **out)
{
    (void)context;
    *out = strdup(key);
    return *out != NULL ? MICA_OK : MICA_ERR_OUT_OF_MEMORY;
}

/* Every third fails, after the next one was made: what is taken out then has others behind it. */
static mica_status refuse_some(void *context, const char *key, void **out)
{
    const unsigned long number = strtoul(key, NULL, 10);
    char next[32];
    void *value = NULL;
    if (number % 3 != 0)
        return copy_key(context, key, out);
    snprintf(next, sizeof next, "%lu|A=%lu", number + 1, (number + 1) / 7);
    must(mica__once_get(context, next, copy_key, NULL, &value));
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s", key);
}

static void free_value(void *context, void *value)
{
    (void)context;
    free(value);
}

/* Thousands of keys, a third of which fail and leave no trace: all others are found. */
static void keys_are_found_among_many(void **state)
{
    enum { KEYS = 3000 };
    (void)state;
    mica__once once;
    char key[32];
    must(mica__once_init(&once));
    for (uint32_t i = 0; i < KEYS; i++) {
        void *value = NULL;
        snprintf(key, sizeof key, "%u|A=%u", i, i / 7);
        assert_int_equal(mica__once_get(&once, key, refuse_some, &once, &value),
                         i % 3 == 0 ? MICA_ERR_UNSUPPORTED : MICA_OK);
    }
    assert_int_equal(mica__once_count(&once), KEYS - KEYS / 3);
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%u|A=%u", i, i / 7);
        const char *value = mica__once_find(&once, key);
        if (i % 3 == 0)
            assert_null(value);
        else
            assert_string_equal(value, key);
    }
    mica__once_free(&once, free_value, NULL);
}

static void no_memory_for_a_key(void **state)
{
    (void)state;
    test_meter meter = {0};
    mica__once once;
    void *value = NULL;
    must(test_meter_set(&meter));
    must(mica__once_init(&once));
    for (uint64_t allowed = 0; allowed < 2; allowed++) {
        test_meter_allow(&meter, allowed);
        refused(mica__once_get(&once, "key", copy_key, NULL, &value), MICA_ERR_OUT_OF_MEMORY, "key");
        assert_null(value);
    }
    test_meter_allow(&meter, UINT64_MAX);
    must(mica__once_get(&once, "key", copy_key, NULL, &value));
    mica__once_free(&once, free_value, NULL);
    must(mica_set_allocator(NULL));
}

/* While some register a name again and again, others compile it: nobody gets a kernel that is gone. */
static void *register_again(void *argument)
{
    const mica_kernel_desc desc = {.name = "shared", .host = noop};
    for (uint32_t round = 0; round < 100; round++)
        if (mica_kernel_register(argument, &desc) != MICA_OK)
            return NULL;
    return argument;
}

static void names_are_replaced_while_they_are_compiled(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    pthread_t thread[4];
    assert_ptr_equal(register_again(device), device);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, i < 2 ? ask_for_kernels : register_again, device),
                         0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(thread[i], &result), 0);
        assert_ptr_equal(result, device);
    }
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(every_op_has_a_name),
        test(constants_make_the_key),
        test(compiled_on_first_use),
        test(replacing_leaves_old_handles_alone),
        test(kernels_outlive_their_device_handle),
        test(wrong_names_and_constants_are_refused),
        test(a_failed_compilation_is_tried_again),
        test(threads_compile_once),
        test(two_things_are_made_at_once),
        test(one_thing_is_made_once),
        test(a_failure_is_given_to_all),
        test(a_child_makes_what_was_under_way),
        test(keys_are_found_among_many),
        test(no_memory_for_a_key),
        test(names_are_replaced_while_they_are_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
