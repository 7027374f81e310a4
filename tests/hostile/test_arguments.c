/* test_arguments.c - unknown flags, enum values and struct sizes are refused alike by every public call: arguments.def. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/status.h"
#include "mica/adapter.h"
#include "mica/mica.h"
#include "mica/model.h"
#include "mica/model_graph.h"
#include "mica/lift.h"
#include "mica/train.h"

/* What calls are made on; the fields behind `made` only take what must not come about. */
typedef struct fixture {
    mica_device *device;
    mica_pool *pool;
    mica_encoder *encoder;
    mica_session *session;
    mica_recording *recording;
    mica_buffer *x, *w, *y, *ids, *pairs, *experts, *slots, *routed;
    mica_weights *weights, *empty;
    mica_writer *writer;
    mica_model *model;
    const mica_tokenizer *tokenizer;
    mica_context *context;
    mica_sampler *picker;
    mica_graph *graph, *body, *failed; /* of this call; one that computes; one that has failed */
    mica_executable *executable;
    mica_region *region;
    uint32_t sequence, id;
    float vector[4096];
    _Alignas(64) unsigned char bytes[64];
    int made;
    mica_buffer *buffer;
    mica_device *other;
    mica_session *fresh;
    mica_recording *another;
    mica_fence *fence;
    mica_work *work;
    mica_weights *opened;
    mica_writer *written;
    mica_detokenizer *words;
    mica_template *form;
    mica_sampler *sampler;
    mica_model *fresh_model;
    mica_context *fresh_context;
    mica_executable *fresh_executable;
    mica_run *run;
    mica_trainer *trainer;
    mica_graph *lifted;
    mica_adapter *adapter;
    mica_tensor tensor[4];
    mica_calibration calibration;
    void *pointer;
    mica_placement placement;
    mica_fit fit;
    uint64_t number;
} fixture;

#define STATUS_ONE(code, meaning) +1
enum { LAST_STATUS = 0 MICA_STATUS_LIST(STATUS_ONE) - 1 };

typedef enum kind { KIND_FLAGS, KIND_ENUM, KIND_SIZE } kind;

typedef struct row {
    const char *function, *argument;
    kind kind;
    size_t size; /* of the struct */
    mica_status (*call)(fixture *f, uint64_t bad);
} row;

static mica_status says(const char *found, const char *expected, const char *argument)
{
    return strcmp(found, expected) == 0 ? mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s", argument) : MICA_OK;
}

static void host_kernel(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                        uint32_t last)
{
    (void)bindings, (void)count, (void)params, (void)first, (void)last;
}

static mica_status dispatch(fixture *f, uint32_t bad)
{
    const mica_kernel_desc desc = {.name = "own", .host = host_kernel};
    const mica_binding binding = {f->x, MICA_ACCESS_READ | bad};
    mica_dispatch_desc launch = {.groups = {1, 1, 1}, .bindings = &binding, .binding_count = 1};
    assert_int_equal(mica_kernel_register(f->device, &desc), MICA_OK);
    assert_int_equal(mica_kernel_get(f->device, "own", NULL, 0, &launch.kernel), MICA_OK);
    const mica_status status = mica_encoder_dispatch(f->encoder, &launch);
    mica_kernel_release(launch.kernel);
    return status;
}

/* What the graph of a call has: inputs, by their numbers. */
#define GRAPH_INPUTS(X_)            \
    X_(X, F32, 2, {4, 4})           \
    X_(V, F32, 1, {4})              \
    X_(ID, U64, 0, {0})             \
    X_(IDS, I32, 1, {4})            \
    X_(PAIRS, I32, 2, {4, 1})       \
    X_(PLACES, I32, 2, {2, 4})      \
    X_(ROUTE, I32, 2, {4, 1})       \
    X_(HEADS, F32, 3, {4, 1, 4})    \
    X_(HALF, F32, 2, {4, 2})        \
    X_(HIDDEN, F32, 3, {1, 4, 4})   \
    X_(QKV, F32, 2, {12, 4})        \
    X_(EXPERTS, F32, 3, {4, 4, 4})  \
    X_(SEQUENCE, F32, 3, {4, 1, 1}) \
    X_(ONE, F32, 3, {1, 1, 1})      \
    X_(CODES, I8, 2, {4, 4})        \
    X_(SUMS, I32, 2, {4, 4})
#define INPUT_NUMBER(name, dtype, rank, ...) name,
enum { NO_INPUT, GRAPH_INPUTS(INPUT_NUMBER) };

static mica_graph *fresh_graph(fixture *f)
{
    mica_graph_release(f->graph);
    f->graph = NULL;
    assert_int_equal(mica_graph_create(&f->graph), MICA_OK);
#define MAKE_INPUT(name, dtype, rank, ...)                                                                 \
    assert_int_equal(                                                                                      \
        mica_graph_input(f->graph, #name, MICA_DTYPE_##dtype, rank, (uint64_t[MICA_MAX_DIMS])__VA_ARGS__), \
        name);
    GRAPH_INPUTS(MAKE_INPUT)
    return f->graph;
}

/* How the call of a builder ended: what it gives is 0 exactly where it failed. */
static mica_status built(fixture *f, mica_tensor made)
{
    const mica_status status = mica_graph_status(f->graph);
    assert_int_equal(made == 0, status != MICA_OK);
    return status;
}

static mica_status no_batch(void *context, uint64_t step, mica_array *inputs, uint32_t count)
{
    (void)context, (void)step, (void)inputs, (void)count;
    return MICA_ERR_CANCELLED;
}

#define PAST(type, last) ((type)((last) + 1 + bad))
#define NO_DTYPE PAST(mica_dtype, MICA_DTYPE_COUNT - 1)

/* One function for each row, and the table of them. */
#define FLAGS(function, argument, ...) ROW(function, argument, __LINE__, uint32_t, __VA_ARGS__)
#define ENUM(function, argument, ...) ROW(function, argument, __LINE__, uint32_t, __VA_ARGS__)
#define SIZE(function, argument, type, ...) ROW(function, argument, __LINE__, uint64_t, __VA_ARGS__)
#define ROW(function, argument, line, type, ...) ROW_AT(line, type, __VA_ARGS__)
#define ROW_AT(line, type, ...)                                \
    static mica_status call_##line(fixture *f, uint64_t given) \
    {                                                          \
        const type bad = (type)given;                          \
        (void)f;                                               \
        return __VA_ARGS__;                                    \
    }
#include "hostile/arguments.def"
#undef FLAGS
#undef ENUM
#undef SIZE
#define AT(line) call_##line
#define ENTRY(function, argument, kind, size, line) {#function, #argument, kind, size, AT(line)},
#define FLAGS(function, argument, ...) ENTRY(function, argument, KIND_FLAGS, 0, __LINE__)
#define ENUM(function, argument, ...) ENTRY(function, argument, KIND_ENUM, 0, __LINE__)
#define SIZE(function, argument, type, ...) ENTRY(function, argument, KIND_SIZE, sizeof(type), __LINE__)
static const row rows[] = {
#include "hostile/arguments.def"
};

static void must(mica_status status)
{
    if (status != MICA_OK)
        fail_msg("%s", mica_status_message());
}

static void open_device(fixture *f)
{
    mica_session *done = NULL;
    must(mica_device_open("cpu", &(mica_device_options){.threads = 1}, &f->device));
    must(mica_pool_create(f->device, &f->pool));
    must(mica_buffer_alloc(f->device, MICA_DTYPE_F32, 2, (uint64_t[]){1, 4}, &f->x));
    must(mica_buffer_alloc(f->device, MICA_DTYPE_F32, 2, (uint64_t[]){4, 4}, &f->w));
    must(mica_buffer_alloc(f->device, MICA_DTYPE_F32, 2, (uint64_t[]){1, 4}, &f->y));
    must(mica_buffer_alloc(f->device, MICA_DTYPE_U32, 1, (uint64_t[]){1}, &f->ids));
    must(mica_buffer_alloc(f->device, MICA_DTYPE_U32, 2, (uint64_t[]){2, 1}, &f->pairs));
    must(mica_buffer_alloc(f->device, MICA_DTYPE_F32, 3, (uint64_t[]){1, 4, 4}, &f->experts));
    must(mica_buffer_alloc(f->device, MICA_DTYPE_U32, 2, (uint64_t[]){1, 1}, &f->slots));
    must(mica_buffer_alloc(f->device, MICA_DTYPE_F32, 3, (uint64_t[]){1, 1, 4}, &f->routed));
    must(mica_encoder_begin(f->device, NULL, &f->encoder));
    must(mica_session_begin(f->device, NULL, MICA_SESSION_RECORD, &f->session));
    must(mica_session_begin(f->device, NULL, MICA_SESSION_RECORD, &done));
    must(mica_matmul(mica_session_encoder(done), f->x, f->w, NULL, f->y));
    must(mica_session_record(done, 0, NULL, &f->recording));
    mica_session_release(done);
}

/* y = tanh(x) + p, as an executable too; a graph whose first call was wrong; a region of one step. */
static void make_graphs(fixture *f)
{
    const mica_region_step neg = {.scalar = MICA_SCALAR_NEG,
                                  .type = MICA_REGISTER_F32,
                                  .value = {0, MICA_REGION_NONE, MICA_REGION_NONE}};
    mica_region_desc negative = {.input_count = 1,
                                 .output_count = 1,
                                 .step_count = 1,
                                 .input = {MICA_REGISTER_F32},
                                 .output = {1},
                                 .step = &neg};
    memset(negative.output_imag, MICA_REGION_NONE, sizeof negative.output_imag);
    must(mica_graph_create(&f->body));
    const mica_tensor x = mica_graph_input(f->body, "x", MICA_DTYPE_F32, 2, (uint64_t[]){4, 4});
    const mica_tensor p = mica_graph_parameter(f->body, "p", MICA_DTYPE_F32, 2, (uint64_t[]){4, 4});
    mica_graph_output(f->body, "y", mica_graph_add(f->body, mica_graph_tanh(f->body, x), p));
    must(mica_graph_status(f->body));
    must(mica_graph_compile(f->body, f->device, NULL, &f->executable));
    must(mica_graph_create(&f->failed));
    mica_graph_output(f->failed, "nothing", 0);
    must(mica_region_create(&negative, &f->region));
}

static int set_up(void **state)
{
    static const char nothing[] = "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"; /* a file without anything */
    mica_sampling sampling;
    mica_model_info info;
    fixture *f = calloc(1, sizeof *f);
    if (f == NULL)
        return 1;
    *state = f;
    open_device(f);
    must(mica_weights_open("models/demo.gguf", NULL, &f->weights));
    must(mica_weights_open_bytes(nothing, 24, NULL, &f->empty));
    must(mica_model_open("models/demo.gguf", f->device, NULL, &f->model));
    must(mica_model_get_info(f->model, &info));
    must(mica_context_create(f->model, NULL, &f->context));
    must(mica_sequence_create(f->context, &f->sequence));
    mica_sampling_default(&sampling);
    must(mica_sampler_create(&sampling, info.vocabulary, NULL, NULL, &f->picker));
    make_graphs(f);
    f->tokenizer = mica_model_tokenizer(f->model);
    f->id = 5;
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%.400s/mica-arguments-%p.gguf", folder != NULL ? folder : "/tmp", (void *)f);
    must(mica_writer_create(path, NULL, &f->writer));
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    mica_region_release(f->region);
    mica_executable_release(f->executable);
    mica_graph_release(f->failed);
    mica_graph_release(f->body);
    mica_graph_release(f->graph);
    mica_writer_discard(f->writer);
    mica_sampler_release(f->picker);
    mica_context_release(f->context);
    mica_model_release(f->model);
    mica_weights_release(f->empty);
    mica_weights_release(f->weights);
    mica_recording_release(f->recording);
    mica_session_release(f->session);
    mica_encoder_release(f->encoder);
    mica_buffer *const buffers[] = {f->x, f->w, f->y, f->ids, f->pairs, f->experts, f->slots, f->routed};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        mica_buffer_release(buffers[i]);
    mica_pool_release(f->pool);
    mica_device_release(f->device);
    free(f);
    return 0;
}

/* The last part of "desc.bindings.access", which a sentence names however it writes the rest. */
static const char *last_part(const char *argument)
{
    const char *dot = strrchr(argument, '.');
    return dot != NULL ? dot + 1 : argument;
}

static int check(fixture *f, const row *r, uint64_t bad, int refused)
{
    must(mica__fail(MICA_OK, "nothing was said"));
    const mica_status status = r->call(f, bad);
    const char *sentence = mica_status_message();
    const int named = status == MICA_ERR_INVALID_ARGUMENT && strstr(sentence, last_part(r->argument)) != NULL;
    if (named == refused)
        return 0;
    print_error("%s: %s = 0x%llx %s: %s, \"%s\"\n", r->function, r->argument, (unsigned long long)bad,
                refused ? "is not refused by name" : "is refused", mica_status_name(status), sentence);
    return 1;
}

static void test_rows(void **state)
{
    fixture *f = *state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        if (r->kind == KIND_FLAGS) {
            for (int bit = 8; bit < 32; bit++)
                wrong += check(f, r, (uint64_t)1 << bit, 1);
        } else if (r->kind == KIND_ENUM) {
            const uint64_t past[] = {0, 1, 77, 0x10000, 0x7ffffe00};
            for (size_t n = 0; n < sizeof past / sizeof *past; n++)
                wrong += check(f, r, past[n], 1);
        } else {
            const uint64_t sizes[] = {1,           8,           r->size - 8,       r->size - 1,
                                      r->size + 1, r->size + 8, (uint64_t)1 << 40, UINT64_MAX};
            for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
                wrong += check(f, r, sizes[n], 1);
            wrong += check(f, r, 0, 0) + check(f, r, r->size, 0); /* refused for something else */
        }
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_rows, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
