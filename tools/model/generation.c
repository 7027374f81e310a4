/* generation.c - the loop of decode steps, and what is said about it afterwards. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#include "model/generation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "terminal/interrupt.h"
#include "terminal/output.h"
#include "terminal/text.h"

int tool_encode(const mica_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags,
                uint32_t **out_ids, uint32_t *out_count)
{
    uint64_t count = 0;
    *out_count = 0;
    *out_ids = malloc((length + 3) * sizeof **out_ids);
    if (*out_ids == NULL)
        return tool_fail("there is no memory for the tokens of %zu bytes", length);
    mica_status status = mica_tokenizer_encode(tokenizer, text, length, flags, *out_ids, length + 3, &count);
    if (status == MICA_OK && count <= length + 3 && count < UINT32_MAX) {
        *out_count = (uint32_t)count;
        return 0;
    }
    free(*out_ids);
    *out_ids = NULL;
    return tool_fail_status();
}

/* ---- opening ---- */

static int read_stops(const tool_call *call, tool_stopper *stopper)
{
    const char *text;
    size_t cursor = 0;
    while ((text = tool_repeat(call, "reverse-prompt", &cursor)) != NULL) {
        tool_input copy;
        if (tool_input_copy(text, &copy) != 0)
            return 1;
        size_t length = tool_flag(call, "no-escape") ? copy.length : tool_input_unescape(copy.text);
        int result = length == 0 ? tool_misuse("%s: --reverse-prompt is empty", call->command->name)
                                 : tool_stopper_add(stopper, copy.text, length);
        tool_input_free(&copy);
        if (result != 0)
            return result;
    }
    return 0;
}

static int open_parts(const tool_call *call, uint32_t prompt_tokens, int at_start, tool_generation *g)
{
    mica_context_info info;
    uint32_t flags =
        (tool_flag(call, "special") ? MICA_DECODE_SPECIAL : 0) | (at_start ? MICA_DECODE_START : 0);
    int result = read_stops(call, &g->stopper);
    if (result == 0)
        result = tool_context_create(call, g->model, prompt_tokens, &g->context);
    if (result != 0)
        return result;
    if (mica_context_get_info(g->context, &info) != MICA_OK ||
        mica_sequence_create(g->context, &g->sequence) != MICA_OK ||
        mica_detokenizer_create(g->model->tokenizer, flags, &g->detokenizer) != MICA_OK)
        return tool_fail_status();
    g->capacity = info.capacity;
    result = tool_sampling_read(call, g->model, g->capacity, &g->sampling);
    if (result == 0)
        result = tool_sampling_create(&g->sampling, g->model, &g->sampler);
    if (result != 0)
        return result;
    tool_interrupt_catch(); /* up to here there was nothing to say or to clear away */
    return 0;
}

int tool_generation_open(const tool_call *call, tool_model *model, uint32_t prompt_tokens, int at_start,
                         tool_generation *out)
{
    memset(out, 0, sizeof *out);
    out->model = model;
    out->limit = tool_number(call, "n-predict");
    return open_parts(call, prompt_tokens, at_start, out);
}

void tool_generation_close(tool_generation *g)
{
    mica_detokenizer_release(g->detokenizer);
    mica_sampler_release(g->sampler);
    tool_sampling_free(&g->sampling);
    mica_context_release(g->context);
    tool_stopper_free(&g->stopper);
    memset(g, 0, sizeof *g);
}

int tool_generation_resample(tool_generation *g)
{
    mica_sampler *sampler = NULL;
    if (tool_sampling_create(&g->sampling, g->model, &sampler) != 0)
        return 1;
    mica_sampler_release(g->sampler);
    g->sampler = sampler;
    return 0;
}

/* ---- one text ---- */

/* Feeds tokens and gives the one that follows. */
static mica_status next(tool_generation *g, const uint32_t *tokens, uint32_t count, uint32_t *out_id)
{
    mica_next item = {.sequence = g->sequence,
                      .tokens = tokens,
                      .count = count,
                      .flags = g->logprobs > 0 ? MICA_NEXT_LOGITS : 0,
                      .sampler = g->sampler};
    mica_status status = mica_context_next(g->context, &item, 1);
    *out_id = item.id;
    return status;
}

static tool_end end_of_feed(mica_status status)
{
    if (status == MICA_ERR_CANCELLED)
        return TOOL_END_SIGNAL;
    if (status == MICA_ERR_FULL)
        return TOOL_END_FULL;
    tool_fail_status();
    return TOOL_END_FAILED;
}

static void print_quoted(const tool_generation *g, uint32_t id)
{
    mica_string text;
    mica_token_kind kind;
    if (mica_tokenizer_token(g->model->tokenizer, id, &text, &kind) != MICA_OK)
        return;
    fprintf(stderr, " %u \"", id);
    tool_text_print(stderr, text.data, text.length, TOOL_NO_LIMIT);
    fputc('"', stderr);
}

/* "token 12 "the" -0.12; 12 "the" -0.12, 7 "a" -2.3" */
static mica_status print_logprobs(tool_generation *g, uint32_t id)
{
    mica_token_chance chances[64];
    const float *logits = NULL;
    uint32_t rows = 0, most = g->logprobs;
    mica_status status = mica_context_logits(g->context, g->sequence, &logits, &rows);
    if (status != MICA_OK)
        return status;
    uint32_t width = g->model->info.vocabulary;
    logits += (size_t)(rows - 1) * width;
    most = most < width ? most : width;
    status = mica_sampler_chances(g->sampler, logits, most, chances);
    if (status != MICA_OK)
        return status;
    fputs("token", stderr);
    print_quoted(g, id);
    /* all differ from their logits by the same number */
    fprintf(stderr, " %.4f;", chances[0].log_probability + logits[id] - logits[chances[0].id]);
    for (uint32_t i = 0; i < most; i++) {
        fputs(i > 0 ? "," : "", stderr);
        print_quoted(g, chances[i].id);
        fprintf(stderr, " %.4f", chances[i].log_probability);
    }
    fputc('\n', stderr);
    return MICA_OK;
}

/* Lets text through the stop texts to the writer. */
static int show(tool_generation *g, const char *text, size_t length, tool_end *out_end)
{
    size_t ready = 0;
    *out_end = TOOL_END_FAILED;
    if (tool_stopper_push(&g->stopper, text, length, &ready) != 0)
        return 1;
    *out_end = TOOL_END_OUTPUT;
    if (ready > 0 && g->write(g->write_context, g->stopper.held.text, ready) != 0)
        return 1;
    *out_end = TOOL_END_STOP;
    return g->stopper.stopped;
}

/* A token into the text; 0 to go on, 1 at an end. */
static int add_token(tool_generation *g, uint32_t id, tool_end *out_end)
{
    mica_string text;
    *out_end = TOOL_END_FAILED;
    mica_status status = g->logprobs > 0 ? print_logprobs(g, id) : MICA_OK;
    if (status == MICA_OK && mica_tokenizer_is_end(g->model->tokenizer, id)) {
        *out_end = TOOL_END_MODEL;
        return 1;
    }
    if (status == MICA_OK)
        status = mica_sampler_accept(g->sampler, id, 1);
    if (status == MICA_OK)
        status = mica_detokenizer_push(g->detokenizer, id, &text);
    if (status != MICA_OK) {
        tool_fail_status();
        return 1;
    }
    g->counts.tokens++;
    return show(g, text.data, text.length, out_end);
}

/* From the first token on. */
static tool_end generate_tokens(tool_generation *g, uint32_t id)
{
    uint64_t start = tool_clock_ns();
    tool_end end = TOOL_END_LIMIT;
    for (int64_t n = 0; g->limit < 0 || n < g->limit; n++) {
        if (add_token(g, id, &end))
            break;
        if (n == 0) {
            uint64_t now = tool_clock_ns();
            g->counts.first_ns = g->counts.prompt_ns + (now - start);
            start = now;
        }
        end = tool_interrupt_number() != 0 ? TOOL_END_SIGNAL : TOOL_END_LIMIT;
        if (end == TOOL_END_SIGNAL || n + 1 == g->limit)
            break;
        mica_status status = next(g, &id, 1, &id);
        if (status != MICA_OK) {
            end = end_of_feed(status);
            break;
        }
    }
    g->counts.token_ns = tool_clock_ns() - start;
    return end;
}

/* What waited in the detokenizer and behind the beginnings of stop texts. */
static tool_end finish(tool_generation *g, tool_end end)
{
    mica_string rest = {0};
    tool_end other = end;
    int ended = 0;
    if (mica_detokenizer_flush(g->detokenizer, &rest) == MICA_OK && rest.length > 0 && end != TOOL_END_STOP)
        ended = show(g, rest.data, rest.length, &other);
    size_t held = tool_stopper_flush(&g->stopper);
    if (!ended && held > 0 && end != TOOL_END_OUTPUT)
        g->write(g->write_context, g->stopper.held.text, held);
    return end;
}

tool_end tool_generate(tool_generation *g, const uint32_t *tokens, uint32_t count, const uint32_t *history,
                       uint32_t history_count)
{
    uint64_t start = tool_clock_ns();
    uint32_t first = 0;
    memset(&g->counts, 0, sizeof g->counts);
    mica_sampler_reset(g->sampler);
    tool_stopper_reset(&g->stopper);
    for (uint32_t i = 0; i < history_count; i++)
        if (mica_sampler_accept(g->sampler, history[i], 0) != MICA_OK)
            return end_of_feed(MICA_ERR_INTERNAL);
    mica_status status = next(g, tokens, count, &first);
    g->counts.prompt_ns = tool_clock_ns() - start;
    if (status != MICA_OK)
        return end_of_feed(status);
    g->counts.prompt_tokens = count;
    g->counts.kept_tokens = history_count - count;
    return finish(g, generate_tokens(g, first));
}

/* ---- the report ---- */

static uint64_t peak_resident_bytes(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0)
        return 0;
#ifdef __APPLE__
    return (uint64_t)usage.ru_maxrss;
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

static void print_rate(const char *what, uint64_t tokens, uint64_t timed, uint64_t ns)
{
    fprintf(stderr, "%-8s %llu token%s", what, (unsigned long long)tokens, tokens == 1 ? "" : "s");
    if (timed > 0 && ns > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)timed * 1e9 / (double)ns);
}

void tool_generation_report(const tool_generation *g, tool_end end)
{
    const tool_counts *c = &g->counts;
    char resident[TOOL_SIZE_BYTES], owned[TOOL_SIZE_BYTES], mapped[TOOL_SIZE_BYTES];
    mica_device_memory memory = {0};
    mica_device_properties device = {0};
    print_rate("prompt", c->prompt_tokens, c->prompt_tokens, c->prompt_ns);
    if (c->kept_tokens > 0)
        fprintf(stderr, ", %llu more were in the cache", (unsigned long long)c->kept_tokens);
    fputc('\n', stderr);
    print_rate("text", c->tokens, c->tokens > 1 ? c->tokens - 1 : 0, c->token_ns);
    if (c->tokens > 0)
        fprintf(stderr, ", first after %.1f ms", (double)c->first_ns * 1e-6);
    fprintf(stderr, "\nload     %.2f s\n", g->model->load_seconds);
    if (mica_device_get_memory(g->model->device, &memory) == MICA_OK &&
        mica_device_get_properties(g->model->device, &device) == MICA_OK)
        fprintf(stderr, "memory   %s resident at most; %s: %s owned at most, %s mapped\n",
                tool_size_text(peak_resident_bytes(), resident), device.id,
                tool_size_text(memory.owned_peak_bytes, owned), tool_size_text(memory.mapped_bytes, mapped));
    fprintf(stderr, "seed     %llu\n", (unsigned long long)g->sampling.values.seed);
    if (end == TOOL_END_FULL)
        fprintf(stderr,
                "stopped  the context of %u tokens is full: --ctx-size makes it larger, --context-shift "
                "forgets\n",
                g->capacity);
    if (end == TOOL_END_SIGNAL)
        fputs("stopped  by a signal\n", stderr);
}
