/* status.c: names of the codes and the sentence of each thread. */
#define _POSIX_C_SOURCE 200809L
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SENTENCE_BYTES 512

/* Initial-exec: reading it never calls into the loader, so it works in any thread at any time. */
static _Thread_local char sentence[SENTENCE_BYTES] __attribute__((tls_model("initial-exec")));

typedef struct status_row {
    const char *name, *meaning;
} status_row;

static const status_row rows[] = {
#define STATUS_ROW(code, meaning) {#code, meaning},
    MICA_STATUS_LIST(STATUS_ROW)
#undef STATUS_ROW
};

static const status_row *row_of(mica_status status)
{
    static const status_row unknown = {"unknown status", "a number that is no status"};
    const size_t index = (size_t)status;
    return index < sizeof rows / sizeof rows[0] ? &rows[index] : &unknown;
}

const char *mica_status_name(mica_status status)
{
    return row_of(status)->name;
}

const char *mica__status_meaning(mica_status code)
{
    return row_of(code)->meaning;
}

const char *mica_status_message(void)
{
    return sentence;
}

int mica_status_is_transient(mica_status status)
{
    return status == MICA_ERR_SUBMISSION || status == MICA_ERR_TIMEOUT;
}

/* `text` may be the sentence itself. */
static void set_sentence(const char *text)
{
    const size_t length = strnlen(text, SENTENCE_BYTES - 1);
    memmove(sentence, text, length);
    sentence[length] = '\0';
}

void mica__status_set(mica_status code, const char *text)
{
    set_sentence(text != NULL ? text : mica__status_meaning(code));
}

mica_status mica__fail(mica_status code, const char *format, ...)
{
    char text[SENTENCE_BYTES]; /* the arguments may point into the sentence */
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    mica__status_set(code, written >= 0 ? text : NULL);
    return code;
}
