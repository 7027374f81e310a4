/* test_growth_template.c - how the cost of templates grows with their text and with what they are given: every filter, method,
 * test and operator over texts, lists and dicts; with the argument `long`, on larger sizes and against the clock. */
#include "growth/growth_text.h"

#include "mica/text.h"

static const growth_pattern *current;

static mica_status render(const growth_text *template, const growth_text *variables)
{
    const mica_template_options options = {
        .most_steps = UINT64_MAX, .most_bytes = (uint64_t)1 << 40, .now = 1};
    mica_template *made = NULL;
    char *out = NULL;
    uint64_t length;
    mica_status status = mica_template_create(template->data, template->length, &options, &made);
    if (status == MICA_OK)
        status = mica_template_render(made, variables != NULL ? variables->data : "{}",
                                      variables != NULL ? variables->length : 2, &out, &length);
    mica_text_free(out);
    mica_template_release(made);
    return status;
}

/* ---- the text of a template ----------------------------------------------------------------------------- */

static mica_status run_text(uint64_t size)
{
    growth_text text = growth_write(current, size);
    const mica_status status = render(&text, NULL);
    free(text.data);
    return status;
}

static void texts(void **state)
{
    (void)state;
    static const growth_pattern rows[] = {
        {"template: plain text", 512, 4, "", "words and lines\n", "", ""},
        {"template: text of braces", 512, 4, "", "{ } {a", "", ""},
        {"template: prints", 256, 4, "", "{{ 1 }}", "", ""},
        {"template: prints of names", 256, 4, "", "{{ name%llu }}", "", ""},
        {"template: tags that strip", 256, 4, "", "   {%- if 1 -%}  a {% endif %}\n", "", ""},
        {"template: comments", 256, 4, "", "{# {{ {% #}", "", ""},
        {"template: length of a comment", 512, 4, "{#", " - #", "", "#}"},
        {"template: length of a raw block", 512, 4, "{% raw %}", "{% {{ endraw ", "", "{% endraw %}"},
        {"template: length of a string", 512, 4, "{{ '", "a\\n", "", "' }}"},
        {"template: length of a name", 512, 4, "{{ n", "ame", "", " }}"},
        {"template: blanks in a tag", 512, 4, "{{ ", "  \n", "", " 1 }}"},
        {"template: sums", 16, 3, "{{ 1", " + 1", "", " }}"},
        {"template: texts joined", 256, 4, "{{ 'a'", " ~ 'bc'", "", " }}"},
        {"template: items of a list", 256, 4, "{{ [", "%llu", ", ", "]|length }}"},
        {"template: items of a dict", 256, 4, "{{ {", "'k%llu': %llu", ", ", "}|length }}"},
        {"template: comparisons in a row", 256, 4, "{{ 1", " <= 1", "", " }}"},
        {"template: names that are set", 256, 4, "", "{% set n%llu = 1 %}", "", "{{ n0 }}"},
        {"template: names that are set and read", 256, 4, "", "{% set n%llu = 1 %}{{ n%llu }}{{ n0 }}", "",
         ""},
        {"template: names of a with", 256, 4, "{% with ", "n%llu = 1", ", ", " %}{{ n0 }}{% endwith %}"},
        {"template: fields of a namespace", 256, 4, "{% set s = namespace() %}", "{% set s.n%llu = 1 %}", "",
         "{{ s.n0 }}"},
        {"template: parameters of a macro", 128, 4, "{% macro f(", "p%llu=1", ", ",
         ") %}{% endmacro %}{{ f() }}"},
        {"template: macros", 256, 4, "", "{% macro f%llu(x) %}a{% endmacro %}{{ f%llu(1) }}", "", ""},
        {"template: else ifs", 256, 4, "{% if 0 %}", "{% elif 0 %}", "", "{% endif %}"},
        {"template: arguments of a call", 128, 4, "{{ dict(", "a%llu=1", ", ", ")|length }}"},
        {"template: arguments of a format", 128, 4, "{{ '{a0}'.format(", "a%llu=1", ", ", ") }}"},
        {"template: fields of a format", 128, 4, "{{ '", "{0} ", "", "'.format(1) }}"},
        {"template: fields of a percent", 128, 4, "{{ '", "%(a)s ", "", "' % {'a': 1} }}"},
        {"template: a time", 256, 4, "{{ strftime_now('", "%c %d ", "", "') }}"},
    };
    growth_all(rows, sizeof rows / sizeof *rows, &current, run_text);
}

/* ---- what a template is given --------------------------------------------------------------------------- */

/* The variables of a row, by the letter that `between` gives: t a text, u one of other letters, w words, p a text with a rare
 * beginning, f floats, l numbers, s texts, o objects, d a dict, m messages; x is its half where there are two. */
static growth_text variables_of(char kind, uint64_t size)
{
    static const struct {
        char kind;
        const char *before, *piece, *between, *after;
    } forms[] = {
        {'t', "{\"v\":\"", "a", "", "\"}"},
        {'u', "{\"v\":\"", "\u00e9\u4e00", "", "\"}"},
        {'w', "{\"v\":\"", "some Words <b>%llu</b>\\n", "", "\"}"},
        {'c', "{\"v\":\"", "<!--", "", "\"}"},
        {'b', "{\"v\":\"", " ", "", "\"}"},
        {'q', "{\"v\":\"", "\\u0001'\\\"", "", "\"}"},
        {'1', "{\"v\":\"", "1", "", "\"}"},
        {'f', "{\"v\":[", "%llu.25", ",", "]}"},
        {'l', "{\"v\":[", "%llu", ",", "]}"},
        {'e', "{\"v\":[", "1", ",", "]}"},
        {'s', "{\"v\":[", "\"Text %llu\"", ",", "]}"},
        {'o', "{\"v\":[", "{\"a\":%llu,\"b\":\"x\"}", ",", "]}"},
        {'d', "{\"v\":{", "\"k%llu\":%llu", ",", "}}"},
        {'m', "{\"v\":[", "{\"role\":\"user\",\"content\":\"Hello %llu\"}", ",", "]}"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const growth_pattern form = {.before = forms[i].before,
                                     .piece = forms[i].piece,
                                     .between = forms[i].between,
                                     .after = forms[i].after};
        if (forms[i].kind == kind)
            return growth_write(&form, size);
    }
    fail_msg("no variables '%c'", kind);
    return (growth_text){0};
}

static mica_status run_given(uint64_t size)
{
    growth_text variables = variables_of(current->before[0], size);
    growth_text text = {0};
    growth_put(&text, "%s", current->name);
    const mica_status status = render(&text, &variables);
    free(text.data);
    free(variables.data);
    return status;
}

static void given(void **state)
{
    (void)state;
    static const struct {
        char kind;
        const char *template;
    } rows[] = {
        /* texts */
        {'t', "{{ v }}"},
        {'t', "{{ v|upper }}"},
        {'u', "{{ v|upper }}"},
        {'w', "{{ v|lower }}{{ v|capitalize }}{{ v|title }}"},
        {'w', "{{ v.title() }}{{ v.swapcase() }}{{ v.casefold() }}"},
        {'t', "{{ v|center(10) }}{{ v.ljust(9) }}{{ v.rjust(9) }}{{ v.zfill(9) }}"},
        {'w', "{{ v|escape }}{{ v|forceescape }}"},
        {'q', "{{ v|escape|string }}{{ v|safe ~ v }}"},
        {'1', "{{ v|int }}{{ v|float }}{{ v|int(base=16) }}"},
        {'w', "{{ v|indent(4, true, true) }}"},
        {'w', "{{ v|length }}{{ v|wordcount }}"},
        {'q', "{{ [v] }}{{ v|tojson }}{{ v|tojson(ensure_ascii=true) }}"},
        {'u', "{{ [v] }}{{ v|tojson(ensure_ascii=true) }}"},
        {'t', "{{ v|replace('a', 'bc') }}{{ v.replace('', '-') }}{{ v.replace('aa', 'b', 3) }}"},
        {'w', "{{ v|striptags }}"},
        {'c', "{{ v|striptags }}"},
        {'w', "{{ v|truncate(100) }}{{ v|truncate(1000, true) }}"},
        {'u', "{{ v|truncate(100) }}{{ v[1:-1] }}{{ v[3] }}{{ v[::2] }}{{ v|reverse }}"},
        {'u', "{{ v|urlencode }}"},
        {'b', "{{ v|trim }}{{ v.strip() }}{{ v.lstrip() }}{{ v.rstrip(' a') }}"},
        {'t', "{{ v.strip('ab') }}{{ v.strip(v) }}"},
        {'u', "{{ v.strip(v) }}"},
        {'t', "{{ v.find('b') }}{{ v.rfind('b') }}{{ v.find(v) }}{{ v.count('aa') }}{{ v.index('a', 0) }}"},
        {'t', "{{ (v ~ 'b') in (v ~ v) }}{{ ('b' ~ v) in v ~ v }}{{ (v ~ v).rfind('b' ~ v) }}"},
        {'t',
         "{{ v.startswith(v) }}{{ v.endswith(('b', v)) }}{{ v.removeprefix(v) }}{{ v.removesuffix(v) }}"},
        {'w', "{{ v.split()|length }}{{ v.rsplit()|length }}{{ v.split(' ')|length }}{{ "
              "v.rsplit('\\n')|length }}"},
        {'t', "{{ v.split('a')|length }}{{ v.partition('b')|length }}{{ v.rpartition('b')|length }}"},
        {'w', "{{ v.splitlines()|length }}{{ v.splitlines(true)|length }}"},
        {'t', "{{ v.isalnum() }}{{ v.isalpha() }}{{ v.isdigit() }}{{ v.islower() }}{{ v is upper }}"},
        {'b', "{{ v.isspace() }}{{ v.isascii() }}"},
        {'t', "{{ v == v ~ '' }}{{ v < v ~ 'a' }}{{ {v: 1}[v] }}"},
        {'t', "{{ '%s %r'|format(v, v) }}{{ '{} {!r:>9}'.format(v, v) }}"},
        {'t', "{{ v|list|length }}{{ v|first }}{{ v|last }}"},
        {'t', "{% for c in v %}{{ c }}{% endfor %}"},
        {'t', "{% set n = namespace(s='') %}{% for c in v %}{% set n.s = n.s ~ c %}{% endfor %}{{ n.s }}"},
        {'t', "{% set x %}{{ v }}{% endset %}{% filter upper %}{{ x }}{% endfilter %}"},
        {'t', "{{ (v * 3)|length }}{{ v|pprint if 0 else '' }}{{ v|default('a') }}{{ v|attr('upper') is "
              "defined }}"},
        {'t', "{{ v|abs if 0 else (v is string) }}{{ v is in v }}{{ v is sameas v }}{{ v|string|e|length }}"},
        /* lists */
        {'l', "{{ v }}"},
        {'f', "{{ v }}{{ v|tojson }}{{ v|sum }}"},
        {'l', "{{ v|tojson }}{{ v|tojson(indent=2) }}"},
        {'l', "{{ v|length }}{{ v|list|length }}{{ v|first }}{{ v|last }}{{ v|sum }}{{ v|min }}{{ v|max }}"},
        {'l', "{{ v|reverse|list|length }}{{ v[::-1]|length }}{{ v[::3]|length }}{{ v[2:]|length }}"},
        {'l', "{{ v|sort|length }}{{ v|sort(reverse=true)|length }}{{ v|reverse|sort|length }}"},
        {'s', "{{ v|sort|length }}{{ v|unique|list|length }}{{ v|groupby(0)|length }}"},
        {'f', "{{ v|unique|list|length }}"},
        {'e', "{{ v|unique|list|length }}{{ v|sort|length }}{{ v|groupby('a')|list|length if 0 else '' }}"},
        {'l', "{{ v|batch(3)|list|length }}{{ v|batch(7, 0)|list|length }}{{ v|slice(5)|list|length }}"},
        {'s', "{{ v|join(', ') }}{{ ', '.join(v) }}"},
        {'s', "{{ v|map('upper')|list|length }}{{ v|map('length')|sum }}"},
        {'l', "{{ v|select('odd')|list|length }}{{ v|reject('odd')|list|length }}{{ v|select|list|length }}"},
        {'o', "{{ v|map(attribute='a')|list|length }}{{ v|selectattr('a')|list|length }}"},
        {'o', "{{ v|rejectattr('b', 'equalto', 'x')|list|length }}{{ v|sort(attribute='a')|length }}"},
        {'o', "{{ v|groupby('b')|length }}{{ v|sum(attribute='a') }}{{ v|join(',', attribute='b')|length }}"},
        {'o', "{{ v|tojson }}{{ v }}{{ v == v[:] }}{{ v|max(attribute='a') }}"},
        {'l',
         "{{ v == v[:] }}{{ v < v[:] }}{{ -1 in v }}{{ v.index(0) }}{{ v.count(1) }}{{ v + v == v * 2 }}"},
        {'l',
         "{% for i in v %}{{ loop.index }}{{ loop.last }}{{ loop.revindex }}{{ loop.length }}{% endfor %}"},
        {'l', "{% for i in v if i > 3 %}{{ loop.revindex }}{{ loop.changed(i) }}{{ loop.cycle(1, 2) }}{% "
              "endfor %}"},
        {'l', "{% for i in v %}{% if i % 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}"},
        {'l', "{% macro f(x, y=2) %}{{ x }}{{ y }}{% endmacro %}{% for i in v %}{{ f(i) }}{% endfor %}"},
        {'l',
         "{% macro f() %}{{ caller(1) }}{% endmacro %}{% for i in v %}{% call(x) f() %}{{ x }}{% endcall %}"
         "{% endfor %}"},
        {'l',
         "{% macro f() %}{{ varargs|length }}{% endmacro %}{{ f(*v) }}{{ dict(v|map('string')|map('list')|"
         "batch(2)) if 0 else '' }}"},
        {'l', "{% set n = namespace(a=0) %}{% for i in v %}{% set n.a = n.a + i %}{% set x = i %}{% endfor "
              "%}{{ n.a }}"},
        {'l', "{% set c = cycler(1, 2) %}{% set j = joiner() %}{% for i in v %}{{ j() }}{{ c.next() }}{% "
              "endfor %}"},
        {'m', "{% for m in v %}<|{{ m.role }}|>{{ m['content'] | trim }}{{ '\\n' }}{% endfor %}"},
        {'m',
         "{% for m in v %}{% if m.role == 'user' and m.content is string %}{{ m.content.split(' ')[-1] }}"
         "{% endif %}{% endfor %}"},
        /* dicts */
        {'d', "{{ v }}{{ v|tojson }}{{ v|tojson(sort_keys=true) }}"},
        {'d', "{{ v|length }}{{ v|list|length }}{{ v|items|list|length }}{{ v|dictsort|length }}"},
        {'d',
         "{{ v|dictsort(by='value', reverse=true)|length }}{{ v.items()|list|length }}{{ v == v.copy() }}"},
        {'d', "{% for k, x in v.items() %}{{ k }}{{ v[k] }}{{ v.get(k) }}{{ k in v }}{% endfor %}"},
        {'d', "{{ dict(v)|length }}{{ dict(v.items())|length }}{{ namespace(**v)|string|length }}{{ "
              "v|urlencode }}"},
        {'d', "{% macro f() %}{{ kwargs|length }}{% endmacro %}{{ f(**v) }}{{ '%(k0)s' % v }}{{ v|max }}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char kind[] = {rows[i].kind, '\0'};
        const growth_pattern row = {rows[i].template, 2048, 4, kind, NULL, NULL, NULL};
        growth_all(&row, 1, &current, run_given);
    }
}

/* ---- output, nesting ------------------------------------------------------------------------------------ */

static mica_status run_sized(uint64_t size)
{
    growth_text text = {0};
    growth_fill(&text, current->before, size);
    const mica_status status = render(&text, NULL);
    free(text.data);
    return status;
}

static void sized(void **state)
{
    (void)state;
    static const growth_pattern rows[] = {
        {.name = "template: iterations of a loop",
         .first = 256,
         .doublings = 4,
         .before = "{% for i in range(%llu) %}{{ i }}{% endfor %}"},
        {.name = "template: output", .first = 256, .doublings = 4, .before = "{{ 'abcdefgh' * %llu }}"},
        {.name = "template: a list repeated",
         .first = 256,
         .doublings = 4,
         .before = "{{ ([1, 2] * %llu)|length }}"},
        {.name = "template: a wide field",
         .first = 256,
         .doublings = 4,
         .before = "{{ '%%llud'|format(1) }}{{ 'a'|center(%llu) }}"},
        {.name = "template: ranges",
         .first = 256,
         .doublings = 4,
         .before = "{{ range(%llu)|list|length }}{{ range(%llu)|sum }}"},
    };
    growth_all(rows, sizeof rows / sizeof *rows, &current, run_sized);
}

static mica_status run_nested(uint64_t size)
{
    growth_text text = {0};
    const int blocks = strstr(current->name, "blocks") != NULL,
              values = strstr(current->name, "values") != NULL;
    const char *open = blocks ? "{% if 1 %}" : values ? "[" : "(";
    const char *close = blocks ? "{% endif %}" : values ? "]" : ")";
    growth_put(&text, blocks ? "" : "{{ ");
    growth_repeat(&text, size, open);
    growth_put(&text, "1");
    growth_repeat(&text, size, close);
    growth_put(&text, blocks ? "" : " }}");
    const mica_status status = render(&text, NULL);
    free(text.data);
    return status;
}

static void nested(void **state)
{
    (void)state;
    static const growth_pattern rows[] = {
        {.name = "template: brackets inside each other", .first = 12, .doublings = 3},
        {.name = "template: values inside each other", .first = 12, .doublings = 3},
        {.name = "template: blocks inside each other", .first = 12, .doublings = 3},
    };
    growth_all(rows, sizeof rows / sizeof *rows, &current, run_nested);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(given),
        cmocka_unit_test(sized),
        cmocka_unit_test(nested),
    };
    growth_long = count > 1 && strcmp(arguments[1], "long") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
