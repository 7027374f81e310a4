/* json_value.c: values out of a parsed document, with type and range checked and the key named when it is
 * wrong. */
#include "base/json/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const mica__json_node *mica__json_get(const mica__json *json, const mica__json_node *object, const char *key)
{
    const size_t length = strlen(key);
    if (object == NULL || object->type != MICA__JSON_OBJECT)
        return NULL;
    for (const mica__json_node *node = mica__json_first(object); node != NULL;
         node = mica__json_next(json, node))
        if (node->key_length == length && memcmp(node->key, key, length) == 0)
            return node;
    return NULL;
}

const char *mica__json_type_name(const mica__json_node *node)
{
    static const char *const names[] = {"null",     "false",    "true",     "a number",
                                        "a string", "an array", "an object"};
    return node == NULL ? "nothing" : names[node->type];
}

/* What was found, as precisely as it helps: a number by its value, the rest by its type. */
static const char *describe(const mica__json_node *node, char *buffer, size_t capacity)
{
    if (node == NULL || node->type != MICA__JSON_NUMBER)
        return mica__json_type_name(node);
    if (node->exact == MICA__JSON_EXACT_UINT)
        snprintf(buffer, capacity, "%llu", (unsigned long long)node->number.uint_value);
    else if (node->exact == MICA__JSON_EXACT_NEGATIVE)
        snprintf(buffer, capacity, "%lld", (long long)node->number.int_value);
    else
        snprintf(buffer, capacity, "%.17g", node->number.real);
    return buffer;
}

static mica_status wrong_type(const mica__json_node *node, const char *what, const char *expected)
{
    char found[40];
    return mica__fail(MICA_ERR_MALFORMED_FILE, "JSON \"%.100s\": found %s, expected %s", what,
                      describe(node, found, sizeof found), expected);
}

/* Integers may be written with a fraction of 0 or an exponent, as long as a double holds them exactly. */
static bool node_uint(const mica__json_node *node, uint64_t *out_value)
{
    if (node == NULL || node->type != MICA__JSON_NUMBER || node->exact == MICA__JSON_EXACT_NEGATIVE)
        return false;
    if (node->exact == MICA__JSON_EXACT_UINT) {
        *out_value = node->number.uint_value;
        return true;
    }
    const double real = node->number.real;
    if (!(real >= 0 && real <= 9007199254740992.0) || real != floor(real))
        return false;
    *out_value = (uint64_t)real;
    return true;
}

static bool node_int(const mica__json_node *node, int64_t *out_value)
{
    uint64_t magnitude = 0;
    if (node_uint(node, &magnitude)) {
        *out_value = (int64_t)magnitude;
        return magnitude <= INT64_MAX;
    }
    if (node == NULL || node->type != MICA__JSON_NUMBER || node->exact == MICA__JSON_EXACT_UINT)
        return false;
    if (node->exact == MICA__JSON_EXACT_NEGATIVE) {
        *out_value = node->number.int_value;
        return true;
    }
    const double real = node->number.real;
    if (!(real < 0 && real >= -9007199254740992.0) || real != floor(real))
        return false;
    *out_value = (int64_t)real;
    return true;
}

mica_status mica__json_as_uint(const mica__json_node *node, const char *what, uint64_t min, uint64_t max,
                               uint64_t *out_value)
{
    char expected[80];
    uint64_t value = 0;
    if (node_uint(node, &value) && value >= min && value <= max) {
        *out_value = value;
        return MICA_OK;
    }
    snprintf(expected, sizeof expected, "an integer from %llu to %llu", (unsigned long long)min,
             (unsigned long long)max);
    return wrong_type(node, what, expected);
}

mica_status mica__json_as_int(const mica__json_node *node, const char *what, int64_t min, int64_t max,
                              int64_t *out_value)
{
    char expected[80];
    int64_t value = 0;
    if (node_int(node, &value) && value >= min && value <= max) {
        *out_value = value;
        return MICA_OK;
    }
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min, (long long)max);
    return wrong_type(node, what, expected);
}

mica_status mica__json_as_double(const mica__json_node *node, const char *what, double min, double max,
                                 double *out_value)
{
    char expected[80];
    if (node != NULL && node->type == MICA__JSON_NUMBER && node->number.real >= min &&
        node->number.real <= max) {
        *out_value = node->number.real;
        return MICA_OK;
    }
    snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    return wrong_type(node, what, expected);
}

mica_status mica__json_as_bool(const mica__json_node *node, const char *what, bool *out_value)
{
    if (node == NULL || (node->type != MICA__JSON_TRUE && node->type != MICA__JSON_FALSE))
        return wrong_type(node, what, "true or false");
    *out_value = node->type == MICA__JSON_TRUE;
    return MICA_OK;
}

mica_status mica__json_as_string(const mica__json_node *node, const char *what, const char **out_text,
                                 size_t *out_length)
{
    if (node == NULL || node->type != MICA__JSON_STRING)
        return wrong_type(node, what, "a string");
    if (out_length == NULL && memchr(node->string.data, '\0', node->string.length) != NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "JSON \"%.100s\": found a string with a NUL, expected none", what);
    *out_text = node->string.data;
    if (out_length != NULL)
        *out_length = node->string.length;
    return MICA_OK;
}

mica_status mica__json_get_uint(const mica__json *json, const mica__json_node *object, const char *key,
                                uint64_t min, uint64_t max, uint64_t *out_value)
{
    return mica__json_as_uint(mica__json_get(json, object, key), key, min, max, out_value);
}

mica_status mica__json_get_int(const mica__json *json, const mica__json_node *object, const char *key,
                               int64_t min, int64_t max, int64_t *out_value)
{
    return mica__json_as_int(mica__json_get(json, object, key), key, min, max, out_value);
}

mica_status mica__json_get_double(const mica__json *json, const mica__json_node *object, const char *key,
                                  double min, double max, double *out_value)
{
    return mica__json_as_double(mica__json_get(json, object, key), key, min, max, out_value);
}

mica_status mica__json_get_bool(const mica__json *json, const mica__json_node *object, const char *key,
                                bool *out_value)
{
    return mica__json_as_bool(mica__json_get(json, object, key), key, out_value);
}

mica_status mica__json_get_string(const mica__json *json, const mica__json_node *object, const char *key,
                                  const char **out_text, size_t *out_length)
{
    return mica__json_as_string(mica__json_get(json, object, key), key, out_text, out_length);
}

mica_status mica__json_get_container(const mica__json *json, const mica__json_node *object, const char *key,
                                     mica__json_type type, const mica__json_node **out_node)
{
    const mica__json_node *node = mica__json_get(json, object, key);
    *out_node = NULL;
    if (node == NULL || node->type != type)
        return wrong_type(node, key, type == MICA__JSON_ARRAY ? "an array" : "an object");
    *out_node = node;
    return MICA_OK;
}
