/* test_stack.c - how much stack the calls of text.h and sample.h need for templates, schemas and grammars, whatever is inside
 * of what: each runs on a stack that was painted before, and what is no longer painted was used. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/sanitizer.h"
#include "support/status.h"

#include "mica/sample.h"
#include "mica/text.h"
#include "grammar/vocabulary.h"

#define ROOM (8u << 20)
#define MOST (128u << 10) /* what text.h and sample.h promise */
#define PAINT 0x5a

typedef struct play {
    const char *name;
    void (*run)(const struct play *play);
    char *text;
    const char *expected; /* part of the sentence; NULL: it succeeds */
} play;

static char wrong[600]; /* what the thread found, for the test's own thread to say */

static void append(char **text, const char *piece, uint32_t times)
{
    const size_t had = *text == NULL ? 0 : strlen(*text), size = strlen(piece);
    *text = realloc(*text, had + size * times + 1);
    for (uint32_t i = 0; i < times; i++)
        memcpy(*text + had + i * size, piece, size);
    (*text)[had + size * times] = '\0';
}

/* "p1" n1 times, "p2" n2 times .. up to NULL. */
static char *built(const char *piece, ...)
{
    char *text = NULL;
    va_list list;
    va_start(list, piece);
    for (; piece != NULL; piece = va_arg(list, const char *))
        append(&text, piece, va_arg(list, uint32_t));
    va_end(list);
    return text;
}

static void judge(const play *p, mica_status status)
{
    if (p->expected == NULL ? status != MICA_OK
                            : status == MICA_OK || strstr(mica_status_message(), p->expected) == NULL)
        snprintf(wrong, sizeof wrong, "%s", status == MICA_OK ? "it succeeds" : mica_status_message());
}

static void run_template(const play *p)
{
    static const char variables[] = "{\"a\":[[[[[[[[[[[[1]]]]]]]]]]]]}";
    mica_template *template = NULL;
    char *out = NULL;
    uint64_t length;
    mica_status status = mica_template_create(p->text, strlen(p->text), NULL, &template);
    if (status == MICA_OK)
        status = mica_template_render(template, variables, strlen(variables), &out, &length);
    judge(p, status);
    mica_text_free(out);
    mica_template_release(template);
}

/* The grammar printed, begun, and a first mask of bytes. */
static mica_status use_grammar(mica_grammar *grammar)
{
    char bytes[256], *text = NULL;
    uint32_t offsets[257], mask[8];
    uint64_t length;
    mica__vocabulary *vocabulary = NULL;
    mica_grammar_state *state = NULL;
    for (uint32_t i = 0; i <= 256; i++)
        offsets[i] = i;
    for (uint32_t i = 0; i < 256; i++)
        bytes[i] = (char)i;
    mica_status status = mica_grammar_print(grammar, &text, &length);
    if (status == MICA_OK)
        status = mica__vocabulary_create(256, bytes, offsets, NULL, &vocabulary);
    if (status == MICA_OK)
        status = mica__grammar_begin(grammar, vocabulary, &state);
    if (status == MICA_OK)
        status = mica_grammar_mask(state, mask, 8);
    mica_grammar_state_release(state);
    mica__vocabulary_release(vocabulary);
    mica_text_free(text);
    return status;
}

static void run_schema(const play *p)
{
    mica_grammar *grammar = NULL;
    mica_status status = mica_grammar_from_schema(p->text, strlen(p->text), &grammar);
    if (status == MICA_OK)
        status = use_grammar(grammar);
    judge(p, status);
    mica_grammar_release(grammar);
}

static void run_grammar(const play *p)
{
    mica_grammar *grammar = NULL;
    mica_status status = mica_grammar_create(p->text, strlen(p->text), NULL, &grammar);
    if (status == MICA_OK)
        status = use_grammar(grammar);
    judge(p, status);
    mica_grammar_release(grammar);
}

static void *thread(void *context)
{
    play *p = context;
    p->run(p);
    return NULL;
}

static size_t used_by(play *p)
{
    unsigned char *stack = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t id;
    size_t clean = 0;
    assert_true(stack != MAP_FAILED);
    memset(stack, PAINT, ROOM);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, ROOM), 0);
    assert_int_equal(pthread_create(&id, &attributes, thread, p), 0);
    assert_int_equal(pthread_join(id, NULL), 0);
    pthread_attr_destroy(&attributes);
    while (clean < ROOM && stack[clean] == PAINT)
        clean++;
    munmap(stack, ROOM);
    return ROOM - clean;
}

static char *reference_chain(void)
{
    char piece[64], *text = built("{\"$ref\":\"#/$defs/d0\",\"$defs\":{", 1u, NULL);
    size_t length = strlen(text);
    text = realloc(text, 1u << 20);
    for (uint32_t i = 0; i < 5000; i++) {
        const int size =
            snprintf(piece, sizeof piece, "\"d%u\":{\"allOf\":[{\"$ref\":\"#/$defs/d%u\"}]},", i, i + 1);
        memcpy(text + length, piece, (size_t)size + 1);
        length += (size_t)size;
    }
    memcpy(text + length, "\"d5000\":{}}}", 13);
    return text;
}

#define LOOPED "{% set n = namespace(s=[1]) %}{% for i in range(98) %}{% set n.s = [n.s] %}{% endfor %}"

static void the_stack_is_small(void **state)
{
    (void)state;
    play plays[] = {
        {"schema: groups of a pattern", run_schema,
         built("{\"type\":\"string\",\"pattern\":\"^", 1u, "(?:a|[b-d]", 64u, ")?", 64u, "$\"}", 1u, NULL),
         NULL},
        {"schema: items of items", run_schema, built("{\"items\":", 62u, "{}", 1u, "}", 62u, NULL), NULL},
        {"schema: a deep constant", run_schema, built("{\"const\":", 1u, "[", 62u, "]", 62u, "}", 1u, NULL),
         NULL},
        {"schema: a chain of references", run_schema, reference_chain(), NULL},
        {"grammar: groups", run_grammar,
         built("root ::= ", 1u, "(\"a\" | ", 199u, "\"b\"", 1u, ")?", 199u, "\n", 1u, NULL), NULL},
        {"grammar: groups, each repeated eight times", run_grammar,
         built("root ::= ", 1u, "(\"a\" | ", 199u, "\"b\"", 1u, ")????????", 199u, "\n", 1u, NULL), NULL},
        {"grammar: too many groups", run_grammar, built("root ::= ", 1u, "(", 1000u, NULL), "groups"},
        {"template: brackets", run_template, built("{{ ", 1u, "(", 99u, "1", 1u, ")", 99u, " }}", 1u, NULL),
         NULL},
        {"template: too many brackets", run_template, built("{{ ", 1u, "([{", 1000u, NULL), "inside"},
        {"template: lists in calls", run_template,
         built("{{ ", 1u, "[range(1,*[", 30u, "1", 1u, "])]", 30u, " }}", 1u, NULL), "must be"},
        {"template: signs", run_template, built("{{ ", 1u, "- ", 5000u, "1 }}", 1u, NULL), "inside"},
        {"template: nots", run_template, built("{{ ", 1u, "not ", 5000u, "1 }}", 1u, NULL), "inside"},
        {"template: powers", run_template, built("{{ 1", 1u, " ** 1", 5000u, " }}", 1u, NULL), "inside"},
        {"template: sums", run_template, built("{{ 1", 1u, " + 1", 5000u, " }}", 1u, NULL), "inside"},
        {"template: conditions", run_template, built("{{ 1", 1u, " if 0 else 1", 5000u, " }}", 1u, NULL),
         "inside"},
        {"template: filters", run_template, built("{{ 1", 1u, "|default(1)", 5000u, " }}", 1u, NULL),
         "inside"},
        {"template: items", run_template, built("{{ a", 1u, "[0]", 5000u, " }}", 1u, NULL), "inside"},
        {"template: methods", run_template, built("{{ 'a'", 1u, ".strip()", 5000u, " }}", 1u, NULL),
         "inside"},
        {"template: calls", run_template, built("{{ a", 1u, "()", 5000u, " }}", 1u, NULL), "inside"},
        {"template: loops", run_template, built("{% for a in [1] %}", 99u, "{% endfor %}", 99u, NULL), NULL},
        {"template: blocks", run_template, built("{% if 1 %}", 99u, "{% endif %}", 99u, NULL), NULL},
        {"template: blocks with filters", run_template,
         built("{% filter upper %}{% for i in [1] %}{% with x=1 %}", 33u,
               "a{% endwith %}{% endfor %}{% endfilter %}", 33u, NULL),
         NULL},
        {"template: too many blocks", run_template, built("{% if 1 %}", 5000u, NULL), "inside"},
        {"template: else ifs", run_template,
         built("{% if 0 %}", 1u, "{% elif 0 %}", 5000u, "{% endif %}", 1u, NULL), NULL},
        {"template: a macro that calls itself", run_template,
         built("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", 1u, NULL), "inside"},
        {"template: one in a filter of a call of a loop", run_template,
         built("{% macro f(x) %}{% for i in [1] if i %}{% with y=1 %}{{ [f(x)|default(f(x))|upper, {1: "
               "f(x)}] }}"
               "{% endwith %}{% endfor %}{% endmacro %}{{ f(1) }}",
               1u, NULL),
         "inside"},
        {"template: one with a caller", run_template,
         built("{% macro f(x) %}{% call(y) f(x) %}{{ caller(f(x)) }}{% endcall %}{% endmacro %}{{ f(1) }}",
               1u, NULL),
         "inside"},
        {"template: one as its own default", run_template,
         built(
             "{% macro f(x=g()) %}{{ x }}{% endmacro %}{% macro g(x=f()) %}{{ f() }}{% endmacro %}{{ f() }}",
             1u, NULL),
         "inside"},
        {"template: maps of maps", run_template,
         built("{{ a|map('map'", 1u, ",'map'", 10u, ",'string')|list|length }}", 1u, NULL), NULL},
        {"template: a deep value printed", run_template, built(LOOPED "{{ n.s }}", 1u, NULL), NULL},
        {"template: a deep value as JSON", run_template, built(LOOPED "{{ n.s|tojson(indent=1) }}", 1u, NULL),
         NULL},
        {"template: deep values compared", run_template,
         built(LOOPED "{{ n.s == n.s }}{{ n.s < n.s }}", 1u, NULL), NULL},
        {"template: raising", run_template, built("{{ raise_exception('a' * 1000) }}", 1u, NULL), "aaa"},
        {"template: a time", run_template, built("{{ strftime_now('%c %x %X') }}", 1u, NULL), NULL},
        {"template: numbers", run_template,
         built("{{ '%.30f'|format(1e308) }}{{ '{:,.30f}'.format(1e308) }}{{ 1e308|round(3) }}", 1u, NULL),
         NULL},
    };
    for (size_t i = 0; i < sizeof plays / sizeof *plays; i++) {
        const size_t used = used_by(&plays[i]);
        if (wrong[0] != '\0')
            fail_msg("%s: %s", plays[i].name, wrong);
        print_message("%-50s %4zu KB\n", plays[i].name, used >> 10);
        if (!TEST_ANY_SANITIZER && used > MOST)
            fail_msg("%s: %zu bytes of stack", plays[i].name, used);
        free(plays[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_stack_is_small)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
