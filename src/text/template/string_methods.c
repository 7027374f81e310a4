/* string_methods.c: the methods of texts. Those that Python has and templates do not use are listed without a
 * function, so that a call says so instead of finding nothing. */
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/chars.h"

#define PLACE_BYTES 16u /* what looking at a place is counted as, beside the bytes compared there */

/* ---- parts ---- */

/* The part [start, end) of the text that arguments 1 and 2 name, and where it begins; *out_fits: start is inside. */
static mica_status take_part(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out,
                             size_t *out_start, bool *out_fits)
{
    const mica__jinja_value bounds[3] = {
        mica__jinja_is_given(call, 1) ? call->argument[1] : mica__jinja_none(),
        mica__jinja_is_given(call, 2) ? call->argument[2] : mica__jinja_none(),
        mica__jinja_none(),
    };
    size_t length = 0;
    *out = call->self;
    *out_start = 0;
    *out_fits = true;
    if (bounds[0].kind == MICA__JINJA_NONE && bounds[1].kind == MICA__JINJA_NONE)
        return MICA_OK;
    mica_status status = mica__jinja_slice(run, &call->self, bounds, out);
    if (status == MICA_OK)
        status = mica__jinja_length(run, &call->self, &length);
    int64_t start = 0;
    (void)mica__jinja_as_int(&bounds[0], &start);
    *out_fits = start <= (int64_t)length;
    if (status == MICA_OK && out->length != 0)
        *out_start = mica__jinja_char_count(call->self.text, (size_t)(out->text - call->self.text));
    else
        *out_start = start < 0 ? 0 : (size_t)start;
    return status;
}

/* find, rfind, index, rindex; variant: bit 0 from the right, bit 1 an error when it is not there. */
static mica_status method_find(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value part, what = mica__jinja_text("", 0);
    size_t start = 0;
    int64_t at = -1;
    bool fits = true;
    mica_status status = mica__jinja_take_text(run, call, 0, &what);
    if (status == MICA_OK)
        status = take_part(run, call, &part, &start, &fits);
    if (status == MICA_OK && fits)
        status = mica__jinja_search(run, &part, &what, (call->row->variant & 1) != 0, &at);
    if (status != MICA_OK)
        return status;
    if (at < 0 && (call->row->variant & 2) != 0)
        return mica__jinja_raise(run, "substring not found");
    *out = mica__jinja_int(at < 0 ? -1 : (int64_t)(start + mica__jinja_char_count(part.text, (size_t)at)));
    return mica__jinja_spend_bytes(run, part.length);
}

static mica_status method_count(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value part, what = mica__jinja_text("", 0);
    size_t start = 0;
    int64_t count = 0;
    bool fits = true;
    mica_status status = mica__jinja_take_text(run, call, 0, &what);
    if (status == MICA_OK)
        status = take_part(run, call, &part, &start, &fits);
    if (status == MICA_OK && what.length == 0) {
        size_t length = 0;
        status = mica__jinja_length(run, &part, &length);
        *out = mica__jinja_int(fits ? (int64_t)length + 1 : 0);
        return status;
    }
    while (status == MICA_OK) {
        int64_t at = -1;
        status = mica__jinja_search(run, &part, &what, false, &at);
        if (status != MICA_OK || at < 0)
            break;
        count++;
        part.text += (size_t)at + what.length;
        part.length -= (size_t)at + what.length;
        status = mica__jinja_spend(run, 1);
    }
    *out = mica__jinja_int(count);
    return status;
}

static bool matches(const mica__jinja_value *text, const mica__jinja_value *affix, bool at_end)
{
    return affix->length <= text->length &&
           memcmp(text->text + (at_end ? text->length - affix->length : 0), affix->text, affix->length) == 0;
}

/* startswith, endswith (variant 1): one text or any of a tuple. */
static mica_status method_affix(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const bool at_end = call->row->variant != 0;
    const mica__jinja_value *affix = &call->argument[0];
    mica__jinja_value part;
    size_t start = 0;
    bool fits = true, holds = false;
    const mica_status status = take_part(run, call, &part, &start, &fits);
    if (status != MICA_OK)
        return status;
    const size_t count = affix->kind == MICA__JINJA_TUPLE ? affix->length : 1;
    const mica__jinja_value *all = affix->kind == MICA__JINJA_TUPLE ? affix->items : affix;
    for (size_t i = 0; i < count && !holds; i++) {
        if (all[i].kind == MICA__JINJA_UNDEFINED)
            return mica__jinja_raise_undefined(run, &all[i]);
        if (all[i].kind != MICA__JINJA_STRING)
            return mica__jinja_raise(run, "%s first arg must be str or a tuple of str, not %s",
                                     call->row->name, mica__jinja_type(&all[i]));
        holds = fits && matches(&part, &all[i], at_end);
        MICA__TRY(mica__jinja_spend_bytes(run, PLACE_BYTES + all[i].length));
    }
    *out = mica__jinja_bool(holds);
    return MICA_OK;
}

/* removeprefix, removesuffix (variant 1) */
static mica_status method_remove(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const bool at_end = call->row->variant != 0;
    mica__jinja_value affix = mica__jinja_text("", 0);
    mica_status status = mica__jinja_take_text(run, call, 0, &affix);
    *out = mica__jinja_text(call->self.text, call->self.length);
    if (status == MICA_OK)
        status = mica__jinja_spend_bytes(run, affix.length);
    if (status == MICA_OK && matches(&call->self, &affix, at_end)) {
        out->length -= affix.length;
        if (!at_end)
            out->text += affix.length;
    }
    return status;
}

/* strip, lstrip, rstrip; variant: bit 0 left, bit 1 right. */
static mica_status method_strip(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value chars = mica__jinja_none();
    const mica_status status =
        mica__jinja_is_given(call, 0) ? mica__jinja_take_text(run, call, 0, &chars) : MICA_OK;
    if (status != MICA_OK)
        return status;
    return mica__jinja_strip(run, &call->self, &chars, (call->row->variant & 1) != 0,
                             (call->row->variant & 2) != 0, out);
}

/* ---- lists of parts ---- */

typedef struct parts {
    mica__jinja_value *items;
    size_t count, capacity;
} parts;

static mica_status add_part(mica__jinja_run *run, parts *list, const char *text, size_t length)
{
    const mica__jinja_value part = mica__jinja_text(text, length);
    return mica__jinja_push(run, &list->items, &list->count, &list->capacity, &part);
}

/* At every run of white space, `most` times. */
static mica_status split_blanks(mica__jinja_run *run, const mica__jinja_value *text, int64_t most,
                                parts *list)
{
    size_t at = mica__jinja_skip_space(text->text, text->length, 0), bytes;
    mica_status status = mica__jinja_spend_chars(run, text->length);
    while (status == MICA_OK && at < text->length) {
        size_t end = at;
        if (most-- == 0) {
            end = mica__jinja_trim_end(text->text, at, text->length);
            return add_part(run, list, text->text + at, end - at);
        }
        while (end < text->length &&
               !mica__jinja_is_space(mica__jinja_char(text->text + end, text->length - end, &bytes)))
            end += bytes;
        status = add_part(run, list, text->text + at, end - at);
        at = mica__jinja_skip_space(text->text, text->length, end);
    }
    return status;
}

/* The same from the right; the parts come last first. */
static mica_status rsplit_blanks(mica__jinja_run *run, const mica__jinja_value *text, int64_t most,
                                 parts *list)
{
    const size_t start = mica__jinja_skip_space(text->text, text->length, 0);
    size_t end = mica__jinja_trim_end(text->text, start, text->length), bytes;
    mica_status status = mica__jinja_spend_chars(run, text->length);
    while (status == MICA_OK && end > start) {
        size_t at = end;
        if (most-- == 0)
            return add_part(run, list, text->text + start, end - start);
        while (at > start) {
            const size_t last = mica__jinja_char_before(text->text + start, at - start);
            if (mica__jinja_is_space(mica__jinja_char(text->text + at - last, last, &bytes)))
                break;
            at -= last;
        }
        status = add_part(run, list, text->text + at, end - at);
        end = mica__jinja_trim_end(text->text, start, at);
    }
    return status;
}

/* At every `what`; from the right the parts come last first. */
static mica_status split_at(mica__jinja_run *run, const mica__jinja_value *text,
                            const mica__jinja_value *what, int64_t most, bool right, parts *list)
{
    mica__jinja_value rest = *text;
    mica_status status = MICA_OK;
    while (status == MICA_OK && most-- != 0) {
        int64_t at = -1;
        status = mica__jinja_search(run, &rest, what, right, &at);
        if (status != MICA_OK || at < 0)
            break;
        const size_t after = (size_t)at + what->length;
        status = right ? add_part(run, list, rest.text + after, rest.length - after)
                       : add_part(run, list, rest.text, (size_t)at);
        if (!right)
            rest.text += after;
        rest.length = right ? (size_t)at : rest.length - after;
    }
    return status != MICA_OK ? status : add_part(run, list, rest.text, rest.length);
}

/* split, rsplit (variant 1) */
static mica_status method_split(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const bool right = call->row->variant != 0;
    mica__jinja_value what = mica__jinja_none();
    int64_t most = -1;
    parts list = {0};
    mica_status status = mica__jinja_take_int(run, call, 1, &most);
    if (status == MICA_OK && mica__jinja_is_given(call, 0))
        status = mica__jinja_take_text(run, call, 0, &what);
    if (status == MICA_OK && what.kind == MICA__JINJA_STRING && what.length == 0)
        return mica__jinja_raise(run, "empty separator");
    if (most < 0)
        most = INT64_MAX;
    if (status == MICA_OK)
        status = what.kind == MICA__JINJA_STRING ? split_at(run, &call->self, &what, most, right, &list)
                 : right                         ? rsplit_blanks(run, &call->self, most, &list)
                                                 : split_blanks(run, &call->self, most, &list);
    for (size_t i = 0; right && i < list.count / 2; i++) {
        const mica__jinja_value swapped = list.items[i];
        list.items[i] = list.items[list.count - 1 - i];
        list.items[list.count - 1 - i] = swapped;
    }
    *out = mica__jinja_list(list.items, list.count);
    return status;
}

/* partition, rpartition (variant 1) */
static mica_status method_partition(mica__jinja_run *run, const mica__jinja_call *call,
                                    mica__jinja_value *out)
{
    const mica__jinja_value *text = &call->self;
    const bool right = call->row->variant != 0;
    mica__jinja_value what = mica__jinja_text("", 0);
    int64_t at = -1;
    mica_status status = mica__jinja_take_text(run, call, 0, &what);
    if (status == MICA_OK && what.length == 0)
        return mica__jinja_raise(run, "empty separator");
    if (status == MICA_OK)
        status = mica__jinja_search(run, text, &what, right, &at);
    mica__jinja_value *three = status != MICA_OK ? NULL : mica__jinja_values(run, 3);
    if (three == NULL)
        return status != MICA_OK ? status : mica__jinja_arena_failure(&run->arena);
    three[0] = three[1] = three[2] = mica__jinja_text("", 0);
    if (at < 0) {
        three[right ? 2 : 0] = *text;
    } else {
        const size_t after = (size_t)at + what.length;
        three[0] = mica__jinja_text(text->text, (size_t)at);
        three[1] = what;
        three[2] = mica__jinja_text(text->text + after, text->length - after);
    }
    *out = mica__jinja_tuple(three, 3);
    return MICA_OK;
}

static mica_status method_splitlines(mica__jinja_run *run, const mica__jinja_call *call,
                                     mica__jinja_value *out)
{
    return mica__jinja_lines(run, &call->self, mica__jinja_take_truth(call, 0), out);
}

static mica_status method_join(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const mica__jinja_value *items;
    size_t count;
    mica_status status = mica__jinja_items(run, &call->argument[0], &items, &count);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        if (items[i].kind != MICA__JINJA_STRING)
            return mica__jinja_raise(run, "sequence item %zu: expected str instance, %s found", i,
                                     mica__jinja_type(&items[i]));
        if (i != 0)
            status = mica__jinja_put(run, call->self.text, call->self.length);
        if (status == MICA_OK)
            status = mica__jinja_put(run, items[i].text, items[i].length);
        if (status == MICA_OK)
            status = mica__jinja_spend(run, 1);
    }
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

/* ---- changes ---- */

static mica_status method_case(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const mica_status status =
        mica__jinja_put_case(run, call->self.text, call->self.length, (mica__jinja_case)call->row->variant);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status method_replace(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value old_text = mica__jinja_none(), new_text = mica__jinja_none();
    int64_t most = -1;
    mica_status status = mica__jinja_take_text(run, call, 0, &old_text);
    if (status == MICA_OK)
        status = mica__jinja_take_text(run, call, 1, &new_text);
    if (status == MICA_OK)
        status = mica__jinja_take_int(run, call, 2, &most);
    return status != MICA_OK ? status
                             : mica__jinja_replace(run, &call->self, &old_text, &new_text, most, out);
}

/* ljust, rjust (variant 1), zfill (variant 2) */
static mica_status method_pad(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const mica__jinja_value *text = &call->self;
    mica__jinja_value fill = mica__jinja_text(call->row->variant == 2 ? "0" : " ", 1);
    int64_t width = 0;
    size_t length = 0;
    mica_status status = mica__jinja_take_int(run, call, 0, &width);
    if (status == MICA_OK && call->row->variant != 2)
        status = mica__jinja_take_text(run, call, 1, &fill);
    if (status == MICA_OK)
        status = mica__jinja_length(run, text, &length);
    if (status == MICA_OK && fill.length != 1)
        return mica__jinja_raise(run, "%s: the fill character must be one of ASCII", call->row->name);
    const size_t pad = width > (int64_t)length ? (size_t)width - length : 0;
    const size_t sign =
        call->row->variant == 2 && text->length != 0 && (text->text[0] == '-' || text->text[0] == '+') ? 1
                                                                                                       : 0;
    if (status == MICA_OK && call->row->variant == 0)
        status = mica__jinja_put(run, text->text, text->length);
    if (status == MICA_OK)
        status = mica__jinja_put(run, text->text, sign);
    if (status == MICA_OK)
        status = mica__jinja_put_many(run, fill.text[0], pad);
    if (status == MICA_OK && call->row->variant != 0)
        status = mica__jinja_put(run, text->text + sign, text->length - sign);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

/* ---- questions: true when there is a character and all of them are of the kind ---- */

static bool is_alnum(uint32_t code)
{
    return mica__jinja_is_letter(code) || mica__jinja_is_numeric(code);
}

static bool is_ascii(uint32_t code)
{
    return code < 0x80;
}

static mica_status method_is(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    static bool (*const kinds[])(uint32_t) = {is_alnum,
                                              mica__jinja_is_letter,
                                              mica__jinja_is_digit,
                                              mica__jinja_is_decimal,
                                              mica__jinja_is_numeric,
                                              mica__jinja_is_space,
                                              is_ascii};
    const mica__jinja_value *text = &call->self;
    bool all = text->length != 0 || kinds[call->row->variant] == is_ascii;
    for (size_t at = 0, bytes; all && at < text->length; at += bytes)
        all = kinds[call->row->variant](mica__jinja_char(text->text + at, text->length - at, &bytes));
    *out = mica__jinja_bool(all);
    return mica__jinja_spend_chars(run, text->length);
}

/* islower, isupper (variant 1): as the tests of these names. */
static mica_status method_is_case(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_builtin *test =
        call->row->variant != 0 ? mica__jinja_find_test("upper", 5) : mica__jinja_find_test("lower", 5);
    return mica__jinja_invoke(run, test, &call->self, call->all, out);
}

const mica__jinja_builtin mica__jinja_string_methods[] = {
    {"capitalize", method_case, "", 0, MICA__JINJA_CASE_CAPITAL},
    {"casefold", method_case, "", 0, MICA__JINJA_CASE_LOWER},
    {"center", NULL, "*", 0, 0},
    {"count", method_count, "sub start end", 1, 0},
    {"encode", NULL, "*", 0, 0},
    {"endswith", method_affix, "suffix start end", 1, 1},
    {"expandtabs", NULL, "*", 0, 0},
    {"find", method_find, "sub start end", 1, 0},
    {"format", mica__jinja_format, "*", 0, 0},
    {"format_map", NULL, "*", 0, 0},
    {"index", method_find, "sub start end", 1, 2},
    {"isalnum", method_is, "", 0, 0},
    {"isalpha", method_is, "", 0, 1},
    {"isascii", method_is, "", 0, 6},
    {"isdecimal", method_is, "", 0, 3},
    {"isdigit", method_is, "", 0, 2},
    {"isidentifier", NULL, "*", 0, 0},
    {"islower", method_is_case, "", 0, 0},
    {"isnumeric", method_is, "", 0, 4},
    {"isprintable", NULL, "*", 0, 0},
    {"isspace", method_is, "", 0, 5},
    {"istitle", NULL, "*", 0, 0},
    {"isupper", method_is_case, "", 0, 1},
    {"join", method_join, "iterable", 1, 0},
    {"ljust", method_pad, "width fillchar", 1, 0},
    {"lower", method_case, "", 0, MICA__JINJA_CASE_LOWER},
    {"lstrip", method_strip, "chars", 0, 1},
    {"maketrans", NULL, "*", 0, 0},
    {"partition", method_partition, "sep", 1, 0},
    {"removeprefix", method_remove, "prefix", 1, 0},
    {"removesuffix", method_remove, "suffix", 1, 1},
    {"replace", method_replace, "old new count", 2, 0},
    {"rfind", method_find, "sub start end", 1, 1},
    {"rindex", method_find, "sub start end", 1, 3},
    {"rjust", method_pad, "width fillchar", 1, 1},
    {"rpartition", method_partition, "sep", 1, 1},
    {"rsplit", method_split, "sep maxsplit", 0, 1},
    {"rstrip", method_strip, "chars", 0, 2},
    {"split", method_split, "sep maxsplit", 0, 0},
    {"splitlines", method_splitlines, "keepends", 0, 0},
    {"startswith", method_affix, "prefix start end", 1, 0},
    {"strip", method_strip, "chars", 0, 3},
    {"swapcase", method_case, "", 0, MICA__JINJA_CASE_SWAP},
    {"title", method_case, "", 0, MICA__JINJA_CASE_TITLE},
    {"translate", NULL, "*", 0, 0},
    {"upper", method_case, "", 0, MICA__JINJA_CASE_UPPER},
    {"zfill", method_pad, "width", 1, 2},
};
const size_t mica__jinja_string_method_count =
    sizeof mica__jinja_string_methods / sizeof *mica__jinja_string_methods;
