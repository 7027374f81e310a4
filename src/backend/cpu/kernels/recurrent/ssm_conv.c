/*
 * ssm_conv.c - causal depthwise convolutions that continue from a state. A unit is a sequence and a block of channels, which lie beside each
 * other in the vectors: inputs, the state's among them, stand as rows of the block in the thread's memory, tap k of token i is k rows below it.
 */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/recurrent/sequences.h"
#include "backend/cpu/kernels/rows.h"

#define CHANNELS MICA__CPU_CONV_CHANNELS
#define TOKENS MICA__CPU_CONV_TOKENS

/* The channels [first, first + count) that are worked on, and the thread's memory. */
typedef struct conv_block {
    const mica__cpu_view *view;
    uint64_t first, count, width; /* width: taps */
    float *weight;                /* [width, CHANNELS] */
    float *bias;                  /* [CHANNELS] */
    float *window;                /* [width - 1 + TOKENS, CHANNELS] */
    float *sums;                  /* [CHANNELS] */
} conv_block;

static void load_filters(conv_block *b)
{
    const mica__cpu_view *weight = &b->view[MICA__SSM_CONV_WEIGHT], *bias = &b->view[MICA__SSM_CONV_BIAS];
    for (uint64_t k = 0; k < b->width; k++) {
        float *to = b->weight + k * CHANNELS;
        const float *row =
            row_f32_strided(weight->data + b->first * weight->stride[0] + k * weight->stride[1],
                            weight->dtype, weight->stride[0], b->count, to);
        if (row != to)
            memcpy(to, row, b->count * sizeof *to);
    }
    memset(b->bias, 0, CHANNELS * sizeof *b->bias);
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
    memset(b->window, 0, (b->width - 1) * CHANNELS * sizeof *b->window);
    for (uint64_t j = 0; from != NULL && j + 1 < b->width; j++) {
        float *to = b->window + j * CHANNELS;
        const float *row = row_f32_strided(from + b->first * state->stride[1] + j * state->stride[2],
                                           state->dtype, state->stride[1], b->count, to);
        if (row != to)
            memcpy(to, row, b->count * sizeof *to);
    }
}

static void store_state(const conv_block *b, unsigned char *to)
{
    const mica__cpu_view *next = &b->view[MICA__SSM_CONV_NEXT_STATE];
    for (uint64_t j = 0; j + 1 < b->width; j++)
        row_store_strided(to + b->first * next->stride[1] + j * next->stride[2], next->dtype, next->stride[1],
                          b->window + j * CHANNELS, b->count);
}

/* One token, whose oldest input is the row `window`. */
static void convolve(const conv_block *b, const float *window, uint32_t activation)
{
    for (uint64_t c = 0; c < b->count; c += VW) {
        vf sum = vf_load(b->bias + c);
        for (uint64_t k = 0; k < b->width; k++)
            sum = vf_fma(vf_load(b->weight + k * CHANNELS + c), vf_load(window + k * CHANNELS + c), sum);
        vf_store(b->sums + c, activation == MICA_SSM_SILU ? vf_silu(sum) : sum);
    }
}

static void run_sequence(conv_block *b, const sequence *s, uint32_t activation)
{
    const mica__cpu_view *x = &b->view[MICA__SSM_CONV_X], *y = &b->view[MICA__SSM_CONV_Y];
    const uint64_t kept = b->width - 1;
    load_state(b, s->from);
    for (uint64_t t = 0; t < s->count;) {
        const uint64_t tokens = s->count - t < TOKENS ? s->count - t : TOKENS;
        for (uint64_t i = 0; i < tokens; i++) {
            const uint64_t at = (s->first + t + i) * x->stride[0] + b->first * row_element_bytes(x->dtype);
            float *to = b->window + (kept + i) * CHANNELS;
            const float *row = row_f32(x->data + at, x->dtype, b->count, to);
            if (row != to)
                memcpy(to, row, b->count * sizeof *to);
        }
        for (uint64_t i = 0; i < tokens; i++) {
            const uint64_t at = (s->first + t + i) * y->stride[0] + b->first * row_element_bytes(y->dtype);
            convolve(b, b->window + i * CHANNELS, activation);
            row_store(y->data + at, y->dtype, b->sums, b->count);
        }
        memmove(b->window, b->window + tokens * CHANNELS, kept * CHANNELS * sizeof *b->window);
        t += tokens;
    }
    if (s->to != NULL)
        store_state(b, s->to);
}

void MICA__ISA(ssm_conv)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_ssm_conv *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const mica__cpu_view *weight = &args->view[MICA__SSM_CONV_WEIGHT];
    const uint64_t channels = weight->shape[0], blocks = (channels + CHANNELS - 1) / CHANNELS;
    const uint64_t end = mica__cpu_rows_end(&params->range, last);
    conv_block b = {.view = args->view, .first = UINT64_MAX, .width = weight->shape[1]};
    b.weight = args->local;
    b.bias = b.weight + b.width * CHANNELS;
    b.sums = b.bias + CHANNELS;
    b.window = b.sums + CHANNELS;
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * blocks) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence s = sequence_of(args, of, row % of->count);
        const uint64_t begin = row / of->count * CHANNELS;
        if (!s.fine)
            continue;
        if (begin != b.first) {
            b.first = begin;
            b.count = channels - begin < CHANNELS ? channels - begin : CHANNELS;
            load_filters(&b);
        }
        run_sequence(&b, &s, params->activation);
    }
}
