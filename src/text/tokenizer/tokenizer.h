/* tokenizer.h: what a tokenizer is made of. The two loaders fill it, finish completes it, then it never changes.
 *
 * Text goes through: added tokens that are taken whole; the normaliser's steps; added tokens again, for those that are
 * looked for in normalised text; the splitter's steps, which cut it into pieces; the model, which turns each piece into
 * ids. */
#ifndef MICA_TEXT_TOKENIZER_TOKENIZER_H
#define MICA_TEXT_TOKENIZER_TOKENIZER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/split_rules.h"
#include "base/work.h"
#include "mica/text.h"
#include "text/tokenizer/buffer.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/words.h"

#define MICA__MOST_TOKENS (1u << 24)
#define MICA__MOST_STEPS 64       /* of a normaliser or a splitter */
#define MICA__MOST_AROUND 8       /* tokens before or after a text */
#define MICA__MARK "\xe2\x96\x81" /* U+2581, which stands for a blank in vocabularies */

typedef enum mica__tokenizer_kind {
    MICA__TOKENIZER_SPM = 0,   /* merges by the score of the token that comes out */
    MICA__TOKENIZER_BPE,       /* merges by rank of the pair */
    MICA__TOKENIZER_WORDPIECE, /* the longest token first */
    MICA__TOKENIZER_UNIGRAM,   /* the best sum of scores */
    MICA__TOKENIZER_WORDS      /* whole words only */
} mica__tokenizer_kind;

typedef enum mica__step_kind {
    /* normaliser */
    MICA__STEP_NFC = 0,
    MICA__STEP_NFD,
    MICA__STEP_NFKC,
    MICA__STEP_NFKD,
    MICA__STEP_LOWERCASE,
    MICA__STEP_STRIP_ACCENTS,
    MICA__STEP_STRIP,   /* blanks at the ends: LEFT, RIGHT */
    MICA__STEP_REPLACE, /* regex, or text, by `with` */
    MICA__STEP_PREPEND, /* text */
    MICA__STEP_BERT,    /* CLEAN, CHINESE, ACCENTS, LOWER */
    MICA__STEP_NMT,
    MICA__STEP_CHARSMAP, /* text is the map; GRAPHEMES */
    MICA__STEP_SQUEEZE,  /* one blank for many, none at the ends */
    /* splitter: what changes the text */
    MICA__STEP_METASPACE, /* blanks become text; it is put before, if ALWAYS or FIRST */
    MICA__STEP_BLANK,     /* a blank before, where there is none */
    MICA__STEP_BYTES,     /* each byte becomes its letter of the byte-level alphabet */
    /* splitter: what cuts; by behaviour, INVERT */
    MICA__STEP_SPLIT_REGEX,
    MICA__STEP_SPLIT_TEXT,
    MICA__STEP_SPLIT_SPACE,
    MICA__STEP_SPLIT_PUNCTUATION,
    MICA__STEP_SPLIT_NUMBER
} mica__step_kind;

#define MICA__STEP_INVERT 1u
#define MICA__STEP_LEFT 2u
#define MICA__STEP_RIGHT 4u
#define MICA__STEP_CLEAN 8u
#define MICA__STEP_CHINESE 16u
#define MICA__STEP_ACCENTS 32u
#define MICA__STEP_LOWER 64u
#define MICA__STEP_ALWAYS 128u
#define MICA__STEP_FIRST 256u
#define MICA__STEP_GRAPHEMES 512u

typedef enum mica__behaviour {
    MICA__BEHAVIOUR_ISOLATED = 0,
    MICA__BEHAVIOUR_REMOVED,
    MICA__BEHAVIOUR_PREVIOUS,
    MICA__BEHAVIOUR_NEXT,
    MICA__BEHAVIOUR_CONTIGUOUS
} mica__behaviour;

typedef struct mica__step {
    mica__step_kind kind;
    mica__behaviour behaviour;
    uint32_t flags;
    mica_string text, with; /* in the tokenizer's memory */
    mica__regex *regex;     /* owned */
} mica__step;

typedef struct mica__steps {
    mica__step step[MICA__MOST_STEPS];
    uint32_t count;
} mica__steps;

/* A token that is taken whole wherever its text stands. */
typedef struct mica__added {
    uint32_t id;
    bool special, left, right, word; /* eats blanks to its left, right; only where no word goes on */
} mica__added;

/* How tokens become text. */
typedef struct mica__spelling {
    bool byte_level; /* letters of the byte-level alphabet are bytes */
    bool marks;      /* MICA__MARK is a blank */
    bool bytes;      /* <0x0A> is a byte */
    bool words;      /* wordpieces: a blank before each that does not continue a word */
    bool tidy;       /* wordpieces: no blank before . , ? ! and some endings */
    bool spaced;     /* a blank before every token */
    bool lead;       /* a text begins with a blank that was put there */
    /* mark of wordpieces that continue a word; empty: those that do not begin with MICA__MARK */
    mica_string continued;
    mica_string suffix; /* end of the last token of a word, a blank in text */
} mica__spelling;

struct mica_tokenizer {
    _Atomic uint32_t references;
    mica__tokenizer_kind kind;
    bool from_json; /* else from a GGUF */
    char rule[64];
    mica_tokenizer_info info;

    /* [count] each */
    mica_string *text;  /* as the vocabulary writes it */
    mica_string *piece; /* as it shows in text */
    double *score;
    uint8_t *token_kind; /* mica_token_kind */
    uint8_t *is_end;
    uint32_t count;
    uint32_t longest_piece, longest_text; /* in bytes */
    struct mica__text_chunk *chunks;      /* memory of all texts */

    mica__token_map by_text;
    mica__steps normalizer, splitter;
    mica__added *added; /* [added_count], in two lists by index */
    uint32_t added_count, added_room;
    mica__wordlist added_raw, added_normal;
    bool *added_is_normal; /* [added_count]: looked for in normalised text */

    bool raw_bytes;           /* byte-level: the model sees bytes, not their letters */
    uint32_t byte_token[256]; /* MICA_NO_TOKEN where there is none */
    bool byte_fallback;
    uint32_t unknown; /* what stands for a text that has no token; MICA_NO_TOKEN: nothing does */
    uint32_t before[MICA__MOST_AROUND], after[MICA__MOST_AROUND]; /* what MICA_ENCODE_ADD adds */
    uint32_t before_count, after_count;

    /* bpe */
    mica__merge_map merges;
    mica__token_map by_piece; /* raw_bytes and ignore_merges: words that are one token */
    bool ignore_merges, fuse_unknown;
    mica_string continued, suffix; /* continuing_subword_prefix, end_of_word_suffix */

    /* wordpiece */
    mica__wordlist starts, continues;
    uint32_t most_letters; /* of a word; longer ones are unknown */

    /* unigram */
    mica__wordlist pieces;
    double unknown_score;

    mica__spelling spelling;
};

/* ---- building (build.c) ------------------------------------------------------------------------- */

/* An empty tokenizer with `count` tokens; NULL without memory. */
mica_tokenizer *mica__tokenizer_new(uint32_t count);
/* A copy of a text that lives as long as the tokenizer, NUL after it; data NULL without memory. */
mica_string mica__tokenizer_keep(mica_tokenizer *tokenizer, const char *text, size_t length);
/* Sets one token; `id` is below count. OUT_OF_MEMORY. */
mica_status mica__tokenizer_set(mica_tokenizer *tokenizer, uint32_t id, const char *text, size_t length,
                                mica_token_kind kind, double score);
/* Adds a token that is taken whole. OUT_OF_MEMORY. */
mica_status mica__tokenizer_add(mica_tokenizer *tokenizer, mica__added added, bool normalized);
/* Adds the merge of rank `rank`; by_text and merges are made. MALFORMED_FILE names a part that is no token. */
mica_status mica__tokenizer_merge(mica_tokenizer *tokenizer, uint32_t rank, mica_string left,
                                  mica_string right);
/* The next step, zeroed but for its kind; NULL when there are too many. */
mica__step *mica__steps_add(mica__steps *steps, mica__step_kind kind);
/* A step with a pattern. */
mica_status mica__steps_add_regex(mica__steps *steps, mica__step_kind kind, const char *pattern,
                                  size_t length, mica__step **out_step);
/* Makes the tables from what the loaders filled. */
mica_status mica__tokenizer_finish(mica_tokenizer *tokenizer);
/* One more owner; release takes it back. */
const mica_tokenizer *mica__tokenizer_retain(const mica_tokenizer *tokenizer);

/* ---- loaders ------------------------------------------------------------------------------------------------ */

mica_status mica__tokenizer_from_gguf(const mica_weights *weights, mica_tokenizer **out_tokenizer);
/* `weights` may be NULL: then the JSON is all there is. */
mica_status mica__tokenizer_from_json(const mica_weights *weights, const char *text, size_t length,
                                      mica_tokenizer **out_tokenizer);
/* Special ids and what is added, where the metadata tells; both loaders. */
mica_status mica__tokenizer_read_specials(mica_tokenizer *tokenizer, const mica_weights *weights);
/* Fills before and after from bos, eos and the flags, where no post-processor did. */
void mica__tokenizer_set_around(mica_tokenizer *tokenizer);
/* A flag of the metadata; *out_value is left alone if it is not there. */
mica_status mica__tokenizer_read_bool(const mica_weights *weights, const char *key, bool *out_value);

/* ---- the byte-level alphabet (bytes.c) ----------------------------------------------------------------- */

/* The letter of a byte. */
uint32_t mica__byte_letter(unsigned char byte);
/* The byte of a letter, -1 if it is none. */
int mica__letter_byte(uint32_t letter);
/* The byte that "<0x0A>" stands for, -1 if the text is none of these. */
int mica__byte_of_name(const char *text, size_t length);

/* ---- one call of encode ------------------------------------------------------------------------------------------ */

typedef struct mica__symbol {
    uint32_t id;
    uint32_t start, length;  /* in the piece; length 0: merged away */
    uint32_t previous, next; /* MICA__NO_WORD at the ends */
} mica__symbol;

typedef struct mica__pair {
    uint32_t rank, left, right, length, id;
} mica__pair;

typedef struct mica__path {
    double score;
    uint32_t start, id; /* of the best token that ends here; start MICA__NO_WORD: none */
} mica__path;

typedef struct mica__encoder {
    const mica_tokenizer *tokenizer;
    uint32_t flags;     /* MICA_ENCODE_* */
    size_t length;      /* of the whole text */
    uint64_t debt;      /* steps that are not spent yet */
    mica_status status; /* of what was spent: the first failure */
    uint32_t *ids;
    uint64_t capacity, count;
    mica__bytes normal[2], split[2];
    /* of long words: in the raw text, in a normalised part, in a piece, at its beginning */
    mica__reach reach[4];
    mica__spans spans[2];
    int32_t *codes; /* [code_room] */
    size_t code_room;
    mica__regex_scratch *scratch;
    mica__symbol *symbols; /* [symbol_room] */
    mica__pair *heap;      /* [heap_room] */
    size_t symbol_room, heap_count, heap_room;
    mica__path *paths; /* [path_room] */
    size_t path_room;
    struct mica__known *cache; /* [cache_mask + 1] words seen in this call, NULL in short texts */
    uint32_t cache_mask;
    uint64_t seed;
} mica__encoder;

/* Where a part of a text stands. */
typedef struct mica__text_place {
    bool first; /* at the beginning of the whole text */
    bool fresh; /* not behind bytes that are no UTF-8: may get a blank before it */
} mica__text_place;

static inline void mica__encoder_put(mica__encoder *encoder, uint32_t id)
{
    if (encoder->count < encoder->capacity)
        encoder->ids[encoder->count] = id;
    encoder->count++;
}

#define MICA__DEBT 65536

/* Takes steps. What they come to is looked at now and then, and at the end; loops may go on until then. */
static inline bool mica__encoder_spend(mica__encoder *encoder, uint64_t steps)
{
    encoder->debt += steps;
    if (encoder->debt >= MICA__DEBT && encoder->status == MICA_OK) {
        encoder->status = mica__spend(encoder->debt);
        encoder->debt = 0;
    }
    return encoder->status == MICA_OK;
}
/* The next match of a pattern, as mica__regex_find. */
mica_status mica__encoder_find(mica__encoder *encoder, const mica__regex *regex, const char *text,
                               size_t length, size_t at, bool *out_found, size_t *out_start, size_t *out_end);

/* The first place of `what` in text[from .. length), NULL if there is none. */
const char *mica__text_find(const char *text, size_t length, size_t from, mica_string what);

/* The text after all steps of the normaliser: *out_text is `text` itself, or memory of the encoder that stands until the
 * next call. */
mica_status mica__normalize(mica__encoder *encoder, const char *text, size_t length, mica__text_place place,
                            const char **out_text, size_t *out_length);
/* One step, into `out`, which is empty. */
mica_status mica__normalize_charsmap(mica__encoder *encoder, const mica__step *step, const char *text,
                                     size_t length, mica__bytes *out);
/* The pieces of a text: spans of *out_text, as above. */
mica_status mica__split(mica__encoder *encoder, const char *text, size_t length, mica__text_place place,
                        const char **out_text, const mica__spans **out_spans);
/* Checks a map before it is used: MALFORMED_FILE. */
mica_status mica__charsmap_check(const char *map, size_t length);

/* Words of a long text are kept with their ids. OUT_OF_MEMORY. */
mica_status mica__encoder_remember(mica__encoder *encoder, size_t length);
/* Gives back what an encoder took on the way. */
void mica__encoder_release(mica__encoder *encoder);

/* The ids of one piece, by kind. */
mica_status mica__encode_merges(mica__encoder *encoder, const char *text, size_t length);
mica_status mica__encode_wordpiece(mica__encoder *encoder, const char *text, size_t length);
mica_status mica__encode_unigram(mica__encoder *encoder, const char *text, size_t length);
/* Bytes for which there is no token: their byte tokens if all are there, else the unknown token, else nothing. */
void mica__encode_unknown(mica__encoder *encoder, const char *text, size_t length);

#endif
