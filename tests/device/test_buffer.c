/* Buffers: creation, host access, import, native handles, DLPack, affine weights, packing. */
#include "device_test.h"

#include <math.h>

#include "support/random.h"

typedef struct type_row {
    const char *text;
    uint32_t elements, bytes;
} type_row;

static const type_row types[] = {
#define TYPE_ROW(name, text, elements, bytes) {text, elements, bytes},
    MICA_DTYPE_LIST(TYPE_ROW)
#undef TYPE_ROW
};

static void every_type_has_its_size(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    for (uint32_t t = 0; t < sizeof types / sizeof *types; t++) {
        mica_dtype dtype = (mica_dtype)(t + 1);
        assert_string_equal(mica_dtype_name(dtype), types[t].text);
        assert_int_equal(mica_dtype_from_name(types[t].text), dtype);
        assert_int_equal(mica_dtype_block_elements(dtype), types[t].elements);
        assert_int_equal(mica_dtype_block_bytes(dtype), types[t].bytes);
        uint64_t shape[3] = {2, 3, 5ull * types[t].elements};
        mica_buffer *buffer = NULL;
        mica_buffer_info info;
        must(mica_buffer_alloc(device, dtype, 3, shape, &buffer));
        must(mica_buffer_get_info(buffer, &info));
        assert_int_equal(info.dtype, dtype);
        assert_int_equal(info.layout, MICA_LAYOUT_CANONICAL);
        assert_int_equal(info.ndim, 3);
        assert_int_equal(info.stride[2], types[t].bytes);
        assert_int_equal(info.stride[1], 5 * types[t].bytes);
        assert_int_equal(info.stride[0], 15 * types[t].bytes);
        assert_int_equal(info.byte_length, 30 * types[t].bytes);
        assert_int_equal(info.element_count, 30 * types[t].elements);
        assert_int_equal(info.contiguous, 1);
        assert_true(info.storage_bytes >= info.byte_length && info.byte_offset == 0);
        assert_true(!info.read_only && !info.imported && info.group_size == 0);
        mica_buffer_release(buffer);
    }
    assert_string_equal(mica_dtype_name(MICA_DTYPE_COUNT), "none");
    assert_int_equal(mica_dtype_block_bytes(MICA_DTYPE_NONE), 0);
    assert_int_equal(mica_dtype_from_name("f31"), MICA_DTYPE_NONE);
    assert_int_equal(mica_dtype_from_name(NULL), MICA_DTYPE_NONE);
    mica_device_release(device);
}

static void fresh_memory_is_zero(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    for (uint64_t n = 1; n < 70000; n = n * 3 + 1) {
        mica_buffer *buffer = new_vector(device, MICA_DTYPE_U8, n);
        unsigned char *bytes = malloc(n);
        memset(bytes, 0xa5, n);
        must(mica_buffer_read(buffer, 0, bytes, n));
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(bytes[i], 0);
        memset(bytes, 0x77, n); /* dirty it, so that the next one may get used memory */
        must(mica_buffer_write(buffer, 0, bytes, n));
        free(bytes);
        mica_buffer_release(buffer);
    }
    mica_device_release(device);
}

static void impossible_shapes_are_refused(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    const struct {
        mica_buffer_desc desc;
        const char *word;
    } wrong[] = {
        {{.dtype = MICA_DTYPE_NONE, .ndim = 1, .shape = {1}}, "dtype"},
        {{.dtype = MICA_DTYPE_COUNT, .ndim = 1, .shape = {1}}, "dtype"},
        {{.dtype = MICA_DTYPE_Q4_0, .ndim = 0}, "ndim"},
        {{.dtype = MICA_DTYPE_F32, .ndim = MICA_MAX_DIMS + 1, .shape = {1, 1, 1, 1, 1, 1, 1, 1}}, "ndim"},
        {{.dtype = MICA_DTYPE_Q4_0, .ndim = 2, .shape = {0, 33}}, "32"},
        {{.dtype = MICA_DTYPE_F32, .ndim = 3, .shape = {0, 1ull << 32, 1ull << 32}}, "shape"},
        {{.dtype = MICA_DTYPE_F32, .ndim = 3, .shape = {1ull << 31, 1ull << 31, 0}}, "shape"},
        {{.dtype = MICA_DTYPE_Q4_0, .ndim = 2, .shape = {4, 33}}, "32"},
        {{.dtype = MICA_DTYPE_Q6_K, .ndim = 1, .shape = {128}}, "256"},
        {{.dtype = MICA_DTYPE_F32, .ndim = 3, .shape = {1ull << 32, 1ull << 32, 2}}, "shape"},
        {{.dtype = MICA_DTYPE_F64, .ndim = 1, .shape = {1ull << 61}}, "shape"},
        {{.dtype = MICA_DTYPE_U8, .ndim = 1, .shape = {UINT64_MAX}}, "shape"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mica_buffer *buffer = (mica_buffer *)&i;
        refused(mica_buffer_create(device, &wrong[i].desc, &buffer), MICA_ERR_INVALID_ARGUMENT,
                wrong[i].word);
        assert_null(buffer);
    }
    mica_buffer *buffer = NULL;
    uint64_t shape[1] = {1ull << 46};
    assert_int_not_equal(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, shape, &buffer), MICA_OK);
    assert_null(buffer);
    refused(mica_buffer_create(NULL, &wrong[0].desc, &buffer), MICA_ERR_INVALID_ARGUMENT, "device");
    refused(mica_buffer_create(device, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT, "desc");
    refused(mica_buffer_create(device, &wrong[0].desc, NULL), MICA_ERR_INVALID_ARGUMENT, "out_buffer");
    refused(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT, "shape");
    refused(mica_buffer_alloc(device, MICA_DTYPE_F32, 77, shape, &buffer), MICA_ERR_INVALID_ARGUMENT, "ndim");
    mica_device_release(device);
}

static void bytes_come_back(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 2);
    test_random random = test_random_from(11);
    enum { N = 4099 };
    unsigned char model[N] = {0}, part[N], back[N];
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_U8, N);
    for (int round = 0; round < 300; round++) {
        uint64_t at = test_random_below(&random, N), n = test_random_below(&random, N - at + 1);
        for (uint64_t i = 0; i < n; i++)
            part[i] = (unsigned char)test_random_next(&random);
        must(mica_buffer_write(buffer, at, part, n));
        memcpy(model + at, part, n);
        at = test_random_below(&random, N), n = test_random_below(&random, N - at + 1);
        must(mica_buffer_read(buffer, at, back, n));
        assert_memory_equal(back, model + at, n);
    }
    refused(mica_buffer_write(buffer, 1, part, N), MICA_ERR_INVALID_ARGUMENT, "offset");
    refused(mica_buffer_write(buffer, UINT64_MAX, part, 2), MICA_ERR_INVALID_ARGUMENT, "offset");
    refused(mica_buffer_read(buffer, N, back, 1), MICA_ERR_INVALID_ARGUMENT, "offset");
    refused(mica_buffer_read(buffer, 0, NULL, 1), MICA_ERR_INVALID_ARGUMENT, "NULL");
    refused(mica_buffer_read(NULL, 0, back, 1), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_buffer_write(NULL, 0, back, 1), MICA_ERR_INVALID_ARGUMENT, "buffer");
    mica_buffer_release(buffer);
    mica_device_release(device);
}

static void mapping_is_the_memory(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_F32, 100);
    float *pointer = NULL, back[100];
    must(mica_buffer_map(buffer, MICA_ACCESS_READ | MICA_ACCESS_WRITE, (void **)&pointer));
    for (int i = 0; i < 100; i++)
        pointer[i] = (float)i;
    must(mica_buffer_unmap(buffer));
    must(mica_buffer_read(buffer, 0, back, sizeof back));
    for (int i = 0; i < 100; i++)
        assert_float_equal(back[i], (float)i, 0);
    void *none = &none;
    refused(mica_buffer_map(buffer, 0, &none), MICA_ERR_INVALID_ARGUMENT, "access");
    assert_null(none);
    refused(mica_buffer_map(buffer, 8, &none), MICA_ERR_INVALID_ARGUMENT, "access");
    refused(mica_buffer_map(NULL, MICA_ACCESS_READ, &none), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_buffer_map(buffer, MICA_ACCESS_READ, NULL), MICA_ERR_INVALID_ARGUMENT, "out_pointer");
    refused(mica_buffer_unmap(NULL), MICA_ERR_INVALID_ARGUMENT, "buffer");
    mica_buffer_release(buffer);
    mica_device_release(device);
}

/* The same on every device: scalars, as many dimensions as there are, and nothing at all. */
static void check_ranks(mica_device *device)
{
    for (uint32_t ndim = 0; ndim <= MICA_MAX_DIMS; ndim++)
        for (uint32_t none = 0; none <= ndim; none++) { /* the dimension of 0; ndim: there is none */
            uint64_t shape[MICA_MAX_DIMS], all = 1, count;
            for (uint32_t d = 0; d < ndim; d++) {
                shape[d] = d == none ? 0 : 1 + d % 3;
                all *= d == none ? 1 : shape[d];
            }
            count = none < ndim ? 0 : all;
            unsigned char bytes[8 * 216], back[8 * 216];
            mica_buffer *buffer = NULL;
            mica_buffer_info info;
            mica_dlpack_view view;
            void *pointer = &info;
            must(mica_buffer_alloc(device, MICA_DTYPE_F64, ndim, ndim > 0 ? shape : NULL, &buffer));
            must(mica_buffer_get_info(buffer, &info));
            assert_true(info.ndim == ndim && info.element_count == count && info.byte_length == 8 * count &&
                        info.contiguous && info.byte_offset == 0);
            assert_int_equal(info.storage_bytes, 8 * count);
            memset(bytes, 0x5a, sizeof bytes);
            must(mica_buffer_write(buffer, 0, count > 0 ? bytes : NULL, 8 * count));
            must(mica_buffer_read(buffer, 0, count > 0 ? back : NULL, 8 * count));
            assert_memory_equal(bytes, back, 8 * count);
            refused(mica_buffer_read(buffer, 8 * count, back, 1), MICA_ERR_INVALID_ARGUMENT, "offset");
            must(mica_buffer_map(buffer, MICA_ACCESS_READ | MICA_ACCESS_WRITE, &pointer));
            assert_true((pointer == NULL) == (count == 0));
            assert_memory_equal(bytes, count > 0 ? pointer : bytes, 8 * count);
            must(mica_buffer_unmap(buffer));
            must(mica_buffer_dlpack(buffer, &view));
            assert_int_equal(view.ndim, ndim);
            for (uint32_t d = 0; d < ndim; d++)
                assert_true(view.shape[d] == (int64_t)shape[d] && view.strides[d] > 0);
            mica_buffer_release(buffer);
        }
}

static void buffers_have_any_rank(void **state)
{
    static const char *const ids[] = {"cpu", "null", "opencl", "cuda"};
    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        mica_device *device = NULL;
        const mica_status status = mica_device_open(ids[i], NULL, &device);
        assert_true(status == MICA_OK || status == MICA_ERR_DEVICE_NOT_FOUND);
        if (status == MICA_OK)
            check_ranks(device);
        mica_device_release(device);
    }
}

static void a_packed_weight_may_be_empty(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    const uint64_t shape[][2] = {{0, 256}, {16, 0}};
    mica_buffer *weight = NULL, *packed = NULL, *rows = NULL;
    mica_buffer_info info;
    for (int i = 0; i < 2; i++) {
        must(mica_buffer_alloc(device, MICA_DTYPE_Q4_0, 2, shape[i], &weight));
        must(mica_buffer_pack(weight, &packed));
        must(mica_buffer_get_info(packed, &info));
        assert_true(info.element_count == 0 && info.byte_length == 0);
        mica_buffer_release(packed);
        mica_buffer_release(weight);
    }
    must(mica_buffer_alloc(device, MICA_DTYPE_Q4_0, 2, (uint64_t[]){16, 256}, &weight));
    must(mica_buffer_pack(weight, &packed));
    must(mica_buffer_slice(packed, 0, 16, 0, &rows)); /* behind the last row */
    must(mica_buffer_get_info(rows, &info));
    assert_true(info.element_count == 0 && info.byte_length == 0 && info.contiguous && info.shape[1] == 256);
    mica_buffer_release(rows);
    mica_buffer_release(packed);
    mica_buffer_release(weight);
    mica_device_release(device);
}

static int given_back;
static void give_back(void *context, void *pointer)
{
    given_back += *(int *)context == 42 && pointer != NULL;
}
static void give_nothing_back(void *context, void *pointer)
{
    given_back += *(int *)context == 42 && pointer == NULL;
}

static void nothing_can_be_imported(void **state)
{
    (void)state;
    static _Alignas(64) float foreign[4];
    static const char *const ids[] = {"cpu", "null"};
    mica_buffer_desc desc = {.dtype = MICA_DTYPE_F32, .ndim = 2, .shape = {3, 0}};
    for (size_t i = 0; i < 2; i++) {
        mica_device *device = open_device(ids[i], 1);
        mica_buffer *buffer = NULL;
        mica_buffer_info info;
        int context = 42;
        void *pointer = foreign;
        given_back = 0;
        must(mica_buffer_import(device, NULL, 0, &desc, give_nothing_back, &context, &buffer));
        must(mica_buffer_get_info(buffer, &info));
        assert_true(info.imported && info.element_count == 0);
        must(mica_buffer_map(buffer, MICA_ACCESS_READ, &pointer));
        assert_null(pointer);
        must(mica_buffer_unmap(buffer));
        mica_buffer_release(buffer);
        assert_int_equal(given_back, 1);
        must(mica_buffer_import(device, foreign, 0, &desc, give_back, &context, &buffer));
        mica_buffer_release(buffer);
        assert_int_equal(given_back, 2);
        refused(mica_buffer_import(device, NULL, 4, &desc, NULL, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT,
                "pointer");
        mica_device_release(device);
    }
}

static void imported_memory_is_not_copied(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    static _Alignas(64) float foreign[64];
    int context = 42;
    mica_buffer *buffer = NULL, *view = NULL;
    mica_buffer_desc desc = {.dtype = MICA_DTYPE_F32, .ndim = 2, .shape = {4, 16}};
    given_back = 0;
    must(mica_buffer_import(device, foreign, sizeof foreign, &desc, give_back, &context, &buffer));
    mica_buffer_info info;
    must(mica_buffer_get_info(buffer, &info));
    assert_true(info.imported && !info.read_only);
    void *handle = NULL;
    uint64_t offset = 99;
    must(mica_buffer_native(buffer, &handle, &offset));
    assert_ptr_equal((char *)handle + offset, (char *)foreign);
    float two = 2, back = 0;
    must(mica_buffer_write(buffer, 4, &two, 4));
    assert_float_equal(foreign[1], 2, 0);
    must(mica_buffer_slice(buffer, 0, 1, 1, &view));
    must(mica_buffer_native(view, &handle, &offset));
    assert_ptr_equal((char *)handle + offset, (char *)&foreign[16]);
    mica_buffer_release(buffer);
    assert_int_equal(given_back, 0); /* the view still stands on it */
    foreign[16] = 7;
    must(mica_buffer_read(view, 0, &back, 4));
    assert_float_equal(back, 7, 0);
    mica_buffer_release(view);
    assert_int_equal(given_back, 1);

    desc.shape[0] = 5;
    refused(mica_buffer_import(device, foreign, sizeof foreign, &desc, give_back, &context, &buffer),
            MICA_ERR_INVALID_ARGUMENT, "bytes");
    assert_null(buffer);
    assert_int_equal(given_back, 1); /* a failed import leaves the memory with the caller */
    refused(mica_buffer_import(device, NULL, 4, &desc, NULL, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT,
            "pointer");
    refused(mica_buffer_import(NULL, foreign, 4, &desc, NULL, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT,
            "device");
    refused(mica_buffer_import(device, foreign, 4, NULL, NULL, NULL, &buffer), MICA_ERR_INVALID_ARGUMENT,
            "desc");
    refused(mica_buffer_import(device, foreign, 4, &desc, NULL, NULL, NULL), MICA_ERR_INVALID_ARGUMENT,
            "out_buffer");
    mica_device_release(device);
}

static void read_only_memory_is_never_written(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    static const float constant[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    mica_buffer_desc desc = {
        .dtype = MICA_DTYPE_F32, .ndim = 1, .shape = {8}, .flags = MICA_BUFFER_READ_ONLY};
    mica_buffer *buffer = NULL, *view = NULL;
    mica_buffer_info info;
    must(
        mica_buffer_import(device, (void *)(uintptr_t)constant, sizeof constant, &desc, NULL, NULL, &buffer));
    must(mica_buffer_slice(buffer, 0, 2, 4, &view));
    must(mica_buffer_get_info(view, &info));
    assert_int_equal(info.read_only, 1);
    void *pointer = NULL;
    float value = 0;
    refused(mica_buffer_map(view, MICA_ACCESS_WRITE, &pointer), MICA_ERR_INVALID_ARGUMENT, "read-only");
    refused(mica_buffer_write(view, 0, &value, 4), MICA_ERR_INVALID_ARGUMENT, "read-only");
    must(mica_buffer_map(view, MICA_ACCESS_READ, &pointer));
    assert_float_equal(*(float *)pointer, 3, 0);
    must(mica_buffer_unmap(view));
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(device, NULL, &encoder));
    refused(mica_fill(encoder, 0, view), MICA_ERR_INVALID_ARGUMENT, "y");
    mica_encoder_release(encoder);
    mica_buffer_release(view);
    mica_buffer_release(buffer);
    mica_device_release(device);
}

static void dlpack_describes_plain_types(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    const struct {
        mica_dtype dtype;
        uint8_t code, bits;
    } row[] = {
        {MICA_DTYPE_F32, 2, 32}, {MICA_DTYPE_F16, 2, 16}, {MICA_DTYPE_BF16, 4, 16}, {MICA_DTYPE_F64, 2, 64},
        {MICA_DTYPE_I8, 0, 8},   {MICA_DTYPE_I64, 0, 64}, {MICA_DTYPE_U16, 1, 16},  {MICA_DTYPE_U32, 1, 32},
        {MICA_DTYPE_BOOL, 6, 8}, {MICA_DTYPE_C64, 5, 64},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        uint64_t shape[3] = {3, 4, 5};
        uint32_t order[3] = {2, 0, 1};
        mica_buffer *buffer = NULL, *slice = NULL, *transposed = NULL;
        mica_dlpack_view d;
        void *handle = NULL;
        uint64_t offset = 0;
        must(mica_buffer_alloc(device, row[i].dtype, 3, shape, &buffer));
        must(mica_buffer_slice(buffer, 1, 1, 2, &slice));
        must(mica_buffer_permute(slice, order, &transposed));
        must(mica_buffer_dlpack(transposed, &d));
        must(mica_buffer_native(transposed, &handle, &offset));
        assert_ptr_equal(d.data, handle);
        assert_int_equal(d.byte_offset, offset);
        assert_int_equal(offset, 5 * row[i].bits / 8);
        assert_int_equal(d.device_type, 1);
        assert_int_equal(d.ndim, 3);
        assert_true(d.type_code == row[i].code && d.type_bits == row[i].bits && d.type_lanes == 1);
        assert_true(d.shape[0] == 5 && d.shape[1] == 3 && d.shape[2] == 2);
        assert_true(d.strides[0] == 1 && d.strides[1] == 20 && d.strides[2] == 5);
        mica_buffer_release(transposed);
        mica_buffer_release(slice);
        mica_buffer_release(buffer);
    }
    mica_buffer *blocks = new_vector(device, MICA_DTYPE_Q8_0, 64);
    mica_dlpack_view d;
    refused(mica_buffer_dlpack(blocks, &d), MICA_ERR_UNSUPPORTED, "q8_0");
    refused(mica_buffer_dlpack(NULL, &d), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_buffer_dlpack(blocks, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    mica_buffer_release(blocks);
    mica_device_release(device);
}

static void affine_parts_must_fit(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    uint64_t data_shape[2] = {6, 40}, good[2] = {6, 3}, bad[2] = {6, 2};
    mica_buffer *data = NULL, *scales = NULL, *biases = NULL, *narrow = NULL, *wide = NULL, *weight = NULL;
    must(mica_buffer_alloc(device, MICA_DTYPE_AFFINE4, 2, data_shape, &data));
    must(mica_buffer_alloc(device, MICA_DTYPE_BF16, 2, good, &scales));
    must(mica_buffer_alloc(device, MICA_DTYPE_BF16, 2, good, &biases));
    must(mica_buffer_alloc(device, MICA_DTYPE_BF16, 2, bad, &narrow));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, good, &wide));
    must(mica_buffer_affine(data, scales, biases, 16,
                            &weight)); /* 40 values in groups of 16: 3, the last one short */
    mica_buffer_info info;
    must(mica_buffer_get_info(weight, &info));
    assert_int_equal(info.group_size, 16);
    assert_int_equal(info.dtype, MICA_DTYPE_AFFINE4);
    mica_buffer *rows = NULL, *none = NULL;
    must(mica_buffer_slice(weight, 0, 2, 3, &rows));
    must(mica_buffer_get_info(rows, &info));
    assert_true(info.shape[0] == 3 && info.group_size == 16);
    refused(mica_buffer_slice(weight, 1, 0, 16, &none), MICA_ERR_UNSUPPORTED, "group");
    refused(mica_buffer_affine(data, narrow, biases, 16, &none), MICA_ERR_INVALID_ARGUMENT, "scales");
    refused(mica_buffer_affine(data, scales, narrow, 16, &none), MICA_ERR_INVALID_ARGUMENT, "biases");
    refused(mica_buffer_affine(data, scales, wide, 16, &none), MICA_ERR_INVALID_ARGUMENT, "dtype");
    refused(mica_buffer_affine(data, data, biases, 16, &none), MICA_ERR_INVALID_ARGUMENT, "scales");
    refused(mica_buffer_affine(scales, scales, biases, 16, &none), MICA_ERR_INVALID_ARGUMENT, "data");
    refused(mica_buffer_affine(data, NULL, biases, 16, &none), MICA_ERR_INVALID_ARGUMENT, "scales");
    refused(mica_buffer_affine(data, scales, biases, 0, &none), MICA_ERR_QUANT_CONFIG, "group_size");
    assert_null(none);
    mica_buffer_release(scales); /* the weight keeps its parts */
    mica_buffer_release(biases);
    mica_buffer_release(data);
    mica_buffer_release(weight);
    mica_buffer_release(rows);
    mica_buffer_release(narrow);
    mica_buffer_release(wide);
    mica_device_release(device);
}

/* A packed weight gives the same matmul; what has no packed form comes back as it is. */
static void packing_keeps_the_meaning(void **state)
{
    (void)state;
    enum { N = 37, K = 64 };
    mica_device *device = open_device("cpu", 2);
    test_random random = test_random_from(5);
    uint64_t wshape[2] = {N, K}, xshape[2] = {1, K}, yshape[2] = {1, N};
    mica_buffer *weight = NULL, *packed = NULL, *x = NULL, *y[2] = {NULL, NULL};
    float values[N * K], result[2][N];
    for (int i = 0; i < N * K; i++)
        values[i] = (float)test_random_normal(&random);
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, wshape, &weight));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, xshape, &x));
    must(mica_buffer_write(weight, 0, values, sizeof values));
    must(mica_buffer_write(x, 0, values, K * sizeof *values));
    must(mica_buffer_pack(weight, &packed));
    for (int i = 0; i < 2; i++) {
        mica_encoder *encoder = NULL;
        must(mica_buffer_alloc(device, MICA_DTYPE_F32, 2, yshape, &y[i]));
        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_matmul(encoder, x, i == 0 ? weight : packed, NULL, y[i]));
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        must(mica_buffer_read(y[i], 0, result[i], sizeof result[i]));
        mica_buffer_release(y[i]);
    }
    for (int n = 0; n < N; n++) {
        double exact = 0, size = 0;
        for (int k = 0; k < K; k++) {
            exact += (double)values[k] * values[n * K + k];
            size += fabs((double)values[k] * values[n * K + k]);
        }
        for (int i = 0; i < 2; i++) /* K roundings of f32, each at most 2^-24 of the terms' size */
            assert_true(fabs(result[i][n] - exact) <= K * 6e-8 * size);
    }
    mica_buffer_release(packed);
    mica_buffer *index = new_vector(device, MICA_DTYPE_I32, 8), *same = NULL;
    mica_status status = mica_buffer_pack(index, &same);
    assert_true(status == MICA_OK ? same == index : status == MICA_ERR_INVALID_ARGUMENT && same == NULL);
    mica_buffer_release(same);
    refused(mica_buffer_pack(NULL, &same), MICA_ERR_INVALID_ARGUMENT, "weight");
    refused(mica_buffer_pack(weight, NULL), MICA_ERR_INVALID_ARGUMENT, "out_packed");
    mica_buffer_release(index);
    mica_buffer_release(weight);
    mica_buffer_release(x);
    mica_device_release(device);
}

static void handles_are_counted(void **state)
{
    (void)state;
    mica_device *device = open_device("cpu", 1);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_F32, 4);
    assert_ptr_equal(mica_buffer_device(buffer), device);
    assert_null(mica_buffer_device(NULL));
    assert_ptr_equal(mica_buffer_retain(buffer), buffer);
    assert_null(mica_buffer_retain(NULL));
    mica_buffer_release(buffer);
    mica_buffer_info info;
    must(mica_buffer_get_info(buffer, &info));
    refused(mica_buffer_get_info(NULL, &info), MICA_ERR_INVALID_ARGUMENT, "buffer");
    refused(mica_buffer_get_info(buffer, NULL), MICA_ERR_INVALID_ARGUMENT, "out");
    uint64_t offset;
    void *handle;
    refused(mica_buffer_native(NULL, &handle, &offset), MICA_ERR_INVALID_ARGUMENT, "buffer");
    mica_buffer_release(buffer);
    mica_buffer_release(NULL);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(every_type_has_its_size),       test(fresh_memory_is_zero),
        test(impossible_shapes_are_refused), test(bytes_come_back),
        test(mapping_is_the_memory),         test(buffers_have_any_rank),
        test(a_packed_weight_may_be_empty),  test(nothing_can_be_imported),
        test(imported_memory_is_not_copied), test(read_only_memory_is_never_written),
        test(dlpack_describes_plain_types),  test(affine_parts_must_fit),
        test(packing_keeps_the_meaning),     test(handles_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
