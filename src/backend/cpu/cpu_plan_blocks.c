/*
 * cpu_plan_blocks.c - a region of f32 as a list of functions over blocks in registers (kernels/region_blocks.h).
 *
 * The block holds the value made last. What a step takes besides lies in memory: in an operand, of f32 or 16 bits, or in a slot
 * where the block was put because a later step reads it. Constants and elements that a row repeats have slots already.
 */
#include "backend/cpu/cpu_plan_region.h"

#include <string.h>

#define NOTHING 0xffu

typedef struct blocks {
    mica__region_planner *plan;
    uint8_t held;                           /* the value in the block, or NOTHING */
    uint8_t place[MICA__CPU_REGION_VALUES]; /* where a value lies, or NO_PLACE */
    uint8_t type[MICA__CPU_REGION_VALUES];  /* of memory there, as the functions of blocks count it */
    uint8_t last[MICA__CPU_REGION_VALUES];  /* the step that reads it last, or UNREAD */
    bool fits;
} blocks;

/* An input or a constant: what no step of blocks makes. */
static bool is_source(const mica__region_program *program, uint32_t value)
{
    return value < program->input_count ||
           program->step[value - program->input_count].scalar == MICA_SCALAR_CONSTANT;
}

/* Whether rows of it lie in memory side by side, in a type that blocks are loaded from and stored to. */
static bool lies_in_line(const mica__region_planner *p, uint32_t view)
{
    const uint16_t dtype = p->view[view].dtype;
    return mica__cpu_is_float(dtype) &&
           mica__region_row_stride(p, view) == mica_dtype_block_bytes((mica_dtype)dtype);
}

/* Whether an output is f32 of which nothing would be left in the caches. */
static bool is_far(const mica__region_planner *p, uint32_t view)
{
    uint64_t bytes = sizeof(float);
    for (uint32_t d = 0; d < p->ndim; d++)
        bytes *= p->view[view].shape[d];
    return p->view[view].dtype == MICA_DTYPE_F32 && bytes >= p->far_bytes;
}

static bool serves(const mica__region_planner *p)
{
    const mica__region_program *program = p->program;
    uint32_t steps = 0;
    for (uint32_t v = 0; v < program->input_count; v++)
        if (p->last[v] != MICA__REGION_UNREAD &&
            (program->input[v] != MICA_REGISTER_F32 ||
             !(lies_in_line(p, v) || mica__region_row_stride(p, v) == 0)))
            return false;
    for (uint32_t o = 0; o < program->output_count; o++)
        if (!lies_in_line(p, program->input_count + o) || is_source(program, program->output[o]))
            return false;
    for (uint32_t s = 0; s < program->step_count; s++) {
        const mica_region_step *step = &program->step[s];
        if (p->last[program->input_count + s] == MICA__REGION_UNREAD)
            continue;
        if (step->type != MICA_REGISTER_F32 ||
            !(is_source(program, program->input_count + s) || mica__region_has_vector(step->scalar)))
            return false;
        steps += !is_source(program, program->input_count + s);
    }
    /* A single function over operands that lie as registers do is one loop already, whose stores stay near. */
    return steps > 0 && (is_far(p, program->input_count) || p->count[MICA__CPU_REGION_STEP] +
                                                                    p->count[MICA__CPU_REGION_LOAD] +
                                                                    p->count[MICA__CPU_REGION_STORE] >
                                                                1);
}

/* ---- entries ---- */

static void add(blocks *b, uint32_t function, uint32_t place)
{
    if (b->plan->count[MICA__CPU_REGION_BLOCK] == MICA__CPU_REGION_BLOCKS)
        b->fits = false;
    else
        mica__region_entry(b->plan, MICA__CPU_REGION_BLOCK, function)->from[0] = (uint8_t)place;
}

/* Puts the block into a slot, so that its value lies in memory too. */
static void keep(blocks *b)
{
    if (b->place[b->held] != MICA__REGION_NO_PLACE)
        return;
    if (b->plan->slots == MICA__CPU_REGION_SLOTS) {
        b->fits = false;
        return;
    }
    b->place[b->held] = (uint8_t)(b->plan->view_count + b->plan->slots++);
    if (b->plan->slot_element < sizeof(float))
        b->plan->slot_element = sizeof(float);
    b->type[b->held] = 0;
    add(b, MICA__CPU_BLOCK_STORE + MICA_DTYPE_F32, b->place[b->held]);
}

/* The type of the memory where a value lies, which the block has met afterwards. */
static uint32_t meet(blocks *b, uint32_t value)
{
    const uint32_t type = b->type[value];
    if (type == MICA_DTYPE_F32)
        b->type[value] = 0;
    return type;
}

static void hold(blocks *b, uint32_t value)
{
    if (b->held != value)
        add(b, MICA__CPU_BLOCK_LOAD + meet(b, value), b->place[value]);
    b->held = (uint8_t)value;
}

/* Brings one of the two into the block and the other into memory; says which is in memory. */
static uint32_t arrange(blocks *b, uint32_t first, uint32_t second)
{
    if (b->held == first && first == second)
        keep(b);
    if (b->held == second && first != second)
        return first;
    hold(b, first);
    return second;
}

/* ---- the program ---- */

static void add_step(blocks *b, uint32_t s)
{
    const mica_region_step *step = &b->plan->program->step[s];
    const uint32_t first = step->value[0], second = step->value[1];
    if (second == MICA_REGION_NONE) {
        hold(b, first);
        add(b, MICA__CPU_BLOCK_OF(step->scalar, 0u, 0u), 0);
    } else {
        const uint32_t memory = arrange(b, first, second);
        const uint32_t type = meet(b, memory);
        add(b, MICA__CPU_BLOCK_OF(step->scalar, type, memory == second ? 0u : 1u), b->place[memory]);
    }
    b->held = (uint8_t)(b->plan->program->input_count + s);
}

/* The next step that makes something, step_count if there is none. */
static uint32_t step_after(const mica__region_planner *p, uint32_t s)
{
    const mica__region_program *program = p->program;
    for (s++; s < program->step_count; s++)
        if (p->last[program->input_count + s] != MICA__REGION_UNREAD &&
            !is_source(program, program->input_count + s))
            break;
    return s;
}

/* Writes the block to the outputs that it is. Gives whether there is one. */
static bool store_outputs(blocks *b)
{
    const mica__region_program *program = b->plan->program;
    bool any = false;
    for (uint32_t o = 0; o < program->output_count; o++) {
        const uint32_t view = program->input_count + o;
        if (program->output[o] != b->held)
            continue;
        const bool far = is_far(b->plan, view);
        add(b, MICA__CPU_BLOCK_STORE + (far ? 4u : 0u) + b->plan->view[view].dtype, view);
        b->plan->far |= far;
        any = true;
    }
    return any;
}

static bool is_output(const mica__region_program *program, uint32_t value)
{
    return memchr(program->output, (int)value, program->output_count) != NULL;
}

/* The last step that reads an operand. Before it no output is written, which may lie there. */
static uint32_t find_reads(blocks *b)
{
    const mica__region_program *program = b->plan->program;
    uint32_t last = 0;
    memset(b->last, MICA__REGION_UNREAD, sizeof b->last);
    for (uint32_t s = 0; s < program->step_count; s++) {
        const mica_region_step *step = &program->step[s];
        if (b->plan->last[program->input_count + s] == MICA__REGION_UNREAD)
            continue;
        for (uint32_t j = 0; j < 3 && step->value[j] != MICA_REGION_NONE; j++) {
            b->last[step->value[j]] = (uint8_t)s;
            last = step->value[j] < program->input_count ? s : last;
        }
    }
    return last;
}

static void add_steps(blocks *b)
{
    const mica__region_planner *p = b->plan;
    const mica__region_program *program = p->program;
    const uint32_t read = find_reads(b);
    uint8_t late[MICA_REGION_OUTPUTS], late_count = 0;
    for (uint32_t s = step_after(p, UINT32_MAX), next; s < program->step_count; s = next) {
        next = step_after(p, s);
        add_step(b, s);
        const uint32_t value = program->input_count + s;
        const bool stores = is_output(program, value), now = stores && s >= read;
        if (now)
            store_outputs(b);
        else if (stores)
            late[late_count++] = (uint8_t)value;
        /* The next step takes it from the block; what is read later than that, or stored later, is kept. */
        const bool next_only =
            next < program->step_count && b->last[value] == next &&
            (program->step[next].value[0] == value || program->step[next].value[1] == value);
        if ((b->last[value] != MICA__REGION_UNREAD && !next_only) || (stores && !now))
            keep(b);
    }
    for (uint32_t i = 0; i < late_count; i++) {
        hold(b, late[i]);
        store_outputs(b);
    }
}

void mica__region_plan_blocks(mica__region_planner *p)
{
    const uint8_t slots = p->slots;
    if (!serves(p))
        return;
    blocks b = {p, NOTHING, {0}, {0}, {0}, true};
    memset(b.place, MICA__REGION_NO_PLACE, sizeof b.place);
    for (uint32_t v = 0; v < p->program->input_count; v++)
        if (p->last[v] != MICA__REGION_UNREAD && mica__region_row_stride(p, v) == 0)
            b.place[v] = p->place[v];
        else if (p->last[v] != MICA__REGION_UNREAD) {
            b.place[v] = (uint8_t)v;
            b.type[v] = (uint8_t)p->view[v].dtype;
        }
    for (uint32_t s = 0; s < p->program->step_count; s++)
        if (is_source(p->program, p->program->input_count + s))
            b.place[p->program->input_count + s] = p->place[p->program->input_count + s];
    add_steps(&b);
    add(&b, MICA__CPU_BLOCK_END, 0);
    if (!b.fits) {
        p->count[MICA__CPU_REGION_BLOCK] = 0;
        p->far = false;
        p->slots = slots;
    }
}
