/* Optimisers of graphs against their formulas in double, and the loop: what was killed goes on to the last bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mica/host.h"
#include "mica/train.h"
#include "support/folder.h"
#include "support/random.h"
#include "support/status.h"
#include "support/only_cpu.h"

enum { N = 5 };

/* loss = sum (w - x)^2 c / 2: the gradient is c (w - x). */
static mica_graph *bowl(mica_dtype dtype, mica_tensor *out_loss, mica_tensor *out_w)
{
    mica_graph *g;
    static const uint64_t n = N;
    must(mica_graph_create(&g));
    const mica_tensor x = mica_graph_input(g, "x", dtype, 1, &n), c = mica_graph_input(g, "c", dtype, 1, &n);
    *out_w = mica_graph_parameter(g, "w", dtype, 1, &n);
    const mica_tensor far = mica_graph_square(g, mica_graph_sub(g, *out_w, x));
    const mica_tensor all = mica_graph_mul(g, far, mica_graph_mul(g, c, mica_graph_number(g, dtype, 0.5)));
    *out_loss = mica_graph_reduce(g, MICA_REDUCE_SUM, all, NULL, 0, 0);
    must(mica_graph_status(g));
    return g;
}

typedef struct data {
    double x[N], c[N], loss[64], rate[64], norm[64];
    uint64_t seen, stop;
} data;

/* Depends on the step alone. */
static void draw(uint64_t step, double *x, double *c)
{
    test_random random = test_random_from(step * 7 + 1);
    for (int i = 0; i < N; i++) {
        x[i] = test_random_uniform(&random, -1, 1);
        c[i] = test_random_uniform(&random, 0.5, 2);
    }
}

static mica_status next_batch(void *context, uint64_t step, mica_array *inputs, uint32_t count)
{
    data *d = context;
    assert_int_equal(count, 2);
    draw(step, d->x, d->c);
    for (uint32_t i = 0; i < count; i++) {
        inputs[i].dtype = MICA_DTYPE_F64;
        inputs[i].ndim = 1;
        inputs[i].shape[0] = N;
        inputs[i].data = strcmp(inputs[i].name, "x") == 0 ? d->x : d->c;
        inputs[i].bytes = sizeof d->x;
    }
    return MICA_OK;
}

static int report(void *context, const mica_train_progress *progress)
{
    data *d = context;
    d->loss[progress->step] = progress->loss;
    d->rate[progress->step] = progress->rate;
    d->norm[progress->step] = progress->norm;
    d->seen = progress->step;
    return d->stop != 0 && progress->step == d->stop;
}

static void begin_at(mica_trainer *trainer)
{
    double w[N] = {0.3, -0.7, 1.1, 0.2, -0.4};
    must(mica_executable_set(
        mica_trainer_executable(trainer),
        &(mica_array){
            .name = "w", .dtype = MICA_DTYPE_F64, .ndim = 1, .shape = {N}, .data = w, .bytes = sizeof w}));
}

static void read_w(mica_trainer *trainer, const char *name, double *w)
{
    mica_buffer *buffer;
    must(mica_executable_get(mica_trainer_executable(trainer), name, &buffer));
    must(mica_buffer_read(buffer, 0, w, N * sizeof *w));
    mica_buffer_release(buffer);
}

static mica_trainer *trainer_of(const mica_optimizer *o, data *d, const char *path, uint64_t every)
{
    mica_tensor loss, w;
    mica_trainer *trainer;
    mica_graph *g = bowl(MICA_DTYPE_F64, &loss, &w);
    must(mica_graph_optimize(g, loss, &w, NULL, 1, o));
    const mica_trainer_desc desc = {
        .batch = next_batch, .report = report, .context = d, .checkpoint = path, .every = every};
    must(mica_trainer_create(g, cpu, &desc, &trainer));
    mica_graph_release(g);
    begin_at(trainer);
    return trainer;
}

/* The same in double, one after the other. */
static void by_hand(const mica_optimizer *o, uint64_t steps, double *w, double *norms, double *rates)
{
    double m[N] = {0}, v[N] = {0}, x[N], c[N];
    const double begin[N] = {0.3, -0.7, 1.1, 0.2, -0.4};
    memcpy(w, begin, sizeof begin);
    for (uint64_t t = 1; t <= steps; t++) {
        double g[N], norm = 0, rate = o->learning_rate;
        draw(t, x, c);
        for (int i = 0; i < N; i++) {
            g[i] = c[i] * (w[i] - x[i]);
            norm += g[i] * g[i];
        }
        norm = sqrt(norm);
        if (o->warmup != 0 && t < o->warmup)
            rate *= (double)t / (double)o->warmup;
        double way = o->schedule == MICA_RATE_CONSTANT
                         ? 0
                         : ((double)t - (double)o->warmup) / (double)(o->steps - o->warmup);
        way = fmin(fmax(way, 0), 1);
        if (o->schedule == MICA_RATE_LINEAR)
            rate *= 1 + way * (o->last - 1);
        if (o->schedule == MICA_RATE_COSINE)
            rate *= o->last + (1 - o->last) * (1 + cos(way * 3.14159265358979324)) / 2;
        norms[t] = norm;
        rates[t] = rate;
        for (int i = 0; i < N; i++) {
            double grad = g[i] * (o->clip_norm != 0 ? fmin(1, o->clip_norm / (norm + 1e-6)) : 1);
            if (o->kind == MICA_OPTIMIZER_SGD || o->kind == MICA_OPTIMIZER_ADAM)
                grad += o->weight_decay * w[i];
            if (o->kind == MICA_OPTIMIZER_SGD) {
                m[i] = t == 1 ? grad : o->momentum * m[i] + (1 - o->dampening) * grad;
                w[i] -= rate * (o->momentum == 0   ? grad
                                : o->nesterov != 0 ? grad + o->momentum * m[i]
                                                   : m[i]);
            } else if (o->kind == MICA_OPTIMIZER_LION) {
                const double u = o->beta1 * m[i] + (1 - o->beta1) * grad;
                w[i] -= rate * ((u > 0) - (u < 0) + o->weight_decay * w[i]);
                m[i] = o->beta2 * m[i] + (1 - o->beta2) * grad;
            } else {
                if (o->kind == MICA_OPTIMIZER_ADAMW)
                    w[i] *= 1 - rate * o->weight_decay;
                m[i] = o->beta1 * m[i] + (1 - o->beta1) * grad;
                v[i] = o->beta2 * v[i] + (1 - o->beta2) * grad * grad;
                w[i] -= rate / (1 - pow(o->beta1, (double)t)) * m[i] /
                        (sqrt(v[i] / (1 - pow(o->beta2, (double)t))) + o->eps);
            }
        }
    }
}

static void optimisers(void **state)
{
    (void)state;
    mica_optimizer rows[9];
    for (int i = 0; i < 9; i++)
        rows[i] = mica_optimizer_of(i < 4   ? MICA_OPTIMIZER_SGD
                                    : i < 6 ? MICA_OPTIMIZER_ADAM
                                    : i < 7 ? MICA_OPTIMIZER_ADAMW
                                            : MICA_OPTIMIZER_LION);
    rows[1].momentum = rows[2].momentum = rows[3].momentum = 0.9;
    rows[1].dampening = 0.25;
    rows[2].nesterov = 1;
    rows[3].weight_decay = rows[5].weight_decay = rows[8].weight_decay = 0.1;
    rows[3].clip_norm = rows[6].clip_norm = rows[8].clip_norm = 0.8;
    rows[4].schedule = MICA_RATE_LINEAR;
    rows[6].schedule = MICA_RATE_COSINE;
    rows[4].warmup = rows[5].warmup = rows[6].warmup = 4;
    rows[4].steps = rows[6].steps = 15;
    rows[6].last = 0.1;
    rows[5].loss_scale = 64;
    for (int i = 0; i < 9; i++) {
        data d = {.seen = 0};
        double w[N], wanted[N], norms[32], rates[32];
        rows[i].learning_rate = 0.05;
        mica_trainer *trainer = trainer_of(&rows[i], &d, NULL, 0);
        must(mica_trainer_run(trainer, 20));
        read_w(trainer, "w", w);
        by_hand(&rows[i], 20, wanted, norms, rates);
        for (int e = 0; e < N; e++) /* the rate is f32 */
            if (!(fabs(w[e] - wanted[e]) < 1e-6)) {
                print_error("optimiser %d, element %d: %.9g, not %.9g\n", i, e, w[e], wanted[e]);
                fail();
            }
        for (int t = 1; t <= 20; t++) {
            assert_true(fabs(d.rate[t] - rates[t]) < 1e-7);
            assert_true(rows[i].clip_norm == 0 ? d.norm[t] == 0 : fabs(d.norm[t] - norms[t]) < 1e-5);
        }
        mica_trainer_release(trainer);
    }
}

/* A scale that moves: too great a one is halved, and the steps that saw infinities change nothing. */
static void moving_scales(void **state)
{
    (void)state;
    mica_optimizer o = mica_optimizer_of(MICA_OPTIMIZER_SGD);
    mica_graph *g;
    mica_executable *run;
    static const uint64_t n = N;
    float w[N] = {1, 2, 3, 4, 5}, x[N] = {0, 0, 0, 0, 0}, scale = 0;
    must(mica_graph_create(&g));
    const mica_tensor in = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, &n),
                      p = mica_graph_parameter(g, "w", MICA_DTYPE_F32, 1, &n);
    const mica_tensor narrow =
        mica_graph_cast(g, mica_graph_sub(g, p, in), MICA_DTYPE_F16); /* its gradient is f16 */
    const mica_tensor loss = mica_graph_reduce(
        g, MICA_REDUCE_SUM, mica_graph_cast(g, mica_graph_square(g, narrow), MICA_DTYPE_F32), NULL, 0, 0);
    o.learning_rate = 0.25;
    o.loss_scale = 65536; /* times 10 there is no f16 */
    o.scale_every = 2;
    must(mica_graph_optimize(g, loss, &p, NULL, 1, &o));
    const mica_compile_options options = {.flags = MICA_COMPILE_TRAINING};
    must(mica_graph_compile(g, cpu, &options, &run));
    must(mica_executable_link_states(run, g));
    must(mica_executable_set(
        run,
        &(mica_array){
            .name = "w", .dtype = MICA_DTYPE_F32, .ndim = 1, .shape = {N}, .data = w, .bytes = sizeof w}));
    for (int t = 1; t <= 6; t++) {
        mica_array feed = {
            .name = "x", .dtype = MICA_DTYPE_F32, .ndim = 1, .shape = {N}, .data = x, .bytes = sizeof x};
        mica_array out[] = {{.name = "next.w", .data = w, .bytes = sizeof w},
                            {.name = "next.train.scale", .data = &scale, .bytes = sizeof scale}};
        must(mica_executable_run(run, &feed, 1, out, 2));
        /* 65536, 32768, 16384, 8192 overflow with 10; 4096 does not: two steps are taken, then it doubles */
        const float wanted = t <= 4 ? 65536.0f / (float)(1 << t) : t == 5 ? 4096.0f : 8192.0f;
        assert_true(scale == wanted);
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)w[i] - (i + 1) * (t <= 4 ? 1 : t == 5 ? 0.5 : 0.25)) < 1e-3);
    }
    mica_executable_release(run);
    mica_graph_release(g);
}

/* Killed after 7 steps, with checkpoints every 3: it goes on after 6 and ends at the same bits. */
static void killed(void **state)
{
    (void)state;
    char folder[256], path[300];
    data whole = {.seen = 0}, first = {.stop = 0}, second = {.seen = 0};
    double wanted[N], got[N], m_wanted[N], m_got[N];
    uint64_t step = 9;
    mica_optimizer o = mica_optimizer_of(MICA_OPTIMIZER_ADAMW);
    o.learning_rate = 0.05;
    assert_int_equal(test_folder_make(folder, sizeof folder, "mica-train"), 0);
    snprintf(path, sizeof path, "%s/run.safetensors", folder);
    mica_trainer *trainer = trainer_of(&o, &whole, NULL, 0);
    must(mica_trainer_run(trainer, 12));
    read_w(trainer, "w", wanted);
    read_w(trainer, "w.m", m_wanted);
    mica_trainer_release(trainer);

    trainer = trainer_of(&o, &first, NULL, 0);
    refused(mica_trainer_save(trainer), MICA_ERR_INVALID_ARGUMENT, "no checkpoint");
    mica_trainer_release(trainer);
    trainer = trainer_of(&o, &first, path, 3);
    must(mica_trainer_resume(trainer, &step));
    assert_int_equal(step, 0); /* there is none yet */
    first.stop = 6;            /* as if killed right behind a checkpoint; what came later is lost */
    refused(mica_trainer_run(trainer, 12), MICA_ERR_CANCELLED, "after step 6");
    mica_trainer_release(trainer);

    trainer = trainer_of(&o, &second, path, 3);
    must(mica_trainer_resume(trainer, &step));
    assert_int_equal(step, 6);
    must(mica_trainer_run(trainer, 12));
    read_w(trainer, "w", got);
    read_w(trainer, "w.m", m_got);
    assert_memory_equal(got, wanted, sizeof got);
    assert_memory_equal(m_got, m_wanted, sizeof m_got);
    for (int t = 7; t <= 12; t++)
        assert_true(second.loss[t] == whole.loss[t]);
    mica_trainer_release(trainer);

    /* of another optimiser: it misses states, and nothing is set */
    o.kind = MICA_OPTIMIZER_SGD;
    o.momentum = 0.5;
    o.scale_every = 3;
    o.loss_scale = 2;
    trainer = trainer_of(&o, &second, path, 3);
    refused(mica_trainer_resume(trainer, &step), MICA_ERR_MALFORMED_FILE, "train.scale");
    assert_int_equal(step, 0);
    mica_trainer_release(trainer);
    FILE *file = fopen(path, "r+b"); /* a damaged file is refused by its reader */
    fputs("not a header", file);
    fclose(file);
    o.scale_every = 0;
    trainer = trainer_of(&o, &second, path, 3);
    assert_int_not_equal(mica_trainer_resume(trainer, &step), MICA_OK);
    mica_trainer_release(trainer);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* nothing half written is left */
}

static void refusals(void **state)
{
    (void)state;
    mica_optimizer o = mica_optimizer_of(MICA_OPTIMIZER_ADAM);
    mica_tensor loss, w;
    mica_trainer *trainer = NULL;
    data d = {.seen = 0};
    const mica_trainer_desc desc = {.batch = next_batch, .context = &d};
    mica_graph *g = bowl(MICA_DTYPE_F64, &loss, &w);
    refused(mica_trainer_create(g, cpu, &desc, &trainer), MICA_ERR_INVALID_ARGUMENT, "mica_graph_optimize");
    o.beta1 = 1;
    refused(mica_graph_optimize(g, loss, &w, NULL, 1, &o), MICA_ERR_INVALID_ARGUMENT, "beta1 is 1");
    mica_graph_release(g);
    o.beta1 = 0.9;
    g = bowl(MICA_DTYPE_F64, &loss, &w);
    refused(mica_graph_optimize(g, w, &w, NULL, 1, &o), MICA_ERR_INVALID_ARGUMENT, "loss");
    mica_graph_release(g);
    g = bowl(MICA_DTYPE_F64, &loss, &w);
    refused(mica_graph_optimize(g, loss, &loss, NULL, 1, &o), MICA_ERR_INVALID_ARGUMENT, "parameters[0]");
    mica_graph_release(g);
    g = bowl(MICA_DTYPE_F64, &loss, &w);
    refused(mica_graph_optimize(g, loss, &w, &loss, 1, &o), MICA_ERR_INVALID_ARGUMENT, "gradients[0]");
    mica_graph_release(g);
    g = bowl(MICA_DTYPE_F64, &loss, &w);
    o.schedule = MICA_RATE_COSINE;
    refused(mica_graph_optimize(g, loss, &w, NULL, 1, &o), MICA_ERR_INVALID_ARGUMENT, "steps");
    mica_graph_release(g);
    g = bowl(MICA_DTYPE_F64, &loss, &w);
    o.schedule = MICA_RATE_CONSTANT;
    must(mica_graph_optimize(g, loss, &w, NULL, 1, &o));
    must(mica_trainer_create(g, cpu, &desc, &trainer));
    refused(mica_trainer_run(trainer, 1), MICA_ERR_STATE, "'w' was not set");
    mica_trainer_release(trainer);
    refused(mica_graph_optimize(g, loss, &w, NULL, 1, &o), MICA_ERR_INVALID_ARGUMENT,
            "train.step"); /* twice */
    mica_graph_release(g);
    must(mica_graph_create(&g)); /* called as the moment of another: a parameter all the same */
    w = mica_graph_parameter(g, "x.v", MICA_DTYPE_F64, 0, NULL);
    must(mica_graph_optimize(g, mica_graph_square(g, w), &w, NULL, 1, &o));
    must(mica_trainer_create(g, cpu, &desc, &trainer));
    refused(mica_trainer_run(trainer, 1), MICA_ERR_STATE, "'x.v' was not set");
    mica_trainer_release(trainer);
    mica_graph_release(g);
    refused(mica_trainer_run(NULL, 1), MICA_ERR_INVALID_ARGUMENT, "trainer");
    refused(mica_trainer_create(NULL, cpu, &desc, &trainer), MICA_ERR_INVALID_ARGUMENT, "graph");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(optimisers), cmocka_unit_test(moving_scales),
                                       cmocka_unit_test(killed), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
