/* test_base_core.c: status sentences, checked arithmetic, hashes, the clock, dynamic libraries, the
 * version. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/dl.h"
#include "base/hash.h"
#include "base/status.h"
#include "mica/host.h"

static void names_follow_the_list(void **state)
{
    int expected = 0;
    (void)state;
#define CHECK_ROW(code, meaning)                        \
    assert_int_equal(code, expected++);                 \
    assert_string_equal(mica_status_name(code), #code); \
    assert_string_equal(mica__status_meaning(code), meaning);
    MICA_STATUS_LIST(CHECK_ROW)
#undef CHECK_ROW
    assert_string_equal(mica_status_name((mica_status)expected), "unknown status");
    assert_string_equal(mica_status_name((mica_status)-1), "unknown status");
}

static void transient_codes(void **state)
{
    (void)state;
    assert_true(mica_status_is_transient(MICA_ERR_SUBMISSION));
    assert_true(mica_status_is_transient(MICA_ERR_TIMEOUT));
    assert_false(mica_status_is_transient(MICA_OK));
    assert_false(mica_status_is_transient(MICA_ERR_DEVICE_LOST));
    assert_false(mica_status_is_transient(MICA_ERR_CANCELLED));
}

static void fail_returns_code_and_sets_sentence(void **state)
{
    char long_text[2000];
    (void)state;
    assert_int_equal(mica__fail(MICA_ERR_IO, "file %s, byte %d", "x", 7), MICA_ERR_IO);
    assert_string_equal(mica_status_name(MICA_ERR_IO), "MICA_ERR_IO");
    assert_string_equal(mica_status_message(), "file x, byte 7");
    mica__fail(MICA_ERR_IO, "while opening: %s", mica_status_message());
    assert_string_equal(mica_status_message(), "while opening: file x, byte 7");
    mica__status_set(MICA_ERR_BUDGET, NULL);
    assert_string_equal(mica_status_message(), mica__status_meaning(MICA_ERR_BUDGET));
    mica__status_set(MICA_ERR_BUDGET, mica_status_message() + 2);
    assert_string_equal(mica_status_message(), mica__status_meaning(MICA_ERR_BUDGET) + 2);
    memset(long_text, 'a', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    mica__fail(MICA_ERR_IO, "%s", long_text);
    assert_int_equal(strlen(mica_status_message()), 511);
    mica__status_set(MICA_ERR_IO, long_text);
    assert_int_equal(strlen(mica_status_message()), 511);
}

static void *other_thread(void *argument)
{
    char *result = argument;
    snprintf(result, 64, "<%s>", mica_status_message());
    mica__fail(MICA_ERR_STATE, "theirs");
    snprintf(result + 64, 64, "<%s>", mica_status_message());
    return NULL;
}

static void each_thread_has_its_sentence(void **state)
{
    char theirs[2][64];
    pthread_t thread;
    (void)state;
    mica__fail(MICA_ERR_STATE, "ours");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, theirs), 0);
    pthread_join(thread, NULL);
    assert_string_equal(theirs[0], "<>");
    assert_string_equal(theirs[1], "<theirs>");
    assert_string_equal(mica_status_message(), "ours");
}

static void checked_arithmetic_edges(void **state)
{
    uint64_t u = 1;
    size_t s = 1;
    (void)state;
    assert_true(mica__add_u64(UINT64_MAX - 5, 5, &u) && u == UINT64_MAX);
    assert_true(mica__add_u64(0, 0, &u) && u == 0);
    u = 42;
    assert_false(mica__add_u64(UINT64_MAX, 1, &u));
    assert_false(mica__add_u64(1, UINT64_MAX, &u));
    assert_false(mica__mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &u));
    assert_false(mica__mul_u64(UINT64_MAX, 2, &u));
    assert_int_equal(u, 42); /* untouched on overflow */
    assert_true(mica__mul_u64(UINT32_MAX, UINT32_MAX, &u) && u == UINT64_C(0xfffffffe00000001));
    assert_true(mica__mul_u64(UINT64_MAX, 1, &u) && u == UINT64_MAX);
    assert_true(mica__mul_u64(UINT64_MAX, 0, &u) && u == 0);
    assert_true(mica__mul_u64(0, UINT64_MAX, &u) && u == 0);
    assert_true(mica__add_size(SIZE_MAX - 1, 1, &s) && s == SIZE_MAX);
    assert_false(mica__add_size(SIZE_MAX, 1, &s));
    assert_true(mica__mul_size(SIZE_MAX, 1, &s) && s == SIZE_MAX);
    assert_false(mica__mul_size(SIZE_MAX / 2 + 1, 2, &s));
    assert_true(mica__align_up_u64(0, 64, &u) && u == 0);
    assert_true(mica__align_up_u64(1, 64, &u) && u == 64);
    assert_true(mica__align_up_u64(64, 64, &u) && u == 64);
    assert_true(mica__align_up_u64(65, 24, &u) && u == 72);
    assert_true(mica__align_up_u64(UINT64_MAX - 1, 2, &u) && u == UINT64_MAX - 1);
    assert_false(mica__align_up_u64(UINT64_MAX, 2, &u));
    assert_false(mica__align_up_u64(1, 0, &u));
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Texts that differ in one byte, in length, in trailing zeros: no two of the hashes may be the same. */
static void hashes_differ(void **state)
{
    enum { LONGEST = 70, COUNT = (LONGEST + 1) * (LONGEST + 2) / 2 };
    static uint64_t hashes[COUNT];
    char text[LONGEST];
    size_t count = 0;
    (void)state;
    for (size_t length = 0; length <= LONGEST; length++) {
        for (size_t changed = 0; changed <= length; changed++) { /* the last one changes nothing */
            memset(text, 0, sizeof text);
            if (changed < length)
                text[changed] = 1;
            hashes[count++] = mica__hash_bytes(text, length, 0);
        }
    }
    assert_int_equal(count, COUNT);
    qsort(hashes, COUNT, sizeof hashes[0], compare_u64);
    for (size_t i = 1; i < COUNT; i++)
        assert_true(hashes[i - 1] != hashes[i]);
}

/* Each input bit must move about half of the output bits. */
static void hashes_spread(void **state)
{
    unsigned char text[40] = "the quick brown fox jumps over the dog";
    const uint64_t before = mica__hash_bytes(text, sizeof text, 7);
    (void)state;
    for (size_t bit = 0; bit < sizeof text * 8; bit++) {
        text[bit / 8] ^= (unsigned char)(1 << bit % 8);
        const uint64_t moved = before ^ mica__hash_bytes(text, sizeof text, 7);
        int count = 0;
        for (int i = 0; i < 64; i++)
            count += (int)(moved >> i & 1);
        assert_in_range(count, 12, 52);
        text[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

static void hashes_take_seeds_and_parts(void **state)
{
    const mica__hash128 none = {0, 0};
    mica__hash128 a = mica__hash_key("ab", 2, none), b = mica__hash_key("a", 1, none), c;
    (void)state;
    assert_true(mica__hash_bytes("x", 1, 1) == mica__hash_bytes("x", 1, 1));
    assert_true(mica__hash_bytes("x", 1, 1) != mica__hash_bytes("x", 1, 2));
    assert_true(mica__hash_bytes(NULL, 0, 1) != mica__hash_bytes(NULL, 0, 2));
    assert_true(mica__hash_seed() != mica__hash_seed());
    assert_true(a.low != a.high);
    a = mica__hash_key("c", 1, a);
    b = mica__hash_key("bc", 2, b);
    c = mica__hash_key("c", 1, mica__hash_key("ab", 2, none));
    assert_true(a.low != b.low && a.high != b.high);
    assert_true(a.low == c.low && a.high == c.high);
}

static void clock_goes_forward(void **state)
{
    uint64_t last = mica__clock_ns();
    const uint64_t first = last;
    (void)state;
    assert_true(first != 0);
    while (last < first + 1000000) {
        const uint64_t now = mica__clock_ns();
        assert_true(now >= last);
        last = now;
    }
}

static void library_is_found_by_a_later_name(void **state)
{
    static const char *const names[] = {"libmica_no_such_library.so.1", "libm.so.6", "libm.dylib", NULL};
    mica__dl *library = NULL;
    double (*cosine)(double);
    void *symbol;
    (void)state;
    assert_int_equal(mica__dl_open(names, &library), MICA_OK);
    assert_non_null(strstr(mica__dl_name(library), "libm."));
    symbol = mica__dl_symbol(library, "cos");
    assert_non_null(symbol);
    memcpy(&cosine, &symbol, sizeof cosine);
    assert_true(cosine(0.0) == 1.0);
    assert_null(mica__dl_symbol(library, "mica_no_such_symbol"));
    mica__dl_close(library);
    mica__dl_close(NULL);
    assert_int_equal(mica_host_bytes(), 0);
}

static void missing_library_is_a_sentence(void **state)
{
    static const char *const names[] = {"libmica_no_such_a.so", "libmica_no_such_b.so", NULL}, *const none[] =
                                                                                                   {NULL};
    mica__dl *library = (mica__dl *)-1;
    (void)state;
    assert_int_equal(mica__dl_open(names, &library), MICA_ERR_UNSUPPORTED);
    assert_null(library);
    assert_non_null(strstr(mica_status_message(), "looked for libmica_no_such_a.so, libmica_no_such_b.so: "));
    assert_int_equal(mica__dl_open(none, &library), MICA_ERR_UNSUPPORTED);
}

static void version_matches_the_header(void **state)
{
    char text[32];
    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", MICA_VERSION_MAJOR, MICA_VERSION_MINOR, MICA_VERSION_PATCH);
    assert_string_equal(mica_version(), text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_follow_the_list),
        cmocka_unit_test(transient_codes),
        cmocka_unit_test(fail_returns_code_and_sets_sentence),
        cmocka_unit_test(each_thread_has_its_sentence),
        cmocka_unit_test(checked_arithmetic_edges),
        cmocka_unit_test(hashes_differ),
        cmocka_unit_test(hashes_spread),
        cmocka_unit_test(hashes_take_seeds_and_parts),
        cmocka_unit_test(clock_goes_forward),
        cmocka_unit_test(library_is_found_by_a_later_name),
        cmocka_unit_test(missing_library_is_a_sentence),
        cmocka_unit_test(version_matches_the_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
