/* perplexity.c - `mica perplexity`: how surprised a model is by a text, as llama-perplexity counts it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "model/generation.h"
#include "terminal/output.h"

#define LOGIT_BYTES ((uint64_t)64 << 20) /* rows of logits that are taken at a time */

typedef struct perplexity_state {
    tool_model model;
    mica_context *context;
    uint32_t *ids;
    uint32_t count;    /* tokens of the text */
    uint32_t chunk;    /* tokens of a chunk */
    uint32_t begin;    /* the token that begins each chunk, or MICA_NO_TOKEN */
    double sum, sum_2; /* of the surprises and their squares, natural */
    uint64_t scored;
} perplexity_state;

/* -log p(token) by the softmax of a row. */
static double surprise(const float *logits, uint32_t width, uint32_t token)
{
    float most = logits[0];
    for (uint32_t i = 1; i < width; i++)
        most = logits[i] > most ? logits[i] : most;
    double sum = exp((double)logits[0] - (double)most);
    for (uint32_t i = 1; i < width; i++)
        sum += exp((double)logits[i] - (double)most);
    return log(sum) - ((double)logits[token] - (double)most);
}

static mica_status feed(perplexity_state *p, uint32_t sequence, const uint32_t *tokens, uint32_t count,
                        mica_want want)
{
    mica_feed what = {.sequence = sequence, .tokens = tokens, .count = count, .want = want};
    return mica_context_feed(p->context, &what, 1);
}

/* The second half of a chunk in pieces of `rows`: each row foretells the token after it. */
static mica_status score_half(perplexity_state *p, uint32_t sequence, const uint32_t *tokens, uint32_t from)
{
    uint32_t width = p->model.info.vocabulary;
    uint64_t fitting = LOGIT_BYTES / ((uint64_t)width * sizeof(float));
    uint32_t most = fitting == 0 ? 1 : fitting > p->chunk ? p->chunk : (uint32_t)fitting;
    while (from + 1 < p->chunk) {
        uint32_t left = p->chunk - 1 - from, rows = left < most ? left : most, got = 0;
        const float *logits = NULL;
        mica_status status = feed(p, sequence, tokens + from, rows, MICA_WANT_ALL);
        if (status == MICA_OK)
            status = mica_context_logits(p->context, sequence, &logits, &got);
        if (status != MICA_OK)
            return status;
        for (uint32_t i = 0; i < rows; i++) {
            double nats = surprise(logits + (size_t)i * width, width, tokens[from + i + 1]);
            p->sum += nats;
            p->sum_2 += nats * nats;
        }
        p->scored += rows;
        from += rows;
    }
    return MICA_OK;
}

static mica_status score_chunk(perplexity_state *p, uint32_t *tokens)
{
    uint32_t sequence = 0, half = p->chunk / 2;
    mica_status status = mica_sequence_create(p->context, &sequence);
    if (status != MICA_OK)
        return status;
    uint32_t first = tokens[0];
    if (p->begin != MICA_NO_TOKEN)
        tokens[0] = p->begin;
    status = feed(p, sequence, tokens, half, MICA_WANT_NONE);
    if (status == MICA_OK)
        status = score_half(p, sequence, tokens, half);
    tokens[0] = first;
    mica_status removed = mica_sequence_remove(p->context, sequence);
    return status != MICA_OK ? status : removed;
}

static void print_result(const tool_call *call, const perplexity_state *p, uint32_t chunks)
{
    double n = (double)p->scored, mean = p->sum / n, spread = p->sum_2 / n - mean * mean;
    double value = exp(mean), error = spread > 0 && n > 1 ? sqrt(spread / (n - 1)) * value : 0;
    tool_json json = {0};
    if (!tool_flag(call, "json")) {
        printf("PPL = %.4f +/- %.5f\n", value, error);
        return;
    }
    tool_json_open(&json, NULL, '{');
    tool_json_exact(&json, "perplexity", value, 0);
    tool_json_exact(&json, "error", error, 0);
    tool_json_uint(&json, "tokens", p->count);
    tool_json_uint(&json, "scored", p->scored);
    tool_json_uint(&json, "chunk", p->chunk);
    tool_json_uint(&json, "chunks", chunks);
    tool_json_close(&json, '}');
}

static int score_text(const tool_call *call, perplexity_state *p)
{
    int64_t wanted = tool_number(call, "chunks");
    uint32_t chunks = p->count / p->chunk;
    if (p->count < 2 * p->chunk)
        return tool_fail("the text has %u token%s, two chunks need %u; --ctx-size makes chunks smaller",
                         p->count, p->count == 1 ? "" : "s", 2 * p->chunk);
    if (wanted >= 0 && wanted < (int64_t)chunks)
        chunks = (uint32_t)wanted;
    if (chunks == 0)
        return tool_misuse("perplexity: --chunks is 0, there is nothing to score");
    for (uint32_t i = 0; i < chunks; i++) {
        mica_status status = score_chunk(p, p->ids + (size_t)i * p->chunk);
        if (status != MICA_OK)
            return tool_fail_status();
        fprintf(stderr, "[%u]%.4f,", i + 1, exp(p->sum / (double)p->scored));
    }
    fputc('\n', stderr);
    print_result(call, p, chunks);
    return 0;
}

static int open_context(const tool_call *call, perplexity_state *p)
{
    mica_context_options options = {
        .cache_k = tool_cache_type(call, "cache-type-k"),
        .cache_v = tool_cache_type(call, "cache-type-v"),
        .centre_keys = tool_centre(call),
        .size = sizeof options,
        .capacity = p->chunk,
        .batch = tool_batch(call),
        .adapters = p->model.adapter,
        .adapter_count = p->model.adapters,
    };
    if (p->model.info.encoder)
        return tool_fail("%s models give embeddings: they foretell no text", p->model.info.family);
    tool_context_warn(p->chunk, &p->model);
    if (mica_context_create(p->model.model, &options, &p->context) != MICA_OK)
        return tool_fail_status();
    return 0;
}

static int score(const tool_call *call, perplexity_state *p, const tool_input *text)
{
    mica_tokenizer_info info;
    int result = tool_model_need_tokenizer(&p->model);
    if (result == 0)
        result =
            tool_encode(p->model.tokenizer, text->text, text->length, MICA_ENCODE_ADD, &p->ids, &p->count);
    if (result == 0)
        result = open_context(call, p);
    if (result != 0)
        return result;
    if (mica_tokenizer_get_info(p->model.tokenizer, &info) != MICA_OK)
        return tool_fail_status();
    p->begin = info.add_bos ? info.bos : MICA_NO_TOKEN;
    return score_text(call, p);
}

int tool_perplexity(const tool_call *call)
{
    perplexity_state p = {.chunk = (uint32_t)tool_number(call, "ctx-size")};
    tool_input text;
    const char *path = tool_word(call, "file");
    if (path == NULL && !tool_input_is_piped())
        return tool_misuse("perplexity: there is no text: give --file, or a text on standard input");
    int result = tool_input_read(path != NULL ? path : "-", &text);
    if (result != 0)
        return result;
    tool_input_end_line(&text);
    result = tool_model_open(call, &p.model);
    if (result == 0)
        result = score(call, &p, &text);
    mica_context_release(p.context);
    tool_model_close(&p.model);
    free(p.ids);
    tool_input_free(&text);
    return result;
}
