/*
 * interpreter.h - runs record lists made by hand, in plain C, on byte arrays.
 *
 * It is the meaning of record.h at its most literal: element by element, writing as it goes, f32 arithmetic
 * in the order the header gives. Two lists that mean the same leave the same bytes in every storage that is
 * not a temporary.
 */
#ifndef TESTS_SESSION_INTERPRETER_H
#define TESTS_SESSION_INTERPRETER_H

#include <math.h>

#include "base/half.h"
#include "session/records.h"

typedef struct memory {
    _Alignas(64) unsigned char bytes[HAND_STORAGES][HAND_BYTES];
} memory;

#define ROW_MAX 64

/* ---- elements ---- */

static inline unsigned char *at(const hand *h, memory *m, const mica__operand *o, uint64_t index)
{
    size_t id = (size_t)((const mica__storage *)o->storage - h->storage);
    uint64_t offset = o->offset;
    for (uint32_t d = o->ndim; d-- > 0;) {
        offset += index % o->shape[d] * o->stride[d];
        index /= o->shape[d];
    }
    return &m->bytes[id][offset];
}

static inline float get(const hand *h, memory *m, const mica__operand *o, uint64_t index)
{
    uint16_t half;
    float value;
    if (o->dtype == MICA_DTYPE_F16) {
        memcpy(&half, at(h, m, o, index), sizeof half);
        return mica__f16_to_f32_soft(half);
    }
    memcpy(&value, at(h, m, o, index), sizeof value);
    return value;
}

/* Any NaN becomes the same one: which of two a sum takes over is the compiler's choice. */
static inline void set(const hand *h, memory *m, const mica__operand *o, uint64_t index, float value)
{
    if (isnan(value))
        value = NAN;
    uint16_t half = mica__f32_to_f16_soft(value);
    if (o->dtype == MICA_DTYPE_F16)
        memcpy(at(h, m, o, index), &half, sizeof half);
    else
        memcpy(at(h, m, o, index), &value, sizeof value);
}

static inline uint32_t get_index(const hand *h, memory *m, const mica__operand *o, uint64_t index)
{
    uint32_t value;
    memcpy(&value, at(h, m, o, index), sizeof value);
    return value;
}

static inline uint64_t elements(const mica__operand *o)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < o->ndim; d++)
        n *= o->shape[d];
    return n;
}

/* ---- functions ---- */

static inline float silu(float x)
{
    return x / (1.0f + expf(-x));
}

static inline float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static inline float softcap(float x, float cap)
{
    return cap * tanhf(x / cap);
}

static inline void rms(float *row, uint64_t n, float eps, const hand *h, memory *m,
                       const mica__operand *weight)
{
    float sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += row[i] * row[i];
    float r = 1.0f / sqrtf(sum / (float)n + eps);
    for (uint64_t i = 0; i < n; i++) {
        row[i] = row[i] * r;
        if (mica__operand_present(weight))
            row[i] = row[i] * get(h, m, weight, i);
    }
}

/* ---- ops ---- */

static inline void run_norm(const hand *h, memory *m, const mica__record *r)
{
    const mica__operand *o = r->operand, *x = &o[MICA__NORM_X], *y = &o[MICA__NORM_Y];
    uint64_t n = x->shape[x->ndim - 1u];
    float row[ROW_MAX];
    for (uint64_t base = 0; base < elements(x); base += n) {
        for (uint64_t i = 0; i < n; i++) {
            row[i] = get(h, m, x, base + i);
            if (mica__operand_present(&o[MICA__NORM_RESIDUAL]))
                row[i] = row[i] + get(h, m, &o[MICA__NORM_RESIDUAL], base + i);
            if (mica__operand_present(&o[MICA__NORM_SUM]))
                set(h, m, &o[MICA__NORM_SUM], base + i, row[i]);
        }
        rms(row, n, ((const mica_norm_params *)r->params)->eps, h, m, &o[MICA__NORM_WEIGHT]);
        for (uint64_t i = 0; i < n; i++) {
            if (mica__operand_present(&o[MICA__NORM_MUL]))
                row[i] = row[i] * get(h, m, &o[MICA__NORM_MUL], base + i);
            if (mica__operand_present(&o[MICA__NORM_ADD]))
                row[i] = row[i] + get(h, m, &o[MICA__NORM_ADD], base + i);
            set(h, m, y, base + i, row[i]);
        }
    }
}

static inline float dot(const hand *h, memory *m, const float *row, const mica__operand *w, uint64_t n,
                        uint64_t k)
{
    float sum = 0;
    for (uint64_t i = 0; i < k; i++)
        sum += row[i] * get(h, m, w, n * k + i);
    return sum;
}

static inline void run_matmul(const hand *h, memory *m, const mica__record *r)
{
    const mica__operand *o = r->operand, *x = &o[MICA__MATMUL_X];
    const mica__matmul_record *p = r->params;
    uint64_t k = x->shape[x->ndim - 1u], rows = elements(x) / k;
    float row[ROW_MAX];
    for (uint64_t w = 0; w < p->weight_count; w++) {
        const mica__operand *weight = &o[MICA__MATMUL_SLOT(w, MICA__WEIGHT_DATA)];
        const mica__operand *y = &o[MICA__MATMUL_SLOT(w, MICA__WEIGHT_Y)];
        if (!mica__operand_present(y))
            continue;
        uint64_t columns = weight->shape[0];
        for (uint64_t e = 0; e < rows * columns; e++) {
            for (uint64_t i = 0; i < k; i++)
                row[i] = get(h, m, x, e / columns * k + i);
            if (p->norm)
                rms(row, k, p->eps, h, m, &o[MICA__MATMUL_NORM_WEIGHT]);
            float value = dot(h, m, row, weight, e % columns, k);
            if (p->gate != MICA__GATE_NONE)
                value = (p->gate == MICA__GATE_SILU ? silu(value) : gelu(value)) *
                        dot(h, m, row, &o[MICA__MATMUL_SLOT(1, MICA__WEIGHT_DATA)], e % columns, k);
            if (w == 0 && p->softcap > 0)
                value = softcap(value, p->softcap);
            if (w == 0 && mica__operand_present(&o[MICA__MATMUL_RESIDUAL]))
                value = value + get(h, m, &o[MICA__MATMUL_RESIDUAL], e);
            set(h, m, y, e, value);
        }
    }
}

/* One slot a row of x; an id outside gives zeros. */
static inline void run_experts(const hand *h, memory *m, const mica__record *r)
{
    const mica__operand *o = r->operand, *x = &o[MICA__EXPERTS_X], *weight = &o[MICA__EXPERTS_WEIGHT];
    const mica__matmul_record *p = r->params;
    uint64_t k = weight->shape[2], columns = weight->shape[1], rows = elements(x) / k;
    float row[ROW_MAX];
    for (uint64_t e = 0; e < rows * columns; e++) {
        uint64_t expert = get_index(h, m, &o[MICA__EXPERTS_IDS], e / columns);
        uint64_t from = expert * columns + e % columns;
        float value = 0;
        for (uint64_t i = 0; i < k; i++)
            row[i] = get(h, m, x, e / columns * k + i);
        if (expert < weight->shape[0])
            value = dot(h, m, row, weight, from, k);
        if (expert < weight->shape[0] && p->gate != MICA__GATE_NONE)
            value = (p->gate == MICA__GATE_SILU ? silu(value) : gelu(value)) *
                    dot(h, m, row, &o[MICA__EXPERTS_UP], from, k);
        set(h, m, &o[MICA__EXPERTS_Y], e, value);
    }
}

static inline void run_rope(const hand *h, memory *m, const mica__record *r)
{
    const mica__operand *o = r->operand, *x = &o[MICA__ROPE_X], *cache = &o[MICA__ROPE_CACHE];
    const mica__rope_record *p = r->params;
    uint64_t n = x->shape[x->ndim - 1u], token = elements(x) / x->shape[0];
    float row[ROW_MAX];
    for (uint64_t base = 0; base < elements(x); base += n) {
        uint32_t position = get_index(h, m, &o[MICA__ROPE_POSITIONS], base / token);
        for (uint64_t i = 0; i < n; i++)
            row[i] = get(h, m, x, base + i);
        if (p->norm)
            rms(row, n, p->eps, h, m, &o[MICA__ROPE_NORM_WEIGHT]);
        for (uint64_t i = 0; i + 1 < n; i += 2) {
            float angle = (float)position * powf(p->rope.theta, -(float)i / (float)n);
            float a = row[i] * cosf(angle) - row[i + 1] * sinf(angle);
            row[i + 1] = row[i] * sinf(angle) + row[i + 1] * cosf(angle);
            row[i] = a;
        }
        for (uint64_t i = 0; i < n; i++) {
            if (mica__operand_present(&o[MICA__ROPE_Y]))
                set(h, m, &o[MICA__ROPE_Y], base + i, row[i]);
            if (mica__operand_present(cache) && position < cache->shape[0])
                set(h, m, cache, position * token + base % token + i, row[i]);
        }
    }
}

static inline void run_kv_write(const hand *h, memory *m, const mica__record *r)
{
    const mica__operand *x = &r->operand[MICA__KV_X], *cache = &r->operand[MICA__KV_CACHE];
    uint64_t token = elements(x) / x->shape[0];
    for (uint64_t e = 0; e < elements(x); e++) {
        uint32_t position = get_index(h, m, &r->operand[MICA__KV_POSITIONS], e / token);
        if (position < cache->shape[0])
            set(h, m, cache, position * token + e % token, get(h, m, x, e));
    }
}

/* A register: as many types as the lists here have. */
typedef union reg {
    float f;
    uint32_t u;
} reg;

static inline reg formula(const mica_region_step *step, const reg *v)
{
    const reg a = v[step->value[0] % 80], b = v[step->value[1] % 80]; /* NONE is read and not used */
    switch (step->scalar) {
    case MICA_SCALAR_CONSTANT:
        return step->type == MICA_REGISTER_U32 ? (reg){.u = (uint32_t)step->constant.u64}
                                               : (reg){.f = step->constant.f32};
    case MICA_SCALAR_ADD:
        return step->type == MICA_REGISTER_U32 ? (reg){.u = a.u + b.u} : (reg){.f = a.f + b.f};
    case MICA_SCALAR_MUL: return (reg){.f = a.f * b.f};
    case MICA_SCALAR_SILU: return (reg){.f = silu(a.f)};
    case MICA_SCALAR_GELU: return (reg){.f = gelu(a.f)};
    case MICA_SCALAR_GELU_ERF: return (reg){.f = 0.5f * a.f * (1 + erff(a.f * 0.70710678f))};
    case MICA_SCALAR_SOFTCAP: return (reg){.f = softcap(a.f, b.f)};
    case MICA_SCALAR_ROUND_F16: return (reg){.f = mica__f16_to_f32_soft(mica__f32_to_f16_soft(a.f))};
    default: abort();
    }
}

/* One element at a time: all that it reads, then all that it writes. */
static inline void run_region(const hand *h, memory *m, const mica__record *r)
{
    const mica__region_program *p = r->params;
    const mica__operand *out = &r->operand[p->input_count];
    reg v[MICA_REGION_INPUTS + MICA_REGION_STEPS];
    memset(v, 0, sizeof v);
    for (uint64_t e = 0; e < elements(out); e++) {
        for (uint32_t i = 0; i < p->input_count; i++)
            if (p->input[i] == MICA_REGISTER_U32)
                v[i].u = get_index(h, m, &r->operand[i], e);
            else
                v[i].f = get(h, m, &r->operand[i], e);
        for (uint32_t s = 0; s < p->step_count; s++)
            v[p->input_count + s] = formula(&p->step[s], v);
        for (uint32_t o = 0; o < p->output_count; o++)
            if (out[o].dtype == MICA_DTYPE_U32)
                memcpy(at(h, m, &out[o], e), &v[p->output[o]].u, sizeof(uint32_t));
            else
                set(h, m, &out[o], e, v[p->output[o]].f);
    }
}

static inline void run_copy(const hand *h, memory *m, const mica__record *r)
{
    for (uint64_t e = 0; e < elements(&r->operand[MICA__COPY_Y]); e++)
        set(h, m, &r->operand[MICA__COPY_Y], e, get(h, m, &r->operand[MICA__COPY_X], e));
}

static inline void run_records(const hand *h, memory *m)
{
    for (uint32_t i = 0; i < h->list.count; i++) {
        const mica__record *r = h->list.record[i];
        switch (r->op) {
        case MICA_OP_RMS_NORM: run_norm(h, m, r); break;
        case MICA_OP_MATMUL: run_matmul(h, m, r); break;
        case MICA_OP_MATMUL_EXPERTS: run_experts(h, m, r); break;
        case MICA_OP_ROPE: run_rope(h, m, r); break;
        case MICA_OP_KV_WRITE: run_kv_write(h, m, r); break;
        case MICA_OP_REGION: run_region(h, m, r); break;
        case MICA_OP_COPY: run_copy(h, m, r); break;
        default: abort();
        }
    }
}

/* The first storage, temporaries aside, whose bytes differ; HAND_STORAGES if none. */
static inline uint32_t first_difference(const hand *h, const memory *a, const memory *b)
{
    for (uint32_t id = 0; id < h->count; id++)
        if (!h->temporary[id] && memcmp(a->bytes[id], b->bytes[id], HAND_BYTES) != 0)
            return id;
    return HAND_STORAGES;
}

#endif
