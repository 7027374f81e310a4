/*
 * conv_few.c - convolution, plain and transposed, where a group has one or two outputs, as depthwise ones have: vectors of places against single weights.
 *
 * Channel by channel a unit takes the places of x that its tile meets, as f32 and with zeros where there is padding, and adds to the sums of its places.
 * The products of one output are added in rising channel and tap by one fused multiply-add each, as conv.c adds them.
 */
#include "backend/cpu/kernels/image/conv_unit.h"

#include "backend/cpu/kernels/kernels.h"

#define FEW_INLINE static inline __attribute__((always_inline))
#define FEW_UNROLL _Pragma("GCC unroll 16")
#define SQUARE_ROWS 4 /* of a kernel of 3 x 3, which share what they read */

/* A unit and its memory. */
typedef struct few_work {
    const conv_unit *u;
    const mica__cpu_args *args;
    uint64_t taps, used; /* of the kernel; of this phase */
    /* of a row of the tile; between its places that are x_step apart and the next ones */
    uint64_t row_floats, apart;
    uint64_t sum_row, sum_output; /* floats between rows and outputs of sums */
    float *tile, *sums, *weights, *line;
    uint64_t *tap; /* in the tile */
    bool dense;    /* weights of a channel lie side by side as f32, and all are used */
    bool
        flat; /* rows shorter than a vector follow one another in sums as in the tile, what pads them between */
} few_work;

static bool taps_dense(const mica__cpu_view *w)
{
    uint64_t dense = sizeof(float);
    for (uint32_t d = X + 1; d-- > Z; dense *= w->shape[d])
        if (w->shape[d] != 1 && w->stride[d] != dense)
            return false;
    return w->dtype == MICA_DTYPE_F32;
}

/* Weights [output][channel][tap of this phase]. */
static void take_weights(const few_work *s)
{
    const conv_unit *u = s->u;
    const mica__cpu_conv *p = u->p;
    const mica__cpu_view *w = &s->args->view[MICA__CONV_WEIGHT];
    const mica__conv_axis *a = u->axis;
    const bool turned = p->transposed != 0;
    float *to = s->weights;
    for (uint64_t o = 0; o < p->outputs; o++)
        for (uint64_t c = 0; c < p->channels; c++) {
            const unsigned char *from =
                w->data + (turned ? u->group * p->channels + c : u->group * p->outputs + o) * w->stride[0] +
                (turned ? o : c) * w->stride[1];
            if (s->dense) {
                memcpy(to, from, s->taps * sizeof *to);
                to += s->taps;
                continue;
            }
            for (uint32_t z = 0; z < a[0].taps; z++)
                for (uint32_t y = 0; y < a[1].taps; y++)
                    for (uint32_t x = 0; x < a[2].taps; x++)
                        *to++ = row_element(from + (a[0].tap + (uint64_t)z * a[0].tap_step) * w->stride[Z] +
                                                (a[1].tap + (uint64_t)y * a[1].tap_step) * w->stride[Y] +
                                                (a[2].tap + (uint64_t)x * a[2].tap_step) * w->stride[X],
                                            w->dtype);
        }
}

static void list_taps(const few_work *s)
{
    const conv_unit *u = s->u;
    const mica__conv_axis *a = u->axis;
    uint64_t count = 0;
    for (uint32_t z = 0; z < a[0].taps; z++)
        for (uint32_t y = 0; y < a[1].taps; y++)
            for (uint32_t x = 0; x < a[2].taps; x++) {
                const uint64_t column = tap_place(&a[2], x),
                               row = tap_place(&a[0], z) * u->extent[1] + tap_place(&a[1], y);
                s->tap[count++] =
                    row * s->row_floats + column % a[2].x_step * s->apart + column / a[2].x_step;
            }
}

/* Every second place of a row, from place `begin` of the tile on: those of each kind side by side. */
static void split_twos(const float *row, uint64_t begin, uint64_t n, float *even, float *odd)
{
    uint64_t i = 0;
    if (begin % 2 != 0 && n > 0) {
        odd[begin / 2] = row[0];
        i = 1;
    }
    float *first = even + (begin + i) / 2, *second = odd + (begin + i) / 2;
    for (; i + 2 * VW <= n; i += 2 * VW, first += VW, second += VW) {
        const vf a = vf_load(row + i), b = vf_load(row + i + VW);
        vf_store(first, vf_unzip_even(a, b));
        vf_store(second, vf_unzip_odd(a, b));
    }
    for (; i < n; i += 2) {
        *first++ = row[i];
        if (i + 1 < n)
            *second++ = row[i + 1];
    }
}

/* What lies inside of x of one channel; the rest of the tile is zero from the beginning. */
static void fill_tile(const few_work *s, uint64_t channel)
{
    const conv_unit *u = s->u;
    const mica__cpu_view *x = &s->args->view[MICA__CONV_X];
    const uint64_t n = u->end[2] - u->begin[2], step = u->axis[2].x_step;
    const unsigned char *from = x->data + u->image * x->stride[N] +
                                (u->group * u->p->channels + channel) * x->stride[C] +
                                (uint64_t)(u->origin[2] + (int64_t)u->begin[2]) * x->stride[X];
    for (uint64_t z = u->begin[0]; z < u->end[0]; z++)
        for (uint64_t y = u->begin[1]; y < u->end[1]; y++) {
            const unsigned char *row = from + (uint64_t)(u->origin[0] + (int64_t)z) * x->stride[Z] +
                                       (uint64_t)(u->origin[1] + (int64_t)y) * x->stride[Y];
            float *to = s->tile + (z * u->extent[1] + y) * s->row_floats;
            const float *values = row_f32_strided(row, x->dtype, x->stride[X], n, s->line);
            if (step == 1) {
                uint64_t i = 0;
                for (; i + VW <= n; i += VW)
                    vf_store(to + u->begin[2] + i, vf_load(values + i));
                if (i < n)
                    vf_store_n(to + u->begin[2] + i, vf_load_n(values + i, n - i), n - i);
            } else if (step == 2) {
                split_twos(values, u->begin[2], n, to, to + s->apart);
            } else {
                for (uint64_t i = 0; i < n; i++)
                    to[(u->begin[2] + i) % step * s->apart + (u->begin[2] + i) / step] = values[i];
            }
        }
}

/* `count` vectors of places of one row. */
FEW_INLINE void add_vectors(const few_work *s, const float *x, const float *w, bool first, float *sums,
                            int count)
{
    vf sum[4];
    FEW_UNROLL
    for (int i = 0; i < count; i++)
        sum[i] = first ? vf_zero() : vf_load(sums + i * VW);
    for (uint64_t k = 0; k < s->used; k++) {
        const float *at = x + s->tap[k];
        const vf b = vf_set1(w[k]);
        FEW_UNROLL
        for (int i = 0; i < count; i++)
            sum[i] = vf_fma(vf_load(at + i * VW), b, sum[i]);
    }
    FEW_UNROLL
    for (int i = 0; i < count; i++)
        vf_store(sums + i * VW, sum[i]);
}

/* n places from row y on. */
static void add_row(const few_work *s, uint64_t y, uint64_t n, const float *w, bool first, float *sums)
{
    const float *x = s->tile + y * s->u->axis[1].x_step * s->row_floats;
    uint64_t i = 0;
    for (; i + 3 * VW < n; i += 4 * VW)
        add_vectors(s, x + i, w, first, sums + i, 4);
    for (; i < n; i += VW)
        add_vectors(s, x + i, w, first, sums + i, 1);
}

/* Rows of a kernel of 3 x 3 whose rows of x are `x_step` apart: a row of x is read once for all of them. `tap` are the places of a row's taps. */
FEW_INLINE void add_square(const few_work *s, const float *x, const float *w, bool first, float *sums,
                           int rows, int x_step)
{
    vf sum[SQUARE_ROWS], b[9];
    FEW_UNROLL
    for (int k = 0; k < 9; k++)
        b[k] = vf_set1(w[k]);
    FEW_UNROLL
    for (int r = 0; r < rows; r++)
        sum[r] = first ? vf_zero() : vf_load(sums + (uint64_t)r * s->sum_row);
    FEW_UNROLL
    for (int y = 0; y < (rows - 1) * x_step + 3; y++, x += s->row_floats) {
        FEW_UNROLL
        for (int k = 0; k < 3; k++) {
            const vf a = vf_load(x + s->tap[k]);
            FEW_UNROLL
            for (int r = 0; r < rows; r++)
                if (y >= r * x_step && y < r * x_step + 3)
                    sum[r] = vf_fma(a, b[(y - r * x_step) * 3 + k], sum[r]);
        }
    }
    FEW_UNROLL
    for (int r = 0; r < rows; r++)
        vf_store(sums + (uint64_t)r * s->sum_row, sum[r]);
}

/* Rows of the tile from row y on, as many as are left; gives how many. */
FEW_INLINE uint64_t add_squares(const few_work *s, uint64_t y, const float *w, bool first, float *sums,
                                int x_step)
{
    const float *x = s->tile + y * (uint64_t)x_step * s->row_floats;
    const bool four = y + SQUARE_ROWS <= s->u->rows;
    for (uint64_t i = 0; i < s->u->columns; i += VW)
        if (four)
            add_square(s, x + i, w, first, sums + i, SQUARE_ROWS, x_step);
        else
            add_square(s, x + i, w, first, sums + i, 1, x_step);
    return four ? SQUARE_ROWS : 1;
}

static void add_channel(const few_work *s, const float *w, bool first, float *sums)
{
    const mica__conv_axis *a = s->u->axis;
    const bool square = a[0].taps == 1 && a[1].taps == 3 && a[2].taps == 3 && a[1].at_step == 1;
    uint64_t rows;
    if (s->flat) {
        add_row(s, 0, (s->u->rows - 1) * s->row_floats + s->u->columns, w, first, sums);
        return;
    }
    for (uint64_t y = 0; y < s->u->rows; y += rows, sums += rows * s->sum_row) {
        rows = 1;
        if (square && a[1].x_step == 1)
            rows = add_squares(s, y, w, first, sums, 1);
        else if (square && a[1].x_step == 2)
            rows = add_squares(s, y, w, first, sums, 2);
        else
            add_row(s, y, s->u->columns, w, first, sums);
    }
}

static void store_output(const few_work *s, uint64_t o, const float *sums)
{
    const mica__cpu_view *y = &s->args->view[MICA__CONV_Y],
                         *more = s->u->p->residual != 0 ? &s->args->view[MICA__CONV_RESIDUAL] : y;
    const uint64_t step = y->stride[X] * s->u->axis[2].step, n = s->u->columns;
    const uint64_t apart = more->stride[X] * s->u->axis[2].step;
    const vf bias = vf_set1(bias_of(s->u, &s->args->view[MICA__CONV_BIAS], o));
    for (uint64_t r = 0; r < s->u->rows; r++, sums += s->sum_row) {
        unsigned char *to = output_row(s->u, y, 0, o, r);
        const unsigned char *residual = output_row(s->u, more, 0, o, r);
        if (step == sizeof(float) && y->dtype == MICA_DTYPE_F32) {
            uint64_t i = 0;
            for (; i + VW <= n; i += VW)
                vf_store(to + i * step, conv_ending(s->args, vf_add(vf_load(sums + i), bias),
                                                    residual + i * apart, apart, VW));
            if (i < n)
                vf_store_n(
                    to + i * step,
                    conv_ending(s->args, vf_add(vf_load(sums + i), bias), residual + i * apart, apart, n - i),
                    n - i);
            continue;
        }
        for (uint64_t i = 0; i < n; i += VW) {
            float values[VW];
            vf_store(values, conv_ending(s->args, vf_add(vf_load(sums + i), bias), residual + i * apart,
                                         apart, least(VW, n - i)));
            row_store_strided(to + i * step, y->dtype, step, values, least(VW, n - i));
        }
    }
}

static void run_unit(const few_work *s)
{
    const mica__cpu_conv *p = s->u->p;
    take_weights(s);
    for (uint64_t c = 0; c < p->channels; c++) {
        if (s->used > 0)
            fill_tile(s, c);
        for (uint64_t o = 0; o < p->outputs; o++)
            add_channel(s, s->weights + (o * p->channels + c) * s->used, c == 0, s->sums + o * s->sum_output);
    }
    for (uint64_t o = 0; o < p->outputs; o++)
        store_output(s, o, s->sums + o * s->sum_output);
}

/* The place of a unit in its image, whatever its group is. */
static few_work begin_unit(const mica__cpu_args *args, const conv_unit *u)
{
    const mica__cpu_conv *p = args->params;
    const mica__conv_few_local l = mica__conv_few_local_of(p);
    float *local = args->local;
    few_work s = {.u = u,
                  .args = args,
                  .taps = mica__conv_taps(&p->windows),
                  .used = phase_taps(u),
                  .row_floats = mica__conv_row_floats(&u->axis[2], u->columns),
                  .sum_output = l.row * p->rows,
                  .tile = local,
                  .sums = local + l.sums,
                  .weights = local + l.weights,
                  .line = local + l.line,
                  .tap = (uint64_t *)(void *)(local + l.tap)};
    s.apart = s.row_floats / u->axis[2].x_step;
    s.flat = u->columns < VW && u->axis[1].x_step == 1 && u->axis[2].x_step == 1 && s.row_floats <= l.row;
    s.sum_row = s.flat ? s.row_floats : l.row;
    s.dense = s.used == s.taps && taps_dense(&args->view[MICA__CONV_WEIGHT]);
    list_taps(&s);
    memset(s.tile, 0, u->extent[0] * u->extent[1] * s.row_floats * sizeof *s.tile);
    return s;
}

void MICA__ISA(conv_few)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_conv *p = args->params;
    /* an image is one tile: what follows a unit is the next group at the same place */
    const bool whole = p->transposed == 0 && p->planes * p->row_tiles * p->column_tiles == 1;
    conv_unit u = {.group = 0};
    few_work s = {.u = NULL};
    for (uint64_t index = first; index < last; index++) {
        if (whole && s.u != NULL && u.group + 1 < p->groups) {
            u.group++;
        } else {
            s.u = NULL;
            if (!find_unit(p, &args->view[MICA__CONV_X], index, &u))
                continue;
            s = begin_unit(args, &u);
        }
        run_unit(&s);
    }
}
