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
 * the way |D|, since e^D is as wrong as D, a sum of 64 terms, is.
 *
 * The values are long double: rows of f64 are judged by the roundings of f64, and a thousand terms that were added up in f64 have as many. */
typedef struct column {
    long double *state;   /* [dim] */
    double *mass, *drift; /* [dim] */
    double astray;
} column;

typedef struct token {
    const long double *q, *k; /* normalised and scaled */
    double value, g, beta, skip;
    double rough; /* roundings of an element of k or q, and of a sum over dim */
    bool last;    /* of a chunk: its sums become the state */
} token;

enum { CHUNK = 64, WAY = 4 /* half the root of a chunk: roundings of a sum over its tokens */ };

static long double length_of(size_t n, const long double *x)
{
    long double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrtl(sum);
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
static double chunk_error(const oracle_delta *d, const token *t, const column *c, const long double *with)
{
    double mass = 0, drift = 0;

    for (size_t j = 0; j < d->dim; j++) {
        mass += c->mass[j] * fabs((double)with[j]);
        drift += c->drift[j] * fabs((double)with[j]);
    }
    return mass * (2 * t->rough + WAY + 4) + drift * WAY;
}

static void delta_step(const oracle_delta *d, const token *t, column *c, double *y, double *error)
{
    const long double decay = expl(t->g);
    const double k = (double)length_of(d->dim, t->k);
    long double known = 0, sum = (long double)t->skip * t->value;
    double size = 0, terms = 0, fresh = 0, wrong = 0;

    pass_token(d, t, c);
    for (size_t j = 0; j < d->dim; j++) {
        const long double term = decay * c->state[j] * t->k[j];

        known += term;
        size += fabs((double)term);
    }
    const long double change = t->beta * (d->correct ? t->value - known : (long double)t->value);
    if (d->tokenwise)
        wrong += size * (t->rough + 3);
    if (d->chunked)
        wrong += chunk_error(d, t, c, t->k);
    const double off = d->correct ? fabs(t->beta) * (wrong + fabs(t->value - (double)known)) : 0;
    for (size_t j = 0; j < d->dim; j++) {
        const double kept = fabs((double)(decay * c->state[j])), added = fabs((double)(t->k[j] * change));

        c->mass[j] += added;
        fresh += square((d->tokenwise ? 4 * kept : 0) + (off + fabs((double)change)) * fabs((double)t->k[j]) +
                        added * (t->rough + 2) +
                        (d->chunked && t->last ? c->mass[j] * (t->rough + WAY + 4) + c->drift[j] * WAY : 0));
        c->state[j] = decay * c->state[j] + t->k[j] * change;
        sum += c->state[j] * t->q[j];
        terms += (kept + added) * fabs((double)t->q[j]);
    }
    const double stretch = d->correct ? fmax(1, fabs(1 - t->beta * k * k)) : 1;
    c->astray = (double)decay * stretch * c->astray + sqrt(fresh);
    *y = (double)sum;
    *error = (double)length_of(d->dim, t->q) * c->astray + 2 * fabs(t->skip * t->value) + fabs(*y) +
             (d->tokenwise ? terms * (2 * t->rough + 3) : 0) + (d->chunked ? chunk_error(d, t, c, t->q) : 0);
}

static void load_vector(const oracle_delta *d, const double *x, double scale, long double *to)
{
    for (size_t j = 0; j < d->dim; j++)
        to[j] = x[j];
    const long double whole = length_of(d->dim, to),
                      length = d->normalise ? sqrtl(whole * whole + d->eps) : 1;
    for (size_t j = 0; j < d->dim; j++)
        to[j] = to[j] / length * scale;
}

/* Decays of rows, ahead of a token that then has none. */
static void decay_rows(const oracle_delta *d, const double *g, column *c)
{
    double greatest = 0, fresh = 0;

    for (size_t j = 0; j < d->dim; j++) {
        const double decay = exp(g[j]);

        c->state[j] *= expl(g[j]);
        c->mass[j] *= decay;
        greatest = fmax(greatest, decay);
        fresh += square((3 + fabs(g[j])) * (double)c->state[j]);
    }
    c->astray = greatest * c->astray + sqrt(fresh);
}

static void delta_column(const oracle_sequences *of, const oracle_delta *d, const span *s, size_t h, size_t v,
                         long double *room, double *sizes, double *y, double *error)
{
    const size_t slot = d->heads * d->dim * d->columns, group = h / (d->heads / d->groups);
    long double *q = room, *k = room + d->dim;
    column c = {room + 2 * d->dim, sizes, sizes + d->dim, 0};

    for (size_t j = 0; j < d->dim; j++) {
        c.state[j] = of->state ? of->state[s->read * slot + (h * d->dim + j) * d->columns + v] : 0;
        c.mass[j] = fabs((double)c.state[j]);
        c.drift[j] = 0;
    }
    for (size_t i = s->first; i < s->first + s->count; i++) {
        const size_t at = i * d->heads + h;
        const token t = {q,
                         k,
                         d->v[at * d->columns + v],
                         d->g && !d->by_row ? d->g[at] : 0,
                         d->beta ? d->beta[at] : 1,
                         d->skip ? d->skip[h] : 0,
                         (d->normalise ? 4 : 1) + 0.5 * sqrt((double)d->dim),
                         (i - s->first) % CHUNK == CHUNK - 1 || i + 1 == s->first + s->count};

        if (d->by_row)
            decay_rows(d, d->g + at * d->dim, &c);
        load_vector(d, d->q + (i * d->groups + group) * d->dim, d->scale, q);
        load_vector(d, d->k + (i * d->groups + group) * d->dim, 1, k);
        delta_step(d, &t, &c, &y[at * d->columns + v], &error[at * d->columns + v]);
    }
    for (size_t j = 0; of->next && j < d->dim; j++) {
        const size_t at = s->write * slot + (h * d->dim + j) * d->columns + v;

        of->next[at] = (double)c.state[j];
        of->next_error[at] = s->count > 0 ? c.astray : ORACLE_EXACT;
    }
}

void oracle_delta_net(const oracle_sequences *of, const oracle_delta *d, double *y, double *error)
{
    long double *room = calloc(3 * d->dim + 1, sizeof *room);
    double *sizes = calloc(2 * d->dim + 1, sizeof *sizes);

    begin(of, d->heads * d->columns, d->heads * d->dim * d->columns, y, error);
    for (size_t n = 0; room && sizes && n < of->count; n++) {
        const span s = find_span(of, n);

        for (size_t h = 0; s.fine && h < d->heads; h++)
            for (size_t v = 0; v < d->columns; v++)
                delta_column(of, d, &s, h, v, room, sizes, y, error);
    }
    free(room);
    free(sizes);
}

/* ---- selective scan ---- */

/* dt, and how far it may be astray: the sum rounds, and softplus strays by a few units. */
static double scan_step(const oracle_selective *scan, size_t t, size_t c, double *out_off)
{
    const double raw = scan->dt[t * scan->channels + c] + (scan->dt_bias ? scan->dt_bias[c] : 0);
    const double dt = scan->softplus ? fmax(raw, 0) + log1p(exp(-fabs(raw))) : raw;

    *out_off = (scan->dt_bias ? fabs(raw) : 0) + (scan->softplus ? 6 * fabs(dt) : 0);
    return isnan(raw) ? raw : dt;
}

/* A place goes by itself: its error is multiplied by the decay and gets that of the decay and of what is added. */
static void scan_token(const oracle_selective *scan, size_t t, size_t c, double *h, double *astray, double *y,
                       double *error)
{
    const size_t places = scan->places, group = c / (scan->channels / scan->groups);
    const size_t at = (t * scan->groups + group) * places;
    const double x = scan->x[t * scan->channels + c], through = scan->skip ? scan->skip[c] * x : 0;
    double off, sum = 0, size = 0;
    const double dt = scan_step(scan, t, c, &off);

    for (size_t p = 0; p < places; p++) {
        const double rate = scan->a[c * places + p], decay = exp(dt * rate), in = x * scan->b[at + p];
        const double from = scan->c[at + p];

        astray[p] = decay * astray[p] + fabs(decay * h[p]) * (off * fabs(rate) + fabs(dt * rate) + 4) +
                    fabs(in) * (off + 4 * fabs(dt));
        h[p] = decay * h[p] + dt * in;
        sum += from * h[p];
        size += fabs(from) * (astray[p] + fabs(h[p]) * (1 + 0.25 * sqrt((double)places)));
    }
    sum += through;
    size += fabs(through) + fabs(sum);
    const double z = scan->z ? scan->z[t * scan->channels + c] : 0, gate = scan->z ? z / (1 + exp(-z)) : 1;
    *y = gate * sum;
    *error = fabs(gate) * size + (scan->z ? 4 * fabs(*y) : 0);
}

void oracle_selective_scan(const oracle_sequences *of, const oracle_selective *scan, double *y, double *error)
{
    const size_t places = scan->places;
    double *room = calloc(2 * places + 1, sizeof *room);

    begin(of, scan->channels, scan->channels * places, y, error);
    for (size_t n = 0; room && n < of->count; n++) {
        const span s = find_span(of, n);

        for (size_t c = 0; s.fine && c < scan->channels; c++) {
            for (size_t p = 0; p < places; p++) {
                room[p] = of->state ? of->state[(s.read * scan->channels + c) * places + p] : 0;
                room[places + p] = s.count > 0 ? 0 : ORACLE_EXACT;
            }
            for (size_t t = s.first; t < s.first + s.count; t++)
                scan_token(scan, t, c, room, room + places, &y[t * scan->channels + c],
                           &error[t * scan->channels + c]);
            for (size_t p = 0; of->next && p < places; p++) {
                of->next[(s.write * scan->channels + c) * places + p] = room[p];
                of->next_error[(s.write * scan->channels + c) * places + p] = room[places + p];
            }
        }
    }
    free(room);
}

/* ---- cells ---- */

typedef struct value {
    double is, off; /* and how many roundings it may be off by */
} value;

static value sum_of(value a, value b)
{
    const double is = a.is + b.is;
    return (value){is, a.off + b.off + (isinf(is) ? 0 : fabs(is))}; /* an infinity does not round */
}

static value product_of(value a, value b)
{
    return (value){a.is * b.is, a.off * fabs(b.is) + fabs(a.is) * b.off + 2 * fabs(a.is * b.is)};
}

/* Nowhere steeper than a quarter, nor tanh than 1; a few units of their own. */
static value sigmoid_of(value x)
{
    const double is = 1 / (1 + exp(-x.is));
    return (value){is, x.off / 4 + 5 * is};
}

static value tanh_of(value x)
{
    return (value){tanh(x.is), x.off + 4 * fabs(tanh(x.is))};
}

/* Row r of weight h + bias. */
static value cell_sum(const oracle_rnn *rnn, const value *h, size_t r)
{
    double sum = rnn->bias ? rnn->bias[r] : 0, size = fabs(sum), off = 0;

    for (size_t j = 0; j < rnn->hidden; j++) {
        const double w = rnn->weight[r * rnn->hidden + j];

        sum += w * h[j].is;
        size += fabs(w * h[j].is);
        off += fabs(w) * h[j].off;
    }
    return (value){sum, off + size * (1 + 0.25 * sqrt((double)rnn->hidden)) + fabs(sum)};
}

/* Unit u of a token: h, c before, `p` all sums. */
static void cell_unit(const oracle_rnn *rnn, size_t t, size_t u, const value *p, value *h, value *c)
{
    value in[4], a[4];

    for (size_t g = 0; g < rnn->gates; g++) {
        in[g] = (value){rnn->x[t * rnn->gates * rnn->hidden + g * rnn->hidden + u], 0};
        a[g] = sum_of(in[g], p[g * rnn->hidden + u]);
    }
    if (rnn->kind == ORACLE_TANH)
        *h = tanh_of(a[0]);
    else if (rnn->kind == ORACLE_RELU)
        *h = (value){a[0].is < 0 ? 0 : a[0].is, a[0].off};
    else if (rnn->kind == ORACLE_GRU) {
        const value z = sigmoid_of(a[1]), rest = {1 - z.is, z.off + 1};
        const value n = tanh_of(sum_of(in[2], product_of(sigmoid_of(a[0]), p[2 * rnn->hidden + u])));

        *h = sum_of(product_of(rest, n), product_of(z, *h));
    } else {
        *c = sum_of(product_of(sigmoid_of(a[1]), *c), product_of(sigmoid_of(a[0]), tanh_of(a[2])));
        *h = product_of(sigmoid_of(a[3]), tanh_of(*c));
    }
}

static void cell_sequence(const oracle_sequences *of, const oracle_rnn *rnn, const span *s, value *h,
                          double *y, double *error)
{
    const size_t units = rnn->hidden, kept = rnn->kind == ORACLE_LSTM ? 2 : 1;
    value *p = h + 2 * units;

    for (size_t u = 0; u < 2 * units; u++)
        h[u] = (value){of->state && u < kept * units ? of->state[s->read * kept * units + u] : 0, 0};
    for (size_t i = 0; i < s->count; i++) {
        const size_t t = rnn->reverse ? s->first + s->count - 1 - i : s->first + i;

        for (size_t r = 0; r < rnn->gates * units; r++)
            p[r] = cell_sum(rnn, h, r);
        for (size_t u = 0; u < units; u++) {
            cell_unit(rnn, t, u, p, &h[u], &h[units + u]);
            y[t * units + u] = h[u].is;
            error[t * units + u] = h[u].off;
        }
    }
    for (size_t u = 0; of->next && u < kept * units; u++) {
        of->next[s->write * kept * units + u] = h[u].is;
        of->next_error[s->write * kept * units + u] = s->count > 0 ? h[u].off : ORACLE_EXACT;
    }
}

void oracle_rnn_run(const oracle_sequences *of, const oracle_rnn *rnn, double *y, double *error)
{
    value *room = calloc((2 + rnn->gates) * rnn->hidden + 1, sizeof *room);

    begin(of, rnn->hidden, (rnn->kind == ORACLE_LSTM ? 2 : 1) * rnn->hidden, y, error);
    for (size_t n = 0; room && n < of->count; n++) {
        const span s = find_span(of, n);

        if (s.fine)
            cell_sequence(of, rnn, &s, room, y, error);
    }
    free(room);
}
