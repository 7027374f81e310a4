/* oracle_image.c - convolution from the formula: every window, every tap, products added where they belong. */
#include "oracle/oracle_image.h"

#include <math.h>
#include <stdlib.h>

static size_t volume(const size_t *n)
{
    return n[0] * n[1] * n[2];
}

/* The place that tap k of window p covers; false where it is outside. */
static bool covers(const oracle_windows *w, const size_t *p, const size_t *k, size_t *place)
{
    size_t at[3];

    for (int d = 0; d < 3; d++) {
        const size_t padded = p[d] * w->stride[d] + k[d] * w->dilation[d];

        if (padded < w->low[d] || padded - w->low[d] >= w->in[d])
            return false;
        at[d] = padded - w->low[d];
    }
    *place = (at[0] * w->in[1] + at[1]) * w->in[2] + at[2];
    return true;
}

static void split(size_t index, const size_t *n, size_t *at)
{
    at[2] = index % n[2];
    at[1] = index / n[2] % n[1];
    at[0] = index / n[2] / n[1];
}

/* Products of an image, a group, an output and a channel. */
static void add_products(const oracle_conv *c, const double *x, const double *weight, double *y, double *size,
                         double *terms)
{
    const oracle_windows *w = &c->windows;

    for (size_t window = 0; window < volume(w->out); window++)
        for (size_t tap = 0; tap < volume(w->kernel); tap++) {
            size_t p[3], k[3], place;

            split(window, w->out, p);
            split(tap, w->kernel, k);
            if (!covers(w, p, k, &place))
                continue;
            const size_t from = c->transposed ? window : place, to = c->transposed ? place : window;
            y[to] += weight[tap] * x[from];
            size[to] += fabs(weight[tap] * x[from]);
            terms[to] += 1;
        }
}

void oracle_conv_run(const oracle_conv *c, double *y, double *error)
{
    const oracle_windows *w = &c->windows;
    const size_t x_places = volume(c->transposed ? w->out : w->in),
                 y_places = volume(c->transposed ? w->in : w->out), taps = volume(w->kernel);
    double *terms = calloc(y_places, sizeof *terms);

    for (size_t n = 0; n < c->batch; n++)
        for (size_t o = 0; o < c->groups * c->outputs; o++) {
            const size_t group = o / c->outputs, at = (n * c->groups * c->outputs + o) * y_places;

            for (size_t i = 0; i < y_places; i++)
                y[at + i] = error[at + i] = terms[i] = 0;
            for (size_t i = 0; i < c->channels; i++) {
                const size_t channel = group * c->channels + i;
                const size_t kernel =
                    c->transposed ? channel * c->outputs + o % c->outputs : o * c->channels + i;

                add_products(c, c->x + (n * c->groups * c->channels + channel) * x_places,
                             c->weight + kernel * taps, y + at, error + at, terms);
            }
            for (size_t i = 0; i < y_places; i++) {
                const double bias = c->bias != NULL ? c->bias[o] : 0;

                y[at + i] += bias;
                error[at + i] = (error[at + i] + fabs(bias)) * (1 + 0.25 * sqrt(terms[i] + 1));
            }
        }
    free(terms);
}

void oracle_conv_weight(const oracle_conv *c, const double *dy, double *dweight, double *error)
{
    const oracle_windows *w = &c->windows;
    const size_t places = volume(w->in), windows = volume(w->out), taps = volume(w->kernel);

    for (size_t o = 0; o < c->groups * c->outputs; o++)
        for (size_t i = 0; i < c->channels * taps; i++) {
            const size_t channel = o / c->outputs * c->channels + i / taps;
            double sum = 0, size = 0, terms = 0;

            for (size_t n = 0; n < c->batch; n++)
                for (size_t window = 0; window < windows; window++) {
                    size_t p[3], k[3], place;

                    split(window, w->out, p);
                    split(i % taps, w->kernel, k);
                    if (!covers(w, p, k, &place))
                        continue;
                    const double product = dy[(n * c->groups * c->outputs + o) * windows + window] *
                                           c->x[(n * c->groups * c->channels + channel) * places + place];
                    sum += product;
                    size += fabs(product);
                    terms += 1;
                }
            dweight[o * c->channels * taps + i] = sum;
            error[o * c->channels * taps + i] = size * (1 + 0.25 * sqrt(terms));
        }
}
