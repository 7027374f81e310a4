/*
 * ops_loss.c - losses over classes, optimisers as operators.
 */
#include <string.h>

#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"

static mica_tensor binary(const mica__ox_op *o, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return b == 0 ? 0 : mica__ox_scalar(o, scalar, a, b);
}

static mica_tensor times(const mica__ox_op *o, mica_tensor x, double by)
{
    return binary(o, MICA_SCALAR_MUL, x, mica__ox_number(o, x, by));
}

/* ---- losses --------------------------------------------------------------------------------------------- */

static mica_tensor all_of(const mica__ox_op *o, mica_reduce_kind kind, mica_tensor x)
{
    return mica__ox_reduce(o, kind, x, (1u << mica__ox_type(o, x).ndim) - 1, false);
}

/* -log_p of the label's class, times its weight; labels [n, d..] of log_p [n, classes, d..]. */
static mica_status class_loss(mica__ox_op *o, mica_tensor log_p, mica_tensor *out)
{
    static const char *const words[] = {"none", "sum", "mean", NULL};
    const mica__type t = mica__ox_type(o, log_p);
    const mica_dtype inside = t.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const uint32_t reduction = mica__ox_word(o, "reduction", 2, words);
    const mica__onnx_attribute *ignored = mica__ox_attribute(o, "ignore_index", MICA__ONNX_KIND_INT);
    const mica_gather_params along = {.axis = 1};
    if (reduction == UINT32_MAX || t.ndim < 2)
        return mica__ox_fail(o, "such a reduction or shape");
    mica_tensor labels = mica__ox_cast(o, mica__ox_in(o, 1), MICA_DTYPE_I32), counts = 0, weight = 0;
    const mica__type shape = mica__ox_type(o, labels);
    if (ignored != NULL) {
        if (ignored->i < INT32_MIN || ignored->i > INT32_MAX)
            return mica__ox_fail(o, "ignore_index %lld", (long long)ignored->i);
        counts = binary(o, MICA_SCALAR_NOT_EQUAL, labels, mica__ox_number(o, labels, (double)ignored->i));
        labels = mica__ox_select(o, counts, labels, mica__ox_number(o, labels, 0));
    }
    const mica_tensor ids = mica__ox_unsqueeze(o, labels, 1);
    mica_tensor loss = mica__ox_op1(o, MICA_OP_GATHER, &along,
                                    (const mica_tensor[]){mica__ox_cast(o, log_p, inside), ids}, 2);
    loss = mica__ox_scalar(o, MICA_SCALAR_NEG, mica__ox_reshape(o, loss, shape.ndim, shape.shape), 0);
    if (mica__ox_has(o, 2)) {
        const mica_tensor flat = mica__ox_reshape(o, labels, 1, (const uint64_t[]){MICA_SIZE_REST});
        weight = mica__ox_op1(o, MICA_OP_GATHER, NULL,
                              (const mica_tensor[]){mica__ox_cast(o, mica__ox_in(o, 2), inside), flat}, 2);
        weight = mica__ox_reshape(o, weight, shape.ndim, shape.shape);
    }
    if (counts != 0) {
        const mica_tensor zero = mica__ox_number(o, loss, 0);
        weight = weight == 0 ? mica__ox_cast(o, counts, inside) : mica__ox_select(o, counts, weight, zero);
        loss = mica__ox_select(o, counts, loss, zero);
    }
    if (weight != 0)
        loss = binary(o, MICA_SCALAR_MUL, loss, weight);
    if (reduction == 1)
        loss = all_of(o, MICA_REDUCE_SUM, loss);
    if (reduction == 2)
        loss = weight == 0 ? all_of(o, MICA_REDUCE_MEAN, loss)
                           : binary(o, MICA_SCALAR_DIV, all_of(o, MICA_REDUCE_SUM, loss),
                                    all_of(o, MICA_REDUCE_SUM, weight));
    *out = mica__ox_cast(o, loss, t.dtype);
    return MICA_OK;
}

mica_status mica__ox_nll_loss(mica__ox_op *o)
{
    mica_tensor loss = 0;
    MICA__TRY(class_loss(o, mica__ox_in(o, 0), &loss));
    mica__ox_out(o, 0, loss);
    return MICA_OK;
}

mica_status mica__ox_cross_entropy(mica__ox_op *o)
{
    const mica_softmax_params params = {.scale = 1, .log = 1};
    const mica_tensor x = mica__ox_in(o, 0);
    const uint32_t ndim = mica__ox_type(o, x).ndim;
    mica_tensor loss = 0;
    if (ndim < 2)
        return mica__ox_fail(o, "of %u dimensions", ndim);
    const mica_tensor rows = mica__ox_move(o, x, 1, ndim - 1);
    const mica_tensor log_p = mica__ox_move(
        o, mica__ox_op1(o, MICA_OP_SOFTMAX, &params, (const mica_tensor[]){rows, 0}, 2), ndim - 1, 1);
    MICA__TRY(class_loss(o, log_p, &loss));
    mica__ox_out(o, 0, loss);
    mica__ox_out(o, 1, log_p);
    return MICA_OK;
}

/* ---- optimisers of ai.onnx.preview.training: rate, step, then x.., gradients.., states.. ------------------ */

/* How many tensors a node has that brings `each` of every one. */
static mica_status count_tensors(const mica__ox_op *o, uint32_t each, uint32_t *out)
{
    *out = o->input_count < 2 ? 0 : (o->input_count - 2) / each;
    return *out != 0 && 2 + *out * each == o->input_count
               ? MICA_OK
               : mica__ox_fail(o, "%u inputs, which are not %u of each tensor", o->input_count, each);
}

static mica_tensor decayed(const mica__ox_op *o, mica_tensor g, mica_tensor x, double by)
{
    return binary(o, MICA_SCALAR_ADD, times(o, x, by), g);
}

mica_status mica__ox_adagrad(mica__ox_op *o)
{
    const double decay = (double)mica__ox_float(o, "decay_factor", 0),
                 eps = (double)mica__ox_float(o, "epsilon", 1e-6f);
    const double norm = (double)mica__ox_float(o, "norm_coefficient", 0);
    uint32_t n = 0;
    MICA__TRY(count_tensors(o, 3, &n));
    const mica_tensor step = mica__ox_cast(o, mica__ox_in(o, 1), MICA_DTYPE_F32);
    mica_tensor rate = mica__ox_reshape(o, mica__ox_in(o, 0), 0, NULL);
    mica_tensor slower = times(o, mica__ox_reshape(o, step, 0, NULL), decay);
    slower = binary(o, MICA_SCALAR_ADD, slower, mica__ox_number(o, slower, 1));
    rate = binary(o, MICA_SCALAR_DIV, rate, slower);
    for (uint32_t i = 0; i < n; i++) {
        const mica_tensor x = mica__ox_in(o, 2 + i), g = decayed(o, mica__ox_in(o, 2 + n + i), x, norm);
        const mica_tensor h = binary(o, MICA_SCALAR_ADD, mica__ox_in(o, 2 + 2 * n + i),
                                     mica__ox_scalar(o, MICA_SCALAR_SQUARE, g, 0));
        mica_tensor d = mica__ox_scalar(o, MICA_SCALAR_SQRT, h, 0);
        d = binary(o, MICA_SCALAR_ADD, d, mica__ox_number(o, d, eps));
        mica__ox_out(o, i,
                     binary(o, MICA_SCALAR_SUB, x,
                            binary(o, MICA_SCALAR_DIV, binary(o, MICA_SCALAR_MUL, g, rate), d)));
        mica__ox_out(o, n + i, h);
    }
    return MICA_OK;
}

mica_status mica__ox_adam(mica__ox_op *o)
{
    const double alpha = (double)mica__ox_float(o, "alpha", 0.9f),
                 beta = (double)mica__ox_float(o, "beta", 0.999f);
    const double eps = (double)mica__ox_float(o, "epsilon", 1e-6f),
                 norm = (double)mica__ox_float(o, "norm_coefficient", 0);
    const double post = (double)mica__ox_float(o, "norm_coefficient_post", 0);
    uint32_t n = 0;
    MICA__TRY(count_tensors(o, 4, &n));
    mica_tensor rate = mica__ox_reshape(o, mica__ox_in(o, 0), 0, NULL);
    const mica_tensor t = mica__ox_cast(o, mica__ox_reshape(o, mica__ox_in(o, 1), 0, NULL), MICA_DTYPE_F32);
    const mica_tensor one = mica__ox_number(o, t, 1);
    mica_tensor top =
        binary(o, MICA_SCALAR_SUB, one, binary(o, MICA_SCALAR_POW, mica__ox_number(o, t, beta), t));
    top = mica__ox_scalar(o, MICA_SCALAR_SQRT, top, 0);
    const mica_tensor low =
        binary(o, MICA_SCALAR_SUB, one, binary(o, MICA_SCALAR_POW, mica__ox_number(o, t, alpha), t));
    const mica_tensor later = binary(o, MICA_SCALAR_MUL, rate, binary(o, MICA_SCALAR_DIV, top, low));
    rate = mica__ox_select(o, binary(o, MICA_SCALAR_GREATER, t, mica__ox_number(o, t, 0)), later, rate);
    for (uint32_t i = 0; i < n; i++) {
        const mica_tensor x = mica__ox_in(o, 2 + i), g = decayed(o, mica__ox_in(o, 2 + n + i), x, norm);
        const mica_tensor v = binary(o, MICA_SCALAR_ADD, times(o, mica__ox_in(o, 2 + 2 * n + i), alpha),
                                     times(o, g, 1 - alpha));
        const mica_tensor h = binary(o, MICA_SCALAR_ADD, times(o, mica__ox_in(o, 2 + 3 * n + i), beta),
                                     times(o, mica__ox_scalar(o, MICA_SCALAR_SQUARE, g, 0), 1 - beta));
        mica_tensor d = mica__ox_scalar(o, MICA_SCALAR_SQRT, h, 0);
        d = binary(o, MICA_SCALAR_ADD, d, mica__ox_number(o, d, eps));
        const mica_tensor y =
            binary(o, MICA_SCALAR_SUB, x, binary(o, MICA_SCALAR_DIV, binary(o, MICA_SCALAR_MUL, rate, v), d));
        mica__ox_out(o, i, times(o, y, 1 - post));
        mica__ox_out(o, n + i, v);
        mica__ox_out(o, 2 * n + i, h);
    }
    return MICA_OK;
}

mica_status mica__ox_momentum(mica__ox_op *o)
{
    static const char *const words[] = {"standard", "nesterov", NULL};
    const double alpha = (double)mica__ox_float(o, "alpha", 0), beta = (double)mica__ox_float(o, "beta", 0);
    const double norm = (double)mica__ox_float(o, "norm_coefficient", 0);
    const uint32_t mode = mica__ox_word(o, "mode", UINT32_MAX, words);
    uint32_t n = 0;
    MICA__TRY(count_tensors(o, 3, &n));
    const mica_tensor rate = mica__ox_reshape(o, mica__ox_in(o, 0), 0, NULL);
    const mica_tensor t = mica__ox_reshape(o, mica__ox_in(o, 1), 0, NULL);
    if (mode == UINT32_MAX)
        return mica__ox_fail(o, "such a mode");
    const mica_tensor first = binary(o, MICA_SCALAR_EQUAL, t, mica__ox_number(o, t, 0));
    const mica_tensor fresh =
        mica__ox_select(o, first, mica__ox_number(o, rate, 1), mica__ox_number(o, rate, beta));
    for (uint32_t i = 0; i < n; i++) {
        const mica_tensor x = mica__ox_in(o, 2 + i), g = decayed(o, mica__ox_in(o, 2 + n + i), x, norm);
        const mica_tensor v = binary(o, MICA_SCALAR_ADD, times(o, mica__ox_in(o, 2 + 2 * n + i), alpha),
                                     binary(o, MICA_SCALAR_MUL, g, fresh));
        const mica_tensor way = mode == 0 ? v : binary(o, MICA_SCALAR_ADD, g, times(o, v, alpha));
        mica__ox_out(o, i, binary(o, MICA_SCALAR_SUB, x, binary(o, MICA_SCALAR_MUL, way, rate)));
        mica__ox_out(o, n + i, v);
    }
    return MICA_OK;
}
