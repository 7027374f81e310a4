/* dl.h: shared libraries found at run time. Knows no driver. */
#ifndef MICA_BASE_DL_H
#define MICA_BASE_DL_H

#include "base/status.h"

typedef struct mica__dl mica__dl;

/* Opens the first library of `names` (ends with NULL) that loads. The caller owns *out_library. Fails with
 * MICA_ERR_UNSUPPORTED and a sentence "looked for a, b: why" when none does. */
mica_status mica__dl_open(const char *const *names, mica__dl **out_library);

/* The address of a symbol, NULL when the library has none. */
void *mica__dl_symbol(const mica__dl *library, const char *name);

/* The name under which the library was found; points into the caller's list of mica__dl_open. */
const char *mica__dl_name(const mica__dl *library);

/* Lets go of it; NULL is fine. The library itself stays loaded for the life of the process, and its symbols with it. */
void mica__dl_close(mica__dl *library);

#endif
