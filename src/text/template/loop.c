/* loop.c: for loops: items are taken one by one, at most one ahead of the body, so that what the body changes
 * is seen by the test of the next. */
#include "text/template/loop.h"

#include "text/template/builtin.h"

mica_status mica__jinja_loop_begin(mica__jinja_run *run, const mica__jinja_node *node,
                                   const mica__jinja_value *of, mica__jinja_loop **out_loop)
{
    mica__jinja_loop *loop = mica__jinja_calloc(&run->arena, 1, sizeof *loop);
    *out_loop = loop;
    if (loop == NULL)
        return mica__jinja_arena_failure(&run->arena);
    loop->node = node;
    loop->outer = run->scope;
    loop->index0 = -1;
    loop->tested = node->loop.test == NULL;
    mica_status status = mica__jinja_walk(run, of, &loop->cursor);
    if (status == MICA_OK && !loop->tested)
        status = mica__jinja_scope_push(run, run->scope, &loop->test_scope);
    return status;
}

/* Whether an item passes the test of the loop. */
static mica_status passes(mica__jinja_run *run, const mica__jinja_loop *loop, const mica__jinja_value *item,
                          bool *out_passes)
{
    mica__jinja_scope *scope = run->scope;
    mica__jinja_value result = mica__jinja_none();
    loop->test_scope->count = 0;
    run->scope = loop->test_scope;
    mica_status status = mica__jinja_store(run, loop->node->loop.target, item);
    if (status == MICA_OK)
        status = mica__jinja_eval(run, loop->node->loop.test, &result);
    run->scope = scope;
    *out_passes = mica__jinja_truth(&result);
    return status;
}

static mica_status fetch(mica__jinja_run *run, mica__jinja_loop *loop, mica__jinja_value *out, bool *out_some)
{
    for (;;) {
        bool fits = true;
        mica_status status = mica__jinja_next(run, &loop->cursor, out, out_some);
        if (status == MICA_OK && *out_some && !loop->tested)
            status = passes(run, loop, out, &fits);
        if (status != MICA_OK || !*out_some || fits)
            return status;
    }
}

static mica_status peek(mica__jinja_run *run, mica__jinja_loop *loop, bool *out_some)
{
    *out_some = loop->has_after;
    if (loop->has_after)
        return MICA_OK;
    const mica_status status = fetch(run, loop, &loop->after, out_some);
    loop->has_after = status == MICA_OK && *out_some;
    return status;
}

mica_status mica__jinja_loop_advance(mica__jinja_run *run, mica__jinja_loop *loop, bool *out_some)
{
    const mica_status status = peek(run, loop, out_some);
    if (status != MICA_OK || !*out_some)
        return status;
    loop->has_before = loop->index0 >= 0;
    loop->before = loop->current;
    loop->current = loop->after;
    loop->has_after = false;
    loop->index0++;
    return MICA_OK;
}

/* Without a length of its own, what is left is taken at once and counted. */
static mica_status measure(mica__jinja_run *run, mica__jinja_loop *loop)
{
    mica__jinja_value *items = NULL, item;
    size_t count = 0, capacity = 0;
    bool some = true;
    mica_status status = MICA_OK;
    if (loop->has_length)
        return MICA_OK;
    loop->has_length = true;
    if (loop->tested && mica__jinja_has_length(&loop->cursor.of))
        return mica__jinja_length(run, &loop->cursor.of, &loop->length);
    while (status == MICA_OK) {
        status = fetch(run, loop, &item, &some);
        if (status != MICA_OK || !some)
            break;
        status = mica__jinja_push(run, &items, &count, &capacity, &item);
    }
    loop->length = count + (size_t)(loop->index0 + 1) + loop->has_after;
    loop->cursor = (mica__jinja_cursor){mica__jinja_list(items, count), 0};
    loop->tested = true;
    return status;
}

typedef enum loop_fact {
    INDEX,
    INDEX0,
    REVINDEX,
    REVINDEX0,
    FIRST,
    LAST,
    LENGTH,
    DEPTH,
    DEPTH0,
    PREVIOUS,
    NEXT
} loop_fact;

static const struct {
    const char *name;
    loop_fact fact;
} facts[] = {
    {"index", INDEX},   {"index0", INDEX0},     {"revindex", REVINDEX}, {"revindex0", REVINDEX0},
    {"first", FIRST},   {"last", LAST},         {"length", LENGTH},     {"depth", DEPTH},
    {"depth0", DEPTH0}, {"previtem", PREVIOUS}, {"nextitem", NEXT},
};

static mica__jinja_value hint(const char *text, size_t length)
{
    return mica__jinja_missing(MICA__JINJA_MISSING_HINT, 0, text, length);
}

static mica_status fact_of(mica__jinja_run *run, mica__jinja_loop *loop, loop_fact fact,
                           mica__jinja_value *out)
{
    mica_status status = MICA_OK;
    bool some = false;
    if (fact == REVINDEX || fact == REVINDEX0 || fact == LENGTH)
        status = measure(run, loop);
    else if (fact == LAST || fact == NEXT)
        status = peek(run, loop, &some);
    if (status != MICA_OK)
        return status;
    switch (fact) {
    case INDEX: *out = mica__jinja_int(loop->index0 + 1); break;
    case INDEX0: *out = mica__jinja_int(loop->index0); break;
    case REVINDEX: *out = mica__jinja_int((int64_t)loop->length - loop->index0); break;
    case REVINDEX0: *out = mica__jinja_int((int64_t)loop->length - loop->index0 - 1); break;
    case FIRST: *out = mica__jinja_bool(loop->index0 == 0); break;
    case LAST: *out = mica__jinja_bool(!some); break;
    case LENGTH: *out = mica__jinja_int((int64_t)loop->length); break;
    case DEPTH: *out = mica__jinja_int(1); break;
    case DEPTH0: *out = mica__jinja_int(0); break;
    case PREVIOUS: *out = loop->has_before ? loop->before : hint("there is no previous item", 25); break;
    case NEXT: *out = some ? loop->after : hint("there is no next item", 21); break;
    }
    return MICA_OK;
}

mica_status mica__jinja_loop_field(mica__jinja_run *run, struct mica__jinja_loop *loop,
                                   const mica__jinja_value *name, mica__jinja_value *out, bool *out_some)
{
    *out_some = false;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (mica__jinja_same_text(name, facts[i].name)) {
            *out_some = true;
            return fact_of(run, loop, facts[i].fact, out);
        }
    return MICA_OK;
}

static mica_status loop_cycle(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    if (call->all->placed == 0)
        return mica__jinja_raise(run, "no items for cycling given");
    *out = call->all->items[(size_t)call->self.loop->index0 % call->all->placed].value;
    return MICA_OK;
}

static mica_status loop_changed(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_loop *loop = call->self.loop;
    mica__jinja_value *items = mica__jinja_values(run, call->all->placed);
    bool equal = false;
    mica_status status = MICA_OK;
    if (items == NULL)
        return mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; i < call->all->placed; i++)
        items[i] = call->all->items[i].value;
    const mica__jinja_value now = mica__jinja_tuple(items, call->all->placed);
    if (loop->has_changed)
        status = mica__jinja_equal(run, &loop->changed, &now, &equal);
    loop->has_changed = true;
    loop->changed = now;
    *out = mica__jinja_bool(!equal);
    return status;
}

const mica__jinja_builtin mica__jinja_loop_methods[] = {
    {"cycle", loop_cycle, "*", 0, 0},
    {"changed", loop_changed, "*", 0, 0},
};
const size_t mica__jinja_loop_method_count =
    sizeof mica__jinja_loop_methods / sizeof *mica__jinja_loop_methods;
