/* pool_body.h - pooling and its gradient over REAL: included by pool.c for float and for double. */

/* The windows [begin, end) along dimension d whose tap k lies in x. */
static inline void FN(reach)(const mica__windows *w, uint32_t d, uint64_t k, uint64_t *begin, uint64_t *end)
{
    const int64_t at = (int64_t)(k * w->dilation[d]) - w->low[d], s = w->stride[d], n = (int64_t)w->in[d];
    const int64_t first = at >= 0 ? 0 : (-at + s - 1) / s, last = n - 1 - at < 0 ? 0 : (n - 1 - at) / s + 1;
    *begin = (uint64_t)first;
    *end = (uint64_t)(last < (int64_t)w->out[d] ? last : (int64_t)w->out[d]);
}

/* out[i] and x[i step] become what they are together. */
static void FN(fold)(uint32_t kind, const REAL *x, uint64_t step, uint64_t n, REAL *out)
{
    switch (kind) {
    case MICA_POOL_MAX:
        for (uint64_t i = 0; i < n; i++)
            out[i] = x[i * step] > out[i] || x[i * step] != x[i * step] ? x[i * step] : out[i];
        return;
    case MICA_POOL_MIN:
        for (uint64_t i = 0; i < n; i++)
            out[i] = x[i * step] < out[i] || x[i * step] != x[i * step] ? x[i * step] : out[i];
        return;
    case MICA_POOL_PROD:
        for (uint64_t i = 0; i < n; i++)
            out[i] *= x[i * step];
        return;
    default:
        for (uint64_t i = 0; i < n; i++)
            out[i] += x[i * step];
        return;
    }
}

/* Whether v is taken instead of what was found before it. */
static inline bool FN(is_taken)(bool greatest, REAL v, REAL best, bool first)
{
    return first | (greatest ? v > best : v < best) | ((v != v) & (best == best));
}

/* As fold, with the places; x[0] lies at place `at`. Selections, not branches, so that it is done by vectors. */
static inline void FN(fold_places)(bool greatest, const REAL *x, uint64_t step, uint64_t n, uint64_t at,
                                   REAL *out, uint32_t *place)
{
    for (uint64_t i = 0; i < n; i++) {
        const REAL v = x[i * step];
        const bool taken = FN(is_taken)(greatest, v, out[i], place[i] == UINT32_MAX);
        out[i] = taken ? v : out[i];
        place[i] = taken ? (uint32_t)(at + i * step) : place[i];
    }
}

static REAL FN(of_nothing)(uint32_t kind)
{
    return kind == MICA_POOL_MAX    ? -(REAL)INFINITY
           : kind == MICA_POOL_MIN  ? (REAL)INFINITY
           : kind == MICA_POOL_PROD ? 1
                                    : 0;
}

/* Taps of window p along d that lie in x, or with `padding` in it and what is around it. */
static uint64_t FN(taps_in)(const mica__windows *w, uint32_t d, uint64_t p, bool padding)
{
    uint64_t count = 0;
    for (uint64_t k = 0; k < w->kernel[d]; k++) {
        const uint64_t at = p * w->stride[d] + k * w->dilation[d];
        count +=
            padding ? at < w->low[d] + w->in[d] + w->high[d] : at >= w->low[d] && at - w->low[d] < w->in[d];
    }
    return count;
}

/* Row [oz, oy] of a frame at x, without the end of a mean. `tmp` has a row of x. */
static void FN(pool_row)(const mica__cpu_pool *p, const unsigned char *x, uint16_t dtype, uint64_t oz,
                         uint64_t oy, REAL *tmp, REAL *out, uint32_t *place)
{
    const mica__windows *w = &p->windows;
    const uint64_t *step = p->frames.step[0];
    if (FN(pool_vectors)(p, x, dtype, oz, oy, out, place))
        return;
    for (uint64_t kz = 0; kz < w->kernel[0]; kz++)
        for (uint64_t ky = 0; ky < w->kernel[1]; ky++) {
            const int64_t iz = (int64_t)(oz * w->stride[0] + kz * w->dilation[0]) - w->low[0],
                          iy = (int64_t)(oy * w->stride[1] + ky * w->dilation[1]) - w->low[1];
            if (iz < 0 || iz >= (int64_t)w->in[0] || iy < 0 || iy >= (int64_t)w->in[1])
                continue;
            const REAL *row =
                FN(row)(x + (uint64_t)iz * step[0] + (uint64_t)iy * step[1], dtype, step[2], w->in[2], tmp);
            const uint64_t before = ((uint64_t)iz * w->in[1] + (uint64_t)iy) * w->in[2];
            for (uint64_t kx = 0; kx < w->kernel[2]; kx++) {
                uint64_t begin, end;
                FN(reach)(w, 2, kx, &begin, &end);
                if (begin >= end)
                    continue;
                const uint64_t at = begin * w->stride[2] + kx * w->dilation[2] - w->low[2];
                if (place != NULL && p->kind == MICA_POOL_MAX)
                    FN(fold_places)
                (true, row + at, w->stride[2], end - begin, before + at, out + begin, place + begin);
                else if (place != NULL) FN(fold_places)(false, row + at, w->stride[2], end - begin,
                                                        before + at, out + begin, place + begin);
                else FN(fold)(p->kind, row + at, w->stride[2], end - begin, out + begin);
            }
        }
}

static void FN(pool_unit)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__cpu_pool *p = args->params;
    const mica__windows *w = &p->windows;
    const mica__cpu_view *x = &args->view[MICA__POOL_X], *y = &args->view[MICA__POOL_Y],
                         *indices = &args->view[MICA__POOL_INDICES];
    const uint64_t oy = unit % w->out[1], oz = unit / w->out[1] % w->out[0],
                   frame = unit / w->out[1] / w->out[0];
    REAL *tmp = args->local, *out = tmp + w->in[2];
    uint32_t *place = indices->data != NULL ? (uint32_t *)(void *)(out + w->out[2]) : NULL;
    for (uint64_t i = 0; i < w->out[2]; i++) {
        out[i] = FN(of_nothing)(p->kind);
        if (place != NULL)
            place[i] = UINT32_MAX;
    }
    FN(pool_row)(p, x->data + mica__frame_at(&p->frames, 0, frame), x->dtype, oz, oy, tmp, out, place);
    if (p->kind == MICA_POOL_MEAN) {
        const bool padding = p->count_padding != 0;
        const uint64_t rows = FN(taps_in)(w, 0, oz, padding) * FN(taps_in)(w, 1, oy, padding);
        for (uint64_t i = 0; i < w->out[2]; i++)
            out[i] /= (REAL)(rows * FN(taps_in)(w, 2, i, padding));
    }
    FN(put_row)
    (y->data + mica__frame_at(&p->frames, 1, frame) + oz * p->frames.step[1][0] + oy * p->frames.step[1][1],
     y->dtype, p->frames.step[1][2], out, w->out[2]);
    for (uint64_t i = 0; place != NULL && i < w->out[2]; i++)
        memcpy(indices->data + mica__frame_at(&p->frames, 2, frame) + oz * p->frames.step[2][0] +
                   oy * p->frames.step[2][1] + i * p->frames.step[2][2],
               &place[i], sizeof place[i]);
}

/* ---- the gradient ---- */

/* The taps of a window that lie in x: how many; their places in the frame. */
static uint64_t FN(list)(const mica__windows *w, uint64_t oz, uint64_t oy, uint64_t ox, uint64_t *place)
{
    uint64_t count = 0;
    for (uint64_t kz = 0; kz < w->kernel[0]; kz++)
        for (uint64_t ky = 0; ky < w->kernel[1]; ky++)
            for (uint64_t kx = 0; kx < w->kernel[2]; kx++) {
                const int64_t iz = (int64_t)(oz * w->stride[0] + kz * w->dilation[0]) - w->low[0],
                              iy = (int64_t)(oy * w->stride[1] + ky * w->dilation[1]) - w->low[1],
                              ix = (int64_t)(ox * w->stride[2] + kx * w->dilation[2]) - w->low[2];
                if (iz >= 0 && iz < (int64_t)w->in[0] && iy >= 0 && iy < (int64_t)w->in[1] && ix >= 0 &&
                    ix < (int64_t)w->in[2])
                    place[count++] = ((uint64_t)iz * w->in[1] + (uint64_t)iy) * w->in[2] + (uint64_t)ix;
            }
    return count;
}

/* Adds what a window of `count` taps gives to each of them. */
static void FN(give)(uint32_t kind, const REAL *x, const uint64_t *place, uint64_t count, REAL dy,
                     REAL divisor, REAL *dx)
{
    for (uint64_t i = 0; i < count; i++) {
        REAL factor = 1;
        for (uint64_t k = 0; kind == MICA_POOL_PROD && k < count; k++)
            factor *= k != i ? x[place[k]] : 1;
        dx[place[i]] += kind == MICA_POOL_MEAN ? dy / divisor : dy * factor;
    }
}

/* MAX and MIN: the places that the row's windows took, found as the pool itself finds them, get what reaches these. `tmp` has a row of x, and then of
 * windows their values, places and gradients. */
static void FN(give_row)(const mica__cpu_pool *p, const unsigned char *x, uint16_t x_type,
                         const unsigned char *dy, uint16_t dy_type, uint64_t oz, uint64_t oy, REAL *tmp,
                         REAL *dx)
{
    const mica__windows *w = &p->windows;
    const uint64_t n = w->out[2];
    REAL *best = tmp + w->in[2], *given = best + n;
    uint32_t *place = (uint32_t *)(void *)(given + n);
    for (uint64_t i = 0; i < n; i++) {
        best[i] = FN(of_nothing)(p->kind);
        place[i] = UINT32_MAX;
    }
    FN(pool_row)(p, x, x_type, oz, oy, tmp, best, place);
    const REAL *row = FN(row)(dy, dy_type, p->frames.step[1][2], n, given);
    for (uint64_t i = 0; i < n; i++)
        if (place[i] != UINT32_MAX)
            dx[place[i]] += row[i];
}

/* All other kinds: tap by tap. `values` are those of the frame, `place` has room for a window's. */
static void FN(give_windows)(const mica__cpu_pool *p, const REAL *values, const unsigned char *dy,
                             uint16_t dy_type, uint64_t oz, uint64_t oy, uint64_t *place, REAL *dx)
{
    const mica__windows *w = &p->windows;
    const bool padding = p->count_padding != 0;
    for (uint64_t ox = 0; ox < w->out[2]; ox++) {
        const uint64_t count = FN(list)(w, oz, oy, ox, place);
        const REAL divisor = p->kind != MICA_POOL_MEAN ? 1
                             : !padding                ? (REAL)count
                                        : (REAL)(FN(taps_in)(w, 0, oz, true) * FN(taps_in)(w, 1, oy, true) *
                                                 FN(taps_in)(w, 2, ox, true));
        FN(give)
        (p->kind, values, place, count, FN(load)(dy + ox * p->frames.step[1][2], dy_type), divisor, dx);
    }
}

static void FN(backward_unit)(const mica__cpu_args *args, uint64_t frame)
{
    const mica__cpu_pool *p = args->params;
    const mica__windows *w = &p->windows;
    const mica__cpu_view *x = &args->view[MICA__POOL_BACKWARD_X], *dy = &args->view[MICA__POOL_BACKWARD_DY],
                         *dx = &args->view[MICA__POOL_BACKWARD_DX];
    const uint64_t rows = w->in[0] * w->in[1], volume = rows * w->in[2];
    const uint64_t *x_step = p->frames.step[0], *dy_step = p->frames.step[1], *dx_step = p->frames.step[2];
    uint64_t *place = args->local;
    REAL *sums = (REAL *)(void *)(place + (uint64_t)w->kernel[0] * w->kernel[1] * w->kernel[2]),
         *more = sums + volume;
    const unsigned char *from = x->data + mica__frame_at(&p->frames, 0, frame),
                        *given = dy->data + mica__frame_at(&p->frames, 1, frame);
    unsigned char *to = dx->data + mica__frame_at(&p->frames, 2, frame);
    const bool chooses = p->kind == MICA_POOL_MAX || p->kind == MICA_POOL_MIN;
    memset(sums, 0, volume * sizeof *sums);
    for (uint64_t i = 0; i < volume && !chooses; i++) {
        const uint64_t ix = i % w->in[2], iy = i / w->in[2] % w->in[1], iz = i / w->in[2] / w->in[1];
        more[i] = FN(load)(from + iz * x_step[0] + iy * x_step[1] + ix * x_step[2], x->dtype);
    }
    for (uint64_t oz = 0; oz < w->out[0]; oz++)
        for (uint64_t oy = 0; oy < w->out[1]; oy++) {
            const unsigned char *row = given + oz * dy_step[0] + oy * dy_step[1];
            if (chooses)
                FN(give_row)(p, from, x->dtype, row, dy->dtype, oz, oy, more, sums);
            else
                FN(give_windows)(p, more, row, dy->dtype, oz, oy, place, sums);
        }
    for (uint64_t row = 0; row < rows; row++)
        FN(put_row)
    (to + row / w->in[1] * dx_step[0] + row % w->in[1] * dx_step[1], dx->dtype, dx_step[2],
     sums + row * w->in[2], w->in[2]);
}
