/*
 * oracle_recurrent_backward.c - gradients of ops that carry a state: each sequence's formulas go onto a tape, whose steps back are the gradients.
 */
#include "oracle/oracle_recurrent_backward.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_tape.h"

/* Operands as steps of the tape, one behind another; the state of a sequence behind them. */
enum { MOST = 9 };

typedef struct run {
    oracle_tape tape;
    size_t first[MOST];
} run;

static size_t put_all(run *r, uint32_t operand, const double *values, size_t count, double absent)
{
    r->first[operand] = r->tape.count;
    for (size_t i = 0; i < count; i++)
        oracle_tape_value(&r->tape, values ? values[i] : absent);
    return r->first[operand];
}

/* The state that sequence n begins with; false where it has no tokens and no states. */
static int begin(run *r, const oracle_sequences *of, size_t n, size_t slot, size_t *first, size_t *count,
                 size_t *state)
{
    double read = of->read_slots ? of->read_slots[n] : (double)n;
    int fine = 1;

    *count = of->tokens / of->count;
    *first = n * *count;
    if (of->starts) {
        fine = of->starts[n] >= 0 && of->starts[n] <= of->starts[n + 1] &&
               of->starts[n + 1] <= (double)of->tokens;
        *first = fine ? (size_t)of->starts[n] : 0;
        *count = fine ? (size_t)of->starts[n + 1] - *first : 0;
    }
    if (of->state && !(read >= 0 && read < (double)of->state_slots))
        fine = 0;
    *count = fine ? *count : 0;
    *state = r->tape.count;
    for (size_t i = 0; fine && i < slot; i++)
        oracle_tape_value(&r->tape, of->state ? of->state[(size_t)read * slot + i] : 0);
    return fine;
}

static void reach_all(run *r, const double *gradient, const size_t *step, size_t count)
{
    for (size_t i = 0; gradient && i < count; i++)
        oracle_tape_reach(&r->tape, step[i], gradient[i]);
}

static void take(const run *r, size_t first, size_t count, oracle_gradient *to)
{
    for (size_t i = 0; to->gradient && i < count; i++) {
        to->gradient[i] = r->tape.step[first + i].gradient;
        to->off[i] = r->tape.step[first + i].gradient_off;
    }
}

/* Of the state of sequence n; zeros where it is not fine. */
static void take_state(const run *r, size_t n, size_t slot, int fine, size_t state, oracle_gradient *to)
{
    for (size_t i = 0; to->gradient && i < slot; i++) {
        to->gradient[n * slot + i] = fine ? r->tape.step[state + i].gradient : 0;
        to->off[n * slot + i] = fine ? r->tape.step[state + i].gradient_off : 0;
    }
}

typedef struct kept_state {
    size_t first;
    int fine;
} kept_state;

static size_t multiply(run *r, size_t a, size_t b)
{
    return oracle_tape_multiply(&r->tape, a, b);
}

static size_t add(run *r, size_t a, size_t b)
{
    return oracle_tape_add(&r->tape, a, b);
}

static size_t silu(run *r, size_t a)
{
    return multiply(r, a, oracle_tape_sigmoid(&r->tape, a));
}

/* ---- convolution ---- */

void oracle_ssm_conv_backward(const oracle_sequences *of, const oracle_conv *conv, const oracle_reach *reach,
                              oracle_gradient *to)
{
    const size_t channels = conv->channels, width = conv->width, kept = width - 1;
    kept_state *states = calloc(of->count + 1, sizeof *states);
    run r = {0};
    const size_t x = put_all(&r, ORACLE_CONV_X, conv->x, of->tokens * channels, 0),
                 weight = put_all(&r, ORACLE_CONV_WEIGHT, conv->weight, channels * width, 0),
                 bias = put_all(&r, ORACLE_CONV_BIAS, conv->bias, channels, 0);

    for (size_t n = 0; n < of->count; n++) {
        size_t first, count;

        states[n].fine = begin(&r, of, n, channels * kept, &first, &count, &states[n].first);
        for (size_t c = 0; states[n].fine && c < channels; c++) {
            size_t *in = calloc(kept + count + 1, sizeof *in);

            for (size_t j = 0; j < kept + count; j++)
                in[j] = j < kept ? states[n].first + c * kept + j : x + (first + j - kept) * channels + c;
            for (size_t t = 0; t < count; t++) {
                size_t sum = bias + c;

                for (size_t k = 0; k < width; k++)
                    sum = add(&r, sum, multiply(&r, weight + c * width + k, in[t + k]));
                if (conv->silu)
                    sum = silu(&r, sum);
                oracle_tape_reach(&r.tape, sum, reach->dy[(first + t) * channels + c]);
            }
            if (reach->dnext)
                reach_all(&r, reach->dnext + (n * channels + c) * kept, in + count, kept);
            free(in);
        }
    }
    oracle_tape_run(&r.tape);
    take(&r, x, of->tokens * channels, &to[ORACLE_CONV_X]);
    take(&r, weight, channels * width, &to[ORACLE_CONV_WEIGHT]);
    take(&r, bias, channels, &to[ORACLE_CONV_BIAS]);
    for (size_t n = 0; n < of->count; n++)
        take_state(&r, n, channels * kept, states[n].fine, states[n].first, &to[ORACLE_CONV_STATE]);
    oracle_tape_free(&r.tape);
    free(states);
}

/* ---- the delta rule ---- */

/* x over its length, times scale. */
static void normalise(run *r, const oracle_delta *d, size_t x, double scale, size_t *out)
{
    const size_t by = oracle_tape_value(&r->tape, scale);
    size_t factor = by;

    if (d->normalise) {
        size_t sum = oracle_tape_value(&r->tape, d->eps);

        for (size_t j = 0; j < d->dim; j++)
            sum = add(r, sum, multiply(r, x + j, x + j));
        const double length = sqrt(r->tape.step[sum].value);
        factor = multiply(
            r, by,
            oracle_tape_function(&r->tape, sum, 1 / length, -0.5 / pow(length, 3), 0.75 / pow(length, 5)));
    }
    for (size_t j = 0; j < d->dim; j++)
        out[j] = multiply(r, x + j, factor);
}

/* A token of a value head, whose state's steps are `s`. */
static void delta_token(run *r, const oracle_delta *d, size_t t, size_t h, size_t *s, size_t *room,
                        const double *dy)
{
    const size_t group = h / (d->heads / d->groups), at = t * d->heads + h;
    size_t *q = room, *k = room + d->dim;

    normalise(r, d, r->first[ORACLE_DELTA_Q] + (t * d->groups + group) * d->dim, d->scale, q);
    normalise(r, d, r->first[ORACLE_DELTA_K] + (t * d->groups + group) * d->dim, 1, k);
    for (size_t j = 0; d->g && j < d->dim; j++) {
        const size_t decay =
            oracle_tape_exp(&r->tape, r->first[ORACLE_DELTA_G] + (d->by_row ? at * d->dim + j : at));

        for (size_t c = 0; c < d->columns; c++)
            s[j * d->columns + c] = multiply(r, s[j * d->columns + c], decay);
    }
    for (size_t c = 0; c < d->columns; c++) {
        const size_t v = r->first[ORACLE_DELTA_V] + at * d->columns + c;
        size_t rest = v, y = multiply(r, r->first[ORACLE_DELTA_SKIP] + h, v);

        for (size_t j = 0; d->correct && j < d->dim; j++)
            rest = oracle_tape_subtract(&r->tape, rest, multiply(r, s[j * d->columns + c], k[j]));
        const size_t change = multiply(r, r->first[ORACLE_DELTA_BETA] + at, rest);
        for (size_t j = 0; j < d->dim; j++) {
            s[j * d->columns + c] = add(r, s[j * d->columns + c], multiply(r, k[j], change));
            y = add(r, y, multiply(r, s[j * d->columns + c], q[j]));
        }
        oracle_tape_reach(&r->tape, y, dy[at * d->columns + c]);
    }
}

void oracle_delta_net_backward(const oracle_sequences *of, const oracle_delta *d, const oracle_reach *reach,
                               oracle_gradient *to)
{
    const size_t keys = of->tokens * d->groups * d->dim, heads = of->tokens * d->heads,
                 one = d->dim * d->columns, slot = d->heads * one, gates = heads * (d->by_row ? d->dim : 1);
    const size_t counts[] = {keys, keys, heads * d->columns, gates, heads, d->heads};
    const double *values[] = {d->q, d->k, d->v, d->g, d->beta, d->skip};
    kept_state *states = calloc(of->count + 1, sizeof *states);
    size_t *room = calloc(one + 2 * d->dim + 1, sizeof *room);
    run r = {0};

    for (uint32_t i = 0; i < ORACLE_DELTA_STATE; i++)
        put_all(&r, i, values[i], counts[i], i == ORACLE_DELTA_BETA ? 1 : 0);
    for (size_t n = 0; n < of->count; n++) {
        size_t first, count;

        states[n].fine = begin(&r, of, n, slot, &first, &count, &states[n].first);
        for (size_t h = 0; states[n].fine && h < d->heads; h++) {
            for (size_t i = 0; i < one; i++)
                room[i] = states[n].first + h * one + i;
            for (size_t t = first; t < first + count; t++)
                delta_token(&r, d, t, h, room, room + one, reach->dy);
            if (reach->dnext)
                reach_all(&r, reach->dnext + n * slot + h * one, room, one);
        }
    }
    oracle_tape_run(&r.tape);
    for (uint32_t i = 0; i < ORACLE_DELTA_STATE; i++)
        take(&r, r.first[i], counts[i], &to[i]);
    for (size_t n = 0; n < of->count; n++)
        take_state(&r, n, slot, states[n].fine, states[n].first, &to[ORACLE_DELTA_STATE]);
    oracle_tape_free(&r.tape);
    free(states);
    free(room);
}

/* ---- selective scan ---- */

static void scan_token(run *r, const oracle_selective *scan, size_t t, size_t c, size_t *s, double dy)
{
    const size_t places = scan->places, group = c / (scan->channels / scan->groups);
    const size_t at = (t * scan->groups + group) * places, own = t * scan->channels + c;
    const size_t x = r->first[ORACLE_SCAN_X] + own;
    size_t step = add(r, r->first[ORACLE_SCAN_DT] + own, r->first[ORACLE_SCAN_DT_BIAS] + c);

    if (scan->softplus) {
        const double raw = r->tape.step[step].value;

        const double slope = 1 / (1 + exp(-raw));

        step = oracle_tape_function(&r->tape, step, fmax(raw, 0) + log1p(exp(-fabs(raw))), slope,
                                    slope * (1 - slope));
    }
    size_t y = multiply(r, r->first[ORACLE_SCAN_SKIP] + c, x);
    for (size_t p = 0; p < places; p++) {
        const size_t decay =
            oracle_tape_exp(&r->tape, multiply(r, step, r->first[ORACLE_SCAN_A] + c * places + p));
        const size_t in = multiply(r, multiply(r, step, x), r->first[ORACLE_SCAN_B] + at + p);

        s[p] = add(r, multiply(r, decay, s[p]), in);
        y = add(r, y, multiply(r, r->first[ORACLE_SCAN_C] + at + p, s[p]));
    }
    if (scan->z)
        y = multiply(r, y, silu(r, r->first[ORACLE_SCAN_Z] + own));
    oracle_tape_reach(&r->tape, y, dy);
}

void oracle_selective_scan_backward(const oracle_sequences *of, const oracle_selective *scan,
                                    const oracle_reach *reach, oracle_gradient *to)
{
    const size_t places = scan->places, channels = scan->channels, slot = channels * places,
                 in = of->tokens * channels, shared = of->tokens * scan->groups * places;
    const size_t counts[] = {in, in, slot, shared, shared, channels, channels, in};
    const double *values[] = {scan->x, scan->dt,   scan->a,       scan->b,
                              scan->c, scan->skip, scan->dt_bias, scan->z};
    kept_state *states = calloc(of->count + 1, sizeof *states);
    size_t *room = calloc(places + 1, sizeof *room);
    run r = {0};

    for (uint32_t i = 0; i < ORACLE_SCAN_STATE; i++)
        put_all(&r, i, values[i], counts[i], 0);
    for (size_t n = 0; n < of->count; n++) {
        size_t first, count;

        states[n].fine = begin(&r, of, n, slot, &first, &count, &states[n].first);
        for (size_t c = 0; states[n].fine && c < channels; c++) {
            for (size_t p = 0; p < places; p++)
                room[p] = states[n].first + c * places + p;
            for (size_t t = first; t < first + count; t++)
                scan_token(&r, scan, t, c, room, reach->dy[t * channels + c]);
            if (reach->dnext)
                reach_all(&r, reach->dnext + n * slot + c * places, room, places);
        }
    }
    oracle_tape_run(&r.tape);
    for (uint32_t i = 0; i < ORACLE_SCAN_STATE; i++)
        take(&r, r.first[i], counts[i], &to[i]);
    for (size_t n = 0; n < of->count; n++)
        take_state(&r, n, slot, states[n].fine, states[n].first, &to[ORACLE_SCAN_STATE]);
    oracle_tape_free(&r.tape);
    free(states);
    free(room);
}

/* ---- cells ---- */

/* Unit u of a token: `p` all sums, `s` h and c of all units, of which those of u become what is behind the token in `next`. */
static void cell_unit(run *r, const oracle_rnn *rnn, size_t t, size_t u, const size_t *p, const size_t *s,
                      size_t *next)
{
    const size_t units = rnn->hidden, x = r->first[ORACLE_RNN_X] + t * rnn->gates * units + u;
    size_t a[4], h = s[u];

    for (size_t g = 0; g < rnn->gates; g++)
        a[g] = add(r, x + g * units, p[g * units + u]);
    if (rnn->kind == ORACLE_TANH) {
        h = oracle_tape_tanh(&r->tape, a[0]);
    } else if (rnn->kind == ORACLE_RELU) {
        const double in = r->tape.step[a[0]].value;

        h = oracle_tape_function(&r->tape, a[0], in > 0 ? in : 0, in > 0, 0);
    } else if (rnn->kind == ORACLE_GRU) {
        const size_t reset = oracle_tape_sigmoid(&r->tape, a[0]), z = oracle_tape_sigmoid(&r->tape, a[1]),
                     n = oracle_tape_tanh(&r->tape,
                                          add(r, x + 2 * units, multiply(r, reset, p[2 * units + u]))),
                     rest = oracle_tape_subtract(&r->tape, oracle_tape_value(&r->tape, 1), z);

        h = add(r, multiply(r, rest, n), multiply(r, z, h));
    } else {
        const size_t kept = multiply(r, oracle_tape_sigmoid(&r->tape, a[1]), s[units + u]),
                     fresh =
                         multiply(r, oracle_tape_sigmoid(&r->tape, a[0]), oracle_tape_tanh(&r->tape, a[2]));

        next[units + u] = add(r, kept, fresh);
        h = multiply(r, oracle_tape_sigmoid(&r->tape, a[3]), oracle_tape_tanh(&r->tape, next[units + u]));
    }
    next[u] = h;
}

static void cell_token(run *r, const oracle_rnn *rnn, size_t t, size_t *s, const double *dy)
{
    const size_t units = rnn->hidden, rows = rnn->gates * units;
    size_t *p = calloc(rows + 2 * units + 1, sizeof *p), *next = p + rows;

    for (size_t f = 0; f < rows; f++) {
        p[f] = r->first[ORACLE_RNN_BIAS] + f;
        for (size_t j = 0; j < units; j++)
            p[f] = add(r, p[f], multiply(r, r->first[ORACLE_RNN_WEIGHT] + f * units + j, s[j]));
    }
    memcpy(next, s, 2 * units * sizeof *next);
    for (size_t u = 0; u < units; u++)
        cell_unit(r, rnn, t, u, p, s, next);
    memcpy(s, next, 2 * units * sizeof *s);
    reach_all(r, dy + t * units, s, units);
    free(p);
}

void oracle_rnn_backward(const oracle_sequences *of, const oracle_rnn *rnn, const oracle_reach *reach,
                         oracle_gradient *to)
{
    const size_t units = rnn->hidden, rows = rnn->gates * units,
                 slot = (rnn->kind == ORACLE_LSTM ? 2 : 1) * units;
    kept_state *states = calloc(of->count + 1, sizeof *states);
    size_t *s = calloc(2 * units + 1, sizeof *s);
    run r = {0};

    put_all(&r, ORACLE_RNN_X, rnn->x, of->tokens * rows, 0);
    put_all(&r, ORACLE_RNN_WEIGHT, rnn->weight, rows * units, 0);
    put_all(&r, ORACLE_RNN_BIAS, rnn->bias, rows, 0);
    for (size_t n = 0; n < of->count; n++) {
        size_t first, count;

        states[n].fine = begin(&r, of, n, slot, &first, &count, &states[n].first);
        for (size_t i = 0; states[n].fine && i < slot; i++)
            s[i] = states[n].first + i;
        for (size_t i = 0; i < count; i++)
            cell_token(&r, rnn, rnn->reverse ? first + count - 1 - i : first + i, s, reach->dy);
        if (states[n].fine && reach->dnext)
            reach_all(&r, reach->dnext + n * slot, s, slot);
    }
    oracle_tape_run(&r.tape);
    take(&r, r.first[ORACLE_RNN_X], of->tokens * rows, &to[ORACLE_RNN_X]);
    take(&r, r.first[ORACLE_RNN_WEIGHT], rows * units, &to[ORACLE_RNN_WEIGHT]);
    take(&r, r.first[ORACLE_RNN_BIAS], rows, &to[ORACLE_RNN_BIAS]);
    for (size_t n = 0; n < of->count; n++)
        take_state(&r, n, slot, states[n].fine, states[n].first, &to[ORACLE_RNN_STATE]);
    oracle_tape_free(&r.tape);
    free(states);
    free(s);
}
