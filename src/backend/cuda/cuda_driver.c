/* cuda_driver.c - finds NVIDIA's libraries and their symbols. */
#include "backend/cuda/cuda_driver.h"

#include <stdbool.h>
#include <stdio.h>
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

/* Every symbol of the library into `table`, which begins with the library. */
static mica_status fill_table(mica__dl *library, const symbol *symbols, void *table)
{
    for (const symbol *s = symbols; s->name != NULL; s++) {
        void *pointer = mica__dl_symbol(library, s->name);
        if (pointer == NULL && s->needed)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s has no %s: it is too old", mica__dl_name(library),
                              s->name);
        memcpy((char *)table + s->place, &pointer, sizeof pointer);
    }
    memcpy(table, &library, sizeof(mica__dl *));
    return MICA_OK;
}

/* Code of a newer major version is nothing that the driver loads. `driver_version` 0: not known, any will do. */
static mica_status check_compiler(const void *table, int driver_version)
{
    const mica__cuda_compiler *compiler = table;
    int major = 0, minor = 0;
    if (driver_version == 0 || compiler->version == NULL || compiler->version(&major, &minor) != 0 ||
        major <= driver_version / 1000)
        return MICA_OK;
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s is version %d.%d, newer than the driver's CUDA %d.%d",
                      mica__dl_name(compiler->library), major, minor, driver_version / 1000,
                      driver_version % 1000 / 10);
}

static mica_status no_check(const void *table, int driver_version)
{
    (void)table;
    (void)driver_version;
    return MICA_OK;
}

/* The first library of the list that does. Where one is there and does not do, that is what to say if no other does. */
static mica_status open_table(const char *const *names, const symbol *symbols, void *table, size_t bytes,
                              mica_status (*check)(const void *table, int driver_version), int driver_version)
{
    char unfit[256] = "";
    for (;;) {
        mica__dl *library = NULL;
        memset(table, 0, bytes);
        mica_status status = mica__dl_open(names, &library);
        if (status != MICA_OK)
            return unfit[0] != '\0' ? mica__fail(status, "%s", unfit) : status;
        status = fill_table(library, symbols, table);
        if (status == MICA_OK)
            status = check(table, driver_version);
        if (status == MICA_OK)
            return MICA_OK;
        if (unfit[0] == '\0')
            snprintf(unfit, sizeof unfit, "%.255s", mica_status_message());
        while (*names++ != mica__dl_name(library))
            ;
        mica__dl_close(library);
    }
}

mica_status mica__cuda_driver_open(mica__cuda_driver *out)
{
    return open_table(driver_names, driver_symbols, out, sizeof *out, no_check, 0);
}

mica_status mica__cuda_compiler_open(int driver_version, mica__cuda_compiler *out)
{
    return open_table(compiler_names, compiler_symbols, out, sizeof *out, check_compiler, driver_version);
}

mica_status mica__cuda_blas_open(mica__cuda_blas *out)
{
    return open_table(blas_names, blas_symbols, out, sizeof *out, no_check, 0);
}
