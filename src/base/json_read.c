/* json_read.c: the structure of a document: containers, commas, limits. No recursion: an open container
 * keeps the index of the one around it, so depth costs no memory beyond the nodes. */
#include "base/json.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json_parser.h"

#define DEFAULT_BYTES ((size_t)128 << 20)
#define DEFAULT_DEPTH 64
#define DEFAULT_NODES (1u << 24)
#define TEXT_PADDING 8 /* NULs after the text: the end shows itself, and strings are read 8 bytes at a time */

mica_status mica__json_malformed(const mica__json_parser *parser, const char *at, const char *what)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "JSON at byte %zu: %s", (size_t)(at - parser->json->text),
                      what);
}

static mica_status past_limit(const mica__json_parser *parser, const char *what, uint32_t limit)
{
    return mica__fail(MICA_ERR_BUDGET, "JSON at byte %zu: more than %u %s",
                      (size_t)(parser->at - parser->json->text), (unsigned)limit, what);
}

static void skip_space(mica__json_parser *parser)
{
    const char *at = parser->at;
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')
        at++;
    parser->at += at - parser->at;
}

static mica_status grow_nodes(mica__json_parser *parser)
{
    const uint32_t most = parser->limits.max_nodes;
    if (parser->capacity >= most)
        return past_limit(parser, "values", most);
    const uint32_t capacity = parser->capacity > most / 2 ? most : parser->capacity * 2;
    mica__json_node *nodes = mica__realloc(parser->json->nodes, (size_t)capacity * sizeof *nodes);
    if (nodes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u JSON values", (unsigned)capacity);
    parser->json->nodes = nodes;
    parser->capacity = capacity;
    return MICA_OK;
}

/* Adds an empty node as the last child of the open container. */
static mica_status add_node(mica__json_parser *parser, const char *key, size_t key_length,
                            mica__json_node **out_node)
{
    mica__json *json = parser->json;
    if (json->node_count == parser->capacity) {
        const mica_status status = grow_nodes(parser);
        if (status != MICA_OK)
            return status;
    }
    const uint32_t index = json->node_count++;
    mica__json_node *node = &json->nodes[index];
    memset(node, 0, sizeof *node);
    node->key = key;
    node->key_length = (uint32_t)key_length;
    if (parser->depth > 0) {
        mica__json_node *container = &json->nodes[parser->container];
        if (container->open.last != 0)
            json->nodes[container->open.last].next = index;
        container->open.last = index;
        container->child_count++;
    }
    *out_node = node;
    return MICA_OK;
}

static mica_status open_container(mica__json_parser *parser, mica__json_node *node, mica__json_type type)
{
    if (parser->depth == parser->limits.max_depth)
        return past_limit(parser, "containers inside each other", parser->limits.max_depth);
    node->type = (uint8_t)type;
    node->open.parent = parser->container;
    node->open.last = 0;
    parser->container = (uint32_t)(node - parser->json->nodes);
    parser->depth++;
    parser->at++;
    return MICA_OK;
}

static mica_status close_container(mica__json_parser *parser)
{
    const mica__json_node *node = &parser->json->nodes[parser->container];
    parser->at++;
    parser->depth--;
    parser->container = node->open.parent;
    return node->type == MICA__JSON_OBJECT ? mica__json_check_keys(parser, node) : MICA_OK;
}

static mica_status parse_word(mica__json_parser *parser, mica__json_node *node)
{
    static const struct {
        const char *text;
        size_t length;
        mica__json_type type;
    } words[] = {{"null", 4, MICA__JSON_NULL}, {"false", 5, MICA__JSON_FALSE}, {"true", 4, MICA__JSON_TRUE}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strncmp(parser->at, words[i].text, words[i].length) == 0) {
            node->type = (uint8_t)words[i].type;
            parser->at += words[i].length;
            return MICA_OK;
        }
    }
    return mica__json_malformed(parser, parser->at,
                                parser->at == parser->end ? "the text ends where a value is expected"
                                                          : "a value is expected");
}

static mica_status parse_value(mica__json_parser *parser, const char *key, size_t key_length)
{
    mica__json_node *node = NULL;
    const mica_status status = add_node(parser, key, key_length, &node);
    if (status != MICA_OK)
        return status;
    switch (*parser->at) {
    case '"':
        parser->at++;
        node->type = MICA__JSON_STRING;
        return mica__json_parse_string(parser, &node->string.data, &node->string.length);
    case '[': return open_container(parser, node, MICA__JSON_ARRAY);
    case '{': return open_container(parser, node, MICA__JSON_OBJECT);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return mica__json_parse_number(parser, node);
    default: return parse_word(parser, node);
    }
}

static mica_status parse_member(mica__json_parser *parser)
{
    const char *key = NULL;
    size_t key_length = 0;
    if (*parser->at != '"')
        return mica__json_malformed(parser, parser->at, "a key in quotes is expected");
    parser->at++;
    const mica_status status = mica__json_parse_string(parser, &key, &key_length);
    if (status != MICA_OK)
        return status;
    skip_space(parser);
    if (*parser->at != ':')
        return mica__json_malformed(parser, parser->at, "a colon is expected after the key");
    parser->at++;
    skip_space(parser);
    return parse_value(parser, key, key_length);
}

/* One step inside the open container: its end, or its next element or member. */
static mica_status parse_step(mica__json_parser *parser)
{
    const mica__json_node *container = &parser->json->nodes[parser->container];
    const bool object = container->type == MICA__JSON_OBJECT;
    skip_space(parser);
    if (*parser->at == (object ? '}' : ']'))
        return close_container(parser);
    if (container->child_count != 0) {
        if (*parser->at != ',')
            return mica__json_malformed(parser, parser->at,
                                        object ? "a comma or } is expected" : "a comma or ] is expected");
        parser->at++;
        skip_space(parser);
    }
    return object ? parse_member(parser) : parse_value(parser, NULL, 0);
}

static mica_status parse_document(mica__json_parser *parser)
{
    skip_space(parser);
    mica_status status = parse_value(parser, NULL, 0);
    while (status == MICA_OK && parser->depth > 0)
        status = parse_step(parser);
    if (status != MICA_OK)
        return status;
    skip_space(parser);
    if (parser->at != parser->end)
        return mica__json_malformed(parser, parser->at, "nothing is expected after the value");
    return MICA_OK;
}

static mica_status set_limits(mica__json_parser *parser, const mica__json_limits *limits, size_t size)
{
    const mica__json_limits none = {0, 0, 0}, *asked = limits != NULL ? limits : &none;
    parser->limits.max_bytes = asked->max_bytes != 0 ? asked->max_bytes : DEFAULT_BYTES;
    parser->limits.max_depth = asked->max_depth != 0 ? asked->max_depth : DEFAULT_DEPTH;
    parser->limits.max_nodes = asked->max_nodes != 0 ? asked->max_nodes : DEFAULT_NODES;
    if (parser->limits.max_bytes > UINT32_MAX) /* lengths and node indexes are 32 bits wide */
        parser->limits.max_bytes = UINT32_MAX;
    if (size > parser->limits.max_bytes)
        return mica__fail(MICA_ERR_BUDGET, "JSON of %zu bytes, at most %zu are accepted", size,
                          parser->limits.max_bytes);
    return MICA_OK;
}

/* Memory for the copy of the text and a first guess of the nodes: one for 16 bytes. */
static mica_status prepare(mica__json_parser *parser, const void *bytes, size_t size)
{
    const size_t guess = size / 16 + 16;
    mica__json *json = mica__calloc(1, sizeof *json);
    parser->json = json;
    parser->capacity = guess < parser->limits.max_nodes ? (uint32_t)guess : parser->limits.max_nodes;
    if (json != NULL)
        json->text = mica__alloc(size + TEXT_PADDING);
    if (json != NULL && json->text != NULL)
        json->nodes = mica__alloc((size_t)parser->capacity * sizeof *json->nodes);
    if (json == NULL || json->text == NULL || json->nodes == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for JSON of %zu bytes", size);
    if (size != 0)
        memcpy(json->text, bytes, size);
    memset(json->text + size, 0, TEXT_PADDING);
    parser->at = json->text;
    parser->end = json->text + size;
    parser->seed = mica__hash_seed();
    return MICA_OK;
}

mica_status mica__json_parse(const void *bytes, size_t size, const mica__json_limits *limits,
                             mica__json **out_json)
{
    mica__json_parser parser;
    memset(&parser, 0, sizeof parser);
    *out_json = NULL;
    mica_status status = set_limits(&parser, limits, size);
    if (status == MICA_OK)
        status = prepare(&parser, bytes, size);
    if (status == MICA_OK)
        status = parse_document(&parser);
    mica__free(parser.table);
    if (status != MICA_OK) {
        mica__json_release(parser.json);
        return status;
    }
    *out_json = parser.json;
    return MICA_OK;
}

void mica__json_release(mica__json *json)
{
    if (json == NULL)
        return;
    mica__free(json->nodes);
    mica__free(json->text);
    mica__free(json);
}
