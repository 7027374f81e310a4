/*
 * test_sequences.c - many sequences in one context: added, forked, trimmed, removed, saved and loaded, each goes on as it
 * would alone; pages are shared and come back.
 */
#include <stdio.h>

#include "model_rig.h"
#include "support/folder.h"
#include "support/sanitizer.h"

#define LONGEST 100u
#define CROWD (TEST_ANY_SANITIZER ? 40u : 200u) /* sequences that come and go */

/* ---- what each would say alone ---------------------------------------------------------------------------- */

/* The next token after `count` tokens, from an empty sequence of a context of its own. */
static uint32_t alone(mica_context *context, const rig *r, const uint32_t *tokens, uint32_t count)
{
    const uint32_t sequence = rig_sequence(context);
    const mica_feed feed = {sequence, tokens, count, MICA_WANT_LAST};
    const float *logits;
    uint32_t rows, best;
    must(mica_context_feed(context, &feed, 1));
    must(mica_context_logits(context, sequence, &logits, &rows));
    best = rig_best(logits, r->info.vocabulary);
    must(mica_sequence_remove(context, sequence));
    return best;
}

typedef struct crowd {
    const rig *r;
    mica_context *context, *apart; /* all together; one by one */
    test_random random;
    uint32_t live[16], count, made;
} crowd;

static void add_one(crowd *c)
{
    uint32_t prompt[30];
    const uint32_t length = 1 + (uint32_t)test_random_below(&c->random, 30),
                   sequence = rig_sequence(c->context);
    for (uint32_t i = 0; i < length; i++)
        prompt[i] = (uint32_t)test_random_below(&c->random, c->r->info.vocabulary);
    const mica_feed feed = {sequence, prompt, length, MICA_WANT_NONE};
    must(mica_context_feed(c->context, &feed, 1));
    c->live[c->count++] = sequence;
    c->made++;
}

static void fork_one(crowd *c)
{
    const uint32_t from = c->live[test_random_below(&c->random, c->count)];
    uint32_t length, forked;
    must(mica_sequence_tokens(c->context, from, NULL, 0, &length));
    const mica_status status =
        mica_sequence_fork(c->context, from, 1 + (uint32_t)test_random_below(&c->random, length), &forked);
    if (status == MICA_ERR_UNSUPPORTED) /* a window has forgotten it */
        return;
    must(status);
    c->live[c->count++] = forked;
    c->made++;
}

static void trim_one(crowd *c)
{
    const uint32_t sequence = c->live[test_random_below(&c->random, c->count)];
    uint32_t length;
    must(mica_sequence_tokens(c->context, sequence, NULL, 0, &length));
    const mica_status status =
        mica_sequence_trim(c->context, sequence, 1 + (uint32_t)test_random_below(&c->random, length));
    if (status != MICA_ERR_UNSUPPORTED)
        must(status);
}

static void remove_one(crowd *c)
{
    const uint32_t at = (uint32_t)test_random_below(&c->random, c->count);
    must(mica_sequence_remove(c->context, c->live[at]));
    c->live[at] = c->live[--c->count];
}

/* Every live sequence says its next token, all in one feed, and says what it would say alone. */
static void step_all(crowd *c)
{
    uint32_t tokens[LONGEST], length, next[16];
    mica_feed feeds[16];
    const float *logits;
    uint32_t rows;
    for (uint32_t i = 0; i < c->count; i++) {
        next[i] = (uint32_t)test_random_below(&c->random, c->r->info.vocabulary);
        feeds[i] = (mica_feed){c->live[i], &next[i], 1, MICA_WANT_LAST};
    }
    must(mica_context_feed(c->context, feeds, c->count));
    for (uint32_t i = 0; i < c->count; i++) {
        must(mica_sequence_tokens(c->context, c->live[i], tokens, LONGEST, &length));
        assert_int_equal(tokens[length - 1], next[i]);
        must(mica_context_logits(c->context, c->live[i], &logits, &rows));
        const uint32_t said = rig_best(logits, c->r->info.vocabulary);
        assert_int_equal(said, alone(c->apart, c->r, tokens, length));
    }
    for (uint32_t i = c->count; i-- > 0;) {
        must(mica_sequence_tokens(c->context, c->live[i], NULL, 0, &length));
        if (length > LONGEST - 35) {
            must(mica_sequence_remove(c->context, c->live[i]));
            c->live[i] = c->live[--c->count];
        }
    }
}

static void many_sequences_are_as_if_alone(void **state)
{
    static const char *const names[] = {"llama", "gemma3", "qwen3moe"};
    (void)state;
    for (size_t n = 0; n < 3; n++) {
        rig r = rig_open(names[n], 2);
        crowd c = {.r = &r,
                   .context = rig_context(&r, 16 * 128, 16, 40),
                   .apart = rig_context(&r, 128, 1, 128),
                   .random = test_random_from(n)};
        while (c.made < CROWD) {
            const uint32_t dice = (uint32_t)test_random_below(&c.random, 8);
            if (c.count < 16 && (c.count == 0 || dice < 3))
                add_one(&c);
            else if (c.count < 16 && dice < 5)
                fork_one(&c);
            else if (dice == 5)
                trim_one(&c);
            else if (dice == 6)
                remove_one(&c);
            if (c.count > 0 && c.made % 3 == 0)
                step_all(&c);
        }
        while (c.count > 0)
            remove_one(&c);
        mica_context_info info;
        must(mica_context_get_info(c.context, &info));
        assert_int_equal(info.pages_used, 0);
        assert_int_equal(info.window_pages_used, 0);
        assert_int_equal(info.sequences_used, 0);
        mica_context_release(c.context);
        mica_context_release(c.apart);
        rig_close(&r);
    }
}

/* ---- pages ---------------------------------------------------------------------------------------------- */

static void a_prefix_is_kept_once(void **state)
{
    uint32_t tokens[1000], sequence[16];
    mica_context_info one, all;
    rig r = rig_open("llama", 2);
    mica_context *context = rig_context(&r, 4096, 16, 512);
    (void)state;
    rig_tokens(&r, 6, tokens, 1000);
    sequence[0] = rig_sequence(context);
    const mica_feed feed = {sequence[0], tokens, 1000, MICA_WANT_NONE};
    must(mica_context_feed(context, &feed, 1));
    must(mica_context_get_info(context, &one));
    for (uint32_t i = 1; i < 16; i++)
        must(mica_sequence_fork(context, sequence[0], 1000, &sequence[i]));
    must(mica_context_get_info(context, &all));
    assert_true(all.pages_used * 10 <= one.pages_used * 11);
    /* Each goes its own way from here: one page more each, and the others keep what they had. */
    for (uint32_t i = 0; i < 16; i++)
        (void)rig_step(context, &r, sequence[i], i);
    must(mica_context_get_info(context, &all));
    assert_int_equal(all.pages_used, one.pages_used + 15);
    mica_context_release(context);
    rig_close(&r);
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static void saved_sequences_go_on(void **state)
{
    static const char *const names[] = {"llama", "gemma3", "mistral"};
    char folder[256], path[300];
    (void)state;
    assert_int_equal(test_folder_make(folder, sizeof folder, "state"), 0);
    snprintf(path, sizeof path, "%s/a.state", folder);
    for (size_t n = 0; n < 3; n++) {
        uint32_t tokens[70], loaded, kept[70], count;
        rig r = rig_open(names[n], 2);
        mica_context *first = rig_context(&r, 128, 1, 16), *second = rig_context(&r, 256, 3, 64);
        const uint32_t sequence = rig_sequence(first);
        rig_tokens(&r, n, tokens, 70);
        const mica_feed feed = {sequence, tokens, 70, MICA_WANT_NONE};
        must(mica_context_feed(first, &feed, 1));
        must(mica_sequence_save(first, sequence, path));
        (void)rig_sequence(second);
        must(mica_sequence_load(second, path, &loaded));
        must(mica_sequence_tokens(second, loaded, kept, 70, &count));
        assert_int_equal(count, 70);
        assert_memory_equal(kept, tokens, sizeof tokens);
        uint32_t a = 3, b = 3;
        for (uint32_t i = 0; i < 20; i++) {
            a = rig_step(first, &r, sequence, a);
            b = rig_step(second, &r, loaded, b);
            assert_int_equal(a, b);
        }
        mica_context_release(first);
        mica_context_release(second);
        rig_close(&r);
    }
    assert_int_equal(test_folder_remove(folder), 0);
}

static void bad_state_files_are_refused(void **state)
{
    char folder[256], path[300];
    uint32_t sequence, loaded, token = 1;
    rig r = rig_open("llama", 1), other = rig_open("smollm", 1);
    mica_context *context = rig_context(&r, 64, 4, 16), *foreign = rig_context(&other, 64, 2, 16),
                 *wide = NULL;
    const mica_context_options options = {.capacity = 64, .cache_k = MICA_DTYPE_F32};
    (void)state;
    assert_int_equal(test_folder_make(folder, sizeof folder, "state"), 0);
    snprintf(path, sizeof path, "%s/a.state", folder);
    sequence = rig_sequence(context);
    refused(mica_sequence_save(context, sequence, path), MICA_ERR_INVALID_ARGUMENT, "empty");
    const mica_feed feed = {sequence, &token, 1, MICA_WANT_NONE};
    must(mica_context_feed(context, &feed, 1));
    refused(mica_sequence_save(context, sequence, "/nowhere/a.state"), MICA_ERR_IO, "/nowhere");
    refused(mica_sequence_save(context, 9, path), MICA_ERR_INVALID_ARGUMENT, "no sequence 9");
    must(mica_sequence_save(context, sequence, path));
    refused(mica_sequence_load(foreign, path, &loaded), MICA_ERR_INVALID_ARGUMENT, "another model");
    must(mica_context_create(r.model, &options, &wide));
    refused(mica_sequence_load(wide, path, &loaded), MICA_ERR_INVALID_ARGUMENT, "cache_k");
    refused(mica_sequence_load(context, folder, &loaded), MICA_ERR_UNSUPPORTED, "folder");
    refused(mica_sequence_load(context, "tests/model/golden/llama/model.safetensors", &loaded),
            MICA_ERR_MALFORMED_FILE, "no state");
    assert_int_equal(test_folder_count(folder), 1);
    mica_context_release(wide);
    mica_context_release(context);
    mica_context_release(foreign);
    rig_close(&r);
    rig_close(&other);
    assert_int_equal(test_folder_remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_sequences_are_as_if_alone),
        cmocka_unit_test(a_prefix_is_kept_once),
        cmocka_unit_test(saved_sequences_go_on),
        cmocka_unit_test(bad_state_files_are_refused),
    };
    return cmocka_run_group_tests_name("sequences", tests, NULL, NULL);
}
