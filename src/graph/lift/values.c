/*
 * values.c - which tensor lies where, while records are walked: for each storage the values that were written, the newest on top, leaves at the bottom. Reading takes
 * from the top what covers the view; a view that meets several values is cut into parts that meet one each.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "device/objects.h"
#include "graph/lift/lift.h"

/* ---- values ---- */

static mica_status add_value(mica__lift *lift, const mica__lift_value *value, uint32_t *out)
{
    if (lift->value_count == lift->value_capacity) {
        const uint32_t capacity = lift->value_capacity * 2 + 64;
        mica__lift_value *grown = mica__realloc(lift->value, capacity * sizeof *grown);
        if (grown == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u values", capacity);
        lift->value = grown;
        lift->value_capacity = capacity;
    }
    *out = lift->value_count++;
    lift->value[*out] = *value;
    return MICA_OK;
}

static mica_status push(mica__lift *lift, uint32_t storage, mica__lift_value *value)
{
    uint32_t at = 0;
    value->before = lift->newest[storage];
    MICA__TRY(add_value(lift, value, &at));
    lift->newest[storage] = at;
    return MICA_OK;
}

/* Under all others. */
static mica_status put_under(mica__lift *lift, uint32_t storage, mica__lift_value *value)
{
    uint32_t at = 0, last = lift->newest[storage];
    value->before = MICA__LIFT_NONE;
    MICA__TRY(add_value(lift, value, &at));
    while (last != MICA__LIFT_NONE && lift->value[last].before != MICA__LIFT_NONE)
        last = lift->value[last].before;
    if (last == MICA__LIFT_NONE)
        lift->newest[storage] = at;
    else
        lift->value[last].before = at;
    return MICA_OK;
}

/* ---- leaves ---- */

static const char *leaf_name(const mica__lift *lift, const mica__lift_value *value)
{
    return value->kind == MICA__LIFT_SLOT ? lift->recording->pass.slots.slot[value->index].name
                                          : lift->desc->parameters[value->index].name;
}

static mica_status add_leaf(mica__lift *lift, const mica_buffer *buffer, mica__lift_kind kind, uint32_t index)
{
    const uint32_t storage = mica__storages_find(&lift->storages, buffer->storage);
    mica__lift_value value = {.kind = kind, .index = index};
    if (storage == UINT32_MAX || buffer->length == 0) /* no record uses it */
        return MICA_OK;
    mica__operand_from(buffer, MICA_ACCESS_READ, &value.place);
    for (uint32_t v = lift->newest[storage]; v != MICA__LIFT_NONE; v = lift->value[v].before) {
        MICA__TRY(mica__spend(1));
        if (mica__view_meet(&value.place, &lift->value[v].place) != MICA__MEET_APART)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "'%s' and '%s' share bytes",
                              leaf_name(lift, &lift->value[v]), leaf_name(lift, &value));
    }
    return push(lift, storage, &value);
}

mica_status mica__lift_leaves(mica__lift *lift)
{
    const mica__slots *slots = &lift->recording->pass.slots;
    for (uint32_t i = 0; i < slots->count; i++)
        MICA__TRY(add_leaf(lift, slots->slot[i].buffer, MICA__LIFT_SLOT, i));
    for (uint32_t i = 0; i < lift->desc->parameter_count; i++) {
        const mica_lift_parameter *parameter = &lift->desc->parameters[i];
        if (parameter->name == NULL || parameter->buffer == NULL)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "parameters[%u].%s is NULL", i,
                              parameter->name == NULL ? "name" : "buffer");
        MICA__TRY(add_leaf(lift, parameter->buffer, MICA__LIFT_PARAMETER, i));
    }
    return MICA_OK;
}

static mica_tensor make_parameter(mica_graph *graph, const char *name, const mica_buffer *buffer)
{
    const uint32_t group = buffer->packing.group_size;
    const mica_dtype scales =
        buffer->scales != NULL ? buffer->scales->dtype : MICA_DTYPE_F16; /* packed: inside */
    return group == 0 ? mica_graph_parameter(graph, name, buffer->dtype, buffer->ndim, buffer->shape)
                      : mica_graph_parameter_scaled(graph, name, buffer->dtype, buffer->ndim, buffer->shape,
                                                    group, scales);
}

/* The tensor of a value: leaves become one when they are needed first. */
static mica_status tensor_of(mica__lift *lift, uint32_t v, mica_tensor *out)
{
    mica__lift_value *value = &lift->value[v];
    if (value->tensor == 0) {
        const char *name = leaf_name(lift, value);
        const mica_buffer *buffer = value->kind == MICA__LIFT_SLOT
                                        ? lift->recording->pass.slots.slot[value->index].buffer
                                        : lift->desc->parameters[value->index].buffer;
        value->tensor = value->kind == MICA__LIFT_PARAMETER
                            ? make_parameter(lift->graph, name, buffer)
                            : mica_graph_input(lift->graph, name, buffer->dtype, buffer->ndim, buffer->shape);
    }
    *out = value->tensor;
    return mica_graph_status(lift->graph);
}

/* ---- what nobody wrote ---- */

/* The bytes of a view, without the space between its elements. */
static void gather(const mica__operand *place, const uint8_t *from, uint8_t *to)
{
    const uint64_t unit = mica_dtype_block_bytes((mica_dtype)place->dtype);
    uint64_t index[MICA_MAX_DIMS] = {0}, at = 0;
    uint32_t d = 0;
    do {
        memcpy(to, from + at, unit);
        to += unit;
        for (d = place->ndim; d-- > 0;) {
            at += place->stride[d];
            if (++index[d] < place->shape[d])
                break;
            at -= index[d] * place->stride[d];
            index[d] = 0;
        }
    } while (d != UINT32_MAX);
}

static mica_status read_bytes(const mica__operand *place, uint8_t **out)
{
    mica__storage *storage = place->storage;
    const mica_buffer_desc desc = {.dtype = MICA_DTYPE_U8, .ndim = 1, .shape = {storage->bytes}};
    mica_buffer *bytes = NULL;
    *out = mica__alloc(place->length);
    if (*out == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a constant of %llu bytes",
                          (unsigned long long)place->length);
    mica_status status = mica__buffer_over(storage, &desc, NULL, &bytes);
    if (status == MICA_OK)
        status = mica_buffer_read(bytes, place->offset, *out, place->length);
    mica_buffer_release(bytes);
    if (status != MICA_OK) {
        mica__free(*out);
        *out = NULL;
    }
    return status;
}

static mica_status make_constant(mica__lift *lift, const mica__operand *place, mica_tensor *out)
{
    uint64_t elements = 1;
    uint8_t *hull = NULL;
    for (uint32_t d = 0; d < place->ndim; d++)
        elements *= place->shape[d];
    const uint64_t bytes = elements / mica_dtype_block_elements((mica_dtype)place->dtype) *
                           mica_dtype_block_bytes((mica_dtype)place->dtype);
    const bool plain = mica_dtype_block_elements((mica_dtype)place->dtype) == 1;
    if (place->layout != MICA_LAYOUT_CANONICAL || place->group_size != 0 ||
        (!plain && bytes != place->length))
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "reads a weight of %s that is %s, which has no name among the parameters",
                          mica_dtype_name((mica_dtype)place->dtype),
                          place->layout != MICA_LAYOUT_CANONICAL ? "packed" : "in several buffers");
    MICA__TRY(mica__spend(bytes / 16));
    MICA__TRY(read_bytes(place, &hull));
    uint8_t *row = plain ? mica__alloc(bytes) : NULL; /* of blocks there is one order */
    if (plain && row == NULL) {
        mica__free(hull);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a constant of %llu bytes",
                          (unsigned long long)bytes);
    }
    if (plain)
        gather(place, hull, row);
    *out = mica_graph_constant(lift->graph, (mica_dtype)place->dtype, place->ndim, place->shape,
                               plain ? row : hull, bytes);
    mica__free(row);
    mica__free(hull);
    return mica_graph_status(lift->graph);
}

/* Zeros, repeated to the view's shape. */
static mica_status make_zeros(mica__lift *lift, const mica__operand *place, mica_tensor *out)
{
    const mica_tensor zero = mica_graph_number(lift->graph, (mica_dtype)place->dtype, 0);
    *out = mica_graph_expand(lift->graph, zero, place->ndim, place->shape);
    return mica_graph_status(lift->graph);
}

/* What lies under all that was written. */
static mica_status read_bottom(mica__lift *lift, uint32_t storage, const mica__operand *place, bool any,
                               mica_tensor *out)
{
    mica__lift_value constant = {.place = *place, .kind = MICA__LIFT_WRITTEN};
    if (lift->storages.storage[storage]->memory == NULL) {
        if (any)
            return make_zeros(lift, place, out);
        return mica__fail(MICA_ERR_UNSUPPORTED, "reads bytes of a temporary that no record wrote");
    }
    for (uint32_t d = 0; d < place->ndim; d++)
        if (place->stride[d] == 0)
            constant.place.shape[d] = 1;
    MICA__TRY(make_constant(lift, &constant.place, &constant.tensor));
    *out = mica__view_take(lift->graph, constant.tensor, &constant.place, place);
    MICA__TRY(mica_graph_status(lift->graph));
    return put_under(lift, storage, &constant);
}

/* ---- reading ---- */

typedef struct reader {
    mica__lift *lift;
    uint32_t storage;
    bool any;
} reader;

static mica_status read_from(const reader *r, const mica__operand *place, uint32_t v, mica_tensor *out);

/* Of the parts of `place` along dimension `dim`: how many runs there are that lie one way to the value, or more than `most`. Those that lie in no one way
 * are runs of their own; *out_mixed: there are some. */
static mica_status count_runs(const mica__operand *place, uint32_t dim, const mica__operand *value,
                              uint64_t most, uint64_t *out_runs, bool *out_mixed)
{
    mica__meet last = MICA__MEET_MIXED;
    *out_runs = 0;
    *out_mixed = false;
    MICA__TRY(mica__spend(place->shape[dim]));
    for (uint64_t i = 0; i < place->shape[dim] && *out_runs <= most; i++) {
        const mica__operand part = mica__view_part(place, dim, i, 1);
        const mica__meet meet = mica__view_meet(&part, value);
        *out_runs += meet != last || meet == MICA__MEET_MIXED;
        *out_mixed = *out_mixed || meet == MICA__MEET_MIXED;
        last = meet;
    }
    return MICA_OK;
}

/* The dimension along which the view falls into the fewest parts; UINT32_MAX: it has one element. */
static mica_status choose_dim(const mica__operand *place, const mica__operand *value, uint32_t *out)
{
    uint64_t fewest = UINT64_MAX, runs = 0;
    bool best_mixed = true, mixed = false;
    *out = UINT32_MAX;
    for (uint32_t d = 0; d < place->ndim; d++) {
        if (place->shape[d] <= 1 || place->stride[d] == 0)
            continue;
        MICA__TRY(count_runs(place, d, value, MICA__LIFT_PIECES, &runs, &mixed));
        const bool better = mixed == best_mixed ? runs < fewest : !mixed;
        if (*out != UINT32_MAX && !better)
            continue;
        *out = d;
        fewest = runs;
        best_mixed = mixed;
    }
    return MICA_OK;
}

/* How many elements from `at` on lie to the value as the first of them does. */
static uint64_t run_length(const mica__operand *place, uint32_t dim, uint64_t at, const mica__operand *value)
{
    const mica__operand first = mica__view_part(place, dim, at, 1);
    const mica__meet meet = mica__view_meet(&first, value);
    uint64_t end = at + 1;
    while (meet != MICA__MEET_MIXED && end < place->shape[dim]) {
        const mica__operand next = mica__view_part(place, dim, end, 1);
        if (mica__view_meet(&next, value) != meet)
            break;
        end++;
    }
    /* All lie inside, and still not in one piece: one by one. */
    return at == 0 && end == place->shape[dim] ? 1 : end - at;
}

/* Parts along a dimension, joined. */
static mica_status read_parts(const reader *r, const mica__operand *place, uint32_t v, mica_tensor *out)
{
    mica__lift *lift = r->lift;
    const mica__operand value = lift->value[v].place;
    uint32_t dim = 0, count = 0;
    MICA__TRY(choose_dim(place, &value, &dim));
    if (dim == UINT32_MAX)
        return mica__fail(MICA_ERR_UNSUPPORTED, "reads an element that lies across those that were written");
    mica_tensor *part = mica__alloc(MICA__LIFT_PIECES * sizeof *part);
    mica_status status = MICA_OK;
    if (part == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the parts of a value");
    for (uint64_t at = 0, length = 0; at < place->shape[dim] && status == MICA_OK; at += length) {
        length = run_length(place, dim, at, &value);
        const mica__operand run = mica__view_part(place, dim, at, length);
        status =
            count == MICA__LIFT_PIECES || ++lift->pieces > MICA__LIFT_PIECES
                ? mica__fail(MICA_ERR_UNSUPPORTED, "reads a value in more than %u pieces", MICA__LIFT_PIECES)
                : read_from(r, &run, v, &part[count++]);
    }
    if (status == MICA_OK) {
        *out = mica_graph_concat(lift->graph, part, count, dim);
        status = mica_graph_status(lift->graph);
    }
    mica__free(part);
    return status;
}

/* From value `v` downwards. The depth is bounded: each step cuts a dimension, or goes on below the value. */
static mica_status read_from(const reader *r, const mica__operand *place, uint32_t v, mica_tensor *out)
{
    mica__lift *lift = r->lift;
    for (; v != MICA__LIFT_NONE; v = lift->value[v].before) {
        MICA__TRY(mica__spend(1));
        const mica__operand whole = lift->value[v].place;
        switch (mica__view_meet(place, &whole)) {
        case MICA__MEET_APART: continue;
        case MICA__MEET_MIXED: return read_parts(r, place, v, out);
        case MICA__MEET_UNCLEAR:
            return mica__fail(MICA_ERR_UNSUPPORTED, "reads %s from elements of %s that do not lie so",
                              mica_dtype_name((mica_dtype)place->dtype),
                              mica_dtype_name((mica_dtype)whole.dtype));
        case MICA__MEET_INSIDE: break;
        }
        mica_tensor tensor = 0;
        MICA__TRY(tensor_of(lift, v, &tensor));
        *out = mica__view_take(lift->graph, tensor, &whole, place);
        return mica_graph_status(lift->graph);
    }
    return read_bottom(lift, r->storage, place, r->any, out);
}

mica_status mica__lift_read(mica__lift *lift, const mica__operand *place, bool any, mica_tensor *out)
{
    const reader r = {lift, mica__storages_find(&lift->storages, place->storage), any};
    lift->pieces = 0;
    if (place->length == 0) { /* no elements, no storage to look at */
        *out = mica_graph_constant(lift->graph, (mica_dtype)place->dtype, place->ndim, place->shape, NULL, 0);
        return mica_graph_status(lift->graph);
    }
    return read_from(&r, place, lift->newest[r.storage], out);
}

/* ---- writing ---- */

/* What is not a temporary is a slot's: the slot that has the view. */
static mica_status find_slot(mica__lift *lift, uint32_t storage, const mica__operand *place)
{
    const mica__slots *slots = &lift->recording->pass.slots;
    for (uint32_t i = 0; i < slots->count; i++) {
        const mica_buffer *buffer = slots->slot[i].buffer;
        mica__operand whole;
        if (buffer->storage != place->storage || buffer->length == 0)
            continue;
        mica__operand_from(buffer, MICA_ACCESS_READ, &whole);
        const mica__meet meet = mica__view_meet(place, &whole);
        const bool around =
            place->offset >= whole.offset && place->offset + place->length <= whole.offset + whole.length;
        if (meet == MICA__MEET_APART || (meet != MICA__MEET_INSIDE && !around))
            continue;
        lift->given[i] = true;
        return MICA_OK;
    }
    if (lift->storages.storage[storage]->memory == NULL)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "writes to a buffer that is neither a temporary nor inside a slot: give it one "
                      "(mica_session_slot)");
}

mica_status mica__lift_write(mica__lift *lift, const mica__operand *place, mica_tensor tensor)
{
    const uint32_t storage = mica__storages_find(&lift->storages, place->storage);
    mica__lift_value value = {.place = *place, .tensor = tensor, .kind = MICA__LIFT_WRITTEN};
    MICA__TRY(find_slot(lift, storage, place));
    uint32_t *at = &lift->newest[storage];
    while (*at != MICA__LIFT_NONE) { /* what it covers nobody reads again */
        MICA__TRY(mica__spend(1));
        if (mica__view_meet(&lift->value[*at].place, place) == MICA__MEET_INSIDE)
            *at = lift->value[*at].before;
        else
            at = &lift->value[*at].before;
    }
    return push(lift, storage, &value);
}

mica_status mica__lift_outputs(mica__lift *lift)
{
    const mica__slots *slots = &lift->recording->pass.slots;
    for (uint32_t i = 0; i < slots->count; i++) {
        mica__operand place;
        mica_tensor tensor = 0;
        if (!lift->given[i])
            continue;
        mica__operand_from(slots->slot[i].buffer, MICA_ACCESS_READ, &place);
        MICA__TRY(mica__lift_read(lift, &place, false, &tensor));
        (void)mica_graph_output(lift->graph, slots->slot[i].name, tensor);
    }
    return mica_graph_status(lift->graph);
}
