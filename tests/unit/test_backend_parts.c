/* What the backends share: spare objects, the first failure, the blob, the last times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/encode.h"
#include "backend/planning.h"
#include "backend/spares.h"
#include "backend/times.h"
#include "base/alloc.h"
#include "base/status.h"

static void spares_are_given_once(void **state)
{
    mica__spares spares = {{NULL}};
    unsigned char object[MICA__SPARES + 1];
    bool seen[MICA__SPARES] = {false};
    (void)state;
    for (uint32_t i = 0; i <= MICA__SPARES; i++) /* one more than there is room for */
        assert_int_equal(mica__spares_give(&spares, (mica__commands *)(void *)&object[i]), i < MICA__SPARES);
    for (uint32_t i = 0; i < MICA__SPARES; i++) {
        const ptrdiff_t at = (unsigned char *)(void *)mica__spares_take(&spares) - object;
        assert_true(at >= 0 && at < (ptrdiff_t)MICA__SPARES && !seen[at]);
        seen[at] = true;
    }
    assert_null(mica__spares_take(&spares));
}

static void the_first_failure_stays(void **state)
{
    mica__latch latch = {MICA_OK, ""};
    (void)state;
    assert_true(mica__latch_keep(&latch, MICA_OK));
    assert_int_equal(mica__latch_report(&latch), MICA_OK);
    assert_false(mica__latch_keep(&latch, mica__fail(MICA_ERR_BUDGET, "the first of %d", 2)));
    assert_false(mica__latch_keep(&latch, mica__fail(MICA_ERR_STATE, "the second")));
    assert_int_equal(mica__latch_report(&latch), MICA_ERR_BUDGET);
    assert_string_equal(mica_status_message(), "the first of 2");
}

static void a_blob_keeps_what_it_moves(void **state)
{
    mica__latch latch = {MICA_OK, ""};
    mica__blob blob = {0};
    uint64_t place[200];
    char text[200];
    (void)state;
    assert_int_equal(mica__blob_put_text(&blob, &latch, ""), 0);
    assert_int_equal(mica__blob_put_text(&blob, &latch, NULL), 0);
    assert_string_equal(mica__blob_text(&blob, 0), "");
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (uint32_t i = 1; i < 200; i++) { /* as long as its number */
        place[i] = mica__blob_put_text(&blob, &latch, text + 199 - i);
        assert_true(place[i] != 0 && place[i] % 16 == 0);
    }
    for (uint32_t i = 1; i < 200; i++)
        assert_int_equal(strlen(mica__blob_text(&blob, place[i])), i);
    assert_int_equal(latch.status, MICA_OK);
    mica__free(blob.bytes);
}

/* More than are kept: the oldest entries go, sums have all. Reading takes them away, switching on forgets them. */
static void the_last_times_are_kept(void **state)
{
    enum { KERNELS = 300, ALL = MICA__TIMES_KEPT + 101 };
    mica__times times = {0};
    mica__profile out = {.entry = NULL};
    char name[16];
    (void)state;
    mica__times_add(&times, &(mica_profile_entry){.index = 7}, "early", "");
    assert_int_equal(mica__times_read(&times, true, NULL), MICA_OK);
    for (uint32_t i = 0; i < KERNELS; i++) {
        snprintf(name, sizeof name, "%u", i);
        mica__times_add(&times, &(mica_profile_entry){.end_ns = i, .bytes = 2}, name, "");
    }
    for (uint32_t i = 0; i < ALL; i++)
        mica__times_add(&times, &(mica_profile_entry){.index = i, .begin_ns = 3, .end_ns = 10 + i % 2},
                        i % 2 == 0 ? "even" : NULL, "here");
    assert_int_equal(mica__times_read(&times, false, NULL), MICA_OK);
    assert_int_equal(mica__times_read(&times, false, &out), MICA_OK);
    assert_int_equal(out.entry_count, MICA__TIMES_KEPT);
    for (uint32_t i = 0; i < MICA__TIMES_KEPT; i++) {
        assert_int_equal(out.entry[i].index, ALL - MICA__TIMES_KEPT + i);
        assert_string_equal(out.entry[i].kernel, out.entry[i].index % 2 == 0 ? "even" : "copy_bytes");
        assert_string_equal(out.entry[i].label, "here");
    }
    assert_int_equal(out.bucket_count, KERNELS + 2);
    for (uint32_t i = 0; i < KERNELS; i++)
        assert_true(strtoul(out.bucket[i].kernel, NULL, 10) == i && out.bucket[i].count == 1 &&
                    out.bucket[i].total_ns == i && out.bucket[i].bytes == 2);
    const mica_profile_bucket *copies = &out.bucket[KERNELS + 1];
    assert_string_equal(copies->kernel, "copy_bytes");
    assert_int_equal(copies->count, ALL / 2);
    assert_true(copies->min_ns == 8 && copies->max_ns == 8 && copies->total_ns == ALL / 2 * 8);
    mica__free(out.entry);
    mica__free(out.bucket);
    assert_int_equal(mica__times_read(&times, false, &out), MICA_OK); /* taken away */
    assert_int_equal(out.entry_count + out.bucket_count, 0);
    assert_null(out.entry);
    assert_int_equal(mica__times_read(&times, true, NULL), MICA_OK);
    mica__times_add(&times, &(mica_profile_entry){.index = 1}, "once", "");
    assert_int_equal(mica__times_read(&times, true, NULL), MICA_OK); /* forgotten */
    assert_int_equal(mica__times_read(&times, false, &out), MICA_OK);
    assert_int_equal(out.entry_count + out.bucket_count, 0);
    mica__free(out.entry);
    mica__free(out.bucket);
    mica__times_free(&times);
}

/* A plan has as many dispatches, bindings and bytes of parameters as its record needs, and keeps what was written. */
static void plans_grow(void **state)
{
    enum { DISPATCHES = 300, BYTES = 4096, BINDINGS = 5 };
    const mica__record record = {.operand_count = 2, .params_size = 8};
    mica__plan plan = {.dispatch = NULL};
    (void)state;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(mica__planning_begin(&plan, &record), MICA_OK);
        for (uint32_t d = 0; d < DISPATCHES; d++) {
            mica__planning_dispatch(&plan, "kernel");
            for (uint32_t part = 0; part < 2; part++) { /* one behind the other */
                mica__plan_binding *binding = mica__planning_bindings(&plan, BINDINGS);
                for (uint32_t b = 0; b < BINDINGS; b++)
                    binding[b] = (mica__plan_binding){.source = (uint16_t)d, .length = b};
                memset(mica__planning_params(&plan, BYTES / 2), (int)(d % 251 + part), BYTES / 2);
            }
        }
        mica__planning_dispatch(&plan, "large");
        memset(mica__planning_params(&plan, 1 << 24), 7, 1 << 24);
        assert_int_equal(plan.status, MICA_OK);
        assert_int_equal(plan.dispatch_count, DISPATCHES + 1);
        for (uint32_t d = 0; d < DISPATCHES; d++) {
            const mica__plan_dispatch *dispatch = &plan.dispatch[d];
            const unsigned char *params = plan.params + dispatch->params_offset;
            assert_int_equal(dispatch->params_size, BYTES);
            assert_true(params[0] == d % 251 && params[BYTES / 2 - 1] == d % 251 &&
                        params[BYTES / 2] == d % 251 + 1 && params[BYTES - 1] == d % 251 + 1);
            assert_int_equal(dispatch->binding_count, 2 * BINDINGS);
            assert_int_equal(plan.binding[dispatch->first_binding + 2 * BINDINGS - 1].source, d);
        }
    }
    mica__planning_end(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spares_are_given_once),   cmocka_unit_test(plans_grow),
        cmocka_unit_test(the_first_failure_stays), cmocka_unit_test(a_blob_keeps_what_it_moves),
        cmocka_unit_test(the_last_times_are_kept),
    };
    return cmocka_run_group_tests_name("backend_parts", tests, NULL, NULL);
}
