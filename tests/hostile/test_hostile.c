/*
 * test_hostile.c - every file that generate.py makes, read. The generator says what each must give, by the rules of the
 * format and without a look at the readers: a status, or these tensors with these bytes and this metadata. Each within 50
 * ms of processor time and 64 MB (but for files of 10^6 entries), each refusal with a sentence, nothing kept.
 */
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "format/format_rig.h"
#include "support/model_file.h"
#include "support/sanitizer.h"

#define MOST_FILES 8
#define MOST_SHOWN 20
#define MOST_BYTES ((uint64_t)64 << 20)
#define MOST_SECONDS 0.050
/* Of files with a million entries: seconds, and of those marked wide memory by the size of the file. */
#define WIDE 2
#define WIDE_FACTOR 5
#define LARGE_SECONDS 2.0

/* ---- the stream ----------------------------------------------------------------------------------------- */

static void take(FILE *stream, void *out, size_t size)
{
    if (fread(out, 1, size, stream) != size)
        fail_msg("the generator stopped in the middle of a file");
}

static uint64_t take_number(FILE *stream, int bytes)
{
    uint8_t raw[8] = {0};
    uint64_t number = 0;
    take(stream, raw, (size_t)bytes);
    for (int i = bytes - 1; i >= 0; i--)
        number = number << 8 | raw[i];
    return number;
}

/* `size` bytes with a NUL after them, exactly as long as that; the caller frees them. */
static char *take_bytes(FILE *stream, uint64_t size)
{
    char *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    take(stream, bytes, (size_t)size);
    bytes[size] = '\0';
    return bytes;
}

typedef struct text {
    char *data;
    uint64_t length;
} text;

static text take_text(FILE *stream)
{
    text t = {.length = take_number(stream, 4)};
    t.data = take_bytes(stream, t.length);
    return t;
}

typedef struct hostile {
    uint8_t kind, large;
    text label, status;
    uint32_t count;
    text name[MOST_FILES];
    text file[MOST_FILES];
    uint64_t total;
} hostile;

static bool take_case(FILE *stream, hostile *out)
{
    memset(out, 0, sizeof *out);
    if (fread(&out->kind, 1, 1, stream) != 1)
        return false;
    out->label = take_text(stream);
    out->large = (uint8_t)take_number(stream, 1);
    out->status = take_text(stream);
    out->count = (uint32_t)take_number(stream, 4);
    assert_true(out->count <= MOST_FILES);
    for (uint32_t i = 0; i < out->count; i++) {
        out->name[i] = take_text(stream);
        out->file[i].length = take_number(stream, 8);
        out->file[i].data = take_bytes(stream, out->file[i].length);
        out->total += out->file[i].length;
    }
    return true;
}

static void free_case(hostile *h)
{
    free(h->label.data);
    free(h->status.data);
    for (uint32_t i = 0; i < h->count; i++) {
        free(h->name[i].data);
        free(h->file[i].data);
    }
}

/* ---- reading -------------------------------------------------------------------------------------------- */

typedef struct watch {
    uint64_t live, peak;
} watch;

static void *watch_take(void *context, size_t size, size_t align)
{
    watch *w = context;
    void *memory = NULL;
    if (posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, size) != 0)
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

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static char folder[128];

static void clear_folder(const hostile *h)
{
    for (uint32_t i = 0; i < h->count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, h->name[i].data);
        unlink(path);
    }
}

static mica_status open_case(const hostile *h, mica__archive **out)
{
    static const struct {
        uint8_t kind;
        rig_reader reader;
    } readers[] = {
        {'g', mica__gguf_read}, {'s', mica__safetensors_read}, {'n', mica__npy_read}, {'z', mica__npz_read}};
    const rig_bytes bytes = {(uint8_t *)h->file[0].data, (size_t)h->file[0].length, 0};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (readers[i].kind == h->kind)
            return rig_open(readers[i].reader, &bytes, out);
    return mica__archive_open(folder, out);
}

/* ---- what was read against what was stated -------------------------------------------------------------- */

static void put_value(rig_bytes *out, mica_value_type type, const mica_value *value);

static void put_string(rig_bytes *out, const mica_string *string)
{
    rig_number(out, string->length, 4);
    rig_put(out, string->data, (size_t)string->length);
}

/* Readers limit the depth, so recursion is fine here. */
static void put_items(rig_bytes *out, const mica_value *value)
{
    static const uint8_t sizes[MICA_VALUE_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    rig_number(out, (uint64_t)value->item_type, 4);
    rig_number(out, value->count, 8);
    if (value->item_type == MICA_VALUE_STRING)
        for (uint64_t i = 0; i < value->count; i++)
            put_string(out, (const mica_string *)value->as.items + i);
    else if (value->item_type == MICA_VALUE_ARRAY)
        for (uint64_t i = 0; i < value->count; i++)
            put_value(out, MICA_VALUE_ARRAY, (const mica_value *)value->as.items + i);
    else
        rig_put(out, value->as.items, (size_t)(value->count * sizes[value->item_type]));
}

static void put_value(rig_bytes *out, mica_value_type type, const mica_value *value)
{
    if (type == MICA_VALUE_STRING)
        put_string(out, &value->as.string);
    else if (type == MICA_VALUE_ARRAY)
        put_items(out, value);
    else
        rig_number(out, value->as.u, 8); /* the bits, whichever member it is */
}

/* NULL, or what differs. */
static const char *compare_meta(FILE *stream, const mica__archive *archive, uint32_t index)
{
    const text key = take_text(stream), value = take_text(stream);
    const char *fault = NULL;
    rig_bytes found = {0};
    if (archive != NULL && index < archive->meta_count) {
        const mica__meta *meta = &archive->meta[index];
        rig_number(&found, (uint64_t)meta->value.type, 4);
        put_value(&found, meta->value.type, &meta->value);
        if (meta->key.length != key.length || memcmp(meta->key.data, key.data, (size_t)key.length) != 0)
            fault = "a key";
        else if (found.size != value.length || memcmp(found.data, value.data, found.size) != 0)
            fault = "a value";
    }
    rig_free(&found);
    free(key.data);
    free(value.data);
    return fault;
}

typedef struct stated {
    text name, dtype;
    uint32_t ndim, file;
    uint64_t shape[MICA_MAX_DIMS], offset, size;
} stated;

static const char *compare_tensor(const hostile *h, const mica__archive *archive, const stated *s)
{
    const uint32_t index = mica__archive_find(archive, s->name.data, (size_t)s->name.length);
    const mica__tensor *found = &archive->tensor[index == MICA__NO_TENSOR ? 0 : index];
    const char *fault = NULL;
    if (index == MICA__NO_TENSOR)
        return "a tensor is missing";
    if ((s->dtype.length == 0) != (mica__archive_usable(archive, found) == MICA_ERR_UNSUPPORTED))
        return "whether a tensor can be used";
    if (s->dtype.length != 0 && strcmp(mica_dtype_name((mica_dtype)found->dtype), s->dtype.data) != 0)
        return "a dtype";
    if (found->ndim != s->ndim ||
        (s->ndim != 0 && memcmp(found->shape, s->shape, s->ndim * sizeof s->shape[0]) != 0))
        return "a shape";
    if (found->offset != s->offset || found->bytes != s->size)
        return "an offset or a size";
    char *bytes = malloc((size_t)s->size + 1);
    assert_non_null(bytes);
    if (mica__archive_read(archive, found, 0, bytes, s->size) != MICA_OK ||
        memcmp(bytes, h->file[s->file].data + s->offset, (size_t)s->size) != 0)
        fault = "the bytes of a tensor";
    free(bytes);
    return fault;
}

/* Takes the statement from the stream, whether or not there is an archive to compare. */
static const char *compare_archive(FILE *stream, const hostile *h, const mica__archive *archive)
{
    const char *fault = NULL;
    const uint32_t tensors = (uint32_t)take_number(stream, 4);
    for (uint32_t i = 0; i < tensors; i++) {
        stated s = {.name = take_text(stream), .dtype = take_text(stream)};
        s.ndim = (uint32_t)take_number(stream, 4);
        assert_true(s.ndim <= MICA_MAX_DIMS);
        for (uint32_t d = 0; d < s.ndim; d++)
            s.shape[d] = take_number(stream, 8);
        s.file = (uint32_t)take_number(stream, 4);
        s.offset = take_number(stream, 8);
        s.size = take_number(stream, 8);
        if (archive != NULL && fault == NULL)
            fault = compare_tensor(h, archive, &s);
        free(s.name.data);
        free(s.dtype.data);
    }
    const uint32_t metas = (uint32_t)take_number(stream, 4);
    for (uint32_t i = 0; i < metas; i++) {
        const char *difference = compare_meta(stream, archive, i);
        fault = fault == NULL ? difference : fault;
    }
    if (archive != NULL && fault == NULL &&
        (archive->visible_count != tensors || archive->meta_count != metas))
        fault = "the number of tensors or keys";
    return fault;
}

/* ---- the tests ------------------------------------------------------------------------------------------ */

typedef struct tally {
    uint32_t files, refused, wrong;
    uint64_t peak;
    double seconds;
} tally;

static const char *judge_costs(const hostile *h, double seconds, uint64_t peak)
{
    const uint64_t most = h->large == WIDE ? WIDE_FACTOR * h->total : MOST_BYTES;
    if (peak > most)
        return "took too much memory";
    if (!TEST_ANY_SANITIZER && seconds > (h->large ? LARGE_SECONDS : MOST_SECONDS))
        return "took too long";
    return NULL;
}

/* Reads one file and says what differs, or NULL. */
static const char *play(FILE *stream, const hostile *h, tally *t)
{
    watch w = {0};
    const mica_allocator allocator = {&w, watch_take, watch_give};
    mica__archive *archive = NULL;
    for (uint32_t i = 0; h->kind == 'f' && i < h->count; i++)
        rig_file(folder, h->name[i].data, h->file[i].data, (size_t)h->file[i].length);
    assert_int_equal(mica_set_allocator(&allocator), MICA_OK);
    const double start = seconds_now();
    const mica_status status = open_case(h, &archive);
    const double seconds = seconds_now() - start;
    const bool said = status == MICA_OK || mica_status_message()[0] != '\0';
    const char *fault =
        strcmp(h->status.data, mica_status_name(MICA_OK)) == 0 ? compare_archive(stream, h, archive) : NULL;
    mica__archive_close(archive);
    if (strcmp(mica_status_name(status), h->status.data) != 0)
        fault = mica_status_name(status);
    else if (!said)
        fault = "no sentence";
    else if (w.live != 0)
        fault = "memory was kept";
    assert_int_equal(mica_set_allocator(NULL), MICA_OK);
    if (h->kind == 'f')
        clear_folder(h);
    t->files++;
    t->refused += status != MICA_OK;
    t->peak = w.peak > t->peak ? w.peak : t->peak;
    t->seconds = seconds > t->seconds ? seconds : t->seconds;
    return fault != NULL ? fault : judge_costs(h, seconds, w.peak);
}

static void read_part(const char *part, uint32_t least)
{
    char command[256];
    tally t = {0};
    hostile h;
    if (system("python3 -c pass >/dev/null 2>&1") != 0)
        skip();
    snprintf(command, sizeof command, "python3 -B tests/hostile/generate.py %s 2>/dev/null", part);
    FILE *stream = popen(command, "r");
    assert_non_null(stream);
    test_file_path(folder, sizeof folder, "hostile");
    assert_int_equal(mkdir(folder, 0700), 0);
    while (take_case(stream, &h)) {
        const char *fault = play(stream, &h, &t);
        if (fault != NULL && t.wrong++ < MOST_SHOWN)
            print_error("%s: expected %s, got %s: %s\n", h.label.data, h.status.data, fault,
                        mica_status_message());
        free_case(&h);
    }
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(pclose(stream), 0);
    print_message("%s: %u files, %u refused; at most %.2f ms and %llu kB\n", part, t.files, t.refused,
                  1e3 * t.seconds, (unsigned long long)(t.peak >> 10));
    assert_int_equal(t.wrong, 0);
    assert_true(t.files >= least);
}

static void gguf(void **state)
{
    (void)state;
    read_part("gguf", 10000);
}

static void safetensors(void **state)
{
    (void)state;
    read_part("safetensors", 3000);
}

static void npy(void **state)
{
    (void)state;
    read_part("npy", 3000);
}

static void npz(void **state)
{
    (void)state;
    read_part("npz", 10000);
}

static void folders(void **state)
{
    (void)state;
    read_part("folder", 2000);
}

static void million(void **state)
{
    (void)state;
    if (TEST_ANY_SANITIZER)
        skip();
    read_part("million", 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf), cmocka_unit_test(safetensors), cmocka_unit_test(npy),
        cmocka_unit_test(npz),  cmocka_unit_test(folders),     cmocka_unit_test(million),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
