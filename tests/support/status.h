/* status.h - two asserts about statuses, for tests with cmocka. */
#ifndef TEST_SUPPORT_STATUS_H
#define TEST_SUPPORT_STATUS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mica/status.h"

#define must(call) must_at((call), #call, __FILE__, __LINE__)
#define refused(call, code, word) refused_at((call), (code), (word), #call, __FILE__, __LINE__)

static inline void must_at(mica_status status, const char *call, const char *file, int line)
{
    if (status == MICA_OK)
        return;
    print_error("%s gave %s: %s\n", call, mica_status_name(status), mica_status_message());
    _fail(file, line);
}

/* The call fails with this code, and its sentence contains `word` (the argument's name, or what was found). */
static inline void refused_at(mica_status status, mica_status code, const char *word, const char *call,
                              const char *file, int line)
{
    if (status == code && strstr(mica_status_message(), word) != NULL)
        return;
    print_error("%s gave %s (\"%s\"), wanted %s naming \"%s\"\n", call, mica_status_name(status),
                mica_status_message(), mica_status_name(code), word);
    _fail(file, line);
}

#endif
