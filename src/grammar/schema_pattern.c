/* schema_pattern.c: regular expressions of JSON schemas as GBNF over the characters of a JSON string.
 *
 * What matches stands in quotes, so a character that JSON must escape is written escaped. Where dialects differ (\w
 * and \s beyond ASCII), only what all take the same way is written. Control characters are written only for sets that
 * name a few of them. */
#include <stdio.h>
#include <string.h>

#include "base/sort.h"
#include "base/utf8.h"
#include "base/work.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"

#define MOST_DEPTH 64
#define MOST_RANGES 256u
#define FEW_CONTROLS 8u
#define LAST_CODE 0x10ffffu

/* A set of code points as ranges in any order. */
typedef struct code_set {
    mica__grammar_range ranges[MOST_RANGES];
    uint32_t count;
    bool ascii; /* nothing beyond ASCII, whatever the ranges say */
} code_set;

typedef struct regex {
    mica__schema_text *text;
    const char *pattern;
    size_t at, length;
    int depth;
    code_set set, named; /* of the atom at hand; here, as groups recurse and they are large */
} regex;

static mica_status put_branches(regex *r, bool top);

static mica_status unsupported(const regex *r, const char *what)
{
    return mica__fail(MICA_ERR_UNSUPPORTED, "with %s at byte %zu is not supported", what, r->at);
}

static int peek(const regex *r)
{
    return r->at < r->length ? (unsigned char)r->pattern[r->at] : -1;
}

static bool take(regex *r, const char *word)
{
    const size_t size = strlen(word);
    if (r->length - r->at < size || memcmp(r->pattern + r->at, word, size) != 0)
        return false;
    r->at += size;
    return true;
}

/* ---- sets ----------------------------------------------------------------------------------------------- */

static mica_status add_range(regex *r, uint32_t low, uint32_t high)
{
    code_set *set = &r->set;
    if (set->count == MOST_RANGES)
        return unsupported(r, "a class of more than 256 ranges");
    set->ranges[set->count].low = low;
    set->ranges[set->count++].high = high;
    return MICA_OK;
}

static int compare_ranges(const void *a, const void *b)
{
    const mica__grammar_range *left = a, *right = b;
    return left->low < right->low ? -1 : left->low > right->low;
}

/* Puts the ranges in order, joined where they touch. */
static mica_status tidy(code_set *set)
{
    uint32_t kept = 0;
    MICA__TRY(mica__sort(set->ranges, set->count, sizeof *set->ranges, compare_ranges));
    for (uint32_t i = 0; i < set->count; i++) {
        mica__grammar_range *last = &set->ranges[kept > 0 ? kept - 1 : 0];
        if (kept > 0 && set->ranges[i].low <= last->high + 1)
            last->high = set->ranges[i].high > last->high ? set->ranges[i].high : last->high;
        else
            set->ranges[kept++] = set->ranges[i];
    }
    set->count = kept;
    return MICA_OK;
}

/* Of a set that is tidy. */
static bool has(const code_set *set, uint32_t code)
{
    for (uint32_t i = 0; i < set->count && set->ranges[i].low <= code; i++)
        if (code <= set->ranges[i].high)
            return true;
    return false;
}

/* Writes [low, high] without what JSON escapes, into a class that is open. */
static bool put_plain_range(mica__schema_text *text, uint32_t low, uint32_t high)
{
    static const mica__grammar_range plain[] = {
        {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0xd7ff}, {0xe000, LAST_CODE}};
    bool some = false;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const uint32_t from = low > plain[i].low ? low : plain[i].low;
        const uint32_t to = high < plain[i].high ? high : plain[i].high;
        if (from > to)
            continue;
        mica__schema_put_code(text, from);
        if (from != to) {
            mica__schema_put(text, "-");
            mica__schema_put_code(text, to);
        }
        some = true;
    }
    return some;
}

static void put_escaped(mica__schema_text *text, uint32_t code)
{
    static const char plain[] = "\"\\\b\f\n\r\t", meant[] = "\"\\bfnrt";
    const char *found = code == 0 ? NULL : strchr(plain, (int)code);
    char escape[8];
    if (found != NULL)
        (void)snprintf(escape, sizeof escape, "\\%c", meant[found - plain]);
    else
        (void)snprintf(escape, sizeof escape, "\\u%04x", code);
    mica__schema_put(text, " | ");
    mica__schema_put_literal(text, escape, strlen(escape));
}

/* One character of the set, or of all others. */
static mica_status put_set(regex *r, bool negated)
{
    mica__schema_text *text = r->text;
    code_set *set = &r->set;
    const uint32_t last = set->ascii ? 0x7f : LAST_CODE;
    uint32_t controls = 0, gap = 0; /* gap: the first code that no range so far has */
    MICA__TRY(mica__spend(64 + (uint64_t)set->count * 16));
    MICA__TRY(tidy(set));
    mica__schema_put(text, "([");
    for (uint32_t i = 0; i <= set->count; i++) {
        const bool end = i == set->count;
        const uint32_t low = negated ? gap : end ? LAST_CODE + 1 : set->ranges[i].low;
        const uint32_t high = !negated ? (end ? 0 : set->ranges[i].high)
                              : end    ? last
                                       : set->ranges[i].low - 1; /* wraps where there is no gap before 0 */
        if (low <= last && (!negated || end || set->ranges[i].low > gap) && low <= high)
            (void)put_plain_range(text, low, high < last ? high : last);
        gap = end ? gap : set->ranges[i].high + 1;
    }
    mica__schema_put(text, "]");
    for (uint32_t code = 0; code < 0x20; code++)
        controls += has(set, code) != negated;
    for (uint32_t code = 0; code <= '\\'; code++)
        if ((code < 0x20 ? controls <= FEW_CONTROLS : code == '"' || code == '\\') &&
            has(set, code) != negated)
            put_escaped(text, code);
    mica__schema_put(text, ")");
    return text->error;
}

/* The set of \d \w \s and their opposites, these within ASCII. false if the letter means none. */
static bool class_escape(int letter, code_set *out)
{
    static const struct {
        char letter;
        uint32_t count;
        mica__grammar_range ranges[4];
    } classes[] = {{'d', 1, {{'0', '9'}}},
                   {'w', 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
                   {'s', 2, {{'\t', '\r'}, {' ', ' '}}},
                   {'D', 2, {{0, '0' - 1}, {'9' + 1, 0x7f}}},
                   {'S', 2, {{0x20 + 1, 0x7f}, {0x0e, 0x1b}}}};
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (classes[i].letter == letter) {
            out->count = classes[i].count;
            memcpy(out->ranges, classes[i].ranges, sizeof classes[i].ranges);
            return true;
        }
    }
    if (letter != 'W')
        return false;
    for (uint32_t code = 0; code < 0x80; code++) {
        const bool word =
            (code >= '0' && code <= '9') || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z') || code == '_';
        if (!word)
            out->ranges[out->count].low = out->ranges[out->count].high = code;
        out->count += !word;
    }
    return true;
}

/* ---- characters ----------------------------------------------------------------------------------------- */

static mica_status read_hex(regex *r, int digits, uint32_t *out_code)
{
    uint32_t code = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        const int c = peek(r), low = c | 0x20;
        if (c >= '0' && c <= '9')
            code = code << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            code = code << 4 | (uint32_t)(low - 'a' + 10);
        else
            return unsupported(r, "what follows \\x or \\u, which is no hexadecimal digit,");
    }
    if (code >= 0xd800 && code <= 0xdfff)
        return unsupported(r, "a surrogate");
    *out_code = code;
    return MICA_OK;
}

/* One character, escaped or not; `special` are those that an escape makes plain beside punctuation. */
static mica_status read_character(regex *r, uint32_t *out_code)
{
    static const char letters[] = "nrtfv", meant[] = "\n\r\t\f\v";
    const size_t size = mica__utf8_length(r->pattern + r->at, r->length - r->at);
    const char *found;
    uint32_t code;
    if (size == 0)
        return unsupported(r, "the end");
    code = (unsigned char)r->pattern[r->at];
    if (size > 1) {
        code &= 0x7fu >> size;
        for (size_t i = 1; i < size; i++)
            code = code << 6 | ((unsigned char)r->pattern[r->at + i] & 0x3f);
    }
    r->at += size;
    *out_code = code;
    if (code != '\\')
        return MICA_OK;
    if (take(r, "x"))
        return read_hex(r, 2, out_code);
    if (take(r, "u"))
        return read_hex(r, 4, out_code);
    found = peek(r) <= 0 ? NULL : strchr(letters, peek(r));
    if (found != NULL)
        *out_code = (unsigned char)meant[found - letters];
    else if (peek(r) > 0 && strchr("^$\\.*+?()[]{}|/-\"'#&~!%,:;<=>@_` ", peek(r)) != NULL)
        *out_code = (uint32_t)peek(r);
    else
        return unsupported(r, "this escape");
    r->at++;
    return MICA_OK;
}

static mica_status put_class(regex *r)
{
    const bool negated = take(r, "^");
    bool first = true;
    r->set.count = 0;
    r->set.ascii = false;
    for (; first || peek(r) != ']'; first = false) {
        uint32_t low = 0, high;
        mica_status status = MICA_OK;
        if (peek(r) == ']') /* [] and [^] mean different things to different people */
            return unsupported(r, "an empty class");
        if (peek(r) < 0)
            return unsupported(r, "a class without an end");
        if (peek(r) == '\\' && r->at + 1 < r->length && class_escape(r->pattern[r->at + 1], &r->named)) {
            r->at += 2;
            r->set.ascii |= negated; /* what \w leaves out beyond ASCII is not agreed on */
            for (uint32_t i = 0; i < r->named.count && status == MICA_OK; i++)
                status = add_range(r, r->named.ranges[i].low, r->named.ranges[i].high);
            if (status != MICA_OK)
                return status;
            continue;
        }
        status = read_character(r, &low);
        high = low;
        if (status == MICA_OK && r->length - r->at >= 2 && peek(r) == '-' && r->pattern[r->at + 1] != ']') {
            r->at++;
            status = read_character(r, &high);
        }
        if (status == MICA_OK && high < low)
            return unsupported(r, "a range that ends before it begins,");
        if (status == MICA_OK)
            status = add_range(r, low, high);
        if (status != MICA_OK)
            return status;
    }
    r->at++;
    return put_set(r, negated);
}

/* ---- structure ------------------------------------------------------------------------------------------ */

static mica_status put_group(regex *r)
{
    mica_status status;
    if (peek(r) == '?' && !take(r, "?:"))
        return unsupported(r, "a group that looks around or has a name,");
    if (++r->depth > MOST_DEPTH)
        return unsupported(r, "a group more than 64 deep");
    mica__schema_put(r->text, "(");
    status = put_branches(r, false);
    mica__schema_put(r->text, ")");
    r->depth--;
    if (status == MICA_OK && !take(r, ")"))
        return unsupported(r, "a group without an end");
    return status;
}

static mica_status put_atom(regex *r)
{
    uint32_t code;
    if (take(r, "("))
        return put_group(r);
    if (take(r, "["))
        return put_class(r);
    r->set.count = 0;
    r->set.ascii = false;
    if (take(r, ".")) { /* no line ends, whichever a dialect knows */
        static const uint32_t ends[] = {'\n', '\r', 0x85, 0x2028, 0x2029};
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            (void)add_range(r, ends[i], ends[i]);
        return put_set(r, true);
    }
    if (peek(r) == '\\' && r->at + 1 < r->length && class_escape(r->pattern[r->at + 1], &r->set)) {
        r->at += 2;
        return put_set(r, false);
    }
    if (strchr("^$*+?{})", peek(r)) != NULL)
        return unsupported(r, peek(r) == '^' || peek(r) == '$' ? "an anchor inside"
                                                               : "a repetition of nothing or a bare bracket");
    MICA__TRY(read_character(r, &code));
    (void)add_range(r, code, code);
    return put_set(r, false);
}

/* *, +, ?, {m}, {m,}, {m,n}; a ? after it changes what is preferred, not what matches. */
static mica_status put_repeat(regex *r)
{
    char bounds[32];
    size_t used = 0;
    if (take(r, "*") || take(r, "+") || take(r, "?")) {
        mica__schema_put(r->text, "%c", r->pattern[r->at - 1]);
    } else if (take(r, "{")) {
        while (used < sizeof bounds - 1 && peek(r) > 0 && strchr("0123456789,", peek(r)) != NULL)
            bounds[used++] = r->pattern[r->at++];
        bounds[used] = '\0';
        if (used == 0 || bounds[0] == ',' || strchr(bounds, ',') != strrchr(bounds, ',') || !take(r, "}"))
            return unsupported(r, "this repetition");
        mica__schema_put(r->text, "{%s}", bounds);
    } else {
        return MICA_OK;
    }
    (void)take(r, "?");
    return peek(r) == '+' || peek(r) == '*' || peek(r) == '{' ? unsupported(r, "a repetition of a repetition")
                                                              : MICA_OK;
}

/* Alternatives up to the end or a bracket. Outside groups each may be anchored at its ends; where it is not, anything
 * may stand there. */
static mica_status put_branches(regex *r, bool top)
{
    do {
        bool open = top && !take(r, "^");
        mica__schema_put(r->text, open ? "char* " : "\"\" ");
        open = top;
        while (peek(r) >= 0 && peek(r) != '|' && peek(r) != ')') {
            mica_status status;
            if (top && peek(r) == '$' && (r->at + 1 == r->length || r->pattern[r->at + 1] == '|')) {
                r->at++;
                open = false;
                break;
            }
            status = put_atom(r);
            if (status == MICA_OK)
                status = put_repeat(r);
            if (status != MICA_OK)
                return status;
            mica__schema_put(r->text, " ");
        }
        if (open)
            mica__schema_put(r->text, "char*");
    } while (take(r, "|") && (mica__schema_put(r->text, " | "), true));
    return MICA_OK;
}

mica_status mica__schema_put_pattern(mica__schema_text *text, const char *pattern, size_t length)
{
    regex r = {.text = text, .pattern = pattern, .length = length};
    mica_status status;
    mica__schema_put(text, "(");
    status = put_branches(&r, true);
    mica__schema_put(text, ")");
    if (status == MICA_OK && r.at != length)
        return unsupported(&r, "a bracket that nothing opens");
    return status != MICA_OK ? status : text->error;
}
