/* gpu_plan_region.c - plans of regions: a kernel made for the program where that pays, the one that interprets it elsewhere. */
#include <string.h>

#include "backend/gpu/gpu_region.h"
#include "backend/planning.h"
#include "base/env.h"
#include "base/status.h"

/* Elements from which a kernel is made for the program, which takes a tenth of a second once and then lies on the disk: of commands
 * that are submitted many times, where it is at least twice as fast at every size, from a token's row on; and of others, which
 * pay for compiling alone unless the program was met before (docs/measurements.md). */
#define PAYS_AGAIN ((uint64_t)1 << 10)
#define PAYS_ONCE ((uint64_t)1 << 22)

#define BATCH_BYTES 192u /* of inputs that a work-item may have under way at once */
#define MOST_BATCH 4u

_Static_assert((int)MK_M_f32 == (int)MICA__MK_F32 && (int)MK_M_f16 == (int)MICA__MK_F16 &&
                   (int)MK_M_bf16 == (int)MICA__MK_BF16,
               "the interpreter of floats loads as other kernels do");
_Static_assert(MICA_REGION_INPUTS + MICA_REGION_OUTPUTS <= MK_LARGE_OPERANDS && MK_DIMS >= MICA_MAX_DIMS &&
                   MICA_REGION_STEPS + MICA_REGION_OUTPUTS <= MK_LARGE_STEPS &&
                   MICA_REGION_STEPS <= MK_LARGE_CONSTANTS && MICA_REGION_OUTPUTS <= MK_RESULTS,
               "every program fits");

mica__gpu_memory mica__gpu_memory_of(uint32_t dtype)
{
    static const mica__gpu_memory types[MICA_DTYPE_COUNT] = {
#define MEMORY(D, M, R, bytes) [MICA_DTYPE_##D] = {#M, MK_M_##M},
        MK_MEMORY_TYPES(MEMORY)
#undef MEMORY
    };
    return types[dtype < MICA_DTYPE_COUNT ? dtype : 0];
}

/* ---- describing ---- */

/* Of operands the table has said what f64 needs; registers may be f64 without one. */
static mica_status check_types(const mica__record *record, const mica__device_info *info)
{
    const mica__region_program *program = record->params;
    bool wide = false;
    for (uint32_t o = 0; o < record->operand_count; o++) {
        const uint16_t dtype = record->operand[o].dtype;
        if (mica__gpu_memory_of(dtype).name == NULL || record->operand[o].layout != MICA_LAYOUT_CANONICAL)
            return mica__fail(MICA_ERR_UNSUPPORTED, "region: operand %u is %s; plain types are served", o,
                              mica_dtype_name((mica_dtype)dtype));
    }
    for (uint32_t s = 0; s < program->step_count; s++) {
        const mica_region_step *step = &program->step[s];
        const mica__scalar_info *scalar = mica__scalar_of(step->scalar);
        wide = wide || step->type == MICA_REGISTER_F64;
        if (step->type == MICA_REGISTER_F64 && (scalar->in & ~scalar->kernel_in & MICA__SET_FLOAT) != 0)
            return mica__fail(MICA_ERR_UNSUPPORTED, "region: %s of f64 is served by the cpu alone",
                              scalar->name);
    }
    if (wide && (info->features & MICA__FEATURE_F64) == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "region: f64 is asked for, and device %s has none",
                          info->properties.id);
    return MICA_OK;
}

/* Dimensions in the order of y's strides: elements may be gone through in any order, and so neighbours are found. */
static void sort_dims(mica__gpu_view *view, uint32_t count, const mica__gpu_view *y)
{
    for (uint32_t last = y->ndim; last > 1; last--)
        for (uint32_t d = 1; d < last; d++) {
            if (y->stride[d - 1] >= y->stride[d] || y->shape[d] == 1)
                continue;
            for (uint32_t v = 0; v < count; v++) {
                const uint64_t shape = view[v].shape[d], stride = view[v].stride[d];
                view[v].shape[d] = view[v].shape[d - 1];
                view[v].stride[d] = view[v].stride[d - 1];
                view[v].shape[d - 1] = shape;
                view[v].stride[d - 1] = stride;
            }
        }
}

static void describe(const mica__record *record, mica__gpu_region *region)
{
    const mica__region_program *program = record->params;
    mica__gpu_view *view = &region->view[0];
    uint32_t kept = 0;
    region->program = program;
    region->operands = record->operand_count;
    const mica__gpu_view y = mica__gpu_view_of(&record->operand[program->input_count]);
    for (uint32_t o = 0; o < region->operands; o++) {
        view[o] = mica__gpu_view_of(&record->operand[o]);
        mica__gpu_view_expand(&view[o], &y);
        region->dtype[o] = record->operand[o].dtype;
        region->bytes[o] = mica_dtype_block_bytes((mica_dtype)region->dtype[o]);
    }
    while (program->axes >> kept != 0) /* what has an index stays a dimension */
        kept++;
    if (kept == 0)
        sort_dims(view, region->operands, &view[program->input_count]);
    mica__gpu_view_collapse(view, region->operands, kept);
    region->ndim = view[0].ndim;
    region->elements = 1;
    for (uint32_t d = 0; d < region->ndim; d++)
        region->elements *= view[0].shape[d];
}

bool mica__gpu_region_takes(const mica__gpu_region *region, uint32_t width)
{
    const uint32_t last = region->ndim - 1;
    if (region->ndim > 1 && region->view[0].shape[last] % width != 0)
        return false;
    for (uint32_t o = 0; o < region->operands; o++) {
        const mica__gpu_view *view = &region->view[o];
        const bool output = o >= region->program->input_count;
        if (region->dtype[o] == MICA_DTYPE_C64)
            return false;
        if (view->stride[last] == 0 && !output)
            continue;
        if (view->stride[last] != region->bytes[o])
            return false;
        for (uint32_t d = 0; d < last; d++)
            if (view->stride[d] % (width * region->bytes[o]) != 0)
                return false;
    }
    return true;
}

/* ---- generated ---- */

/* Neighbours of which no operand has less than 8 bytes. */
static uint32_t width_of(const mica__gpu_region *region)
{
    uint32_t least = 8;
    for (uint32_t o = 0; o < region->operands; o++)
        least = region->bytes[o] < least ? region->bytes[o] : least;
    const uint32_t width = least < 4 ? 8 : 4;
    return mica__gpu_region_takes(region, width) ? width : 1;
}

/* As many as can be under way, unless that leaves processors idle. */
static uint32_t batch_of(const mica__gpu_region *region, const mica__device_info *info, uint32_t width)
{
    const uint64_t group = (uint64_t)MICA__MK_WG * width;
    uint32_t bytes = 0, batch = MOST_BATCH;
    for (uint32_t i = 0; i < region->program->input_count; i++)
        if (region->view[i].stride[region->ndim - 1] != 0)
            bytes += width * region->bytes[i];
    while (batch > 1 && batch * bytes > BATCH_BYTES)
        batch /= 2;
    const bool busy = region->elements >= batch * group * 4 * info->processors;
    return busy && (info->features & MICA__FEATURE_SLOW_BARRIER) == 0 ? batch : 1;
}

static void put_block(mica__plan *plan, const mica__device_info *info, const mica__gpu_region *region,
                      uint32_t dims)
{
    uint64_t word[MICA_REGION_STEPS + 1 + (MICA__GPU_REGION_OPERANDS + 1) * MICA_MAX_DIMS];
    uint32_t used = mica__gpu_region_given(region->program, word);
    if (used == 0)
        word[used++] = 0;
    word[used++] = region->elements;
    for (uint32_t o = 0; o < region->operands; o++)
        for (uint32_t d = 0; d < dims; d++)
            word[used++] = region->view[o].stride[d];
    for (uint32_t d = 0; d < dims; d++)
        word[used++] = region->view[0].shape[d];
    mica__gpu_plan_block(plan, info, word, used * (uint32_t)sizeof word[0]);
}

static mica_status plan_generated(const mica__record *record, const mica__device_info *info,
                                  const mica__gpu_region *region, mica__plan *plan)
{
    char text[MICA__GPU_REGION_TEXT];
    mica__gpu_region_shape shape = {.width = width_of(region), .batch = 1};
    if (shape.width > 1 && region->ndim == 1)
        shape.batch = batch_of(region, info, shape.width);
    else
        shape.dims = region->ndim;
    const uint64_t group = (uint64_t)MICA__MK_WG * shape.width * shape.batch;
    if (!mica__gpu_region_text(region, &shape, text, sizeof text))
        return mica__fail(MICA_ERR_INTERNAL, "region: the text of its program has over %u bytes",
                          MICA__GPU_REGION_TEXT);
    const mica_status status =
        mica__gpu_plan_next(plan, "region/region", (region->elements + group - 1) / group);
    if (status != MICA_OK)
        return status;
    mica__planning_constant(plan, text);
    for (uint32_t o = 0; o < region->operands; o++)
        mica__gpu_plan_operand(plan, record, o, 0);
    put_block(plan, info, region, shape.dims);
    return MICA_OK;
}

/* The one rule of when a kernel is made for a program. */
static bool pays(const mica__gpu_region *region, const mica__plan *plan)
{
    if (mica__env_debug(MICA__DEBUG_GENERATE) || mica__env_debug(MICA__DEBUG_INTERPRET))
        return !mica__env_debug(MICA__DEBUG_INTERPRET);
    return region->elements >= (plan->reusable ? PAYS_AGAIN : PAYS_ONCE);
}

/* KERNEL_NOT_FOUND without a sentence: the next row has what there is. */
mica_status mica__gpu_plan_region(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__gpu_region region;
    const mica_status status = check_types(record, info);
    if (status != MICA_OK)
        return status;
    describe(record, &region);
    if (region.elements == 0)
        return MICA_OK;
    return pays(&region, plan) ? plan_generated(record, info, &region, plan) : MICA_ERR_KERNEL_NOT_FOUND;
}

/* ---- interpreted ---- */

/* Whether all registers are f32, and memory is what other kernels load as such. */
static bool is_floats(const mica__gpu_region *region, uint32_t slots)
{
    for (uint32_t o = 0; o < region->operands; o++)
        if (!mica__gpu_is_float(region->dtype[o]))
            return false;
    for (uint32_t s = 0; s < region->program->step_count; s++)
        if (region->program->step[s].type != MICA_REGISTER_F32)
            return false;
    return slots <= MK_FLOAT_SLOTS;
}

static void fill_params(const mica__gpu_region *region, bool floats, mk_interpret_large *p)
{
    p->elements = region->elements;
    p->ndim = region->ndim;
    p->last = region->ndim - 1;
    for (uint32_t o = 0; o < region->operands; o++) {
        p->type[o] = mica__gpu_memory_of(region->dtype[o]).number;
        memcpy(p->stride[o], region->view[o].stride, region->ndim * sizeof p->stride[o][0]);
    }
    memcpy(p->shape, region->view[0].shape, region->ndim * sizeof p->shape[0]);
    p->four = floats && mica__gpu_region_takes(region, 4);
}

/* Ends the dispatch with the block of programs of few operands and steps. */
static void put_small(mica__plan *plan, const mica__device_info *info, const mk_interpret_large *p)
{
    mk_interpret_small small;
    memset(&small, 0, sizeof small);
    memcpy(small.given, p->given, sizeof small.given);
    memcpy(small.stride, p->stride, sizeof small.stride);
    memcpy(small.shape, p->shape, sizeof small.shape);
    memcpy(small.code, p->code, sizeof small.code);
    memcpy(small.type, p->type, sizeof small.type);
    memcpy(small.result, p->result, sizeof small.result);
    small.elements = p->elements;
    small.ndim = p->ndim;
    small.last = p->last;
    small.step_count = p->step_count;
    small.input_count = p->input_count;
    small.output_count = p->output_count;
    small.four = p->four;
    mica__gpu_plan_block(plan, info, &small, sizeof small);
}

mica_status mica__gpu_plan_interpreted(const mica__record *record, const mica__device_info *info,
                                       mica__plan *plan)
{
    mica__gpu_region region;
    mk_interpret_large p;
    mica_status status = check_types(record, info);
    if (status != MICA_OK)
        return status;
    memset(&p, 0, sizeof p);
    describe(record, &region);
    if (region.elements == 0)
        return MICA_OK;
    const uint32_t slots = mica__gpu_region_code(region.program, &p);
    const uint32_t given = mica__gpu_region_given(region.program, p.given);
    const bool floats = is_floats(&region, slots);
    const bool small =
        region.operands <= MK_SMALL_OPERANDS && p.step_count <= MK_SMALL_STEPS && given <= MK_SMALL_CONSTANTS;
    fill_params(&region, floats, &p);
    const uint64_t group = (uint64_t)MICA__MK_WG * (p.four ? 4 : 1);
    status = mica__gpu_plan_next(plan, floats ? "interpret/floats" : "interpret/wide",
                                 (region.elements + group - 1) / group);
    if (status != MICA_OK)
        return status;
    if (!small)
        mica__gpu_plan_constant(plan, "LARGE", 1);
    if (!floats)
        mica__gpu_plan_constant(plan, "WIDE", 1);
    for (uint32_t o = 0; o < (small ? MK_SMALL_OPERANDS : MK_LARGE_OPERANDS); o++)
        mica__gpu_plan_operand(plan, record, o < region.operands ? o : 0,
                               0); /* the first where nothing looks */
    if (small)
        put_small(plan, info, &p);
    else
        mica__gpu_plan_block(plan, info, &p, sizeof p);
    return MICA_OK;
}
