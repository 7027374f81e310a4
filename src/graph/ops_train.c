/*
 * ops_train.c - losses, and steps of optimisers, as nodes: what is updated in a call is given anew here.
 */
#include "graph/ops_build.h"
#include "ops/updates.h"

/* ---- losses ---- */

mica_tensor mica_graph_cross_entropy(mica_graph *graph, mica_tensor logits, mica_tensor labels,
                                     mica_tensor targets, mica_tensor weight,
                                     const mica_cross_entropy_params *params, mica_tensor *out_lse)
{
    static const char call[] = "cross_entropy";
    mica_tensor out[2] = {0, 0};
    if (out_lse != NULL)
        *out_lse = 0;
    if (!mica__graph_begins(graph, call))
        return 0;
    const mica_tensor ids = labels != 0 ? mica__build_ids(graph, call, "labels", labels) : 0;
    if (graph->status == MICA_OK)
        (void)mica_graph_op(graph, MICA_OP_CROSS_ENTROPY, params,
                            (const mica_tensor[]){logits, ids, targets, weight}, 4, out_lse != NULL ? 3 : 1,
                            NULL, out, 2);
    if (out_lse != NULL)
        *out_lse = out[1];
    return mica__build_end(graph, call, out[0]);
}

mica_tensor mica_graph_cross_entropy_backward(mica_graph *graph, mica_tensor logits, mica_tensor labels,
                                              mica_tensor targets, mica_tensor weight, mica_tensor lse,
                                              mica_tensor dloss, const mica_cross_entropy_params *params)
{
    static const char call[] = "cross_entropy_backward";
    if (!mica__graph_begins(graph, call))
        return 0;
    const mica_tensor ids = labels != 0 ? mica__build_ids(graph, call, "labels", labels) : 0;
    return graph->status != MICA_OK
               ? 0
               : mica__build_op(graph, MICA_OP_CROSS_ENTROPY_BACKWARD, params,
                                (const mica_tensor[]){logits, ids, targets, weight, lse, dloss}, 6);
}

mica_tensor mica_graph_mean_square(mica_graph *graph, mica_tensor x, mica_tensor target)
{
    if (!mica__graph_begins(graph, "mean_square"))
        return 0;
    const mica_tensor off = mica_graph_sub(graph, x, target);
    const mica_tensor square = off == 0 ? 0 : mica_graph_square(graph, off);
    return mica__build_end(graph, "mean_square",
                           square == 0 ? 0 : mica_graph_reduce(graph, MICA_REDUCE_MEAN, square, NULL, 0, 0));
}

mica_tensor mica_graph_logistic_loss(mica_graph *graph, mica_tensor logits, mica_tensor target)
{
    mica__type type, other;
    mica__writer w;
    if (!mica__graph_begins(graph, "logistic_loss") ||
        !mica__build_takes(graph, "logistic_loss", "logits", logits, &type) ||
        !mica__build_takes(graph, "logistic_loss", "target", target, &other))
        return 0;
    if (!mica__build_is_float(type.dtype) || mica__build_real(other.dtype) != mica__build_real(type.dtype))
        return mica__build_refuse(graph, "logistic_loss", "logits", &type,
                                  "is no float, or target another one");
    mica__write_begin(&w, graph, "logistic_loss");
    const st_value x = mica__write_input(&w, "logits", logits), t = mica__write_input(&w, "target", target);
    const st_value tail = st_log1p(st_exp(st_neg(st_abs(x))));
    mica__write_output(&w, st_add(st_sub(st_greatest(x, 0), st_mul(x, t)), tail), type.dtype);
    return mica__write_end(&w, NULL);
}

/* ---- optimisers ---- */

/* One element, as a scalar that repeats. */
static mica_tensor single(mica_graph *graph, const char *call, const char *name, mica_tensor x)
{
    mica__type type;
    if (x == 0 || !mica__build_takes(graph, call, name, x, &type))
        return 0;
    if (mica__type_elements(&type) != 1)
        return mica__build_refuse(graph, call, name, &type, "is not one element");
    return type.ndim == 0 ? x : mica_graph_reshape(graph, x, 0, NULL);
}

/* Of the shape of the parameters. */
static bool alike(mica_graph *graph, const char *call, const char *name, mica_tensor x,
                  const mica__type *like)
{
    mica__type type;
    if (!mica__build_takes_rank(graph, call, name, x, like->ndim, like->ndim, &type))
        return false;
    for (uint32_t d = 0; d < type.ndim; d++)
        if (!mica__sizes_agree(type.shape[d], like->shape[d]))
            return mica__build_refuse(graph, call, name, &type, "has not the shape of parameters") != 0;
    return true;
}

static st_value optional(mica__writer *w, const char *name, mica_tensor x)
{
    return x != 0 ? mica__write_input(w, name, x) : st_none;
}

static mica_dtype dtype_of(const mica_graph *graph, mica_tensor x)
{
    return mica__type_of(graph, x)->dtype;
}

mica_tensor mica_graph_sgd_update(mica_graph *graph, const mica_graph_sgd *operands,
                                  const mica_sgd_params *params, mica_tensor *out_momentum)
{
    static const char call[] = "sgd_update";
    const mica_sgd_params none = {0}, *p = params != NULL ? params : &none;
    mica_tensor out[2] = {0, 0};
    mica__type type;
    mica__writer w;
    if (out_momentum != NULL)
        *out_momentum = 0;
    if (!mica__graph_begins(graph, call))
        return 0;
    const mica_status status = mica__sgd_check(p);
    if (status != MICA_OK || operands == NULL)
        return status != MICA_OK
                   ? mica__build_failed(graph, call, status)
                   : mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "operands is NULL");
    const mica_graph_sgd *o = operands;
    if ((p->momentum != 0) != (o->momentum != 0))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                "params.momentum is %g, but momentum is %s", p->momentum,
                                o->momentum != 0 ? "there" : "no tensor");
    if (!mica__build_takes(graph, call, "parameters", o->parameters, &type) ||
        !alike(graph, call, "gradients", o->gradients, &type) ||
        (o->momentum != 0 && !alike(graph, call, "momentum", o->momentum, &type)))
        return 0;
    const mica_tensor rate = single(graph, call, "learning_rate", o->learning_rate),
                      scale = single(graph, call, "gradient_scale", o->gradient_scale),
                      step = p->momentum != 0 ? single(graph, call, "step", o->step) : 0;
    mica__write_begin(&w, graph, call);
    mica__sgd_values v = {.parameters = mica__write_input(&w, "parameters", o->parameters),
                          .gradients = mica__write_input(&w, "gradients", o->gradients),
                          .rate = mica__write_input(&w, "learning_rate", rate),
                          .scale = st_none,
                          .momentum = st_none,
                          .step = st_none};
    v.scale = optional(&w, "gradient_scale", scale);
    v.momentum = optional(&w, "momentum", o->momentum);
    v.step = optional(&w, "step", step);
    if (graph->status != MICA_OK)
        return 0;
    mica__sgd_steps(p, &v);
    mica__write_output(&w, v.parameters, type.dtype);
    if (o->momentum != 0)
        mica__write_output(&w, v.momentum, dtype_of(graph, o->momentum));
    (void)mica__write_end(&w, out);
    if (out_momentum != NULL)
        *out_momentum = out[1];
    return out[0];
}

/* The tensors of an adam, all of one shape. */
static bool takes_adam(mica_graph *graph, const char *call, const mica_graph_adam *o, mica__type *type)
{
    return mica__build_takes(graph, call, "parameters", o->parameters, type) &&
           alike(graph, call, "gradients", o->gradients, type) && alike(graph, call, "m", o->m, type) &&
           alike(graph, call, "v", o->v, type) &&
           (o->greatest_v == 0 || alike(graph, call, "greatest_v", o->greatest_v, type));
}

static mica_tensor write_adam(mica_graph *graph, const char *call, const mica_graph_adam *o,
                              const mica_adam_params *params, mica_graph_adam_outputs *made)
{
    mica_tensor out[4] = {0};
    mica__writer w;
    const mica_tensor rate = single(graph, call, "learning_rate", o->learning_rate),
                      step = single(graph, call, "step", o->step),
                      scale = single(graph, call, "gradient_scale", o->gradient_scale);
    mica__write_begin(&w, graph, call);
    mica__adam_values v;
    v.parameters = mica__write_input(&w, "parameters", o->parameters);
    v.gradients = mica__write_input(&w, "gradients", o->gradients);
    v.m = mica__write_input(&w, "m", o->m);
    v.v = mica__write_input(&w, "v", o->v);
    v.rate = mica__write_input(&w, "learning_rate", rate);
    v.step = mica__write_input(&w, "step", step);
    v.greatest_v = optional(&w, "greatest_v", o->greatest_v);
    v.scale = optional(&w, "gradient_scale", scale);
    if (graph->status != MICA_OK)
        return 0;
    mica__adam_steps(params, &v);
    mica__write_output(&w, v.parameters, dtype_of(graph, o->parameters));
    mica__write_output(&w, v.m, dtype_of(graph, o->m));
    mica__write_output(&w, v.v, dtype_of(graph, o->v));
    if (o->greatest_v != 0)
        mica__write_output(&w, v.greatest_v, dtype_of(graph, o->greatest_v));
    (void)mica__write_end(&w, out);
    *made = (mica_graph_adam_outputs){out[0], out[1], out[2], out[3]};
    return out[0];
}

mica_tensor mica_graph_adam_update(mica_graph *graph, const mica_graph_adam *operands,
                                   const mica_adam_params *params, mica_graph_adam_outputs *out)
{
    static const char call[] = "adam_update";
    mica_graph_adam_outputs unused = {0};
    mica__type type;
    out = out != NULL ? out : &unused;
    *out = (mica_graph_adam_outputs){0};
    if (!mica__graph_begins(graph, call))
        return 0;
    if (operands == NULL || params == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "%s is NULL",
                                operands == NULL ? "operands" : "params");
    const mica_status status = mica__adam_check(params);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status);
    return takes_adam(graph, call, operands, &type) ? write_adam(graph, call, operands, params, out) : 0;
}

mica_tensor mica_graph_gradient_norm(mica_graph *graph, const mica_tensor *gradients, uint32_t count)
{
    static const char call[] = "gradient_norm";
    const mica_reduce_params squares = {.kind = MICA_REDUCE_SUM_SQUARES};
    mica_tensor sum = 0;
    if (!mica__graph_begins(graph, call))
        return 0;
    if (gradients == NULL || count == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "there are no gradients");
    for (uint32_t i = 0; i < count; i++) {
        mica__type type;
        if (!mica__build_takes(graph, call, "a gradient", gradients[i], &type))
            return 0;
        const mica_operand_desc asked = {.dtype =
                                             type.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32,
                                         .ndim = MICA_RANK_UNKNOWN};
        const mica_tensor own =
            mica_graph_op(graph, MICA_OP_REDUCE, &squares, &gradients[i], 1, 1, &asked, NULL, 0);
        sum = sum == 0 || own == 0 ? own : mica_graph_add(graph, sum, own);
        if (sum == 0)
            return mica__build_end(graph, call, 0);
    }
    return mica_graph_sqrt(graph, sum);
}

mica_tensor mica_graph_gradient_scale(mica_graph *graph, mica_tensor norm, double max_norm)
{
    static const char call[] = "gradient_scale";
    mica__type type;
    mica__writer w;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "norm", norm, &type))
        return 0;
    if (!(max_norm > 0) || max_norm > 1.7976931348623157e308 || !mica__build_is_float(type.dtype))
        return mica__build_refuse(graph, call, "norm", &type,
                                  "is no float, or max_norm is %g, not above 0 and finite", max_norm);
    mica__write_begin(&w, graph, call);
    const st_value n = mica__write_input(&w, "norm", norm);
    mica__write_output(&w, mica__clip_scale(n, max_norm), type.dtype);
    return mica__write_end(&w, NULL);
}
