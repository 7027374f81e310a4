/* schema_simple.c: strings and numbers of a schema as grammar. */
#include <math.h>
#include <string.h>

#include "grammar/schema.h"

#define MOST_LENGTH 1000000000u
#define FAR 10000000000000000 /* 10^16: beyond what is written */

/* ---- strings -------------------------------------------------------------------------------------------- */

/* The tightest of a bound over the items: the highest, or with `lowest` the lowest. *out stays where none has it. */
static mica_status tightest(mica__schema *schema, mica__schema_view view, const char *key, bool lowest,
                            uint64_t *out)
{
    bool some = false;
    for (uint32_t i = 0; i < view.count; i++) {
        const mica__json_node *value = mica__schema_member(schema, view, i, key);
        uint64_t number;
        if (value == NULL)
            continue;
        if (mica__json_as_uint(value, key, 0, MOST_LENGTH, &number) != MICA_OK)
            return mica__schema_refuse(schema, value, MICA_ERR_INVALID_ARGUMENT, key,
                                       "is no whole number up to 10^9");
        if (!some || (lowest ? number < *out : number > *out))
            *out = number;
        some = true;
    }
    return MICA_OK;
}

/* The one value of a keyword that may be given once; NULL if none gives it. */
static mica_status only(mica__schema *schema, mica__schema_view view, const char *key,
                        const mica__json_node **out)
{
    *out = NULL;
    for (uint32_t i = 0; i < view.count; i++) {
        const mica__json_node *value = mica__schema_member(schema, view, i, key);
        if (value == NULL)
            continue;
        if (value->type != MICA__JSON_STRING)
            return mica__schema_refuse(schema, value, MICA_ERR_INVALID_ARGUMENT, key, "is no string");
        if (*out != NULL && strcmp((*out)->string.data, value->string.data) != 0)
            return mica__schema_refuse(schema, value, MICA_ERR_UNSUPPORTED, key,
                                       "is not supported beside another one");
        *out = value;
    }
    return MICA_OK;
}

static mica_status put_pattern(mica__schema *schema, const mica__json_node *pattern)
{
    const mica_status status =
        mica__schema_put_pattern(&schema->text, pattern->string.data, pattern->string.length);
    if (status == MICA_ERR_UNSUPPORTED) {
        char why[200];
        strncpy(why, mica_status_message(), sizeof why - 1);
        why[sizeof why - 1] = '\0';
        return mica__schema_refuse(schema, pattern, MICA_ERR_UNSUPPORTED, "pattern", why);
    }
    return status;
}

mica_status mica__schema_put_string(mica__schema *schema, mica__schema_view view)
{
    const mica__json_node *pattern, *format;
    uint64_t least = 0, most = UINT64_MAX;
    mica_status status = only(schema, view, "pattern", &pattern);
    if (status == MICA_OK)
        status = only(schema, view, "format", &format);
    if (status == MICA_OK)
        status = tightest(schema, view, "minLength", false, &least);
    if (status == MICA_OK)
        status = tightest(schema, view, "maxLength", true, &most);
    if (status != MICA_OK)
        return status;
    if (pattern != NULL && (format != NULL || least != 0 || most != UINT64_MAX))
        return mica__schema_refuse(schema, pattern, MICA_ERR_UNSUPPORTED, "pattern",
                                   "is not supported beside format, minLength or maxLength");
    if (format != NULL && (least != 0 || most != UINT64_MAX))
        return mica__schema_refuse(schema, format, MICA_ERR_UNSUPPORTED, "format",
                                   "is not supported beside minLength or maxLength");
    if (format != NULL && mica__schema_format(format->string.data) == NULL)
        return mica__schema_refuse(schema, format, MICA_ERR_UNSUPPORTED, "format",
                                   "of this name is not supported");
    mica__schema_put(&schema->text, "\"\\\"\" ");
    if (pattern != NULL)
        status = put_pattern(schema, pattern);
    else if (format != NULL)
        mica__schema_put(&schema->text, "%s", mica__schema_format(format->string.data));
    else if (most < least)
        mica__schema_put(&schema->text, "[]");
    else if (most == UINT64_MAX)
        mica__schema_put(&schema->text, "char{%u,}", (unsigned)least);
    else
        mica__schema_put(&schema->text, "char{%u,%u}", (unsigned)least, (unsigned)most);
    mica__schema_put(&schema->text, " \"\\\"\"");
    return status;
}

/* ---- numbers -------------------------------------------------------------------------------------------- */

/* low to high; an end that is open does not belong to it, one at +-FAR is none. */
typedef struct interval {
    int64_t low, high;
    bool low_open, high_open;
} interval;

/* Takes the bound of one keyword in. For integers a bound between two goes to the nearer inside. */
static mica_status narrow(mica__schema *schema, const mica__json_node *value, const char *key, bool whole,
                          interval *range)
{
    const bool upper = strstr(key, "ax") != NULL, open = key[0] == 'e';
    double bound;
    int64_t rounded;
    bool exact;
    if (value->type != MICA__JSON_NUMBER)
        return mica__schema_refuse(schema, value, MICA_ERR_INVALID_ARGUMENT, key, "is no number");
    bound = value->number.real;
    exact = floor(bound) == bound;
    if (!exact && !whole)
        return mica__schema_refuse(schema, value, MICA_ERR_UNSUPPORTED, key,
                                   "with a fraction is not supported for numbers that are no integers");
    if (bound >= FAR || bound <= -FAR) {
        if ((bound > 0) != upper) { /* nothing that is written lies beyond it */
            range->low = 1;
            range->high = 0;
        }
        return MICA_OK;
    }
    rounded = (int64_t)(upper ? floor(bound) : ceil(bound));
    if (upper && (rounded < range->high || (rounded == range->high && open))) {
        range->high_open = open && exact;
        range->high = rounded;
    }
    if (!upper && (rounded > range->low || (rounded == range->low && open))) {
        range->low_open = open && exact;
        range->low = rounded;
    }
    return MICA_OK;
}

static mica_status find_interval(mica__schema *schema, mica__schema_view view, bool whole, interval *out)
{
    static const char *const keys[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    const interval all = {-FAR, FAR, false, false};
    *out = all;
    for (uint32_t i = 0; i < view.count; i++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            const mica__json_node *value = mica__schema_member(schema, view, i, keys[k]);
            const mica_status status = value == NULL ? MICA_OK : narrow(schema, value, keys[k], whole, out);
            if (status != MICA_OK)
                return status;
        }
    }
    return MICA_OK;
}

static void put_whole(mica__schema_text *text, interval range)
{
    int64_t low = range.low + range.low_open, high = range.high - range.high_open;
    mica__schema_put(text, "((");
    mica__schema_put_digits(text, low > 0 ? low : 0, high);
    mica__schema_put(text, ") | \"-\" (");
    mica__schema_put_digits(text, high < 0 ? -high : 1, -low);
    mica__schema_put(text, "))");
}

/* Sizes from low to high, low at least 0, with or without a fraction. */
static void put_sizes(mica__schema_text *text, interval range)
{
    mica__schema_put(text, "(");
    if (range.low_open && range.low < range.high)
        mica__schema_put(text, "\"%lld.\" [0-9]{0,15} [1-9] | ", (long long)range.low);
    mica__schema_put(text, "(");
    mica__schema_put_digits(text, range.low + range.low_open, range.high - 1);
    mica__schema_put(text, ") fraction?");
    if (range.high < FAR && !range.high_open && !(range.low_open && range.low == range.high))
        mica__schema_put(text, " | \"%lld\" (\".\" \"0\"{1,16})?", (long long)range.high);
    mica__schema_put(text, ")");
}

mica_status mica__schema_put_number(mica__schema *schema, mica__schema_view view, bool whole)
{
    interval range, size;
    mica__schema_text *text = &schema->text;
    const mica_status status = find_interval(schema, view, whole, &range);
    if (status != MICA_OK)
        return status;
    if (range.low > range.high) {
        mica__schema_put(text, "[]");
        return MICA_OK;
    }
    if (whole) {
        put_whole(text, range);
        return MICA_OK;
    }
    if (range.low == -FAR && range.high == FAR) {
        mica__schema_put(text, "number");
        return MICA_OK;
    }
    mica__schema_put(text, "([]");
    if (range.high >= 0) {
        size = range;
        if (range.low < 0) {
            size.low = 0;
            size.low_open = false;
        }
        mica__schema_put(text, " | ");
        put_sizes(text, size);
    }
    if (range.low < 0) {
        size.low = range.high < 0 ? -range.high : 0;
        size.low_open = range.high <= 0 && range.high_open;
        size.high = -range.low;
        size.high_open = range.low_open;
        mica__schema_put(text, " | \"-\" ");
        put_sizes(text, size);
    }
    mica__schema_put(text, ")");
    return MICA_OK;
}
