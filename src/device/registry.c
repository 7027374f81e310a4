/* registry.c - kernels by name, compiled on first use, kept. Thread-safe. */
#include "device/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/thread.h"
#include "device/custom.h"
#include "device/programs.h"

#define KEY_BYTES 512

/* A kernel registered by the user. */
typedef struct named_kernel {
    char *name, *source;
    mica_host_kernel host;
} named_kernel;

/* A kernel that a plan has named, by "file/entry|constants" ("entry" where kernels are built in), and its program, which
 * it may share with other entries of the same file and constants. */
typedef struct planned_kernel {
    char *key;
    mica__program *program; /* NULL: built in */
    mica__kernel *kernel;
} planned_kernel;

struct mica__registry {
    mica_device *device;
    pthread_mutex_t lock;
    mica__fork_guard guard;
    named_kernel *named;
    uint32_t named_count, named_capacity;
    mica_kernel **compiled;
    uint32_t compiled_count, compiled_capacity;
    planned_kernel *planned;
    uint32_t planned_count, planned_capacity;
    const mica__kernel_row *rows;
    uint32_t row_count;
    uint32_t first_row[MICA_OP_COUNT]; /* where to begin looking for an op */
    uint64_t compilations, lookups;
};

static void kernel_destroy(mica_kernel *kernel)
{
    if (kernel->program != NULL)
        kernel->device->table->program_destroy(kernel->device->impl, kernel->program);
    mica__free(kernel->key);
    mica__free(kernel);
}

mica_status mica__registry_create(mica_device *device, mica__registry **out)
{
    mica__registry *registry = mica__calloc(1, sizeof *registry);
    if (registry == NULL || mica__lock_init(&registry->lock, &registry->guard, true) != MICA_OK) {
        mica__free(registry);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for the kernel registry");
    }
    registry->device = device;
    registry->rows = device->backend->rows(&registry->row_count);
    for (uint32_t i = registry->row_count; i-- > 0;)
        registry->first_row[registry->rows[i].op] = i;
    *out = registry;
    return MICA_OK;
}

/* Whether kernels a and b are entries of the same program. */
static bool same_program(const planned_kernel *a, const planned_kernel *b)
{
    return a->program != NULL && a->program == b->program;
}

static void destroy_planned(mica__registry *registry)
{
    for (uint32_t i = 0; i < registry->planned_count; i++) {
        bool first = registry->planned[i].program != NULL;
        for (uint32_t j = 0; j < i && first; j++)
            first = !same_program(&registry->planned[i], &registry->planned[j]);
        mica__free(registry->planned[i].key);
        if (first)
            registry->device->table->program_destroy(registry->device->impl, registry->planned[i].program);
    }
    mica__free(registry->planned);
}

void mica__registry_destroy(mica__registry *registry)
{
    if (registry == NULL)
        return;
    for (uint32_t i = 0; i < registry->compiled_count; i++)
        kernel_destroy(registry->compiled[i]);
    for (uint32_t i = 0; i < registry->named_count; i++) {
        mica__free(registry->named[i].name);
        mica__free(registry->named[i].source);
    }
    destroy_planned(registry);
    mica__free(registry->compiled);
    mica__free(registry->named);
    mica__lock_destroy(&registry->lock, &registry->guard);
    mica__free(registry);
}

/* ---- rows ---- */

static mica_status no_row(mica_device *device, const mica__record *record)
{
    char types[160] = "";
    for (uint32_t i = 0; i < record->operand_count; i++) {
        const mica__operand *o = &record->operand[i];
        if (o->memory != NULL)
            snprintf(types + strlen(types), sizeof types - strlen(types), "%s%s", types[0] ? " " : "",
                     mica_dtype_name((mica_dtype)o->dtype));
    }
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: no kernel of device %s serves the types %s",
                      mica_op_name((mica_op)record->op), device->info.properties.id, types);
}

/* ---- kernels of plans ---- */

/* The program of "file/entry" among those that other entries have, or NULL. Lock held. */
static mica__program *find_program(const mica__registry *registry, const char *name, const char *constants)
{
    const size_t file = strcspn(name, "/") + 1;
    for (uint32_t i = 0; i < registry->planned_count; i++) {
        const char *key = registry->planned[i].key, *bar = strchr(key, '|');
        if (strncmp(key, name, file) == 0 && strcmp(bar != NULL ? bar + 1 : "", constants) == 0)
            return registry->planned[i].program;
    }
    return NULL;
}

/* Finds it or makes it. Lock held. */
static mica_status program_of(mica__registry *registry, const char *name, const char *constants,
                              mica__program **out)
{
    const size_t file = strcspn(name, "/") + 1;
    *out = find_program(registry, name, constants);
    if (*out != NULL)
        return MICA_OK;
    const mica_status status = mica__program_of_file(registry->device, name, file - 1, constants, out);
    registry->compilations += status == MICA_OK;
    MICA__COUNT(registry->device, kernels_compiled, status == MICA_OK);
    return status;
}

/* Whether there is room for one more. Lock held. */
static bool has_room(mica__registry *registry)
{
    if (registry->planned_count == registry->planned_capacity) {
        const uint32_t capacity = registry->planned_capacity * 2 + 32;
        planned_kernel *grown = mica__realloc(registry->planned, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        registry->planned = grown;
        registry->planned_capacity = capacity;
    }
    return true;
}

/* Makes room, gets the kernel, keeps it under its key. Lock held. */
static mica_status add_planned(mica__registry *registry, const mica__plan_dispatch *dispatch, const char *key,
                               mica__kernel **out)
{
    mica_device *device = registry->device;
    const char *slash = strchr(dispatch->kernel, '/');
    planned_kernel fresh = {mica__strdup(key), NULL, NULL};
    if (fresh.key == NULL || !has_room(registry)) {
        mica__free(fresh.key);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", dispatch->kernel);
    }
    mica_status status = MICA_OK;
    if (slash != NULL)
        status = program_of(registry, dispatch->kernel, dispatch->constants, &fresh.program);
    if (status == MICA_OK)
        status = device->table->kernel_get(device->impl, fresh.program,
                                           slash != NULL ? slash + 1 : dispatch->kernel, &fresh.kernel);
    if (status != MICA_OK && fresh.program == NULL) {
        mica__free(fresh.key);
        return status;
    }
    registry->planned[registry->planned_count++] = fresh; /* also to keep a program whose entry is missing */
    *out = fresh.kernel;
    return status;
}

static mica_status find_kernel(mica__registry *registry, mica__plan_dispatch *dispatch)
{
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s%s%s", dispatch->kernel, dispatch->constants[0] != '\0' ? "|" : "",
             dispatch->constants);
    dispatch->found = NULL;
    registry->lookups++;
    for (uint32_t i = 0; i < registry->planned_count && dispatch->found == NULL; i++)
        if (strcmp(registry->planned[i].key, key) == 0)
            dispatch->found = registry->planned[i].kernel;
    return dispatch->found != NULL ? MICA_OK : add_planned(registry, dispatch, key, &dispatch->found);
}

static mica_status find_kernels(mica__registry *registry, mica__plan *plan)
{
    mica_status status = MICA_OK;
    pthread_mutex_lock(&registry->lock);
    for (uint32_t i = 0; i < plan->dispatch_count && status == MICA_OK; i++)
        status = find_kernel(registry, &plan->dispatch[i]);
    pthread_mutex_unlock(&registry->lock);
    return status;
}

static bool serves(const mica__kernel_row *row, const mica__record *record, const mica__device_info *info)
{
    return row->op == record->op && (row->serves == NULL || row->serves(record, info));
}

const mica__kernel_row *mica__registry_row(mica_device *device, const mica__record *record)
{
    const mica__registry *registry = device->registry;
    for (uint32_t i = registry->first_row[record->op]; i < registry->row_count; i++)
        if (serves(&registry->rows[i], record, &device->info))
            return &registry->rows[i];
    return NULL;
}

/* A plan from its beginning; what it has no room for is a refusal too. */
static mica_status plan_with(const mica__kernel_row *row, const mica__record *record,
                             const mica__device_info *info, mica__plan *plan)
{
    plan->dispatch_count = 0;
    plan->params_used = 0;
    plan->status = MICA_OK;
    plan->scratch_bytes = 0;
    const mica_status status = row->plan(record, info, plan);
    return status == MICA_OK ? plan->status : status;
}

/* Plans with the first row that serves the record and, if asked to `find` them, has its kernels. */
static mica_status plan_record(mica_device *device, const mica__record *record, bool find, mica__plan *plan)
{
    mica__registry *registry = device->registry;
    mica_status status = MICA_ERR_KERNEL_NOT_FOUND;
    bool served = false;
    for (uint32_t i = registry->first_row[record->op];
         i < registry->row_count && status == MICA_ERR_KERNEL_NOT_FOUND; i++) {
        const mica__kernel_row *row = &registry->rows[i];
        if (!serves(row, record, &device->info))
            continue;
        served = true;
        status = plan_with(row, record, &device->info, plan);
        if (status == MICA_OK && find)
            status = find_kernels(registry, plan);
    }
    return served ? status : no_row(device, record);
}

mica_status mica__registry_plan(mica_device *device, const mica__record *record, mica__plan *plan)
{
    return plan_record(device, record, true, plan);
}

mica_status mica__registry_check(mica_device *device, const mica__record *record, mica__plan *plan)
{
    return plan_record(device, record, device->info.target == NULL, plan);
}

/* ---- many at once ---- */

#define MOST_WANTED 64u
#define MOST_COMPILERS 16u

/* A program that a plan will ask for: "file/" and constants. */
typedef struct wanted_program {
    char file[48], constants[MICA__CONSTANTS_BYTES];
    mica__program *program; /* NULL: not compiled */
} wanted_program;

struct mica__preparation {
    mica__registry *registry;
    uint32_t count;
    _Atomic uint32_t next; /* to be compiled */
    wanted_program wanted[MOST_WANTED];
    mica__plan plan;
};

mica__preparation *mica__preparation_begin(mica_device *device)
{
    mica__preparation *preparation = mica__alloc(sizeof *preparation);
    if (preparation == NULL)
        return NULL;
    preparation->registry = device->registry;
    preparation->count = 0;
    return preparation;
}

/* Adds the program of a dispatch unless it is there or on the list. */
static void want(mica__preparation *preparation, const mica__plan_dispatch *dispatch)
{
    const size_t file = strcspn(dispatch->kernel, "/") + 1;
    wanted_program *fresh = &preparation->wanted[preparation->count];
    if (strchr(dispatch->kernel, '/') == NULL || file >= sizeof fresh->file ||
        preparation->count == MOST_WANTED)
        return;
    for (uint32_t i = 0; i < preparation->count; i++)
        if (strncmp(preparation->wanted[i].file, dispatch->kernel, file) == 0 &&
            strcmp(preparation->wanted[i].constants, dispatch->constants) == 0)
            return;
    pthread_mutex_lock(&preparation->registry->lock);
    const bool known = find_program(preparation->registry, dispatch->kernel, dispatch->constants) != NULL;
    pthread_mutex_unlock(&preparation->registry->lock);
    if (known)
        return;
    snprintf(fresh->file, sizeof fresh->file, "%.*s", (int)file, dispatch->kernel);
    snprintf(fresh->constants, sizeof fresh->constants, "%s", dispatch->constants);
    fresh->program = NULL;
    preparation->count++;
}

void mica__preparation_add(mica__preparation *preparation, const mica__record *record)
{
    mica_device *device = preparation->registry->device;
    const mica__kernel_row *row = mica__registry_row(device, record);
    mica__plan *plan = &preparation->plan;
    if (row != NULL && plan_with(row, record, &device->info, plan) == MICA_OK)
        for (uint32_t d = 0; d < plan->dispatch_count; d++)
            want(preparation, &plan->dispatch[d]);
}

static void compile_wanted(void *context)
{
    mica__preparation *preparation = context;
    for (uint32_t i; (i = atomic_fetch_add(&preparation->next, 1)) < preparation->count;) {
        wanted_program *w = &preparation->wanted[i];
        if (mica__program_of_file(preparation->registry->device, w->file, strlen(w->file) - 1, w->constants,
                                  &w->program) != MICA_OK)
            w->program = NULL;
    }
}

/* Keeps the programs that came about, each under a key that no entry has. Lock held. */
static void keep_wanted(mica__registry *registry, const mica__preparation *preparation)
{
    for (uint32_t i = 0; i < preparation->count; i++) {
        const wanted_program *w = &preparation->wanted[i];
        char key[KEY_BYTES];
        if (w->program == NULL)
            continue;
        snprintf(key, sizeof key, "%s%s%s", w->file, w->constants[0] != '\0' ? "|" : "", w->constants);
        planned_kernel fresh = {mica__strdup(key), w->program, NULL};
        if (fresh.key != NULL && has_room(registry)) {
            registry->planned[registry->planned_count++] = fresh;
            registry->compilations++;
            MICA__COUNT(registry->device, kernels_compiled, 1);
        } else {
            mica__free(fresh.key);
            registry->device->table->program_destroy(registry->device->impl, w->program);
        }
    }
}

/* The lock is held while compiling: others that come for kernels would compile the same. */
void mica__preparation_end(mica__preparation *preparation)
{
    if (preparation == NULL)
        return;
    mica__thread helper[MOST_COMPILERS];
    const uint32_t cores = mica__thread_cpu_count(), count = preparation->count;
    const uint32_t most = cores < MOST_COMPILERS ? cores : MOST_COMPILERS;
    uint32_t started = 0;
    atomic_init(&preparation->next, 0);
    if (count > 1) { /* one alone is as well compiled when it is asked for */
        pthread_mutex_lock(&preparation->registry->lock);
        while (started + 1 < most && started + 1 < count &&
               mica__thread_start(&helper[started], "mica-compile", compile_wanted, preparation) == MICA_OK)
            started++;
        compile_wanted(preparation);
        for (uint32_t i = 0; i < started; i++)
            mica__thread_join(&helper[i]);
        keep_wanted(preparation->registry, preparation);
        pthread_mutex_unlock(&preparation->registry->lock);
    }
    mica__free(preparation);
}

/* ---- registered kernels ---- */

static named_kernel *find_named(mica__registry *registry, const char *name)
{
    for (uint32_t i = 0; i < registry->named_count; i++)
        if (strcmp(registry->named[i].name, name) == 0)
            return &registry->named[i];
    return NULL;
}

static bool key_names(const char *key, const char *name)
{
    size_t n = strlen(name);
    return strncmp(key, name, n) == 0 && (key[n] == '\0' || key[n] == '|');
}

/* Handles given out keep their kernel; the registry's own references go. Lock held. */
static void forget_compiled(mica__registry *registry, const char *name)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < registry->compiled_count; i++) {
        mica_kernel *kernel = registry->compiled[i];
        if (!key_names(kernel->key, name))
            registry->compiled[kept++] = kernel;
        else if (atomic_fetch_sub(&kernel->references, 1) == 1)
            kernel_destroy(kernel);
    }
    registry->compiled_count = kept;
}

static mica_status set_named(mica__registry *registry, const mica_kernel_desc *desc)
{
    named_kernel *entry = find_named(registry, desc->name);
    char *source = desc->source != NULL ? mica__strdup(desc->source) : NULL;
    char *name = entry == NULL ? mica__strdup(desc->name) : NULL;
    if ((desc->source != NULL && source == NULL) || (entry == NULL && name == NULL))
        goto no_memory;
    if (entry == NULL && registry->named_count == registry->named_capacity) {
        uint32_t capacity = registry->named_capacity * 2 + 8;
        named_kernel *grown = mica__realloc(registry->named, capacity * sizeof *grown);
        if (grown == NULL)
            goto no_memory;
        registry->named = grown;
        registry->named_capacity = capacity;
    }
    if (entry == NULL) {
        entry = &registry->named[registry->named_count++];
        memset(entry, 0, sizeof *entry);
        entry->name = name;
    }
    mica__free(entry->source);
    entry->source = source;
    entry->host = desc->host;
    forget_compiled(registry, desc->name);
    return MICA_OK;
no_memory:
    mica__free(source);
    mica__free(name);
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to register kernel %.60s", desc->name);
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
    pthread_mutex_lock(&device->registry->lock);
    status = set_named(device->registry, desc);
    pthread_mutex_unlock(&device->registry->lock);
    return status;
}

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

/* Compiles and caches. Lock held: a kernel is compiled once however many ask. */
static mica_status compile(mica__registry *registry, const named_kernel *named, const char *key,
                           mica_kernel **out)
{
    mica_device *device = registry->device;
    if (registry->compiled_count == registry->compiled_capacity) {
        uint32_t capacity = registry->compiled_capacity * 2 + 16;
        mica_kernel **grown = mica__realloc(registry->compiled, capacity * sizeof *grown);
        if (grown == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", named->name);
        registry->compiled = grown;
        registry->compiled_capacity = capacity;
    }
    mica_kernel *kernel = mica__calloc(1, sizeof *kernel);
    char *text = mica__strdup(key);
    if (kernel == NULL || text == NULL) {
        mica__free(kernel);
        mica__free(text);
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", named->name);
    }
    kernel->key = text;
    kernel->device = device;
    atomic_init(&kernel->references, 1);
    const mica_kernel_desc desc = {named->name, named->host, named->source};
    const char *constants = strchr(key, '|');
    mica_status status =
        mica__program_of_user(device, &desc, constants != NULL ? constants + 1 : "", &kernel->program);
    if (status == MICA_OK)
        status = device->table->kernel_get(device->impl, kernel->program, named->name, &kernel->kernel);
    if (status == MICA_ERR_KERNEL_NOT_FOUND && kernel->program != NULL && device->info.target != NULL)
        mica__fail(status, "kernel_get: the text of \"%s\" has no entry MK_KERNEL(%s): %s", named->name,
                   named->name, mica_status_message());
    if (status != MICA_OK) {
        kernel_destroy(kernel);
        return status;
    }
    registry->compilations++;
    MICA__COUNT(device, kernels_compiled, 1);
    registry->compiled[registry->compiled_count++] = kernel;
    *out = kernel;
    return MICA_OK;
}

static mica_status get_locked(mica__registry *registry, const char *name, const char *key, mica_kernel **out)
{
    registry->lookups++;
    for (uint32_t i = 0; i < registry->compiled_count; i++) {
        if (strcmp(registry->compiled[i]->key, key) == 0) {
            *out = registry->compiled[i];
            return MICA_OK;
        }
    }
    const named_kernel *named = find_named(registry, name);
    if (named == NULL)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel_get: name \"%.80s\" is not registered", name);
    return compile(registry, named, key, out);
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
    mica_kernel *kernel = NULL;
    pthread_mutex_lock(&device->registry->lock);
    status = get_locked(device->registry, name, key, &kernel);
    if (status == MICA_OK)
        atomic_fetch_add(&kernel->references, 1);
    pthread_mutex_unlock(&device->registry->lock);
    if (status == MICA_OK) {
        mica_device_retain(device); /* each handle keeps the device */
        *out_kernel = kernel;
    }
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
    int found = 0;
    if (device == NULL || name == NULL)
        return 0;
    pthread_mutex_lock(&device->registry->lock);
    for (uint32_t i = 0; i < device->registry->compiled_count && !found; i++)
        found = strcmp(device->registry->compiled[i]->key, name) == 0;
    pthread_mutex_unlock(&device->registry->lock);
    return found;
}

mica_status mica_device_get_registry(const mica_device *device, mica_registry_stats *out)
{
    if (device == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_get_registry: %s is NULL",
                          device == NULL ? "device" : "out");
    mica__registry *registry = device->registry;
    pthread_mutex_lock(&registry->lock);
    out->registered = registry->named_count;
    out->rows = registry->row_count;
    out->cached = registry->compiled_count + registry->planned_count;
    out->compilations = registry->compilations;
    out->lookups = registry->lookups;
    pthread_mutex_unlock(&registry->lock);
    return MICA_OK;
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
