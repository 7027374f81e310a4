/*
 * calibrate.c - what a device reaches: short recordings of one op each, replayed, of whose times the median counts.
 *
 * A recording has so many equal records that starting it is no part of its time; each writes where the one before wrote, so they run one behind another.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/work.h"
#include "graph/cost/cost.h"
#include "mica/ops.h"
#include "mica/session.h"

#define ELEMENTS ((uint64_t)1 << 23)   /* of the vectors: larger than caches */
#define WIDTH 1024u                    /* of a row that is summed */
#define SENT_BYTES ((uint64_t)1 << 24) /* of the host's memory */
#define FIGURE_NS 150000000u           /* after which a figure takes what it has */
#define LEAST_NS 500000.0              /* of a recording, and as many round trips: */
#define ROUNDTRIPS 20.0

enum { RUNS = 7, SMALL_RUNS = 31, MOST_RECORDS = 512, BUFFERS = 6 };

/* Operands of what is measured; released behind it. */
typedef struct bench {
    mica_device *device;
    mica_buffer *buffer[BUFFERS];
    double roundtrip;
} bench;

typedef mica_status (*task)(const bench *b, mica_encoder *encoder);

static mica_status make(bench *b, uint32_t at, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    return mica_buffer_alloc(b->device, dtype, ndim, shape, &b->buffer[at]);
}

static void clean(bench *b)
{
    for (int i = 0; i < BUFFERS; i++) {
        mica_buffer_release(b->buffer[i]);
        b->buffer[i] = NULL;
    }
}

/* Sorts them. */
static double median(double *times, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = i; j > 0 && times[j] < times[j - 1]; j--) {
            const double time = times[j];
            times[j] = times[j - 1];
            times[j - 1] = time;
        }
    return times[count / 2];
}

/* ---- time of records ---- */

static mica_status record(const bench *b, task encode, uint32_t count, mica_recording **out)
{
    mica_session *session = NULL;
    MICA__TRY(mica_session_begin(b->device, NULL, MICA_SESSION_RECORD, &session));
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < count && status == MICA_OK; i++)
        status = encode(b, mica_session_encoder(session));
    if (status == MICA_OK)
        status = mica_session_record(session, 0, NULL, out);
    mica_session_release(session);
    return status;
}

/* The median time of replays of `count` records, which run once before; fewer where they are slow. */
static mica_status replay_time(const bench *b, task encode, uint32_t count, uint32_t runs, double *out_ns)
{
    double times[SMALL_RUNS];
    mica_recording *recording = NULL;
    MICA__TRY(record(b, encode, count, &recording));
    mica_status status = mica_recording_replay_and_wait(recording);
    const uint64_t begin = mica__clock_ns();
    uint32_t done = 0;
    while (status == MICA_OK && done < runs && (done == 0 || mica__clock_ns() - begin < FIGURE_NS)) {
        const uint64_t start = mica__clock_ns();
        status = mica_recording_replay_and_wait(recording);
        times[done++] = (double)(mica__clock_ns() - start);
        if (status == MICA_OK)
            status = mica__spend(1);
    }
    mica_recording_release(recording);
    *out_ns = status == MICA_OK ? fmax(median(times, done), 1) : 0;
    return status;
}

/* Of one record among as many as it takes. */
static mica_status record_time(const bench *b, task encode, double *out_ns)
{
    const double wanted = fmax(LEAST_NS, ROUNDTRIPS * b->roundtrip);
    for (uint32_t count = 1;;) {
        double ns = 0;
        MICA__TRY(replay_time(b, encode, count, RUNS, &ns));
        *out_ns = ns / count;
        if (ns >= wanted || count == MOST_RECORDS)
            return MICA_OK;
        const double more = ceil(1.25 * wanted / *out_ns);
        count = more < 2.0 * count ? 2 * count : more < MOST_RECORDS ? (uint32_t)more : MOST_RECORDS;
        count = count < MOST_RECORDS ? count : MOST_RECORDS;
    }
}

/* ---- what is measured ---- */

static mica_status encode_negative(const bench *b, mica_encoder *encoder)
{
    return mica_neg(encoder, b->buffer[0], b->buffer[1]);
}

static mica_status encode_sum(const bench *b, mica_encoder *encoder)
{
    const mica_reduce_params last = {.kind = MICA_REDUCE_SUM, .axes = 1u};
    return mica_reduce(encoder, b->buffer[2], &last, b->buffer[3]);
}

static mica_status encode_product(const bench *b, mica_encoder *encoder)
{
    return mica_product(encoder, b->buffer[0], b->buffer[1], NULL, b->buffer[2]);
}

static mica_status encode_attention(const bench *b, mica_encoder *encoder)
{
    const mica_attention_operands operands = {.q = b->buffer[0],
                                              .k = b->buffer[1],
                                              .v = b->buffer[2],
                                              .positions = b->buffer[3],
                                              .lengths = b->buffer[4]};
    const mica_attention_params params = {.bidirectional = 1};
    return mica_attention(encoder, &operands, &params, b->buffer[5]);
}

static mica_status measure_starts(bench *b, mica_calibration *out)
{
    enum { CHAIN = 257 };
    double chain = 0;
    mica_status status = make(b, 0, MICA_DTYPE_F32, 1, (const uint64_t[]){64});
    if (status == MICA_OK)
        status = make(b, 1, MICA_DTYPE_F32, 1, (const uint64_t[]){64});
    if (status == MICA_OK)
        status = replay_time(b, encode_negative, 1, SMALL_RUNS, &out->roundtrip);
    if (status == MICA_OK)
        status = replay_time(b, encode_negative, CHAIN, RUNS, &chain);
    clean(b);
    b->roundtrip = out->roundtrip;
    out->launch = fmax((chain - out->roundtrip) / (CHAIN - 1), 0);
    return status;
}

static mica_status measure_memory(bench *b, mica_calibration *out)
{
    double each = 1;
    const uint64_t rows[] = {ELEMENTS / WIDTH, WIDTH};
    mica_status status = make(b, 0, MICA_DTYPE_F32, 1, (const uint64_t[]){ELEMENTS});
    if (status == MICA_OK)
        status = make(b, 1, MICA_DTYPE_F32, 1, (const uint64_t[]){ELEMENTS});
    if (status == MICA_OK)
        status = record_time(b, encode_negative, &each);
    out->memory = 2.0 * 4 * ELEMENTS / each;
    if (status == MICA_OK)
        status = mica_buffer_reshape(b->buffer[0], 2, rows, &b->buffer[2]);
    if (status == MICA_OK)
        status = make(b, 3, MICA_DTYPE_F32, 1, rows);
    if (status == MICA_OK)
        status = record_time(b, encode_sum, &each);
    out->reduce = 4.0 * ELEMENTS / each;
    clean(b);
    return status;
}

static mica_status measure_product(bench *b, const uint64_t m, const uint64_t k, const uint64_t n,
                                   double *out_rate, double launch)
{
    double each = 1;
    mica_status status = make(b, 0, MICA_DTYPE_F32, 2, (const uint64_t[]){m, k});
    if (status == MICA_OK)
        status = make(b, 1, MICA_DTYPE_F32, 2, (const uint64_t[]){k, n});
    if (status == MICA_OK)
        status = make(b, 2, MICA_DTYPE_F32, 2, (const uint64_t[]){m, n});
    if (status == MICA_OK)
        status = record_time(b, encode_product, &each);
    clean(b);
    *out_rate = 2.0 * (double)(m * k * n) / fmax(each - launch, each / 2); /* its start is counted apart */
    return status;
}

static mica_status measure_attention(bench *b, mica_calibration *out)
{
    enum { TOKENS = 128, HEADS = 4, DIM = 64 };
    const uint64_t shape[] = {TOKENS, HEADS, DIM};
    uint32_t positions[TOKENS], length = TOKENS;
    double each = 1;
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < TOKENS; i++)
        positions[i] = i;
    for (uint32_t i = 0; i < BUFFERS && status == MICA_OK; i++)
        if (i != 3 && i != 4)
            status = make(b, i, MICA_DTYPE_F32, 3, shape);
    if (status == MICA_OK)
        status = make(b, 3, MICA_DTYPE_U32, 1, shape);
    if (status == MICA_OK)
        status = make(b, 4, MICA_DTYPE_U32, 1, (const uint64_t[]){1});
    if (status == MICA_OK)
        status = mica_buffer_write(b->buffer[3], 0, positions, sizeof positions);
    if (status == MICA_OK)
        status = mica_buffer_write(b->buffer[4], 0, &length, sizeof length);
    if (status == MICA_OK)
        status = record_time(b, encode_attention, &each);
    clean(b);
    out->attention = 4.0 * HEADS * TOKENS * TOKENS * DIM / fmax(each - out->launch, each / 2);
    return status;
}

static mica_status measure_transfer(bench *b, mica_calibration *out)
{
    double times[RUNS] = {1};
    uint32_t done = 0;
    void *host = mica__calloc(1, SENT_BYTES);
    mica_status status = host != NULL ? make(b, 0, MICA_DTYPE_U8, 1, (const uint64_t[]){SENT_BYTES})
                                      : mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory to send");
    if (status == MICA_OK) /* memory that nobody wrote yet is slower */
        memset(host, 1, SENT_BYTES);
    if (status == MICA_OK)
        status = mica_buffer_write(b->buffer[0], 0, host, SENT_BYTES);
    const uint64_t begin = mica__clock_ns();
    while (status == MICA_OK && done < RUNS && (done == 0 || mica__clock_ns() - begin < FIGURE_NS)) {
        const uint64_t start = mica__clock_ns();
        status = mica_buffer_write(b->buffer[0], 0, host, SENT_BYTES);
        times[done++] = fmax((double)(mica__clock_ns() - start), 1);
        if (status == MICA_OK)
            status = mica__spend(1);
    }
    clean(b);
    mica__free(host);
    out->transfer = (double)SENT_BYTES / median(times, done == 0 ? 1 : done);
    return status;
}

/* ---- calls ---- */

mica_status mica__calibration_identify(mica_device *device, mica_calibration *out)
{
    mica_device_properties properties;
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device is NULL");
    MICA__TRY(mica_device_get_properties(device, &properties));
    if (strcmp(properties.backend, "null") == 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "device %s computes nothing that could be measured",
                          properties.id);
    memset(out, 0, sizeof *out);
    memcpy(out->device, properties.name, sizeof out->device);
    memcpy(out->driver, properties.driver, sizeof out->driver);
    out->processors = properties.threads > 0 ? properties.threads : properties.processors;
    return MICA_OK;
}

static mica_status calibrate(mica_device *device, mica_calibration *out)
{
    bench b = {.device = device};
    MICA__TRY(mica__calibration_identify(device, out));
    MICA__TRY(mica__spend(1)); /* CANCELLED before anything is made */
    MICA__TRY(measure_starts(&b, out));
    MICA__TRY(measure_product(&b, 8, 64, 64, &out->matmul_small, out->launch));
    MICA__TRY(measure_product(&b, 256, 768, 3072, &out->matmul_large, out->launch));
    MICA__TRY(measure_attention(&b, out));
    MICA__TRY(measure_memory(&b, out));
    return measure_transfer(&b, out);
}

mica_status mica_device_calibrate(mica_device *device, mica_calibration *out)
{
    mica__call call;
    if (out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_calibrate: out is NULL");
    mica__call_begin(&call, "device_calibrate");
    const mica_status status = calibrate(device, out);
    if (status != MICA_OK)
        memset(out, 0, sizeof *out);
    return mica__call_end(&call, status);
}

static mica_status calibration(mica_device *device, uint32_t flags, mica_calibration *out)
{
    MICA__TRY(mica__calibration_identify(device, out));
    if ((flags & MICA_CALIBRATION_ANEW) == 0 && mica__calibration_load(out))
        return MICA_OK;
    if ((flags & MICA_CALIBRATION_KEPT) != 0)
        return mica__fail(MICA_ERR_NOT_FOUND, "no figures are kept of %s", out->device);
    MICA__TRY(calibrate(device, out));
    mica__calibration_store(out);
    return MICA_OK;
}

mica_status mica_device_calibration(mica_device *device, uint32_t flags, mica_calibration *out)
{
    mica__call call;
    if (out == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_calibration: out is NULL");
    if (flags > MICA_CALIBRATION_KEPT)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "device_calibration: flags is %u, not ANEW or KEPT",
                          flags);
    mica__call_begin(&call, "device_calibration");
    const mica_status status = calibration(device, flags, out);
    if (status != MICA_OK)
        memset(out, 0, sizeof *out);
    return mica__call_end(&call, status);
}
