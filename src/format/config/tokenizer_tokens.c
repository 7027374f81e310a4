/*
 * tokenizer_tokens.c - a vocabulary of tokenizer.json or tokenizer.model as GGUF has it: texts, scores and kinds, gaps
 * filled to the size of the embedding.
 */
#include <string.h>

#include "base/work.h"
#include "format/config/config_map.h"
#include "format/config/tokenizer_map.h"

/* Calls `see` for every token of the vocabulary, an object of ids or a list of pairs with scores. */
static void each_token(mica__tokenizer *t, void (*see)(mica__tokenizer *t, uint64_t id, const char *text,
                                                       size_t length, double score))
{
    const mica__json_node *list = mica__json_get(t->json, t->model, "vocab");
    const mica__json_node *item = list == NULL ? NULL : mica__json_first(list);
    for (uint64_t i = 0; item != NULL; i++, item = mica__json_next(t->json, item)) {
        if (list->type == MICA__JSON_OBJECT) {
            see(t, mica__tokenizer_id(item), item->key, item->key_length, 0);
            continue;
        }
        const mica__json_node *text = mica__json_first(item);
        const mica__json_node *score = text == NULL ? NULL : mica__json_next(t->json, text);
        if (text != NULL && text->type == MICA__JSON_STRING && score != NULL &&
            score->type == MICA__JSON_NUMBER)
            see(t, i, text->string.data, text->string.length, score->number.real);
    }
}

static void see_largest(mica__tokenizer *t, uint64_t id, const char *text, size_t length, double score)
{
    (void)text, (void)length, (void)score;
    t->seen++;
    if (id < MICA__MOST_TOKENS && id >= t->count)
        t->count = id + 1;
}

/* <0x0A> stands for a byte. */
static bool is_byte(const char *text, size_t length)
{
    return length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
}

/* Wordpieces are marked at their start in GGUF, where HF marks their continuations. */
static mica_string spell(mica__tokenizer *t, const char *text, size_t length)
{
    if (strcmp(t->kind, "bert") != 0)
        return (mica_string){text, length};
    if (length > 2 && memcmp(text, "##", 2) == 0)
        return (mica_string){text + 2, length - 2};
    const char *marked = mica__target_text(t->target, "\xe2\x96\x81%s", text);
    t->failed = t->failed || marked == NULL;
    return (mica_string){marked, marked == NULL ? 0 : length + 3};
}

static void see_token(mica__tokenizer *t, uint64_t id, const char *text, size_t length, double score)
{
    if (id >= t->count)
        return;
    t->token[id] = spell(t, text, length);
    t->score[id] = (float)score;
    t->type[id] =
        strcmp(t->kind, "llama") == 0 && is_byte(text, length) ? MICA__PIECE_BYTE : MICA__PIECE_NORMAL;
}

/* Tokens that are control by their looks, whatever the file calls them. */
static bool looks_special(const char *text, size_t length)
{
    return strcmp(text, "<pad>") == 0 || strcmp(text, "<mask>") == 0 || strcmp(text, "<2mass>") == 0 ||
           strcmp(text, "[@BOS@]") == 0 ||
           (length > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + length - 2, "|>", 2) == 0) ||
           (length > 8 && memcmp(text, "<unused", 7) == 0 && text[length - 1] == '>');
}

static void see_one(mica__tokenizer *t, const mica__json_node *text, uint64_t id, bool special, bool measure)
{
    if (text == NULL || text->type != MICA__JSON_STRING)
        return;
    if (measure) {
        see_largest(t, id, NULL, 0, 0);
    } else if (id < t->count) {
        const bool control = special || looks_special(text->string.data, text->string.length);
        const bool pieces = t->pieces.count != 0, low = pieces || (strcmp(t->kind, "llama") == 0 && !control);
        t->token[id] = (mica_string){text->string.data, text->string.length};
        if (!pieces || t->type[id] != MICA__PIECE_UNKNOWN)
            t->type[id] = control ? MICA__PIECE_CONTROL : MICA__PIECE_USER;
        t->score[id] = low ? -1000.0f : 0.0f;
    }
}

/* The keys of added_tokens_decoder are ids. */
static uint64_t id_of_key(const char *key)
{
    uint64_t id = 0;
    if (key[0] == '\0')
        return MICA__MOST_TOKENS;
    for (; *key >= '0' && *key <= '9' && id < MICA__MOST_TOKENS; key++)
        id = id * 10 + (uint64_t)(*key - '0');
    return *key == '\0' ? id : MICA__MOST_TOKENS;
}

/* Where only pieces are known, added tokens are named in tokenizer_config.json or added_tokens.json. */
static void see_added_to_pieces(mica__tokenizer *t, bool measure)
{
    const mica__json *json = t->added;
    const mica__json_node *item = json == NULL ? NULL : mica__json_first(mica__json_root(json));
    for (; item != NULL && item->key != NULL; item = mica__json_next(json, item)) {
        const mica__json_node text = {.type = MICA__JSON_STRING,
                                      .string = {.data = item->key, .length = item->key_length}};
        see_one(t, &text, mica__tokenizer_id(item), false, measure);
    }
    json = t->settings;
    if (json == NULL)
        return;
    const mica__json_node *list = mica__json_get(json, mica__json_root(json), "added_tokens_decoder");
    item = list == NULL ? NULL : mica__json_first(list);
    for (; item != NULL && item->key != NULL; item = mica__json_next(json, item))
        see_one(t, mica__json_get(json, item, "content"), id_of_key(item->key),
                mica__tokenizer_is_true(json, item, "special"), measure);
}

/* Tokens that were added to the vocabulary; with `measure` only their largest id. */
static void see_added(mica__tokenizer *t, bool measure)
{
    if (t->pieces.count != 0)
        see_added_to_pieces(t, measure);
    if (t->json == NULL)
        return;
    const mica__json_node *list = mica__json_get(t->json, mica__json_root(t->json), "added_tokens");
    const mica__json_node *item = list == NULL ? NULL : mica__json_first(list);
    for (; item != NULL; item = mica__json_next(t->json, item)) {
        const uint64_t id = mica__tokenizer_id(mica__json_get(t->json, item, "id"));
        if (id >= t->pieces.count) /* of what is a piece, tokenizer.model has the kind and the score */
            see_one(t, mica__json_get(t->json, item, "content"), id,
                    mica__tokenizer_is_true(t->json, item, "special"), measure);
    }
}

static void see_pieces(mica__tokenizer *t)
{
    for (uint32_t i = 0; i < t->pieces.count && i < t->count; i++) {
        const mica__token_list_piece *piece = &t->pieces.piece[i];
        t->token[i] = (mica_string){piece->text, piece->length};
        t->score[i] = piece->score;
        t->type[i] = (int32_t)piece->kind;
    }
}

/* Sentencepiece's scores of byte pair merges fall by one from piece to piece. */
static void score_pieces(mica__tokenizer *t)
{
    float score = 0;
    for (uint64_t i = 0; i < t->count; i++)
        if (t->type[i] == MICA__PIECE_NORMAL) {
            t->score[i] = score;
            score -= 1;
        }
}

static mica_status fill_gaps(mica__tokenizer *t)
{
    const mica__json_node *unknown =
        t->pieces.count != 0 ? NULL : mica__json_get(t->json, t->model, "unk_token");
    for (uint64_t i = 0; i < t->count; i++) {
        if (t->token[i].data == NULL) {
            const char *text = mica__target_text(t->target, "[PAD%llu]", (unsigned long long)i);
            if (text == NULL)
                return MICA_ERR_OUT_OF_MEMORY;
            t->token[i] = (mica_string){text, strlen(text)};
            t->type[i] = MICA__PIECE_UNUSED;
            t->score[i] = -10000.0f;
        } else if (unknown != NULL && strcmp(t->kind, "gpt2") != 0 && strcmp(t->kind, "bert") != 0 &&
                   strcmp(mica__tokenizer_text(unknown), t->token[i].data) == 0) {
            t->type[i] = MICA__PIECE_UNKNOWN;
        }
    }
    return MICA_OK;
}

/* Texts point into the JSON, which goes: they become the target's. */
static mica_status keep_texts(mica__tokenizer *t)
{
    for (uint64_t i = 0; i < t->count; i++) {
        char *copy = mica__chunks_alloc(&t->target->chunks, (size_t)t->token[i].length + 1);
        if (copy == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        memcpy(copy, t->token[i].data, (size_t)t->token[i].length);
        copy[t->token[i].length] = '\0';
        t->token[i].data = copy;
    }
    return MICA_OK;
}

mica_status mica__tokenizer_set_array(mica__tokenizer *t, const char *key, mica_value_type type,
                                      uint64_t count, const void *items)
{
    return mica__target_set(
        t->target, key,
        &(mica_value){.type = MICA_VALUE_ARRAY, .item_type = type, .count = count, .as.items = items});
}

#define MOST_GAPS 65536 /* ids without a token; an embedding is padded by some hundred */

/* A count that the file merely states decides no allocation. */
static mica_status check_count(const mica__tokenizer *t)
{
    const uint64_t seen = t->seen + t->pieces.count;
    if (t->count > seen * 2 + MOST_GAPS)
        return mica__fail(
            MICA_ERR_MALFORMED_FILE,
            "the tokenizer has %llu tokens, but ids or a vocab_size of %llu: the gaps are too large",
            (unsigned long long)seen, (unsigned long long)t->count);
    const mica_status status = mica__limit_check("tokens", mica__limits()->vocabulary, t->count);
    return status == MICA_OK ? mica__spend(t->count * 16) : status;
}

mica_status mica__tokenizer_set_tokens(mica__tokenizer *t)
{
    uint64_t wanted = mica__tokenizer_id(mica__config_get(t->config, "vocab_size"));
    t->count = t->pieces.count;
    if (t->pieces.count == 0)
        each_token(t, see_largest);
    see_added(t, true);
    if (wanted < MICA__MOST_TOKENS && wanted > t->count)
        t->count = wanted;
    if (t->count == 0)
        return MICA_OK;
    MICA__TRY(check_count(t));
    t->token = mica__chunks_alloc(&t->target->chunks, (size_t)t->count * sizeof *t->token);
    t->score = mica__chunks_alloc(&t->target->chunks, (size_t)t->count * sizeof *t->score);
    t->type = mica__chunks_alloc(&t->target->chunks, (size_t)t->count * sizeof *t->type);
    if (t->token == NULL || t->score == NULL || t->type == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    memset(t->token, 0, (size_t)t->count * sizeof *t->token);
    memset(t->score, 0, (size_t)t->count * sizeof *t->score);
    memset(t->type, 0, (size_t)t->count * sizeof *t->type);
    if (t->pieces.count != 0)
        see_pieces(t);
    else
        each_token(t, see_token);
    see_added(t, false);
    if (strcmp(t->kind, "llama") == 0 && t->pieces.count == 0)
        score_pieces(t);
    mica_status status = t->failed ? MICA_ERR_OUT_OF_MEMORY : fill_gaps(t);
    if (status == MICA_OK)
        status = keep_texts(t);
    if (status == MICA_OK)
        status = mica__tokenizer_set_array(t, "tokenizer.ggml.tokens", MICA_VALUE_STRING, t->count, t->token);
    if (status == MICA_OK && (strcmp(t->kind, "llama") == 0 || strcmp(t->kind, "t5") == 0))
        status = mica__tokenizer_set_array(t, "tokenizer.ggml.scores", MICA_VALUE_F32, t->count, t->score);
    return status == MICA_OK
               ? mica__tokenizer_set_array(t, "tokenizer.ggml.token_type", MICA_VALUE_I32, t->count, t->type)
               : status;
}
