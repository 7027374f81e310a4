/*
 * fusion_region.c - two regions, one of which reads what the other writes, as one: pairs, until nothing joins.
 *
 * Exact because a region rounds every step on its own: where the value between them was stored in fewer bits than a
 * register has, a step does what the store and the load did.
 */
#include <string.h>

#include "session/fusion.h"

#define USES 8u /* readers of one value that are looked at; with more of them it is written */
#define VALUES (MICA_REGION_INPUTS + MICA_REGION_STEPS)

/* Two regions on their way to one. Maps give values of the parts their place in the whole. */
typedef struct joint {
    const mica__record *first, *second;
    const mica__region_program *a, *b;
    /* of each input of the second: the output of the first that it is, or NONE */
    uint8_t from[MICA_REGION_INPUTS];
    uint8_t map_a[VALUES], map_b[VALUES];
    bool drop[MICA_REGION_OUTPUTS]; /* outputs of the first that nobody reads any more */
    mica__draft *draft;
    mica__region_program *whole; /* the draft's */
} joint;

static const mica__operand *output_of(const mica__record *record, const mica__region_program *program,
                                      uint32_t o)
{
    return &record->operand[program->input_count + o];
}

/* Most views differ in where they begin. */
static inline bool is_same(const mica__operand *a, const mica__operand *b)
{
    return a->storage == b->storage && a->offset == b->offset && mica__operand_same(a, b);
}

/* ---- what is read and what need not be written ---- */

/* Which inputs of the second are outputs of the first. An input that meets one in part cannot be had from a register. */
static bool find_links(joint *j)
{
    bool any = false;
    for (uint32_t i = 0; i < j->b->input_count; i++) {
        const mica__operand *x = &j->second->operand[i];
        j->from[i] = MICA_REGION_NONE;
        for (uint32_t o = 0; o < j->a->output_count; o++) {
            const mica__operand *y = output_of(j->first, j->a, o);
            if (is_same(x, y)) {
                j->from[i] = (uint8_t)o;
                any = true;
            } else if (x->storage == y->storage && mica__operands_overlap(x, y)) {
                return false;
            }
        }
    }
    return any;
}

/* Whether the second writes over output o of the first, through the very same view. */
static bool is_overwritten(const joint *j, uint32_t o)
{
    for (uint32_t k = 0; k < j->b->output_count; k++)
        if (is_same(output_of(j->second, j->b, k), output_of(j->first, j->a, o)))
            return true;
    return false;
}

static bool is_read_here_alone(const mica__fusion_pass *pass, uint32_t first, uint32_t slot, uint32_t second)
{
    mica__use use[USES];
    const uint32_t count = mica__flow_uses(&pass->flow, first, slot, use, USES);
    for (uint32_t i = 0; i < count; i++)
        if (i >= USES || use[i].record != second)
            return false;
    return true;
}

/* Which outputs of the first disappear. Values that go from one to the other must be temporaries, or be overwritten here. */
static bool find_drops(joint *j, const mica__fusion_pass *pass, uint32_t first, uint32_t second)
{
    for (uint32_t o = 0; o < j->a->output_count; o++) {
        const mica__operand *y = output_of(j->first, j->a, o);
        const bool linked = memchr(j->from, (int)o, j->b->input_count) != NULL;
        const bool overwritten = is_overwritten(j, o);
        if (linked && !y->temporary && !overwritten)
            return false;
        j->drop[o] =
            overwritten || (linked && is_read_here_alone(pass, first, j->a->input_count + o, second));
    }
    return true;
}

/* ---- the joined program ---- */

/* The input of the whole that is this view; one more if there is none yet. */
static bool add_input(joint *j, const mica__operand *x, uint8_t type, uint8_t *out_value)
{
    uint32_t i = 0;
    while (i < j->whole->input_count && !is_same(&j->draft->operand[i], x))
        i++;
    if (i == MICA_REGION_INPUTS)
        return false;
    if (i == j->whole->input_count) {
        j->draft->operand[i] = *x;
        j->whole->input[i] = type;
        j->whole->input_count++;
    }
    *out_value = (uint8_t)i;
    return true;
}

static bool add_inputs(joint *j)
{
    for (uint32_t i = 0; i < j->a->input_count; i++)
        if (!add_input(j, &j->first->operand[i], j->a->input[i], &j->map_a[i]))
            return false;
    for (uint32_t i = 0; i < j->b->input_count; i++)
        if (j->from[i] == MICA_REGION_NONE &&
            !add_input(j, &j->second->operand[i], j->b->input[i], &j->map_b[i]))
            return false;
    return true;
}

static bool does_same(const mica_region_step *a, const mica_region_step *b)
{
    return a->scalar == b->scalar && a->type == b->type && memcmp(a->value, b->value, sizeof a->value) == 0 &&
           a->axis == b->axis && a->constant.u64 == b->constant.u64;
}

/* The step that does the same as this one, which is in values of the whole; one more if there is none yet, or `is_new` says
 * so. */
static bool add_step(joint *j, const mica_region_step *step, bool is_new, uint8_t *out_value)
{
    mica__region_program *whole = j->whole;
    uint32_t s = is_new ? whole->step_count : 0;
    while (s < whole->step_count && !does_same(&whole->step[s], step))
        s++;
    if (s == MICA_REGION_STEPS)
        return false;
    if (s == whole->step_count) {
        whole->step[s] = *step;
        whole->step_count++;
    }
    *out_value = (uint8_t)(whole->input_count + s);
    return true;
}

static bool add_mapped(joint *j, const mica_region_step *step, const uint8_t *map, bool is_new,
                       uint8_t *out_value)
{
    mica_region_step mapped = *step;
    for (uint32_t k = 0; k < 3; k++)
        if (mapped.value[k] != MICA_REGION_NONE)
            mapped.value[k] = map[mapped.value[k]];
    return add_step(j, &mapped, is_new, out_value);
}

/* What the second reads from registers, as it would have come back from memory. */
static bool add_links(joint *j)
{
    for (uint32_t i = 0; i < j->b->input_count; i++) {
        if (j->from[i] == MICA_REGION_NONE)
            continue;
        const mica_dtype dtype = (mica_dtype)j->second->operand[i].dtype;
        const mica_scalar rounding = mica__region_rounding(dtype);
        j->map_b[i] = j->map_a[j->a->output[j->from[i]]];
        if (rounding == MICA_SCALAR_NONE)
            continue;
        const mica_region_step step = {.scalar = (uint8_t)rounding,
                                       .type = j->b->input[i],
                                       .value = {j->map_b[i], MICA_REGION_NONE, MICA_REGION_NONE}};
        if (!add_step(j, &step, false, &j->map_b[i]))
            return false;
    }
    return true;
}

static bool add_steps(joint *j)
{
    for (uint32_t s = 0; s < j->a->step_count; s++)
        if (!add_mapped(j, &j->a->step[s], j->map_a, true, &j->map_a[j->a->input_count + s]))
            return false;
    if (!add_links(j))
        return false;
    for (uint32_t s = 0; s < j->b->step_count; s++) {
        const mica_region_step *step = &j->b->step[s];
        uint8_t *value = &j->map_b[j->b->input_count + s];
        if (step->scalar == MICA_SCALAR_IMAG && j->from[step->value[0]] != MICA_REGION_NONE)
            *value = j->map_a[j->a->output_imag[j->from[step->value[0]]]];
        else if (!add_mapped(j, step, j->map_b, false, value))
            return false;
    }
    return true;
}

static bool add_output(joint *j, const mica__operand *y, uint8_t value, uint8_t imag)
{
    mica__region_program *whole = j->whole;
    const uint32_t o = whole->output_count;
    if (o == MICA_REGION_OUTPUTS)
        return false;
    j->draft->operand[whole->input_count + o] = *y;
    whole->output[o] = value;
    whole->output_imag[o] = imag;
    whole->output_count++;
    return true;
}

static bool add_outputs(joint *j, const mica__record *record, const mica__region_program *part,
                        const uint8_t *map, const bool *drop)
{
    for (uint32_t o = 0; o < part->output_count; o++) {
        const uint8_t imag =
            part->output_imag[o] != MICA_REGION_NONE ? map[part->output_imag[o]] : MICA_REGION_NONE;
        if ((drop == NULL || !drop[o]) &&
            !add_output(j, output_of(record, part, o), map[part->output[o]], imag))
            return false;
    }
    return true;
}

static bool write_whole(joint *j)
{
    mica__region_begin(j->whole, 0, 0);
    j->whole->axes = j->a->axes | j->b->axes;
    j->whole->special = j->a->special | j->b->special;
    if (!add_inputs(j) || !add_steps(j) || !add_outputs(j, j->first, j->a, j->map_a, j->drop) ||
        !add_outputs(j, j->second, j->b, j->map_b, NULL))
        return false;
    mica__record *record = &j->draft->record;
    record->operand_count = (uint16_t)(j->whole->input_count + j->whole->output_count);
    record->params_size = (uint16_t)mica__region_bytes(j->whole->step_count);
    return true;
}

/* ---- the pattern ---- */

static mica_status join(mica__fusion_pass *pass, uint32_t first, uint32_t second, bool *out_applied)
{
    mica__draft draft;
    joint j = {.first = pass->list->record[first], .second = pass->list->record[second], .draft = &draft};
    j.a = mica__region_of(j.first);
    j.b = mica__region_of(j.second);
    if (j.b == NULL || !find_links(&j) || !find_drops(&j, pass, first, second))
        return MICA_OK;
    mica__draft_begin(&draft, pass, first);
    mica__draft_join(&draft, second);
    j.whole = draft.record.params;
    return write_whole(&j) ? mica__fusion_offer(pass, &draft, out_applied) : MICA_OK;
}

/* Anchored at the one that writes. */
mica_status mica__fusion_region(mica__fusion_pass *pass, uint32_t anchor, bool *out_applied)
{
    const mica__record *first = pass->list->record[anchor];
    const mica__region_program *program = mica__region_of(first);
    mica__use use[USES];
    mica_status status = MICA_OK;
    for (uint32_t o = 0; program != NULL && o < program->output_count && status == MICA_OK; o++) {
        const uint32_t slot = program->input_count + o;
        const uint32_t found = mica__flow_uses(&pass->flow, anchor, slot, use, USES);
        for (uint32_t i = 0; i < found && i < USES && status == MICA_OK && !*out_applied; i++)
            if (i == 0 || use[i].record != use[i - 1].record)
                status = join(pass, anchor, use[i].record, out_applied);
        if (*out_applied)
            break; /* the anchor is another record now, or none */
    }
    return status;
}
