/* Encoders: kernels of one's own, barriers found and placed by hand, stages, labels, bad input, two threads. */
#include "device_test.h"

#include <pthread.h>

#include "backend/region.h"
#include "device/encoder.h"

/* out[i] = in[i] + add, over the groups given. */
static void add_kernel(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                       uint32_t last)
{
    const int32_t *in = bindings[0].data;
    int32_t *out = bindings[count - 1].data;
    for (uint32_t i = first; i < last; i++)
        out[i] = in[i] + *(const int32_t *)params;
}

static mica_status dispatch_add(mica_encoder *encoder, mica_kernel *kernel, mica_buffer *in, mica_buffer *out,
                                int32_t value, uint32_t groups)
{
    mica_binding bindings[2] = {{in, MICA_ACCESS_READ}, {out, MICA_ACCESS_WRITE}};
    mica_dispatch_desc desc = {.kernel = kernel,
                               .groups = {groups, 1, 1},
                               .bindings = bindings,
                               .binding_count = 2,
                               .params = &value,
                               .params_size = sizeof value};
    mica_status status = mica_encoder_dispatch(encoder, &desc);
    value = -12345; /* parameters were copied */
    return status;
}

static mica_encoder *begin(mica_device *device)
{
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(device, NULL, &encoder));
    assert_ptr_equal(mica_encoder_device(encoder), device);
    return encoder;
}

static mica_encoder_stats stats_of(mica_encoder *encoder)
{
    mica_encoder_stats stats;
    must(mica_encoder_get_stats(encoder, &stats));
    return stats;
}

static void expect_all(mica_buffer *buffer, uint32_t count, int32_t wanted)
{
    int32_t *back = malloc(count * sizeof *back);
    must(mica_buffer_read(buffer, 0, back, count * sizeof *back));
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(back[i], wanted);
    free(back);
}

static void add_record(mica_encoder *encoder, mica_op op, const mica_buffer *x, const mica_buffer *y)
{
    mica__region_small room;
    mica__operand operand[MICA__COPY_SLOTS] = {0};
    mica__record record = {
        .op = (uint16_t)op, .label = "", .fused = "", .operand = operand, .params = &room.program};
    if (op == MICA_OP_COPY) {
        record.operand_count = MICA__COPY_SLOTS;
    } else {
        mica__region_begin(&room.program, 1, 1);
        room.program.input[0] = MICA_REGISTER_F32;
        room.program.output[0] = 0;
        record.operand_count = MICA__UNARY_SLOTS;
        record.params_size = (uint16_t)mica__region_bytes(0);
    }
    mica__operand_from(x, MICA_ACCESS_READ, &operand[0]);
    mica__operand_from(y, MICA_ACCESS_WRITE, &operand[record.operand_count - 1]);
    must(mica__encoder_add(encoder, &record));
}

/* White-box: no op adds such a record. */
static void nothing_is_no_dispatch(void **state)
{
    static const char *const ids[] = {"cpu", "opencl", "cuda"};
    static const uint64_t shape[3] = {5, 0, 7}, stride[3] = {4, 4, 20};
    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        mica_device *device = NULL;
        mica_buffer *whole, *x = NULL, *y = NULL;
        if (mica_device_open(ids[i], NULL, &device) != MICA_OK)
            continue;
        whole = new_vector(device, MICA_DTYPE_F32, 100);
        must(mica_buffer_view(whole, MICA_DTYPE_F32, 3, shape, stride, 40, &x));
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 3, shape, &y));
        mica_encoder *encoder = begin(device);
        for (int turn = 0; turn < 2; turn++) {
            add_record(encoder, MICA_OP_COPY, x, y);
            add_record(encoder, MICA_OP_COPY, y, y);
            add_record(encoder, MICA_OP_REGION, y, x);
        }
        assert_int_equal(stats_of(encoder).records, 6);
        assert_int_equal(stats_of(encoder).dispatches, 0);
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        mica_buffer_release(x);
        mica_buffer_release(y);
        mica_buffer_release(whole);
        mica_device_release(device);
    }
}

/* A chain in which each link reads what the one before wrote. */
static void dependent_work_is_ordered(void **state)
{
    (void)state;
    enum { N = 1003, LINKS = 60 };
    for (uint32_t threads = 1; threads <= 3; threads++) {
        mica_device *device = open_device("cpu", threads);
        mica_kernel *kernel = host_kernel(device, "add", add_kernel);
        mica_buffer *a = new_vector(device, MICA_DTYPE_I32, N), *b = new_vector(device, MICA_DTYPE_I32, N);
        mica_encoder *encoder = begin(device);
        for (int i = 0; i < LINKS; i++)
            must(dispatch_add(encoder, kernel, i % 2 ? b : a, i % 2 ? a : b, i, N));
        mica_encoder_stats stats = stats_of(encoder);
        assert_true(stats.records == LINKS && stats.dispatches == LINKS && stats.stages == 0);
        assert_int_equal(stats.barriers, LINKS - 1);
        assert_int_equal(stats.group_sizes[0], LINKS);
        must(mica_encoder_commit_and_wait(encoder));
        expect_all(a, N, LINKS * (LINKS - 1) / 2);
        mica_encoder_release(encoder);
        mica_buffer_release(a);
        mica_buffer_release(b);
        mica_kernel_release(kernel);
        mica_device_release(device);
    }
}

/* A device that takes dependencies needs no barriers, unless the caller asks for one. */
static void edges_replace_barriers(void **state)
{
    (void)state;
    mica_device *device = open_device("null:1", 1);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel);
    mica_buffer *a = new_vector(device, MICA_DTYPE_I32, 8), *b = new_vector(device, MICA_DTYPE_I32, 8);
    mica_encoder *encoder = begin(device);
    for (int i = 0; i < 10; i++)
        must(dispatch_add(encoder, kernel, i % 2 ? b : a, i % 2 ? a : b, i, 8));
    mica_encoder_stats stats = stats_of(encoder);
    assert_true(stats.dispatches == 10 && stats.barriers == 0 && stats.tracker_checks > 0);
    must(mica_copy(encoder, a, b)); /* the bytes as they are: waits for the last dispatch, not for all */
    stats = stats_of(encoder);
    assert_true(stats.dispatches == 11 && stats.barriers == 0);
    must(mica_encoder_barrier(encoder));
    assert_int_equal(stats_of(encoder).barriers, 1);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    mica_buffer_release(a);
    mica_buffer_release(b);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* Columns of one matrix: writers of different columns share a group, a reader of all of them waits. */
static void independent_views_share_a_group(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel);
    uint64_t shape[2] = {4, 6};
    mica_buffer *matrix = NULL, *column[6], *source = new_vector(device, MICA_DTYPE_I32, 24);
    must(mica_buffer_alloc(device, MICA_DTYPE_I32, 2, shape, &matrix));
    mica_encoder *encoder = begin(device);
    for (uint32_t i = 0; i < 6; i++) {
        must(mica_buffer_slice(matrix, 1, i, 1, &column[i]));
        must(dispatch_add(encoder, kernel, source, column[i], 1, 1));
    }
    mica_encoder_stats stats = stats_of(encoder);
    assert_true(stats.barriers == 0 && stats.barriers_elided == 5 && stats.group_sizes[5] == 1);
    must(dispatch_add(encoder, kernel, matrix, source, 0, 1));
    stats = stats_of(encoder);
    assert_true(stats.barriers == 1 && stats.tracker_checks > 0);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    for (uint32_t i = 0; i < 6; i++)
        mica_buffer_release(column[i]);
    mica_buffer_release(matrix);
    mica_buffer_release(source);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void manual_hazards_are_the_callers(void **state)
{
    (void)state;
    mica_device *device = open_device("null", 1);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel);
    mica_buffer *a = new_vector(device, MICA_DTYPE_I32, 8), *b = new_vector(device, MICA_DTYPE_I32, 8);
    mica_encoder *encoder = begin(device);
    int emitted = 7;
    must(mica_encoder_set_hazards(encoder, MICA_HAZARDS_MANUAL));
    must(dispatch_add(encoder, kernel, a, b, 1, 8));
    must(dispatch_add(encoder, kernel, b, a, 1, 8)); /* conflicts, and nobody asked */
    assert_int_equal(stats_of(encoder).barriers, 0);
    must(mica_encoder_barrier(encoder));
    assert_int_equal(stats_of(encoder).barriers, 1);
    must(mica_encoder_barrier_between(encoder, &a, 1, &b, 1, &emitted));
    assert_int_equal(emitted, 0); /* nothing is in flight after a barrier */
    must(dispatch_add(encoder, kernel, a, b, 1, 8));
    must(mica_encoder_barrier_between(encoder, &a, 1, NULL, 0, &emitted));
    assert_int_equal(emitted, 0); /* two readers */
    must(mica_encoder_barrier_between(encoder, &b, 1, NULL, 0, &emitted));
    assert_int_equal(emitted, 1); /* read after write */
    must(dispatch_add(encoder, kernel, a, b, 1, 8));
    must(mica_encoder_barrier_between(encoder, NULL, 0, &a, 1, &emitted));
    assert_int_equal(emitted, 1); /* write after read */
    must(mica_encoder_track(encoder, NULL, 0, &a, 1));
    must(mica_encoder_barrier_between(encoder, NULL, 0, &a, 1, NULL));
    assert_int_equal(stats_of(encoder).barriers, 4); /* write after foreign write */
    must(mica_encoder_set_hazards(encoder, MICA_HAZARDS_AUTOMATIC));
    must(dispatch_add(encoder, kernel, a, b, 1, 8));
    must(dispatch_add(encoder, kernel, b, a, 1, 8));
    assert_int_equal(stats_of(encoder).barriers, 5);
    refused(mica_encoder_set_hazards(encoder, (mica_hazards)9), MICA_ERR_INVALID_ARGUMENT, "mode");
    refused(mica_encoder_barrier_between(encoder, NULL, 1, NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT,
            "reads");
    refused(mica_encoder_track(encoder, NULL, 0, NULL, 1), MICA_ERR_INVALID_ARGUMENT, "writes");
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    mica_buffer_release(a);
    mica_buffer_release(b);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void stages_run_in_order(void **state)
{
    (void)state;
    enum { N = 300 };
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel);
    mica_buffer *a = new_vector(device, MICA_DTYPE_I32, N);
    mica_encoder *encoder = begin(device);
    mica_fence *fence[3], *empty = (mica_fence *)&encoder, *last = NULL;
    for (int i = 0; i < 3; i++) {
        must(dispatch_add(encoder, kernel, a, a, 1, N));
        must(mica_encoder_commit_stage(encoder, &fence[i]));
        assert_non_null(fence[i]);
    }
    must(mica_encoder_commit_stage(encoder, &empty));
    assert_null(empty); /* no work, no submission */
    must(dispatch_add(encoder, kernel, a, a, 10, N));
    assert_int_equal(stats_of(encoder).stages, 3);
    must(mica_encoder_commit(encoder, &last));
    must(mica_fence_wait(last, MICA_WAIT_FOREVER));
    for (int i = 0; i < 3; i++) {
        must(mica_fence_wait(fence[i], 0)); /* the later one is done, so these are */
        assert_int_equal(mica_fence_value(last) - mica_fence_value(fence[i]), 3 - i);
        mica_fence_release(fence[i]);
    }
    mica_encoder_stats stats = stats_of(encoder);
    assert_true(stats.stages == 4 && stats.records == 4);
    expect_all(a, N, 13);
    mica_fence_release(last);
    mica_encoder_release(encoder);
    mica_buffer_release(a);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void a_spent_encoder_takes_nothing(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel);
    mica_buffer *a = new_vector(device, MICA_DTYPE_I32, 4);
    mica_encoder *encoder = begin(device);
    mica_fence *fence = NULL;
    must(mica_encoder_commit(encoder, &fence)); /* an empty commit gives a fence too */
    must(mica_fence_wait(fence, MICA_WAIT_FOREVER));
    refused(dispatch_add(encoder, kernel, a, a, 1, 4), MICA_ERR_STATE, "committed");
    refused(mica_fill(encoder, 1, a), MICA_ERR_STATE, "committed");
    refused(mica_encoder_barrier(encoder), MICA_ERR_STATE, "committed");
    refused(mica_encoder_label_push(encoder, "x"), MICA_ERR_STATE, "committed");
    refused(mica_encoder_set_hazards(encoder, MICA_HAZARDS_MANUAL), MICA_ERR_STATE, "committed");
    refused(mica_encoder_barrier_between(encoder, &a, 1, NULL, 0, NULL), MICA_ERR_STATE, "committed");
    refused(mica_encoder_track(encoder, &a, 1, NULL, 0), MICA_ERR_STATE, "committed");
    refused(mica_encoder_commit_and_wait(encoder), MICA_ERR_STATE, "committed");
    refused(mica_encoder_commit_stage(encoder, NULL), MICA_ERR_STATE, "committed");
    refused(mica_encoder_wait_fence(encoder, fence), MICA_ERR_STATE, "committed");
    mica_fence_release(fence);
    mica_encoder_release(encoder);
    mica_buffer_release(a);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void uncommitted_work_is_dropped(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel);
    mica_buffer *a = new_vector(device, MICA_DTYPE_I32, 4);
    mica_encoder *encoder = begin(device);
    must(dispatch_add(encoder, kernel, a, a, 1, 4));
    mica_encoder_release(encoder);
    must(mica_device_synchronize(device));
    expect_all(a, 4, 0);
    mica_buffer_release(a);
    mica_kernel_release(kernel);
    mica_device_release(device);
    mica_encoder_release(NULL);
}

/* The caller lets go of everything before the work runs. */
static void work_keeps_what_it_uses(void **state)
{
    (void)state;
    static int32_t foreign[64];
    memset(foreign, 0, sizeof foreign);
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel);
    mica_buffer *buffer = NULL;
    mica_buffer_desc desc = {.dtype = MICA_DTYPE_I32, .ndim = 1, .shape = {64}};
    must(mica_buffer_import(device, foreign, sizeof foreign, &desc, NULL, NULL, &buffer));
    mica_encoder *encoder = begin(device);
    must(dispatch_add(encoder, kernel, buffer, buffer, 21, 64));
    mica_fence *fence = NULL;
    must(mica_encoder_commit(encoder, &fence));
    mica_encoder_release(encoder);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
    must(mica_fence_wait(fence, MICA_WAIT_FOREVER));
    for (int i = 0; i < 64; i++)
        assert_int_equal(foreign[i], 21);
    mica_fence_release(fence);
}

/* The cpu sees the product of the groups as one range, each exactly once. */
static void count_kernel(const mica_host_binding *bindings, uint32_t count, const void *params,
                         uint32_t first, uint32_t last)
{
    (void)count, (void)params;
    for (uint32_t i = first; i < last; i++)
        ((int32_t *)bindings[0].data)[i]++;
}

static void groups_are_one_range(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 3);
    mica_kernel *kernel = host_kernel(device, "count", count_kernel);
    mica_buffer *a = new_vector(device, MICA_DTYPE_I32, 7 * 11 * 13);
    mica_binding binding = {a, MICA_ACCESS_READ | MICA_ACCESS_WRITE};
    mica_dispatch_desc desc = {
        .kernel = kernel, .groups = {7, 11, 13}, .bindings = &binding, .binding_count = 1};
    mica_encoder *encoder = begin(device);
    must(mica_encoder_dispatch(encoder, &desc));
    must(mica_encoder_dispatch(encoder, &desc));
    must(mica_encoder_commit_and_wait(encoder));
    expect_all(a, 7 * 11 * 13, 2);
    mica_encoder_release(encoder);
    mica_buffer_release(a);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

static void wrong_dispatches_are_refused(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1), *other = open_device("cpu", 1);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel),
                *strange = host_kernel(other, "add", add_kernel);
    mica_buffer *a = new_vector(device, MICA_DTYPE_I32, 4), *far = new_vector(other, MICA_DTYPE_I32, 4);
    mica_encoder *encoder = begin(device), *none = NULL;
    mica_binding binding = {a, MICA_ACCESS_WRITE}, null = {NULL, 1}, away = {far, 1}, mark = {a, 0};
    mica_dispatch_desc good = {.kernel = kernel,
                               .groups = {1, 1, 1},
                               .bindings = &binding,
                               .binding_count = 1},
                       desc;
    refused(mica_encoder_dispatch(NULL, &good), MICA_ERR_INVALID_ARGUMENT, "encoder");
    refused(mica_encoder_dispatch(encoder, NULL), MICA_ERR_INVALID_ARGUMENT, "desc");
    desc = good, desc.kernel = NULL;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "kernel");
    desc = good, desc.kernel = strange;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "another device");
    desc = good, desc.groups[1] = 0;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "groups");
    desc = good, desc.groups[0] = desc.groups[1] = 1u << 20;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "groups");
    desc = good, desc.bindings = NULL;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "bindings");
    desc = good, desc.binding_count = 1000;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "bindings");
    desc = good, desc.bindings = &null;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "bindings[0].buffer");
    desc = good, desc.bindings = &away;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "another device");
    desc = good, desc.bindings = &mark;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "access");
    desc = good, desc.params_size = 4;
    refused(mica_encoder_dispatch(encoder, &desc), MICA_ERR_INVALID_ARGUMENT, "params");
    assert_int_equal(stats_of(encoder).records, 0); /* nothing was added */
    refused(mica_encoder_begin(NULL, NULL, &none), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_encoder_begin(device, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_encoder");
    refused(mica_encoder_get_stats(NULL, &(mica_encoder_stats){0}), MICA_ERR_INVALID_ARGUMENT, "encoder");
    refused(mica_encoder_get_stats(encoder, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    refused(mica_encoder_wait_fence(encoder, NULL), MICA_ERR_INVALID_ARGUMENT, "fence");
    assert_null(mica_encoder_device(NULL));
    mica_encoder_release(encoder);
    mica_buffer_release(a);
    mica_buffer_release(far);
    mica_kernel_release(kernel);
    mica_kernel_release(strange);
    mica_device_release(other);
    mica_device_release(device);
}

static void labels_nest(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_encoder *encoder = begin(device);
    refused(mica_encoder_label_pop(encoder), MICA_ERR_STATE, "label");
    must(mica_encoder_label_push(encoder, "a"));
    must(mica_encoder_label_push(encoder, "b"));
    must(mica_encoder_label_pop(encoder));
    must(mica_encoder_label_pop(encoder));
    refused(mica_encoder_label_pop(encoder), MICA_ERR_STATE, "label");
    refused(mica_encoder_label_push(encoder, NULL), MICA_ERR_INVALID_ARGUMENT, "label");
    mica_encoder_release(encoder);
    mica_device_release(device);
}

typedef struct worker {
    mica_device *device;
    mica_kernel *kernel;
    int32_t result;
} worker;

/* One thread's passes: its own encoders and buffers, the same device. */
static void *encode_and_submit(void *argument)
{
    worker *self = argument;
    int32_t back[257];
    uint64_t n = 257;
    mica_buffer *a = NULL;
    self->result = -1;
    if (mica_buffer_alloc(self->device, MICA_DTYPE_I32, 1, &n, &a) != MICA_OK)
        return NULL;
    for (int round = 0; round < 60; round++) {
        mica_encoder *encoder = NULL;
        if (mica_encoder_begin(self->device, NULL, &encoder) != MICA_OK)
            break;
        for (int i = 0; i < 5; i++)
            dispatch_add(encoder, self->kernel, a, a, 1, 257);
        mica_status status = mica_encoder_commit_and_wait(encoder);
        mica_encoder_release(encoder);
        if (status != MICA_OK)
            break;
    }
    if (mica_buffer_read(a, 0, back, sizeof back) == MICA_OK)
        self->result = back[0] == back[256] ? back[0] : -2;
    mica_buffer_release(a);
    return NULL;
}

static void threads_encode_side_by_side(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    mica_kernel *kernel = host_kernel(device, "add", add_kernel);
    worker workers[3];
    pthread_t thread[3];
    for (int i = 0; i < 3; i++) {
        workers[i] = (worker){device, kernel, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_and_submit, &workers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(workers[i].result, 300);
    }
    mica_kernel_release(kernel);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(dependent_work_is_ordered),
        test(edges_replace_barriers),
        test(independent_views_share_a_group),
        test(manual_hazards_are_the_callers),
        test(stages_run_in_order),
        test(a_spent_encoder_takes_nothing),
        test(uncommitted_work_is_dropped),
        test(work_keeps_what_it_uses),
        test(groups_are_one_range),
        test(nothing_is_no_dispatch),
        test(wrong_dispatches_are_refused),
        test(labels_nest),
        test(threads_encode_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
