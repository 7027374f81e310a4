/* programs.c - joins kernel texts, asks the disk cache, has the rest compiled. Knows no op. */
#include "device/programs.h"

#include <stdio.h>
#include <string.h>

#include "backend/planning.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "device/kernel_cache.h"
#include "device/registry.h"
#include "kernels/kernels.h"

/* A text that grows; `bytes` NULL after memory ran out. */
typedef struct joined {
    char *bytes;
    size_t length, capacity;
    const char *used[MICA__KERNEL_TEXTS]; /* texts that are in it */
    uint32_t used_count;
} joined;

static void append(joined *text, const char *from, size_t length)
{
    if (text->bytes == NULL)
        return;
    if (text->length + length + 1 > text->capacity) {
        const size_t capacity = 2 * (text->length + length + 1);
        char *grown = mica__realloc(text->bytes, capacity);
        if (grown == NULL) {
            mica__free(text->bytes);
            text->bytes = NULL;
            return;
        }
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->length, from, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

static void append_text(joined *text, const char *from)
{
    append(text, from, strlen(from));
}

/* "A=1|B=2" as lines "#define A 1". */
static void append_constants(joined *text, const char *constants)
{
    while (*constants != '\0') {
        const size_t length = strcspn(constants, "|"), name = strcspn(constants, "=|");
        append_text(text, "#define ");
        append(text, constants, name);
        append_text(text, " ");
        if (name < length)
            append(text, constants + name + 1, length - name - 1);
        append_text(text, "\n");
        constants += length + (constants[length] == '|');
    }
}

/* A text, its name before it. Where it includes a table, the table. */
static void append_part(joined *text, const char *name, const char *body)
{
    static const char include[] = "\n#include \"";
    char line[160];
    snprintf(line, sizeof line, "\n#line 1 \"%.100s\"\n", name);
    append_text(text, line);
    for (const char *at; (at = strstr(body, include)) != NULL; body = at) {
        append(text, body, (size_t)(at + 1 - body));
        at += sizeof include - 1;
        const size_t length = strcspn(at, "\"\n");
        const char *table = mica__kernel_text(at, length);
        if (table == NULL)
            append(text, include + 1, sizeof include - 2);
        else
            append_text(text, table);
        at += table == NULL ? 0 : length + (at[length] == '"');
    }
    append_text(text, body);
}

/* Whether the text is not there yet; notes that it is from now on. */
static bool is_new(joined *text, const char *part)
{
    for (uint32_t i = 0; i < text->used_count; i++)
        if (text->used[i] == part)
            return false;
    text->used[text->used_count++] = part;
    return true;
}

/* The texts that this one names in its first lines, each "//use NAME", and those that they name, each once; then the
 * text itself. */
static void append_kernels(joined *text, const char *name, const char *body)
{
    for (const char *at = body; strncmp(at, "//use ", 6) == 0; at += strcspn(at, "\n"), at += *at != '\0') {
        const size_t length = strcspn(at + 6, "\n");
        const char *part = mica__kernel_text(at + 6, length);
        char used[64];
        snprintf(used, sizeof used, "%.*s", (int)length, at + 6);
        if (part != NULL && is_new(text, part))
            append_kernels(text, used, part);
    }
    append_part(text, name, body);
}

/* Target word, sub-groups, constants, prelude, the kernels. NULL: no memory. */
static char *join(const mica__device_info *info, const char *constants, const char *name, const char *body)
{
    joined text = {.bytes = mica__alloc(65536), .capacity = 65536};
    char line[160];
    snprintf(line, sizeof line, "#define %s 1\n", info->target);
    append_text(&text, line);
    if ((info->features & MICA__FEATURE_SUBGROUPS) != 0) {
        snprintf(line, sizeof line, "#ifndef MK_CUDA\n#define MK_SG %u\n#endif\n",
                 info->properties.subgroup_width);
        append_text(&text, line);
    }
    if ((info->features & MICA__FEATURE_SLOW_BARRIER) != 0)
        append_text(&text, "#define MK_CPU 1\n");
    if ((info->features & MICA__FEATURE_PTX) != 0)
        append_text(&text, "#define MK_PTX 1\n");
    append_constants(&text, constants);
    append_part(&text, "prelude.kc", mica__kernel_prelude());
    append_kernels(&text, name, body);
    return text.bytes;
}

/* From the cache if it is there and the driver takes it, else compiled and put there. A cache that cannot be read or
 * written costs time and is no failure. */
static mica_status create(mica_device *device, mica__program_desc *desc, mica__program **out)
{
    const mica__backend_table *table = device->table;
    void *binary = NULL;
    const mica__kernel_key key = {device->info.identity, desc->text};
    const bool cached = table->program_binary != NULL && desc->text != NULL;
    if (cached) {
        binary = mica__kernel_cache_load(&key, &desc->binary_bytes);
        desc->binary = binary;
    }
    mica_status status = MICA_ERR_KERNEL_NOT_FOUND;
    if (binary != NULL) {
        const mica__program_desc only = {.name = desc->name,
                                         .binary = binary,
                                         .binary_bytes = desc->binary_bytes,
                                         .foreign = desc->foreign};
        status = table->program_create(device->impl, &only, out);
        mica__free(binary);
        desc->binary = NULL;
        desc->binary_bytes = 0;
    }
    if (status == MICA_OK)
        return status;
    const uint64_t begin = mica__clock_ns();
    status = table->program_create(device->impl, desc, out);
    const uint64_t end = mica__clock_ns();
    mica__log(MICA_LOG_DEBUG, "kernel %s: %s in %.0f ms, from %.3f to %.3f s", desc->name,
              status == MICA_OK ? "compiled" : "refused", (double)(end - begin) * 1e-6, (double)begin * 1e-9,
              (double)end * 1e-9);
    if (status == MICA_OK && cached) {
        uint64_t bytes = 0;
        if (table->program_binary(*out, &binary, &bytes) == MICA_OK) { /* else it was not made of its text */
            atomic_store_explicit(&device->registry->compiles, true, memory_order_relaxed);
            mica__kernel_cache_store(&key, desc->name, binary, bytes);
        }
        mica__free(binary);
    }
    return status;
}

char *mica__program_key(const mica__plan *plan, const mica__plan_dispatch *dispatch)
{
    const char *constants = mica__planning_constants(plan, dispatch);
    const size_t file = strcspn(dispatch->kernel, "/"), bytes = strlen(constants) + 1;
    char *key = dispatch->kernel[file] == '/' ? mica__alloc(file + 1 + bytes) : NULL;
    if (key == NULL)
        return NULL;
    memcpy(key, dispatch->kernel, file);
    key[file] = '|';
    memcpy(key + file + (bytes > 1), constants, bytes);
    return key;
}

char *mica__program_text(const mica__device_info *info, const char *key)
{
    const size_t file = strcspn(key, "|");
    const char *body = mica__kernel_text(key, file);
    return body == NULL ? NULL : join(info, key + file + (key[file] == '|'), key, body);
}

mica_status mica__program_of_file(mica_device *device, const char *key, mica__program **out)
{
    *out = NULL;
    if (mica__kernel_text(key, strcspn(key, "|")) == NULL)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel: there is no text of \"%s\"", key);
    char *text = mica__program_text(&device->info, key);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for the text of kernel %s", key);
    mica__program_desc desc = {.name = key, .text = text};
    desc.portable = mica__kernel_portable(key, &desc.portable_bytes);
    const mica_status status = create(device, &desc, out);
    mica__free(text);
    return status;
}

mica_status mica__program_of_user(mica_device *device, const mica_kernel_desc *desc, const char *constants,
                                  mica__program **out)
{
    mica__program_desc full = {.name = desc->name, .host = desc->host, .text = desc->source, .foreign = true};
    if (device->info.target == NULL || desc->source == NULL)
        return device->table->program_create(device->impl, &full, out);
    char *text = join(&device->info, constants, desc->name, desc->source);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for the text of kernel %.60s", desc->name);
    full.text = text;
    const mica_status status = create(device, &full, out);
    mica__free(text);
    return status;
}
