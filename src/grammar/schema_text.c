/* schema_text.c: writing GBNF: literals, digit ranges, formats, the rules that all schemas share. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "base/work.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

#define MOST_TEXT (16u << 20)
#define MOST_DIGITS 16

/* Numbers have at most 16 digits on either side, so that a double can hold them and a model comes to an end. A \u escape
 * is no half of a surrogate pair, so each char is one code point. */
const char mica__schema_basics[] =
    "ws ::= \"\" | \" \" | \"\\n\" [ \\t]{0,20}\n"
    "hex ::= [0-9A-Fa-f]\n"
    "plain ::= [^\"\\\\\\x00-\\x1F]\n"
    "char ::= plain | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9ABCEFabcef] hex{3} | [Dd] [0-7] hex{2}))\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "whole ::= \"0\" | [1-9] [0-9]{0,15}\n"
    "fraction ::= \".\" [0-9]{1,16}\n"
    "number ::= \"-\"? whole fraction? ([eE] [-+]? [0-9]{1,2})?\n"
    "pair ::= string \":\" ws value\n"
    "object ::= \"{\" ws (pair (\",\" ws pair)* ws)? \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n";

#define MONTH_DAY                                                                                        \
    "((\"01\" | \"03\" | \"05\" | \"07\" | \"08\" | \"10\" | \"12\") \"-\" (\"0\" [1-9] | [12] [0-9] | " \
    "\"3\" [01])"                                                                                        \
    " | (\"04\" | \"06\" | \"09\" | \"11\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"30\")"                   \
    " | \"02-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8]))"
/* Years that 4 divides, without centuries, and centuries that 400 divides. */
#define LEAP_YEAR                                                                                           \
    "([0-9] [0-9] (\"0\" [48] | [2468] [048] | [13579] [26]) | (\"0\" [48] | [2468] [048] | [13579] [26]) " \
    "\"00\")"
#define DATE                                                                                           \
    "([0-9]{3} [1-9] | [0-9]{2} [1-9] [0-9] | [0-9] [1-9] [0-9]{2} | [1-9] [0-9]{3}) \"-\" " MONTH_DAY \
    " | " LEAP_YEAR " \"-02-29\""
#define HOUR "(\"0\" [0-9] | \"1\" [0-9] | \"2\" [0-3])"
#define TIME                                                                                            \
    HOUR " \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{1,9})? (\"Z\" | [-+] " HOUR " \":\" [0-5] " \
         "[0-9])"
#define BYTE "(\"25\" [0-5] | \"2\" [0-4] [0-9] | \"1\" [0-9]{2} | [1-9]? [0-9])"
#define LABEL "[a-z0-9] (\"-\"? [a-z0-9]){0,29}" /* no two hyphens: what follows xn-- is another alphabet */

const char *mica__schema_format(const char *name)
{
    static const struct {
        const char *name, *gbnf;
    } formats[] = {
        {"date", "(" DATE ")"},
        {"time", TIME},
        {"date-time", "(" DATE ") \"T\" " TIME},
        {"uuid", "hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12}"},
        {"ipv4", BYTE " (\".\" " BYTE "){3}"},
        {"hostname", LABEL " (\".\" " LABEL "){0,5}"},
        {"email", "[a-z0-9] ([-_.]? [a-z0-9]){0,30} \"@\" " LABEL " (\".\" " LABEL "){1,5}"},
        {"uri", "(\"http\" \"s\"? | \"ftp\") \"://\" " LABEL " (\".\" " LABEL
                "){0,5} (\"/\" [-a-zA-Z0-9_.~]{0,64}){0,16}"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return formats[i].gbnf;
    return NULL;
}

/* ---- writing -------------------------------------------------------------------------------------------- */

/* Room for `more` bytes and a NUL. */
static bool reserve(mica__schema_text *text, size_t more)
{
    char *larger;
    if (text->error == MICA_OK)
        text->error = mica__spend(4 + more / 4);
    if (text->error != MICA_OK)
        return false;
    if (more > MOST_TEXT - text->length) {
        text->error =
            mica__fail(MICA_ERR_BUDGET, "the grammar of the schema is larger than %u bytes", MOST_TEXT);
        return false;
    }
    larger = mica__grown(text->data, &text->capacity, (uint64_t)text->length + more + 1, 1);
    if (larger == NULL) {
        text->error = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the grammar of the schema");
        return false;
    }
    text->data = larger;
    return true;
}

void mica__schema_put(mica__schema_text *text, const char *format, ...)
{
    va_list arguments, again;
    int length;
    va_start(arguments, format);
    va_copy(again, arguments);
    length = vsnprintf(NULL, 0, format, arguments);
    if (length > 0 && reserve(text, (size_t)length)) {
        (void)vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (uint32_t)length;
    }
    va_end(again);
    va_end(arguments);
}

void mica__schema_put_code(mica__schema_text *text, uint32_t code)
{
    char bytes[8];
    bytes[mica__utf8_put(code, bytes)] = '\0';
    if (code < 0x20 || code == 0x7f || code == '-' || code == '^')
        mica__schema_put(text, "\\x%02X", code);
    else
        mica__schema_put(text, code < 0x7f && strchr("\\[]", (int)code) != NULL ? "\\%s" : "%s", bytes);
}

static bool is_control(char byte)
{
    return (unsigned char)byte < 0x20 || byte == 0x7f;
}

void mica__schema_put_literal(mica__schema_text *text, const char *bytes, size_t length)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t size = length + 2;
    char *at;
    for (size_t i = 0; i < length; i++)
        size += is_control(bytes[i]) ? 3 : bytes[i] == '"' || bytes[i] == '\\';
    if (!reserve(text, size))
        return;
    at = text->data + text->length;
    *at++ = '"';
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)bytes[i];
        const bool control = is_control(bytes[i]);
        if (control || byte == '"' || byte == '\\')
            *at++ = '\\';
        *at++ = control ? 'x' : (char)byte;
        if (control) {
            *at++ = hex[byte >> 4];
            *at++ = hex[byte & 15];
        }
    }
    *at++ = '"';
    text->length = (uint32_t)(at - text->data);
}

/* ---- digits --------------------------------------------------------------------------------------------- */

static int64_t power_of_ten(int digits)
{
    int64_t power = 1;
    while (digits-- > 0)
        power *= 10;
    return power;
}

static void put_any(mica__schema_text *text, int digits)
{
    if (digits > 0)
        mica__schema_put(text, " [0-9]{%d}", digits);
}

/* Numbers of exactly `digits` digits, leading zeros included. Recurses once per digit. */
static void put_fixed(mica__schema_text *text, int64_t low, int64_t high, int digits)
{
    const int64_t unit = power_of_ten(digits - 1);
    const int from = (int)(low / unit), to = (int)(high / unit);
    const bool low_is_first = low % unit == 0, high_is_last = high % unit == unit - 1;
    int middle_from = from, middle_to = to;
    const char *bar = "";
    if (from == to && !(low_is_first && high_is_last)) {
        mica__schema_put(text, "\"%d\" (", from);
        put_fixed(text, low % unit, high % unit, digits - 1);
        mica__schema_put(text, ")");
        return;
    }
    if (!low_is_first) {
        mica__schema_put(text, "\"%d\" (", from);
        put_fixed(text, low % unit, unit - 1, digits - 1);
        mica__schema_put(text, ")");
        middle_from++;
        bar = " | ";
    }
    if (!high_is_last)
        middle_to--;
    if (middle_from <= middle_to) {
        mica__schema_put(text, "%s[%d-%d]", bar, middle_from, middle_to);
        put_any(text, digits - 1);
        bar = " | ";
    }
    if (!high_is_last) {
        mica__schema_put(text, "%s\"%d\" (", bar, to);
        put_fixed(text, 0, high % unit, digits - 1);
        mica__schema_put(text, ")");
    }
}

void mica__schema_put_digits(mica__schema_text *text, int64_t low, int64_t high)
{
    const int64_t last = power_of_ten(MOST_DIGITS) - 1;
    const char *bar = "";
    int full_from = 0, full_to = 0; /* lengths of which all numbers are in */
    if (high > last)
        high = last;
    if (low > high) {
        mica__schema_put(text, "[]");
        return;
    }
    if (low == 0) {
        mica__schema_put(text, "\"0\"");
        bar = " | ";
        low = 1;
    }
    for (int digits = 1; digits <= MOST_DIGITS && low <= high; digits++) {
        const int64_t least = power_of_ten(digits - 1), most = power_of_ten(digits) - 1;
        const int64_t from = low > least ? low : least, to = high < most ? high : most;
        if (from > to)
            continue;
        if (from == least && to == most) {
            full_from = full_from == 0 ? digits : full_from;
            full_to = digits;
            continue;
        }
        mica__schema_put(text, "%s", bar);
        put_fixed(text, from, to, digits);
        bar = " | ";
    }
    if (full_from != 0)
        mica__schema_put(text, "%s[1-9] [0-9]{%d,%d}", bar, full_from - 1, full_to - 1);
}
