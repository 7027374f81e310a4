/*
 * normalize_body.h - norms of rows and their gradients, in REAL (float or double): included once for each, with the names that FN makes, behind its loops.
 */

/* A row where it lies, or may lie, as a row does here; else NULL. */
static REAL *FN(row_in_place)(const mica__cpu_normalize *p, const mica__cpu_view *view,
                              const unsigned char *at)
{
    const bool same = view->dtype == (VECTORS ? MICA_DTYPE_F32 : MICA_DTYPE_F64);
    const bool is = same && p->lines == 1 && view->stride[view->ndim - 1] == sizeof(REAL) &&
                    (uintptr_t)at % sizeof(REAL) == 0;
    return is ? (REAL *)(uintptr_t)at : NULL;
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

/* A row where it lies, if it lies as a row does here, else in the room. */
static const REAL *FN(row_of)(const mica__cpu_normalize *p, const mica__cpu_view *view,
                              const unsigned char *from, REAL *room)
{
    const REAL *at = FN(row_in_place)(p, view, from);
    if (at != NULL)
        return at;
    FN(load_row)(p, view, from, room);
    return room;
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
    REAL *room = args->local, *weight_room = room + 2 * n, *bias_room = weight_room + p->line,
         *out = bias_room + p->line;
    walk w;
    walk_begin(&w, view, MICA__NORMALIZE_SLOTS, p->outer, row);
    for (; row < end; row++, walk_next(&w)) {
        const unsigned char *at = walk_at(&w, MICA__NORMALIZE_X);
        const REAL *x = FN(row_of)(p, &view[MICA__NORMALIZE_X], at, room);
        const FN(statistics) s = FN(measure)(p, x, n);
        const REAL mean = (REAL)s.mean, var = (REAL)s.var;
        if (view[MICA__NORMALIZE_MEAN].data != NULL)
            FN(store)(walk_at(&w, MICA__NORMALIZE_MEAN), view[MICA__NORMALIZE_MEAN].dtype, 0, 1, &mean);
        if (view[MICA__NORMALIZE_VAR].data != NULL)
            FN(store)(walk_at(&w, MICA__NORMALIZE_VAR), view[MICA__NORMALIZE_VAR].dtype, 0, 1, &var);
        unsigned char *to = walk_at(&w, MICA__NORMALIZE_Y);
        REAL *row_y = to != NULL ? FN(row_in_place)(p, y, to) : NULL;
        for (uint64_t l = 0; l < p->lines && to != NULL; l++) {
            const REAL *shift = NULL;
            const REAL *weight = FN(weights)(p, &view[MICA__NORMALIZE_WEIGHT],
                                             walk_at(&w, MICA__NORMALIZE_WEIGHT), l, weight_room);
            if (bias->data != NULL)
                shift = FN(load)(walk_at(&w, MICA__NORMALIZE_BIAS) + FN(line_at)(p, bias, l), bias->dtype,
                                 bias->stride[bias->ndim - 1], p->line, bias_room);
            FN(scale_line)
            (x + l * p->line, mean, (REAL)s.scale, weight, shift, p->line, row_y != NULL ? row_y : out,
             at + (n + l * p->line) * sizeof(REAL));
            if (row_y == NULL)
                FN(store)
            (to + FN(line_at)(p, y, l), y->dtype, y->stride[y->ndim - 1], p->line, out);
        }
    }
}

/* n and g, and what is in dx by their sums. */
static void FN(gradient_row)(const mica__cpu_normalize *p, FN(gradient) * r, uint64_t count)
{
    double products, all;
    if (r->weight != NULL && r->dweight != NULL)
        FN(gradient_terms)(r, count, true, true, &products, &all);
    else if (r->weight != NULL)
        FN(gradient_terms)(r, count, true, false, &products, &all);
    else if (r->dweight != NULL)
        FN(gradient_terms)(r, count, false, true, &products, &all);
    else
        FN(gradient_terms)(r, count, false, false, &products, &all);
    const double over = p->kind == MICA_NORMALIZE_L2 ? 1 : (double)count;
    r->share = (REAL)(products / over);
    r->shift = p->kind == MICA_NORMALIZE_LAYER ? (REAL)(all / over) : 0;
}

enum { FN(GRADIENT_SCRATCH) = MICA__NORMALIZE_BACKWARD_DX + 1 };

/* The row's weights, where they are the same for each row once for all. */
static const REAL *FN(weight_row)(const mica__cpu_normalize *p, const mica__cpu_view *view,
                                  const unsigned char *from, REAL *room)
{
    for (uint64_t l = 0; l < p->lines && from != NULL; l++)
        (void)FN(weights)(p, view, from, l, room + l * p->line);
    return from != NULL ? room : NULL;
}

static bool FN(stands_still)(const mica__cpu_view *view, uint32_t outer)
{
    bool still = true;
    for (uint32_t d = 0; d < outer; d++)
        still = still && (view->stride[d] == 0 || view->shape[d] == 1);
    return still;
}

/* The sums of a block of rows, dweight and dbias, begin with nothing and go into the scratch. */
static void FN(keep_sums)(const mica__cpu_normalize *p, const mica__cpu_view *scratch, uint64_t row,
                          const REAL *sums, uint64_t n)
{
    const uint64_t bytes = 2 * n * sizeof *sums;
    memcpy(scratch->data + row / p->together * bytes, sums, bytes);
}

static void FN(gradient_end)(const mica__cpu_normalize *p, const FN(gradient) * r, const mica__cpu_view *dx,
                             unsigned char *at)
{
    REAL *to = FN(row_in_place)(p, dx, at);
    for (uint64_t l = 0; l < p->lines; l++) {
        FN(gradient_line)(r, l * p->line, p->line, to != NULL ? to : r->g + l * p->line);
        if (to == NULL)
            FN(store)
        (at + FN(line_at)(p, dx, l), dx->dtype, dx->stride[dx->ndim - 1], p->line, r->g + l * p->line);
    }
}

static void FN(gradient_rows)(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_normalize *p = args->params;
    const mica__cpu_view *view = args->view, *dx = &view[MICA__NORMALIZE_BACKWARD_DX],
                         *weight = &view[MICA__NORMALIZE_BACKWARD_WEIGHT],
                         *scratch = &view[FN(GRADIENT_SCRATCH)];
    const uint64_t n = p->lines * p->line;
    const bool still = FN(stands_still)(weight, p->outer);
    REAL *room = args->local, *sums = room + 3 * n;
    double *statistics = (double *)(void *)scratch->data;
    FN(gradient)
    r = {.n = room,
         .g = room + n,
         .x_bytes = mica_dtype_block_bytes((mica_dtype)view[0].dtype),
         .dy_bytes = mica_dtype_block_bytes((mica_dtype)view[MICA__NORMALIZE_BACKWARD_DY].dtype)};
    walk w;
    walk_begin(&w, view, MICA__NORMALIZE_BACKWARD_DX + 1, p->outer, row);
    if (still)
        r.weight = FN(weight_row)(p, weight, weight->data, room + 2 * n);
    if (p->together != 0) {
        r.dweight = sums;
        r.dbias = sums + n;
    }
    for (; row < end; row++, walk_next(&w)) {
        if (p->together != 0 && row % p->together == 0)
            memset(sums, 0, 2 * n * sizeof *sums);
        const unsigned char *from_x = walk_at(&w, MICA__NORMALIZE_BACKWARD_X);
        r.x = FN(row_of)(p, view, from_x, r.n);
        const FN(statistics) s = FN(measure)(p, r.x, n);
        r.mean = (REAL)s.mean;
        r.scale = (REAL)s.scale;
        if (p->together == 0) {
            statistics[2 * row] = s.mean;
            statistics[2 * row + 1] = s.scale;
            if (dx->data == NULL)
                continue;
        }
        const mica__cpu_view *dy = &view[MICA__NORMALIZE_BACKWARD_DY];
        const unsigned char *from_dy = walk_at(&w, MICA__NORMALIZE_BACKWARD_DY);
        r.dy = FN(row_of)(p, dy, from_dy, r.g);
        r.next_x = from_x + n * r.x_bytes;
        r.next_dy = from_dy + n * r.dy_bytes;
        if (!still)
            r.weight = FN(weight_row)(p, weight, walk_at(&w, MICA__NORMALIZE_BACKWARD_WEIGHT), room + 2 * n);
        FN(gradient_row)(p, &r, n);
        if (dx->data != NULL)
            FN(gradient_end)(p, &r, dx, walk_at(&w, MICA__NORMALIZE_BACKWARD_DX));
        if (p->together != 0 && (row % p->together == p->together - 1 || row + 1 == p->range.rows))
            FN(keep_sums)(p, scratch, row, sums, n);
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

/* Blocks of rows one after another, for a tile of outputs. */
static void FN(total_rows)(const mica__cpu_args *args, uint64_t tile, uint64_t end)
{
    const mica__cpu_normalize_totals *p = args->params;
    REAL *tmp = args->local;
    double *sums = (double *)(void *)(tmp + MICA__CPU_NORM_LINE);
    for (tile *= 2; tile < 2 * end; tile++) {
        const uint32_t output = tile & 1;
        const uint64_t at = tile / 2 * MICA__CPU_NORM_LINE,
                       count = p->n - at < MICA__CPU_NORM_LINE ? p->n - at : MICA__CPU_NORM_LINE;
        const unsigned char *from = args->view[2].data + (output * p->n + at) * sizeof *tmp;
        for (uint64_t i = 0; i < count; i++)
            sums[i] = 0;
        for (uint64_t b = 0; b < p->blocks; b++, from += 2 * p->n * sizeof *tmp)
            for (uint64_t i = 0; i < count; i++)
                sums[i] += (double)((const REAL *)(const void *)from)[i];
        FN(store_sums)
        (&args->view[output], at * p->stride[output], p->stride[output], count, sums, tmp);
    }
}

/* ---- softmax ---- */

/* Of a logarithm dx is scale (dy - e^y sum(dy)), to `to`, which may be y. */
static void FN(log_gradient)(REAL scale, uint64_t n, const REAL *y, const REAL *dy, REAL *to)
{
    const REAL sum = (REAL)FN(sum)(dy, NULL, 0, n);
    for (uint64_t i = 0; i < n; i++)
        to[i] = scale * (dy[i] - FN(exp)(y[i]) * sum);
}

/* Else it is scale y (dy - sum(y dy)). */
static void FN(softmax_gradients)(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const mica__cpu_softmax *p = args->params;
    const mica__cpu_normalize one = {.lines = 1, .line = args->view->shape[args->view->ndim - 1u]};
    const mica__cpu_view *view = args->view, *dx = &view[2];
    const uint64_t n = one.line, bytes = n * mica_dtype_block_bytes((mica_dtype)view[0].dtype);
    const REAL scale = (REAL)p->softmax.scale;
    REAL *room = args->local;
    walk w;
    walk_begin(&w, view, MICA__SOFTMAX_BACKWARD_SLOTS, view->ndim - 1u, row);
    for (; row < end; row++, walk_next(&w)) {
        const REAL *y = FN(row_of)(&one, &view[0], walk_at(&w, 0), room);
        const REAL *dy = FN(row_of)(&one, &view[1], walk_at(&w, 1), room + n);
        REAL *to = FN(row_in_place)(&one, dx, walk_at(&w, 2)), *result = to != NULL ? to : room;
        if (p->softmax.log != 0)
            FN(log_gradient)(scale, n, y, dy, result);
        else
            FN(softmax_line)
        (y, dy, scale, (REAL)FN(sum)(y, dy, 0, n), n, result, walk_at(&w, 0) + bytes, walk_at(&w, 1) + bytes);
        if (to == NULL)
            FN(store)(walk_at(&w, 2), dx->dtype, dx->stride[dx->ndim - 1u], n, room);
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
