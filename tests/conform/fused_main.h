/*
 * fused_main.h - a cmocka program that compares records which a device may join with the same ops one after the other, over
 * random cases on one device: the first argument, else the cpu.
 */
#ifndef FUSED_MAIN_H
#define FUSED_MAIN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/random.h"
#include "support/sanitizer.h"
#include "support/status.h"
#include "support/tensor.h"

#define FUSED_CASES (TEST_ANY_SANITIZER ? 20u : 120u)

/* Draws case `number`, fails the test where bits differ, and says whether the ops became one record. */
typedef bool (*fused_case)(mica_device *device, test_random *random, uint32_t number);

/* cmocka hands a test one pointer that is no function: the program stands here. */
static struct {
    fused_case compare;
    uint64_t seed;
    const char *device_id;
} fused_running = {.device_id = "cpu"};

/* A case: ops that may become the record `joined`, and which of their tensors they write. */
typedef struct fused_job {
    const char *joined;
    void (*encode)(mica_session *session, void *drawn);
    void *drawn;
    test_tensor *tensor; /* on the device */
    const uint32_t *results;
    uint32_t result_count; /* at most FUSED_RESULTS */
} fused_job;

enum { FUSED_RESULTS = 4 };

/* Runs it; gives the status of the work and, in `*out_fused`, whether one record does it all. */
static mica_status fused_run(mica_device *device, const fused_job *job, bool fuse, bool *out_fused)
{
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    mica_fence *fence = NULL;
    for (uint32_t i = 0; i < job->result_count; i++)
        must(test_tensor_restore(&job->tensor[job->results[i]]));
    must(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session));
    job->encode(session, job->drawn);
    must(mica_session_record(session, fuse ? MICA_FINISH_ALL : 0, NULL, &recording));
    *out_fused = false;
    for (uint32_t i = 0; i < mica_recording_count(recording); i++) {
        mica_record_info info;
        must(mica_recording_inspect(recording, i, &info));
        *out_fused = *out_fused || strcmp(info.fused, job->joined) == 0;
    }
    must(mica_recording_replay(recording, &fence));
    const mica_status status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
    mica_fence_release(fence);
    mica_recording_release(recording);
    mica_session_release(session);
    for (uint32_t i = 0; i < job->result_count; i++)
        must(test_tensor_fetch(&job->tensor[job->results[i]]));
    return status;
}

/* Both ways: the same bits, and nothing written beside them. Whether the ops became one record. */
static bool fused_compare(mica_device *device, const fused_job *job, uint32_t number)
{
    uint8_t *kept[FUSED_RESULTS];
    bool fused = false;
    const mica_status apart = fused_run(device, job, false, &fused);
    assert_false(fused);
    for (uint32_t i = 0; i < job->result_count; i++) {
        const test_tensor *result = &job->tensor[job->results[i]];
        kept[i] = test_alloc(result->bytes, 1);
        memcpy(kept[i], result->after, result->bytes);
    }
    assert_int_equal(fused_run(device, job, true, &fused), apart);
    for (uint32_t i = 0; i < job->result_count; i++) {
        const test_tensor *result = &job->tensor[job->results[i]];
        assert_int_equal(test_tensor_stray(result, true), UINT64_MAX);
        if (memcmp(kept[i], result->after, result->bytes) != 0)
            fail_msg("case %u: %s differs%s", number, result->name, fused ? ", fused" : "");
        free(kept[i]);
    }
    return fused;
}

static void same_bits(void **state)
{
    test_random random = test_random_from(fused_running.seed);
    mica_device *device = NULL;
    uint32_t fused = 0;
    (void)state;
    must(mica_device_open(fused_running.device_id, NULL, &device));
    for (uint32_t i = 0; i < FUSED_CASES; i++)
        fused += fused_running.compare(device, &random, i);
    print_message("%s: %u of %u cases in one record\n", fused_running.device_id, fused, FUSED_CASES);
    mica_device_release(device);
}

static int fused_main(fused_case compare, uint64_t seed, int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    fused_running.compare = compare;
    fused_running.seed = seed;
    if (argc > 1)
        fused_running.device_id = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
