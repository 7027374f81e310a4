/* exec.c: statements, targets and macros. */
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/loop.h"

typedef mica_status (*exec_function)(mica__jinja_run *run, const mica__jinja_node *node);

/* ---- targets ---- */

static mica_status store_field(mica__jinja_run *run, const mica__jinja_node *target,
                               const mica__jinja_value *value)
{
    mica__jinja_value namespace;
    const mica_status status = mica__jinja_lookup(run, target->symbol, &namespace);
    run->at = target->at;
    if (status != MICA_OK)
        return status;
    if (namespace.kind != MICA__JINJA_NAMESPACE)
        return mica__jinja_raise(run, "cannot assign attribute on non-namespace object");
    if (target->value.text[0] == '_')
        return mica__jinja_raise(run,
                                 "the name of an attribute of a namespace must not begin with an underscore");
    return mica__jinja_dict_put(run, namespace.dict, &target->value, value);
}

static mica_status store_items(mica__jinja_run *run, const mica__jinja_node *target,
                               const mica__jinja_value *value)
{
    const mica__jinja_value *items;
    size_t count, at = 0;
    mica_status status = mica__jinja_items(run, value, &items, &count);
    run->at = target->at;
    if (status == MICA_OK && count != target->count)
        return mica__jinja_raise(run, "%s values to unpack (expected %u, got %zu)",
                                 count < target->count ? "not enough" : "too many", target->count, count);
    for (const mica__jinja_node *part = target->items; status == MICA_OK && part != NULL; part = part->next)
        status = mica__jinja_store(run, part, &items[at++]);
    return status;
}

/* Brackets are nested as deep as the parser allows, and so is this. */
mica_status mica__jinja_store(mica__jinja_run *run, const mica__jinja_node *target,
                              const mica__jinja_value *value)
{
    if (target->kind == MICA__JINJA_NODE_FIELD)
        return store_field(run, target, value);
    return target->kind == MICA__JINJA_NODE_TUPLE
               ? store_items(run, target, value)
               : mica__jinja_assign(run, run->scope, target->symbol, *value);
}

/* ---- statements ---- */

static mica_status exec_data(mica__jinja_run *run, const mica__jinja_node *node)
{
    return mica__jinja_put(run, node->value.text, node->value.length);
}

static mica_status exec_print(mica__jinja_run *run, const mica__jinja_node *node)
{
    mica__jinja_value v;
    const mica_status status = mica__jinja_eval(run, node->pair.left, &v);
    run->at = node->at;
    return status != MICA_OK ? status : mica__jinja_put_str(run, &v);
}

/* A body in a scope of its own. */
static mica_status exec_inner(mica__jinja_run *run, const mica__jinja_node *body)
{
    mica__jinja_scope *scope = NULL, *outer = run->scope;
    mica_status status = mica__jinja_scope_push(run, outer, &scope);
    run->scope = scope;
    if (status == MICA_OK)
        status = mica__jinja_exec(run, body);
    run->scope = outer;
    return status;
}

/* One iteration of a loop; *out_more: false after the last. */
static mica_status exec_iteration(mica__jinja_run *run, mica__jinja_loop *loop, mica__jinja_scope *scope,
                                  bool *out_more)
{
    const mica__jinja_node *node = loop->node;
    run->at = node->at;
    mica_status status = mica__jinja_loop_advance(run, loop, out_more);
    if (status != MICA_OK || !*out_more)
        return status;
    scope->count = 0;
    run->scope = scope;
    status = mica__jinja_store(run, node->loop.target, &loop->current);
    if (status == MICA_OK)
        status = mica__jinja_assign(run, scope, MICA__JINJA_SYMBOL_LOOP,
                                    (mica__jinja_value){.kind = MICA__JINJA_LOOP, .loop = loop});
    if (status == MICA_OK)
        status = mica__jinja_exec(run, node->loop.body);
    run->scope = loop->outer;
    if (run->jump == MICA__JINJA_JUMP_BREAK)
        *out_more = false;
    run->jump = MICA__JINJA_JUMP_NONE;
    return status;
}

static mica_status exec_for(mica__jinja_run *run, const mica__jinja_node *node)
{
    mica__jinja_value of;
    mica__jinja_loop *loop = NULL;
    mica__jinja_scope *scope = NULL;
    bool more = true;
    mica_status status = mica__jinja_eval(run, node->loop.of, &of);
    run->at = node->at;
    if (status == MICA_OK)
        status = mica__jinja_loop_begin(run, node, &of, &loop);
    if (status == MICA_OK)
        status = mica__jinja_scope_push(run, run->scope, &scope);
    while (status == MICA_OK && more) {
        status = exec_iteration(run, loop, scope, &more);
        if (status == MICA_OK)
            status = mica__jinja_spend(run, 1);
    }
    if (status == MICA_OK && loop->index0 < 0 && node->loop.otherwise != NULL)
        status = exec_inner(run, node->loop.otherwise);
    return status;
}

static mica_status exec_if(mica__jinja_run *run, const mica__jinja_node *node)
{
    for (;;) {
        mica__jinja_value test;
        const mica_status status = mica__jinja_eval(run, node->branch.test, &test);
        if (status != MICA_OK)
            return status;
        if (mica__jinja_truth(&test))
            return mica__jinja_exec(run, node->branch.body);
        const mica__jinja_node *otherwise = node->branch.otherwise;
        if (otherwise == NULL || otherwise->kind != MICA__JINJA_NODE_IF || otherwise->next != NULL)
            return mica__jinja_exec(run, otherwise);
        node = otherwise;
    }
}

static mica_status exec_set(mica__jinja_run *run, const mica__jinja_node *node)
{
    mica__jinja_value v;
    const mica_status status = mica__jinja_eval(run, node->pair.right, &v);
    run->at = node->at;
    return status != MICA_OK ? status : mica__jinja_store(run, node->pair.left, &v);
}

/* The output of a body as a value, through a filter if there is one. *out_whole is false after a break inside. */
static mica_status capture(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out,
                           bool *out_whole)
{
    const size_t mark = run->out_length;
    mica_status status = exec_inner(run, node->block.body);
    *out_whole = run->jump == MICA__JINJA_JUMP_NONE;
    if (status == MICA_OK)
        status = mica__jinja_cut(run, mark, out);
    if (status != MICA_OK || !*out_whole || node->block.filter == NULL)
        return status;
    run->input = *out;
    return mica__jinja_eval(run, node->block.filter, out);
}

static mica_status exec_set_block(mica__jinja_run *run, const mica__jinja_node *node)
{
    mica__jinja_value v;
    bool whole = true;
    const mica_status status = capture(run, node, &v, &whole);
    run->at = node->at;
    return status != MICA_OK || !whole ? status : mica__jinja_store(run, node->block.target, &v);
}

static mica_status exec_filter_block(mica__jinja_run *run, const mica__jinja_node *node)
{
    mica__jinja_value v;
    bool whole = true;
    const mica_status status = capture(run, node, &v, &whole);
    run->at = node->at;
    return status != MICA_OK || !whole ? status : mica__jinja_put_str(run, &v);
}

/* All values are computed outside before any name is set. */
static mica_status exec_with(mica__jinja_run *run, const mica__jinja_node *node)
{
    mica__jinja_scope *scope = NULL, *outer = run->scope;
    mica_status status = mica__jinja_scope_push(run, outer, &scope);
    for (const mica__jinja_node *set = node->block.target; status == MICA_OK && set != NULL;
         set = set->next) {
        mica__jinja_value v;
        run->scope = outer;
        status = mica__jinja_eval(run, set->pair.right, &v);
        run->scope = scope;
        if (status == MICA_OK)
            status = mica__jinja_store(run, set->pair.left, &v);
    }
    run->scope = scope;
    if (status == MICA_OK)
        status = mica__jinja_exec(run, node->block.body);
    run->scope = outer;
    return status;
}

static mica_status make_macro(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_macro *macro = mica__jinja_alloc(&run->arena, sizeof *macro);
    if (macro == NULL)
        return mica__jinja_arena_failure(&run->arena);
    *macro = (mica__jinja_macro){node, run->scope};
    *out = (mica__jinja_value){.kind = MICA__JINJA_MACRO, .macro = macro};
    return MICA_OK;
}

static mica_status exec_macro(mica__jinja_run *run, const mica__jinja_node *node)
{
    mica__jinja_value macro;
    const mica_status status = make_macro(run, node, &macro);
    return status != MICA_OK ? status : mica__jinja_assign(run, run->scope, node->symbol, macro);
}

static mica_status exec_call_block(mica__jinja_run *run, const mica__jinja_node *node)
{
    mica__jinja_value caller, v;
    mica_status status = make_macro(run, node, &caller);
    if (status == MICA_OK)
        status = mica__jinja_eval_call(run, node->macro.call, &caller, &v);
    run->at = node->at;
    return status != MICA_OK ? status : mica__jinja_put_str(run, &v);
}

static mica_status exec_scope(mica__jinja_run *run, const mica__jinja_node *node)
{
    return exec_inner(run, node->block.body);
}

static mica_status exec_jump(mica__jinja_run *run, const mica__jinja_node *node)
{
    run->jump = node->kind == MICA__JINJA_NODE_BREAK ? MICA__JINJA_JUMP_BREAK : MICA__JINJA_JUMP_CONTINUE;
    return MICA_OK;
}

static const exec_function functions[MICA__JINJA_NODE_KINDS] = {
    [MICA__JINJA_NODE_DATA] = exec_data,
    [MICA__JINJA_NODE_PRINT] = exec_print,
    [MICA__JINJA_NODE_FOR] = exec_for,
    [MICA__JINJA_NODE_IF] = exec_if,
    [MICA__JINJA_NODE_SET] = exec_set,
    [MICA__JINJA_NODE_SET_BLOCK] = exec_set_block,
    [MICA__JINJA_NODE_FILTER_BLOCK] = exec_filter_block,
    [MICA__JINJA_NODE_WITH] = exec_with,
    [MICA__JINJA_NODE_MACRO] = exec_macro,
    [MICA__JINJA_NODE_CALL_BLOCK] = exec_call_block,
    [MICA__JINJA_NODE_SCOPE] = exec_scope,
    [MICA__JINJA_NODE_BREAK] = exec_jump,
    [MICA__JINJA_NODE_CONTINUE] = exec_jump,
};

mica_status mica__jinja_exec(mica__jinja_run *run, const mica__jinja_node *list)
{
    mica_status status = MICA_OK;
    if (list != NULL && run->depth >= MICA__JINJA_RUN_DEPTH) {
        run->at = list->at;
        return mica__jinja_stop(run, MICA_ERR_BUDGET,
                                "more than %d expressions, blocks and macros inside each other",
                                MICA__JINJA_RUN_DEPTH);
    }
    run->depth++;
    for (; status == MICA_OK && list != NULL && run->jump == MICA__JINJA_JUMP_NONE; list = list->next) {
        run->at = list->at;
        status = mica__jinja_spend(run, 1);
        if (status == MICA_OK)
            status = functions[list->kind](run, list);
    }
    run->depth--;
    return status;
}

/* ---- macros ---- */

static bool is_named(const mica__jinja_argument *argument, const mica__jinja_value *name)
{
    return argument->name != NULL && argument->name_length == name->length &&
           memcmp(argument->name, name->text, name->length) == 0;
}

/* The argument of a parameter: by place, by name, its default, or undefined. `taken` marks the named ones. */
static mica_status bind_parameter(mica__jinja_run *run, const mica__jinja_node *parameter, size_t place,
                                  const mica__jinja_arguments *all, bool *taken)
{
    static const char hint[] = "a parameter of the macro was not provided";
    mica__jinja_value value = mica__jinja_missing(MICA__JINJA_MISSING_HINT, 0, hint, sizeof hint - 1);
    mica_status status = MICA_OK;
    bool found = place < all->placed;
    MICA__TRY(mica__jinja_spend_bytes(run, 64));
    if (found)
        value = all->items[place].value;
    const size_t named = all->count - all->placed;
    for (size_t n = 0; !found && n < named; n++) { /* from its own place on: most are given in order */
        const size_t i = all->placed + (place - all->placed + n) % named;
        if (is_named(&all->items[i], &parameter->value)) {
            value = all->items[i].value;
            taken[i] = true;
            found = true;
        }
        MICA__TRY(mica__jinja_spend_bytes(run, 8));
    }
    if (!found && parameter->pair.left != NULL)
        status = mica__jinja_eval(run, parameter->pair.left, &value);
    return status != MICA_OK ? status : mica__jinja_assign(run, run->scope, parameter->symbol, value);
}

/* caller, varargs and kwargs where the body uses them; what nobody takes is an error. */
static mica_status bind_rest(mica__jinja_run *run, const mica__jinja_node *node,
                             const mica__jinja_arguments *all, const bool *taken, bool has_caller)
{
    const mica__jinja_value caller_name = mica__jinja_text("caller", 6);
    mica__jinja_value caller = mica__jinja_missing(MICA__JINJA_MISSING_HINT, 0, "No caller defined", 17);
    mica__jinja_dict *kwargs = NULL;
    mica_status status = MICA_OK;
    if ((node->uses & MICA__JINJA_USES_KWARGS) != 0)
        status = mica__jinja_dict_new(run, 0, &kwargs);
    for (size_t i = all->placed; status == MICA_OK && i < all->count; i++) {
        const mica__jinja_argument *given = &all->items[i];
        const mica__jinja_value name = mica__jinja_text(given->name, given->name_length);
        if (taken[i])
            continue;
        if ((node->uses & MICA__JINJA_USES_CALLER) != 0 && !has_caller && is_named(given, &caller_name))
            caller = given->value;
        else if (kwargs != NULL)
            status = mica__jinja_dict_put(run, kwargs, &name, &given->value);
        else
            return mica__jinja_raise(run, "macro '%.*s' takes no keyword argument '%.*s'",
                                     (int)node->value.length, node->value.text, (int)name.length, name.text);
    }
    if (status == MICA_OK && (node->uses & MICA__JINJA_USES_CALLER) != 0 && !has_caller)
        status = mica__jinja_assign(run, run->scope, MICA__JINJA_SYMBOL_CALLER, caller);
    if (status == MICA_OK && kwargs != NULL)
        status = mica__jinja_assign(run, run->scope, MICA__JINJA_SYMBOL_KWARGS,
                                    (mica__jinja_value){.kind = MICA__JINJA_DICT, .dict = kwargs});
    if (status != MICA_OK)
        return status;
    const size_t extra = all->placed > node->count ? all->placed - node->count : 0;
    if ((node->uses & MICA__JINJA_USES_VARARGS) == 0)
        return extra == 0 ? MICA_OK
                          : mica__jinja_raise(run, "macro '%.*s' takes not more than %u argument(s)",
                                              (int)node->value.length, node->value.text, node->count);
    mica__jinja_value *items = mica__jinja_values(run, extra);
    if (items == NULL)
        return mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; i < extra; i++)
        items[i] = all->items[node->count + i].value;
    return mica__jinja_assign(run, run->scope, MICA__JINJA_SYMBOL_VARARGS, mica__jinja_tuple(items, extra));
}

static mica_status bind_all(mica__jinja_run *run, const mica__jinja_node *node,
                            const mica__jinja_arguments *all)
{
    bool *taken = mica__jinja_calloc(&run->arena, all->count, sizeof *taken);
    bool has_caller = false;
    size_t place = 0;
    mica_status status = MICA_OK;
    if (taken == NULL)
        return mica__jinja_arena_failure(&run->arena);
    for (const mica__jinja_node *parameter = node->macro.parameters; status == MICA_OK && parameter != NULL;
         parameter = parameter->next) {
        has_caller = has_caller || parameter->symbol == MICA__JINJA_SYMBOL_CALLER;
        status = bind_parameter(run, parameter, place++, all, taken);
    }
    return status != MICA_OK ? status : bind_rest(run, node, all, taken, has_caller);
}

mica_status mica__jinja_call_macro(mica__jinja_run *run, const mica__jinja_macro *macro,
                                   const mica__jinja_arguments *arguments, mica__jinja_value *out)
{
    mica__jinja_scope *scope = NULL, *outer = run->scope;
    const size_t mark = run->out_length;
    mica_status status = mica__jinja_scope_push(run, macro->scope, &scope);
    run->depth += MICA__JINJA_MACRO_DEPTH;
    run->scope = scope;
    if (status == MICA_OK)
        status = bind_all(run, macro->node, arguments);
    if (status == MICA_OK)
        status = mica__jinja_exec(run, macro->node->macro.body);
    run->scope = outer;
    run->depth -= MICA__JINJA_MACRO_DEPTH;
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}
