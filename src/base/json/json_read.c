/* json_read.c: a document as nodes, made of the reader's events. An open container keeps the index of the one around it,
 * so depth costs no memory beyond the nodes. */
#include "base/json/json.h"

#include <string.h>

#include "base/alloc.h"
#include "base/json/json_reader.h"
#include "base/work.h"

#define DEFAULT_NODES (1u << 24)

typedef struct builder {
    mica__json *json;
    uint32_t capacity;  /* of json->nodes */
    uint32_t container; /* the innermost open container, valid while depth > 0 */
    uint32_t depth;
} builder;

/* Room for one node more. The reader keeps the limit of their number. */
static mica_status reserve_node(builder *b)
{
    if (b->json->node_count < b->capacity)
        return MICA_OK;
    const uint32_t capacity = b->capacity > UINT32_MAX / 2 ? UINT32_MAX : b->capacity * 2;
    mica__json_node *nodes = mica__realloc(b->json->nodes, (size_t)capacity * sizeof *nodes);
    if (nodes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u JSON values", (unsigned)capacity);
    b->json->nodes = nodes;
    b->capacity = capacity;
    return MICA_OK;
}

/* Adds the item as the last child of the open container. */
static mica_status add_node(builder *b, const mica__json_node *item)
{
    mica__json *json = b->json;
    const mica_status status = reserve_node(b);
    if (status != MICA_OK)
        return status;
    const uint32_t index = json->node_count++;
    json->nodes[index] = *item;
    if (b->depth > 0) {
        mica__json_node *container = &json->nodes[b->container];
        if (container->open.last != 0)
            json->nodes[container->open.last].next = index;
        container->open.last = index;
        container->child_count++;
    }
    return MICA_OK;
}

static mica_status add_event(builder *b, mica__json_event event, const mica__json_node *item)
{
    if (event == MICA__JSON_EVENT_CLOSE) {
        b->depth--;
        b->container = b->json->nodes[b->container].open.parent;
        return MICA_OK;
    }
    const mica_status status = add_node(b, item);
    if (status == MICA_OK && event == MICA__JSON_EVENT_OPEN) {
        const uint32_t index = b->json->node_count - 1;
        b->json->nodes[index].open.parent = b->container;
        b->json->nodes[index].open.last = 0;
        b->container = index;
        b->depth++;
    }
    return status;
}

static mica_status build(builder *b, mica__json_reader *reader)
{
    mica__json_event event = MICA__JSON_EVENT_DONE;
    mica__json_node item;
    mica_status status;
    do {
        status = mica__json_reader_next(reader, &event, &item);
        if (status == MICA_OK && event != MICA__JSON_EVENT_DONE)
            status = add_event(b, event, &item);
    } while (status == MICA_OK && event != MICA__JSON_EVENT_DONE);
    return status;
}

/* Memory for a first guess of the nodes: one for 16 bytes. */
static mica_status prepare(builder *b, size_t size, uint32_t most)
{
    const size_t guess = size / 16 + 16;
    b->capacity = guess < most ? (uint32_t)guess : most;
    b->json = mica__calloc(1, sizeof *b->json);
    if (b->json != NULL)
        b->json->nodes = mica__alloc((size_t)b->capacity * sizeof *b->json->nodes);
    if (b->json == NULL || b->json->nodes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for JSON of %zu bytes", size);
    return MICA_OK;
}

mica_status mica__json_parse(const void *bytes, size_t size, const mica__json_limits *limits,
                             mica__json **out_json)
{
    mica__json_limits asked = limits != NULL ? *limits : (mica__json_limits){0};
    mica__json_reader reader;
    builder b = {0};
    *out_json = NULL;
    if (asked.max_nodes == 0)
        asked.max_nodes = DEFAULT_NODES;
    mica_status status = mica__json_reader_begin_text(&reader, bytes, size, &asked);
    if (status == MICA_OK)
        status = prepare(&b, size, asked.max_nodes);
    if (status == MICA_OK)
        status = build(&b, &reader);
    if (status == MICA_OK)
        b.json->text = mica__json_reader_take_text(&reader);
    mica__json_reader_end(&reader);
    if (status != MICA_OK) {
        mica__json_release(b.json);
        return status;
    }
    *out_json = b.json;
    return MICA_OK;
}

mica_status mica__json_status(mica_status status)
{
    return status == MICA_ERR_BUDGET && mica__spend(0) == MICA_OK ? MICA_ERR_MALFORMED_FILE : status;
}

void mica__json_release(mica__json *json)
{
    if (json == NULL)
        return;
    mica__free(json->nodes);
    mica__free(json->text);
    mica__free(json);
}
