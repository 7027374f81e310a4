/* col2im_body.h - the inverse of im2col over REAL: included by im2col.c for float and for double. */

/* A row of windows' values to their places, which lie `step` apart. */
static void FN(add_apart)(REAL *restrict sums, uint64_t step, const REAL *restrict row, uint64_t n)
{
    if (step == 1)
        for (uint64_t i = 0; i < n; i++)
            sums[i] += row[i];
    else
        for (uint64_t i = 0; i < n; i++)
            sums[i * step] += row[i];
}

/* A channel of an image: tap by tap, every window's value to its place. Per-thread memory: the channel, and a row of windows. */
static void FN(col2im_unit)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__cpu_im2col *p = args->params;
    const mica__windows *w = &p->windows;
    const mica__cpu_view *x = &args->view[MICA__COL2IM_X], *y = &args->view[MICA__COL2IM_Y];
    const uint64_t image = unit / p->channels, c = unit % p->channels,
                   volume = w->in[0] * w->in[1] * w->in[2], step = p->columns[2];
    const unsigned char *taps = x->data + image * p->columns[0] + c * p->taps * p->columns[1];
    REAL *sums = args->local, *tmp = sums + volume;
    memset(sums, 0, volume * sizeof *sums);
    for (uint64_t tap = 0; tap < p->taps; tap++, taps += p->columns[1]) {
        const uint64_t kx = tap % w->kernel[2], ky = tap / w->kernel[2] % w->kernel[1],
                       kz = tap / w->kernel[2] / w->kernel[1];
        const reach r = reach_of(w, kx);
        const unsigned char *from = taps + r.begin * step;
        for (uint64_t oz = 0; oz < w->out[0] && r.begin < r.end; oz++)
            for (uint64_t oy = 0; oy < w->out[1]; oy++, from += w->out[2] * step) {
                const int64_t iz = place_of(w, 0, oz, kz), iy = place_of(w, 1, oy, ky);
                if (iz < 0 || iy < 0)
                    continue;
                FN(add_apart)
                (sums + ((uint64_t)iz * w->in[1] + (uint64_t)iy) * w->in[2] + r.place, w->stride[2],
                 FN(row)(from, x->dtype, step, r.end - r.begin, tmp), r.end - r.begin);
            }
    }
    unsigned char *to = y->data + image * p->image[0] + c * p->image[1];
    for (uint64_t row = 0; row < w->in[0] * w->in[1]; row++)
        FN(put_row)
    (to + row / w->in[1] * p->image[2] + row % w->in[1] * p->image[3], y->dtype, p->image[4],
     sums + row * w->in[2], w->in[2]);
}
