/*
 * test_opencl.c - the OpenCL backend beyond conformance: which devices there are and in which order, libraries that are
 * missing or too old, kernels that do not compile, limits, forks, queues, times.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"
#include "device/device_test.h"
#include "device/objects.h"
#include "device/programs.h"
#include "support/need.h"

#define COUNT 1000u

/* ---- a machine that is not there ---- */

/* Four devices on two platforms: a CPU and a GPU that is too old, a GPU and an accelerator. */
static const struct {
    const char *name, *version;
    uint64_t type;
} made_up[4] = {{"slow", "OpenCL 1.2 one", CL_DEVICE_TYPE_CPU},
                {"old", "OpenCL 1.1 one", CL_DEVICE_TYPE_GPU},
                {"odd", "OpenCL 2.0 two", CL_DEVICE_TYPE_ACCELERATOR},
                {"fast", "OpenCL 3.0 two", CL_DEVICE_TYPE_GPU}};

/* Handles are numbers from 1 up. */
static cl_int made_platforms(cl_uint capacity, cl_platform_id *out, cl_uint *out_count)
{
    for (cl_uint i = 0; i < 2 && i < capacity; i++)
        out[i] = (cl_platform_id)(uintptr_t)(i + 1);
    *out_count = 2;
    return CL_SUCCESS;
}

static cl_int made_devices(cl_platform_id platform, cl_ulong type, cl_uint capacity, cl_device_id *out,
                           cl_uint *out_count)
{
    const uintptr_t first = ((uintptr_t)platform - 1) * 2;
    (void)type;
    for (cl_uint i = 0; i < 2 && i < capacity; i++)
        out[i] = (cl_device_id)(first + i + 1);
    *out_count = 2;
    return CL_SUCCESS;
}

static cl_int made_info(cl_device_id device, cl_uint what, size_t capacity, void *out, size_t *out_size)
{
    const size_t index = (uintptr_t)device - 1;
    const uint32_t yes = 1;
    (void)out_size;
    assert_true(capacity >= 8);
    if (what == CL_DEVICE_NAME || what == CL_DEVICE_VERSION)
        snprintf(out, capacity, "%s", what == CL_DEVICE_NAME ? made_up[index].name : made_up[index].version);
    else if (what == CL_DEVICE_TYPE)
        memcpy(out, &made_up[index].type, sizeof made_up[index].type);
    else
        memcpy(out, &yes, sizeof yes);
    return CL_SUCCESS;
}

static cl_int no_platforms(cl_uint capacity, cl_platform_id *out, cl_uint *out_count)
{
    (void)capacity, (void)out;
    *out_count = 0;
    return CL_PLATFORM_NOT_FOUND_KHR;
}

static cl_int broken_platforms(cl_uint capacity, cl_platform_id *out, cl_uint *out_count)
{
    (void)capacity, (void)out, (void)out_count;
    return CL_OUT_OF_RESOURCES;
}

static void devices_come_best_first(void **state)
{
    (void)state;
    const mica__opencl_symbols table = {
        .clGetPlatformIDs = made_platforms, .clGetDeviceIDs = made_devices, .clGetDeviceInfo = made_info};
    const char *wanted[4] = {"fast", "odd", "slow", "old"};
    char reason[MICA_NAME_BYTES], name[MICA_NAME_BYTES];
    mica__opencl_symbols_replace(&table);
    assert_int_equal(mica__backend_opencl.probe(reason, sizeof reason), 4);
    for (uint32_t i = 0; i < 4; i++) {
        const mica_status status = mica__backend_opencl.describe(i, name, sizeof name);
        assert_string_equal(name, wanted[i]);
        if (i < 3)
            must(status);
        else
            refused(status, MICA_ERR_UNSUPPORTED, "OpenCL 1.2");
    }
    refused(mica__backend_opencl.describe(4, name, sizeof name), MICA_ERR_DEVICE_NOT_FOUND, "opencl:4");
    mica__opencl_symbols_replace(NULL);
}

/* "opencl" is refused with the reason, the list shows it, and the rest works. */
static void check_missing(const char *word)
{
    mica_device_entry entries[32];
    mica_device *device = NULL;
    uint32_t count = 0, shown = 0;
    refused(mica_device_open("opencl", NULL, &device), MICA_ERR_DEVICE_NOT_FOUND, word);
    refused(mica_device_open("opencl:1", NULL, &device), MICA_ERR_DEVICE_NOT_FOUND, word);
    must(mica_device_list(entries, 32, &count));
    for (uint32_t i = 0; i < count && i < 32; i++)
        shown +=
            strcmp(entries[i].id, "opencl") == 0 && !entries[i].usable && strstr(entries[i].reason, word);
    assert_int_equal(shown, 1);
    device = open_device("cpu", 1);
    mica_device_release(device);
}

static void machines_without_devices(void **state)
{
    (void)state;
    const mica__opencl_symbols none = {.clGetPlatformIDs = no_platforms},
                               broken = {.clGetPlatformIDs = broken_platforms};
    mica__opencl_symbols_replace(&none);
    check_missing("no device");
    mica__opencl_symbols_replace(&broken);
    check_missing("CL_OUT_OF_RESOURCES");
    mica__opencl_symbols_replace(NULL);
}

static void libraries_that_do_not_do(void **state)
{
    (void)state;
    const char *const missing[] = {"libmica-no-such-library.so.1", NULL};
    const char *const other[] = {"libm.so.6", "libm.dylib", NULL};
    mica__opencl_symbols table;
    refused(mica__opencl_symbols_load_from(missing, &table), MICA_ERR_UNSUPPORTED, "libmica-no-such-library");
    refused(mica__opencl_symbols_load_from(other, &table), MICA_ERR_UNSUPPORTED, "clGetPlatformIDs");
    assert_string_equal(mica__opencl_error_name(CL_OUT_OF_RESOURCES), "CL_OUT_OF_RESOURCES");
    assert_string_equal(mica__opencl_error_name(12345), "unknown code");
}

static void numbers_out_of_range(void **state)
{
    (void)state;
    const char *wrong[] = {"opencl:99", "opencl:", "opencl:x", "openclx", "opencl:-1"};
    mica_device *device = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(mica_device_open(wrong[i], NULL, &device), MICA_ERR_DEVICE_NOT_FOUND, wrong[i]);
}

/* ---- the machine's own ---- */

static void properties(void **state)
{
    (void)state;
    mica_device *device = open_device("opencl:0", 0);
    mica_device_properties p;
    mica_device_memory memory;
    void *native = NULL;
    must(mica_device_get_properties(device, &p));
    assert_string_equal(p.id, "opencl:0");
    assert_string_equal(p.backend, "opencl");
    assert_true(p.name[0] != '\0' && strstr(p.driver, "OpenCL ") != NULL);
    assert_true(p.max_buffer > 0 && p.max_buffer <= p.total_memory && p.buffer_alignment >= 16);
    assert_int_equal(p.unified_memory, 0);
    assert_int_equal(p.threads, 0);
    must(mica_device_native(device, &native));
    assert_non_null(native);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_U8, 4096);
    must(mica_device_get_memory(device, &memory));
    assert_int_equal(memory.owned_bytes, 4096);
    assert_int_equal(memory.total_bytes - memory.free_bytes, 4096);
    mica_buffer_release(buffer);
    mica_device_release(device);
}

static void more_memory_than_there_is(void **state)
{
    (void)state;
    mica_device *device = open_device("opencl", 0);
    mica_device_properties p;
    mica_buffer *buffer = NULL;
    must(mica_device_get_properties(device, &p));
    const uint64_t sizes[] = {p.max_buffer + 1, 1ull << 60};
    for (size_t i = 0; i < 2; i++) {
        refused(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, &sizes[i], &buffer), MICA_ERR_OUT_OF_MEMORY,
                "at most");
        assert_null(buffer);
    }
    buffer = new_vector(device, MICA_DTYPE_U8, 64);
    mica_buffer_release(buffer);
    mica_device_release(device);
}

static const char good[] = "typedef struct fill_params { mk_u32 count; } fill_params;\n"
                           "MK_KERNEL(good) MK_OUT(y), MK_PARAM(fill_params, p) MK_END\n"
                           "{\n"
                           "    MK_BIND(y);\n"
                           "    const mk_u32 i = MK_GROUP_X * MK_WG + MK_LID;\n"
                           "    if (i < p.count)\n"
                           "        mk_st_u32(y, i * 4u, i + FIRST);\n"
                           "}\n";

static mica_status get_kernel(mica_device *device, const char *name, const char *source, mica_kernel **out)
{
    const mica_kernel_desc desc = {.name = name, .source = source};
    const mica_constant first = {"FIRST", 7};
    must(mica_kernel_register(device, &desc));
    return mica_kernel_get(device, name, &first, 1, out);
}

static void kernels_that_do_not_compile(void **state)
{
    (void)state;
    mica_device *device = open_device("opencl", 0);
    mica_kernel *kernel = NULL;
    refused(get_kernel(device, "bad", "MK_KERNEL(bad) MK_OUT(y) MK_END { zebra(y); }\n", &kernel),
            MICA_ERR_KERNEL_COMPILATION, "zebra");
    assert_null(kernel);
    refused(get_kernel(device, "other", good, &kernel), MICA_ERR_KERNEL_NOT_FOUND,
            "no entry MK_KERNEL(other)");
    must(get_kernel(device, "good", good, &kernel));
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* y gets `count` words of its parameters, as an argument and, where that is too long, from a buffer. */
static const char block_text[] =
    "typedef struct block { mk_u32 count, first[COUNT]; } block;\n"
    "MK_FN mk_u32 word(MK_BLOCK_PTR(block, p), mk_u32 i) { return p->first[i]; }\n"
    "MK_KERNEL(words) MK_OUT(y), MK_BLOCK(block, p) MK_END\n"
    "{\n"
    "    MK_BIND(y);\n"
    "    MK_BIND_BLOCK(block, p);\n"
    "    const mk_u32 i = MK_GROUP_X * MK_WG + MK_LID;\n"
    "    if (i < p->count)\n"
    "        mk_st_u32(y, i * 4u, word(p, i));\n"
    "}\n";

/* Encodes, runs twice where it may, and looks. */
static void run_block(mica_device *device, const char *constants, uint32_t count, uint32_t flags)
{
    static uint32_t block[1 + 3000], back[3000];
    const mica_kernel_desc desc = {.name = "words", .source = block_text};
    const bool far = strstr(constants, "MK_FAR") != NULL;
    const mica__backend_table *table = device->table;
    mica__program *program = NULL;
    mica__memory *y = NULL;
    mica__encoding *encoding = NULL;
    mica__commands *commands = NULL;
    mica__completion done;
    uint64_t value = 0;
    mica__dispatch dispatch = {.groups = {(count + 255) / 256, 1, 1}, .local = {256, 1, 1}};
    must(mica__program_of_user(device, &desc, constants, &program));
    must(table->kernel_get(device->impl, program, "words", &dispatch.kernel));
    must(table->buffer_create(device->impl, sizeof back, &y));
    const mica__binding bindings[2] = {{y, 0, y->bytes, MICA_ACCESS_WRITE},
                                       {NULL, 0, 4 * (count + 1), MICA__BIND_PARAMS}};
    dispatch.bindings = bindings;
    dispatch.binding_count = 1 + far;
    dispatch.params = block;
    dispatch.params_size = 4 * (count + 1);
    must(table->encoder_begin(device->impl, flags, &encoding));
    for (uint32_t round = 0; round < 3; round++) { /* the last one is seen */
        block[0] = count;
        for (uint32_t i = 0; i < count; i++)
            block[1 + i] = 1000 * round + i;
        table->dispatch(encoding, &dispatch);
    }
    memset(block, 0xee, sizeof block); /* backends copy */
    must(table->encoder_end(encoding, false, &commands));
    for (uint32_t run = 0; run < (flags != 0 ? 2u : 1u); run++) {
        must(table->buffer_fill(device->impl, y, 0));
        must(table->submit(device->impl, NULL, commands, &value));
        must(table->wait(device->impl, NULL, value, UINT64_MAX, &done));
        must(table->download(device->impl, y, 0, back, 4 * count));
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(back[i], 2000 + i);
    }
    if (flags != 0)
        table->commands_destroy(device->impl, commands);
    table->buffer_destroy(device->impl, y);
    table->program_destroy(device->impl, program);
}

static void long_parameters_lie_in_a_buffer(void **state)
{
    (void)state;
    mica_device *device = open_device("opencl", 0);
    run_block(device, "COUNT=100", 100, 0);
    run_block(device, "COUNT=100|MK_FAR=1", 100, MICA__ENCODE_REUSABLE);
    run_block(device, "COUNT=3000|MK_FAR=1", 3000, 0);
    run_block(device, "COUNT=3000|MK_FAR=1", 3000, MICA__ENCODE_REUSABLE);
    mica_device_release(device);
}

/* A text of another language is named as what it is, before any compiler sees it. */
static void kernels_in_other_languages(void **state)
{
    static const struct {
        const char *text, *found;
    } rows[] = {{"__kernel void own(__global float *y) { y[get_global_id(0)] = 1; }", "OpenCL C"},
                {"kernel void own(global float *y) { y[0] = 1; }", "OpenCL C"},
                {"extern \"C\" __global__ void own(float *y) { y[0] = 1; }", "CUDA"},
                {".visible .entry own() { ret; }", "PTX"},
                {"y = 1", "something else"}};
    (void)state;
    mica_device *device = open_device("opencl", 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const mica_kernel_desc desc = {.name = "own", .source = rows[i].text};
        refused(mica_kernel_register(device, &desc), MICA_ERR_INVALID_ARGUMENT, "desc.source");
        assert_non_null(strstr(mica_status_message(), rows[i].found));
        assert_non_null(strstr(mica_status_message(), "docs/kernels.md"));
    }
    mica_device_release(device);
}

static mica_status launch(mica_device *device, mica_kernel *kernel, mica_buffer *buffer, uint32_t groups,
                          uint32_t local)
{
    const uint32_t count = COUNT;
    const mica_binding binding = {buffer, MICA_ACCESS_WRITE};
    const mica_dispatch_desc dispatch = {.kernel = kernel,
                                         .groups = {groups, 1, 1},
                                         .local = {local, 1, 1},
                                         .bindings = &binding,
                                         .binding_count = 1,
                                         .params = &count,
                                         .params_size = sizeof count};
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(device, NULL, &encoder));
    mica_status status = mica_encoder_dispatch(encoder, &dispatch);
    if (status == MICA_OK)
        status = mica_encoder_commit_and_wait(encoder);
    mica_encoder_release(encoder);
    return status;
}

static void launches_larger_than_limits(void **state)
{
    (void)state;
    uint32_t value[COUNT];
    mica_device *device = open_device("opencl", 0);
    mica_kernel *kernel = NULL;
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_U32, COUNT);
    must(get_kernel(device, "good", good, &kernel));
    refused(launch(device, kernel, buffer, 1, 1u << 20), MICA_ERR_INVALID_ARGUMENT, "local");
    refused(launch(device, kernel, buffer, 4, 128), MICA_ERR_INVALID_ARGUMENT, "good"); /* not MK_WG */
    must(launch(device, kernel, buffer, 4, 256));
    must(mica_buffer_read(buffer, 0, value, sizeof value));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(value[i], i + 7);
    mica_buffer_release(buffer);
    mica_kernel_release(kernel);
    mica_device_release(device);
}

/* The child has no part in the device: every call says so, and all can be released. */
static void a_fork_loses_the_device(void **state)
{
    (void)state;
    float value[COUNT] = {0};
    mica_device *device = open_device("opencl", 0);
    mica_buffer *x = new_vector(device, MICA_DTYPE_F32, COUNT),
                *y = new_vector(device, MICA_DTYPE_F32, COUNT);
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_add(encoder, x, x, y));
    const pid_t child = fork();
    if (child == 0) {
        mica_buffer *more = NULL;
        const uint64_t count = 16;
        bool fine = mica_encoder_commit_and_wait(encoder) == MICA_ERR_DEVICE_LOST;
        fine = fine && mica_buffer_read(y, 0, value, sizeof value) == MICA_ERR_DEVICE_LOST;
        fine = fine && mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &count, &more) == MICA_ERR_DEVICE_LOST;
        fine = fine && strstr(mica_status_message(), "fork") != NULL;
        mica_encoder_release(encoder);
        mica_buffer_release(x);
        mica_buffer_release(y);
        mica_device_release(device);
        _exit(fine && mica_host_allocations() == 0 ? 0 : 1);
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_buffer_read(y, 0, value, sizeof value));
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(device);
}

/* More submissions than results are kept, none waited for before the end. */
static void many_submissions_at_once(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    float value[COUNT], one[COUNT];
    mica_device *device = open_device("opencl", 0);
    mica_buffer *x = new_vector(device, MICA_DTYPE_F32, COUNT),
                *y = new_vector(device, MICA_DTYPE_F32, COUNT);
    mica_fence *fence[ROUNDS];
    for (uint32_t i = 0; i < COUNT; i++)
        one[i] = 1;
    must(mica_buffer_write(x, 0, one, sizeof one));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        mica_encoder *encoder = NULL;
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_add(encoder, x, y, y));
        must(mica_encoder_commit(encoder, &fence[i]));
        mica_encoder_release(encoder);
    }
    for (uint32_t i = ROUNDS; i-- > 0;) {
        uint64_t begin = 0, end = 0;
        must(mica_fence_wait(fence[i], MICA_WAIT_FOREVER));
        must(mica_fence_wait(fence[i], 0));
        must(mica_fence_times(fence[i], &begin, &end));
        assert_true(begin <= end && begin > 0);
        assert_int_equal(mica_fence_value(fence[i]), i + 1);
        mica_fence_release(fence[i]);
    }
    must(mica_buffer_read(y, 0, value, sizeof value));
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(value[i] == (float)ROUNDS);
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(device);
}

static void profiles_name_kernels(void **state)
{
    (void)state;
    mica_device *device = open_device("opencl", 0);
    mica_buffer *x = new_vector(device, MICA_DTYPE_F32, COUNT),
                *y = new_vector(device, MICA_DTYPE_F32, COUNT);
    mica_profile_entry entry[4];
    uint64_t count = 0;
    mica_encoder *encoder = NULL;
    must(mica_profile_begin(device));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_encoder_label_push(encoder, "layer 1"));
    must(mica_mul(encoder, x, x, y));
    must(mica_encoder_label_pop(encoder));
    must(mica_copy(encoder, x, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_profile_end(device));
    must(mica_profile_entries(device, entry, 4, &count));
    assert_int_equal(count, 2);
    assert_int_equal(entry[0].op, MICA_OP_REGION);
    assert_non_null(strchr(entry[0].kernel, '/'));
    assert_string_equal(entry[0].label, "layer 1");
    assert_int_equal(entry[1].op, MICA_OP_COPY);
    assert_string_equal(entry[1].label, "");
    for (uint32_t i = 0; i < 2; i++)
        assert_true(entry[i].begin_ns > 0 && entry[i].begin_ns <= entry[i].end_ns && entry[i].index == i);
    assert_true(entry[0].end_ns <= entry[1].begin_ns);
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(device);
}

/* ---- grids ---- */

/* y [batches, rows, 1] = x [batches, rows, 2] by a weight [1, 2] for each batch: more of them than any dimension of a grid but
 * the first has, and more rows than a mat-vec takes at once. All numbers are whole and small. */
static void more_batches_than_a_grid_is_wide(void **state)
{
    enum { BATCHES = 65537, ROWS = 9, K = 2 };
    mica_device *device = open_device("opencl", 0);
    mica_buffer *x = NULL, *w = NULL, *y = NULL;
    mica_encoder *encoder = NULL;
    float *value = calloc((size_t)BATCHES * ROWS * K, sizeof *value);
    (void)state;
    assert_non_null(value);
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 3, (const uint64_t[]){BATCHES, ROWS, K}, &x));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 3, (const uint64_t[]){BATCHES, 1, K}, &w));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 3, (const uint64_t[]){BATCHES, ROWS, 1}, &y));
    for (uint32_t i = 0; i < BATCHES * ROWS * K; i++)
        value[i] = (float)(i % 1021);
    must(mica_buffer_write(x, 0, value, (uint64_t)BATCHES * ROWS * K * sizeof *value));
    for (uint32_t i = 0; i < BATCHES * K; i++)
        value[i] = (float)(i % 509);
    must(mica_buffer_write(w, 0, value, (uint64_t)BATCHES * K * sizeof *value));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_matmul(encoder, x, w, NULL, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_buffer_read(y, 0, value, (uint64_t)BATCHES * ROWS * sizeof *value));
    for (uint32_t i = 0; i < BATCHES * ROWS; i++) {
        const uint32_t of_x = i * K, of_w = i / ROWS * K;
        const uint32_t wanted = of_x % 1021 * (of_w % 509) + (of_x + 1) % 1021 * ((of_w + 1) % 509);
        if (value[i] != (float)wanted)
            fail_msg("row %u of batch %u is %g, wanted %u", i % ROWS, i / ROWS, (double)value[i], wanted);
    }
    free(value);
    mica_buffer_release(x);
    mica_buffer_release(w);
    mica_buffer_release(y);
    mica_device_release(device);
}

/* ---- NVIDIA's PTX ---- */

static void bounds_stand_behind_the_size_of_groups(void **state)
{
    static const char text[] =
        "#define MK_BOUNDS MK_WG\n#undef MK_BOUNDS\n#define MK_BOUNDS MK_WG, 12 /* why */\n";
    static const char ptx[] =
        ".entry one(\n)\n.reqntid 256, 1, 1\n{\n}\n.entry two()\n.reqntid 64, 1, 1\n{\n}\n";
    static const char bounded[] = ".entry one(\n)\n.reqntid 256, 1, 1\n.minnctapersm 12\n{\n}\n"
                                  ".entry two()\n.reqntid 64, 1, 1\n.minnctapersm 12\n{\n}\n";
    size_t bytes = 0;
    (void)state;
    char *out = mica__opencl_ptx_bound(ptx, text, &bytes);
    assert_non_null(out);
    assert_string_equal(out, bounded);
    assert_int_equal(bytes, sizeof bounded);
    mica__free(out);
    assert_null(mica__opencl_ptx_bound(ptx, "#define MK_BOUNDS MK_WG\n", &bytes));
    assert_null(mica__opencl_ptx_bound("\177ELF", text, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(bounds_stand_behind_the_size_of_groups),
        test(devices_come_best_first),
        test(machines_without_devices),
        test(libraries_that_do_not_do),
        test(numbers_out_of_range),
        test(properties),
        test(more_memory_than_there_is),
        test(kernels_that_do_not_compile),
        test(long_parameters_lie_in_a_buffer),
        test(kernels_in_other_languages),
        test(launches_larger_than_limits),
        test(a_fork_loses_the_device),
        test(many_submissions_at_once),
        test(profiles_name_kernels),
        test(more_batches_than_a_grid_is_wide),
    };
    const int result = test_need("opencl");
    return result != 0 ? result : cmocka_run_group_tests(tests, NULL, NULL);
}
