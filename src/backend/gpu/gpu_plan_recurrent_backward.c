/* gpu_plan_recurrent_backward.c - plans of the gradients of what carries a state from token to token. */
#include <math.h>
#include <string.h>

#include "backend/gpu/gpu_plan_recurrent.h"
#include "base/status.h"

#define SCAN_WG 64u /* channels of a group */

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static void set2(uint64_t *to, const uint64_t *from)
{
    memcpy(to, from, 2 * sizeof *to);
}

static void set3(uint64_t *to, const uint64_t *from)
{
    memcpy(to, from, 3 * sizeof *to);
}

/* `state` is followed by starts and read_slots; dx has the tokens. */
static mica__gpu_sequence_slots slots_of(uint32_t state, uint32_t dx)
{
    const mica__gpu_sequence_slots at = {state, state + 1, state + 2, state + 2, dx, MICA__GPU_NO_SLOT};
    return at;
}

_Static_assert(MICA__SSM_CONV_BACKWARD_READ_SLOTS == MICA__SSM_CONV_BACKWARD_STATE + 2 &&
                   MICA__DELTA_BACKWARD_READ_SLOTS == MICA__DELTA_BACKWARD_STATE + 2 &&
                   MICA__SELECTIVE_BACKWARD_READ_SLOTS == MICA__SELECTIVE_BACKWARD_STATE + 2 &&
                   MICA__RNN_BACKWARD_READ_SLOTS == MICA__RNN_BACKWARD_STATE + 2,
               "slots_of counts from state on");

/* A state is kept every so many tokens: as many are kept then as there are between two of them. */
static uint32_t stretch_of(const mk_sequences *of)
{
    const uint32_t longest = (of->present & MK_SEQUENCES_STARTS) != 0 ? of->tokens : of->each;
    const uint32_t root = (uint32_t)ceil(sqrt((double)longest));
    return root > 0 ? root : 1;
}

/* How many states are kept, over all sequences: each begins behind those of the one before. */
static uint64_t kept_of(const mk_sequences *of, uint32_t stretch)
{
    return of->tokens / stretch + of->count + 1;
}

/* The next part of the scratch; where it begins. */
static uint64_t part_of(uint64_t *bytes, uint64_t floats)
{
    const uint64_t at = *bytes;
    *bytes += ceil_of(4 * floats, 64) * 64;
    return at;
}

static uint32_t type_of(const mica__record *record, uint32_t slot)
{
    return mica__gpu_type(record->operand[slot].dtype);
}

static uint32_t has(const mica__record *record, uint32_t slot, uint32_t bit)
{
    return mica__operand_present(&record->operand[slot]) ? bit : 0;
}

static void bind(mica__plan *plan, const mica__record *record, const uint32_t *slots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mica__gpu_plan_operand(plan, record, slots[i], 0);
}
#define BIND(plan, record, ...)                         \
    bind(plan, record, (const uint32_t[]){__VA_ARGS__}, \
         sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* ---- convolution ---- */

#define CONV(name) MICA__SSM_CONV_BACKWARD_##name

static mk_conv_backward_params conv_params(const mica__record *record, const mica__gpu_sequence_slots *at)
{
    const mica__ssm_conv_record *conv = record->params;
    const mica__operand *o = record->operand;
    mk_conv_backward_params p;
    memset(&p, 0, sizeof p);
    p.of = mica__gpu_sequences_of(record, at, conv->sequences);
    set2(p.x_stride, o[CONV(X)].stride);
    set2(p.dy_stride, o[CONV(DY)].stride);
    set2(p.dx_stride, o[CONV(DX)].stride);
    set2(p.weight_stride, o[CONV(WEIGHT)].stride);
    set2(p.dweight_stride, o[CONV(DWEIGHT)].stride);
    set2(p.state_stride, o[CONV(STATE)].stride + 1);
    set3(p.dnext_stride, o[CONV(DNEXT)].stride);
    set3(p.dstate_stride, o[CONV(DSTATE)].stride);
    p.bias_stride = o[CONV(BIAS)].stride[0];
    p.dbias_stride = o[CONV(DBIAS)].stride[0];
    p.channels = (uint32_t)o[CONV(WEIGHT)].shape[0];
    p.width = (uint32_t)o[CONV(WEIGHT)].shape[1];
    p.silu = conv->conv.activation == MICA_SSM_SILU;
    p.present =
        has(record, CONV(BIAS), MK_CONV_BACKWARD_BIAS) | has(record, CONV(DNEXT), MK_CONV_BACKWARD_DNEXT) |
        has(record, CONV(DWEIGHT), MK_CONV_BACKWARD_DWEIGHT) |
        has(record, CONV(DBIAS), MK_CONV_BACKWARD_DBIAS) | has(record, CONV(DSTATE), MK_CONV_BACKWARD_DSTATE);
    p.x_type = type_of(record, CONV(X));
    p.weight_type = type_of(record, CONV(WEIGHT));
    p.bias_type = type_of(record, CONV(BIAS));
    p.state_type = type_of(record, CONV(STATE));
    p.dy_type = type_of(record, CONV(DY));
    p.dnext_type = type_of(record, CONV(DNEXT));
    p.dx_type = type_of(record, CONV(DX));
    p.dweight_type = type_of(record, CONV(DWEIGHT));
    p.dbias_type = type_of(record, CONV(DBIAS));
    p.dstate_type = type_of(record, CONV(DSTATE));
    return p;
}

mica_status mica__gpu_plan_ssm_conv_backward(const mica__record *record, const mica__device_info *info,
                                             mica__plan *plan)
{
    const mica__gpu_sequence_slots at = slots_of(CONV(STATE), CONV(DX));
    (void)info;
    MICA__TRY(mica__gpu_recurrent_check(record, 3u << CONV(STARTS)));
    const mk_conv_backward_params p = conv_params(record, &at);
    const uint64_t blocks = ceil_of(p.channels, MICA__MK_WG);
    if (blocks == 0)
        return MICA_OK;
    if (p.of.tokens > 0) {
        MICA__TRY(mica__gpu_plan_next(plan, "ssm_conv_backward/inputs", p.of.tokens));
        MICA__TRY(mica__gpu_plan_groups(plan, blocks, 1));
        BIND(plan, record, CONV(X), CONV(WEIGHT), CONV(BIAS), CONV(STATE), CONV(STARTS), CONV(READ_SLOTS),
             CONV(DY), CONV(DNEXT), CONV(DX));
        mica__gpu_plan_params(plan, &p, sizeof p);
    }
    if (p.of.count > 0 && (mica__gpu_is_packed(&p.of) || (p.present & MK_CONV_BACKWARD_DSTATE) != 0)) {
        MICA__TRY(mica__gpu_plan_next(plan, "ssm_conv_backward/states", p.of.count));
        MICA__TRY(mica__gpu_plan_groups(plan, blocks, 1));
        BIND(plan, record, CONV(X), CONV(WEIGHT), CONV(BIAS), CONV(STATE), CONV(STARTS), CONV(READ_SLOTS),
             CONV(DY), CONV(DNEXT), CONV(DSTATE));
        mica__gpu_plan_fault(plan);
        mica__gpu_plan_params(plan, &p, sizeof p);
    }
    if ((p.present & (MK_CONV_BACKWARD_DWEIGHT | MK_CONV_BACKWARD_DBIAS)) == 0)
        return MICA_OK;
    MICA__TRY(mica__gpu_plan_next(plan, "ssm_conv_backward/weights", blocks));
    MICA__TRY(mica__gpu_plan_groups(plan, p.width + 1ull, 1));
    BIND(plan, record, CONV(X), CONV(WEIGHT), CONV(BIAS), CONV(STATE), CONV(STARTS), CONV(READ_SLOTS),
         CONV(DY), CONV(DWEIGHT), CONV(DBIAS));
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}

/* ---- the delta rule ---- */

#define DELTA(name) MICA__DELTA_BACKWARD_##name

static void set_delta_strides(const mica__operand *o, mk_delta_backward_params *p)
{
    set3(p->q_stride, o[DELTA(Q)].stride);
    set3(p->k_stride, o[DELTA(K)].stride);
    set3(p->v_stride, o[DELTA(V)].stride);
    set3(p->g_stride, o[DELTA(G)].stride);
    set2(p->beta_stride, o[DELTA(BETA)].stride);
    p->skip_stride = o[DELTA(SKIP)].stride[0];
    set3(p->state_stride, o[DELTA(STATE)].stride + 1);
    set3(p->dy_stride, o[DELTA(DY)].stride);
    memcpy(p->dnext_stride, o[DELTA(DNEXT)].stride, sizeof p->dnext_stride);
    set3(p->dv_stride, o[DELTA(DV)].stride);
    set3(p->dg_stride, o[DELTA(DG)].stride);
    set2(p->dbeta_stride, o[DELTA(DBETA)].stride);
    memcpy(p->dstate_stride, o[DELTA(DSTATE)].stride, sizeof p->dstate_stride);
}

static mk_delta_backward_params delta_params(const mica__record *record, const mica__gpu_sequence_slots *at,
                                             uint64_t *bytes)
{
    static const uint32_t typed[] = {DELTA(Q),    DELTA(K),  DELTA(V),  DELTA(G),  DELTA(BETA),
                                     DELTA(SKIP), DELTA(DY), DELTA(DV), DELTA(DG), DELTA(DBETA)};
    const mica__delta_record *delta = record->params;
    const mica__operand *o = record->operand, *q = &o[DELTA(Q)], *v = &o[DELTA(V)];
    mk_delta_backward_params p;
    memset(&p, 0, sizeof p);
    p.of = mica__gpu_sequences_of(record, at, delta->sequences);
    set_delta_strides(o, &p);
    p.heads = (uint32_t)v->shape[1];
    p.share = q->shape[1] > 0 ? (uint32_t)(v->shape[1] / q->shape[1]) : 1;
    p.dim = (uint32_t)q->shape[2];
    p.columns = (uint32_t)v->shape[2];
    p.stretch = stretch_of(&p.of);
    p.correct = delta->delta.rule == MICA_DELTA_CORRECT;
    p.normalise = delta->delta.normalise;
    p.by_row = mica__operand_present(&o[DELTA(G)]) && o[DELTA(G)].ndim == 3;
    p.present =
        has(record, DELTA(G), MK_DELTA_BACKWARD_G) | has(record, DELTA(BETA), MK_DELTA_BACKWARD_BETA) |
        has(record, DELTA(SKIP), MK_DELTA_BACKWARD_SKIP) |
        has(record, DELTA(DNEXT), MK_DELTA_BACKWARD_DNEXT) | has(record, DELTA(DG), MK_DELTA_BACKWARD_DG) |
        has(record, DELTA(DBETA), MK_DELTA_BACKWARD_DBETA) |
        has(record, DELTA(DSTATE), MK_DELTA_BACKWARD_DSTATE);
    for (uint32_t i = 0; i < sizeof typed / sizeof *typed; i++)
        p.types |= type_of(record, typed[i]) << 2 * i;
    p.eps = delta->delta.eps;
    p.scale = delta->delta.scale;
    const uint64_t size = (uint64_t)p.dim * p.columns, each = (uint64_t)p.of.count * p.heads;
    (void)part_of(bytes, kept_of(&p.of, p.stretch) * p.heads * size);
    p.stretch_at = part_of(bytes, each * (p.stretch + 1ull) * size);
    p.reach_at = part_of(bytes, each * size);
    p.vectors_at = part_of(bytes, each * (3ull * p.dim + 2ull * p.columns));
    p.parts_at = part_of(bytes, (uint64_t)p.of.tokens * p.heads * 2 * p.dim + 1);
    return p;
}

/* dq, or dk: out of what value heads gave. */
static mica_status plan_vectors(const mica__record *record, const mk_delta_backward_params *p, uint32_t which,
                                uint64_t bytes, mica__plan *plan)
{
    const uint32_t x = which == 0 ? DELTA(Q) : DELTA(K), dx = which == 0 ? DELTA(DQ) : DELTA(DK);
    mk_delta_vectors_params v;
    if (p->of.tokens == 0 || record->operand[x].shape[1] == 0 || p->dim == 0)
        return MICA_OK;
    memset(&v, 0, sizeof v);
    v.of = p->of;
    set3(v.x_stride, record->operand[x].stride);
    set3(v.dx_stride, record->operand[dx].stride);
    v.parts_at = p->parts_at;
    v.heads = p->heads;
    v.share = p->share;
    v.dim = p->dim;
    v.which = which;
    v.normalise = p->normalise;
    v.x_type = type_of(record, x);
    v.dx_type = type_of(record, dx);
    v.eps = p->eps;
    v.scale = which == 0 ? p->scale : 1.0f;
    MICA__TRY(mica__gpu_plan_next(plan, "delta_net_backward/vectors", p->of.tokens));
    MICA__TRY(mica__gpu_plan_groups(plan, record->operand[x].shape[1], 1));
    BIND(plan, record, x, DELTA(STARTS), DELTA(READ_SLOTS));
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_operand(plan, record, dx, 0);
    mica__gpu_plan_params(plan, &v, sizeof v);
    return MICA_OK;
}

static mica_status plan_skips(const mica__record *record, const mk_delta_backward_params *p, mica__plan *plan)
{
    mk_delta_skip_params s;
    if (!mica__operand_present(&record->operand[DELTA(DSKIP)]) || p->heads == 0)
        return MICA_OK;
    memset(&s, 0, sizeof s);
    s.of = p->of;
    set3(s.v_stride, p->v_stride);
    set3(s.dy_stride, p->dy_stride);
    s.dskip_stride = record->operand[DELTA(DSKIP)].stride[0];
    s.columns = p->columns;
    s.v_type = type_of(record, DELTA(V));
    s.dy_type = type_of(record, DELTA(DY));
    s.dskip_type = type_of(record, DELTA(DSKIP));
    MICA__TRY(mica__gpu_plan_next(plan, "delta_net_backward/skips", p->heads));
    BIND(plan, record, DELTA(V), DELTA(STARTS), DELTA(READ_SLOTS), DELTA(DY), DELTA(DSKIP));
    mica__gpu_plan_params(plan, &s, sizeof s);
    return MICA_OK;
}

mica_status mica__gpu_plan_delta_net_backward(const mica__record *record, const mica__device_info *info,
                                              mica__plan *plan)
{
    const mica__gpu_sequence_slots at = slots_of(DELTA(STATE), DELTA(DV));
    uint64_t bytes = 0;
    (void)info;
    MICA__TRY(mica__gpu_recurrent_check(record, 3u << DELTA(STARTS)));
    const mk_delta_backward_params p = delta_params(record, &at, &bytes);
    for (uint32_t slot = DELTA(DV); slot <= DELTA(DBETA); slot++)
        MICA__TRY(mica__gpu_plan_gaps(record, &at, slot, &p.of, plan));
    if (p.of.count > 0 && p.heads > 0) {
        MICA__TRY(mica__gpu_plan_next(plan, "delta_net_backward/heads", (uint64_t)p.of.count * p.heads));
        BIND(plan, record, DELTA(Q), DELTA(K), DELTA(V), DELTA(G), DELTA(BETA), DELTA(SKIP), DELTA(STATE),
             DELTA(STARTS), DELTA(READ_SLOTS), DELTA(DY), DELTA(DNEXT), DELTA(DV), DELTA(DG), DELTA(DBETA),
             DELTA(DSTATE));
        mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
        mica__gpu_plan_fault(plan);
        mica__gpu_plan_params(plan, &p, sizeof p);
    }
    MICA__TRY(plan_vectors(record, &p, 0, bytes, plan));
    MICA__TRY(plan_vectors(record, &p, 1, bytes, plan));
    return plan_skips(record, &p, plan);
}

/* ---- selective scan ---- */

#define SCAN(name) MICA__SELECTIVE_BACKWARD_##name

static void set_scan_operands(const mica__record *record, mk_scan_backward_params *p)
{
    const mica__operand *o = record->operand;
    set2(p->x_stride, o[SCAN(X)].stride);
    set2(p->dt_stride, o[SCAN(DT)].stride);
    set2(p->z_stride, o[SCAN(Z)].stride);
    set2(p->dy_stride, o[SCAN(DY)].stride);
    set2(p->dx_stride, o[SCAN(DX)].stride);
    set2(p->ddt_stride, o[SCAN(DDT)].stride);
    set2(p->dz_stride, o[SCAN(DZ)].stride);
    set2(p->a_stride, o[SCAN(A)].stride);
    set3(p->b_stride, o[SCAN(B)].stride);
    set3(p->c_stride, o[SCAN(C)].stride);
    p->skip_stride = o[SCAN(SKIP)].stride[0];
    p->bias_stride = o[SCAN(DT_BIAS)].stride[0];
    set2(p->state_stride, o[SCAN(STATE)].stride + 1);
    set3(p->dnext_stride, o[SCAN(DNEXT)].stride);
    set3(p->dstate_stride, o[SCAN(DSTATE)].stride);
    p->x_type = type_of(record, SCAN(X));
    p->dt_type = type_of(record, SCAN(DT));
    p->a_type = type_of(record, SCAN(A));
    p->b_type = type_of(record, SCAN(B));
    p->c_type = type_of(record, SCAN(C));
    p->skip_type = type_of(record, SCAN(SKIP));
    p->bias_type = type_of(record, SCAN(DT_BIAS));
    p->z_type = type_of(record, SCAN(Z));
    p->dy_type = type_of(record, SCAN(DY));
    p->dx_type = type_of(record, SCAN(DX));
    p->ddt_type = type_of(record, SCAN(DDT));
    p->dz_type = type_of(record, SCAN(DZ));
    p->present =
        has(record, SCAN(SKIP), MK_SCAN_BACKWARD_SKIP) |
        has(record, SCAN(DT_BIAS), MK_SCAN_BACKWARD_DT_BIAS) | has(record, SCAN(Z), MK_SCAN_BACKWARD_Z) |
        has(record, SCAN(DNEXT), MK_SCAN_BACKWARD_DNEXT) | has(record, SCAN(DSKIP), MK_SCAN_BACKWARD_DSKIP) |
        has(record, SCAN(DDT_BIAS), MK_SCAN_BACKWARD_DDT_BIAS) | has(record, SCAN(DZ), MK_SCAN_BACKWARD_DZ) |
        has(record, SCAN(DSTATE), MK_SCAN_BACKWARD_DSTATE);
}

static mk_scan_backward_params scan_params(const mica__record *record, const mica__gpu_sequence_slots *at,
                                           uint64_t *bytes)
{
    const mica__selective_record *scan = record->params;
    const mica__operand *a = &record->operand[SCAN(A)], *b = &record->operand[SCAN(B)];
    mk_scan_backward_params p;
    memset(&p, 0, sizeof p);
    p.of = mica__gpu_sequences_of(record, at, scan->sequences);
    set_scan_operands(record, &p);
    p.channels = (uint32_t)a->shape[0];
    p.places = (uint32_t)a->shape[1];
    p.groups = (uint32_t)b->shape[1];
    p.share = p.groups > 0 ? p.channels / p.groups : 0;
    p.blocks = (uint32_t)ceil_of(p.share, SCAN_WG);
    p.stretch = stretch_of(&p.of);
    p.softplus = scan->selective.softplus;
    const uint64_t state = (uint64_t)p.channels * p.places;
    p.kept_at = part_of(bytes, kept_of(&p.of, p.stretch) * state);
    p.stretch_at = part_of(bytes, p.of.count * (p.stretch + 1ull) * state);
    p.reach_at = part_of(bytes, p.of.count * state);
    p.parts_at = part_of(bytes, (uint64_t)p.of.count * p.channels * (p.places + 2ull));
    p.shared_at = part_of(bytes, (uint64_t)p.of.tokens * p.groups * p.blocks * 2 * p.places);
    return p;
}

/* What channels are given by sequences, and b and c by blocks of channels. */
static mica_status plan_scan_sums(const mica__record *record, const mk_scan_backward_params *p,
                                  uint64_t bytes, mica__plan *plan)
{
    const mica__operand *o = record->operand;
    mk_scan_sums_params s;
    memset(&s, 0, sizeof s);
    s.of = p->of;
    set2(s.da_stride, o[SCAN(DA)].stride);
    s.dskip_stride = o[SCAN(DSKIP)].stride[0];
    s.dbias_stride = o[SCAN(DDT_BIAS)].stride[0];
    set3(s.db_stride, o[SCAN(DB)].stride);
    set3(s.dc_stride, o[SCAN(DC)].stride);
    s.channels = p->channels;
    s.places = p->places;
    s.groups = p->groups;
    s.blocks = p->blocks;
    s.present = p->present;
    s.da_type = type_of(record, SCAN(DA));
    s.dskip_type = type_of(record, SCAN(DSKIP));
    s.dbias_type = type_of(record, SCAN(DDT_BIAS));
    s.db_type = type_of(record, SCAN(DB));
    s.dc_type = type_of(record, SCAN(DC));
    if (p->channels > 0) {
        s.from = p->parts_at;
        MICA__TRY(
            mica__gpu_plan_next(plan, "selective_scan_backward/channels", ceil_of(p->channels, SCAN_WG)));
        MICA__TRY(mica__gpu_plan_groups(plan, p->places + 2ull, 1));
        mica__gpu_plan_constant(plan, "MK_WG", SCAN_WG);
        mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
        BIND(plan, record, SCAN(DA), SCAN(DSKIP), SCAN(DDT_BIAS));
        mica__gpu_plan_params(plan, &s, sizeof s);
    }
    if (p->of.tokens == 0 || p->groups == 0 || p->places == 0)
        return MICA_OK;
    s.from = p->shared_at;
    MICA__TRY(mica__gpu_plan_next(plan, "selective_scan_backward/shared", p->of.tokens));
    MICA__TRY(mica__gpu_plan_groups(plan, p->groups, 1));
    mica__gpu_plan_constant(plan, "MK_WG", SCAN_WG);
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    BIND(plan, record, SCAN(STARTS), SCAN(READ_SLOTS), SCAN(DB), SCAN(DC));
    mica__gpu_plan_params(plan, &s, sizeof s);
    return MICA_OK;
}

mica_status mica__gpu_plan_selective_scan_backward(const mica__record *record, const mica__device_info *info,
                                                   mica__plan *plan)
{
    const mica__gpu_sequence_slots at = slots_of(SCAN(STATE), SCAN(DX));
    uint64_t bytes = 64;
    (void)info;
    MICA__TRY(mica__gpu_recurrent_check(record, 3u << SCAN(STARTS)));
    const mk_scan_backward_params p = scan_params(record, &at, &bytes);
    MICA__TRY(mica__gpu_plan_gaps(record, &at, SCAN(DX), &p.of, plan));
    MICA__TRY(mica__gpu_plan_gaps(record, &at, SCAN(DDT), &p.of, plan));
    MICA__TRY(mica__gpu_plan_gaps(record, &at, SCAN(DZ), &p.of, plan));
    if (p.of.count > 0 && p.blocks > 0) {
        MICA__TRY(mica__gpu_plan_next(plan, "selective_scan_backward/scan",
                                      (uint64_t)p.of.count * p.groups * p.blocks));
        mica__gpu_plan_constant(plan, "MK_WG", SCAN_WG);
        BIND(plan, record, SCAN(X), SCAN(DT), SCAN(A), SCAN(B), SCAN(C), SCAN(SKIP), SCAN(DT_BIAS), SCAN(Z),
             SCAN(STATE), SCAN(STARTS), SCAN(READ_SLOTS), SCAN(DY), SCAN(DNEXT), SCAN(DX), SCAN(DDT),
             SCAN(DZ), SCAN(DSTATE));
        mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
        mica__gpu_plan_fault(plan);
        mica__gpu_plan_params(plan, &p, sizeof p);
    }
    return plan_scan_sums(record, &p, bytes, plan);
}

/* ---- cells ---- */

#define RNN(name) MICA__RNN_BACKWARD_##name

static mk_rnn_backward_params rnn_params(const mica__record *record, const mica__gpu_sequence_slots *at,
                                         uint64_t *bytes)
{
    const mica__rnn_record *rnn = record->params;
    const mica__operand *o = record->operand, *weight = &o[RNN(WEIGHT)];
    mk_rnn_backward_params p;
    memset(&p, 0, sizeof p);
    p.of = mica__gpu_sequences_of(record, at, rnn->sequences);
    set2(p.x_stride, o[RNN(X)].stride);
    set2(p.dy_stride, o[RNN(DY)].stride);
    set2(p.dx_stride, o[RNN(DX)].stride);
    set2(p.weight_stride, weight->stride);
    set2(p.dweight_stride, o[RNN(DWEIGHT)].stride);
    p.bias_stride = o[RNN(BIAS)].stride[0];
    p.dbias_stride = o[RNN(DBIAS)].stride[0];
    set2(p.state_stride, o[RNN(STATE)].stride + 1);
    set3(p.dnext_stride, o[RNN(DNEXT)].stride);
    set3(p.dstate_stride, o[RNN(DSTATE)].stride);
    p.hidden = (uint32_t)weight->shape[1];
    p.gates = (uint32_t)mica__rnn_gates(rnn->rnn.kind);
    p.kept = rnn->rnn.kind == MICA_RNN_LSTM ? 2 : 1;
    p.rectified = rnn->rnn.kind == MICA_RNN_RELU;
    p.reverse = rnn->rnn.reverse;
    p.has_bias = has(record, RNN(BIAS), 1);
    p.has_dnext = has(record, RNN(DNEXT), 1);
    p.has_dweight = has(record, RNN(DWEIGHT), 1);
    p.has_dbias = has(record, RNN(DBIAS), 1);
    p.has_dstate = has(record, RNN(DSTATE), 1);
    p.x_type = type_of(record, RNN(X));
    p.weight_type = type_of(record, RNN(WEIGHT));
    p.bias_type = type_of(record, RNN(BIAS));
    p.dy_type = type_of(record, RNN(DY));
    p.dx_type = type_of(record, RNN(DX));
    p.dweight_type = type_of(record, RNN(DWEIGHT));
    p.dbias_type = type_of(record, RNN(DBIAS));
    (void)part_of(bytes, (uint64_t)p.of.tokens * MK_RNN_KEPT * p.hidden);
    p.states_at = part_of(bytes, (uint64_t)p.of.count * 8 * p.hidden);
    return p;
}

mica_status mica__gpu_plan_rnn_backward(const mica__record *record, const mica__device_info *info,
                                        mica__plan *plan)
{
    const mica__gpu_sequence_slots at = slots_of(RNN(STATE), RNN(DX));
    uint64_t bytes = 64;
    (void)info;
    MICA__TRY(mica__gpu_recurrent_check(record, 3u << RNN(STARTS)));
    const mk_rnn_backward_params p = rnn_params(record, &at, &bytes);
    MICA__TRY(mica__gpu_plan_gaps(record, &at, RNN(DX), &p.of, plan));
    if (p.hidden == 0)
        return MICA_OK;
    if (p.of.count > 0) {
        MICA__TRY(mica__gpu_plan_next(plan, "rnn_backward/cells", p.of.count));
        BIND(plan, record, RNN(X), RNN(WEIGHT), RNN(BIAS), RNN(STATE), RNN(STARTS), RNN(READ_SLOTS), RNN(DY),
             RNN(DNEXT), RNN(DX), RNN(DSTATE));
        mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ | MICA_ACCESS_WRITE);
        mica__gpu_plan_fault(plan);
        mica__gpu_plan_params(plan, &p, sizeof p);
    }
    if (p.has_dweight == 0 && p.has_dbias == 0)
        return MICA_OK;
    MICA__TRY(mica__gpu_plan_next(plan, "rnn_backward/weights", (uint64_t)p.gates * p.hidden));
    MICA__TRY(mica__gpu_plan_groups(plan, p.hidden / MICA__MK_WG + 1, 1));
    BIND(plan, record, RNN(STARTS), RNN(READ_SLOTS), RNN(DWEIGHT), RNN(DBIAS));
    mica__gpu_plan_scratch(plan, 0, bytes, MICA_ACCESS_READ);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
