/*
 * test_builders.c - builders of nodes: what they give of a symbolic batch, which ops they reach, and what they refuse, in a sentence that names builder and argument.
 */
#include "graph/builder_cases.h"

static void words_of(const mica_graph *graph, mica_tensor value, char *out, size_t bytes)
{
    mica_graph_tensor_info info;
    must(mica_graph_get_tensor(graph, value, &info));
    size_t at = (size_t)snprintf(out, bytes, "%s [", mica_dtype_name(info.dtype));
    for (uint32_t d = 0; d < info.ndim; d++) {
        const char *name = mica_graph_symbol_name(graph, info.shape[d]);
        if (name != NULL)
            at += (size_t)snprintf(out + at, bytes - at, "%s%s", d == 0 ? "" : ", ", name);
        else
            at += (size_t)snprintf(out + at, bytes - at, "%s%llu", d == 0 ? "" : ", ",
                                   (unsigned long long)info.shape[d]);
    }
    snprintf(out + at, bytes - at, "]");
}

static void test_results(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint32_t i = 0; i < BUILDER_CASES; i++) {
        const builder_case *row = &builder_cases[i];
        char words[160];
        mica_tensor y;
        mica_graph *graph = case_graph(row, &y);
        if (mica_graph_status(graph) != MICA_OK || y == 0) {
            print_error("%s: %s\n", row->name, mica_status_message());
            wrong++;
        } else {
            words_of(graph, y, words, sizeof words);
            if (strcmp(words, row->result) != 0) {
                print_error("%s gives %s, not %s\n", row->name, words, row->result);
                wrong++;
            }
            must(mica_graph_verify(graph));
        }
        mica_graph_release(graph);
    }
    assert_int_equal(wrong, 0);
}

/* Ops that no builder gives: kernels of the caller's, what views become that somebody needs in a row, and derivatives through states, which graphs
 * have by number. */
static bool is_elsewhere(uint32_t op)
{
    return op == MICA_OP_CUSTOM || op == MICA_OP_COPY || op == MICA_OP_SSM_CONV_BACKWARD ||
           op == MICA_OP_DELTA_NET_BACKWARD || op == MICA_OP_SELECTIVE_SCAN_BACKWARD ||
           op == MICA_OP_RNN_BACKWARD;
}

static void test_reach(void **state)
{
    (void)state;
    bool reached[MICA_OP_COUNT] = {false};
    int missing = 0;
    for (uint32_t i = 0; i < BUILDER_CASES; i++) {
        mica_tensor y;
        mica_graph *graph = case_graph(&builder_cases[i], &y);
        for (uint32_t n = 0; n < mica_graph_node_count(graph); n++) {
            mica_graph_node_info node;
            must(mica_graph_get_node(graph, n, &node));
            if (node.kind == MICA_NODE_OP)
                reached[node.code] = true;
            if (node.kind == MICA_NODE_REGION)
                reached[MICA_OP_REGION] = true;
        }
        mica_graph_release(graph);
    }
    for (uint32_t op = MICA_OP_NONE + 1; op < MICA_OP_COUNT; op++)
        if (!reached[op] && !is_elsewhere(op)) {
            print_error("%s is reached by no builder\n", mica_op_name((mica_op)op));
            missing++;
        }
    assert_int_equal(missing, 0);
}

/* ---- refusals ---- */

typedef struct refusal {
    const char *name, *inputs;
    const char *builder, *words; /* that the sentence has */
    case_build *build;
} refusal;

#define REFUSED(name, expression)                                          \
    static mica_tensor refused_##name(mica_graph *g, const mica_tensor *x) \
    {                                                                      \
        (void)x;                                                           \
        return expression;                                                 \
    }
REFUSED(fill, mica_graph_fill(g, MICA_DTYPE_U8, 1, SHAPE(3), 300))
REFUSED(where, mica_graph_where(g, x[0], x[1], x[2]))
REFUSED(leaky_relu, mica_graph_leaky_relu(g, x[0], NAN))
REFUSED(softcap, mica_graph_softcap(g, x[0], 0))
REFUSED(clamp, mica_graph_clamp(g, x[0], 1, 0))
REFUSED(gate, mica_graph_gate(g, MICA_SCALAR_ADD, x[0], x[0]))
REFUSED(gate_shapes, mica_graph_gate(g, MICA_SCALAR_SILU, x[0], x[1]))
REFUSED(gate_halves, mica_graph_gate_halves(g, MICA_SCALAR_SILU, x[0], -1, 0))
REFUSED(linear_many, mica_graph_linear_many(g, x[0], x, 9, NULL, NULL))
REFUSED(product, mica_graph_product(g, x[0], x[1], 0))
REFUSED(product_codes, mica_graph_product_codes(g, x[0], x[1], x[0], 0, 0))
REFUSED(lora, mica_graph_lora(g, x[0], x[0], x[0], x[1], 1))
REFUSED(dot_general, mica_graph_dot_general(g, x[0], x[1], &(mica_contraction){.contract_count = 1}))
REFUSED(dot_twice,
        mica_graph_dot_general(g, x[0], x[0], &(mica_contraction){.contract_count = 1, .batch_count = 1}))
REFUSED(einsum, mica_graph_einsum(g, "ij,jk->il", x, 2))
REFUSED(einsum_sizes, mica_graph_einsum(g, "ij,jk", x, 2))
REFUSED(reduce, mica_graph_reduce(g, MICA_REDUCE_SUM, x[0], (const int32_t[]){2}, 1, 0))
REFUSED(vector_norm, mica_graph_vector_norm(g, x[0], 2, NULL, 0, 0))
REFUSED(argmax, mica_graph_argmax(g, x[0], 5, 0))
REFUSED(top_k, mica_graph_top_k(g, x[0], 9, -1, 0, NULL))
REFUSED(gather, mica_graph_gather(g, x[0], x[1], 0))
REFUSED(take_along, mica_graph_take_along_axis(g, x[0], x[1], 0))
REFUSED(gather_nd, mica_graph_gather_nd(g, x[0], x[1], 0))
REFUSED(scatter_nd, mica_graph_scatter_nd(g, x[0], x[1], x[2], MICA_SCATTER_SET))
REFUSED(one_hot, mica_graph_one_hot(g, x[0], 3, MICA_DTYPE_F32))
REFUSED(tril, mica_graph_tril(g, x[0], 0))
REFUSED(arange, mica_graph_arange(g, MICA_DTYPE_I32, 0.5, 1, 3))
REFUSED(squeeze, mica_graph_squeeze(g, x[0], (const int32_t[]){1}, 1))
REFUSED(flatten, mica_graph_flatten(g, x[0], 1, 0))
REFUSED(stack, mica_graph_stack(g, x, 2, 0))
REFUSED(split, mica_graph_split(g, x[0], 1, NULL, 2, (mica_tensor[2]){0}))
REFUSED(softmax, mica_graph_softmax(g, x[0], 1, 3))
REFUSED(rms_norm, mica_graph_rms_norm(g, x[0], x[1], 1e-5f))
REFUSED(group_norm, mica_graph_group_norm(g, x[0], 4, 0, 0, 1e-5f))
REFUSED(batch_norm, mica_graph_batch_norm(g, x[0], x[1], x[1], 0, 0, 1e-5f))
REFUSED(attention, mica_graph_attention(g, x[0], x[1], x[1], NULL, NULL))
REFUSED(attention_window,
        mica_graph_attention(g, x[0], x[0], x[0], &(mica_graph_attention_desc){.window = 2}, NULL))
REFUSED(attention_mask,
        mica_graph_attention(g, x[0], x[0], x[0], &(mica_graph_attention_desc){.mask = x[1]}, NULL))
REFUSED(rope_2d, mica_graph_rope_2d(g, x[0], x[1], &(mica_rope_params){.theta = 10}))
REFUSED(rope_axial, mica_graph_rope_axial(g, x[0], 3, 3, 1, 2, 10))
REFUSED(moe, mica_graph_moe(g, x[0], &(mica_moe_block){.experts_used = 2, .router_weight = x[1]}))
REFUSED(conv, mica_graph_conv(g, x[0], x[1], 0, NULL))
REFUSED(conv_codes, mica_graph_conv_codes(g, x[0], 0, x[0], 0, 0, NULL))
REFUSED(rnn_layer,
        mica_graph_rnn_layer(g, x[0], &(mica_rnn_layer){.input_weight = x[0], .state_weight = x[0]}, NULL))
REFUSED(ssm_state, mica_graph_ssm_conv(g, x[0], x[1], 0, NULL, NULL, (mica_tensor[1]){0}))
REFUSED(fourier, mica_graph_fourier(g, x[0], MICA_FFT_COMPLEX, 0, MICA_FFT_BACKWARD, 4, 3))
REFUSED(stft, mica_graph_stft(g, x[0], x[1], 2, 0, MICA_FFT_BACKWARD))
REFUSED(complex_mul, mica_graph_complex_mul(g, x[0], x[0]))
REFUSED(uniform, mica_graph_uniform(g, MICA_DTYPE_F32, 1, SHAPE(3), 2, 1, NULL))
REFUSED(normal, mica_graph_normal(g, MICA_DTYPE_F32, 2, SHAPE(3, MICA_SIZE_UNKNOWN), 0, 1, NULL))
REFUSED(integers, mica_graph_random_integers(g, MICA_DTYPE_U8, 1, SHAPE(3), 0, 300, NULL))
REFUSED(dropout, mica_graph_dropout(g, x[0], 1.5, NULL))
REFUSED(dropout_seed, mica_graph_dropout(g, x[0], 0.5, &(mica_graph_draw){x[0], 0}))
REFUSED(quantize, mica_graph_quantize(g, x[0], &(mica_graph_quantizer){.scales = x[1]}, MICA_DTYPE_I8))
REFUSED(quantize_type,
        mica_graph_quantize(g, x[0], &(mica_graph_quantizer){.scales = x[0], .high = 300}, MICA_DTYPE_U8))
REFUSED(dequantize,
        mica_graph_dequantize(g, x[0], &(mica_graph_quantizer){.high = 7, .low = -8}, MICA_DTYPE_F32))
REFUSED(fake, mica_graph_fake_quantize_trained(g, x[0], x[1], -8, 7, MICA_STRAIGHT_CLIPPED))
REFUSED(cross_entropy, mica_graph_cross_entropy(g, x[0], 0, 0, 0, NULL, NULL))
REFUSED(mean_square, mica_graph_mean_square(g, x[0], x[1]))
REFUSED(sgd,
        mica_graph_sgd_update(g,
                              &(mica_graph_sgd){.parameters = x[0], .gradients = x[1], .learning_rate = x[1]},
                              NULL, NULL))
REFUSED(adam, mica_graph_adam_update(g, &(mica_graph_adam){.parameters = x[0]},
                                     &(mica_adam_params){.beta1 = 1}, NULL))
REFUSED(solve, mica_graph_solve(g, x[0], x[1]))

#define REFUSAL(name, inputs, builder, words)         \
    {                                                 \
#name, inputs, builder, words, refused_##name \
    }
static const refusal refusals[] = {
    REFUSAL(fill, "", "graph_fill", "300"),
    REFUSAL(where, "bool:3 f32:3 i32<4:3", "graph_where", "c is i32 beside f32"),
    REFUSAL(leaky_relu, "f32:3", "graph_leaky_relu", "slope is nan"),
    REFUSAL(softcap, "f32:3", "graph_softcap", "cap is 0"),
    REFUSAL(clamp, "f32:3", "graph_clamp", "low is 1 and high 0"),
    REFUSAL(gate, "f32:3", "graph_gate", "act is add"),
    REFUSAL(gate_shapes, "f32:3 f32:4", "graph_gate", "up f32 [4] does not broadcast to [3]"),
    REFUSAL(gate_halves, "f32:2,3", "graph_gate_halves", "x f32 [2, 3] has no two halves along axis 1"),
    REFUSAL(linear_many, "f32:3,4", "graph_linear_many", "9 weights"),
    REFUSAL(product, "f32:3,4 f32:5,6", "graph_product", "shape[0] is 5, but shape[1] of a is 4"),
    REFUSAL(product_codes, "f32:3,3 i8<3:3", "graph_product_codes", "a_zero"),
    REFUSAL(lora, "f32:3,4 f32:4", "graph_lora", "b f32 [4] has 1 dimensions, not 2"),
    REFUSAL(dot_general, "f32:3,4 f32:5,6", "graph_dot_general", "a [3, 4] and b [5, 6]"),
    REFUSAL(dot_twice, "f32:3,4", "graph_dot_general", "a_contract[0] is 0"),
    REFUSAL(einsum, "f32:3,4 f32:4,5", "graph_einsum", "a letter of the result"),
    REFUSAL(einsum_sizes, "f32:3,4 f32:5,6", "graph_einsum", "f32 [5, 6] has another size in dimension 0"),
    REFUSAL(reduce, "f32:3,4", "graph_reduce", "axes[0] is 2, of 2 dimensions"),
    REFUSAL(vector_norm, "i32<3:3", "graph_vector_norm", "x i32 [3] is no float"),
    REFUSAL(argmax, "f32:3,4", "graph_argmax", "axis is 5, of 2 dimensions"),
    REFUSAL(top_k, "f32:3,4", "graph_top_k", "x f32 [3, 4] has fewer than k, 9"),
    REFUSAL(gather, "f32:3,4 f32:2", "graph_gather", "ids f32 [2] is no integer"),
    REFUSAL(take_along, "f32:3,4 i32<3:2", "graph_take_along_axis", "ids i32 [2] has 1 dimensions, not 2"),
    REFUSAL(gather_nd, "f32:3,4 i32<3:2,3", "graph_gather_nd", "ids: shape[1] is 3 coordinates, not 1 to 2"),
    REFUSAL(scatter_nd, "f32:3,4 i32<3:2,1 f32:2,5", "graph_scatter_nd", "updates: shape[1] is 5"),
    REFUSAL(one_hot, "f32:3", "graph_one_hot", "ids f32 [3] is no integer"),
    REFUSAL(tril, "f32:3", "graph_tril", "x f32 [3] has 1 dimensions, not 2 to 8"),
    REFUSAL(arange, "", "graph_arange", "start 0.5"),
    REFUSAL(squeeze, "f32:3,4", "graph_squeeze", "x f32 [3, 4] has another size than 1 in dimension 1"),
    REFUSAL(flatten, "f32:3,4", "graph_flatten", "x f32 [3, 4] has no dimensions 1 to 0"),
    REFUSAL(stack, "f32:3 f32:3,4", "graph_stack", "tensor 1 f32 [3, 4] has 2 dimensions, not 1"),
    REFUSAL(split, "f32:3,5", "graph_split", "x f32 [3, 5] has no 2 equal parts along axis 1"),
    REFUSAL(softmax, "f32:3", "graph_softmax", "axis is 3, of 1 dimensions"),
    REFUSAL(rms_norm, "f32:3,4 f32:5", "graph_rms_norm", "weight: shape[0] is 5"),
    REFUSAL(group_norm, "f32:3,6,4", "graph_group_norm",
            "x f32 [3, 6, 4] has channels that are not 4 groups"),
    REFUSAL(batch_norm, "f32:3,6,4 f32:5", "graph_batch_norm", "mean f32 [5] is not of the 6 channels of x"),
    REFUSAL(attention, "f32:3,4,8 f32:3,2,8,1", "graph_attention",
            "k f32 [3, 2, 8, 1] has 4 dimensions, not 3"),
    REFUSAL(attention_window, "f32:3,4,8", "graph_attention", "desc.window is 2, but desc.causal is 0"),
    REFUSAL(attention_mask, "f32:3,4,8 f32:5,3", "graph_attention", "mask f32 [5, 3] does not broadcast"),
    REFUSAL(rope_2d, "f32:3,6 i32<3:2,3", "graph_rope_2d",
            "x f32 [3, 6] has a last dimension that is no multiple of 4"),
    REFUSAL(rope_axial, "f32:2,8,8", "graph_rope_axial", "x f32 [2, 8, 8] is not of 3 columns, 3 rows"),
    REFUSAL(moe, "f32:3,4 f32:5,4", "graph_moe", "weight is absent"),
    REFUSAL(conv, "f32:3,4,8 f32:5,3,2", "graph_conv", "weight"),
    REFUSAL(conv_codes, "f32:3,4,8", "graph_conv_codes", "x f32 [3, 4, 8] is neither i8 nor u8"),
    REFUSAL(rnn_layer, "f32:3,4,8", "graph_rnn_layer", "input_weight f32 [3, 4, 8] is not of 1 directions"),
    REFUSAL(ssm_state, "f32:3,4 f32:4,2", "graph_ssm_conv", "neither state nor next_state"),
    REFUSAL(fourier, "f32:3", "graph_fourier", "axis is 3, of 1 dimensions"),
    REFUSAL(stft, "f32:5 f32:8", "graph_stft",
            "x f32 [5] has no number of samples for windows of 8, 2 apart"),
    REFUSAL(complex_mul, "f32:3", "graph_complex_mul", "a f32 [3] is not c64"),
    REFUSAL(uniform, "", "graph_uniform", "low is 2 and high 1"),
    REFUSAL(normal, "", "graph_normal", "shape [3, ?] has a size behind the first that is no number"),
    REFUSAL(integers, "", "graph_random_integers", "does not fit u8"),
    REFUSAL(dropout, "f32:3", "graph_dropout", "p is 1.5"),
    REFUSAL(dropout_seed, "f32:3", "graph_dropout", "draw.seed f32 [3] is not one u64"),
    REFUSAL(quantize, "f32:3,4 f32:3", "graph_quantize", "by.scales f32 [3] has not 1 or 4 in dimension 0"),
    REFUSAL(quantize_type, "f32:3", "graph_quantize",
            "dtype of codes is u8, which does not hold them from 0 to 300"),
    REFUSAL(dequantize, "i8<9:3", "graph_dequantize", "by.scales is no tensor"),
    REFUSAL(fake, "f32:3 f32:5", "graph_fake_quantize_trained", "by.scales f32 [5]"),
    REFUSAL(cross_entropy, "f32:3,4", "graph_cross_entropy", "labels and targets are NULL"),
    REFUSAL(mean_square, "f32:3 f32:4", "graph_mean_square", "b [4] does not broadcast to [3]"),
    REFUSAL(sgd, "f32:3 f32:4", "graph_sgd_update", "gradients f32 [4] has not the shape of parameters"),
    REFUSAL(adam, "f32:3", "graph_adam_update", "params.beta1 is 1"),
    REFUSAL(solve, "f32:3,3 f32:4,2", "graph_solve", "b: shape[0] is 4, but shape[0] of a is 3"),
};

static void test_refusals(void **state)
{
    (void)state;
    int wrong = 0;
    for (uint32_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *row = &refusals[i];
        const builder_case as_case = {row->name, row->inputs, "", row->build};
        mica_tensor y;
        mica_graph *graph = case_graph(&as_case, &y);
        const mica_status status = mica_graph_status(graph);
        const char *message = status == MICA_OK ? "nothing" : mica_status_message();
        if (y != 0 || status == MICA_OK || strncmp(message, row->builder, strlen(row->builder)) != 0 ||
            strstr(message, row->words) == NULL) {
            print_error("%s says: %s\n", row->name, message);
            wrong++;
        }
        mica_graph_release(graph);
    }
    assert_int_equal(wrong, 0);
}

/* NULL for a graph, and a graph that has failed. */
static void test_no_graph(void **state)
{
    (void)state;
    static const mica_tensor x[CASE_INPUTS] = {0};
    for (uint32_t i = 0; i < BUILDER_CASES; i++) {
        mica_graph *graph = NULL;
        must(mica_graph_create(&graph));
        assert_int_equal(mica_graph_add(graph, 9, 9), 0);
        if (strstr(builder_cases[i].inputs, "b") != builder_cases[i].inputs &&
            builder_cases[i].build != build_fill && builder_cases[i].build != build_arange &&
            builder_cases[i].build != build_expand)
            assert_int_equal(builder_cases[i].build(graph, x), 0);
        mica_graph_release(graph);
    }
    assert_int_equal(mica_graph_softmax(NULL, 1, 1, 0), 0);
    assert_int_equal(mica_graph_einsum(NULL, "i", NULL, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
