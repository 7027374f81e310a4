/* test_schema.c: JSON schemas as grammars: what matches, what is refused by name, and that whatever a random walk
 * through the masks writes is valid, by a validator of its own. */
#include "model/grammar_rig.h"

#include <math.h>
#include <stdio.h>

#include "base/json/json.h"

static mica_grammar *make(const char *schema)
{
    mica_grammar *grammar = NULL;
    const mica_status status = mica_grammar_from_schema(schema, strlen(schema), &grammar);
    if (status != MICA_OK)
        fail_msg("%s: %s", schema, mica_status_message());
    return grammar;
}

static int set_up(void **state)
{
    *state = rig_bytes();
    return 0;
}

static int tear_down(void **state)
{
    mica__vocabulary_release(*state);
    return mica_host_bytes() == 0 ? 0 : -1;
}

static void check(mica__vocabulary *bytes, const char *schema, const char *text, bool expected)
{
    mica_grammar *grammar = make(schema);
    if (rig_matches(grammar, bytes, text, strlen(text), NULL) != expected)
        fail_msg("%s: %s should %smatch", schema, text, expected ? "" : "not ");
    mica_grammar_release(grammar);
}

static void keywords_are_kept(void **state)
{
    static const struct {
        const char *schema, *yes[5], *no[6];
    } cases[] = {
        {"{}",
         {"1", "null", "[1,{\"a\":\"b\"}]", "-0.5e10", "\"\\u00e9\\n\""},
         {"01", "[1,]", "{a:1}", "\"\\ud800\"", "tru"}},
        {"true", {"{}"}, {"{"}},
        {"{\"type\":\"integer\"}", {"0", "-12", "9999999999999999"}, {"1.0", "01", "-", "\"1\""}},
        {"{\"type\":[\"boolean\",\"null\"]}", {"true", "false", "null"}, {"0", "\"\""}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\n\\u0041\""},
         {"\"a\"", "\"abcd\"", "ab"}},
        {"{\"enum\":[1,\"a\\\"b\",null,[1,{\"x\":2}]]}",
         {"1", "\"a\\\"b\"", "null", "[1,{\"x\":2}]"},
         {"2", "\"a\"", "[1]"}},
        {"{\"type\":\"string\",\"enum\":[1,\"a\"]}", {"\"a\""}, {"1"}},
        {"{\"const\":2.5}", {"2.5"}, {"2", "2.50"}},
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{},\"c\":{}},\"required\":[\"b\"]}",
         {"{\"b\":1}", "{\"a\":null,\"b\":1}", "{\"a\":null,\"b\":1,\"c\":2}", "{ \"b\": {}\n}",
          "{\n  \"b\": 1,\n  \"c\": 2\n}"},
         {"{}", "{\"a\":null}", "{\"b\":1,\"a\":null}", "{\"b\":1,\"x\":1}", "{\"a\":1,\"b\":1}",
          "{\"b\":1,}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"boolean\"}}",
         {"{}", "{\"a\":1}", "{\"b\":true}", "{\"a\":1,\"ab\":true,\"\":false}"},
         {"{\"b\":1}", "{\"a\":1,\"a\":true}", "{\"b\":true,\"a\":true}"}},
        {"{\"type\":\"object\",\"additionalProperties\":false}", {"{}"}, {"{\"a\":1}"}},
        {"{\"required\":[\"x\"]}", {"{\"x\":1}", "{\"x\":1,\"y\":2}"}, {"{}", "{\"y\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}",
         {"{}", "{\"b\":[]}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
         {"[1]", "[1,2,3]", "[1, 2]"},
         {"[]", "[1,2,3,4]", "[\"a\"]", "[1,]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{\"type\":\"null\"},"
         "\"minItems\":1}",
         {"[1]", "[1,\"a\"]", "[1,\"a\",null,null]"},
         {"[]", "[\"a\"]", "[1,\"a\",1]"}},
        {"{\"prefixItems\":[{\"type\":\"integer\"}],\"items\":false}", {"[]", "[1]"}, {"[1,2]"}},
        {"{\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{\"type\":\"null\"}}",
         {"[1,null]"},
         {"[1,1]"}},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
         {"1", "\"a\""},
         {"\"ab\"", "null"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{}},\"anyOf\":[{\"required\":[\"a\"]},{"
         "\"required\":[\"b\"]}]}",
         {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
         {"{}"}},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", {"1", "\"\""}, {"null"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{}},\"required\":["
         "\"k\"]},"
         "{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":[\"k\"]}]}",
         {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\"}"},
         {"{\"k\":\"c\"}", "{\"k\":\"b\",\"x\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}},\"required\":[\"a\"]},"
         "{\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":5},\"b\":{}}}]}",
         {"{\"a\":4}", "{\"a\":5,\"b\":1}"},
         {"{\"a\":2}", "{\"a\":6}", "{\"b\":1}"}},
        {"{\"$ref\":\"#/$defs/"
         "t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
         "\"l\":{\"$ref\":\"#/$defs/t\"}},\"required\":[\"v\"]}}}",
         {"{\"v\":1}", "{\"v\":1,\"l\":{\"v\":2,\"l\":{\"v\":3}}}"},
         {"{\"v\":1,\"l\":{}}"}},
        {"{\"properties\":{\"a/b\":{\"type\":\"null\"},\"c\":{\"$ref\":\"#/properties/a~1b\"}}}",
         {"{\"c\":null}"},
         {"{\"c\":1}"}},
        {"{\"type\":\"string\",\"pattern\":\"^a[b-d]{2}\\\\d*(x|yy)?$\"}",
         {"\"abc\"", "\"add42yy\""},
         {"\"ab\"", "\"abcz\""}},
        {"{\"type\":\"string\",\"pattern\":\"b+$|^c\"}", {"\"aabb\"", "\"cxyz\""}, {"\"bba\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[^a\\\"]\\\\\\\\.$\"}",
         {"\"b\\\\x\""},
         {"\"a\\\\x\"", "\"\\\"\\\\x\""}},
        {"{\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-1-1\""}},
        {"{\"format\":\"date-time\"}",
         {"\"2024-01-01T23:59:59Z\"", "\"2024-01-01T00:00:00.5+02:00\""},
         {"\"2024-01-01T24:00:00Z\"", "\"2024-01-01\""}},
        {"{\"format\":\"uuid\"}", {"\"01234567-89ab-cdef-0123-456789ABCDEF\""}, {"\"01234567\""}},
        {"{\"format\":\"ipv4\"}", {"\"255.0.10.199\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
        {"{\"type\":\"number\",\"minimum\":-1,\"exclusiveMaximum\":2}",
         {"-1", "-1.0", "-0.99", "0", "1.999"},
         {"2", "-1.01", "2.0", "-2", "1e5"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0}",
         {"0.1", "0.001", "12.5"},
         {"0", "0.0", "-1", "-0.5"}},
        {"{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[1],\"type\":\"null\"}",
         {"null"},
         {"1"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t k = 0; k < 5 && cases[i].yes[k] != NULL; k++)
            check(*state, cases[i].schema, cases[i].yes[k], true);
        for (size_t k = 0; k < 6 && cases[i].no[k] != NULL; k++)
            check(*state, cases[i].schema, cases[i].no[k], false);
    }
}

/* Every whole number near the bounds. */
static void integer_ranges_are_exact(void **state)
{
    static const int bounds[][2] = {{0, 0},     {-1, 1},       {5, 5},       {0, 9},
                                    {7, 123},   {-123, -7},    {-999, 999},  {100, 199},
                                    {99, 1000}, {-1001, 1010}, {-10, 101},   {880, 1120},
                                    {1, 1199},  {-5, 2000},    {-1200, -99}, {1000, 1000}};
    char schema[128], text[16];
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        for (int open = 0; open < 2; open++) {
            mica_grammar *grammar;
            snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"%s\":%d,\"%s\":%d}",
                     open ? "exclusiveMinimum" : "minimum", bounds[b][0] - open,
                     open ? "exclusiveMaximum" : "maximum", bounds[b][1] + open);
            grammar = make(schema);
            for (int value = -1250; value <= 1250; value++) {
                snprintf(text, sizeof text, "%d", value);
                if (rig_matches(grammar, *state, text, strlen(text), NULL) !=
                    (value >= bounds[b][0] && value <= bounds[b][1]))
                    fail_msg("%s: %d", schema, value);
            }
            mica_grammar_release(grammar);
        }
    }
    check(*state, "{\"type\":\"integer\",\"minimum\":17.2}", "17", false);
    check(*state, "{\"type\":\"integer\",\"minimum\":17.2}", "18", true);
    check(*state, "{\"type\":\"integer\",\"minimum\":12345}", "12344", false);
    check(*state, "{\"type\":\"integer\",\"minimum\":12345}", "9999999999999999", true);
    check(*state, "{\"type\":\"integer\",\"maximum\":-12345}", "-12344", false);
    check(*state, "{\"type\":\"integer\",\"maximum\":-12345}", "-900000", true);
}

static void refusals_name_the_keyword(void **state)
{
    static const struct {
        const char *schema, *word;
        mica_status code;
    } cases[] = {
        {"{\"not\":{}}", "not is", MICA_ERR_UNSUPPORTED},
        {"{\"properties\":{\"a\":{\"if\":{}}}}", "#/properties/a", MICA_ERR_UNSUPPORTED},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems", MICA_ERR_UNSUPPORTED},
        {"{\"type\":\"number\",\"multipleOf\":2}", "multipleOf", MICA_ERR_UNSUPPORTED},
        {"{\"patternProperties\":{}}", "patternProperties", MICA_ERR_UNSUPPORTED},
        {"{\"made-up\":1}", "made-up", MICA_ERR_UNSUPPORTED},
        {"{\"format\":\"iris\"}", "format", MICA_ERR_UNSUPPORTED},
        {"{\"type\":\"number\",\"minimum\":0.5}", "minimum", MICA_ERR_UNSUPPORTED},
        {"{\"pattern\":\"(?=a)b\"}", "looks around", MICA_ERR_UNSUPPORTED},
        {"{\"pattern\":\"(a)\\\\1\"}", "escape", MICA_ERR_UNSUPPORTED},
        {"{\"pattern\":\"a\",\"minLength\":3}", "pattern", MICA_ERR_UNSUPPORTED},
        {"{\"enum\":[1],\"minimum\":3}", "minimum", MICA_ERR_UNSUPPORTED},
        {"{\"$ref\":\"other.json\"}", "$ref", MICA_ERR_UNSUPPORTED},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf", MICA_ERR_UNSUPPORTED},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":[\"k\"]},{\"type\":\"object\",\"properties\":{"
         "\"k\":{}}}]}",
         "oneOf", MICA_ERR_UNSUPPORTED},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":[{\"const\":1}]},{\"type\":\"object\"}]}", "oneOf",
         MICA_ERR_UNSUPPORTED},
        {"{\"$ref\":\"#/$defs/a\"}", "points to nothing", MICA_ERR_INVALID_ARGUMENT},
        {"{\"type\":\"text\"}", "type", MICA_ERR_INVALID_ARGUMENT},
        {"{\"required\":\"a\"}", "required", MICA_ERR_INVALID_ARGUMENT},
        {"{\"minItems\":-1}", "minItems", MICA_ERR_INVALID_ARGUMENT},
        {"{\"anyOf\":[]}", "anyOf", MICA_ERR_INVALID_ARGUMENT},
        {"{\"properties\":{\"a\":3}}", "a schema should be", MICA_ERR_INVALID_ARGUMENT},
        {"[1]", "a schema should be", MICA_ERR_INVALID_ARGUMENT},
        {"{", "schema", MICA_ERR_INVALID_ARGUMENT},
        {"false", "no value", MICA_ERR_INVALID_ARGUMENT},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no value", MICA_ERR_INVALID_ARGUMENT},
        {"{\"$ref\":\"#\"}", "itself", MICA_ERR_INVALID_ARGUMENT},
        {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"}],\"$defs\":{\"a\":{\"$ref\":\"#\"}}}", "itself",
         MICA_ERR_INVALID_ARGUMENT},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "itself", MICA_ERR_INVALID_ARGUMENT},
        {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no value",
         MICA_ERR_INVALID_ARGUMENT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mica_grammar *grammar = NULL;
        refused(mica_grammar_from_schema(cases[i].schema, strlen(cases[i].schema), &grammar), cases[i].code,
                cases[i].word);
        assert_null(grammar);
    }
    assert_int_equal(mica_host_bytes(), 0);
}

/* ---- a validator of its own ----------------------------------------------------------------------------- */

typedef struct validator {
    const mica__json *schema, *value;
} validator;

static bool equal(const validator *v, const mica__json_node *a, const mica__json_node *b)
{
    if (a->type != b->type || (a->type >= MICA__JSON_ARRAY && a->child_count != b->child_count))
        return false;
    if (a->type == MICA__JSON_NUMBER)
        return a->number.real == b->number.real;
    if (a->type == MICA__JSON_STRING)
        return a->string.length == b->string.length &&
               memcmp(a->string.data, b->string.data, a->string.length) == 0;
    const mica__json_node *y = mica__json_first(b);
    for (const mica__json_node *x = mica__json_first(a); x != NULL; x = mica__json_next(v->schema, x)) {
        if (a->type == MICA__JSON_OBJECT)
            y = mica__json_get(v->value, b, x->key);
        if (y == NULL || !equal(v, x, y))
            return false;
        if (a->type == MICA__JSON_ARRAY)
            y = mica__json_next(v->value, y);
    }
    return true;
}

static bool is_type(const mica__json_node *value, const char *name)
{
    static const char *const names[] = {"null", "boolean", "boolean", "number", "string", "array", "object"};
    if (strcmp(name, "integer") == 0)
        return value->type == MICA__JSON_NUMBER && value->number.real == floor(value->number.real);
    return strcmp(names[value->type], name) == 0;
}

static uint64_t characters(const mica__json_node *value)
{
    uint64_t count = 0;
    for (size_t i = 0; i < value->string.length; i++)
        count += ((unsigned char)value->string.data[i] & 0xc0) != 0x80;
    return count;
}

static bool valid(const validator *v, const mica__json_node *schema, const mica__json_node *value);

static bool valid_object(const validator *v, const mica__json_node *schema, const mica__json_node *value)
{
    const mica__json_node *properties = mica__json_get(v->schema, schema, "properties");
    const mica__json_node *others = mica__json_get(v->schema, schema, "additionalProperties");
    const mica__json_node *required = mica__json_get(v->schema, schema, "required");
    for (const mica__json_node *p = mica__json_first(value); p != NULL; p = mica__json_next(v->value, p)) {
        const mica__json_node *says = mica__json_get(v->schema, properties, p->key);
        says = says == NULL ? others : says;
        if (says != NULL && !valid(v, says, p))
            return false;
    }
    for (const mica__json_node *n = required == NULL ? NULL : mica__json_first(required); n != NULL;
         n = mica__json_next(v->schema, n))
        if (mica__json_get(v->value, value, n->string.data) == NULL)
            return false;
    return true;
}

static bool valid_array(const validator *v, const mica__json_node *schema, const mica__json_node *value)
{
    const mica__json_node *prefix = mica__json_get(v->schema, schema, "prefixItems");
    const mica__json_node *items = mica__json_get(v->schema, schema, "items");
    const mica__json_node *least = mica__json_get(v->schema, schema, "minItems");
    const mica__json_node *most = mica__json_get(v->schema, schema, "maxItems");
    const mica__json_node *place = prefix == NULL ? NULL : mica__json_first(prefix);
    if ((least != NULL && value->child_count < least->number.real) ||
        (most != NULL && value->child_count > most->number.real))
        return false;
    for (const mica__json_node *x = mica__json_first(value); x != NULL; x = mica__json_next(v->value, x)) {
        const mica__json_node *says = place != NULL ? place : items;
        if (says != NULL && !valid(v, says, x))
            return false;
        place = place == NULL ? NULL : mica__json_next(v->schema, place);
    }
    return true;
}

static bool valid_number(const validator *v, const mica__json_node *schema, double x)
{
    const mica__json_node *b;
    return !((b = mica__json_get(v->schema, schema, "minimum")) != NULL && x < b->number.real) &&
           !((b = mica__json_get(v->schema, schema, "maximum")) != NULL && x > b->number.real) &&
           !((b = mica__json_get(v->schema, schema, "exclusiveMinimum")) != NULL && x <= b->number.real) &&
           !((b = mica__json_get(v->schema, schema, "exclusiveMaximum")) != NULL && x >= b->number.real);
}

/* anyOf: one is enough; allOf: all; enum: one equals. */
static bool valid_lists(const validator *v, const mica__json_node *schema, const mica__json_node *value)
{
    const mica__json_node *any = mica__json_get(v->schema, schema, "anyOf");
    const mica__json_node *all = mica__json_get(v->schema, schema, "allOf");
    const mica__json_node *list = mica__json_get(v->schema, schema, "enum");
    bool some = any == NULL, member = list == NULL;
    for (const mica__json_node *s = any == NULL ? NULL : mica__json_first(any); s != NULL && !some;
         s = mica__json_next(v->schema, s))
        some = valid(v, s, value);
    for (const mica__json_node *s = all == NULL ? NULL : mica__json_first(all); s != NULL;
         s = mica__json_next(v->schema, s))
        some = some && valid(v, s, value);
    for (const mica__json_node *s = list == NULL ? NULL : mica__json_first(list); s != NULL && !member;
         s = mica__json_next(v->schema, s))
        member = equal(v, s, value);
    return some && member;
}

static bool valid(const validator *v, const mica__json_node *schema, const mica__json_node *value)
{
    const mica__json_node *type = mica__json_get(v->schema, schema, "type");
    const mica__json_node *ref = mica__json_get(v->schema, schema, "$ref");
    const mica__json_node *least = mica__json_get(v->schema, schema, "minLength");
    const mica__json_node *most = mica__json_get(v->schema, schema, "maxLength");
    if (schema->type != MICA__JSON_OBJECT)
        return schema->type == MICA__JSON_TRUE;
    if (type != NULL && type->type == MICA__JSON_STRING && !is_type(value, type->string.data))
        return false;
    if (type != NULL && type->type == MICA__JSON_ARRAY) {
        bool some = false;
        for (const mica__json_node *t = mica__json_first(type); t != NULL; t = mica__json_next(v->schema, t))
            some |= is_type(value, t->string.data);
        if (!some)
            return false;
    }
    if (ref != NULL) { /* all are #/$defs/NAME here */
        const mica__json_node *defs = mica__json_get(v->schema, mica__json_root(v->schema), "$defs");
        if (!valid(v, mica__json_get(v->schema, defs, ref->string.data + 8), value))
            return false;
    }
    if (value->type == MICA__JSON_STRING && ((least != NULL && characters(value) < least->number.real) ||
                                             (most != NULL && characters(value) > most->number.real)))
        return false;
    if (value->type == MICA__JSON_NUMBER && !valid_number(v, schema, value->number.real))
        return false;
    if (value->type == MICA__JSON_OBJECT && !valid_object(v, schema, value))
        return false;
    if (value->type == MICA__JSON_ARRAY && !valid_array(v, schema, value))
        return false;
    return valid_lists(v, schema, value);
}

/* ---- walks ---------------------------------------------------------------------------------------------- */

static const char *const walked[] = {
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":{\"type\":"
    "\"integer\","
    "\"minimum\":-3,\"maximum\":150}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"type\":\"number\",\"minimum\":-17,\"exclusiveMaximum\":1234},"
    "\"minItems\":2,\"maxItems\":6}",
    "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":"
    "[{\"$ref\":"
    "\"#/$defs/n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/$defs/n\"}",
    "{\"anyOf\":[{\"type\":\"string\",\"minLength\":2,\"maxLength\":5},{\"type\":\"number\"},{\"type\":"
    "\"array\","
    "\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"boolean\"}],\"items\":{\"type\":\"null\"},"
    "\"minItems\":1}]}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1,\"x\",null,{\"k\":[1,2.5]}]},\"b\":{\"type\":["
    "\"null\","
    "\"boolean\"]},\"c\":false,\"\xc3\xa9 \\\"\":{\"type\":\"string\"}},\"required\":[\"a\"]}",
    "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{"
    "\"type\":"
    "\"object\",\"properties\":{\"a\":{\"maximum\":-5},\"b\":{\"type\":\"string\",\"minLength\":1}}}]}",
    "{\"type\":\"integer\",\"exclusiveMinimum\":-1000,\"maximum\":-7}",
};

/* Prefers what closes once the text is long, so that every walk ends. */
static uint32_t pick(test_random *random, const mica__vocabulary *v, const uint32_t *mask, size_t length)
{
    uint32_t legal = 0, closing = 0, any = MICA_NO_TOKEN, closer = MICA_NO_TOKEN;
    for (uint32_t id = 0; id < v->count; id++) {
        if ((mask[id / 32] >> id % 32 & 1) == 0)
            continue;
        if (test_random_below(random, ++legal) == 0)
            any = id;
        if (v->ends[id] || (v->offsets[id + 1] - v->offsets[id] == 1 &&
                            memchr("\"]}l", v->bytes[v->offsets[id]], 4) != NULL))
            if (test_random_below(random, ++closing) == 0)
                closer = id;
    }
    return closing != 0 && length > 60 && !test_random_one_in(random, 8) ? closer : any;
}

/* One text that the grammar admits; its length. */
static size_t write_text(test_random *random, mica_grammar_state *s, const mica__vocabulary *v,
                         uint32_t *mask, char *text, size_t capacity)
{
    size_t length = 0;
    mica_grammar_reset(s);
    for (;;) {
        uint32_t id, size;
        must(mica_grammar_mask(s, mask, v->count / 32 + 1));
        id = pick(random, v, mask, length);
        if (id == MICA_NO_TOKEN) { /* a vocabulary without an end token */
            assert_true(mica_grammar_may_end(s));
            return length;
        }
        must(mica_grammar_accept(s, id));
        if (v->ends[id])
            return length;
        size = v->offsets[id + 1] - v->offsets[id];
        assert_true(length + size < capacity);
        memcpy(text + length, v->bytes + v->offsets[id], size);
        length += size;
    }
}

static void walk(mica__vocabulary *v, uint32_t texts, uint64_t seed)
{
    test_random random = test_random_from(seed);
    char *text = malloc(1 << 20);
    uint32_t *mask = malloc((v->count / 32 + 1) * sizeof *mask);
    for (size_t i = 0; i < sizeof walked / sizeof *walked; i++) {
        mica_grammar *grammar = make(walked[i]);
        mica_grammar_state *s = NULL;
        mica__json *schema = NULL;
        must(mica__grammar_begin(grammar, v, &s));
        must(mica__json_parse(walked[i], strlen(walked[i]), NULL, &schema));
        for (uint32_t n = 0; n < texts; n++) {
            const size_t length = write_text(&random, s, v, mask, text, 1 << 20);
            mica__json *value = NULL;
            const mica_status status = mica__json_parse(text, length, NULL, &value);
            const validator both = {schema, value};
            if (status != MICA_OK || !valid(&both, mica__json_root(schema), mica__json_root(value)))
                fail_msg("%s: wrote %.*s", walked[i], (int)length, text);
            mica__json_release(value);
        }
        mica__json_release(schema);
        mica_grammar_state_release(s);
        mica_grammar_release(grammar);
    }
    free(text);
    free(mask);
}

static void walks_over_bytes_are_valid(void **state)
{
    walk(*state, 150, 1);
}

/* The same over real vocabularies, where tokens cross all borders. */
static void walks_over_tokens_are_valid(void **state)
{
    static const char *const names[] = {"llama-spm", "gpt-2"};
    const char *given = getenv("MICA_TEST_DATA");
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        mica_weights *weights = NULL;
        mica_tokenizer *tokenizer = NULL;
        mica__vocabulary *v = NULL;
        snprintf(path, sizeof path, "%s/tokenizers/%s.gguf", given != NULL ? given : "../shared/data",
                 names[i]);
        FILE *file = fopen(path, "rb");
        if (file == NULL) {
            print_message("skipped: there is no %s (MICA_TEST_DATA names the folder)\n", path);
            skip();
        }
        fclose(file);
        must(mica_weights_open(path, NULL, &weights));
        must(mica_tokenizer_create(weights, &tokenizer));
        mica_weights_release(weights);
        must(mica__vocabulary_of(tokenizer, &v));
        mica_tokenizer_release(tokenizer); /* the vocabulary keeps it */
        walk(v, 25, 2 + i);
        mica__vocabulary_release(v);
    }
    assert_int_equal(mica_host_bytes(), 0);
}

/* ---- hostile -------------------------------------------------------------------------------------------- */

static void hostile_schemas_are_bounded(void **state)
{
    char *text = malloc(1 << 21), *at = text;
    mica_grammar *grammar = NULL;
    (void)state;
    for (uint32_t i = 0; i < 100000; i++)
        at += sprintf(at, "{\"items\":");
    assert_int_equal(mica_grammar_from_schema(text, (uint64_t)(at - text), &grammar), MICA_ERR_BUDGET);
    /* 12 choices of 4 each hold at once: more views than are allowed. */
    at = text + sprintf(text, "{\"allOf\":[");
    for (uint32_t i = 0; i < 12; i++)
        at += sprintf(
            at, "%s{\"anyOf\":[{\"minLength\":1},{\"minLength\":2},{\"minLength\":3},{\"minLength\":4}]}",
            i == 0 ? "" : ",");
    at += sprintf(at, "]}");
    refused(mica_grammar_from_schema(text, (uint64_t)(at - text), &grammar), MICA_ERR_BUDGET, "places");
    /* A chain of references. */
    at = text + sprintf(text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (uint32_t i = 0; i < 1000; i++)
        at += sprintf(at, "\"d%u\":{\"$ref\":\"#/$defs/d%u\"},", i, i + 1);
    at += sprintf(at, "\"d1000\":{}}}");
    must(mica_grammar_from_schema(text, (uint64_t)(at - text), &grammar));
    mica_grammar_release(grammar);
    /* Each of forty asks for the next one twice: a trillion ways to the last, which is one place. */
    at = text + sprintf(text, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (uint32_t i = 0; i < 40; i++)
        at += sprintf(at, "\"d%u\":{\"allOf\":[{\"$ref\":\"#/$defs/d%u\"},{\"$ref\":\"#/$defs/d%u\"}]},", i,
                      i + 1, i + 1);
    at += sprintf(at, "\"d40\":{\"type\":\"null\"}}}");
    must(mica_grammar_from_schema(text, (uint64_t)(at - text), &grammar));
    assert_true(rig_matches(grammar, *state, "null", 4, NULL));
    assert_false(rig_matches(grammar, *state, "true", 4, NULL));
    mica_grammar_release(grammar);
    /* Many properties, all optional. */
    at = text + sprintf(text, "{\"additionalProperties\":true,\"properties\":{");
    for (uint32_t i = 0; i < 1500; i++)
        at += sprintf(at, "%s\"p%u\":{\"type\":\"integer\"}", i == 0 ? "" : ",", i);
    at += sprintf(at, "}}");
    must(mica_grammar_from_schema(text, (uint64_t)(at - text), &grammar));
    assert_true(rig_matches(grammar, *state, "{\"p3\":1,\"p999\":2,\"p\":\"x\"}", 25, NULL));
    assert_false(rig_matches(grammar, *state, "{\"p999\":2,\"p3\":1}", 17, NULL));
    mica_grammar_release(grammar);
    free(text);
}

static mica_status play(void *context)
{
    mica_grammar *grammar = NULL;
    const char *schema = context;
    const mica_status status = mica_grammar_from_schema(schema, strlen(schema), &grammar);
    mica_grammar_release(grammar);
    return status;
}

static void allocations_may_fail(void **state)
{
    static char schema[] =
        "{\"$defs\":{\"s\":{\"type\":\"string\",\"pattern\":\"^a[b-c]+$\"}},\"anyOf\":[{\"type\":\"object\","
        "\"properties\":{\"k\":{\"$ref\":\"#/$defs/"
        "s\"},\"l\":{\"enum\":[1,\"x\"]}},\"additionalProperties\":true},"
        "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\",\"minimum\":7}],\"items\":{}}]}";
    mica__vocabulary_release(*state); /* nothing may live while the allocator changes */
    assert_true(rig_fail_allocations(play, schema) > 30);
    *state = rig_bytes();
}

/* Cut and mutated schemas give a grammar or a sentence. */
static void mutations_are_survived(void **state)
{
    test_random random = test_random_from(99);
    char text[600];
    (void)state;
    for (uint32_t round = 0; round < 4000; round++) {
        const char *source = walked[round % (sizeof walked / sizeof *walked)];
        size_t length = strlen(source);
        mica_grammar *grammar = NULL;
        memcpy(text, source, length);
        for (uint32_t i = 0; i < 1 + round % 3; i++)
            text[test_random_below(&random, length)] = (char)(32 + test_random_below(&random, 95));
        const mica_status status = mica_grammar_from_schema(text, length, &grammar);
        assert_true((status == MICA_OK) == (grammar != NULL));
        mica_grammar_release(grammar);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keywords_are_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(integer_ranges_are_exact, set_up, tear_down),
        cmocka_unit_test(refusals_name_the_keyword),
        cmocka_unit_test_setup_teardown(walks_over_bytes_are_valid, set_up, tear_down),
        cmocka_unit_test(walks_over_tokens_are_valid),
        cmocka_unit_test_setup_teardown(hostile_schemas_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(allocations_may_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(mutations_are_survived, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
