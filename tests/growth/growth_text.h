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

static inline void growth_add(growth_text *text, const char *bytes, size_t length)
{
    if (text->capacity - text->length <= length) {
        text->capacity = text->capacity * 2 + length + 8192;
        text->data = realloc(text->data, text->capacity);
        assert_non_null(text->data);
    }
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

static inline void growth_put(growth_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void growth_put(growth_text *text, const char *format, ...)
{
    char piece[4096];
    va_list list;
    va_start(list, format);
    const int length = vsnprintf(piece, sizeof piece, format, list);
    va_end(list);
    assert_true(length >= 0 && (size_t)length < sizeof piece);
    growth_add(text, piece, (size_t)length);
}

/* A piece with the number in place of each %llu. Fast, as seconds are looked at too. */
static inline void growth_fill(growth_text *text, const char *piece, uint64_t number)
{
    for (const char *at = piece, *mark; at != NULL; at = mark == NULL ? NULL : mark + 4) {
        char digits[24];
        size_t first = sizeof digits;
        mark = strstr(at, "%llu");
        growth_add(text, at, mark != NULL ? (size_t)(mark - at) : strlen(at));
        for (uint64_t rest = number; mark != NULL && (rest != 0 || first == sizeof digits); rest /= 10)
            digits[--first] = (char)('0' + rest % 10);
        growth_add(text, digits + first, sizeof digits - first);
    }
}

static inline void growth_repeat(growth_text *text, uint64_t times, const char *piece)
{
    for (uint64_t i = 0; i < times; i++)
        growth_fill(text, piece, i);
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
    growth_add(&text, p->before, strlen(p->before));
    for (uint64_t i = 0; i < size; i++) {
        if (i != 0)
            growth_add(&text, p->between, strlen(p->between));
        growth_fill(&text, p->piece, i);
    }
    growth_add(&text, p->after, strlen(p->after));
    return text;
}

static int growth_long; /* sizes of rows that may grow are eight times as large, and seconds are looked at */

/* Checks all rows of a table with one function, which finds the row at hand in *current. */
static inline void growth_all(const growth_pattern *rows, size_t count, const growth_pattern **current,
                              mica_status (*run)(uint64_t size))
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t times = growth_long && rows[i].doublings > 3 ? 8 : 1;
        const growth_row row = {rows[i].name, run, rows[i].first * times, rows[i].doublings};
        *current = &rows[i];
        growth_check(&row, growth_long);
    }
}

#endif
