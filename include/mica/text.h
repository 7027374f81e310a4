/*
 * text.h - between text and tokens: tokenizers and chat templates, of the library libmica-model.
 *
 * A tokenizer comes out of what a model file says of itself (GGUF metadata, or the tokenizer.json of a folder, which
 * mica_weights_open gives as metadata too). A template is the Jinja text that model files carry; it is run in a
 * sandbox: it reads nothing but the variables it is given, and stops at its limits.
 *
 * Text is bytes with a length. What is not UTF-8 is encoded byte by byte where the tokenizer has tokens for bytes,
 * else as its unknown token; nothing is refused for it. Threads: tokenizers and templates are immutable: any thread
 * at once. A detokenizer belongs to one thread at a time.
 *
 * Tokenizers come from strangers, and so do texts. Calls count their steps (work.h): they end with BUDGET when
 * there are more than the limit 'steps' (100,000,000, and 256 for each byte of text or file), and with CANCELLED
 * within 100 ms of mica_work_cancel. Further limits, for opening: 'vocabulary' (4,194,304 tokens) and
 * 'token_bytes' (16,384 bytes of one token's text); for encoding: 'pattern_steps' (100,000,000 and 64 for each
 * byte of text, inside of the file's patterns, for the whole text). All of them are those of the work that the
 * calling thread uses, else the defaults.
 */
#ifndef MICA_TEXT_H
#define MICA_TEXT_H

#include "mica/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MICA_NO_TOKEN 0xFFFFFFFFu

/* ---- tokenizer ------------------------------------------------------------------------------------------ */

typedef struct mica_tokenizer mica_tokenizer;

typedef enum mica_token_kind {
    MICA_TOKEN_NORMAL = 1, /* the numbers are GGUF's */
    MICA_TOKEN_UNKNOWN,
    MICA_TOKEN_CONTROL, /* <s>, <|im_end|>: no text of its own */
    MICA_TOKEN_USER,    /* added by the model's makers, taken whole wherever its text stands */
    MICA_TOKEN_UNUSED,
    MICA_TOKEN_BYTE
} mica_token_kind;

typedef struct mica_tokenizer_info {
    const char *kind;                 /* "spm", "bpe", "wordpiece", "unigram", "words" */
    const char *rule;                 /* the name of the splitting rule, "" if it has none */
    uint32_t count;                   /* tokens, ids are 0 .. count - 1 */
    uint32_t bos, eos, eot, unk, pad; /* MICA_NO_TOKEN where there is none */
    uint32_t sep, cls, mask;
    uint32_t add_bos, add_eos; /* 1: MICA_ENCODE_ADD adds it */
} mica_tokenizer_info;

/* The tokenizer of a model file: of its tokenizer.json where that is among the metadata (tokenizer.huggingface.json),
 * else of the keys tokenizer.ggml.*. NOT_FOUND where it has none, UNSUPPORTED names a kind, rule or step that is not
 * known, MALFORMED_FILE names the key, or says that the ids leave large gaps; BUDGET: a limit of work.h. The weights
 * need not live on. The caller releases *out_tokenizer. */
MICA_API mica_status mica_tokenizer_create(const mica_weights *weights, mica_tokenizer **out_tokenizer);
/* NULL is fine. */
MICA_API void mica_tokenizer_release(mica_tokenizer *tokenizer);
/* Facts; the words live as long as the tokenizer. INVALID_ARGUMENT for NULL. */
MICA_API mica_status mica_tokenizer_get_info(const mica_tokenizer *tokenizer, mica_tokenizer_info *out);
/* The text of a token as the vocabulary writes it, borrowed, and its kind. INVALID_ARGUMENT for an id out of range. */
MICA_API mica_status mica_tokenizer_token(const mica_tokenizer *tokenizer, uint32_t id, mica_string *out_text,
                                          mica_token_kind *out_kind);
/* The id whose vocabulary text is exactly this, special ones included; MICA_NO_TOKEN if there is none. */
MICA_API uint32_t mica_tokenizer_find(const mica_tokenizer *tokenizer, const char *text, uint64_t length);
/* 1 for tokens after which a model has said all it wants to say: eos, end of turn, end of message. */
MICA_API int mica_tokenizer_is_end(const mica_tokenizer *tokenizer, uint32_t id);

#define MICA_ENCODE_ADD 1u     /* add the tokens that the model wants at the beginning and the end */
#define MICA_ENCODE_SPECIAL 2u /* the text of control tokens becomes those tokens, else plain text */

/* The ids of a text of at most 2^30 bytes. `out_count` is how many there are; the first `capacity` are written
 * (ids may be NULL when that is 0). Nearly always length + 3 are enough; a normaliser can make more of a text:
 * then *out_count is above the capacity, and the call is made again. The time grows as n log n with the length,
 * however long the tokens are; only a pattern of the file can take more. BUDGET: it does, past the limit
 * 'pattern_steps'; or the call takes more than 'steps'; or the steps of the tokenizer make the text much longer.
 * CANCELLED. *out_count is 0 then. */
MICA_API mica_status mica_tokenizer_encode(const mica_tokenizer *tokenizer, const char *text, uint64_t length,
                                           uint32_t flags, uint32_t *ids, uint64_t capacity,
                                           uint64_t *out_count);

#define MICA_DECODE_SPECIAL 1u /* control tokens show as their vocabulary text, else as nothing */
/* The tokens begin a text: the blank that a tokenizer put before it is taken away. */
#define MICA_DECODE_START 2u

/* The text of tokens; not NUL-terminated. Always valid UTF-8: bytes that are no character are U+FFFD.
 * `out_length` is its full length, `capacity` cuts what is written. An id out of range is
 * INVALID_ARGUMENT; BUDGET and CANCELLED as above. */
MICA_API mica_status mica_tokenizer_decode(const mica_tokenizer *tokenizer, const uint32_t *ids,
                                           uint64_t count, uint32_t flags, char *text, uint64_t capacity,
                                           uint64_t *out_length);

/* Token by token, giving out only whole characters: bytes of one that is not complete wait for the next token. */
typedef struct mica_detokenizer mica_detokenizer;
/* `flags` is MICA_DECODE_*. Keeps the tokenizer. The caller releases it. */
MICA_API mica_status mica_detokenizer_create(const mica_tokenizer *tokenizer, uint32_t flags,
                                             mica_detokenizer **out_detokenizer);
/* NULL is fine. */
MICA_API void mica_detokenizer_release(mica_detokenizer *detokenizer);
/* The text that this token completes, valid until the next call; may be empty. Bytes that can become no character
 * come out as U+FFFD. Allocates nothing. */
MICA_API mica_status mica_detokenizer_push(mica_detokenizer *detokenizer, uint32_t id, mica_string *out_text);
/* What still waits at the end, as U+FFFD if it is no whole character; the detokenizer starts anew. */
MICA_API mica_status mica_detokenizer_flush(mica_detokenizer *detokenizer, mica_string *out_text);

/* ---- chat templates ------------------------------------------------------------------------------------- */

/* A template is a stranger's program: creating and rendering one ends by its own limits, which stand in the options,
 * and by those of the thread's work (work.h), of which a step here takes about four. CANCELLED within 100 ms. Neither
 * call needs more than 128 KB of stack. */
typedef struct mica_template mica_template;

typedef struct mica_template_options {
    uint64_t size; /* sizeof(mica_template_options); 0 = this version's */
    /* evaluated nodes, and one more for 64 bytes copied or 8 characters looked at; 0 = 10,000,000 */
    uint64_t most_steps;
    uint64_t most_bytes; /* of the parsed template, of the output, and of all values, each; 0 = 64 MB */
    int64_t now;         /* seconds since 1970 for strftime_now; 0 = the clock; in UTC */
} mica_template_options;

/* Parses the Jinja text, at most 16 MB, as the renderers of chat templates do: trim_blocks and
 * lstrip_blocks on, lists and dicts that cannot be changed, break and continue. INVALID_ARGUMENT gives line
 * and column of what is wrong, UNSUPPORTED names a tag, filter or test that is not known (a filter or test
 * inside of an {% if %} only when it is reached), BUDGET: too much inside each other, or a limit. `options`
 * may be NULL. The caller releases *out_template. */
MICA_API mica_status mica_template_create(const char *text, uint64_t length,
                                          const mica_template_options *options, mica_template **out_template);
/* NULL is fine. */
MICA_API void mica_template_release(mica_template *chat_template);
/* Runs it over variables, an object in JSON: {"messages": [...], "add_generation_prompt": true, "tools": [...],
 * "bos_token": "<s>", ...}; the order of keys is kept, 1 is an integer and 1.0 is not. A variable that is not there
 * is undefined, which is not the same as null. INVALID_ARGUMENT: what the template raised (raise_exception), or an
 * operation that its values cannot take, with line and column. UNSUPPORTED: something of Python that is not known.
 * BUDGET: past a limit. The caller frees *out_text with mica_text_free; a NUL follows it. */
MICA_API mica_status mica_template_render(const mica_template *chat_template, const char *variables,
                                          uint64_t length, char **out_text, uint64_t *out_length);
/* Frees a text that a call here gave. NULL is fine. */
MICA_API void mica_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
