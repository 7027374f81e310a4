/* losses.c - cross-entropy: the op, and its derivative, which is a region over what the op leaves. */
#include "device/objects.h"
#include "ops/steps.h"

#define ULL(x) ((unsigned long long)(x))

static const char *check_params(const mica_cross_entropy_params *params)
{
    if (!(params->smoothing >= 0.0f && params->smoothing <= 1.0f))
        return "params.smoothing is not from 0 to 1";
    return params->ignore <= 1 ? NULL : "params.ignore is not 0 or 1";
}

void mica__rule_cross_entropy(mica__op_builder *op)
{
    const mica__operand *logits = &op->record.operand[MICA__CROSS_ENTROPY_LOGITS];
    const char *complaint = check_params(op->record.params);
    const uint64_t classes = mica__op_size(op, 'N');
    mica__op_require(op, complaint == NULL, "%s", complaint);
    mica__op_require(op, !mica__size_known(classes) || classes <= INT32_MAX,
                     "logits: %llu classes, over 2^31", ULL(classes));
    for (uint32_t slot = MICA__CROSS_ENTROPY_LOSS; slot <= MICA__CROSS_ENTROPY_LSE; slot++)
        if (mica__op_has(op, slot))
            mica__op_require(
                op, (op->record.operand[slot].dtype == MICA_DTYPE_F64) == (logits->dtype == MICA_DTYPE_F64),
                "%s is %s, but logits is %s", mica__op_argument(op, slot),
                mica_dtype_name((mica_dtype)op->record.operand[slot].dtype),
                mica_dtype_name((mica_dtype)logits->dtype));
}

mica_status mica_cross_entropy(mica_encoder *encoder, mica_buffer *logits, mica_buffer *labels,
                               const mica_cross_entropy_params *params, mica_buffer *loss, mica_buffer *lse)
{
    mica_cross_entropy_params record = {0};
    if (params != NULL)
        record = *params;
    return mica__op_call(encoder, MICA_OP_CROSS_ENTROPY, &record,
                         (mica_buffer *const[]){logits, labels, loss, lse});
}

/* ---- backward ---- */

enum { LOGITS, LABELS, LSE, DLOSS, INPUTS };

static void write_backward(mica__steps *steps, const mica_cross_entropy_params *params, uint64_t classes)
{
    const st_value label = st_input(steps, LABELS), dloss = st_input(steps, DLOSS);
    const mica_register index = st_type(label);
    const st_value part = st_exp(st_sub(st_input(steps, LOGITS), st_input(steps, LSE)));
    const st_value hit = st_equal(label, st_index(steps, index, 0));
    const double smoothing = (double)params->smoothing, each = smoothing / (double)classes;
    const st_value target = st_select(hit, st_number(part, 1 - smoothing + each), st_number(part, each));
    st_value counts = st_less(label, st_number(label, (double)classes));
    if (index == MICA_REGISTER_I32)
        counts = st_bit_and(counts, st_greater_equal(label, st_number(label, 0)));
    if (params->ignore != 0) {
        const double ignored = index == MICA_REGISTER_I32 ? (double)params->ignored_label
                                                          : (double)(uint32_t)params->ignored_label;
        counts = st_bit_and(counts, st_not_equal(label, st_number(label, ignored)));
    }
    steps->program->output[0] = st_where(counts, st_mul(dloss, st_sub(part, target))).at;
}

/* The buffer with one more dimension, of size 1: it repeats along the classes. A single element stays one. */
static mica_status as_column(const char *name, mica_buffer *buffer, const mica_buffer *logits,
                             mica_buffer **out)
{
    uint64_t shape[MICA_MAX_DIMS], stride[MICA_MAX_DIMS];
    uint64_t count = 1;
    for (uint32_t d = 0; d < buffer->ndim; d++)
        count *= buffer->shape[d];
    if (buffer->ndim + 1 != logits->ndim && count == 1) {
        mica_buffer_retain(buffer);
        *out = buffer;
        return MICA_OK;
    }
    if (buffer->ndim + 1 != logits->ndim)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "cross_entropy_backward: %s has %u dimensions, logits %u, expected one less", name,
                          buffer->ndim, logits->ndim);
    for (uint32_t d = 0; d < buffer->ndim; d++) {
        if (buffer->shape[d] != logits->shape[d] && count != 1)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "cross_entropy_backward: shape[%u] of %s is %llu, of logits %llu", d, name,
                              ULL(buffer->shape[d]), ULL(logits->shape[d]));
        shape[d] = buffer->shape[d];
        stride[d] = buffer->stride[d];
    }
    shape[buffer->ndim] = 1;
    stride[buffer->ndim] = 0;
    return mica_buffer_view(buffer, buffer->dtype, buffer->ndim + 1, shape, stride, 0, out);
}

static mica_status check_backward(mica_buffer *const *inputs, const mica_buffer *dlogits,
                                  const mica_cross_entropy_params *params, const char *const *names)
{
    const char *complaint = check_params(params);
    if (complaint != NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "cross_entropy_backward: %s", complaint);
    for (uint32_t i = 0; i < INPUTS; i++)
        if (inputs[i] == NULL)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "cross_entropy_backward: %s is NULL", names[i]);
    if (dlogits == NULL || inputs[LOGITS]->ndim == 0 ||
        inputs[LOGITS]->shape[inputs[LOGITS]->ndim - 1] > INT32_MAX)
        return mica__fail(
            MICA_ERR_INVALID_ARGUMENT,
            "cross_entropy_backward: dlogits is NULL, or logits has no classes, or 2^31 or more");
    if (inputs[LABELS]->dtype != MICA_DTYPE_I32 && inputs[LABELS]->dtype != MICA_DTYPE_U32)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "cross_entropy_backward: labels is %s, not u32 or i32",
                          mica_dtype_name(inputs[LABELS]->dtype));
    return MICA_OK;
}

mica_status mica_cross_entropy_backward(mica_encoder *encoder, mica_buffer *logits, mica_buffer *labels,
                                        mica_buffer *lse, mica_buffer *dloss,
                                        const mica_cross_entropy_params *params, mica_buffer *dlogits)
{
    static const char *const in[] = {"logits", "labels", "lse", "dloss"}, *const out[] = {"dlogits"};
    static const mica__region_names names = {"cross_entropy_backward", in, out};
    mica_buffer *const inputs[INPUTS] = {logits, labels, lse, dloss};
    mica_buffer *columns[INPUTS] = {logits};
    mica_cross_entropy_params own = {0};
    mica__region_room room;
    mica__steps steps = {&room.program, MICA_REGION_STEPS, false};
    mica_status status = MICA_OK;
    if (params != NULL)
        own = *params;
    MICA__TRY(check_backward(inputs, dlogits, &own, in));
    mica__region_begin(&room.program, INPUTS, 1);
    for (uint32_t i = 0; i < INPUTS; i++)
        room.program.input[i] = (uint8_t)mica__register_of(logits->dtype);
    room.program.input[LABELS] = (uint8_t)mica__register_of(labels->dtype);
    write_backward(&steps, &own, logits->shape[logits->ndim - 1]);
    for (uint32_t i = LABELS; i < INPUTS && status == MICA_OK; i++)
        status = as_column(in[i], inputs[i], logits, &columns[i]);
    if (status == MICA_OK)
        status = mica__region_add(encoder, &names, &room.program, columns, false, &dlogits);
    for (uint32_t i = LABELS; i < INPUTS; i++)
        mica_buffer_release(columns[i]);
    return status;
}
