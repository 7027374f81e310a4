/*
 * conform_run.c - runs one case in one mode and looks at every byte that came back.
 */
#include "conform/conform.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"

const char *conform_mode_name(conform_mode mode)
{
    static const char *const names[] = {"direct", "replay", "fused"};

    return names[mode];
}

static bool say_status(const char *what, mica_status status, char *why)
{
    snprintf(why, CONFORM_TEXT, "%s: %s: %s", what, mica_status_name(status), mica_status_message());
    return false;
}

/* Is `got` near enough to `want`? Infinities and NaN must be met as such. */
static bool near(const conform_case *c, mica_dtype dtype, double got, double want, double error)
{
    double rounded = oracle_round(dtype, want), room;

    if (isnan(want) || isinf(want) || error < 0)
        return isnan(want) ? isnan(got) != 0 : got == rounded;
    room = c->row->factor * ORACLE_F32_EPS * error;
    room += oracle_store_eps(dtype) * (fabs(want) + room) + oracle_store_tiny(dtype) + 1e-35;
    return fabs(got - want) <= room || got == rounded;
}

static bool is_right(const conform_case *c, mica_dtype dtype, double got, uint64_t i)
{
    return near(c, dtype, got, c->expected[i], c->error[i]) ||
           (c->other != NULL && near(c, dtype, got, c->other[i], c->other_error[i]));
}

/* The worst element, or UINT64_MAX when all are right. */
static uint64_t worst(const conform_case *c, mica_dtype dtype, const double *got, uint64_t count)
{
    uint64_t found = UINT64_MAX;
    double far = -1;

    for (uint64_t i = 0; i < count; i++) {
        double distance = fabs(got[i] - c->expected[i]);

        if (is_right(c, dtype, got[i], i) || (found != UINT64_MAX && !(distance > far)))
            continue;
        found = i;
        far = distance;
    }
    return found;
}

static bool check_numbers(conform_case *c, char *why)
{
    const test_tensor *output = conform_tensor(c, c->output);
    double *got = test_tensor_values(output, true);
    uint64_t bad = worst(c, output->dtype, got, output->count);

    if (bad != UINT64_MAX)
        snprintf(why, CONFORM_TEXT,
                 "element %llu is %.9g, the oracle says %.9g, off by %.3g, allowed %.3g (%s)",
                 (unsigned long long)bad, got[bad], c->expected[bad], fabs(got[bad] - c->expected[bad]),
                 c->row->factor * ORACLE_F32_EPS * c->error[bad], c->row->reason);
    free(got);
    return bad == UINT64_MAX;
}

static bool check_bits(conform_case *c, char *why)
{
    const test_tensor *x = conform_tensor(c, c->bits_of), *y = conform_tensor(c, c->output);
    size_t unit = oracle_block_bytes(x->dtype);

    if (oracle_is_block(x->dtype)) {
        if (memcmp(x->image + x->offset, y->after + y->offset, oracle_row_bytes(x->dtype, x->count)) == 0)
            return true;
        snprintf(why, CONFORM_TEXT, "the blocks differ from operand %u", c->bits_of);
        return false;
    }
    for (uint64_t i = 0; i < y->count; i++) {
        uint64_t from = conform_broadcast_place(x, y, i);

        if (memcmp(x->image + test_tensor_place(x, from), y->after + test_tensor_place(y, i), unit) == 0)
            continue;
        snprintf(why, CONFORM_TEXT, "element %llu differs in its bits from operand %u", (unsigned long long)i,
                 c->bits_of);
        return false;
    }
    return true;
}

/* Fetches all operands; inputs must be as they were, outputs right, nothing around them touched. */
static bool check(conform_case *c, mica_status got, char *why)
{
    if (got != c->wanted) {
        snprintf(why, CONFORM_TEXT, "ended with %s (%s), expected %s", mica_status_name(got),
                 got == MICA_OK ? "" : mica_status_message(), mica_status_name(c->wanted));
        return false;
    }
    for (uint32_t i = 0; i < c->operand_count; i++) {
        conform_operand *operand = &c->operand[i];
        uint64_t stray;
        mica_status status;

        if (!operand->present || operand->shared)
            continue;
        status = test_tensor_fetch(&operand->tensor);
        if (status != MICA_OK)
            return say_status("reading back", status, why);
        stray = test_tensor_stray(&operand->tensor, operand->written);
        if (stray != UINT64_MAX) {
            snprintf(
                why, CONFORM_TEXT, "byte %llu of the allocation of %s was changed (its view begins at %llu)",
                (unsigned long long)stray, operand->tensor.name, (unsigned long long)operand->tensor.offset);
            return false;
        }
    }
    return c->bits_of == UINT32_MAX ? check_numbers(c, why) : check_bits(c, why);
}

static mica_status restore(conform_case *c)
{
    for (uint32_t i = 0; i < c->operand_count; i++) {
        mica_status status = MICA_OK;

        if (c->operand[i].present && !c->operand[i].shared)
            status = test_tensor_restore(&c->operand[i].tensor);
        if (status != MICA_OK)
            return status;
    }
    return MICA_OK;
}

static bool run_direct(conform_case *c, mica_device *device, char *why)
{
    mica_encoder *encoder = NULL;
    mica_status status = restore(c);
    bool fine = false;

    if (status == MICA_OK)
        status = mica_encoder_begin(device, NULL, &encoder);
    if (status == MICA_OK)
        status = c->row->encode(c, encoder);
    if (status == MICA_OK)
        fine = check(c, mica_encoder_commit_and_wait(encoder), why);
    else
        say_status("encoding", status, why);
    mica_encoder_release(encoder);
    return fine;
}

static bool run_recorded(conform_case *c, mica_device *device, uint32_t flags, char *why)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_status status = mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session);
    bool fine = true;

    if (status == MICA_OK)
        status = c->row->encode(c, mica_session_encoder(session));
    if (status == MICA_OK)
        status = mica_session_record(session, flags, NULL, &recording);
    mica_session_release(session);
    for (int turn = 0; turn < 2 && fine && status == MICA_OK; turn++) {
        status = restore(c);
        if (status == MICA_OK)
            fine = check(c, mica_recording_replay_and_wait(recording), why);
    }
    mica_recording_release(recording);
    return status == MICA_OK ? fine : say_status("recording", status, why);
}

bool conform_case_run(conform_case *c, mica_device *device, conform_mode mode, char *why)
{
    if (mode == CONFORM_DIRECT)
        return run_direct(c, device, why);
    return run_recorded(c, device, mode == CONFORM_FUSED ? MICA_FINISH_FUSE | MICA_FINISH_REORDER : 0, why);
}
