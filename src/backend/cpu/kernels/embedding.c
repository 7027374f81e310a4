/*
 * embedding.c - rows of a table by ids that are known when the work runs, from any type and layout of a weight.
 */
#include "backend/cpu/cpu_params.h"
#include "backend/cpu/kernels/index.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/rows.h"
#include "quant/packed.h"
#include "quant/quant.h"

/* Row `id` of the table as f32, in `tmp` unless it is that already. */
static const float *table_row(const mica__cpu_args *args, uint64_t id, uint64_t n, float *tmp)
{
    const mica__cpu_view *table = &args->view[MICA__EMBEDDING_TABLE];
    const mica__cpu_view *scales = &args->view[MICA__EMBEDDING_SCALES];
    const mica__cpu_view *biases = &args->view[MICA__EMBEDDING_BIASES];
    const unsigned char *row = table->data + id * table->stride[0];
    if (table->layout == MICA_LAYOUT_ROWS8) {
        const uint64_t in_group = id % MICA__PACKED_ROWS;
        const unsigned char *group = table->data + (id - in_group) * table->stride[0];
        mica__packed_decode_row(table->dtype, group, (uint32_t)in_group, n, table->group_size, tmp);
    } else if (mica__quant_known(table->dtype)) {
        mica__quant_decode_row(table->dtype, row, tmp, n);
    } else if (mica__dtype_is_grouped(table->dtype)) {
        mica__affine_decode_row(table->dtype, row, scales->data + id * scales->stride[0],
                                biases->data == NULL ? NULL : biases->data + id * biases->stride[0],
                                scales->dtype, table->group_size, tmp, n);
    } else {
        return row_f32(row, table->dtype, n, tmp);
    }
    return tmp;
}

void MICA__ISA(embedding)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_row_range *range = args->params;
    const mica__cpu_view *table = &args->view[MICA__EMBEDDING_TABLE], *y = &args->view[MICA__EMBEDDING_Y];
    const mica__cpu_view *ids = &args->view[MICA__EMBEDDING_IDS];
    const uint64_t n = y->shape[1], end = mica__cpu_rows_end(range, last);
    for (uint64_t token = mica__cpu_rows_begin(range, first); token < end; token++) {
        unsigned char *to = y->data + token * y->stride[0];
        const int64_t id = index_at(ids, token * ids->stride[0]);
        if (id < 0 || (uint64_t)id >= table->shape[0]) {
            memset(to, 0, n * row_element_bytes(y->dtype));
            mica__cpu_fault(args);
            continue;
        }
        row_store(to, y->dtype, table_row(args, (uint64_t)id, n, args->local), n);
    }
}
