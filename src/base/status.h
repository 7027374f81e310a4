/* status.h (base): how a failure gets its sentence. Knows only the public codes. */
#ifndef MICA_BASE_STATUS_H
#define MICA_BASE_STATUS_H

#include "mica/status.h"

#if defined(__GNUC__) || defined(__clang__)
#define MICA__PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#define MICA__COLD \
    __attribute__((cold, noinline)) /* of what only failures call, so that the way to it costs nothing */
#else
#define MICA__PRINTF(format_index, first_index)
#define MICA__COLD
#endif

/* Sets this thread's sentence and returns `code`, so that a check is `return mica__fail(...)`. The arguments
 * may point into the old sentence: `mica__fail(code, "%s: %s", path, mica_status_message())` adds context. */
mica_status mica__fail(mica_status code, const char *format, ...) MICA__PRINTF(2, 3);

/* Leaves the function with the status of a call that failed. */
#define MICA__TRY(call)                  \
    do {                                 \
        const mica_status try_ = (call); \
        if (try_ != MICA_OK)             \
            return try_;                 \
    } while (0)

/* Sets this thread's sentence to `text`, or to the meaning of the code where `text` is NULL. For a failure
 * that happened on another thread or in a fence and is handed on here. */
void mica__status_set(mica_status code, const char *text);

/* The meaning of a code from MICA_STATUS_LIST; lives for ever. */
const char *mica__status_meaning(mica_status code);

#endif
