/* test_template.c - chat templates: the doors, what is wrong with a template and where, limits, memory that runs out. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/meter.h"
#include "support/random.h"
#include "support/sanitizer.h"
#include "support/status.h"

#include "mica/host.h"
#include "mica/text.h"

static mica_status render_with(const char *text, uint64_t length, const mica_template_options *options,
                               const char *variables, char **out, uint64_t *out_length)
{
    mica_template *template = NULL;
    *out = NULL;
    mica_status status = mica_template_create(text, length, options, &template);
    if (status == MICA_OK)
        status = mica_template_render(template, variables, strlen(variables), out, out_length);
    mica_template_release(template);
    return status;
}

static mica_status render(const char *text, const char *variables)
{
    char *out = NULL;
    uint64_t length = 0;
    const mica_status status = render_with(text, strlen(text), NULL, variables, &out, &length);
    mica_text_free(out);
    return status;
}

#define gives(text, variables, wanted) gives_at((text), (variables), (wanted), __FILE__, __LINE__)
static void gives_at(const char *text, const char *variables, const char *wanted, const char *file, int line)
{
    char *out = NULL;
    uint64_t length = 0;
    must_at(render_with(text, strlen(text), NULL, variables, &out, &length), text, file, line);
    if (length != strlen(wanted) || memcmp(out, wanted, length + 1) != 0) {
        print_error("%s gave \"%s\", wanted \"%s\"\n", text, out, wanted);
        _fail(file, line);
    }
    mica_text_free(out);
}

/* ---- the doors ---- */

static void test_doors(void **state)
{
    (void)state;
    mica_template *template = (mica_template *)&template;
    char *out = (char *)&template;
    uint64_t length = 1;
    refused(mica_template_create("x", 1, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_template");
    refused(mica_template_create(NULL, 1, NULL, &template), MICA_ERR_INVALID_ARGUMENT, "text is NULL");
    assert_null(template);
    const mica_template_options small = {.size = 4};
    refused(mica_template_create("x", 1, &small, &template), MICA_ERR_INVALID_ARGUMENT, "size");
    refused(mica_template_create("x", UINT64_MAX, NULL, &template), MICA_ERR_BUDGET, "bytes");
    must(mica_template_create(NULL, 0, NULL, &template));
    refused(mica_template_render(NULL, "{}", 2, &out, &length), MICA_ERR_INVALID_ARGUMENT, "chat_template");
    assert_null(out);
    assert_int_equal(length, 0);
    refused(mica_template_render(template, NULL, 2, &out, &length), MICA_ERR_INVALID_ARGUMENT, "variables");
    refused(mica_template_render(template, "{}", 2, NULL, &length), MICA_ERR_INVALID_ARGUMENT, "out_text");
    refused(mica_template_render(template, "{}", 2, &out, NULL), MICA_ERR_INVALID_ARGUMENT, "out_length");
    must(mica_template_render(template, "{}", 2, &out, &length));
    assert_string_equal(out, "");
    mica_text_free(out);
    mica_template_release(template);
    mica_template_release(NULL);
    mica_text_free(NULL);
}

static void test_variables(void **state)
{
    (void)state;
    refused(render("x", "not json"), MICA_ERR_INVALID_ARGUMENT, "no JSON");
    refused(render("x", ""), MICA_ERR_INVALID_ARGUMENT, "no JSON");
    refused(render("x", "{\"a\": \"\xff\"}"), MICA_ERR_INVALID_ARGUMENT, "no JSON");
    refused(render("x", "[1]"), MICA_ERR_INVALID_ARGUMENT, "an object is expected");
    refused(render("x", "\"messages\""), MICA_ERR_INVALID_ARGUMENT, "an object is expected");
    gives("{{ a }}{{ b }}", "{\"b\": 1, \"a\": [\"\\u00e9\", null]}", "['\xc3\xa9', None]1");
    gives("{% for k in a %}{{ k }}{% endfor %}", "{\"a\": {\"z\": 1, \"b\": 2, \"a\": 3}}", "zba");
    gives("{{ range }}", "{\"range\": 5}", "5");
    gives("{{ a|length }}", "{\"a\": \"x\\u0000y\"}", "3");
    gives("{{ a }}", "{\"a\": 18446744073709551615}", "18446744073709551615");
}

/* A rendering changes nothing that the next could see. */
static void test_again(void **state)
{
    (void)state;
    static const char text[] =
        "{% set x = (x or 0) + n %}{{ x }}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}";
    mica_template *template = NULL;
    must(mica_template_create(text, sizeof text - 1, NULL, &template));
    for (int i = 0; i < 3; i++) {
        char *out = NULL;
        uint64_t length = 0;
        must(mica_template_render(template, "{\"n\": 4}", 8, &out, &length));
        assert_string_equal(out, "44");
        mica_text_free(out);
    }
    mica_template_release(template);
}

static void test_clock(void **state)
{
    (void)state;
    static const struct {
        int64_t now;
        const char *format, *wanted;
    } rows[] = {
        {1, "%Y-%m-%d %H:%M:%S %a %j", "1970-01-01 00:00:01 Thu 001"},
        {951782400, "%d %B %Y %A %U %W %V %G", "29 February 2000 Tuesday 09 09 09 2000"},
        {1609459199, "%F %T %p %I %V %G", "2020-12-31 23:59:59 PM 11 53 2020"},
        {1609459200, "%F %V %G %u", "2021-01-01 53 2020 5"},
        {-86400, "%F", "1969-12-31"},
        {253402300799, "%Y", "9999"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const mica_template_options options = {.size = sizeof options, .now = rows[i].now};
        char text[96], *out = NULL;
        uint64_t length = 0;
        const int size = snprintf(text, sizeof text, "{{ strftime_now('%s') }}", rows[i].format);
        must(render_with(text, (uint64_t)size, &options, "{}", &out, &length));
        assert_string_equal(out, rows[i].wanted);
        mica_text_free(out);
    }
    refused(render("{{ strftime_now('%Q') }}", "{}"), MICA_ERR_UNSUPPORTED, "%Q");
    assert_int_equal(render("{{ strftime_now('%Y') }}", "{}"), MICA_OK);
}

/* ---- what is wrong, and where ---- */

static void test_syntax(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mica_status code;
        const char *place, *words;
    } rows[] = {
        {"{{", MICA_ERR_INVALID_ARGUMENT, "line 1, column 3", "expected an expression"},
        {"a\nbc {{ n", MICA_ERR_INVALID_ARGUMENT, "line 2, column 8", "expected \"}}\", found the end"},
        {"\n\n  {% if %}", MICA_ERR_INVALID_ARGUMENT, "line 3, column 9", "expected an expression"},
        {"x\n{% if a %}\n y", MICA_ERR_INVALID_ARGUMENT, "line 2, column 4", "endif"},
        {"{% for a in b %}{% if c %}{% endfor %}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 30", "endfor"},
        {"{% endfor %}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 4", "endfor"},
        {"{% else %}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 4", "else"},
        {"\xc3\xa9\xc3\xa9{{ ) }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 6", "unexpected ')'"},
        {"{{ (1] }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 6", "expected ')'"},
        {"{{ 'abc }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 4", "no end"},
        {"{{ 1\n+ 'a\nb }}", MICA_ERR_INVALID_ARGUMENT, "line 2, column 3", "no end"},
        {"{# x", MICA_ERR_INVALID_ARGUMENT, "line 1, column 1", "comment"},
        {"{% raw %} x", MICA_ERR_INVALID_ARGUMENT, "line 1, column 10", "endraw"},
        {"{{ a $ b }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 6", "\"$\""},
        {"{{ a b }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 6", "found \"b\""},
        {"{{ a| }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 7", "name of a filter"},
        {"{{ a is }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 9", "name of a test"},
        {"{{ a. }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 7", "a name or a number"},
        {"{{ f(a=1, 2) }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 11", "argument"},
        {"{% set 1 = 2 %}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 8", "assign"},
        {"{% set none = 2 %}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 8", "none"},
        {"{% macro m(a=1, b) %}{% endmacro %}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 17", "default"},
        {"{% call x %}{% endcall %}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 4", "call"},
        {"{% break %}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 4", "loop"},
        {"{% for a in b %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}", MICA_ERR_INVALID_ARGUMENT,
         "line 1, column 35", "loop"},
        {"{{ '\\ud800' }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 5", "escape"},
        {"{{ 99999999999999999999 }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 4", "64 bits"},
        {"a\xff", MICA_ERR_INVALID_ARGUMENT, "line 1, column 2", "UTF-8"},
        {"ab\n{{ '\xc3' }}", MICA_ERR_INVALID_ARGUMENT, "line 2, column 5", "UTF-8"},
        {"{{ a is odd is even }}", MICA_ERR_INVALID_ARGUMENT, "line 1, column 13", "is"},
        {"\n{% include 'x' %}", MICA_ERR_UNSUPPORTED, "line 2, column 4", "\"include\""},
        {"{% do x %}", MICA_ERR_UNSUPPORTED, "line 1, column 4", "\"do\""},
        {"{{ a|nope }}", MICA_ERR_UNSUPPORTED, "line 1, column 6", "filter \"nope\""},
        {"{{ a is nope }}", MICA_ERR_UNSUPPORTED, "line 1, column 9", "test \"nope\""},
        {"{% for a in b recursive %}{% endfor %}", MICA_ERR_UNSUPPORTED, "line 1, column 15", "recursive"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        mica_template *template = (mica_template *)&state;
        const mica_status status = mica_template_create(rows[i].text, strlen(rows[i].text), NULL, &template);
        assert_null(template);
        if (status != rows[i].code || strstr(mica_status_message(), rows[i].place) == NULL ||
            strstr(mica_status_message(), rows[i].words) == NULL)
            fail_msg("%s: %s (%s), wanted %s: %s", rows[i].text, mica_status_name(status),
                     mica_status_message(), rows[i].place, rows[i].words);
    }
    assert_int_equal(mica_host_allocations(), 0);
}

static void test_raised(void **state)
{
    (void)state;
    refused(render("a\n {{ raise_exception('roles must ' ~ 'alternate') }}", "{}"), MICA_ERR_INVALID_ARGUMENT,
            "line 2, column 5: roles must alternate");
    refused(render("{{ x.y.z }}", "{\"x\": {}}"), MICA_ERR_INVALID_ARGUMENT,
            "line 1, column 7: 'dict object' has no attribute 'y'");
    refused(render("\n\n{{ 1 + none }}", "{}"), MICA_ERR_INVALID_ARGUMENT, "line 3, column 6");
    refused(render("{% set l = [] %}{{ l.append(1) }}", "{}"), MICA_ERR_INVALID_ARGUMENT,
            "access to attribute 'append' of 'list' object is unsafe");
    refused(render("{{ namespace(_a=1) }}", "{}"), MICA_ERR_INVALID_ARGUMENT, "underscore");
    refused(render("{% set n = namespace() %}{% set n._a = 1 %}", "{}"), MICA_ERR_INVALID_ARGUMENT,
            "underscore");
    refused(render("{{ ''.encode() }}", "{}"), MICA_ERR_UNSUPPORTED, "encode");
    refused(render("{{ lipsum() }}", "{}"), MICA_ERR_UNSUPPORTED, "lipsum");
    refused(render("{% if true %}{{ 1|nope }}{% endif %}", "{}"), MICA_ERR_UNSUPPORTED,
            "line 1, column 19: the filter");
    gives("{% if false %}{{ 1|nope }}{% endif %}ok", "{}", "ok");
    gives("{{ 1|nope.dotted if false else 'ok' }}", "{}", "ok");
    refused(render("{{ 1|nope if true else 'ok' }}", "{}"), MICA_ERR_UNSUPPORTED, "\"nope\"");
    refused(render("{% for x in y|nope %}{{ 1 if x else 2 }}{% endfor %}", "{}"), MICA_ERR_UNSUPPORTED,
            "\"nope\"");
    refused(render("{{ 9223372036854775807 + 1 }}", "{}"), MICA_ERR_UNSUPPORTED, "64 bits");
    /* A message of any length is cut, not overrun. */
    char long_text[3000];
    memset(long_text, 'm', sizeof long_text);
    memcpy(long_text, "{{ raise_exception('", 20);
    memcpy(long_text + sizeof long_text - 6, "') }}", 6);
    refused(render(long_text, "{}"), MICA_ERR_INVALID_ARGUMENT, "mmmmmmmmmm");
}

/* ---- limits ---- */

/* `before`, then `what` so many times, then `after`; the caller frees it. */
static char *repeated(const char *before, const char *what, size_t times, const char *after)
{
    const size_t length = strlen(what);
    char *text = malloc(strlen(before) + length * times + strlen(after) + 1), *at = text;
    assert_non_null(text);
    at += strlen(strcpy(at, before));
    for (size_t i = 0; i < times; i++, at += length)
        memcpy(at, what, length);
    strcpy(at, after);
    return text;
}

static void test_deep(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"{{ ", "(", ""},
        {"{{ ", "[", ""},
        {"{{ ", "{1:", ""},
        {"{{ ", "a[", ""},
        {"{{ ", "not ", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "f(", ""},
        {"{{ ", "1 if 0 else ", "1 }}"},
        {"{{ 1", " if 1", " }}"},
        {"{{ 1", "+1", " }}"},
        {"{{ 1", " and 1", " }}"},
        {"{{ a", ".b", " }}"},
        {"{{ a", "[0]", " }}"},
        {"{{ ''", "|upper", " }}"},
        {"{{ a", "()", " }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for a in b %}", ""},
        {"", "{% macro m() %}", ""},
        {"", "{% if 0 %}{% else %}", ""},
        {"{% set ", "(", "a = 1 %}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = repeated(rows[i][0], rows[i][1], 100000, rows[i][2]);
        const mica_status status = render(text, "{}");
        if (status != MICA_ERR_BUDGET || strstr(mica_status_message(), "inside each other") == NULL)
            fail_msg("%s: %s (%s)", rows[i][1], mica_status_name(status), mica_status_message());
        free(text);
    }
    /* Long but not deep is fine. */
    static const char *const flat[][3] = {
        {"{{ 1", " ~ 1", " }}"},       {"{{ 1", " < 2", " }}"}, {"{% if 0 %}", "{% elif 0 %}", "{% endif %}"},
        {"{{ [", "1,", "]|length }}"}, {"", "{{ 1 }}", ""},     {"{{ ", "'a' ", "}}"}};
    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++) {
        char *text = repeated(flat[i][0], flat[i][1], 100000, flat[i][2]);
        must(render(text, "{}"));
        free(text);
    }
}

static void test_budget(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "steps"},
        {"{% set n = namespace(s='ab') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
         "bytes"},
        {"{% set n = namespace(s=[1]) %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
         "bytes"},
        {"{% set n = namespace(s=[1]) %}{% for a in range(9999) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}",
         "inside"},
        {"{% set n = namespace(s={}) %}{% for a in range(9999) %}{% set n.s = {'a': n.s} %}{% endfor %}{{ "
         "n.s|tojson }}",
         "inside"},
        {"{% set n = namespace(s=[]) %}{% for a in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s "
         "== [n.s] }}"
         "{{ n.s }}",
         "steps"},
        {"{% set n = namespace(s=()) %}{% for a in range(60) %}{% set n.s = (n.s, n.s) %}{% endfor %}{{ "
         "{n.s: 1} }}",
         "steps"},
        {"{% set n = namespace() %}{% set n.n = n %}{{ n }}", "inside"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "inside"},
        {"{% macro m(x) %}{% if x %}{{ m(x - 1) }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
         "limit"},
        {"{{ range(10 ** 12) }}", "Range too big"},
        {"{{ 'a' * 10 ** 12 }}", "limit"},
        {"{{ [1] * 10 ** 12 }}", "limit"},
        {"{{ 'a'|center(10 ** 12) }}", "limit"},
        {"{{ 'a'|indent(10 ** 12) }}", "limit"},
        {"{% set a = 'a' * 1000000 %}{{ a.replace('a', a) }}", "limit"},
    };
    const mica_template_options options = {.size = sizeof options,
                                           .most_bytes = TEST_ANY_SANITIZER ? 1u << 22 : 0,
                                           .most_steps = TEST_ANY_SANITIZER ? 1000000 : 0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *out = NULL;
        uint64_t length = 0;
        refused(render_with(rows[i][0], strlen(rows[i][0]), &options, "{}", &out, &length), MICA_ERR_BUDGET,
                rows[i][1]);
    }
    assert_int_equal(mica_host_allocations(), 0);
}

/* The caller's own limits, to the byte and the step. */
static void test_own_limits(void **state)
{
    (void)state;
    static const char text[] = "{% for i in range(1000) %}0123456789{% endfor %}";
    char *out = NULL;
    uint64_t length = 0;
    mica_template_options options = {.size = sizeof options, .most_bytes = 10000};
    must(render_with(text, sizeof text - 1, &options, "{}", &out, &length));
    assert_int_equal(length, 10000);
    mica_text_free(out);
    options.most_bytes = 9999;
    refused(render_with(text, sizeof text - 1, &options, "{}", &out, &length), MICA_ERR_BUDGET, "9999 bytes");
    options = (mica_template_options){.size = sizeof options, .most_steps = 1000};
    refused(render_with(text, sizeof text - 1, &options, "{}", &out, &length), MICA_ERR_BUDGET, "1000 steps");
    options.most_steps = 10000;
    must(render_with(text, sizeof text - 1, &options, "{}", &out, &length));
    mica_text_free(out);
}

/* ---- cut and damaged ---- */

static const char sample[] =
    "{%- macro show(t, deep=true) -%}\n{{ t.name|upper }}({% for k, v in t.args.items() %}{{ k ~ '=' ~ "
    "v|tojson }}"
    "{{ ', ' if not loop.last }}{% endfor %}){%- endmacro -%}\n{# note #}\n{% set ns = namespace(n=0, "
    "out='') %}\n"
    "{% for m in messages if m.role != 'skip' %}\n  {%- if loop.first and m['role'] == 'system' %}\n"
    "    {{- '<|sys|>' + m.content.strip() }}\n  {%- elif m.tool_calls is defined and m.tool_calls|length > "
    "0 %}\n"
    "    {%- for c in m.tool_calls %}{{ show(c) }}{% set ns.n = ns.n + 1 %}{% endfor %}\n  {%- else %}\n"
    "    {%- set parts = m.content.split('</think>') %}{{ parts[-1].lstrip('\\n')[:40:1] }}\n  {%- endif %}\n"
    "  {%- set ns.out = ns.out ~ loop.index %}\n{% endfor %}\n{{ '%d %s' % (ns.n, ns.out) }}"
    "{{ messages|map(attribute='role')|unique|sort|join(',') }}{% if add_generation_prompt %}<|a|>{% endif "
    "%}";
static const char sample_variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be \\u00fc. \"}, {\"role\": \"user\", "
    "\"content\": \"hi\"},"
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"name\": \"f\", \"args\": {\"a\": [1, "
    "2.5],"
    "\"b\": null}}]}, {\"role\": \"skip\"}, {\"role\": \"assistant\", \"content\": \"x</think>\\n\\ndone\"}],"
    "\"add_generation_prompt\": true}";
static const char sample_output[] =
    "<|sys|>Be \xc3\xbc.hiF(a=[1, 2.5], b=null)done1 1234assistant,skip,system,user<|a|>";

static void test_cut(void **state)
{
    (void)state;
    gives(sample, sample_variables, sample_output);
    uint32_t accepted = 0;
    for (size_t length = 0; length < sizeof sample - 1; length++) {
        char *out = NULL;
        uint64_t out_length = 0;
        const mica_status status = render_with(sample, length, NULL, sample_variables, &out, &out_length);
        accepted += status == MICA_OK;
        if (status != MICA_OK)
            assert_non_null(strstr(mica_status_message(), "line "));
        mica_text_free(out);
    }
    assert_true(accepted > 0 && accepted < 200);
    assert_int_equal(mica_host_allocations(), 0);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char pieces[] = "{}%#-+()[]|.,:=~'\"\\ \n*/<>!0a\xc3";
    test_random random = test_random_from(7);
    char text[sizeof sample];
    for (int round = 0; round < 3000; round++) {
        char *out = NULL;
        uint64_t length = 0;
        memcpy(text, sample, sizeof text);
        for (uint64_t hits = 1 + test_random_below(&random, 4); hits > 0; hits--)
            text[test_random_below(&random, sizeof text - 1)] =
                pieces[test_random_below(&random, sizeof pieces - 1)];
        const mica_status status = render_with(text, sizeof text - 1, NULL, sample_variables, &out, &length);
        assert_true(status == MICA_OK || status == MICA_ERR_INVALID_ARGUMENT ||
                    status == MICA_ERR_UNSUPPORTED || status == MICA_ERR_BUDGET);
        mica_text_free(out);
    }
    assert_int_equal(mica_host_allocations(), 0);
}

/* ---- searches that compare much in vain ---- */

static void test_searches(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{{ ('a' * 20000 ~ 'b') in 'a' * 100000 }}", "False"},
        {"{{ ('a' * 20000 ~ 'b') in ('a' * 100000 ~ 'b') }}", "True"},
        {"{{ ('a' * 100000 ~ 'b' ~ 'a' * 100).find('a' * 20000 ~ 'b') }}", "80000"},
        {"{{ ('a' * 100000).rfind('b' ~ 'a' * 20000) }}", "-1"},
        {"{{ ('aab' ~ 'a' * 100000).rfind('b' ~ 'a' * 20000) }}", "2"},
        {"{{ ('ab' * 30000 ~ 'b').find('ab' * 10000 ~ 'b') }}", "40000"},
        {"{{ ('ab' * 30000 ~ 'b' ~ 'ab' * 30000).count('ab' * 9999 ~ 'abb') }}", "1"},
        {"{{ ('a' * 50000).strip('b' * 50000 ~ 'a') }}", ""},
        {"{{ ('\u00e9a\u00ea' * 9 ~ '!').lstrip('\u00ea\u00e9a') }}", "!"},
        {"{{ ('<!--' * 50000)|striptags|length }}", "200000"},
        {"{{ ('<a>b <c' * 3)|striptags }}", "b b b <c"},
        {"{{ 'a b c'.split(none, -9223372036854775807) }}", "['a', 'b', 'c']"},
        {"{{ 'a,b,c'.split(',', -9223372036854775807)|length }}", "3"},
        {"{{ 'aaa'.replace('a', 'b', -9223372036854775807) }}", "bbb"},
        {"{{ 'aa'.replace('', '-', -9223372036854775807) }}", "-a-a-"},
        {"{{ range(-9223372036854775807-1, 9223372036854775807, 9223372036854775807)|list }}",
         "[-9223372036854775808, -1, 9223372036854775806]"},
        {"{{ range(-9223372036854775807-1, 9223372036854775807, 9223372036854775807)[-1] }}",
         "9223372036854775806"},
        {"{{ range(0, 9223372036854775807, 9223372036854775806)[::-1]|list }}", "[9223372036854775806, 0]"},
        {"{{ range(10)[0:5:2] }}{{ range(10)[7:2:-2] }}", "range(0, 5, 2)range(7, 2, -2)"},
        {"{{ 9223372036854775807|round(-1) }} {{ 15|round(-1) }} {{ 25|round(-1) }} {{ (-7)|round(-1) }}",
         NULL},
        {"{{ 1234|round(-2) }} {{ 15|round(-1) }} {{ 25|round(-1) }} {{ (-7)|round(-1) }} {{ 5|round(-30) }}",
         "1200 20 20 -10 0"},
        {"{{ {1: 'a', 2.5: 'b', 3: 'c', 4: 'd', 5: 'e', 6: 'f', 7: 'g', 8: 'h', 1e17: 'i'}[10 ** 17] }}",
         "i"},
        {"{{ [0.5, 1, 1.0, true, 0.5, none, none]|unique|list }}", "[0.5, 1, None]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *out = NULL;
        uint64_t length = 0;
        if (rows[i][1] != NULL)
            gives(rows[i][0], "{}", rows[i][1]);
        else
            refused(render_with(rows[i][0], strlen(rows[i][0]), NULL, "{}", &out, &length),
                    MICA_ERR_UNSUPPORTED, "64 bits");
    }
    assert_int_equal(mica_host_allocations(), 0);
}

/* Texts of two letters, where much is nearly found, against the plain way. */
static void test_random_searches(void **state)
{
    (void)state;
    test_random random = test_random_from(11);
    for (int round = 0; round < 60; round++) {
        static char text[12001], what[6001], variables[18200], expected[64];
        const size_t length = 6000 + test_random_below(&random, 6000),
                     size = 1 + test_random_below(&random, 6000);
        const uint64_t rare = 1 + test_random_below(&random, 4000);
        int64_t first = -1, last = -1;
        for (size_t i = 0; i < length; i++)
            text[i] = test_random_below(&random, rare) == 0 ? 'b' : 'a';
        text[length] = '\0';
        for (size_t i = 0; i < size; i++)
            what[i] = test_random_below(&random, rare * 2) == 0 ? 'b' : 'a';
        if (round % 2 == 0)
            memcpy(what, text + test_random_below(&random, length - size), size);
        what[size] = '\0';
        for (size_t i = 0; i + size <= length; i++)
            if (memcmp(text + i, what, size) == 0) {
                first = first < 0 ? (int64_t)i : first;
                last = (int64_t)i;
            }
        snprintf(variables, sizeof variables, "{\"t\": \"%s\", \"w\": \"%s\"}", text, what);
        snprintf(expected, sizeof expected, "%lld %lld", (long long)first, (long long)last);
        gives("{{ t.find(w) }} {{ t.rfind(w) }}", variables, expected);
    }
    assert_int_equal(mica_host_allocations(), 0);
}

/* ---- memory that runs out ---- */

static void test_no_memory(void **state)
{
    (void)state;
    test_meter meter = {0};
    must(test_meter_set(&meter));
    uint64_t count = 0;
    /* Long output and many values, so that every kind of block has to grow. */
    static const char text[] =
        "{% set l = range(3000)|list %}{% for i in l %}{{ i }}{% endfor %}{{ l|sort|join }}";
    for (int which = 0; which < 2; which++)
        for (count = 0;; count++) {
            char *out = NULL;
            uint64_t length = 0;
            test_meter_allow(&meter, count);
            const mica_status status =
                which == 0 ? render_with(sample, sizeof sample - 1, NULL, sample_variables, &out, &length)
                           : render_with(text, sizeof text - 1, NULL, "{}", &out, &length);
            mica_text_free(out);
            assert_int_equal(mica_host_allocations(), 0);
            if (status == MICA_OK)
                break;
            assert_int_equal(status, MICA_ERR_OUT_OF_MEMORY);
            assert_null(out);
            assert_true(count < 1000);
        }
    assert_true(count > 5);
    must(mica_set_allocator(NULL));
}

/* The place of a value among loops and macros: each has names of its own. */
static void test_scopes(void **state)
{
    (void)state;
    gives("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i * 10 %}{{ x }} {% endfor %}{{ x }}", "{}",
          "110 120 1");
    gives("{% set n = namespace(f=none) %}{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{% set "
          "n.f = m %}"
          "{% endfor %}{{ n.f() }}",
          "{}", "2");
    gives("{% macro a() %}{{ caller() if caller }}|{% endmacro %}{{ a() }}{% call a() %}x{% endcall %}", "{}",
          "|x|");
    refused(render("{% macro m() %}{% endmacro %}{{ m(1) }}", "{}"), MICA_ERR_INVALID_ARGUMENT,
            "takes not more than 0");
    refused(render("{% macro m() %}{% endmacro %}{{ m(a=1) }}", "{}"), MICA_ERR_INVALID_ARGUMENT,
            "keyword argument 'a'");
    refused(render("{% macro m(a) %}{{ a + 1 }}{% endmacro %}{{ m() }}", "{}"), MICA_ERR_INVALID_ARGUMENT,
            "not provided");
    refused(render("{% for a, b in [[1]] %}{% endfor %}", "{}"), MICA_ERR_INVALID_ARGUMENT,
            "expected 2, got 1");
    refused(render("{% for a in 5 %}{% endfor %}", "{}"), MICA_ERR_INVALID_ARGUMENT, "not iterable");
    refused(render("{% set x = 1 %}{% set x.y = 1 %}", "{}"), MICA_ERR_INVALID_ARGUMENT, "non-namespace");
}

/* One template, many threads. */
static void *render_often(void *context)
{
    mica_template *template = context;
    char *out = NULL;
    uint64_t length = 0;
    for (int i = 0; i < 50; i++) {
        const mica_status status =
            mica_template_render(template, sample_variables, sizeof sample_variables - 1, &out, &length);
        const int same = status == MICA_OK && strcmp(out, sample_output) == 0;
        mica_text_free(out);
        if (!same)
            return NULL;
    }
    return context;
}

static void test_threads(void **state)
{
    (void)state;
    mica_template *template = NULL;
    pthread_t threads[4];
    must(mica_template_create(sample, sizeof sample - 1, NULL, &template));
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, template), 0);
    for (size_t i = 0; i < 4; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, template);
    }
    mica_template_release(template);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doors),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_raised),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_own_limits),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_searches),
        cmocka_unit_test(test_random_searches),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
