/*
 * test_frames.c - pooling, im2col, resizing and sampling by a grid: wrong parameters by name, gradients against central differences in f64, and what
 * PyTorch gave.
 */
#include "ops/image_rig.h"

/* ---- what PyTorch gave ---- */

static void read_dims(const int64_t *n, uint32_t dims, uint32_t *out)
{
    for (uint32_t d = 0; d < dims; d++)
        out[d] = (uint32_t)n[d];
}

/* Places of windows along a dimension, as the case's PyTorch counts them. */
static uint64_t windows_of(int64_t n, int64_t kernel, int64_t stride, int64_t dilation, int64_t padding,
                           bool ceil_mode)
{
    const int64_t rest = n + 2 * padding - dilation * (kernel - 1) - 1;
    const int64_t count = (rest + (ceil_mode ? stride - 1 : 0)) / stride + 1;

    return (uint64_t)(ceil_mode && (count - 1) * stride >= n + padding ? count - 1 : count);
}

/* The gradient that PyTorch has for dy of slot 3. */
static void compare_back(const golden_case *g, mica_op op, const void *params, rig_array *operand,
                         uint32_t count, mica_dtype dtype)
{
    rig_run(op, params, operand, count, dtype);
    golden_compare(g, &operand[count - 1], dtype == MICA_DTYPE_F64 ? 1e-8 : 1e-5);
    rig_free(operand, count);
}

static void run_pool(const golden_case *g, mica_dtype dtype)
{
    const int64_t *n = g->number;
    const uint32_t dims = (uint32_t)n[1];
    const int64_t *each = n + 2;
    uint64_t x[5] = {2, 3}, y[5] = {2, 3};
    mica_pool_windows_params p = {.kind = (uint32_t)n[0], .dims = dims};

    read_dims(each + dims, dims, p.kernel);
    read_dims(each + 2 * dims, dims, p.stride);
    read_dims(each + 3 * dims, dims, p.dilation);
    read_dims(each + 4 * dims, dims, p.low);
    read_dims(each + 4 * dims, dims, p.high);
    p.ceil_mode = (uint32_t)each[5 * dims];
    p.count_padding = (uint32_t)each[5 * dims + 1];
    for (uint32_t d = 0; d < dims; d++) {
        x[2 + d] = (uint64_t)each[d];
        y[2 + d] = windows_of(each[d], p.kernel[d], p.stride[d], p.dilation[d], p.low[d], p.ceil_mode != 0);
    }
    if (strcmp(g->name, "pool_back") == 0) {
        rig_array back[3] = {rig_values(0, 2 + dims, x), rig_values(3, 2 + dims, y),
                             rig_array_of(2 + dims, x)};

        compare_back(g, MICA_OP_POOL_WINDOWS_BACKWARD, &p, back, 3, dtype);
        return;
    }
    rig_array in = rig_values(0, 2 + dims, x), out = rig_array_of(2 + dims, y);
    mica_buffer *from = rig_upload(&in, dtype), *to = rig_upload(&out, dtype), *places = NULL;
    mica_encoder *encoder = NULL;
    uint32_t *found = test_alloc(out.count, sizeof *found);
    double *wide = test_alloc(out.count, sizeof *wide);

    must(mica_buffer_alloc(device, MICA_DTYPE_U32, 2 + dims, y, &places));
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_pool_windows(encoder, from, &p, to, p.kind == MICA_POOL_MAX ? places : NULL));
    must(mica_encoder_commit_and_wait(encoder));
    must(mica_buffer_read(to, 0, wide, out.count * (dtype == MICA_DTYPE_F64 ? 8 : 4)));
    must(mica_buffer_read(places, 0, found, out.count * sizeof *found));
    for (uint64_t i = 0; i < out.count; i++)
        out.value[i] = strcmp(g->name, "pool_places") == 0 ? (double)found[i]
                       : dtype == MICA_DTYPE_F64           ? wide[i]
                                                           : (double)((float *)wide)[i];
    golden_compare(g, &out, dtype == MICA_DTYPE_F64 ? 1e-8 : 1e-6);
    mica_encoder_release(encoder);
    mica_buffer_release(from);
    mica_buffer_release(to);
    mica_buffer_release(places);
    free(found);
    free(wide);
    free(in.value);
    free(out.value);
}

static void run_im2col(const golden_case *g, mica_dtype dtype)
{
    const int64_t *n = g->number;
    const bool back = strcmp(g->name, "col2im") == 0;
    const uint64_t image[4] = {2, 3, (uint64_t)n[0], (uint64_t)n[1]};
    uint64_t columns[3] = {2, 3 * (uint64_t)(n[2] * n[3]), 1};
    mica_im2col_params p = {.dims = 2};

    read_dims(n + 2, 2, p.kernel);
    read_dims(n + 4, 2, p.stride);
    read_dims(n + 6, 2, p.dilation);
    read_dims(n + 8, 2, p.low);
    read_dims(n + 8, 2, p.high);
    for (int d = 0; d < 2; d++)
        columns[2] *= windows_of(n[d], n[2 + d], n[4 + d], n[6 + d], n[8 + d], false);
    rig_array operand[2] = {back ? rig_values(1, 3, columns) : rig_values(0, 4, image),
                            back ? rig_array_of(4, image) : rig_array_of(3, columns)};
    rig_run(back ? MICA_OP_COL2IM : MICA_OP_IM2COL, &p, operand, 2, dtype);
    golden_compare(g, &operand[1], dtype == MICA_DTYPE_F64 ? 1e-8 : 1e-6);
    rig_free(operand, 2);
}

static void run_resize(const golden_case *g, mica_dtype dtype)
{
    const int64_t *n = g->number;
    const uint32_t dims = (uint32_t)n[3];
    const mica_resize_params p = {(uint32_t)n[0], (uint32_t)n[1], (uint32_t)n[2], dims, {0}};
    uint64_t x[5] = {1, 2}, y[5] = {1, 2};

    for (uint32_t d = 0; d < dims; d++) {
        x[2 + d] = (uint64_t)n[4 + d];
        y[2 + d] = (uint64_t)n[4 + dims + d];
    }
    if (strcmp(g->name, "resize_back") == 0) {
        rig_array back[2] = {rig_values(3, 2 + dims, y), rig_array_of(2 + dims, x)};

        compare_back(g, MICA_OP_RESIZE_BACKWARD, &p, back, 2, dtype);
        return;
    }
    rig_array operand[2] = {rig_values(0, 2 + dims, x), rig_array_of(2 + dims, y)};
    rig_run(MICA_OP_RESIZE, &p, operand, 2, dtype);
    golden_compare(g, &operand[1], dtype == MICA_DTYPE_F64 ? 1e-8 : 2e-6);
    rig_free(operand, 2);
}

/* Both gradients, one behind the other as the case has them. */
static void run_grid_back(const golden_case *g, const mica_grid_params *p, rig_array *operand,
                          mica_dtype dtype)
{
    rig_array dy = rig_values(3, 4, (uint64_t[]){2, 2, 3, 4}),
              both = rig_array_of(1, (uint64_t[]){operand[0].count + operand[1].count});
    mica_buffer *in[3] = {rig_upload(&operand[0], dtype), rig_upload(&operand[1], dtype),
                          rig_upload(&dy, dtype)},
                *out[2] = {rig_upload(&operand[0], dtype), rig_upload(&operand[1], dtype)};
    const size_t unit = dtype == MICA_DTYPE_F64 ? 8 : 4, first = (size_t)operand[0].count * unit;
    double *wide = test_alloc(both.count, sizeof *wide);
    mica_encoder *encoder = NULL;

    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_grid_sample_backward(encoder, in[0], in[1], in[2], p, out[0], out[1]));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_buffer_read(out[0], 0, wide, first));
    must(mica_buffer_read(out[1], 0, (uint8_t *)wide + first, operand[1].count * unit));
    for (uint64_t i = 0; i < both.count; i++)
        both.value[i] = unit == 8 ? wide[i] : (double)((float *)wide)[i];
    golden_compare(g, &both, unit == 8 ? 1e-8 : 4e-5);
    for (int i = 0; i < 3; i++)
        mica_buffer_release(in[i]);
    mica_buffer_release(out[0]);
    mica_buffer_release(out[1]);
    free(wide);
    free(dy.value);
    free(both.value);
}

static void run_grid(const golden_case *g, mica_dtype dtype)
{
    const mica_grid_params p = {(uint32_t)g->number[0], (uint32_t)g->number[1], (uint32_t)g->number[2]};
    rig_array operand[3] = {rig_values(0, 4, (uint64_t[]){2, 2, 5, 6}),
                            rig_values(1, 4, (uint64_t[]){2, 3, 4, 2}),
                            rig_array_of(4, (uint64_t[]){2, 2, 3, 4})};

    for (uint64_t i = 0; i < operand[1].count; i++)
        operand[1].value[i] = operand[1].value[i] * 0.71875 + 0.015625;
    if (strcmp(g->name, "grid_back") == 0) {
        run_grid_back(g, &p, operand, dtype);
        rig_free(operand, 3);
        return;
    }
    rig_run(MICA_OP_GRID_SAMPLE, &p, operand, 3, dtype);
    golden_compare(g, &operand[2], dtype == MICA_DTYPE_F64 ? 1e-8 : 1e-5);
    rig_free(operand, 3);
}

static void check_golden(mica_dtype dtype)
{
    FILE *file = fopen("tests/golden/image.txt", "rb");
    golden_case g;
    uint32_t count = 0;

    assert_non_null(file);
    for (; golden_next(file, &g); free(g.result)) {
        count += strncmp(g.name, "conv", 4) != 0;
        if (strncmp(g.name, "pool", 4) == 0)
            run_pool(&g, dtype);
        else if (strcmp(g.name, "im2col") == 0 || strcmp(g.name, "col2im") == 0)
            run_im2col(&g, dtype);
        else if (strncmp(g.name, "resize", 6) == 0)
            run_resize(&g, dtype);
        else if (strncmp(g.name, "grid", 4) == 0)
            run_grid(&g, dtype);
    }
    (void)fclose(file);
    assert_true(count >= 100);
}

static void test_golden(void **state)
{
    (void)state;
    golden_each(check_golden);
}

/* ---- gradients ---- */

/* Values that are all different: max and min have one place each. */
static void set_apart(rig_array *a)
{
    for (uint64_t i = 0; i < a->count; i++)
        a->value[i] = (double)(i * 7919 % 1009) / 500 - 0.9;
}

static void test_pool_gradients(void **state)
{
    const uint64_t x[] = {2, 5, 6}, y[] = {2, 3, 4};

    (void)state;
    for (uint32_t kind = 0; kind <= MICA_POOL_PROD; kind++)
        for (uint32_t count = 0; count < 2; count++) {
            const mica_pool_windows_params p = {.kind = kind,
                                                .dims = 2,
                                                .kernel = {3, 2},
                                                .stride = {2, 2},
                                                .low = {1, 1},
                                                .high = {1, 1},
                                                .count_padding = count};
            rig_array forward[3] = {rig_values(0, 3, x),
                                    rig_array_of(3, y)}; /* no indices: the last is written */
            rig_array back[3] = {rig_values(0, 3, x), rig_values(1, 3, y), rig_array_of(3, x)};
            const double step = 1e-4;

            set_apart(&forward[0]);
            set_apart(&back[0]);
            rig_run(MICA_OP_POOL_WINDOWS_BACKWARD, &p, back, 3, MICA_DTYPE_F64);
            for (uint64_t i = 0; i < forward[0].count; i++) {
                const double was = forward[0].value[i];
                double sum[2] = {0, 0};

                for (int side = 0; side < 2; side++) {
                    mica_buffer *from, *to;
                    mica_encoder *encoder = NULL;

                    forward[0].value[i] = was + (side == 0 ? -step : step);
                    from = rig_upload(&forward[0], MICA_DTYPE_F64);
                    to = rig_upload(&forward[1], MICA_DTYPE_F64);
                    must(mica_encoder_begin(device, NULL, &encoder));
                    must(mica_pool_windows(encoder, from, &p, to, NULL));
                    must(mica_encoder_commit_and_wait(encoder));
                    must(mica_buffer_read(to, 0, forward[1].value, forward[1].count * 8));
                    mica_encoder_release(encoder);
                    mica_buffer_release(from);
                    mica_buffer_release(to);
                    for (uint64_t k = 0; k < back[1].count; k++)
                        sum[side] += back[1].value[k] * forward[1].value[k];
                }
                forward[0].value[i] = was;
                const double wanted = (sum[1] - sum[0]) / (2 * step);
                if (fabs(wanted - back[2].value[i]) > 1e-6 * (1 + fabs(wanted)))
                    fail_msg("kind %u: element %llu is %.12g, differences give %.12g", kind,
                             (unsigned long long)i, back[2].value[i], wanted);
            }
            rig_free(forward, 2);
            rig_free(back, 3);
        }
}

static void test_resize_gradients(void **state)
{
    static const mica_resize_params cases[] = {
        {.mode = MICA_RESIZE_NEAREST, .corners = MICA_RESIZE_ASYMMETRIC},
        {.mode = MICA_RESIZE_LINEAR},
        {.mode = MICA_RESIZE_LINEAR, .corners = MICA_RESIZE_ALIGN_CORNERS},
        {.mode = MICA_RESIZE_CUBIC},
        {.mode = MICA_RESIZE_CUBIC, .antialias = 1},
        {.mode = MICA_RESIZE_LINEAR, .antialias = 1},
    };
    const uint64_t x[] = {1, 5, 8}, y[] = {1, 9, 3};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_array forward[2] = {rig_values(0, 3, x), rig_array_of(3, y)};
        rig_array back[2] = {rig_values(1, 3, y), rig_array_of(3, x)};

        rig_run(MICA_OP_RESIZE_BACKWARD, &cases[i], back, 2, MICA_DTYPE_F64);
        rig_check_gradient(MICA_OP_RESIZE, &cases[i], forward, 2, &back[0], 0, &back[1]);
        rig_free(forward, 2);
        rig_free(back, 2);
    }
}

/* x, grid, dy, dx, dgrid in f64. */
static void run_grid_backward(const mica_grid_params *p, rig_array *operand)
{
    mica_buffer *buffer[5];
    mica_encoder *encoder = NULL;

    for (int i = 0; i < 5; i++)
        buffer[i] = rig_upload(&operand[i], MICA_DTYPE_F64);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_grid_sample_backward(encoder, buffer[0], buffer[1], buffer[2], p, buffer[3], buffer[4]));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    for (int i = 3; i < 5; i++)
        must(mica_buffer_read(buffer[i], 0, operand[i].value, operand[i].count * 8));
    for (int i = 0; i < 5; i++)
        mica_buffer_release(buffer[i]);
}

/* Places inside, outside and turned back twice, 0.3 from the next one: no kink is within a step. */
static void place_grid(const mica_grid_params *p, const uint64_t *x, rig_array *grid)
{
    for (uint64_t i = 0; i < grid->count; i++) {
        const double n = (double)x[i % 2 == 0 ? 3 : 2], at = (double)(i * 7 % 19) - 6.7;

        grid->value[i] = p->align_corners != 0 ? 2 * at / (n - 1) - 1 : (2 * at + 1) / n - 1;
    }
}

static void test_grid_gradients(void **state)
{
    const uint64_t x[] = {2, 2, 4, 5}, grid[] = {2, 3, 4, 2}, y[] = {2, 2, 3, 4};

    (void)state;
    for (uint32_t i = 0; i < 18; i++) {
        const mica_grid_params p = {i % 3, i / 3 % 3, i / 9};
        rig_array all[5] = {rig_values(0, 4, x), rig_array_of(4, grid), rig_values(2, 4, y),
                            rig_array_of(4, x), rig_array_of(4, grid)};
        rig_array forward[3] = {all[0], all[1], rig_array_of(4, y)};

        place_grid(&p, x, &all[1]);
        run_grid_backward(&p, all);
        rig_check_gradient(MICA_OP_GRID_SAMPLE, &p, forward, 3, &all[2], 0, &all[3]);
        rig_check_gradient(MICA_OP_GRID_SAMPLE, &p, forward, 3, &all[2], 1, &all[4]);
        rig_free(all, 5);
        rig_free(&forward[2], 1);
    }
}

static void test_im2col_gradients(void **state)
{
    const mica_im2col_params p = {
        .dims = 2, .kernel = {3, 2}, .stride = {2, 1}, .low = {1, 0}, .high = {0, 1}};
    const uint64_t image[] = {1, 2, 4, 3}, columns[] = {1, 12, 6};
    rig_array forward[2] = {rig_values(0, 4, image), rig_array_of(3, columns)};
    rig_array back[2] = {rig_values(1, 3, columns), rig_array_of(4, image)};

    (void)state;
    rig_run(MICA_OP_COL2IM, &p, back, 2, MICA_DTYPE_F64);
    rig_check_gradient(MICA_OP_IM2COL, &p, forward, 2, &back[0], 0, &back[1]);
    rig_run(MICA_OP_IM2COL, &p, forward, 2, MICA_DTYPE_F64);
    rig_check_gradient(MICA_OP_COL2IM, &p, back, 2, &forward[0], 0, &forward[1]);
    rig_free(forward, 2);
    rig_free(back, 2);
}

/* ---- what is refused ---- */

/* x [1, 2, 5, 6] and y [1, 2, 3, 4] of f32 by the op. */
static void refuse(mica_op op, const void *params, uint32_t operands, const char *word)
{
    mica_buffer *x = NULL, *y = NULL;
    mica_encoder *encoder = NULL;

    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, (uint64_t[]){1, 2, 5, 6}, &x));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, (uint64_t[]){1, 2, 3, 4}, &y));
    must(mica_encoder_begin(device, NULL, &encoder));
    assert_int_equal(mica_op_apply(encoder, op, params, (mica_buffer *const[]){x, y, NULL}, operands),
                     MICA_ERR_INVALID_ARGUMENT);
    if (strstr(mica_status_message(), word) == NULL)
        fail_msg("'%s' is not in: %s", word, mica_status_message());
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(y);
}

#define REFUSE_POOL(word, ...)   \
    refuse(MICA_OP_POOL_WINDOWS, \
           &(mica_pool_windows_params){.kernel = {3, 3}, .stride = {1, 1}, __VA_ARGS__}, 3, word)
#define REFUSE_IM2COL(word, ...) refuse(MICA_OP_IM2COL, &(mica_im2col_params){__VA_ARGS__}, 2, word)
#define REFUSE_RESIZE(word, ...) refuse(MICA_OP_RESIZE, &(mica_resize_params){__VA_ARGS__}, 2, word)

static void test_refused(void **state)
{
    const uint32_t most = (1u << 24) + 1;

    (void)state;
    REFUSE_POOL("params.kind", .kind = 5);
    REFUSE_POOL("params.dims", .dims = 4);
    REFUSE_POOL("params.ceil_mode", .ceil_mode = 2);
    REFUSE_POOL("params.count_padding", .count_padding = 2);
    REFUSE_POOL("params.dilation[1]", .dilation = {1, most});
    REFUSE_POOL("params.low[0]", .low = {most});
    REFUSE_POOL("params.high[0]", .high = {most});
    REFUSE_POOL("params.kernel[0] is 3, which does not fit", .dilation = {3});
    REFUSE_POOL("y: shape[2] is 3, but the op gives 4", .high = {1});
    refuse(MICA_OP_POOL_WINDOWS, &(mica_pool_windows_params){.dims = 2}, 3, "params.kernel[0] is 0");
    REFUSE_IM2COL("params.kernel[0] is 0", .dims = 2);
    REFUSE_IM2COL("params.dims is 1", .dims = 1, .kernel = {2});
    REFUSE_IM2COL("params.size[1] is 5", .kernel = {2, 2}, .size = {0, 5});
    REFUSE_IM2COL("params.kernel[1] is 7", .kernel = {2, 7});
    REFUSE_IM2COL("y has 4 dimensions", .kernel = {2, 2});
    REFUSE_RESIZE("params.mode", .mode = 3);
    REFUSE_RESIZE("params.corners", .corners = 3);
    REFUSE_RESIZE("params.antialias is 2", .antialias = 2);
    REFUSE_RESIZE("params.antialias is of LINEAR", .antialias = 1);
    REFUSE_RESIZE("params.antialias is of LINEAR", .mode = 1, .corners = 1, .antialias = 1);
    REFUSE_RESIZE("params.dims is 5", .dims = 5);
    REFUSE_RESIZE("y: shape[3] is 4, but the op gives 5", .size = {3, 5});
    REFUSE_RESIZE("y: shape[1] is 2, but the op gives 7", .dims = 3, .size = {7});
}

static void refuse_grid(mica_grid_params p, const char *word)
{
    rig_array x = rig_values(0, 4, (uint64_t[]){1, 1, 2, 2}), g = rig_values(0, 4, (uint64_t[]){1, 1, 1, 2});
    mica_buffer *from = rig_upload(&x, MICA_DTYPE_F32), *grid = rig_upload(&g, MICA_DTYPE_F32), *y = NULL;
    mica_encoder *encoder = NULL;

    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, (uint64_t[]){1, 1, 1, 1}, &y));
    must(mica_encoder_begin(device, NULL, &encoder));
    assert_int_equal(mica_grid_sample(encoder, from, grid, &p, y), MICA_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(mica_status_message(), word));
    refused(mica_grid_sample_backward(encoder, from, grid, y, &p, from, NULL), MICA_ERR_INVALID_ARGUMENT,
            word);
    refused(mica_grid_sample_backward(encoder, from, grid, y, NULL, NULL, NULL), MICA_ERR_INVALID_ARGUMENT,
            "dx and dgrid are NULL");
    mica_encoder_release(encoder);
    mica_buffer_release(from);
    mica_buffer_release(grid);
    mica_buffer_release(y);
    free(x.value);
    free(g.value);
}

/* NaN and far away: zeros, or a place at the edge. */
static void test_odd_coordinates(void **state)
{
    static const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 1e30, -1e30};

    (void)state;
    refuse_grid((mica_grid_params){.mode = 3}, "params.mode");
    refuse_grid((mica_grid_params){.padding = 3}, "params.padding");
    refuse_grid((mica_grid_params){.align_corners = 2}, "params.align_corners");
    for (uint32_t mode = 0; mode < 3; mode++)
        for (uint32_t padding = 0; padding < 2; padding++)
            for (uint32_t i = 0; i < 5; i++) {
                const mica_grid_params p = {.mode = mode, .padding = padding};
                rig_array operand[3] = {rig_values(0, 4, (uint64_t[]){1, 1, 1, 3}),
                                        rig_values(1, 4, (uint64_t[]){1, 1, 1, 2}),
                                        rig_array_of(4, (uint64_t[]){1, 1, 1, 1})};
                const double *x = operand[0].value;

                operand[1].value[0] = odd[i];
                operand[1].value[1] = 0;
                rig_run(MICA_OP_GRID_SAMPLE, &p, operand, 3, MICA_DTYPE_F32);
                const double wanted = padding == MICA_GRID_ZEROS ? 0 : odd[i] > 0 ? x[2] : x[0];
                assert_true(fabs(operand[2].value[0] - wanted) < 1e-6);
                rig_free(operand, 3);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_odd_coordinates),
        cmocka_unit_test(test_pool_gradients),   cmocka_unit_test(test_resize_gradients),
        cmocka_unit_test(test_im2col_gradients), cmocka_unit_test(test_grid_gradients),
        cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests_name("frames", tests, open_device, close_device);
}
