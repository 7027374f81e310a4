/*
 * rig.h - a device, some buffers and a small pass over them, for the tests of sessions and recordings.
 *
 * The pass is a feed-forward block, written as a model would write it: norm, gate, up, silu_mul, down,
 * residual.
 */
#ifndef TESTS_SESSION_RIG_H
#define TESTS_SESSION_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "mica/mica.h"

#define RIG_ROWS 3
#define RIG_DIM 17
#define RIG_HIDDEN 23

#define ok(call)                                                                             \
    do {                                                                                     \
        mica_status status_ = (call);                                                        \
        if (status_ != MICA_OK)                                                              \
            fail_msg("%s: %s: %s", #call, mica_status_name(status_), mica_status_message()); \
    } while (0)

/* The call fails with that code and a sentence that names the word. */
#define refused(call, code, word)                                                            \
    do {                                                                                     \
        mica_status status_ = (call);                                                        \
        if (status_ != (code) || strstr(mica_status_message(), (word)) == NULL)              \
            fail_msg("%s: %s: %s", #call, mica_status_name(status_), mica_status_message()); \
    } while (0)

typedef struct rig {
    mica_device *device;
    mica_buffer *x, *y, *gain, *gate, *up, *down, *counter; /* y = x + ffn(norm(x)), counter += 1 */
} rig;

static inline mica_buffer *rig_buffer(mica_device *device, mica_dtype dtype, uint64_t rows, uint64_t columns,
                                      uint32_t seed)
{
    uint64_t shape[2] = {rows, columns};
    mica_buffer *buffer = NULL;
    void *data = NULL;
    ok(mica_buffer_alloc(device, dtype, 2, shape, &buffer));
    if (seed == 0)
        return buffer;
    ok(mica_buffer_map(buffer, MICA_ACCESS_WRITE, &data));
    for (uint64_t i = 0; i < rows * columns; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)data)[i] = ((float)(seed >> 8) / 16777216.0f - 0.5f) * 2.0f;
    }
    ok(mica_buffer_unmap(buffer));
    return buffer;
}

static inline void rig_open(rig *r, const char *id)
{
    memset(r, 0, sizeof *r);
    ok(mica_device_open(id, NULL, &r->device));
    r->x = rig_buffer(r->device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 1);
    r->y = rig_buffer(r->device, MICA_DTYPE_F32, RIG_ROWS, RIG_DIM, 0);
    r->gain = rig_buffer(r->device, MICA_DTYPE_F32, 1, RIG_DIM, 2);
    r->gate = rig_buffer(r->device, MICA_DTYPE_F32, RIG_HIDDEN, RIG_DIM, 3);
    r->up = rig_buffer(r->device, MICA_DTYPE_F32, RIG_HIDDEN, RIG_DIM, 4);
    r->down = rig_buffer(r->device, MICA_DTYPE_F32, RIG_DIM, RIG_HIDDEN, 5);
    r->counter = rig_buffer(r->device, MICA_DTYPE_U32, 1, 1, 0);
}

static inline void rig_close(rig *r)
{
    mica_buffer *all[] = {r->x, r->y, r->gain, r->gate, r->up, r->down, r->counter};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mica_buffer_release(all[i]);
    mica_device_release(r->device);
}

/* Encodes the pass into the session; the first failure, so that it can be used where allocations fail. */
static inline mica_status rig_encode(rig *r, mica_session *session)
{
    static const uint64_t narrow[2] = {RIG_ROWS, RIG_DIM}, wide[2] = {RIG_ROWS, RIG_HIDDEN};
    mica_buffer *t[5] = {NULL}, *gain = NULL;
    mica_encoder *e = mica_session_encoder(session);
    uint64_t vector = RIG_DIM;
    mica_status status = mica_buffer_reshape(r->gain, 1, &vector, &gain);
    for (int i = 0; i < 5 && status == MICA_OK; i++)
        status = mica_session_temp(session, MICA_DTYPE_F32, 2, i == 0 || i == 4 ? narrow : wide, &t[i]);
    if (status == MICA_OK)
        status = mica_encoder_label_push(e, "ffn");
    if (status == MICA_OK)
        status = mica_rms_norm(e, r->x, gain, 1e-5f, t[0]);
    if (status == MICA_OK)
        status = mica_matmul(e, t[0], r->gate, NULL, t[1]);
    if (status == MICA_OK)
        status = mica_matmul(e, t[0], r->up, NULL, t[2]);
    if (status == MICA_OK)
        status = mica_silu_mul(e, t[1], t[2], t[3]);
    if (status == MICA_OK)
        status = mica_matmul(e, t[3], r->down, NULL, t[4]);
    if (status == MICA_OK)
        status = mica_add(e, r->x, t[4], r->y);
    if (status == MICA_OK)
        status = mica_encoder_label_pop(e);
    if (status == MICA_OK)
        status = mica_advance(e, 1, r->counter);
    for (int i = 0; i < 5; i++)
        mica_buffer_release(t[i]);
    mica_buffer_release(gain);
    return status;
}

#define RIG_RECORDS 7 /* as encoded: norm, gate, up, silu_mul, down, add, advance */
#define RIG_FUSED 3   /* norm+gate+up, down+add, advance */

static inline mica_session *rig_session(rig *r, uint32_t flags)
{
    mica_session *session = NULL;
    ok(mica_session_begin(r->device, NULL, flags, &session));
    ok(rig_encode(r, session));
    return session;
}

static inline mica_recording *rig_record(rig *r, uint32_t flags, mica_session_stats *out_stats)
{
    mica_recording *recording = NULL;
    mica_session *session = rig_session(r, MICA_SESSION_RECORD);
    ok(mica_session_record(session, flags, out_stats, &recording));
    mica_session_release(session);
    return recording;
}

typedef struct rig_result {
    float y[RIG_ROWS * RIG_DIM];
    uint32_t counter;
} rig_result;

/* Takes the results out and poisons them for the next run. */
static inline void rig_take(rig *r, mica_buffer *y, rig_result *out)
{
    static const rig_result poison = {.y = {-1}, .counter = 0};
    ok(mica_buffer_read(y, 0, out->y, sizeof out->y));
    ok(mica_buffer_read(r->counter, 0, &out->counter, sizeof out->counter));
    ok(mica_buffer_write(y, 0, poison.y, sizeof poison.y));
    ok(mica_buffer_write(r->counter, 0, &poison.counter, sizeof poison.counter));
}

#endif
