/* pool_back_body.h - the gradient of pooling over REAL: included by pool.c for float and for double. */

/* dx at the places that MAX or MIN took in row [oz, oy] of the windows, found as the pool itself finds them, gets what reaches these. `tmp` has rows of x,
 * and then of windows their values, places and gradients. */
static void FN(give_chosen)(const mica__cpu_pool *p, const unsigned char *x, uint16_t x_type,
                            const unsigned char *dy, uint16_t dy_type, uint64_t oz, uint64_t oy, REAL *tmp,
                            REAL *dx)
{
    const uint64_t n = p->windows.out[2];
    REAL *best = tmp + mica__cpu_pool_rows(p, 0), *given = best + n;
    uint32_t *place = (uint32_t *)(void *)(given + n);
    FN(find_places)(p, x, x_type, oz, oy, tmp, best, place);
    const REAL *row = FN(row)(dy, dy_type, p->frames.step[1][2], n, given);
    for (uint64_t i = 0; i < n; i++)
        if (place[i] != UINT32_MAX)
            dx[place[i]] += row[i];
}

static void FN(add_apart)(REAL *restrict to, uint64_t step, const REAL *restrict row, uint64_t n)
{
    if (step == 1)
        for (uint64_t i = 0; i < n; i++)
            to[i] += row[i];
    else
        for (uint64_t i = 0; i < n; i++)
            to[i * step] += row[i];
}

/* SUM and MEAN: each window of row [oz, oy] gives the same to all its taps; the last taps first, so that an element gets what it gets in the order of the
 * windows. `tmp` has two rows of windows. */
static void FN(give_even)(const mica__cpu_pool *p, const unsigned char *dy, uint16_t dy_type, uint64_t oz,
                          uint64_t oy, REAL *tmp, REAL *dx)
{
    const mica__windows *w = &p->windows;
    const uint64_t n = w->out[2];
    const bool padding = p->count_padding != 0;
    const REAL *row = FN(row)(dy, dy_type, p->frames.step[1][2], n, tmp);
    const uint64_t rows = FN(taps_in)(w, 0, oz, padding) * FN(taps_in)(w, 1, oy, padding);
    REAL *given = tmp + n;
    for (uint64_t i = 0; i < n; i++)
        given[i] = p->kind == MICA_POOL_SUM ? row[i] : row[i] / (REAL)(rows * FN(taps_in)(w, 2, i, padding));
    for (uint64_t kz = 0; kz < w->kernel[0]; kz++)
        for (uint64_t ky = 0; ky < w->kernel[1]; ky++) {
            const uint64_t iz = oz * w->stride[0] + kz * w->dilation[0] - w->low[0],
                           iy = oy * w->stride[1] + ky * w->dilation[1] - w->low[1];
            if (iz >= w->in[0] || iy >= w->in[1]) /* what lies before x has wrapped around */
                continue;
            for (uint64_t kx = w->kernel[2]; kx-- > 0;) {
                uint64_t begin, end;
                FN(reach)(w, 2, kx, &begin, &end);
                if (begin < end)
                    FN(add_apart)
                (dx + (iz * w->in[1] + iy) * w->in[2] + begin * w->stride[2] + kx * w->dilation[2] -
                     w->low[2],
                 w->stride[2], given + begin, end - begin);
            }
        }
}

/* ---- products ---- */

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

/* PROD: each tap of a row's windows gets the product of the others. `values` are those of the frame, `place` has room for a window's. */
static void FN(give_products)(const mica__cpu_pool *p, const REAL *values, const unsigned char *dy,
                              uint16_t dy_type, uint64_t oz, uint64_t oy, uint64_t *place, REAL *dx)
{
    for (uint64_t ox = 0; ox < p->windows.out[2]; ox++) {
        const uint64_t count = FN(list)(&p->windows, oz, oy, ox, place);
        const REAL given = FN(load)(dy + ox * p->frames.step[1][2], dy_type);
        for (uint64_t i = 0; i < count; i++) {
            REAL factor = 1;
            for (uint64_t k = 0; k < count; k++)
                factor *= k != i ? values[place[k]] : 1;
            dx[place[i]] += given * factor;
        }
    }
}

/* ---- frames ---- */

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
    memset(sums, 0, volume * sizeof *sums);
    for (uint64_t i = 0; i < volume && p->kind == MICA_POOL_PROD; i++) {
        const uint64_t ix = i % w->in[2], iy = i / w->in[2] % w->in[1], iz = i / w->in[2] / w->in[1];
        more[i] = FN(load)(from + iz * x_step[0] + iy * x_step[1] + ix * x_step[2], x->dtype);
    }
    for (uint64_t oz = 0; oz < w->out[0]; oz++)
        for (uint64_t oy = 0; oy < w->out[1]; oy++) {
            const unsigned char *row = given + oz * dy_step[0] + oy * dy_step[1];
            if (p->kind == MICA_POOL_PROD)
                FN(give_products)(p, more, row, dy->dtype, oz, oy, place, sums);
            else if (p->kind == MICA_POOL_MAX || p->kind == MICA_POOL_MIN)
                FN(give_chosen)(p, from, x->dtype, row, dy->dtype, oz, oy, more, sums);
            else
                FN(give_even)(p, row, dy->dtype, oz, oy, more, sums);
        }
    for (uint64_t row = 0; row < rows; row++)
        FN(put_row)
    (to + row / w->in[1] * dx_step[0] + row % w->in[1] * dx_step[1], dx->dtype, dx_step[2],
     sums + row * w->in[2], w->in[2]);
}
