/*
 * optimizer.c - optimisers as nodes: a step of SGD, Adam, AdamW or Lion for each parameter, the learning rate as a function of the step, clipping, and a scale of
 * the loss. Knows no executable: which output a state becomes is a matter of names.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/gradient/rules.h"
#include "mica/train.h"

mica_optimizer mica_optimizer_of(mica_optimizer_kind kind)
{
    mica_optimizer all = {
        .size = sizeof all, .kind = kind, .learning_rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    if (kind == MICA_OPTIMIZER_ADAMW)
        all.weight_decay = 1e-2;
    if (kind == MICA_OPTIMIZER_LION) {
        all.learning_rate = 1e-4;
        all.beta2 = 0.99;
    }
    return all;
}

/* One step that is being written. */
typedef struct step {
    mica_graph *graph;
    const mica_optimizer *by;
    mica_tensor t, first; /* the number of this step, f32 [1]; whether it is the first, bool [1] */
    mica_tensor rate;     /* f32 [1] */
    mica_tensor scale;    /* by which gradients are multiplied; 0: they are not */
    mica_tensor goes;     /* whether the step counts, bool [1]; 0: it does */
} step;

static bool refuse(mica_graph *graph, const char *what, double found)
{
    return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize", "optimizer.%s is %g", what,
                            found) != 0;
}

static bool takes_optimizer(mica_graph *graph, const mica_optimizer *o)
{
    const struct {
        const char *name;
        double value, most;
    } rows[] = {{"learning_rate", o->learning_rate, HUGE_VAL},
                {"last", o->last, HUGE_VAL},
                {"beta1", o->beta1, 1},
                {"beta2", o->beta2, 1},
                {"eps", o->eps, HUGE_VAL},
                {"weight_decay", o->weight_decay, HUGE_VAL},
                {"momentum", o->momentum, HUGE_VAL},
                {"dampening", o->dampening, HUGE_VAL},
                {"clip_norm", o->clip_norm, HUGE_VAL},
                {"loss_scale", o->loss_scale, HUGE_VAL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!(rows[i].value >= 0 && rows[i].value < rows[i].most))
            return refuse(graph, rows[i].name, rows[i].value);
    if (o->kind < 0 || o->kind > MICA_OPTIMIZER_LION)
        return refuse(graph, "kind", (double)o->kind);
    if (o->schedule < 0 || o->schedule > MICA_RATE_COSINE)
        return refuse(graph, "schedule", (double)o->schedule);
    if (o->schedule != MICA_RATE_CONSTANT && o->steps <= o->warmup)
        return refuse(graph, "steps", (double)o->steps);
    if (o->nesterov != 0 && (o->momentum == 0 || o->dampening != 0))
        return refuse(graph, "nesterov", (double)o->nesterov);
    if (o->scale_every != 0 && o->loss_scale == 0)
        return refuse(graph, "scale_every", (double)o->scale_every);
    return true;
}

/* ---- states ---- */

static mica_tensor new_state(mica_graph *graph, const char *name, const char *more, mica_dtype dtype,
                             uint32_t ndim, const uint64_t *shape)
{
    char text[MICA_GRAPH_NAME_BYTES];
    const int length = snprintf(text, sizeof text, "%s%s", name, more);
    if (length < 0 || (size_t)length >= sizeof text)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize",
                                "the name '%.40s..' is too long", name);
    return mica_graph_parameter(graph, text, dtype, ndim, shape);
}

static const char *name_of(const mica_graph *graph, mica_tensor leaf)
{
    return graph->text + ((const mica__leaf_data *)mica__node_of(graph, leaf)->data)->name;
}

/* What the state becomes: as it was, in a step that does not count. */
static void becomes(const step *s, mica_tensor state, mica_tensor next)
{
    char text[MICA_GRAPH_NAME_BYTES];
    if (s->graph->status != MICA_OK)
        return;
    const int length = snprintf(text, sizeof text, "next.%s", name_of(s->graph, state));
    if (length < 0 || (size_t)length >= sizeof text) {
        (void)mica__graph_fail(s->graph, MICA_ERR_INVALID_ARGUMENT, "optimize",
                               "the name '%.40s..' is too long", name_of(s->graph, state));
        return;
    }
    next = mica_graph_cast(s->graph, next, mica__type_of(s->graph, state)->dtype);
    if (s->goes != 0)
        next = mica_graph_select(s->graph, s->goes, next, state);
    mica__type type = mica__type_copy(s->graph, state);
    (void)mica_graph_output(s->graph, text, mica__reshape_to(s->graph, next, &type));
}

/* ---- the learning rate ---- */

/* The part of the learning rate that is left, of how far the steps behind the warm-up are, 0 to 1. */
static mica_tensor left_of(const step *s, mica_tensor way)
{
    const double last = s->by->last;
    if (s->by->schedule == MICA_RATE_LINEAR)
        return mica__plus(s->graph, mica__times(s->graph, way, last - 1), 1);
    const mica_tensor wave = mica_graph_cos(s->graph, mica__times(s->graph, way, 3.14159265358979324));
    return mica__plus(s->graph, mica__times(s->graph, wave, (1 - last) / 2), (1 + last) / 2);
}

static mica_tensor rate_of(const step *s)
{
    mica_graph *graph = s->graph;
    const mica_optimizer *o = s->by;
    const mica_tensor one = mica_graph_number(graph, MICA_DTYPE_F32, 1);
    mica_tensor rate =
        mica__repeat_to(graph, mica_graph_number(graph, MICA_DTYPE_F32, o->learning_rate), s->t);
    if (o->schedule != MICA_RATE_CONSTANT) {
        const double span = 1.0 / (double)(o->steps - o->warmup);
        mica_tensor way = mica__times(graph, mica__plus(graph, s->t, -(double)o->warmup), span);
        way = mica_graph_min(graph, mica_graph_max(graph, way, mica_graph_number(graph, MICA_DTYPE_F32, 0)),
                             one);
        rate = mica_graph_mul(graph, rate, left_of(s, way));
    }
    if (o->warmup != 0)
        rate = mica_graph_mul(graph, rate,
                              mica_graph_min(graph, mica__times(graph, s->t, 1.0 / (double)o->warmup), one));
    return rate;
}

/* ---- gradients as they are taken ---- */

/* The square root of the sum of all squares; gradients are multiplied by s->scale first. */
static mica_tensor norm_of(const step *s, const mica_tensor *gradients, uint32_t count)
{
    mica_tensor sum = 0;
    for (uint32_t i = 0; i < count && s->graph->status == MICA_OK; i++) {
        mica_tensor g = mica__wide(s->graph, gradients[i]);
        if (s->scale != 0)
            g = mica_graph_mul(s->graph, g,
                               mica_graph_cast(s->graph, s->scale, mica__type_of(s->graph, g)->dtype));
        const mica_tensor squares = mica_graph_cast(
            s->graph, mica_graph_reduce(s->graph, MICA_REDUCE_SUM_SQUARES, g, NULL, 0, 0), MICA_DTYPE_F32);
        sum = sum == 0 ? squares : mica_graph_add(s->graph, sum, squares);
    }
    return mica_graph_reshape(s->graph, mica_graph_sqrt(s->graph, sum), 1, (const uint64_t[]){1});
}

/* The scale of the loss, which moves: halved where a gradient is not finite, doubled after many that were. `scale` is what the state `kept` stands for. */
typedef struct moving {
    mica_tensor kept, scale, good;
} moving;

/* A state begins as zeros, which stand for the first scale. */
static moving moving_scale(const step *s)
{
    static const uint64_t one = 1;
    mica_graph *graph = s->graph;
    moving m = {.kept = new_state(graph, "train.scale", "", MICA_DTYPE_F32, 1, &one),
                .good = new_state(graph, "train.good", "", MICA_DTYPE_I32, 1, &one)};
    const mica_tensor fresh = mica_graph_equal(graph, m.kept, mica_graph_number(graph, MICA_DTYPE_F32, 0));
    m.scale =
        mica_graph_select(graph, fresh, mica_graph_number(graph, MICA_DTYPE_F32, s->by->loss_scale), m.kept);
    return m;
}

/* Adds how it moves; from here on states change only where all gradients are finite. */
static void move_scale(step *s, const moving *m, mica_tensor norm)
{
    mica_graph *graph = s->graph;
    const mica_tensor finite = mica_graph_isfinite(graph, norm),
                      zero = mica_graph_number(graph, MICA_DTYPE_I32, 0);
    const mica_tensor more = mica__plus(graph, m->good, 1);
    const mica_tensor enough =
        mica_graph_greater_equal(graph, more, mica_graph_number(graph, MICA_DTYPE_I32, s->by->scale_every));
    const mica_tensor grown = mica_graph_select(graph, enough, mica__times(graph, m->scale, 2), m->scale);
    const mica_tensor counts = mica_graph_bit_and(graph, finite, mica_graph_bit_not(graph, enough));
    becomes(s, m->kept, mica_graph_select(graph, finite, grown, mica__times(graph, m->scale, 0.5)));
    becomes(s, m->good, mica_graph_select(graph, counts, more, zero));
    s->goes = finite;
}

/* The seed of the loss and the factor that takes it off again. */
static mica_tensor scaled_seed(step *s, mica_tensor loss, moving *m)
{
    mica_graph *graph = s->graph;
    const mica__type type = mica__type_copy(graph, loss);
    if (s->by->loss_scale == 0)
        return 0;
    if (s->by->scale_every == 0) {
        s->scale = mica_graph_number(graph, MICA_DTYPE_F32, 1 / s->by->loss_scale);
        return mica__repeat_to(graph, mica_graph_number(graph, type.dtype, s->by->loss_scale), loss);
    }
    *m = moving_scale(s);
    s->scale = mica_graph_reciprocal(graph, m->scale);
    return mica__reshape_to(graph, mica_graph_cast(graph, m->scale, type.dtype), &type);
}

/* Clipping, and a scale that moves. */
static void look_at_norm(step *s, const moving *m, const mica_tensor *gradients, uint32_t count)
{
    mica_graph *graph = s->graph;
    const double most = s->by->clip_norm;
    if (most == 0 && s->by->scale_every == 0)
        return;
    const mica_tensor norm = norm_of(s, gradients, count);
    (void)mica_graph_output(graph, "train.norm", norm);
    if (s->by->scale_every != 0)
        move_scale(s, m, norm);
    if (most == 0)
        return;
    const mica_tensor ratio =
        mica_graph_div(graph, mica_graph_number(graph, MICA_DTYPE_F32, most), mica__plus(graph, norm, 1e-6));
    const mica_tensor clip = mica_graph_min(graph, ratio, mica_graph_number(graph, MICA_DTYPE_F32, 1));
    s->scale = s->scale == 0 ? clip : mica_graph_mul(graph, s->scale, clip);
}

/* ---- one parameter ---- */

/* Numbers of the type that a parameter is trained in. */
static mica_tensor as_type(const step *s, mica_tensor x, mica_dtype dtype)
{
    return mica_graph_cast(s->graph, x, dtype);
}

/* a old + (1 - a) new */
static mica_tensor blended(const step *s, mica_tensor old, mica_tensor fresh, double a)
{
    return mica_graph_add(s->graph, mica__times(s->graph, old, a), mica__times(s->graph, fresh, 1 - a));
}

/* 1 - beta^t, without the cancellation of a small t */
static mica_tensor correction(const step *s, double beta, mica_dtype dtype)
{
    const mica_tensor t = as_type(s, s->t, dtype);
    if (beta == 0)
        return mica_graph_number(s->graph, dtype, 1);
    return mica_graph_neg(s->graph, mica_graph_expm1(s->graph, mica__times(s->graph, t, log(beta))));
}

static mica_tensor moment(const step *s, mica_tensor w, const char *more, mica_dtype dtype)
{
    const mica__type type = mica__type_copy(s->graph, w);
    char name[MICA_GRAPH_NAME_BYTES]; /* the graph's text moves */
    snprintf(name, sizeof name, "%s", name_of(s->graph, w));
    return new_state(s->graph, name, more, dtype, type.ndim, type.shape);
}

static mica_tensor by_sgd(const step *s, mica_tensor w, mica_tensor value, mica_tensor g, mica_tensor rate)
{
    mica_graph *graph = s->graph;
    const mica_optimizer *o = s->by;
    const mica_dtype dtype = mica__type_of(graph, g)->dtype;
    if (o->weight_decay != 0)
        g = mica_graph_add(graph, g, mica__times(graph, value, o->weight_decay));
    if (o->momentum != 0) {
        const mica_tensor b = moment(s, w, ".m", dtype);
        const mica_tensor later = mica_graph_add(graph, mica__times(graph, b, o->momentum),
                                                 mica__times(graph, g, 1 - o->dampening));
        const mica_tensor next = mica_graph_select(graph, s->first, g, later);
        becomes(s, b, next);
        g = o->nesterov != 0 ? mica_graph_add(graph, g, mica__times(graph, next, o->momentum)) : next;
    }
    return mica_graph_sub(graph, value, mica_graph_mul(graph, g, rate));
}

static mica_tensor by_adam(const step *s, mica_tensor w, mica_tensor value, mica_tensor g, mica_tensor rate)
{
    mica_graph *graph = s->graph;
    const mica_optimizer *o = s->by;
    const mica_dtype dtype = mica__type_of(graph, g)->dtype;
    if (o->weight_decay != 0 && o->kind == MICA_OPTIMIZER_ADAM)
        g = mica_graph_add(graph, g, mica__times(graph, value, o->weight_decay));
    if (o->weight_decay != 0 && o->kind == MICA_OPTIMIZER_ADAMW)
        value =
            mica_graph_mul(graph, value, mica__plus(graph, mica__times(graph, rate, -o->weight_decay), 1));
    const mica_tensor m = moment(s, w, ".m", dtype), v = moment(s, w, ".v", dtype);
    const mica_tensor next_m = blended(s, m, g, o->beta1);
    const mica_tensor next_v = blended(s, v, mica_graph_square(graph, g), o->beta2);
    becomes(s, m, next_m);
    becomes(s, v, next_v);
    const mica_tensor root =
        mica_graph_sqrt(graph, mica_graph_div(graph, next_v, correction(s, o->beta2, dtype)));
    const mica_tensor size = mica_graph_div(graph, rate, correction(s, o->beta1, dtype));
    const mica_tensor move =
        mica_graph_div(graph, mica_graph_mul(graph, next_m, size), mica__plus(graph, root, o->eps));
    return mica_graph_sub(graph, value, move);
}

static mica_tensor by_lion(const step *s, mica_tensor w, mica_tensor value, mica_tensor g, mica_tensor rate)
{
    mica_graph *graph = s->graph;
    const mica_optimizer *o = s->by;
    const mica_tensor m = moment(s, w, ".m", mica__type_of(graph, g)->dtype);
    mica_tensor move = mica_graph_sign(graph, blended(s, m, g, o->beta1));
    if (o->weight_decay != 0)
        move = mica_graph_add(graph, move, mica__times(graph, value, o->weight_decay));
    becomes(s, m, blended(s, m, g, o->beta2));
    return mica_graph_sub(graph, value, mica_graph_mul(graph, move, rate));
}

static void optimize_one(const step *s, mica_tensor w, mica_tensor gradient)
{
    typedef mica_tensor rule(const step *s, mica_tensor w, mica_tensor value, mica_tensor g,
                             mica_tensor rate);
    static rule *const rules[] = {by_sgd, by_adam, by_adam, by_lion};
    mica_graph *graph = s->graph;
    mica_tensor g = mica__wide(graph, gradient);
    const mica_dtype dtype = mica__type_of(graph, g)->dtype;
    if (s->scale != 0)
        g = mica_graph_mul(graph, g, as_type(s, s->scale, dtype));
    const mica_tensor value = mica__wide(graph, w);
    becomes(s, w, rules[s->by->kind](s, w, value, g, as_type(s, s->rate, dtype)));
}

/* ---- a step ---- */

static bool takes_loss(mica_graph *graph, mica_tensor loss, const mica_tensor *parameters, uint32_t count)
{
    if (loss == 0 || loss >= graph->tensor_count || !mica__is_real(mica__type_of(graph, loss)->dtype) ||
        mica__type_elements(mica__type_of(graph, loss)) != 1)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize",
                                "loss is not one float of the graph") != 0;
    if (parameters == NULL || count == 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize", "there are no parameters") != 0;
    for (uint32_t i = 0; i < count; i++) {
        const mica_tensor w = parameters[i];
        if (w == 0 || w >= graph->tensor_count || mica__node_of(graph, w)->kind != MICA_NODE_PARAMETER)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize",
                                    "parameters[%u] is no parameter of the graph", i) != 0;
        if (!mica__is_real(mica__type_of(graph, w)->dtype))
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize",
                                    "parameters[%u] ('%s') is %s", i, name_of(graph, w),
                                    mica_dtype_name(mica__type_of(graph, w)->dtype)) != 0;
    }
    return true;
}

/* Given gradients have the shapes of the parameters. */
static bool takes_gradients(mica_graph *graph, const mica_tensor *parameters, const mica_tensor *gradients,
                            uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const mica__type *w = mica__type_of(graph, parameters[i]), *g;
        if (gradients[i] == 0 || gradients[i] >= graph->tensor_count)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize",
                                    "gradients[%u] is not of the graph", i) != 0;
        g = mica__type_of(graph, gradients[i]);
        if (!mica__is_real(g->dtype) || g->ndim != w->ndim ||
            memcmp(g->shape, w->shape, w->ndim * sizeof w->shape[0]) != 0)
            return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize",
                                    "gradients[%u] has not the shape of its parameter", i) != 0;
    }
    return true;
}

/* What does not depend on the parameter: the number of the step, the rate, the scale of the gradients. */
static bool begin_step(step *s, mica_tensor loss, const mica_tensor *parameters, const mica_tensor *given,
                       uint32_t count, mica_tensor *gradients)
{
    static const uint64_t one = 1;
    mica_graph *graph = s->graph;
    const mica_tensor number = new_state(graph, "train.step", "", MICA_DTYPE_I32, 1, &one);
    const mica_tensor next = mica__plus(graph, number, 1);
    moving m = {.kept = 0};
    s->t = mica_graph_cast(graph, next, MICA_DTYPE_F32);
    s->first = mica_graph_equal(graph, next, mica_graph_number(graph, MICA_DTYPE_I32, 1));
    s->rate = rate_of(s);
    const mica_tensor seed = scaled_seed(s, loss, &m);
    if (given != NULL)
        memcpy(gradients, given, count * sizeof *gradients);
    else if (!mica__gradients(graph, &loss, &seed, 1, parameters, count, gradients))
        return false;
    look_at_norm(s, &m, gradients, count);
    becomes(s, number, next);
    (void)mica_graph_output(graph, "train.loss", loss);
    (void)mica_graph_output(graph, "train.rate", s->rate);
    return graph->status == MICA_OK;
}

mica_status mica_graph_optimize(mica_graph *graph, mica_tensor loss, const mica_tensor *parameters,
                                const mica_tensor *gradients, uint32_t count, const mica_optimizer *optimizer)
{
    if (!mica__graph_begins(graph, "optimize"))
        return graph == NULL ? MICA_ERR_INVALID_ARGUMENT : mica_graph_status(graph);
    if (optimizer == NULL)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize", "optimizer is NULL");
    else if (optimizer->size != 0 && optimizer->size != sizeof *optimizer)
        (void)mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "optimize",
                               "optimizer.size is %llu, not %zu", (unsigned long long)optimizer->size,
                               sizeof *optimizer);
    if (graph->status != MICA_OK)
        return mica_graph_status(graph);
    if (!takes_optimizer(graph, optimizer) || !takes_loss(graph, loss, parameters, count) ||
        (gradients != NULL && !takes_gradients(graph, parameters, gradients, count)))
        return mica_graph_status(graph);
    step s = {.graph = graph, .by = optimizer};
    mica_tensor *made = mica__calloc(count, sizeof *made);
    if (made == NULL)
        (void)mica__graph_fail(graph, MICA_ERR_OUT_OF_MEMORY, "optimize", "no memory for %u gradients",
                               count);
    else if (begin_step(&s, loss, parameters, gradients, count, made))
        for (uint32_t i = 0; i < count && graph->status == MICA_OK; i++)
            optimize_one(&s, parameters[i], made[i]);
    mica__free(made);
    return mica_graph_status(graph);
}
