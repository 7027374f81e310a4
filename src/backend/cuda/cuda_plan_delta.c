/* cuda_plan_delta.c - the gated delta rule by chunks through the matrix units, native/delta_prepare.cu and delta_forward.cu. Short sequences, keys of odd sizes and decays by rows are for
 * other rows. */
#include "backend/cuda/cuda_plan.h"

#include "backend/gpu/gpu_plan_recurrent.h"
#include "base/env.h"

#define LEAST_COMPUTE 80u /* asynchronous copies, products of numbers of 11 bits */
#define LEAST_TOKENS 64u  /* of a sequence: fewer are no chunk */
#define MOST_DIM 128u     /* whose states registers hold */
#define GROUP 128u
#define CHUNK 64u
#define COLUMNS 32u
#define PIECE 16u              /* bytes copied at once; between rows in shared memory */
#define ROOM_BYTES (5632u * 4) /* of a chunk of a head, delta_tiles.cu */
#define JOIN_BYTES 24576u      /* what warps give each other */
#define STATIC_BYTES 1024u     /* more than the kernel's own arrays take */
#define WAYS_BYTES 17792u      /* those of delta_prepare.cu */

static const mica__gpu_sequence_slots slots = {MICA__DELTA_STATE,      MICA__DELTA_STARTS,
                                               MICA__DELTA_READ_SLOTS, MICA__DELTA_WRITE_SLOTS,
                                               MICA__DELTA_Y,          MICA__DELTA_NEXT_STATE};

static uint32_t bytes_of(uint32_t type)
{
    return type == mica__gpu_type(MICA_DTYPE_F32) ? 4 : 2;
}

/* Of keys to the kernel, zeros behind them. */
static uint32_t padded(const mk_delta_params *p)
{
    return p->dim <= MOST_DIM / 2 ? MOST_DIM / 2 : MOST_DIM;
}

/* Keys and queries of a chunk. */
static uint32_t keys_bytes(const mk_delta_params *p)
{
    return CHUNK * ((bytes_of(p->k_type) + bytes_of(p->q_type)) * padded(p) + 2 * PIECE);
}

/* Two chunks: keys, queries, a room, values. */
static uint32_t local_bytes(const mk_delta_params *p)
{
    return 2 * (keys_bytes(p) + ROOM_BYTES + CHUNK * (COLUMNS * bytes_of(p->v_type) + PIECE)) + JOIN_BYTES;
}

/* Whether its rows [token, head] of n elements are whole pieces. */
static bool has_pieces(const mica__operand *x, uint32_t n)
{
    return x->offset % PIECE == 0 && x->stride[0] % PIECE == 0 && x->stride[1] % PIECE == 0 &&
           (uint64_t)n * bytes_of(mica__gpu_type(x->dtype)) % PIECE == 0;
}

bool mica__cuda_delta_serves(const mica__record *record, const mica__device_info *info)
{
    const mica__operand *operand = record->operand;
    const uint32_t form = ((const mica__delta_record *)record->params)->delta.form;
    if (info->compute < LEAST_COMPUTE || mica__env_debug(MICA__DEBUG_NONATIVE) ||
        form == MICA_DELTA_SEQUENTIAL ||
        mica__gpu_recurrent_check(record, 7u << MICA__DELTA_STARTS) != MICA_OK)
        return false;
    const mk_delta_params p = mica__gpu_delta_params(record, &slots);
    return p.by_row == 0 && p.heads > 0 && p.columns > 0 && p.dim > 0 && p.dim <= MOST_DIM &&
           p.of.count > 0 && p.of.tokens / p.of.count >= (form == MICA_DELTA_AUTO ? LEAST_TOKENS : 1) &&
           has_pieces(&operand[MICA__DELTA_Q], p.dim) && has_pieces(&operand[MICA__DELTA_K], p.dim) &&
           has_pieces(&operand[MICA__DELTA_V], p.columns) &&
           local_bytes(&p) + STATIC_BYTES <= info->local_bytes &&
           keys_bytes(&p) + WAYS_BYTES + STATIC_BYTES <= info->local_bytes;
}

/* A dispatch of either; both share the constants of delta_tiles.cu. */
static mica_status begin_dispatch(const mk_delta_params *p, const char *kernel, uint64_t groups,
                                  uint32_t local, mica__plan *plan)
{
    const mica_status status = mica__gpu_plan_next(plan, kernel, groups);
    if (status != MICA_OK)
        return status;
    mica__gpu_plan_constant(plan, "MK_WG", GROUP);
    mica__gpu_plan_constant(plan, "DIM", padded(p));
    mica__gpu_plan_constant(plan, "KT", p->k_type);
    mica__gpu_plan_constant(plan, "QT", p->q_type);
    mica__gpu_plan_constant(plan, "VT", p->v_type);
    mica__gpu_plan_constant(plan, "YT", p->y_type);
    mica__gpu_plan_constant(plan, "CORRECT", p->correct);
    plan->dispatch[plan->dispatch_count - 1].local_bytes = local;
    return MICA_OK;
}

/* Scratch: a room for every chunk of every head, as many as there can be. */
mica_status mica__cuda_plan_delta(const mica__record *record, const mica__device_info *info, mica__plan *plan)
{
    static const uint32_t prepare[] = {MICA__DELTA_Q,          MICA__DELTA_K,      MICA__DELTA_G,
                                       MICA__DELTA_BETA,       MICA__DELTA_STARTS, MICA__DELTA_READ_SLOTS,
                                       MICA__DELTA_WRITE_SLOTS};
    const mk_delta_params p = mica__gpu_delta_params(record, &slots);
    const uint64_t rooms = ((p.of.tokens + CHUNK - 1) / CHUNK + (uint64_t)p.of.count) * p.heads;
    (void)info;
    mica_status status = mica__gpu_plan_gaps(record, &slots, slots.y, &p.of, plan);
    if (status == MICA_OK)
        status = begin_dispatch(&p, "delta_prepare/delta_prepare", rooms, keys_bytes(&p), plan);
    if (status != MICA_OK)
        return status;
    for (size_t i = 0; i < sizeof prepare / sizeof *prepare; i++)
        mica__gpu_plan_operand(plan, record, prepare[i], 0);
    mica__gpu_plan_scratch(plan, 0, rooms * ROOM_BYTES, MICA_ACCESS_WRITE);
    mica__gpu_plan_params(plan, &p, sizeof p);
    status = begin_dispatch(&p, "delta_forward/delta_forward", (uint64_t)p.of.count * p.heads * p.blocks,
                            local_bytes(&p), plan);
    if (status != MICA_OK)
        return status;
    for (uint32_t slot = 0; slot < MICA__DELTA_SLOTS; slot++)
        mica__gpu_plan_operand(plan, record, slot, 0);
    mica__gpu_plan_scratch(plan, 0, rooms * ROOM_BYTES, MICA_ACCESS_READ);
    mica__gpu_plan_fault(plan);
    mica__gpu_plan_params(plan, &p, sizeof p);
    return MICA_OK;
}
