/* tests.c: tests: what stands after "is". */
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/chars.h"

typedef enum kind_test {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_FALSE,
    IS_TRUE,
    IS_INTEGER,
    IS_FLOAT,
    IS_NUMBER,
    IS_STRING,
    IS_MAPPING,
    IS_SEQUENCE,
    IS_ITERABLE,
    IS_CALLABLE,
    IS_ESCAPED
} kind_test;

static bool is_kind(const mica__jinja_value *v, kind_test test)
{
    switch (test) {
    case IS_DEFINED: return v->kind != MICA__JINJA_UNDEFINED;
    case IS_UNDEFINED: return v->kind == MICA__JINJA_UNDEFINED;
    case IS_NONE: return v->kind == MICA__JINJA_NONE;
    case IS_BOOLEAN: return v->kind == MICA__JINJA_BOOL;
    case IS_FALSE: return v->kind == MICA__JINJA_BOOL && !v->truth;
    case IS_TRUE: return v->kind == MICA__JINJA_BOOL && v->truth;
    case IS_INTEGER: return v->kind == MICA__JINJA_INT;
    case IS_FLOAT: return v->kind == MICA__JINJA_FLOAT;
    case IS_NUMBER: return mica__jinja_is_number(v);
    case IS_STRING: return v->kind == MICA__JINJA_STRING;
    case IS_MAPPING: return v->kind == MICA__JINJA_DICT;
    case IS_SEQUENCE:
        return v->kind == MICA__JINJA_STRING || v->kind == MICA__JINJA_LIST || v->kind == MICA__JINJA_TUPLE ||
               v->kind == MICA__JINJA_DICT || v->kind == MICA__JINJA_RANGE ||
               v->kind == MICA__JINJA_UNDEFINED;
    case IS_ITERABLE: return mica__jinja_is_iterable(v) || v->kind == MICA__JINJA_LOOP;
    case IS_CALLABLE:
        return v->kind == MICA__JINJA_UNDEFINED || v->kind == MICA__JINJA_MACRO ||
               v->kind == MICA__JINJA_FUNCTION || v->kind == MICA__JINJA_METHOD ||
               v->kind == MICA__JINJA_LOOP || v->kind == MICA__JINJA_JOINER;
    case IS_ESCAPED: return v->kind == MICA__JINJA_STRING && v->mark != 0;
    }
    return false;
}

static mica_status test_kind(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    (void)run;
    *out = mica__jinja_bool(is_kind(&call->self, (kind_test)call->row->variant));
    return MICA_OK;
}

static mica_status test_compare(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    bool holds = false;
    const mica_status status = mica__jinja_compare(run, (mica__jinja_operator)call->row->variant, &call->self,
                                                   &call->argument[0], &holds);
    *out = mica__jinja_bool(holds);
    return status;
}

/* The rest of a division by `by` is `rest`. */
static mica_status rest_is(mica__jinja_run *run, const mica__jinja_value *v, const mica__jinja_value *by,
                           int64_t rest, mica__jinja_value *out)
{
    const mica__jinja_value wanted = mica__jinja_int(rest);
    mica__jinja_value modulo;
    bool equal = false;
    mica_status status = mica__jinja_binary(run, MICA__JINJA_OP_MOD, v, by, &modulo);
    if (status == MICA_OK)
        status = mica__jinja_equal(run, &modulo, &wanted, &equal);
    *out = mica__jinja_bool(equal);
    return status;
}

/* variant 1: odd. */
static mica_status test_parity(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value two = mica__jinja_int(2);
    return rest_is(run, &call->self, &two, call->row->variant, out);
}

static mica_status test_divisible(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    return rest_is(run, &call->self, &call->argument[0], 0, out);
}

/* variant 1: upper. True when there is a letter with case and all of these are of it. */
static mica_status test_case(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value text;
    bool some = false, all = true;
    const mica_status status = mica__jinja_str(run, &call->self, &text);
    for (size_t at = 0, bytes; status == MICA_OK && at < text.length; at += bytes) {
        const uint32_t code = mica__jinja_char(text.text + at, text.length - at, &bytes);
        const bool upper = mica__jinja_is_upper(code), lower = mica__jinja_is_lower(code);
        some = some || upper || lower;
        all = all && !(call->row->variant != 0 ? lower : upper);
    }
    *out = mica__jinja_bool(some && all);
    return status != MICA_OK ? status : mica__jinja_spend_chars(run, text.length);
}

static mica_status test_same(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *a = &call->self, *b = &call->argument[0];
    bool same = a->kind == b->kind;
    mica_status status = MICA_OK;
    if (same && a->kind <= MICA__JINJA_STRING && a->kind != MICA__JINJA_UNDEFINED)
        status = mica__jinja_equal(run, a, b, &same);
    else if (same)
        same = a->items == b->items && a->length == b->length;
    *out = mica__jinja_bool(same);
    return status;
}

/* variant 1: a test of that name. */
static mica_status test_exists(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    (void)run;
    const mica__jinja_value *v = &call->self;
    const mica__jinja_builtin *row = v->kind != MICA__JINJA_STRING ? NULL
                                     : call->row->variant != 0     ? mica__jinja_find_test(v->text, v->length)
                                                               : mica__jinja_find_filter(v->text, v->length);
    *out = mica__jinja_bool(row != NULL);
    return MICA_OK;
}

const mica__jinja_builtin mica__jinja_tests[] = {
    {"defined", test_kind, "", 0, IS_DEFINED},
    {"undefined", test_kind, "", 0, IS_UNDEFINED},
    {"none", test_kind, "", 0, IS_NONE},
    {"boolean", test_kind, "", 0, IS_BOOLEAN},
    {"false", test_kind, "", 0, IS_FALSE},
    {"true", test_kind, "", 0, IS_TRUE},
    {"integer", test_kind, "", 0, IS_INTEGER},
    {"float", test_kind, "", 0, IS_FLOAT},
    {"number", test_kind, "", 0, IS_NUMBER},
    {"string", test_kind, "", 0, IS_STRING},
    {"mapping", test_kind, "", 0, IS_MAPPING},
    {"sequence", test_kind, "", 0, IS_SEQUENCE},
    {"iterable", test_kind, "", 0, IS_ITERABLE},
    {"callable", test_kind, "", 0, IS_CALLABLE},
    {"escaped", test_kind, "", 0, IS_ESCAPED},
    {"odd", test_parity, "", 0, 1},
    {"even", test_parity, "", 0, 0},
    {"divisibleby", test_divisible, "num", 1, 0},
    {"lower", test_case, "", 0, 0},
    {"upper", test_case, "", 0, 1},
    {"sameas", test_same, "other", 1, 0},
    {"filter", test_exists, "", 0, 0},
    {"test", test_exists, "", 0, 1},
    {"in", test_compare, "seq", 1, MICA__JINJA_OP_IN},
    {"==", test_compare, "other", 1, MICA__JINJA_OP_EQ},
    {"eq", test_compare, "other", 1, MICA__JINJA_OP_EQ},
    {"equalto", test_compare, "other", 1, MICA__JINJA_OP_EQ},
    {"!=", test_compare, "other", 1, MICA__JINJA_OP_NE},
    {"ne", test_compare, "other", 1, MICA__JINJA_OP_NE},
    {">", test_compare, "other", 1, MICA__JINJA_OP_GT},
    {"gt", test_compare, "other", 1, MICA__JINJA_OP_GT},
    {"greaterthan", test_compare, "other", 1, MICA__JINJA_OP_GT},
    {">=", test_compare, "other", 1, MICA__JINJA_OP_GE},
    {"ge", test_compare, "other", 1, MICA__JINJA_OP_GE},
    {"<", test_compare, "other", 1, MICA__JINJA_OP_LT},
    {"lt", test_compare, "other", 1, MICA__JINJA_OP_LT},
    {"lessthan", test_compare, "other", 1, MICA__JINJA_OP_LT},
    {"<=", test_compare, "other", 1, MICA__JINJA_OP_LE},
    {"le", test_compare, "other", 1, MICA__JINJA_OP_LE},
};
const size_t mica__jinja_test_count = sizeof mica__jinja_tests / sizeof *mica__jinja_tests;
