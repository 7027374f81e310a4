/* text.c: texts: searching, replacing, stripping, case, lines. */
#include <string.h>

#include "base/sort.h"
#include "text/template/builtin.h"
#include "text/template/chars.h"

#define PRIME (((uint64_t)1 << 61) - 1) /* hashes of texts are numbers below it */
#define WASTE 4096u                     /* bytes that may be compared in vain */

bool mica__jinja_same_text(const mica__jinja_value *v, const char *text)
{
    return v->kind == MICA__JINJA_STRING && v->length == strlen(text) &&
           memcmp(v->text, text, v->length) == 0;
}

/* A text read from one end or the other. */
typedef struct sweep {
    const mica__jinja_value *text, *what;
    bool right;
} sweep;

static unsigned char byte_of(const mica__jinja_value *v, size_t index, bool right)
{
    return (unsigned char)v->text[right ? v->length - 1 - index : index];
}

/* The next place from `at` on where the first byte fits; one past `last` where there is none. */
static size_t next_place(const sweep *s, size_t at, size_t last)
{
    const unsigned char first = byte_of(s->what, 0, s->right);
    if (!s->right) {
        const char *found = memchr(s->text->text + at, first, last - at + 1);
        return found == NULL ? last + 1 : (size_t)(found - s->text->text);
    }
    while (at <= last && byte_of(s->text, at, true) != first)
        at++;
    return at;
}

/* How many bytes are equal at a place. */
static size_t equal_bytes(const sweep *s, size_t at)
{
    size_t count = 0;
    while (count < s->what->length &&
           byte_of(s->text, at + count, s->right) == byte_of(s->what, count, s->right))
        count++;
    return count;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    const uint64_t low = a * b, half = UINT32_MAX;
    const uint64_t middle = (a >> 32) * (b & half) + ((a & half) * (b & half) >> 32);
    const uint64_t high =
        (a >> 32) * (b >> 32) + (middle >> 32) + (((middle & half) + (a & half) * (b >> 32)) >> 32);
    const uint64_t sum = (low & PRIME) + (low >> 61 | high << 3);
    return sum >= PRIME ? sum - PRIME : sum;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a + b >= PRIME ? a + b - PRIME : a + b;
}

/* By a hash that rolls along, whose base nobody knows: each byte costs the same whatever the texts are. */
static mica_status search_hashed(mica__jinja_run *run, const sweep *s, size_t at, size_t last,
                                 size_t *out_place)
{
    const uint64_t base = run->seed % (PRIME - 512) + 256;
    const size_t length = s->what->length;
    uint64_t wanted = 0, here = 0, first = 1; /* first: what the byte that falls out is worth */
    mica_status status = mica__jinja_spend_chars(run, length);
    for (size_t i = 0; i < length; i++) {
        wanted = plus(times(wanted, base), byte_of(s->what, i, s->right));
        here = plus(times(here, base), byte_of(s->text, at + i, s->right));
        first = i == 0 ? 1 : times(first, base);
    }
    for (; status == MICA_OK; at++) {
        if (here == wanted && equal_bytes(s, at) == length) {
            *out_place = at;
            return mica__jinja_spend_bytes(run, length);
        }
        if (at == last)
            break;
        const uint64_t gone = times(first, byte_of(s->text, at, s->right));
        here = plus(times(plus(here, PRIME - gone), base), byte_of(s->text, at + length, s->right));
        status = mica__jinja_spend_chars(run, 1);
    }
    return status;
}

/* Place by place, as long as little is compared in vain. */
static mica_status search_places(mica__jinja_run *run, const sweep *s, size_t *out_place)
{
    const size_t last = s->text->length - s->what->length;
    size_t wasted = 0;
    for (size_t at = 0; at <= last; at++) {
        const size_t place = next_place(s, at, last);
        mica_status status = mica__jinja_spend_bytes(run, (place - at) * (s->right ? 8 : 1));
        if (status != MICA_OK || place > last)
            return status;
        const size_t equal = equal_bytes(s, place);
        status = mica__jinja_spend_bytes(run, 8 + equal * 2);
        if (status != MICA_OK)
            return status;
        if (equal == s->what->length) {
            *out_place = place;
            return MICA_OK;
        }
        at = place;
        wasted += equal;
        if (wasted > at * 2 + WASTE && at < last)
            return search_hashed(run, s, at + 1, last, out_place);
    }
    return MICA_OK;
}

mica_status mica__jinja_search(mica__jinja_run *run, const mica__jinja_value *text,
                               const mica__jinja_value *what, bool from_right, int64_t *out_at)
{
    *out_at = -1;
    if (what->length > text->length)
        return MICA_OK;
    if (what->length == 0) {
        *out_at = from_right ? (int64_t)text->length : 0;
        return MICA_OK;
    }
    const sweep s = {text, what, from_right};
    size_t place = SIZE_MAX;
    const mica_status status = search_places(run, &s, &place);
    if (status == MICA_OK && place != SIZE_MAX)
        *out_at = (int64_t)(from_right ? text->length - what->length - place : place);
    return status;
}

/* Between all characters, as Python replaces the empty text. */
static mica_status replace_empty(mica__jinja_run *run, const mica__jinja_value *text,
                                 const mica__jinja_value *new_text, int64_t most)
{
    mica_status status = MICA_OK;
    for (size_t at = 0, bytes = 0; status == MICA_OK; at += bytes) {
        if (most != 0) {
            status = mica__jinja_put(run, new_text->text, new_text->length);
            most--;
        }
        if (at >= text->length || status != MICA_OK)
            break;
        (void)mica__jinja_char(text->text + at, text->length - at, &bytes);
        status = mica__jinja_put(run, text->text + at, bytes);
        if (status == MICA_OK)
            status = mica__jinja_spend(run, 1);
    }
    return status;
}

mica_status mica__jinja_replace(mica__jinja_run *run, const mica__jinja_value *text,
                                const mica__jinja_value *old_text, const mica__jinja_value *new_text,
                                int64_t most, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    mica__jinja_value rest = *text;
    mica_status status = MICA_OK;
    if (most < 0)
        most = INT64_MAX;
    if (old_text->length == 0) {
        status = replace_empty(run, text, new_text, most);
        return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
    }
    while (status == MICA_OK && most-- != 0) {
        int64_t at = -1;
        status = mica__jinja_search(run, &rest, old_text, false, &at);
        if (status != MICA_OK || at < 0)
            break;
        status = mica__jinja_put(run, rest.text, (size_t)at);
        if (status == MICA_OK)
            status = mica__jinja_put(run, new_text->text, new_text->length);
        if (status == MICA_OK)
            status = mica__jinja_spend(run, 1);
        rest.text += (size_t)at + old_text->length;
        rest.length -= (size_t)at + old_text->length;
    }
    if (status == MICA_OK && rest.length == text->length) { /* nothing was found: no copy */
        *out = mica__jinja_text(text->text, text->length);
        return MICA_OK;
    }
    if (status == MICA_OK)
        status = mica__jinja_put(run, rest.text, rest.length);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

/* The characters that are stripped: those of ASCII as bits, the others in order. */
typedef struct char_set {
    uint32_t ascii[4];
    uint32_t *others;
    size_t count;
} char_set;

static int compare_codes(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static mica_status make_set(mica__jinja_run *run, const mica__jinja_value *chars, char_set *out)
{
    *out = (char_set){{0}, NULL, 0};
    for (size_t at = 0, bytes; at < chars->length; at += bytes) {
        const uint32_t code = mica__jinja_char(chars->text + at, chars->length - at, &bytes);
        if (code < 0x80) {
            out->ascii[code / 32] |= 1u << code % 32;
            continue;
        }
        if (out->others == NULL)
            out->others = mica__jinja_calloc(&run->arena, chars->length / 2 + 1, sizeof *out->others);
        if (out->others == NULL)
            return mica__jinja_arena_failure(&run->arena);
        out->others[out->count++] = code;
    }
    const mica_status status = mica__jinja_spend_chars(run, chars->length * 2);
    return status != MICA_OK ? status
                             : mica__sort(out->others, out->count, sizeof *out->others, compare_codes);
}

static bool is_stripped(uint32_t code, const char_set *set)
{
    size_t from = 0, to = set->count;
    if (code < 0x80)
        return (set->ascii[code / 32] >> code % 32 & 1) != 0;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (set->others[middle] < code)
            from = middle + 1;
        else
            to = middle;
    }
    return from < set->count && set->others[from] == code;
}

mica_status mica__jinja_strip(mica__jinja_run *run, const mica__jinja_value *text,
                              const mica__jinja_value *chars, bool left, bool right, mica__jinja_value *out)
{
    const bool spaces = chars->kind != MICA__JINJA_STRING;
    size_t from = 0, to = text->length, bytes;
    char_set set;
    mica_status status = spaces ? MICA_OK : make_set(run, chars, &set);
    while (status == MICA_OK && left && from < to) {
        const uint32_t code = mica__jinja_char(text->text + from, to - from, &bytes);
        if (!(spaces ? mica__jinja_is_space(code) : is_stripped(code, &set)))
            break;
        from += bytes;
        status = mica__jinja_spend_chars(run, 1);
    }
    while (status == MICA_OK && right && from < to) {
        const size_t last = mica__jinja_char_before(text->text + from, to - from);
        const uint32_t code = mica__jinja_char(text->text + to - last, last, &bytes);
        if (!(spaces ? mica__jinja_is_space(code) : is_stripped(code, &set)))
            break;
        to -= last;
        status = mica__jinja_spend_chars(run, 1);
    }
    *out = mica__jinja_text(text->text + from, to - from);
    return status;
}

/* U+00DF in capitals is two letters; no other character of that kind is common. */
static mica_status put_upper(mica__jinja_run *run, uint32_t code, bool title)
{
    if (code == 0xdf)
        return mica__jinja_puts(run, title ? "Ss" : "SS");
    return mica__jinja_put_char(run, title ? mica__jinja_to_title(code) : mica__jinja_to_upper(code));
}

mica_status mica__jinja_put_case(mica__jinja_run *run, const char *text, size_t length, mica__jinja_case how)
{
    mica_status status = mica__jinja_spend_chars(run, length);
    bool inside = false; /* of a word, or after the first character */
    for (size_t at = 0, bytes; status == MICA_OK && at < length; at += bytes) {
        const uint32_t code = mica__jinja_char(text + at, length - at, &bytes);
        const bool upper =
            how == MICA__JINJA_CASE_UPPER || (how == MICA__JINJA_CASE_SWAP && mica__jinja_is_lower(code));
        const bool title = !inside && (how == MICA__JINJA_CASE_CAPITAL || how == MICA__JINJA_CASE_TITLE);
        const bool keep = how == MICA__JINJA_CASE_SWAP && !upper && !mica__jinja_is_upper(code);
        status = keep             ? mica__jinja_put_char(run, code)
                 : upper || title ? put_upper(run, code, title)
                                  : mica__jinja_put_char(run, mica__jinja_to_lower(code));
        inside = how == MICA__JINJA_CASE_CAPITAL || mica__jinja_is_lower(code) || mica__jinja_is_upper(code);
    }
    return status;
}

mica_status mica__jinja_lower_key(mica__jinja_run *run, const mica__jinja_value *v, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    *out = *v;
    if (v->kind != MICA__JINJA_STRING)
        return MICA_OK;
    const mica_status status = mica__jinja_put_case(run, v->text, v->length, MICA__JINJA_CASE_LOWER);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

mica_status mica__jinja_lines(mica__jinja_run *run, const mica__jinja_value *text, bool keep,
                              mica__jinja_value *out)
{
    mica__jinja_value *items = NULL;
    size_t count = 0, capacity = 0, from = 0, bytes;
    mica_status status = mica__jinja_spend_chars(run, text->length);
    for (size_t at = 0; status == MICA_OK && at < text->length; at += bytes) {
        const uint32_t code = mica__jinja_char(text->text + at, text->length - at, &bytes);
        if (!mica__jinja_is_line_end(code))
            continue;
        if (code == '\r' && at + 1 < text->length && text->text[at + 1] == '\n')
            bytes = 2;
        const mica__jinja_value line = mica__jinja_text(text->text + from, (keep ? at + bytes : at) - from);
        status = mica__jinja_push(run, &items, &count, &capacity, &line);
        from = at + bytes;
    }
    if (status == MICA_OK && from < text->length) {
        const mica__jinja_value line = mica__jinja_text(text->text + from, text->length - from);
        status = mica__jinja_push(run, &items, &count, &capacity, &line);
    }
    *out = mica__jinja_list(items, count);
    return status;
}

mica_status mica__jinja_put_escaped(mica__jinja_run *run, const char *text, size_t length)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const char marks[] = "&<>'\"";
    mica_status status = mica__jinja_spend_bytes(run, length);
    for (size_t at = 0; status == MICA_OK && at < length; at++) {
        const char *mark = text[at] == '\0' ? NULL : strchr(marks, text[at]);
        status =
            mark != NULL ? mica__jinja_puts(run, names[mark - marks]) : mica__jinja_put(run, text + at, 1);
    }
    return status;
}
