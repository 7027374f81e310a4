/* growth_text.h - texts of a size for growth tests: a row writes one, and the stage that it names reads it. */
#ifndef TEST_GROWTH_GROWTH_TEXT_H
#define TEST_GROWTH_GROWTH_TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/growth.h"

typedef struct growth_text {
    char *data; /* a NUL follows */
    size_t length, capacity;
} growth_text;

static inline void growth_put(growth_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void growth_put(growth_text *text, const char *format, ...)
{
    va_list list;
    if (text->capacity - text->length < 4096) {
        text->capacity = text->capacity * 2 + 8192;
        text->data = realloc(text->data, text->capacity);
        assert_non_null(text->data);
    }
    va_start(list, format);
    text->length += (size_t)vsnprintf(text->data + text->length, 4096, format, list);
    va_end(list);
}

/* The same piece again and again; a %llu in it is the number of the time. */
static inline void growth_repeat(growth_text *text, uint64_t times, const char *piece)
{
    const char *number = strstr(piece, "%llu");
    for (uint64_t i = 0; i < times; i++) {
        if (number == NULL)
            growth_put(text, "%s", piece);
        else
            growth_put(text, "%.*s%llu%s", (int)(number - piece), piece, (unsigned long long)i, number + 4);
    }
}

/* before, the piece so many times with `between` between, after. */
typedef struct growth_pattern {
    const char *name;
    uint64_t first;
    uint32_t doublings;
    const char *before, *piece, *between, *after;
} growth_pattern;

static inline growth_text growth_write(const growth_pattern *p, uint64_t size)
{
    growth_text text = {0};
    growth_put(&text, "%s", p->before);
    for (uint64_t i = 0; i < size; i++) {
        const char *at = p->piece, *number;
        if (i != 0)
            growth_put(&text, "%s", p->between);
        for (; (number = strstr(at, "%llu")) != NULL; at = number + 4)
            growth_put(&text, "%.*s%llu", (int)(number - at), at, (unsigned long long)i);
        growth_put(&text, "%s", at);
    }
    growth_put(&text, "%s", p->after);
    return text;
}

static int growth_long; /* sizes eight times as large, and seconds are looked at */

/* Checks all rows of a table with one function, which finds the row at hand in *current. */
static inline void growth_all(const growth_pattern *rows, size_t count, const growth_pattern **current,
                              mica_status (*run)(uint64_t size))
{
    for (size_t i = 0; i < count; i++) {
        const growth_row row = {rows[i].name, run, rows[i].first,
                                rows[i].doublings + (growth_long && rows[i].doublings > 2 ? 3u : 0u)};
        *current = &rows[i];
        growth_check(&row, growth_long);
    }
}

#endif
