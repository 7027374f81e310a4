/*
 * cpu_plan_image.c - plans of convolution: tiles of places whose part of x fits the second cache, few enough that every thread has several.
 */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_plan.h"

#include "backend/cpu/kernels/image/conv.h"
#include "base/isa.h"
#include "base/status.h"

#define UNITS_PER_THREAD 4u /* so that the last ones even out; half of it where they come out even */
#define TILE_PLACES 512u    /* that weights stay near for */
#define TILE_LEAST 96u      /* places, below which taking the weights costs a tenth of the products */
#define TILE_SUMS 65536u    /* of a unit, in the second cache */
#define FEW_PLACES 8192u    /* the same of conv_few: sums and a channel's places in the second cache */
#define PIECE_PLACES 256u /* of dy, for a gradient of the weight: as outputs they stay in the second cache */
#define PIECE_LEAST 16u   /* of them, however much of x they meet */
#define PIECE_TAPS 144u   /* of all channels of a unit, which share the outputs */
#define PIECE_FLOATS 49152u   /* of x that a piece meets, in the second cache */
#define FLOPS_PER_NS 80.0     /* of one thread, for the grain */
#define FEW_FLOPS_PER_NS 20.0 /* the same of conv_few */

/* The view that was added last gets five dimensions: [.., .., three spatial ones]. */
static void widen(mica__plan *plan, const mica__record *record, uint32_t slot, uint32_t access)
{
    mica__cpu_plan_operand(plan, record, slot, access);
    mica__cpu_view *view =
        &mica__cpu_plan_views(plan)[plan->dispatch[plan->dispatch_count - 1].binding_count - 1];
    if (!mica__operand_present(&record->operand[slot]) || record->operand[slot].ndim < 3)
        return;
    mica__windows_operand(&record->operand[slot], view->shape, view->stride);
    view->ndim = MICA__WINDOW_DIMS;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t ceil_of(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* Floats of x that a tile meets, of the phase that meets most; and the most taps that a phase has. */
static uint64_t tile_floats(const mica__cpu_conv *p, uint64_t *out_taps)
{
    uint64_t floats = p->images * p->depth, taps = 1;
    const uint64_t count[] = {1, p->rows, p->columns};
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++) {
        uint64_t extent = 0, met = 0;
        for (uint32_t phase = 0; phase < p->phases[d]; phase++) {
            const mica__conv_axis a = mica__conv_axis_of(&p->windows, p->transposed != 0, d, phase);
            const uint64_t of =
                d == 2 ? mica__conv_row_floats(&a, count[d]) : mica__conv_extent(&a, count[d]);
            extent = extent > of ? extent : of;
            met = met > a.taps ? met : a.taps;
        }
        floats *= extent;
        taps *= met;
    }
    *out_taps = taps;
    return floats;
}

/* Places of y along a dimension in the phase that has most. */
static uint64_t places_of(const mica__cpu_conv *p, uint32_t d)
{
    const uint64_t size = p->transposed != 0 ? p->windows.in[d] : p->windows.out[d];
    return ceil_of(size, p->phases[d]);
}

/* `count` in equal pieces of at most `most`: the size of one. */
static uint64_t piece_of(uint64_t count, uint64_t most)
{
    return ceil_of(count, ceil_of(count, most > 0 ? most : 1));
}

/* Tiles of at most `most` places: columns first, since neighbours share what they read; then rows, then images of one tile each. */
static void cut_places(mica__cpu_conv *p, uint64_t most, bool join)
{
    const uint64_t width = places_of(p, 2), height = places_of(p, 1);
    p->planes = places_of(p, 0);
    p->columns = piece_of(width, most);
    p->column_tiles = ceil_of(width, p->columns);
    p->rows = piece_of(height, most / p->columns);
    p->row_tiles = ceil_of(height, p->rows);
    p->images = join && p->planes * p->row_tiles * p->column_tiles == 1
                    ? piece_of(p->batch, most / (p->rows * p->columns))
                    : 1;
    p->image_tiles = ceil_of(p->batch, p->images);
}

static uint64_t phases_of(const mica__cpu_conv *p)
{
    return (uint64_t)p->phases[0] * p->phases[1] * p->phases[2];
}

static uint64_t units_of(const mica__cpu_conv *p)
{
    return p->image_tiles * p->groups * phases_of(p) * p->planes * p->row_tiles * p->column_tiles * p->parts;
}

static bool enough(const mica__cpu_conv *p, uint32_t threads)
{
    const uint64_t units = units_of(p), wanted = (uint64_t)threads * UNITS_PER_THREAD;
    return units >= wanted || (units >= wanted / 2 && units % threads == 0);
}

/* Outputs are parted before tiles become small: a tile takes all weights of its part, a part all places of its tile. */
static void cut(mica__cpu_conv *p, const mica__device_info *info)
{
    const uint64_t blocks = ceil_of(p->outputs, MICA__CONV_OUTPUTS);
    const uint64_t most = TILE_SUMS / (least(blocks, 2) * MICA__CONV_OUTPUTS);
    uint64_t places = least(most, TILE_PLACES), taps;
    cut_places(p, places, true);
    p->parts = (uint32_t)ceil_of(blocks * MICA__CONV_OUTPUTS * p->images * p->rows * p->columns, TILE_SUMS);
    p->parts = (uint32_t)least(p->parts, blocks);
    while (!enough(p, info->threads) && places >= 2 * TILE_LEAST && p->parts == blocks) {
        places /= 2;
        cut_places(p, places, true);
    }
    while (!enough(p, info->threads) && p->parts < blocks)
        p->parts++;
    while (!enough(p, info->threads) && places >= TILE_LEAST) {
        places /= 2;
        cut_places(p, places, true);
    }
    p->depth = 1;
    p->tile_floats = tile_floats(p, &taps);
    p->depth =
        (uint32_t)least(p->channels, taps < MICA__CONV_STEPS && taps > 0 ? MICA__CONV_STEPS / taps : 1);
    p->tile_floats *= p->depth;
}

static void cut_few(mica__cpu_conv *p, const mica__device_info *info)
{
    uint64_t places = FEW_PLACES, taps;
    p->parts = p->depth = 1;
    cut_places(p, places, false);
    while (!enough(p, info->threads) && places >= TILE_LEAST) {
        places /= 2;
        cut_places(p, places, false);
    }
    p->tile_floats = tile_floats(p, &taps);
}

static void describe(const mica__record *record, mica__cpu_conv *p)
{
    const mica__conv_record *fused = record->params;
    const mica_conv_params *conv = &fused->conv;
    const mica__operand *x = &record->operand[MICA__CONV_X], *y = &record->operand[MICA__CONV_Y];
    const bool transposed = conv->transposed != 0;
    mica__windows_of_conv(conv, transposed ? y : x, &record->operand[MICA__CONV_WEIGHT], transposed ? x : y,
                          &p->windows);
    p->batch = x->shape[0];
    p->groups = conv->groups;
    p->channels = x->shape[1] / conv->groups;
    p->outputs = y->shape[1] / conv->groups;
    p->transposed = conv->transposed;
    p->residual = record->operand_count > MICA__CONV_SLOTS;
    p->relu = fused->relu;
    for (uint32_t d = 0; d < MICA_SPATIAL_DIMS; d++)
        p->phases[d] = transposed ? p->windows.stride[d] : 1;
}

/* Where a block of outputs is several lines of a cache: of single ones, far apart, few would stay in the first. */
bool mica__cpu_outputs_inner(const mica__operand *weight, uint32_t groups, const mica__device_info *info)
{
    const uint64_t outputs = weight->shape[0] / groups;
    return info->isa == MICA__ISA_AVX512 && weight->dtype == MICA_DTYPE_F32 &&
           (groups == 1 ? outputs > MICA__CONV_FEW : outputs >= MICA__CONV_OUTPUTS);
}

static void plan_f64(const mica__record *record, const mica__cpu_conv *p, mica__plan *plan)
{
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "conv_f64", p->batch * p->groups * p->outputs);
    for (uint32_t slot = 0; slot < MICA__CONV_SLOTS; slot++)
        widen(plan, record, slot, 0);
    mica__cpu_plan_params(plan, p, sizeof *p);
    dispatch->grain = 1;
}

static mica_status check_local(const mica__record *record, uint64_t floats, uint64_t units)
{
    if (floats > UINT32_MAX / sizeof(float) || units > UINT32_MAX)
        return mica__fail(
            MICA_ERR_UNSUPPORTED, "%s on the cpu: %llu tiles of %llu values each are more than it takes",
            mica_op_name((mica_op)record->op), (unsigned long long)units, (unsigned long long)floats);
    return MICA_OK;
}

mica_status mica__cpu_plan_conv(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__cpu_conv p = {.batch = 0};
    describe(record, &p);
    if (record->operand[MICA__CONV_X].dtype ==
        MICA_DTYPE_F64) { /* sums of f64 are not joined with what follows */
        plan_f64(record, &p, plan);
        return MICA_OK;
    }
    const bool few = p.outputs <= MICA__CONV_FEW;
    if (few)
        cut_few(&p, info);
    else
        cut(&p, info);
    const uint64_t floats = few ? mica__conv_few_local_of(&p).floats : mica__conv_local_of(&p).floats;
    const mica_status status = check_local(record, floats, units_of(&p));
    if (status != MICA_OK)
        return status;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, few ? "conv_few" : "conv", units_of(&p));
    for (uint32_t slot = 0; slot < record->operand_count; slot++)
        widen(plan, record, slot, 0);
    mica__cpu_plan_params(plan, &p, sizeof p);
    dispatch->local_bytes = (uint32_t)(floats * sizeof(float));
    const double products = (double)(p.images * p.rows * p.columns * p.channels) *
                            (double)(mica__conv_taps(&p.windows) * ceil_of(p.outputs, p.parts)) /
                            (double)phases_of(&p);
    mica__cpu_plan_grain(dispatch, 200 + products * 2 / (few ? FEW_FLOPS_PER_NS : FLOPS_PER_NS));
    return MICA_OK;
}

/* Pieces of dy: columns, rows and images together up to PIECE_PLACES, with what they meet in x of a part of the channels in the second cache. */
static void cut_pieces(mica__cpu_conv_weight *p)
{
    const uint64_t *out = p->windows.out, taps = mica__conv_taps(&p->windows);
    uint64_t places = PIECE_PLACES;
    p->depth = least(p->channels, taps < PIECE_TAPS ? ceil_of(PIECE_TAPS, taps) : 1);
    do {
        p->columns = piece_of(out[2], places);
        p->rows = p->columns == out[2] ? piece_of(out[1], places / p->columns) : 1;
        p->images = p->rows == out[1] && out[0] == 1 && p->batch > 0
                        ? piece_of(p->batch, places / (p->rows * p->columns))
                        : 1;
        places /= 2;
    } while (places >= PIECE_LEAST && p->depth * p->images * mica__conv_weight_image(p) > PIECE_FLOATS);
}

static uint64_t weight_units(const mica__cpu_conv_weight *p)
{
    return p->groups * ceil_of(p->channels, p->depth) * ceil_of(p->outputs, MICA__CONV_OUTPUTS);
}

mica_status mica__cpu_plan_conv_weight_backward(const mica__record *record, const mica__device_info *info,
                                                mica__plan *plan)
{
    const mica_conv_params *conv = record->params;
    const mica__operand *x = &record->operand[MICA__CONV_WEIGHT_X],
                        *dy = &record->operand[MICA__CONV_WEIGHT_DY];
    const bool wide = x->dtype == MICA_DTYPE_F64;
    mica__cpu_conv_weight p = {.batch = x->shape[0], .groups = conv->groups};
    mica__windows_of_conv(conv, x, &record->operand[MICA__CONV_WEIGHT_DWEIGHT], dy, &p.windows);
    p.channels = x->shape[1] / conv->groups;
    p.outputs = dy->shape[1] / conv->groups;
    const mica__conv_axis axis = mica__conv_axis_of(&p.windows, false, 2, 0);
    p.row_floats = mica__conv_row_floats(&axis, p.windows.out[2]);
    cut_pieces(&p);
    while (weight_units(&p) < (uint64_t)info->threads * UNITS_PER_THREAD && p.depth > 1 &&
           p.depth * mica__conv_taps(&p.windows) >= PIECE_TAPS / 2)
        p.depth = (p.depth + 1) / 2;
    const bool few = p.outputs <= MICA__CONV_FEW;
    const uint64_t units = wide ? dy->shape[1] : few ? x->shape[1] : weight_units(&p);
    const uint64_t floats = wide  ? 0
                            : few ? mica__conv_weight_few_floats(&p)
                                  : mica__conv_weight_local_of(&p).floats;
    const mica_status status = check_local(record, floats, units);
    if (status != MICA_OK)
        return status;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan,
                                                        wide  ? "conv_weight_f64"
                                                        : few ? "conv_weight_few"
                                                              : "conv_weight",
                                                        units);
    for (uint32_t slot = 0; slot < MICA__CONV_WEIGHT_SLOTS; slot++)
        widen(plan, record, slot, 0);
    mica__cpu_plan_params(plan, &p, sizeof p);
    dispatch->local_bytes = (uint32_t)(floats * sizeof(float));
    const double products = (double)(x->shape[1] * p.batch * p.outputs * mica__conv_taps(&p.windows)) *
                            (double)(p.windows.out[0] * p.windows.out[1] * p.windows.out[2]) /
                            (double)(units > 0 ? units : 1);
    mica__cpu_plan_grain(dispatch, 200 + products * 2 / (few || wide ? 10 : FLOPS_PER_NS));
    return MICA_OK;
}
