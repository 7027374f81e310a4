/* cuda_driver.c - finds NVIDIA's libraries and their symbols. */
#include "backend/cuda/cuda_driver.h"

#include <stdbool.h>
#include <string.h>

/* The bare name of a driver is a development link, and may be a stub: last. */
static const char *const driver_names[] = {"libcuda.so.1", "libcuda.so", NULL};
static const char *const compiler_names[] = {"libnvrtc.so.13",
                                             "libnvrtc.so.12",
                                             "libnvrtc.so.11.2",
                                             "libnvrtc.so",
                                             "/usr/local/cuda/lib64/libnvrtc.so",
                                             NULL};
static const char *const blas_names[] = {"libcublasLt.so.13",
                                         "libcublasLt.so.12",
                                         "libcublasLt.so.11",
                                         "libcublasLt.so",
                                         "/usr/local/cuda/lib64/libcublasLt.so",
                                         NULL};

typedef struct symbol {
    const char *name;
    size_t place; /* of the pointer in the table */
    bool needed;
} symbol;

static const symbol driver_symbols[] = {
#define CUDA_NEED(name, text, arguments) {text, offsetof(mica__cuda_driver, name), true},
#define CUDA_MAY(name, text, arguments) {text, offsetof(mica__cuda_driver, name), false},
#include "backend/cuda/cuda_symbols.def"
#undef CUDA_NEED
#undef CUDA_MAY
    {NULL, 0, false}};

static const symbol compiler_symbols[] = {
#define NVRTC_NEED(name, text, arguments) {text, offsetof(mica__cuda_compiler, name), true},
#define NVRTC_MAY(name, text, arguments) {text, offsetof(mica__cuda_compiler, name), false},
#include "backend/cuda/cuda_symbols.def"
#undef NVRTC_NEED
#undef NVRTC_MAY
    {NULL, 0, false}};

static const symbol blas_symbols[] = {
#define BLAS_NEED(name, text, arguments) {text, offsetof(mica__cuda_blas, name), true},
#include "backend/cuda/cuda_symbols.def"
#undef BLAS_NEED
    {NULL, 0, false}};

/* `table` begins with its library. */
static mica_status open_table(const char *const *names, const symbol *symbols, void *table, size_t bytes)
{
    mica__dl *library = NULL;
    memset(table, 0, bytes);
    const mica_status status = mica__dl_open(names, &library);
    if (status != MICA_OK)
        return status;
    for (const symbol *s = symbols; s->name != NULL; s++) {
        void *pointer = mica__dl_symbol(library, s->name);
        if (pointer == NULL && s->needed) {
            const mica_status old = mica__fail(MICA_ERR_UNSUPPORTED, "%s has no %s: it is too old",
                                               mica__dl_name(library), s->name);
            mica__dl_close(library);
            memset(table, 0, bytes);
            return old;
        }
        memcpy((char *)table + s->place, &pointer, sizeof pointer);
    }
    memcpy(table, &library, sizeof(mica__dl *));
    return MICA_OK;
}

mica_status mica__cuda_driver_open(mica__cuda_driver *out)
{
    return open_table(driver_names, driver_symbols, out, sizeof *out);
}

mica_status mica__cuda_compiler_open(mica__cuda_compiler *out)
{
    return open_table(compiler_names, compiler_symbols, out, sizeof *out);
}

mica_status mica__cuda_blas_open(mica__cuda_blas *out)
{
    return open_table(blas_names, blas_symbols, out, sizeof *out);
}
