/*
 * test_shrink.c - a file that another program cuts short while it is open: reading, uploading, packing, quantising and
 * converting end with a status, wherever in their course it happens. The cut comes at each allocation in turn.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "format/format_rig.h"
#include "mica/mica.h"
#include "support/model_file.h"
#include "support/random.h"

typedef struct scene {
    char input[128], output[128], converted[128];
    uint64_t cut_to;
} scene;

/* ---- the cut -------------------------------------------------------------------------------------------- */

typedef struct striker {
    atomic_ullong calls, live;
    uint64_t strike_at;
    const scene *scene;
} striker;

static void *striker_take(void *context, size_t size, size_t align)
{
    striker *s = context;
    void *memory = NULL;
    if (atomic_fetch_add(&s->calls, 1) + 1 == s->strike_at &&
        truncate(s->scene->input, (off_t)s->scene->cut_to) != 0)
        return NULL;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, size) != 0)
        return NULL;
    atomic_fetch_add(&s->live, 1);
    return memory;
}

static void striker_give(void *context, void *pointer, size_t size)
{
    (void)size;
    atomic_fetch_sub(&((striker *)context)->live, 1);
    free(pointer);
}

/* ---- the work ------------------------------------------------------------------------------------------- */

static mica_status read_all(const scene *s)
{
    const mica_weights_options options = {.flags = MICA_WEIGHTS_NO_MAP};
    mica_weights *weights = NULL;
    mica_weights_info info = {0};
    mica_status status = mica_weights_open(s->input, &options, &weights);
    if (status == MICA_OK)
        status = mica_weights_get_info(weights, &info);
    for (uint64_t i = 0; i < info.tensor_count && status == MICA_OK; i++) {
        mica_tensor_info tensor;
        status = mica_weights_tensor(weights, i, &tensor);
        void *bytes = malloc(tensor.bytes + 1);
        if (status == MICA_OK)
            status = mica_weights_read(weights, i, 0, bytes, tensor.bytes);
        free(bytes);
    }
    mica_weights_release(weights);
    return status;
}

static mica_status load_all(const scene *s, uint32_t flags)
{
    const mica_weights_options options = {.flags = MICA_WEIGHTS_NO_MAP};
    const uint64_t index[] = {0, 1, 2};
    mica_buffer *buffers[3] = {0};
    mica_weights *weights = NULL;
    mica_device *device = NULL;
    mica_status status = mica_device_open("cpu", NULL, &device);
    if (status == MICA_OK)
        status = mica_weights_open(s->input, &options, &weights);
    if (status == MICA_OK)
        status = mica_weights_load_all(weights, index, 3, device, flags, NULL, NULL, buffers);
    for (int i = 0; i < 3; i++)
        mica_buffer_release(buffers[i]);
    mica_weights_release(weights);
    mica_device_release(device);
    return status;
}

static mica_status upload(const scene *s)
{
    return load_all(s, 0);
}

static mica_status pack(const scene *s)
{
    return load_all(s, MICA_LOAD_PACK);
}

static mica_status quantize(const scene *s)
{
    const mica_quantize_options options = {.type = "q4_0", .threads = 2};
    return mica_quantize(s->input, s->output, &options, NULL);
}

static mica_status convert(const scene *s)
{
    const mica_convert_options options = {.threads = 2};
    return mica_convert(s->input, s->converted, &options);
}

/* ---- the tests ------------------------------------------------------------------------------------------ */

/* A small model; returns its bytes. */
static rig_bytes make_model(scene *s)
{
    test_gguf gguf = {0};
    test_random random = test_random_from(5);
    float values[64 * 256];
    test_file_path(s->input, sizeof s->input, "shrink.gguf");
    test_file_path(s->output, sizeof s->output, "shrunk.gguf");
    test_file_path(s->converted, sizeof s->converted, "shrunk.safetensors");
    test_gguf_string(&gguf, "general.architecture", "llama");
    test_gguf_u32(&gguf, "llama.block_count", 1);
    test_gguf_u32(&gguf, "llama.context_length", 64);
    test_gguf_u32(&gguf, "llama.embedding_length", 256);
    test_gguf_u32(&gguf, "llama.feed_forward_length", 32);
    test_gguf_u32(&gguf, "llama.attention.head_count", 4);
    test_gguf_tensor(&gguf, "token_embd.weight", MICA_DTYPE_F32, 2, (uint64_t[]){64, 256});
    test_gguf_tensor(&gguf, "blk.0.attn_norm.weight", MICA_DTYPE_F32, 1, (uint64_t[]){256});
    test_gguf_tensor(&gguf, "blk.0.ffn_up.weight", MICA_DTYPE_F32, 2, (uint64_t[]){32, 256});
    test_gguf_write(&gguf, s->input);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = (float)test_random_below(&random, 1000) * 0.01f;
    for (uint32_t i = 0; i < 3; i++)
        test_gguf_put(&gguf, s->input, i, values, (uint64_t[]){64, 1, 32}[i] * 256 * sizeof(float));
    test_gguf_free(&gguf);
    return rig_load(s->input);
}

static void put_model(const scene *s, const rig_bytes *bytes)
{
    FILE *file = fopen(s->input, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->data, 1, bytes->size, file), bytes->size);
    assert_int_equal(fclose(file), 0);
}

/* Whether it failed, it must have said so, and left no output. */
static void check_end(const scene *s, mica_status status, uint64_t strike)
{
    if (status != MICA_OK && status != MICA_ERR_MALFORMED_FILE)
        fail_msg("cut at allocation %llu: %s: %s", (unsigned long long)strike, mica_status_name(status),
                 mica_status_message());
    if (status != MICA_OK) {
        assert_non_null(strstr(mica_status_message(), s->input));
        assert_int_not_equal(access(s->output, F_OK), 0);
        assert_int_not_equal(access(s->converted, F_OK), 0);
    }
    unlink(s->output);
    unlink(s->converted);
}

static void cut_everywhere(mica_status (*work)(const scene *s))
{
    scene s = {.cut_to = 0};
    rig_bytes bytes = make_model(&s);
    const uint64_t cuts[] = {0, 40, bytes.size - 40 * 1024, bytes.size - 1};
    uint32_t failed = 0;
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        striker k = {.scene = &s, .strike_at = 1};
        s.cut_to = cuts[c];
        for (bool reached = true; reached; k.strike_at++) {
            const mica_allocator allocator = {&k, striker_take, striker_give};
            put_model(&s, &bytes);
            atomic_store(&k.calls, 0);
            assert_int_equal(mica_set_allocator(&allocator), MICA_OK);
            const mica_status status = work(&s);
            assert_int_equal(atomic_load(&k.live), 0);
            assert_int_equal(mica_set_allocator(NULL), MICA_OK);
            check_end(&s, status, k.strike_at);
            reached = atomic_load(&k.calls) >= k.strike_at;
            failed += status != MICA_OK;
            assert_true(reached || status == MICA_OK);
        }
    }
    assert_true(failed > 4);
    unlink(s.input);
    rig_free(&bytes);
}

static void test_read(void **state)
{
    (void)state;
    cut_everywhere(read_all);
}

static void test_upload(void **state)
{
    (void)state;
    cut_everywhere(upload);
}

static void test_pack(void **state)
{
    (void)state;
    cut_everywhere(pack);
}

static void test_quantize(void **state)
{
    (void)state;
    cut_everywhere(quantize);
}

static void test_convert(void **state)
{
    (void)state;
    cut_everywhere(convert);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),     cmocka_unit_test(test_upload),  cmocka_unit_test(test_pack),
        cmocka_unit_test(test_quantize), cmocka_unit_test(test_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
