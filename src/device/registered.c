/* registered.c - names, what they stand for, and what was compiled of that. */
#include "device/registered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "device/custom.h"
#include "device/programs.h"
#include "device/registry.h"

#define KEY_BYTES 512

/* One registration of a name. */
typedef struct registration {
    _Atomic uint32_t references; /* the name's, and one of each who compiles it */
    char *name, *source;
    mica_host_kernel host;
    mica__once compiled; /* by key: mica_kernel */
} registration;

/* A name; under the lock, NULL until its first registration is whole. */
typedef struct known_name {
    registration *last;
} known_name;

static void kernel_destroy(mica_kernel *kernel)
{
    if (kernel->program != NULL)
        kernel->device->table->program_destroy(kernel->device->impl, kernel->program);
    mica__free(kernel->key);
    mica__free(kernel);
}

/* ---- registrations ---- */

static void drop_kernel(void *context, void *value)
{
    mica_kernel *kernel = value;
    (void)context;
    if (atomic_fetch_sub(&kernel->references, 1) == 1)
        kernel_destroy(kernel);
}

static void registration_release(registration *r)
{
    if (r == NULL || atomic_fetch_sub(&r->references, 1) != 1)
        return;
    mica__once_free(&r->compiled, drop_kernel, NULL);
    mica__free(r->name);
    mica__free(r->source);
    mica__free(r);
}

static registration *registration_new(const mica_kernel_desc *desc)
{
    registration *r = mica__calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->name = mica__strdup(desc->name);
    r->source = desc->source != NULL ? mica__strdup(desc->source) : NULL;
    r->host = desc->host;
    atomic_init(&r->references, 1);
    if (r->name != NULL && (desc->source == NULL || r->source != NULL) &&
        mica__once_init(&r->compiled) == MICA_OK)
        return r;
    mica__free(r->name);
    mica__free(r->source);
    mica__free(r);
    return NULL;
}

mica_status mica__registered_init(mica__registered *registered)
{
    mica_status status = mica__once_init(&registered->names);
    if (status != MICA_OK)
        return status;
    status = mica__lock_init(&registered->lock, &registered->guard, true);
    if (status != MICA_OK)
        mica__once_free(&registered->names, NULL, NULL);
    return status;
}

static void drop_name(void *context, void *value)
{
    known_name *name = value;
    (void)context;
    registration_release(name->last);
    mica__free(name);
}

void mica__registered_free(mica__registered *registered)
{
    mica__once_free(&registered->names, drop_name, NULL);
    mica__lock_destroy(&registered->lock, &registered->guard);
}

static mica_status make_name(void *context, const char *key, void **out)
{
    (void)context, (void)key;
    *out = mica__calloc(1, sizeof(known_name));
    return *out != NULL ? MICA_OK
                        : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to register kernel %.60s", key);
}

static mica_status set_name(mica__registered *registered, const mica_kernel_desc *desc)
{
    void *value = NULL;
    registration *fresh = registration_new(desc), *old;
    if (fresh == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to register kernel %.60s", desc->name);
    const mica_status status = mica__once_get(&registered->names, desc->name, make_name, NULL, &value);
    if (status != MICA_OK) {
        registration_release(fresh);
        return status;
    }
    known_name *name = value;
    pthread_mutex_lock(&registered->lock);
    old = name->last;
    name->last = fresh;
    pthread_mutex_unlock(&registered->lock);
    registration_release(old);
    return MICA_OK;
}

/* The registration that the first `length` bytes of `name` stand for, counted; NULL: none. */
static registration *find_name(mica__registered *registered, const char *name, size_t length)
{
    char text[KEY_BYTES];
    if (length >= sizeof text)
        return NULL;
    memcpy(text, name, length);
    text[length] = '\0';
    const known_name *known = mica__once_find(&registered->names, text);
    if (known == NULL)
        return NULL;
    pthread_mutex_lock(&registered->lock);
    registration *last = known->last;
    if (last != NULL)
        atomic_fetch_add(&last->references, 1);
    pthread_mutex_unlock(&registered->lock);
    return last;
}

/* A text that a device compiles is in mica's dialect, whatever the device's own language is. */
static mica_status check_text(const mica_kernel_desc *desc)
{
    static const struct {
        const char *mark, *language;
    } foreign[] = {{"__kernel", "OpenCL C"},
                   {"kernel void", "OpenCL C or Metal"},
                   {"__global__", "CUDA"},
                   {".entry", "PTX"}};
    const char *found = "something else";
    if (strstr(desc->source, "MK_KERNEL") != NULL)
        return MICA_OK;
    for (size_t i = sizeof foreign / sizeof *foreign; i-- > 0;)
        if (strstr(desc->source, foreign[i].mark) != NULL)
            found = foreign[i].language;
    return mica__fail(
        MICA_ERR_INVALID_ARGUMENT,
        "kernel_register: desc.source of \"%s\" has no entry MK_KERNEL(%s): expected mica's kernel "
        "dialect (docs/kernels.md), found %s",
        desc->name, desc->name, found);
}

mica_status mica_kernel_register(mica_device *device, const mica_kernel_desc *desc)
{
    if (device == NULL || desc == NULL || desc->name == NULL || desc->name[0] == '\0')
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "kernel_register: %s is NULL or empty",
                          device == NULL ? "device"
                          : desc == NULL ? "desc"
                                         : "desc.name");
    if (strlen(desc->name) > 100 || strchr(desc->name, '|') != NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "kernel_register: desc.name is over 100 bytes or has a '|'");
    bool usable = device->info.threads > 0 ? desc->host != NULL : desc->source != NULL || desc->host != NULL;
    if (!usable)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "kernel_register: desc of %s has nothing that device %s can run", desc->name,
                          device->info.properties.id);
    mica_status status = device->info.target != NULL && desc->source != NULL ? check_text(desc) : MICA_OK;
    if (status != MICA_OK)
        return status;
    return set_name(&device->registry->registered, desc);
}

/* ---- handles ---- */

static int compare_constants(const void *a, const void *b)
{
    return strcmp(((const mica_constant *)a)->name, ((const mica_constant *)b)->name);
}

/* "name|a=1|b=2", names sorted, so that the order given does not matter. */
static mica_status make_key(const char *name, const mica_constant *constants, uint32_t count, char *key)
{
    mica_constant sorted[16] = {{NULL, 0}};
    if (count > 16)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "kernel_get: constant_count is %u, at most 16", count);
    for (uint32_t i = 0; i < count; i++)
        if (constants[i].name == NULL || constants[i].name[0] == '\0' || strlen(constants[i].name) > 40)
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "kernel_get: constants[%u].name is NULL, empty or too long", i);
    if (count > 0)
        memcpy(sorted, constants, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_constants);
    int at = snprintf(key, KEY_BYTES, "%s", name);
    for (uint32_t i = 0; i < count && at < KEY_BYTES; i++)
        at += snprintf(key + at, (size_t)(KEY_BYTES - at), "|%s=%lld", sorted[i].name,
                       (long long)sorted[i].value);
    if (at >= KEY_BYTES)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "kernel_get: constants: the key is too long");
    return MICA_OK;
}

static mica_status make_kernel(mica_device *device, const registration *r, mica_kernel *kernel)
{
    const mica_kernel_desc desc = {r->name, r->host, r->source};
    const char *constants = strchr(kernel->key, '|');
    mica_status status =
        mica__program_of_user(device, &desc, constants != NULL ? constants + 1 : "", &kernel->program);
    if (status == MICA_OK)
        status = device->table->kernel_get(device->impl, kernel->program, r->name, &kernel->kernel);
    if (status == MICA_ERR_KERNEL_NOT_FOUND && kernel->program != NULL && device->info.target != NULL)
        mica__fail(status, "kernel_get: the text of \"%s\" has no entry MK_KERNEL(%s): %s", r->name, r->name,
                   mica_status_message());
    return status;
}

/* What a kernel of a registration is made of. */
typedef struct registered_maker {
    mica_device *device;
    const registration *registration;
} registered_maker;

static mica_status compile(void *context, const char *key, void **out)
{
    const registered_maker *maker = context;
    mica_kernel *kernel = mica__calloc(1, sizeof *kernel);
    char *text = mica__strdup(key);
    if (kernel == NULL || text == NULL) {
        mica__free(kernel);
        mica__free(text);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", key);
    }
    kernel->key = text;
    kernel->device = maker->device;
    atomic_init(&kernel->references, 1);
    const mica_status status = make_kernel(maker->device, maker->registration, kernel);
    if (status != MICA_OK) {
        kernel_destroy(kernel);
        return status;
    }
    mica__registry_count(maker->device->registry);
    *out = kernel;
    return MICA_OK;
}

mica_status mica_kernel_get(mica_device *device, const char *name, const mica_constant *constants,
                            uint32_t constant_count, mica_kernel **out_kernel)
{
    char key[KEY_BYTES];
    if (out_kernel == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "kernel_get: out_kernel is NULL");
    *out_kernel = NULL;
    if (device == NULL || name == NULL || (constants == NULL && constant_count > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "kernel_get: %s is NULL",
                          device == NULL ? "device"
                          : name == NULL ? "name"
                                         : "constants");
    mica_status status = make_key(name, constants, constant_count, key);
    if (status != MICA_OK)
        return status;
    atomic_fetch_add_explicit(&device->registry->lookups, 1, memory_order_relaxed);
    registration *r = find_name(&device->registry->registered, name, strlen(name));
    if (r == NULL)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel_get: name \"%.80s\" is not registered", name);
    registered_maker maker = {device, r};
    void *value = NULL;
    status = mica__once_get(&r->compiled, key, compile, &maker, &value);
    if (status == MICA_OK) {
        *out_kernel = value;
        atomic_fetch_add(&(*out_kernel)->references, 1);
        mica_device_retain(device); /* each handle keeps the device */
    }
    registration_release(r);
    return status;
}

void mica_kernel_release(mica_kernel *kernel)
{
    if (kernel == NULL)
        return;
    mica_device *device = kernel->device;
    if (atomic_fetch_sub(&kernel->references, 1) == 1)
        kernel_destroy(kernel);
    mica_device_release(device);
}

const char *mica_kernel_key(const mica_kernel *kernel)
{
    return kernel == NULL ? "" : kernel->key;
}

int mica_kernel_is_cached(mica_device *device, const char *name)
{
    if (device == NULL || name == NULL)
        return 0;
    registration *r = find_name(&device->registry->registered, name, strcspn(name, "|"));
    const int found = r != NULL && mica__once_find(&r->compiled, name) != NULL;
    registration_release(r);
    return found;
}

static void count_compiled(void *context, void *value)
{
    const known_name *name = value;
    if (name->last != NULL)
        *(uint64_t *)context += mica__once_count(&name->last->compiled);
}

void mica__registered_stats(mica__registered *registered, uint64_t *out_names, uint64_t *out_compiled)
{
    *out_names = mica__once_count(&registered->names);
    *out_compiled = 0;
    pthread_mutex_lock(&registered->lock);
    mica__once_each(&registered->names, count_compiled, out_compiled);
    pthread_mutex_unlock(&registered->lock);
}

/* Records and work keep a kernel without keeping the device, which they stand on anyway. */
void mica__custom_hold(mica__custom *custom)
{
    atomic_fetch_add(&custom->kernel->references, 1);
}

void mica__custom_drop(mica__custom *custom)
{
    if (atomic_fetch_sub(&custom->kernel->references, 1) == 1)
        kernel_destroy(custom->kernel);
}
