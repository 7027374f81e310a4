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

/* A strip of a head of a sequence, and the thread's memory: what some tokens bring, loaded together, for rows of heads lie on pages of their own and one
 * token's would wait for the other's. */
typedef struct delta_strip {
    const mica__cpu_view *view;
    const mica_delta_params *delta;
    bool rows;                   /* g has a decay for each row of the state */
    uint64_t head, first, count; /* columns */
    uint64_t padded;             /* floats of a row of q and k */
    float skip;
    float *q, *k, *v;    /* [LOADED] rows, of v STRIP */
    float *decay, *beta; /* [LOADED] */
    float *out, *state;  /* [STRIP], [D, STRIP] */
} delta_strip;

#define LOADED MICA__CPU_DELTA_LOADED

/* n tokens from t on. */
static void load_tokens(const delta_strip *s, uint64_t t, uint64_t n)
{
    const mica__cpu_view *q = &s->view[MICA__DELTA_Q], *k = &s->view[MICA__DELTA_K],
                         *v = &s->view[MICA__DELTA_V];
    const uint64_t group = s->head / (v->shape[1] / q->shape[1]), dim = q->shape[2];
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char *value = v->data + (t + i) * v->stride[0] + s->head * v->stride[1] +
                                     s->first * row_element_bytes(v->dtype);
        for (uint64_t c = 0; c < STRIP; c += VW) {
            const uint64_t rest = c < s->count ? s->count - c : 0, lanes = rest < VW ? rest : VW;
            vf_store(s->v + i * STRIP + c,
                     lanes > 0 ? row_load_n(value + c * row_element_bytes(v->dtype), v->dtype, lanes)
                               : vf_zero());
        }
        s->decay[i] = s->rows ? 0.0f : delta_element(&s->view[MICA__DELTA_G], t + i, s->head, 0.0f);
        s->beta[i] = delta_element(&s->view[MICA__DELTA_BETA], t + i, s->head, 1.0f);
    }
    for (uint64_t i = 0; i < n; i++) {
        delta_vector(q->data + (t + i) * q->stride[0] + group * q->stride[1], q->dtype, dim, s->delta,
                     s->delta->scale, s->q + i * s->padded);
        delta_vector(k->data + (t + i) * k->stride[0] + group * k->stride[1], k->dtype, dim, s->delta, 1.0f,
                     s->k + i * s->padded);
    }
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t lanes = n - i < VW ? n - i : VW;
        vf_store_n(s->decay + i, vf_exp(vf_load_n(s->decay + i, lanes)), lanes);
    }
}

static delta_token token_of(const delta_strip *s, uint64_t i)
{
    return (delta_token){
        .dim = s->view[MICA__DELTA_Q].shape[2],
        .q = s->q + i * s->padded,
        .k = s->k + i * s->padded,
        .decay = s->decay[i],
        .beta = s->beta[i],
        .skip = s->skip,
        .correct = s->delta->rule == MICA_DELTA_CORRECT,
        .v = s->v + i * STRIP,
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

#define TURN 32u /* tokens that a strip takes before the next one does */

/* A token whose state goes from one buffer to the other without a copy between. */
static bool run_alone(const delta_strip *s, const sequence *of, const unsigned char *from, unsigned char *to)
{
    const mica__cpu_view *state = &s->view[MICA__DELTA_STATE], *next = &s->view[MICA__DELTA_NEXT_STATE];
    if (of->count != 1 || s->rows || from == NULL || to == NULL || s->count != STRIP ||
        s->view[MICA__DELTA_Q].shape[2] == 0 || state->stride[2] % sizeof(float) != 0 ||
        next->stride[2] % sizeof(float) != 0)
        return false;
    load_tokens(s, of->first, 1);
    const delta_token t = token_of(s, 0);
    run_token(&t, (const float *)(const void *)from, state->stride[2] / sizeof(float), (float *)(void *)to,
              next->stride[2] / sizeof(float), s->out);
    store_out(s, of->first);
    return true;
}

/* Tokens [t, end) of a sequence. */
static void run_strip(const delta_strip *s, const sequence *of, uint64_t t, uint64_t end)
{
    const mica__cpu_view *state = &s->view[MICA__DELTA_STATE], *next = &s->view[MICA__DELTA_NEXT_STATE];
    const uint64_t dim = s->view[MICA__DELTA_Q].shape[2], bytes = s->first * sizeof(float);
    const unsigned char *from = of->from != NULL ? of->from + s->head * state->stride[1] + bytes : NULL;
    unsigned char *to = of->to != NULL ? of->to + s->head * next->stride[1] + bytes : NULL;
    if (run_alone(s, of, from, to))
        return;
    for (uint64_t j = 0; t == 0 && j < dim; j++) {
        memset(s->state + j * STRIP, 0, STRIP * sizeof(float));
        if (from != NULL)
            memcpy(s->state + j * STRIP, from + j * state->stride[2], s->count * sizeof(float));
    }
    for (uint64_t i = 0; t < end; t++, i++) {
        if (i % LOADED == 0)
            load_tokens(s, of->first + t, end - t < LOADED ? end - t : LOADED);
        const delta_token token = token_of(s, i % LOADED);
        if (s->rows)
            decay_rows(s, of->first + t);
        run_token(&token, s->state, STRIP, s->state, STRIP, s->out);
        store_out(s, of->first + t);
    }
    for (uint64_t j = 0; to != NULL && end == of->count && j < dim; j++)
        memcpy(to + j * next->stride[2], s->state + j * STRIP, s->count * sizeof(float));
}

/* Blocks [first, end) of columns, counted through the heads. They take turns, so that what lies beside each other of a token, on one page, is read at about
 * the same time. */
static void run_blocks(delta_strip *s, const sequence *of, uint64_t first, uint64_t end)
{
    const mica__cpu_view *v = &s->view[MICA__DELTA_V], *skip = &s->view[MICA__DELTA_SKIP];
    const uint64_t columns = v->shape[2], dim = s->view[MICA__DELTA_Q].shape[2],
                   blocks = (columns + MICA__CPU_DELTA_COLUMNS - 1) / MICA__CPU_DELTA_COLUMNS;
    float *states = s->state;
    uint64_t t = 0;
    do {
        const uint64_t stop = of->count - t < TURN ? of->count : t + TURN;
        s->state = states;
        for (uint64_t block = first; block < end; block++) {
            const uint64_t begin = block % blocks * MICA__CPU_DELTA_COLUMNS;
            s->head = block / blocks;
            s->skip =
                skip->data != NULL ? row_element(skip->data + s->head * skip->stride[0], skip->dtype) : 0.0f;
            for (s->first = begin; s->first < columns && s->first < begin + MICA__CPU_DELTA_COLUMNS;
                 s->first += STRIP, s->state += dim * STRIP) {
                s->count = columns - s->first < STRIP ? columns - s->first : STRIP;
                run_strip(s, of, t, stop);
            }
        }
        t = stop;
    } while (t < of->count);
    s->state = states;
}

void MICA__ISA(delta_net)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_delta *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const uint64_t all = args->view[MICA__DELTA_V].shape[1] * params->blocks, together = params->together,
                   units = (all + together - 1) / together;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    delta_strip s = {.view = args->view, .delta = &params->delta};
    s.padded = mica__cpu_delta_padded(args->view[MICA__DELTA_Q].shape[2]);
    s.rows = args->view[MICA__DELTA_G].ndim == 3;
    s.q = args->local;
    s.k = s.q + LOADED * s.padded;
    s.decay = s.k + LOADED * s.padded;
    s.beta = s.decay + LOADED;
    s.v = s.beta + LOADED;
    s.out = s.v + LOADED * STRIP;
    s.state = s.out + STRIP;
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * units) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence found = sequence_of(args, of, row / units);
        const uint64_t begin = row % units * together;
        if (found.fine && found.count < params->chunk_from)
            run_blocks(&s, &found, begin, all - begin < together ? all : begin + together);
    }
}
