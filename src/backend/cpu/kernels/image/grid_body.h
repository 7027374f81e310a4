/* grid_body.h - sampling by a grid over REAL: included by grid_sample.c for float and for double. */

/* The coordinate in places of a dimension of n. */
static REAL FN(place)(REAL g, uint64_t n, bool align)
{
    return align ? (g + 1) / 2 * (REAL)(n - 1) : ((g + 1) * (REAL)n - 1) / 2;
}

/* Turned back at both ends of [low / 2, high / 2] as often as it takes; *slope changes its sign with each turn. */
static REAL FN(reflected)(REAL at, REAL low, REAL high, REAL *slope)
{
    const REAL span = (high - low) / 2;
    if (span <= 0) {
        *slope = 0;
        return 0;
    }
    at = at - low / 2;
    *slope = at < 0 ? -*slope : *slope;
    at = at < 0 ? -at : at;
    const REAL turns = FN(floor_of)(at / span), rest = at - turns * span;
    if (FN(floor_of)(turns / 2) * 2 == turns)
        return rest + low / 2;
    *slope = -*slope;
    return span - rest + low / 2;
}

/* As the padding has it: within the dimension but for zeros. *slope is multiplied by the derivative. */
static REAL FN(padded)(const mica__cpu_grid *p, REAL at, uint64_t n, REAL *slope)
{
    const bool align = p->align_corners != 0;
    if (p->padding == MICA_GRID_ZEROS)
        return at;
    if (p->padding == MICA_GRID_REFLECTION)
        at = align ? FN(reflected)(at, 0, (REAL)(2 * (n - 1)), slope)
                   : FN(reflected)(at, -1, (REAL)(2 * n - 1), slope);
    if (at > 0 && at < (REAL)(n - 1))
        return at;
    *slope = 0;
    return at > 0 ? (REAL)(n - 1) : 0;
}

/* Places and weights along one dimension: how many; places outside are -1. slope: how weights change with g. */
static uint32_t FN(taps)(const mica__cpu_grid *p, REAL g, uint64_t n, int64_t *place, REAL *weight,
                         REAL *slope)
{
    REAL at = FN(place)(g, n, p->align_corners != 0), unused = 0;
    REAL rate = p->align_corners != 0 ? (REAL)(n - 1) / 2 : (REAL)n / 2;
    const REAL most = 1 << 26; /* further out is outside all the same */
    if (at != at) {
        at = p->padding == MICA_GRID_ZEROS ? -most : 0;
        rate = 0;
    }
    if (p->mode != MICA_RESIZE_CUBIC)
        at = FN(padded)(p, at, n, &rate);
    at = at < -most ? -most : at > most ? most : at;
    const REAL base = p->mode == MICA_RESIZE_NEAREST ? FN(nearest)(at) : FN(floor_of)(at), t = at - base;
    const uint32_t count = p->mode == MICA_RESIZE_NEAREST ? 1 : p->mode == MICA_RESIZE_LINEAR ? 2 : 4;
    for (uint32_t k = 0; k < count; k++) {
        REAL tap = base + (REAL)k - (count == 4 ? 1 : 0);
        weight[k] = count == 1 ? 1 : count == 2 ? k == 0 ? 1 - t : t : FN(cubic)(t + 1 - (REAL)k);
        slope[k] = count == 1   ? 0
                   : count == 2 ? k == 0 ? -rate : rate
                                : rate * FN(cubic_slope)(t + 1 - (REAL)k);
        if (p->mode == MICA_RESIZE_CUBIC)
            tap = FN(padded)(p, tap, n, &unused);
        place[k] = tap >= 0 && tap < (REAL)n ? (int64_t)tap : -1;
    }
    return count;
}

/* What a place of the grid reads: rows and columns, their weights and how these change. */
typedef struct FN(reads) {
    int64_t row[4], column[4];
    REAL down[4], across[4], down_slope[4], across_slope[4];
    uint32_t rows, columns;
} FN(reads);

static void FN(read_place)(const mica__cpu_grid *p, const mica__cpu_view *x, const mica__cpu_view *grid,
                           uint64_t image, uint64_t i, uint64_t j, FN(reads) * r)
{
    const unsigned char *g = grid->data + image * grid->stride[0] + i * grid->stride[1] + j * grid->stride[2];
    r->columns = FN(taps)(p, FN(load)(g, grid->dtype), x->shape[3], r->column, r->across, r->across_slope);
    r->rows =
        FN(taps)(p, FN(load)(g + grid->stride[3], grid->dtype), x->shape[2], r->row, r->down, r->down_slope);
}

/* A row of the grid: each place for all channels. */
static void FN(grid_row)(const mica__cpu_args *args, uint64_t image, uint64_t i)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_X], *grid = &args->view[MICA__GRID_GRID],
                         *y = &args->view[MICA__GRID_Y];
    for (uint64_t j = 0; j < p->columns; j++) {
        unsigned char *to = y->data + image * y->stride[0] + i * y->stride[2] + j * y->stride[3];
        FN(reads) r;
        FN(read_place)(p, x, grid, image, i, j, &r);
        for (uint64_t c = 0; c < p->channels; c++) {
            const unsigned char *from = x->data + image * x->stride[0] + c * x->stride[1];
            REAL sum = 0;
            for (uint32_t a = 0; a < r.rows; a++)
                for (uint32_t b = 0; b < r.columns; b++)
                    if (r.row[a] >= 0 && r.column[b] >= 0 && r.down[a] * r.across[b] != 0)
                        sum += r.down[a] * r.across[b] *
                               FN(load)(from + (uint64_t)r.row[a] * x->stride[2] +
                                            (uint64_t)r.column[b] * x->stride[3],
                                        x->dtype);
            FN(put_row)(to + c * y->stride[1], y->dtype, 0, &sum, 1);
        }
    }
}

/* ---- the gradient ---- */

/* dx of a channel of an image: what its elements gave is added up in the thread's memory, in the order of the grid. */
static void FN(grid_back_x)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *dy = &args->view[MICA__GRID_BACKWARD_DY], *dx = &args->view[MICA__GRID_BACKWARD_DX];
    const uint64_t image = unit / p->channels, c = unit % p->channels, h = dx->shape[2], w = dx->shape[3];
    const unsigned char *from = dy->data + image * dy->stride[0] + c * dy->stride[1];
    unsigned char *to = dx->data + image * dx->stride[0] + c * dx->stride[1];
    REAL *sum = args->local;
    memset(sum, 0, h * w * sizeof *sum);
    for (uint64_t place = 0; place < p->rows * p->columns; place++) {
        const uint64_t i = place / p->columns, j = place % p->columns;
        const REAL reaches = FN(load)(from + i * dy->stride[2] + j * dy->stride[3], dy->dtype);
        FN(reads) r;
        FN(read_place)
        (p, &args->view[MICA__GRID_BACKWARD_X], &args->view[MICA__GRID_BACKWARD_GRID], image, i, j, &r);
        for (uint32_t a = 0; a < r.rows; a++)
            for (uint32_t b = 0; b < r.columns; b++)
                if (r.row[a] >= 0 && r.column[b] >= 0 && r.down[a] * r.across[b] != 0)
                    sum[(uint64_t)r.row[a] * w + (uint64_t)r.column[b]] += r.down[a] * r.across[b] * reaches;
    }
    for (uint64_t i = 0; i < h; i++)
        FN(put_row)(to + i * dx->stride[2], dx->dtype, dx->stride[3], sum + i * w, w);
}

/* dgrid of a row of places of an image: over all channels. */
static void FN(grid_back_grid)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__cpu_grid *p = args->params;
    const mica__cpu_view *x = &args->view[MICA__GRID_BACKWARD_X], *dy = &args->view[MICA__GRID_BACKWARD_DY],
                         *dgrid = &args->view[MICA__GRID_BACKWARD_DGRID];
    const uint64_t image = unit / p->rows, i = unit % p->rows;
    for (uint64_t j = 0; j < p->columns; j++) {
        const unsigned char *reaches =
            dy->data + image * dy->stride[0] + i * dy->stride[2] + j * dy->stride[3];
        unsigned char *to =
            dgrid->data + image * dgrid->stride[0] + i * dgrid->stride[1] + j * dgrid->stride[2];
        REAL out[2] = {0, 0}, lane[2][MICA__CPU_GRID_LANES] = {{0}};
        FN(reads) r;
        FN(read_place)(p, x, &args->view[MICA__GRID_BACKWARD_GRID], image, i, j, &r);
        for (uint64_t c = 0; c < p->channels; c++) {
            const unsigned char *from = x->data + image * x->stride[0] + c * x->stride[1];
            REAL sum[2] = {0, 0};
            for (uint32_t a = 0; a < r.rows; a++)
                for (uint32_t b = 0; b < r.columns; b++) {
                    const REAL by[2] = {r.down[a] * r.across_slope[b], r.down_slope[a] * r.across[b]};
                    if (r.row[a] < 0 || r.column[b] < 0 || (by[0] == 0 && by[1] == 0))
                        continue;
                    const REAL v = FN(load)(from + (uint64_t)r.row[a] * x->stride[2] +
                                                (uint64_t)r.column[b] * x->stride[3],
                                            x->dtype);
                    sum[0] += by[0] * v;
                    sum[1] += by[1] * v;
                }
            const REAL all = FN(load)(reaches + c * dy->stride[1], dy->dtype);
            const uint64_t at = c % MICA__CPU_GRID_LANES;
            lane[0][at] = all * sum[0];
            lane[1][at] = all * sum[1];
            if (at + 1 < MICA__CPU_GRID_LANES && c + 1 < p->channels)
                continue;
            for (int d = 0; d < 2; d++) {
                out[d] += FN(lane_sum)(lane[d]);
                memset(lane[d], 0, sizeof lane[d]);
            }
        }
        FN(put_row)(to, dgrid->dtype, dgrid->stride[3], out, 2);
    }
}
