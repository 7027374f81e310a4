/* col2im_body.h - the inverse of im2col over REAL: included by im2col.c for float and for double. */

/* A channel of an image: tap by tap, every window's value to its place. */
static void FN(col2im_unit)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__cpu_im2col *p = args->params;
    const mica__windows *w = &p->windows;
    const mica__cpu_view *x = &args->view[MICA__COL2IM_X], *y = &args->view[MICA__COL2IM_Y];
    const uint64_t image = unit / p->channels, c = unit % p->channels,
                   volume = w->in[0] * w->in[1] * w->in[2];
    const unsigned char *from = x->data + image * p->columns[0] + c * p->taps * p->columns[1];
    REAL *sums = args->local;
    for (uint64_t i = 0; i < volume; i++)
        sums[i] = 0;
    for (uint64_t tap = 0; tap < p->taps; tap++, from += p->columns[1]) {
        const uint64_t kx = tap % w->kernel[2], ky = tap / w->kernel[2] % w->kernel[1],
                       kz = tap / w->kernel[2] / w->kernel[1];
        uint64_t window = 0;
        for (uint64_t oz = 0; oz < w->out[0]; oz++)
            for (uint64_t oy = 0; oy < w->out[1]; oy++)
                for (uint64_t ox = 0; ox < w->out[2]; ox++, window++) {
                    const int64_t iz = place_of(w, 0, oz, kz), iy = place_of(w, 1, oy, ky),
                                  ix = place_of(w, 2, ox, kx);
                    if (iz >= 0 && iy >= 0 && ix >= 0)
                        sums[((uint64_t)iz * w->in[1] + (uint64_t)iy) * w->in[2] + (uint64_t)ix] +=
                            FN(load)(from + window * p->columns[2], x->dtype);
                }
    }
    unsigned char *to = y->data + image * p->image[0] + c * p->image[1];
    for (uint64_t row = 0; row < w->in[0] * w->in[1]; row++)
        FN(put_row)
    (to + row / w->in[1] * p->image[2] + row % w->in[1] * p->image[3], y->dtype, p->image[4],
     sums + row * w->in[2], w->in[2]);
}
