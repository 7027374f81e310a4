/* input.c - reading whole texts. */
#define _POSIX_C_SOURCE 200809L
#include "model/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "terminal/interrupt.h"
#include "terminal/output.h"

int tool_input_append(tool_input *input, const char *text, size_t length)
{
    const size_t wanted = input->length + length + 1, room = wanted + wanted / 2;
    char *grown = wanted > input->room ? realloc(input->text, room) : input->text;
    if (grown == NULL)
        return tool_fail("there is no memory for a text of %zu bytes", input->length + length);
    input->room = wanted > input->room ? room : input->room;
    if (length > 0)
        memcpy(grown + input->length, text, length);
    input->text = grown;
    input->length += length;
    grown[input->length] = '\0';
    return 0;
}

/* All that comes from a descriptor, whose reads may say EAGAIN. A signal ends the wait. */
static int read_all(int descriptor, const char *path, tool_input *out)
{
    size_t room = 1 << 16;
    for (;;) {
        char *grown =
            out->text == NULL || out->length == room ? realloc(out->text, (room += room / 2) + 1) : out->text;
        if (grown == NULL)
            return tool_fail("there is no memory for \"%.200s\"", path);
        out->text = grown;
        if (tool_interrupt_wait(descriptor, -1) < 0)
            return 128 + tool_interrupt_number();
        ssize_t count = read(descriptor, grown + out->length, room - out->length);
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return tool_fail("\"%.200s\" cannot be read: %s", path, strerror(errno));
        if (count == 0)
            break;
        out->length += count > 0 ? (size_t)count : 0;
    }
    out->text[out->length] = '\0';
    return 0;
}

int tool_input_read(const char *path, tool_input *out)
{
    int is_standard = strcmp(path, "-") == 0;
    /* a pipe that nobody writes to yet is waited for where signals are seen */
    int descriptor = is_standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *out = (tool_input){0};
    if (descriptor < 0)
        return tool_fail("\"%.200s\" cannot be opened: %s", path, strerror(errno));
    int result = read_all(descriptor, path, out);
    if (!is_standard)
        close(descriptor);
    if (result != 0)
        tool_input_free(out);
    return result;
}

int tool_input_copy(const char *text, tool_input *out)
{
    *out = (tool_input){0};
    return tool_input_append(out, text, strlen(text));
}

int tool_input_is_piped(void)
{
    struct stat info;
    return fstat(STDIN_FILENO, &info) == 0 &&
           (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode) || S_ISSOCK(info.st_mode));
}

int tool_input_prompt(const tool_call *call, tool_input *out, tool_origin *out_origin)
{
    const char *name = call->command->name, *word = call->argument[0],
               *place = call->command->argument[0].name;
    const char *option = tool_word(call, "prompt"), *path = tool_word(call, "file");
    *out = (tool_input){0};
    *out_origin = TOOL_ORIGIN_NONE;
    if ((word != NULL) + (option != NULL) + (path != NULL) > 1)
        return tool_misuse("%s: %s and %s are both given; one is enough", name,
                           word != NULL ? place : "--prompt",
                           word != NULL && option != NULL ? "--prompt" : "--file");
    if (word != NULL || option != NULL) {
        *out_origin = TOOL_ORIGIN_WORD;
        return tool_input_copy(word != NULL ? word : option, out);
    }
    if (path == NULL && !tool_input_is_piped())
        return 0;
    int result = tool_input_read(path != NULL ? path : "-", out);
    if (result == 0 && (path != NULL || out->length > 0))
        *out_origin = TOOL_ORIGIN_FILE;
    else
        tool_input_free(out);
    return result;
}

int tool_input_missing(const tool_call *call)
{
    return tool_misuse("%s: there is no text: give %s, --prompt, --file, or a text on standard input",
                       call->command->name, call->command->argument[0].name);
}

void tool_input_end_line(tool_input *input)
{
    if (input->length > 0 && input->text[input->length - 1] == '\n')
        input->text[--input->length] = '\0';
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
