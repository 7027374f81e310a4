/*
 * rnn_backward.c - gradients of recurrent cells: a sequence forward, whose gates are kept in the scratch, and back; then rows of the weight, each a sum over
 * all tokens in their order.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/lanes.h"

/* A sequence. Of a token the scratch has: dp [F], what reaches the sums of the weight; h and c before; gates, up to four; p_n, of GRU. */
typedef struct cell {
    const mica__cpu_view *view;
    uint32_t kind;
    uint64_t units, gates, kept; /* kept: rows of a state */
    double *room;
    double *weight, *bias; /* [F, H], [F] */
    double *h, *c, *dh, *dc, *sums;
} cell;

enum { DP = 0, BEFORE = 4, BEFORE_C = 5, GATES = 6, P_N = 10 }; /* times units */

static double *token_room(const cell *s, uint64_t t, uint32_t part)
{
    return s->room + (t * MICA__CPU_RNN_KEPT + part) * s->units;
}

/* Four sums, vector by vector in turn, whatever n is. */
static double dot(const double *a, const double *b, uint64_t n)
{
    vd sum[4] = {vd_set1(0), vd_set1(0), vd_set1(0), vd_set1(0)};
    double rest = 0;
    uint64_t j = 0;
    for (; j + 4 * LANES <= n; j += 4 * LANES)
        for (uint32_t k = 0; k < 4; k++)
            sum[k] = vd_fma(lanes_load(a + j + k * LANES), lanes_load(b + j + k * LANES), sum[k]);
    for (; j < n; j++)
        rest += a[j] * b[j];
    return lanes_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

/* weight h + bias */
static void add_up(const cell *s)
{
    for (uint64_t f = 0; f < s->gates * s->units; f++)
        s->sums[f] = s->bias[f] + dot(s->weight + f * s->units, s->h, s->units);
}

/* One unit of a token forward. */
static void go_forward(const cell *s, uint64_t t, uint64_t u)
{
    double in[4] = {0}, sum[4] = {0}, *gate = token_room(s, t, GATES) + u;
    const uint64_t n = s->units;
    for (uint64_t g = 0; g < s->gates; g++) {
        in[g] = real2(&s->view[MICA__RNN_BACKWARD_X], t, g * n + u, 0.0);
        sum[g] = s->sums[g * n + u];
    }
    token_room(s, t, BEFORE)[u] = s->h[u];
    token_room(s, t, BEFORE_C)[u] = s->c[u];
    if (s->kind == MICA_RNN_TANH || s->kind == MICA_RNN_RELU) {
        const double all = in[0] + sum[0];
        gate[0] = s->kind == MICA_RNN_TANH ? tanh(all) : all < 0 ? 0.0 : all;
    } else if (s->kind == MICA_RNN_GRU) {
        token_room(s, t, P_N)[u] = sum[2];
        gate[0] = sigmoid(in[0] + sum[0]);
        gate[n] = sigmoid(in[1] + sum[1]);
        gate[2 * n] = tanh(in[2] + gate[0] * sum[2]);
    } else {
        for (uint64_t g = 0; g < 4; g++)
            gate[g * n] = g == 2 ? tanh(in[g] + sum[g]) : sigmoid(in[g] + sum[g]);
    }
}

/* h and c behind the token; not before all units have read h. */
static void step_unit(const cell *s, uint64_t t, uint64_t u)
{
    const double *gate = token_room(s, t, GATES) + u;
    const uint64_t n = s->units;
    if (s->kind == MICA_RNN_GRU) {
        s->h[u] = (1 - gate[n]) * gate[2 * n] + gate[n] * s->h[u];
    } else if (s->kind == MICA_RNN_LSTM) {
        s->c[u] = gate[n] * s->c[u] + gate[0] * gate[2 * n];
        s->h[u] = gate[3 * n] * tanh(s->c[u]);
    } else {
        s->h[u] = gate[0];
    }
}

/* What reaches the inputs of a unit's gates, and dh, dc but for what comes through the weight. */
static void go_back(const cell *s, uint64_t t, uint64_t u)
{
    const double *gate = token_room(s, t, GATES) + u, before = token_room(s, t, BEFORE)[u];
    const uint64_t n = s->units;
    const double dh = s->dh[u] + real2(&s->view[MICA__RNN_BACKWARD_DY], t, u, 0.0);
    double dx[4] = {0}, dp[4];
    s->dh[u] = 0;
    if (s->kind == MICA_RNN_TANH) {
        dx[0] = dh * (1 - gate[0] * gate[0]);
    } else if (s->kind == MICA_RNN_RELU) {
        dx[0] = gate[0] > 0 ? dh : 0.0;
    } else if (s->kind == MICA_RNN_GRU) {
        const double r = gate[0], z = gate[n], new = gate[2 * n];
        dx[2] = dh * (1 - z) * (1 - new *new);
        dx[1] = dh * (before - new) * z * (1 - z);
        dx[0] = dx[2] * token_room(s, t, P_N)[u] * r * (1 - r);
        s->dh[u] = dh * z;
    } else {
        const double i = gate[0], f = gate[n], g = gate[2 * n], o = gate[3 * n];
        const double c = token_room(s, t, BEFORE_C)[u], turned = tanh(f * c + i * g);
        const double dc = s->dc[u] + dh * o * (1 - turned * turned);
        dx[0] = dc * g * i * (1 - i);
        dx[1] = dc * c * f * (1 - f);
        dx[2] = dc * i * (1 - g * g);
        dx[3] = dh * turned * o * (1 - o);
        s->dc[u] = dc * f;
    }
    for (uint64_t g = 0; g < s->gates; g++) {
        dp[g] = s->kind == MICA_RNN_GRU && g == 2 ? dx[g] * gate[0] : dx[g];
        put2(&s->view[MICA__RNN_BACKWARD_DX], t, g * n + u, dx[g]);
        token_room(s, t, DP)[g * n + u] = dp[g];
    }
}

/* to += the sum of `rows` rows of n, each times a number of dp, row by row. */
static void add_rows(const double *row, const double *dp, uint64_t rows, uint64_t n, double *to)
{
    uint64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        vd sum = lanes_load(to + j);
        for (uint64_t r = 0; r < rows; r++)
            sum = vd_fma(lanes_load(row + r * n + j), vd_set1(dp[r]), sum);
        lanes_store(to + j, sum);
    }
    for (; j < n; j++)
        for (uint64_t r = 0; r < rows; r++)
            to[j] += row[r * n + j] * dp[r];
}

#define ROWS 8u /* that pass together */

/* dh gets weight^T dp. */
static void through_weight(const cell *s, uint64_t t)
{
    const double *dp = token_room(s, t, DP);
    const uint64_t all = s->gates * s->units;
    for (uint64_t f = 0; f < all; f += ROWS)
        add_rows(s->weight + f * s->units, dp + f, all - f < ROWS ? all - f : ROWS, s->units, s->dh);
}

static void load_state(const cell *s, uint64_t n, const stretch *of)
{
    const mica__cpu_view *state = &s->view[MICA__RNN_BACKWARD_STATE],
                         *dnext = &s->view[MICA__RNN_BACKWARD_DNEXT];
    for (uint64_t i = 0; i < 2 * s->units; i++) {
        const uint64_t k = i / s->units, u = i % s->units;
        const bool has = k < s->kept;
        (k == 0 ? s->h : s->c)[u] =
            has && of->from != NULL ? real_at(state, of->from + k * state->stride[1] + u * state->stride[2])
                                    : 0.0;
        (k == 0 ? s->dh : s->dc)[u] = has && of->fine && dnext->data != NULL ? real3(dnext, n, k, u) : 0.0;
    }
}

static void run_sequence(const cell *s, uint64_t n, const stretch *of, bool reverse)
{
    load_state(s, n, of);
    for (uint64_t i = 0; i < of->count; i++) {
        const uint64_t t = reverse ? of->first + of->count - 1 - i : of->first + i;
        add_up(s);
        for (uint64_t u = 0; u < s->units; u++)
            go_forward(s, t, u);
        for (uint64_t u = 0; u < s->units; u++)
            step_unit(s, t, u);
    }
    for (uint64_t i = of->count; i-- > 0;) {
        const uint64_t t = reverse ? of->first + of->count - 1 - i : of->first + i;
        for (uint64_t u = 0; u < s->units; u++)
            go_back(s, t, u);
        through_weight(s, t);
    }
    for (uint64_t i = 0; i < s->kept * s->units; i++)
        put3(&s->view[MICA__RNN_BACKWARD_DSTATE], n, i / s->units, i % s->units,
             (i < s->units ? s->dh : s->dc)[i % s->units]);
}

/* Tokens that no sequence has give nothing to the weight either. */
static void clear_rest(const mica__cpu_args *args, const cell *s)
{
    const mica__cpu_split *split = &((const mica__cpu_rnn_backward *)args->params)->split;
    uint64_t n = 0, at = 0, begin, end;
    clear_gaps(args, split, MICA__RNN_BACKWARD_DX, MICA__RNN_BACKWARD_DX);
    while (next_gap(args, split, &n, &at, &begin, &end))
        for (uint64_t t = begin; t < end; t++)
            memset(token_room(s, t, 0), 0, MICA__CPU_RNN_KEPT * s->units * sizeof(double));
}

static void load_weight(const cell *s)
{
    const mica__cpu_view *weight = &s->view[MICA__RNN_BACKWARD_WEIGHT];
    for (uint64_t f = 0; f < s->gates * s->units; f++) {
        s->bias[f] = real1(&s->view[MICA__RNN_BACKWARD_BIAS], f, 0.0);
        for (uint64_t j = 0; j < s->units; j++)
            s->weight[f * s->units + j] = real2(weight, f, j, 0.0);
    }
}

void MICA__ISA(rnn_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rnn_backward *params = args->params;
    const uint64_t end = mica__cpu_rows_end(&params->range, last),
                   units = args->view[MICA__RNN_BACKWARD_WEIGHT].shape[1];
    cell s = {.view = args->view, .kind = params->rnn.kind, .units = units};
    s.gates = mica__rnn_gates(s.kind);
    s.kept = s.kind == MICA_RNN_LSTM ? 2 : 1;
    s.room = (double *)(void *)args->view[MICA__RNN_BACKWARD_SLOTS].data;
    s.weight = args->local;
    s.bias = s.weight + s.gates * units * units;
    s.sums = s.bias + s.gates * units;
    s.h = s.sums + s.gates * units;
    s.c = s.h + units;
    s.dh = s.c + units;
    s.dc = s.dh + units;
    load_weight(&s);
    for (uint64_t n = mica__cpu_rows_begin(&params->range, first); n < end; n++) {
        if (n == params->split.count) {
            clear_rest(args, &s);
            continue;
        }
        const stretch of = stretch_of(args, &params->split, n);
        run_sequence(&s, n, &of, params->rnn.reverse != 0);
    }
}

/* Views: dweight, dbias, the scratch. */
void MICA__ISA(rnn_weight_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rnn_backward *params = args->params;
    const mica__cpu_view *dweight = &args->view[0], *dbias = &args->view[1], *x = &args->view[2];
    const uint64_t rows = x->shape[1], units = rows / mica__rnn_gates(params->rnn.kind);
    const cell s = {.units = units, .room = (double *)(void *)args->view[3].data};
    double *sum = args->local;
    for (uint64_t f = first; f < last; f++) {
        double bias = 0;
        memset(sum, 0, units * sizeof *sum);
        for (uint64_t t = 0; t < params->split.tokens; t++) {
            const double dp = token_room(&s, t, DP)[f], *before = token_room(&s, t, BEFORE);
            bias += dp;
            for (uint64_t j = 0; j < units; j++)
                sum[j] += dp * before[j];
        }
        put1(dbias, f, bias);
        for (uint64_t j = 0; j < units; j++)
            put2(dweight, f, j, sum[j]);
    }
}
