/* build.c: the tokenizer as an object: its memory, its parts, and the tables that both loaders need. Knows neither
 * GGUF nor JSON. */
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

#define CHUNK_BYTES 65536
#define TOKEN_STEPS 8  /* of a token or a merge that is taken */
#define TOKEN_BYTES 16 /* of a file, beside its text */

typedef struct mica__text_chunk {
    struct mica__text_chunk *next;
    size_t used, room;
    char bytes[];
} mica__text_chunk;

mica_tokenizer *mica__tokenizer_new(uint32_t count)
{
    mica_tokenizer *t = mica__calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    const size_t room = (size_t)count + 1;
    atomic_init(&t->references, 1);
    t->count = count;
    t->text = mica__calloc(room, sizeof *t->text);
    t->piece = mica__calloc(room, sizeof *t->piece);
    t->score = mica__calloc(room, sizeof *t->score);
    t->token_kind = mica__calloc(room, 1);
    t->is_end = mica__calloc(room, 1);
    t->most_letters = 100;
    t->unknown = MICA_NO_TOKEN;
    uint32_t *const ids[] = {&t->info.bos, &t->info.eos, &t->info.eot, &t->info.unk,
                             &t->info.pad, &t->info.sep, &t->info.cls, &t->info.mask};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        *ids[i] = MICA_NO_TOKEN;
    memset(t->byte_token, 0xff, sizeof t->byte_token);
    if (t->text != NULL && t->piece != NULL && t->score != NULL && t->token_kind != NULL &&
        t->is_end != NULL) {
        for (uint32_t i = 0; i < count; i++) {
            t->text[i].data = "";
            t->token_kind[i] = MICA_TOKEN_UNUSED;
        }
        return t;
    }
    mica_tokenizer_release(t);
    return NULL;
}

static void release_steps(mica__steps *steps)
{
    for (uint32_t i = 0; i < steps->count; i++)
        mica__regex_release(steps->step[i].regex);
}

const mica_tokenizer *mica__tokenizer_retain(const mica_tokenizer *tokenizer)
{
    atomic_fetch_add_explicit(&((mica_tokenizer *)(uintptr_t)tokenizer)->references, 1, memory_order_relaxed);
    return tokenizer;
}

void mica_tokenizer_release(mica_tokenizer *t)
{
    if (t == NULL || atomic_fetch_sub(&t->references, 1) != 1)
        return;
    for (mica__text_chunk *chunk = t->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        mica__free(chunk);
    }
    release_steps(&t->normalizer);
    release_steps(&t->splitter);
    mica__token_map_release(&t->by_text);
    mica__token_map_release(&t->by_piece);
    mica__merge_map_release(&t->merges);
    mica__wordlist *const lists[] = {&t->added_raw, &t->added_normal, &t->starts, &t->continues, &t->pieces};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        mica__wordlist_release(lists[i]);
    mica__free(t->added);
    mica__free(t->added_is_normal);
    mica__free(t->text);
    mica__free(t->piece);
    mica__free(t->score);
    mica__free(t->token_kind);
    mica__free(t->is_end);
    mica__free(t);
}

mica_string mica__tokenizer_keep(mica_tokenizer *t, const char *text, size_t length)
{
    mica__text_chunk *chunk = t->chunks;
    if (chunk == NULL || chunk->room - chunk->used < length + 1) {
        const size_t room = length + 1 > CHUNK_BYTES ? length + 1 : CHUNK_BYTES;
        chunk = mica__alloc(sizeof *chunk + room);
        if (chunk == NULL)
            return (mica_string){NULL, 0};
        *chunk = (mica__text_chunk){.next = t->chunks, .room = room};
        t->chunks = chunk;
    }
    char *copy = chunk->bytes + chunk->used;
    if (length != 0)
        memcpy(copy, text, length);
    copy[length] = '\0';
    chunk->used += length + 1;
    return (mica_string){copy, length};
}

static mica_status no_memory(void)
{
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a tokenizer");
}

mica_status mica__tokenizer_set(mica_tokenizer *t, uint32_t id, const char *text, size_t length,
                                mica_token_kind kind, double score)
{
    mica__spend_allow(TOKEN_BYTES + length);
    mica_status status =
        mica__limit_check("bytes in the text of a token", mica__limits()->token_bytes, length);
    if (status == MICA_OK)
        status = mica__spend(TOKEN_STEPS + length / 16);
    if (status != MICA_OK)
        return status;
    const mica_string kept = mica__tokenizer_keep(t, text, length);
    if (kept.data == NULL)
        return no_memory();
    t->longest_text = length > t->longest_text ? (uint32_t)length : t->longest_text;
    t->text[id] = kept;
    t->token_kind[id] = (uint8_t)kind;
    t->score[id] = score;
    return MICA_OK;
}

mica_status mica__tokenizer_add(mica_tokenizer *t, mica__added added, bool normalized)
{
    if (t->added_count == t->added_room) {
        const uint32_t room = t->added_room * 2 + 64;
        mica__added *list = mica__realloc(t->added, room * sizeof *list);
        if (list == NULL)
            return no_memory();
        t->added = list;
        bool *marks = mica__realloc(t->added_is_normal, room * sizeof *marks);
        if (marks == NULL)
            return no_memory();
        t->added_is_normal = marks;
        t->added_room = room;
    }
    t->added_is_normal[t->added_count] = normalized;
    t->added[t->added_count++] = added;
    return MICA_OK;
}

static bool begins(mica_string text, const char *with, size_t length)
{
    return text.length >= length && length != 0 && memcmp(text.data, with, length) == 0;
}

mica_status mica__tokenizer_merge(mica_tokenizer *t, uint32_t rank, mica_string left, mica_string right)
{
    const size_t prefix =
        begins(right, t->continued.data, (size_t)t->continued.length) ? (size_t)t->continued.length : 0;
    const uint32_t a = mica__token_map_find(&t->by_text, left.data, (size_t)left.length);
    const uint32_t b = mica__token_map_find(&t->by_text, right.data, (size_t)right.length);
    char joined[256]; /* of most tokens; a longer one takes memory */
    mica__bytes both = {0};
    const size_t length = (size_t)left.length + (size_t)right.length - prefix;
    mica__spend_allow(TOKEN_BYTES + length);
    const mica_status status = mica__spend(TOKEN_STEPS + length / 8);
    if (status != MICA_OK)
        return status;
    char *text = length <= sizeof joined ? joined : mica__bytes_grow(&both, length);
    if (text == NULL)
        return both.status != MICA_OK ? both.status : no_memory();
    memcpy(text, left.data, (size_t)left.length);
    memcpy(text + left.length, right.data + prefix, (size_t)right.length - prefix);
    const uint32_t id = mica__token_map_find(&t->by_text, text, length);
    mica__free(both.data);
    if (a == MICA__NO_WORD || b == MICA__NO_WORD || id == MICA__NO_WORD)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "merge %u of the tokenizer, \"%.40s\", names or makes a text that is no token",
                          rank, left.data);
    mica__merge_map_add(&t->merges, a, b, rank, id);
    return MICA_OK;
}

mica__step *mica__steps_add(mica__steps *steps, mica__step_kind kind)
{
    if (steps->count == MICA__MOST_STEPS)
        return NULL;
    mica__step *step = &steps->step[steps->count++];
    *step = (mica__step){.kind = kind};
    return step;
}

mica_status mica__steps_add_regex(mica__steps *steps, mica__step_kind kind, const char *pattern,
                                  size_t length, mica__step **out_step)
{
    mica__step *step = mica__steps_add(steps, kind);
    if (out_step != NULL)
        *out_step = step;
    if (step == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "a tokenizer with more than %d steps", MICA__MOST_STEPS);
    return mica__regex_create(pattern, length, &step->regex);
}

/* ---- how tokens show ----------------------------------------------------------------------------------------- */

/* False if a letter is not of the alphabet. */
static bool spell_bytes(mica_string text, mica__bytes *out)
{
    for (size_t i = 0, length; i < text.length; i += length) {
        length = mica__utf8_length(text.data + i, (size_t)text.length - i);
        const int byte = length == 0 ? -1 : mica__letter_byte(mica__char_at(text.data + i, &length));
        if (byte < 0)
            return false;
        mica__bytes_add(out, &(char){(char)byte}, 1);
    }
    return true;
}

static void spell_marks(mica_string text, mica__bytes *out)
{
    for (size_t i = 0; i < text.length;) {
        const bool mark = begins((mica_string){text.data + i, text.length - i}, MICA__MARK, 3);
        mica__bytes_add(out, mark ? " " : text.data + i, 1);
        i += mark ? 3 : 1;
    }
}

/* What a wordpiece decoder takes the blank from, or writes shorter. */
static const struct {
    const char *from, *to;
} tidied[] = {{" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
              {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

static void spell_word(const mica__spelling *spelling, mica_string text, mica__bytes *out)
{
    const size_t mark = (size_t)spelling->continued.length;
    if (mark != 0 && begins(text, spelling->continued.data, mark)) {
        mica__bytes_add(out, text.data + mark, (size_t)text.length - mark);
        return;
    }
    if (mark == 0 && !begins(text, MICA__MARK, 3)) {
        mica__bytes_add(out, text.data, (size_t)text.length);
        return;
    }
    mica__bytes_add(out, " ", 1);
    mica__bytes_add(out, text.data + (mark == 0 ? 3 : 0), (size_t)text.length - (mark == 0 ? 3 : 0));
    for (size_t i = 0; spelling->tidy && !out->failed && i < sizeof tidied / sizeof tidied[0]; i++) {
        const size_t length = strlen(tidied[i].from);
        if (out->size < length || memcmp(out->data, tidied[i].from, length) != 0)
            continue;
        const size_t shorter = strlen(tidied[i].to);
        memmove(out->data + shorter, out->data + length, out->size - length);
        memcpy(out->data, tidied[i].to, shorter);
        out->size -= length - shorter;
    }
}

static void spell_token(const mica_tokenizer *t, uint32_t id, mica__bytes *out)
{
    const mica__spelling *spelling = &t->spelling;
    const mica_string text = t->text[id];
    const int byte = spelling->bytes ? mica__byte_of_name(text.data, (size_t)text.length) : -1;
    const bool plain = t->token_kind[id] == MICA_TOKEN_NORMAL || t->token_kind[id] == MICA_TOKEN_UNUSED;
    out->size = 0;
    if (byte >= 0 && (plain || t->token_kind[id] == MICA_TOKEN_BYTE)) {
        mica__bytes_add(out, &(char){(char)byte}, 1);
    } else if (spelling->spaced) {
        mica__bytes_add(out, " ", 1);
        mica__bytes_add(out, text.data, (size_t)text.length);
    } else if (spelling->words) {
        if (!plain && spelling->continued.length == 0)
            mica__bytes_add(out, " ", 1); /* [SEP]: a word, though not marked as one */
        spell_word(spelling, text, out);
    } else if (plain && spelling->byte_level) {
        if (!spell_bytes(text, out)) {
            out->size = 0;
            mica__bytes_add(out, text.data, (size_t)text.length);
        }
    } else if (plain && spelling->marks) {
        spell_marks(text, out);
    } else {
        mica__bytes_add(out, text.data, (size_t)text.length);
    }
    const size_t suffix = (size_t)spelling->suffix.length;
    if (plain && suffix != 0 && !out->failed && out->size >= suffix &&
        memcmp(out->data + out->size - suffix, spelling->suffix.data, suffix) == 0) {
        out->size -= suffix;
        mica__bytes_add(out, " ", 1);
    }
}

static mica_status spell_all(mica_tokenizer *t)
{
    mica__bytes out = {0};
    bool failed = false;
    mica_status status = MICA_OK;
    for (uint32_t id = 0; id < t->count && !failed && status == MICA_OK; id++) {
        spell_token(t, id, &out);
        status = mica__spend(TOKEN_STEPS + out.size / 2);
        t->piece[id] = out.failed ? (mica_string){NULL, 0} : mica__tokenizer_keep(t, out.data, out.size);
        failed = t->piece[id].data == NULL;
        if (t->piece[id].length > t->longest_piece)
            t->longest_piece = (uint32_t)t->piece[id].length;
    }
    mica__free(out.data);
    return out.status != MICA_OK ? out.status : failed ? no_memory() : status;
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

static void find_bytes(mica_tokenizer *t)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8] = "<0x00>";
        size_t length = 6;
        if (t->spelling.byte_level) {
            length = mica__utf8_put(mica__byte_letter((unsigned char)byte), text);
        } else {
            text[3] = "0123456789ABCDEF"[byte >> 4];
            text[4] = "0123456789ABCDEF"[byte & 15];
        }
        t->byte_token[byte] = mica__token_map_find(&t->by_text, text, length);
    }
}

static bool is_special(const mica_tokenizer *t, uint32_t id)
{
    return t->token_kind[id] == MICA_TOKEN_CONTROL || t->token_kind[id] == MICA_TOKEN_UNKNOWN ||
           t->token_kind[id] == MICA_TOKEN_BYTE;
}

/* Wordpieces in two lists, each without its mark. */
static mica_status list_wordpieces(mica_tokenizer *t)
{
    const mica_string mark = t->spelling.continued;
    mica_status status = mica__wordlist_create(&t->starts, t->count);
    if (status == MICA_OK)
        status = mica__wordlist_create(&t->continues, t->count);
    if (status != MICA_OK)
        return status;
    for (uint32_t id = 0; id < t->count; id++) {
        const mica_string text = t->text[id];
        const bool marked =
            mark.length != 0 ? begins(text, mark.data, (size_t)mark.length) : begins(text, MICA__MARK, 3);
        const size_t skip = !marked ? 0 : mark.length != 0 ? (size_t)mark.length : 3;
        mica__wordlist *list = marked == (mark.length != 0) ? &t->continues : &t->starts;
        if (!is_special(t, id))
            list->words[list->count++] = (mica__word){text.data + skip, (uint32_t)(text.length - skip), id};
    }
    status = mica__wordlist_sort(&t->starts);
    return status == MICA_OK ? mica__wordlist_sort(&t->continues) : status;
}

/* What the worst token scores below; then an unknown character is never better than a known one. */
#define UNKNOWN_PENALTY 10.0

static mica_status list_pieces(mica_tokenizer *t)
{
    mica_status status = mica__wordlist_create(&t->pieces, t->count);
    double worst = 0;
    if (status != MICA_OK)
        return status;
    for (uint32_t id = 0; id < t->count; id++) {
        if (t->token_kind[id] == MICA_TOKEN_NORMAL && t->score[id] < worst)
            worst = t->score[id];
        if (!is_special(t, id))
            t->pieces.words[t->pieces.count++] =
                (mica__word){t->text[id].data, (uint32_t)t->text[id].length, id};
    }
    t->unknown_score = worst - UNKNOWN_PENALTY;
    return mica__wordlist_sort(&t->pieces);
}

/* The added tokens: those of the raw text, and those of normalised text, normalised themselves. */
static mica_status list_added(mica_tokenizer *t)
{
    mica__encoder encoder = {.tokenizer = t, .length = t->longest_text};
    mica_status status = mica__wordlist_create(&t->added_raw, t->added_count);
    if (status == MICA_OK)
        status = mica__wordlist_create(&t->added_normal, t->added_count);
    for (uint32_t i = 0; i < t->added_count && status == MICA_OK; i++) {
        mica_string text = t->text[t->added[i].id];
        mica__wordlist *list = t->added_is_normal[i] ? &t->added_normal : &t->added_raw;
        const char *normal = NULL;
        size_t length = 0;
        if (t->added_is_normal[i]) {
            status = mica__normalize(&encoder, text.data, (size_t)text.length, (mica__text_place){true, true},
                                     &normal, &length);
            text = status == MICA_OK ? mica__tokenizer_keep(t, normal, length) : (mica_string){NULL, 0};
            if (status == MICA_OK && text.data == NULL)
                status = no_memory();
        }
        if (status == MICA_OK)
            list->words[list->count++] = (mica__word){text.data, (uint32_t)text.length, i};
    }
    if (status == MICA_OK)
        status = mica__regex_scratch_settle(encoder.scratch);
    if (status == MICA_OK)
        status = mica__spend(encoder.debt);
    mica__encoder_release(&encoder);
    if (status == MICA_OK)
        status = mica__wordlist_sort(&t->added_raw);
    return status == MICA_OK ? mica__wordlist_sort(&t->added_normal) : status;
}

mica_status mica__tokenizer_finish(mica_tokenizer *t)
{
    mica_status status =
        t->by_text.slots != NULL ? MICA_OK : mica__token_map_create(&t->by_text, t->text, t->count);
    if (status == MICA_OK)
        find_bytes(t);
    if (status == MICA_OK)
        status = spell_all(t);
    if (status == MICA_OK)
        status = list_added(t);
    if (status == MICA_OK && t->kind == MICA__TOKENIZER_WORDPIECE)
        status = list_wordpieces(t);
    if (status == MICA_OK && t->kind == MICA__TOKENIZER_UNIGRAM)
        status = list_pieces(t);
    if (status == MICA_OK && t->raw_bytes && t->ignore_merges)
        status = mica__token_map_create(&t->by_piece, t->piece, t->count);
    static const char *const names[] = {"spm", "bpe", "wordpiece", "unigram", "words"};
    t->info.kind = names[t->kind];
    t->info.rule = t->rule;
    t->info.count = t->count;
    return status;
}
