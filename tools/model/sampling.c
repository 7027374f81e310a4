/* sampling.c - from options to a sampler. */
#define _POSIX_C_SOURCE 200809L
#include "model/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model/input.h"
#include "terminal/output.h"

/* Differs from run to run; small enough to be typed again. */
static uint64_t new_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t bits =
        (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec * 2654435761u ^ (uint64_t)getpid() * 97u;
    return (bits ^ bits >> 32) & 0xffffffffu;
}

/* "15043+1.5", "15043-inf" */
static int read_bias(const char *text, uint32_t vocabulary, mica_logit_bias *out)
{
    char *sign = NULL, *end = NULL;
    unsigned long id = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &sign, 10) : 0;
    if (sign == NULL || (*sign != '+' && *sign != '-'))
        return tool_misuse("--logit-bias is \"%.40s\", not ID+X or ID-X", text);
    float bias = strtof(sign, &end);
    if (end == sign || *end != '\0' || isnan(bias) || (isinf(bias) && bias > 0))
        return tool_misuse("--logit-bias is \"%.40s\", not ID+X or ID-X", text);
    if (id >= vocabulary)
        return tool_misuse("--logit-bias names token %lu, the vocabulary has %u", id, vocabulary);
    *out = (mica_logit_bias){(uint32_t)id, bias};
    return 0;
}

/* The biases of the options, and with --ignore-eos those that forbid the end. */
static int read_biases(const tool_call *call, const tool_model *model, tool_sampling *out)
{
    const char *text;
    size_t cursor = 0, count = 0, ends = 0;
    int no_end = tool_flag(call, "ignore-eos") && model->tokenizer != NULL;
    for (uint32_t id = 0; no_end && id < model->info.vocabulary; id++)
        ends += mica_tokenizer_is_end(model->tokenizer, id) != 0;
    out->bias = calloc(TOOL_MAX_REPEATS + ends, sizeof *out->bias);
    if (out->bias == NULL)
        return tool_fail("there is no memory left");
    while ((text = tool_repeat(call, "logit-bias", &cursor)) != NULL) {
        int wrong = read_bias(text, model->info.vocabulary, &out->bias[count++]);
        if (wrong != 0)
            return wrong;
    }
    for (uint32_t id = 0; no_end && id < model->info.vocabulary; id++)
        if (mica_tokenizer_is_end(model->tokenizer, id))
            out->bias[count++] = (mica_logit_bias){id, -INFINITY};
    out->values.bias = out->bias;
    out->values.bias_count = (uint32_t)count;
    return 0;
}

static void read_values(const tool_call *call, uint32_t capacity, mica_sampling *s)
{
    int64_t seed = tool_number(call, "seed"), last = tool_number(call, "repeat-last-n"),
            dry_last = tool_number(call, "dry-penalty-last-n");
    s->seed = seed < 0 ? new_seed() : (uint64_t)seed;
    s->temperature = (float)tool_real(call, "temp");
    s->top_k = (uint32_t)tool_number(call, "top-k");
    s->top_p = (float)tool_real(call, "top-p");
    s->min_p = (float)tool_real(call, "min-p");
    s->typical_p = (float)tool_real(call, "typical");
    s->xtc_probability = (float)tool_real(call, "xtc-probability");
    s->xtc_threshold = (float)tool_real(call, "xtc-threshold");
    s->repeat_penalty = (float)tool_real(call, "repeat-penalty");
    s->presence_penalty = (float)tool_real(call, "presence-penalty");
    s->frequency_penalty = (float)tool_real(call, "frequency-penalty");
    s->penalty_last = last < 0 ? capacity : (uint32_t)last;
    s->dry_multiplier = dry_last == 0 ? 0 : (float)tool_real(call, "dry-multiplier");
    s->dry_base = (float)tool_real(call, "dry-base");
    s->dry_allowed = (uint32_t)tool_number(call, "dry-allowed-length");
    s->dry_last = dry_last < 0 ? 0 : (uint32_t)dry_last;
    s->mirostat = strcmp(tool_word(call, "mirostat"), "2") == 0 ? 2 : 0;
    s->mirostat_tau = (float)tool_real(call, "mirostat-ent");
    s->mirostat_eta = (float)tool_real(call, "mirostat-lr");
}

static void read_breakers(const tool_call *call, tool_sampling *out)
{
    const char *text;
    size_t cursor = 0;
    uint32_t count = 0;
    if (tool_word(call, "dry-sequence-breaker") == NULL)
        return;
    while ((text = tool_repeat(call, "dry-sequence-breaker", &cursor)) != NULL)
        if (strcmp(text, "none") != 0)
            out->breakers[count++] = text;
    out->values.dry_breakers = out->breakers;
    out->values.dry_breaker_count = count;
}

static int read_grammar(const tool_call *call, tool_sampling *out)
{
    static const struct {
        const char *option, *shown;
        int is_file, is_schema;
    } ways[] = {{"grammar", "--grammar", 0, 0},
                {"grammar-file", "--grammar-file", 1, 0},
                {"json-schema", "--json-schema", 0, 1},
                {"json-schema-file", "--json-schema-file", 1, 1}};
    const char *used = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const char *word = tool_word(call, ways[i].option);
        tool_input text;
        if (word == NULL)
            continue;
        if (used != NULL)
            return tool_misuse("%s: --%s and --%s are both given; one is enough", call->command->name, used,
                               ways[i].option);
        used = ways[i].option;
        int wrong = ways[i].is_file ? tool_input_read(word, &text) : tool_input_copy(word, &text);
        if (wrong != 0)
            return wrong;
        mica_status status = ways[i].is_schema
                                 ? mica_grammar_from_schema(text.text, text.length, &out->grammar)
                                 : mica_grammar_create(text.text, text.length, NULL, &out->grammar);
        tool_input_free(&text);
        if (status != MICA_OK)
            return tool_fail_about(ways[i].shown);
    }
    return 0;
}

int tool_sampling_read(const tool_call *call, const tool_model *model, uint32_t capacity, tool_sampling *out)
{
    memset(out, 0, sizeof *out);
    mica_sampling_default(&out->values);
    read_values(call, capacity, &out->values);
    read_breakers(call, out);
    int result = read_biases(call, model, out);
    return result != 0 ? result : read_grammar(call, out);
}

int tool_sampling_create(const tool_sampling *sampling, const tool_model *model, mica_sampler **out_sampler)
{
    mica_status status = mica_sampler_create(&sampling->values, model->info.vocabulary, model->tokenizer,
                                             sampling->grammar, out_sampler);
    return status == MICA_OK ? 0 : tool_fail_status();
}

void tool_sampling_free(tool_sampling *sampling)
{
    free(sampling->bias);
    mica_grammar_release(sampling->grammar);
    memset(sampling, 0, sizeof *sampling);
}
