/*
 * keys.h - the keys of config.json: which are read, which change nothing, which are refused (keys.def). A key that nobody
 * knows may change what the model computes, so it is refused by name unless the caller accepts it.
 */
#ifndef MICA_FORMAT_CONFIG_KEYS_H
#define MICA_FORMAT_CONFIG_KEYS_H

#include "base/json/json.h"
#include "format/config/family.h"

typedef enum mica__key_verdict {
    MICA__KEY_READ = 0,
    MICA__KEY_MAY,
    MICA__KEY_IDLE,
    MICA__KEY_ONLY
} mica__key_verdict;

typedef struct mica__key_row {
    const char *classes, *key;
    uint8_t verdict; /* mica__key_verdict */
    const char *detail;
} mica__key_row;

/* Keys that are passed over though nothing is known of them, or though their value is refused. */
typedef struct mica__accepted {
    const char *const *name; /* [count] */
    uint32_t count;
} mica__accepted;

/* The model_types of config.json that mica runs, NULL after the last; "rope" stands for the object of rotary scaling. */
const char *const *mica__key_classes(void);
/* The table, in its order. */
const mica__key_row *mica__key_rows(uint32_t *out_count);
/* The row of a key in a class, or NULL. */
const mica__key_row *mica__key_find(const char *key_class, const char *key);

/* The class of a configuration of `family`: its model_type, or what architectures says. UNSUPPORTED where the two do not
 * agree. */
mica_status mica__key_class(const mica__json *json, const mica__name_family *family, const char **out_class);
/* The class of the object that holds the sizes: Gemma 3 with pictures keeps them in an object of its own. */
const char *mica__key_text_class(const char *key_class);
/* Every key of config.json, of its text_config and of its rotary objects. UNSUPPORTED names the first that is not known or
 * whose value is refused, MALFORMED_FILE one that is null and may not be. */
mica_status mica__keys_check(const mica__json *json, const char *key_class, const mica__accepted *accepted);

#endif
