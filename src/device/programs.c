/* programs.c - joins kernel texts, asks the disk cache, has the rest compiled. Knows no op. */
#include "device/programs.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "device/kernel_cache.h"
#include "kernels/kernels.h"

/* A text that grows; `bytes` NULL after memory ran out. */
typedef struct joined {
    char *bytes;
    size_t length, capacity;
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

static void append_part(joined *text, const char *name, const char *body)
{
    char line[160];
    snprintf(line, sizeof line, "\n#line 1 \"%.100s\"\n", name);
    append_text(text, line);
    append_text(text, body);
}

/* The texts that a kernel file names in its first lines, each "//use NAME", then the file itself. */
static void append_kernels(joined *text, const char *name, const char *body)
{
    char used[64];
    for (const char *at = body; strncmp(at, "//use ", 6) == 0; at += strcspn(at, "\n") + 1) {
        const size_t length = strcspn(at + 6, "\n");
        const char *part = mica__kernel_text(at + 6, length);
        snprintf(used, sizeof used, "%.*s", (int)length, at + 6);
        if (part != NULL)
            append_part(text, used, part);
    }
    append_part(text, name, body);
}

/* Target word, sub-groups, constants, prelude, parameters, the kernels. NULL: no memory. */
static char *join(const mica__device_info *info, const char *constants, const char *name, const char *body)
{
    joined text = {mica__alloc(65536), 0, 65536};
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
    append_part(&text, "params.h", mica__kernel_params());
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
    mica__log(MICA_LOG_DEBUG, "kernel %s: %s after %.0f ms", desc->name,
              status == MICA_OK ? "made" : "refused", (double)(mica__clock_ns() - begin) * 1e-6);
    if (status == MICA_OK && cached) {
        uint64_t bytes = 0;
        if (table->program_binary(*out, &binary, &bytes) == MICA_OK)
            mica__kernel_cache_store(&key, desc->name, binary, bytes);
        mica__free(binary);
    }
    return status;
}

mica_status mica__program_of_file(mica_device *device, const char *file, size_t file_length,
                                  const char *constants, mica__program **out)
{
    char name[160];
    const char *body = mica__kernel_text(file, file_length);
    *out = NULL;
    snprintf(name, sizeof name, "%.*s%s%s", (int)file_length, file, constants[0] != '\0' ? "|" : "",
             constants);
    if (body == NULL)
        return mica__fail(MICA_ERR_KERNEL_NOT_FOUND, "kernel: there is no text of \"%s\"", name);
    char *text = join(&device->info, constants, name, body);
    if (text == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for the text of kernel %s", name);
    mica__program_desc desc = {.name = name, .text = text};
    desc.portable = mica__kernel_portable(name, &desc.portable_bytes);
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
