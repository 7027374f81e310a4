/*
 * test_load.c - tensors as buffers: the right bytes by every way, the ledger moved by exactly what place and fit said,
 * the order of the disk, progress, stopping at every step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/objects.h"
#include "weights/scene.h"

#define PIECE ((uint64_t)4 << 20)

static scene the;
static mica_device *device;

static mica_weights *open_the(uint32_t flags)
{
    mica_weights *weights = NULL;
    mica_weights_options options = {.size = sizeof options, .flags = flags};

    must(mica_weights_open(the.path, &options, &weights));
    return weights;
}

static mica_device_memory ledger(void)
{
    mica_device_memory memory;

    must(mica_device_get_memory(device, &memory));
    return memory;
}

/* The whole storage of a packed weight, made by mica_buffer_pack from the tensor's bytes. */
static mica_buffer *packed_by_device(uint32_t t)
{
    mica_buffer *plain, *packed;

    must(mica_buffer_alloc(device, scene_table[t].dtype, scene_table[t].ndim, scene_table[t].shape, &plain));
    must(mica_buffer_write(plain, 0, the.data[t], the.bytes[t]));
    must(mica_buffer_pack(plain, &packed));
    mica_buffer_release(plain);
    return packed;
}

/* The buffer is tensor t, bit for bit. */
static void check_buffer(uint32_t t, mica_buffer *buffer)
{
    mica_buffer_info info, want;

    must(mica_buffer_get_info(buffer, &info));
    assert_int_equal(info.dtype, scene_table[t].dtype);
    assert_int_equal(info.ndim, scene_table[t].ndim);
    assert_memory_equal(info.shape, scene_table[t].shape, info.ndim * sizeof(uint64_t));
    if (info.layout == MICA_LAYOUT_CANONICAL) {
        unsigned char *bytes = test_alloc(the.bytes[t], 1);
        must(mica_buffer_read(buffer, 0, bytes, the.bytes[t]));
        assert_memory_equal(bytes, the.data[t], the.bytes[t]);
        free(bytes);
        return;
    }
    mica_buffer *packed = packed_by_device(t);
    void *mine, *theirs;
    uint64_t offset;
    must(mica_buffer_get_info(packed, &want));
    assert_int_equal(want.layout, info.layout);
    assert_int_equal(want.storage_bytes, info.storage_bytes);
    must(mica_buffer_native(buffer, &mine, &offset));
    must(mica_buffer_native(packed, &theirs, &offset));
    assert_memory_equal(mine, theirs, info.storage_bytes);
    mica_buffer_release(packed);
}

static const struct {
    uint32_t open, load, separate; /* separate: a device whose memory is not the host's */
} modes[] = {
    {0, 0, 0}, {0, MICA_LOAD_PACK, 0}, {MICA_WEIGHTS_NO_MAP, 0, 0}, {MICA_WEIGHTS_NO_MAP, MICA_LOAD_PACK, 0},
    {0, 0, 1}, {0, MICA_LOAD_PACK, 1},
};
#define MODES (sizeof modes / sizeof *modes)

static mica_placement wanted(size_t mode, uint32_t t)
{
    mica_dtype dtype = scene_table[t].dtype;

    if (modes[mode].load != 0 && mica_dtype_block_elements(dtype) > 1)
        return MICA_PLACEMENT_PACK;
    return modes[mode].open == 0 && !modes[mode].separate ? MICA_PLACEMENT_IMPORT : MICA_PLACEMENT_COPY;
}

/* Each tensor by itself: the ledger moves by what place said, and back. */
static void test_each(void **state)
{
    (void)state;
    for (size_t m = 0; m < MODES; m++) {
        mica_weights *weights = open_the(modes[m].open);
        device->info.properties.unified_memory = !modes[m].separate;
        for (uint32_t t = 0; t < SCENE_TENSORS; t++) {
            mica_device_memory before = ledger(), after;
            mica_placement placement;
            mica_buffer_info info;
            mica_buffer *buffer;
            uint64_t bytes;
            must(mica_weights_place(weights, t, device, modes[m].load, &placement, &bytes));
            assert_int_equal(placement, wanted(m, t));
            must(mica_weights_load(weights, t, device, modes[m].load, &buffer));
            after = ledger();
            int mapped = placement == MICA_PLACEMENT_IMPORT;
            assert_int_equal(after.mapped_bytes - before.mapped_bytes, mapped ? bytes : 0);
            assert_int_equal(after.owned_bytes - before.owned_bytes, mapped ? 0 : bytes);
            assert_int_equal(after.buffer_count - before.buffer_count, 1);
            must(mica_buffer_get_info(buffer, &info));
            assert_int_equal(info.imported, mapped);
            assert_int_equal(info.read_only, mapped);
            check_buffer(t, buffer);
            mica_buffer_release(buffer);
            assert_int_equal(ledger().owned_bytes, before.owned_bytes);
            assert_int_equal(ledger().mapped_bytes, before.mapped_bytes);
        }
        mica_weights_release(weights);
        device->info.properties.unified_memory = 1;
    }
}

typedef struct watcher {
    uint64_t calls, stop_at, done, total;
    uint64_t largest_step;
    char seen[SCENE_TENSORS + 8][64];
    uint32_t seen_count;
} watcher;

static int watch(void *context, const char *what, uint64_t done, uint64_t total)
{
    watcher *w = context;

    w->calls++;
    assert_true(done >= w->done && done <= total);
    if (done - w->done > w->largest_step)
        w->largest_step = done - w->done;
    w->done = done;
    w->total = total;
    if (w->seen_count == 0 || strcmp(w->seen[w->seen_count - 1], what) != 0)
        snprintf(w->seen[w->seen_count++], sizeof w->seen[0], "%s", what);
    return w->calls == w->stop_at;
}

/* All at once, in a shuffled order with one tensor twice. */
static void test_all(void **state)
{
    static const uint64_t order[] = {8, 2, 6, 0, 5, 2, 1, 7, 4, 3};
    enum { COUNT = sizeof order / sizeof *order };

    (void)state;
    for (size_t m = 0; m < MODES; m++) {
        mica_weights *weights = open_the(modes[m].open);
        mica_buffer *buffers[COUNT];
        watcher w = {0};
        uint64_t bytes = 0;
        device->info.properties.unified_memory = !modes[m].separate;
        must(mica_weights_load_all(weights, order, COUNT, device, modes[m].load, watch, &w, buffers));
        mica_weights_release(weights); /* buffers live on */
        for (uint32_t i = 0; i < COUNT; i++) {
            check_buffer((uint32_t)order[i], buffers[i]);
            bytes += the.bytes[order[i]];
            mica_buffer_release(buffers[i]);
        }
        assert_int_equal(w.done, bytes);
        assert_int_equal(w.total, bytes);
        assert_true(w.largest_step <= PIECE);
        assert_int_equal(w.seen_count, SCENE_TENSORS);
        for (uint32_t t = 0; t < SCENE_TENSORS; t++)
            assert_string_equal(w.seen[t], scene_table[t].name); /* as they lie in the file */
        assert_int_equal(ledger().owned_bytes + ledger().mapped_bytes, 0);
        device->info.properties.unified_memory = 1;
    }
}

/* Loading everything adds what fit says, to the byte, and the budget that fit asks for is enough. */
static void test_fit(void **state)
{
    uint64_t order[SCENE_TENSORS];

    (void)state;
    for (uint32_t t = 0; t < SCENE_TENSORS; t++)
        order[t] = t;
    for (size_t m = 0; m < MODES; m++) {
        mica_weights *weights = open_the(modes[m].open);
        mica_buffer *buffers[SCENE_TENSORS];
        mica_fit fit, tight;
        uint64_t peak = 0;
        device->info.properties.unified_memory = !modes[m].separate;
        must(mica_weights_fit(weights, device, modes[m].load, &fit));
        assert_int_equal(fit.unusable, 0);
        assert_int_equal(fit.fits, 1);
        /* the least budget that fits, found by asking */
        for (uint64_t low = 0, high = fit.owned_bytes + 2 * PIECE; fit.owned_bytes != 0 && low <= high;) {
            uint64_t middle = low + (high - low) / 2;
            must(mica_device_set_budget(device, middle == 0 ? 1 : middle));
            must(mica_weights_fit(weights, device, modes[m].load, &tight));
            if (tight.fits) {
                peak = middle;
                high = middle - 1;
            } else {
                low = middle + 1;
            }
        }
        must(mica_device_set_budget(device, peak));
        assert_true(peak >= fit.owned_bytes);
        must(
            mica_weights_load_all(weights, order, SCENE_TENSORS, device, modes[m].load, NULL, NULL, buffers));
        assert_int_equal(ledger().owned_bytes, fit.owned_bytes);
        assert_int_equal(ledger().mapped_bytes, fit.mapped_bytes);
        for (uint32_t t = 0; t < SCENE_TENSORS; t++)
            mica_buffer_release(buffers[t]);
        if (fit.owned_bytes != 0) {
            must(mica_device_set_budget(device, fit.owned_bytes - 1));
            refused(mica_weights_load_all(weights, order, SCENE_TENSORS, device, modes[m].load, NULL, NULL,
                                          buffers),
                    MICA_ERR_BUDGET, "budget");
            for (uint32_t t = 0; t < SCENE_TENSORS; t++)
                assert_null(buffers[t]);
        }
        must(mica_device_set_budget(device, 0));
        assert_int_equal(ledger().owned_bytes + ledger().mapped_bytes, 0);
        mica_weights_release(weights);
        device->info.properties.unified_memory = 1;
    }
}

/* Stopped at every call of the callback: nothing is left. */
static void test_cancel(void **state)
{
    static const uint64_t order[] = {6, 5, 1, 0};

    (void)state;
    for (size_t m = 0; m < MODES; m++) {
        mica_weights *weights = open_the(modes[m].open);
        mica_status status = MICA_ERR_CANCELLED;
        uint64_t stop_at = 0;
        device->info.properties.unified_memory = !modes[m].separate;
        while (status != MICA_OK) {
            mica_buffer *buffers[4];
            watcher w = {.stop_at = ++stop_at};
            status = mica_weights_load_all(weights, order, 4, device, modes[m].load, watch, &w, buffers);
            if (status != MICA_OK) {
                assert_int_equal(status, MICA_ERR_CANCELLED);
                assert_int_equal(w.calls, stop_at); /* not called again */
            }
            for (uint32_t i = 0; i < 4; i++) {
                assert_true((buffers[i] == NULL) == (status != MICA_OK));
                mica_buffer_release(buffers[i]);
            }
            assert_int_equal(ledger().owned_bytes + ledger().mapped_bytes, 0);
        }
        assert_true(stop_at >= 6); /* four tensors, one of them in pieces */
        mica_weights_release(weights);
        device->info.properties.unified_memory = 1;
    }
}

static void test_named(void **state)
{
    mica_weights *weights = open_the(0);
    const uint64_t right[] = {67, 96}, wrong[] = {96, 67};
    mica_buffer *buffer;

    (void)state;
    must(mica_weights_load_named(weights, "blk.0.attn_q.weight", device, 0, MICA_DTYPE_Q4_0, 2, right,
                                 &buffer));
    check_buffer(2, buffer);
    mica_buffer_release(buffer);
    must(mica_weights_load_named(weights, "blk.0.attn_q.weight", device, 0, MICA_DTYPE_NONE, 0, NULL,
                                 &buffer));
    mica_buffer_release(buffer);
    refused(mica_weights_load_named(weights, "blk.0.attn_q.weight", device, 0, MICA_DTYPE_NONE, 2, wrong,
                                    &buffer),
            MICA_ERR_INVALID_ARGUMENT, "[67, 96], expected [96, 67]");
    assert_null(buffer);
    refused(mica_weights_load_named(weights, "blk.0.attn_q.weight", device, 0, MICA_DTYPE_NONE, 1, right,
                                    &buffer),
            MICA_ERR_INVALID_ARGUMENT, "expected [67]");
    refused(
        mica_weights_load_named(weights, "blk.0.attn_q.weight", device, 0, MICA_DTYPE_F16, 0, NULL, &buffer),
        MICA_ERR_INVALID_ARGUMENT, "expected f16");
    refused(
        mica_weights_load_named(weights, "blk.0.attn_q.wight", device, 0, MICA_DTYPE_NONE, 0, NULL, &buffer),
        MICA_ERR_NOT_FOUND, "blk.0.attn_q.weight");
    refused(mica_weights_load_named(weights, "output.weight", device, 0, MICA_DTYPE_NONE, 2, NULL, &buffer),
            MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_weights_load_named(weights, "output.weight", device, 0, MICA_DTYPE_NONE, MICA_MAX_DIMS + 1,
                                    right, &buffer),
            MICA_ERR_INVALID_ARGUMENT, "ndim");
    mica_weights_release(weights);
}

static void test_refusals(void **state)
{
    mica_weights *weights = open_the(0);
    const uint64_t order[] = {1, 99};
    mica_buffer *buffers[2];
    mica_placement placement;
    mica_fit fit;
    uint64_t bytes;
    watcher w = {0};

    (void)state;
    refused(mica_weights_load(weights, 9, device, 0, buffers), MICA_ERR_INVALID_ARGUMENT, "index is 9");
    refused(mica_weights_load(weights, 0, NULL, 0, buffers), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_weights_load(NULL, 0, device, 0, buffers), MICA_ERR_INVALID_ARGUMENT, "weights");
    refused(mica_weights_load(weights, 0, device, 2, buffers), MICA_ERR_INVALID_ARGUMENT, "flags");
    refused(mica_weights_load(weights, 0, device, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "out_buffer");
    refused(mica_weights_load_all(weights, order, 2, device, 0, NULL, NULL, buffers),
            MICA_ERR_INVALID_ARGUMENT, "index is 99");
    assert_null(buffers[0]);
    refused(mica_weights_load_all(weights, NULL, 2, device, 0, NULL, NULL, buffers),
            MICA_ERR_INVALID_ARGUMENT, "index");
    refused(mica_weights_fit(weights, device, 4, &fit), MICA_ERR_INVALID_ARGUMENT, "flags");
    refused(mica_weights_place(weights, 9, device, 0, &placement, &bytes), MICA_ERR_INVALID_ARGUMENT,
            "index");
    must(mica_weights_load_all(weights, NULL, 0, device, 0, watch, &w, NULL));
    assert_int_equal(w.calls, 1);
    mica_weights_release(weights);
}

/* A tensor of a type that nobody knows is listed, placed nowhere and refused; its neighbours load. */
static void test_unusable(void **state)
{
    char path[128];
    test_gguf gguf = {0};
    const uint64_t shape[] = {4}, order[] = {1, 0};
    mica_weights *weights;
    mica_buffer *buffers[2];
    mica_placement placement;
    mica_fit fit;
    uint64_t bytes;

    (void)state;
    test_file_path(path, sizeof path, "unusable.gguf");
    test_gguf_raw(&gguf, "strange", 999, 1, shape, 64);
    test_gguf_tensor(&gguf, "plain", MICA_DTYPE_F32, 1, shape);
    test_gguf_write(&gguf, path);
    must(mica_weights_open(path, NULL, &weights));
    must(mica_weights_place(weights, 0, device, 0, &placement, &bytes));
    assert_int_equal(placement, MICA_PLACEMENT_NONE);
    must(mica_weights_fit(weights, device, MICA_LOAD_PACK, &fit));
    assert_int_equal(fit.unusable, 1);
    assert_int_equal(fit.mapped_bytes, 16);
    refused(mica_weights_load(weights, 0, device, 0, buffers), MICA_ERR_UNSUPPORTED, "strange");
    refused(mica_weights_load_all(weights, order, 2, device, 0, NULL, NULL, buffers), MICA_ERR_UNSUPPORTED,
            "strange");
    assert_null(buffers[0]);
    must(mica_weights_load(weights, 1, device, 0, buffers));
    mica_buffer_release(buffers[0]);
    mica_weights_release(weights);
    test_gguf_free(&gguf);
    unlink(path);
}

/* What a device does with a loaded weight is what it does with the same bytes written by hand. */
static void test_used(void **state)
{
    static const uint64_t x_shape[] = {2, 96}, y_shape[] = {2, 67};
    float x[192], y[3][134];
    test_random random = test_random_from(9);
    mica_weights *weights = open_the(0);

    (void)state;
    for (int i = 0; i < 192; i++)
        x[i] = (float)test_random_normal(&random);
    for (int way = 0; way < 3; way++) { /* by hand, imported, packed */
        mica_buffer *weight, *in, *out;
        mica_encoder *encoder;
        if (way == 0) {
            must(mica_buffer_alloc(device, MICA_DTYPE_Q4_0, 2, scene_table[2].shape, &weight));
            must(mica_buffer_write(weight, 0, the.data[2], the.bytes[2]));
        } else {
            must(mica_weights_load(weights, 2, device, way == 2 ? MICA_LOAD_PACK : 0, &weight));
        }
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, x_shape, &in));
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, y_shape, &out));
        must(mica_buffer_write(in, 0, x, sizeof x));
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_matmul(encoder, in, weight, NULL, out));
        must(mica_encoder_commit_and_wait(encoder));
        must(mica_buffer_read(out, 0, y[way], sizeof y[way]));
        mica_encoder_release(encoder);
        mica_buffer_release(weight);
        mica_buffer_release(in);
        mica_buffer_release(out);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(y[0], y[2], sizeof y[0]);
    mica_weights_release(weights);
}

static int make(void **state)
{
    (void)state;
    scene_make(&the, "load.gguf");
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static int unmake(void **state)
{
    (void)state;
    scene_free(&the);
    mica_device_release(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each),     cmocka_unit_test(test_all),   cmocka_unit_test(test_fit),
        cmocka_unit_test(test_cancel),   cmocka_unit_test(test_named), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_unusable), cmocka_unit_test(test_used),
    };
    return cmocka_run_group_tests_name("load", tests, make, unmake);
}
