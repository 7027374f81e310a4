/*
 * rnn_backward.c - gradients of recurrent cells: the sequences of a block in step, forward, whose gates are kept in the scratch, and back; then rows of
 * the weight, each a sum over all tokens in their order. Threads share hidden units: no sum depends on how.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/linear/doubles.h"
#include "backend/cpu/kernels/recurrent/lanes.h"
#include "backend/cpu/kernels/simd/transpose.h"

#define PANEL MICA__CPU_RNN_PANEL

typedef struct member {
    stretch of;
    uint64_t n;
} member;

_Static_assert(sizeof(member) <= MICA__CPU_SEQUENCE_BYTES, "the plan reserves too little");

/* A block. */
typedef struct rnn_gradient {
    const mica__cpu_view *view;
    const mica__cpu_rnn_backward *params;
    unsigned char *room;
    uint32_t kind;
    uint64_t units, padded, gates, kept; /* kept: rows of a state */
    bool wide;                           /* f64 */
    mica__cpu_rounds *rounds;
    mica__cpu_rnn_head *head;
    member *member; /* those with the most tokens first */
} rnn_gradient;

static rnn_gradient gradient_of(const mica__cpu_args *args)
{
    const mica__cpu_rnn_backward *params = args->params;
    const mica__cpu_view *weight = &args->view[MICA__RNN_BACKWARD_WEIGHT];
    return (rnn_gradient){.view = args->view,
                          .params = params,
                          .room = args->view[MICA__RNN_BACKWARD_SLOTS].data,
                          .kind = params->rnn.kind,
                          .units = weight->shape[1],
                          .padded = params->padded,
                          .gates = mica__rnn_gates(params->rnn.kind),
                          .kept = params->rnn.kind == MICA_RNN_LSTM ? 2 : 1,
                          .wide = weight->dtype == MICA_DTYPE_F64};
}

static void find_block(rnn_gradient *s, uint64_t block)
{
    unsigned char *memory = s->room + block * s->params->room.block_bytes;
    s->rounds = (mica__cpu_rounds *)(void *)memory;
    memory += mica__cpu_rounds_bytes(s->params->cut.parts);
    s->head = (mica__cpu_rnn_head *)(void *)memory;
    s->member = (member *)(void *)(memory + MICA__CPU_ROUNDS_LINE);
}

static double *row_at(const rnn_gradient *s, uint64_t place, uint64_t row)
{
    return (double *)(void *)(s->room + place) + row * s->padded;
}

static double *gate_row(const rnn_gradient *s, uint64_t t)
{
    return row_at(s, s->params->room.gates, t * s->gates);
}

static uint64_t token_at(const rnn_gradient *s, const stretch *of, uint64_t step)
{
    return s->params->rnn.reverse != 0 ? of->first + of->count - 1 - step : of->first + step;
}

/* How many have more tokens than `step`. */
static uint64_t running(const rnn_gradient *s, uint64_t step)
{
    uint64_t count = s->head->count;
    while (count > 0 && s->member[count - 1].of.count <= step)
        count--;
    return count;
}

/* ---- products with panels of the weight ---- */

#if MICA__ISA_LEVEL == 3
#define TOGETHER 3u
#define VECTORS 8
#else
#define TOGETHER 2u
#define VECTORS 4
#endif

VD_INLINE vd panel_load(const unsigned char *row, uint64_t column, bool wide)
{
    lanes_f32 narrow;
    if (wide)
        return vd_load((const double *)(const void *)row + column);
    memcpy(&narrow, row + column * sizeof(float), sizeof narrow);
    return __builtin_convertvector(narrow, vd);
}

/* Some columns of a panel of `count` rows: to[r] += sum over k of a[r][k] times row k. */
VD_INLINE void multiply_at(const double *const *a, const unsigned char *panel, uint64_t count, bool wide,
                           uint64_t column, double *const *to, int rows)
{
    const uint64_t row_bytes = PANEL * (wide ? sizeof(double) : sizeof(float));
    vd sum[TOGETHER * VECTORS];
    VD_UNROLL for (int r = 0; r < rows; r++) VD_UNROLL for (int v = 0; v < VECTORS; v++)
        sum[r * VECTORS + v] = vd_load(to[r] + column + (uint64_t)v * VD);
    for (uint64_t k = 0; k < count; k++, panel += row_bytes) {
        vd by[TOGETHER];
        VD_UNROLL for (int r = 0; r < rows; r++) by[r] = vd_set1(a[r][k]);
        VD_UNROLL for (int v = 0; v < VECTORS; v++)
        {
            const vd weight = panel_load(panel, column + (uint64_t)v * VD, wide);
            VD_UNROLL for (int r = 0; r < rows; r++) sum[r * VECTORS + v] =
                vd_fma(by[r], weight, sum[r * VECTORS + v]);
        }
    }
    VD_UNROLL for (int r = 0; r < rows; r++) VD_UNROLL for (int v = 0; v < VECTORS; v++)
        vd_store(to[r] + column + (uint64_t)v * VD, sum[r * VECTORS + v]);
}

VD_INLINE void multiply_type(const double *const *a, uint64_t rows, const unsigned char *panel,
                             uint64_t count, bool wide, double *const *to)
{
    for (uint64_t column = 0; column < PANEL; column += VECTORS * VD)
        switch (rows) {
        case 1: multiply_at(a, panel, count, wide, column, to, 1); break;
#if MICA__ISA_LEVEL == 3
        case 3: multiply_at(a, panel, count, wide, column, to, 3); break;
#endif
        default: multiply_at(a, panel, count, wide, column, to, 2); break;
        }
}

static void multiply(const rnn_gradient *s, const double *const *a, uint64_t rows, const unsigned char *panel,
                     double *const *to)
{
    if (s->wide)
        multiply_type(a, rows, panel, s->units, true, to);
    else
        multiply_type(a, rows, panel, s->units, false, to);
}

/* Of `units` rows. */
static uint64_t panel_bytes(const rnn_gradient *s)
{
    return s->units * PANEL * (s->wide ? sizeof(double) : sizeof(float));
}

/* Panel number `index` of those at `place`. */
static const unsigned char *panel_at(const rnn_gradient *s, uint64_t place, uint64_t index)
{
    return s->room + place + index * panel_bytes(s);
}

/* ---- forward ---- */

/* Some units of a token: inputs and sums of its gates; h and c to where the token behind it finds them, if there is one. */
VD_INLINE void go_forward(const rnn_gradient *s, uint64_t t, uint64_t then, bool last, uint64_t u,
                          uint64_t lanes, const double *sums)
{
    const mica__cpu_view *x = &s->view[MICA__RNN_BACKWARD_X];
    const mica__cpu_rnn_room *room = &s->params->room;
    double *gate = gate_row(s, t) + u;
    vd h = vd_load(row_at(s, room->before, t) + u), c = vd_set1(0), all[4];
    for (uint64_t g = 0; g < s->gates; g++) {
        const vd in = lanes_at(x, x->data + t * x->stride[0] + (g * s->units + u) * x->stride[1],
                               x->stride[1], lanes),
                 sum = vd_load(sums + g * PANEL);
        if (s->kind == MICA_RNN_GRU && g == 2) {
            vd_store(row_at(s, room->extra, t) + u, sum);
            all[2] = lanes_tanh(vd_fma(all[0], sum, in), s->wide);
        } else if (s->kind == MICA_RNN_TANH || (s->kind == MICA_RNN_LSTM && g == 2)) {
            all[g] = lanes_tanh(in + sum, s->wide);
        } else if (s->kind == MICA_RNN_RELU) {
            all[g] = vd_select(vd_lt(in + sum, vd_set1(0)), vd_set1(0), in + sum);
        } else {
            all[g] = lanes_sigmoid(in + sum, s->wide);
        }
        vd_store(gate + g * s->padded, all[g]);
    }
    if (s->kind == MICA_RNN_GRU) {
        h = vd_fma(all[1], h, (1 - all[1]) * all[2]);
    } else if (s->kind == MICA_RNN_LSTM) {
        c = vd_fma(all[1], vd_load(row_at(s, room->cell, t) + u), all[0] * all[2]);
        const vd turned = lanes_tanh(c, s->wide);
        vd_store(row_at(s, room->extra, t) + u, turned);
        h = all[3] * turned;
    } else {
        h = all[0];
    }
    if (last)
        return;
    vd_store(row_at(s, room->before, then) + u, h);
    if (s->kind == MICA_RNN_LSTM)
        vd_store(row_at(s, room->cell, then) + u, c);
}

static void panel_forward(const rnn_gradient *s, uint64_t step, uint64_t panel, uint64_t first, uint64_t rows)
{
    const mica__cpu_rnn_room *room = &s->params->room;
    const uint64_t panels = s->padded / PANEL, unit = panel * PANEL,
                   units = s->units - unit < PANEL ? s->units - unit : PANEL;
    double sums[TOGETHER][4 * PANEL], *to[TOGETHER];
    const double *a[TOGETHER];
    for (uint64_t r = 0; r < rows; r++)
        a[r] = row_at(s, room->before, token_at(s, &s->member[first + r].of, step));
    for (uint64_t g = 0; g < s->gates; g++) {
        for (uint64_t r = 0; r < rows; r++) {
            to[r] = sums[r] + g * PANEL;
            memcpy(to[r], row_at(s, room->bias, g) + unit, PANEL * sizeof(double));
        }
        multiply(s, a, rows, panel_at(s, room->ahead, g * panels + panel), to);
    }
    for (uint64_t r = 0; r < rows; r++) {
        const stretch *of = &s->member[first + r].of;
        const bool last = step + 1 == of->count;
        const uint64_t t = token_at(s, of, step), then = last ? t : token_at(s, of, step + 1);
        for (uint64_t u = 0; u < units; u += VD)
            go_forward(s, t, then, last, unit + u, units - u < VD ? units - u : VD, sums[r] + u);
    }
}

/* ---- back ---- */

/* What reaches the inputs of some units' gates, and h and c before, but for what comes through the weight. */
VD_INLINE void go_back(const rnn_gradient *s, uint64_t n, uint64_t t, uint64_t u, uint64_t lanes)
{
    const mica__cpu_view *dy = &s->view[MICA__RNN_BACKWARD_DY], *out = &s->view[MICA__RNN_BACKWARD_DX];
    const mica__cpu_rnn_room *room = &s->params->room;
    double *row = gate_row(s, t) + u, *reach = row_at(s, room->reach, 2 * n) + u;
    const vd extra = vd_load(row_at(s, room->extra, t) + u);
    const vd dh =
        vd_load(reach) + lanes_at(dy, dy->data + t * dy->stride[0] + u * dy->stride[1], dy->stride[1], lanes);
    vd gate[4], dx[4], rest = vd_set1(0);
    for (uint64_t g = 0; g < s->gates; g++)
        gate[g] = vd_load(row + g * s->padded);
    if (s->kind == MICA_RNN_TANH) {
        dx[0] = dh * (1 - gate[0] * gate[0]);
    } else if (s->kind == MICA_RNN_RELU) {
        dx[0] = vd_select(vd_lt(vd_set1(0), gate[0]), dh, vd_set1(0));
    } else if (s->kind == MICA_RNN_GRU) {
        const vd before = vd_load(row_at(s, room->before, t) + u);
        dx[2] = dh * (1 - gate[1]) * (1 - gate[2] * gate[2]);
        dx[1] = dh * (before - gate[2]) * gate[1] * (1 - gate[1]);
        dx[0] = dx[2] * extra * gate[0] * (1 - gate[0]);
        rest = dh * gate[1];
    } else {
        const vd c = vd_load(row_at(s, room->cell, t) + u),
                 dc = vd_load(reach + s->padded) + dh * gate[3] * (1 - extra * extra);
        dx[0] = dc * gate[2] * gate[0] * (1 - gate[0]);
        dx[1] = dc * c * gate[1] * (1 - gate[1]);
        dx[2] = dc * gate[0] * (1 - gate[2] * gate[2]);
        dx[3] = dh * extra * gate[3] * (1 - gate[3]);
        vd_store(reach + s->padded, dc * gate[1]);
    }
    vd_store(reach, rest);
    for (uint64_t g = 0; g < s->gates; g++) {
        lanes_put(out, t * out->stride[0] + (g * s->units + u) * out->stride[1], out->stride[1], lanes,
                  dx[g]);
        vd_store(row + g * s->padded, s->kind == MICA_RNN_GRU && g == 2 ? dx[g] * gate[0] : dx[g]);
    }
}

/* What reaches h through the weight from the token of `step` on. */
static void panel_through(const rnn_gradient *s, uint64_t step, uint64_t panel, uint64_t first, uint64_t rows)
{
    const mica__cpu_rnn_room *room = &s->params->room;
    double *to[TOGETHER];
    for (uint64_t r = 0; r < rows; r++)
        to[r] = row_at(s, room->reach, 2 * s->member[first + r].n) + panel * PANEL;
    for (uint64_t g = 0; g < s->gates; g++) {
        const double *a[TOGETHER];
        for (uint64_t r = 0; r < rows; r++)
            a[r] = gate_row(s, token_at(s, &s->member[first + r].of, step)) + g * s->padded;
        multiply(s, a, rows, panel_at(s, room->back, panel * s->gates + g), to);
    }
}

static void panel_back(const rnn_gradient *s, uint64_t step, uint64_t panel, uint64_t n)
{
    const member *m = &s->member[n];
    const uint64_t unit = panel * PANEL, units = s->units - unit < PANEL ? s->units - unit : PANEL;
    for (uint64_t u = 0; u < units; u += VD)
        go_back(s, m->n, token_at(s, &m->of, step), unit + u, units - u < VD ? units - u : VD);
}

static void store_state(const rnn_gradient *s, uint64_t panel)
{
    const mica__cpu_view *to = &s->view[MICA__RNN_BACKWARD_DSTATE];
    const uint64_t unit = panel * PANEL, end = s->units - unit < PANEL ? s->units : unit + PANEL;
    for (uint64_t i = 0; i < s->head->count && to->data != NULL; i++)
        for (uint64_t k = 0; k < s->kept; k++) {
            const uint64_t n = s->member[i].n;
            const double *row = row_at(s, s->params->room.reach, 2 * n + k);
            for (uint64_t u = unit; u < end; u++)
                put3(to, n, k, u, row[u]);
        }
}

/* ---- blocks ---- */

/* Rounds are tokens forward, then back: there what the token behind gives through the weight comes first, and behind the first token that alone. */
static void run_part(void *context, uint64_t round, uint32_t part)
{
    const rnn_gradient *s = context;
    const uint64_t panels = s->padded / PANEL, parts = s->params->cut.parts, longest = s->head->longest;
    const bool forward = round < longest;
    const uint64_t behind = forward ? round : 2 * longest - round, many = running(s, behind);
    for (uint64_t panel = panels * part / parts; panel < panels * (part + 1) / parts; panel++) {
        for (uint64_t first = 0, rows; first < many; first += rows) {
            rows = many - first < TOGETHER ? many - first : TOGETHER;
            (forward ? panel_forward : panel_through)(s, behind, panel, first, rows);
        }
        if (forward)
            continue;
        for (uint64_t n = 0; behind > 0 && n < running(s, behind - 1); n++)
            panel_back(s, behind - 1, panel, n);
        if (behind == 0)
            store_state(s, panel);
    }
}

static void load_state(const rnn_gradient *s, const member *m)
{
    const mica__cpu_view *state = &s->view[MICA__RNN_BACKWARD_STATE],
                         *dnext = &s->view[MICA__RNN_BACKWARD_DNEXT];
    const mica__cpu_rnn_room *room = &s->params->room;
    for (uint64_t k = 0; k < 2; k++) {
        double *reach = row_at(s, room->reach, 2 * m->n + k);
        double *before =
            row_at(s, k == 0 ? room->before : room->cell, m->of.count > 0 ? token_at(s, &m->of, 0) : 0);
        for (uint64_t u = 0; u < s->padded; u++) {
            const bool has = k < s->kept && u < s->units;
            reach[u] = has && m->of.fine && dnext->data != NULL ? real3(dnext, m->n, k, u) : 0.0;
            if (m->of.count > 0)
                before[u] = has && m->of.from != NULL
                                ? real_at(state, m->of.from + k * state->stride[1] + u * state->stride[2])
                                : 0.0;
        }
    }
}

/* Its sequences, the longest first, with what they begin with at both ends. */
static void begin_block(const mica__cpu_args *args, const rnn_gradient *s, uint64_t block)
{
    const mica__cpu_split *split = &s->params->split;
    const uint64_t first = block * s->params->cut.together, left = split->count - first,
                   end = first + (left < s->params->cut.together ? left : s->params->cut.together);
    mica__cpu_rounds_init(s->rounds, s->params->cut.parts);
    s->head->count = end - first;
    for (uint64_t n = first; n < end; n++) {
        const member found = {stretch_of(args, split, n), n};
        uint64_t at = n - first;
        for (; at > 0 && s->member[at - 1].of.count < found.of.count; at--)
            s->member[at] = s->member[at - 1];
        s->member[at] = found;
        load_state(s, &found);
    }
    s->head->longest = s->member[0].of.count;
}

static void put_weight(const rnn_gradient *s, unsigned char *to, uint64_t at, double value)
{
    const float narrow = (float)value;
    if (s->wide)
        memcpy(to + at * sizeof value, &value, sizeof value);
    else
        memcpy(to + at * sizeof narrow, &narrow, sizeof narrow);
}

/* Whether rows of the weight can be read a vector at a time. */
static bool has_rows(const rnn_gradient *s)
{
    const mica__cpu_view *weight = &s->view[MICA__RNN_BACKWARD_WEIGHT];
    return !s->wide && weight->stride[1] == row_element_bytes(weight->dtype);
}

/* VW units of columns [k, k + lanes), turned. */
static void turn_square(const rnn_gradient *s, const unsigned char *from, uint64_t units, uint64_t k,
                        float *to)
{
    const mica__cpu_view *weight = &s->view[MICA__RNN_BACKWARD_WEIGHT];
    const uint64_t lanes = s->units - k < VW ? s->units - k : VW;
    vf row[VW];
    for (uint64_t u = 0; u < VW; u++)
        row[u] = u < units
                     ? row_load_n(from + u * weight->stride[0] + k * weight->stride[1], weight->dtype, lanes)
                     : vf_zero();
    vf_transpose(row);
    for (uint64_t i = 0; i < lanes; i++)
        vf_store(to + (k + i) * PANEL, row[i]);
}

/* A panel of a gate's rows, turned: row k has element k of each. */
static void pack_ahead(const rnn_gradient *s, uint64_t gate, uint64_t panel)
{
    const mica__cpu_view *weight = &s->view[MICA__RNN_BACKWARD_WEIGHT];
    const uint64_t panels = s->padded / PANEL, unit = panel * PANEL, f = gate * s->units + unit,
                   units = s->units - unit < PANEL ? s->units - unit : PANEL;
    unsigned char *to = s->room + s->params->room.ahead + (gate * panels + panel) * panel_bytes(s);
    if (has_rows(s)) {
        for (uint64_t u = 0; u < PANEL; u += VW)
            for (uint64_t k = 0; k < s->units; k += VW)
                turn_square(s, weight->data + (f + u) * weight->stride[0], units > u ? units - u : 0, k,
                            (float *)(void *)to + u);
        return;
    }
    for (uint64_t k = 0; k < s->units; k++)
        for (uint64_t u = 0; u < PANEL; u++)
            put_weight(s, to, k * PANEL + u, u < units ? real2(weight, f + u, k, 0.0) : 0.0);
}

/* Some columns of all rows. */
static void pack_back(const rnn_gradient *s, uint64_t panel)
{
    const mica__cpu_view *weight = &s->view[MICA__RNN_BACKWARD_WEIGHT];
    const uint64_t unit = panel * PANEL, units = s->units - unit < PANEL ? s->units - unit : PANEL;
    unsigned char *to = s->room + s->params->room.back + panel * s->gates * panel_bytes(s);
    for (uint64_t f = 0; f < s->gates * s->units; f++) {
        const unsigned char *from = weight->data + f * weight->stride[0] + unit * weight->stride[1];
        float *row = (float *)(void *)to + f * PANEL;
        for (uint64_t u = 0; u < PANEL && has_rows(s); u += VW) {
            const uint64_t left = units > u ? units - u : 0;
            vf_store(row + u, row_load_n(from + u * weight->stride[1], weight->dtype, left < VW ? left : VW));
        }
        for (uint64_t u = 0; u < PANEL && !has_rows(s); u++)
            put_weight(s, to, f * PANEL + u, u < units ? real2(weight, f, unit + u, 0.0) : 0.0);
    }
}

static void load_bias(const rnn_gradient *s)
{
    for (uint64_t g = 0; g < s->gates; g++)
        for (uint64_t u = 0; u < s->padded; u++)
            row_at(s, s->params->room.bias, g)[u] =
                u < s->units ? real1(&s->view[MICA__RNN_BACKWARD_BIAS], g * s->units + u, 0.0) : 0.0;
}

void MICA__ISA(rnn_backward_begin)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    rnn_gradient s = gradient_of(args);
    const uint64_t panels = s.padded / PANEL;
    for (uint64_t unit = first; unit < last; unit++) {
        if (unit < s.gates * panels) {
            pack_ahead(&s, unit / panels, unit % panels);
        } else if (unit < (s.gates + 1) * panels) {
            pack_back(&s, unit - s.gates * panels);
        } else if (unit == (s.gates + 1) * panels) {
            load_bias(&s);
        } else {
            const uint64_t block = unit - (s.gates + 1) * panels - 1;
            find_block(&s, block);
            begin_block(args, &s, block);
        }
    }
}

/* Tokens that no sequence has give nothing to the weight either. */
static void clear_rest(const mica__cpu_args *args, const rnn_gradient *s)
{
    const mica__cpu_split *split = &s->params->split;
    uint64_t n = 0, at = 0, begin, end;
    clear_gaps(args, split, MICA__RNN_BACKWARD_DX, MICA__RNN_BACKWARD_DX);
    while (next_gap(args, split, &n, &at, &begin, &end)) {
        memset(row_at(s, s->params->room.before, begin), 0, (end - begin) * s->padded * sizeof(double));
        memset(gate_row(s, begin), 0, (end - begin) * s->gates * s->padded * sizeof(double));
    }
}

void MICA__ISA(rnn_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rnn_backward *params = args->params;
    const uint64_t end = mica__cpu_rows_end(&params->range, last), parts = params->cut.parts;
    rnn_gradient s = gradient_of(args);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == params->cut.blocks * parts) {
            clear_rest(args, &s);
            continue;
        }
        find_block(&s, row / parts);
        mica__cpu_rounds_run(s.rounds, (uint32_t)(row % parts), (uint32_t)parts, 2 * s.head->longest + 1,
                             run_part, &s);
    }
}

/* ---- the weight ---- */

#define TOKENS 128u /* that are added at a time */

/* Rows [unit, unit + rows) of a gate, `sums` taken from nothing. */
static void add_tokens(const rnn_gradient *s, uint64_t gate, uint64_t unit, uint64_t rows, double *sums,
                       double *bias)
{
    const uint64_t tokens = s->params->split.tokens, step = s->gates * s->padded;
    const double *a = gate_row(s, 0) + gate * s->padded + unit, *b = row_at(s, s->params->room.before, 0);
    memset(sums, 0, rows * s->padded * sizeof *sums);
    memset(bias, 0, rows * sizeof *bias);
    for (uint64_t t = 0; t < tokens; t += TOKENS) {
        const linear_product product = {.c = sums,
                                        .a = a + t * step,
                                        .b = b + t * s->padded,
                                        .c_step = s->padded,
                                        .a_step = step,
                                        .b_step = s->padded,
                                        .rows = rows,
                                        .columns = s->units,
                                        .k = tokens - t < TOKENS ? tokens - t : TOKENS};
        subtract_product(&product, false);
        for (uint64_t k = 0; k < product.k; k++)
            for (uint64_t r = 0; r < rows; r++)
                bias[r] += product.a[k * step + r];
    }
}

void MICA__ISA(rnn_weight_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const rnn_gradient s = gradient_of(args);
    const mica__cpu_view *dweight = &s.view[MICA__RNN_BACKWARD_DWEIGHT];
    const uint64_t blocks = (s.units + MICA__CPU_RNN_ROWS - 1) / MICA__CPU_RNN_ROWS;
    double *sums = args->local, *bias = sums + MICA__CPU_RNN_ROWS * s.padded;
    for (uint64_t i = first; i < last; i++) {
        const uint64_t gate = i / blocks, unit = i % blocks * MICA__CPU_RNN_ROWS, left = s.units - unit,
                       rows = left < MICA__CPU_RNN_ROWS ? left : MICA__CPU_RNN_ROWS;
        add_tokens(&s, gate, unit, rows, sums, bias);
        for (uint64_t r = 0; r < rows; r++) {
            const uint64_t f = gate * s.units + unit + r;
            put1(&s.view[MICA__RNN_BACKWARD_DBIAS], f, bias[r]);
            for (uint64_t j = 0; j < s.units; j += VD)
                lanes_put(dweight, f * dweight->stride[0] + j * dweight->stride[1], dweight->stride[1],
                          s.units - j < VD ? s.units - j : VD, -vd_load(sums + r * s.padded + j));
        }
    }
}
