/* grid_body.h - sampling by a grid over REAL: included by grid_sample.c for float and for double. */

/* The coordinate in places of a dimension of n. */
static REAL FN(place)(REAL g, uint64_t n, bool align)
{
    return align ? (g + 1) / 2 * (REAL)(n - 1) : ((g + 1) * (REAL)n - 1) / 2;
}

/* Turned back at both ends of [low / 2, high / 2] as often as it takes. */
static REAL FN(reflected)(REAL at, REAL low, REAL high)
{
    const REAL span = (high - low) / 2;
    if (span <= 0)
        return 0;
    at = at - low / 2;
    at = at < 0 ? -at : at;
    const REAL turns = FN(floor_of)(at / span), rest = at - turns * span;
    return FN(floor_of)(turns / 2) * 2 == turns ? rest + low / 2 : span - rest + low / 2;
}

/* As the padding has it: within the dimension but for zeros. */
static REAL FN(padded)(const mica__cpu_grid *p, REAL at, uint64_t n)
{
    const bool align = p->align_corners != 0;
    if (p->padding == MICA_GRID_ZEROS)
        return at;
    if (p->padding == MICA_GRID_REFLECTION)
        at = align ? FN(reflected)(at, 0, (REAL)(2 * (n - 1))) : FN(reflected)(at, -1, (REAL)(2 * n - 1));
    return !(at > 0) ? 0 : at < (REAL)(n - 1) ? at : (REAL)(n - 1);
}

/* Places and weights along one dimension: how many; places outside are -1. */
static uint32_t FN(taps)(const mica__cpu_grid *p, REAL g, uint64_t n, int64_t *place, REAL *weight)
{
    REAL at = FN(place)(g, n, p->align_corners != 0);
    const REAL most = 1 << 26; /* further out is outside all the same */
    if (at != at)
        at = p->padding == MICA_GRID_ZEROS ? -most : 0;
    if (p->mode != MICA_RESIZE_CUBIC)
        at = FN(padded)(p, at, n);
    at = at < -most ? -most : at > most ? most : at;
    const REAL base = p->mode == MICA_RESIZE_NEAREST ? FN(nearest)(at) : FN(floor_of)(at), t = at - base;
    const uint32_t count = p->mode == MICA_RESIZE_NEAREST ? 1 : p->mode == MICA_RESIZE_LINEAR ? 2 : 4;
    for (uint32_t k = 0; k < count; k++) {
        REAL tap = base + (REAL)k - (count == 4 ? 1 : 0);
        weight[k] = count == 1 ? 1 : count == 2 ? k == 0 ? 1 - t : t : FN(cubic)(t + 1 - (REAL)k);
        if (p->mode == MICA_RESIZE_CUBIC)
            tap = FN(padded)(p, tap, n);
        place[k] = tap >= 0 && tap < (REAL)n ? (int64_t)tap : -1;
    }
    return count;
}

/* A row of the grid: each place for all channels. */
static void FN(grid_unit)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_X], *grid = &args->view[MICA__GRID_GRID],
                         *y = &args->view[MICA__GRID_Y];
    const uint64_t image = unit / p->rows, i = unit % p->rows;
    for (uint64_t j = 0; j < p->columns; j++) {
        const unsigned char *g =
            grid->data + image * grid->stride[0] + i * grid->stride[1] + j * grid->stride[2];
        unsigned char *to = y->data + image * y->stride[0] + i * y->stride[2] + j * y->stride[3];
        int64_t row[4], column[4];
        REAL across[4], down[4];
        const uint32_t columns = FN(taps)(p, FN(load)(g, grid->dtype), x->shape[3], column, across);
        const uint32_t rows = FN(taps)(p, FN(load)(g + grid->stride[3], grid->dtype), x->shape[2], row, down);
        for (uint64_t c = 0; c < p->channels; c++) {
            const unsigned char *from = x->data + image * x->stride[0] + c * x->stride[1];
            REAL sum = 0;
            for (uint32_t a = 0; a < rows; a++)
                for (uint32_t b = 0; b < columns; b++)
                    if (row[a] >= 0 && column[b] >= 0 && down[a] * across[b] != 0)
                        sum += down[a] * across[b] *
                               FN(load)(from + (uint64_t)row[a] * x->stride[2] +
                                            (uint64_t)column[b] * x->stride[3],
                                        x->dtype);
            FN(put_row)(to + c * y->stride[1], y->dtype, 0, &sum, 1);
        }
    }
}
