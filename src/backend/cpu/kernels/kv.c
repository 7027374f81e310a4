/* kv.c - kv_write: rows of new tokens into a cache, at positions known when the work runs. */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/cache.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"

void MICA__ISA(kv_write)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_kv_write *params = args->params;
    const mica__cpu_view *x = &args->view[MICA__KV_X], *rows = &args->view[MICA__KV_CACHE];
    const mica__cache cache = {rows, &args->view[MICA__KV_POSITIONS], &args->view[MICA__KV_SEQUENCES],
                               &args->view[MICA__KV_PAGES], params->kv.ring};
    const uint64_t heads = x->shape[1], n = x->shape[2], head_stride = rows->stride[rows->ndim - 2];
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    for (uint64_t token = mica__cpu_rows_begin(&params->range, first); token < end; token++) {
        unsigned char *slot = cache_slot(&cache, token);
        if (slot == NULL) {
            mica__cpu_fault(args);
            continue;
        }
        const unsigned char *from = x->data + token * x->stride[0];
        for (uint64_t h = 0; h < heads; h++) {
            const float *values = row_f32(from + h * x->stride[1], x->dtype, n, args->local);
            cache_store(slot + h * head_stride, rows->dtype, values, n);
        }
    }
}
