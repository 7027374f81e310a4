/* fuzz_json.c: any bytes go into the reader. What it accepts is written, read again and written again: both
 * documents and both texts must be the same. Read item by item through a window of a few bytes it is the same too. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json/json_reader.h"
#include "mica/host.h"
#include "support/json_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

static char *write_text(const mica__json *json, size_t *out_length)
{
    char *text = NULL;
    require(test_json_text(json, &text, out_length) == MICA_OK);
    return text;
}

/* A double that is a whole number may be written without its exponent, so it comes back exact; the rest of
 * the node must be the same. */
static void compare_nodes(const mica__json_node *a, const mica__json_node *b)
{
    require(a->type == b->type && a->next == b->next && a->child_count == b->child_count);
    require(a->key_length == b->key_length && (a->key == NULL) == (b->key == NULL));
    require(a->key == NULL || memcmp(a->key, b->key, a->key_length) == 0);
    if (a->type == MICA__JSON_STRING)
        require(a->string.length == b->string.length &&
                memcmp(a->string.data, b->string.data, a->string.length) == 0);
    if (a->type == MICA__JSON_NUMBER) {
        require(memcmp(&a->number.real, &b->number.real, sizeof a->number.real) == 0);
        require(a->exact == MICA__JSON_EXACT_NONE || a->number.uint_value == b->number.uint_value);
    }
}

/* The items against the nodes, which saw the whole text at once; tree is NULL if that was refused. */
static void read_items(const uint8_t *data, size_t size, const mica__json_limits *limits,
                       const mica__json *tree, mica_status expected)
{
    mica__json_reader reader;
    mica__json_event event = MICA__JSON_EVENT_VALUE;
    mica__json_node item;
    mica__file *file = NULL;
    uint32_t seen = 0;
    require(mica__file_from_bytes("text", data, size, &file) == MICA_OK);
    mica_status status = mica__json_reader_begin(&reader, file, 0, size, limits);
    if (size > 64)
        reader.window = 1 + data[size / 2] % 64;
    while (status == MICA_OK && event != MICA__JSON_EVENT_DONE) {
        status = mica__json_reader_next(&reader, &event, &item);
        if (status != MICA_OK || event == MICA__JSON_EVENT_CLOSE || event == MICA__JSON_EVENT_DONE ||
            tree == NULL)
            continue;
        item.next = tree->nodes[seen].next;
        item.child_count = tree->nodes[seen].child_count;
        compare_nodes(&tree->nodes[seen++], &item);
    }
    require(status == expected && (tree == NULL || seen == tree->node_count));
    mica__json_reader_end(&reader);
    mica__file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mica__json_limits limits = {1 << 20, 64, 1 << 16};
    mica__json *first = NULL, *second = NULL;
    size_t first_length = 0, second_length = 0;
    const mica_status status = mica__json_parse(data, size, &limits, &first);
    if (status != MICA_OK) {
        require(first == NULL && mica_status_message()[0] != '\0');
        read_items(data, size, &limits, NULL, status);
        require(mica_host_bytes() == 0);
        return 0;
    }
    read_items(data, size, &limits, first, MICA_OK);
    char *first_text = write_text(first, &first_length);
    require(mica__json_parse(first_text, first_length, NULL, &second) == MICA_OK);
    require(first->node_count == second->node_count);
    for (uint32_t i = 0; i < first->node_count; i++)
        compare_nodes(&first->nodes[i], &second->nodes[i]);
    char *second_text = write_text(second, &second_length);
    require(first_length == second_length && memcmp(first_text, second_text, first_length) == 0);
    mica__free(first_text);
    mica__free(second_text);
    mica__json_release(first);
    mica__json_release(second);
    require(mica_host_bytes() == 0);
    return 0;
}
