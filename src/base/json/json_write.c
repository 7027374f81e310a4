/* json_write.c: the writer. One buffer that doubles; the first error stays and stops the rest. */
#include "base/json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/utf8.h"

void mica__json_writer_init(mica__json_writer *writer)
{
    memset(writer, 0, sizeof *writer);
}

static void latch(mica__json_writer *writer, mica_status code, const char *text)
{
    if (writer->error == MICA_OK)
        writer->error = mica__fail(code, "JSON writer: %s", text);
}

/* Room for `more` bytes and a NUL. */
static bool reserve(mica__json_writer *writer, size_t more)
{
    size_t needed, capacity;
    if (writer->error != MICA_OK)
        return false;
    if (!mica__add_size(writer->length, more, &needed) || needed > SIZE_MAX / 2 - 1) {
        latch(writer, MICA_ERR_OUT_OF_MEMORY, "the text is larger than the address space");
        return false;
    }
    if (needed < writer->capacity)
        return true;
    for (capacity = writer->capacity == 0 ? 256 : writer->capacity; capacity <= needed; capacity *= 2)
        ;
    char *data = mica__realloc(writer->data, capacity);
    if (data == NULL) {
        latch(writer, MICA_ERR_OUT_OF_MEMORY, "no memory for the text");
        return false;
    }
    writer->data = data;
    writer->capacity = capacity;
    return true;
}

static void put(mica__json_writer *writer, const char *text, size_t length)
{
    if (length == 0 || !reserve(writer, length))
        return;
    memcpy(writer->data + writer->length, text, length);
    writer->length += length;
}

static bool in_object(const mica__json_writer *writer)
{
    return writer->depth > 0 && writer->levels[writer->depth - 1].object;
}

/* The comma before an element or a key, where there is one before it. */
static void put_comma(mica__json_writer *writer)
{
    if (writer->levels[writer->depth - 1].has_items)
        put(writer, ",", 1);
    writer->levels[writer->depth - 1].has_items = true;
}

/* Whether a value may come here; writes the comma before it. */
static bool begin_value(mica__json_writer *writer)
{
    if (writer->error != MICA_OK)
        return false;
    if (writer->depth == 0) {
        if (writer->has_root)
            latch(writer, MICA_ERR_STATE, "a second value after the end of the text");
        writer->has_root = true;
    } else if (in_object(writer)) {
        if (!writer->after_key)
            latch(writer, MICA_ERR_STATE, "a value without a key inside an object");
        writer->after_key = false;
    } else {
        put_comma(writer);
    }
    return writer->error == MICA_OK;
}

static void begin_container(mica__json_writer *writer, bool object)
{
    if (writer->depth == MICA__JSON_WRITER_DEPTH)
        latch(writer, MICA_ERR_BUDGET, "too many containers inside each other");
    if (!begin_value(writer))
        return;
    writer->levels[writer->depth].object = object;
    writer->levels[writer->depth].has_items = false;
    writer->depth++;
    put(writer, object ? "{" : "[", 1);
}

static void end_container(mica__json_writer *writer, bool object)
{
    if (writer->error != MICA_OK)
        return;
    if (writer->depth == 0 || in_object(writer) != object || writer->after_key) {
        latch(writer, MICA_ERR_STATE, "an end that matches no beginning, or a key without a value");
        return;
    }
    writer->depth--;
    put(writer, object ? "}" : "]", 1);
}

void mica__json_begin_object(mica__json_writer *writer)
{
    begin_container(writer, true);
}

void mica__json_end_object(mica__json_writer *writer)
{
    end_container(writer, true);
}

void mica__json_begin_array(mica__json_writer *writer)
{
    begin_container(writer, false);
}

void mica__json_end_array(mica__json_writer *writer)
{
    end_container(writer, false);
}

/* A character that may not stand in a string as it is. */
static void put_escape(mica__json_writer *writer, unsigned char c)
{
    static const char values[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    char text[8];
    const char *found = c != '\0' ? strchr(values, c) : NULL;
    const int length = found != NULL ? snprintf(text, sizeof text, "\\%c", names[found - values])
                                     : snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    put(writer, text, (size_t)length);
}

static void put_quoted(mica__json_writer *writer, const char *text, size_t length)
{
    size_t from = 0, at = 0; /* text[from..at) waits to be copied */
    put(writer, "\"", 1);
    while (at < length && writer->error == MICA_OK) {
        const unsigned char c = (unsigned char)text[at];
        if (c < 0x20 || c == '"' || c == '\\') {
            put(writer, text + from, at - from);
            put_escape(writer, c);
            from = ++at;
            continue;
        }
        const size_t bytes = mica__utf8_length(text + at, length - at);
        if (bytes == 0)
            latch(writer, MICA_ERR_INVALID_ARGUMENT, "a key or string is not UTF-8");
        at += bytes;
    }
    put(writer, text + from, at - from);
    put(writer, "\"", 1);
}

void mica__json_key_n(mica__json_writer *writer, const char *key, size_t length)
{
    if (writer->error != MICA_OK)
        return;
    if (!in_object(writer) || writer->after_key) {
        latch(writer, MICA_ERR_STATE, "a key outside an object or after another key");
        return;
    }
    put_comma(writer);
    put_quoted(writer, key, length);
    put(writer, ":", 1);
    writer->after_key = true;
}

void mica__json_key(mica__json_writer *writer, const char *key)
{
    mica__json_key_n(writer, key, strlen(key));
}

void mica__json_string_n(mica__json_writer *writer, const char *text, size_t length)
{
    if (begin_value(writer))
        put_quoted(writer, text, length);
}

void mica__json_string(mica__json_writer *writer, const char *text)
{
    mica__json_string_n(writer, text, strlen(text));
}

static void put_value(mica__json_writer *writer, const char *text)
{
    if (begin_value(writer))
        put(writer, text, strlen(text));
}

void mica__json_int(mica__json_writer *writer, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    put_value(writer, text);
}

void mica__json_uint(mica__json_writer *writer, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    put_value(writer, text);
}

/* The locale's decimal point, of whatever bytes, becomes the point of JSON. */
static void set_point(char *text)
{
    char *out = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (strchr("0123456789+-e", *at) != NULL)
            *out++ = *at;
        else if (out == text || out[-1] != '.')
            *out++ = '.';
    }
    *out = '\0';
}

/* With as few digits as read back to it. */
static void print_double(double value, char *text, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (digits == 17 || strtod(text, NULL) == value)
            break;
    }
    set_point(text);
}

void mica__json_double(mica__json_writer *writer, double value)
{
    char text[48] = "null";
    if (isfinite(value))
        print_double(value, text, sizeof text);
    put_value(writer, text);
}

void mica__json_real(mica__json_writer *writer, double value)
{
    char text[48] = "null";
    if (isfinite(value)) {
        print_double(value, text, sizeof text - 2);
        if (strpbrk(text, ".e") == NULL)
            memcpy(text + strlen(text), ".0", 3);
    }
    put_value(writer, text);
}

void mica__json_bool(mica__json_writer *writer, bool value)
{
    put_value(writer, value ? "true" : "false");
}

void mica__json_null(mica__json_writer *writer)
{
    put_value(writer, "null");
}

mica_status mica__json_writer_finish(mica__json_writer *writer, char **out_text, size_t *out_length)
{
    *out_text = NULL;
    *out_length = 0;
    if (writer->depth != 0 || !writer->has_root)
        latch(writer, MICA_ERR_STATE, "the text ends inside a container or before its first value");
    const mica_status status = writer->error;
    if (status != MICA_OK) {
        mica__json_writer_discard(writer);
        return status;
    }
    writer->data[writer->length] = '\0';
    *out_text = writer->data;
    *out_length = writer->length;
    mica__json_writer_init(writer);
    return MICA_OK;
}

void mica__json_writer_discard(mica__json_writer *writer)
{
    mica__free(writer->data);
    mica__json_writer_init(writer);
}
