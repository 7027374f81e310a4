/*
 * delta_net.c - the gated delta rule, token by token. A unit is a sequence, a head and a block of the state's columns, which have nothing to do with
 * each other: S [D, columns] goes through the cache once for one token, and stays there for many.
 *
 * A strip of columns is as wide as four vectors. Sums over D go row by row, even rows and odd ones apart.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/delta_load.h"
#include "backend/cpu/kernels/recurrent/sequences.h"

#define PARTS 4
#define STRIP (PARTS * VW)

/* What a token brings, as floats. */
typedef struct delta_token {
    uint64_t dim;
    const float *q, *k;
    float decay, beta, skip;
    bool correct;
    const float *v; /* [STRIP], filled up with zeros */
} delta_token;

/* d = beta (v - decay S^T k), or beta v. */
static inline void token_change(const delta_token *t, const float *from, uint64_t step, vf *change)
{
    const vf beta = vf_set1(t->beta), decay = vf_set1(t->decay);
    vf even[PARTS], odd[PARTS];
    for (int p = 0; p < PARTS; p++) {
        even[p] = odd[p] = vf_zero();
        change[p] = vf_load(t->v + p * VW);
    }
    if (t->correct) {
        uint64_t j = 0;
        for (; j + 2 <= t->dim; j += 2) {
            const vf k0 = vf_set1(t->k[j]), k1 = vf_set1(t->k[j + 1]);
            const float *row = from + j * step;
            for (int p = 0; p < PARTS; p++) {
                even[p] = vf_fma(k0, vf_load(row + p * VW), even[p]);
                odd[p] = vf_fma(k1, vf_load(row + step + p * VW), odd[p]);
            }
        }
        for (int p = 0; j < t->dim && p < PARTS; p++)
            even[p] = vf_fma(vf_set1(t->k[j]), vf_load(from + j * step + p * VW), even[p]);
        for (int p = 0; p < PARTS; p++)
            change[p] = vf_sub(change[p], vf_mul(decay, vf_add(even[p], odd[p])));
    }
    for (int p = 0; p < PARTS; p++)
        change[p] = vf_mul(beta, change[p]);
}

/* One token of one strip: the state goes from `from` to `to`, whose rows are so many floats apart; out [STRIP]. */
static inline void run_token(const delta_token *t, const float *from, uint64_t from_step, float *to,
                             uint64_t to_step, float *out)
{
    const vf decay = vf_set1(t->decay), skip = vf_set1(t->skip);
    vf change[PARTS], sum[PARTS];
    token_change(t, from, from_step, change);
    for (int p = 0; p < PARTS; p++)
        sum[p] = vf_zero();
    for (uint64_t j = 0; j < t->dim; j++) {
        const vf k = vf_set1(t->k[j]), q = vf_set1(t->q[j]);
        for (int p = 0; p < PARTS; p++) {
            const vf s = vf_fma(k, change[p], vf_mul(decay, vf_load(from + j * from_step + p * VW)));
            vf_store(to + j * to_step + p * VW, s);
            sum[p] = vf_fma(q, s, sum[p]);
        }
    }
    for (int p = 0; p < PARTS; p++)
        vf_store(out + p * VW,
                 vf_fma(skip, vf_load(t->v + p * VW), sum[p])); /* last: it may be the greatest */
}

static float exp_of(float x)
{
    float lane[VW];
    vf_store(lane, vf_exp(vf_set1(x)));
    return lane[0];
}

/* A strip of a head of a sequence, and the thread's memory. */
typedef struct delta_strip {
    const mica__cpu_view *view;
    const mica_delta_params *delta;
    bool rows;                      /* g has a decay for each row of the state */
    uint64_t head, first, count;    /* columns */
    float *q, *k, *v, *out, *state; /* state [D, STRIP] */
} delta_strip;

static delta_token load_token(const delta_strip *s, uint64_t t)
{
    const mica__cpu_view *q = &s->view[MICA__DELTA_Q], *k = &s->view[MICA__DELTA_K],
                         *v = &s->view[MICA__DELTA_V], *skip = &s->view[MICA__DELTA_SKIP];
    const uint64_t group = s->head / (v->shape[1] / q->shape[1]), dim = q->shape[2];
    const unsigned char *value =
        v->data + t * v->stride[0] + s->head * v->stride[1] + s->first * row_element_bytes(v->dtype);
    delta_vector(q->data + t * q->stride[0] + group * q->stride[1], q->dtype, dim, s->delta, s->delta->scale,
                 s->q);
    delta_vector(k->data + t * k->stride[0] + group * k->stride[1], k->dtype, dim, s->delta, 1.0f, s->k);
    for (uint64_t i = 0; i < STRIP; i += VW) {
        const uint64_t rest = i < s->count ? s->count - i : 0, n = rest < VW ? rest : VW;
        vf_store(s->v + i,
                 n > 0 ? row_load_n(value + i * row_element_bytes(v->dtype), v->dtype, n) : vf_zero());
    }
    return (delta_token){
        .dim = dim,
        .q = s->q,
        .k = s->k,
        .decay = s->rows ? 1.0f : exp_of(delta_element(&s->view[MICA__DELTA_G], t, s->head, 0.0f)),
        .beta = delta_element(&s->view[MICA__DELTA_BETA], t, s->head, 1.0f),
        .skip = skip->data != NULL ? row_element(skip->data + s->head * skip->stride[0], skip->dtype) : 0.0f,
        .correct = s->delta->rule == MICA_DELTA_CORRECT,
        .v = s->v,
    };
}

/* Where g has a decay for each row, the state decays before the token, which then has none. */
static void decay_rows(const delta_strip *s, uint64_t t)
{
    const mica__cpu_view *g = &s->view[MICA__DELTA_G];
    for (uint64_t j = 0; j < g->shape[2]; j++) {
        const vf decay = vf_set1(exp_of(
            row_element(g->data + t * g->stride[0] + s->head * g->stride[1] + j * g->stride[2], g->dtype)));
        for (uint64_t i = 0; i < STRIP; i += VW)
            vf_store(s->state + j * STRIP + i, vf_mul(decay, vf_load(s->state + j * STRIP + i)));
    }
}

static void store_out(const delta_strip *s, uint64_t t)
{
    const mica__cpu_view *y = &s->view[MICA__DELTA_Y];
    row_store(y->data + t * y->stride[0] + s->head * y->stride[1] + s->first * row_element_bytes(y->dtype),
              y->dtype, s->out, s->count);
}

static void run_strip(const delta_strip *s, const sequence *of)
{
    const mica__cpu_view *state = &s->view[MICA__DELTA_STATE], *next = &s->view[MICA__DELTA_NEXT_STATE];
    const uint64_t dim = s->view[MICA__DELTA_Q].shape[2], bytes = s->first * sizeof(float);
    const unsigned char *from = of->from != NULL ? of->from + s->head * state->stride[1] + bytes : NULL;
    unsigned char *to = of->to != NULL ? of->to + s->head * next->stride[1] + bytes : NULL;
    if (of->count == 1 && !s->rows && from != NULL && to != NULL && s->count == STRIP && dim > 0 &&
        state->stride[2] % sizeof(float) == 0 && next->stride[2] % sizeof(float) == 0) {
        const delta_token t = load_token(s, of->first);
        run_token(&t, (const float *)(const void *)from, state->stride[2] / sizeof(float),
                  (float *)(void *)to, next->stride[2] / sizeof(float), s->out);
        store_out(s, of->first);
        return;
    }
    for (uint64_t j = 0; j < dim; j++) {
        memset(s->state + j * STRIP, 0, STRIP * sizeof(float));
        if (from != NULL)
            memcpy(s->state + j * STRIP, from + j * state->stride[2], s->count * sizeof(float));
    }
    for (uint64_t t = of->first; t < of->first + of->count; t++) {
        const delta_token token = load_token(s, t);
        if (s->rows)
            decay_rows(s, t);
        run_token(&token, s->state, STRIP, s->state, STRIP, s->out);
        store_out(s, t);
    }
    for (uint64_t j = 0; to != NULL && j < dim; j++)
        memcpy(to + j * next->stride[2], s->state + j * STRIP, s->count * sizeof(float));
}

void MICA__ISA(delta_net)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_delta *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const mica__cpu_view *q = &args->view[MICA__DELTA_Q], *v = &args->view[MICA__DELTA_V];
    const uint64_t heads = v->shape[1], columns = v->shape[2], dim = q->shape[2];
    const uint64_t end = mica__cpu_rows_end(&params->range, last), padded = (dim + 15) / 16 * 16;
    delta_strip s = {.view = args->view, .delta = &params->delta};
    s.rows = args->view[MICA__DELTA_G].ndim == 3;
    s.q = args->local;
    s.k = s.q + padded;
    s.v = s.k + padded;
    s.out = s.v + STRIP;
    s.state = s.out + STRIP;
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * heads * params->blocks) {
            sequence_gaps(args, of);
            continue;
        }
        const uint64_t begin = row % params->blocks * MICA__CPU_DELTA_COLUMNS;
        const sequence found = sequence_of(args, of, row / params->blocks / heads);
        s.head = row / params->blocks % heads;
        if (found.count >= params->chunk_from)
            continue;
        for (s.first = begin; found.fine && s.first < columns && s.first < begin + MICA__CPU_DELTA_COLUMNS;
             s.first += STRIP) {
            s.count = columns - s.first < STRIP ? columns - s.first : STRIP;
            run_strip(&s, &found);
        }
    }
}
