/* eval.c: expressions. A function a kind of node; the table at the end is in the order of the kinds. */
#include <string.h>

#include "text/template/builtin.h"

typedef mica_status (*eval_function)(mica__jinja_run *run, const mica__jinja_node *node,
                                     mica__jinja_value *out);

static mica_status eval_const(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    (void)run;
    *out = node->value;
    return MICA_OK;
}

static mica_status eval_name(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    return mica__jinja_lookup(run, node->symbol, out);
}

static mica_status eval_items(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_value *items = mica__jinja_values(run, node->count);
    size_t count = 0;
    mica_status status = items == NULL ? mica__jinja_arena_failure(&run->arena) : MICA_OK;
    for (const mica__jinja_node *item = node->items; status == MICA_OK && item != NULL; item = item->next)
        status = mica__jinja_eval(run, item, &items[count++]);
    *out = node->kind == MICA__JINJA_NODE_LIST ? mica__jinja_list(items, count)
                                               : mica__jinja_tuple(items, count);
    return status;
}

static mica_status eval_dict(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_dict *dict = NULL;
    mica__jinja_value key, value;
    mica_status status = mica__jinja_dict_new(run, node->count, &dict);
    for (const mica__jinja_node *item = node->items; status == MICA_OK && item != NULL;
         item = item->next->next) {
        status = mica__jinja_eval(run, item, &key);
        if (status == MICA_OK)
            status = mica__jinja_eval(run, item->next, &value);
        if (status == MICA_OK)
            status = mica__jinja_dict_put(run, dict, &key, &value);
    }
    *out = (mica__jinja_value){.kind = MICA__JINJA_DICT, .dict = dict};
    return status;
}

static mica_status eval_attribute(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_value of;
    const mica_status status = mica__jinja_eval(run, node->pair.left, &of);
    run->at = node->at;
    return status != MICA_OK
               ? status
               : mica__jinja_attribute(run, &of, node->value.text, node->value.length, NULL, out);
}

static mica_status eval_item(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_value of, key;
    mica_status status = mica__jinja_eval(run, node->pair.left, &of);
    if (status == MICA_OK)
        status = mica__jinja_eval(run, node->pair.right, &key);
    run->at = node->at;
    return status != MICA_OK ? status : mica__jinja_item(run, &of, &key, out);
}

static mica_status eval_slice(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    const mica__jinja_node *parts[3] = {node->slice.start, node->slice.stop, node->slice.step};
    mica__jinja_value of, bounds[3];
    mica_status status = mica__jinja_eval(run, node->slice.of, &of);
    for (int i = 0; status == MICA_OK && i < 3; i++) {
        bounds[i] = mica__jinja_none();
        if (parts[i] != NULL)
            status = mica__jinja_eval(run, parts[i], &bounds[i]);
    }
    run->at = node->at;
    return status != MICA_OK ? status : mica__jinja_slice(run, &of, bounds, out);
}

/* ---- calls ---- */

/* Room for the arguments of one call. It is kept for the next call: there are as many as calls inside each other, and
 * the stack needs none. */
typedef struct mica__jinja_few {
    struct mica__jinja_few *next;
    mica__jinja_argument items[MICA__JINJA_FEW_ARGUMENTS];
} mica__jinja_few;

typedef struct gathered {
    mica__jinja_arguments all;
    size_t capacity;
    mica__jinja_few *few;
} gathered;

static void give_back(mica__jinja_run *run, gathered *g)
{
    if (g->few == NULL)
        return;
    g->few->next = run->few;
    run->few = g->few;
}

static mica_status add_argument(mica__jinja_run *run, gathered *g, const mica__jinja_value *value,
                                const char *name, size_t length)
{
    if (g->all.count == g->capacity) {
        mica__jinja_argument *items = mica__jinja_calloc(&run->arena, g->capacity * 2, sizeof *items);
        if (items == NULL)
            return mica__jinja_arena_failure(&run->arena);
        memcpy(items, g->all.items, g->all.count * sizeof *items);
        g->all.items = items;
        g->capacity *= 2;
    }
    g->all.items[g->all.count++] = (mica__jinja_argument){*value, name, length};
    g->all.placed += name == NULL;
    return mica__jinja_spend(run, 1);
}

static mica_status spread_list(mica__jinja_run *run, gathered *g, const mica__jinja_value *list)
{
    const mica__jinja_value *items;
    size_t count;
    mica_status status = mica__jinja_items(run, list, &items, &count);
    for (size_t i = 0; status == MICA_OK && i < count; i++)
        status = add_argument(run, g, &items[i], NULL, 0);
    return status;
}

static mica_status spread_dict(mica__jinja_run *run, gathered *g, const mica__jinja_value *dict)
{
    mica_status status = MICA_OK;
    if (dict->kind != MICA__JINJA_DICT)
        return mica__jinja_raise(run, "argument after ** must be a mapping, not %s", mica__jinja_type(dict));
    for (size_t i = 0; status == MICA_OK && i < dict->dict->count; i++) {
        const mica__jinja_entry *entry = &dict->dict->entries[i];
        if (entry->key.kind != MICA__JINJA_STRING)
            return mica__jinja_raise(run, "keywords must be strings");
        status = add_argument(run, g, &entry->value, entry->key.text, entry->key.length);
    }
    return status;
}

/* Those by place first, then those with a name. */
static mica_status gather(mica__jinja_run *run, const mica__jinja_node *list, gathered *g)
{
    mica_status status = MICA_OK;
    g->few = run->few != NULL ? run->few : mica__jinja_alloc(&run->arena, sizeof *g->few);
    if (g->few == NULL)
        return mica__jinja_arena_failure(&run->arena);
    run->few = run->few != NULL ? run->few->next : NULL;
    g->all = (mica__jinja_arguments){g->few->items, 0, 0};
    g->capacity = MICA__JINJA_FEW_ARGUMENTS;
    for (int named = 0; named < 2; named++)
        for (const mica__jinja_node *node = list; status == MICA_OK && node != NULL; node = node->next) {
            const bool has_name =
                node->op == MICA__JINJA_ARGUMENT_NAMED || node->op == MICA__JINJA_ARGUMENT_DICT;
            mica__jinja_value value;
            if (has_name != (named == 1))
                continue;
            status = mica__jinja_eval(run, node->pair.left, &value);
            if (status != MICA_OK)
                break;
            status = node->op == MICA__JINJA_ARGUMENT_LIST   ? spread_list(run, g, &value)
                     : node->op == MICA__JINJA_ARGUMENT_DICT ? spread_dict(run, g, &value)
                     : has_name ? add_argument(run, g, &value, node->value.text, node->value.length)
                                : add_argument(run, g, &value, NULL, 0);
        }
    return status;
}

mica_status mica__jinja_eval_call(mica__jinja_run *run, const mica__jinja_node *node,
                                  const mica__jinja_value *caller, mica__jinja_value *out)
{
    const mica__jinja_node *of = node->call.of;
    const mica__jinja_builtin *method = NULL;
    gathered g = {.few = NULL};
    mica__jinja_value callee, self;
    mica_status status;
    run->depth++;                                 /* once more: it takes twice the stack of another node */
    if (of->kind == MICA__JINJA_NODE_ATTRIBUTE) { /* a method is called without being made a value */
        status = mica__jinja_eval(run, of->pair.left, &self);
        run->at = of->at;
        if (status == MICA_OK)
            status = mica__jinja_attribute(run, &self, of->value.text, of->value.length, &method, &callee);
    } else {
        status = mica__jinja_eval(run, of, &callee);
    }
    if (status == MICA_OK)
        status = gather(run, node->call.arguments, &g);
    if (status == MICA_OK && caller != NULL)
        status = add_argument(run, &g, caller, "caller", 6);
    run->at = node->at;
    if (status == MICA_OK)
        status = method != NULL ? mica__jinja_invoke(run, method, &self, &g.all, out)
                                : mica__jinja_call_value(run, &callee, &g.all, out);
    give_back(run, &g);
    run->depth--;
    return status;
}

static mica_status eval_call(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    return mica__jinja_eval_call(run, node, NULL, out);
}

static mica_status eval_builtin(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    gathered g = {.few = NULL};
    mica__jinja_value of;
    mica_status status = mica__jinja_eval(run, node->call.of, &of);
    if (status == MICA_OK)
        status = gather(run, node->call.arguments, &g);
    run->at = node->at;
    if (status == MICA_OK && node->call.builtin == NULL)
        status = mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "the %s \"%.*s\" is not known",
                                  node->kind == MICA__JINJA_NODE_FILTER ? "filter" : "test",
                                  (int)node->value.length, node->value.text);
    if (status == MICA_OK)
        status = mica__jinja_invoke(run, node->call.builtin, &of, &g.all, out);
    give_back(run, &g);
    return status;
}

/* ---- operators ---- */

static mica_status eval_not(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_value v;
    const mica_status status = mica__jinja_eval(run, node->pair.left, &v);
    if (status == MICA_OK)
        *out = mica__jinja_bool(!mica__jinja_truth(&v));
    return status;
}

static mica_status eval_sign(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_value v;
    const mica_status status = mica__jinja_eval(run, node->pair.left, &v);
    run->at = node->at;
    if (status != MICA_OK)
        return status;
    return mica__jinja_unary(
        run, node->kind == MICA__JINJA_NODE_NEGATIVE ? MICA__JINJA_OP_SUB : MICA__JINJA_OP_ADD, &v, out);
}

static mica_status eval_binary(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_value a, b;
    mica_status status = mica__jinja_eval(run, node->pair.left, &a);
    if (status == MICA_OK)
        status = mica__jinja_eval(run, node->pair.right, &b);
    run->at = node->at;
    return status != MICA_OK ? status : mica__jinja_binary(run, (mica__jinja_operator)node->op, &a, &b, out);
}

static mica_status eval_logic(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    const mica_status status = mica__jinja_eval(run, node->pair.left, out);
    if (status != MICA_OK || mica__jinja_truth(out) == (node->kind == MICA__JINJA_NODE_OR))
        return status;
    return mica__jinja_eval(run, node->pair.right, out);
}

static mica_status eval_compare(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_value left, right;
    bool holds = true;
    mica_status status = mica__jinja_eval(run, node->pair.left, &left);
    for (const mica__jinja_node *operand = node->pair.right; status == MICA_OK && holds && operand != NULL;
         operand = operand->next) {
        status = mica__jinja_eval(run, operand->pair.left, &right);
        run->at = operand->at;
        if (status == MICA_OK)
            status = mica__jinja_compare(run, (mica__jinja_operator)operand->op, &left, &right, &holds);
        left = right;
    }
    *out = mica__jinja_bool(holds);
    return status;
}

static mica_status eval_concat(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    mica__jinja_value sum, next;
    mica_status status = mica__jinja_eval(run, node->items, &sum);
    for (const mica__jinja_node *item = node->items->next; status == MICA_OK && item != NULL;
         item = item->next) {
        status = mica__jinja_eval(run, item, &next);
        run->at = node->at;
        if (status == MICA_OK)
            status = mica__jinja_concat(run, &sum, &next, &sum);
    }
    *out = sum;
    return status;
}

static mica_status eval_conditional(mica__jinja_run *run, const mica__jinja_node *node,
                                    mica__jinja_value *out)
{
    static const char hint[] = "the inline if-expression evaluated to false and no else section was defined.";
    mica__jinja_value test;
    const mica_status status = mica__jinja_eval(run, node->branch.test, &test);
    if (status != MICA_OK)
        return status;
    if (mica__jinja_truth(&test))
        return mica__jinja_eval(run, node->branch.body, out);
    if (node->branch.otherwise != NULL)
        return mica__jinja_eval(run, node->branch.otherwise, out);
    *out = mica__jinja_missing(MICA__JINJA_MISSING_HINT, 0, hint, sizeof hint - 1);
    return MICA_OK;
}

static mica_status eval_input(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    (void)node;
    *out = run->input;
    return MICA_OK;
}

static const eval_function functions[MICA__JINJA_NODE_EXPRESSIONS] = {
    [MICA__JINJA_NODE_CONST] = eval_const,   [MICA__JINJA_NODE_NAME] = eval_name,
    [MICA__JINJA_NODE_TUPLE] = eval_items,   [MICA__JINJA_NODE_LIST] = eval_items,
    [MICA__JINJA_NODE_DICT] = eval_dict,     [MICA__JINJA_NODE_ATTRIBUTE] = eval_attribute,
    [MICA__JINJA_NODE_ITEM] = eval_item,     [MICA__JINJA_NODE_SLICE] = eval_slice,
    [MICA__JINJA_NODE_CALL] = eval_call,     [MICA__JINJA_NODE_FILTER] = eval_builtin,
    [MICA__JINJA_NODE_TEST] = eval_builtin,  [MICA__JINJA_NODE_NOT] = eval_not,
    [MICA__JINJA_NODE_NEGATIVE] = eval_sign, [MICA__JINJA_NODE_POSITIVE] = eval_sign,
    [MICA__JINJA_NODE_BINARY] = eval_binary, [MICA__JINJA_NODE_AND] = eval_logic,
    [MICA__JINJA_NODE_OR] = eval_logic,      [MICA__JINJA_NODE_COMPARE] = eval_compare,
    [MICA__JINJA_NODE_CONCAT] = eval_concat, [MICA__JINJA_NODE_CONDITIONAL] = eval_conditional,
    [MICA__JINJA_NODE_INPUT] = eval_input,
};

mica_status mica__jinja_eval(mica__jinja_run *run, const mica__jinja_node *node, mica__jinja_value *out)
{
    run->at = node->at;
    mica_status status = mica__jinja_spend(run, 1);
    *out = mica__jinja_none();
    if (status != MICA_OK)
        return status;
    if (run->depth >= MICA__JINJA_RUN_DEPTH)
        return mica__jinja_stop(run, MICA_ERR_BUDGET,
                                "more than %d expressions, blocks and macros inside each other",
                                MICA__JINJA_RUN_DEPTH);
    run->depth++;
    status = functions[node->kind](run, node, out);
    run->depth--;
    return status;
}
