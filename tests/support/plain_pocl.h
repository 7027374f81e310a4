/* plain_pocl.h - OpenCL through PoCL without its optimiser, which takes more than half of the time of a run that compiles. What it makes
 * of the same texts is run by the tests of models, of the tool and of stress, which must not find these programs in their cache; and all
 * of it here when the variable is set to nothing. */
#ifndef PLAIN_POCL_H
#define PLAIN_POCL_H

#include <stdio.h>
#include <stdlib.h>

static void leave_pocl_plain(void)
{
    const char *cache = getenv("MICA_CACHE_DIR");
    char plain[4096];
    if (getenv("POCL_EXTRA_BUILD_FLAGS") != NULL)
        return;
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 1);
    if (cache != NULL && snprintf(plain, sizeof plain, "%s/plain", cache) < (int)sizeof plain)
        setenv("MICA_CACHE_DIR", plain, 1);
}

#endif
