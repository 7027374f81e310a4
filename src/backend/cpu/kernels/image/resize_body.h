/* resize_body.h - resizing over REAL: included by resize.c for float and for double. */

/* Row [z, y] of the frame that is written: rows of what is read, by their weights, then entries of the last dimension. */
static void FN(resize_unit)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__cpu_resize *p = args->params;
    const mica__frames *f = &p->frames;
    const mica__cpu_view *from = &args->view[0], *to = &args->view[1];
    const uint64_t y = unit % f->grid[1][1], z = unit / f->grid[1][1] % f->grid[1][0],
                   frame = unit / f->grid[1][1] / f->grid[1][0], n = f->grid[0][2];
    const unsigned char *read = from->data + mica__frame_at(f, 0, frame);
    table t[MICA_SPATIAL_DIMS];
    REAL *sums = (REAL *)(void *)tables_of(args, t), *tmp = sums + n, *out = tmp + n;
    for (uint64_t i = 0; i < n; i++)
        sums[i] = 0;
    for (uint64_t a = t[0].begin[z]; a < t[0].begin[z + 1]; a++)
        for (uint64_t b = t[1].begin[y]; b < t[1].begin[y + 1]; b++) {
            const mica__resize_entry *ez = &t[0].entry[a], *ey = &t[1].entry[b];
            const REAL weight = (REAL)(ez->weight * ey->weight);
            const REAL *row = FN(row)(read + ez->place * f->step[0][0] + ey->place * f->step[0][1],
                                      from->dtype, f->step[0][2], n, tmp);
            for (uint64_t i = 0; i < n; i++)
                sums[i] += weight * row[i];
        }
    for (uint64_t x = 0; x < f->grid[1][2]; x++) {
        REAL sum = 0;
        for (uint64_t e = t[2].begin[x]; e < t[2].begin[x + 1]; e++)
            sum += (REAL)t[2].entry[e].weight * sums[t[2].entry[e].place];
        out[x] = sum;
    }
    FN(put_row)
    (to->data + mica__frame_at(f, 1, frame) + z * f->step[1][0] + y * f->step[1][1], to->dtype, f->step[1][2],
     out, f->grid[1][2]);
}
