/*
 * oracle_recurrent.h - ops that carry a state from token to token, in double precision, as oracle_ops.h has the others.
 */
#ifndef ORACLE_RECURRENT_H
#define ORACLE_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>

/* Sequences of a packed batch: indices as numbers, NULL where absent. */
typedef struct oracle_sequences {
    size_t tokens, count;
    size_t state_slots, next_slots;
    const double *starts, *read_slots, *write_slots;
    const double *state;       /* NULL: zeros */
    double *next, *next_error; /* what was there before, then what must be; NULL: not wanted */
} oracle_sequences;

typedef struct oracle_conv {
    size_t channels, width;
    const double *x, *weight, *bias; /* bias may be NULL */
    bool silu;
} oracle_conv;

void oracle_ssm_conv(const oracle_sequences *of, const oracle_conv *conv, double *y, double *error);

typedef struct oracle_delta {
    size_t groups, heads, dim, columns;
    const double *q, *k, *v, *g, *beta, *skip; /* the last three may be NULL */
    bool by_row;                               /* g is [tokens, heads, dim] */
    bool correct, normalise;
    bool tokenwise, chunked; /* how it may have been computed: what rounding may do */
    double eps, scale;
} oracle_delta;

void oracle_delta_net(const oracle_sequences *of, const oracle_delta *delta, double *y, double *error);

typedef struct oracle_selective {
    size_t channels, places, groups;
    const double *x, *dt, *a, *b, *c, *skip, *dt_bias, *z; /* the last three may be NULL */
    bool softplus;
} oracle_selective;

void oracle_selective_scan(const oracle_sequences *of, const oracle_selective *scan, double *y,
                           double *error);

enum { ORACLE_TANH, ORACLE_RELU, ORACLE_GRU, ORACLE_LSTM };

typedef struct oracle_rnn {
    size_t hidden, gates;
    const double *x, *weight, *bias; /* bias may be NULL */
    int kind;
    bool reverse;
} oracle_rnn;

void oracle_rnn_run(const oracle_sequences *of, const oracle_rnn *rnn, double *y, double *error);

#endif
