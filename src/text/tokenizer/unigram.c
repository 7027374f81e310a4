/* unigram.c: the tokens whose scores have the largest sum: for each place in a piece the best way to get there. */
#include <string.h>

#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

static void offer(mica__path *path, double score, uint32_t start, uint32_t id)
{
    if (path->start == MICA__NO_WORD || score > path->score)
        *path = (mica__path){score, start, id};
}

/* The tokens that begin at `at`, each offered to the place where it ends; an unknown one if none is this character. */
static void extend(mica__encoder *e, const char *text, size_t length, size_t at)
{
    const mica_tokenizer *t = e->tokenizer;
    mica__path *paths = e->paths;
    const double score = at == 0 ? 0 : paths[at].score;
    size_t bytes = 0;
    bool has_char = false;
    mica__char_at(text + at, &bytes);
    mica__walk walk = {0};
    size_t i = at;
    uint64_t steps = 2;
    for (; i < length && mica__walk_step(&t->pieces, &walk, (unsigned char)text[i]); i++) {
        const mica__word *word = mica__walk_word(&t->pieces, &walk);
        if (word == NULL)
            continue;
        offer(&paths[i + 1], score + t->score[word->id], (uint32_t)at, word->id);
        has_char = has_char || i + 1 == at + bytes;
    }
    const mica__word *word;
    for (uint32_t node = 0; (word = mica__reach_next(&e->reach[2], &t->pieces, at, &node)) != NULL; steps++)
        offer(&paths[at + word->length], score + t->score[word->id], (uint32_t)at, word->id);
    if (!has_char)
        offer(&paths[at + bytes], score + t->unknown_score, (uint32_t)at, MICA__NO_WORD);
    mica__encoder_spend(e, steps + (i - at) * 2);
}

mica_status mica__encode_unigram(mica__encoder *e, const char *text, size_t length)
{
    if (length + 1 > e->path_room) {
        mica__path *paths = mica__realloc(e->paths, (length + length / 2 + 64) * sizeof *paths);
        if (paths == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to encode a text");
        e->paths = paths;
        e->path_room = length + length / 2 + 64;
    }
    const mica_status status = mica__reach_find(&e->reach[2], &e->tokenizer->pieces, text, length);
    if (status != MICA_OK)
        return status;
    for (size_t i = 0; i <= length && mica__encoder_spend(e, 1); i++)
        e->paths[i] = (mica__path){0, MICA__NO_WORD, MICA__NO_WORD};
    for (size_t at = 0, bytes; at < length && e->status == MICA_OK; at += bytes) {
        mica__char_at(text + at, &bytes);
        extend(e, text, length, at);
    }
    if (e->status != MICA_OK)
        return e->status;
    /* Back from the end, reversing the links: paths[start] tells then where its token ends. */
    mica__path path = e->paths[length];
    for (uint32_t end = (uint32_t)length; end != 0 && mica__encoder_spend(e, 1);) {
        const uint32_t start = path.start, id = path.id;
        path = e->paths[start];
        e->paths[start].start = end;
        e->paths[start].id = id;
        end = start;
    }
    uint32_t unknown = 0;
    for (uint32_t at = 0; at < length && mica__encoder_spend(e, 1);) {
        path = e->paths[at];
        if (path.id != MICA__NO_WORD) {
            mica__encode_unknown(e, text + at - unknown, unknown);
            mica__encoder_put(e, path.id);
            unknown = 0;
        } else {
            unknown += path.start - at;
        }
        at = path.start;
    }
    if (e->status == MICA_OK)
        mica__encode_unknown(e, text + length - unknown, unknown);
    return e->status;
}
