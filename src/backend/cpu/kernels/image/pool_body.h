/* pool_body.h - pooling over REAL: included by pool.c for float and for double. */

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
    for (uint64_t i = 0; i < w->out[2]; i++) {
        out[i] = FN(of_nothing)(p->kind);
        if (place != NULL)
            place[i] = UINT32_MAX;
    }
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
