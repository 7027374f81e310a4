/* ssm_conv_backward.c - gradients of causal depthwise convolutions: a channel over all sequences. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/gradient.h"

/* A channel: inputs of a sequence from its state on, what reaches them, and what reaches its sums. */
typedef struct channel {
    const mica__cpu_view *view;
    uint64_t c, width;
    uint32_t activation;
    double *in, *din, *ds, *weight, *dweight, dbias;
} channel;

static void load_inputs(const channel *h, const stretch *s)
{
    const mica__cpu_view *x = &h->view[MICA__SSM_CONV_BACKWARD_X],
                         *state = &h->view[MICA__SSM_CONV_BACKWARD_STATE];
    const uint64_t kept = h->width - 1;
    for (uint64_t j = 0; j < kept; j++)
        h->in[j] =
            s->from != NULL ? real_at(state, s->from + h->c * state->stride[1] + j * state->stride[2]) : 0.0;
    for (uint64_t t = 0; t < s->count; t++)
        h->in[kept + t] = real2(x, s->first + t, h->c, 0.0);
}

/* The slope of the activation at each sum times what reaches it. */
static void load_sums(const channel *h, const stretch *s)
{
    const double bias = real1(&h->view[MICA__SSM_CONV_BACKWARD_BIAS], h->c, 0.0);
    for (uint64_t t = 0; t < s->count; t++) {
        double sum = bias, slope = 1.0;
        for (uint64_t k = 0; k < h->width; k++)
            sum += h->weight[k] * h->in[t + k];
        if (h->activation == MICA_SSM_SILU) {
            const double part = sigmoid(sum);
            slope = part * (1.0 + sum * (1.0 - part));
        }
        h->ds[t] = slope * real2(&h->view[MICA__SSM_CONV_BACKWARD_DY], s->first + t, h->c, 0.0);
    }
}

static void run_stretch(channel *h, uint64_t n, const stretch *s)
{
    const mica__cpu_view *dnext = &h->view[MICA__SSM_CONV_BACKWARD_DNEXT];
    const uint64_t kept = h->width - 1;
    load_inputs(h, s);
    load_sums(h, s);
    for (uint64_t j = 0; j < kept + s->count; j++)
        h->din[j] = j >= s->count && dnext->data != NULL ? real3(dnext, n, h->c, j - s->count) : 0.0;
    for (uint64_t t = 0; t < s->count; t++) {
        h->dbias += h->ds[t];
        for (uint64_t k = 0; k < h->width; k++) {
            h->dweight[k] += h->ds[t] * h->in[t + k];
            h->din[t + k] += h->ds[t] * h->weight[k];
        }
    }
    for (uint64_t t = 0; t < s->count; t++)
        put2(&h->view[MICA__SSM_CONV_BACKWARD_DX], s->first + t, h->c, h->din[kept + t]);
}

static void run_channel(const mica__cpu_args *args, channel *h)
{
    const mica__cpu_conv_backward *params = args->params;
    const mica__cpu_view *weight = &h->view[MICA__SSM_CONV_BACKWARD_WEIGHT];
    h->dbias = 0;
    for (uint64_t k = 0; k < h->width; k++) {
        h->weight[k] = real2(weight, h->c, k, 0.0);
        h->dweight[k] = 0;
    }
    for (uint64_t n = 0; n < params->split.count; n++) {
        const stretch s = stretch_of(args, &params->split, n);
        if (s.fine)
            run_stretch(h, n, &s);
        for (uint64_t j = 0; j + 1 < h->width; j++)
            put3(&h->view[MICA__SSM_CONV_BACKWARD_DSTATE], n, h->c, j, s.fine ? h->din[j] : 0.0);
    }
    for (uint64_t k = 0; k < h->width; k++)
        put2(&h->view[MICA__SSM_CONV_BACKWARD_DWEIGHT], h->c, k, h->dweight[k]);
    put1(&h->view[MICA__SSM_CONV_BACKWARD_DBIAS], h->c, h->dbias);
}

void MICA__ISA(ssm_conv_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv_backward *params = args->params;
    const mica__cpu_view *weight = &args->view[MICA__SSM_CONV_BACKWARD_WEIGHT];
    const uint64_t end = mica__cpu_rows_end(&params->range, last), longest = params->split.longest;
    channel h = {.view = args->view, .width = weight->shape[1], .activation = params->activation};
    h.in = args->local;
    h.din = h.in + longest + h.width;
    h.ds = h.din + longest + h.width;
    h.weight = h.ds + longest;
    h.dweight = h.weight + h.width;
    for (h.c = mica__cpu_rows_begin(&params->range, first); h.c < end; h.c++) {
        if (h.c == weight->shape[0])
            clear_gaps(args, &params->split, MICA__SSM_CONV_BACKWARD_DX, MICA__SSM_CONV_BACKWARD_DX);
        else
            run_channel(args, &h);
    }
}
