/* test_npz.c: zips of npy members, read from bytes made by hand and written to be read by hand. */
#define _DEFAULT_SOURCE
#include "format_rig.h"

#include <unistd.h>

/* What a hand-made member says of itself; the fields are what the file shall hold, right or wrong. */
typedef struct member {
    const char *name, *local_name; /* local_name NULL: the same */
    uint32_t method, flags, disk;
    bool wide;          /* sizes and offset in 64-bit fields */
    uint32_t extra;     /* bytes of another extra field before the data */
    int64_t size_shift; /* added to the size in the directory */
    int64_t offset_shift;
    uint64_t offset; /* where it came to lie */
    uint64_t size;
} member;

/* How the end of the file is made. */
typedef struct ending {
    bool wide; /* a 64-bit record */
    int64_t count_shift, size_shift, offset_shift;
    uint32_t comment;
} ending;

static rig_bytes make_npy(const char *descr, const char *shape, size_t data)
{
    rig_bytes b = {0};
    char header[128];
    snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    rig_text(&b, "\x93NUMPY");
    rig_number(&b, 1, 2);
    rig_number(&b, strlen(header), 2);
    rig_text(&b, header);
    rig_data(&b, data);
    return b;
}

static void put_member(rig_bytes *b, member *m, const rig_bytes *npy)
{
    const char *name = m->local_name == NULL ? m->name : m->local_name;
    m->offset = b->size;
    m->size = npy->size;
    rig_number(b, 0x04034b50, 4);
    rig_number(b, m->wide ? 45 : 20, 2);
    rig_number(b, m->flags, 2);
    rig_number(b, m->method, 2);
    rig_number(b, 0x00210000, 4);
    rig_number(b, 0, 4);
    rig_number(b, m->wide ? UINT32_MAX : npy->size, 4);
    rig_number(b, m->wide ? UINT32_MAX : npy->size, 4);
    rig_number(b, strlen(name), 2);
    rig_number(b, (m->wide ? 20 : 0) + m->extra, 2);
    rig_text(b, name);
    if (m->wide) {
        rig_number(b, 1, 2);
        rig_number(b, 16, 2);
        rig_number(b, npy->size, 8);
        rig_number(b, npy->size, 8);
    }
    for (uint32_t i = 0; i < m->extra; i++)
        rig_number(b, i == 0 ? 0x99 : i == 2 ? m->extra - 4 : 0, 1);
    rig_put(b, npy->data, npy->size);
}

static void put_entry(rig_bytes *b, const member *m)
{
    const uint64_t size = m->size + (uint64_t)m->size_shift, offset = m->offset + (uint64_t)m->offset_shift;
    rig_number(b, 0x02014b50, 4);
    rig_number(b, 45, 2);
    rig_number(b, m->wide ? 45 : 20, 2);
    rig_number(b, m->flags, 2);
    rig_number(b, m->method, 2);
    rig_number(b, 0x00210000, 4);
    rig_number(b, 0, 4);
    rig_number(b, m->wide ? UINT32_MAX : size, 4);
    rig_number(b, m->wide ? UINT32_MAX : size, 4);
    rig_number(b, strlen(m->name), 2);
    rig_number(b, m->wide ? 4 + 5 + 28 : 0, 2);
    rig_number(b, 0, 2);
    rig_number(b, m->disk, 2);
    rig_number(b, 0, 6);
    rig_number(b, m->wide ? UINT32_MAX : offset, 4);
    rig_text(b, m->name);
    if (m->wide) { /* after a field of another kind */
        rig_number(b, 0x7777, 2);
        rig_number(b, 5, 2);
        rig_data(b, 5);
        rig_number(b, 1, 2);
        rig_number(b, 24, 2);
        rig_number(b, size, 8);
        rig_number(b, size, 8);
        rig_number(b, offset, 8);
    }
}

static void put_end(rig_bytes *b, uint64_t count, uint64_t start, const ending *e)
{
    const uint64_t place = b->size, size = place - start + (uint64_t)e->size_shift;
    count += (uint64_t)e->count_shift;
    start += (uint64_t)e->offset_shift;
    if (e->wide) {
        rig_number(b, 0x06064b50, 4);
        rig_number(b, 44, 8);
        rig_number(b, 45, 2);
        rig_number(b, 45, 2);
        rig_number(b, 0, 8);
        rig_number(b, count, 8);
        rig_number(b, count, 8);
        rig_number(b, size, 8);
        rig_number(b, start, 8);
        rig_number(b, 0x07064b50, 4);
        rig_number(b, 0, 4);
        rig_number(b, place, 8);
        rig_number(b, 1, 4);
    }
    rig_number(b, 0x06054b50, 4);
    rig_number(b, 0, 4);
    rig_number(b, e->wide ? UINT16_MAX : count, 2);
    rig_number(b, e->wide ? UINT16_MAX : count, 2);
    rig_number(b, e->wide ? UINT32_MAX : size, 4);
    rig_number(b, e->wide ? UINT32_MAX : start, 4);
    rig_number(b, e->comment, 2);
    rig_data(b, e->comment);
}

static rig_bytes make(member *members, uint32_t count, const ending *e)
{
    static const ending plain = {0};
    rig_bytes b = {0};
    uint64_t start;
    for (uint32_t i = 0; i < count; i++) {
        char shape[32];
        snprintf(shape, sizeof shape, "(%u, 3)", i + 1);
        rig_bytes npy = make_npy("<f4", shape, 12 * (i + 1));
        put_member(&b, &members[i], &npy);
        rig_free(&npy);
    }
    start = b.size;
    for (uint32_t i = 0; i < count; i++)
        put_entry(&b, &members[i]);
    put_end(&b, count, start, e == NULL ? &plain : e);
    return b;
}

static void refuse(member *members, uint32_t count, const ending *e, const char *part)
{
    rig_bytes b = make(members, count, e);
    rig_refused(mica__npz_read, &b, MICA_ERR_MALFORMED_FILE, part);
    rig_free(&b);
}

static void reads(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        member members[] = {{.name = "x.npy"}, {.name = "layer.0.w\xc3\xa9.npy", .extra = 9}};
        const ending e = {.wide = way >= 2, .comment = way == 3 ? 300 : 0};
        rig_bytes b;
        mica__archive *archive;
        const mica__tensor *t;
        members[0].wide = members[1].wide = way == 1;
        b = make(members, 2, &e);
        archive = rig_open_ok(mica__npz_read, &b);
        rig_check(archive);
        assert_int_equal(archive->format, MICA_FORMAT_NPZ);
        assert_int_equal(archive->visible_count, 2);
        t = rig_tensor(archive, "layer.0.w\xc3\xa9");
        assert_int_equal(t->shape[0], 2);
        assert_int_equal(t->shape[1], 3);
        assert_int_equal(t->bytes, 24);
        assert_int_equal(t->offset + 24,
                         members[1].offset + 30 + 15 + 9 + (way == 1 ? 20 : 0) + members[1].size);
        mica__archive_close(archive);
        rig_free(&b);
    }
}

static void reads_an_empty_one(void **state)
{
    rig_bytes b = make(NULL, 0, NULL);
    mica__archive *archive = rig_open_ok(mica__npz_read, &b);
    (void)state;
    assert_int_equal(archive->tensor_count, 0);
    mica__archive_close(archive);
    rig_free(&b);
}

/* A compressed member does not keep the others from being used. */
static void lists_compressed(void **state)
{
    member members[] = {{.name = "x.npy"}, {.name = "y.npy", .method = 8}, {.name = "z.npy", .method = 93}};
    rig_bytes b = make(members, 3, NULL);
    mica__archive *archive = rig_open_ok(mica__npz_read, &b);
    (void)state;
    rig_check(archive);
    assert_int_equal(mica__archive_usable(archive, rig_tensor(archive, "x")), MICA_OK);
    assert_int_equal(mica__archive_usable(archive, rig_tensor(archive, "y")), MICA_ERR_UNSUPPORTED);
    assert_non_null(strstr(mica_status_message(), "\"y\""));
    assert_non_null(strstr(mica_status_message(), "deflated"));
    assert_string_equal(rig_tensor(archive, "z")->type_name, "compressed");
    mica__archive_close(archive);
    rig_free(&b);
}

static void refuses_members(void **state)
{
    static const struct {
        member m;
        const char *part;
    } cases[] = {
        {{.name = "x.txt"}, "not an npy"},
        {{.name = ".npy"}, "not an npy"},
        {{.name = "npy"}, "not an npy"},
        {{.name = "\xff.npy"}, "UTF-8"},
        {{.name = "x.npy", .local_name = "y.npy"}, "another member's"},
        {{.name = "x.npy", .local_name = "xx.npy"}, "another member's"},
        {{.name = "x.npy", .flags = 1}, "encrypted"},
        {{.name = "x.npy", .disk = 1}, "another disk"},
        {{.name = "x.npy", .size_shift = -1}, "bytes"},
        {{.name = "x.npy", .size_shift = 1}, "past the end"},
        {{.name = "x.npy", .wide = true, .size_shift = INT64_MAX}, "past the end"},
        {{.name = "x.npy", .wide = true, .size_shift = -1000}, "past the end"},
        {{.name = "x.npy", .offset_shift = 1}, "no member begins"},
        {{.name = "x.npy", .offset_shift = 1 << 20}, "offset"},
        {{.name = "x.npy", .wide = true, .offset_shift = INT64_MAX}, "offset"},
        {{.name = "x.npy", .wide = true, .offset_shift = -1}, "offset"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        member m = cases[i].m;
        refuse(&m, 1, NULL, cases[i].part);
    }
}

static void refuses_pairs(void **state)
{
    member twice[] = {{.name = "x.npy"}, {.name = "x.npy"}};
    member overlapping[] = {{.name = "x.npy", .size_shift = 1}, {.name = "y.npy"}};
    member same[] = {{.name = "x.npy"}, {.name = "x.npy"}};
    rig_bytes b;
    (void)state;
    refuse(twice, 2, NULL, "twice");
    /* Stored, so a longer first member is caught by its npy; deflated ones have no npy to look at. */
    overlapping[0].method = overlapping[1].method = 8;
    refuse(overlapping, 2, NULL, "overlap");
    /* Both entries lead to one member. */
    b = make(same, 1, NULL);
    same[1] = same[0];
    b.size = (size_t)(same[0].offset + 30 + 5 + same[0].size);
    put_entry(&b, &same[0]);
    put_entry(&b, &same[1]);
    put_end(&b, 2, same[0].offset + 30 + 5 + same[0].size, &(ending){0});
    rig_refused(mica__npz_read, &b, MICA_ERR_MALFORMED_FILE, "overlap");
    rig_free(&b);
}

static void refuses_ends(void **state)
{
    static const struct {
        ending e;
        const char *part;
    } cases[] = {
        {{.count_shift = 1}, "damaged or shorter"},
        {{.count_shift = -1}, "more than its end record"},
        {{.count_shift = 40}, "members in a zip"},
        {{.size_shift = 1}, "zip directory of"},
        {{.size_shift = -1}, "zip directory of"},
        {{.offset_shift = 1}, "zip directory of"},
        {{.offset_shift = -1}, "zip directory of"},
        {{.wide = true, .count_shift = INT64_MAX}, "members in a zip"},
        {{.wide = true, .size_shift = -9999}, "zip directory of"},
        {{.wide = true, .offset_shift = INT64_MAX}, "zip directory of"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        member members[] = {{.name = "x.npy"}, {.name = "a_name_that_leaves_room_for_one_more_member.npy"}};
        refuse(members, 2, &cases[i].e, cases[i].part);
    }
}

/* A member that is no npy, or a broken one, is named. */
static void refuses_bad_npy(void **state)
{
    member m = {.name = "broken.npy"};
    rig_bytes b = {0}, npy = make_npy("<f4", "(2, 3)", 23);
    uint64_t start;
    (void)state;
    put_member(&b, &m, &npy);
    start = b.size;
    put_entry(&b, &m);
    put_end(&b, 1, start, &(ending){0});
    rig_refused(mica__npz_read, &b, MICA_ERR_MALFORMED_FILE, "member \"broken\"");
    rig_free(&b);
    rig_free(&npy);
}

static void takes_cuts_and_flips(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        member members[] = {{.name = "x.npy", .wide = wide != 0}, {.name = "yy.npy", .extra = 5}};
        const ending e = {.wide = wide != 0};
        rig_bytes b = make(members, 2, &e);
        rig_opening opening = {mica__npz_read, &b, 1};
        rig_cut_everywhere(mica__npz_read, &b);
        rig_flip_everywhere(mica__npz_read, &b, 0, b.size);
        rig_fail_allocations(rig_play_open, &opening);
        rig_free(&b);
    }
}

/* ---- writing -------------------------------------------------------------------------------------------- */

/* Bit by bit, as the polynomial is defined. */
static uint32_t crc_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return ~crc;
}

static uint64_t number_at(const rig_bytes *b, size_t at, int bytes)
{
    uint64_t value = 0;
    assert_true(at + (size_t)bytes <= b->size);
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | b->data[at + (size_t)i];
    return value;
}

typedef struct scene {
    char path[256];
} scene;

static const struct {
    const char *name;
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[2];
    size_t bytes;
} wanted[] = {
    {"first", MICA_DTYPE_F32, 2, {3, 5}, 60},
    {"none", MICA_DTYPE_F32, 2, {0, 5}, 0},
    {"model.layers.0.long_name.\xc3\xa9", MICA_DTYPE_BF16, 1, {7}, 14},
    {"scalar", MICA_DTYPE_U8, 0, {0}, 1},
};

#define WANTED (sizeof wanted / sizeof wanted[0])

static mica_status fill(mica_writer *writer)
{
    uint8_t bytes[75];
    mica_status status = MICA_OK;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * i + 3);
    for (size_t i = 0; i < WANTED && status == MICA_OK; i++)
        status = mica_writer_tensor(writer, wanted[i].name, wanted[i].dtype, wanted[i].ndim, wanted[i].shape);
    for (size_t at = 0; at < sizeof bytes && status == MICA_OK; at += 25)
        status = mica_writer_write(writer, bytes + at, 25);
    return status;
}

static mica_status play_write(void *context)
{
    const scene *s = context;
    mica_writer_options options = {.size = sizeof options, .overwrite = 1};
    mica_writer *writer = NULL;
    mica_status status = mica_writer_create(s->path, &options, &writer);
    if (status != MICA_OK)
        return status;
    status = fill(writer);
    if (status == MICA_OK)
        return mica_writer_finish(writer);
    mica_writer_discard(writer);
    return status;
}

/* Walks the directory by hand: names, checksums, and where the data came to lie. */
static void check_written(const rig_bytes *b)
{
    size_t at = (size_t)number_at(b, b->size - 6, 4), value = 0;
    assert_int_equal(number_at(b, b->size - 22, 4), 0x06054b50);
    assert_int_equal(number_at(b, b->size - 12, 2), WANTED);
    for (size_t i = 0; i < WANTED; i++) {
        const size_t size = (size_t)number_at(b, at + 24, 4), name = (size_t)number_at(b, at + 28, 2);
        const size_t local = (size_t)number_at(b, at + 42, 4);
        const size_t data = local + 30 + name + (size_t)number_at(b, local + 28, 2);
        const size_t header = 10 + (size_t)number_at(b, data + 8, 2);
        assert_int_equal(number_at(b, at, 4), 0x02014b50);
        assert_int_equal(number_at(b, local, 4), 0x04034b50);
        assert_int_equal(number_at(b, at + 20, 4), size);
        assert_int_equal(name, strlen(wanted[i].name) + 4);
        assert_memory_equal(b->data + at + 46, wanted[i].name, name - 4);
        assert_memory_equal(b->data + local + 30, wanted[i].name, name - 4);
        assert_int_equal(size, header + wanted[i].bytes);
        assert_int_equal((data + header) % 64, 0);
        assert_int_equal(number_at(b, at + 16, 4), crc_of(b->data + data, size));
        assert_int_equal(number_at(b, data + size, 4), 0x08074b50);
        assert_int_equal(number_at(b, data + size + 4, 4), crc_of(b->data + data, size));
        for (size_t k = 0; k < wanted[i].bytes; k++, value++)
            assert_int_equal(b->data[data + header + k], (uint8_t)(value * value + 3));
        at += 46 + name + (size_t)number_at(b, at + 30, 2);
    }
    assert_int_equal(at, b->size - 22);
}

static void writes(void **state)
{
    scene s;
    rig_bytes b;
    mica__archive *archive;
    (void)state;
    snprintf(s.path, sizeof s.path, "%s/mica_npz_%ld.npz", P_tmpdir, (long)getpid());
    if (play_write(&s) != MICA_OK)
        fail_msg("%s", mica_status_message());
    b = rig_load(s.path);
    check_written(&b);
    archive = rig_open_ok(mica__npz_read, &b);
    rig_check(archive);
    for (size_t i = 0; i < WANTED; i++) {
        const mica__tensor *t = rig_tensor(archive, wanted[i].name);
        assert_int_equal(t->dtype, wanted[i].dtype);
        assert_int_equal(t->ndim, wanted[i].ndim);
        assert_int_equal(t->bytes, wanted[i].bytes);
    }
    mica__archive_close(archive);
    rig_free(&b);
    rig_fail_allocations(play_write, &s);
    unlink(s.path);
}

/* 65,536 members do not fit the plain end record. */
static void writes_many(void **state)
{
    const uint32_t count = 65536;
    const uint64_t shape[] = {1};
    mica_writer_options options = {.size = sizeof options, .overwrite = 1};
    mica_writer *writer = NULL;
    mica__archive *archive = NULL;
    char path[256], name[32];
    (void)state;
    snprintf(path, sizeof path, "%s/mica_npz_many_%ld.npz", P_tmpdir, (long)getpid());
    assert_int_equal(mica_writer_create(path, &options, &writer), MICA_OK);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(mica_writer_tensor(writer, name, MICA_DTYPE_U8, 1, shape), MICA_OK);
    }
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(mica_writer_write(writer, &i, 1), MICA_OK);
    assert_int_equal(mica_writer_finish(writer), MICA_OK);
    assert_int_equal(mica__archive_open(path, &archive), MICA_OK);
    assert_int_equal(archive->visible_count, count);
    {
        uint8_t byte = 0;
        assert_int_equal(mica__archive_read(archive, rig_tensor(archive, "t65535"), 0, &byte, 1), MICA_OK);
        assert_int_equal(byte, 255);
    }
    mica__archive_close(archive);
    unlink(path);
}

static void refuses_to_write(void **state)
{
    const uint64_t shape[] = {32};
    mica_writer *writer = NULL;
    char path[256], name[8192];
    (void)state;
    snprintf(path, sizeof path, "%s/mica_npz_none_%ld.npz", P_tmpdir, (long)getpid());
    assert_int_equal(mica_writer_create(path, NULL, &writer), MICA_OK);
    assert_int_equal(mica_writer_string(writer, "k", "v"), MICA_ERR_UNSUPPORTED);
    assert_int_equal(mica_writer_tensor(writer, "x", MICA_DTYPE_Q8_0, 1, shape), MICA_ERR_UNSUPPORTED);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(mica_writer_tensor(writer, name, MICA_DTYPE_F32, 1, shape), MICA_ERR_INVALID_ARGUMENT);
    mica_writer_discard(writer);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(mica_host_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(reads_an_empty_one),
        cmocka_unit_test(lists_compressed),
        cmocka_unit_test(refuses_members),
        cmocka_unit_test(refuses_pairs),
        cmocka_unit_test(refuses_ends),
        cmocka_unit_test(refuses_bad_npy),
        cmocka_unit_test(takes_cuts_and_flips),
        cmocka_unit_test(writes),
        cmocka_unit_test(writes_many),
        cmocka_unit_test(refuses_to_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
