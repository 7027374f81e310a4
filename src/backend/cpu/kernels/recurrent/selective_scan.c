/*
 * selective_scan.c - the scan of Mamba 1. A unit is a sequence and a block of channels, which lie beside each other in the vectors: the state stands as
 * a row of the block for each of its places in the thread's memory.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/sequences.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/simd/functions.h"

#define CHANNELS MICA__CPU_SELECTIVE_CHANNELS
#define ALL_LANES ((uint32_t)((1u << VW) - 1))
#define LOG2E 1.44269504f
#define FAR 250.0f /* of powers of two that scaling serves */

/* The channels [first, first + count) that are worked on, and the thread's memory: rows of CHANNELS floats. */
typedef struct scan_block {
    const mica__cpu_view *view;
    uint64_t first, count, places, group;
    bool softplus;
    float *bias, *skip, *x, *dt, *z, *sums;
    float *rate, *state; /* [places] rows; rate: a log2 e */
    float *most;         /* the greatest |rate| of all places */
    float *b, *c;        /* [places] */
} scan_block;

/* `n` elements that lie `stride` bytes apart into `to`. */
static void load_row(const unsigned char *from, uint16_t dtype, uint64_t stride, uint64_t n, float *to)
{
    const float *row = row_f32_strided(from, dtype, stride, n, to);
    if (row != to)
        memcpy(to, row, n * sizeof *to);
}

/* Of an operand [D] that may be absent. */
static void load_channels(const scan_block *s, uint32_t slot, float *to)
{
    const mica__cpu_view *view = &s->view[slot];
    memset(to, 0, CHANNELS * sizeof *to);
    if (view->data != NULL)
        load_row(view->data + s->first * view->stride[0], view->dtype, view->stride[0], s->count, to);
}

static void load_block(const scan_block *s)
{
    const mica__cpu_view *a = &s->view[MICA__SELECTIVE_A];
    load_channels(s, MICA__SELECTIVE_DT_BIAS, s->bias);
    load_channels(s, MICA__SELECTIVE_SKIP, s->skip);
    memset(s->x, 0, CHANNELS * sizeof *s->x);
    memset(s->z, 0, CHANNELS * sizeof *s->z);
    memset(s->dt, 0, CHANNELS * sizeof *s->dt);
    memset(s->rate, 0, s->places * CHANNELS * sizeof *s->rate);
    memset(s->most, 0, CHANNELS * sizeof *s->most);
    for (uint64_t p = 0; p < s->places; p++) {
        float *rate = s->rate + p * CHANNELS;
        load_row(a->data + s->first * a->stride[0] + p * a->stride[1], a->dtype, a->stride[0], s->count,
                 rate);
        for (uint64_t i = 0; i < CHANNELS; i += VW) {
            vf_store(rate + i, vf_mul(vf_load(rate + i), vf_set1(LOG2E)));
            vf_store(s->most + i, vf_greatest(vf_load(s->most + i), vf_abs(vf_load(rate + i))));
        }
    }
}

/* dt = softplus(dt + bias), each where it is asked for. */
static void load_steps(const scan_block *s)
{
    for (uint64_t i = 0; i < CHANNELS; i += VW) {
        const vf dt = vf_add(vf_load(s->dt + i), vf_load(s->bias + i));
        const vf above = vf_greatest(dt, vf_zero()), rest = vf_log1p(vf_exp(vf_neg(vf_abs(dt))));
        vf_store(s->dt + i, s->softplus ? vf_add(above, rest) : dt);
    }
}

/* e^(dt a), where dt a log2 e is within FAR: 2^n times 2^r of a polynomial that was fitted to it, within 2^-28. r comes out of one fused operation, so that what
 * is rounded is a log2 e alone. */
static inline vf decay_near(vf dt, vf rate)
{
    static const float fit[] = {0x1.41fbbcp-13f, 0x1.5f3e52p-10f, 0x1.3b2d4cp-7f,
                                0x1.c6aee8p-5f,  0x1.ebfbdcp-3f,  0x1.62e43p-1f};
#if MICA__ISA_LEVEL == 3
    const vf n = _mm512_roundscale_ps(vf_mul(dt, rate), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const vf magic = vf_set1(MICA__WHOLE), shifted = vf_add(vf_mul(dt, rate), magic),
             n = vf_sub(shifted, magic);
#endif
    const vf r = vf_fma(dt, rate, vf_neg(n));
    vf p = vf_set1(fit[0]);
    for (int i = 1; i < 6; i++)
        p = vf_fma(p, r, vf_set1(fit[i]));
    p = vf_fma(p, r, vf_set1(1.0f));
#if MICA__ISA_LEVEL == 3
    return _mm512_scalef_ps(p, n);
#else
    return vf_scale2(p, vi_sub(vf_bits(shifted), vf_bits(magic)));
#endif
}

/* The same of any dt: lanes that are far, or NaN, each by itself. */
static inline vf decay_any(vf dt, vf rate)
{
    const vf power = vf_mul(dt, rate);
    const vm near = vf_lt(vf_abs(power), vf_set1(FAR));
    return vf_select(near, decay_near(vf_select(near, dt, vf_zero()), rate), vf_exp2(power));
}

#define PLACES 16u  /* that are summed in their order, and such sums in theirs */
#define TOGETHER 2u /* vectors of channels, so that one waits while the other works */

/* Places [first, end), whose sum is added to what the sums are. `near`: all decays are within FAR. */
static inline __attribute__((always_inline)) void run_places(const scan_block *s, uint64_t i, uint64_t first,
                                                             uint64_t end, bool near)
{
    vf dt[TOGETHER], in[TOGETHER], sum[TOGETHER];
    for (uint32_t v = 0; v < TOGETHER; v++) {
        dt[v] = vf_load(s->dt + i + v * VW);
        in[v] = vf_mul(dt[v], vf_load(s->x + i + v * VW));
        sum[v] = vf_zero();
    }
    for (uint64_t p = first; p < end; p++) {
        const vf b = vf_set1(s->b[p]), c = vf_set1(s->c[p]);
        const float *rate = s->rate + p * CHANNELS + i;
        float *at = s->state + p * CHANNELS + i;
        for (uint32_t v = 0; v < TOGETHER; v++) {
            const vf a = vf_load(rate + v * VW), decay = near ? decay_near(dt[v], a) : decay_any(dt[v], a);
            const vf h = vf_fma(decay, vf_load(at + v * VW), vf_mul(in[v], b));
            vf_store(at + v * VW, h);
            sum[v] = vf_fma(c, h, sum[v]);
        }
    }
    for (uint32_t v = 0; v < TOGETHER; v++)
        vf_store(s->sums + i + v * VW, first > 0 ? vf_add(vf_load(s->sums + i + v * VW), sum[v]) : sum[v]);
}

static void run_token(const scan_block *s)
{
    const bool gated = s->view[MICA__SELECTIVE_Z].data != NULL;
    for (uint64_t i = 0; i < s->count; i += TOGETHER * VW) {
        vf most = vf_zero();
        for (uint32_t v = 0; v < TOGETHER; v++) /* NaN counts as greatest */
            most =
                vf_greatest(most, vf_mul(vf_abs(vf_load(s->dt + i + v * VW)), vf_load(s->most + i + v * VW)));
        const bool near = vm_bits(vf_lt(most, vf_set1(FAR))) == ALL_LANES;
        uint64_t p = 0;
        do {
            const uint64_t end = s->places - p < PLACES ? s->places : p + PLACES;
            if (near)
                run_places(s, i, p, end, true);
            else
                run_places(s, i, p, end, false);
            p = end;
        } while (p < s->places);
        for (uint32_t v = 0; v < TOGETHER; v++) {
            const vf sum = vf_fma(vf_load(s->skip + i + v * VW), vf_load(s->x + i + v * VW),
                                  vf_load(s->sums + i + v * VW));
            vf_store(s->sums + i + v * VW, gated ? vf_mul(sum, vf_silu(vf_load(s->z + i + v * VW))) : sum);
        }
    }
}

static void load_token(const scan_block *s, uint64_t t)
{
    const mica__cpu_view *x = &s->view[MICA__SELECTIVE_X], *dt = &s->view[MICA__SELECTIVE_DT],
                         *b = &s->view[MICA__SELECTIVE_B], *c = &s->view[MICA__SELECTIVE_C],
                         *z = &s->view[MICA__SELECTIVE_Z];
    load_row(x->data + t * x->stride[0] + s->first * x->stride[1], x->dtype, x->stride[1], s->count, s->x);
    load_row(dt->data + t * dt->stride[0] + s->first * dt->stride[1], dt->dtype, dt->stride[1], s->count,
             s->dt);
    load_row(b->data + t * b->stride[0] + s->group * b->stride[1], b->dtype, b->stride[2], s->places, s->b);
    load_row(c->data + t * c->stride[0] + s->group * c->stride[1], c->dtype, c->stride[2], s->places, s->c);
    if (z->data != NULL)
        load_row(z->data + t * z->stride[0] + s->first * z->stride[1], z->dtype, z->stride[1], s->count,
                 s->z);
    load_steps(s);
}

static void run_sequence(const scan_block *s, const sequence *of)
{
    const mica__cpu_view *state = &s->view[MICA__SELECTIVE_STATE],
                         *next = &s->view[MICA__SELECTIVE_NEXT_STATE], *y = &s->view[MICA__SELECTIVE_Y];
    memset(s->state, 0, s->places * CHANNELS * sizeof *s->state);
    for (uint64_t p = 0; of->from != NULL && p < s->places; p++)
        load_row(of->from + s->first * state->stride[1] + p * state->stride[2], MICA_DTYPE_F32,
                 state->stride[1], s->count, s->state + p * CHANNELS);
    for (uint64_t t = of->first; t < of->first + of->count; t++) {
        load_token(s, t);
        run_token(s);
        row_store(y->data + t * y->stride[0] + s->first * row_element_bytes(y->dtype), y->dtype, s->sums,
                  s->count);
    }
    for (uint64_t p = 0; of->to != NULL && p < s->places; p++)
        row_store_strided(of->to + s->first * next->stride[1] + p * next->stride[2], MICA_DTYPE_F32,
                          next->stride[1], s->state + p * CHANNELS, s->count);
}

void MICA__ISA(selective_scan)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_selective *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const uint64_t each = params->channels, blocks = (each + CHANNELS - 1) / CHANNELS;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    scan_block s = {.view = args->view, .first = UINT64_MAX, .softplus = params->softplus != 0};
    s.places = args->view[MICA__SELECTIVE_A].shape[1];
    s.bias = args->local;
    s.skip = s.bias + CHANNELS;
    s.x = s.skip + CHANNELS;
    s.dt = s.x + CHANNELS;
    s.z = s.dt + CHANNELS;
    s.sums = s.z + CHANNELS;
    s.most = s.sums + CHANNELS;
    s.rate = s.most + CHANNELS;
    s.state = s.rate + s.places * CHANNELS;
    s.b = s.state + s.places * CHANNELS;
    s.c = s.b + s.places;
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * params->groups * blocks) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence found = sequence_of(args, of, row % of->count);
        const uint64_t block = row / of->count % blocks, group = row / of->count / blocks;
        const uint64_t begin = group * each + block * CHANNELS;
        if (!found.fine)
            continue;
        if (begin != s.first) {
            s.first = begin;
            s.group = group;
            s.count = each - block * CHANNELS < CHANNELS ? each - block * CHANNELS : CHANNELS;
            load_block(&s);
        }
        run_sequence(&s, &found);
    }
}
