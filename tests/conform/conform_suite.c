/*
 * conform_suite.c - the loops over devices, modes and seeds.
 */
#include "conform/conform_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/op_table.h"
#include "support/sanitizer.h"

const char *const conform_isa_names[CONFORM_ISAS] = {"portable", "avx2", "avx512"};

/* A device that chooses neither threads nor instruction set has one form. */
mica_status conform_suite_open(conform_suite *suite, const char *id)
{
    memset(suite, 0, sizeof *suite);
    suite->id = id;
    if (strcmp(id, "cpu") != 0)
        return mica_device_open(id, NULL, &suite->device[0][0]);
    for (uint32_t isa = 0; isa < CONFORM_ISAS; isa++) {
        for (uint32_t threads = 1; threads <= CONFORM_THREADS; threads++) {
            mica_device_options options = {.size = sizeof options, .threads = threads};
            mica_status status;

            snprintf(options.isa, sizeof options.isa, "%s", conform_isa_names[isa]);
            status = mica_device_open(id, &options, &suite->device[isa][threads - 1]);
            if (status == MICA_ERR_UNSUPPORTED && isa > 0) {
                printf("# %s skipped: %s\n", conform_isa_names[isa], mica_status_message());
                break;
            }
            if (status != MICA_OK)
                return status;
        }
    }
    return MICA_OK;
}

void conform_suite_close(conform_suite *suite)
{
    for (uint32_t i = 0; i < CONFORM_ISAS * CONFORM_THREADS; i++)
        mica_device_release(suite->device[i / CONFORM_THREADS][i % CONFORM_THREADS]);
    memset(suite, 0, sizeof *suite);
}

uint32_t conform_suite_widest(const conform_suite *suite)
{
    uint32_t isa = CONFORM_ISAS - 1;

    while (isa > 0 && !suite->device[isa][0])
        isa--;
    return isa;
}

bool conform_suite_runs(const conform_suite *suite, uint32_t isa)
{
    return suite->device[isa][0] && (!TEST_THREAD_SANITIZER || isa == conform_suite_widest(suite));
}

/* What came back first on this instruction set, of each operand that is written. */
typedef struct first_bits {
    uint8_t *of[CONFORM_OPERANDS];
} first_bits;

static bool same_bits(const conform_case *c, first_bits *first, char *why)
{
    for (uint32_t i = 0; i < c->operand_count; i++) {
        const conform_operand *operand = &c->operand[i];
        const test_tensor *output = &operand->tensor;

        if (!operand->present || !operand->written || operand->shared)
            continue;
        if (!first->of[i]) {
            first->of[i] = test_alloc(output->bytes, 1);
            memcpy(first->of[i], output->after, output->bytes);
        }
        if (memcmp(first->of[i], output->after, output->bytes) == 0)
            continue;
        snprintf(why, CONFORM_TEXT,
                 "other bits of %s than the same device gave before: on the fewest threads, direct",
                 output->name);
        return false;
    }
    return true;
}

/* All modes on one device. */
static bool run_modes(conform_case *c, mica_device *device, first_bits *first, char *why, conform_mode *mode)
{
    bool fine = true;
    mica_status status = conform_case_upload(c, device);

    *mode = CONFORM_DIRECT;
    if (status != MICA_OK) {
        snprintf(why, CONFORM_TEXT, "upload: %s: %s", mica_status_name(status), mica_status_message());
        fine = false;
    }
    for (uint32_t m = 0; fine && m < CONFORM_MODES; m++) {
        *mode = (conform_mode)m;
        fine = conform_case_run(c, device, *mode, why) && same_bits(c, first, why);
    }
    conform_case_unload(c);
    return fine;
}

static void report(const conform_suite *suite, const conform_case *c, uint64_t seed, uint32_t isa,
                   uint32_t threads, conform_mode mode, char *why)
{
    char what[CONFORM_TEXT], text[CONFORM_TEXT], form[64] = "";

    if (strcmp(suite->id, "cpu") == 0)
        snprintf(form, sizeof form, ", %s, %u threads", conform_isa_names[isa], threads + 1);
    conform_case_describe(c, what, sizeof what);
    snprintf(text, sizeof text, "%.500s\n  %s%s, %s; seed %llu of '%s'\n  %.400s", why, suite->id, form,
             conform_mode_name(mode), (unsigned long long)seed, c->row->name, what);
    memcpy(why, text, sizeof text);
}

/* Sanitizers look at two threads where there are forms with more than one: one has nothing that the thread sanitizer could see, more
 * than a small machine has cores wait for each other most of the time, and memory is touched in the same units by all. */
static bool worth_a_run(const conform_suite *suite, uint32_t isa, uint32_t threads)
{
    return !TEST_ANY_SANITIZER || threads == (suite->device[isa][1] ? 1 : 0);
}

static bool refuses(conform_case *c, mica_device *device, char *why)
{
    mica_encoder *encoder = NULL;
    mica_status status = conform_case_upload(c, device);

    if (status == MICA_OK)
        status = mica_encoder_begin(device, NULL, &encoder);
    if (status == MICA_OK)
        status = c->row->encode(c, encoder);
    const bool fine =
        status == MICA_ERR_UNSUPPORTED && strstr(mica_status_message(), mica_op_name(c->row->op)) != NULL;
    if (!fine)
        snprintf(why, CONFORM_TEXT, "%s instead of a refusal by name: %s", mica_status_name(status),
                 mica_status_message());
    mica_encoder_release(encoder);
    conform_case_unload(c);
    return fine;
}

bool conform_suite_case(const conform_suite *suite, const conform_row *row, uint64_t seed, char *why)
{
    conform_case c;
    bool fine = true;

    conform_case_make(&c, row, seed, false);
    if (conform_kernels && mica__ops[row->op].needs == MICA_NEEDS_CPU) { /* others refuse it by name */
        fine = refuses(&c, suite->device[0][0], why);
        conform_case_free(&c);
        return fine;
    }
    conform_case_expect(&c);
    for (uint32_t isa = 0; fine && isa < CONFORM_ISAS; isa++) {
        first_bits first = {{NULL}};

        for (uint32_t threads = 0; fine && threads < CONFORM_THREADS; threads++) {
            conform_mode mode;

            if (!suite->device[isa][threads] || !conform_suite_runs(suite, isa) ||
                !worth_a_run(suite, isa, threads))
                continue;
            fine = run_modes(&c, suite->device[isa][threads], &first, why, &mode);
            if (!fine)
                report(suite, &c, seed, isa, threads, mode, why);
        }
        for (uint32_t i = 0; i < CONFORM_OPERANDS; i++)
            free(first.of[i]);
    }
    conform_case_free(&c);
    return fine;
}

bool conform_suite_row(const conform_suite *suite, const conform_row *row, uint64_t seed, uint32_t count,
                       char *why)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!conform_suite_case(suite, row, seed + i, why))
            return false;
    }
    return true;
}
