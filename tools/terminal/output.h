/*
 * output.h - everything the tool prints: errors, colour, JSON, tables.
 */
#ifndef TOOL_TERMINAL_OUTPUT_H
#define TOOL_TERMINAL_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TOOL_PRINTF(place, first) __attribute__((format(printf, place, first)))
#else
#define TOOL_PRINTF(place, first)
#endif

/* One sentence on stderr after "mica: ". Return the exit status: 1 for a failure, 2 for wrong usage. */
int tool_fail(const char *format, ...) TOOL_PRINTF(1, 2);
int tool_misuse(const char *format, ...) TOOL_PRINTF(1, 2);
/* The sentence of the library's last failure. Where a signal was the reason, nothing is said and the exit status is 128 and
 * its number. */
int tool_fail_status(void);
/* The same with what it is about in front: "--grammar: ...". */
int tool_fail_about(const char *what);
/* One sentence that something is not as it should be; the work goes on. */
void tool_warn(const char *format, ...) TOOL_PRINTF(1, 2);

/* Sends what was printed on its way. 0, or 1 if standard output cannot be written, now or before; the first time with a
 * sentence that says so. */
int tool_output_flush(void);

typedef enum tool_style { TOOL_PLAIN, TOOL_STRONG, TOOL_FAINT, TOOL_GOOD } tool_style;
/* The escape that begins a style on stdout; "" where colour does not belong. TOOL_PLAIN ends it. */
const char *tool_style_begin(tool_style style);

/* JSON on stdout, indented. Keys and commas are the writer's business; `key` is NULL inside a list. */
typedef struct tool_json {
    uint32_t depth;
    int has_items[16];
} tool_json;
void tool_json_open(tool_json *json, const char *key, char bracket);
void tool_json_close(tool_json *json, char bracket);
void tool_json_text(tool_json *json, const char *key, const char *text);
void tool_json_bytes(tool_json *json, const char *key, const char *text, size_t length);
void tool_json_int(tool_json *json, const char *key, int64_t number);
void tool_json_null(tool_json *json, const char *key);
/* Text that is JSON already. */
void tool_json_raw(tool_json *json, const char *key, const char *text, size_t length);
/* All digits that the number has, as a float if `single`. */
void tool_json_exact(tool_json *json, const char *key, double number, int single);
void tool_json_uint(tool_json *json, const char *key, uint64_t number);
void tool_json_real(tool_json *json, const char *key, double number);
void tool_json_bool(tool_json *json, const char *key, int truth);

/* A column of a table. `digits` after the point of a number, TOOL_TEXT for text. */
#define TOOL_TEXT (-1)
typedef struct tool_column {
    const char *key;   /* in JSON */
    const char *title; /* above the column */
    int digits;
    int width; /* at least */
} tool_column;

typedef struct tool_cell {
    const char *text;
    double number;
} tool_cell;

/* One table for people or, as a list of objects under `key`, for programs. Rows are printed as they come. */
void tool_table_head(const tool_column *columns, size_t count);
void tool_table_row(const tool_column *columns, size_t count, const tool_cell *cells);
/* The same in Markdown, text of the first column to the left. */
void tool_markdown_head(const tool_column *columns, size_t count);
void tool_markdown_row(const tool_column *columns, size_t count, const tool_cell *cells);
void tool_table_object(tool_json *json, const tool_column *columns, size_t count, const tool_cell *cells);

/* "1.2 GiB" into `out`. */
#define TOOL_SIZE_BYTES 24
const char *tool_size_text(uint64_t bytes, char out[TOOL_SIZE_BYTES]);

/* Monotonic nanoseconds. */
uint64_t tool_clock_ns(void);

#endif
