/*
 * npy_read.c - reads numpy's array format: a magic, a version, a Python dict in text, the elements.
 *
 * Knows no Python beyond that dict: three known keys, each once; strings without escapes, True and False, a tuple of
 * whole numbers. A list (a structured type) is only passed over. Knows no zip.
 */
#include "format/npy.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/work.h"

#define MAX_HEADER (1u << 20) /* bytes; numpy itself stops at 10,000 unless it is told otherwise */
#define PREAMBLE_V1 10        /* magic, version, length in two bytes */
#define PREAMBLE_V2 12        /* the same with four */

/* Kind and size of an element behind the byte order mark. V2 is what numpy and MLX write for bfloat16, which numpy
 * has no word for. */
typedef struct element {
    char word[4];
    uint16_t dtype;
    uint16_t bytes;
    const char *descr; /* as a little-endian file has it */
} element;

static const element elements[] = {
    {"f4", MICA_DTYPE_F32, 4, "<f4"}, {"f2", MICA_DTYPE_F16, 2, "<f2"},  {"V2", MICA_DTYPE_BF16, 2, "<V2"},
    {"f8", MICA_DTYPE_F64, 8, "<f8"}, {"c8", MICA_DTYPE_C64, 8, "<c8"},  {"i1", MICA_DTYPE_I8, 1, "|i1"},
    {"i2", MICA_DTYPE_I16, 2, "<i2"}, {"i4", MICA_DTYPE_I32, 4, "<i4"},  {"i8", MICA_DTYPE_I64, 8, "<i8"},
    {"u1", MICA_DTYPE_U8, 1, "|u1"},  {"u2", MICA_DTYPE_U16, 2, "<u2"},  {"u4", MICA_DTYPE_U32, 4, "<u4"},
    {"u8", MICA_DTYPE_U64, 8, "<u8"}, {"b1", MICA_DTYPE_BOOL, 1, "|b1"},
};

#define ELEMENT_COUNT (sizeof elements / sizeof elements[0])

const char *mica__npy_descr(uint16_t dtype)
{
    for (size_t i = 0; i < ELEMENT_COUNT; i++)
        if (elements[i].dtype == dtype)
            return elements[i].descr;
    return NULL;
}

/* The text of a header, and how far it has been read. */
typedef struct cursor {
    const char *at, *end;
} cursor;

enum { KEY_DESCR = 1, KEY_FORTRAN = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

typedef struct npy_header {
    const char *descr; /* NULL: a list, which is a structured type */
    size_t descr_length;
    uint64_t shape[MICA_MAX_DIMS];
    uint64_t elements;
    uint32_t ndim;
    unsigned seen; /* KEY_* */
    bool fortran, wraps;
} npy_header;

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* Takes `mark` if it comes next, white space before it or not. */
static bool take(cursor *c, char mark)
{
    skip_space(c);
    if (c->at == c->end || *c->at != mark)
        return false;
    c->at++;
    return true;
}

static bool take_word(cursor *c, const char *word)
{
    const size_t length = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

static bool take_string(cursor *c, const char **out_text, size_t *out_length)
{
    const char *start;
    char quote;
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return false;
    quote = *c->at++;
    start = c->at;
    while (c->at < c->end && *c->at != quote && *c->at != '\\' && *c->at != '\n' && *c->at != '\0')
        c->at++;
    if (c->at == c->end || *c->at != quote)
        return false;
    *out_text = start;
    *out_length = (size_t)(c->at++ - start);
    return true;
}

/* A structured type: brackets are counted, strings passed over. */
static bool skip_list(cursor *c)
{
    uint32_t depth = 0;
    do {
        const char *text;
        size_t length;
        skip_space(c);
        if (c->at == c->end)
            return false;
        if (*c->at == '\'' || *c->at == '"') {
            if (!take_string(c, &text, &length))
                return false;
            continue;
        }
        depth += *c->at == '[';
        depth -= *c->at == ']';
        c->at++;
    } while (depth != 0);
    return true;
}

/* Digits without a leading zero; Python 2 put an L behind some. */
static bool take_number(cursor *c, uint64_t *out)
{
    const char *start;
    uint64_t value = 0;
    skip_space(c);
    for (start = c->at; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (!mica__mul_u64(value, 10, &value) || !mica__add_u64(value, (uint64_t)(*c->at - '0'), &value))
            return false;
    if (c->at == start || (*start == '0' && c->at - start > 1))
        return false;
    if (c->at < c->end && *c->at == 'L')
        c->at++;
    *out = value;
    return true;
}

/* (), (3,), (3, 4) and (3, 4,). A product past 64 bits is noted: whether it counts is the element's business. */
static bool take_shape(cursor *c, npy_header *h)
{
    bool comma = true;
    if (!take(c, '('))
        return false;
    h->elements = 1;
    while (!take(c, ')')) {
        uint64_t size = 0;
        if (!comma || !take_number(c, &size))
            return false;
        if (h->ndim < MICA_MAX_DIMS)
            h->shape[h->ndim] = size;
        h->ndim++;
        h->wraps = !mica__mul_u64(h->elements, size, &h->elements) || h->wraps;
        comma = take(c, ',');
    }
    return h->ndim != 1 || comma;
}

static bool take_value(cursor *c, unsigned key, npy_header *h)
{
    if (key == KEY_SHAPE)
        return take_shape(c, h);
    if (key == KEY_FORTRAN) {
        h->fortran = take_word(c, "True");
        return h->fortran || take_word(c, "False");
    }
    skip_space(c);
    if (c->at < c->end && *c->at == '[')
        return skip_list(c);
    if (!take_string(c, &h->descr, &h->descr_length))
        return false;
    for (size_t i = 0; i < h->descr_length; i++) /* it is shown as the type's name */
        if (h->descr[i] < 0x20 || h->descr[i] > 0x7e)
            return false;
    return true;
}

static unsigned key_named(const char *text, size_t length)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    for (unsigned i = 0; i < 3; i++)
        if (strlen(keys[i]) == length && memcmp(keys[i], text, length) == 0)
            return 1u << i;
    return 0;
}

/* The whole dict. NULL, or what is wrong with it. */
static const char *parse_header(cursor *c, npy_header *out)
{
    bool comma = true;
    memset(out, 0, sizeof *out);
    if (!take(c, '{'))
        return "it does not begin with '{'";
    while (!take(c, '}')) {
        const char *text = NULL;
        size_t length = 0;
        unsigned key;
        if (!comma || !take_string(c, &text, &length) || !take(c, ':'))
            return "a key in quotes and a colon were expected";
        key = key_named(text, length);
        if (key == 0 || (out->seen & key) != 0)
            return "its keys are not descr, fortran_order and shape, each once";
        out->seen |= key;
        if (!take_value(c, key, out))
            return key == KEY_SHAPE     ? "shape is not a tuple of whole numbers"
                   : key == KEY_FORTRAN ? "fortran_order is neither True nor False"
                                        : "descr is neither a plain string nor a list";
        comma = take(c, ',');
    }
    skip_space(c);
    if (c->at != c->end)
        return "something follows its '}'";
    return out->seen == KEY_ALL ? NULL : "descr, fortran_order or shape is missing";
}

/* An array being read, with what its sentences need. */
typedef struct place {
    mica__archive *archive;
    const char *path, *member;
    uint64_t offset, bytes; /* of the whole npy */
} place;

static mica_status refuse(const place *p, const char *what)
{
    if (p->member == NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": %s", p->path, what);
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": member \"%.200s\": %s", p->path, p->member, what);
}

static mica_status refuse_header(const place *p, const char *what)
{
    if (p->member == NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": the npy header: %s", p->path, what);
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": member \"%.200s\": the npy header: %s", p->path,
                      p->member, what);
}

static mica_status wrong_size(const place *p, const char *type, uint64_t found, uint64_t expected)
{
    return mica__fail(
        MICA_ERR_MALFORMED_FILE, "\"%s\": %s%.200s%sthe data has %llu bytes, but descr %s and shape say %llu",
        p->path, p->member == NULL ? "" : "member \"", p->member == NULL ? "" : p->member,
        p->member == NULL ? "" : "\": ", (unsigned long long)found, type, (unsigned long long)expected);
}

/* The element that descr names, NULL if none; a mark that says nothing about the order is right for single bytes and
 * for V2 alone. */
static const element *find_element(const npy_header *h)
{
    if (h->descr == NULL || h->descr_length != 3 || strchr("<>|", h->descr[0]) == NULL)
        return NULL;
    for (size_t i = 0; i < ELEMENT_COUNT; i++)
        if (memcmp(elements[i].word, h->descr + 1, 2) == 0 &&
            (h->descr[0] != '|' || elements[i].bytes == 1 || elements[i].dtype == MICA_DTYPE_BF16))
            return &elements[i];
    return NULL;
}

/* The file's word for the type: descr, "structured", and before it whether the order of elements is Fortran's. */
static const char *type_name(const place *p, const npy_header *h, bool fortran)
{
    static const char prefix[] = "fortran order ", structured[] = "structured";
    const char *word = h->descr == NULL ? structured : h->descr;
    const size_t length = h->descr == NULL ? sizeof structured - 1 : h->descr_length;
    const size_t before = fortran ? sizeof prefix - 1 : 0;
    char *text = mica__archive_alloc(p->archive, before + length + 1);
    if (text == NULL)
        return NULL;
    memcpy(text, prefix, before);
    memcpy(text + before, word, length);
    text[before + length] = '\0';
    return text;
}

static mica_status make_tensor(const place *p, const npy_header *h, uint64_t header_bytes, mica__tensor *out)
{
    const element *e = find_element(h);
    const bool fortran = h->fortran && h->ndim > 1;
    uint64_t expected = 0;

    memset(out, 0, sizeof *out);
    out->offset = p->offset + header_bytes;
    out->bytes = p->bytes - header_bytes;
    out->scales = out->biases = MICA__NO_TENSOR;
    out->type_name = type_name(p, h, fortran);
    if (out->type_name == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (h->ndim <= MICA_MAX_DIMS) {
        out->ndim = (uint8_t)h->ndim;
        memcpy(out->shape, h->shape, h->ndim * sizeof h->shape[0]);
    }
    if (e != NULL) {
        if (h->wraps || !mica__mul_u64(h->elements, e->bytes, &expected))
            return refuse_header(p, "the dimensions in shape multiply to more than a file can hold");
        if (expected != out->bytes)
            return wrong_size(p, out->type_name, out->bytes, expected);
    }
    out->dtype = e == NULL || fortran ? MICA_DTYPE_NONE : e->dtype;
    if (out->dtype == MICA_DTYPE_NONE)
        out->problem = MICA__TENSOR_TYPE;
    else if (h->descr[0] == '>' && e->bytes > 1)
        out->problem = MICA__TENSOR_BYTE_ORDER;
    else if (h->ndim > MICA_MAX_DIMS)
        out->problem = MICA__TENSOR_DIMS;
    return MICA_OK;
}

/* Where the dict lies: its first byte and its length, both inside the npy. */
static mica_status find_header(const place *p, uint32_t *out_start, uint32_t *out_length)
{
    uint8_t raw[PREAMBLE_V2] = {0};
    const size_t have = p->bytes < sizeof raw ? (size_t)p->bytes : sizeof raw;
    if (have < PREAMBLE_V1)
        return refuse(p, "too short for an npy");
    MICA__TRY(mica__file_read_at(p->archive->file[0], p->offset, raw, have));
    if (memcmp(raw, MICA__NPY_MAGIC, MICA__NPY_MAGIC_BYTES) != 0)
        return refuse(p, "it does not begin with the magic of npy");
    if (raw[6] < 1 || raw[6] > 3 || raw[7] != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": npy version %u.%u%s%.200s, known are 1.0, 2.0 and 3.0", p->path, raw[6],
                          raw[7], p->member == NULL ? "" : " in member ", p->member == NULL ? "" : p->member);
    *out_start = raw[6] == 1 ? PREAMBLE_V1 : PREAMBLE_V2;
    *out_length = (uint32_t)raw[8] | (uint32_t)raw[9] << 8;
    if (raw[6] != 1)
        *out_length |= (uint32_t)raw[10] << 16 | (uint32_t)raw[11] << 24;
    if (*out_start > p->bytes || *out_length > p->bytes - *out_start)
        return refuse_header(p, "its length goes past the end");
    if (*out_length > MAX_HEADER)
        return refuse_header(p, "longer than a mebibyte");
    return MICA_OK;
}

mica_status mica__npy_tensor(mica__archive *archive, const char *member, uint64_t offset, uint64_t bytes,
                             mica__tensor *out)
{
    const place p = {archive, mica__file_path(archive->file[0]), member, offset, bytes};
    uint32_t start = 0, length = 0;
    const char *fault = NULL;
    char *text;
    npy_header h;
    MICA__TRY(find_header(&p, &start, &length));
    mica__spend_allow(length);
    MICA__TRY(mica__spend(length / 2 + 1));
    text = mica__alloc(length);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "\"%s\": no memory for an npy header of %u bytes", p.path,
                          length);
    mica_status status = mica__file_read_at(archive->file[0], offset + start, text, length);
    if (status == MICA_OK) {
        cursor c = {text, text + length};
        fault = parse_header(&c, &h);
        status =
            fault != NULL ? refuse_header(&p, fault) : make_tensor(&p, &h, (uint64_t)start + length, out);
    }
    mica__free(text);
    return status;
}

mica_status mica__npy_read(mica__archive *archive)
{
    archive->format = MICA_FORMAT_NPY;
    archive->tensor = mica__archive_alloc(archive, sizeof *archive->tensor);
    if (archive->tensor == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    MICA__TRY(mica__npy_tensor(archive, NULL, 0, mica__file_size(archive->file[0]), archive->tensor));
    archive->tensor->name = mica__archive_text(archive, "array", 5);
    if (archive->tensor->name == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    archive->tensor->name_length = 5;
    archive->tensor_count = archive->visible_count = 1;
    return mica__archive_index(archive);
}
