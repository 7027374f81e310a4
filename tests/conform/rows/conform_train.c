/*
 * conform_train.c - cases of cross-entropy and its derivative: labels or parts of classes, with and without weights, rows of any rank, few and many classes, logits far apart, of -inf, NaN and inf; labels that are ignored
 * and some outside; every type, in double on the cpu.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"
#include "oracle/oracle_train.h"

enum { LOGITS, LABELS, TARGETS, WEIGHT, LOSS, LSE };
enum { BACK_LSE = LOSS, DLOSS, DLOGITS }; /* of the derivative, behind WEIGHT */

/* The label of a row; false where it is ignored or lies outside. */
static bool label_of(conform_case *c, uint64_t row, uint64_t classes, bool *outside, uint64_t *out)
{
    const mica_cross_entropy_params *params = &c->params.cross_entropy;
    const double label = test_tensor_get(conform_tensor(c, LABELS), row);
    const double ignored = conform_tensor(c, LABELS)->dtype == MICA_DTYPE_I32 || params->ignored_label >= 0
                               ? (double)params->ignored_label
                               : 4294967296.0 + (double)params->ignored_label;

    *outside = false;
    if (params->ignore != 0 && label == ignored)
        return false;
    *outside = label < 0 || label >= (double)classes;
    *out = *outside ? 0 : (uint64_t)label;
    return !*outside;
}

static void fill_logits(conform_case *c, test_random *random)
{
    static const double odd[] = {-(double)INFINITY, (double)NAN, (double)INFINITY, 1e30};
    test_tensor *logits = conform_tensor(c, LOGITS);
    const uint32_t which = (uint32_t)test_random_below(random, 8);

    test_tensor_normal(logits, random, test_random_one_in(random, 3) ? 30 : 3);
    for (uint64_t i = 0; which < 4 && !c->typical && i < logits->count; i++)
        if (test_random_one_in(random, 1 + (uint32_t)logits->shape[logits->ndim - 1] / 2))
            test_tensor_set(logits, i, odd[which]);
}

static void fill_labels(conform_case *c, test_random *random, uint64_t classes)
{
    test_tensor *labels = conform_tensor(c, LABELS);
    mica_cross_entropy_params *params = &c->params.cross_entropy;
    const bool is_signed = labels->dtype == MICA_DTYPE_I32;
    const double minus = is_signed || params->ignored_label >= 0
                             ? (double)params->ignored_label
                             : 4294967296.0 + (double)params->ignored_label;

    test_tensor_indices(labels, random, classes);
    for (uint64_t i = 0; params->ignore != 0 && i < labels->count; i++)
        if (test_random_one_in(random, 3))
            test_tensor_set(labels, i, minus);
    if (!c->typical && test_random_one_in(random, 5))
        test_tensor_set(labels, test_random_below(random, labels->count),
                        is_signed && test_random_one_in(random, 2) ? -1 : (double)classes);
    for (uint64_t i = 0; i < labels->count; i++) {
        bool outside;
        uint64_t label;

        label_of(c, i, classes, &outside, &label);
        if (outside)
            c->wanted = MICA_ERR_FAULT;
    }
}

/* What each class of a row has in the loss; false where the row does not count. */
static bool parts_of(conform_case *c, uint64_t row, uint64_t classes, double *part)
{
    const double smoothing = (double)c->params.cross_entropy.smoothing;
    bool outside;
    uint64_t label = classes;

    if (c->operand[LABELS].present && !label_of(c, row, classes, &outside, &label))
        return false;
    for (uint64_t i = 0; i < classes; i++) {
        const double own = c->operand[TARGETS].present
                               ? test_tensor_get(conform_tensor(c, TARGETS), row * classes + i)
                               : (double)(i == label);

        part[i] = ((1 - smoothing) * own + smoothing / (double)classes) *
                  (c->operand[WEIGHT].present ? test_tensor_get(conform_tensor(c, WEIGHT), i) : 1);
    }
    return true;
}

/* Numbers from 0 to 1, some of them 0. */
static void fill_parts(test_tensor *parts, test_random *random)
{
    test_tensor_uniform(parts, random, 0, 1);
    for (uint64_t i = 0; i < parts->count; i++)
        if (test_random_one_in(random, 3))
            test_tensor_set(parts, i, 0);
}

typedef struct draw {
    uint64_t shape[MICA_MAX_DIMS];
    uint32_t ndim;
    bool wide, in_place;
    mica_dtype logits;
} draw;

static mica_dtype draw_float(const conform_case *c, test_random *random, const draw *d)
{
    return d->wide ? MICA_DTYPE_F64 : c->typical ? MICA_DTYPE_F32 : conform_float(random);
}

/* logits, labels, targets, weight */
static void add_inputs(conform_case *c, test_random *random, bool in_place, draw *d)
{
    static const float smoothings[] = {0, 0, 0.1f, 1};
    mica_cross_entropy_params *params = &c->params.cross_entropy;

    *d = (draw){.shape = {512, 32000}, .ndim = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, 4)};
    d->in_place = in_place && !c->typical && test_random_one_in(random, 3);
    d->wide = !c->typical && !conform_kernels && test_random_one_in(random, 4);
    d->logits = draw_float(c, random, d);
    if (!c->typical) {
        conform_shape(random, d->ndim, 6000, d->shape);
        if (test_random_one_in(random, 6)) { /* several blocks of a row */
            d->shape[d->ndim - 1] = 1000 + test_random_below(random, 6000);
            for (uint32_t i = 0; i + 1 < d->ndim; i++)
                d->shape[i] = 1;
        }
        params->smoothing = smoothings[test_random_below(random, 4)];
        params->ignore = (uint32_t)test_random_below(random, 2);
        params->ignored_label = test_random_one_in(random, 2) ? -100 : 0;
    }
    conform_add(c, random, "logits", d->logits, d->ndim, d->shape,
                d->in_place ? TEST_ROWS : TEST_ROWS_REPEAT);
    fill_logits(c, random);
    if (!c->typical && test_random_one_in(random, 3)) {
        conform_add_absent(c);
        fill_parts(
            &conform_add(c, random, "targets", draw_float(c, random, d), d->ndim, d->shape, TEST_ROWS_REPEAT)
                 ->tensor,
            random);
    } else {
        conform_add(c, random, "labels", conform_index(random), d->ndim - 1, d->shape, TEST_ANY);
        fill_labels(c, random, d->shape[d->ndim - 1]);
        conform_add_absent(c);
    }
    if (c->typical || test_random_one_in(random, 2))
        conform_add_absent(c);
    else
        fill_parts(
            &conform_add(c, random, "weight", draw_float(c, random, d), 1, &d->shape[d->ndim - 1], TEST_ANY)
                 ->tensor,
            random);
}

void conform_make_cross_entropy(conform_case *c, test_random *random)
{
    draw d;

    add_inputs(c, random, false, &d);
    conform_add_output(c, random, "loss", draw_float(c, random, &d), d.ndim - 1, d.shape, TEST_ANY, false, 0);
    if (c->typical || test_random_one_in(random, 3)) {
        conform_add_absent(c);
    } else {
        conform_add(c, random, "lse", draw_float(c, random, &d), d.ndim - 1, d.shape, TEST_ANY);
        c->operand[LSE].written = true;
    }
    c->flops = 13 * (double)conform_tensor(c, LOGITS)->count;
    c->bytes = conform_bytes(c, LOGITS) + conform_bytes(c, LOSS);
}

mica_status conform_encode_cross_entropy(const conform_case *c, mica_encoder *encoder)
{
    return mica_cross_entropy(encoder, conform_buffer(c, LOGITS), conform_buffer(c, LABELS),
                              conform_buffer(c, TARGETS), conform_buffer(c, WEIGHT), &c->params.cross_entropy,
                              conform_buffer(c, LOSS), conform_buffer(c, LSE));
}

void conform_oracle_cross_entropy(conform_case *c)
{
    const test_tensor *logits = conform_tensor(c, LOGITS);
    const uint64_t n = logits->shape[logits->ndim - 1], rows = conform_tensor(c, LOSS)->count;
    const double unit = logits->dtype == MICA_DTYPE_F64 ? 0x1p-29 : 1; /* roundings of f64 */
    double *x = conform_values(c, LOGITS), *lse = NULL, *lse_error = NULL,
           *part = test_alloc(n + 1, sizeof *part);

    if (c->operand[LSE].present)
        conform_expect_also(c, LSE, &lse, &lse_error);
    for (uint64_t row = 0; row < rows; row++) {
        double error;
        const double all = oracle_log_sum(n, x + row * n, &error);

        if (lse != NULL) {
            lse[row] = all;
            lse_error[row] = error * unit;
        }
        c->expected[row] = 0;
        c->error[row] = ORACLE_EXACT;
        if (!parts_of(c, row, n, part))
            continue;
        c->expected[row] = oracle_cross_entropy(n, x + row * n, part, &c->error[row]);
        c->error[row] *= unit;
    }
    free(part);
    free(x);
}

/* ---- the derivative ---- */

/* lse is what the forward gives, as its type has it. */
void conform_make_cross_entropy_backward(conform_case *c, test_random *random)
{
    draw d;

    add_inputs(c, random, true, &d);
    const uint64_t n = d.shape[d.ndim - 1];
    double *x = conform_values(c, LOGITS), error;
    conform_add(c, random, "lse", draw_float(c, random, &d), d.ndim - 1, d.shape, TEST_ANY);
    for (uint64_t row = 0; row < conform_tensor(c, BACK_LSE)->count; row++)
        test_tensor_set(conform_tensor(c, BACK_LSE), row, oracle_log_sum(n, x + row * n, &error));
    conform_add(c, random, "dloss", draw_float(c, random, &d), d.ndim - 1, d.shape, TEST_REPEAT);
    test_tensor_normal(conform_tensor(c, DLOSS), random, 2);
    conform_add_output(c, random, "dlogits", draw_float(c, random, &d), d.ndim, d.shape, TEST_ROWS,
                       d.in_place, LOGITS);
    c->flops = 13 * (double)conform_tensor(c, LOGITS)->count;
    c->bytes = conform_bytes(c, LOGITS) + conform_bytes(c, DLOGITS);
    free(x);
}

mica_status conform_encode_cross_entropy_backward(const conform_case *c, mica_encoder *encoder)
{
    return mica_cross_entropy_backward(encoder, conform_buffer(c, LOGITS), conform_buffer(c, LABELS),
                                       conform_buffer(c, TARGETS), conform_buffer(c, WEIGHT),
                                       conform_buffer(c, BACK_LSE), conform_buffer(c, DLOSS),
                                       &c->params.cross_entropy, conform_buffer(c, DLOGITS));
}

void conform_oracle_cross_entropy_backward(conform_case *c)
{
    const test_tensor *logits = conform_tensor(c, LOGITS);
    const uint64_t n = logits->shape[logits->ndim - 1], rows = conform_tensor(c, DLOSS)->count;
    const double unit = logits->dtype == MICA_DTYPE_F64 ? 0x1p-29 : 1;
    double *x = conform_values(c, LOGITS), *lse = conform_values(c, BACK_LSE),
           *dloss = conform_values(c, DLOSS), *part = test_alloc(n + 1, sizeof *part);

    for (uint64_t row = 0; row < rows; row++) {
        double *dx = c->expected + row * n, *error = c->error + row * n;
        const bool counts = parts_of(c, row, n, part);

        if (counts)
            oracle_cross_entropy_backward(n, x + row * n, part, lse[row], dloss[row], dx, error);
        for (uint64_t i = 0; i < n; i++) {
            dx[i] = counts ? dx[i] : 0;
            error[i] = counts ? error[i] * unit : ORACLE_EXACT;
        }
    }
    free(x);
    free(lse);
    free(dloss);
    free(part);
}
