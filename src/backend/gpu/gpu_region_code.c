/*
 * gpu_region_code.c - the code of a region's program for the interpreting kernel (params/interpret.h).
 *
 * Inputs are loaded where they are used and constants lie in the parameters, so steps read these, the result before them, or a
 * slot: a result that others than the next step read lives in one from its step to the last that reads it.
 */
#include <string.h>

#include "backend/gpu/gpu_region.h"

#define VALUES (MICA_REGION_INPUTS + MICA_REGION_STEPS)
#define AT_THE_END 0xffu

typedef struct coder {
    const mica__region_program *program;
    mk_interpret_large *out;
    uint8_t last_use[VALUES]; /* 1 + the step that reads the value last; 0: nobody does */
    uint8_t place[VALUES];    /* MK_SLOT + slot, MK_GIVEN + constant, of inputs their number */
    uint8_t busy[MK_SLOTS];   /* last use of what the slot holds; 0: free */
    uint32_t slots, previous; /* previous: the value that MK_LAST is */
    bool alone;               /* one value is stored, and nothing is read after that */
} coder;

static void use(coder *c, uint32_t value, uint32_t at)
{
    if (value != MICA_REGION_NONE && c->last_use[value] < at)
        c->last_use[value] = (uint8_t)at;
}

/* Steps whose results nobody needs use nothing. */
static void find_uses(coder *c)
{
    const mica__region_program *program = c->program;
    for (uint32_t o = 0; o < program->output_count; o++) {
        use(c, program->output[o], AT_THE_END);
        use(c, program->output_imag[o], AT_THE_END);
    }
    for (uint32_t s = program->step_count; s-- > 0;)
        for (uint32_t i = 0; i < 3 && c->last_use[program->input_count + s] != 0; i++)
            use(c, program->step[s].value[i], s + 1);
}

static uint32_t take_slot(coder *c, uint32_t until)
{
    uint32_t slot = 0;
    while (c->busy[slot] != 0)
        slot++;
    c->busy[slot] = (uint8_t)until;
    if (slot >= c->slots)
        c->slots = slot + 1;
    return slot;
}

static uint32_t place_of(const coder *c, uint32_t value)
{
    if (value == MICA_REGION_NONE)
        return MK_NOTHING;
    return value == c->previous ? MK_LAST : c->place[value];
}

/* Whether the result of step s is read by the next one alone. */
static bool is_passed_on(const coder *c, uint32_t s, uint32_t next)
{
    const uint32_t until = c->last_use[c->program->input_count + s];
    return until == AT_THE_END ? c->alone && next == c->program->step_count : until == next + 1;
}

static bool is_run(const coder *c, uint32_t s)
{
    return c->program->step[s].scalar != MICA__SCALAR_constant &&
           c->last_use[c->program->input_count + s] != 0;
}

static void add_step(coder *c, uint32_t s)
{
    const mica__region_program *program = c->program;
    const mica_region_step *step = &program->step[s];
    const uint32_t value = program->input_count + s, of = step->scalar == MICA__SCALAR_select ? 1 : 0;
    uint32_t *code = c->out->code[c->out->step_count++], next = s + 1, slot = MK_NO_SLOT, type = 0;
    if (step->value[of] != MICA_REGION_NONE)
        type = mica__region_value_type(program, step->value[of]);
    code[1] = place_of(c, step->value[0]) | place_of(c, step->value[1]) << 8 |
              place_of(c, step->value[2]) << 16 | (uint32_t)step->axis << 24;
    for (uint32_t k = 0; k < MK_SLOTS; k++)
        if (c->busy[k] <= s + 1)
            c->busy[k] = 0;
    while (next < program->step_count && !is_run(c, next))
        next++;
    if (!is_passed_on(c, s, next)) {
        slot = take_slot(c, c->last_use[value]);
        c->place[value] = (uint8_t)(MK_SLOT + slot);
    }
    code[0] = step->scalar | type << 8 | (uint32_t)step->type << 16 | slot << 24;
    c->previous = value;
}

/* An input that is stored as it is has been read before anything is written, which may be its own memory. */
static uint32_t result_of(coder *c, uint32_t value)
{
    if (value == MICA_REGION_NONE || value >= c->program->input_count || c->alone)
        return place_of(c, value);
    if (c->place[value] < MK_SLOT) {
        uint32_t *code = c->out->code[c->out->step_count++];
        const uint32_t slot = take_slot(c, AT_THE_END);
        code[0] = slot << 24;
        code[1] = value | MK_NOTHING << 8 | MK_NOTHING << 16;
        c->place[value] = (uint8_t)(MK_SLOT + slot);
    }
    return c->place[value];
}

uint32_t mica__gpu_region_code(const mica__region_program *program, mk_interpret_large *out)
{
    coder c = {.program = program, .out = out, .previous = MICA_REGION_NONE};
    uint32_t given = 0;
    c.alone = program->output_count == 1 && program->output_imag[0] == MICA_REGION_NONE;
    find_uses(&c);
    for (uint32_t i = 0; i < program->input_count; i++)
        c.place[i] = (uint8_t)i;
    for (uint32_t s = 0; s < program->step_count; s++) {
        if (program->step[s].scalar == MICA__SCALAR_constant)
            c.place[program->input_count + s] = (uint8_t)(MK_GIVEN + given++);
        else if (is_run(&c, s))
            add_step(&c, s);
    }
    if (!c.alone) /* inputs that are stored as they are come after it */
        c.previous = MICA_REGION_NONE;
    out->input_count = program->input_count;
    out->output_count = program->output_count;
    for (uint32_t o = 0; o < program->output_count; o++)
        out->result[o] = result_of(&c, program->output[o]) | result_of(&c, program->output_imag[o]) << 8;
    return c.slots;
}
