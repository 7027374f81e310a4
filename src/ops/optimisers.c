/*
 * optimisers.c - steps of optimisers and clipping by the norm of all gradients: regions over parameters, gradients and moments, and reductions.
 */
#include "device/objects.h"
#include "ops/updates.h"

#define ULL(x) ((unsigned long long)(x))
#define REFUSE(...) mica__fail(MICA_ERR_INVALID_ARGUMENT, __VA_ARGS__)

/* ---- a region that is put together operand by operand ---- */

typedef struct update {
    const char *op;
    mica__steps steps;
    mica_register type; /* of parameters and all floats */
    const mica_buffer *like;
    mica_buffer *in[MICA_REGION_INPUTS], *out[MICA_REGION_OUTPUTS];
    const char *in_name[MICA_REGION_INPUTS], *out_name[MICA_REGION_OUTPUTS];
    mica_status status;
    mica__region_room room;
} update;

static void update_begin(update *u, const char *op, const mica_buffer *parameters)
{
    u->op = op;
    u->status = MICA_OK;
    u->like = parameters;
    u->type = parameters->dtype == MICA_DTYPE_F64 ? MICA_REGISTER_F64 : MICA_REGISTER_F32;
    u->steps = (mica__steps){&u->room.program, MICA_REGION_STEPS, false};
    mica__region_begin(&u->room.program, 0, 0);
}

static st_value add_input(update *u, const char *name, mica_buffer *buffer, mica_register type)
{
    const uint32_t i = u->room.program.input_count++;
    u->in[i] = buffer;
    u->in_name[i] = name;
    u->room.program.input[i] = (uint8_t)type;
    return st_input(&u->steps, i);
}

/* A tensor of the parameters' shape. */
static st_value tensor(update *u, const char *name, mica_buffer *buffer)
{
    bool same = buffer != NULL && buffer->ndim == u->like->ndim;
    for (uint32_t d = 0; same && d < buffer->ndim; d++)
        same = buffer->shape[d] == u->like->shape[d];
    if (!same && u->status == MICA_OK)
        u->status =
            REFUSE("%s: %s %s", u->op, name, buffer == NULL ? "is NULL" : "has not the shape of parameters");
    return add_input(u, name, buffer, u->type);
}

/* A buffer of one element. */
static st_value single(update *u, const char *name, mica_buffer *buffer, bool counts)
{
    uint64_t count = 1;
    for (uint32_t d = 0; buffer != NULL && d < buffer->ndim; d++)
        count *= buffer->shape[d];
    const bool whole = buffer != NULL && (buffer->dtype == MICA_DTYPE_U32 || buffer->dtype == MICA_DTYPE_I32);
    if (u->status == MICA_OK && buffer == NULL)
        u->status = REFUSE("%s: %s is NULL", u->op, name);
    else if (u->status == MICA_OK && count != 1)
        u->status = REFUSE("%s: %s has %llu elements, not 1", u->op, name, ULL(count));
    else if (u->status == MICA_OK && counts && !whole)
        u->status = REFUSE("%s: %s is %s, not u32 or i32", u->op, name, mica_dtype_name(buffer->dtype));
    return add_input(u, name, buffer,
                     !counts          ? u->type
                     : buffer != NULL ? mica__register_of(buffer->dtype)
                                      : MICA_REGISTER_U32);
}

/* Inputs are all there before the first step: values of steps are counted behind them. */
static void give(update *u, const char *name, mica_buffer *buffer, st_value value)
{
    const uint32_t o = u->room.program.output_count++;
    u->out[o] = buffer;
    u->out_name[o] = name;
    u->room.program.output[o] = value.at;
}

static mica_status update_end(update *u, mica_encoder *encoder)
{
    const mica__region_names names = {u->op, u->in_name, u->out_name};
    if (u->status != MICA_OK)
        return u->status;
    return mica__region_add(encoder, &names, &u->room.program, u->in, false, u->out);
}

/* The gradient as it enters: scaled, its sign as asked, with the decay of weights. */
static st_value gradient(st_value g, st_value scale, uint32_t maximize, double decay, st_value p)
{
    if (scale.of != NULL)
        g = st_mul(g, scale);
    if (maximize != 0)
        g = st_neg(g);
    return decay != 0 ? st_add(g, st_scale(p, decay)) : g;
}

static bool is_share(double x)
{
    return x >= 0 && x < 1;
}

static bool is_positive(double x)
{
    return x >= 0 && x <= 1.7976931348623157e308;
}

/* ---- sgd ---- */

mica_status mica__sgd_check(const mica_sgd_params *params)
{
    if (!is_positive(params->momentum) || !is_positive(params->dampening) ||
        !is_positive(params->weight_decay))
        return REFUSE(
            "sgd_update: params.momentum is %g, dampening %g, weight_decay %g, not finite and 0 or above",
            params->momentum, params->dampening, params->weight_decay);
    if (params->nesterov > 1 || params->maximize > 1)
        return REFUSE("sgd_update: params.nesterov or maximize is not 0 or 1");
    if (params->nesterov != 0 && (params->momentum == 0 || params->dampening != 0))
        return REFUSE("sgd_update: params.nesterov without momentum, or with dampening");
    return MICA_OK;
}

static mica_status check_sgd(const mica_sgd_operands *operands, const mica_sgd_params *params)
{
    if (operands == NULL || operands->parameters == NULL)
        return REFUSE("sgd_update: %s is NULL", operands == NULL ? "operands" : "parameters");
    MICA__TRY(mica__sgd_check(params));
    if ((params->momentum != 0) != (operands->momentum != NULL))
        return REFUSE("sgd_update: params.momentum is %g, but momentum is %s", params->momentum,
                      operands->momentum != NULL ? "there" : "NULL");
    return MICA_OK;
}

void mica__sgd_steps(const mica_sgd_params *params, mica__sgd_values *v)
{
    st_value g = gradient(v->gradients, v->scale, params->maximize, params->weight_decay, v->parameters);
    if (params->momentum != 0) {
        const st_value fresh = params->dampening != 0 ? st_scale(g, 1 - params->dampening) : g;
        st_value b = st_add(st_scale(v->momentum, params->momentum), fresh);
        if (v->step.of != NULL)
            b = st_select(st_less_equal(v->step, st_number(v->step, 1)), g, b);
        v->momentum = b;
        g = params->nesterov != 0 ? st_add(g, st_scale(b, params->momentum)) : b;
    }
    v->parameters = st_sub(v->parameters, st_mul(v->rate, g));
}

mica_status mica_sgd_update(mica_encoder *encoder, const mica_sgd_operands *operands,
                            const mica_sgd_params *params)
{
    mica_sgd_params own = {0};
    update u;
    if (params != NULL)
        own = *params;
    MICA__TRY(check_sgd(operands, &own));
    update_begin(&u, "sgd_update", operands->parameters);
    const bool moves = own.momentum != 0;
    const st_value p = tensor(&u, "parameters", operands->parameters);
    const st_value given = tensor(&u, "gradients", operands->gradients);
    const st_value rate = single(&u, "learning_rate", operands->learning_rate, false);
    const st_value scale = operands->gradient_scale != NULL
                               ? single(&u, "gradient_scale", operands->gradient_scale, false)
                               : st_none;
    const st_value before = moves ? tensor(&u, "momentum", operands->momentum) : st_none;
    const st_value step =
        moves && operands->step != NULL ? single(&u, "step", operands->step, true) : st_none;
    MICA__TRY(u.status);
    mica__sgd_values v = {p, given, rate, scale, before, step};
    mica__sgd_steps(&own, &v);
    give(&u, "parameters", operands->parameters, v.parameters);
    if (moves)
        give(&u, "momentum", operands->momentum, v.momentum);
    return update_end(&u, encoder);
}

/* ---- adam ---- */

mica_status mica__adam_check(const mica_adam_params *params)
{
    if (!is_share(params->beta1) || !is_share(params->beta2))
        return REFUSE("adam_update: params.beta1 is %g and beta2 %g, not from 0 to below 1", params->beta1,
                      params->beta2);
    if (!is_positive(params->eps) || !is_positive(params->weight_decay))
        return REFUSE("adam_update: params.eps is %g and weight_decay %g, not finite and 0 or above",
                      params->eps, params->weight_decay);
    if (params->decoupled > 1 || params->maximize > 1)
        return REFUSE("adam_update: params.decoupled or maximize is not 0 or 1");
    return MICA_OK;
}

static mica_status check_adam(const mica_adam_operands *operands, const mica_adam_params *params)
{
    if (operands == NULL || params == NULL || operands->parameters == NULL)
        return REFUSE("adam_update: %s is NULL", operands == NULL ? "operands"
                                                 : params == NULL ? "params"
                                                                  : "parameters");
    return mica__adam_check(params);
}

/* 1 - beta^t, exact for a beta near 1 too */
static st_value correction(st_value t, double beta)
{
    return st_neg(st_expm1(st_scale(t, log(beta))));
}

void mica__adam_steps(const mica_adam_params *params, mica__adam_values *a)
{
    const double decay = params->weight_decay, coupled = params->decoupled != 0 ? 0 : decay;
    const st_value p = a->parameters, g = gradient(a->gradients, a->scale, params->maximize, coupled, p);
    const st_value m = st_add(a->m, st_scale(st_sub(g, a->m), 1 - params->beta1));
    const st_value v = st_add(st_scale(a->v, params->beta2), st_mul(st_scale(g, 1 - params->beta2), g));
    const st_value t = st_cast(a->step, st_type(p));
    const st_value greatest = a->greatest_v.of != NULL ? st_max(a->greatest_v, v) : v;
    const st_value root = st_div(st_sqrt(greatest), st_sqrt(correction(t, params->beta2)));
    const st_value move =
        st_mul(st_div(a->rate, correction(t, params->beta1)), st_div(m, st_shift(root, params->eps)));
    const st_value kept =
        params->decoupled != 0 && decay != 0 ? st_sub(p, st_mul(st_scale(a->rate, decay), p)) : p;
    a->parameters = st_sub(kept, move);
    a->m = m;
    a->v = v;
    a->greatest_v = greatest;
}

mica_status mica_adam_update(mica_encoder *encoder, const mica_adam_operands *operands,
                             const mica_adam_params *params)
{
    update u;
    MICA__TRY(check_adam(operands, params));
    update_begin(&u, "adam_update", operands->parameters);
    const st_value p = tensor(&u, "parameters", operands->parameters);
    const st_value given = tensor(&u, "gradients", operands->gradients);
    const st_value old_m = tensor(&u, "m", operands->m), old_v = tensor(&u, "v", operands->v);
    const st_value rate = single(&u, "learning_rate", operands->learning_rate, false);
    const st_value step = single(&u, "step", operands->step, true);
    const bool keeps = operands->greatest_v != NULL;
    const st_value most = keeps ? tensor(&u, "greatest_v", operands->greatest_v) : st_none;
    const st_value scale = operands->gradient_scale != NULL
                               ? single(&u, "gradient_scale", operands->gradient_scale, false)
                               : st_none;
    MICA__TRY(u.status);
    mica__adam_values v = {p, given, old_m, old_v, rate, step, most, scale};
    mica__adam_steps(params, &v);
    give(&u, "parameters", operands->parameters, v.parameters);
    give(&u, "m", operands->m, v.m);
    give(&u, "v", operands->v, v.v);
    if (keeps)
        give(&u, "greatest_v", operands->greatest_v, v.greatest_v);
    return update_end(&u, encoder);
}

/* ---- clipping ---- */

static uint64_t elements(const mica_buffer *buffer)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < buffer->ndim; d++)
        count *= buffer->shape[d];
    return count;
}

static mica_status check_norm(mica_buffer *const *gradients, uint32_t count, const mica_buffer *sums,
                              const mica_buffer *norm)
{
    if (gradients == NULL || sums == NULL || norm == NULL)
        return REFUSE("gradient_norm: %s is NULL", gradients == NULL ? "gradients"
                                                   : sums == NULL    ? "sums"
                                                                     : "norm");
    if (count == 0 || sums->ndim != 1 || sums->shape[0] != count || elements(norm) != 1)
        return REFUSE(
            "gradient_norm: count is %u, sums has %llu elements, norm %llu, expected count, 1 or more, and 1",
            count, ULL(elements(sums)), ULL(elements(norm)));
    if ((sums->dtype != MICA_DTYPE_F32 && sums->dtype != MICA_DTYPE_F64) || norm->dtype != sums->dtype)
        return REFUSE("gradient_norm: sums is %s and norm %s, not both f32 or both f64",
                      mica_dtype_name(sums->dtype), mica_dtype_name(norm->dtype));
    for (uint32_t i = 0; i < count; i++)
        if (gradients[i] == NULL)
            return REFUSE("gradient_norm: gradients[%u] is NULL", i);
    return MICA_OK;
}

/* Element i of a vector, of rank 0. */
static mica_status element_of(mica_buffer *vector, uint32_t i, mica_buffer **out)
{
    return mica_buffer_view(vector, vector->dtype, 0, NULL, NULL, i * vector->stride[0], out);
}

mica_status mica_gradient_norm(mica_encoder *encoder, mica_buffer *const *gradients, uint32_t count,
                               mica_buffer *sums, mica_buffer *norm)
{
    const mica_reduce_params squares = {.kind = MICA_REDUCE_SUM_SQUARES}, sum = {.kind = MICA_REDUCE_SUM};
    mica_buffer *total = NULL;
    MICA__TRY(check_norm(gradients, count, sums, norm));
    for (uint32_t i = 0; i < count; i++) {
        mica_buffer *own = NULL;
        MICA__TRY(element_of(sums, i, &own));
        const mica_status status = mica_reduce(encoder, gradients[i], &squares, own);
        mica_buffer_release(own);
        MICA__TRY(status);
    }
    MICA__TRY(mica_buffer_view(norm, norm->dtype, 0, NULL, NULL, 0, &total));
    mica_status status = mica_reduce(encoder, sums, &sum, total);
    if (status == MICA_OK)
        status = mica_sqrt(encoder, total, total);
    mica_buffer_release(total);
    return status;
}

st_value mica__clip_scale(st_value norm, double max_norm)
{
    return st_least(st_div(st_number(norm, max_norm), st_shift(norm, 1e-6)), 1);
}

mica_status mica_gradient_clip(mica_encoder *encoder, mica_buffer *norm, double max_norm,
                               mica_buffer *const *gradients, uint32_t count, mica_buffer *scale)
{
    if (norm == NULL || scale == NULL || (gradients == NULL && count > 0))
        return REFUSE("gradient_clip: %s is NULL", norm == NULL    ? "norm"
                                                   : scale == NULL ? "scale"
                                                                   : "gradients");
    if (!(max_norm > 0) || !is_positive(max_norm))
        return REFUSE("gradient_clip: max_norm is %g, not above 0 and finite", max_norm);
    if (elements(norm) != 1 || elements(scale) != 1)
        return REFUSE("gradient_clip: norm has %llu elements, scale %llu, not 1 and 1", ULL(elements(norm)),
                      ULL(elements(scale)));
    for (uint32_t i = 0; i < count; i++)
        if (gradients[i] == NULL)
            return REFUSE("gradient_clip: gradients[%u] is NULL", i);
    update u;
    update_begin(&u, "gradient_clip", norm);
    const st_value n = add_input(&u, "norm", norm, u.type);
    give(&u, "scale", scale, mica__clip_scale(n, max_norm));
    MICA__TRY(update_end(&u, encoder));
    for (uint32_t i = 0; i < count; i++)
        MICA__TRY(mica_mul(encoder, gradients[i], scale, gradients[i]));
    return MICA_OK;
}
