/* json_scan.c: the leaves of a document: strings, numbers, and the check that no key comes twice. */
#include "base/json_parser.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
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

/* parser->at is on the u of \u. The padding makes the reads safe at the end of the text. */
static mica_status parse_unicode(mica__json_parser *parser, char **out)
{
    const char *at = parser->at;
    int32_t code = parse_hex4(at + 1);
    if (code < 0)
        return mica__json_malformed(parser, at, "four hexadecimal digits are expected after \\u");
    parser->at += 5;
    if (code >= 0xdc00 && code <= 0xdfff)
        return mica__json_malformed(parser, at, "the second half of a surrogate pair stands alone");
    if (code >= 0xd800 && code <= 0xdbff) {
        const int32_t low = at[5] == '\\' && at[6] == 'u' ? parse_hex4(at + 7) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return mica__json_malformed(parser, at, "the first half of a surrogate pair stands alone");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        parser->at += 6;
    }
    *out += mica__utf8_put((uint32_t)code, *out);
    return MICA_OK;
}

/* parser->at is on a backslash. */
static mica_status parse_escape(mica__json_parser *parser, char **out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *name;
    parser->at++;
    if (*parser->at == 'u')
        return parse_unicode(parser, out);
    name = *parser->at != '\0' ? strchr(names, *parser->at) : NULL;
    if (name == NULL)
        return mica__json_malformed(parser, parser->at, "no escape of that name");
    *(*out)++ = values[name - names];
    parser->at++;
    return MICA_OK;
}

/* A character that is neither plain nor the closing quote: copied or decoded to *out. */
static mica_status parse_special(mica__json_parser *parser, char **out)
{
    if (*parser->at == '\\')
        return parse_escape(parser, out);
    if (parser->at == parser->end)
        return mica__json_malformed(parser, parser->at, "the text ends inside a string");
    if ((unsigned char)*parser->at < 0x20)
        return mica__json_malformed(parser, parser->at, "a control character inside a string");
    const size_t length = mica__utf8_length(parser->at, (size_t)(parser->end - parser->at));
    if (length == 0)
        return mica__json_malformed(parser, parser->at, "not UTF-8");
    for (size_t i = 0; i < length; i++)
        *(*out)++ = *parser->at++;
    return MICA_OK;
}

mica_status mica__json_parse_string(mica__json_parser *parser, const char **out_text, size_t *out_length)
{
    char *const start = parser->at;
    char *out = start; /* never ahead of parser->at: an escape is longer than what it stands for */
    for (;;) {
        char *const plain_end = skip_plain(parser->at);
        const size_t plain = (size_t)(plain_end - parser->at);
        if (out != parser->at)
            memmove(out, parser->at, plain);
        out += plain;
        parser->at = plain_end;
        if (*plain_end == '"')
            break;
        const mica_status status = parse_special(parser, &out);
        if (status != MICA_OK)
            return status;
    }
    parser->at++;
    *out = '\0'; /* at the latest on the closing quote */
    *out_text = start;
    *out_length = (size_t)(out - start);
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
        if (number->digits > (UINT64_MAX - digit) / 10)
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

static mica_status scan_decimal(mica__json_parser *parser, decimal *number)
{
    const char *at = parser->at;
    number->negative = *at == '-';
    at += number->negative;
    number->start = at;
    number->integral = true;
    if (!is_digit(*at))
        return mica__json_malformed(parser, at, "a digit is expected");
    if (*at == '0' && is_digit(at[1]))
        return mica__json_malformed(parser, at, "a number may not start with a needless 0");
    scan_digits(&at, number);
    if (*at == '.') {
        const char *fraction = ++at;
        scan_digits(&at, number);
        if (at == fraction)
            return mica__json_malformed(parser, at, "a digit is expected after the point");
        number->exponent = -(int64_t)(at - fraction);
        number->integral = false;
    }
    number->end = at;
    if (*at == 'e' || *at == 'E') {
        int64_t exponent = 0;
        at++;
        if (!scan_exponent(&at, &exponent))
            return mica__json_malformed(parser, at, "a digit is expected in the exponent");
        number->exponent += exponent;
        number->integral = false;
    }
    parser->at += at - parser->at;
    return MICA_OK;
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

mica_status mica__json_parse_number(mica__json_parser *parser, mica__json_node *out_node)
{
    decimal number = {0};
    const char *start = parser->at;
    const mica_status status = scan_decimal(parser, &number);
    if (status != MICA_OK)
        return status;
    const double magnitude = decimal_value(&number);
    if (!isfinite(magnitude))
        return mica__json_malformed(parser, start, "the number is too large for a double");
    out_node->type = MICA__JSON_NUMBER;
    out_node->number.real = number.negative ? -magnitude : magnitude;
    if (!number.integral || number.overflowed)
        return MICA_OK;
    if (!number.negative) {
        out_node->exact = MICA__JSON_EXACT_UINT;
        out_node->number.uint_value = number.digits;
    } else if (number.digits != 0 && number.digits <= UINT64_C(1) << 63) {
        out_node->exact = MICA__JSON_EXACT_NEGATIVE;
        out_node->number.int_value = -(int64_t)(number.digits - 1) - 1;
    }
    return MICA_OK;
}

static bool same_key(const mica__json_node *a, const mica__json_node *b)
{
    return a->key_length == b->key_length && memcmp(a->key, b->key, a->key_length) == 0;
}

static mica_status duplicate_key(const mica__json_parser *parser, const mica__json_node *node)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE,
                      "JSON at byte %zu: the key \"%.100s\" comes twice in one object",
                      (size_t)(node->key - parser->json->text), node->key);
}

/* Room for `count` keys at a load of at most one half, all free. */
static mica_status clear_table(mica__json_parser *parser, uint32_t count, size_t *out_mask)
{
    size_t capacity = 32;
    while (capacity < (size_t)count * 2)
        capacity *= 2;
    if (capacity > parser->table_capacity) {
        mica__free(parser->table);
        parser->table_capacity = 0;
        parser->table = mica__alloc(capacity * sizeof *parser->table);
        if (parser->table == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to compare %u JSON keys", (unsigned)count);
        parser->table_capacity = capacity;
    }
    memset(parser->table, 0, capacity * sizeof *parser->table);
    *out_mask = capacity - 1;
    return MICA_OK;
}

static mica_status check_many_keys(mica__json_parser *parser, const mica__json_node *object)
{
    size_t mask = 0;
    const mica__json_node *nodes = parser->json->nodes;
    const mica_status status = clear_table(parser, object->child_count, &mask);
    if (status != MICA_OK)
        return status;
    for (const mica__json_node *node = object + 1; node != NULL; node = mica__json_next(parser->json, node)) {
        size_t slot = (size_t)mica__hash_bytes(node->key, node->key_length, parser->seed) & mask;
        for (; parser->table[slot] != 0; slot = (slot + 1) & mask)
            if (same_key(&nodes[parser->table[slot]], node))
                return duplicate_key(parser, node);
        parser->table[slot] = (uint32_t)(node - nodes);
    }
    return MICA_OK;
}

mica_status mica__json_check_keys(mica__json_parser *parser, const mica__json_node *object)
{
    const mica__json *json = parser->json;
    if (object->child_count > 8) /* fewer are compared in pairs at less cost than hashing */
        return check_many_keys(parser, object);
    for (const mica__json_node *a = mica__json_first(object); a != NULL; a = mica__json_next(json, a))
        for (const mica__json_node *b = mica__json_next(json, a); b != NULL; b = mica__json_next(json, b))
            if (same_key(a, b))
                return duplicate_key(parser, b);
    return MICA_OK;
}
