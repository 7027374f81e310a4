/*
 * cuda_compiler.c - kernel text to machine code through NVRTC, which is opened when the first text comes.
 *
 * Contraction is off: a fused multiply-add stands where a kernel says so, as on every target. A text may ask for more in
 * lines of its own: "//nvrtc OPTION" passes an option on ("//nvrtc --fmad=true"), "//arch a" compiles for the device's own
 * architecture with what only it has (sm_90a).
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda_device.h"
#include "base/alloc.h"
#include "base/env.h"

#define MAX_OPTIONS 12
#define OPTION_BYTES 64
#define MAX_ARCHS 64

typedef struct options {
    char text[MAX_OPTIONS][OPTION_BYTES];
    const char *list[MAX_OPTIONS];
    int count;
} options;

static void add_option(options *all, const char *text, size_t length)
{
    if (all->count == MAX_OPTIONS)
        return;
    snprintf(all->text[all->count], OPTION_BYTES, "%.*s", (int)length, text);
    all->list[all->count] = all->text[all->count];
    all->count++;
}

/* The rest of the next line of `text` that begins with `word`, and its length; NULL if there is none. */
static const char *find_line(const char *text, const char *word, size_t *out_length)
{
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        if (at != text && at[-1] != '\n')
            continue;
        at += strlen(word);
        *out_length = strcspn(at, "\r\n");
        return at;
    }
    return NULL;
}

/* Opens NVRTC once; a machine without it is asked once. */
static mica_status open_compiler(mica__device *device)
{
    mica_status status = MICA_OK;
    pthread_mutex_lock(&device->library_lock);
    if (device->compiler.library == NULL && device->compiler_missing[0] == '\0') {
        status = mica__env_debug(MICA__DEBUG_NONVRTC)
                     ? mica__fail(MICA_ERR_UNSUPPORTED, "hidden by MICA_DEBUG")
                     : mica__cuda_compiler_open(device->version, &device->compiler);
        if (status == MICA_ERR_UNSUPPORTED)
            snprintf(device->compiler_missing, sizeof device->compiler_missing, "%.255s",
                     mica_status_message());
    } else if (device->compiler.library == NULL) {
        status = mica__fail(MICA_ERR_UNSUPPORTED, "%s", device->compiler_missing);
    }
    pthread_mutex_unlock(&device->library_lock);
    if (status == MICA_ERR_UNSUPPORTED)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "cuda:%u: no compiler (NVRTC): %s", device->index,
                          mica_status_message());
    return status;
}

/* The architecture to compile for: the device's, or the newest that the compiler knows, as PTX. 0: it knows none that
 * the device could run. */
static uint32_t choose_arch(const mica__device *device, bool *out_ptx)
{
    const mica__cuda_compiler *compiler = &device->compiler;
    const uint32_t compute = device->info.compute;
    int count = 0, archs[MAX_ARCHS];
    uint32_t best = 0;
    *out_ptx = compiler->code_bytes == NULL || compiler->code == NULL;
    if (compiler->arch_count == NULL || compiler->archs == NULL || compiler->arch_count(&count) != 0 ||
        count <= 0 || count > MAX_ARCHS || compiler->archs(archs) != 0)
        return compute;
    for (int i = 0; i < count; i++)
        if ((uint32_t)archs[i] <= compute && (uint32_t)archs[i] > best)
            best = (uint32_t)archs[i];
    *out_ptx = *out_ptx || best != compute;
    return best;
}

static void choose_options(const mica__device *device, const char *text, uint32_t arch, bool ptx,
                           options *out)
{
    char line[OPTION_BYTES];
    size_t length = 0;
    const char *own = find_line(text, "//arch ", &length);
    const bool special = own != NULL && length == 1 && own[0] == 'a' && device->info.compute == arch;
    out->count = 0;
    add_option(out, line,
               (size_t)snprintf(line, sizeof line, "--gpu-architecture=%s_%u%s", ptx ? "compute" : "sm", arch,
                                special ? "a" : ""));
    for (const char *at = MICA__CUDA_OPTIONS; *at != '\0'; at += length + (at[length] == ' ')) {
        length = strcspn(at, " ");
        add_option(out, at, length);
    }
    for (const char *at = find_line(text, "//nvrtc ", &length); at != NULL;
         at = find_line(at, "//nvrtc ", &length))
        add_option(out, at, length);
}

/* The compiler's log as the sentence. */
static mica_status refuse(const mica__cuda_compiler *compiler, void *program, const char *name, int result)
{
    size_t bytes = 0;
    char *log = NULL;
    if (compiler->log_bytes(program, &bytes) == 0 && bytes > 1)
        log = mica__calloc(1, bytes + 1);
    if (log != NULL && compiler->log(program, log) != 0)
        log[0] = '\0';
    const mica_status status = mica__fail(MICA_ERR_KERNEL_COMPILATION, "kernel %s: NVRTC error %d: %s", name,
                                          result, log != NULL && log[0] != '\0' ? log : "no log");
    mica__free(log);
    return status;
}

/* Takes the code out of a compiled program, with a NUL behind it. */
static mica_status take_code(const mica__cuda_compiler *compiler, void *program, const char *name, bool ptx,
                             void **out, uint64_t *out_bytes)
{
    size_t bytes = 0;
    int result = ptx ? compiler->ptx_bytes(program, &bytes) : compiler->code_bytes(program, &bytes);
    if (result != 0 || bytes == 0)
        return refuse(compiler, program, name, result);
    char *code = mica__alloc(bytes + 1);
    if (code == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for the code of kernel %s", name);
    code[bytes] = '\0';
    result = ptx ? compiler->ptx(program, code) : compiler->code(program, code);
    if (result != 0) {
        mica__free(code);
        return refuse(compiler, program, name, result);
    }
    *out = code;
    *out_bytes = bytes;
    return MICA_OK;
}

mica_status mica__cuda_compile(mica__device *device, const char *name, const char *text, void **out,
                               uint64_t *out_bytes)
{
    const mica__cuda_compiler *compiler = &device->compiler;
    void *program = NULL;
    bool ptx = false;
    options chosen;
    *out = NULL;
    *out_bytes = 0;
    mica_status status = open_compiler(device);
    if (status != MICA_OK)
        return status;
    const uint32_t arch = choose_arch(device, &ptx);
    if (arch == 0)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel %s: %s knows no architecture up to sm_%u", name,
                          mica__dl_name(compiler->library), device->info.compute);
    choose_options(device, text, arch, ptx, &chosen);
    int result = compiler->create(&program, text, name, 0, NULL, NULL);
    if (result != 0)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "kernel %s: NVRTC error %d before compiling", name, result);
    result = compiler->compile(program, chosen.count, chosen.list);
    status = result == 0 ? take_code(compiler, program, name, ptx, out, out_bytes)
                         : refuse(compiler, program, name, result);
    compiler->destroy(&program);
    return status;
}
