/* output.c - stdout and stderr of the tool. */
#define _POSIX_C_SOURCE 200809L
#include "terminal/output.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "terminal/interrupt.h"
#include "mica/mica.h"
#include "terminal/text.h"

#define SENTENCE_BYTES 2048

/* A sentence may quote a file, so it is text of strangers. */
static void complain(const char *sentence)
{
    fflush(stdout);
    fputs("mica: ", stderr);
    tool_text_print(stderr, sentence, strlen(sentence), TOOL_NO_LIMIT);
    fputc('\n', stderr);
}

int tool_fail(const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    complain(sentence);
    return 1;
}

int tool_misuse(const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    complain(sentence);
    return 2;
}

int tool_fail_about(const char *what)
{
    const char *sentence = mica_status_message();
    if (tool_interrupt_number() != 0)
        return 128 + tool_interrupt_number();
    return tool_fail("%.300s%s%s", what, what[0] != '\0' ? ": " : "",
                     sentence[0] != '\0' ? sentence : "there is no memory left");
}

int tool_fail_status(void)
{
    return tool_fail_about("");
}

void tool_warn(const char *format, ...)
{
    char sentence[SENTENCE_BYTES] = "warning: ";
    const size_t used = strlen(sentence);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence + used, sizeof sentence - used, format, arguments);
    va_end(arguments);
    complain(sentence);
}

int tool_output_flush(void)
{
    static int said;
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    /* A write before this one failed and left nothing to write: one more says why, if that is still so. Not behind a
     * signal: it would wait for the reader that the program was asked not to wait for. */
    if (errno == 0 && tool_interrupt_number() == 0 && fputc('\n', stdout) != EOF)
        fflush(stdout);
    const int reason = errno;
    if (!said && tool_interrupt_number() == 0)
        tool_fail("standard output cannot be written%s%s", reason != 0 ? ": " : "",
                  reason != 0 ? strerror(reason) : "");
    said = 1;
    return 1;
}

const char *tool_style_begin(tool_style style)
{
    static const char *const escapes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[32m"};
    const char *unwanted = getenv("NO_COLOR");
    if (!isatty(STDOUT_FILENO) || (unwanted != NULL && unwanted[0] != '\0'))
        return "";
    return escapes[style];
}

uint64_t tool_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *tool_size_text(uint64_t bytes, char out[TOOL_SIZE_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double size = (double)bytes;
    size_t unit = 0;
    while (size >= 1024 && unit < 4) {
        size /= 1024;
        unit++;
    }
    snprintf(out, TOOL_SIZE_BYTES, unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
    return out;
}

/* ---- JSON ---- */

static void print_code_unit(uint32_t unit)
{
    printf("\\u%04x", (unsigned)unit);
}

/* Valid JSON that is safe on a terminal, whatever the bytes: what is no character becomes U+FFFD. */
static void print_character(const char *text, size_t length, uint32_t code)
{
    if (!tool_text_unsafe(code))
        fwrite(text, 1, length, stdout);
    else if (code == TOOL_NO_CHARACTER)
        print_code_unit(0xfffd);
    else if (code < 0x10000)
        print_code_unit(code);
    else {
        print_code_unit(0xd800 + ((code - 0x10000) >> 10));
        print_code_unit(0xdc00 + ((code - 0x10000) & 0x3ff));
    }
}

static void print_quoted(const char *text, size_t length)
{
    uint32_t code;
    size_t step;
    putchar('"');
    for (; (step = tool_text_next(text, length, &code)) > 0; text += step, length -= step) {
        if (code == '"' || code == '\\')
            putchar('\\');
        print_character(text, step, code);
    }
    putchar('"');
}

static void begin_item(tool_json *json, const char *key)
{
    if (json->depth > 0)
        printf("%s\n%*s", json->has_items[json->depth - 1] ? "," : "", (int)json->depth * 2, "");
    if (json->depth > 0)
        json->has_items[json->depth - 1] = 1;
    if (key != NULL) {
        print_quoted(key, strlen(key));
        fputs(": ", stdout);
    }
}

void tool_json_open(tool_json *json, const char *key, char bracket)
{
    begin_item(json, key);
    putchar(bracket);
    json->has_items[json->depth++] = 0;
}

void tool_json_close(tool_json *json, char bracket)
{
    json->depth--;
    if (json->has_items[json->depth])
        printf("\n%*s", (int)json->depth * 2, "");
    putchar(bracket);
    if (json->depth == 0)
        putchar('\n');
}

void tool_json_text(tool_json *json, const char *key, const char *text)
{
    tool_json_bytes(json, key, text, strlen(text));
}

void tool_json_bytes(tool_json *json, const char *key, const char *text, size_t length)
{
    begin_item(json, key);
    print_quoted(text, length);
}

void tool_json_raw(tool_json *json, const char *key, const char *text, size_t length)
{
    uint32_t code;
    size_t step;
    begin_item(json, key);
    for (; (step = tool_text_next(text, length, &code)) > 0; text += step, length -= step) {
        if (code == '\n' || code == '\r' || code == '\t')
            putchar((int)code); /* between the items */
        else
            print_character(text, step, code);
    }
}

void tool_json_null(tool_json *json, const char *key)
{
    begin_item(json, key);
    fputs("null", stdout);
}

void tool_json_int(tool_json *json, const char *key, int64_t number)
{
    begin_item(json, key);
    printf("%lld", (long long)number);
}

void tool_json_exact(tool_json *json, const char *key, double number, int single)
{
    char text[TOOL_REAL_BYTES];
    begin_item(json, key);
    fputs(isfinite(number) ? tool_real_text(number, single, text) : "null", stdout);
}

void tool_json_uint(tool_json *json, const char *key, uint64_t number)
{
    begin_item(json, key);
    printf("%llu", (unsigned long long)number);
}

void tool_json_real(tool_json *json, const char *key, double number)
{
    begin_item(json, key);
    if (isfinite(number))
        printf("%.6g", number);
    else
        fputs("null", stdout);
}

void tool_json_bool(tool_json *json, const char *key, int truth)
{
    begin_item(json, key);
    fputs(truth ? "true" : "false", stdout);
}

/* ---- tables ---- */

void tool_table_head(const tool_column *columns, size_t count)
{
    fputs(tool_style_begin(TOOL_STRONG), stdout);
    for (size_t i = 0; i < count; i++)
        printf(columns[i].digits == TOOL_TEXT ? "%s%-*s" : "%s%*s", i > 0 ? "  " : "", columns[i].width,
               columns[i].title);
    printf("%s\n", tool_style_begin(TOOL_PLAIN));
}

void tool_table_row(const tool_column *columns, size_t count, const tool_cell *cells)
{
    for (size_t i = 0; i < count; i++) {
        fputs(i > 0 ? "  " : "", stdout);
        if (columns[i].digits == TOOL_TEXT)
            printf("%-*s", i + 1 < count ? columns[i].width : 0, cells[i].text);
        else if (isfinite(cells[i].number))
            printf("%*.*f", columns[i].width, columns[i].digits, cells[i].number);
        else
            printf("%*s", columns[i].width, "-");
    }
    putchar('\n');
    tool_output_flush();
}

void tool_markdown_head(const tool_column *columns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        printf("| %s ", columns[i].title);
    puts("|");
    for (size_t i = 0; i < count; i++)
        fputs(i < 1 ? "| --- " : "| ---: ", stdout);
    puts("|");
}

void tool_markdown_row(const tool_column *columns, size_t count, const tool_cell *cells)
{
    for (size_t i = 0; i < count; i++) {
        if (columns[i].digits == TOOL_TEXT)
            printf("| %s ", cells[i].text);
        else
            printf("| %.*f ", columns[i].digits, cells[i].number);
    }
    puts("|");
    tool_output_flush();
}

void tool_table_object(tool_json *json, const tool_column *columns, size_t count, const tool_cell *cells)
{
    tool_json_open(json, NULL, '{');
    for (size_t i = 0; i < count; i++) {
        if (columns[i].digits == TOOL_TEXT)
            tool_json_text(json, columns[i].key, cells[i].text);
        else
            tool_json_real(json, columns[i].key, cells[i].number);
    }
    tool_json_close(json, '}');
}
