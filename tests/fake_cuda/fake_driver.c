/* fake_driver.c - the driver: devices, contexts, memory, streams, events, modules, launches. */
#include "fake_state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Bytes of an allocation that hold a pattern: all but those of workspaces and staging, which are large. */
#define FILLED ((size_t)1 << 16)
/* What is filled and not read: as much as a workspace of cuBLASLt. Pages touched for nobody would be all that a test's time goes to. */
#define UNREAD ((size_t)32 << 20)

typedef struct allocation {
    struct allocation *next;
    unsigned char *bytes;
    size_t size;
    bool pinned;
    int device;
} allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_object *objects;
static allocation *allocations;
static uint32_t live_objects, live_allocations, contexts, calls, fail_at;
static int fail_error;
static bool lost[FAKE_DEVICES];
static uint64_t slow_ns, used[FAKE_DEVICES];
static fake_counts counts;
static char failed[64], complaint[256], options[512];
static _Thread_local int stack[16];
static _Thread_local int depth;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int give_back(void *pointer, bool pinned);

/* ---- steering ---- */

void fake_reset(void)
{
    pthread_mutex_lock(&lock);
    calls = fail_at = 0;
    memset(lost, 0, sizeof lost);
    memset(&counts, 0, sizeof counts);
    slow_ns = 0;
    while (objects != NULL)
        fake_delete(objects);
    while (allocations != NULL)
        give_back(allocations->bytes, allocations->pinned);
    contexts = 0;
    failed[0] = complaint[0] = options[0] = '\0';
    pthread_mutex_unlock(&lock);
}

void fake_fail_call(uint32_t n, int error)
{
    pthread_mutex_lock(&lock);
    fail_at = n == 0 ? 0 : calls + n;
    fail_error = error;
    failed[0] = '\0';
    pthread_mutex_unlock(&lock);
}

#define GETTER(type, name, value)    \
    type name(void)                  \
    {                                \
        pthread_mutex_lock(&lock);   \
        const type result = value;   \
        pthread_mutex_unlock(&lock); \
        return result;               \
    }
GETTER(uint32_t, fake_calls, calls)
GETTER(uint32_t, fake_live, live_objects + live_allocations + contexts)
GETTER(uint32_t, fake_live_memory, live_allocations)
GETTER(fake_counts, fake_get_counts, counts)

const char *fake_failed(void)
{
    return failed;
}

const char *fake_complaint(void)
{
    return complaint;
}

const char *fake_options(void)
{
    return options;
}

void fake_lose(int device)
{
    pthread_mutex_lock(&lock);
    lost[device] = true;
    pthread_mutex_unlock(&lock);
}

void fake_slow(uint64_t ns)
{
    pthread_mutex_lock(&lock);
    slow_ns = ns;
    pthread_mutex_unlock(&lock);
}

void fake_set_options(int count, const char *const *list)
{
    options[0] = '\0';
    for (int i = 0; i < count; i++)
        snprintf(options + strlen(options), sizeof options - strlen(options), "%s ", list[i]);
}

fake_counts *fake_count(void)
{
    return &counts;
}

void fake_complain(const char *format, ...)
{
    va_list arguments;
    if (complaint[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
}

int fake_enter(const char *name)
{
    pthread_mutex_lock(&lock);
    if (++calls == fail_at) {
        snprintf(failed, sizeof failed, "%s", name);
        return fail_error;
    }
    const int device = fake_current();
    return device >= 0 && lost[device] ? FAKE_ILLEGAL_ADDRESS : 0;
}

int fake_leave(int result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- objects ---- */

fake_object *fake_new(fake_kind kind, const char *name)
{
    fake_object *object = calloc(1, sizeof *object);
    object->kind = kind;
    object->device = fake_current();
    object->last_node = &object->nodes;
    snprintf(object->name, sizeof object->name, "%s", name);
    object->next = objects;
    objects = object;
    live_objects += kind != FAKE_FUNCTION; /* goes with its module */
    return object;
}

fake_object *fake_find(const void *handle, fake_kind kind)
{
    for (fake_object *object = objects; object != NULL; object = object->next)
        if (object == handle && object->kind == kind)
            return object;
    fake_complain("a handle %p is no live object of kind %d", handle, (int)kind);
    return NULL;
}

void fake_delete(fake_object *object)
{
    fake_object **link = &objects;
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    live_objects -= object->kind != FAKE_FUNCTION;
    fake_free_nodes(object);
    if (object->kind != FAKE_FUNCTION)
        free(object->text);
    free(object);
}

int fake_current(void)
{
    return depth > 0 ? stack[depth - 1] : -1;
}

/* ---- devices and contexts ---- */

FAKE(cuInit, (unsigned flags))
{
    const int fails = fake_enter("cuInit");
    return fake_leave(fails != 0 ? fails : flags != 0);
}

FAKE(cuDriverGetVersion, (int *out))
{
    const int fails = fake_enter("cuDriverGetVersion");
    *out = 12080;
    return fake_leave(fails);
}

FAKE(cuGetErrorName, (int error, const char **out))
{
    *out = error == FAKE_NO_MEMORY         ? "CUDA_ERROR_OUT_OF_MEMORY"
           : error == FAKE_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                           : "CUDA_ERROR_FAKE";
    return 0;
}

FAKE(cuDeviceGetCount, (int *out))
{
    const int fails = fake_enter("cuDeviceGetCount");
    *out = fails != 0 ? 0 : FAKE_DEVICES;
    return fake_leave(fails);
}

FAKE(cuDeviceGet, (int *out, int index))
{
    const int fails = fake_enter("cuDeviceGet");
    *out = index;
    return fake_leave(fails != 0 ? fails : index < 0 || index >= FAKE_DEVICES);
}

FAKE(cuDeviceGetName, (char *name, int bytes, int device))
{
    const int fails = fake_enter("cuDeviceGetName");
    snprintf(name, (size_t)bytes, "stand-in %d", device);
    return fake_leave(fails);
}

FAKE(cuDeviceTotalMem_v2, (size_t * out, int device))
{
    const int fails = fake_enter("cuDeviceTotalMem");
    (void)device;
    *out = FAKE_MEMORY;
    return fake_leave(fails);
}

FAKE(cuDeviceGetAttribute, (int *out, int attribute, int device))
{
    static const int facts[][2] = {{1, 1024}, {16, 132},    {38, 50 << 20}, {75, 9},
                                   {76, 0},   {97, 232448}, {115, 1}};
    const int fails = fake_enter("cuDeviceGetAttribute");
    (void)device;
    *out = 0;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (facts[i][0] == attribute)
            *out = facts[i][1];
    return fake_leave(fails);
}

/* A context is the number of its device, plus one. */
FAKE(cuDevicePrimaryCtxRetain, (void **out, int device))
{
    const int fails = fake_enter("cuDevicePrimaryCtxRetain");
    if (fails != 0)
        return fake_leave(fails);
    contexts++;
    *out = (void *)(uintptr_t)(device + 1);
    return fake_leave(0);
}

FAKE(cuDevicePrimaryCtxRelease_v2, (int device))
{
    const int fails = fake_enter("cuDevicePrimaryCtxRelease");
    (void)device;
    contexts--;
    return fake_leave(fails);
}

FAKE(cuCtxPushCurrent_v2, (void *context))
{
    const int fails = fake_enter("cuCtxPushCurrent");
    if (fails != 0 && fails != FAKE_ILLEGAL_ADDRESS)
        return fake_leave(fails);
    if (depth == 16)
        return fake_leave(FAKE_INVALID);
    stack[depth++] = (int)(uintptr_t)context - 1;
    return fake_leave(0);
}

FAKE(cuCtxPopCurrent_v2, (void **out))
{
    const int fails = fake_enter("cuCtxPopCurrent");
    (void)fails; /* a context that does not go away would be the caller's for ever */
    if (depth == 0) {
        fake_complain("a context was popped that was never pushed");
        return fake_leave(FAKE_NO_CONTEXT);
    }
    *out = (void *)(uintptr_t)(stack[--depth] + 1);
    return fake_leave(0);
}

/* ---- memory ---- */

bool fake_inside(uint64_t address, uint64_t bytes)
{
    for (const allocation *a = allocations; a != NULL; a = a->next) {
        const uint64_t first = (uint64_t)(uintptr_t)a->bytes;
        if (address >= first && address <= first + a->size && bytes <= first + a->size - address)
            return true;
    }
    return false;
}

static int allocate(size_t bytes, bool pinned, void **out)
{
    const int device = fake_current();
    *out = NULL;
    if (device < 0)
        return FAKE_NO_CONTEXT;
    if (bytes == 0)
        return FAKE_INVALID;
    if (!pinned && (bytes > FAKE_MEMORY || used[device] > FAKE_MEMORY - bytes))
        return FAKE_NO_MEMORY;
    allocation *a = calloc(1, sizeof *a);
    a->bytes = aligned_alloc(256, (bytes + 255) & ~(size_t)255);
    memset(a->bytes, 0xa5, bytes < FILLED ? bytes : FILLED);
    a->size = bytes;
    a->pinned = pinned;
    a->device = device;
    a->next = allocations;
    allocations = a;
    live_allocations++;
    used[device] += pinned ? 0 : bytes;
    *out = a->bytes;
    return 0;
}

static int give_back(void *pointer, bool pinned)
{
    for (allocation **link = &allocations; *link != NULL; link = &(*link)->next) {
        allocation *a = *link;
        if (a->bytes != pointer || a->pinned != pinned)
            continue;
        *link = a->next;
        live_allocations--;
        used[a->device] -= pinned ? 0 : a->size;
        free(a->bytes);
        free(a);
        return 0;
    }
    fake_complain("memory was freed that was not allocated");
    return FAKE_INVALID;
}

FAKE(cuMemGetInfo_v2, (size_t * out_free, size_t *out_total))
{
    const int fails = fake_enter("cuMemGetInfo"), device = fake_current();
    *out_total = FAKE_MEMORY;
    *out_free = device < 0 ? 0 : FAKE_MEMORY - used[device];
    return fake_leave(fails);
}

FAKE(cuMemAlloc_v2, (uint64_t * out, size_t bytes))
{
    const int fails = fake_enter("cuMemAlloc");
    void *pointer = NULL;
    const int result = fails != 0 ? fails : allocate(bytes, false, &pointer);
    *out = (uint64_t)(uintptr_t)pointer;
    return fake_leave(result);
}

FAKE(cuMemFree_v2, (uint64_t address))
{
    const int fails = fake_enter("cuMemFree"), result = give_back((void *)(uintptr_t)address, false);
    return fake_leave(fails != 0 ? fails : result);
}

FAKE(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags))
{
    const int fails = fake_enter("cuMemHostAlloc");
    (void)flags;
    const int result = fails != 0 ? fails : allocate(bytes, true, out);
    return fake_leave(result);
}

FAKE(cuMemHostGetDevicePointer_v2, (uint64_t * out, void *host, unsigned flags))
{
    const int fails = fake_enter("cuMemHostGetDevicePointer");
    (void)flags;
    *out = (uint64_t)(uintptr_t)host;
    return fake_leave(fails);
}

FAKE(cuMemFreeHost, (void *host))
{
    const int fails = fake_enter("cuMemFreeHost"), result = give_back(host, true);
    return fake_leave(fails != 0 ? fails : result);
}

static int move(uint64_t to, uint64_t from, size_t bytes, bool check_to, bool check_from)
{
    if ((check_to && !fake_inside(to, bytes)) || (check_from && !fake_inside(from, bytes))) {
        fake_complain("a copy of %zu bytes leaves its memory", bytes);
        return FAKE_INVALID;
    }
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return 0;
}

FAKE(cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t bytes, void *stream))
{
    int fails = fake_enter("cuMemcpyHtoDAsync");
    if (fails == 0 && fake_find(stream, FAKE_STREAM) == NULL)
        fails = FAKE_INVALID;
    return fake_leave(fails != 0 ? fails : move(to, (uint64_t)(uintptr_t)from, bytes, true, true));
}

FAKE(cuMemcpyDtoHAsync_v2, (void *to, uint64_t from, size_t bytes, void *stream))
{
    int fails = fake_enter("cuMemcpyDtoHAsync");
    if (fails == 0 && fake_find(stream, FAKE_STREAM) == NULL)
        fails = FAKE_INVALID;
    return fake_leave(fails != 0 ? fails : move((uint64_t)(uintptr_t)to, from, bytes, true, true));
}

FAKE(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t bytes, void *stream))
{
    int fails = fake_enter("cuMemcpyDtoDAsync");
    if (fails == 0 && fake_find(stream, FAKE_STREAM) == NULL)
        fails = FAKE_INVALID;
    counts.copies++;
    return fake_leave(fails != 0 ? fails : move(to, from, bytes, true, true));
}

FAKE(cuMemsetD8Async, (uint64_t to, unsigned char byte, size_t bytes, void *stream))
{
    int fails = fake_enter("cuMemsetD8Async");
    if (fails == 0 && (fake_find(stream, FAKE_STREAM) == NULL || !fake_inside(to, bytes)))
        fails = FAKE_INVALID;
    counts.fills++;
    if (fails == 0 && bytes < UNREAD)
        memset((void *)(uintptr_t)to, byte, bytes);
    return fake_leave(fails);
}

#ifndef FAKE_OLD
FAKE(cuMemPoolCreate, (void **out, const void *desc))
{
    const int fails = fake_enter("cuMemPoolCreate");
    const int *facts = desc;
    if (fails == 0 && (facts[0] != 1 || facts[2] != 1 || facts[3] != fake_current()))
        return fake_leave(FAKE_INVALID);
    if (fails == 0)
        *out = fake_new(FAKE_POOL, "pool");
    return fake_leave(fails);
}

FAKE(cuMemPoolDestroy, (void *pool))
{
    const int fails = fake_enter("cuMemPoolDestroy");
    fake_object *object = fake_find(pool, FAKE_POOL);
    if (object != NULL)
        fake_delete(object);
    return fake_leave(fails);
}

FAKE(cuMemPoolSetAttribute, (void *pool, int attribute, void *value))
{
    const int fails = fake_enter("cuMemPoolSetAttribute");
    (void)pool;
    (void)value;
    return fake_leave(fails != 0 ? fails : attribute != 4);
}

FAKE(cuMemPoolTrimTo, (void *pool, size_t keep))
{
    const int fails = fake_enter("cuMemPoolTrimTo");
    (void)pool;
    (void)keep;
    return fake_leave(fails);
}

FAKE(cuMemAllocFromPoolAsync, (uint64_t * out, size_t bytes, void *pool, void *stream))
{
    int result = fake_enter("cuMemAllocFromPoolAsync");
    void *pointer = NULL;
    if (result == 0 && (fake_find(pool, FAKE_POOL) == NULL || fake_find(stream, FAKE_STREAM) == NULL))
        result = FAKE_INVALID;
    if (result == 0)
        result = allocate(bytes, false, &pointer);
    *out = (uint64_t)(uintptr_t)pointer;
    return fake_leave(result);
}

FAKE(cuMemFreeAsync, (uint64_t address, void *stream))
{
    const int fails = fake_enter("cuMemFreeAsync"), result = give_back((void *)(uintptr_t)address, false);
    fake_find(stream, FAKE_STREAM);
    return fake_leave(fails != 0 ? fails : result);
}
#endif

/* ---- streams and events ---- */

FAKE(cuStreamCreate, (void **out, unsigned flags))
{
    const int fails = fake_enter("cuStreamCreate");
    (void)flags;
    if (fails == 0)
        *out = fake_new(FAKE_STREAM, "stream");
    return fake_leave(fails);
}

static int destroy(const char *name, void *handle, fake_kind kind)
{
    const int fails = fake_enter(name);
    fake_object *object = fake_find(handle, kind);
    if (object != NULL)
        fake_delete(object);
    return fake_leave(fails != 0 ? fails : object == NULL);
}

FAKE(cuStreamDestroy_v2, (void *stream))
{
    return destroy("cuStreamDestroy", stream, FAKE_STREAM);
}

FAKE(cuStreamSynchronize, (void *stream))
{
    const int fails = fake_enter("cuStreamSynchronize");
    fake_object *object = fake_find(stream, FAKE_STREAM);
    return fake_leave(fails != 0 ? fails : object == NULL);
}

FAKE(cuStreamWaitEvent, (void *stream, void *event, unsigned flags))
{
    const int fails = fake_enter("cuStreamWaitEvent");
    (void)flags;
    const bool known = fake_find(stream, FAKE_STREAM) != NULL && fake_find(event, FAKE_EVENT) != NULL;
    return fake_leave(fails != 0 ? fails : !known);
}

FAKE(cuEventCreate, (void **out, unsigned flags))
{
    const int fails = fake_enter("cuEventCreate");
    (void)flags;
    if (fails == 0)
        *out = fake_new(FAKE_EVENT, "event");
    return fake_leave(fails);
}

FAKE(cuEventDestroy_v2, (void *event))
{
    return destroy("cuEventDestroy", event, FAKE_EVENT);
}

FAKE(cuEventRecord, (void *event, void *stream))
{
    const int fails = fake_enter("cuEventRecord");
    fake_object *object = fake_find(event, FAKE_EVENT);
    if (fails == 0 && object != NULL && fake_find(stream, FAKE_STREAM) != NULL) {
        object->recorded_ns = now_ns();
        object->ready_ns = object->recorded_ns + slow_ns;
    }
    return fake_leave(fails);
}

FAKE(cuEventQuery, (void *event))
{
    const int fails = fake_enter("cuEventQuery");
    const fake_object *object = fake_find(event, FAKE_EVENT);
    if (fails != 0 || object == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    return fake_leave(now_ns() < object->ready_ns ? FAKE_NOT_READY : 0);
}

FAKE(cuEventSynchronize, (void *event))
{
    const int fails = fake_enter("cuEventSynchronize");
    const fake_object *object = fake_find(event, FAKE_EVENT);
    const uint64_t ready = object == NULL ? 0 : object->ready_ns;
    fake_leave(0);
    while (fails == 0 && now_ns() < ready)
        nanosleep(&(struct timespec){0, 10000}, NULL);
    return fails;
}

FAKE(cuEventElapsedTime, (float *out, void *begin, void *end))
{
    const int fails = fake_enter("cuEventElapsedTime");
    const fake_object *a = fake_find(begin, FAKE_EVENT), *b = fake_find(end, FAKE_EVENT);
    if (fails == 0 && a != NULL && b != NULL)
        *out = (float)((double)(int64_t)(b->recorded_ns - a->recorded_ns) * 1e-6);
    return fake_leave(fails);
}

/* ---- modules ---- */

/* An image is the text that the stand-in of NVRTC gave, or PTX. Text with the word FAKE_REFUSED is refused. */
FAKE(cuModuleLoadDataEx, (void **out, const void *image, unsigned count, const int *option, void **value))
{
    const int fails = fake_enter("cuModuleLoadDataEx");
    if (fails != 0)
        return fake_leave(fails);
    if (strstr(image, "FAKE_REFUSED") != NULL) {
        for (unsigned i = 0; i < count; i++)
            if (option[i] == 5)
                snprintf(value[i], 64, "refused as asked");
        return fake_leave(FAKE_NO_IMAGE);
    }
    fake_object *module = fake_new(FAKE_MODULE, "module");
    module->text = strdup(image);
    counts.loaded++;
    *out = module;
    return fake_leave(0);
}

FAKE(cuModuleUnload, (void *handle))
{
    const int fails = fake_enter("cuModuleUnload");
    fake_object *module = fake_find(handle, FAKE_MODULE);
    for (fake_object *object = objects, *next; module != NULL && object != NULL; object = next) {
        next = object->next;
        if (object->kind == FAKE_FUNCTION && object->parent == module)
            fake_delete(object);
    }
    if (module != NULL)
        fake_delete(module);
    return fake_leave(fails);
}

FAKE(cuModuleGetFunction, (void **out, void *handle, const char *name))
{
    const int fails = fake_enter("cuModuleGetFunction");
    fake_object *module = fake_find(handle, FAKE_MODULE);
    char entry[128];
    snprintf(entry, sizeof entry, "%s", name);
    if (fails != 0 || module == NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    if (strstr(module->text, entry) == NULL)
        return fake_leave(FAKE_NOT_FOUND);
    fake_object *function = fake_new(FAKE_FUNCTION, name);
    function->parent = module;
    function->text = module->text;
    *out = function;
    return fake_leave(0);
}

FAKE(cuFuncGetAttribute, (int *out, int attribute, void *handle))
{
    const int fails = fake_enter("cuFuncGetAttribute");
    fake_find(handle, FAKE_FUNCTION);
    *out = attribute == 0 ? 1024 : attribute == 1 ? 1024 : 0;
    return fake_leave(fails);
}

FAKE(cuFuncSetAttribute, (void *handle, int attribute, int value))
{
    const int fails = fake_enter("cuFuncSetAttribute");
    fake_object *function = fake_find(handle, FAKE_FUNCTION);
    if (fails == 0 && function != NULL && attribute == 8)
        function->dynamic = value <= 232448 - 1024;
    return fake_leave(fails != 0 ? fails : function == NULL || !function->dynamic);
}

#ifndef FAKE_OLD
FAKE(cuFuncGetParamInfo, (void *handle, size_t index, size_t *out_offset, size_t *out_size))
{
    const int fails = fake_enter("cuFuncGetParamInfo");
    const fake_object *function = fake_find(handle, FAKE_FUNCTION);
    uint32_t bindings = 0, params = 0;
    *out_offset = *out_size = 0;
    if (fails != 0 || function == NULL || !fake_signature(function, &bindings, &params))
        return fake_leave(FAKE_INVALID);
    if (index >= bindings + (params != 0))
        return fake_leave(FAKE_INVALID);
    *out_offset = index * 8;
    *out_size = index < bindings ? 8 : params;
    return fake_leave(0);
}
#endif

FAKE(cuLaunchKernel,
     (void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
      unsigned block_z, unsigned shared, void *stream_handle, void **arguments, void **extra))
{
    const int fails = fake_enter("cuLaunchKernel");
    const fake_object *function = fake_find(handle, FAKE_FUNCTION);
    fake_object *stream = fake_find(stream_handle, FAKE_STREAM);
    static fake_node node; /* large; the lock is held */
    if (fails != 0 || function == NULL || stream == NULL || extra != NULL)
        return fake_leave(fails != 0 ? fails : FAKE_INVALID);
    memset(&node, 0, sizeof node);
    node.function = (fake_object *)function;
    memcpy(node.grid, (unsigned[3]){grid_x, grid_y, grid_z}, sizeof node.grid);
    memcpy(node.block, (unsigned[3]){block_x, block_y, block_z}, sizeof node.block);
    fake_take_arguments(function, arguments, &node);
    counts.kernels++;
    if (stream->capture != NULL) {
        fake_capture(stream, &node);
        return fake_leave(0);
    }
    return fake_leave(fake_run(function, node.grid, node.block, shared, node.address, node.params));
}
