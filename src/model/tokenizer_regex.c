/* tokenizer_regex.c: compiling and running with PCRE2; the only file that knows it. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer_regex.h"

#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"
#include "model/tokenizer_buffer.h"

#define MOST_PATTERN 65536        /* bytes; the longest rule known has 2,000 */
#define MOST_NESTING 64           /* parentheses */
#define MOST_STEPS 20000000u      /* of one search: a few tenths of a second */
#define MOST_HEAP_KIB (64 * 1024) /* of one search, where it runs without JIT */

struct mica__regex {
    pcre2_code *code;
    pcre2_match_context *limits;
    bool compiled; /* to machine code */
};

static void *take(PCRE2_SIZE size, void *context)
{
    (void)context;
    return mica__alloc(size);
}

static void give_back(void *block, void *context)
{
    (void)context;
    mica__free(block);
}

/* ---- the dialect ------------------------------------------------------------------------------------------ */

/* \s and \w as members of a class: PCRE2 counts U+180E as a blank, and neither marks nor connectors as words. */
#define SPACE "\\p{Z}\\t-\\r\\x{85}"
#define WORD                                                                                             \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{" \
    "1f170}-"                                                                                            \
    "\\x{1f189}"

static const struct {
    char letter;
    bool in_class; /* also inside of brackets */
    const char *inside, *outside;
} escapes[] = {
    {'s', true, SPACE, "[" SPACE "]"},
    {'w', true, WORD, "[" WORD "]"},
    {'S', false, "", "[^" SPACE "]"},
    {'W', false, "", "[^" WORD "]"},
};

/* Copies the escape at pattern[i] and returns how many bytes it has. */
static size_t copy_escape(const char *pattern, size_t left, bool in_class, mica__bytes *out)
{
    const size_t length = left < 2 ? left : 2;
    for (size_t k = 0; length == 2 && k < sizeof escapes / sizeof escapes[0]; k++)
        if (pattern[1] == escapes[k].letter && (escapes[k].in_class || !in_class)) {
            const char *text = in_class ? escapes[k].inside : escapes[k].outside;
            mica__bytes_add(out, text, strlen(text));
            return length;
        }
    mica__bytes_add(out, pattern, length);
    return length;
}

static mica_status translate(const char *pattern, size_t length, mica__bytes *out)
{
    bool in_class = false;
    for (size_t i = 0; i < length;) {
        const size_t left = length - i;
        const char next = left > 1 ? pattern[i + 1] : '\0';
        if (pattern[i] == '\\') {
            if (next == 'h' || next == 'H')
                return mica__fail(MICA_ERR_UNSUPPORTED,
                                  "a pattern has \\%c at byte %zu, which mica does not know", next, i);
            i += copy_escape(pattern + i, left, in_class, out);
            continue;
        }
        if (in_class && pattern[i] == '[' && next != ':')
            return mica__fail(MICA_ERR_UNSUPPORTED, "a pattern has a class inside a class at byte %zu", i);
        if (in_class && pattern[i] == '&' && next == '&')
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "a pattern has an intersection (&&) of classes at byte %zu", i);
        const char *close = in_class && pattern[i] == '[' ? memchr(pattern + i + 2, ']', left - 2) : NULL;
        size_t take_bytes = close != NULL ? (size_t)(close - pattern) + 1 - i : 1;
        if (!in_class && pattern[i] == '[') {
            in_class = true;
            take_bytes += next == '^';
            take_bytes += take_bytes < left && pattern[i + take_bytes] == ']';
        } else if (in_class && pattern[i] == ']') {
            in_class = false;
        }
        mica__bytes_add(out, pattern + i, take_bytes);
        i += take_bytes;
    }
    return out->failed ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a pattern") : MICA_OK;
}

/* ---- compiling ----------------------------------------------------------------------------------------- */

static mica_status compile(mica__regex *regex, const mica__bytes *text, pcre2_general_context *general,
                           pcre2_compile_context *context)
{
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_MULTILINE;
    int error = 0;
    PCRE2_SIZE where = 0;
    char reason[128] = "";
    pcre2_set_parens_nest_limit(context, MOST_NESTING);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    regex->code = pcre2_compile((PCRE2_SPTR)text->data, text->size, options, &error, &where, context);
    if (regex->code == NULL && error == PCRE2_ERROR_HEAP_FAILED)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a pattern");
    if (regex->code == NULL) {
        pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
        return mica__fail(MICA_ERR_MALFORMED_FILE, "a pattern of the tokenizer is wrong at byte %zu: %s",
                          (size_t)where, reason);
    }
    regex->compiled = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    regex->limits = pcre2_match_context_create(general);
    if (regex->limits == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a pattern");
    pcre2_set_match_limit(regex->limits, MOST_STEPS);
    pcre2_set_heap_limit(regex->limits, MOST_HEAP_KIB);
    return MICA_OK;
}

mica_status mica__regex_create(const char *pattern, size_t length, mica__regex **out_regex)
{
    mica__bytes text = {0};
    *out_regex = NULL;
    if (length > MOST_PATTERN)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "a pattern of the tokenizer has %zu bytes, at most %d are taken", length,
                          MOST_PATTERN);
    mica_status status = translate(pattern, length, &text);
    mica__regex *regex = mica__calloc(1, sizeof *regex);
    pcre2_general_context *general = pcre2_general_context_create(take, give_back, NULL);
    pcre2_compile_context *context = general == NULL ? NULL : pcre2_compile_context_create(general);
    if (status == MICA_OK && (regex == NULL || context == NULL))
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a pattern");
    if (status == MICA_OK)
        status = compile(regex, &text, general, context);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    mica__free(text.data);
    if (status != MICA_OK)
        mica__regex_release(regex);
    else
        *out_regex = regex;
    return status;
}

void mica__regex_release(mica__regex *regex)
{
    if (regex == NULL)
        return;
    pcre2_match_context_free(regex->limits);
    pcre2_code_free(regex->code);
    mica__free(regex);
}

/* ---- running ------------------------------------------------------------------------------------------- */

static pcre2_match_data *data_of(mica__regex_scratch **scratch)
{
    if (*scratch == NULL) {
        pcre2_general_context *general = pcre2_general_context_create(take, give_back, NULL);
        if (general != NULL)
            *scratch = (mica__regex_scratch *)pcre2_match_data_create(1, general);
        pcre2_general_context_free(general);
    }
    return (pcre2_match_data *)*scratch;
}

mica_status mica__regex_find(const mica__regex *regex, mica__regex_scratch **scratch, const char *text,
                             size_t length, size_t at, bool *out_found, size_t *out_start, size_t *out_end)
{
    pcre2_match_data *data = data_of(scratch);
    *out_found = false;
    if (data == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to match a pattern");
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (regex->compiled)
        found = pcre2_jit_match(regex->code, (PCRE2_SPTR)text, length, at, 0, data, regex->limits);
    /* Machine code has 32 KiB for its way back; what needs more is interpreted, with memory of our own. */
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(regex->code, (PCRE2_SPTR)text, length, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            data, regex->limits);
    if (found == PCRE2_ERROR_NOMATCH)
        return MICA_OK;
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(data);
    if (found < 0 || place[0] > place[1] || place[0] < at)
        return mica__fail(found == PCRE2_ERROR_NOMEMORY ? MICA_ERR_OUT_OF_MEMORY : MICA_ERR_BUDGET,
                          "a pattern of the tokenizer takes too many steps on this text");
    *out_found = true;
    *out_start = place[0];
    *out_end = place[1];
    return MICA_OK;
}

void mica__regex_scratch_release(mica__regex_scratch *scratch)
{
    pcre2_match_data_free((pcre2_match_data *)scratch);
}
