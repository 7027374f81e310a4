/*
 * test_far.c - operands that lie gigabytes apart: one buffer of six, or of as many as the device takes in one piece, of which only
 * the ends and the middle are touched. Offsets, strides, rows of a table, experts and pages reach past 2^31 and, where there
 * is room, past 2^32 bytes.
 *
 *   test_far [DEVICE]     cpu and opencl unless one is named
 */
#include "device/device_test.h"
#include "support/need.h"
#include "support/sanitizer.h"

#define MOST_BYTES ((uint64_t)6 << 30)
#define PAGE_BYTES ((uint64_t)1 << 20) /* the unit in which the buffer is used */
#define COLUMNS 256u
#define ROW_BYTES (COLUMNS * sizeof(float))
#define ROWS 3u /* at the begin, in the middle, at the end */

typedef struct scene {
    mica_device *device;
    mica_buffer *whole; /* bytes */
    uint64_t bytes;     /* a multiple of PAGE_BYTES */
    float row[ROWS][COLUMNS];
} scene;

/* Where row r of three begins that are as far apart as they can be. */
static uint64_t place_of(const scene *s, uint32_t r)
{
    return r * ((s->bytes - ROW_BYTES) / (ROWS - 1) / ROW_BYTES * ROW_BYTES);
}

static scene open_scene(const char *id)
{
    scene s = {.device = open_device(id, 0)};
    mica_device_properties properties;
    must(mica_device_get_properties(s.device, &properties));
    s.bytes = properties.max_buffer < MOST_BYTES ? properties.max_buffer : MOST_BYTES;
    s.bytes -= s.bytes % PAGE_BYTES;
    const mica_buffer_desc desc = {
        .dtype = MICA_DTYPE_U8, .ndim = 1, .shape = {s.bytes}, .flags = MICA_BUFFER_UNINITIALIZED};
    must(mica_buffer_create(s.device, &desc, &s.whole));
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t c = 0; c < COLUMNS; c++)
            s.row[r][c] = (float)(1 + r * 1000 + c);
    return s;
}

static void close_scene(scene *s)
{
    mica_buffer_release(s->whole);
    mica_device_release(s->device);
}

static mica_buffer *view_of(const scene *s, uint32_t ndim, const uint64_t *shape, const uint64_t *stride)
{
    mica_buffer *view = NULL;
    must(mica_buffer_view(s->whole, MICA_DTYPE_F32, ndim, shape, stride, 0, &view));
    return view;
}

static mica_buffer *floats_of(const scene *s, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer = NULL;
    must(mica_buffer_alloc(s->device, MICA_DTYPE_F32, ndim, shape, &buffer));
    return buffer;
}

static mica_buffer *numbers_of(const scene *s, uint32_t ndim, const uint64_t *shape, const uint32_t *numbers)
{
    mica_buffer *buffer = NULL;
    uint64_t count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    must(mica_buffer_alloc(s->device, MICA_DTYPE_U32, ndim, shape, &buffer));
    must(mica_buffer_write(buffer, 0, numbers, count * sizeof *numbers));
    return buffer;
}

static mica_encoder *begin(const scene *s)
{
    mica_encoder *encoder = NULL;
    must(mica_encoder_begin(s->device, NULL, &encoder));
    return encoder;
}

static void finish(mica_encoder *encoder)
{
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
}

/* Rows far apart, read and written: copied out, added up into other far rows. */
static void strides(void **state)
{
    scene s = open_scene(*state);
    const uint64_t shape[2] = {ROWS, COLUMNS}, stride[2] = {place_of(&s, 1), sizeof(float)};
    mica_buffer *far = view_of(&s, 2, shape, stride), *near = floats_of(&s, 2, shape);
    float back[ROWS][COLUMNS];
    for (uint32_t r = 0; r < ROWS; r++)
        must(mica_buffer_write(s.whole, place_of(&s, r), s.row[r], ROW_BYTES));
    mica_encoder *encoder = begin(&s);
    must(mica_copy(encoder, far, near));
    must(mica_add(encoder, near, far, far));
    finish(encoder);
    must(mica_buffer_read(near, 0, back, sizeof back));
    assert_memory_equal(back, s.row, sizeof back);
    for (uint32_t r = 0; r < ROWS; r++) {
        must(mica_buffer_read(s.whole, place_of(&s, r), back[r], ROW_BYTES));
        for (uint32_t c = 0; c < COLUMNS; c++)
            assert_true(back[r][c] == 2 * s.row[r][c]);
    }
    mica_buffer_release(far);
    mica_buffer_release(near);
    close_scene(&s);
}

/* A table of millions of rows, of which the first, the middle and the last are looked up. */
static void tables(void **state)
{
    scene s = open_scene(*state);
    const uint64_t rows = s.bytes / ROW_BYTES, shape[2] = {rows, COLUMNS}, ids_shape = ROWS,
                   y_shape[2] = {ROWS, COLUMNS};
    const uint32_t ids[ROWS] = {(uint32_t)(rows - 1), 0, (uint32_t)(rows / 2)};
    mica_buffer *table = view_of(&s, 2, shape, NULL), *y = floats_of(&s, 2, y_shape);
    mica_buffer *ids_buffer = numbers_of(&s, 1, &ids_shape, ids);
    float back[ROWS][COLUMNS];
    for (uint32_t r = 0; r < ROWS; r++)
        must(mica_buffer_write(s.whole, ids[r] * (uint64_t)ROW_BYTES, s.row[r], ROW_BYTES));
    mica_encoder *encoder = begin(&s);
    must(mica_embedding(encoder, table, ids_buffer, y));
    finish(encoder);
    must(mica_buffer_read(y, 0, back, sizeof back));
    assert_memory_equal(back, s.row, sizeof back);
    mica_buffer_release(table);
    mica_buffer_release(y);
    mica_buffer_release(ids_buffer);
    close_scene(&s);
}

/* Experts of a megabyte each; one token chooses the last, the first and the one in the middle. The weights of an expert are
 * its rank and ones: whole numbers, so that every order of adding gives the same. */
static void experts(void **state)
{
    scene s = open_scene(*state);
    const uint64_t count = s.bytes / PAGE_BYTES, outputs = PAGE_BYTES / ROW_BYTES,
                   shape[3] = {count, outputs, COLUMNS}, x_shape[2] = {1, COLUMNS}, ids_shape[2] = {1, ROWS},
                   y_shape[3] = {1, ROWS, outputs};
    const uint32_t ids[ROWS] = {(uint32_t)(count - 1), 0, (uint32_t)(count / 2)};
    mica_buffer *weight = view_of(&s, 3, shape, NULL), *x = floats_of(&s, 2, x_shape),
                *y = floats_of(&s, 3, y_shape), *ids_buffer = numbers_of(&s, 2, ids_shape, ids);
    float *page = malloc(PAGE_BYTES), *back = malloc(ROWS * outputs * sizeof *back), ones[COLUMNS];
    assert_true(page != NULL && back != NULL);
    for (uint32_t c = 0; c < COLUMNS; c++)
        ones[c] = 1;
    must(mica_buffer_write(x, 0, ones, sizeof ones));
    for (uint32_t e = 0; e < ROWS; e++) {
        for (uint64_t i = 0; i < outputs * COLUMNS; i++)
            page[i] = i % COLUMNS == 0 ? (float)(e * 5000 + i / COLUMNS) : 1;
        must(mica_buffer_write(s.whole, ids[e] * PAGE_BYTES, page, PAGE_BYTES));
    }
    mica_encoder *encoder = begin(&s);
    must(mica_matmul_experts(encoder, x, weight, ids_buffer, NULL, y));
    finish(encoder);
    must(mica_buffer_read(y, 0, back, ROWS * outputs * sizeof *back));
    for (uint32_t e = 0; e < ROWS; e++)
        for (uint64_t n = 0; n < outputs; n++)
            assert_true(back[e * outputs + n] == (float)(e * 5000 + n + COLUMNS - 1));
    free(page);
    free(back);
    mica_buffer_release(weight);
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_buffer_release(ids_buffer);
    close_scene(&s);
}

/* A cache of the whole buffer, whose one sequence has the last page, the first and the one in the middle: written, then read by
 * a query that sees all keys alike, which gives the mean of the values. */
static void pages(void **state)
{
    enum { DIM = 64, SLOTS = 64, TOKENS = ROWS * SLOTS };
    scene s = open_scene(*state);
    const uint64_t page_bytes = SLOTS * DIM * sizeof(float), count = s.bytes / page_bytes,
                   shape[4] = {count, SLOTS, 1, DIM}, x_shape[3] = {TOKENS, 1, DIM}, q_shape[3] = {1, 1, DIM},
                   tokens = TOKENS, one = 1, pages_shape[2] = {1, ROWS};
    const uint32_t table[ROWS] = {(uint32_t)(count - 1), 0, (uint32_t)(count / 2)}, length = TOKENS,
                   last = TOKENS - 1;
    static float values[TOKENS][DIM];
    uint32_t positions[TOKENS];
    float back[SLOTS][DIM], mean[DIM];
    for (uint32_t t = 0; t < TOKENS; t++) {
        positions[t] = t;
        for (uint32_t d = 0; d < DIM; d++)
            values[t][d] = (float)(t + d);
    }
    mica_buffer *cache = view_of(&s, 4, shape, NULL), *x = floats_of(&s, 3, x_shape),
                *q = floats_of(&s, 3, q_shape), *y = floats_of(&s, 3, q_shape);
    mica_buffer *pages_buffer = numbers_of(&s, 2, pages_shape, table),
                *written = numbers_of(&s, 1, &tokens, positions), *asked = numbers_of(&s, 1, &one, &last),
                *lengths = numbers_of(&s, 1, &one, &length);
    must(mica_buffer_write(x, 0, values, sizeof values));
    const mica_attention_operands operands = {
        .q = q, .k = cache, .v = cache, .positions = asked, .lengths = lengths, .pages = pages_buffer};
    const mica_attention_params params = {0};
    mica_encoder *encoder = begin(&s);
    must(mica_kv_write(encoder, x, written, NULL, pages_buffer, NULL, cache));
    must(mica_attention(encoder, &operands, &params, y));
    finish(encoder);
    for (uint32_t p = 0; p < ROWS; p++) {
        must(mica_buffer_read(s.whole, table[p] * page_bytes, back, sizeof back));
        assert_memory_equal(back, values[p * SLOTS], sizeof back);
    }
    must(mica_buffer_read(y, 0, mean, sizeof mean));
    for (uint32_t d = 0; d < DIM; d++) /* sums of whole numbers, then a quotient */
        assert_float_equal(mean[d], (float)(TOKENS - 1) / 2 + (float)d, 1e-3f);
    mica_buffer *all[] = {cache, x, q, y, pages_buffer, written, asked, lengths};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mica_buffer_release(all[i]);
    close_scene(&s);
}

/* 0, or what main should return. */
static int far(const char *id)
{
    struct CMUnitTest tests[] = {test(strides), test(tables), test(experts), test(pages)};
    const int missing = test_need(id);
    if (missing != 0)
        return missing;
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        tests[i].initial_state = (void *)(uintptr_t)id;
    return cmocka_run_group_tests_name(id, tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    if (TEST_ANY_SANITIZER) {
        printf("skipped: sanitizers keep a book of every byte\n");
        return TEST_SKIPPED;
    }
    if (argc > 1)
        return far(argv[1]);
    const int failed = far("cpu");
    return failed != 0 ? failed : far("opencl");
}
