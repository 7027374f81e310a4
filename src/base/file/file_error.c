/* file_error.c: errno as text. Alone in its file because strerror_r has two shapes, and the standard one
 * needs GNU extensions off. */
#undef _GNU_SOURCE
#define _POSIX_C_SOURCE 200809L
#include "base/file/file_error.h"

#include <stdio.h>
#include <string.h>

mica_status mica__file_fail(const char *verb, const char *path, int reason)
{
    char text[128];
    if (strerror_r(reason, text, sizeof text) != 0)
        snprintf(text, sizeof text, "error %d", reason);
    return mica__fail(MICA_ERR_IO, "cannot %s \"%s\": %s", verb, path, text);
}
