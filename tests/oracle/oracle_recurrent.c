/*
 * oracle_recurrent.c - ops that carry a state from token to token, from their formulas.
 */
#include "oracle/oracle_recurrent.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

/* ---- sequences ---- */

typedef struct span {
    bool fine;
    size_t first, count;
    size_t read, write;
} span;

static bool find_slot(const double *slots, size_t n, size_t count, size_t *out)
{
    const double slot = slots ? slots[n] : (double)n;

    *out = slot >= 0 ? (size_t)slot : 0;
    return slot >= 0 && slot < (double)count;
}

static span find_span(const oracle_sequences *of, size_t n)
{
    span found = {true, 0, of->tokens / of->count, 0, 0};

    found.first = n * found.count;
    if (of->starts) {
        found.fine = of->starts[n] >= 0 && of->starts[n] <= of->starts[n + 1] &&
                     of->starts[n + 1] <= (double)of->tokens;
        found.first = found.fine ? (size_t)of->starts[n] : 0;
        found.count = found.fine ? (size_t)of->starts[n + 1] - found.first : 0;
    }
    if (of->state && !find_slot(of->read_slots, n, of->state_slots, &found.read))
        found.fine = false;
    if (of->next && !find_slot(of->write_slots, n, of->next_slots, &found.write))
        found.fine = false;
    return found;
}

/* Nothing yet: tokens that nobody has are zeros, slots that nobody writes stay. */
static void begin(const oracle_sequences *of, size_t row, size_t slot, double *y, double *error)
{
    for (size_t i = 0; i < of->tokens * row; i++) {
        y[i] = 0;
        error[i] = ORACLE_EXACT;
    }
    for (size_t i = 0; of->next && i < of->next_slots * slot; i++)
        of->next_error[i] = ORACLE_EXACT;
}

/* ---- convolution ---- */

/* Inputs of a channel from the first of the state on. */
static double conv_input(const oracle_sequences *of, const oracle_conv *conv, const span *s, size_t c,
                         size_t at)
{
    const size_t kept = conv->width - 1;

    if (at >= kept)
        return conv->x[(s->first + at - kept) * conv->channels + c];
    return of->state ? of->state[(s->read * conv->channels + c) * kept + at] : 0;
}

/* A sum of width terms; silu does not stretch by more than 1.1, and has three units of its own. */
static void conv_token(const oracle_sequences *of, const oracle_conv *conv, const span *s, size_t c, size_t t,
                       double *y, double *error)
{
    double sum = conv->bias ? conv->bias[c] : 0, size = fabs(sum);

    for (size_t k = 0; k < conv->width; k++) {
        const double term = conv->weight[c * conv->width + k] * conv_input(of, conv, s, c, t + k);

        sum += term;
        size += fabs(term);
    }
    size *= 1 + 0.25 * sqrt((double)conv->width);
    *y = conv->silu ? sum / (1 + exp(-sum)) : sum;
    *error = conv->silu ? 1.1 * size + 3 * fabs(*y) : size;
    if (conv->silu && sum == -(double)INFINITY)
        *y = (double)NAN; /* -inf times 0 */
}

void oracle_ssm_conv(const oracle_sequences *of, const oracle_conv *conv, double *y, double *error)
{
    const size_t kept = conv->width - 1;

    begin(of, conv->channels, conv->channels * kept, y, error);
    for (size_t n = 0; n < of->count; n++) {
        const span s = find_span(of, n);

        for (size_t c = 0; s.fine && c < conv->channels; c++) {
            for (size_t t = 0; t < s.count; t++) {
                const size_t at = (s.first + t) * conv->channels + c;

                conv_token(of, conv, &s, c, t, &y[at], &error[at]);
            }
            for (size_t j = 0; of->next && j < kept; j++)
                of->next[(s.write * conv->channels + c) * kept + j] =
                    conv_input(of, conv, &s, c, s.count + j);
        }
    }
}

/* ---- the delta rule ---- */

/* A column of a head's state, and how far rounding may have led it astray as a vector (the root of the squares): a token multiplies
 * that by the norm of e^g (1 - beta k k^T), which is not what bounds of single elements would add up to. What is wrong with a d goes into the state
 * like d itself, in chunks too, where d solves (1 + A) d = r but for the roundings of its row.
 *
 * Chunks do not see the state between but what went into it, whose sizes are summed up as they decay: `mass`; `drift` is the same times the length of
 * the way |D|, since e^D is as wrong as D, a sum of 64 terms, is. */
typedef struct column {
    double *state, *mass, *drift; /* [dim] */
    double astray;
} column;

typedef struct token {
    const double *q, *k; /* normalised and scaled */
    double value, g, beta, skip;
    double rough; /* roundings of an element of k or q, and of a sum over dim */
    bool last;    /* of a chunk: its sums become the state */
} token;

enum { CHUNK = 64, WAY = 4 /* half the root of a chunk: roundings of a sum over its tokens */ };

static double length_of(size_t n, const double *x)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static double square(double x)
{
    return x * x;
}

/* What went into the state until now, seen from behind token t. */
static void pass_token(const oracle_delta *d, const token *t, column *c)
{
    for (size_t j = 0; j < d->dim; j++) {
        c->drift[j] = exp(t->g) * (c->drift[j] + fabs(t->g) * c->mass[j]);
        c->drift[j] = isnan(c->drift[j]) ? 0 : c->drift[j]; /* e^g is 0 */
        c->mass[j] *= exp(t->g);
    }
}

/* A sum over the elements of `with` and tokens before: two vectors and a decay each. */
static double chunk_error(const oracle_delta *d, const token *t, const column *c, const double *with)
{
    double mass = 0, drift = 0;

    for (size_t j = 0; j < d->dim; j++) {
        mass += c->mass[j] * fabs(with[j]);
        drift += c->drift[j] * fabs(with[j]);
    }
    return mass * (2 * t->rough + WAY + 4) + drift * WAY;
}

static void delta_step(const oracle_delta *d, const token *t, column *c, double *y, double *error)
{
    double known = 0, size = 0, terms = 0, fresh = 0, sum = t->skip * t->value, wrong = 0;
    const double k = length_of(d->dim, t->k), decay = exp(t->g);

    pass_token(d, t, c);
    for (size_t j = 0; j < d->dim; j++) {
        known += decay * c->state[j] * t->k[j];
        size += fabs(decay * c->state[j] * t->k[j]);
    }
    const double change = t->beta * (d->correct ? t->value - known : t->value);
    if (d->tokenwise)
        wrong += size * (t->rough + 3);
    if (d->chunked)
        wrong += chunk_error(d, t, c, t->k);
    const double off = d->correct ? fabs(t->beta) * (wrong + fabs(t->value - known)) : 0;
    for (size_t j = 0; j < d->dim; j++) {
        const double kept = fabs(decay * c->state[j]), added = fabs(t->k[j] * change);

        c->mass[j] += added;
        fresh += square((d->tokenwise ? 4 * kept : 0) + (off + fabs(change)) * fabs(t->k[j]) +
                        added * (t->rough + 2) +
                        (d->chunked && t->last ? c->mass[j] * (t->rough + WAY + 4) + c->drift[j] * WAY : 0));
        c->state[j] = decay * c->state[j] + t->k[j] * change;
        sum += c->state[j] * t->q[j];
        terms += (kept + added) * fabs(t->q[j]);
    }
    const double stretch = d->correct ? fmax(1, fabs(1 - t->beta * k * k)) : 1;
    c->astray = decay * stretch * c->astray + sqrt(fresh);
    *y = sum;
    *error = length_of(d->dim, t->q) * c->astray + 2 * fabs(t->skip * t->value) + fabs(sum) +
             (d->tokenwise ? terms * (2 * t->rough + 3) : 0) + (d->chunked ? chunk_error(d, t, c, t->q) : 0);
}

static void load_vector(const oracle_delta *d, const double *x, double scale, double *to)
{
    const double length = d->normalise ? sqrt(square(length_of(d->dim, x)) + d->eps) : 1;

    for (size_t j = 0; j < d->dim; j++)
        to[j] = x[j] / length * scale;
}

static void delta_column(const oracle_sequences *of, const oracle_delta *d, const span *s, size_t h, size_t v,
                         double *room, double *y, double *error)
{
    const size_t slot = d->heads * d->dim * d->columns, group = h / (d->heads / d->groups);
    double *q = room, *k = room + d->dim;
    column c = {room + 2 * d->dim, room + 3 * d->dim, room + 4 * d->dim, 0};

    for (size_t j = 0; j < d->dim; j++) {
        c.state[j] = of->state ? of->state[s->read * slot + (h * d->dim + j) * d->columns + v] : 0;
        c.mass[j] = fabs(c.state[j]);
        c.drift[j] = 0;
    }
    for (size_t i = s->first; i < s->first + s->count; i++) {
        const size_t at = i * d->heads + h;
        const token t = {q,
                         k,
                         d->v[at * d->columns + v],
                         d->g ? d->g[at] : 0,
                         d->beta ? d->beta[at] : 1,
                         d->skip ? d->skip[h] : 0,
                         (d->normalise ? 4 : 1) + 0.5 * sqrt((double)d->dim),
                         (i - s->first) % CHUNK == CHUNK - 1 || i + 1 == s->first + s->count};

        load_vector(d, d->q + (i * d->groups + group) * d->dim, d->scale, q);
        load_vector(d, d->k + (i * d->groups + group) * d->dim, 1, k);
        delta_step(d, &t, &c, &y[at * d->columns + v], &error[at * d->columns + v]);
    }
    for (size_t j = 0; of->next && j < d->dim; j++) {
        const size_t at = s->write * slot + (h * d->dim + j) * d->columns + v;

        of->next[at] = c.state[j];
        of->next_error[at] = s->count > 0 ? c.astray : ORACLE_EXACT;
    }
}

void oracle_delta_net(const oracle_sequences *of, const oracle_delta *d, double *y, double *error)
{
    double *room = calloc(5 * d->dim + 1, sizeof *room);

    begin(of, d->heads * d->columns, d->heads * d->dim * d->columns, y, error);
    for (size_t n = 0; room && n < of->count; n++) {
        const span s = find_span(of, n);

        for (size_t h = 0; s.fine && h < d->heads; h++)
            for (size_t v = 0; v < d->columns; v++)
                delta_column(of, d, &s, h, v, room, y, error);
    }
    free(room);
}
