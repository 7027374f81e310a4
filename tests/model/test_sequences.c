/*
 * test_sequences.c - many sequences in one context: added, forked, trimmed, removed, saved and loaded, each goes on as it
 * would alone; pages are shared and come back.
 */
#include <stdio.h>

#include "model_rig.h"
#include "mica/format.h"
#include "support/folder.h"
#include "support/sanitizer.h"

#define LONGEST 100u
#define CROWD (TEST_ANY_SANITIZER ? 24u : 200u) /* sequences that come and go */

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

/* ---- files that were made on purpose ---------------------------------------------------------------------- */

/* A state of a model with two kinds of layers, in memory. */
typedef struct forged {
    rig r;
    mica_context *context;
    char folder[256], path[300];
    unsigned char *bytes;
    uint64_t size, header; /* the header with its length before it */
} forged;

static forged forge(void)
{
    forged f = {.r = rig_open("gemma3", 1)};
    uint32_t tokens[130];
    f.context = rig_context(&f.r, 256, 3, 32);
    const uint32_t sequence = rig_sequence(f.context);
    assert_int_equal(test_folder_make(f.folder, sizeof f.folder, "state"), 0);
    snprintf(f.path, sizeof f.path, "%s/a.state", f.folder);
    rig_tokens(&f.r, 9, tokens, 130);
    must(mica_context_feed(f.context, &(mica_feed){sequence, tokens, 130, MICA_WANT_NONE}, 1));
    must(mica_sequence_save(f.context, sequence, f.path));
    must(mica_sequence_remove(f.context, sequence));
    FILE *file = fopen(f.path, "rb");
    assert_non_null(file);
    f.bytes = test_alloc(1u << 20, 1);
    f.size = fread(f.bytes, 1, 1u << 20, file);
    (void)fclose(file);
    memcpy(&f.header, f.bytes, sizeof f.header);
    f.header += sizeof f.header;
    return f;
}

static void forge_end(forged *f)
{
    free(f->bytes);
    mica_context_release(f->context);
    rig_close(&f->r);
    assert_int_equal(test_folder_remove(f->folder), 0);
}

static void forge_write(const forged *f, const void *bytes, uint64_t size)
{
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Loads it. What loads goes on; what does not leaves nothing. */
static mica_status forge_load(const forged *f)
{
    mica_context_info info;
    uint32_t sequence;
    const mica_status status = mica_sequence_load(f->context, f->path, &sequence);
    if (status == MICA_OK) {
        (void)rig_step(f->context, &f->r, sequence, 1);
        must(mica_sequence_remove(f->context, sequence));
    }
    must(mica_context_get_info(f->context, &info));
    assert_int_equal(info.sequences_used, 0);
    assert_int_equal(info.pages_used, 0);
    assert_int_equal(info.window_pages_used, 0);
    return status;
}

/* The file with `from` in its header made `to`. */
static void forge_replace(const forged *f, const char *from, const char *to)
{
    unsigned char *made = test_alloc(f->size + 64, 1);
    char *header = test_alloc(f->header + 1, 1);
    memcpy(header, f->bytes + 8, f->header - 8);
    char *at = strstr(header, from);
    if (at == NULL)
        fail_msg("the header has no %s: %s", from, header);
    const size_t before = (size_t)(at - header), rest = strlen(at) - strlen(from);
    const uint64_t length = before + strlen(to) + rest;
    memcpy(made, &length, 8);
    memcpy(made + 8, header, before);
    memcpy(made + 8 + before, to, strlen(to));
    memcpy(made + 8 + before + strlen(to), at + strlen(from), rest);
    memcpy(made + 8 + length, f->bytes + f->header, f->size - f->header);
    forge_write(f, made, 8 + length + f->size - f->header);
    free(made);
    free(header);
}

static void forged_states_are_refused(void **state)
{
    static const struct {
        const char *from, *to;
        mica_status status;
        const char *word;
    } cases[] = {
        {"\"mica.state\":\"3\"", "\"mica.state\":\"2\"", MICA_ERR_INVALID_ARGUMENT, "mica.state"},
        {"\"mica.state\"", "\"mica.stale\"", MICA_ERR_MALFORMED_FILE, "mica.state"},
        {"\"mica.cache_k\":\"f16\"", "\"mica.cache_k\":\"f32\"", MICA_ERR_INVALID_ARGUMENT, "mica.cache_k"},
        {"\"mica.keys\":\"whole\"", "\"mica.keys\":\"whale\"", MICA_ERR_INVALID_ARGUMENT, "mica.keys"},
        {"\"mica.keys\"", "\"mica.kays\"", MICA_ERR_MALFORMED_FILE, "mica.keys"},
        {"\"tokens\":", "\"tokons\":", MICA_ERR_MALFORMED_FILE, "no tokens"},
        {"\"U32\",\"shape\":[130]", "\"I32\",\"shape\":[130]", MICA_ERR_MALFORMED_FILE, "list of numbers"},
        {"\"U32\",\"shape\":[130]", "\"U32\",\"shape\":[13,10]", MICA_ERR_MALFORMED_FILE, "list of numbers"},
        {"\"k.0\"", "\"k.99\"", MICA_ERR_MALFORMED_FILE, "no tensor \"k.0\""},
        {"\"v.1\"", "\"v.01\"", MICA_ERR_MALFORMED_FILE, "no tensor \"v.1\""},
    };
    forged f = forge();
    (void)state;
    must(forge_load(&f));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        forge_replace(&f, cases[i].from, cases[i].to);
        refused(forge_load(&f), cases[i].status, cases[i].word);
    }
    /* A token that is none. */
    memset(f.bytes + f.header + 40, 0x7f, 4);
    forge_write(&f, f.bytes, f.size);
    refused(forge_load(&f), MICA_ERR_MALFORMED_FILE, "token 10 is");
    forge_end(&f);
}

/* A state with the metadata of another and zeros in layers of other lengths. 0: as they are; 1: the last page alone; 2: not from
 * a page on; 3: values from the first token on. */
static void forge_lengths(const mica_weights *from, const char *path, int kind)
{
    static const unsigned char zeros[64 * 1024];
    const mica_writer_options options = {.format = MICA_FORMAT_SAFETENSORS, .overwrite = 1};
    uint64_t sizes[64] = {0};
    mica_writer *writer = NULL;
    mica_weights_info info;
    must(mica_weights_get_info(from, &info));
    must(mica_writer_create(path, &options, &writer));
    for (uint64_t i = 0; i < info.metadata_count; i++) {
        mica_string key;
        const mica_value *value;
        must(mica_weights_metadata(from, i, &key, &value));
        if (value->type == MICA_VALUE_STRING)
            must(mica_writer_string(writer, key.data, value->as.string.data));
    }
    for (uint64_t i = 0; i < info.tensor_count; i++) {
        mica_tensor_info tensor;
        must(mica_weights_tensor(from, i, &tensor));
        if (tensor.ndim == 2 && kind == 1)
            tensor.shape[0] = 2;
        if (tensor.ndim == 2 && kind == 2)
            tensor.shape[0] -= 5;
        if (tensor.ndim == 2 && kind == 3 && tensor.name[0] == 'v')
            tensor.shape[0] = 130;
        sizes[i] = tensor.ndim == 2 ? tensor.shape[0] * tensor.shape[1] : tensor.shape[0] * 4;
        must(mica_writer_tensor(writer, tensor.name, tensor.dtype, tensor.ndim, tensor.shape));
    }
    for (uint64_t i = 0; i < info.tensor_count; i++)
        must(mica_writer_write(writer, zeros, sizes[i]));
    must(mica_writer_finish(writer));
}

/* Layers that hold less than the next token sees, or not all the same. */
static void states_hold_what_is_seen(void **state)
{
    static const char *const words[] = {NULL, "than the next token sees", "than the next token sees",
                                        "others of its kind"};
    rig r = rig_open("mistral", 1);
    mica_context *context = rig_context(&r, 256, 2, 32);
    char folder[256], path[300], made[300];
    uint32_t tokens[130] = {0}, more;
    mica_weights *weights = NULL;
    (void)state;
    assert_int_equal(test_folder_make(folder, sizeof folder, "state"), 0);
    snprintf(path, sizeof path, "%s/a.state", folder);
    snprintf(made, sizeof made, "%s/b.state", folder);
    const uint32_t sequence = rig_sequence(context);
    must(mica_context_feed(context, &(mica_feed){sequence, tokens, 130, MICA_WANT_NONE}, 1));
    must(mica_sequence_save(context, sequence, path));
    must(mica_weights_open(path, NULL, &weights));
    for (int kind = 0; kind < 4; kind++) {
        forge_lengths(weights, made, kind);
        if (words[kind] != NULL) {
            refused(mica_sequence_load(context, made, &more), MICA_ERR_MALFORMED_FILE, words[kind]);
            continue;
        }
        must(mica_sequence_load(context, made, &more));
        (void)rig_step(context, &r, more, 1);
        must(mica_sequence_remove(context, more));
    }
    mica_weights_release(weights);
    mica_context_release(context);
    rig_close(&r);
    assert_int_equal(test_folder_remove(folder), 0);
}

/* Cut anywhere, and with any byte of the header changed: a status, or a sequence that goes on. */
static void damaged_states_are_refused(void **state)
{
    forged f = forge();
    test_random random = test_random_from(4);
    const uint64_t pieces = TEST_ANY_SANITIZER ? 60 : 300;
    (void)state;
    for (uint64_t i = 0; i < pieces; i++) {
        forge_write(&f, f.bytes, f.size * i / pieces);
        assert_int_not_equal(forge_load(&f), MICA_OK);
    }
    for (uint64_t i = 0; i < pieces; i++) {
        const uint64_t at = test_random_below(&random, f.header);
        const unsigned char kept = f.bytes[at];
        f.bytes[at] = (unsigned char)(i % 2 == 0 ? test_random_below(&random, 256)
                                                 : (uint64_t) "0123456789[]{},:\""[i / 2 % 17]);
        forge_write(&f, f.bytes, f.size);
        (void)forge_load(&f);
        f.bytes[at] = kept;
    }
    forge_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_sequences_are_as_if_alone), cmocka_unit_test(a_prefix_is_kept_once),
        cmocka_unit_test(saved_sequences_go_on),          cmocka_unit_test(bad_state_files_are_refused),
        cmocka_unit_test(forged_states_are_refused),      cmocka_unit_test(states_hold_what_is_seen),
        cmocka_unit_test(damaged_states_are_refused),
    };
    return cmocka_run_group_tests_name("sequences", tests, NULL, NULL);
}
