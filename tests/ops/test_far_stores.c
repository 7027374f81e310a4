/*
 * test_far_stores.c - an elementwise op over more than the caches hold, whose stores pass them on the cpu (cpu_plan_blocks.c): where
 * rows begin at a line of the cache and where not, in place and on any number of threads, every element is what a short op gives.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/each_device.h"

enum { ELEMENTS = 40 << 20, PIECE = 1 << 16 };

/* Whole numbers, each place its own but for those far from it. */
static float number(uint64_t i)
{
    return (float)((i * 2654435761u) >> 7 & 0xfffff);
}

/* y = x + x over [first, ELEMENTS) of one buffer, in place; then every element of the buffer. */
static void check(mica_device *device, uint64_t first)
{
    const uint64_t all = ELEMENTS;
    static float piece[PIECE];
    mica_buffer *whole = NULL, *part = NULL;

    must(mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &all, &whole));
    must(mica_buffer_slice(whole, 0, first, all - first, &part));
    for (uint64_t i = 0; i < all; i += PIECE) {
        for (uint64_t k = 0; k < PIECE; k++)
            piece[k] = number(i + k);
        must(mica_buffer_write(whole, i * sizeof *piece, piece, sizeof piece));
    }
    must(mica_add(encoder, part, part, part));
    end();
    for (uint64_t i = 0; i < all; i += PIECE) {
        must(mica_buffer_read(whole, i * sizeof *piece, piece, sizeof piece));
        for (uint64_t k = 0; k < PIECE; k++)
            if (piece[k] != number(i + k) * (i + k < first ? 1 : 2))
                fail_msg("element %llu of those from %llu on is %g", (unsigned long long)(i + k),
                         (unsigned long long)first, (double)piece[k]);
    }
    mica_buffer_release(part);
    mica_buffer_release(whole);
}

static void test_far_stores(void **state)
{
    (void)state;
    for (uint64_t first = 0; first < 2; first++)
        for (mica_device *device = devices[0]; device != NULL && begin(device); device = NULL)
            check(device, first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_far_stores)};

    return cmocka_run_group_tests_name("far_stores", tests, open_devices, close_devices);
}
