/* registry.c - which row plans a record, and the kernels of plans, each compiled on first use and kept. */
#include "device/registry.h"

#include <stdio.h>
#include <string.h>

#include "backend/op_table.h"
#include "backend/planning.h"
#include "base/alloc.h"
#include "base/status.h"
#include "device/programs.h"

mica_status mica__registry_create(mica_device *device, mica__registry **out)
{
    mica__registry *registry = mica__calloc(1, sizeof *registry);
    *out = NULL;
    if (registry == NULL || mica__once_init(&registry->programs) != MICA_OK)
        goto no_registry;
    if (mica__once_init(&registry->kernels) != MICA_OK)
        goto no_kernels;
    if (mica__registered_init(&registry->registered) != MICA_OK)
        goto no_names;
    registry->device = device;
    registry->rows = device->backend->kernel_rows(&registry->row_count);
    for (uint32_t i = registry->row_count; i-- > 0;)
        registry->first_row[registry->rows[i].op] = i;
    *out = registry;
    return MICA_OK;
no_names:
    mica__once_free(&registry->kernels, NULL, NULL);
no_kernels:
    mica__once_free(&registry->programs, NULL, NULL);
no_registry:
    mica__free(registry);
    return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for the kernel registry");
}

static void drop_program(void *context, void *program)
{
    mica_device *device = context;
    device->table->program_destroy(device->impl, program);
}

/* Kernels live as long as their programs. */
static void drop_kernel(void *context, void *kernel)
{
    (void)context, (void)kernel;
}

void mica__registry_destroy(mica__registry *registry)
{
    if (registry == NULL)
        return;
    mica__registered_free(&registry->registered);
    mica__once_free(&registry->kernels, drop_kernel, NULL);
    mica__once_free(&registry->programs, drop_program, registry->device);
    mica__free(registry);
}

void mica__registry_count(mica__registry *registry)
{
    atomic_fetch_add_explicit(&registry->compilations, 1, memory_order_relaxed);
    MICA__COUNT(registry->device, kernels_compiled, 1);
}

/* ---- rows ---- */

static mica_status no_row(mica_device *device, const mica__record *record)
{
    char types[160] = "";
    for (uint32_t i = 0; i < record->operand_count; i++) {
        const mica__operand *o = &record->operand[i];
        if (mica__operand_present(o))
            snprintf(types + strlen(types), sizeof types - strlen(types), "%s%s", types[0] ? " " : "",
                     mica_dtype_name((mica_dtype)o->dtype));
    }
    return mica__fail(MICA_ERR_UNSUPPORTED, "%s: no kernel of device %s serves the types %s",
                      mica_op_name((mica_op)record->op), device->info.properties.id, types);
}

/* ---- kernels of plans ---- */

static mica_status make_program(void *context, const char *key, void **out)
{
    mica__registry *registry = context;
    mica__program *program = NULL;
    const mica_status status = mica__program_of_file(registry->device, key, &program);
    if (status == MICA_OK)
        mica__registry_count(registry);
    *out = program;
    return status;
}

mica_status mica__registry_program(mica__registry *registry, const char *key, mica__program **out)
{
    void *program = NULL;
    const mica_status status = mica__once_get(&registry->programs, key, make_program, registry, &program);
    *out = program;
    return status;
}

/* What a kernel of a plan is made of. */
typedef struct dispatch_maker {
    mica__registry *registry;
    const mica__plan *plan;
    const mica__plan_dispatch *dispatch;
} dispatch_maker;

static mica_status make_kernel(void *context, const char *key, void **out)
{
    const dispatch_maker *maker = context;
    mica_device *device = maker->registry->device;
    const char *name = maker->dispatch->kernel, *slash = strchr(name, '/');
    mica__program *program = NULL;
    mica__kernel *kernel = NULL;
    mica_status status = MICA_OK;
    (void)key;
    if (slash != NULL) {
        char *program_key = mica__program_key(maker->plan, maker->dispatch);
        if (program_key == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", name);
        status = mica__registry_program(maker->registry, program_key, &program);
        mica__free(program_key);
    }
    if (status == MICA_OK)
        status = device->table->kernel_get(device->impl, program, slash != NULL ? slash + 1 : name, &kernel);
    *out = kernel;
    return status;
}

static mica_status find_kernel(mica__registry *registry, mica__plan *plan, mica__plan_dispatch *dispatch)
{
    dispatch_maker maker = {registry, plan, dispatch};
    void *found = NULL;
    const char *key = mica__planning_key(plan, dispatch);
    if (key == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for kernel %s", dispatch->kernel);
    atomic_fetch_add_explicit(&registry->lookups, 1, memory_order_relaxed);
    const mica_status status = mica__once_get(&registry->kernels, key, make_kernel, &maker, &found);
    dispatch->found = found;
    return status;
}

static mica_status find_kernels(mica__registry *registry, mica__plan *plan)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < plan->dispatch_count && status == MICA_OK; i++)
        status = find_kernel(registry, plan, &plan->dispatch[i]);
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

mica_status mica__registry_plan_with(const mica__kernel_row *row, const mica__record *record,
                                     const mica__device_info *info, mica__plan *plan)
{
    mica_status status = mica__planning_begin(plan, record);
    if (status == MICA_OK)
        status = row->plan(record, info, plan);
    return status == MICA_OK ? plan->status : status;
}

/* Plans with the first row that serves the record and, if asked to `find` them, has its kernels. */
static mica_status plan_record(mica_device *device, const mica__record *record, bool find, mica__plan *plan)
{
    mica__registry *registry = device->registry;
    mica_status status = MICA_ERR_KERNEL_NOT_FOUND;
    bool served = false;
    if (device->info.target != NULL)
        MICA__TRY(mica__op_is_served(record, (device->info.features & MICA__FEATURE_F64) != 0));
    for (uint32_t i = registry->first_row[record->op];
         i < registry->row_count && status == MICA_ERR_KERNEL_NOT_FOUND; i++) {
        const mica__kernel_row *row = &registry->rows[i];
        if (!serves(row, record, &device->info))
            continue;
        served = true;
        status = mica__registry_plan_with(row, record, &device->info, plan);
        if (status == MICA_OK && find)
            status = find_kernels(registry, plan);
    }
    return served ? status : no_row(device, record);
}

mica_status mica__registry_plan(mica_device *device, const mica__record *record, mica__plan *plan)
{
    return plan_record(device, record, true, plan);
}

mica_status mica__registry_check(mica_device *device, const mica__record *record, bool sure, mica__plan *plan)
{
    const bool compiles = atomic_load_explicit(&device->registry->compiles, memory_order_relaxed);
    return plan_record(device, record, device->info.target == NULL || (sure && !compiles), plan);
}

mica_status mica_device_get_registry(const mica_device *device, mica_registry_stats *out)
{
    if (device == NULL || out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_get_registry: %s is NULL",
                          device == NULL ? "device" : "out");
    mica__registry *registry = device->registry;
    uint64_t names = 0, compiled = 0;
    mica__registered_stats(&registry->registered, &names, &compiled);
    out->registered = names;
    out->rows = registry->row_count;
    out->cached = compiled + mica__once_count(&registry->kernels);
    out->compilations = atomic_load(&registry->compilations);
    out->lookups = atomic_load(&registry->lookups);
    return MICA_OK;
}
