/* The kernel registry: names, specialisation keys, compiled once, replaced, failing. */
#include "device_test.h"

#include <pthread.h>

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
    static const char *const names[] = {
#define OP_NAME(name, text) text,
        MICA_OP_LIST(OP_NAME)
#undef OP_NAME
    };
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_string_equal(mica_op_name((mica_op)(i + 1)), names[i]);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
