/* schema_index.c: the members, places and texts of a schema's JSON by hash, so that no lookup depends on how many there are. */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/work.h"
#include "grammar/schema.h"

#define FEW 8u /* so many members are looked through one by one */

static uint64_t hash_key(const mica__schema *schema, uint32_t parent, const void *key, size_t length)
{
    return mica__hash_bytes(key, length, schema->seed + parent * 0x9e3779b97f4a7c15u);
}

/* By what a node is found inside of its parent: its key, or its place. */
static uint64_t hash_member(const mica__schema *schema, uint32_t node)
{
    const mica__schema_index *index = &schema->index;
    const mica__json_node *it = schema->json->nodes + node;
    if (it->key != NULL)
        return hash_key(schema, index->parent[node], it->key, it->key_length);
    return hash_key(schema, index->parent[node], &index->place[node], sizeof *index->place);
}

static void insert(uint32_t *table, uint32_t slots, uint64_t hash, uint32_t node)
{
    uint32_t slot = (uint32_t)hash & (slots - 1);
    while (table[slot] != 0)
        slot = (slot + 1) & (slots - 1);
    table[slot] = node + 1;
}

mica_status mica__schema_index_make(mica__schema *schema)
{
    mica__schema_index *index = &schema->index;
    const mica__json *json = schema->json;
    const uint32_t count = json->node_count;
    index->slots = 64;
    while (index->slots < count * 2)
        index->slots *= 2;
    index->parent = mica__calloc(count, sizeof *index->parent);
    index->place = mica__calloc(count, sizeof *index->place);
    index->members = mica__calloc(index->slots, sizeof *index->members);
    index->texts = mica__calloc(index->slots, sizeof *index->texts);
    if (index->parent == NULL || index->place == NULL || index->members == NULL || index->texts == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for %u values of the schema", count);
    for (uint32_t node = 0; node < count; node++) {
        const mica__json_node *it = json->nodes + node;
        uint32_t place = 0;
        MICA__TRY(mica__spend(16));
        for (const mica__json_node *child = mica__json_first(it); child != NULL;
             child = mica__json_next(json, child)) {
            index->parent[child - json->nodes] = node;
            index->place[child - json->nodes] = place++;
        }
        if (node == 0)
            continue;
        insert(index->members, index->slots, hash_member(schema, node), node);
        if (it->key == NULL && it->type == MICA__JSON_STRING && /* once each: equal ones would queue up */
            !mica__schema_lists(schema, json->nodes + index->parent[node], it->string.data,
                                it->string.length))
            insert(index->texts, index->slots,
                   hash_key(schema, index->parent[node], it->string.data, it->string.length), node);
    }
    return MICA_OK;
}

void mica__schema_index_free(mica__schema *schema)
{
    mica__free(schema->index.parent);
    mica__free(schema->index.place);
    mica__free(schema->index.members);
    mica__free(schema->index.texts);
}

const mica__json_node *mica__schema_get(const mica__schema *schema, const mica__json_node *object,
                                        const char *key)
{
    const mica__schema_index *index = &schema->index;
    const mica__json_node *nodes = schema->json->nodes;
    if (object == NULL || object->type != MICA__JSON_OBJECT || object->child_count <= FEW)
        return mica__json_get(schema->json, object, key);
    const size_t length = strlen(key);
    const uint32_t parent = (uint32_t)(object - nodes);
    uint32_t slot = (uint32_t)hash_key(schema, parent, key, length) & (index->slots - 1);
    for (; index->members[slot] != 0; slot = (slot + 1) & (index->slots - 1)) {
        const uint32_t node = index->members[slot] - 1;
        if (index->parent[node] == parent && nodes[node].key_length == length &&
            memcmp(nodes[node].key, key, length) == 0)
            return &nodes[node];
    }
    return NULL;
}

const mica__json_node *mica__schema_at(const mica__schema *schema, const mica__json_node *array,
                                       uint32_t place)
{
    const mica__schema_index *index = &schema->index;
    const mica__json_node *nodes = schema->json->nodes;
    const uint32_t parent = (uint32_t)(array - nodes);
    uint32_t slot = (uint32_t)hash_key(schema, parent, &place, sizeof place) & (index->slots - 1);
    for (; index->members[slot] != 0; slot = (slot + 1) & (index->slots - 1)) {
        const uint32_t node = index->members[slot] - 1;
        if (index->parent[node] == parent && nodes[node].key == NULL && index->place[node] == place)
            return &nodes[node];
    }
    return NULL;
}

bool mica__schema_lists(const mica__schema *schema, const mica__json_node *array, const char *text,
                        size_t length)
{
    const mica__schema_index *index = &schema->index;
    const mica__json_node *nodes = schema->json->nodes;
    if (array == NULL || array->type != MICA__JSON_ARRAY)
        return false;
    const uint32_t parent = (uint32_t)(array - nodes);
    uint32_t slot = (uint32_t)hash_key(schema, parent, text, length) & (index->slots - 1);
    for (; index->texts[slot] != 0; slot = (slot + 1) & (index->slots - 1)) {
        const uint32_t node = index->texts[slot] - 1;
        if (index->parent[node] == parent && nodes[node].string.length == length &&
            memcmp(nodes[node].string.data, text, length) == 0)
            return true;
    }
    return false;
}
