/*
 * test_recipes.c - the gradients of ops that have none of their own: for each row of the table whose gradient is "of the ops that say the same" a
 * recipe of public calls, against central differences of the forward in double; or the test that has its own. A row without either fails by name.
 */
#include "ops/recipes_products.h"
#include "ops/recipes_sound.h"
#include "ops/recipes_sums.h"

/* ---- the table ---- */

#define REDUCE(text, id, back)                                                                              \
    {                                                                                                       \
        MICA_OP_REDUCE, text, {S3(3, 2, 4)}, S3(1, 2, 1), reduce_forward, back, MICA_REDUCE_##id, 0, false, \
            false                                                                                           \
    }
#define SCAN(text, id, m, back)                                                                       \
    {                                                                                                 \
        MICA_OP_SCAN, text, {S2(3, 5)}, S2(3, 5), scan_forward, back, MICA_SCAN_##id, m, false, false \
    }
#define SCATTER(text, id)                                                                            \
    {                                                                                                \
        MICA_OP_SCATTER, text, {S2(2, 3), S2(2, 5)}, S2(2, 5), scatter_forward, scatter_backward, 0, \
            MICA_SCATTER_##id, false, false                                                          \
    }
#define PADS(text, id)                                                                                      \
    {                                                                                                       \
        MICA_OP_PAD, text, {S2(4, 5)}, S2(7, 12), pad_forward, pad_backward, 0, MICA_PAD_##id, false, false \
    }
#define FFT(text, n, d)                                                                                   \
    {                                                                                                     \
        MICA_OP_FFT, text, {S3(2, 6, 2)}, S3(2, 6, 2), fft_forward, fft_backward, MICA_FFT_##n, d, false, \
            false                                                                                         \
    }

static const recipe recipes[] = {
    {MICA_OP_COPY,
     "copy that repeats",
     {S3(1, 3, 1)},
     S3(2, 3, 4),
     copy_forward,
     copy_backward,
     0,
     0,
     false,
     false},
    REDUCE("sum", SUM, sum_backward),
    REDUCE("mean", MEAN, sum_backward),
    REDUCE("max", MAX, extreme_backward),
    REDUCE("min", MIN, extreme_backward),
    REDUCE("max abs", MAX_ABS, extreme_backward),
    REDUCE("sum squares", SUM_SQUARES, squares_backward),
    REDUCE("logsumexp", LOGSUMEXP, logsumexp_backward),
    REDUCE("var", VAR, var_backward),
    {MICA_OP_REDUCE,
     "var of a sample",
     {S3(3, 2, 4)},
     S3(1, 2, 1),
     reduce_forward,
     var_backward,
     MICA_REDUCE_VAR,
     1,
     false,
     false},
    {MICA_OP_REDUCE, "prod", {S2(3, 5)}, S2(3, 1), row_prod_forward, prod_backward, 0, 0, false, false},
    {MICA_OP_REDUCE,
     "prod with a 0",
     {S2(3, 5)},
     S2(3, 1),
     row_prod_forward,
     prod_backward,
     0,
     0,
     false,
     true},
    SCAN("cumsum", SUM, 0, cumsum_backward),
    SCAN("cumsum exclusive", SUM, 1, cumsum_backward),
    SCAN("cumsum reverse", SUM, 2, cumsum_backward),
    SCAN("cumsum exclusive reverse", SUM, 3, cumsum_backward),
    SCAN("cumprod", PROD, 0, cumprod_backward),
    SCAN("cumprod exclusive", PROD, 1, cumprod_backward),
    SCAN("cumprod reverse", PROD, 2, cumprod_backward),
    SCAN("cummax", MAX, 0, cummax_backward),
    SCAN("cummin", MIN, 0, cummax_backward),
    {MICA_OP_SORT, "sort", {S2(3, 6)}, S2(3, 6), sort_forward, sort_backward, 0, 0, false, false},
    {MICA_OP_SORT, "top-k", {S2(3, 6)}, S2(3, 2), sort_forward, sort_backward, 0, 1, false, false},
    {MICA_OP_GATHER,
     "gather",
     {S3(2, 5, 3)},
     S3(2, 4, 3),
     gather_forward,
     gather_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_GATHER_ND,
     "gather-nd",
     {S3(4, 5, 3)},
     S2(3, 3),
     gather_nd_forward,
     gather_nd_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_SCATTER_ND,
     "scatter-nd",
     {S2(3, 3), S3(4, 5, 3)},
     S3(4, 5, 3),
     scatter_nd_forward,
     scatter_nd_backward,
     0,
     MICA_SCATTER_SET,
     false,
     false},
    {MICA_OP_SCATTER_ND,
     "scatter-nd add",
     {S2(3, 3), S3(4, 5, 3)},
     S3(4, 5, 3),
     scatter_nd_forward,
     scatter_nd_backward,
     0,
     MICA_SCATTER_ADD,
     false,
     false},
    {MICA_OP_COMPRESS,
     "compress",
     {S3(2, 5, 3)},
     S3(2, 3, 3),
     compress_forward,
     compress_backward,
     0,
     0,
     false,
     false},
    SCATTER("scatter", SET),
    SCATTER("scatter add", ADD),
    SCATTER("scatter mul", MUL),
    SCATTER("scatter max", MAX),
    SCATTER("scatter min", MIN),
    PADS("pad", CONSTANT),
    PADS("pad edge", EDGE),
    PADS("pad reflect", REFLECT),
    PADS("pad symmetric", SYMMETRIC),
    PADS("pad wrap", WRAP),
    {MICA_OP_EMBEDDING,
     "embedding",
     {S2(5, 3)},
     S2(4, 3),
     embedding_forward,
     embedding_backward,
     0,
     0,
     true,
     false},
    {MICA_OP_ROPE,
     "rope",
     {S3(3, 2, 8)},
     S3(3, 2, 8),
     rope_forward,
     rope_backward,
     0,
     MICA_ROPE_STANDARD,
     false,
     false},
    {MICA_OP_ROPE,
     "rope of halves",
     {S3(3, 2, 8)},
     S3(3, 2, 8),
     rope_forward,
     rope_backward,
     0,
     MICA_ROPE_NEOX,
     false,
     false},
    {MICA_OP_ROPE,
     "rope of a part",
     {S3(3, 2, 9)},
     S3(3, 2, 9),
     rope_forward,
     rope_backward,
     6,
     MICA_ROPE_NEOX,
     false,
     false},
    {MICA_OP_HADAMARD,
     "hadamard",
     {S2(3, 8), S1(8)},
     S2(3, 8),
     hadamard_forward,
     hadamard_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_HADAMARD,
     "hadamard undone",
     {S2(3, 8), S1(8)},
     S2(3, 8),
     hadamard_forward,
     hadamard_backward,
     0,
     1,
     false,
     false},
    FFT("fft", BACKWARD, 0),
    FFT("ifft", BACKWARD, 1),
    FFT("fft ortho", ORTHO, 0),
    FFT("fft forward", FORWARD, 0),
    FFT("ifft forward", FORWARD, 1),
    {MICA_OP_FFT,
     "rfft",
     {S2(2, 7)},
     S3(2, 4, 2),
     rfft_forward,
     rfft_backward,
     MICA_FFT_BACKWARD,
     0,
     false,
     false},
    {MICA_OP_FFT,
     "rfft forward",
     {S2(2, 6)},
     S3(2, 4, 2),
     rfft_forward,
     rfft_backward,
     MICA_FFT_FORWARD,
     0,
     false,
     false},
    {MICA_OP_FFT,
     "irfft",
     {S3(2, 4, 2)},
     S2(2, 6),
     irfft_forward,
     irfft_backward,
     MICA_FFT_BACKWARD,
     0,
     false,
     false},
    {MICA_OP_FFT,
     "irfft of odd length",
     {S3(2, 4, 2)},
     S2(2, 7),
     irfft_forward,
     irfft_backward,
     MICA_FFT_ORTHO,
     0,
     false,
     false},
    {MICA_OP_PRODUCT,
     "product",
     {S3(2, 3, 4), S2(4, 5), S1(5)},
     S3(2, 3, 5),
     product_forward,
     product_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_MATMUL,
     "matmul",
     {S2(3, 4), S2(5, 4)},
     S2(3, 5),
     matmul_forward,
     matmul_backward,
     0,
     0,
     true,
     false},
    {MICA_OP_MATMUL_TRANSPOSED,
     "transposed",
     {S2(3, 5), S2(5, 4)},
     S2(3, 4),
     transposed_forward,
     transposed_backward,
     0,
     0,
     true,
     false},
    {MICA_OP_MATMUL_EXPERTS,
     "experts",
     {S3(3, 2, 4), S3(3, 2, 4)},
     S3(3, 2, 2),
     experts_forward,
     experts_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_SOFTMAX_BACKWARD,
     "softmax's own",
     {S2(3, 5), S2(3, 5)},
     S2(3, 5),
     softmax_back_forward,
     softmax_back_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_NORMALIZE_BACKWARD,
     "layer norm's own",
     {S2(3, 4), S1(4)},
     S2(3, 4),
     normalize_back_forward,
     normalize_back_backward,
     MICA_NORMALIZE_LAYER,
     0,
     false,
     false},
    {MICA_OP_NORMALIZE_BACKWARD,
     "rms norm's own",
     {S2(3, 4), S1(4)},
     S2(3, 4),
     normalize_back_forward,
     normalize_back_backward,
     MICA_NORMALIZE_RMS,
     0,
     false,
     false},
    {MICA_OP_CONV_WEIGHT_BACKWARD,
     "conv's of its weight",
     {S3(2, 2, 7), S3(2, 3, 4)},
     S3(3, 2, 3),
     conv_weight_forward,
     conv_weight_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_POOL_WINDOWS_BACKWARD,
     "mean pool's own",
     {S2(3, 3)},
     S2(3, 4),
     pool_back_forward,
     pool_back_backward,
     MICA_POOL_MEAN,
     0,
     false,
     false},
    {MICA_OP_POOL_WINDOWS_BACKWARD,
     "max pool's own",
     {S2(3, 3)},
     S2(3, 4),
     pool_back_forward,
     pool_back_backward,
     MICA_POOL_MAX,
     0,
     false,
     false},
    {MICA_OP_COL2IM,
     "col2im",
     {S3(1, 6, 4)},
     S3(1, 2, 7),
     col2im_forward,
     col2im_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_IM2COL,
     "im2col",
     {S3(1, 2, 7)},
     S3(1, 6, 4),
     im2col_forward,
     im2col_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_RESIZE_BACKWARD,
     "resize's own",
     {S2(2, 9)},
     S2(2, 5),
     resize_back_forward,
     resize_back_backward,
     0,
     MICA_RESIZE_CUBIC,
     false,
     false},
    {MICA_OP_CROSS_ENTROPY_BACKWARD,
     "cross-entropy's own",
     {S1(3)},
     S2(3, 4),
     loss_back_forward,
     loss_back_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_ROUTE_BACKWARD,
     "router's own",
     {S2(3, 2)},
     S2(3, 4),
     route_back_forward,
     route_back_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_SSM_CONV,
     "convolution of states",
     {S2(5, 2), S2(2, 3), S1(2)},
     S2(5, 2),
     ssm_conv_forward,
     ssm_conv_backward,
     0,
     0,
     false,
     false},
    {MICA_OP_FFT,
     "log-mel",
     {S1(SAMPLES)},
     S2(BANDS, FRAMES),
     log_mel_forward,
     log_mel_backward,
     0,
     0,
     false,
     false}};

/* Rows whose gradient another test compares with differences, and those whose steps are rows above. */
static const struct {
    mica_op op;
    const char *where;
} elsewhere[] = {
    {MICA_OP_RMS_NORM, "test_norm.c:test_gradients, by mica_rms_norm_backward"},
    {MICA_OP_LAYER_NORM, "test_norm.c:test_gradients, by mica_layer_norm_backward"},
    {MICA_OP_CONV, "test_conv.c:test_gradients"},
    {MICA_OP_EXPERT_SUM, "test_gradient.c:test_expert_sum"},
    {MICA_OP_TRIANGULAR_SOLVE, "test_linear_backward.c:test_systems"},
    {MICA_OP_SOLVE, "test_linear_backward.c:test_systems"},
    {MICA_OP_INVERSE, "test_linear_backward.c:test_systems"},
    {MICA_OP_DETERMINANT, "test_linear_backward.c:test_systems"},
    {MICA_OP_CHOLESKY, "test_linear_backward.c:test_factors"},
    {MICA_OP_QR, "test_linear_backward.c:test_factors"},
    {MICA_OP_EIGH, "test_linear_backward.c:test_factors"},
    {MICA_OP_SVD, "test_linear_backward.c:test_factors"},
    {MICA_OP_ATTENTION_BACKWARD, "products and softmax_backward, whose gradients are rows here"}};

static void test_recipe(void **state)
{
    recipe_check(*state);
}

/* What the tape made is given back. */
static void end(tape *t)
{
    mica_encoder_release(t->encoder);
    while (t->count > 0)
        mica_buffer_release(t->made[--t->count]);
}

/* mica_log_mel is that composition in f32. */
static void test_log_mel(void **state)
{
    tape wide = {.type = MICA_DTYPE_F64}, t = {.type = MICA_DTYPE_F32};
    numbers sound = {.count = SAMPLES}, want = {.count = BANDS * FRAMES}, got = want;
    test_random random = test_random_from(5);

    (void)state;
    apart(&sound, &random, false);
    must(mica_encoder_begin(device, NULL, &wide.encoder));
    mica_buffer *x = room(&wide, S1(SAMPLES)), *y = room(&wide, S2(BANDS, FRAMES));
    put(x, wide.type, &sound);
    (void)hear(&wide, x, y);
    must(mica_encoder_commit_and_wait(wide.encoder));
    get(y, wide.type, &want);
    end(&wide);
    must(mica_encoder_begin(device, NULL, &t.encoder));
    for (uint64_t i = 0; i < SAMPLES; i++)
        sound.value[i] *= loudness_at(i);
    mica_buffer *loud = room(&t, S1(SAMPLES)), *z = room(&t, S2(BANDS, FRAMES)),
                *work = room(&t, S1(mica_log_mel_work(1, SAMPLES, WINDOW, FRAMES)));
    put(loud, t.type, &sound);
    must(mica_log_mel(t.encoder, loud, constants(&t, S1(WINDOW), window_at),
                      constants(&t, S2(BANDS, BINS), filter_at), HOP, work, z));
    must(mica_encoder_commit_and_wait(t.encoder));
    get(z, t.type, &got);
    for (uint64_t i = 0; i < want.count; i++)
        assert_true(fabs(got.value[i] - want.value[i]) < 1e-5);
    end(&t);
}

static bool is_known(mica_op op)
{
    bool known = false;

    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        known = known || recipes[i].op == op;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        known = known || elsewhere[i].op == op;
    return known;
}

static void test_all_rows(void **state)
{
    (void)state;
    for (uint32_t op = MICA_OP_NONE + 1; op < MICA_OP_COUNT; op++) {
        mica_op_info info = {.name = NULL};

        if (mica_op_get_info((mica_op)op, &info) == MICA_OK && info.gradient == MICA_GRADIENT_DECOMPOSED &&
            !is_known((mica_op)op))
            fail_msg("%s: its gradient is that of other ops, and no recipe here says of which", info.name);
    }
}

int main(void)
{
    struct CMUnitTest tests[sizeof recipes / sizeof *recipes + 2];
    uint32_t count = 0;

    for (; count < sizeof recipes / sizeof *recipes; count++) {
        tests[count] =
            (struct CMUnitTest)cmocka_unit_test_prestate(test_recipe, (void *)(uintptr_t)&recipes[count]);
        tests[count].name = recipes[count].name;
    }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_all_rows);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_log_mel);
    return _cmocka_run_group_tests("recipes", tests, count, open_device, close_device);
}
