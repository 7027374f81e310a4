/* test_conv.c - convolution: wrong parameters by name, gradients against central differences in f64, and what PyTorch gave. */
#include "ops/image_rig.h"

typedef struct conv_case {
    mica_conv_params params;
    rig_array operand[4]; /* x, weight, bias, y */
} conv_case;

/* As the numbers of scripts/golden_image.py's conv() say. */
static conv_case case_of(const int64_t *n)
{
    conv_case c = {.params = {.groups = (uint32_t)n[4], .transposed = (uint32_t)n[5]}};
    const uint32_t dims = (uint32_t)n[0];
    const bool turned = n[5] != 0;
    uint64_t x[5] = {(uint64_t)n[1], (uint64_t)n[2]}, y[5] = {(uint64_t)n[1], (uint64_t)n[3]};
    uint64_t w[5] = {(uint64_t)(turned ? n[2] : n[3]), (uint64_t)((turned ? n[3] : n[2]) / n[4])};

    for (uint32_t d = 0; d < dims; d++) {
        const int64_t *each = n + 7 + d;
        const int64_t size = each[0], kernel = each[dims], stride = each[2 * dims], dilation = each[3 * dims],
                      padding = each[4 * dims], more = each[5 * dims];

        c.params.stride[d] = (uint32_t)stride;
        c.params.dilation[d] = (uint32_t)dilation;
        c.params.low[d] = c.params.high[d] = (uint32_t)padding;
        c.params.output_padding[d] = (uint32_t)more;
        x[2 + d] = (uint64_t)size;
        w[2 + d] = (uint64_t)kernel;
        y[2 + d] = (uint64_t)(turned ? (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1 + more
                                     : (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1);
    }
    c.operand[0] = rig_values(0, 2 + dims, x);
    c.operand[1] = rig_values(1, 2 + dims, w);
    if (n[6] != 0)
        c.operand[2] = rig_values(2, 1, &y[1]);
    c.operand[3] = rig_array_of(2 + dims, y);
    return c;
}

/* x, dy, dweight; of a transposed one x and dy exchanged. */
static void run_weight(conv_case *c, rig_array *operand, mica_dtype dtype)
{
    mica_conv_params params = c->params;
    const rig_array dy = rig_values(3, c->operand[3].ndim, c->operand[3].shape);

    operand[0] = params.transposed ? dy : rig_values(0, c->operand[0].ndim, c->operand[0].shape);
    operand[1] = params.transposed ? rig_values(0, c->operand[0].ndim, c->operand[0].shape) : dy;
    operand[2] = rig_array_of(c->operand[1].ndim, c->operand[1].shape);
    params.transposed = 0;
    memset(params.output_padding, 0, sizeof params.output_padding);
    rig_run(MICA_OP_CONV_WEIGHT_BACKWARD, &params, operand, 3, dtype);
}

static void check_golden(mica_dtype dtype)
{
    FILE *file = fopen("tests/golden/image.txt", "rb");
    golden_case g;
    uint32_t count = 0;

    assert_non_null(file);
    for (; golden_next(file, &g); free(g.result)) {
        const bool weight = strcmp(g.name, "conv_weight") == 0;

        if (!weight && strcmp(g.name, "conv") != 0)
            continue;
        conv_case c = case_of(g.number);
        rig_array gradient[3] = {{.ndim = 0}};

        if (weight)
            run_weight(&c, gradient, dtype);
        else
            rig_run(MICA_OP_CONV, &c.params, c.operand, 4, dtype);
        golden_compare(&g, weight ? &gradient[2] : &c.operand[3], dtype == MICA_DTYPE_F64 ? 1e-8 : 1e-5);
        rig_free(c.operand, 4);
        rig_free(gradient, 3);
        count++;
    }
    (void)fclose(file);
    assert_true(count >= 20);
}

static void test_golden(void **state)
{
    (void)state;
    golden_each(check_golden);
}

/* The gradient of a convolution with respect to x is the transposed one with the same weight, and the other way round. */
static void check_input_gradient(conv_case *c)
{
    const rig_array dy = rig_values(3, c->operand[3].ndim, c->operand[3].shape);
    mica_conv_params params = c->params;
    rig_array back[4] = {
        dy, c->operand[1], {.ndim = 0}, rig_array_of(c->operand[0].ndim, c->operand[0].shape)};

    params.transposed = 1 - c->params.transposed;
    for (uint32_t d = 0; d + 2 < c->operand[0].ndim; d++) {
        const uint64_t in = c->operand[0].shape[2 + d], kernel = c->operand[1].shape[2 + d];
        const uint64_t reach = params.dilation[d] * (kernel - 1) + 1;

        params.output_padding[d] =
            params.transposed ? (uint32_t)((in + params.low[d] + params.high[d] - reach) % params.stride[d])
                              : 0;
    }
    rig_run(MICA_OP_CONV, &params, back, 4, MICA_DTYPE_F64);
    rig_check_gradient(MICA_OP_CONV, &c->params, c->operand, 4, &dy, 0, &back[3]);
    free(dy.value);
    free(back[3].value);
}

static void test_gradients(void **state)
{
    static const int64_t cases[][25] = {
        {2, 2, 4, 2, 2, 0, 1, /* in */ 5, 6, /* kernel */ 3, 2, 2, 1, 1, 2, 1, 0, 0, 0},
        {1, 1, 3, 3, 3, 0, 0, 9, 3, 2, 1, 1, 0},
        {2, 1, 2, 3, 1, 1, 1, 3, 2, 3, 2, 2, 3, 1, 1, 1, 0, 1, 2},
        {3, 1, 2, 2, 1, 0, 1, 3, 4, 3, 2, 2, 1, 1, 2, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        conv_case c = case_of(cases[i]);
        rig_array gradient[3] = {{.ndim = 0}};
        const rig_array dy = rig_values(3, c.operand[3].ndim, c.operand[3].shape);

        check_input_gradient(&c);
        run_weight(&c, gradient, MICA_DTYPE_F64);
        rig_check_gradient(MICA_OP_CONV, &c.params, c.operand, 4, &dy, 1, &gradient[2]);
        free(dy.value);
        rig_free(gradient, 3);
        rig_free(c.operand, 4);
    }
}

/* x [1, 4, 5, 6], weight [4, 4, 3, 3] or of `kernel`, y as it must be for plain parameters. */
static void refuse(mica_conv_params params, uint64_t kernel, const char *word)
{
    mica_buffer *x = NULL, *w = NULL, *y = NULL;
    mica_encoder *encoder = NULL;

    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, (uint64_t[]){1, 4, 5, 6}, &x));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, (uint64_t[]){4, 4, kernel, 3}, &w));
    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 4, (uint64_t[]){1, 4, 3, 4}, &y));
    must(mica_encoder_begin(device, NULL, &encoder));
    assert_int_equal(mica_conv(encoder, x, w, NULL, &params, y), MICA_ERR_INVALID_ARGUMENT);
    if (strstr(mica_status_message(), word) == NULL)
        fail_msg("'%s' is not in: %s", word, mica_status_message());
    mica_encoder_release(encoder);
    mica_buffer_release(x);
    mica_buffer_release(w);
    mica_buffer_release(y);
}

static void test_refused(void **state)
{
    const uint32_t most = (1u << 24) + 1;

    (void)state;
    refuse((mica_conv_params){.transposed = 2}, 3, "params.transposed");
    refuse((mica_conv_params){.groups = 3}, 3, "params.groups is 3");
    refuse((mica_conv_params){.groups = 2}, 3, "weight: shape[1] is 4");
    refuse((mica_conv_params){.stride = {1, most}}, 3, "params.stride[1]");
    refuse((mica_conv_params){.dilation = {most}}, 3, "params.dilation[0]");
    refuse((mica_conv_params){.low = {most}}, 3, "params.low[0]");
    refuse((mica_conv_params){.high = {0, most}}, 3, "params.high[1]");
    refuse((mica_conv_params){.kernel = {2}}, 3, "params.kernel[0] is 2");
    refuse((mica_conv_params){.output_padding = {1}}, 3, "params.output_padding[0]");
    refuse((mica_conv_params){.output_padding = {2}, .stride = {2}, .transposed = 1}, 3,
           "params.output_padding[0]");
    refuse((mica_conv_params){.dilation = {3}}, 3, "weight: shape[2] is 3, which does not fit into the 5");
    refuse((mica_conv_params){.low = {4}, .high = {4}, .transposed = 1}, 3, "params: low[0] and high[0]");
    refuse((mica_conv_params){.groups = 0}, 0, "weight: shape[2] is 0");
    refuse((mica_conv_params){.stride = {2}}, 3, "y: shape[2] is 3, but the op gives 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests_name("conv", tests, open_device, close_device);
}
