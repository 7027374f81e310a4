/*
 * cpu_plan_region.c - the plan of a region: where each value of its program stands, and in what order it is made.
 *
 * Views are collapsed here, so that the kernel mostly sees one long row; an axis whose index is asked for stays by itself. A
 * value gets a slot until its last use, or stays where it is in memory. The tile is as long as its slots leave room for in
 * the first-level cache.
 */
#include <string.h>

#include "backend/cpu/cpu_plan_region.h"

#define TILE_BYTES (24u << 10) /* of the first-level cache */
#define TILE_LEAST 64u
#define TILE_MOST 1024u
#define FAR_CACHES 64u /* what all cores share is some fifty times what one has, at most */

/* Those with a vector formula, and two roundings. */
#define SECOND(a, b, ...) b
#define PICK(...) SECOND(__VA_ARGS__)
#define HAS_NONE ~, 0
#define STEP(...)
#define STEP_OF(name, arity, in, out, operations, vector, plain, kernel, formula, domain, derivative) \
    [MICA__SCALAR_##name] = PICK(HAS_##vector, 1, ~),
#define PUBLIC STEP_OF
static const uint8_t has_vector[MICA_SCALAR_COUNT] = {
#include "backend/scalars.def"
    [MICA_SCALAR_ROUND_F16] = 1, [MICA_SCALAR_ROUND_BF16] = 1};
#undef STEP
#undef STEP_OF
#undef PUBLIC

bool mica__region_has_vector(uint32_t scalar)
{
    return has_vector[scalar] != 0;
}

/* ---- the shape ---- */

/* As collapsing all views, with a view more for each axis that is asked for, which varies along it alone: nothing merges
 * with such an axis. */
static void collapse_apart(mica__region_planner *p)
{
    mica__cpu_view all[MICA_MAX_DIMS + MICA__CPU_REGION_VIEWS];
    uint32_t axis[MICA_MAX_DIMS] = {0}, count = 0;
    for (uint32_t k = 0; k < p->view->ndim; k++) {
        if ((p->program->axes >> k & 1) == 0)
            continue;
        all[count] = *p->view;
        memset(all[count].stride, 0, sizeof all->stride);
        all[count].stride[p->view->ndim - 1 - k] = 1;
        axis[count++] = k;
    }
    memcpy(&all[count], p->view, p->view_count * sizeof *all);
    mica__cpu_view_collapse(all, count + p->view_count, 0);
    memcpy(p->view, &all[count], p->view_count * sizeof *all);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = 0;
        while (d < all->ndim && all[i].stride[d] == 0)
            d++;
        p->dim[axis[i]] = (uint8_t)d;
    }
}

static uint64_t collapse(mica__region_planner *p)
{
    uint64_t elements = 1;
    if (p->program->axes != 0)
        collapse_apart(p);
    else
        mica__cpu_view_collapse(p->view, p->view_count, 0);
    p->ndim = p->view->ndim;
    for (uint32_t d = 0; d < p->ndim; d++)
        elements *= p->view->shape[d];
    return elements;
}

/* Whether a row of it lies in memory as registers do. Bytes that are read as bool may be other than 0 and 1. */
static bool lies_as_registers(const mica__region_planner *p, uint32_t view, bool is_read)
{
    const mica_dtype dtype = (mica_dtype)p->view[view].dtype;
    const uint32_t bytes = mica_dtype_block_bytes(dtype);
    return bytes == mica__register_bytes(mica_register_of(dtype)) && dtype != MICA_DTYPE_C64 &&
           !(is_read && dtype == MICA_DTYPE_BOOL) && mica__region_row_stride(p, view) == bytes;
}

/* ---- uses ---- */

static void find_uses(mica__region_planner *p)
{
    const mica__region_program *program = p->program;
    memset(p->last, MICA__REGION_UNREAD, sizeof p->last);
    for (uint32_t o = 0; o < program->output_count; o++) {
        p->last[program->output[o]] = MICA__REGION_AT_END;
        if (program->output_imag[o] != MICA_REGION_NONE)
            p->last[program->output_imag[o]] = MICA__REGION_AT_END;
    }
    for (uint32_t s = program->step_count; s-- > 0;) {
        const mica_region_step *step = &program->step[s];
        if (p->last[program->input_count + s] == MICA__REGION_UNREAD || step->scalar == MICA_SCALAR_IMAG)
            continue; /* the imaginary part comes from memory, not from the real one */
        for (uint32_t j = 0; j < 3 && step->value[j] != MICA_REGION_NONE; j++)
            if (p->last[step->value[j]] == MICA__REGION_UNREAD)
                p->last[step->value[j]] = (uint8_t)s;
    }
}

/* ---- places ---- */

mica__cpu_region_entry *mica__region_entry(mica__region_planner *p, uint32_t kind, uint32_t function)
{
    mica__cpu_region_entry *entry = &p->entry[kind][p->count[kind]++];
    memset(entry, 0, sizeof *entry);
    entry->function = (uint16_t)function;
    return entry;
}

uint8_t mica__region_slot(mica__region_planner *p, uint32_t type)
{
    const uint32_t bytes = mica__register_bytes(type);
    p->slot_element = bytes > p->slot_element ? bytes : p->slot_element;
    if (p->free_count > 0)
        return p->free_slot[--p->free_count];
    return (uint8_t)(p->view_count + p->slots++);
}

static void add_load(mica__region_planner *p, uint32_t value, uint32_t view, uint32_t offset)
{
    const uint32_t kind =
        mica__region_row_stride(p, view) == 0 ? MICA__CPU_REGION_ROW_LOAD : MICA__CPU_REGION_LOAD;
    mica__cpu_region_entry *entry = mica__region_entry(p, kind, p->view[view].dtype);
    p->place[value] = entry->to = mica__region_slot(p, mica_register_of((mica_dtype)p->view[view].dtype));
    entry->view = (uint8_t)view;
    entry->offset = (uint8_t)offset;
    if (kind == MICA__CPU_REGION_ROW_LOAD)
        p->last[value] = MICA__REGION_AT_END; /* its slot is no other value's */
}

static void add_constant(mica__region_planner *p, uint32_t value, uint32_t type, uint64_t bits)
{
    mica__cpu_region_entry *entry = mica__region_entry(p, MICA__CPU_REGION_FILL, type);
    p->place[value] = entry->to = mica__region_slot(p, type);
    p->last[value] = MICA__REGION_AT_END;
    entry->bits = bits;
}

static void add_index(mica__region_planner *p, uint32_t value, const mica_region_step *step)
{
    const uint32_t dim = p->dim[step->axis];
    if (dim >= p->ndim) {
        add_constant(p, value, step->type, 0);
        return;
    }
    const bool along = dim == p->ndim - 1u;
    mica__cpu_region_entry *entry =
        mica__region_entry(p, along ? MICA__CPU_REGION_INDEX : MICA__CPU_REGION_ROW_INDEX, step->type);
    p->place[value] = entry->to = mica__region_slot(p, step->type);
    entry->view = (uint8_t)dim;
    if (!along)
        p->last[value] = MICA__REGION_AT_END;
}

static uint64_t constant_bits(const mica_region_step *step)
{
    uint32_t bits;
    if (step->type != MICA_REGISTER_F32)
        return step->constant.u64;
    memcpy(&bits, &step->constant.f32, sizeof bits);
    return bits;
}

/* What is there before the first step. Steps that are such a source have their place afterwards. */
static void place_sources(mica__region_planner *p)
{
    const uint32_t inputs = p->program->input_count;
    for (uint32_t v = 0; v < inputs; v++) {
        if (p->last[v] == MICA__REGION_UNREAD)
            continue;
        if (p->last[v] != MICA__REGION_AT_END && lies_as_registers(p, v, true))
            p->place[v] = (uint8_t)v;
        else
            add_load(p, v, v, 0);
    }
    for (uint32_t s = 0; s < p->program->step_count; s++) {
        const mica_region_step *step = &p->program->step[s];
        const uint32_t value = inputs + s;
        if (p->last[value] == MICA__REGION_UNREAD)
            continue;
        if (step->scalar == MICA_SCALAR_CONSTANT)
            add_constant(p, value, step->type, constant_bits(step));
        else if (step->scalar == MICA_SCALAR_INDEX)
            add_index(p, value, step);
        else if (step->scalar == MICA_SCALAR_IMAG)
            add_load(p, value, step->value[0], sizeof(float));
    }
}

/* ---- steps ---- */

/* The last step that reads an input where it lies: no output may be written there before. */
static uint32_t last_read(const mica__region_planner *p)
{
    uint32_t last = 0;
    for (uint32_t v = 0; v < p->program->input_count; v++)
        if (p->last[v] != MICA__REGION_UNREAD && p->place[v] == v && p->last[v] > last)
            last = p->last[v];
    return last;
}

/* The output that value is written to where it lies, MICA__REGION_NO_PLACE if there is none. */
static uint8_t output_place(mica__region_planner *p, uint32_t value)
{
    for (uint32_t o = 0; o < p->program->output_count; o++) {
        const uint32_t view = p->program->input_count + o;
        if (p->program->output[o] == value && lies_as_registers(p, view, false)) {
            p->stored[o] = 0;
            return (uint8_t)view;
        }
    }
    return MICA__REGION_NO_PLACE;
}

static uint32_t function_of(const mica__region_program *program, const mica_region_step *step)
{
    const uint32_t type = mica__region_value_type(program, step->value[0]);
    if (step->scalar == MICA_SCALAR_CAST)
        return MICA__CPU_REGION_CAST_OF(type, step->type);
    if (step->scalar == MICA_SCALAR_BITS)
        return MICA__CPU_REGION_CAST_OF(step->type, step->type);
    return MICA__CPU_REGION_STEP_OF(step->scalar,
                                    mica__scalar_of(step->scalar)->out != 0 ? type : step->type);
}

/* Gives back slots of values that step s reads last and whose elements have this size or, if not `same`, another. */
static void free_slots(mica__region_planner *p, uint32_t s, uint32_t bytes, bool same)
{
    const mica_region_step *step = &p->program->step[s];
    for (uint32_t j = 0; j < 3 && step->value[j] != MICA_REGION_NONE; j++) {
        const uint32_t value = step->value[j];
        if (p->last[value] != s || p->place[value] < p->view_count ||
            (mica__register_bytes(mica__region_value_type(p->program, value)) == bytes) != same)
            continue;
        p->free_slot[p->free_count++] = p->place[value];
        p->last[value] = MICA__REGION_AT_END; /* once, also where the step reads it twice */
    }
}

/* The step that is the product of this one's result, which nobody else reads, and another value; 0 if there is none. */
static uint32_t product_of(const mica__region_planner *p, uint32_t s)
{
    const mica__region_program *program = p->program;
    const mica_region_step *step = &program->step[s];
    const uint32_t value = program->input_count + s, next = p->last[value];
    if (next >= program->step_count || step->type != MICA_REGISTER_F32 || !has_vector[step->scalar] ||
        step->scalar == MICA_SCALAR_ROUND_F16 || step->scalar == MICA_SCALAR_ROUND_BF16 ||
        step->value[1] != MICA_REGION_NONE || program->step[next].scalar != MICA_SCALAR_MUL)
        return 0;
    /* Not over a step between, which may free or write what it reads. */
    for (uint32_t t = s + 1; t < next; t++)
        if (p->last[program->input_count + t] != MICA__REGION_UNREAD &&
            p->place[program->input_count + t] == MICA__REGION_NO_PLACE)
            return 0;
    return program->step[next].value[0] != program->step[next].value[1] ? next : 0;
}

/* One entry for a step and the product of it. The value between has no place. */
static void add_product(mica__region_planner *p, uint32_t s, uint32_t next, uint32_t read)
{
    const mica__region_program *program = p->program;
    const uint32_t middle = program->input_count + s, value = program->input_count + next;
    const uint8_t *factor = program->step[next].value;
    mica__cpu_region_entry *entry =
        mica__region_entry(p, MICA__CPU_REGION_STEP, MICA__CPU_REGION_PRODUCT_OF(program->step[s].scalar));
    entry->from[0] = entry->from[2] = p->place[program->step[s].value[0]];
    entry->from[1] = p->place[factor[0] == middle ? factor[1] : factor[0]];
    p->place[middle] = 0; /* no slot: nothing to free */
    if (next >= read)
        p->place[value] = output_place(p, value);
    free_slots(p, s, sizeof(float), true);
    free_slots(p, next, sizeof(float), true);
    if (p->place[value] == MICA__REGION_NO_PLACE)
        p->place[value] = mica__region_slot(p, MICA_REGISTER_F32);
    entry->to = p->place[value];
}

static void place_steps(mica__region_planner *p)
{
    const mica__region_program *program = p->program;
    const uint32_t read = last_read(p);
    for (uint32_t s = 0; s < program->step_count; s++) {
        const mica_region_step *step = &program->step[s];
        const uint32_t value = program->input_count + s, bytes = mica__register_bytes(step->type);
        if (p->last[value] == MICA__REGION_UNREAD || p->place[value] != MICA__REGION_NO_PLACE)
            continue;
        const uint32_t product = product_of(p, s);
        if (product != 0) {
            add_product(p, s, product, read);
            s = product;
            continue;
        }
        mica__cpu_region_entry *entry =
            mica__region_entry(p, MICA__CPU_REGION_STEP, function_of(program, step));
        for (uint32_t j = 0; j < 3; j++)
            entry->from[j] = step->value[j] != MICA_REGION_NONE ? p->place[step->value[j]] : entry->from[0];
        if (s >= read)
            p->place[value] = output_place(p, value);
        /* A result may lie where a value of its size lay: each element is read before it is written. */
        free_slots(p, s, bytes, true);
        if (p->place[value] == MICA__REGION_NO_PLACE)
            p->place[value] = mica__region_slot(p, step->type);
        free_slots(p, s, bytes, false);
        entry->to = p->place[value];
    }
}

static void add_stores(mica__region_planner *p)
{
    const mica__region_program *program = p->program;
    for (uint32_t o = 0; o < program->output_count; o++) {
        const uint32_t view = program->input_count + o;
        const uint8_t part[2] = {program->output[o], program->output_imag[o]};
        for (uint32_t j = 0; j < 2 && p->stored[o] && part[j] != MICA_REGION_NONE; j++) {
            mica__cpu_region_entry *entry =
                mica__region_entry(p, MICA__CPU_REGION_STORE, p->view[view].dtype);
            entry->from[0] = p->place[part[j]];
            entry->view = (uint8_t)view;
            entry->offset = (uint8_t)(j * sizeof(float));
        }
    }
}

/* ---- the plan ---- */

/* How long a tile may be that it stays in the cache. A single step without slots has nothing to keep there; in blocks a
 * tile is what is left of a row. */
static void set_tile(const mica__region_planner *p, mica__cpu_region *region)
{
    uint32_t bytes = p->slots * p->slot_element;
    for (uint32_t v = 0; v < p->view_count; v++)
        bytes += mica_dtype_block_bytes((mica_dtype)p->view[v].dtype);
    uint32_t tile = TILE_BYTES / bytes & ~(TILE_LEAST - 1);
    tile = tile < TILE_LEAST ? TILE_LEAST : tile > TILE_MOST ? TILE_MOST : tile;
    if (p->count[MICA__CPU_REGION_BLOCK] > 0)
        tile = MICA__CPU_BLOCK_MOST;
    region->tile = p->slots == 0 && p->count[MICA__CPU_REGION_STEP] <= 1 ? 1u << 30 : tile;
    region->slots = p->slots;
    region->slot_bytes = tile * p->slot_element;
}

/* About what an element takes: a pass over memory, and arithmetic. */
static double element_ns(const mica__region_program *program)
{
    return 0.25 + 0.03 * mica__region_operations(program);
}

/* Entries are left as they are: `count` says which there are. */
static void begin(mica__region_planner *p, const mica__record *record, const mica__device_info *info,
                  mica__cpu_view *view)
{
    p->program = mica__region_of(record);
    p->view = view;
    p->view_count = (uint8_t)record->operand_count;
    p->slots = p->free_count = 0;
    p->slot_element = 1;
    p->far_bytes = FAR_CACHES * (info->cache_bytes != 0 ? info->cache_bytes : 1u << 20);
    p->far = false;
    memset(p->place, MICA__REGION_NO_PLACE, sizeof p->place);
    memset(p->stored, 1, sizeof p->stored);
    memset(p->count, 0, sizeof p->count);
}

mica_status mica__cpu_plan_region(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    mica__region_planner p;
    mica__cpu_region region;
    if (record->operand[mica__region_of(record)->input_count].length == 0)
        return MICA_OK;
    mica__plan_dispatch *dispatch = mica__cpu_plan_next(plan, "region", 0);
    mica__cpu_plan_operands(plan, record, record->operand_count);
    begin(&p, record, info, mica__cpu_plan_views(plan));
    region.elements = collapse(&p);
    find_uses(&p);
    place_sources(&p);
    place_steps(&p);
    add_stores(&p);
    mica__region_plan_blocks(&p);
    set_tile(&p, &region);
    region.far = p.far;
    uint32_t count = 0;
    for (uint32_t kind = 0; kind < MICA__CPU_REGION_KINDS; kind++) {
        memcpy(&region.entry[count], p.entry[kind], p.count[kind] * sizeof region.entry[0]);
        region.end[kind] = (uint8_t)(count += p.count[kind]);
    }
    mica__cpu_plan_params(
        plan, &region,
        (uint32_t)(sizeof region - (MICA__CPU_REGION_ENTRIES - count) * sizeof region.entry[0]));
    dispatch->local_bytes = region.slots * region.slot_bytes;
    dispatch->groups[0] =
        (uint32_t)((region.elements + MICA__CPU_UNIT_ELEMENTS - 1) / MICA__CPU_UNIT_ELEMENTS);
    mica__cpu_plan_grain(dispatch, element_ns(p.program) * MICA__CPU_UNIT_ELEMENTS);
    return MICA_OK;
}
