/* fuzz_model.c: the whole path over a model that an input changed: open, tokenise, feed, choose, fork, trim, save, load, embed.
 * Whatever the file, a call gives a status with a sentence that begins with its name, and all memory comes back. */
#include <unistd.h>

#include "fuzz_checkpoint.h"
#include "mica/host.h"
#include "mica/model.h"
#include "mica/work.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How far inputs came. */
static struct {
    uint64_t all, opened, fed, chosen, loaded, embedded;
} counts;

__attribute__((destructor)) static void print_counts(void)
{
    if (counts.all != 0)
        fprintf(stderr,
                "fuzz_model: %llu executions; a model in %.1f %%, a feed in %.1f %%, a token in %.1f %%, a "
                "state in %.1f %%, an embedding in %.1f %%\n",
                (unsigned long long)counts.all, 100.0 * (double)counts.opened / (double)counts.all,
                100.0 * (double)counts.fed / (double)counts.all,
                100.0 * (double)counts.chosen / (double)counts.all,
                100.0 * (double)counts.loaded / (double)counts.all,
                100.0 * (double)counts.embedded / (double)counts.all);
}

/* True for OK; a failure must say what it is, and which call it was. */
static bool went(mica_status status, const char *call)
{
    const char *sentence = mica_status_message();
    if (status == MICA_OK)
        return true;
    fuzz_require(status != MICA_ERR_INTERNAL && status != MICA_ERR_DEVICE_LOST);
    fuzz_require(strncmp(sentence, call, strlen(call)) == 0 && sentence[strlen(call)] == ':');
    return false;
}

typedef struct trip {
    fuzz_input *in;
    mica_model *model;
    mica_context *context;
    mica_model_info info;
    uint32_t ids[64], count; /* of a text, or any */
} trip;

/* ---- text ----------------------------------------------------------------------------------------------- */

static void read_text(trip *t)
{
    const mica_tokenizer *tokenizer = mica_model_tokenizer(t->model);
    const uint32_t words = t->info.encoder ? FUZZ_VOCABULARY : t->info.vocabulary;
    char text[32], back[256];
    uint64_t count = 0, length;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i % 5 == 4 ? ' ' : 'a' + fuzz_byte(t->in) % 26);
    if (fuzz_byte(t->in) % 8 == 7)
        text[fuzz_below(t->in, 32)] = (char)fuzz_byte(t->in);
    t->count = 1 + fuzz_below(t->in, 48);
    for (uint32_t i = 0; i < t->count; i++)
        t->ids[i] = words != 0 ? fuzz_byte(t->in) % words : fuzz_byte(t->in);
    if (tokenizer == NULL || mica_tokenizer_encode(tokenizer, text, sizeof text, fuzz_byte(t->in) % 4, t->ids,
                                                   64, &count) != MICA_OK)
        return;
    if (count != 0 && count <= 64)
        t->count = (uint32_t)count;
    (void)mica_tokenizer_decode(tokenizer, t->ids, t->count, 0, back, sizeof back, &length);
    if (fuzz_byte(t->in) % 16 == 15)
        t->ids[0] = UINT32_MAX;
}

/* ---- choosing ------------------------------------------------------------------------------------------- */

static mica_sampler *make_sampler(trip *t, mica_grammar **out_grammar)
{
    static const char *const grammars[] = {"root ::= [a-z ]+", "root ::= \"ab\" root | \"c\"",
                                           "root ::= (\"a\" | \"b\" \"c\"){2,4}"};
    mica_sampling s;
    mica_sampler *sampler = NULL;
    const uint32_t kind = fuzz_byte(t->in);
    mica_sampling_default(&s);
    s.seed = kind;
    s.temperature = (float)(kind % 4) * 0.5f;
    s.top_k = fuzz_below(t->in, 60);
    s.repeat_penalty = kind % 8 == 7 ? 1.3f : 1;
    s.mirostat = kind % 16 == 9 ? 2 : 0;
    s.dry_multiplier = kind % 16 == 10 ? 0.8f : 0;
    if (kind % 4 == 1 && mica_model_tokenizer(t->model) != NULL)
        (void)mica_grammar_create(grammars[kind / 4 % 3], strlen(grammars[kind / 4 % 3]), NULL, out_grammar);
    (void)mica_sampler_create(&s, t->info.vocabulary, mica_model_tokenizer(t->model), *out_grammar, &sampler);
    return sampler;
}

static bool choose(trip *t, uint32_t sequence)
{
    mica_grammar *grammar = NULL;
    mica_sampler *sampler = make_sampler(t, &grammar);
    bool chosen = false;
    uint32_t token = t->ids[t->count - 1];
    for (uint32_t i = 1 + fuzz_below(t->in, 3); i > 0 && sampler != NULL; i--) {
        mica_next item = {.sequence = sequence,
                          .tokens = &token,
                          .count = 1,
                          .flags = fuzz_byte(t->in) % 4,
                          .sampler = sampler};
        if (!went(mica_context_next(t->context, &item, 1), "context_next"))
            break;
        fuzz_require(item.status == MICA_OK && item.id < t->info.vocabulary);
        chosen = true;
        token = item.id;
        if (mica_sampler_accept(sampler, token, 1) != MICA_OK)
            break;
    }
    mica_sampler_release(sampler);
    mica_grammar_release(grammar);
    return chosen;
}

/* ---- files ---------------------------------------------------------------------------------------------- */

/* The file with some bytes changed. */
static void spoil(fuzz_input *in, const char *path)
{
    uint8_t bytes[1 << 16];
    FILE *file = fopen(path, "r+b");
    fuzz_require(file != NULL);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    const size_t header = size < 1500 ? size : 1500;
    for (uint32_t n = fuzz_below(in, 4); n > 0 && size != 0; n--)
        bytes[(fuzz_byte(in) << 8 | fuzz_byte(in)) % header] = (uint8_t)fuzz_byte(in);
    if (fuzz_byte(in) % 8 == 7)
        size = size * fuzz_byte(in) / 256;
    rewind(file);
    fuzz_require(fwrite(bytes, 1, size, file) == size && ftruncate(fileno(file), (off_t)size) == 0);
    fclose(file);
}

static bool save_and_load(trip *t, uint32_t sequence)
{
    char path[64];
    uint32_t loaded = 0;
    bool went_on = false;
    (void)snprintf(path, sizeof path, "/dev/shm/mica_fuzz_%ld.state", (long)getpid());
    if (!went(mica_sequence_save(t->context, sequence, path), "sequence_save"))
        return false;
    if (fuzz_byte(t->in) % 2 == 1)
        spoil(t->in, path);
    if (went(mica_sequence_load(t->context, path, &loaded), "sequence_load")) {
        const uint32_t token = 1 % t->info.vocabulary;
        const mica_feed feed = {loaded, &token, 1, MICA_WANT_LAST};
        const mica_status status = mica_context_feed(t->context, &feed, 1);
        fuzz_require(status != MICA_ERR_FAULT); /* whatever was in the file */
        went_on = went(status, "context_feed");
        (void)mica_sequence_remove(t->context, loaded);
    }
    (void)unlink(path);
    return went_on;
}

/* ---- the path ------------------------------------------------------------------------------------------- */

static void use_sequences(trip *t)
{
    uint32_t sequence = 0, forked = 0, length = 0;
    if (!went(mica_sequence_create(t->context, &sequence), "sequence_create"))
        return;
    const mica_feed feed = {sequence, t->ids, t->count, (mica_want)fuzz_below(t->in, 3)};
    const mica_status status = mica_context_feed(t->context, &feed, 1);
    fuzz_require(status != MICA_ERR_FAULT);
    if (!went(status, "context_feed"))
        return;
    counts.fed++;
    counts.chosen += choose(t, sequence);
    counts.loaded += save_and_load(t, sequence);
    (void)mica_sequence_tokens(t->context, sequence, NULL, 0, &length);
    if (went(mica_sequence_fork(t->context, sequence, fuzz_below(t->in, length + 2), &forked),
             "sequence_fork"))
        (void)went(mica_context_feed(t->context, &(mica_feed){forked, t->ids, 1, MICA_WANT_ALL}, 1),
                   "context_feed");
    if (went(mica_sequence_trim(t->context, sequence, fuzz_below(t->in, length + 2)), "sequence_trim"))
        (void)went(mica_context_feed(t->context, &(mica_feed){sequence, t->ids, 1, MICA_WANT_LAST}, 1),
                   "context_feed");
    if (fuzz_byte(t->in) % 2 == 0)
        (void)mica_sequence_remove(t->context, sequence);
}

static void use_model(trip *t)
{
    static const mica_dtype types[] = {MICA_DTYPE_NONE, MICA_DTYPE_F32, MICA_DTYPE_Q8_0, MICA_DTYPE_BF16};
    const mica_context_options options = {.capacity = 1 + fuzz_byte(t->in) % 96,
                                          .sequences = 1 + fuzz_below(t->in, 3),
                                          .batch = 1 + fuzz_below(t->in, 48),
                                          .cache_k = types[fuzz_below(t->in, 4)],
                                          .cache_v = types[fuzz_below(t->in, 4)],
                                          .shift = fuzz_below(t->in, 2),
                                          .keep = fuzz_below(t->in, 4)};
    fuzz_require(mica_model_get_info(t->model, &t->info) == MICA_OK);
    read_text(t);
    if (!went(mica_context_create(t->model, &options, &t->context), "context_create"))
        return;
    if (t->info.encoder == 0)
        use_sequences(t);
    float *vector = malloc(t->info.width * sizeof *vector);
    fuzz_require(vector != NULL);
    if ((t->info.encoder != 0 || fuzz_byte(t->in) % 4 == 0) &&
        went(mica_context_embed(t->context, t->ids, t->count, (mica_pooling)fuzz_below(t->in, 4), 1, vector),
             "context_embed")) {
        counts.embedded++;
        counts.fed += t->info.encoder != 0;
    }
    free(vector);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_checkpoint checkpoint;
    const mica_device_options one = {.threads = 1};
    const mica_weights_options as_gguf = {.flags = MICA_WEIGHTS_AS_GGUF};
    const mica_limits limits = {
        .steps = 30000000, .layers = 64, .vocabulary = 4096, .token_bytes = 256, .states = 2000};
    fuzz_input in = {data, size};
    trip t = {.in = &in};
    mica_weights *weights = NULL;
    mica_device *device = NULL;
    mica_work *work = NULL;
    counts.all++;
    fuzz_checkpoint_make(&checkpoint, &in);
    fuzz_require(mica_work_create(&limits, &work) == MICA_OK);
    mica_work_use(work);
    fuzz_require(mica_device_open("cpu", &one, &device) == MICA_OK);
    fuzz_require(mica_device_set_budget(device, 64u << 20) == MICA_OK);
    if (went(mica_weights_open_bytes(checkpoint.bytes, checkpoint.size, &as_gguf, &weights),
             "weights_open_bytes") &&
        went(mica_model_create(weights, device, NULL, &t.model), "model_create")) {
        counts.opened++;
        use_model(&t);
    }
    mica_context_release(t.context);
    mica_model_release(t.model);
    mica_weights_release(weights);
    mica_device_release(device);
    mica_work_use(NULL);
    mica_work_release(work);
    free(checkpoint.bytes);
    fuzz_require(mica_host_bytes() == 0);
    return 0;
}
