/*
 * test_bad_input.c - what a caller can get wrong outside the ops: each a status with a sentence that names the
 * argument, and outputs that are NULL.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/status.h"

static int open_device(void **state)
{
    mica_device *device;

    if (mica_device_open(*state, NULL, &device) != MICA_OK)
        return -1;
    *state = device;
    return 0;
}

static int close_device(void **state)
{
    mica_device_release(*state);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static mica_buffer *make(mica_device *device, mica_dtype dtype, uint64_t rows, uint64_t columns)
{
    uint64_t shape[2] = {rows, columns};
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, dtype, 2, shape, &buffer));
    return buffer;
}

static void test_device_names(void **state)
{
    static const char *const wrong[] = {"",       "gpu",     "cpu:", "cpu:x", "cpu:7",
                                        "null:9", "cuda:99", "cpux", "CPU"};
    mica_device *device = (mica_device *)&device;
    mica_device_options options = {.size = sizeof options, .isa = "mmx"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused(mica_device_open(wrong[i], NULL, &device), MICA_ERR_DEVICE_NOT_FOUND, "id");
        assert_null(device);
    }
    assert_non_null(strstr(mica_status_message(), "cpu")); /* what exists */
    refused(mica_device_open(NULL, NULL, &device), MICA_ERR_INVALID_ARGUMENT, "id");
    refused(mica_device_open("cpu", NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_device");
    assert_int_not_equal(MICA_OK, mica_device_open("cpu", &options, &device));
    assert_non_null(strstr(mica_status_message(), "isa"));
    assert_null(device);
    memset(options.isa, 'a', sizeof options.isa);
    refused(mica_device_open("cpu", &options, &device), MICA_ERR_INVALID_ARGUMENT, "isa");
    refused(mica_device_list(NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "out_count");
}

static void test_buffer_sizes(void **state)
{
    mica_device *device = *state;
    mica_buffer *buffer = (mica_buffer *)&device;
    uint64_t zero[3] = {1ull << 62, 0, 8}, huge[2] = {1ull << 33, 1ull << 33}, wraps[3] = {1ull << 62, 4, 1},
             odd[2] = {2, 33};
    uint64_t many[MICA_MAX_DIMS + 1] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

    refused(mica_buffer_alloc(device, MICA_DTYPE_F32, 3, zero, &buffer), MICA_ERR_INVALID_ARGUMENT, "shape");
    assert_null(buffer);
    refused(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, huge, &buffer), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_buffer_alloc(device, MICA_DTYPE_F32, 3, wraps, &buffer), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_buffer_alloc(device, MICA_DTYPE_Q4_0, 2, odd, &buffer), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_buffer_alloc(device, MICA_DTYPE_F32, MICA_MAX_DIMS + 1, many, &buffer),
            MICA_ERR_INVALID_ARGUMENT, "ndim");
    refused(mica_buffer_alloc(device, MICA_DTYPE_Q8_0, 0, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT, "ndim");
    refused(mica_buffer_alloc(device, MICA_DTYPE_NONE, 1, many, &buffer), MICA_ERR_INVALID_ARGUMENT, "dtype");
    refused(mica_buffer_alloc(device, (mica_dtype)9999, 1, many, &buffer), MICA_ERR_INVALID_ARGUMENT,
            "dtype");
    refused(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_buffer_alloc(NULL, MICA_DTYPE_F32, 1, many, &buffer), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_buffer_create(device, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT, "desc");
    refused(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, many, NULL), MICA_ERR_INVALID_ARGUMENT,
            "out_buffer");
    assert_null(buffer);
}

static void test_views(void **state)
{
    mica_device *device = *state;
    mica_buffer *whole = make(device, MICA_DTYPE_F32, 4, 8), *blocks = make(device, MICA_DTYPE_Q4_0, 2, 64);
    mica_buffer *view = NULL, *inner = NULL;
    uint64_t row[2] = {1, 8}, whole_shape[2] = {4, 8}, five[2] = {5, 8}, zero[2] = {0, 8},
             wide[2] = {4, 1ull << 40};
    uint64_t wrap[2] = {1ull << 60, 1ull << 60}, gap[2] = {36, 20}, three = 33;
    uint32_t twice[2] = {0, 0};

    refused(mica_buffer_view(whole, MICA_DTYPE_F32, 2, five, NULL, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "byte_offset");
    refused(mica_buffer_view(whole, MICA_DTYPE_F32, 2, row, NULL, 100, &view), MICA_ERR_INVALID_ARGUMENT,
            "byte_offset");
    refused(mica_buffer_view(whole, MICA_DTYPE_F32, 2, row, NULL, UINT64_MAX - 3, &view),
            MICA_ERR_INVALID_ARGUMENT, "byte_offset");
    refused(mica_buffer_view(whole, MICA_DTYPE_F64, 2, whole_shape, NULL, 0, &view),
            MICA_ERR_INVALID_ARGUMENT, "byte_offset");
    refused(mica_buffer_view(whole, MICA_DTYPE_F32, 2, wide, NULL, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "byte_offset");
    refused(mica_buffer_view(whole, MICA_DTYPE_F32, 2, zero, NULL, 132, &view), MICA_ERR_INVALID_ARGUMENT,
            "byte_offset");
    refused(mica_buffer_view(whole, MICA_DTYPE_F32, 2, whole_shape, wrap, 0, &view),
            MICA_ERR_INVALID_ARGUMENT, "stride");
    refused(mica_buffer_view(blocks, MICA_DTYPE_Q4_0, 2, (uint64_t[]){2, 32}, gap, 0, &view),
            MICA_ERR_INVALID_ARGUMENT, "stride");
    refused(mica_buffer_view(blocks, MICA_DTYPE_Q4_0, 1, &three, NULL, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "shape");
    refused(mica_buffer_view(NULL, MICA_DTYPE_F32, 2, row, NULL, 0, &view), MICA_ERR_INVALID_ARGUMENT,
            "buffer");
    assert_null(view);
    must(mica_buffer_slice(whole, 0, 1, 2, &view));
    refused(mica_buffer_view(view, MICA_DTYPE_F32, 2, row, NULL, 64, &inner), MICA_ERR_INVALID_ARGUMENT,
            "byte_offset");
    refused(mica_buffer_slice(view, 0, 1, 2, &inner), MICA_ERR_INVALID_ARGUMENT, "start");
    refused(mica_buffer_slice(view, 0, 3, 0, &inner), MICA_ERR_INVALID_ARGUMENT, "start");
    refused(mica_buffer_slice(view, 0, UINT64_MAX, 2, &inner), MICA_ERR_INVALID_ARGUMENT, "start");
    refused(mica_buffer_slice(view, 2, 0, 1, &inner), MICA_ERR_INVALID_ARGUMENT, "dim");
    refused(mica_buffer_slice(blocks, 1, 16, 32, &inner), MICA_ERR_INVALID_ARGUMENT, "start");
    refused(mica_buffer_reshape(view, 2, whole_shape, &inner), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_buffer_reshape(view, 2, wrap, &inner), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_buffer_permute(view, twice, &inner), MICA_ERR_INVALID_ARGUMENT, "order");
    refused(mica_buffer_permute(view, NULL, &inner), MICA_ERR_INVALID_ARGUMENT, "order");
    assert_null(inner);
    mica_buffer_release(view);
    mica_buffer_release(whole);
    mica_buffer_release(blocks);
}

static void test_affine(void **state)
{
    mica_device *device = *state;
    mica_buffer *data = make(device, MICA_DTYPE_AFFINE4, 4, 64),
                *scales = make(device, MICA_DTYPE_BF16, 4, 2);
    mica_buffer *few = make(device, MICA_DTYPE_BF16, 4, 1), *ints = make(device, MICA_DTYPE_I32, 4, 2), *out;

    refused(mica_buffer_affine(scales, scales, scales, 32, &out), MICA_ERR_INVALID_ARGUMENT, "data");
    refused(mica_buffer_affine(NULL, scales, scales, 32, &out), MICA_ERR_INVALID_ARGUMENT, "data");
    refused(mica_buffer_affine(data, few, scales, 32, &out), MICA_ERR_INVALID_ARGUMENT, "scales");
    refused(mica_buffer_affine(data, NULL, scales, 32, &out), MICA_ERR_INVALID_ARGUMENT, "scales");
    refused(mica_buffer_affine(data, scales, few, 32, &out), MICA_ERR_INVALID_ARGUMENT, "biases");
    refused(mica_buffer_affine(data, scales, ints, 32, &out), MICA_ERR_INVALID_ARGUMENT, "biases");
    refused(mica_buffer_affine(data, scales, scales, 0, &out), MICA_ERR_QUANT_CONFIG, "group_size");
    assert_null(out);
    refused(mica_buffer_pack(NULL, &out), MICA_ERR_INVALID_ARGUMENT, "weight");
    mica_buffer_release(data);
    mica_buffer_release(scales);
    mica_buffer_release(few);
    mica_buffer_release(ints);
}

static void test_host_access(void **state)
{
    mica_device *device = *state;
    mica_buffer *buffer = make(device, MICA_DTYPE_F32, 4, 8), *transposed;
    uint32_t order[2] = {1, 0};
    float value[4];
    void *pointer = value;

    refused(mica_buffer_write(buffer, 120, value, 16), MICA_ERR_INVALID_ARGUMENT, "bytes");
    refused(mica_buffer_read(buffer, UINT64_MAX, value, 16), MICA_ERR_INVALID_ARGUMENT, "bytes");
    refused(mica_buffer_write(NULL, 0, value, 16), MICA_ERR_INVALID_ARGUMENT, "buffer");
    assert_int_equal(MICA_ERR_INVALID_ARGUMENT, mica_buffer_write(buffer, 0, NULL, 16));
    assert_int_equal(MICA_ERR_INVALID_ARGUMENT, mica_buffer_read(buffer, 0, NULL, 16));
    refused(mica_buffer_map(NULL, MICA_ACCESS_READ, &pointer), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_buffer_map(buffer, 0, &pointer), MICA_ERR_INVALID_ARGUMENT, "access");
    refused(mica_buffer_map(buffer, 4, &pointer), MICA_ERR_INVALID_ARGUMENT, "access");
    assert_null(pointer);
    refused(mica_buffer_map(buffer, MICA_ACCESS_READ, NULL), MICA_ERR_INVALID_ARGUMENT, "out_pointer");
    must(mica_buffer_permute(buffer, order, &transposed));
    refused(mica_buffer_read(transposed, 0, value, 16), MICA_ERR_INVALID_ARGUMENT, "contiguous");
    mica_buffer_release(transposed);
    mica_buffer_release(buffer);
}

static void test_budget(void **state)
{
    mica_device_options options = {.size = sizeof options, .budget_bytes = 1 << 20};
    uint64_t half = 1 << 19, much = 3 << 19;
    mica_device_memory memory;
    mica_device_properties properties;
    mica_device *device;
    mica_buffer *a, *b, *c = NULL;

    must(mica_device_get_properties(*state, &properties));
    must(mica_device_open(properties.backend, &options, &device));
    must(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &half, &a));
    refused(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &much, &c), MICA_ERR_BUDGET, "budget");
    assert_null(c);
    must(mica_device_get_memory(device, &memory));
    assert_true(memory.owned_bytes >= half && memory.owned_bytes <= options.budget_bytes);
    refused(mica_device_set_budget(device, 1000), MICA_ERR_BUDGET, "bytes");
    must(mica_device_set_budget(device, 0));
    must(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &much, &b));
    mica_buffer_release(a);
    mica_buffer_release(b);
    mica_device_release(device);
}

static void nothing(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                    uint32_t last)
{
    (void)bindings;
    (void)count;
    (void)params;
    (void)first;
    (void)last;
}

static void test_kernels(void **state)
{
    mica_device *device = *state;
    mica_kernel_desc desc = {.name = "nothing", .host = nothing}, nameless = {.host = nothing},
                     empty = {.name = "empty"};
    mica_kernel *kernel = (mica_kernel *)&desc;
    mica_encoder *encoder;
    mica_dispatch_desc dispatch = {.groups = {1, 1, 1}};
    mica_binding none = {NULL, MICA_ACCESS_READ};

    refused(mica_kernel_get(device, "no_such_kernel", NULL, 0, &kernel), MICA_ERR_KERNEL_NOT_FOUND,
            "no_such_kernel");
    assert_null(kernel);
    refused(mica_kernel_get(device, NULL, NULL, 0, &kernel), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_kernel_register(device, &nameless), MICA_ERR_INVALID_ARGUMENT, "name");
    refused(mica_kernel_register(device, &empty), MICA_ERR_INVALID_ARGUMENT, "empty");
    refused(mica_kernel_register(device, NULL), MICA_ERR_INVALID_ARGUMENT, "desc");
    must(mica_kernel_register(device, &desc));
    must(mica_kernel_get(device, "nothing", NULL, 0, &kernel));
    must(mica_encoder_begin(device, NULL, &encoder));
    refused(mica_encoder_dispatch(encoder, NULL), MICA_ERR_INVALID_ARGUMENT, "desc");
    refused(mica_encoder_dispatch(encoder, &dispatch), MICA_ERR_INVALID_ARGUMENT, "kernel");
    dispatch.kernel = kernel;
    dispatch.groups[1] = 0;
    refused(mica_encoder_dispatch(encoder, &dispatch), MICA_ERR_INVALID_ARGUMENT, "groups");
    dispatch.groups[1] = 1;
    dispatch.binding_count = 1;
    refused(mica_encoder_dispatch(encoder, &dispatch), MICA_ERR_INVALID_ARGUMENT, "bindings");
    dispatch.bindings = &none;
    refused(mica_encoder_dispatch(encoder, &dispatch), MICA_ERR_INVALID_ARGUMENT, "binding");
    mica_encoder_release(encoder);
    mica_kernel_release(kernel);
}

/* Every call on a spent encoder or session says so and does nothing. */
static void test_use_after_submit(void **state)
{
    mica_device *device = *state;
    mica_buffer *x = make(device, MICA_DTYPE_F32, 2, 2), *y = make(device, MICA_DTYPE_F32, 2, 2), *temp;
    mica_fence *fence;
    mica_encoder *encoder;
    mica_session *session;
    mica_recording *recording;
    uint64_t two = 2;

    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_copy(encoder, x, y));
    must(mica_encoder_commit_and_wait(encoder));
    refused(mica_copy(encoder, x, y), MICA_ERR_STATE, "encoder");
    refused(mica_encoder_barrier(encoder), MICA_ERR_STATE, "encoder");
    refused(mica_encoder_label_push(encoder, "late"), MICA_ERR_STATE, "encoder");
    refused(mica_encoder_commit(encoder, &fence), MICA_ERR_STATE, "encoder");
    assert_null(fence);
    refused(mica_encoder_commit_stage(encoder, &fence), MICA_ERR_STATE, "encoder");
    refused(mica_encoder_commit_and_wait(encoder), MICA_ERR_STATE, "encoder");
    mica_encoder_release(encoder);

    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    must(mica_copy(mica_session_encoder(session), x, y));
    must(mica_session_record(session, 0, NULL, &recording));
    refused(mica_session_finish(session, 0, NULL), MICA_ERR_STATE, "session");
    refused(mica_session_temp(session, MICA_DTYPE_F32, 1, &two, &temp), MICA_ERR_STATE, "session");
    assert_null(temp);
    mica_recording_release(recording);
    refused(mica_session_record(session, 0, NULL, &recording), MICA_ERR_STATE, "session");
    assert_null(recording);
    mica_session_release(session);

    must(mica_session_begin(device, NULL, 0, &session));
    refused(mica_session_record(session, 0, NULL, &recording), MICA_ERR_STATE, "session");
    mica_session_release(session);
    mica_buffer_release(x);
    mica_buffer_release(y);
}

/* A rebind must keep type, shape, strides and device, and may not make operands overlap that did not. */
static void test_rebind(void **state)
{
    mica_device *device = *state;
    mica_buffer *x = make(device, MICA_DTYPE_F32, 4, 8), *y = make(device, MICA_DTYPE_F32, 4, 8), *half;
    mica_buffer *half_type = make(device, MICA_DTYPE_F16, 4, 8), *shape = make(device, MICA_DTYPE_F32, 8, 4);
    mica_buffer *big = make(device, MICA_DTYPE_F32, 8, 8), *strided,
                *fine = make(device, MICA_DTYPE_F32, 4, 8);
    mica_session *session;
    mica_recording *recording;
    uint64_t four_by_eight[2] = {4, 8}, wide[2] = {64, 4};
    uint32_t uses = 77;

    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    must(mica_gelu(mica_session_encoder(session), x, y));
    must(mica_session_record(session, 0, NULL, &recording));
    mica_session_release(session);
    must(mica_buffer_view(y, MICA_DTYPE_F32, 2, (uint64_t[]){2, 8}, NULL, 32, &half));
    must(mica_buffer_view(big, MICA_DTYPE_F32, 2, four_by_eight, wide, 0, &strided));
    refused(mica_recording_rebind(recording, x, y, &uses), MICA_ERR_INVALID_ARGUMENT, "to");
    refused(mica_recording_rebind(recording, x, half, &uses), MICA_ERR_INVALID_ARGUMENT, "to");
    refused(mica_recording_rebind(recording, x, half_type, &uses), MICA_ERR_INVALID_ARGUMENT, "to");
    refused(mica_recording_rebind(recording, x, shape, &uses), MICA_ERR_INVALID_ARGUMENT, "to");
    refused(mica_recording_rebind(recording, x, strided, &uses), MICA_ERR_INVALID_ARGUMENT, "to");
    refused(mica_recording_rebind(recording, x, NULL, &uses), MICA_ERR_INVALID_ARGUMENT, "to");
    refused(mica_recording_rebind(recording, NULL, fine, &uses), MICA_ERR_INVALID_ARGUMENT, "from");
    refused(mica_recording_rebind(NULL, x, fine, &uses), MICA_ERR_INVALID_ARGUMENT, "recording");
    must(mica_recording_rebind(recording, x, fine, &uses));
    assert_int_equal(1, uses);
    must(mica_recording_replay_and_wait(recording));
    mica_recording_release(recording);
    mica_buffer_release(half);
    mica_buffer_release(strided);
    mica_buffer_release(half_type);
    mica_buffer_release(shape);
    mica_buffer_release(big);
    mica_buffer_release(fine);
    mica_buffer_release(x);
    mica_buffer_release(y);
}

static void test_null_handles(void **state)
{
    mica_device *device = *state;
    mica_counters counters;
    mica_encoder_stats stats;
    mica_session *session;
    mica_recording *recording;
    mica_encoder *encoder;
    mica_queue *queue;
    mica_pool *pool;
    mica_fence *fence;
    uint64_t n;

    refused(mica_device_get_properties(NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_synchronize(NULL), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_device_set_budget(NULL, 1), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_encoder_begin(NULL, NULL, &encoder), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_encoder_begin(device, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_encoder");
    refused(mica_encoder_barrier(NULL), MICA_ERR_INVALID_ARGUMENT, "encoder");
    refused(mica_encoder_commit(NULL, &fence), MICA_ERR_INVALID_ARGUMENT, "encoder");
    refused(mica_encoder_commit_and_wait(NULL), MICA_ERR_INVALID_ARGUMENT, "encoder");
    refused(mica_encoder_get_stats(NULL, &stats), MICA_ERR_INVALID_ARGUMENT, "encoder");
    refused(mica_fence_wait(NULL, 0), MICA_ERR_INVALID_ARGUMENT, "fence");
    refused(mica_session_begin(NULL, NULL, 0, &session), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_session_finish(NULL, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "session");
    refused(mica_session_record(NULL, 0, NULL, &recording), MICA_ERR_INVALID_ARGUMENT, "session");
    refused(mica_recording_replay_and_wait(NULL), MICA_ERR_INVALID_ARGUMENT, "recording");
    refused(mica_recording_clone(NULL, &recording), MICA_ERR_INVALID_ARGUMENT, "recording");
    refused(mica_recording_print(NULL, NULL, 0, &n), MICA_ERR_INVALID_ARGUMENT, "recording");
    refused(mica_pool_create(NULL, &pool), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_pool_reset(NULL), MICA_ERR_INVALID_ARGUMENT, "pool");
    refused(mica_queue_create(NULL, &queue), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_profile_begin(NULL), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_counters_get(device, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    must(mica_counters_get(NULL, &counters));
    mica_device_release(NULL);
    mica_buffer_release(NULL);
    mica_pool_release(NULL);
    mica_kernel_release(NULL);
    mica_queue_release(NULL);
    mica_encoder_release(NULL);
    mica_fence_release(NULL);
    mica_session_release(NULL);
    mica_recording_release(NULL);
    assert_null(mica_buffer_device(NULL));
    assert_int_equal(0, mica_fence_value(NULL));
}

/* A read-only import may be read, not written. */
static void test_read_only(void **state)
{
    static float memory[16] __attribute__((aligned(64)));
    mica_device *device = *state;
    mica_buffer_desc desc = {
        .dtype = MICA_DTYPE_F32, .ndim = 1, .shape = {16}, .flags = MICA_BUFFER_READ_ONLY};
    mica_buffer *import, *y = make(device, MICA_DTYPE_F32, 1, 16), *flat;
    mica_encoder *encoder;
    uint64_t shape = 16;
    void *pointer;

    must(mica_buffer_import(device, memory, sizeof memory, &desc, NULL, NULL, &import));
    must(mica_buffer_reshape(y, 1, &shape, &flat));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_copy(encoder, import, flat));
    refused(mica_copy(encoder, flat, import), MICA_ERR_INVALID_ARGUMENT, "y");
    must(mica_encoder_commit_and_wait(encoder));
    refused(mica_buffer_write(import, 0, memory, 4), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_buffer_map(import, MICA_ACCESS_WRITE, &pointer), MICA_ERR_INVALID_ARGUMENT, "buffer");
    mica_buffer_release(flat);
    desc.shape[0] = 17;
    refused(mica_buffer_import(device, memory, sizeof memory, &desc, NULL, NULL, &flat),
            MICA_ERR_INVALID_ARGUMENT, "bytes");
    mica_encoder_release(encoder);
    mica_buffer_release(import);
    mica_buffer_release(y);
}

#define ON(device, function)                                                                    \
    {                                                                                           \
#function " on " device, function, open_device, close_device, (void *)(uintptr_t)device \
    }
#define ON_BOTH(function) ON("null", function), ON("cpu", function)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_names),
        ON_BOTH(test_buffer_sizes),
        ON_BOTH(test_views),
        ON_BOTH(test_affine),
        ON_BOTH(test_host_access),
        ON_BOTH(test_budget),
        ON_BOTH(test_kernels),
        ON_BOTH(test_use_after_submit),
        ON_BOTH(test_rebind),
        ON_BOTH(test_null_handles),
        ON_BOTH(test_read_only),
    };

    return cmocka_run_group_tests_name("bad_input", tests, NULL, NULL);
}
