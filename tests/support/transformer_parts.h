/*
 * transformer_parts.h - what the files of the test transformer share.
 */
#ifndef TEST_SUPPORT_TRANSFORMER_PARTS_H
#define TEST_SUPPORT_TRANSFORMER_PARTS_H

#include "support/random.h"
#include "support/transformer.h"

/* Leaves the function with the status of a call that failed. */
#define TEST_TRY(call)                \
    do {                              \
        mica_status status_ = (call); \
        if (status_ != MICA_OK)       \
            return status_;           \
    } while (0)

enum {
    ATTENTION_NORM,
    Q_WEIGHT,
    K_WEIGHT,
    V_WEIGHT,
    O_WEIGHT,
    FFN_NORM,
    GATE_WEIGHT,
    UP_WEIGHT,
    DOWN_WEIGHT,
    Q_NORM, /* from here on optional */
    K_NORM,
    Q_BIAS,
    K_BIAS,
    V_BIAS,
    LAYER_WEIGHTS
};

typedef struct test_layer {
    mica_buffer *weight[LAYER_WEIGHTS];
} test_layer;

struct test_model {
    mica_device *device;
    test_shape shape;
    test_random random;
    test_layer *layer;
    mica_buffer *embedding, *final_norm, *head;
};

struct test_stream {
    const test_model *model;
    mica_buffer **k, **v;                            /* one cache a layer */
    mica_buffer *pages;                              /* NULL: flat */
    mica_buffer *token, *position, *length, *logits; /* of a decode step */
};

/* Buffers between ops. The three-dimensional ones are views of the two-dimensional ones. */
enum {
    HIDDEN,
    NORMED,
    Q_FLAT,
    K_FLAT,
    V_FLAT,
    MIXED_FLAT,
    GATE,
    UP,
    ADDED,
    FLAT_BUFFERS,
    Q_HEADS = FLAT_BUFFERS,
    K_HEADS,
    V_HEADS,
    MIXED_HEADS,
    PASS_BUFFERS
};

struct test_pass {
    test_stream *stream;
    uint32_t tokens;
    mica_buffer *buffer[PASS_BUFFERS];
    mica_buffer *ids, *positions, *logits, *chosen;
};

#endif
