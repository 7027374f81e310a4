/* run.c: limits, errors, output and scopes of one rendering. */
#include "text/template/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/utf8.h"
#include "base/work.h"

#define WORK_STEPS 4 /* of the call's work for one of a template: evaluating a node takes about so long */
#define CHAR_BYTES 8 /* what looking at one character is counted as, where copying a byte is one */
#define SMALL 8u     /* bindings of a scope that are looked through one by one */
#define PUT_BYTES 16 /* and putting something, however short */

/* ---- errors and limits ---- */

static mica_status stop(const mica__jinja_run *run, mica_status code, const char *format, va_list list)
{
    char text[400];
    vsnprintf(text, sizeof text, format, list);
    return mica__jinja_syntax(run->of->source, run->of->length, run->at, code, "%s", text);
}

mica_status mica__jinja_raise(const mica__jinja_run *run, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const mica_status status = stop(run, MICA_ERR_INVALID_ARGUMENT, format, list);
    va_end(list);
    return status;
}

mica_status mica__jinja_stop(const mica__jinja_run *run, mica_status code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const mica_status status = stop(run, code, format, list);
    va_end(list);
    return status;
}

mica_status mica__jinja_raise_undefined(const mica__jinja_run *run, const mica__jinja_value *v)
{
    const int length = v->length > 100 ? 100 : (int)v->length;
    const char *of = v->of == MICA__JINJA_NONE ? "None" : mica__jinja_kind_name(v->of);
    const char *object = v->of == MICA__JINJA_NONE ? "" : " object";
    switch (v->mark) {
    case MICA__JINJA_MISSING_NAME: return mica__jinja_raise(run, "'%.*s' is undefined", length, v->text);
    case MICA__JINJA_MISSING_ATTRIBUTE:
        return mica__jinja_raise(run, "'%s%s' has no attribute '%.*s'", of, object, length, v->text);
    case MICA__JINJA_MISSING_ITEM:
        return mica__jinja_raise(run, "%s%s has no element %.*s", of, object, length, v->text);
    case MICA__JINJA_UNSAFE:
        return mica__jinja_raise(run, "access to attribute '%.*s' of '%s' object is unsafe.", length, v->text,
                                 of);
    default: return mica__jinja_raise(run, "%.*s", length, v->text);
    }
}

mica_status mica__jinja_spend(mica__jinja_run *run, uint64_t steps)
{
    if (steps >= run->steps) {
        run->steps = 0;
        return mica__jinja_stop(run, MICA_ERR_BUDGET, "the limit of %llu steps is reached",
                                (unsigned long long)run->of->most_steps);
    }
    run->steps -= steps;
    return mica__spend(steps * WORK_STEPS);
}

mica_status mica__jinja_spend_bytes(mica__jinja_run *run, uint64_t bytes)
{
    run->touched += bytes;
    const uint64_t steps = run->touched / MICA__JINJA_STEP_BYTES;
    run->touched %= MICA__JINJA_STEP_BYTES;
    return steps == 0 ? MICA_OK : mica__jinja_spend(run, steps);
}

mica_status mica__jinja_spend_chars(mica__jinja_run *run, uint64_t bytes)
{
    return mica__jinja_spend_bytes(run, bytes * CHAR_BYTES);
}

/* ---- output ---- */

/* Room for `more` bytes and a NUL. */
static mica_status reserve(mica__jinja_run *run, size_t more)
{
    size_t length, capacity = run->out_capacity == 0 ? 4096 : run->out_capacity;
    if (more > run->out_limit || run->out_length > run->out_limit - more)
        return mica__jinja_stop(run, MICA_ERR_BUDGET, "the output is longer than the limit of %llu bytes",
                                (unsigned long long)run->out_limit);
    if (!mica__add_size(run->out_length + 1, more, &length))
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the output of the template");
    while (capacity < length)
        capacity = capacity > SIZE_MAX / 2 ? length : capacity * 2;
    if (capacity == run->out_capacity)
        return MICA_OK;
    char *out = mica__realloc(run->out, capacity);
    if (out == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes of output of the template",
                          capacity);
    run->out = out;
    run->out_capacity = capacity;
    return MICA_OK;
}

mica_status mica__jinja_put(mica__jinja_run *run, const char *text, size_t length)
{
    mica_status status = reserve(run, length);
    if (status == MICA_OK)
        status = mica__jinja_spend_bytes(run, PUT_BYTES + length);
    if (status == MICA_OK && length != 0) {
        memcpy(run->out + run->out_length, text, length);
        run->out_length += length;
    }
    return status;
}

mica_status mica__jinja_puts(mica__jinja_run *run, const char *text)
{
    return mica__jinja_put(run, text, strlen(text));
}

mica_status mica__jinja_put_char(mica__jinja_run *run, uint32_t code)
{
    char text[4];
    return mica__jinja_put(run, text, mica__utf8_put(code, text));
}

mica_status mica__jinja_put_many(mica__jinja_run *run, char c, size_t count)
{
    mica_status status = reserve(run, count);
    if (status == MICA_OK)
        status = mica__jinja_spend_bytes(run, count);
    if (status == MICA_OK) {
        memset(run->out + run->out_length, c, count);
        run->out_length += count;
    }
    return status;
}

mica_status mica__jinja_cut(mica__jinja_run *run, size_t mark, mica__jinja_value *out)
{
    const size_t length = run->out_length - mark;
    char *text = mica__jinja_alloc(&run->arena, length);
    if (text == NULL)
        return mica__jinja_arena_failure(&run->arena);
    if (length != 0)
        memcpy(text, run->out + mark, length);
    run->out_length = mark;
    *out = mica__jinja_text(text, length);
    return MICA_OK;
}

mica__jinja_value *mica__jinja_values(mica__jinja_run *run, size_t count)
{
    return mica__jinja_calloc(&run->arena, count, sizeof(mica__jinja_value));
}

mica_status mica__jinja_generator(mica__jinja_run *run, const mica__jinja_value *items, size_t count,
                                  const char *type, mica__jinja_value *out)
{
    mica__jinja_iterator *iterator = mica__jinja_alloc(&run->arena, sizeof *iterator);
    if (iterator == NULL)
        return mica__jinja_arena_failure(&run->arena);
    *iterator = (mica__jinja_iterator){items, count, 0, type};
    *out = (mica__jinja_value){.kind = MICA__JINJA_ITERATOR, .iterator = iterator};
    return MICA_OK;
}

/* ---- scopes ---- */

mica_status mica__jinja_scope_push(mica__jinja_run *run, mica__jinja_scope *parent,
                                   mica__jinja_scope **out_scope)
{
    *out_scope = mica__jinja_calloc(&run->arena, 1, sizeof **out_scope);
    if (*out_scope == NULL)
        return mica__jinja_arena_failure(&run->arena);
    (*out_scope)->parent = parent;
    return MICA_OK;
}

static size_t slot_of(const mica__jinja_scope *scope, uint32_t symbol)
{
    size_t slot = (symbol * (size_t)0x9e3779b1u) & (scope->slots - 1);
    while (scope->index[slot] != 0 && scope->bindings[scope->index[slot] - 1].symbol != symbol)
        slot = (slot + 1) & (scope->slots - 1);
    return slot;
}

/* The binding of a symbol in one scope; NULL: none. */
static mica__jinja_binding *find(const mica__jinja_scope *scope, uint32_t symbol)
{
    if (scope->count > SMALL) {
        const uint32_t found = scope->index[slot_of(scope, symbol)];
        return found != 0 ? &scope->bindings[found - 1] : NULL;
    }
    for (uint32_t i = 0; i < scope->count; i++)
        if (scope->bindings[i].symbol == symbol)
            return &scope->bindings[i];
    return NULL;
}

/* Room for one binding more, and an index that has all that are there where they are more than a few. */
static mica_status reserve_binding(mica__jinja_run *run, mica__jinja_scope *scope)
{
    if (scope->count == scope->capacity) {
        const uint32_t capacity = scope->capacity == 0 ? 4 : scope->capacity * 2;
        mica__jinja_binding *bindings = mica__jinja_calloc(&run->arena, capacity, sizeof *bindings);
        if (bindings == NULL)
            return mica__jinja_arena_failure(&run->arena);
        if (scope->count != 0)
            memcpy(bindings, scope->bindings, scope->count * sizeof *bindings);
        scope->bindings = bindings;
        scope->capacity = capacity;
    }
    if (scope->count < SMALL || (scope->count > SMALL && scope->count < scope->slots / 2))
        return MICA_OK;
    if (scope->count >= scope->slots / 2) {
        const size_t slots = (size_t)scope->capacity * 4;
        scope->index = mica__jinja_calloc(&run->arena, slots, sizeof *scope->index);
        scope->slots = scope->index == NULL ? 0 : slots;
        if (scope->index == NULL)
            return mica__jinja_arena_failure(&run->arena);
    } else { /* a scope that was emptied, and filled again */
        memset(scope->index, 0, scope->slots * sizeof *scope->index);
    }
    for (uint32_t i = 0; i < scope->count; i++)
        scope->index[slot_of(scope, scope->bindings[i].symbol)] = i + 1;
    return mica__jinja_spend_bytes(run, scope->slots * 8);
}

mica_status mica__jinja_assign(mica__jinja_run *run, mica__jinja_scope *scope, uint32_t symbol,
                               mica__jinja_value value)
{
    mica__jinja_binding *found = find(scope, symbol);
    if (found != NULL) {
        found->value = value;
        return MICA_OK;
    }
    const mica_status status = reserve_binding(run, scope);
    if (status != MICA_OK)
        return status;
    scope->bindings[scope->count++] = (mica__jinja_binding){symbol, value};
    if (scope->count > SMALL)
        scope->index[slot_of(scope, symbol)] = scope->count;
    return MICA_OK;
}

mica_status mica__jinja_lookup(mica__jinja_run *run, uint32_t symbol, mica__jinja_value *out)
{
    uint64_t looked = 0;
    for (const mica__jinja_scope *scope = run->scope; scope != NULL; scope = scope->parent, looked++) {
        const mica__jinja_binding *found = find(scope, symbol);
        if (found != NULL) {
            *out = found->value;
            return mica__jinja_spend(run, looked / 8);
        }
    }
    *out = run->globals[symbol];
    return mica__jinja_spend(run, looked / 8);
}
