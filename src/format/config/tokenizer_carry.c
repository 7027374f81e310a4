/*
 * tokenizer_carry.c - whether GGUF's words hold a tokenizer: the tokenizer.json that they make again is compared with the one
 * of the checkpoint. Where they do not, that goes along as it is, under the key that GGUF has for it.
 */
#include <string.h>

#include "base/alloc.h"
#include "format/convert/convert.h"

#define MOST_DEPTH 12

/* A node of one of the two texts. */
typedef struct place {
    const mica__json *json;
    const mica__json_node *node; /* NULL: not there */
} place;

static place get(place at, const char *key)
{
    return (place){at.json, at.node == NULL ? NULL : mica__json_get(at.json, at.node, key)};
}

static const char *text_of(place at)
{
    return at.node != NULL && at.node->type == MICA__JSON_STRING ? at.node->string.data : "";
}

/* Not there, null, false, "", and a list of no steps say the same. */
static bool is_nothing(place at)
{
    static const char *const lists[] = {"normalizers", "pretokenizers"};
    if (at.node == NULL || at.node->type == MICA__JSON_NULL || at.node->type == MICA__JSON_FALSE)
        return true;
    if (at.node->type == MICA__JSON_STRING)
        return at.node->string.length == 0;
    for (size_t i = 0; i < 2; i++) {
        const mica__json_node *list = get(at, lists[i]).node;
        if (list != NULL && list->child_count == 0)
            return true;
    }
    return false;
}

/* A list of one step is that step. */
static place unwrap(place at)
{
    static const char *const lists[] = {"normalizers", "pretokenizers"};
    for (size_t i = 0; i < 2; i++) {
        const mica__json_node *list = get(at, lists[i]).node;
        if (list != NULL && list->type == MICA__JSON_ARRAY && list->child_count == 1)
            return (place){at.json, mica__json_first(list)};
    }
    return at;
}

/* What changes no token. */
static bool is_idle(const char *key)
{
    static const char *const keys[] = {"trim_offsets", "dropout", "vocab", "merges"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static bool same(place a, place b, uint32_t depth);

/* All members of a, where b has them too or they say nothing. ByteLevel cuts unless it says that it does not. */
static bool covers(place a, place b, uint32_t depth)
{
    for (const mica__json_node *item = mica__json_first(a.node); item != NULL;
         item = mica__json_next(a.json, item)) {
        const place other = get(b, item->key);
        if (is_idle(item->key) || (strcmp(item->key, "use_regex") == 0 && item->type == MICA__JSON_TRUE &&
                                   (other.node == NULL || other.node->type == MICA__JSON_TRUE)))
            continue;
        if (!same((place){a.json, item}, other, depth))
            return false;
    }
    return true;
}

static bool same_items(place a, place b, uint32_t depth)
{
    const mica__json_node *x = mica__json_first(a.node), *y = mica__json_first(b.node);
    while (x != NULL && y != NULL && same((place){a.json, x}, (place){b.json, y}, depth)) {
        x = mica__json_next(a.json, x);
        y = mica__json_next(b.json, y);
    }
    return x == NULL && y == NULL;
}

static bool same(place a, place b, uint32_t depth)
{
    a = unwrap(a);
    b = unwrap(b);
    if (is_nothing(a) || is_nothing(b))
        return is_nothing(a) && is_nothing(b);
    if (a.node->type != b.node->type || depth == 0)
        return false;
    switch ((mica__json_type)a.node->type) {
    case MICA__JSON_STRING: return strcmp(text_of(a), text_of(b)) == 0;
    case MICA__JSON_NUMBER: return a.node->number.real == b.node->number.real;
    case MICA__JSON_ARRAY: return same_items(a, b, depth - 1);
    case MICA__JSON_OBJECT: return covers(a, b, depth - 1) && covers(b, a, depth - 1);
    default: return true;
    }
}

/* ---- the parts ------------------------------------------------------------------------------------------- */

/* "left right", or a pair: without what stands between the two. */
static bool same_merge(place a, place b)
{
    const char *parts[2][2] = {{text_of(a), ""}, {text_of(b), ""}};
    const place both[2] = {a, b};
    size_t length[2] = {0, 0};
    for (size_t i = 0; i < 2; i++) {
        const mica__json_node *left = mica__json_first(both[i].node);
        if (left != NULL) {
            parts[i][0] = text_of((place){both[i].json, left});
            parts[i][1] = text_of((place){both[i].json, mica__json_next(both[i].json, left)});
            length[i] = strlen(parts[i][0]);
        } else {
            const char *blank = parts[i][0][0] == '\0' ? NULL : strchr(parts[i][0] + 1, ' ');
            length[i] = blank == NULL ? 0 : (size_t)(blank - parts[i][0]);
            parts[i][1] = blank == NULL ? "" : blank + 1;
        }
    }
    return length[0] == length[1] && strncmp(parts[0][0], parts[1][0], length[0]) == 0 &&
           strcmp(parts[0][1], parts[1][1]) == 0;
}

static bool same_merges(place a, place b)
{
    const place x = get(a, "merges"), y = get(b, "merges");
    if (x.node == NULL || y.node == NULL || x.node->child_count != y.node->child_count)
        return x.node == NULL && y.node == NULL;
    const mica__json_node *p = mica__json_first(x.node), *q = mica__json_first(y.node);
    while (p != NULL && q != NULL && same_merge((place){x.json, p}, (place){y.json, q})) {
        p = mica__json_next(x.json, p);
        q = mica__json_next(y.json, q);
    }
    return p == NULL && q == NULL;
}

/* Added tokens that take in what stands around them, or that are looked for in normalised text where there is such. */
static bool is_strange(place token, bool normalizes, place other)
{
    static const char *const marks[] = {"single_word", "lstrip", "rstrip", "normalized"};
    for (size_t i = 0; i < (normalizes ? 4u : 3u); i++)
        if (is_nothing(get(token, marks[i])) != is_nothing(get(other, marks[i])))
            return true;
    return false;
}

/* Both lists are in the order of ids, but for strangers, which are refused. */
static bool same_added(place a, place b)
{
    const bool normalizes = !is_nothing(get(a, "normalizer"));
    const place x = get(a, "added_tokens"), y = get(b, "added_tokens");
    const mica__json_node *q = y.node == NULL ? NULL : mica__json_first(y.node);
    if (x.node == NULL)
        return true;
    for (const mica__json_node *p = mica__json_first(x.node); p != NULL; p = mica__json_next(x.json, p)) {
        const place token = {x.json, p};
        while (q != NULL && !same(get((place){y.json, q}, "id"), get(token, "id"), 1))
            q = mica__json_next(y.json, q);
        if (q == NULL ||
            strcmp(text_of(get(token, "content")), text_of(get((place){y.json, q}, "content"))) != 0 ||
            is_strange(token, normalizes, (place){y.json, q}))
            return false;
    }
    return true;
}

/* The processor that puts tokens around a text: the template in a list of several, or the thing itself. */
static place find_processor(place at)
{
    const place processor = get(at, "post_processor"), list = get(processor, "processors");
    if (list.node == NULL)
        return processor;
    for (const mica__json_node *item = mica__json_first(list.node); item != NULL;
         item = mica__json_next(list.json, item))
        if (strcmp(text_of(get((place){list.json, item}, "type")), "ByteLevel") != 0)
            return (place){list.json, item};
    return (place){at.json, NULL};
}

/* Before and behind a text: the tokens of BertProcessing and RobertaProcessing are those of a template. */
static bool same_ends(place a, place b)
{
    const place x = find_processor(a), y = find_processor(b);
    const char *type = text_of(get(x, "type"));
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        const place single = get(y, "single");
        return single.node != NULL && single.node->child_count == 3;
    }
    if (strcmp(type, "ByteLevel") == 0 || x.node == NULL || x.node->type == MICA__JSON_NULL)
        return is_nothing(y);
    return same(get(x, "single"), get(y, "single"), MOST_DEPTH);
}

static bool same_tokenizer(const mica__json *was, const mica__json *is)
{
    const place a = {was, mica__json_root(was)}, b = {is, mica__json_root(is)};
    const place model = get(a, "model"), again = get(b, "model");
    return same(get(a, "normalizer"), get(b, "normalizer"), MOST_DEPTH) &&
           same(get(a, "pre_tokenizer"), get(b, "pre_tokenizer"), MOST_DEPTH) &&
           same(model, again, MOST_DEPTH) && same_merges(model, again) && same_added(a, b) && same_ends(a, b);
}

/* ---- the whole ------------------------------------------------------------------------------------------- */

/* Whether the tokenizer.json that the target's keys make says the same. */
static mica_status hold_it(const mica__target *target, const mica__side_file *file, bool *out_held)
{
    const mica__archive view = {
        .format = MICA_FORMAT_GGUF, .meta = target->meta, .meta_count = target->meta_count};
    mica__tokenizer_files made = {0};
    mica__json *was = NULL, *is = NULL;
    *out_held = false;
    mica_status status = mica__tokenizer_to_hf(&view, &made);
    if (status == MICA_ERR_UNSUPPORTED || (status == MICA_OK && made.tokenizer == NULL))
        return MICA_OK;
    if (status == MICA_OK)
        status = mica__json_parse(file->data, file->size, NULL, &was);
    if (status == MICA_OK)
        status = mica__json_parse(made.tokenizer, strlen(made.tokenizer), NULL, &is);
    if (status == MICA_OK)
        *out_held = same_tokenizer(was, is);
    mica__json_release(was);
    mica__json_release(is);
    mica__tokenizer_files_free(&made);
    return status;
}

mica_status mica__tokenizer_carry(mica__target *target, const char *folder, bool always)
{
    mica__side_file file;
    bool held = false;
    mica_status status = mica__target_read_side(target, folder, "tokenizer.json", &file);
    if (status != MICA_OK || file.data == NULL)
        return status;
    if (!always)
        status = hold_it(target, &file, &held);
    if (status == MICA_OK && !held) {
        char *copy = mica__chunks_alloc(&target->chunks, file.size + 1);
        if (copy != NULL)
            memcpy(copy, file.data, file.size + 1);
        status =
            copy == NULL
                ? MICA_ERR_OUT_OF_MEMORY
                : mica__target_set(target, "tokenizer.huggingface.json",
                                   &(mica_value){.type = MICA_VALUE_STRING, .as.string = {copy, file.size}});
    }
    mica__free(file.data);
    return status;
}
