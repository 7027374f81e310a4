/* json_reader.c: the structure of a document as events: containers, commas, limits, and the window over its text. No
 * recursion: an open container is one level in an array. */
#include "base/json/json_reader.h"

#include <string.h>

#include "base/alloc.h"
#include "base/work.h"

#define DEFAULT_BYTES ((size_t)128 << 20)
#define DEFAULT_DEPTH 64
#define DEBT 1024     /* items between two looks at the limits */
#define ITEM_STEPS 8  /* of one */
#define STEP_BYTES 16 /* of text that take a step */
#define FIRST_LEVELS 16
#define FIRST_WINDOW ((size_t)256 << 10)
/* Bytes that are in the window, if the text has them, where an item begins: the longest word. */
#define LOOKAHEAD 16

/* Where a place of the window is in the document. */
static uint64_t offset_of(const mica__json_reader *reader, const char *at)
{
    return reader->base + (uint64_t)(at - reader->text);
}

mica_status mica__json_malformed(const mica__json_reader *reader, const char *at, const char *what)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "JSON at byte %llu: %s",
                      (unsigned long long)offset_of(reader, at), what);
}

static mica_status past_limit(const mica__json_reader *reader, const char *what, uint32_t limit)
{
    return mica__fail(MICA_ERR_BUDGET, "JSON at byte %llu: more than %u %s",
                      (unsigned long long)offset_of(reader, reader->at), (unsigned)limit, what);
}

/* ---- the window ----------------------------------------------------------------------------------------- */

/* A window of twice the size, or of all that is to come if that is less. */
static mica_status grow_window(mica__json_reader *reader, size_t kept)
{
    const uint64_t all = kept + reader->left;
    const size_t window = reader->window < all / 2 ? reader->window * 2 : (size_t)all;
    char *text = mica__realloc(reader->text, window + MICA__JSON_PADDING);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes of JSON", window);
    reader->at = text + (reader->at - reader->text);
    reader->token = reader->token == NULL ? NULL : text;
    reader->text = text;
    reader->window = window;
    return MICA_OK;
}

mica_status mica__json_refill(mica__json_reader *reader)
{
    char *const keep = reader->token != NULL ? reader->token : reader->at;
    const size_t shift = (size_t)(keep - reader->text), kept = (size_t)(reader->end - keep);
    mica_status status = MICA_OK;
    memmove(reader->text, keep, kept);
    reader->base += shift;
    reader->at -= shift;
    reader->token = reader->token == NULL ? NULL : reader->text;
    if (kept > reader->window / 2)
        status = grow_window(reader, kept);
    const size_t room = reader->window - kept, size = reader->left < room ? (size_t)reader->left : room;
    if (status == MICA_OK)
        status = mica__file_read_at(reader->file, reader->file_at, reader->text + kept, size);
    reader->end = reader->text + kept + (status == MICA_OK ? size : 0);
    memset(reader->end, 0, MICA__JSON_PADDING);
    reader->file_at += size;
    reader->left -= size;
    return status;
}

static mica_status skip_far(mica__json_reader *reader)
{
    for (;;) {
        char *at = reader->at;
        while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')
            at++;
        reader->at = at;
        if (reader->end - at >= LOOKAHEAD || reader->left == 0)
            return MICA_OK;
        const mica_status status = mica__json_refill(reader);
        if (status != MICA_OK)
            return status;
    }
}

/* To the next character that is no white space, with the lookahead behind it; most often that is this one. */
static inline mica_status skip_space(mica__json_reader *reader)
{
    if ((unsigned char)*reader->at > ' ' && reader->end - reader->at >= LOOKAHEAD)
        return MICA_OK;
    return skip_far(reader);
}

/* ---- items ---------------------------------------------------------------------------------------------- */

static mica_status open_container(mica__json_reader *reader, mica__json_node *item, mica__json_type type)
{
    if (reader->depth == reader->limits.max_depth)
        return past_limit(reader, "containers inside each other", reader->limits.max_depth);
    if (reader->depth == reader->level_capacity) {
        const uint32_t capacity = reader->level_capacity == 0 ? FIRST_LEVELS : reader->level_capacity * 2;
        mica__json_level *grown = mica__realloc(reader->level, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u JSON containers", (unsigned)capacity);
        reader->level = grown;
        reader->level_capacity = capacity;
    }
    item->type = (uint8_t)type;
    reader->level[reader->depth++] =
        (mica__json_level){.keys = reader->keys.count, .object = type == MICA__JSON_OBJECT};
    reader->at++;
    return MICA_OK;
}

static mica_status close_container(mica__json_reader *reader, mica__json_node *item)
{
    const mica__json_level *level = &reader->level[--reader->depth];
    item->type = level->object ? MICA__JSON_OBJECT : MICA__JSON_ARRAY;
    item->child_count = level->items;
    reader->at++;
    return mica__json_keys_drop(&reader->keys, level->keys);
}

static mica_status read_word(mica__json_reader *reader, mica__json_node *item)
{
    static const struct {
        const char *text;
        size_t length;
        mica__json_type type;
        bool constant;
    } words[] = {{"null", 4, MICA__JSON_NULL, false},      {"false", 5, MICA__JSON_FALSE, false},
                 {"true", 4, MICA__JSON_TRUE, false},      {"NaN", 3, MICA__JSON_NUMBER, true},
                 {"Infinity", 8, MICA__JSON_NUMBER, true}, {"-Infinity", 9, MICA__JSON_NUMBER, true}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if ((!words[i].constant || reader->constants) &&
            strncmp(reader->at, words[i].text, words[i].length) == 0) {
            item->type = (uint8_t)words[i].type;
            reader->at += words[i].length;
            return MICA_OK;
        }
    }
    return mica__json_malformed(reader, reader->at,
                                reader->at == reader->end ? "the text ends where a value is expected"
                                                          : "a value is expected");
}

static mica_status read_string(mica__json_reader *reader, mica__json_node *item)
{
    size_t offset = 0;
    reader->at++;
    item->type = MICA__JSON_STRING;
    const mica_status status = mica__json_scan_string(reader, &offset, &item->string.length);
    item->string.data = reader->token + offset;
    return status;
}

/* The value at reader->at: a leaf, or the beginning of a container. */
static mica_status read_value(mica__json_reader *reader, mica__json_event *out_event, mica__json_node *item)
{
    const char c = *reader->at;
    if (reader->values == reader->limits.max_nodes)
        return past_limit(reader, "values", reader->limits.max_nodes);
    reader->values++;
    *out_event = c == '[' || c == '{' ? MICA__JSON_EVENT_OPEN : MICA__JSON_EVENT_VALUE;
    if (c == '"')
        return read_string(reader, item);
    if (c == '[' || c == '{')
        return open_container(reader, item, c == '[' ? MICA__JSON_ARRAY : MICA__JSON_OBJECT);
    if ((c >= '0' && c <= '9') || (c == '-' && !(reader->constants && reader->at[1] == 'I')))
        return mica__json_scan_number(reader, item);
    return read_word(reader, item);
}

/* The key at reader->at, followed by its colon; it begins one byte behind reader->token. */
static mica_status read_key(mica__json_reader *reader, size_t *out_length)
{
    size_t offset = 0;
    if (*reader->at != '"')
        return mica__json_malformed(reader, reader->at, "a key in quotes is expected");
    reader->at++;
    mica_status status = mica__json_scan_string(reader, &offset, out_length);
    if (status == MICA_OK && reader->depth > reader->unchecked_levels)
        status = mica__json_keys_add(&reader->keys, reader->token + 1, *out_length,
                                     offset_of(reader, reader->token + 1));
    if (status == MICA_OK)
        status = skip_space(reader);
    if (status == MICA_OK && *reader->at != ':')
        return mica__json_malformed(reader, reader->at, "a colon is expected after the key");
    if (status != MICA_OK)
        return status;
    reader->at++;
    return skip_space(reader);
}

/* The next element or member, behind its comma. */
static mica_status read_child(mica__json_reader *reader, mica__json_level *level, mica__json_event *out_event,
                              mica__json_node *item)
{
    const bool object = level->object;
    size_t length = 0;
    mica_status status = MICA_OK;
    if (level->items != 0) {
        if (*reader->at != ',')
            return mica__json_malformed(reader, reader->at,
                                        object ? "a comma or } is expected" : "a comma or ] is expected");
        reader->at++;
        status = skip_space(reader);
    }
    reader->token = reader->at;
    level->items++;
    if (status == MICA_OK && object)
        status = read_key(reader, &length);
    if (status == MICA_OK)
        status = read_value(reader, out_event, item);
    if (object) {
        item->key = reader->token + 1;
        item->key_length = (uint32_t)length;
    }
    return status;
}

static mica_status read_end(mica__json_reader *reader, mica__json_event *out_event)
{
    *out_event = MICA__JSON_EVENT_DONE;
    if (reader->at != reader->end)
        return mica__json_malformed(reader, reader->at, "nothing is expected after the value");
    return MICA_OK;
}

mica_status mica__json_reader_next(mica__json_reader *reader, mica__json_event *out_event,
                                   mica__json_node *out_item)
{
    memset(out_item, 0, sizeof *out_item);
    *out_event = MICA__JSON_EVENT_DONE;
    reader->token = NULL;
    mica_status status = MICA_OK;
    if (++reader->debt == DEBT || (reader->depth == 0 && reader->values != 0)) {
        status = mica__spend((uint64_t)reader->debt * ITEM_STEPS);
        reader->debt = 0;
    }
    if (status == MICA_OK)
        status = skip_space(reader);
    if (status != MICA_OK)
        return status;
    if (reader->depth == 0 && reader->values != 0)
        return read_end(reader, out_event);
    if (reader->depth == 0) {
        reader->token = reader->at;
        return read_value(reader, out_event, out_item);
    }
    mica__json_level *level = &reader->level[reader->depth - 1];
    if (*reader->at != (level->object ? '}' : ']'))
        return read_child(reader, level, out_event, out_item);
    *out_event = MICA__JSON_EVENT_CLOSE;
    return close_container(reader, out_item);
}

mica_status mica__json_reader_skip(mica__json_reader *reader)
{
    const uint32_t around = reader->depth - 1;
    mica__json_event event;
    mica__json_node item;
    mica_status status = MICA_OK;
    while (status == MICA_OK && reader->depth > around)
        status = mica__json_reader_next(reader, &event, &item);
    return status;
}

/* ---- beginning and end ---------------------------------------------------------------------------------- */

static mica_status set_limits(mica__json_reader *reader, const mica__json_limits *limits, uint64_t size)
{
    const mica__json_limits none = {0, 0, 0}, *asked = limits != NULL ? limits : &none;
    reader->limits.max_bytes = asked->max_bytes != 0 ? asked->max_bytes : DEFAULT_BYTES;
    reader->limits.max_depth = asked->max_depth != 0 ? asked->max_depth : DEFAULT_DEPTH;
    reader->limits.max_nodes = asked->max_nodes != 0 ? asked->max_nodes : UINT32_MAX;
    if (reader->limits.max_bytes > UINT32_MAX) /* lengths and counts are 32 bits wide */
        reader->limits.max_bytes = UINT32_MAX;
    if (size > reader->limits.max_bytes)
        return mica__fail(MICA_ERR_BUDGET, "JSON of %llu bytes, at most %zu are accepted",
                          (unsigned long long)size, reader->limits.max_bytes);
    return mica__spend(size / STEP_BYTES);
}

mica_status mica__json_reader_begin(mica__json_reader *reader, const mica__file *file, uint64_t offset,
                                    uint64_t size, const mica__json_limits *limits)
{
    memset(reader, 0, sizeof *reader);
    const mica_status status = set_limits(reader, limits, size);
    if (status != MICA_OK)
        return status;
    reader->window = size < FIRST_WINDOW ? (size_t)size : FIRST_WINDOW;
    reader->text = mica__alloc(reader->window + MICA__JSON_PADDING);
    if (reader->text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes of JSON", reader->window);
    memset(reader->text, 0, MICA__JSON_PADDING);
    reader->at = reader->end = reader->text;
    reader->file = file;
    reader->file_at = offset;
    reader->left = size;
    return MICA_OK;
}

mica_status mica__json_reader_begin_text(mica__json_reader *reader, const void *bytes, size_t size,
                                         const mica__json_limits *limits)
{
    memset(reader, 0, sizeof *reader);
    const mica_status status = set_limits(reader, limits, size);
    if (status != MICA_OK)
        return status;
    reader->text = reader->at = mica__alloc(size + MICA__JSON_PADDING);
    if (reader->text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %zu bytes of JSON", size);
    if (size != 0)
        memcpy(reader->text, bytes, size);
    memset(reader->text + size, 0, MICA__JSON_PADDING);
    reader->end = reader->text + size;
    return MICA_OK;
}

char *mica__json_reader_take_text(mica__json_reader *reader)
{
    char *text = reader->text;
    reader->text = NULL;
    return text;
}

void mica__json_reader_end(mica__json_reader *reader)
{
    mica__free(reader->text);
    mica__free(reader->level);
    mica__json_keys_free(&reader->keys);
    memset(reader, 0, sizeof *reader);
}
