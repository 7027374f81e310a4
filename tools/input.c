/* input.c - reading whole texts. */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

int tool_input_append(tool_input *input, const char *text, size_t length)
{
    char *grown = realloc(input->text, input->length + length + 1);
    if (grown == NULL)
        return tool_fail("there is no memory for a text of %zu bytes", input->length + length);
    if (length > 0)
        memcpy(grown + input->length, text, length);
    input->text = grown;
    input->length += length;
    grown[input->length] = '\0';
    return 0;
}

static int read_stream(FILE *stream, const char *path, tool_input *out)
{
    size_t room = 1 << 16, count;
    for (;; room += room / 2) {
        char *grown = realloc(out->text, room + 1);
        if (grown == NULL)
            return tool_fail("there is no memory for \"%.200s\"", path);
        out->text = grown;
        count = fread(grown + out->length, 1, room - out->length, stream);
        out->length += count;
        if (out->length < room)
            break;
    }
    out->text[out->length] = '\0';
    return ferror(stream) ? tool_fail("\"%.200s\" cannot be read: %s", path, strerror(errno)) : 0;
}

int tool_input_read(const char *path, tool_input *out)
{
    int is_standard = strcmp(path, "-") == 0;
    FILE *stream = is_standard ? stdin : fopen(path, "rb");
    *out = (tool_input){0};
    if (stream == NULL)
        return tool_fail("\"%.200s\" cannot be opened: %s", path, strerror(errno));
    int result = read_stream(stream, path, out);
    if (!is_standard)
        fclose(stream);
    if (result != 0)
        tool_input_free(out);
    return result;
}

int tool_input_copy(const char *text, tool_input *out)
{
    *out = (tool_input){0};
    return tool_input_append(out, text, strlen(text));
}

int tool_input_prompt(const tool_call *call, tool_input *out)
{
    const char *text = tool_word(call, "prompt"), *path = tool_word(call, "file");
    *out = (tool_input){0};
    if (text != NULL && path != NULL)
        return tool_misuse("%s: --prompt and --file are both given; one is enough", call->command->name);
    if (text != NULL)
        return tool_input_copy(text, out);
    if (path != NULL)
        return tool_input_read(path, out);
    return tool_misuse("%s: there is no text: give --prompt or --file", call->command->name);
}

void tool_input_free(tool_input *input)
{
    free(input->text);
    *input = (tool_input){0};
}

static int hex_digit(char letter)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = letter != '\0' ? strchr(digits, letter) : NULL;
    return at != NULL ? (int)(at - digits) % 16 : -1;
}

/* How many letters the escape at `from` has, 0 if none begins there, and what it stands for. */
static size_t read_escape(const char *from, char *out)
{
    static const char known[] = "n\nt\tr\r\"\"''\\\\";
    if (from[0] != '\\')
        return 0;
    for (const char *k = known; *k != '\0'; k += 2)
        if (from[1] == *k) {
            *out = k[1];
            return 2;
        }
    if (from[1] != 'x' || hex_digit(from[2]) < 0 || hex_digit(from[3]) < 0)
        return 0;
    *out = (char)(hex_digit(from[2]) * 16 + hex_digit(from[3]));
    return 4;
}

size_t tool_input_unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0';) {
        char letter = *from;
        size_t used = read_escape(from, &letter);
        *to++ = letter;
        from += used > 0 ? used : 1;
    }
    *to = '\0';
    return (size_t)(to - text);
}
