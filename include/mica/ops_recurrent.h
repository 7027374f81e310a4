/*
 * ops_recurrent.h - ops that go from token to token and carry a state: convolutions of state-space models, the gated
 * delta rule and linear attention, selective scans. What ops.h says of all ops holds here too.
 *
 * Sequences. The tokens of all sequences stand one behind another in one dimension of T. Which are whose, and where
 * their states lie, is read when the work runs, so that a recording serves any split:
 *   starts       [N + 1], u32 or i32: sequence n has the tokens from starts[n] up to, and without, starts[n + 1]; none
 *                is fine. NULL: all sequences have T / N tokens, which T must be a multiple of
 *   state        what sequences begin with, a slot each: [slots, ..]. NULL: zeros
 *   read_slots   [N]: the slot of `state` that a sequence begins with. NULL: slot n
 *   next_state   what they end with, [slots, ..]; slots that no sequence writes stay as they are. NULL: not wanted
 *   write_slots  [N]: the slot of `next_state` that a sequence ends in. NULL: slot n
 * N is one less than the length of starts, else the length of the slots, else the slots of state, else of next_state,
 * else 1. A state is read in one buffer and written in another, so a pass can be thrown away; next_state may also be
 * the very view of state, and then no sequence may write a slot that another one reads. A sequence without tokens
 * ends with what it begins with. A sequence whose starts are not in order or lead past T, or whose slots lie outside,
 * has no tokens and writes no state: FAULT. Tokens that no sequence has give zeros.
 */
#ifndef MICA_OPS_RECURRENT_H
#define MICA_OPS_RECURRENT_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Any of them may be NULL; the whole as well: one sequence from zeros. */
typedef struct mica_sequences {
    mica_buffer *state, *starts, *read_slots, *write_slots;
    mica_buffer *next_state;
} mica_sequences;

typedef enum mica_ssm_activation {
    MICA_SSM_NONE = 0,
    MICA_SSM_SILU = 1 /* s / (1 + e^-s) */
} mica_ssm_activation;

typedef struct mica_ssm_conv_params {
    uint32_t activation; /* mica_ssm_activation */
} mica_ssm_conv_params;

/* The causal depthwise convolution of state-space models, one filter a channel: y [T, C] at token t of a sequence is
 * act(bias [C] + sum over k < K of weight [C, K] times the input K - 1 - k tokens before t), where inputs before the
 * first token are the state's, [slots, C, K - 1], oldest first (none where K is 1). The next state is the last K - 1
 * inputs. x, weight, bias (or NULL), state, y: f32, f16 or bf16, each its own; or all f64 on the cpu. The last
 * dimension of x and y contiguous, other operands of any strides: a state [slots, K - 1, C] is a permuted view.
 * `params` may be NULL: no activation. */
MICA_API mica_status mica_ssm_conv(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                   mica_buffer *bias, const mica_sequences *sequences,
                                   const mica_ssm_conv_params *params, mica_buffer *y);

/* The gradient of mica_ssm_conv for dy [T, C] and dnext [N, C, K - 1] (or NULL: 0), what reaches the states that
 * sequences end with: dx [T, C], dweight [C, K], dbias [C] and dstate [N, C, K - 1], of which the last three may be
 * NULL. `sequences`, N, dstate, f64, strides and devices as mica_delta_net_backward says. */
MICA_API mica_status mica_ssm_conv_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                            mica_buffer *bias, const mica_sequences *sequences,
                                            const mica_ssm_conv_params *params, mica_buffer *dy,
                                            mica_buffer *dnext, mica_buffer *dx, mica_buffer *dweight,
                                            mica_buffer *dbias, mica_buffer *dstate);

typedef enum mica_delta_rule {
    MICA_DELTA_CORRECT = 0, /* d = beta (v - S^T k): the delta rule */
    MICA_DELTA_ADD = 1      /* d = beta v: linear attention, and Mamba 2 with beta = dt */
} mica_delta_rule;

/* In which order it is computed: both mean the same and round differently. */
typedef enum mica_delta_form {
    MICA_DELTA_AUTO = 0,       /* what the device does faster, by the length of each sequence */
    MICA_DELTA_SEQUENTIAL = 1, /* token by token: the same bits however a sequence is cut into passes */
    MICA_DELTA_CHUNKED = 2     /* 64 tokens at once, by products of matrices and a triangular solve */
} mica_delta_form;

typedef struct mica_delta_params {
    uint32_t rule;      /* mica_delta_rule */
    uint32_t normalise; /* 1: q and k are divided by sqrt(sum of their squares + eps) first */
    float eps;          /* >= 0 */
    float scale;        /* of q; 0 = 1/sqrt(D) */
    uint32_t form;      /* mica_delta_form */
} mica_delta_params;

/* The operands of mica_delta_net. Value head h reads key head h / (H / G): neighbours share one, as
 * after a repeat of every key head. */
typedef struct mica_delta_operands {
    mica_buffer *q, *k; /* [T, G, D] */
    mica_buffer *v;     /* [T, H, V], H a multiple of G */
    /* [T, H], logarithm of the decay, usually below 0; NULL: 0. Or [T, H, D]: one for each row of the state, as gated
     * linear attention and Kimi's have */
    mica_buffer *g;
    mica_buffer *beta; /* [T, H], how much is learned of a token; NULL: 1 */
    mica_buffer *skip; /* [H], how much of v is added to y; NULL: none */
} mica_delta_operands;

/* The gated delta rule (Gated DeltaNet, Qwen 3-Next) and its simpler kin. Each value head of a sequence has
 * a state S [D, V]; for each token
 *   S = e^g S;  d = beta (v - S^T k), or beta v as params.rule says;  S = S + k d^T;  y = S^T (scale q) + skip v.
 * q, k, v, g, beta, skip, y: f32, f16 or bf16, each its own; states [slots, H, D, V] f32; or all f64 on the cpu. Last
 * dimensions of q, k, v, states and y are contiguous. `params` may be NULL: all zero.
 *
 * Chunked, with D_ij the sum of g over the tokens behind j up to i of a chunk (D_i0: from its
 * first on) and S the state before it:
 *   d_i = beta_i (v_i - e^D_i0 S^T k_i - sum over j < i of e^D_ij (k_i.k_j) d_j), a triangular solve, or beta_i v_i;
 *   y_i = scale (e^D_i0 S^T q_i + sum over j <= i of e^D_ij (q_i.k_j) d_j) + skip v_i;
 *   S = e^D_n0 S + sum over j of e^D_nj k_j d_j^T.
 * Decays stand only over stretches of tokens, never as e^-D: nothing overflows that does not token by token. With a
 * decay for each row it goes token by token; CHUNKED is refused then. */
MICA_API mica_status mica_delta_net(mica_encoder *encoder, const mica_delta_operands *operands,
                                    const mica_sequences *sequences, const mica_delta_params *params,
                                    mica_buffer *y);

/* What mica_delta_net_backward writes; the last four may be NULL. */
typedef struct mica_delta_gradients {
    mica_buffer *dq, *dk; /* [T, G, D] */
    mica_buffer *dv;      /* [T, H, V] */
    mica_buffer *dg;      /* as g is */
    mica_buffer *dbeta;   /* [T, H] */
    mica_buffer *dskip;   /* [H] */
    mica_buffer *dstate;  /* [N, H, D, V] */
} mica_delta_gradients;

/* The gradient of mica_delta_net for dy [T, H, V], what reaches y, and dnext [N, H, D, V] (or NULL: 0), what reaches
 * the states that the N sequences end with. Of `sequences` state, starts and read_slots are read, the others NULL; N
 * is as above, of dnext or dstate where nothing else says it, else 1. dstate is what leaves the states that they
 * begin with, sequence by sequence: where several begin with one slot, mica_scatter adds them up. Gradients of tokens
 * that no sequence has, and of a sequence that faults, are zeros. With S the state behind a token, S' decayed before
 * it and dS what reaches S from y and from behind:
 *   dS += scale q dy^T;  dd = dS^T k;  dv = skip dy + beta dd;  dbeta = dd . (v - S'^T k);  dS' = dS - beta k dd^T;
 *   dk = S d - beta S' dd;  dq = scale S dy;  dg = sum of dS' S';
 * and e^g dS' goes on to the token before; where rule is ADD without what S'^T k brings.
 * Token by token whatever params.form says, on the cpu in f64 whatever the types, on GPUs in f32; states are computed
 * again from every so many tokens. dg, dbeta and dskip are there only with g, beta and skip. Types as mica_delta_net,
 * each operand its own, any strides; f64 on the cpu alone. */
MICA_API mica_status mica_delta_net_backward(mica_encoder *encoder, const mica_delta_operands *operands,
                                             const mica_sequences *sequences, const mica_delta_params *params,
                                             mica_buffer *dy, mica_buffer *dnext,
                                             const mica_delta_gradients *gradients);

/* What a layer makes g and beta of: g = -e^a_log softplus(a + dt_bias), beta = 1 / (1 + e^-b), all [T, H] but a_log
 * and dt_bias [H], which repeat. A region, joined with its neighbours. f32, or all f64; in place as scalars.h
 * says. */
MICA_API mica_status mica_delta_gates(mica_encoder *encoder, mica_buffer *a, mica_buffer *b,
                                      mica_buffer *a_log, mica_buffer *dt_bias, mica_buffer *g,
                                      mica_buffer *beta);
/* The same for Mamba 2, whose dt takes the place of beta: dt = softplus(a + dt_bias), g = -e^a_log dt. */
MICA_API mica_status mica_ssm_gates(mica_encoder *encoder, mica_buffer *a, mica_buffer *a_log,
                                    mica_buffer *dt_bias, mica_buffer *g, mica_buffer *dt);

typedef struct mica_selective_params {
    uint32_t softplus; /* 1: the step is log(1 + e^(dt + dt_bias)), 0: dt + dt_bias */
} mica_selective_params;

/* The operands of mica_selective_scan. Channel c reads group c / (C / G) of b and c. */
typedef struct mica_selective_operands {
    mica_buffer *x;       /* [T, C] */
    mica_buffer *dt;      /* [T, C] */
    mica_buffer *a;       /* [C, P], usually below 0: -e^A_log of a checkpoint */
    mica_buffer *b, *c;   /* [T, G, P], C a multiple of G */
    mica_buffer *skip;    /* [C], how much of x is added to y (D of a checkpoint); NULL: none */
    mica_buffer *dt_bias; /* [C]; NULL: 0 */
    mica_buffer *z;       /* [T, C]: y is multiplied by z / (1 + e^-z); NULL: it is not */
} mica_selective_operands;

/* The selective scan of Mamba 1. Each channel of a sequence has a state s [P]; for each token
 *   s = e^(dt a) s + dt b x;  y [T, C] = (sum over P of c s + skip x) silu(z), dt the step of params.
 * Mamba 2, whose a is one number a head, is mica_delta_net with MICA_DELTA_ADD: q is c, k is b, and mica_ssm_gates
 * gives g and beta. Operands f32, f16 or bf16, each its own; states [slots, C, P] f32, of any strides; or all f64 on
 * the cpu. The last dimensions of x, dt, z and y are contiguous. `params` may be NULL: all zero. */
MICA_API mica_status mica_selective_scan(mica_encoder *encoder, const mica_selective_operands *operands,
                                         const mica_sequences *sequences, const mica_selective_params *params,
                                         mica_buffer *y);

/* What mica_selective_scan_backward writes; the last four may be NULL. */
typedef struct mica_selective_gradients {
    mica_buffer *dx, *ddt; /* [T, C] */
    mica_buffer *da;       /* [C, P] */
    mica_buffer *db, *dc;  /* [T, G, P] */
    mica_buffer *dskip;    /* [C] */
    mica_buffer *ddt_bias; /* [C] */
    mica_buffer *dz;       /* [T, C] */
    mica_buffer *dstate;   /* [N, C, P] */
} mica_selective_gradients;

/* The gradient of mica_selective_scan for dy [T, C] and dnext [N, C, P] (or NULL: 0). `sequences`,
 * N, dstate, f64, strides and devices as mica_delta_net_backward says; dskip, ddt_bias and dz are
 * there only with skip, dt_bias and z. */
MICA_API mica_status mica_selective_scan_backward(mica_encoder *encoder,
                                                  const mica_selective_operands *operands,
                                                  const mica_sequences *sequences,
                                                  const mica_selective_params *params, mica_buffer *dy,
                                                  mica_buffer *dnext,
                                                  const mica_selective_gradients *gradients);

typedef enum mica_rnn_kind {
    MICA_RNN_TANH = 0,
    MICA_RNN_RELU = 1,
    MICA_RNN_GRU = 2,
    MICA_RNN_LSTM = 3
} mica_rnn_kind;

typedef struct mica_rnn_params {
    uint32_t kind;    /* mica_rnn_kind */
    uint32_t reverse; /* 1: each sequence from its last token to its first */
} mica_rnn_params;

/* A layer of recurrent cells, one direction, behind the product of its inputs with their weights: x [T, F] is that
 * product with its bias (x W_ih^T + b_ih), weight [F, H] is W_hh, bias [F] is b_hh (or NULL: 0), y [T, H] what comes
 * out at each token; F is 1, 3 or 4 times H. With p = weight h + bias:
 *   TANH, RELU   h = tanh(x + p), max(x + p, 0)
 *   GRU          rows r, z, n: r = sigmoid(x_r + p_r), z = sigmoid(x_z + p_z), n = tanh(x_n + r p_n),
 *                h = (1 - z) n + z h: the reset gate behind the product and its bias (linear_before_reset of ONNX)
 *   LSTM         rows i, f, g, o: c = sigmoid(x_f + p_f) c + sigmoid(x_i + p_i) tanh(x_g + p_g),
 *                h = sigmoid(x_o + p_o) tanh(c)
 * as PyTorch has them. States are [slots, 1, H], of LSTM [slots, 2, H]: h, then c. Two directions are two calls,
 * whose y may be halves of one buffer; layers are calls one behind another. x, weight, bias, y: f32, f16 or bf16,
 * each its own; states f32; or all f64 on the cpu. Last dimensions of x, weight, states and y are contiguous.
 * `params` may be NULL: all zero. */
MICA_API mica_status mica_rnn(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight, mica_buffer *bias,
                              const mica_sequences *sequences, const mica_rnn_params *params, mica_buffer *y);

/* The gradient of mica_rnn for dy [T, H] and dnext [N, 1 or 2, H] (or NULL: 0): dx [T, F], dweight [F, H], dbias [F]
 * and dstate, shaped as dnext, of which the last three may be NULL; dbias is there only with bias. RELU has slope 0
 * at 0. `sequences`, N, dstate, f64, strides and devices as mica_delta_net_backward says. */
MICA_API mica_status mica_rnn_backward(mica_encoder *encoder, mica_buffer *x, mica_buffer *weight,
                                       mica_buffer *bias, const mica_sequences *sequences,
                                       const mica_rnn_params *params, mica_buffer *dy, mica_buffer *dnext,
                                       mica_buffer *dx, mica_buffer *dweight, mica_buffer *dbias,
                                       mica_buffer *dstate);

#ifdef __cplusplus
}
#endif
#endif
