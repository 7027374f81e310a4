/*
 * normalize_body.h - norms of one row and their gradients, in REAL (float or double): included once for each, with the names that FN makes.
 *
 * A row lies contiguous in the thread's memory. Sums go through LANES sums of at most BLOCK elements, then in double: their order is that of
 * the elements alone.
 */
#define LANES 16u
#define BLOCK 1024u

/* The sum of (a[i] - from) * (b[i] - from), b NULL: of a[i] - from. */
static double FN(sum)(const REAL *a, const REAL *b, REAL from, uint64_t n)
{
    double total = 0;
    for (uint64_t begin = 0; begin < n; begin += BLOCK) {
        const uint64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        REAL lane[LANES] = {0};
        uint64_t i = begin;
        for (; i + LANES <= end; i += LANES)
            for (uint32_t j = 0; j < LANES; j++)
                lane[j] += b != NULL ? (a[i + j] - from) * (b[i + j] - from) : a[i + j] - from;
        for (uint32_t j = 0; i + j < end; j++)
            lane[j] += b != NULL ? (a[i + j] - from) * (b[i + j] - from) : a[i + j] - from;
        for (uint32_t j = 0; j < LANES; j++)
            total += (double)lane[j];
    }
    return total;
}

/* Mean, variance as the kind has it, and 1 / sqrt(var + eps). */
typedef struct FN(statistics) {
    double mean, var, scale;
} FN(statistics);

static FN(statistics) FN(measure)(const mica__cpu_normalize *p, const REAL *x, uint64_t n)
{
    FN(statistics) s = {0};
    if (p->kind == MICA_NORMALIZE_LAYER)
        s.mean = FN(sum)(x, NULL, 0, n) / (double)n;
    s.var = FN(sum)(x, x, (REAL)s.mean, n);
    if (p->kind != MICA_NORMALIZE_L2)
        s.var /= (double)n;
    s.scale = 1 / sqrt(s.var + (double)p->eps);
    return s;
}

/* Bytes from the row to its line number l. */
static uint64_t FN(line_at)(const mica__cpu_normalize *p, const mica__cpu_view *view, uint64_t l)
{
    uint64_t offset = 0;
    for (uint32_t d = view->ndim - 1u; d-- > p->outer;) {
        offset += l % view->shape[d] * view->stride[d];
        l /= view->shape[d];
    }
    return offset;
}

static void FN(load_row)(const mica__cpu_normalize *p, const mica__cpu_view *view, const unsigned char *from,
                         REAL *row)
{
    for (uint64_t l = 0; l < p->lines; l++)
        FN(load)
    (from + FN(line_at)(p, view, l), view->dtype, view->stride[view->ndim - 1], p->line, row + l * p->line);
}

/* offset + weight of a line, NULL where that is 1. */
static const REAL *FN(weights)(const mica__cpu_normalize *p, const mica__cpu_view *view,
                               const unsigned char *from, uint64_t l, REAL *tmp)
{
    if (from == NULL)
        return NULL;
    FN(load)(from + FN(line_at)(p, view, l), view->dtype, view->stride[view->ndim - 1], p->line, tmp);
    for (uint64_t i = 0; i < p->line && p->offset != 0; i++)
        tmp[i] += (REAL)p->offset;
    return tmp;
}

static void FN(normalize_rows)(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_normalize *p = args->params;
    const mica__cpu_view *view = args->view, *bias = &view[MICA__NORMALIZE_BIAS],
                         *y = &view[MICA__NORMALIZE_Y];
    const uint64_t n = p->lines * p->line;
    REAL *x = args->local, *weight_room = x + 2 * n, *bias_room = weight_room + p->line,
         *out = bias_room + p->line;
    walk w;
    walk_begin(&w, view, MICA__NORMALIZE_SLOTS, p->outer, row);
    for (; row < end; row++, walk_next(&w)) {
        FN(load_row)(p, &view[MICA__NORMALIZE_X], walk_at(&w, MICA__NORMALIZE_X), x);
        const FN(statistics) s = FN(measure)(p, x, n);
        const REAL mean = (REAL)s.mean, scale = (REAL)s.scale, var = (REAL)s.var;
        if (view[MICA__NORMALIZE_MEAN].data != NULL)
            FN(store)(walk_at(&w, MICA__NORMALIZE_MEAN), view[MICA__NORMALIZE_MEAN].dtype, 0, 1, &mean);
        if (view[MICA__NORMALIZE_VAR].data != NULL)
            FN(store)(walk_at(&w, MICA__NORMALIZE_VAR), view[MICA__NORMALIZE_VAR].dtype, 0, 1, &var);
        for (uint64_t l = 0; l < p->lines && y->data != NULL; l++) {
            const REAL *from = x + l * p->line, *shift = NULL;
            const REAL *weight = FN(weights)(p, &view[MICA__NORMALIZE_WEIGHT],
                                             walk_at(&w, MICA__NORMALIZE_WEIGHT), l, weight_room);
            if (bias->data != NULL)
                shift = FN(load)(walk_at(&w, MICA__NORMALIZE_BIAS) + FN(line_at)(p, bias, l), bias->dtype,
                                 bias->stride[bias->ndim - 1], p->line, bias_room);
            for (uint64_t i = 0; i < p->line; i++)
                out[i] = (from[i] - mean) * scale;
            for (uint64_t i = 0; i < p->line && weight != NULL; i++)
                out[i] *= weight[i];
            for (uint64_t i = 0; i < p->line && shift != NULL; i++)
                out[i] += shift[i];
            FN(store)
            (walk_at(&w, MICA__NORMALIZE_Y) + FN(line_at)(p, y, l), y->dtype, y->stride[y->ndim - 1], p->line,
             out);
        }
    }
}

/* x becomes n, g is dy (offset + weight); then dx. */
static void FN(gradient_row)(const mica__cpu_normalize *p, const FN(statistics) * s, REAL *x, REAL *g)
{
    const uint64_t n = p->lines * p->line;
    const REAL mean = (REAL)s->mean, scale = (REAL)s->scale;
    for (uint64_t i = 0; i < n; i++)
        x[i] = (x[i] - mean) * scale;
    const double over = p->kind == MICA_NORMALIZE_L2 ? 1 : (double)n;
    const REAL share = (REAL)(FN(sum)(g, x, 0, n) / over);
    const REAL shift = p->kind == MICA_NORMALIZE_LAYER ? (REAL)(FN(sum)(g, NULL, 0, n) / over) : 0;
    for (uint64_t i = 0; i < n; i++)
        g[i] = scale * (g[i] - shift - x[i] * share);
}

enum { FN(GRADIENT_STATISTICS) = MICA__NORMALIZE_BACKWARD_DX + 1 };

static void FN(gradient_rows)(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_normalize *p = args->params;
    const mica__cpu_view *view = args->view, *dx = &view[MICA__NORMALIZE_BACKWARD_DX];
    const uint64_t n = p->lines * p->line;
    REAL *x = args->local, *g = x + n, *weight_room = g + n;
    double *statistics = (double *)(void *)view[FN(GRADIENT_STATISTICS)].data;
    walk w;
    walk_begin(&w, view, MICA__NORMALIZE_BACKWARD_DX + 1, p->outer, row);
    for (; row < end; row++, walk_next(&w)) {
        FN(load_row)(p, &view[MICA__NORMALIZE_BACKWARD_X], walk_at(&w, MICA__NORMALIZE_BACKWARD_X), x);
        const FN(statistics) s = FN(measure)(p, x, n);
        statistics[2 * row] = s.mean;
        statistics[2 * row + 1] = s.scale;
        if (dx->data == NULL)
            continue;
        FN(load_row)(p, &view[MICA__NORMALIZE_BACKWARD_DY], walk_at(&w, MICA__NORMALIZE_BACKWARD_DY), g);
        for (uint64_t l = 0; l < p->lines; l++) {
            const REAL *weight = FN(weights)(p, &view[MICA__NORMALIZE_BACKWARD_WEIGHT],
                                             walk_at(&w, MICA__NORMALIZE_BACKWARD_WEIGHT), l, weight_room);
            for (uint64_t i = 0; i < p->line && weight != NULL; i++)
                g[l * p->line + i] *= weight[i];
        }
        FN(gradient_row)(p, &s, x, g);
        for (uint64_t l = 0; l < p->lines; l++)
            FN(store)
        (walk_at(&w, MICA__NORMALIZE_BACKWARD_DX) + FN(line_at)(p, dx, l), dx->dtype,
         dx->stride[dx->ndim - 1], p->line, g + l * p->line);
    }
}

/* ---- sums over rows ---- */

/* Where a line of x and dy is, and whose statistics it has. */
typedef struct FN(line) {
    uint64_t x, dy, row, row_step, x_stride, dy_stride, n;
} FN(line);

/* dy n and dy of a line. */
static void FN(products)(const mica__cpu_args *args, const FN(line) * at, REAL *product, REAL *dy)
{
    const mica__cpu_view *view = args->view;
    const double *statistics = (const double *)(const void *)view[4].data + 2 * at->row;
    FN(load)(view[0].data + at->x, view[0].dtype, at->x_stride, at->n, product);
    FN(load)(view[1].data + at->dy, view[1].dtype, at->dy_stride, at->n, dy);
    if (at->row_step == 0) {
        const REAL mean = (REAL)statistics[0], scale = (REAL)statistics[1];
        for (uint64_t i = 0; i < at->n; i++)
            product[i] = dy[i] * ((product[i] - mean) * scale);
        return;
    }
    for (uint64_t i = 0; i < at->n; i++) {
        const double *own = statistics + 2 * i * at->row_step;
        product[i] = dy[i] * ((product[i] - (REAL)own[0]) * (REAL)own[1]);
    }
}

/* Moves from place `index` of dimensions [begin, end) to its offsets. */
static void FN(move)(const mica__cpu_normalize_sums *p, uint32_t begin, uint32_t end, uint64_t index,
                     FN(line) * at)
{
    for (uint32_t d = end; d-- > begin;) {
        const uint64_t i = index % p->shape[d];
        at->x += i * p->x_stride[d];
        at->dy += i * p->dy_stride[d];
        at->row += i * p->row_step[d];
        index /= p->shape[d];
    }
}

static uint64_t FN(places)(const mica__cpu_normalize_sums *p, uint32_t begin, uint32_t end)
{
    uint64_t count = 1;
    for (uint32_t d = begin; d < end; d++)
        count *= p->shape[d];
    return count;
}

/* The two sums of `count` outputs from `first` on: lines over them, or along the terms of one. */
static void FN(sum_tile)(const mica__cpu_args *args, const FN(line) * first, uint64_t count,
                         double *of_weight, double *of_bias)
{
    const mica__cpu_normalize_sums *p = args->params;
    const uint32_t last = p->along != 0 ? p->ndim - 1 : p->kept - 1;
    const uint64_t lines = FN(places)(p, p->kept, p->ndim - p->along);
    const uint64_t length = p->along != 0 ? p->shape[last] : count;
    REAL *product = args->local, *dy = product + MICA__CPU_NORM_LINE;
    for (uint64_t i = 0; i < count; i++)
        of_weight[i] = of_bias[i] = 0;
    for (uint64_t l = 0; l < lines; l++)
        for (uint64_t from = 0; from < length; from += MICA__CPU_NORM_LINE) {
            FN(line) at = *first;
            FN(move)(p, p->kept, p->ndim - p->along, l, &at);
            at.x += from * p->x_stride[last];
            at.dy += from * p->dy_stride[last];
            at.row += from * p->row_step[last];
            at.x_stride = p->x_stride[last];
            at.dy_stride = p->dy_stride[last];
            at.row_step = p->row_step[last];
            at.n = length - from < MICA__CPU_NORM_LINE ? length - from : MICA__CPU_NORM_LINE;
            FN(products)(args, &at, product, dy);
            if (p->along != 0) {
                *of_weight += FN(sum)(product, NULL, 0, at.n);
                *of_bias += FN(sum)(dy, NULL, 0, at.n);
                continue;
            }
            for (uint64_t i = 0; i < at.n; i++) {
                of_weight[i] += (double)product[i];
                of_bias[i] += (double)dy[i];
            }
        }
}

static void FN(store_sums)(const mica__cpu_view *view, uint64_t at, uint64_t stride, uint64_t count,
                           const double *sums, REAL *tmp)
{
    if (view->data == NULL)
        return;
    for (uint64_t i = 0; i < count; i++)
        tmp[i] = (REAL)sums[i];
    FN(store)(view->data + at, view->dtype, stride, count, tmp);
}

static void FN(sum_rows)(const mica__cpu_args *args, uint64_t tile, uint64_t end)
{
    const mica__cpu_normalize_sums *p = args->params;
    const uint32_t last = p->kept - 1;
    REAL *tmp = args->local;
    double *of_weight = (double *)(void *)(tmp + 2 * MICA__CPU_NORM_LINE),
           *of_bias = of_weight + MICA__CPU_NORM_LINE;
    for (; tile < end; tile++) {
        const uint64_t column = tile % p->tiles * p->tile;
        const uint64_t left = p->shape[last] - column, count = left < p->tile ? left : p->tile;
        uint64_t index = tile / p->tiles, dweight = column * p->dweight_stride[last],
                 dbias = column * p->dbias_stride[last];
        FN(line)
        at = {.x = column * p->x_stride[last],
              .dy = column * p->dy_stride[last],
              .row = column * p->row_step[last]};
        FN(move)(p, 0, last, index, &at);
        for (uint32_t d = last; d-- > 0; index /= p->shape[d]) {
            dweight += index % p->shape[d] * p->dweight_stride[d];
            dbias += index % p->shape[d] * p->dbias_stride[d];
        }
        FN(sum_tile)(args, &at, count, of_weight, of_bias);
        FN(store_sums)(&args->view[2], dweight, p->dweight_stride[last], count, of_weight, tmp);
        FN(store_sums)(&args->view[3], dbias, p->dbias_stride[last], count, of_bias, tmp);
    }
}

/* ---- softmax ---- */

/* dx to `y`: scale y (dy - sum(y dy)), or scale (dy - e^y sum(dy)). */
static void FN(softmax_gradient)(const mica_softmax_params *p, uint64_t n, REAL *y, const REAL *dy)
{
    const REAL scale = (REAL)p->scale;
    if (p->log != 0) {
        const REAL sum = (REAL)FN(sum)(dy, NULL, 0, n);
        for (uint64_t i = 0; i < n; i++)
            y[i] = scale * (dy[i] - FN(exp)(y[i]) * sum);
        return;
    }
    const REAL sum = (REAL)FN(sum)(y, dy, 0, n);
    for (uint64_t i = 0; i < n; i++)
        y[i] = scale * y[i] * (dy[i] - sum);
}

static void FN(softmax_gradients)(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_softmax *p = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t last = view->ndim - 1u;
    const uint64_t n = view->shape[last];
    REAL *y = args->local, *dy = y + n;
    walk w;
    walk_begin(&w, view, MICA__SOFTMAX_BACKWARD_SLOTS, last, row);
    for (; row < end; row++, walk_next(&w)) {
        FN(load)(walk_at(&w, 0), view[0].dtype, view[0].stride[last], n, y);
        FN(load)(walk_at(&w, 1), view[1].dtype, view[1].stride[last], n, dy);
        FN(softmax_gradient)(&p->softmax, n, y, dy);
        FN(store)(walk_at(&w, 2), view[2].dtype, view[2].stride[last], n, y);
    }
}

/* z = z * scale + mask, `room` being for a row; -inf where a mask of bool is false. mask NULL: none. */
static void FN(scale_row)(REAL *z, REAL scale, const mica__cpu_view *view, const unsigned char *mask,
                          uint64_t n, REAL *room)
{
    const uint64_t step = view->stride[view->ndim - 1u];
    const bool truth = view->dtype == MICA_DTYPE_BOOL;
    if (mask != NULL && !truth)
        FN(load)(mask, view->dtype, step, n, room);
    for (uint64_t i = 0; i < n; i++) {
        z[i] *= scale;
        if (mask != NULL && truth)
            z[i] = mask[i * step] != 0 ? z[i] : -(REAL)INFINITY;
        else if (mask != NULL)
            z[i] += room[i];
    }
}

/* z = softmax(z) of a row, or its logarithm; as softmax.c says of -inf and NaN. */
static void FN(softmax_row)(const mica_softmax_params *p, uint64_t n, REAL *z)
{
    REAL greatest = -(REAL)INFINITY;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        greatest = z[i] > greatest ? z[i] : greatest;
    const bool none = !(greatest > -(REAL)INFINITY); /* but -inf and NaN */
    for (uint64_t i = 0; i < n; i++)
        sum += none ? (z[i] != z[i] ? (double)z[i] : 0) : (double)FN(exp)(z[i] - greatest);
    const REAL log_sum = none ? 0 : (REAL)log(sum);
    for (uint64_t i = 0; i < n; i++) {
        if (none)
            z[i] = sum != sum ? (REAL)sum : p->log != 0 ? -(REAL)INFINITY : 0;
        else
            z[i] = p->log != 0 ? z[i] - greatest - log_sum : (REAL)((double)FN(exp)(z[i] - greatest) / sum);
    }
}

static void FN(softmax_rows)(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_softmax *p = args->params;
    const mica__cpu_view *view = args->view;
    const uint32_t last = view->ndim - 1u;
    const uint64_t n = view->shape[last];
    REAL *z = args->local;
    walk w;
    walk_begin(&w, view, MICA__SOFTMAX_SLOTS, last, row);
    for (; row < end; row++, walk_next(&w)) {
        FN(load)
        (walk_at(&w, MICA__SOFTMAX_X), view[MICA__SOFTMAX_X].dtype, view[MICA__SOFTMAX_X].stride[last], n, z);
        FN(scale_row)
        (z, (REAL)p->softmax.scale, &view[MICA__SOFTMAX_MASK], walk_at(&w, MICA__SOFTMAX_MASK), n, z + n);
        FN(softmax_row)(&p->softmax, n, z);
        FN(store)
        (walk_at(&w, MICA__SOFTMAX_Y), view[MICA__SOFTMAX_Y].dtype, view[MICA__SOFTMAX_Y].stride[last], n, z);
    }
}

#undef LANES
#undef BLOCK
