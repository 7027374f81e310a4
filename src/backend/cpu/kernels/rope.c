/*
 * rope.c - rotary embedding, with the head norm before it and the cache write after it where fusion put them.
 *
 * A unit is a token: its angles are computed once and serve all its heads. They depend on the position and the
 * parameters alone.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/angles.h"
#include "backend/cpu/kernels/cache.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "backend/rope_axes.h"

#define AHEAD 2048 /* bytes from what is computed to what is asked for */

/* Where a thread works; the layout of args->local. `cosine` and `sine` hold one value per element of the rotated
 * part in STANDARD mode (the sine of even ones negated), one per pair in NEOX mode. */
typedef struct rope_rows {
    double *frequency; /* [pairs] */
    double *turned;    /* [pairs], of several axes: frequency times the position of the pair's axis */
    float *cosine, *sine, *tmp[2]; /* [rotary] */
    float *row, *weight_row;       /* [dim] */
    const float *weight;           /* NULL: none */
    uint64_t dim, rotary;
} rope_rows;

static rope_rows rope_begin(const mica__cpu_args *args)
{
    const mica__cpu_rope *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__ROPE_X], *weight = &args->view[MICA__ROPE_NORM_WEIGHT];
    const mica__cpu_view *factors = &args->view[MICA__ROPE_FACTORS];
    const mica_rope_params *rope = &params->record.rope;
    rope_rows rows = {0};
    rows.dim = x->shape[x->ndim - 1];
    rows.rotary = rope->rotary_dims;
    rows.frequency = args->local;
    rows.turned = rows.frequency + rows.rotary / 2;
    float *next = (float *)(void *)(rows.frequency + rows.rotary);
    float **place[] = {&rows.cosine, &rows.sine, &rows.tmp[0], &rows.tmp[1]};
    for (int i = 0; i < 4; i++, next += rows.rotary)
        *place[i] = next;
    rows.row = next;
    rows.weight_row = next + rows.dim;
    if (weight->data != NULL)
        rows.weight = row_f32(weight->data, weight->dtype, rows.dim, rows.weight_row);

    const double log_theta = log((double)rope->theta), step = -2.0 / rope->frequency_dims * log_theta;
    const uint64_t pairs = rows.rotary / 2;
    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t counted = i;
        if (rope->axes != MICA_ROPE_AXES_ONE)
            (void)mica__rope_axis(rope, 1, i, &counted);
        double exponent = step * (double)counted;
        exponent = exponent < -700.0 ? -700.0 : exponent;
        exponent = exponent > 700.0 ? 700.0 : exponent;
        rows.frequency[i] = mica__exp(exponent) * (double)rope->position_scale;
    }
    if (factors->data != NULL)
        for (uint64_t i = 0; i < pairs; i++)
            rows.frequency[i] /= (double)row_element(factors->data + i * factors->stride[0], MICA_DTYPE_F32);
    return rows;
}

/* The angles of a token, whose positions are `at` bytes behind those of the first. */
static void rope_angles(const rope_rows *rows, const mica_rope_params *rope, const mica__cpu_view *positions,
                        uint64_t at)
{
    const uint64_t pairs = rows->rotary / 2;
    const bool neox = rope->mode == MICA_ROPE_NEOX;
    float *cosine = neox ? rows->cosine : rows->tmp[0], *sine = neox ? rows->sine : rows->tmp[1];
    if (rope->axes == MICA_ROPE_AXES_ONE) {
        mica__angles((double)index_at(positions, at), rows->frequency, rope->attention_scale, pairs, cosine,
                     sine);
    } else {
        const uint32_t axes = (uint32_t)positions->shape[0];
        double position[4] = {0};
        for (uint32_t a = 0; a < axes; a++)
            position[a] = (double)index_at(positions, at + a * positions->stride[0]);
        for (uint32_t i = 0; i < pairs; i++) {
            uint32_t place;
            rows->turned[i] = rows->frequency[i] * position[mica__rope_axis(rope, axes, i, &place)];
        }
        mica__angles(1.0, rows->turned, rope->attention_scale, pairs, cosine, sine);
    }
    if (neox)
        return;
    for (uint64_t i = 0; i < pairs; i++) {
        rows->cosine[2 * i] = rows->cosine[2 * i + 1] = cosine[i];
        rows->sine[2 * i] = -sine[i];
        rows->sine[2 * i + 1] = sine[i];
    }
}

/* Pairs (2i, 2i + 1). */
static void rotate_standard(const rope_rows *rows, const float *x, float *y)
{
    for (uint64_t i = 0; i < rows->rotary; i += VW) {
        const uint64_t n = rows->rotary - i < VW ? rows->rotary - i : VW;
        const vf v = vf_load_n(x + i, n), c = vf_load_n(rows->cosine + i, n),
                 s = vf_load_n(rows->sine + i, n);
        vf_store_n(y + i, vf_add(vf_mul(v, c), vf_mul(vf_swap_pairs(v), s)), n);
    }
}

/* Pairs (i, i + rotary / 2). */
static void rotate_neox(const rope_rows *rows, const float *x, float *y)
{
    const uint64_t pairs = rows->rotary / 2;
    for (uint64_t i = 0; i < pairs; i += VW) {
        const uint64_t n = pairs - i < VW ? pairs - i : VW;
        const vf a = vf_load_n(x + i, n), b = vf_load_n(x + pairs + i, n);
        const vf c = vf_load_n(rows->cosine + i, n), s = vf_load_n(rows->sine + i, n);
        vf_store_n(y + i, vf_sub(vf_mul(a, c), vf_mul(b, s)), n);
        vf_store_n(y + pairs + i, vf_add(vf_mul(b, c), vf_mul(a, s)), n);
    }
}

/* Leaves the finished head in rows->row. */
static void rope_head(const rope_rows *rows, const mica__rope_record *record, const unsigned char *from,
                      uint16_t dtype)
{
    const float *x = row_f32(from, dtype, rows->dim, rows->row);
    if (record->norm) {
        row_rms_norm(x, rows->weight, record->eps, rows->dim, rows->row);
        x = rows->row;
    }
    if (record->rope.mode == MICA_ROPE_NEOX)
        rotate_neox(rows, x, rows->row);
    else
        rotate_standard(rows, x, rows->row);
    if (x != rows->row)
        memcpy(rows->row + rows->rotary, (const unsigned char *)x + rows->rotary * sizeof *x,
               (rows->dim - rows->rotary) * sizeof *x);
}

void MICA__ISA(rope)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_rope *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__ROPE_X], *y = &args->view[MICA__ROPE_Y];
    const mica__cpu_view *positions = &args->view[MICA__ROPE_POSITIONS],
                         *kept = &args->view[MICA__ROPE_CACHE];
    const mica__cache cache = {kept, positions, &args->view[MICA__ROPE_SEQUENCES],
                               &args->view[MICA__ROPE_PAGES], params->record.ring};
    const uint64_t heads = x->shape[1], end = mica__cpu_rows_end(&params->range, last);
    const rope_rows rows = rope_begin(args);
    for (uint64_t token = mica__cpu_rows_begin(&params->range, first); token < end; token++) {
        rope_angles(&rows, &params->record.rope, positions, token * positions->stride[positions->ndim - 1]);
        unsigned char *slot = kept->data != NULL ? cache_slot(&cache, token) : NULL;
        if (kept->data != NULL && slot == NULL)
            mica__cpu_fault(args);
        for (uint64_t h = 0; h < heads; h++) {
            row_ahead(x->data + token * x->stride[0] + h * x->stride[1] + AHEAD,
                      rows.dim * row_element_bytes(x->dtype));
            rope_head(&rows, &params->record, x->data + token * x->stride[0] + h * x->stride[1], x->dtype);
            if (y->data != NULL)
                row_store(y->data + token * y->stride[0] + h * y->stride[1], y->dtype, rows.row, rows.dim);
            if (slot != NULL)
                cache_store(slot + h * kept->stride[kept->ndim - 2], kept->dtype, rows.row, rows.dim);
        }
    }
}
