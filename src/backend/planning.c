/* planning.c - arrays of a plan, each of which grows to twice what is needed. */
#include "backend/planning.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* What every plan can hold, so that one that finds no memory later has a place to write to: an operand's binding is at most as
 * long as the view that a kernel gets of it. */
#define LEAST_DISPATCHES 8u
#define LEAST_BINDINGS 64u
#define LEAST_PARAM_BYTES 8192u
#define LEAST_TEXT_BYTES 512u
#define VIEW_BYTES 256u

/* `array` with room for `least` items of `size` bytes. NULL: no memory. */
static void *grow(void *array, uint64_t least, uint32_t *capacity, size_t size)
{
    if (array != NULL && least <= *capacity)
        return array;
    if (2 * least > UINT32_MAX)
        return NULL;
    void *moved = mica__realloc(array, (size_t)(2 * least) * size);
    if (moved != NULL)
        *capacity = (uint32_t)(2 * least);
    return moved;
}

static mica_status refuse(mica__plan *plan)
{
    plan->status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to plan");
    return plan->status;
}

static bool has_dispatches(mica__plan *plan, uint64_t count)
{
    void *array = grow(plan->dispatch, count, &plan->dispatch_capacity, sizeof *plan->dispatch);
    if (array != NULL)
        plan->dispatch = array;
    return array != NULL;
}

static bool has_bindings(mica__plan *plan, uint64_t count)
{
    void *array = grow(plan->binding, count, &plan->binding_capacity, sizeof *plan->binding);
    if (array != NULL)
        plan->binding = array;
    return array != NULL;
}

static bool has_params(mica__plan *plan, uint64_t bytes)
{
    void *array = grow(plan->params, bytes, &plan->params_capacity, 1);
    if (array != NULL)
        plan->params = array;
    return array != NULL;
}

static bool has_text(mica__plan *plan, uint64_t bytes)
{
    void *array = grow(plan->text, bytes, &plan->text_capacity, 1);
    if (array != NULL)
        plan->text = array;
    return array != NULL;
}

mica_status mica__planning_begin(mica__plan *plan, const mica__record *record)
{
    plan->dispatch_count = plan->binding_count = plan->params_used = 0;
    plan->status = MICA_OK;
    plan->scratch_bytes = 0;
    if (!has_dispatches(plan, LEAST_DISPATCHES) ||
        !has_bindings(plan, LEAST_BINDINGS + record->operand_count) ||
        !has_params(plan, LEAST_PARAM_BYTES + record->params_size + VIEW_BYTES * record->operand_count) ||
        !has_text(plan, LEAST_TEXT_BYTES))
        return refuse(plan);
    plan->text[0] = '\0';
    plan->text_used = 1;
    return MICA_OK;
}

void mica__planning_end(mica__plan *plan)
{
    mica__free(plan->dispatch);
    mica__free(plan->binding);
    mica__free(plan->params);
    mica__free(plan->text);
    memset(plan, 0, sizeof *plan);
}

mica__plan_dispatch *mica__planning_dispatch(mica__plan *plan, const char *kernel)
{
    if (has_dispatches(plan, plan->dispatch_count + 1ull))
        plan->dispatch_count++;
    else
        refuse(plan);
    mica__plan_dispatch *dispatch = mica__planning_last(plan);
    *dispatch = (mica__plan_dispatch){.kernel = kernel, .groups = {1, 1, 1}, .local = {1, 1, 1}, .grain = 1};
    plan->params_used = (plan->params_used + 15) & ~15u;
    dispatch->first_binding = plan->binding_count;
    dispatch->params_offset = plan->params_used;
    return dispatch;
}

/* Where there is no memory the dispatch moves to the beginning of the array, over what others have there: rows look at what they
 * have written. */
mica__plan_binding *mica__planning_bindings(mica__plan *plan, uint32_t count)
{
    mica__plan_dispatch *dispatch = mica__planning_last(plan);
    if (!has_bindings(plan, (uint64_t)plan->binding_count + count)) {
        refuse(plan);
        memmove(plan->binding, plan->binding + dispatch->first_binding,
                dispatch->binding_count * sizeof *plan->binding);
        dispatch->first_binding = 0;
        plan->binding_count = dispatch->binding_count;
        if ((uint64_t)plan->binding_count + count > plan->binding_capacity)
            plan->binding_count = dispatch->binding_count = 0;
    }
    mica__plan_binding *binding = plan->binding + plan->binding_count;
    plan->binding_count += count;
    dispatch->binding_count += count;
    return binding;
}

unsigned char *mica__planning_params(mica__plan *plan, uint32_t bytes)
{
    mica__plan_dispatch *dispatch = mica__planning_last(plan);
    if (!has_params(plan, (uint64_t)plan->params_used + bytes)) {
        refuse(plan);
        memmove(plan->params, plan->params + dispatch->params_offset, dispatch->params_size);
        dispatch->params_offset = 0;
        plan->params_used = dispatch->params_size;
        if ((uint64_t)plan->params_used + bytes > plan->params_capacity)
            return NULL;
    }
    unsigned char *params = plan->params + plan->params_used;
    plan->params_used += bytes;
    dispatch->params_size += bytes;
    return params;
}

void mica__planning_constant(mica__plan *plan, const char *text)
{
    mica__plan_dispatch *dispatch = mica__planning_last(plan);
    const size_t bytes = strlen(text) + 1;
    const bool first = dispatch->constants == 0;
    if (!has_text(plan, (uint64_t)plan->text_used + bytes)) {
        refuse(plan);
        return;
    }
    if (first)
        dispatch->constants = plan->text_used;
    else
        plan->text[plan->text_used - 1] = '|';
    memcpy(plan->text + plan->text_used, text, bytes);
    plan->text_used += (uint32_t)bytes;
}

const char *mica__planning_key(mica__plan *plan, const mica__plan_dispatch *dispatch)
{
    const size_t name = strlen(dispatch->kernel);
    const size_t constants = strlen(mica__planning_constants(plan, dispatch));
    if (!has_text(plan, plan->text_used + name + 1 + constants + 1))
        return NULL;
    char *key = plan->text + plan->text_used; /* behind what is used, which stays as it is */
    memcpy(key, dispatch->kernel, name + 1);
    if (constants == 0)
        return key;
    key[name] = '|';
    memcpy(key + name + 1, mica__planning_constants(plan, dispatch), constants + 1);
    return key;
}
