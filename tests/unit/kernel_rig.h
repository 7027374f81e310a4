/* kernel_rig.h: runs the plan of one record on one instruction set without a device: operands are host memory, units
 * are claimed in pieces of any size, each piece with per-thread memory of its own, poisoned before. */
#ifndef MICA_TESTS_KERNEL_RIG_H
#define MICA_TESTS_KERNEL_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_plan.h"
#include "backend/planning.h"
#include "mica/status.h"

#define RIG_ISAS 3
static const char *const rig_isa_name[RIG_ISAS] = {"portable", "avx2", "avx512"};

typedef mica_status (*rig_plan)(const mica__record *, const mica__device_info *, mica__plan *);

/* The kernels of that name, NULL where this machine cannot run them. */
static inline const mica__cpu_kernel *rig_table(const char *isa)
{
    uint32_t index;
    return mica__cpu_isa_choose(isa, &index) == MICA_OK ? mica__cpu_isa_table(index) : NULL;
}

/* An operand over host memory: contiguous unless the strides are changed afterwards. */
static inline mica__operand rig_operand(void *data, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                                        uint32_t access)
{
    mica__operand o = {
        .memory = data, .dtype = (uint16_t)dtype, .ndim = (uint8_t)ndim, .access = (uint8_t)access};
    uint64_t bytes = shape[ndim - 1] / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype);
    o.stride[ndim - 1] = mica_dtype_block_bytes(dtype);
    o.shape[ndim - 1] = shape[ndim - 1];
    for (uint32_t d = ndim - 1; d-- > 0;) {
        o.shape[d] = shape[d];
        o.stride[d] = bytes;
        bytes *= shape[d];
    }
    o.length = bytes;
    return o;
}

static inline void rig_dispatch(const mica__record *record, const mica__plan *plan,
                                const mica__plan_dispatch *d, const mica__cpu_kernel *kernel,
                                unsigned char *scratch, uint32_t piece, _Atomic uint32_t *fault)
{
    mica__cpu_view *view = malloc((d->binding_count + 1) * sizeof *view);
    assert_non_null(view);
    const unsigned char *block = plan->params + d->params_offset;
    memcpy(view, block, d->binding_count * sizeof *view);
    for (uint32_t i = 0; i < d->binding_count; i++) {
        const mica__plan_binding *b = &plan->binding[d->first_binding + i];
        view[i].data = b->source == MICA__SCRATCH ? scratch + b->offset
                                                  : (unsigned char *)record->operand[b->source].memory;
    }
    for (uint32_t first = 0; first < d->groups[0]; first += piece) {
        const uint32_t last = d->groups[0] - first < piece ? d->groups[0] : first + piece;
        unsigned char *local = aligned_alloc(64, ((size_t)d->local_bytes + 64) / 64 * 64);
        assert_non_null(local);
        memset(local, 0xcb, d->local_bytes);
        const mica__cpu_args args = {
            view, d->binding_count, block + d->binding_count * sizeof *view, local, fault, 7};
        if (kernel->prepare != NULL)
            kernel->prepare(&args);
        kernel->run(&args, first, last);
        free(local);
    }
    free(view);
}

/* Plans and runs; gives the fault word. */
static inline uint32_t rig_run(const mica__cpu_kernel *table, rig_plan make, const mica__record *record,
                               uint32_t threads, uint32_t piece)
{
    const mica__device_info info = {
        .threads = threads, .local_bytes = MICA__CPU_MAX_LOCAL, .cache_bytes = 256 << 10};
    mica__plan whole = {0}, *plan = &whole;
    if (mica__planning_begin(plan, record) != MICA_OK || make(record, &info, plan) != MICA_OK)
        fail_msg("%s", mica_status_message());
    unsigned char *scratch = aligned_alloc(64, (plan->scratch_bytes + 64) / 64 * 64);
    assert_non_null(scratch);
    memset(scratch, 0xcb, plan->scratch_bytes);
    _Atomic uint32_t fault = 0;
    for (uint32_t i = 0; i < plan->dispatch_count; i++) {
        const mica__cpu_kernel *kernel = table;
        while (strcmp(kernel->name, plan->dispatch[i].kernel) != 0)
            kernel++;
        rig_dispatch(record, plan, &plan->dispatch[i], kernel, scratch, piece != 0 ? piece : UINT32_MAX,
                     &fault);
    }
    free(scratch);
    mica__planning_end(plan);
    return fault;
}

#endif
