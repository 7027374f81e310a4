/* test_cancel.c - another thread stops a rendering, a schema, a grammar and a mask that would take for ever: how long that
 * takes is printed, and bounded generously, as machines that run tests are busy. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/sanitizer.h"
#include "support/status.h"

#include "mica/model.h"
#include "mica/sample.h"
#include "mica/text.h"
#include "mica/work.h"
#include "grammar/vocabulary.h"

#define MOST_SECONDS (TEST_ANY_SANITIZER ? 10.0 : 2.0) /* text.h says 0.1 */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

typedef struct canceller {
    mica_work *work;
    double when;
} canceller;

static void *cancel_soon(void *context)
{
    canceller *c = context;
    const struct timespec pause = {.tv_nsec = 30000000};
    nanosleep(&pause, NULL);
    c->when = now();
    mica_work_cancel(c->work);
    return NULL;
}

static const mica_limits wide = {.steps = UINT64_MAX, .states = UINT64_MAX};

static void stops(const char *name, mica_status (*play)(void *context), void *context)
{
    canceller c = {NULL, 0};
    pthread_t thread;
    must(mica_work_create(&wide, &c.work));
    (void)mica_work_use(c.work);
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
    const mica_status status = play(context);
    const double end = now();
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)mica_work_use(NULL);
    mica_work_release(c.work);
    if (status != MICA_ERR_CANCELLED)
        fail_msg("%s: %s: %s", name, mica_status_name(status), mica_status_message());
    print_message("%-30s %6.2f ms after the cancel\n", name, (end - c.when) * 1e3);
    if (end - c.when > MOST_SECONDS)
        fail_msg("%s: stopped %g s after the cancel", name, end - c.when);
}

/* ---- templates ------------------------------------------------------------------------------------------ */

static mica_status play_template(void *context)
{
    const char *text = context;
    const mica_template_options options = {.most_steps = UINT64_MAX, .most_bytes = (uint64_t)1 << 28};
    mica_template *template = NULL;
    char *out = NULL;
    uint64_t length;
    mica_status status = mica_template_create(text, strlen(text), &options, &template);
    if (status == MICA_OK)
        status = mica_template_render(template, "{}", 2, &out, &length);
    mica_text_free(out);
    mica_template_release(template);
    return status;
}

static void templates_are_stopped(void **state)
{
    (void)state;
    static char loops[] =
        "{% set t = range(100000) %}{% for a in t %}{% for b in t %}{% endfor %}{% endfor %}";
    static char texts[] =
        "{% set s = 'ab' * 1000000 %}{% for a in range(100000) %}{{ s|upper|length }}{% endfor %}";
    static char lists[] =
        "{% set l = range(30000)|list %}{% for a in range(100000) %}{{ l == l }}{{ -1 in l }}{% endfor %}";
    static char finds[] =
        "{% set s = 'a' * 2000000 %}{% for a in range(100000) %}{{ s.find('a' * 1000000 ~ 'b') }}"
        "{% endfor %}";
    stops("a template of loops", play_template, loops);
    stops("a template of long texts", play_template, texts);
    stops("a template of long lists", play_template, lists);
    stops("a template of searches", play_template, finds);
}

/* ---- schemas and grammars ------------------------------------------------------------------------------- */

static mica_status play_schema(void *context)
{
    mica_grammar *grammar = NULL;
    const mica_status status = mica_grammar_from_schema(context, strlen(context), &grammar);
    mica_grammar_release(grammar);
    return status;
}

/* Forty choices of four, which hold at once. */
static void schemas_are_stopped(void **state)
{
    (void)state;
    char *text = malloc(1 << 16), *at = text + sprintf(text, "{\"allOf\":[");
    for (uint32_t i = 0; i < 40; i++)
        at += sprintf(
            at, "%s{\"anyOf\":[{\"minLength\":1},{\"minLength\":2},{\"minLength\":3},{\"minLength\":4}]}",
            i == 0 ? "" : ",");
    sprintf(at, "]}");
    stops("a schema of choices", play_schema, text);
    free(text);
}

static mica_status play_grammar(void *context)
{
    mica_status status = MICA_OK;
    while (status == MICA_OK) {
        mica_grammar *grammar = NULL;
        status = mica_grammar_create(context, strlen(context), NULL, &grammar);
        mica_grammar_release(grammar);
    }
    return status;
}

static mica_status play_mask(void *context)
{
    uint32_t mask[9];
    mica_status status = MICA_OK;
    for (uint64_t i = 0; status == MICA_OK; i++) {
        status = mica_grammar_mask(context, mask, 9);
        if (status == MICA_OK)
            status = mica_grammar_accept(context, 'a');
    }
    return status;
}

static void grammars_are_stopped(void **state)
{
    (void)state;
    /* Each a doubles the ways. */
    static const char gbnf[] = "root ::= x\nx ::= \"a\" x \"c\" | \"a\" x \"d\" | \"b\"";
    char *text = malloc((1 << 20) + 64), *at = text + sprintf(text, "root ::= \"x\"");
    char bytes[256];
    uint32_t offsets[257];
    mica_grammar *grammar = NULL;
    mica_grammar_state *grammar_state = NULL;
    mica__vocabulary *vocabulary = NULL;
    while (at - text < 1 << 20)
        at += sprintf(at, " | [a-z0-9] \"literal\"");
    stops("a grammar of alternatives", play_grammar, text);
    free(text);
    for (uint32_t i = 0; i <= 256; i++)
        offsets[i] = i;
    for (uint32_t i = 0; i < 256; i++)
        bytes[i] = (char)i;
    must(mica__vocabulary_create(256, bytes, offsets, NULL, &vocabulary));
    must(mica_grammar_create(gbnf, sizeof gbnf - 1, NULL, &grammar));
    must(mica__grammar_begin(grammar, vocabulary, &grammar_state));
    stops("masks of an ambiguous grammar", play_mask, grammar_state);
    mica_grammar_state_release(grammar_state);
    mica_grammar_release(grammar);
    mica__vocabulary_release(vocabulary);
}

/* ---- every step may be the last ------------------------------------------------------------------------- */

static mica_status make_grammar(void *context)
{
    mica_grammar *grammar = NULL;
    const mica_status status = mica_grammar_create(context, strlen(context), NULL, &grammar);
    mica_grammar_release(grammar);
    return status;
}

/* Wherever the steps end, the limit is what is told: a status that somebody on the way takes for another shows at its step. */
static void ends_with_budget(const char *name, mica_status (*play)(void *context), void *context)
{
    mica_status status = MICA_ERR_BUDGET;
    for (uint64_t steps = 1; status != MICA_OK; steps += 1 + steps / 256) {
        const mica_limits limits = {.steps = steps};
        mica_work *work = NULL;
        must(mica_work_create(&limits, &work));
        (void)mica_work_use(work);
        status = play(context);
        (void)mica_work_use(NULL);
        mica_work_release(work);
        if (status != MICA_OK && status != MICA_ERR_BUDGET)
            fail_msg("%s, %llu steps: %s: %s", name, (unsigned long long)steps, mica_status_name(status),
                     mica_status_message());
    }
}

static mica_status play_model(void *context)
{
    mica_model *model = NULL;
    const mica_status status = mica_model_open("models/demo.gguf", context, NULL, &model);
    mica_model_release(model);
    return status;
}

static void every_step_may_be_the_last(void **state)
{
    (void)state;
    static char gbnf[] = "root ::= [z0-9a-c] x | \"b\"\nx ::= [^a-z\\n]{2,3} root?";
    static char schema[] = "{\"type\":\"object\",\"properties\":{\"b\":{\"enum\":[3,1,\"x\"]},\"a\":{"
                           "\"pattern\":\"^[c-ea]+$\"}},"
                           "\"required\":[\"b\"],\"additionalProperties\":{\"anyOf\":[{\"type\":\"integer\"},"
                           "{\"minLength\":2,\"type\":\"string\"}]}}";
    static char text[] =
        "{% set l = [3, 1, 2] %}{{ l|sort|join('-') }}{% for k in {'b': 1, 'a': 2}|dictsort %}{{ k[0]|upper "
        "}}{% endfor %}"
        "{{ {'z': [1, 'x'], 'y': none}|tojson }}{{ 'a b  c'.split()|list|unique|list|length }}";
    ends_with_budget("a grammar", make_grammar, gbnf);
    ends_with_budget("a schema", play_schema, schema);
    ends_with_budget("a template", play_template, text);
    mica_device *device = NULL;
    must(mica_device_open("null", NULL, &device));
    ends_with_budget("a model", play_model, device);
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_stopped),
        cmocka_unit_test(schemas_are_stopped),
        cmocka_unit_test(grammars_are_stopped),
        cmocka_unit_test(every_step_may_be_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
