/*
 * rnn.c - recurrent cells. The sequences of a block go in step, so that the weight is read once for all of them, and threads share its rows; a sum has
 * the same order however many there are of either. For f64 the same in plain C, a sequence at a time.
 */
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/sequences.h"

_Static_assert(sizeof(sequence) <= MICA__CPU_SEQUENCE_BYTES, "the plan reserves too little");

/* A block, as one thread sees it. */
typedef struct cells {
    const mica__cpu_view *view;
    const mica__cpu_rnn *params;
    uint32_t kind;
    uint64_t hidden, padded, gates;
    mica__cpu_rounds *rounds;
    mica__cpu_rnn_head *head;
    sequence *of; /* those with the most tokens first */
    float *bias;  /* [gates] rows */
    float *h[2];  /* [together] rows, before and behind a token in turn */
    float *c;
    float *sums, *packed, *lines, *partial; /* the thread's own */
} cells;

static vf sigmoid(vf x)
{
    const vf e = vf_exp(vf_neg(vf_abs(x))), one = vf_set1(1.0f);
    return vf_div(vf_select(vf_lt(x, vf_zero()), e, one), vf_add(one, e));
}

/* The token that is a sequence's `step`. */
static uint64_t token_at(const cells *s, const sequence *of, uint64_t step)
{
    return s->params->rnn.reverse != 0 ? of->first + of->count - 1 - step : of->first + step;
}

/* ---- sums ---- */

/* Rows of h a few at a time, the weight as it lies. */
static void dot_few(const cells *s, const float *h, uint64_t rows, const unsigned char *weight,
                    uint64_t units, uint64_t ld, float *out)
{
    const mica__cpu_view *w = &s->view[MICA__RNN_WEIGHT];
    const uint64_t parts = (rows + MICA__DENSE_DOTS - 1) / MICA__DENSE_DOTS;
    for (uint64_t i = 0; i < parts; i++) {
        const uint64_t row = mica__dense_cut(rows, parts, i);
        const gemm_dots dots = {.x = h + row * s->padded,
                                .x_stride = s->padded,
                                .k = s->hidden,
                                .w = weight,
                                .w_stride = w->stride[0],
                                .dtype = w->dtype,
                                .out = out + row * ld,
                                .ld = ld};
        gemm_dot(&dots, mica__dense_cut(rows, parts, i + 1) - row, units);
    }
}

static void pack_rows(const cells *s, const float *h, uint64_t rows)
{
    const uint64_t panels = gemm_row_panels(rows), steps = gemm_steps(s->hidden);
    for (uint64_t panel = 0; panel < panels; panel++) {
        const uint64_t from = mica__dense_cut(rows, panels, panel),
                       to = mica__dense_cut(rows, panels, panel + 1);
        for (uint64_t i = from; i < to; i++)
            gemm_pack_row(h + i * s->padded, MICA_DTYPE_F32, s->hidden, (uint32_t)(i - from),
                          (uint32_t)(to - from), s->packed + from * steps * VW);
    }
}

/* weight h of the first `rows` sequences and some units: sums[gate][row][unit], rows gemm_out_stride(units) apart. */
static void find_sums(const cells *s, const float *h, uint64_t rows, uint64_t first, uint64_t units)
{
    const mica__cpu_view *w = &s->view[MICA__RNN_WEIGHT];
    const uint64_t ld = gemm_out_stride(units),
                   few = w->dtype == MICA_DTYPE_F32 ? MICA__DENSE_FEW_F32 : MICA__DENSE_FEW;
    if (rows > few)
        pack_rows(s, h, rows);
    for (uint64_t g = 0; g < s->gates; g++) {
        const unsigned char *from = w->data + (g * s->hidden + first) * w->stride[0];
        float *out = s->sums + g * rows * ld;
        const gemm_block b = {.x = s->packed,
                              .rows = rows,
                              .k = s->hidden,
                              .w = from,
                              .columns = units,
                              .w_stride = w->stride[0],
                              .dtype = w->dtype,
                              .lines = s->lines,
                              .partial = s->partial,
                              .out = out};
        if (rows > few)
            gemm_run(&b);
        else
            dot_few(s, h, rows, from, units, ld, out);
    }
}

/* ---- gates ---- */

/* A vector of units of one sequence: inputs and sums of all gates, h and c before; h behind, and c in place. */
static vf run_gates(uint32_t kind, const vf *in, const vf *sum, vf h, vf *c)
{
    const vf first = vf_add(in[0], sum[0]);
    if (kind == MICA_RNN_TANH)
        return vf_tanh(first);
    if (kind == MICA_RNN_RELU)
        return vf_greatest(first, vf_zero());
    if (kind == MICA_RNN_GRU) {
        const vf r = sigmoid(first), z = sigmoid(vf_add(in[1], sum[1]));
        const vf n = vf_tanh(vf_fma(r, sum[2], in[2]));
        return vf_fma(z, h, vf_mul(vf_sub(vf_set1(1.0f), z), n));
    }
    const vf f = sigmoid(vf_add(in[1], sum[1])), g = vf_tanh(vf_add(in[2], sum[2])),
             o = sigmoid(vf_add(in[3], sum[3]));
    *c = vf_fma(f, *c, vf_mul(sigmoid(first), g));
    return vf_mul(o, vf_tanh(*c));
}

/* `units` of sequence n from `first` on, whose sums lie `apart` floats from gate to gate. */
static void run_units(const cells *s, uint64_t n, uint64_t step, const float *sums, uint64_t apart,
                      uint64_t first, uint64_t units)
{
    const mica__cpu_view *x = &s->view[MICA__RNN_X], *y = &s->view[MICA__RNN_Y];
    const uint64_t t = token_at(s, &s->of[n], step), size = row_element_bytes(x->dtype);
    const unsigned char *from = x->data + t * x->stride[0] + first * size;
    const float *before = s->h[step % 2] + n * s->padded + first;
    float *behind = s->h[(step + 1) % 2] + n * s->padded + first, *c = s->c + n * s->padded + first;
    for (uint64_t u = 0; u < units; u += VW) {
        const uint64_t lanes = units - u < VW ? units - u : VW;
        vf in[4], sum[4], cell = vf_load(c + u);
        for (uint64_t g = 0; g < s->gates; g++) {
            const unsigned char *at = from + (g * s->hidden + u) * size;
            in[g] = lanes == VW ? gemm_load(at, x->dtype, 0) : row_load_n(at, x->dtype, lanes);
            sum[g] = lanes == VW ? vf_load(sums + g * apart + u) : vf_load_n(sums + g * apart + u, lanes);
            sum[g] = vf_add(sum[g], vf_load(s->bias + g * s->padded + first + u));
        }
        vf_store(behind + u, run_gates(s->kind, in, sum, vf_load(before + u), &cell));
        vf_store(c + u, cell);
    }
    row_store(y->data + t * y->stride[0] + first * row_element_bytes(y->dtype), y->dtype, behind, units);
}

/* Units of a sequence whose last token is behind it, h where it stands then. */
static void store_state(const cells *s, uint64_t n, uint64_t first, uint64_t units)
{
    const sequence *of = &s->of[n];
    const uint64_t at = n * s->padded + first;
    if (of->to == NULL || units == 0)
        return;
    memcpy(of->to + first * sizeof(float), s->h[of->count % 2] + at, units * sizeof(float));
    if (s->kind == MICA_RNN_LSTM)
        memcpy(of->to + s->view[MICA__RNN_NEXT_STATE].stride[1] + first * sizeof(float), s->c + at,
               units * sizeof(float));
}

/* A token of all sequences that have one left, of the hidden units of one part. */
static void run_part(void *context, uint64_t step, uint32_t part)
{
    const cells *s = context;
    const uint64_t first = mica__dense_step_cut(s->hidden, MICA__CPU_RNN_UNITS, s->params->cut.parts, part),
                   units =
                       mica__dense_step_cut(s->hidden, MICA__CPU_RNN_UNITS, s->params->cut.parts, part + 1) -
                       first;
    uint64_t rows = s->head->count;
    while (rows > 0 && s->of[rows - 1].count <= step)
        rows--;
    if (units == 0)
        return;
    find_sums(s, s->h[step % 2], rows, first, units);
    const uint64_t ld = gemm_out_stride(units);
    for (uint64_t n = 0; n < rows; n++) {
        run_units(s, n, step, s->sums + n * ld, rows * ld, first, units);
        if (s->of[n].count == step + 1)
            store_state(s, n, first, units);
    }
}

/* ---- blocks ---- */

static void load_state(const cells *s, uint64_t n)
{
    const unsigned char *from = s->of[n].from;
    memset(s->h[0] + n * s->padded, 0, s->padded * sizeof(float));
    memset(s->h[1] + n * s->padded, 0, s->padded * sizeof(float));
    memset(s->c + n * s->padded, 0, s->padded * sizeof(float));
    if (from == NULL || s->hidden == 0)
        return;
    memcpy(s->h[0] + n * s->padded, from, s->hidden * sizeof(float));
    if (s->kind == MICA_RNN_LSTM)
        memcpy(s->c + n * s->padded, from + s->view[MICA__RNN_STATE].stride[1], s->hidden * sizeof(float));
}

/* Its sequences, the longest first, with their states. */
static void begin_block(const mica__cpu_args *args, const cells *s, uint64_t block)
{
    const mica__cpu_sequences *of = &s->params->sequences;
    const mica__cpu_view *bias = &s->view[MICA__RNN_BIAS];
    const uint64_t first = block * s->params->cut.together, left = of->count - first,
                   end = first + (left < s->params->cut.together ? left : s->params->cut.together);
    s->head->count = s->head->longest = 0;
    for (uint64_t n = first; n < end; n++) {
        const sequence found = sequence_of(args, of, n);
        uint64_t at = s->head->count;
        if (!found.fine)
            continue;
        for (; at > 0 && s->of[at - 1].count < found.count; at--)
            s->of[at] = s->of[at - 1];
        s->of[at] = found;
        s->head->count++;
    }
    if (s->head->count > 0)
        s->head->longest = s->of[0].count;
    for (uint64_t n = 0; n < s->head->count; n++) {
        load_state(s, n);
        if (s->of[n].count == 0)
            store_state(s, n, 0, s->hidden);
    }
    memset(s->bias, 0, s->gates * s->padded * sizeof(float));
    for (uint64_t r = 0; bias->data != NULL && r < s->gates * s->hidden; r++)
        s->bias[r / s->hidden * s->padded + r % s->hidden] =
            row_element(bias->data + r * bias->stride[0], bias->dtype);
}

/* `memory` is that of the block. */
static cells cells_of(const mica__cpu_args *args, unsigned char *memory)
{
    const mica__cpu_rnn *params = args->params;
    cells s = {.view = args->view, .params = params, .kind = params->rnn.kind};
    const uint64_t together = params->cut.together;
    s.hidden = args->view[MICA__RNN_WEIGHT].shape[1];
    s.padded = mica__cpu_delta_padded(s.hidden);
    s.gates = mica__rnn_gates(s.kind);
    s.rounds = (mica__cpu_rounds *)(void *)memory;
    memory += mica__cpu_rounds_bytes(params->cut.parts);
    s.head = (mica__cpu_rnn_head *)(void *)memory;
    s.of = (sequence *)(void *)(memory + MICA__CPU_ROUNDS_LINE);
    s.bias = (float *)(void *)(memory + MICA__CPU_ROUNDS_LINE + together * MICA__CPU_SEQUENCE_BYTES);
    s.h[0] = s.bias + s.gates * s.padded;
    s.h[1] = s.h[0] + together * s.padded;
    s.c = s.h[1] + together * s.padded;
    return s;
}

/* The thread's own memory. */
static void take_work(cells *s, float *work)
{
    const uint64_t together = s->params->cut.together;
    s->packed = work;
    s->lines = s->packed + together * s->padded;
    s->partial = s->lines + mica__dense_lines_floats(s->hidden);
    s->sums = s->partial + mica__dense_partial_floats(
                               together, mica__cpu_rnn_width(s->hidden, s->params->cut.parts), s->hidden);
}

/* Views: those of rnn. */
void MICA__ISA(rnn_begin)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rnn *params = args->params;
    unsigned char *scratch = args->view[MICA__RNN_SLOTS].data;
    for (uint64_t block = first; block < last; block++) {
        const cells s = cells_of(args, scratch + block * params->block_bytes);
        mica__cpu_rounds_init(s.rounds, params->cut.parts);
        begin_block(args, &s, block);
    }
}

static void run_block(const mica__cpu_args *args, uint64_t block, uint32_t part)
{
    const mica__cpu_rnn *params = args->params;
    unsigned char *local = args->local;
    const bool alone = params->cut.parts == 1;
    cells s = cells_of(args, alone ? local : args->view[MICA__RNN_SLOTS].data + block * params->block_bytes);
    take_work(&s, (float *)(void *)(local + (alone ? params->block_bytes : 0)));
    if (!alone) {
        mica__cpu_rounds_run(s.rounds, part, params->cut.parts, s.head->longest, run_part, &s);
        return;
    }
    begin_block(args, &s, block);
    for (uint64_t step = 0; step < s.head->longest; step++)
        run_part(&s, step, 0);
}

void MICA__ISA(rnn)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rnn *params = args->params;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == params->cut.blocks * params->cut.parts)
            sequence_gaps(args, &params->sequences);
        else
            run_block(args, row / params->cut.parts, (uint32_t)(row % params->cut.parts));
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
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence s = sequence_of(args, of, row);
        if (s.fine)
            wide_sequence(args->view, &params->rnn, &s, args->local);
    }
}
