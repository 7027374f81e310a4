/*
 * oracle_recurrent_backward.h - gradients of the ops of oracle_recurrent.h: their formulas on a tape.
 */
#ifndef ORACLE_RECURRENT_BACKWARD_H
#define ORACLE_RECURRENT_BACKWARD_H

#include "oracle/oracle_recurrent.h"

/* What reaches y, and the last states of sequences (NULL: nothing); of `of` no next states are looked at. */
typedef struct oracle_reach {
    const double *dy, *dnext;
} oracle_reach;

/* The gradient of an operand, or of the first state of each sequence: its elements, and how far each may be off, in roundings of the
 * precision that all is computed in (oracle_tape.h); NULL: not wanted. */
typedef struct oracle_gradient {
    double *gradient, *off;
} oracle_gradient;

enum { ORACLE_CONV_X, ORACLE_CONV_WEIGHT, ORACLE_CONV_BIAS, ORACLE_CONV_STATE, ORACLE_CONV_GRADIENTS };
void oracle_ssm_conv_backward(const oracle_sequences *of, const oracle_conv *conv, const oracle_reach *reach,
                              oracle_gradient *to);

enum {
    ORACLE_DELTA_Q,
    ORACLE_DELTA_K,
    ORACLE_DELTA_V,
    ORACLE_DELTA_G,
    ORACLE_DELTA_BETA,
    ORACLE_DELTA_SKIP,
    ORACLE_DELTA_STATE,
    ORACLE_DELTA_GRADIENTS
};
void oracle_delta_net_backward(const oracle_sequences *of, const oracle_delta *delta,
                               const oracle_reach *reach, oracle_gradient *to);

enum {
    ORACLE_SCAN_X,
    ORACLE_SCAN_DT,
    ORACLE_SCAN_A,
    ORACLE_SCAN_B,
    ORACLE_SCAN_C,
    ORACLE_SCAN_SKIP,
    ORACLE_SCAN_DT_BIAS,
    ORACLE_SCAN_Z,
    ORACLE_SCAN_STATE,
    ORACLE_SCAN_GRADIENTS
};
void oracle_selective_scan_backward(const oracle_sequences *of, const oracle_selective *scan,
                                    const oracle_reach *reach, oracle_gradient *to);

enum { ORACLE_RNN_X, ORACLE_RNN_WEIGHT, ORACLE_RNN_BIAS, ORACLE_RNN_STATE, ORACLE_RNN_GRADIENTS };
void oracle_rnn_backward(const oracle_sequences *of, const oracle_rnn *rnn, const oracle_reach *reach,
                         oracle_gradient *to);

#endif
