/* dl.c: dlopen over a list of names. */
#define _POSIX_C_SOURCE 200809L
#include "base/dl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

struct mica__dl {
    void *handle;
    const char *name;
};

/* A driver has threads and memory of its own that outlive what it was opened for: once loaded it stays. */
#ifndef RTLD_NODELETE
#define RTLD_NODELETE 0
#endif

/* Joins the names with ", " into a fixed buffer; what does not fit is cut. */
static void join_names(const char *const *names, char *out_text, size_t capacity)
{
    size_t length = 0;
    out_text[0] = '\0';
    for (size_t i = 0; names[i] != NULL && length < capacity; i++)
        length +=
            (size_t)snprintf(out_text + length, capacity - length, "%s%s", i == 0 ? "" : ", ", names[i]);
}

mica_status mica__dl_open(const char *const *names, mica__dl **out_library)
{
    char looked_for[160], reason[256] = "the list is empty";
    void *handle = NULL;
    size_t i = 0;
    *out_library = NULL;
    for (; names[i] != NULL; i++) {
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle != NULL)
            break;
        const char *why = dlerror();
        if (i == 0) /* the first name is the preferred one, so its failure is the one to tell */
            snprintf(reason, sizeof reason, "%s", why != NULL ? why : "no reason given");
    }
    if (handle == NULL) {
        join_names(names, looked_for, sizeof looked_for);
        return mica__fail(MICA_ERR_UNSUPPORTED, "looked for %s: %s", looked_for, reason);
    }
    mica__dl *library = mica__alloc(sizeof *library);
    if (library == NULL) {
        dlclose(handle);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the handle of library %s", names[i]);
    }
    library->handle = handle;
    library->name = names[i];
    *out_library = library;
    return MICA_OK;
}

void *mica__dl_symbol(const mica__dl *library, const char *name)
{
    return dlsym(library->handle, name);
}

const char *mica__dl_name(const mica__dl *library)
{
    return library->name;
}

void mica__dl_close(mica__dl *library)
{
    if (library == NULL)
        return;
    dlclose(library->handle);
    mica__free(library);
}
