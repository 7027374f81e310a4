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

/* What must come out of one output, and what is right as well (NULL: nothing). */
typedef struct wanted_numbers {
    const test_tensor *output;
    const double *expected, *error, *other, *other_error;
} wanted_numbers;

static bool is_right(const conform_case *c, const wanted_numbers *w, double got, uint64_t i)
{
    const mica_dtype dtype = w->output->dtype;

    return near(c, dtype, got, w->expected[i], w->error[i]) ||
           (w->other != NULL && near(c, dtype, got, w->other[i], w->other_error[i]));
}

/* The worst element, or UINT64_MAX when all are right. */
static uint64_t worst(const conform_case *c, const wanted_numbers *w, const double *got)
{
    uint64_t found = UINT64_MAX;
    double far = -1;

    for (uint64_t i = 0; i < w->output->count; i++) {
        double distance = fabs(got[i] - w->expected[i]);

        if (is_right(c, w, got[i], i) || (found != UINT64_MAX && !(distance > far)))
            continue;
        found = i;
        far = distance;
    }
    return found;
}

static bool check_output(conform_case *c, const wanted_numbers *w, char *why)
{
    double *got = test_tensor_values(w->output, true);
    uint64_t bad = worst(c, w, got);

    if (bad != UINT64_MAX)
        snprintf(why, CONFORM_TEXT,
                 "element %llu of %s is %.9g, the oracle says %.9g, off by %.3g, allowed %.3g (%s)",
                 (unsigned long long)bad, w->output->name, got[bad], w->expected[bad],
                 fabs(got[bad] - w->expected[bad]), c->row->factor * ORACLE_F32_EPS * w->error[bad],
                 c->row->reason);
    free(got);
    return bad == UINT64_MAX;
}

static bool check_numbers(conform_case *c, char *why)
{
    const wanted_numbers w = {conform_tensor(c, c->output), c->expected, c->error, c->other, c->other_error};

    if (!check_output(c, &w, why))
        return false;
    for (uint32_t i = 0; i < c->operand_count; i++) {
        const conform_operand *operand = &c->operand[i];
        const wanted_numbers also = {&operand->tensor, operand->expected, operand->error, NULL, NULL};

        if (operand->expected != NULL && !check_output(c, &also, why))
            return false;
    }
    return true;
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

/* Whether a written operand came out bit for bit, its surroundings included, as once when all was found right. Most runs of a case
 * do, and looking at the bytes one by one takes longer than running the op. */
static bool is_known(const conform_operand *operand)
{
    return operand->right && memcmp(operand->right, operand->tensor.after, operand->tensor.bytes) == 0;
}

static void remember(conform_operand *operand)
{
    if (!operand->right)
        operand->right = test_alloc(operand->tensor.bytes, 1);
    memcpy(operand->right, operand->tensor.after, operand->tensor.bytes);
}

/* Fetches an operand; an input must be as it was, and nothing around an output touched. */
static bool check_operand(conform_operand *operand, bool *known, char *why)
{
    const mica_status status = test_tensor_fetch(&operand->tensor);
    uint64_t stray;

    if (status != MICA_OK)
        return say_status("reading back", status, why);
    if (operand->written && is_known(operand))
        return true;
    *known = *known && !operand->written;
    stray = test_tensor_stray(&operand->tensor, operand->written);
    if (stray == UINT64_MAX)
        return true;
    snprintf(why, CONFORM_TEXT, "byte %llu of the allocation of %s was changed (its view begins at %llu)",
             (unsigned long long)stray, operand->tensor.name, (unsigned long long)operand->tensor.offset);
    return false;
}

/* Everything that came back: the status, all operands, the numbers of the output. */
static bool check(conform_case *c, mica_status got, char *why)
{
    bool known = true;

    if (got != c->wanted) {
        snprintf(why, CONFORM_TEXT, "ended with %s (%s), expected %s", mica_status_name(got),
                 got == MICA_OK ? "" : mica_status_message(), mica_status_name(c->wanted));
        return false;
    }
    for (uint32_t i = 0; i < c->operand_count; i++)
        if (c->operand[i].present && !c->operand[i].shared && !check_operand(&c->operand[i], &known, why))
            return false;
    if (!known && c->row->judge != NULL && !c->row->judge(c, why))
        return false;
    if (!known && c->row->judge == NULL &&
        !(c->bits_of == UINT32_MAX ? check_numbers(c, why) : check_bits(c, why)))
        return false;
    for (uint32_t i = 0; !known && i < c->operand_count; i++)
        if (c->operand[i].present && !c->operand[i].shared && c->operand[i].written)
            remember(&c->operand[i]);
    return true;
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
    for (int trial = 0; trial < 2 && fine && status == MICA_OK; trial++) {
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
