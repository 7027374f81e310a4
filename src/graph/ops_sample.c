/* ops_sample.c - images sampled between their places, in nodes of other ops. */
#include "graph/ops_sample.h"

#include "graph/ops_build.h"

#define CUBIC_A (-0.75)
#define FAR 0x1p30 /* no image is so long: what lies behind is as far outside */

static mica_tensor add(mica_graph *graph, mica_tensor x, double value)
{
    return value == 0 ? x : mica_graph_add(graph, x, mica__build_number(graph, x, value));
}

static mica_tensor times(mica_graph *graph, mica_tensor x, double value)
{
    return mica_graph_mul(graph, x, mica__build_number(graph, x, value));
}

static mica_tensor held(mica_graph *graph, mica_tensor x, double low, double high)
{
    return mica_graph_min(graph, mica_graph_max(graph, x, mica__build_number(graph, x, low)),
                          mica__build_number(graph, x, high));
}

/* ---- taps ---- */

/* What padding makes of a coordinate, or of a tap's. */
static mica_tensor padded(mica_graph *graph, mica_tensor at, uint64_t size, const mica_grid_params *params)
{
    const double last = (double)size - 1;
    if (params->padding == MICA_GRID_ZEROS)
        return at;
    if (params->padding == MICA_GRID_REFLECTION) { /* up and down again, between `low` and low + span */
        const double low = params->align_corners != 0 ? 0 : -0.5, span = last - 2 * low;
        if (span <= 0)
            return times(graph, at, 0);
        const mica_tensor period = mica__build_number(graph, at, 2 * span);
        const mica_tensor up = mica_graph_mod(graph, add(graph, at, -low), period);
        at = add(graph, mica_graph_min(graph, up, mica_graph_sub(graph, period, up)), low);
    }
    return held(graph, at, 0, last);
}

/* Keys' kernel of the tap k - 1 behind the place below, `t` behind which the coordinate lies. */
static mica_tensor cubic_weight(mica_graph *graph, mica_tensor t, uint32_t k)
{
    const bool near = k == 1 || k == 2;
    const mica_tensor s =
        k < 2 ? add(graph, t, k == 0 ? 1 : 0) : add(graph, mica_graph_neg(graph, t), k == 2 ? 1 : 2);
    if (near) {
        const mica_tensor inner = add(graph, times(graph, s, CUBIC_A + 2), -(CUBIC_A + 3));
        return add(graph, mica_graph_mul(graph, mica_graph_mul(graph, inner, s), s), 1);
    }
    const mica_tensor first = add(graph, times(graph, s, CUBIC_A), -5 * CUBIC_A);
    const mica_tensor second = add(graph, mica_graph_mul(graph, first, s), 8 * CUBIC_A);
    return add(graph, mica_graph_mul(graph, second, s), -4 * CUBIC_A);
}

void mica__sample_taps(mica_graph *graph, mica_tensor at, uint64_t size, const mica_grid_params *params,
                       mica__taps *out)
{
    const bool cubic = params->mode == MICA_RESIZE_CUBIC, linear = params->mode == MICA_RESIZE_LINEAR;
    const double nowhere = params->padding == MICA_GRID_ZEROS ? -FAR : 0;
    *out = (mica__taps){.count = cubic ? 4 : linear ? 2 : 1, .size = size};
    at =
        mica_graph_select(graph, mica_graph_equal(graph, at, at), at, mica__build_number(graph, at, nowhere));
    at = held(graph, at, -FAR, FAR);
    if (!cubic)
        at = padded(graph, at, size, params);
    const mica_tensor base = linear || cubic ? mica_graph_floor(graph, at) : mica_graph_round(graph, at);
    const mica_tensor t = mica_graph_sub(graph, at, base);
    for (uint32_t k = 0; k < out->count; k++) {
        mica_tensor tap = add(graph, base, (double)k - (cubic ? 1 : 0));
        if (cubic)
            tap = padded(graph, tap, size, params);
        const mica_tensor kept = held(graph, tap, 0, (double)size - 1);
        if (params->padding == MICA_GRID_ZEROS)
            out->inside[k] = mica_graph_equal(graph, tap, kept);
        out->place[k] = mica_graph_cast(graph, kept, MICA_DTYPE_I32);
        if (cubic)
            out->weight[k] = cubic_weight(graph, t, k);
        else if (linear)
            out->weight[k] = k == 0 ? add(graph, mica_graph_neg(graph, t), 1) : t;
    }
}

/* ---- reading ---- */

uint32_t mica__sample_count(const mica__taps *taps, uint32_t dims)
{
    uint32_t count = 1;
    for (uint32_t d = 0; d < dims; d++)
        count *= taps[d].count;
    return count;
}

static mica_tensor both(mica_graph *graph, mica_scalar scalar, mica_tensor a, mica_tensor b)
{
    return a == 0 ? b : b == 0 ? a : mica_graph_scalar(graph, scalar, a, b, 0);
}

mica_tensor mica__sample_term(mica_graph *graph, mica_tensor table, mica_tensor first, const mica__taps *taps,
                              uint32_t dims, uint32_t which)
{
    mica_tensor row = first, weight = 0, inside = 0;
    uint64_t step = 1;
    for (uint32_t d = dims; d-- > 0; step *= taps[d].size) {
        uint32_t k = which;
        for (uint32_t later = dims; --later > d;)
            k /= taps[later].count;
        k %= taps[d].count;
        const mica_tensor place = step == 1 ? taps[d].place[k] : times(graph, taps[d].place[k], (double)step);
        row = both(graph, MICA_SCALAR_ADD, row, place);
        weight = both(graph, MICA_SCALAR_MUL, weight, taps[d].weight[k]);
        inside = both(graph, MICA_SCALAR_BIT_AND, inside, taps[d].inside[k]);
    }
    mica_tensor y = mica_graph_gather(graph, table, row, 0);
    if (weight != 0)
        y = mica_graph_mul(graph, y, mica_graph_unsqueeze(graph, weight, 1));
    if (inside != 0) /* not times 0: what is not read may be infinite */
        y = mica_graph_select(graph, mica_graph_unsqueeze(graph, inside, 1), y,
                              mica__build_number(graph, y, 0));
    return y;
}

mica_tensor mica__sample_sum(mica_graph *graph, mica_tensor table, mica_tensor first, const mica__taps *taps,
                             uint32_t dims)
{
    mica_tensor sum = 0;
    for (uint32_t i = 0; i < mica__sample_count(taps, dims) && graph->status == MICA_OK; i++)
        sum = both(graph, MICA_SCALAR_ADD, sum, mica__sample_term(graph, table, first, taps, dims, i));
    return sum;
}

/* ---- images and grids ---- */

mica_tensor mica__sample_table(mica_graph *graph, mica_tensor x)
{
    const mica_tensor last = mica__build_last(graph, x, 1);
    const mica__type type = *mica__type_of(graph, last);
    return mica_graph_reshape(graph, last, 2, (const uint64_t[]){MICA_SIZE_REST, type.shape[type.ndim - 1]});
}

mica_tensor mica__sample_first(mica_graph *graph, uint64_t images, uint64_t each, uint64_t places)
{
    const uint64_t shape[2] = {images, each}, flat = images * each;
    if (images == 1)
        return 0;
    const mica_tensor image = mica_graph_index(graph, MICA_DTYPE_I32, 2, shape, 0);
    return mica_graph_reshape(graph, times(graph, image, (double)places), 1, &flat);
}

/* Coordinate `d` (from the first dimension) of the grid in places of `size`. */
static mica_tensor places_of(mica_graph *graph, mica_tensor grid, uint32_t dims, uint32_t d, uint64_t size,
                             bool corners)
{
    const double n = (double)size;
    const uint32_t last = mica__type_of(graph, grid)->ndim - 1;
    const mica_tensor one = mica_graph_slice(graph, grid, last, dims - 1 - d, 1, 1);
    const mica_tensor g = mica_graph_reshape(graph, one, 1, (const uint64_t[]){MICA_SIZE_REST});
    return corners ? times(graph, add(graph, g, 1), (n - 1) / 2)
                   : times(graph, add(graph, times(graph, add(graph, g, 1), n), -1), 0.5);
}

mica_tensor mica__sample_grid(mica_graph *graph, mica_tensor x, mica_tensor grid,
                              const mica_grid_params *params)
{
    static const char call[] = "grid_sample";
    mica__type type, at;
    mica__taps taps[MICA_SPATIAL_DIMS];
    uint64_t places = 1, each = 1, rows = 1;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "x", x, 3, 2 + MICA_SPATIAL_DIMS, &type) ||
        !mica__build_takes_rank(graph, call, "grid", grid, type.ndim, type.ndim, &at))
        return 0;
    const uint32_t dims = type.ndim - 2;
    for (uint32_t d = 0; d < type.ndim; d++)
        if (!mica__size_known(type.shape[d]) || !mica__size_known(at.shape[d]) || type.shape[d] == 0)
            return mica__build_refuse(graph, call, "x", &type,
                                      "or grid has a size that is no number above 0");
    for (uint32_t d = 0; d < dims; d++) {
        places *= type.shape[2 + d];
        each *= at.shape[1 + d];
    }
    if (at.shape[type.ndim - 1] != dims || at.shape[0] != type.shape[0] || at.dtype != type.dtype)
        return mica__build_refuse(graph, call, "grid", &at, "is not of x's type, images and dimensions");
    rows = places * type.shape[0];
    if (rows > INT32_MAX)
        return mica__build_refuse(graph, call, "x", &type, "has more than 2^31 places");
    for (uint32_t d = 0; d < dims; d++)
        mica__sample_taps(graph,
                          places_of(graph, grid, dims, d, type.shape[2 + d], params->align_corners != 0),
                          type.shape[2 + d], params, &taps[d]);
    const mica_tensor table = mica__sample_table(graph, x);
    mica_tensor y =
        mica__sample_sum(graph, table, mica__sample_first(graph, at.shape[0], each, places), taps, dims);
    at.shape[at.ndim - 1] = type.shape[1];
    y = mica__build_reshape(graph, y, at.ndim, at.shape);
    uint32_t order[MICA_MAX_DIMS] = {0, at.ndim - 1, 1, 2, 3};
    return mica__build_end(graph, call, y == 0 ? 0 : mica_graph_permute(graph, y, order));
}
