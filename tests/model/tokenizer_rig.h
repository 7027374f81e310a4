/* tokenizer_rig.h - what the tests of tokenizers share: a file with metadata, and a tokenizer from it. */
#ifndef TEST_TOKENIZER_RIG_H
#define TEST_TOKENIZER_RIG_H

#include <stdio.h>
#include <stdlib.h>

#include "mica/host.h"
#include "mica/text.h"
#include "mica/work.h"
#include "support/folder.h"
#include "support/random.h"
#include "support/status.h"

#define RIG_MOST 24

/* The metadata of a file; values are borrowed. */
typedef struct rig_file {
    const char *key[RIG_MOST];
    mica_value value[RIG_MOST];
    size_t count;
} rig_file;

/* Sets a value, or sets it again. */
static inline void rig_set(rig_file *file, const char *key, mica_value value)
{
    size_t i = 0;
    while (i < file->count && strcmp(file->key[i], key) != 0)
        i++;
    assert_true(i < RIG_MOST);
    file->key[i] = key;
    file->value[i] = value;
    file->count = i == file->count ? i + 1 : file->count;
}

static inline void rig_drop(rig_file *file, const char *key)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->key[i], key) == 0) {
            file->count--;
            file->key[i] = file->key[file->count];
            file->value[i] = file->value[file->count];
        }
}

static inline mica_value rig_text(const char *text)
{
    return (mica_value){.type = MICA_VALUE_STRING, .as.string = {text, strlen(text)}};
}

static inline mica_value rig_u32(uint32_t number)
{
    return (mica_value){.type = MICA_VALUE_U32, .as.u = number};
}

static inline mica_value rig_bool(int value)
{
    return (mica_value){.type = MICA_VALUE_BOOL, .as.u = value != 0};
}

static inline mica_value rig_array(mica_value_type type, uint64_t count, const void *items)
{
    return (mica_value){.type = MICA_VALUE_ARRAY, .item_type = type, .count = count, .as.items = items};
}

static inline void rig_write(const rig_file *file, const char *path)
{
    mica_writer *writer = NULL;
    must(mica_writer_create(path, &(mica_writer_options){.format = MICA_FORMAT_GGUF, .overwrite = 1},
                            &writer));
    for (size_t i = 0; i < file->count; i++)
        must(mica_writer_metadata(writer, file->key[i], &file->value[i]));
    must(mica_writer_finish(writer));
}

/* The tokenizer of a file, or why there is none. */
static inline mica_status rig_open(const char *path, mica_tokenizer **out_tokenizer)
{
    mica_weights *weights = NULL;
    *out_tokenizer = NULL;
    mica_status status = mica_weights_open(path, NULL, &weights);
    if (status == MICA_OK)
        status = mica_tokenizer_create(weights, out_tokenizer);
    mica_weights_release(weights);
    return status;
}

static inline mica_status rig_make(const rig_file *file, mica_tokenizer **out_tokenizer)
{
    char folder[256], path[300];
    assert_int_equal(test_folder_make(folder, sizeof folder, "tokenizer"), 0);
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    rig_write(file, path);
    const mica_status status = rig_open(path, out_tokenizer);
    assert_int_equal(test_folder_remove(folder), 0);
    return status;
}

/* From the text of a tokenizer.json. */
static inline mica_status rig_json(const char *text, mica_tokenizer **out_tokenizer)
{
    rig_file file = {0};
    rig_set(&file, "tokenizer.huggingface.json", rig_text(text));
    return rig_make(&file, out_tokenizer);
}

/* A whole file, NUL after it; NULL if it is not there. The caller frees it. */
static inline char *rig_read(const char *path, size_t *out_size)
{
    FILE *file = fopen(path, "rb");
    *out_size = 0;
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    const long size = ftell(file);
    char *data = malloc((size_t)size + 1);
    rewind(file);
    assert_non_null(data);
    *out_size = fread(data, 1, (size_t)size, file);
    data[*out_size] = '\0';
    fclose(file);
    return data;
}

#endif
