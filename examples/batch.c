/* batch.c - many prompts, a few at a time: batch MODEL PROMPT... Each step of the model serves all texts that are being
 * written; where one ends, the next prompt takes its place at once. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include <mica/mica.h>
#include <mica/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 4         /* texts at a time */
#define MOST_TOKENS 48u /* of a text */

/* One text that is being written. */
typedef struct slot {
    const char *prompt; /* NULL: the slot is free */
    uint32_t sequence, *tokens, count, id, written;
    mica_sampler *sampler; /* each text has its own: penalties look at what was said */
    mica_detokenizer *words;
    char *text;
    size_t length;
    FILE *to; /* `text` */
} slot;

typedef struct batch {
    mica_device *device;
    mica_model *model;
    const mica_tokenizer *tokenizer;
    mica_context *context;
    slot slots[SLOTS];
} batch;

static int open_batch(batch *b, const char *path)
{
    const mica_context_options options = {.sequences = SLOTS, .capacity = SLOTS * 512};
    if (mica_device_open("auto", NULL, &b->device) || mica_model_open(path, b->device, NULL, &b->model) ||
        mica_context_create(b->model, &options, &b->context))
        return 1;
    b->tokenizer = mica_model_tokenizer(b->model);
    return b->tokenizer == NULL;
}

/* Puts a prompt into a free slot. */
static int start(batch *b, slot *s, const char *prompt)
{
    const uint64_t length = strlen(prompt);
    uint64_t count = 0;
    mica_model_info info;
    mica_sampling sampling;
    mica_sampling_default(&sampling);
    s->prompt = prompt;
    s->written = 0;
    if ((s->to = open_memstream(&s->text, &s->length)) == NULL ||
        (s->tokens = malloc((length + 3) * sizeof *s->tokens)) == NULL ||
        mica_model_get_info(b->model, &info) ||
        mica_tokenizer_encode(b->tokenizer, prompt, length, MICA_ENCODE_ADD, s->tokens, length + 3, &count) ||
        mica_sampler_create(&sampling, info.vocabulary, NULL, NULL, &s->sampler) ||
        mica_detokenizer_create(b->tokenizer, 0, &s->words) || mica_sequence_create(b->context, &s->sequence))
        return 1;
    s->count = (uint32_t)count;
    return 0;
}

/* Gives back what a slot holds, and its part of the context. */
static int end(batch *b, slot *s)
{
    int failed = s->to != NULL && fclose(s->to);
    if (s->words != NULL)
        failed = mica_sequence_remove(b->context, s->sequence) || failed;
    mica_detokenizer_release(s->words);
    mica_sampler_release(s->sampler);
    free(s->tokens);
    free(s->text);
    *s = (slot){0};
    return failed;
}

/* What a step chose for a text: its end, or one more token. */
static int take(batch *b, slot *s, uint32_t id)
{
    mica_string text;
    if (mica_tokenizer_is_end(b->tokenizer, id) || s->written == MOST_TOKENS) {
        if (fflush(s->to) || printf("%s |%s\n", s->prompt, s->text) < 0)
            return 1;
        return end(b, s);
    }
    s->id = id;
    s->written++;
    return mica_sampler_accept(s->sampler, id, 1) || mica_detokenizer_push(s->words, id, &text) ||
           fwrite(text.data, 1, text.length, s->to) != text.length;
}

/* One step of the model over all texts; 0 of them: nothing is left to do. */
static int step(batch *b, uint32_t *out_texts)
{
    mica_next items[SLOTS];
    slot *of[SLOTS];
    uint32_t texts = 0;
    for (slot *s = b->slots; s < b->slots + SLOTS; s++) {
        if (s->prompt == NULL)
            continue;
        const int fresh = s->written == 0; /* its prompt is fed in the same pass as the others' next tokens */
        of[texts] = s;
        items[texts++] = (mica_next){.sequence = s->sequence,
                                     .tokens = fresh ? s->tokens : &s->id,
                                     .count = fresh ? s->count : 1,
                                     .sampler = s->sampler};
    }
    *out_texts = texts;
    int failed = texts > 0 && mica_context_next(b->context, items, texts);
    for (uint32_t i = 0; !failed && i < texts; i++)
        failed = take(b, of[i], items[i].id);
    return failed;
}

int main(int count, char **arguments)
{
    batch b = {0};
    int next = 2;
    uint32_t texts = 1;
    if (count < 3)
        return fprintf(stderr, "usage: batch MODEL PROMPT...\n"), 2;
    int failed = open_batch(&b, arguments[1]);
    while (!failed && texts > 0) {
        for (slot *s = b.slots; !failed && next < count && s < b.slots + SLOTS; s++)
            if (s->prompt == NULL)
                failed = start(&b, s, arguments[next++]);
        failed = failed || step(&b, &texts);
    }
    if (failed)
        fprintf(stderr, "batch: %s\n", mica_status_message());
    for (slot *s = b.slots; s < b.slots + SLOTS; s++)
        end(&b, s);
    mica_context_release(b.context);
    mica_model_release(b.model);
    mica_device_release(b.device);
    return failed != 0;
}
