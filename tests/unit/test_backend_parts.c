/* What the backends share: spare objects, the first failure, the blob, the last times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "backend/encode.h"
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

/* More than are kept: the oldest go. Switching off keeps them, switching on forgets them. */
static void the_last_times_are_kept(void **state)
{
    enum { KEPT = 65536, ALL = KEPT + 100 };
    mica__times times = {0};
    mica_profile_entry *out = calloc(KEPT, sizeof *out);
    uint64_t count = 1;
    (void)state;
    assert_non_null(out);
    mica__times_add(&times, &(mica_profile_entry){.index = 7}, "early", "");
    assert_int_equal(mica__times_read(&times, true, out, KEPT, &count), MICA_OK);
    assert_int_equal(count, 0);
    for (uint32_t i = 0; i < ALL; i++)
        mica__times_add(&times, &(mica_profile_entry){.index = i}, i % 2 == 0 ? "even" : NULL, "here");
    assert_int_equal(mica__times_read(&times, false, out, 3, &count), MICA_OK);
    assert_int_equal(out[3].label[0], 0); /* no more than was asked for */
    assert_int_equal(mica__times_read(&times, false, out, KEPT, &count), MICA_OK);
    assert_int_equal(count, KEPT);
    for (uint32_t i = 0; i < KEPT; i++) {
        assert_int_equal(out[i].index, ALL - KEPT + i);
        assert_string_equal(out[i].kernel, i % 2 == 0 ? "even" : "copy_bytes");
        assert_string_equal(out[i].label, "here");
    }
    assert_int_equal(mica__times_read(&times, true, NULL, 0, &count), MICA_OK);
    assert_int_equal(count, 0);
    mica__free(times.entry);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spares_are_given_once),
        cmocka_unit_test(the_first_failure_stays),
        cmocka_unit_test(a_blob_keeps_what_it_moves),
        cmocka_unit_test(the_last_times_are_kept),
    };
    return cmocka_run_group_tests_name("backend_parts", tests, NULL, NULL);
}
