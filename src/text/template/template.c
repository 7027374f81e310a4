/* template.c: chat templates: what a program calls. A template is parsed once and rendered any number of times, by any
 * thread: a rendering keeps all it changes in its own run. */
#include "mica/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/utf8.h"
#include "base/work.h"
#include "text/template/builtin.h"

#define MOST_SOURCE (16u << 20)
#define MOST_STEPS 10000000u
#define MOST_BYTES (64u << 20)
#define SOURCE_STEPS 65536u /* bytes between two looks at the steps left */
#define MOST_NODES (1u << 24)

/* Copies the text with line ends of one kind and without the last one. */
static mica_status take_source(mica_template *t, const char *text, uint64_t length)
{
    char *source = mica__jinja_alloc(&t->arena, (size_t)length + 1);
    size_t used = 0;
    if (source == NULL)
        return mica__jinja_arena_failure(&t->arena);
    for (size_t at = 0, spent = 0; at < length;) {
        const size_t bytes = mica__utf8_length(text + at, (size_t)length - at);
        if (at >= spent) {
            const size_t left = (size_t)length - at;
            MICA__TRY(mica__spend(left < SOURCE_STEPS ? left : SOURCE_STEPS));
            spent = at + SOURCE_STEPS;
        }
        if (bytes == 0)
            return mica__jinja_syntax(source, used, used, MICA_ERR_INVALID_ARGUMENT, "the text is not UTF-8");
        if (text[at] == '\r') {
            source[used++] = '\n';
            at += at + 1 < length && text[at + 1] == '\n' ? 2 : 1;
            continue;
        }
        memcpy(source + used, text + at, bytes);
        used += bytes;
        at += bytes;
    }
    if (used != 0 && source[used - 1] == '\n')
        used--;
    source[used] = '\0';
    t->source = source;
    t->length = used;
    return MICA_OK;
}

static mica_status check_options(const mica_template_options *options)
{
    mica_template_options taken;
    return mica__take_options("options", options, sizeof taken, &taken);
}

static mica_status create(const char *text, uint64_t length, const mica_template_options *options,
                          mica_template **out_template)
{
    static const mica_template_options standard = {0};
    if (out_template == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "out_template is NULL");
    *out_template = NULL;
    if (text == NULL && length != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "text is NULL and length is %llu",
                          (unsigned long long)length);
    if (length > MOST_SOURCE)
        return mica__fail(MICA_ERR_BUDGET, "the text has %llu bytes, at most %u are taken",
                          (unsigned long long)length, MOST_SOURCE);
    MICA__TRY(check_options(options));
    if (options == NULL)
        options = &standard;
    mica_template *t = mica__calloc(1, sizeof *t);
    if (t == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes", sizeof *t);
    t->most_steps = options->most_steps != 0 ? options->most_steps : MOST_STEPS;
    t->most_bytes = options->most_bytes != 0 ? options->most_bytes : MOST_BYTES;
    t->now = options->now;
    mica__jinja_arena_init(&t->arena, t->most_bytes);
    mica_status status = take_source(t, text, length);
    if (status == MICA_OK)
        status = mica__jinja_parse(t);
    if (status != MICA_OK) {
        mica_template_release(t);
        return status;
    }
    *out_template = t;
    return MICA_OK;
}

mica_status mica_template_create(const char *text, uint64_t length, const mica_template_options *options,
                                 mica_template **out_template)
{
    mica__call call;
    mica__call_begin(&call, "template_create");
    mica__spend_allow(length);
    return mica__call_end(&call, create(text, length, options, out_template));
}

void mica_template_release(mica_template *chat_template)
{
    if (chat_template == NULL)
        return;
    mica__jinja_arena_release(&chat_template->arena);
    mica__free(chat_template);
}

/* Every name of the template gets the variable of that name, else the global function, else nothing. */
static mica_status fill_globals(mica__jinja_run *run, const mica__jinja_value *variables)
{
    const mica__jinja_symbols *symbols = &run->of->symbols;
    run->globals = mica__jinja_values(run, symbols->count);
    mica_status status = run->globals == NULL ? mica__jinja_arena_failure(&run->arena) : MICA_OK;
    for (uint32_t i = 0; status == MICA_OK && i < symbols->count; i++) {
        const mica__jinja_symbol *name = &symbols->names[i];
        const mica__jinja_value key = mica__jinja_text(name->text, name->length);
        const mica__jinja_value *found = NULL;
        const mica__jinja_builtin *global = mica__jinja_find_global(name->text, name->length);
        status = mica__jinja_dict_get(run, variables->dict, &key, &found);
        if (found != NULL)
            run->globals[i] = *found;
        else if (global != NULL)
            run->globals[i] = (mica__jinja_value){.kind = MICA__JINJA_FUNCTION, .builtin = global};
        else
            run->globals[i] = mica__jinja_missing(MICA__JINJA_MISSING_NAME, 0, name->text, name->length);
    }
    return status;
}

static mica_status render(mica__jinja_run *run, const mica__json *json)
{
    mica__jinja_value variables;
    mica_status status = mica__jinja_from_json(run, json, &variables);
    if (status == MICA_OK)
        status = fill_globals(run, &variables);
    if (status == MICA_OK)
        status = mica__jinja_scope_push(run, NULL, &run->scope);
    if (status == MICA_OK)
        status = mica__jinja_exec(run, run->of->body);
    return status != MICA_OK ? status : mica__jinja_put(run, "", 0);
}

/* Each value needs memory of the rendering, so there is no use in reading more than fit there. */
static mica_status parse_variables(const mica_template *t, const char *variables, uint64_t length,
                                   mica__json **out_json)
{
    const uint64_t most = t->most_bytes / sizeof(mica__jinja_value) + 1;
    const mica__json_limits limits = {.max_nodes = most < MOST_NODES ? (uint32_t)most : MOST_NODES};
    if (length > SIZE_MAX)
        return mica__fail(MICA_ERR_BUDGET, "%llu bytes of variables", (unsigned long long)length);
    mica_status status = mica__json_parse(variables, (size_t)length, &limits, out_json);
    if (status == MICA_ERR_MALFORMED_FILE)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "the variables are no JSON: %s", mica_status_message());
    if (status == MICA_OK && mica__json_root(*out_json)->type != MICA__JSON_OBJECT) {
        status = mica__fail(MICA_ERR_INVALID_ARGUMENT, "the variables are %s, an object is expected",
                            mica__json_type_name(mica__json_root(*out_json)));
        mica__json_release(*out_json);
    }
    return status;
}

static mica_status render_text(const mica_template *chat_template, const char *variables, uint64_t length,
                               char **out_text, uint64_t *out_length)
{
    mica__json *json = NULL;
    if (out_text != NULL)
        *out_text = NULL;
    if (out_length != NULL)
        *out_length = 0;
    if (chat_template == NULL || variables == NULL || out_text == NULL || out_length == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is NULL",
                          chat_template == NULL ? "chat_template"
                          : variables == NULL   ? "variables"
                          : out_text == NULL    ? "out_text"
                                                : "out_length");
    MICA__TRY(parse_variables(chat_template, variables, length, &json));
    mica__jinja_run run = {.of = chat_template,
                           .steps = chat_template->most_steps,
                           .out_limit = chat_template->most_bytes,
                           .seed = mica__hash_seed(),
                           .now = chat_template->now != 0 ? chat_template->now : (int64_t)time(NULL)};
    mica__jinja_arena_init(&run.arena, chat_template->most_bytes);
    mica_status status = render(&run, json);
    mica__jinja_arena_release(&run.arena);
    mica__json_release(json);
    if (status != MICA_OK) {
        mica__free(run.out);
        return status;
    }
    run.out[run.out_length] = '\0';
    *out_text = run.out;
    *out_length = run.out_length;
    return MICA_OK;
}

mica_status mica_template_render(const mica_template *chat_template, const char *variables, uint64_t length,
                                 char **out_text, uint64_t *out_length)
{
    mica__call call;
    mica__call_begin(&call, "template_render");
    mica__spend_allow(length);
    return mica__call_end(&call, render_text(chat_template, variables, length, out_text, out_length));
}
