/*
 * selective_scan_backward.c - gradients of selective scans: a block of channels over all sequences, channels beside each other in vectors of f64.
 *
 * States go forward once and are kept every so many tokens; from the last of these on each stretch is gone through again, all its states kept, and then
 * back. What channels of a group give to b and c is added up lane by lane, then over the lanes, and the blocks in their order by a pass of its own.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/lanes.h"

#define CHANNELS ((uint64_t)MICA__CPU_SELECTIVE_CHANNELS)
#define TOKENS ((uint64_t)MICA__CPU_SELECTIVE_TOKENS)

enum { TOKEN_X, TOKEN_STEP, TOKEN_SLOPE, TOKEN_SUM, TOKEN_PARTS };

/* The channels [first, first + count) and the thread's memory. What has CHANNELS, P in its shape stands as [CHANNELS / VD, P, VD]. */
typedef struct scan_channels {
    const mica__cpu_view *view;
    uint64_t first, count, group, groups, places;
    bool softplus, f64;
    double *partial;                     /* of this block: [tokens, groups, 2, P] */
    double *bias, *skip, *dbias, *dskip; /* [CHANNELS] */
    double *rate, *da, *state, *dh;      /* CHANNELS, P */
    double *in;                          /* [TOKENS, 2, P]: b and c */
    double *kept, *decay, *token,
        *reach;    /* [.., VD]: [TOKENS + 1, P], [TOKENS, P], [TOKENS, parts], [TOKENS, 2, P] of db and dc */
    double *begun; /* [.., CHANNELS, P]: states that stretches of TOKENS begin with */
} scan_channels;

/* Lanes of a row of channels of token t. */
VD_INLINE vd row_at_token(const scan_channels *h, uint32_t slot, uint64_t t, uint64_t c, uint64_t n)
{
    const mica__cpu_view *view = &h->view[slot];
    return lanes_at(view, view->data + t * view->stride[0] + (h->first + c) * view->stride[1],
                    view->stride[1], n);
}

VD_INLINE void put_row_of_token(const scan_channels *h, uint32_t slot, uint64_t t, uint64_t c, uint64_t n,
                                vd v)
{
    const mica__cpu_view *view = &h->view[slot];
    lanes_put(view, t * view->stride[0] + (h->first + c) * view->stride[1], view->stride[1], n, v);
}

static uint64_t lanes_from(const scan_channels *h, uint64_t c)
{
    return h->count - c < VD ? h->count - c : VD;
}

/* The step of a token, and its slope. */
VD_INLINE vd step_of(const scan_channels *h, vd dt, uint64_t c, vd *slope)
{
    const vd raw = dt + vd_load(h->bias + c), one = vd_set1(1);
    *slope = one;
    if (!h->softplus)
        return raw;
    const vd e = lanes_exp(-vd_abs(raw), h->f64);
    *slope = vd_select(vl_negative((vl)raw), e, one) / (1 + e);
    return vd_max(vd_set1(0), raw) + lanes_log1p_unit(e, h->f64);
}

/* Channels [c, c + VD) over tokens [t, t + n), whose b and c are loaded. `keep`: from kept[0] on, with all that the way back needs. */
VD_INLINE void go_forward(const scan_channels *h, uint64_t c, uint64_t t, uint64_t n, bool keep)
{
    const uint64_t wide = h->places * VD, lanes = lanes_from(h, c);
    const double *rate = h->rate + c * h->places;
    const vd skip = vd_load(h->skip + c);
    for (uint64_t i = 0; i < n; i++) {
        const double *b = h->in + i * 2 * h->places;
        const double *from = keep ? h->kept + i * wide : h->state + c * h->places;
        double *to = keep ? h->kept + (i + 1) * wide : h->state + c * h->places;
        const vd x = row_at_token(h, MICA__SELECTIVE_BACKWARD_X, t + i, c, lanes);
        vd slope, sum = skip * x;
        const vd step = step_of(h, row_at_token(h, MICA__SELECTIVE_BACKWARD_DT, t + i, c, lanes), c, &slope);
        const vd in = step * x;
        for (uint64_t p = 0; p < h->places; p++) {
            const vd decay = lanes_exp(step * vd_load(rate + p * VD), h->f64);
            const vd next = vd_fma(decay, vd_load(from + p * VD), in * vd_set1(b[p]));
            vd_store(to + p * VD, next);
            if (keep) {
                vd_store(h->decay + i * wide + p * VD, decay);
                sum = vd_fma(next, vd_set1(b[h->places + p]), sum);
            }
        }
        if (keep) {
            double *token = h->token + i * TOKEN_PARTS * VD;
            vd_store(token + TOKEN_X * VD, x);
            vd_store(token + TOKEN_STEP * VD, step);
            vd_store(token + TOKEN_SLOPE * VD, slope);
            vd_store(token + TOKEN_SUM * VD, sum);
        }
    }
}

/* What reaches the sum of a token, through its gate. */
VD_INLINE vd through_gate(const scan_channels *h, uint64_t t, uint64_t c, uint64_t lanes, vd sum)
{
    const vd dy = row_at_token(h, MICA__SELECTIVE_BACKWARD_DY, t, c, lanes);
    if (h->view[MICA__SELECTIVE_BACKWARD_Z].data == NULL)
        return dy;
    const vd z = row_at_token(h, MICA__SELECTIVE_BACKWARD_Z, t, c, lanes), e = lanes_exp(-vd_abs(z), h->f64);
    const vd part = vd_select(vl_negative((vl)z), e, vd_set1(1)) / (1 + e);
    put_row_of_token(h, MICA__SELECTIVE_BACKWARD_DZ, t, c, lanes, dy * sum * part * (1 + z * (1 - part)));
    return dy * z * part;
}

/* Token t, the i-th of what is kept. */
VD_INLINE void token_back(const scan_channels *h, uint64_t c, uint64_t t, uint64_t i)
{
    const uint64_t wide = h->places * VD, lanes = lanes_from(h, c);
    const double *before = h->kept + i * wide, *after = before + wide, *decay = h->decay + i * wide;
    const double *b = h->in + i * 2 * h->places, *token = h->token + i * TOKEN_PARTS * VD;
    const double *rate = h->rate + c * h->places;
    double *db = h->reach + i * 2 * wide, *dc = db + wide, *dh = h->dh + c * h->places,
           *da = h->da + c * h->places;
    const vd x = vd_load(token + TOKEN_X * VD), step = vd_load(token + TOKEN_STEP * VD);
    const vd slope = vd_load(token + TOKEN_SLOPE * VD), in = step * x;
    const vd dsum = through_gate(h, t, c, lanes, vd_load(token + TOKEN_SUM * VD));
    vd through = vd_set1(0), dstep = vd_set1(0);
    for (uint64_t p = 0; p < h->places; p++) {
        const uint64_t at = p * VD;
        const vd slow = vd_load(decay + at);
        const vd reach = vd_fma(dsum, vd_set1(b[h->places + p]), vd_load(dh + at));
        const vd back = reach * slow, ddecay = back * vd_load(before + at);
        vd_store(dc + at, vd_fma(dsum, vd_load(after + at), vd_load(dc + at)));
        vd_store(db + at, vd_fma(reach, in, vd_load(db + at)));
        vd_store(da + at, vd_fma(ddecay, step, vd_load(da + at)));
        vd_store(dh + at, back);
        through = vd_fma(reach, vd_set1(b[p]), through);
        dstep = vd_fma(ddecay, vd_load(rate + at), dstep);
    }
    dstep = vd_fma(through, x, dstep) * slope;
    vd_store(h->dbias + c, vd_load(h->dbias + c) + dstep);
    vd_store(h->dskip + c, vd_fma(dsum, x, vd_load(h->dskip + c)));
    put_row_of_token(h, MICA__SELECTIVE_BACKWARD_DX, t, c, lanes,
                     vd_fma(through, step, dsum * vd_load(h->skip + c)));
    put_row_of_token(h, MICA__SELECTIVE_BACKWARD_DDT, t, c, lanes, dstep);
}

/* b and c of tokens [t, t + n). */
static void load_in(const scan_channels *h, uint64_t t, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t p = 0; p < h->places; p++) {
            double *to = h->in + i * 2 * h->places + p;
            to[0] = real3(&h->view[MICA__SELECTIVE_BACKWARD_B], t + i, h->group, p);
            to[h->places] = real3(&h->view[MICA__SELECTIVE_BACKWARD_C], t + i, h->group, p);
        }
}

/* Tokens [t, t + n), whose states begin with `begun`: all that they give. */
static void run_tokens(const scan_channels *h, uint64_t t, uint64_t n, const double *begun)
{
    const uint64_t wide = h->places * VD;
    load_in(h, t, n);
    memset(h->reach, 0, n * 2 * wide * sizeof *h->reach);
    for (uint64_t c = 0; c < h->count; c += VD) {
        memcpy(h->kept, begun + c * h->places, wide * sizeof *h->kept);
        go_forward(h, c, t, n, true);
        for (uint64_t i = n; i-- > 0;)
            token_back(h, c, t + i, i);
    }
    for (uint64_t i = 0; i < n; i++) {
        double *to = h->partial + ((t + i) * h->groups + h->group) * 2 * h->places;
        for (uint64_t p = 0; p < 2 * h->places; p++)
            to[p] += vd_sum(vd_load(h->reach + i * 2 * wide + p * VD));
    }
}

/* `to` gets a state of sequence n, [.., C, P] in `from`, which is at its slot; NULL: zeros. */
static void load_state(const scan_channels *h, const mica__cpu_view *view, const unsigned char *from,
                       double *to)
{
    for (uint64_t c = 0; c < h->count; c += VD)
        for (uint64_t p = 0; p < h->places; p++)
            vd_store(to + c * h->places + p * VD,
                     from == NULL
                         ? vd_set1(0)
                         : lanes_at(view, from + (h->first + c) * view->stride[1] + p * view->stride[2],
                                    view->stride[1], lanes_from(h, c)));
}

static void run_sequence(const scan_channels *h, uint64_t n, const stretch *s)
{
    const mica__cpu_view *dnext = &h->view[MICA__SELECTIVE_BACKWARD_DNEXT],
                         *dstate = &h->view[MICA__SELECTIVE_BACKWARD_DSTATE];
    const uint64_t all = CHANNELS * h->places, parts = (s->count + TOKENS - 1) / TOKENS;
    load_state(h, &h->view[MICA__SELECTIVE_BACKWARD_STATE], s->from, h->state);
    load_state(h, dnext, dnext->data != NULL && s->fine ? dnext->data + n * dnext->stride[0] : NULL, h->dh);
    for (uint64_t k = 0; k < parts; k++) {
        memcpy(h->begun + k * all, h->state, all * sizeof *h->state);
        if (k + 1 == parts)
            break;
        load_in(h, s->first + k * TOKENS, TOKENS);
        for (uint64_t c = 0; c < h->count; c += VD)
            go_forward(h, c, s->first + k * TOKENS, TOKENS, false);
    }
    for (uint64_t k = parts; k-- > 0;)
        run_tokens(h, s->first + k * TOKENS, k + 1 == parts ? s->count - k * TOKENS : TOKENS,
                   h->begun + k * all);
    for (uint64_t c = 0; c < h->count; c += VD)
        for (uint64_t p = 0; p < h->places; p++)
            lanes_put(dstate,
                      n * dstate->stride[0] + (h->first + c) * dstate->stride[1] + p * dstate->stride[2],
                      dstate->stride[1], lanes_from(h, c), vd_load(h->dh + c * h->places + p * VD));
}

static void run_block(const mica__cpu_args *args, const scan_channels *h)
{
    const mica__cpu_split *split = &((const mica__cpu_selective_backward *)args->params)->split;
    const mica__cpu_view *view = h->view, *a = &view[MICA__SELECTIVE_BACKWARD_A],
                         *da = &view[MICA__SELECTIVE_BACKWARD_DA],
                         *dskip = &view[MICA__SELECTIVE_BACKWARD_DSKIP],
                         *dbias = &view[MICA__SELECTIVE_BACKWARD_DDT_BIAS];
    memset(h->bias, 0, (4 + 2 * h->places) * CHANNELS * sizeof *h->bias); /* rate and da stand behind */
    for (uint64_t c = 0; c < h->count; c++) {
        h->bias[c] = real1(&view[MICA__SELECTIVE_BACKWARD_DT_BIAS], h->first + c, 0.0);
        h->skip[c] = real1(&view[MICA__SELECTIVE_BACKWARD_SKIP], h->first + c, 0.0);
    }
    for (uint64_t c = 0; c < h->count; c += VD)
        for (uint64_t p = 0; p < h->places; p++)
            vd_store(h->rate + c * h->places + p * VD,
                     lanes_at(a, a->data + (h->first + c) * a->stride[0] + p * a->stride[1], a->stride[0],
                              lanes_from(h, c)));
    for (uint64_t n = 0; n < split->count; n++) {
        const stretch s = stretch_of(args, split, n);
        run_sequence(h, n, &s);
    }
    for (uint64_t c = 0; c < h->count; c += VD) {
        const uint64_t lanes = lanes_from(h, c);
        for (uint64_t p = 0; p < h->places; p++)
            lanes_put(da, (h->first + c) * da->stride[0] + p * da->stride[1], da->stride[0], lanes,
                      vd_load(h->da + c * h->places + p * VD));
        lanes_put(dskip, (h->first + c) * dskip->stride[0], dskip->stride[0], lanes, vd_load(h->dskip + c));
        lanes_put(dbias, (h->first + c) * dbias->stride[0], dbias->stride[0], lanes, vd_load(h->dbias + c));
    }
}

/* The thread's memory, as mica__cpu_selective_backward_room has counted it. */
static void lay(scan_channels *h, double *room)
{
    const uint64_t all = CHANNELS * h->places, wide = h->places * VD;
    double **row[] = {&h->bias, &h->skip, &h->dbias, &h->dskip},
           **state[] = {&h->rate, &h->da, &h->state, &h->dh};
    for (uint32_t i = 0; i < 4; i++, room += CHANNELS)
        *row[i] = room;
    for (uint32_t i = 0; i < 4; i++, room += all)
        *state[i] = room;
    h->in = room;
    h->kept = h->in + TOKENS * 2 * h->places;
    h->decay = h->kept + (TOKENS + 1) * wide;
    h->reach = h->decay + TOKENS * wide;
    h->token = h->reach + TOKENS * 2 * wide;
    h->begun = h->token + TOKENS * TOKEN_PARTS * VD;
}

void MICA__ISA(selective_scan_backward)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_selective_backward *params = args->params;
    const mica__cpu_split *split = &params->split;
    const uint64_t end = mica__cpu_rows_end(&params->range, last),
                   places = args->view[MICA__SELECTIVE_BACKWARD_A].shape[1];
    double *partial = (double *)(void *)args->view[MICA__SELECTIVE_BACKWARD_SLOTS].data;
    scan_channels h = {.view = args->view, .places = places, .softplus = params->softplus != 0};
    h.groups = params->groups;
    h.f64 = args->view[MICA__SELECTIVE_BACKWARD_X].dtype == MICA_DTYPE_F64;
    lay(&h, args->local);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == params->groups * params->blocks) {
            clear_gaps(args, split, MICA__SELECTIVE_BACKWARD_DX, MICA__SELECTIVE_BACKWARD_DDT);
            clear_gaps(args, split, MICA__SELECTIVE_BACKWARD_DZ, MICA__SELECTIVE_BACKWARD_DZ);
            continue;
        }
        const uint64_t block = row % params->blocks, begin = block * CHANNELS;
        h.group = row / params->blocks;
        h.first = h.group * params->channels + begin;
        h.count = params->channels - begin < CHANNELS ? params->channels - begin : CHANNELS;
        h.partial = partial + block * split->tokens * params->groups * 2 * places;
        for (uint64_t t = 0; t < split->tokens; t++)
            memset(h.partial + (t * params->groups + h.group) * 2 * places, 0, 2 * places * sizeof(double));
        run_block(args, &h);
    }
}

/* db and dc of tokens: sums over the blocks, in their order. */
void MICA__ISA(selective_scan_sums)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_selective_backward *params = args->params;
    const mica__cpu_view *db = &args->view[0], *dc = &args->view[1];
    const double *partial = (const double *)(const void *)args->view[2].data;
    const uint64_t places = db->shape[2], size = params->split.tokens * params->groups * 2 * places;
    for (uint64_t t = first; t < last; t++)
        for (uint64_t g = 0; g < params->groups; g++)
            for (uint64_t p = 0; p < 2 * places; p++) {
                const double *from = partial + (t * params->groups + g) * 2 * places + p;
                double sum = 0;
                for (uint64_t block = 0; block < params->blocks; block++)
                    sum += from[block * size];
                put3(p < places ? db : dc, t, g, p % places, sum);
            }
}
