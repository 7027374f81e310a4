/*
 * conform_train.c - cases of cross-entropy: rows of any rank, few and many classes, logits far apart, of -inf, NaN and inf; labels that are ignored
 * and some outside; every type, in double on the cpu.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"
#include "oracle/oracle_train.h"

enum { LOGITS, LABELS, LOSS, LSE };

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

void conform_make_cross_entropy(conform_case *c, test_random *random)
{
    static const float smoothings[] = {0, 0, 0.1f, 1};
    mica_cross_entropy_params *params = &c->params.cross_entropy;
    uint64_t shape[MICA_MAX_DIMS] = {512, 32000};
    const uint32_t ndim = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, 4);
    const bool wide = !c->typical && !conform_kernels && test_random_one_in(random, 4);
    const mica_dtype logits = c->typical ? MICA_DTYPE_F32 : wide ? MICA_DTYPE_F64 : conform_float(random);

    if (!c->typical) {
        conform_shape(random, ndim, 6000, shape);
        if (test_random_one_in(random, 6)) { /* several blocks of a row */
            shape[ndim - 1] = 1000 + test_random_below(random, 6000);
            for (uint32_t d = 0; d + 1 < ndim; d++)
                shape[d] = 1;
        }
        params->smoothing = smoothings[test_random_below(random, 4)];
        params->ignore = (uint32_t)test_random_below(random, 2);
        params->ignored_label = test_random_one_in(random, 2) ? -100 : 0;
    }
    conform_add(c, random, "logits", logits, ndim, shape, TEST_ROWS_REPEAT);
    fill_logits(c, random);
    conform_add(c, random, "labels", conform_index(random), ndim - 1, shape, TEST_ANY);
    fill_labels(c, random, shape[ndim - 1]);
    conform_add_output(c, random, "loss",
                       wide         ? MICA_DTYPE_F64
                       : c->typical ? logits
                                    : conform_float(random),
                       ndim - 1, shape, TEST_ANY, false, 0);
    if (c->typical || test_random_one_in(random, 3)) {
        conform_add_absent(c);
    } else {
        conform_add(c, random, "lse", wide ? MICA_DTYPE_F64 : conform_float(random), ndim - 1, shape,
                    TEST_ANY);
        c->operand[LSE].written = true;
    }
    c->flops = 13 * (double)conform_tensor(c, LOGITS)->count;
    c->bytes = conform_bytes(c, LOGITS) + conform_bytes(c, LABELS) + conform_bytes(c, LOSS);
}

mica_status conform_encode_cross_entropy(const conform_case *c, mica_encoder *encoder)
{
    return mica_cross_entropy(encoder, conform_buffer(c, LOGITS), conform_buffer(c, LABELS),
                              &c->params.cross_entropy, conform_buffer(c, LOSS), conform_buffer(c, LSE));
}

void conform_oracle_cross_entropy(conform_case *c)
{
    const test_tensor *logits = conform_tensor(c, LOGITS);
    const uint64_t n = logits->shape[logits->ndim - 1], rows = conform_tensor(c, LABELS)->count;
    const double unit = logits->dtype == MICA_DTYPE_F64 ? 0x1p-29 : 1; /* roundings of f64 */
    double *x = conform_values(c, LOGITS), *lse = NULL, *lse_error = NULL;

    if (c->operand[LSE].present)
        conform_expect_also(c, LSE, &lse, &lse_error);
    for (uint64_t row = 0; row < rows; row++) {
        bool outside;
        uint64_t label;
        double error;
        const double all = oracle_log_sum(n, x + row * n, &error);

        if (lse != NULL) {
            lse[row] = all;
            lse_error[row] = error * unit;
        }
        c->expected[row] = 0;
        c->error[row] = ORACLE_EXACT;
        if (!label_of(c, row, n, &outside, &label))
            continue;
        c->expected[row] = oracle_cross_entropy(n, x + row * n, label,
                                                (double)c->params.cross_entropy.smoothing, &c->error[row]);
        c->error[row] *= unit;
    }
    free(x);
}
