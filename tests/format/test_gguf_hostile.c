/*
 * test_gguf_hostile.c - GGUF files that lie: cut at every length, every bit of the header turned, every number at its
 * worst values, tables of a million entries. Each is read as the format says or refused with a sentence, in little
 * memory.
 */
#include "format/format_rig.h"
#include "format/gguf_sample.h"
#include "support/random.h"

/* ---- memory that is watched, and that strikes ------------------------------------------------------------ */

typedef struct watch {
    uint64_t live, peak, calls;
    /* At call number strike_at the field of the file changes under the reader. */
    uint64_t strike_at, strike_value;
    uint8_t *strike_bytes;
    build_field strike_field;
} watch;

static void *watch_take(void *context, size_t size, size_t align)
{
    watch *w = context;
    void *memory = NULL;
    if (++w->calls == w->strike_at)
        for (uint32_t i = 0; i < w->strike_field.size; i++)
            w->strike_bytes[w->strike_field.offset + i] = (uint8_t)(w->strike_value >> 8 * i);
    if (posix_memalign(&memory, align, size) != 0)
        return NULL;
    w->live += size;
    w->peak = w->live > w->peak ? w->live : w->peak;
    return memory;
}

static void watch_give(void *context, void *pointer, size_t size)
{
    ((watch *)context)->live -= size;
    free(pointer);
}

/* Reads the bytes with the watch on; returns the status, after a look at everything if it opened. */
static mica_status read_watched(const build *b, size_t size, watch *w)
{
    const mica_allocator allocator = {w, watch_take, watch_give};
    mica__archive *archive;
    void *copy;
    assert_int_equal(mica_set_allocator(&allocator), MICA_OK);
    const mica_status status = build_read_cut(b, size, &archive, &copy);
    if (status == MICA_OK)
        sample_check(archive);
    else if (status != MICA_ERR_MALFORMED_FILE && status != MICA_ERR_UNSUPPORTED)
        fail_msg("status %s: %s", mica_status_name(status), mica_status_message());
    else
        assert_non_null(strstr(mica_status_message(), "memory.gguf"));
    mica__archive_close(archive);
    free(copy);
    assert_int_equal(w->live, 0);
    assert_int_equal(mica_set_allocator(NULL), MICA_OK);
    return status;
}

/* Sixteen times the file and a few pages. */
static void check_peak(const watch *w, size_t size)
{
    if (w->peak > 16 * size + (64 << 10))
        fail_msg("%llu bytes of memory for a file of %zu", (unsigned long long)w->peak, size);
}

/* ---- tests ---------------------------------------------------------------------------------------------- */

static void cut_at_every_length(void **state)
{
    (void)state;
    for (int big = 0; big < 2; big++) {
        build b;
        sample_build(&b, big);
        for (size_t size = 0; size < b.size; size++) {
            watch w = {0};
            if (read_watched(&b, size, &w) != MICA_ERR_MALFORMED_FILE)
                fail_msg("cut at %zu of %zu: not refused as malformed", size, b.size);
            check_peak(&w, size);
        }
        build_data(&b, 100, 9); /* more than it says is no harm */
        assert_int_equal(read_watched(&b, b.size, &(watch){0}), MICA_OK);
        build_free(&b);
    }
}

static void every_bit_of_the_header(void **state)
{
    (void)state;
    for (int big = 0; big < 2; big++) {
        build b;
        const size_t header = sample_build(&b, big);
        for (size_t at = 0; at < header; at++) {
            const uint8_t was = b.bytes[at];
            for (uint32_t bit = 0; bit < 9; bit++) {
                watch w = {0};
                b.bytes[at] = was ^ (bit == 8 ? 0xff : (uint8_t)(1u << bit));
                read_watched(&b, b.size, &w);
                check_peak(&w, b.size);
            }
            b.bytes[at] = was;
        }
        build_free(&b);
    }
}

static void every_number_at_its_worst(void **state)
{
    build b;
    (void)state;
    sample_build(&b, false);
    for (size_t f = 0; f < b.field_count; f++) {
        const build_field *field = &b.field[f];
        const uint64_t was = build_number_at(&b, field);
        const uint64_t worst[] = {0,
                                  1,
                                  UINT64_MAX,
                                  INT64_MAX,
                                  (uint64_t)INT64_MAX + 1,
                                  UINT64_MAX / 2,
                                  UINT64_MAX / 4,
                                  UINT64_MAX / 8,
                                  UINT64_MAX / 12,
                                  UINT64_MAX / 16,
                                  UINT64_MAX / 18,
                                  UINT64_MAX / 104,
                                  UINT32_MAX,
                                  INT32_MAX,
                                  1ull << 31,
                                  1ull << 32,
                                  b.size - 1,
                                  b.size,
                                  b.size + 1,
                                  b.size - field->offset,
                                  b.size - field->offset - field->size,
                                  b.size - field->offset - field->size + 1,
                                  was - 1,
                                  was + 1};
        for (size_t i = 0; i < sizeof worst / sizeof worst[0]; i++) {
            watch w = {0};
            build_patch(&b, field, worst[i]);
            read_watched(&b, b.size, &w);
            check_peak(&w, b.size);
        }
        build_patch(&b, field, was);
    }
    build_free(&b);
}

static void random_bytes(void **state)
{
    test_random random = test_random_from(20);
    (void)state;
    for (uint32_t i = 0; i < 20000; i++) {
        build b;
        sample_build(&b, i % 4 == 0);
        for (uint64_t n = 1 + test_random_below(&random, 6); n > 0; n--)
            b.bytes[4 + test_random_below(&random, b.size - 4)] = (uint8_t)test_random_next(&random);
        read_watched(&b, b.size, &(watch){0});
        build_free(&b);
    }
}

/* The caller of a memory file promises not to, but a file on a disk makes no promise: its bytes change between the two
 * walks over the header. */
static void changed_while_it_is_read(void **state)
{
    build b;
    (void)state;
    sample_build(&b, false);
    for (size_t f = 0; f < b.field_count; f++) {
        for (uint64_t call = 3; call < 9; call++) {
            const uint64_t values[] = {0, 7, UINT64_MAX, 1000};
            for (size_t v = 0; v < 4; v++) {
                void *copy = malloc(b.size);
                watch w = {.strike_at = call,
                           .strike_value = values[v],
                           .strike_bytes = copy,
                           .strike_field = b.field[f]};
                const mica_allocator allocator = {&w, watch_take, watch_give};
                mica__archive *archive;
                mica__file *file;
                memcpy(copy, b.bytes, b.size);
                assert_int_equal(mica_set_allocator(&allocator), MICA_OK);
                assert_int_equal(mica__archive_create(&archive), MICA_OK);
                assert_int_equal(mica__file_from_bytes("memory.gguf", copy, b.size, &file), MICA_OK);
                mica_status status = mica__archive_add_file(archive, file);
                if (status == MICA_OK)
                    status = mica__gguf_read(archive);
                if (status == MICA_OK)
                    sample_check(archive);
                mica__archive_close(archive);
                assert_int_equal(mica_set_allocator(NULL), MICA_OK);
                free(copy);
            }
        }
    }
    build_free(&b);
}

static void counts_that_no_file_holds(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 64; i++) {
        const uint64_t count = i < 32 ? (1ull << 63) - 16 + i : UINT64_MAX / (i - 30) - 1;
        for (uint32_t which = 0; which < 5; which++) {
            build b = {0};
            watch w = {0};
            build_head(&b, 3, which == 0 ? count : 0, which == 1 ? count : 1);
            if (which == 2) {
                build_number(&b, count, 8); /* a key as long */
            } else {
                build_meta(&b, "key", which == 3 ? 8 : 9);
                build_number(&b, which == 3 ? count : i % 13, which == 3 ? 8 : 4);
                build_number(&b, count, 8);
            }
            build_data(&b, 200, 1);
            assert_int_equal(read_watched(&b, b.size, &w), MICA_ERR_MALFORMED_FILE);
            assert_true(w.peak < 64 << 10);
            build_free(&b);
        }
    }
}

/* In neither order of names nor of offsets. */
static void a_million_tensors(void **state)
{
    const uint64_t count = 1000000;
    build b = {0};
    mica__archive *archive;
    void *copy;
    (void)state;
    build_head(&b, 3, count, 1);
    build_meta_number(&b, "general.alignment", 4, 8, 4);
    for (uint64_t i = 0; i < count; i++) {
        char name[32];
        const uint64_t mixed = i * 7368787 % count; /* a prime: each number once */
        snprintf(name, sizeof name, "blk.%07u.weight", (unsigned)mixed);
        build_tensor(&b, name, 1, (uint64_t[]){2}, 0, (count - 1 - mixed) * 8);
    }
    build_pad(&b, 8);
    for (uint64_t i = 0; i < count; i++)
        build_bytes(&b, &i, 8);
    if (build_read(&b, &archive, &copy) != MICA_OK)
        fail_msg("%s", mica_status_message());
    assert_int_equal(archive->tensor_count, count);
    for (uint64_t i = 0; i < count; i += 997) {
        char name[32];
        uint64_t stored = 0;
        const int length = snprintf(name, sizeof name, "blk.%07u.weight", (unsigned)i);
        const uint32_t index = mica__archive_find(archive, name, (size_t)length);
        assert_true(index < count);
        assert_int_equal(mica__archive_read(archive, &archive->tensor[index], 0, &stored, 8), MICA_OK);
        assert_int_equal(stored, count - 1 - i);
    }
    assert_int_equal(mica__archive_not_found(archive, "blk.0000001.weights"), MICA_ERR_NOT_FOUND);
    assert_non_null(strstr(mica_status_message(), "\"blk.0000001.weight\""));
    mica__archive_close(archive);
    free(copy);
    build_free(&b);
}

static mica_status read_sample(void *context)
{
    mica__archive *archive;
    void *copy;
    const mica_status status = build_read(context, &archive, &copy);
    mica__archive_close(archive);
    free(copy);
    return status;
}

static void every_allocation_fails(void **state)
{
    build b;
    (void)state;
    sample_build(&b, false);
    rig_fail_allocations(read_sample, &b);
    build_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_at_every_length),       cmocka_unit_test(every_bit_of_the_header),
        cmocka_unit_test(every_number_at_its_worst), cmocka_unit_test(random_bytes),
        cmocka_unit_test(changed_while_it_is_read),  cmocka_unit_test(counts_that_no_file_holds),
        cmocka_unit_test(a_million_tensors),         cmocka_unit_test(every_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
