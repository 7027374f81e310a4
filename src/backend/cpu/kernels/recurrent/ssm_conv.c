/*
 * ssm_conv.c - causal depthwise convolutions that continue from a state. A unit is a sequence and a block of channels, which lie beside each
 * other in the vectors: tokens go by row by row, and of the inputs that are still needed is known where they stand as f32: in x itself, or in the
 * thread's memory.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/sequences.h"
#include "backend/cpu/kernels/rows.h"

#define TOKENS MICA__CPU_CONV_TOKENS
#define INLINE static inline __attribute__((always_inline))

/* The channels [first, first + count) that are worked on, and the thread's memory: rows of `room` floats, all but the inputs whole vectors. */
typedef struct conv_block {
    const mica__cpu_view *view;
    uint64_t first, count, room, width; /* width: taps */
    float *weight;                      /* [width] */
    float *bias;
    float *sums;
    float *window;     /* [width - 1 + TOKENS] */
    const float **row; /* [width - 1 + TOKENS]: where an input stands; the first are the state's */
} conv_block;

static void load_filters(conv_block *b)
{
    const mica__cpu_view *weight = &b->view[MICA__SSM_CONV_WEIGHT], *bias = &b->view[MICA__SSM_CONV_BIAS];
    for (uint64_t k = 0; k < b->width; k++) {
        float *to = b->weight + k * b->room;
        const float *row =
            row_f32_strided(weight->data + b->first * weight->stride[0] + k * weight->stride[1],
                            weight->dtype, weight->stride[0], b->count, to);
        if (row != to)
            memcpy(to, row, b->count * sizeof *to);
    }
    memset(b->bias, 0, b->room * sizeof *b->bias);
    if (bias->data != NULL) {
        const float *row = row_f32_strided(bias->data + b->first * bias->stride[0], bias->dtype,
                                           bias->stride[0], b->count, b->bias);
        if (row != b->bias)
            memcpy(b->bias, row, b->count * sizeof *row);
    }
}

static void load_state(conv_block *b, const unsigned char *from)
{
    const mica__cpu_view *state = &b->view[MICA__SSM_CONV_STATE];
    for (uint64_t j = 0; j + 1 < b->width; j++) {
        float *to = b->window + j * b->room;
        const float *row = to;
        if (from != NULL)
            row = row_f32_strided(from + b->first * state->stride[1] + j * state->stride[2], state->dtype,
                                  state->stride[1], b->count, to);
        else
            memset(to, 0, b->count * sizeof *to);
        if (row != to) /* next_state may be where state is */
            memcpy(to, row, b->count * sizeof *to);
        b->row[j] = to;
    }
}

static void store_state(const conv_block *b, unsigned char *to)
{
    const mica__cpu_view *next = &b->view[MICA__SSM_CONV_NEXT_STATE];
    for (uint64_t j = 0; j + 1 < b->width; j++)
        row_store_strided(to + b->first * next->stride[1] + j * next->stride[2], next->dtype, next->stride[1],
                          b->row[j], b->count);
}

/* One token, whose oldest input is row[0]; `ahead` is what comes meanwhile, as long as a row. Where `width` is a constant, no taps are counted. */
INLINE void convolve(const conv_block *b, const float *const *row, uint64_t width, bool silu,
                     const unsigned char *ahead, float *y)
{
    uint64_t c = 0;
    for (; c + VW <= b->count; c += VW) {
        vf sum = vf_load(b->bias + c);
        __builtin_prefetch(ahead + c * sizeof(float));
        for (uint64_t k = 0; k < width; k++)
            sum = vf_fma(vf_load(b->weight + k * b->room + c), vf_load(row[k] + c), sum);
        vf_store(y + c, silu ? vf_silu(sum) : sum);
    }
    if (c < b->count) {
        const uint64_t left = b->count - c;
        vf sum = vf_load_n(b->bias + c, left);
        for (uint64_t k = 0; k < width; k++)
            sum = vf_fma(vf_load_n(b->weight + k * b->room + c, left), vf_load_n(row[k] + c, left), sum);
        vf_store_n(y + c, silu ? vf_silu(sum) : sum, left);
    }
}

static void convolve_any(const conv_block *b, const float *const *row, uint32_t activation,
                         const unsigned char *ahead, float *y)
{
    const bool silu = activation == MICA_SSM_SILU;
    if (b->width == 4 && silu)
        convolve(b, row, 4, true, ahead, y);
    else if (b->width == 4)
        convolve(b, row, 4, false, ahead, y);
    else
        convolve(b, row, b->width, silu, ahead, y);
}

/* The last inputs become the first; those of f32 stay where they are, in x. */
static void keep_inputs(const conv_block *b, uint64_t tokens)
{
    for (uint64_t j = 0; j + 1 < b->width; j++) {
        float *to = b->window + j * b->room;
        if (b->view[MICA__SSM_CONV_X].dtype == MICA_DTYPE_F32) {
            b->row[j] = b->row[tokens + j];
            continue;
        }
        memcpy(to, b->row[tokens + j], b->count * sizeof *to);
        b->row[j] = to;
    }
}

static void run_sequence(conv_block *b, const sequence *s, uint32_t activation)
{
    const mica__cpu_view *x = &b->view[MICA__SSM_CONV_X], *y = &b->view[MICA__SSM_CONV_Y];
    const uint64_t kept = b->width - 1, end = s->first + s->count;
    load_state(b, s->from);
    for (uint64_t t = s->first; t < end;) {
        const uint64_t tokens = end - t < TOKENS ? end - t : TOKENS;
        for (uint64_t i = 0; i < tokens; i++, t++) {
            const unsigned char *from = x->data + t * x->stride[0] + b->first * row_element_bytes(x->dtype);
            unsigned char *to = y->data + t * y->stride[0] + b->first * row_element_bytes(y->dtype);
            float *sums = y->dtype == MICA_DTYPE_F32 ? (float *)(void *)to : b->sums;
            b->row[kept + i] = row_f32(from, x->dtype, b->count, b->window + (kept + i) * b->room);
            convolve_any(b, b->row + i, activation, t + 1 < end ? from + x->stride[0] : from, sums);
            if (sums == b->sums)
                row_store(to, y->dtype, sums, b->count);
        }
        keep_inputs(b, tokens);
    }
    if (s->to != NULL)
        store_state(b, s->to);
}

void MICA__ISA(ssm_conv)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_ssm_conv *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const mica__cpu_view *weight = &args->view[MICA__SSM_CONV_WEIGHT];
    const uint64_t channels = weight->shape[0], room = params->channels,
                   blocks = (channels + room - 1) / room;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    conv_block b = {.view = args->view, .first = UINT64_MAX, .room = room, .width = weight->shape[1]};
    b.weight = args->local;
    b.bias = b.weight + b.width * room;
    b.sums = b.bias + room;
    b.window = b.sums + room;
    b.row = (const float **)(void *)(b.window + (b.width - 1 + TOKENS) * room);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * blocks) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence s = sequence_of(args, of, row % of->count);
        const uint64_t begin = row / of->count * room;
        if (!s.fine)
            continue;
        if (begin != b.first) {
            b.first = begin;
            b.count = channels - begin < room ? channels - begin : room;
            load_filters(&b);
        }
        run_sequence(&b, &s, params->activation);
    }
}
