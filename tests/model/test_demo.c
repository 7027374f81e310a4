/*
 * test_demo.c - the model inside the tool can do what its card says: the held-out problems of models/skills.txt, answered
 * to the letter by the likeliest token at each step, as plain text and through the chat template.
 *
 *   test_demo [DEVICE]
 */
#include <stdio.h>

#include "model_rig.h"
#include "support/sanitizer.h"

#define MOST_SKILLS 16u
#define MOST_TOKENS 192u

/* Of a hundred problems of a kind 95 or more come out right; of those that need a look back a third, as the card says. */
#define NEEDED 0.95
#define NEEDED_OF_FACTS 0.33
/* Sanitizers look at memory, not at skill: some problems of each kind are enough, and they get no marks. */
#define ASKED_ONE_IN (TEST_ANY_SANITIZER ? 8u : 1u)

static const char *device_id = "cpu";

typedef struct skill {
    char name[32];
    uint32_t asked, right;
} skill;

typedef struct demo {
    rig r;
    mica_context *context;
    mica_template *chat;
    skill skills[MOST_SKILLS];
    uint32_t count;
} demo;

static skill *find_skill(demo *d, const char *name)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (strcmp(d->skills[i].name, name) == 0)
            return &d->skills[i];
    assert_true(d->count < MOST_SKILLS);
    skill *made = &d->skills[d->count++];
    snprintf(made->name, sizeof made->name, "%.31s", name);
    return made;
}

/* The ids of a problem: the text itself, or what the template makes of one message. */
static uint32_t encode(const demo *d, const char *mode, const char *prompt, uint32_t *ids)
{
    const mica_tokenizer *tokenizer = mica_model_tokenizer(d->r.model);
    uint64_t count, length = strlen(prompt);
    char variables[512], *text = NULL;
    if (strcmp(mode, "chat") == 0) {
        assert_null(strpbrk(prompt, "\"\\"));
        snprintf(variables, sizeof variables,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"add_generation_prompt\":true}",
                 prompt);
        must(mica_template_render(d->chat, variables, strlen(variables), &text, &length));
    }
    must(mica_tokenizer_encode(tokenizer, text != NULL ? text : prompt, length,
                               MICA_ENCODE_ADD | MICA_ENCODE_SPECIAL, ids, MOST_TOKENS, &count));
    mica_text_free(text);
    assert_true(count > 0 && count <= MOST_TOKENS);
    return (uint32_t)count;
}

/* Whether the likeliest tokens write the answer. It stops where the text no longer can become it. */
static int answers(const demo *d, const char *mode, const char *prompt, const char *answer)
{
    const mica_tokenizer *tokenizer = mica_model_tokenizer(d->r.model);
    const size_t wanted = strlen(answer);
    uint32_t ids[MOST_TOKENS], rows;
    const float *logits;
    uint64_t length = 0, more;
    char text[1024];
    const uint32_t sequence = rig_sequence(d->context);
    const mica_feed feed = {sequence, ids, encode(d, mode, prompt, ids), MICA_WANT_LAST};
    must(mica_context_feed(d->context, &feed, 1));
    must(mica_context_logits(d->context, sequence, &logits, &rows));
    uint32_t id = rig_best(logits, d->r.info.vocabulary);
    while (length < wanted && !mica_tokenizer_is_end(tokenizer, id)) {
        must(mica_tokenizer_decode(tokenizer, &id, 1, 0, text + length, sizeof text - length, &more));
        length += more;
        if (more == 0 || length > wanted || memcmp(text, answer, length) != 0)
            break;
        if (length < wanted)
            id = rig_step(d->context, &d->r, sequence, id);
    }
    must(mica_sequence_remove(d->context, sequence));
    return length == wanted && memcmp(text, answer, wanted) == 0;
}

static void run_line(demo *d, char *line)
{
    char *part[4] = {line};
    for (size_t i = 1; i < 4; i++) {
        char *tab = strchr(part[i - 1], '\t');
        if (tab == NULL)
            fail_msg("a line of models/skills.txt has %zu parts: %s", i, line);
        *tab = '\0';
        part[i] = tab + 1;
    }
    part[3][strcspn(part[3], "\n")] = '\0';
    skill *s = find_skill(d, part[0]);
    s->asked++;
    s->right += (uint32_t)answers(d, part[1], part[2], part[3]);
}

static void open_demo(demo *d)
{
    const mica_device_options two = {.threads = 2};
    uint64_t length;
    must(mica_device_open(device_id, &two, &d->r.device));
    must(mica_model_open("models/demo.gguf", d->r.device, NULL, &d->r.model));
    must(mica_model_get_info(d->r.model, &d->r.info));
    const char *jinja = mica_model_template(d->r.model, &length);
    assert_non_null(jinja);
    must(mica_template_create(jinja, length, NULL, &d->chat));
    d->context = rig_context(&d->r, 256, 1, 0);
}

static void skills_are_there(void **state)
{
    demo d = {0};
    char line[1024];
    (void)state;
    open_demo(&d);
    FILE *file = fopen("models/skills.txt", "r");
    assert_non_null(file);
    for (uint32_t number = 0; fgets(line, sizeof line, file) != NULL; number++)
        if (line[0] != '#' && number % ASKED_ONE_IN == 0)
            run_line(&d, line);
    (void)fclose(file);
    uint32_t poor = 0;
    for (uint32_t i = 0; i < d.count; i++) {
        const skill *s = &d.skills[i];
        print_message("%-10s %u of %u\n", s->name, s->right, s->asked);
        poor += s->right < (strcmp(s->name, "facts") == 0 ? NEEDED_OF_FACTS : NEEDED) * s->asked;
    }
    assert_true(d.count >= 10);
    assert_true(poor == 0 || ASKED_ONE_IN > 1);
    mica_context_release(d.context);
    mica_template_release(d.chat);
    rig_close(&d.r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(skills_are_there)};
    if (argc > 1)
        device_id = argv[1];
    return cmocka_run_group_tests_name("demo", tests, NULL, NULL);
}
