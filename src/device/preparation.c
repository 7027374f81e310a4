/* preparation.c - the programs that plans will want, each once, and as many threads as there are cores to get them. */
#include "device/preparation.h"

#include <string.h>

#include "backend/planning.h"
#include "base/alloc.h"
#include "device/programs.h"

struct mica__preparation {
    mica__registry *registry;
    mica__plan plan;
    mica__once seen; /* programs that were looked at: those on the list, and those that are there */
    char **wanted;   /* keys of programs */
    uint32_t count, capacity;
    _Atomic uint32_t next; /* to be compiled */
};

mica__preparation *mica__preparation_begin(mica_device *device, bool reusable)
{
    mica__preparation *preparation = mica__calloc(1, sizeof *preparation);
    if (preparation == NULL || mica__once_init(&preparation->seen) != MICA_OK) {
        mica__free(preparation);
        return NULL;
    }
    preparation->registry = device->registry;
    preparation->plan.reusable = reusable;
    return preparation;
}

/* Puts a program that is not there on the list. */
static mica_status look_at(void *context, const char *key, void **out)
{
    mica__preparation *preparation = context;
    *out = preparation; /* that it was seen is all */
    if (mica__once_find(&preparation->registry->programs, key) != NULL)
        return MICA_OK;
    if (preparation->count == preparation->capacity) {
        const uint32_t capacity = 2 * preparation->capacity + 16;
        char **grown = mica__realloc(preparation->wanted, capacity * sizeof *grown);
        if (grown == NULL)
            return MICA_ERR_OUT_OF_MEMORY;
        preparation->wanted = grown;
        preparation->capacity = capacity;
    }
    char *copy = mica__strdup(key);
    if (copy == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    preparation->wanted[preparation->count++] = copy;
    return MICA_OK;
}

void mica__preparation_add(mica__preparation *preparation, const mica__record *record)
{
    mica_device *device = preparation->registry->device;
    const mica__plan *plan = &preparation->plan;
    if (mica__registry_check(device, record, false, &preparation->plan) != MICA_OK)
        return;
    for (uint32_t d = 0; d < plan->dispatch_count; d++) {
        void *unused;
        char *key = mica__program_key(plan, &plan->dispatch[d]);
        if (key != NULL)
            mica__once_get(&preparation->seen, key, look_at, preparation, &unused);
        mica__free(key);
    }
}

static void compile_wanted(void *context)
{
    mica__preparation *preparation = context;
    mica__program *program;
    for (uint32_t i; (i = atomic_fetch_add(&preparation->next, 1)) < preparation->count;)
        mica__registry_program(preparation->registry, preparation->wanted[i], &program);
}

static void forget(void *context, void *value)
{
    (void)context, (void)value;
}

static void compile_all(mica__preparation *preparation)
{
    const uint32_t cores = mica__thread_cpu_count(), count = preparation->count;
    const uint32_t most = (cores < count ? cores : count) - 1; /* and this one */
    mica__thread *helper = mica__calloc(most, sizeof *helper);
    uint32_t started = 0;
    while (helper != NULL && started < most &&
           mica__thread_start(&helper[started], "mica-compile", compile_wanted, preparation) == MICA_OK)
        started++;
    compile_wanted(preparation);
    for (uint32_t i = 0; i < started; i++)
        mica__thread_join(&helper[i]);
    mica__free(helper);
}

void mica__preparation_end(mica__preparation *preparation)
{
    if (preparation == NULL)
        return;
    if (preparation->count > 1) /* one alone is as well compiled when it is asked for */
        compile_all(preparation);
    for (uint32_t i = 0; i < preparation->count; i++)
        mica__free(preparation->wanted[i]);
    mica__free(preparation->wanted);
    mica__once_free(&preparation->seen, forget, NULL);
    mica__planning_end(&preparation->plan);
    mica__free(preparation);
}
