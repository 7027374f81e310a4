/* format.c: values in a field of a text: "%5.2f" % x and "{:>5.2f}".format(x). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/chars.h"

#define WIDEST 100000   /* of a field */
#define NUMBER_STEPS 16 /* to write one */

typedef struct format_spec {
    uint32_t fill;
    char align; /* '<', '>', '^', '=', or 0: as the kind of value wants it */
    char sign;  /* '+', ' ' or '-' */
    char group; /* ',', '_' or 0 */
    char type;  /* as in d, x, f, s; 0: none was given */
    bool alternate;
    int64_t width, precision; /* -1: not given */
} format_spec;

static const format_spec plain = {' ', 0, '-', 0, 0, false, -1, -1};

/* ---- one value ---- */

/* `text` with its sign in front, in the field. */
static mica_status put_field(mica__jinja_run *run, const format_spec *spec, const char *sign,
                             const char *text, size_t length, char standard)
{
    const size_t count = strlen(sign) + mica__jinja_char_count(text, length);
    const size_t pad = spec->width > (int64_t)count ? (size_t)spec->width - count : 0;
    const char align = spec->align != 0 ? spec->align : standard;
    const size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0, inner = align == '=' ? pad : 0;
    mica_status status = MICA_OK;
    for (size_t i = 0; status == MICA_OK && i < left; i++)
        status = mica__jinja_put_char(run, spec->fill);
    if (status == MICA_OK)
        status = mica__jinja_puts(run, sign);
    for (size_t i = 0; status == MICA_OK && i < inner; i++)
        status = mica__jinja_put_char(run, spec->fill);
    if (status == MICA_OK)
        status = mica__jinja_put(run, text, length);
    for (size_t i = 0; status == MICA_OK && i < pad - left - inner; i++)
        status = mica__jinja_put_char(run, spec->fill);
    return status != MICA_OK ? status : mica__jinja_spend(run, pad / 16);
}

/* Digits in groups of three before the point. */
static size_t group_digits(const char *digits, size_t length, char group, char *out)
{
    size_t whole = 0, used = 0;
    while (whole < length && digits[whole] >= '0' && digits[whole] <= '9')
        whole++;
    for (size_t i = 0; i < length; i++) {
        if (i != 0 && i < whole && (whole - i) % 3 == 0 && group != 0)
            out[used++] = group;
        out[used++] = digits[i];
    }
    return used;
}

static const char *sign_of(const format_spec *spec, bool negative)
{
    return negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
}

static mica_status put_integer(mica__jinja_run *run, const format_spec *spec, int64_t integer)
{
    char digits[72], grouped[144], sign[8];
    const uint64_t magnitude = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    const uint64_t base = (spec->type | 32) == 'x' ? 16 : spec->type == 'o' ? 8 : spec->type == 'b' ? 2 : 10;
    size_t at = sizeof digits;
    uint64_t rest = magnitude;
    do {
        digits[--at] = (spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base];
        rest /= base;
    } while (rest != 0);
    snprintf(sign, sizeof sign, "%s%s", sign_of(spec, integer < 0),
             !spec->alternate || base == 10 ? ""
             : spec->type == 'X'            ? "0X"
             : spec->type == 'x'            ? "0x"
             : base == 8                    ? "0o"
                                            : "0b");
    const size_t length =
        group_digits(digits + at, sizeof digits - at, base == 10 ? spec->group : 0, grouped);
    return put_field(run, spec, sign, grouped, length, '>');
}

static mica_status put_real(mica__jinja_run *run, const format_spec *spec, double real)
{
    char text[MICA__JINJA_NUMBER_BYTES], grouped[MICA__JINJA_NUMBER_BYTES * 2];
    const bool percent = spec->type == '%';
    const bool negative = real < 0 || (real == 0 && 1 / real < 0);
    const double magnitude = (negative ? -real : real) * (percent ? 100 : 1);
    size_t length;
    if (spec->precision > 30)
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED,
                                "more than 30 digits after the point are not known");
    if (spec->type == 0 && spec->precision < 0)
        length = mica__jinja_real_text(magnitude, text);
    else
        length = mica__jinja_real_format(magnitude,
                                         percent           ? 'f'
                                         : spec->type == 0 ? 'g'
                                                           : spec->type,
                                         spec->precision < 0 ? 6 : (int)spec->precision, text);
    length = group_digits(text, length, spec->group, grouped);
    if (percent)
        grouped[length++] = '%';
    return put_field(run, spec, sign_of(spec, negative), grouped, length, '>');
}

static mica_status put_text(mica__jinja_run *run, const format_spec *spec, const mica__jinja_value *v,
                            char standard)
{
    mica__jinja_value text;
    const mica_status status = mica__jinja_str(run, v, &text);
    if (status != MICA_OK)
        return status;
    MICA__TRY(mica__jinja_spend_bytes(run, text.length)); /* its characters are counted */
    const size_t length = spec->precision < 0
                              ? text.length
                              : mica__jinja_char_offset(text.text, text.length, (size_t)spec->precision);
    return put_field(run, spec, "", text.text, length, standard);
}

static mica_status put_value(mica__jinja_run *run, const format_spec *spec, const mica__jinja_value *v)
{
    int64_t integer = 0;
    MICA__TRY(mica__jinja_spend(run, mica__jinja_is_number(v) ? NUMBER_STEPS : 1));
    const bool real_type = spec->type != 0 && strchr("eEfFgG%", spec->type) != NULL;
    const bool integer_type = spec->type != 0 && strchr("dxXobn", spec->type) != NULL;
    if (v->kind == MICA__JINJA_STRING && (spec->type == 0 || spec->type == 's'))
        return put_text(run, spec, v, '<');
    if (!mica__jinja_is_number(v) || (!real_type && !integer_type && spec->type != 0)) {
        const bool empty = spec->type == 0 && spec->width < 0 && spec->precision < 0;
        return empty ? mica__jinja_put_str(run, v)
                     : mica__jinja_raise(run, "this format does not fit a value of type '%s'",
                                         mica__jinja_type(v));
    }
    if (v->kind == MICA__JINJA_BOOL && spec->type == 0 && spec->width < 0)
        return mica__jinja_put_str(run, v);
    if (v->kind == MICA__JINJA_FLOAT || real_type)
        return integer_type ? mica__jinja_raise(run, "the format '%c' does not fit a float", spec->type)
                            : put_real(run, spec, mica__jinja_as_double(v));
    if (!mica__jinja_as_int(v, &integer))
        return put_text(run, spec, v, '>');
    return put_integer(run, spec, integer);
}

/* ---- % ---- */

/* Flags, width and precision after a %, up to the letter. */
static bool read_percent(const mica__jinja_value *text, size_t *at, format_spec *spec)
{
    *spec = plain;
    for (; *at < text->length && text->text[*at] != '\0' && strchr("-+ 0#", text->text[*at]) != NULL; ++*at) {
        const char flag = text->text[*at];
        if (flag == '-')
            spec->align = '<';
        else if (flag == '0' && spec->align == 0) {
            spec->align = '=';
            spec->fill = '0';
        } else if (flag == '#')
            spec->alternate = true;
        else if (flag != '0' && spec->sign != '+')
            spec->sign = flag;
    }
    if (spec->align == '<')
        spec->fill = ' ';
    for (int part = 0; part < 2; part++) {
        int64_t *number = part == 0 ? &spec->width : &spec->precision;
        if (part == 1) {
            if (*at >= text->length || text->text[*at] != '.')
                break;
            ++*at;
            *number = 0;
        }
        for (; *at < text->length && text->text[*at] >= '0' && text->text[*at] <= '9'; ++*at) {
            *number = (*number < 0 ? 0 : *number) * 10 + (text->text[*at] - '0');
            if (*number > WIDEST)
                return false;
        }
    }
    if (*at >= text->length)
        return false;
    spec->type = text->text[(*at)++];
    return true;
}

static mica_status put_percent(mica__jinja_run *run, format_spec *spec, const mica__jinja_value *v)
{
    const size_t mark = run->out_length;
    mica__jinja_value text = *v;
    mica_status status = MICA_OK;
    if (spec->type == 's' || spec->type == 'r') {
        if (spec->type == 'r') {
            status = mica__jinja_put_repr(run, v);
            if (status == MICA_OK)
                status = mica__jinja_cut(run, mark, &text);
        }
        spec->fill = ' ';
        spec->align = spec->align == '<' ? '<' : '>';
        return status != MICA_OK ? status : put_text(run, spec, &text, '>');
    }
    if (spec->type == 'i' || spec->type == 'u')
        spec->type = 'd';
    if (spec->type == 0 || strchr("dxXoeEfFgG", spec->type) == NULL)
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "the format %%%c is not known",
                                spec->type >= ' ' && spec->type < 127 ? spec->type : '?');
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    if (!mica__jinja_is_number(v))
        return mica__jinja_raise(run, "%%%c format: a real number is required, not %s", spec->type,
                                 mica__jinja_type(v));
    if (v->kind == MICA__JINJA_FLOAT && spec->type == 'd') {
        if (!(v->real > -9e18 && v->real < 9e18))
            return mica__jinja_raise(run, "%%d format: the number is too large");
        text = mica__jinja_int((int64_t)v->real);
    }
    return put_value(run, spec, &text);
}

/* %(name)s: the value of that key. */
static mica_status named_value(mica__jinja_run *run, const mica__jinja_value *text,
                               const mica__jinja_value *values, size_t *at, mica__jinja_value *out)
{
    const char *close = memchr(text->text + *at, ')', text->length - *at);
    if (close == NULL)
        return mica__jinja_raise(run, "incomplete format key");
    if (values->kind != MICA__JINJA_DICT)
        return mica__jinja_raise(run, "format requires a mapping");
    const mica__jinja_value key =
        mica__jinja_text(text->text + *at + 1, (size_t)(close - text->text) - *at - 1);
    const mica__jinja_value *found = NULL;
    const mica_status status = mica__jinja_dict_get(run, values->dict, &key, &found);
    *at = (size_t)(close - text->text) + 1;
    if (status == MICA_OK && found == NULL)
        return mica__jinja_raise(run, "the format names a key that is not there: '%.*s'",
                                 key.length > 60 ? 60 : (int)key.length, key.text);
    if (found != NULL)
        *out = *found;
    return status;
}

mica_status mica__jinja_percent(mica__jinja_run *run, const mica__jinja_value *text,
                                const mica__jinja_value *values, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const mica__jinja_value *items = values->kind == MICA__JINJA_TUPLE ? values->items : values;
    const size_t count = values->kind == MICA__JINJA_TUPLE ? values->length : 1;
    size_t used = 0;
    mica_status status = mica__jinja_spend_bytes(run, text->length);
    for (size_t at = 0; status == MICA_OK && at < text->length;) {
        format_spec spec = plain;
        mica__jinja_value v = mica__jinja_none();
        const char *percent = memchr(text->text + at, '%', text->length - at);
        const size_t end = percent == NULL ? text->length : (size_t)(percent - text->text);
        status = mica__jinja_put(run, text->text + at, end - at);
        at = end + 1;
        if (status != MICA_OK || percent == NULL)
            break;
        const bool by_name = at < text->length && text->text[at] == '(';
        if (by_name)
            status = named_value(run, text, values, &at, &v);
        if (status == MICA_OK && !read_percent(text, &at, &spec))
            return mica__jinja_raise(run, "incomplete format, or a field of more than %d characters", WIDEST);
        if (status == MICA_OK && spec.type == '%') {
            status = mica__jinja_puts(run, "%");
            continue;
        }
        if (status == MICA_OK && !by_name) {
            if (used == count)
                return mica__jinja_raise(run, "not enough arguments for format string");
            v = items[used++];
        }
        if (status == MICA_OK)
            status = put_percent(run, &spec, &v);
    }
    const bool indexable = values->kind == MICA__JINJA_DICT || values->kind == MICA__JINJA_LIST ||
                           values->kind == MICA__JINJA_RANGE || values->kind == MICA__JINJA_UNDEFINED;
    if (status == MICA_OK && used < count && !indexable) /* Python lets these pass unused */
        return mica__jinja_raise(run, "not all arguments converted during string formatting");
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

/* ---- format ---- */

static bool read_number(const mica__jinja_value *text, size_t *at, int64_t *out)
{
    const size_t from = *at;
    int64_t number = 0;
    for (; *at < text->length && text->text[*at] >= '0' && text->text[*at] <= '9'; ++*at) {
        number = number * 10 + (text->text[*at] - '0');
        if (number > WIDEST)
            return false;
    }
    if (*at > from)
        *out = number;
    return true;
}

static bool is_mark(const mica__jinja_value *text, size_t at, const char *marks)
{
    return at < text->length && text->text[at] != '\0' && strchr(marks, text->text[at]) != NULL;
}

/* [[fill]align][sign][#][0][width][group][.precision][type] */
static bool read_spec(const mica__jinja_value *text, format_spec *spec)
{
    size_t at = 0, bytes = 1;
    *spec = plain;
    const uint32_t first = text->length == 0 ? 0 : mica__jinja_char(text->text, text->length, &bytes);
    if (is_mark(text, bytes, "<>^=")) {
        spec->fill = first;
        spec->align = text->text[bytes];
        at = bytes + 1;
    } else if (is_mark(text, 0, "<>^=")) {
        spec->align = text->text[at++];
    }
    if (is_mark(text, at, "+- "))
        spec->sign = text->text[at++];
    if (is_mark(text, at, "#")) {
        spec->alternate = true;
        at++;
    }
    if (is_mark(text, at, "0")) {
        at++;
        if (spec->align == 0) {
            spec->align = '=';
            spec->fill = '0';
        }
    }
    if (!read_number(text, &at, &spec->width))
        return false;
    if (is_mark(text, at, ",_"))
        spec->group = text->text[at++];
    if (is_mark(text, at, ".")) {
        at++;
        if (!read_number(text, &at, &spec->precision) || spec->precision < 0)
            return false;
    }
    if (at < text->length)
        spec->type = text->text[at++];
    return at == text->length;
}

/* The value that a field names: "", "0", "name", each with .attribute and [item] after it. */
static mica_status field_value(mica__jinja_run *run, const mica__jinja_arguments *all,
                               const mica__jinja_value *name, size_t *next, mica__jinja_value *out)
{
    size_t at = 0;
    int64_t index = -1;
    bool found = false;
    MICA__TRY(mica__jinja_spend_chars(run, name->length + all->count));
    while (at < name->length && name->text[at] != '.' && name->text[at] != '[')
        at++;
    if (at == 0)
        index = (int64_t)(*next)++;
    else if (!mica__jinja_parse_int(name->text, at, 10, &index))
        index = -1;
    if (index >= 0 && (size_t)index < all->placed) {
        *out = all->items[index].value;
        found = true;
    }
    for (size_t i = all->placed; index < 0 && !found && i < all->count; i++)
        if (all->items[i].name_length == at && memcmp(all->items[i].name, name->text, at) == 0) {
            *out = all->items[i].value;
            found = true;
        }
    if (!found)
        return mica__jinja_raise(run, "format: there is no argument for the field '%.*s'",
                                 name->length > 60 ? 60 : (int)name->length, name->text);
    mica_status status = MICA_OK;
    while (status == MICA_OK && at < name->length) {
        const bool item = name->text[at] == '[';
        const size_t from = ++at;
        while (at < name->length &&
               (item ? name->text[at] != ']' : name->text[at] != '.' && name->text[at] != '['))
            at++;
        mica__jinja_value key = mica__jinja_text(name->text + from, at - from);
        const mica__jinja_value of = *out;
        if (item && mica__jinja_parse_int(key.text, key.length, 10, &index))
            key = mica__jinja_int(index);
        status = item ? mica__jinja_item(run, &of, &key, out)
                      : mica__jinja_attribute(run, &of, key.text, key.length, NULL, out);
        at += item;
    }
    return status;
}

static mica_status put_format_field(mica__jinja_run *run, const mica__jinja_arguments *all,
                                    const mica__jinja_value *field, size_t *next)
{
    const size_t mark = run->out_length;
    const char *colon = field->length == 0 ? NULL : memchr(field->text, ':', field->length);
    mica__jinja_value name = *field, spec_text = mica__jinja_text("", 0), v = mica__jinja_none();
    format_spec spec = plain;
    char conversion = 0;
    if (colon != NULL) {
        name.length = (size_t)(colon - field->text);
        spec_text = mica__jinja_text(colon + 1, field->length - name.length - 1);
    }
    if (name.length >= 2 && name.text[name.length - 2] == '!') {
        conversion = name.text[name.length - 1];
        name.length -= 2;
    }
    mica_status status = field_value(run, all, &name, next, &v);
    if (status == MICA_OK && conversion == 'r') {
        status = mica__jinja_put_repr(run, &v);
        if (status == MICA_OK)
            status = mica__jinja_cut(run, mark, &v);
    } else if (status == MICA_OK && conversion == 's') {
        status = mica__jinja_str(run, &v, &v);
    } else if (status == MICA_OK && conversion != 0) {
        return mica__jinja_raise(run, "format: the conversion '!%c' is not known", conversion);
    }
    if (status != MICA_OK)
        return status;
    if (memchr(spec_text.text, '{', spec_text.length) != NULL)
        return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "format: fields inside of a format are not known");
    if (!read_spec(&spec_text, &spec))
        return mica__jinja_raise(run, "format: invalid format '%.*s'",
                                 spec_text.length > 60 ? 60 : (int)spec_text.length, spec_text.text);
    return put_value(run, &spec, &v);
}

mica_status mica__jinja_format(mica__jinja_run *run, const mica__jinja_call *call, mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const mica__jinja_value *text = &call->self;
    size_t next = 0;
    mica_status status = mica__jinja_spend_bytes(run, text->length);
    for (size_t at = 0; status == MICA_OK && at < text->length;) {
        const char c = text->text[at];
        if (c != '{' && c != '}') {
            status = mica__jinja_put(run, text->text + at++, 1);
            continue;
        }
        if (at + 1 < text->length && text->text[at + 1] == c) {
            status = mica__jinja_put(run, &c, 1);
            at += 2;
            continue;
        }
        const char *end = c == '}' ? NULL : memchr(text->text + at, '}', text->length - at);
        if (end == NULL)
            return mica__jinja_raise(run, "Single '%c' encountered in format string", c);
        const mica__jinja_value field =
            mica__jinja_text(text->text + at + 1, (size_t)(end - text->text) - at - 1);
        status = put_format_field(run, call->all, &field, &next);
        if (status == MICA_OK)
            status = mica__jinja_spend(run, 1);
        at = (size_t)(end - text->text) + 1;
    }
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}
