/* text_filters.c: filters on single values: texts and numbers. */
#include <math.h>
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/chars.h"

#define NUMBER_CHARS 64u /* what reading or writing a number is counted as, in characters */
#define CHAR 8u          /* what looking at a character is counted as, in bytes */

/* The filtered value as text. */
static mica_status self_text(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    return mica__jinja_str(run, &call->self, out);
}

static mica_status filter_abs(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *v = &call->self;
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    if (!mica__jinja_is_number(v))
        return mica__jinja_raise(run, "bad operand type for abs(): '%s'", mica__jinja_type(v));
    if (mica__jinja_as_double(v) < 0)
        return mica__jinja_unary(run, MICA__JINJA_OP_SUB, v, out);
    *out = v->kind == MICA__JINJA_FLOAT ? mica__jinja_float(fabs(v->real)) : *v;
    return v->kind == MICA__JINJA_BOOL ? mica__jinja_unary(run, MICA__JINJA_OP_ADD, v, out) : MICA_OK;
}

static mica_status filter_attr(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value name = mica__jinja_text("", 0);
    const mica_status status = mica__jinja_take_text(run, call, 0, &name);
    if (status != MICA_OK)
        return status;
    if (call->self.kind == MICA__JINJA_DICT) { /* attributes alone, no items */
        const mica__jinja_builtin *method = mica__jinja_find_method(MICA__JINJA_DICT, name.text, name.length);
        *out = mica__jinja_missing(MICA__JINJA_MISSING_ATTRIBUTE, MICA__JINJA_DICT, name.text, name.length);
        if (method == NULL)
            return MICA_OK;
    }
    return mica__jinja_attribute(run, &call->self, name.text, name.length, NULL, out);
}

/* capitalize, lower, upper; title has rules of its own. */
static mica_status filter_case(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value text;
    const size_t mark = run->out_length;
    mica_status status = self_text(run, call, &text);
    if (status == MICA_OK)
        status = mica__jinja_put_case(run, text.text, text.length, (mica__jinja_case)call->row->variant);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static bool begins_word(uint32_t code)
{
    return mica__jinja_is_space(code) || (code < 0x80 && code != 0 && strchr("-({[<", (int)code) != NULL);
}

/* Words begin after blanks, hyphens and opening brackets; runs of these count as words too. */
static mica_status filter_title(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value text;
    const size_t mark = run->out_length;
    mica_status status = self_text(run, call, &text);
    if (status == MICA_OK)
        status = mica__jinja_spend_chars(run, text.length);
    for (size_t at = 0; status == MICA_OK && at < text.length;) {
        size_t end = at, bytes;
        const bool gap = begins_word(mica__jinja_char(text.text + at, text.length - at, &bytes));
        while (end < text.length &&
               begins_word(mica__jinja_char(text.text + end, text.length - end, &bytes)) == gap)
            end += bytes;
        status = mica__jinja_put_case(run, text.text + at, end - at, MICA__JINJA_CASE_CAPITAL);
        at = end;
    }
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status filter_center(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value text;
    int64_t width = 80;
    size_t length = 0;
    const size_t mark = run->out_length;
    mica_status status = mica__jinja_take_int(run, call, 0, &width);
    if (status == MICA_OK)
        status = self_text(run, call, &text);
    if (status == MICA_OK)
        status = mica__jinja_length(run, &text, &length);
    if (status != MICA_OK)
        return status;
    const size_t pad = width > (int64_t)length ? (size_t)width - length : 0;
    const size_t left = pad / 2 + (pad & (size_t)width & 1);
    status = mica__jinja_put_many(run, ' ', left);
    if (status == MICA_OK)
        status = mica__jinja_put(run, text.text, text.length);
    if (status == MICA_OK)
        status = mica__jinja_put_many(run, ' ', pad - left);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status filter_default(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    (void)run;
    const bool use = call->self.kind == MICA__JINJA_UNDEFINED ||
                     (mica__jinja_take_truth(call, 1) && !mica__jinja_truth(&call->self));
    *out = !use                                          ? call->self
           : call->argument[0].kind == MICA__JINJA_UNSET ? mica__jinja_text("", 0)
                                                         : call->argument[0];
    return MICA_OK;
}

/* variant 1: markup is escaped again. */
static mica_status filter_escape(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value text;
    const size_t mark = run->out_length;
    mica_status status = self_text(run, call, &text);
    if (status == MICA_OK && call->self.kind == MICA__JINJA_STRING && call->self.mark != 0 &&
        call->row->variant == 0) {
        *out = call->self;
        return MICA_OK;
    }
    if (status == MICA_OK)
        status = mica__jinja_put_escaped(run, text.text, text.length);
    if (status == MICA_OK)
        status = mica__jinja_cut(run, mark, out);
    if (status == MICA_OK)
        out->mark = 1;
    return status;
}

static mica_status filter_safe(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica_status status = self_text(run, call, out);
    if (status == MICA_OK)
        out->mark = 1;
    return status;
}

static mica_status filter_string(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    *out = call->self;
    return call->self.kind == MICA__JINJA_STRING ? MICA_OK : self_text(run, call, out);
}

static mica_status filter_float(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *v = &call->self;
    double real = 0;
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    if (v->kind == MICA__JINJA_STRING)
        MICA__TRY(mica__jinja_spend_chars(run, NUMBER_CHARS + v->length));
    *out = call->argument[0].kind == MICA__JINJA_UNSET ? mica__jinja_float(0) : call->argument[0];
    if (mica__jinja_is_number(v))
        *out = mica__jinja_float(mica__jinja_as_double(v));
    else if (v->kind == MICA__JINJA_STRING && mica__jinja_parse_real(v->text, v->length, &real))
        *out = mica__jinja_float(real);
    return MICA_OK;
}

/* False: NaN, infinite or beyond 64 bits. */
static bool truncate_real(double real, int64_t *out)
{
    if (!(real > -9223372036854775808.0 && real < 9223372036854775808.0))
        return false;
    *out = (int64_t)real;
    return true;
}

static mica_status filter_int(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *v = &call->self;
    int64_t integer = 0, base = 10;
    double real = 0;
    MICA__TRY(mica__jinja_take_int(run, call, 1, &base));
    if (v->kind == MICA__JINJA_STRING)
        MICA__TRY(mica__jinja_spend_chars(run, NUMBER_CHARS + v->length));
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    const bool known_base = base == 0 || (base >= 2 && base <= 36);
    *out = call->argument[0].kind == MICA__JINJA_UNSET ? mica__jinja_int(0) : call->argument[0];
    if (mica__jinja_as_int(v, &integer))
        *out = mica__jinja_int(integer);
    else if (v->kind == MICA__JINJA_INT)
        *out = *v;
    else if (v->kind == MICA__JINJA_FLOAT && truncate_real(v->real, &integer))
        *out = mica__jinja_int(integer);
    else if (v->kind == MICA__JINJA_STRING && known_base &&
             mica__jinja_parse_int(v->text, v->length, (int)base, &integer))
        *out = mica__jinja_int(integer);
    else if (v->kind == MICA__JINJA_STRING && mica__jinja_parse_real(v->text, v->length, &real) &&
             truncate_real(real, &integer))
        *out = mica__jinja_int(integer);
    return MICA_OK;
}

static mica_status filter_format(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_arguments *all = call->all;
    mica__jinja_value text, values;
    mica__jinja_dict *dict = NULL;
    mica_status status = self_text(run, call, &text);
    if (status != MICA_OK)
        return status;
    if (all->placed == 0 && all->count != 0) {
        status = mica__jinja_dict_new(run, all->count, &dict);
        for (size_t i = 0; status == MICA_OK && i < all->count; i++) {
            const mica__jinja_value name = mica__jinja_text(all->items[i].name, all->items[i].name_length);
            status = mica__jinja_dict_put(run, dict, &name, &all->items[i].value);
        }
        values = (mica__jinja_value){.kind = MICA__JINJA_DICT, .dict = dict};
    } else {
        if (all->placed != all->count)
            return mica__jinja_raise(run, "can't handle positional and keyword arguments at the same time");
        mica__jinja_value *items = mica__jinja_values(run, all->count);
        if (items == NULL)
            return mica__jinja_arena_failure(&run->arena);
        for (size_t i = 0; i < all->count; i++)
            items[i] = all->items[i].value;
        values = mica__jinja_tuple(items, all->count);
    }
    return status != MICA_OK ? status : mica__jinja_percent(run, &text, &values, out);
}

/* Python's round(): to even, from the exact value. */
static double round_real(double real, int64_t digits)
{
    char text[MICA__JINJA_NUMBER_BYTES];
    double result = real;
    if (digits > 22 || isinf(real) || isnan(real))
        return real;
    if (digits < 0) {
        const double scale = pow(10, -(double)digits);
        return digits < -308 ? copysign(0, real) : nearbyint(real / scale) * scale;
    }
    const size_t length = mica__jinja_real_format(real, 'f', (int)digits, text);
    (void)mica__jinja_parse_real(text, length, &result);
    return result;
}

/* The same of an integer, to the power of ten that `digits`, below 0, names. */
static mica_status round_integer(const mica__jinja_run *run, int64_t integer, int64_t digits,
                                 mica__jinja_value *out)
{
    uint64_t size = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer, unit = 1;
    for (int64_t power = digits; power < 0 && power >= -19; power++)
        unit *= 10;
    const uint64_t rest = size % unit, half = unit - rest; /* to the next one */
    size = digits < -19 ? 0 : size - rest;
    if (digits >= -19 && (rest > half || (rest == half && size / unit % 2 != 0)))
        size += unit;
    if (size > (uint64_t)INT64_MAX)
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "integers beyond 64 bits are not known");
    *out = mica__jinja_int(integer < 0 ? -(int64_t)size : (int64_t)size);
    return MICA_OK;
}

static mica_status filter_round(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const mica__jinja_value *v = &call->self;
    mica__jinja_value method = mica__jinja_text("common", 6);
    int64_t digits = 0, integer;
    mica_status status = mica__jinja_take_int(run, call, 0, &digits);
    if (status == MICA_OK)
        status = mica__jinja_take_text(run, call, 1, &method);
    if (status != MICA_OK)
        return status;
    const bool common = mica__jinja_same_text(&method, "common"), up = mica__jinja_same_text(&method, "ceil");
    if (!common && !up && !mica__jinja_same_text(&method, "floor"))
        return mica__jinja_raise(run, "method must be common, ceil or floor");
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    if (!mica__jinja_is_number(v))
        return mica__jinja_raise(run, "type %s doesn't define __round__ method", mica__jinja_type(v));
    if (!common) {
        const double scale = pow(10, (double)digits), scaled = mica__jinja_as_double(v) * scale;
        *out = mica__jinja_float((up ? ceil(scaled) : floor(scaled)) / scale);
        return MICA_OK;
    }
    MICA__TRY(mica__jinja_spend_chars(run, NUMBER_CHARS));
    if (!mica__jinja_as_int(v, &integer)) {
        *out = mica__jinja_float(round_real(mica__jinja_as_double(v), digits));
        return MICA_OK;
    }
    *out = mica__jinja_int(integer);
    return digits >= 0 ? MICA_OK : round_integer(run, integer, digits, out);
}

static mica_status filter_indent(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const bool first = mica__jinja_take_truth(call, 1), blank = mica__jinja_take_truth(call, 2);
    mica__jinja_value indent = mica__jinja_text("", 0), lines;
    int64_t width = 4;
    if (call->self.kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, &call->self);
    if (call->self.kind != MICA__JINJA_STRING)
        return mica__jinja_raise(run, "indent needs a str, not %s", mica__jinja_type(&call->self));
    const bool texts = call->argument[0].kind == MICA__JINJA_STRING;
    mica_status status =
        texts ? mica__jinja_take_text(run, call, 0, &indent) : mica__jinja_take_int(run, call, 0, &width);
    if (status == MICA_OK && !texts) {
        status = mica__jinja_put_many(run, ' ', width < 0 ? 0 : (size_t)width);
        if (status == MICA_OK)
            status = mica__jinja_cut(run, mark, &indent);
    }
    if (status == MICA_OK)
        status = mica__jinja_lines(run, &call->self, false, &lines);
    for (size_t i = 0; status == MICA_OK && i < lines.length; i++) {
        const bool shift = i == 0 ? first : blank || lines.items[i].length != 0;
        if (i != 0)
            status = mica__jinja_puts(run, "\n");
        if (status == MICA_OK && shift)
            status = mica__jinja_put(run, indent.text, indent.length);
        if (status == MICA_OK)
            status = mica__jinja_put(run, lines.items[i].text, lines.items[i].length);
    }
    /* A newline at the end begins one more, empty line. */
    const mica__jinja_value *text = &call->self;
    size_t bytes;
    const size_t last = text->length == 0 ? 0 : mica__jinja_char_before(text->text, text->length);
    if (status == MICA_OK && last != 0 &&
        mica__jinja_is_line_end(mica__jinja_char(text->text + text->length - last, last, &bytes))) {
        status = mica__jinja_puts(run, "\n");
        if (status == MICA_OK && blank)
            status = mica__jinja_put(run, indent.text, indent.length);
    } else if (status == MICA_OK && text->length == 0 && first) {
        status = mica__jinja_put(run, indent.text, indent.length);
    }
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status filter_length(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    size_t length = 0;
    const mica_status status = mica__jinja_length(run, &call->self, &length);
    *out = mica__jinja_int((int64_t)length);
    return status;
}

static mica_status filter_replace(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value text, old_text, new_text;
    int64_t most = -1;
    mica_status status = self_text(run, call, &text);
    if (status == MICA_OK)
        status = mica__jinja_str(run, &call->argument[0], &old_text);
    if (status == MICA_OK)
        status = mica__jinja_str(run, &call->argument[1], &new_text);
    if (status == MICA_OK && mica__jinja_is_given(call, 2))
        status = mica__jinja_take_int(run, call, 2, &most);
    return status != MICA_OK ? status : mica__jinja_replace(run, &text, &old_text, &new_text, most, out);
}

/* Tags and comments go, and runs of blanks become one. */
static mica_status filter_striptags(mica__jinja_run *run, const mica__jinja_call *call,
                                    mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    mica__jinja_value text;
    bool gap = false, closed = true; /* closed: there may be another > */
    mica_status status = self_text(run, call, &text);
    if (status == MICA_OK && memchr(text.text, '&', text.length) != NULL)
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED,
                                "striptags on text with entities (&) is not known");
    for (size_t at = 0, bytes; status == MICA_OK && at < text.length; at += bytes) {
        const uint32_t code = mica__jinja_char(text.text + at, text.length - at, &bytes);
        const char *end = code == '<' && closed ? memchr(text.text + at, '>', text.length - at) : NULL;
        closed = closed && (code != '<' || end != NULL);
        if (end != NULL) {
            bytes = (size_t)(end - text.text) + 1 - at;
        } else if (mica__jinja_is_space(code)) {
            gap = true;
        } else {
            if (gap && run->out_length > mark)
                status = mica__jinja_puts(run, " ");
            gap = false;
            if (status == MICA_OK)
                status = mica__jinja_put(run, text.text + at, bytes);
        }
        if (status == MICA_OK)
            status = mica__jinja_spend_bytes(run, CHAR + bytes);
    }
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status filter_tojson(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    mica__jinja_json_style style = {.ascii = mica__jinja_take_truth(call, 0),
                                    .sort = mica__jinja_take_truth(call, 3)};
    if (mica__jinja_is_given(call, 1)) {
        int64_t blanks;
        if (call->argument[1].kind != MICA__JINJA_STRING && !mica__jinja_as_int(&call->argument[1], &blanks))
            return mica__jinja_raise(run, "tojson: the indent must be an integer or a str, not %s",
                                     mica__jinja_type(&call->argument[1]));
        style.indent = &call->argument[1];
    }
    style.comma = mica__jinja_text(", ", style.indent == NULL ? 2 : 1);
    style.colon = mica__jinja_text(": ", 2);
    if (mica__jinja_is_given(call, 2)) {
        const mica__jinja_value *pair = &call->argument[2];
        if ((pair->kind != MICA__JINJA_TUPLE && pair->kind != MICA__JINJA_LIST) || pair->length != 2 ||
            pair->items[0].kind != MICA__JINJA_STRING || pair->items[1].kind != MICA__JINJA_STRING)
            return mica__jinja_raise(run, "tojson: separators must be two texts");
        style.comma = pair->items[0];
        style.colon = pair->items[1];
    }
    const mica_status status = mica__jinja_put_json(run, &call->self, &style);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status filter_trim(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    mica__jinja_value text, chars = mica__jinja_none();
    mica_status status = self_text(run, call, &text);
    if (status == MICA_OK && mica__jinja_is_given(call, 0))
        status = mica__jinja_take_text(run, call, 0, &chars);
    return status != MICA_OK ? status : mica__jinja_strip(run, &text, &chars, true, true, out);
}

static mica_status filter_truncate(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const mica__jinja_value *text = &call->self;
    mica__jinja_value end = mica__jinja_text("...", 3);
    int64_t length = 255, leeway = 5;
    size_t count = 0, end_count = 0;
    mica_status status = mica__jinja_take_int(run, call, 0, &length);
    if (status == MICA_OK)
        status = mica__jinja_take_text(run, call, 2, &end);
    if (status == MICA_OK && mica__jinja_is_given(call, 3))
        status = mica__jinja_take_int(run, call, 3, &leeway);
    if (status == MICA_OK)
        status = mica__jinja_length(run, text, &count);
    if (status == MICA_OK)
        status = mica__jinja_length(run, &end, &end_count);
    if (status != MICA_OK)
        return status;
    if (length < (int64_t)end_count || leeway < 0)
        return mica__jinja_raise(
            run, "truncate: the length must not be below that of the end, nor the leeway below 0");
    *out = *text; /* of any kind that has a length */
    if (leeway > INT64_MAX - length || (int64_t)count <= length + leeway)
        return MICA_OK;
    if (text->kind != MICA__JINJA_STRING)
        return mica__jinja_raise(run, "truncate needs a str, not %s", mica__jinja_type(text));
    MICA__TRY(mica__jinja_spend_chars(run, (uint64_t)length));
    size_t keep = mica__jinja_char_offset(text->text, text->length, (size_t)length - end_count);
    if (!mica__jinja_take_truth(call, 1)) { /* the last word goes, if there is another */
        size_t blank = keep;
        while (blank > 0 && text->text[blank - 1] != ' ')
            blank--;
        keep = blank > 0 ? blank - 1 : keep;
    }
    status = mica__jinja_put(run, text->text, keep);
    if (status == MICA_OK)
        status = mica__jinja_put(run, end.text, end.length);
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status put_url(mica__jinja_run *run, const mica__jinja_value *v, bool query)
{
    static const char hex[] = "0123456789ABCDEF";
    mica__jinja_value text;
    mica_status status = mica__jinja_str(run, v, &text);
    for (size_t i = 0; status == MICA_OK && i < text.length; i++) {
        const unsigned char c = (unsigned char)text.text[i];
        const char escaped[] = {'%', hex[c >> 4], hex[c & 15]};
        const bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
                           (c != 0 && strchr("_.-~", c) != NULL) || (c == '/' && !query);
        status = plain               ? mica__jinja_put(run, text.text + i, 1)
                 : query && c == ' ' ? mica__jinja_puts(run, "+")
                                     : mica__jinja_put(run, escaped, 3);
    }
    return status != MICA_OK ? status : mica__jinja_spend_bytes(run, text.length);
}

static mica_status filter_urlencode(mica__jinja_run *run, const mica__jinja_call *call,
                                    mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    mica__jinja_value pairs = call->self;
    const mica__jinja_value *items = NULL;
    size_t count = 0;
    mica_status status;
    if (call->self.kind == MICA__JINJA_STRING || !mica__jinja_is_iterable(&call->self)) {
        status = put_url(run, &call->self, false);
        return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
    }
    if (pairs.kind == MICA__JINJA_DICT)
        pairs =
            (mica__jinja_value){.kind = MICA__JINJA_VIEW, .mark = MICA__JINJA_VIEW_ITEMS, .dict = pairs.dict};
    status = mica__jinja_items(run, &pairs, &items, &count);
    for (size_t i = 0; status == MICA_OK && i < count; i++) {
        if ((items[i].kind != MICA__JINJA_TUPLE && items[i].kind != MICA__JINJA_LIST) || items[i].length != 2)
            return mica__jinja_raise(run, "urlencode: pairs are needed");
        if (i != 0)
            status = mica__jinja_puts(run, "&");
        if (status == MICA_OK)
            status = put_url(run, &items[i].items[0], true);
        if (status == MICA_OK)
            status = mica__jinja_puts(run, "=");
        if (status == MICA_OK)
            status = put_url(run, &items[i].items[1], true);
    }
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status filter_wordcount(mica__jinja_run *run, const mica__jinja_call *call,
                                    mica__jinja_value *out)
{
    mica__jinja_value text;
    int64_t words = 0;
    bool inside = false;
    mica_status status = self_text(run, call, &text);
    for (size_t at = 0, bytes; status == MICA_OK && at < text.length; at += bytes) {
        const bool word = mica__jinja_is_word(mica__jinja_char(text.text + at, text.length - at, &bytes));
        words += word && !inside;
        inside = word;
    }
    *out = mica__jinja_int(words);
    return status != MICA_OK ? status : mica__jinja_spend_chars(run, text.length);
}

/* One line alone: how Python breaks longer values into lines is not done here. */
static mica_status filter_pprint(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    mica_status status = mica__jinja_put_repr(run, &call->self);
    if (status == MICA_OK)
        status = mica__jinja_cut(run, mark, out);
    if (status == MICA_OK && out->length > 80)
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED,
                                "pprint of a value that is wider than a line is not known");
    return status;
}

const mica__jinja_builtin mica__jinja_text_filters[] = {
    {"abs", filter_abs, "", 0, 0},
    {"attr", filter_attr, "name", 1, 0},
    {"capitalize", filter_case, "", 0, MICA__JINJA_CASE_CAPITAL},
    {"center", filter_center, "width", 0, 0},
    {"count", filter_length, "", 0, 0},
    {"d", filter_default, "default_value boolean", 0, 0},
    {"default", filter_default, "default_value boolean", 0, 0},
    {"e", filter_escape, "", 0, 0},
    {"escape", filter_escape, "", 0, 0},
    {"float", filter_float, "default", 0, 0},
    {"forceescape", filter_escape, "", 0, 1},
    {"format", filter_format, "*", 0, 0},
    {"indent", filter_indent, "width first blank", 0, 0},
    {"int", filter_int, "default base", 0, 0},
    {"length", filter_length, "", 0, 0},
    {"lower", filter_case, "", 0, MICA__JINJA_CASE_LOWER},
    {"pprint", filter_pprint, "", 0, 0},
    {"replace", filter_replace, "old new count", 2, 0},
    {"round", filter_round, "precision method", 0, 0},
    {"safe", filter_safe, "", 0, 0},
    {"string", filter_string, "", 0, 0},
    {"striptags", filter_striptags, "", 0, 0},
    {"title", filter_title, "", 0, 0},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0, 0},
    {"trim", filter_trim, "chars", 0, 0},
    {"truncate", filter_truncate, "length killwords end leeway", 0, 0},
    {"upper", filter_case, "", 0, MICA__JINJA_CASE_UPPER},
    {"urlencode", filter_urlencode, "", 0, 0},
    {"wordcount", filter_wordcount, "", 0, 0},
};
const size_t mica__jinja_text_filter_count =
    sizeof mica__jinja_text_filters / sizeof *mica__jinja_text_filters;
