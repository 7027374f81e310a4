/* opencl_symbols.c - finds the library and its functions; names its codes. */
#include "backend/opencl/opencl_symbols.h"

#include <stdatomic.h>
#include <string.h>

static const char *const library_names[] = {"libOpenCL.so.1", "libOpenCL.so",
                                            "/System/Library/Frameworks/OpenCL.framework/OpenCL", NULL};

/* NULL but in tests. */
static _Atomic(const mica__opencl_symbols *) replacement;

static const char *const symbol_names[] = {
#define OPENCL_STATUS(name, parameters, arguments) #name,
#define OPENCL_OBJECT(type, name, parameters, arguments) #name,
#include "backend/opencl/opencl_symbols.def"
#undef OPENCL_STATUS
#undef OPENCL_OBJECT
};

#define SYMBOL_COUNT (sizeof symbol_names / sizeof symbol_names[0])
_Static_assert(sizeof(mica__opencl_symbols) == SYMBOL_COUNT * sizeof(void *), "a table of plain pointers");

void mica__opencl_symbols_replace(const mica__opencl_symbols *symbols)
{
    atomic_store(&replacement, symbols);
}

mica_status mica__opencl_symbols_load_from(const char *const *names, mica__opencl_symbols *out)
{
    mica__dl *library = NULL;
    mica_status status = mica__dl_open(names, &library);
    memset(out, 0, sizeof *out);
    if (status != MICA_OK)
        return status;
    for (size_t i = 0; i < SYMBOL_COUNT && status == MICA_OK; i++) {
        void *symbol = mica__dl_symbol(library, symbol_names[i]);
        if (symbol == NULL)
            status = mica__fail(MICA_ERR_UNSUPPORTED, "%s has no %s: OpenCL before 1.2",
                                mica__dl_name(library), symbol_names[i]);
        memcpy((unsigned char *)out + i * sizeof symbol, &symbol, sizeof symbol);
    }
    mica__dl_close(library);
    return status;
}

mica_status mica__opencl_symbols_load(mica__opencl_symbols *out)
{
    const mica__opencl_symbols *given = atomic_load(&replacement);
    if (given == NULL)
        return mica__opencl_symbols_load_from(library_names, out);
    *out = *given;
    return MICA_OK;
}

static const struct {
    const char *name;
    cl_int code;
    mica_status status;
} errors[] = {
#define OPENCL_ERROR(name, code, status) {#name, code, status},
#include "backend/opencl/opencl_errors.def"
#undef OPENCL_ERROR
};

#define ERROR_COUNT (sizeof errors / sizeof errors[0])

const char *mica__opencl_error_name(cl_int code)
{
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (errors[i].code == code)
            return errors[i].name;
    return "unknown code";
}

mica_status mica__opencl_error_status(cl_int code)
{
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (errors[i].code == code)
            return errors[i].status;
    return MICA_ERR_SUBMISSION;
}
