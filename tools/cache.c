/* cache.c - `mica cache`: the compiled kernels on disk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "mica/mica.h"
#include "terminal/output.h"
#include "terminal/text.h"

static void print_json(const mica_cache_entry *entries, uint32_t count)
{
    tool_json json = {0};
    tool_json_open(&json, NULL, '{');
    tool_json_text(&json, "folder", mica_cache_folder());
    tool_json_open(&json, "entries", '[');
    for (uint32_t i = 0; i < count; i++) {
        tool_json_open(&json, NULL, '{');
        tool_json_text(&json, "name", entries[i].name);
        tool_json_uint(&json, "bytes", entries[i].bytes);
        tool_json_uint(&json, "seconds", entries[i].seconds);
        tool_json_close(&json, '}');
    }
    tool_json_close(&json, ']');
    tool_json_close(&json, '}');
}

static void print_list(const mica_cache_entry *entries, uint32_t count)
{
    char size[TOOL_SIZE_BYTES];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        printf("%10s  %6llu h  ", tool_size_text(entries[i].bytes, size),
               (unsigned long long)(entries[i].seconds / 3600));
        tool_text_print(stdout, entries[i].name, strlen(entries[i].name), TOOL_NO_LIMIT);
        putchar('\n');
        bytes += entries[i].bytes;
    }
    printf("%u compiled kernel%s, %s, in %s\n", count, count == 1 ? "" : "s", tool_size_text(bytes, size),
           mica_cache_folder()[0] != '\0' ? mica_cache_folder()
                                          : "no folder: neither MICA_CACHE_DIR nor HOME is set");
}

static int show(const tool_call *call)
{
    uint32_t count = 0, known = 0;
    if (mica_cache_list(NULL, 0, &count) != MICA_OK)
        return tool_fail_status();
    mica_cache_entry *entries = calloc((size_t)count + 1, sizeof *entries);
    if (entries == NULL)
        return tool_fail("cache: no memory for a list of %u entries", count);
    if (mica_cache_list(entries, count, &known) != MICA_OK) {
        free(entries);
        return tool_fail_status();
    }
    count = known < count ? known : count; /* others may write there meanwhile */
    if (tool_flag(call, "json"))
        print_json(entries, count);
    else
        print_list(entries, count);
    free(entries);
    return 0;
}

int tool_cache(const tool_call *call)
{
    uint32_t removed = 0;
    if (strcmp(call->argument[0], "list") == 0)
        return show(call);
    if (mica_cache_clear(&removed) != MICA_OK)
        return tool_fail_status();
    fprintf(stderr, "%u compiled kernel%s removed\n", removed, removed == 1 ? "" : "s");
    return 0;
}
