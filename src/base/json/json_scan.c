/* json_scan.c: the leaves of a document: strings and numbers, held whole in the window while they are read. */
#include "base/json/json_reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define BYTES(x) (UINT64_C(0x0101010101010101) * (x))

/* True when the 8 bytes may hold a quote, a backslash, a control character or a byte of 0x80 and up. */
static bool has_special(uint64_t word)
{
    const uint64_t quote = word ^ BYTES('"'), backslash = word ^ BYTES('\\');
    return ((word | (word - BYTES(0x20)) | (quote - BYTES(1)) | (backslash - BYTES(1))) & BYTES(0x80)) != 0;
}

/* The first character from `at` that a string cannot just copy. The NULs after the text end the search. */
static char *skip_plain(char *at)
{
    uint64_t word;
    for (;;) {
        memcpy(&word, at, sizeof word);
        if (has_special(word))
            break;
        at += sizeof word;
    }
    while ((unsigned char)*at >= 0x20 && *at != '"' && *at != '\\' && (unsigned char)*at < 0x80)
        at++;
    return at;
}

/* Four hexadecimal digits, or -1. */
static int32_t parse_hex4(const char *at)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = at[i];
        const int32_t digit = c >= '0' && c <= '9'   ? c - '0'
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* reader->at is on the u of \u. The padding makes the reads safe at the end of the text. */
static mica_status parse_unicode(mica__json_reader *reader, char **out)
{
    const char *at = reader->at;
    int32_t code = parse_hex4(at + 1);
    if (code < 0)
        return mica__json_malformed(reader, at, "four hexadecimal digits are expected after \\u");
    reader->at += 5;
    if (code >= 0xdc00 && code <= 0xdfff)
        return mica__json_malformed(reader, at, "the second half of a surrogate pair stands alone");
    if (code >= 0xd800 && code <= 0xdbff) {
        const int32_t low = at[5] == '\\' && at[6] == 'u' ? parse_hex4(at + 7) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return mica__json_malformed(reader, at, "the first half of a surrogate pair stands alone");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        reader->at += 6;
    }
    *out += mica__utf8_put((uint32_t)code, *out);
    return MICA_OK;
}

/* reader->at is on a backslash. */
static mica_status parse_escape(mica__json_reader *reader, char **out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name;
    reader->at++;
    if (*reader->at == 'u')
        return parse_unicode(reader, out);
    name = *reader->at != '\0' ? strchr(names, *reader->at) : NULL;
    if (name == NULL)
        return mica__json_malformed(reader, reader->at, "no escape of that name");
    *(*out)++ = values[name - names];
    reader->at++;
    return MICA_OK;
}

/* A character that is neither plain nor the closing quote: copied or decoded to *out. */
static mica_status parse_special(mica__json_reader *reader, char **out)
{
    if (*reader->at == '\\')
        return parse_escape(reader, out);
    if (reader->at == reader->end)
        return mica__json_malformed(reader, reader->at, "the text ends inside a string");
    if ((unsigned char)*reader->at < 0x20)
        return mica__json_malformed(reader, reader->at, "a control character inside a string");
    const size_t length = mica__utf8_length(reader->at, (size_t)(reader->end - reader->at));
    if (length == 0)
        return mica__json_malformed(reader, reader->at, "not UTF-8");
    for (size_t i = 0; i < length; i++)
        *(*out)++ = *reader->at++;
    return MICA_OK;
}

/* Brings the window's end behind the closing quote of the string that reader->at is in, or behind what no string may
 * hold. Moves nothing but the window. */
static mica_status hold_string(mica__json_reader *reader)
{
    for (size_t ahead = 0;; ahead++) {
        const char *at = reader->at + ahead;
        if (at < reader->end && *at == '\\') {
            ahead++; /* whatever is escaped is no closing quote */
        } else if (at >= reader->end) {
            if (reader->left == 0)
                return MICA_OK;
            const mica_status status = mica__json_refill(reader);
            if (status != MICA_OK)
                return status;
            ahead--; /* this place again */
        } else if (*at == '"' || (unsigned char)*at < 0x20) {
            return MICA_OK;
        }
    }
}

/* From reader->at, which a string cannot just copy, to the closing quote; all of it is in the window. *out ends behind
 * the decoded text. */
static mica_status decode_string(mica__json_reader *reader, char **out)
{
    while (*reader->at != '"') {
        const mica_status status = parse_special(reader, out);
        if (status != MICA_OK)
            return status;
        char *const plain_end = skip_plain(reader->at);
        const size_t plain = (size_t)(plain_end - reader->at);
        if (*out != reader->at)
            memmove(*out, reader->at, plain);
        *out += plain;
        reader->at = plain_end;
    }
    return MICA_OK;
}

mica_status mica__json_scan_string(mica__json_reader *reader, size_t *out_offset, size_t *out_length)
{
    const size_t offset = (size_t)(reader->at - reader->token);
    mica_status status = MICA_OK;
    *out_offset = offset;
    reader->at = skip_plain(reader->at);
    while (reader->at == reader->end && reader->left != 0 && status == MICA_OK) {
        status = mica__json_refill(reader);
        reader->at = skip_plain(reader->at);
    }
    if (status == MICA_OK && *reader->at != '"')
        status = hold_string(reader);
    char *out = reader->at; /* never ahead of reader->at: an escape is longer than what it stands for */
    if (status == MICA_OK)
        status = decode_string(reader, &out);
    if (status != MICA_OK)
        return status;
    reader->at++;
    *out = '\0'; /* at the latest on the closing quote */
    *out_length = (size_t)(out - reader->token) - offset;
    return MICA_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A number taken apart: digits * 10^exponent, where `digits` holds all of them unless they overflowed. */
typedef struct decimal {
    const char *start, *end; /* the digits and the point, without sign and exponent */
    uint64_t digits;
    bool negative, overflowed, integral;
    int64_t exponent;
} decimal;

static void scan_digits(const char **at, decimal *number)
{
    for (; is_digit(**at); (*at)++) {
        const uint64_t digit = (uint64_t)(**at - '0');
        if (number->digits >= UINT64_C(1000000000000000000) && number->digits > (UINT64_MAX - digit) / 10)
            number->overflowed = true;
        else
            number->digits = number->digits * 10 + digit;
    }
}

/* The digits after e or E with their sign; numbers past 10^6 are all alike. Returns false without digits. */
static bool scan_exponent(const char **at, int64_t *out_exponent)
{
    const bool negative = **at == '-';
    int64_t value = 0;
    if (**at == '-' || **at == '+')
        (*at)++;
    if (!is_digit(**at))
        return false;
    for (; is_digit(**at); (*at)++)
        value = value > 1000000 ? value : value * 10 + (**at - '0');
    *out_exponent = negative ? -value : value;
    return true;
}

/* Takes a number apart; *at ends behind it, or where it is wrong. Returns NULL, or what is wrong. */
static const char *scan_decimal(const char **at, decimal *number)
{
    number->negative = **at == '-';
    *at += number->negative;
    number->start = *at;
    number->integral = true;
    if (!is_digit(**at))
        return "a digit is expected";
    if (**at == '0' && is_digit((*at)[1]))
        return "a number may not start with a needless 0";
    scan_digits(at, number);
    if (**at == '.') {
        const char *fraction = ++*at;
        scan_digits(at, number);
        if (*at == fraction)
            return "a digit is expected after the point";
        number->exponent = -(int64_t)(*at - fraction);
        number->integral = false;
    }
    number->end = *at;
    if (**at == 'e' || **at == 'E') {
        int64_t exponent = 0;
        ++*at;
        if (!scan_exponent(at, &exponent))
            return "a digit is expected in the exponent";
        number->exponent += exponent;
        number->integral = false;
    }
    return NULL;
}

/* 768 digits tell any double from the midpoint beside it; what follows only matters as "something more". */
#define MAX_DIGITS 768

/* The nearest double of any decimal. It is written without a point for strtod, whose point is the
 * locale's. */
static double decimal_value_slow(const decimal *number)
{
    char text[MAX_DIGITS + 32];
    size_t length = 0;
    int64_t exponent = number->exponent;
    bool more = false;
    for (const char *at = number->start; at != number->end; at++) {
        if (*at == '.' || (*at == '0' && length == 0))
            continue;
        if (length < MAX_DIGITS) {
            text[length++] = *at;
        } else {
            more |= *at != '0';
            exponent++;
        }
    }
    if (length == 0)
        return 0.0;
    if (more) {
        text[length++] = '1';
        exponent--;
    }
    exponent = exponent > 99999 ? 99999 : exponent < -99999 ? -99999 : exponent;
    snprintf(text + length, sizeof text - length, "e%d", (int)exponent);
    return strtod(text, NULL);
}

/* With at most 53 bits of digits and a power of ten that a double holds exactly, one rounding is all there
 * is. */
static double decimal_value(const decimal *number)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (number->overflowed)
        return decimal_value_slow(number);
    if (number->exponent == 0)
        return (double)number->digits;
    if (number->digits > UINT64_C(1) << 53 || number->exponent < -22 || number->exponent > 22)
        return decimal_value_slow(number);
    if (number->exponent < 0)
        return (double)number->digits / powers[-number->exponent];
    return (double)number->digits * powers[number->exponent];
}

/* Takes the number at reader->at apart, all of it in the window. *out_stop is behind it. */
static mica_status hold_number(mica__json_reader *reader, decimal *out_number, char **out_stop)
{
    for (;;) {
        const char *stop = reader->at;
        *out_number = (decimal){0};
        const char *wrong = scan_decimal(&stop, out_number);
        *out_stop = reader->at + (stop - reader->at);
        if (stop != reader->end || reader->left == 0)
            return wrong == NULL ? MICA_OK : mica__json_malformed(reader, stop, wrong);
        const mica_status status = mica__json_refill(reader); /* it may go on behind the window */
        if (status != MICA_OK)
            return status;
    }
}

mica_status mica__json_scan_number(mica__json_reader *reader, mica__json_node *out_item)
{
    decimal number;
    char *stop = NULL;
    const mica_status status = hold_number(reader, &number, &stop);
    if (status != MICA_OK)
        return status;
    const double magnitude = decimal_value(&number);
    if (!isfinite(magnitude))
        return mica__json_malformed(reader, reader->at, "the number is too large for a double");
    reader->at = stop;
    out_item->type = MICA__JSON_NUMBER;
    out_item->number.real = number.negative ? -magnitude : magnitude;
    if (!number.integral || number.overflowed)
        return MICA_OK;
    if (!number.negative) {
        out_item->exact = MICA__JSON_EXACT_UINT;
        out_item->number.uint_value = number.digits;
    } else if (number.digits != 0 && number.digits <= UINT64_C(1) << 63) {
        out_item->exact = MICA__JSON_EXACT_NEGATIVE;
        out_item->number.int_value = -(int64_t)(number.digits - 1) - 1;
    }
    return MICA_OK;
}
