/* text.c - UTF-8 of strangers, and numbers as text. */
#include "terminal/text.h"

#include <stdlib.h>
#include <string.h>

/* Lead byte -> bytes of the sequence and the smallest code that needs that many. */
static size_t sequence_length(unsigned char lead, uint32_t *out_least)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = lead < 0x80 ? 1 : (lead & 0xe0) == 0xc0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : 4;
    if (lead >= 0x80 && (lead < 0xc0 || lead >= 0xf8))
        return 0;
    *out_least = least[length];
    return length;
}

size_t tool_text_next(const char *text, size_t length, uint32_t *out_code)
{
    static const unsigned char lead_bits[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t least = 0;
    *out_code = TOOL_NO_CHARACTER;
    if (length == 0)
        return 0;
    size_t count = sequence_length((unsigned char)text[0], &least);
    if (count == 0 || count > length)
        return 1;
    uint32_t code = (unsigned char)text[0] & lead_bits[count];
    for (size_t i = 1; i < count; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 1;
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 1;
    *out_code = code;
    return count;
}

int tool_text_unsafe(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},     {0x61c, 0x61c},
        {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f}, {0xfeff, 0xfeff},
        {0xfff9, 0xfffb}, {0xe0000, 0xe007f}, {0x110000, ~0u},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return 1;
    return 0;
}

static size_t print_escape(FILE *stream, unsigned char byte, uint32_t code)
{
    static const char names[] = "\nn\tt\rr";
    const char *name = code != 0 && code < 0x20 ? strchr(names, (int)code) : NULL;
    if (name != NULL)
        return (size_t)fprintf(stream, "\\%c", name[1]);
    if (code == TOOL_NO_CHARACTER || code < 0x80)
        return (size_t)fprintf(stream, "\\x%02x", byte);
    return (size_t)fprintf(stream, "\\u{%x}", (unsigned)code);
}

size_t tool_text_print(FILE *stream, const char *text, size_t length, size_t limit)
{
    size_t columns = 0, step;
    uint32_t code;
    for (; (step = tool_text_next(text, length, &code)) > 0; text += step, length -= step) {
        if (limit-- == 0)
            return columns + (size_t)fprintf(stream, "...");
        if (tool_text_unsafe(code)) {
            columns += print_escape(stream, (unsigned char)text[0], code);
        } else {
            fwrite(text, 1, step, stream);
            columns++;
        }
    }
    return columns;
}

void tool_text_show(FILE *stream, const char *text, size_t length, int is_terminal)
{
    size_t step;
    uint32_t code;
    if (!is_terminal) {
        fwrite(text, 1, length, stream);
        return;
    }
    for (; (step = tool_text_next(text, length, &code)) > 0; text += step, length -= step) {
        if (code == TOOL_NO_CHARACTER || (code < 0x20 && code != '\n' && code != '\t') ||
            (code >= 0x7f && code < 0xa0))
            print_escape(stream, (unsigned char)text[0], code);
        else
            fwrite(text, 1, step, stream);
    }
}

void tool_text_pad(FILE *stream, const char *text, size_t width)
{
    size_t columns = tool_text_print(stream, text, strlen(text), TOOL_NO_LIMIT);
    if (columns < width)
        fprintf(stream, "%*s", (int)(width - columns), "");
}

const char *tool_count_text(uint64_t number, char out[TOOL_COUNT_BYTES])
{
    char digits[24];
    size_t length = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)number), used = 0;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}

const char *tool_real_text(double number, int single, char out[TOOL_REAL_BYTES])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, TOOL_REAL_BYTES, "%.*g", digits, number);
        if (single ? strtof(out, NULL) == (float)number : strtod(out, NULL) == number)
            break;
    }
    return out;
}
