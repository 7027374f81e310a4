/*
 * rnn.c - recurrent cells. A unit is a few sequences that go in step, so that a row of the weight is read once for all of them; a sum has the same
 * order however many they are. For f64 the same in plain C, a sequence at a time.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/sequences.h"
#include "backend/cpu/kernels/rows.h"

#define TOGETHER MICA__CPU_RNN_SEQUENCES

/* Sequences of a unit, those with the most tokens anywhere, and the thread's memory: rows of `padded` floats. */
typedef struct cells {
    const mica__cpu_view *view;
    uint32_t kind, reverse;
    uint64_t hidden, padded, gates;
    uint64_t count; /* of sequences */
    sequence of[TOGETHER];
    float *row; /* of the weight */
    float *h[TOGETHER], *c[TOGETHER];
    float *sums[TOGETHER]; /* [gates] rows: weight h + bias */
    float *in;             /* [gates] rows: x of a token */
} cells;

static vf sigmoid(vf x)
{
    const vf e = vf_exp(vf_neg(vf_abs(x))), one = vf_set1(1.0f);
    return vf_div(vf_select(vf_lt(x, vf_zero()), e, one), vf_add(one, e));
}

/* The token that is a sequence's `step`. */
static uint64_t token_at(const cells *s, const sequence *of, uint64_t step)
{
    return s->reverse != 0 ? of->first + of->count - 1 - step : of->first + step;
}

static float dot(const float *a, const float *b, uint64_t padded)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    uint64_t i = 0;
    for (; i + 4 * VW <= padded; i += 4 * VW)
        for (int p = 0; p < 4; p++)
            sum[p] = vf_fma(vf_load(a + i + p * VW), vf_load(b + i + p * VW), sum[p]);
    for (int p = 0; i < padded; i += VW, p++)
        sum[p] = vf_fma(vf_load(a + i), vf_load(b + i), sum[p]);
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* weight h + bias of all sequences that have a token left. */
static void find_sums(const cells *s, uint64_t step)
{
    const mica__cpu_view *weight = &s->view[MICA__RNN_WEIGHT], *bias = &s->view[MICA__RNN_BIAS];
    for (uint64_t g = 0; g < s->gates; g++)
        for (uint64_t u = 0; u < s->hidden; u++) {
            const uint64_t r = g * s->hidden + u;
            const float *row =
                row_f32(weight->data + r * weight->stride[0], weight->dtype, s->hidden, s->row);
            const float add =
                bias->data != NULL ? row_element(bias->data + r * bias->stride[0], bias->dtype) : 0.0f;
            if (row != s->row)
                memcpy(s->row, row, s->hidden * sizeof *s->row);
            for (uint64_t n = 0; n < s->count; n++)
                if (step < s->of[n].count)
                    s->sums[n][g * s->padded + u] = dot(s->row, s->h[n], s->padded) + add;
        }
}

/* VW units of one sequence: x and the sums of all gates to h and c. */
static void run_units(const cells *s, const float *in, const float *sums, float *h, float *c)
{
    const uint64_t p = s->padded;
    const vf first = vf_add(vf_load(in), vf_load(sums));
    if (s->kind == MICA_RNN_TANH) {
        vf_store(h, vf_tanh(first));
    } else if (s->kind == MICA_RNN_RELU) {
        vf_store(h, vf_greatest(first, vf_zero()));
    } else if (s->kind == MICA_RNN_GRU) {
        const vf r = sigmoid(first), z = sigmoid(vf_add(vf_load(in + p), vf_load(sums + p)));
        const vf n = vf_tanh(vf_fma(r, vf_load(sums + 2 * p), vf_load(in + 2 * p)));
        vf_store(h, vf_fma(z, vf_load(h), vf_mul(vf_sub(vf_set1(1.0f), z), n)));
    } else {
        const vf f = sigmoid(vf_add(vf_load(in + p), vf_load(sums + p)));
        const vf g = vf_tanh(vf_add(vf_load(in + 2 * p), vf_load(sums + 2 * p)));
        const vf o = sigmoid(vf_add(vf_load(in + 3 * p), vf_load(sums + 3 * p)));
        const vf cell = vf_fma(f, vf_load(c), vf_mul(sigmoid(first), g));
        vf_store(c, cell);
        vf_store(h, vf_mul(o, vf_tanh(cell)));
    }
}

static void run_step(const cells *s, uint64_t n, uint64_t step)
{
    const mica__cpu_view *x = &s->view[MICA__RNN_X], *y = &s->view[MICA__RNN_Y];
    const uint64_t t = token_at(s, &s->of[n], step);
    for (uint64_t g = 0; g < s->gates; g++) {
        const unsigned char *from = x->data + t * x->stride[0] + g * s->hidden * row_element_bytes(x->dtype);
        const float *row = row_f32(from, x->dtype, s->hidden, s->in + g * s->padded);
        if (row != s->in + g * s->padded)
            memcpy(s->in + g * s->padded, row, s->hidden * sizeof *row);
    }
    for (uint64_t u = 0; u < s->hidden; u += VW)
        run_units(s, s->in + u, s->sums[n] + u, s->h[n] + u, s->c[n] + u);
    memset(s->h[n] + s->hidden, 0, (s->padded - s->hidden) * sizeof(float)); /* sums go over whole vectors */
    row_store(y->data + t * y->stride[0], y->dtype, s->h[n], s->hidden);
}

static void load_states(const cells *s)
{
    const mica__cpu_view *state = &s->view[MICA__RNN_STATE];
    for (uint64_t n = 0; n < s->count; n++) {
        const unsigned char *from = s->of[n].from;
        memset(s->h[n], 0, s->padded * sizeof(float));
        memset(s->c[n], 0, s->padded * sizeof(float));
        if (from != NULL)
            memcpy(s->h[n], from, s->hidden * sizeof(float));
        if (from != NULL && s->kind == MICA_RNN_LSTM)
            memcpy(s->c[n], from + state->stride[1], s->hidden * sizeof(float));
    }
}

static void store_states(const cells *s)
{
    const mica__cpu_view *next = &s->view[MICA__RNN_NEXT_STATE];
    for (uint64_t n = 0; n < s->count; n++) {
        if (s->of[n].to == NULL)
            continue;
        memcpy(s->of[n].to, s->h[n], s->hidden * sizeof(float));
        if (s->kind == MICA_RNN_LSTM)
            memcpy(s->of[n].to + next->stride[1], s->c[n], s->hidden * sizeof(float));
    }
}

static void run_together(const cells *s)
{
    uint64_t longest = 0;
    for (uint64_t n = 0; n < s->count; n++)
        longest = s->of[n].count > longest ? s->of[n].count : longest;
    load_states(s);
    for (uint64_t step = 0; step < longest; step++) {
        find_sums(s, step);
        for (uint64_t n = 0; n < s->count; n++)
            if (step < s->of[n].count)
                run_step(s, n, step);
    }
    store_states(s);
}

void MICA__ISA(rnn)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rnn *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const uint64_t end = mica__cpu_rows_end(&params->range, last),
                   blocks = (of->count + TOGETHER - 1) / TOGETHER;
    cells s = {.view = args->view, .kind = params->rnn.kind, .reverse = params->rnn.reverse};
    s.hidden = args->view[MICA__RNN_WEIGHT].shape[1];
    s.padded = mica__cpu_delta_padded(s.hidden);
    s.gates = mica__rnn_gates(s.kind);
    s.row = args->local;
    s.in = s.row + s.padded;
    memset(s.row, 0, s.padded * sizeof *s.row);
    memset(s.in, 0, s.gates * s.padded * sizeof *s.in);
    for (uint64_t n = 0; n < TOGETHER; n++) {
        s.h[n] = s.in + s.gates * s.padded + n * (2 + s.gates) * s.padded;
        s.c[n] = s.h[n] + s.padded;
        s.sums[n] = s.c[n] + s.padded;
        memset(s.sums[n], 0, s.gates * s.padded * sizeof(float));
    }
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == blocks) {
            sequence_gaps(args, of);
            continue;
        }
        s.count = 0;
        for (uint64_t n = row * TOGETHER; n < of->count && n < (row + 1) * TOGETHER; n++) {
            const sequence found = sequence_of(args, of, n);
            if (found.fine)
                s.of[s.count++] = found;
        }
        run_together(&s);
    }
}

/* ---- f64 ---- */

static double wide_at(const unsigned char *from, uint64_t i)
{
    double value;
    memcpy(&value, from + i * sizeof value, sizeof value);
    return value;
}

static double wide_sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1 + e);
}

/* h, c and `sums`, [gates, hidden], of one sequence. */
static void wide_token(const mica__cpu_view *view, uint32_t kind, uint64_t t, double *h, double *c,
                       double *sums)
{
    const mica__cpu_view *weight = &view[MICA__RNN_WEIGHT], *bias = &view[MICA__RNN_BIAS],
                         *y = &view[MICA__RNN_Y];
    const unsigned char *x = view[MICA__RNN_X].data + t * view[MICA__RNN_X].stride[0];
    const uint64_t rows = weight->shape[0], hidden = weight->shape[1];
    for (uint64_t r = 0; r < rows; r++) {
        sums[r] = bias->data != NULL ? wide_at(bias->data + r * bias->stride[0], 0) : 0.0;
        for (uint64_t j = 0; j < hidden; j++)
            sums[r] += wide_at(weight->data + r * weight->stride[0], j) * h[j];
    }
    for (uint64_t u = 0; u < hidden; u++) {
        const double in = wide_at(x, u) + sums[u];
        if (kind == MICA_RNN_TANH) {
            h[u] = tanh(in);
        } else if (kind == MICA_RNN_RELU) {
            h[u] = in < 0 ? 0.0 : in;
        } else if (kind == MICA_RNN_GRU) {
            const double z = wide_sigmoid(wide_at(x, hidden + u) + sums[hidden + u]);
            const double n = tanh(wide_at(x, 2 * hidden + u) + wide_sigmoid(in) * sums[2 * hidden + u]);
            h[u] = (1 - z) * n + z * h[u];
        } else {
            c[u] = wide_sigmoid(wide_at(x, hidden + u) + sums[hidden + u]) * c[u] +
                   wide_sigmoid(in) * tanh(wide_at(x, 2 * hidden + u) + sums[2 * hidden + u]);
            h[u] = wide_sigmoid(wide_at(x, 3 * hidden + u) + sums[3 * hidden + u]) * tanh(c[u]);
        }
    }
    memcpy(y->data + t * y->stride[0], h, hidden * sizeof *h);
}

static void wide_sequence(const mica__cpu_view *view, const mica_rnn_params *rnn, const sequence *s,
                          double *h)
{
    const uint64_t hidden = view[MICA__RNN_WEIGHT].shape[1], kept = rnn->kind == MICA_RNN_LSTM ? 2 : 1;
    memset(h, 0, 2 * hidden * sizeof *h);
    for (uint64_t k = 0; s->from != NULL && k < kept; k++)
        memcpy(h + k * hidden, s->from + k * view[MICA__RNN_STATE].stride[1], hidden * sizeof *h);
    for (uint64_t i = 0; i < s->count; i++)
        wide_token(view, rnn->kind, rnn->reverse != 0 ? s->first + s->count - 1 - i : s->first + i, h,
                   h + hidden, h + 2 * hidden);
    for (uint64_t k = 0; s->to != NULL && k < kept; k++)
        memcpy(s->to + k * view[MICA__RNN_NEXT_STATE].stride[1], h + k * hidden, hidden * sizeof *h);
}

void MICA__ISA(rnn_wide)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rnn *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const uint64_t end = mica__cpu_rows_end(&params->range, last),
                   blocks = (of->count + TOGETHER - 1) / TOGETHER;
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == blocks) {
            sequence_gaps(args, of);
            continue;
        }
        for (uint64_t n = row * TOGETHER; n < of->count && n < (row + 1) * TOGETHER; n++) {
            const sequence s = sequence_of(args, of, n);
            if (s.fine)
                wide_sequence(args->view, &params->rnn, &s, args->local);
        }
    }
}
