/* regex.c: compiling and running with PCRE2; the only file that knows it. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/regex.h"

#include <pcre2.h>
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"
#include "text/tokenizer/buffer.h"

#define MOST_PATTERN 65536        /* bytes; the longest rule known has 2,000 */
#define MOST_NESTING 64           /* parentheses */
#define MOST_HEAP_KIB (64 * 1024) /* of one search that is counted */

/* A search is run twice at most. First in machine code that nobody can stop, over a piece of the text and with so few ways
 * back that it takes microseconds whatever the pattern; nearly all of them end there. What does not is interpreted, with
 * a call at every item of the pattern, where steps are counted. */
#define PIECE 256
#define WAYS_BACK 64u
#define QUICK_STEPS 8     /* of a search in machine code */
#define ITEM_STEPS 2      /* of an item that is interpreted, */
#define STEP_BYTES 4      /* and of the bytes that one passes over */
#define DEBT 65536        /* steps between two looks at the limits */
#define STEPS_PER_BYTE 64 /* that a text may take before the limit of patterns counts */

struct mica__regex {
    pcre2_code *code;
    pcre2_code *counted; /* the same with a call at every item */
    pcre2_match_context *limits;
    bool compiled; /* to machine code */
};

struct mica__regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *counting;
    uint64_t steps, allowed; /* of all searches in this text */
    uint64_t debt;           /* of them, not spent yet */
    size_t place;            /* in the text, at the last item */
    mica_status status;      /* why a search was stopped */
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
            if (next == 'h' || next == 'H' || next == 'G')
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
    return out->failed ? mica__bytes_fail(out) : MICA_OK;
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
    regex->counted = pcre2_compile((PCRE2_SPTR)text->data, text->size, options | PCRE2_AUTO_CALLOUT, &error,
                                   &where, context);
    regex->compiled = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
    regex->limits = pcre2_match_context_create(general);
    if (regex->limits == NULL || (regex->counted == NULL && error == PCRE2_ERROR_HEAP_FAILED))
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for a pattern");
    if (regex->counted == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED, "a pattern of the tokenizer is too large");
    pcre2_set_match_limit(regex->limits, WAYS_BACK);
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
    pcre2_code_free(regex->counted);
    mica__free(regex);
}

/* ---- counting ------------------------------------------------------------------------------------------- */

mica_status mica__regex_scratch_create(size_t length, mica__regex_scratch **out_scratch)
{
    pcre2_general_context *general = pcre2_general_context_create(take, give_back, NULL);
    mica__regex_scratch *scratch = mica__calloc(1, sizeof *scratch);
    *out_scratch = scratch;
    if (scratch != NULL && general != NULL) {
        scratch->data = pcre2_match_data_create(1, general);
        scratch->counting = pcre2_match_context_create(general);
    }
    pcre2_general_context_free(general);
    if (scratch == NULL || scratch->data == NULL || scratch->counting == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to match a pattern");
    pcre2_set_match_limit(scratch->counting, UINT32_MAX);
    pcre2_set_depth_limit(scratch->counting, UINT32_MAX);
    pcre2_set_heap_limit(scratch->counting, MOST_HEAP_KIB);
    const uint64_t more = (uint64_t)length * STEPS_PER_BYTE, limit = mica__limits()->pattern_steps;
    scratch->allowed = limit > UINT64_MAX - more ? UINT64_MAX : limit + more;
    return MICA_OK;
}

mica_status mica__regex_scratch_settle(mica__regex_scratch *scratch)
{
    const uint64_t debt = scratch == NULL ? 0 : scratch->debt;
    if (debt == 0)
        return MICA_OK;
    scratch->debt = 0;
    scratch->steps += debt;
    if (scratch->steps > scratch->allowed)
        return mica__fail(MICA_ERR_BUDGET,
                          "a pattern of the tokenizer takes more than %llu steps on this text (the limit "
                          "'pattern_steps' of mica_work)",
                          (unsigned long long)scratch->allowed);
    return mica__spend(debt);
}

static inline mica_status charge(mica__regex_scratch *scratch, uint64_t steps)
{
    scratch->debt += steps;
    return scratch->debt < DEBT ? MICA_OK : mica__regex_scratch_settle(scratch);
}

/* At every item of the pattern: how far was passed over since the last one tells what that took. */
static int count_item(pcre2_callout_block *block, void *context)
{
    mica__regex_scratch *scratch = context;
    const size_t place = block->current_position,
                 passed = place > scratch->place ? place - scratch->place : scratch->place - place;
    scratch->place = place;
    scratch->status = charge(scratch, ITEM_STEPS + passed / STEP_BYTES);
    return scratch->status == MICA_OK ? 0 : PCRE2_ERROR_CALLOUT;
}

/* ---- running ------------------------------------------------------------------------------------------- */

/* The match at this place, every item counted. */
static mica_status find_counted(const mica__regex *regex, mica__regex_scratch *scratch, const char *text,
                                size_t length, size_t at, int *out_found)
{
    pcre2_set_callout(scratch->counting, count_item, scratch);
    scratch->place = at;
    scratch->status = MICA_OK;
    *out_found =
        pcre2_match(regex->counted, (PCRE2_SPTR)text, length, at,
                    PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT | PCRE2_ANCHORED, scratch->data, scratch->counting);
    if (*out_found >= 0 || *out_found == PCRE2_ERROR_NOMATCH)
        return charge(scratch, ITEM_STEPS);
    if (scratch->status != MICA_OK)
        return scratch->status;
    return *out_found == PCRE2_ERROR_NOMEMORY
               ? mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to match a pattern")
               : mica__fail(MICA_ERR_BUDGET, "a pattern of the tokenizer takes too much memory on this text");
}

/* The first match in text[at .. end), not counted. PARTIAL: one that begins at *out_place may go on behind the end.
 * *out_place: how far it came. */
static int find_quick(const mica__regex *regex, mica__regex_scratch *scratch, const char *text, size_t length,
                      size_t end, size_t at, size_t *out_place)
{
    const uint32_t options = end < length ? PCRE2_PARTIAL_HARD : 0;
    const int found =
        regex->compiled
            ? pcre2_jit_match(regex->code, (PCRE2_SPTR)text, end, at, options, scratch->data, regex->limits)
            : pcre2_match(regex->code, (PCRE2_SPTR)text, end, at, options | PCRE2_NO_UTF_CHECK, scratch->data,
                          regex->limits);
    const size_t place = pcre2_get_ovector_pointer(scratch->data)[0];
    *out_place = found == PCRE2_ERROR_NOMATCH                                 ? end
                 : (found >= 0 || found == PCRE2_ERROR_PARTIAL) && place > at ? place
                                                                              : at;
    return found;
}

/* The end of a piece: between two characters. */
static size_t piece_end(const char *text, size_t length, size_t at)
{
    if (length - at <= PIECE)
        return length;
    size_t end = at + PIECE;
    while (((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    return end;
}

/* The match at or behind `at`, as PCRE2 tells it. */
static mica_status find_next(const mica__regex *regex, mica__regex_scratch *scratch, const char *text,
                             size_t length, size_t at, int *out_found)
{
    const PCRE2_SIZE *match = pcre2_get_ovector_pointer(scratch->data);
    /* places before it are looked at one by one: a quick search does not tell where it gave up */
    size_t slow = at;
    while (at <= length) {
        size_t place = at;
        if (at >= slow) {
            const size_t end = piece_end(text, length, at);
            *out_found = find_quick(regex, scratch, text, length, end, at, &place);
            const mica_status status = charge(scratch, QUICK_STEPS + (place - at));
            if (status != MICA_OK || (*out_found >= 0 && (end == length || match[1] < end)) ||
                (*out_found == PCRE2_ERROR_NOMATCH && end == length))
                return status;
            if (*out_found == PCRE2_ERROR_NOMATCH) { /* nor did any place look behind the end */
                at = end;
                continue;
            }
            slow = *out_found >= 0 || *out_found == PCRE2_ERROR_PARTIAL ? slow : end;
        }
        const mica_status status = find_counted(regex, scratch, text, length, place, out_found);
        if (status != MICA_OK || *out_found != PCRE2_ERROR_NOMATCH)
            return status;
        at = place + 1;
        while (at < length && ((unsigned char)text[at] & 0xc0) == 0x80)
            at++;
    }
    return MICA_OK;
}

mica_status mica__regex_find(const mica__regex *regex, mica__regex_scratch *scratch, const char *text,
                             size_t length, size_t at, bool *out_found, size_t *out_start, size_t *out_end)
{
    const PCRE2_SIZE *match = pcre2_get_ovector_pointer(scratch->data);
    int found = PCRE2_ERROR_NOMATCH;
    *out_found = false;
    const mica_status status = find_next(regex, scratch, text, length, at, &found);
    if (status != MICA_OK || found == PCRE2_ERROR_NOMATCH)
        return status;
    if (match[0] > match[1] || match[0] < at) /* \K can do so */
        return mica__fail(MICA_ERR_UNSUPPORTED, "a pattern of the tokenizer matches backwards");
    *out_found = true;
    *out_start = match[0];
    *out_end = match[1];
    return MICA_OK;
}

void mica__regex_scratch_release(mica__regex_scratch *scratch)
{
    if (scratch == NULL)
        return;
    pcre2_match_data_free(scratch->data);
    pcre2_match_context_free(scratch->counting);
    mica__free(scratch);
}
