/* template_text.c: texts: searching, replacing, stripping, case, lines. */
#include <string.h>

#include "model/template_builtin.h"
#include "model/template_chars.h"

bool mica__jinja_same_text(const mica__jinja_value *v, const char *text)
{
    return v->kind == MICA__JINJA_STRING && v->length == strlen(text) &&
           memcmp(v->text, text, v->length) == 0;
}

/* Each place where the first byte fits costs what comparing there may cost, so that no pair of texts takes long. */
static mica_status search_left(mica__jinja_run *run, const mica__jinja_value *text,
                               const mica__jinja_value *what, int64_t *out_at)
{
    const size_t last = text->length - what->length;
    for (size_t at = 0; at <= last; at++) {
        const char *first = memchr(text->text + at, what->text[0], last - at + 1);
        const size_t place = first == NULL ? last + 1 : (size_t)(first - text->text);
        mica_status status = mica__jinja_spend(run, (place - at) / MICA__JINJA_STEP_BYTES);
        if (status != MICA_OK || first == NULL)
            return status;
        at = place;
        if (memcmp(first, what->text, what->length) == 0) {
            *out_at = (int64_t)at;
            return MICA_OK;
        }
        status = mica__jinja_spend(run, what->length / MICA__JINJA_STEP_BYTES + ((at & 15) == 0));
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

static mica_status search_right(mica__jinja_run *run, const mica__jinja_value *text,
                                const mica__jinja_value *what, int64_t *out_at)
{
    for (size_t at = text->length - what->length + 1; at-- > 0;) {
        if (text->text[at] == what->text[0] && memcmp(text->text + at, what->text, what->length) == 0) {
            *out_at = (int64_t)at;
            return MICA_OK;
        }
        const mica_status status =
            mica__jinja_spend(run, what->length / MICA__JINJA_STEP_BYTES + ((at & 15) == 0));
        if (status != MICA_OK)
            return status;
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
    return from_right ? search_right(run, text, what, out_at) : search_left(run, text, what, out_at);
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

static bool is_stripped(uint32_t code, const mica__jinja_value *chars)
{
    if (chars->kind != MICA__JINJA_STRING)
        return mica__jinja_is_space(code);
    for (size_t at = 0, bytes; at < chars->length; at += bytes)
        if (mica__jinja_char(chars->text + at, chars->length - at, &bytes) == code)
            return true;
    return false;
}

mica_status mica__jinja_strip(mica__jinja_run *run, const mica__jinja_value *text,
                              const mica__jinja_value *chars, bool left, bool right, mica__jinja_value *out)
{
    const uint64_t cost = chars->kind == MICA__JINJA_STRING ? chars->length / 16 : 0;
    size_t from = 0, to = text->length, bytes;
    mica_status status = MICA_OK;
    for (; status == MICA_OK && left && from < to; from += bytes) {
        if (!is_stripped(mica__jinja_char(text->text + from, to - from, &bytes), chars))
            break;
        status = mica__jinja_spend(run, cost + ((from & 15) == 0));
    }
    while (status == MICA_OK && right && from < to) {
        const size_t last = mica__jinja_char_before(text->text + from, to - from);
        if (!is_stripped(mica__jinja_char(text->text + to - last, last, &bytes), chars))
            break;
        to -= last;
        status = mica__jinja_spend(run, cost + ((to & 15) == 0));
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
    mica_status status = mica__jinja_spend(run, length / 8);
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
    mica_status status = mica__jinja_spend_bytes(run, text->length);
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
