/* number.c: numbers to text and back as Python writes them, whatever the locale. */
#include "text/template/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template/chars.h"

/* The digits of printf's %e: "d.ddde[+-]dd" becomes the digits and the exponent. Returns how many digits. */
static size_t split_digits(double magnitude, int precision, char digits[24], int *out_exponent)
{
    char text[64];
    size_t count = 0;
    snprintf(text, sizeof text, "%.*e", precision, magnitude);
    const char *e = strchr(text, 'e');
    for (const char *at = text; at < e; at++)
        if (*at >= '0' && *at <= '9')
            digits[count++] = *at;
    while (count > 1 && digits[count - 1] == '0')
        count--;
    *out_exponent = atoi(e + 1);
    return count;
}

/* The value of digits with the point after the first and a power of ten. */
static double join_digits(const char *digits, size_t count, int exponent)
{
    char text[64];
    snprintf(text, sizeof text, "%.*se%d", (int)count, digits, exponent - (int)count + 1);
    return strtod(text, NULL);
}

size_t mica__jinja_real_text(double real, char out[MICA__JINJA_NUMBER_BYTES])
{
    if (isnan(real) || isinf(real))
        return (size_t)snprintf(out, MICA__JINJA_NUMBER_BYTES, "%s",
                                isnan(real) ? "nan"
                                : real < 0  ? "-inf"
                                            : "inf");
    char digits[24] = "0";
    int exponent = 0;
    size_t count = 1, length = 0;
    const double magnitude = fabs(real);
    /* 15 digits are kept by every normal double, so fewer need not be tried, except near zero. */
    for (int precision = magnitude < 1e-300 ? 0 : 14; precision <= 16; precision++) {
        count = split_digits(magnitude, precision, digits, &exponent);
        if (join_digits(digits, count, exponent) == magnitude)
            break;
    }
    if (signbit(real))
        out[length++] = '-';
    if (exponent < -4 || exponent >= 16) {
        length += (size_t)snprintf(out + length, MICA__JINJA_NUMBER_BYTES - length, "%c%s%.*se%c%02d",
                                   digits[0], count > 1 ? "." : "", (int)count - 1, digits + 1,
                                   exponent < 0 ? '-' : '+', abs(exponent));
        return length;
    }
    if (exponent < 0)
        length += (size_t)snprintf(out + length, MICA__JINJA_NUMBER_BYTES - length, "0.%.*s", -exponent - 1,
                                   "0000");
    for (int i = 0; i < (int)count || i <= exponent; i++) {
        out[length++] = i < (int)count ? digits[i] : '0';
        if (i == exponent) {
            out[length++] = '.';
            if (i + 1 >= (int)count)
                out[length++] = '0';
        }
    }
    return length;
}

size_t mica__jinja_real_format(double real, char conversion, int precision,
                               char out[MICA__JINJA_NUMBER_BYTES])
{
    const char format[] = {'%', '.', '*', conversion, '\0'};
    if (precision > 30)
        precision = 30;
    snprintf(out, MICA__JINJA_NUMBER_BYTES, format, precision, real);
    size_t length = 0;
    for (const char *at = out; *at != '\0'; at++) {
        const bool plain = (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') ||
                           (*at >= 'A' && *at <= 'Z') || *at == '-' || *at == '+';
        if (plain)
            out[length++] = *at;
        else if (length == 0 || out[length - 1] != '.') /* the locale's point, of one byte or more */
            out[length++] = '.';
    }
    return length;
}

static void trim(const char **text, size_t *length)
{
    const size_t end = mica__jinja_trim_end(*text, 0, *length);
    const size_t start = mica__jinja_skip_space(*text, end, 0);
    *text += start;
    *length = end - start;
}

static bool is_word(const char *text, size_t length, const char *word)
{
    if (strlen(word) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (mica__jinja_to_lower((unsigned char)text[i]) != (unsigned char)word[i])
            return false;
    return true;
}

/* Digits with single underscores between them, from *at on. The kept ones, at most `room`, go to `out`; the others
 * are counted. False if there is none or an underscore stands wrong. */
static bool take_digits(const char *text, size_t length, size_t *at, char *out, size_t room,
                        size_t *out_count)
{
    size_t count = 0;
    bool after_digit = false;
    for (; *at < length; ++*at) {
        const char c = text[*at];
        if (c == '_' && after_digit) {
            after_digit = false;
            continue;
        }
        if (c < '0' || c > '9')
            break;
        if (count < room)
            out[count] = c;
        count++;
        after_digit = true;
    }
    *out_count = count;
    return count > 0 && after_digit;
}

/* What follows the digits of a float: a fraction, an exponent, and then nothing. */
static bool take_tail(const char *text, size_t length, size_t at, char *digits, size_t *count,
                      int64_t *exponent)
{
    size_t more = 0, shown = 0;
    char power[8] = "0";
    if (at < length && text[at] == '.') {
        const size_t kept = *count < 40 ? *count : 40;
        at++;
        const bool some = take_digits(text, length, &at, digits + kept, 40 - kept, &more);
        if (!some && (more != 0 || *count == 0))
            return false;
        *exponent -= (int64_t)more;
        *count += more;
    }
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        const bool negative = at + 1 < length && text[at + 1] == '-';
        at += 1 + (negative || (at + 1 < length && text[at + 1] == '+'));
        if (!take_digits(text, length, &at, power, sizeof power - 2, &shown))
            return false;
        power[shown < sizeof power - 2 ? shown : sizeof power - 2] = '\0';
        *exponent += (negative ? -1 : 1) * (int64_t)strtol(power, NULL, 10);
    }
    return at == length && *count > 0;
}

bool mica__jinja_parse_real(const char *text, size_t length, double *out)
{
    char digits[41], written[64];
    size_t at = 0, count = 0;
    int64_t exponent = 0;
    trim(&text, &length);
    const bool negative = length > 0 && text[0] == '-';
    if (length > 0 && (text[0] == '-' || text[0] == '+'))
        at = 1;
    if (is_word(text + at, length - at, "inf") || is_word(text + at, length - at, "infinity")) {
        *out = negative ? -(double)INFINITY : (double)INFINITY;
        return true;
    }
    if (is_word(text + at, length - at, "nan")) {
        *out = (double)NAN;
        return true;
    }
    const bool whole = take_digits(text, length, &at, digits, 40, &count);
    if (!whole && count != 0)
        return false;
    if (!take_tail(text, length, at, digits, &count, &exponent))
        return false;
    const size_t kept = count < 40 ? count : 40; /* what follows could only break a tie */
    exponent += (int64_t)(count - kept);
    snprintf(written, sizeof written, "%.*se%" PRId64, (int)kept, digits, exponent);
    const double magnitude = strtod(written, NULL);
    *out = negative ? -magnitude : magnitude;
    return true;
}

/* Skips 0x, 0o or 0b where it fits the base; base 0 takes it from there. */
static bool take_prefix(const char *text, size_t length, size_t *at, int *base)
{
    static const struct {
        char letter;
        int base;
    } prefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    if (length - *at > 2 && text[*at] == '0')
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
            if ((text[*at + 1] | 32) == prefixes[i].letter && (*base == 0 || *base == prefixes[i].base)) {
                *base = prefixes[i].base;
                *at += 2 + (text[*at + 2] == '_');
                return true;
            }
    if (*base == 0)
        *base = 10;
    return false;
}

bool mica__jinja_parse_int(const char *text, size_t length, int base, int64_t *out)
{
    size_t at = 0;
    uint64_t value = 0;
    bool after_digit = false;
    trim(&text, &length);
    const bool negative = length > 0 && text[0] == '-';
    if (length > 0 && (text[0] == '-' || text[0] == '+'))
        at = 1;
    (void)take_prefix(text, length, &at, &base);
    for (; at < length; at++) {
        const char c = text[at];
        const int digit = c >= '0' && c <= '9'                 ? c - '0'
                          : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10
                                                               : 99;
        if (c == '_' && after_digit) {
            after_digit = false;
            continue;
        }
        if (digit >= base || value > (UINT64_MAX >> 1) / (uint64_t)base)
            return false;
        value = value * (uint64_t)base + (uint64_t)digit;
        after_digit = true;
    }
    if (!after_digit || value > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}
