/*
 * experts_quant.c - expert-routed matmul with quantised weights.
 *
 * Few slots: each is a mat-vec with the matrix of its expert. Many: tiles of the map of experts.h. Both run
 * quant_rows, so a row of y has the bits of mica_matmul with that expert's matrix.
 */
#include "backend/cpu/kernels/experts.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/quant/matmul_quant.h"
#include "backend/cpu/kernels/quant/quant_activation.h"
#include "backend/cpu/kernels/quant/quant_rows.h"

/* Slots of one expert against the unit of its matrix that begins at `row`. */
typedef struct share {
    uint64_t expert, row, count;
    const uint32_t *slot; /* [count] */
} share;

static const unsigned char *activation_at(const mica__cpu_args *args, uint64_t slot)
{
    const mica__experts_quant_params *p = args->params;
    const bool per_slot = args->view[MICA__EXPERTS_X].ndim == 3;
    const uint64_t row = per_slot ? slot : slot / args->view[MICA__EXPERTS_IDS].shape[1];
    return args->view[MICA__EXPERTS_SLOTS].data + row * mica__quant_activation_bytes(&p->activation) +
           (p->form == MICA__QUANT_F32 ? mica__quant_f32_offset(&p->activation) : 0);
}

static void multiply(const mica__cpu_args *args, const share *s)
{
    const mica__experts_quant_params *p = args->params;
    const mica__cpu_view *y = &args->view[MICA__EXPERTS_Y];
    const mica__quant_weight w =
        mica__quant_weight_of(&args->view[MICA__EXPERTS_WEIGHT], &args->view[MICA__EXPERTS_SCALES],
                              &args->view[MICA__EXPERTS_BIASES], s->expert);
    unsigned char *local = args->local, *work = local + mica__quant_work_offset(p->tile);
    const void **x = (const void **)(void *)local;
    float *result = (float *)(void *)(local + mica__quant_results_offset(p->tile));
    for (uint64_t c = 0; c < s->count; c++)
        x[c] = activation_at(args, s->slot[c]);
    if (p->form == MICA__QUANT_F32)
        MICA__ISA(quant_rows_f32)(&w, s->row, x, s->count, work, result);
    else
        MICA__ISA(quant_rows_q8)(&w, s->row, x, s->count, work, result);
    for (uint64_t c = 0; c < s->count; c++)
        quant_store_unit(quant_row_at(y, s->slot[c]), y->dtype, w.n, s->row, result + c * MICA__QUANT_ROWS);
}

static void slot_unit(const mica__cpu_args *args, uint32_t slot, uint64_t row)
{
    const mica__cpu_view *w = &args->view[MICA__EXPERTS_WEIGHT], *y = &args->view[MICA__EXPERTS_Y];
    const int64_t expert = mica__experts_id(&args->view[MICA__EXPERTS_IDS], slot, w->shape[0]);
    if (expert >= 0) {
        multiply(args, &(share){(uint64_t)expert, row, 1, &slot});
        return;
    }
    static const float none[MICA__QUANT_ROWS] = {0};
    quant_store_unit(quant_row_at(y, slot), y->dtype, w->shape[1], row, none);
    mica__cpu_fault(args);
}

void MICA__ISA(experts_quant)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__experts_quant_params *p = args->params;
    for (uint32_t unit = first; unit < last; unit++) {
        const uint32_t index = unit / p->blocks;
        const uint64_t row = (uint64_t)(unit % p->blocks) * MICA__PACKED_ROWS;
        if (p->few) {
            slot_unit(args, index, row);
            continue;
        }
        void *map = args->view[MICA__EXPERTS_SLOTS + 1].data;
        const mica__experts_head *head = map;
        if (index >= head->tile_count)
            return;
        const mica__experts_tile *tile = mica__experts_tiles(map) + index;
        multiply(args, &(share){tile->expert, row, tile->count, mica__experts_slots(map) + tile->first});
    }
}
