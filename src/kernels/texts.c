/* texts.c - the kernel files as strings, put here by the assembler so that they need no quoting. */
#include "kernels/kernels.h"

#include <string.h>

#ifdef __APPLE__
#define SECTION ".section __TEXT,__const\n"
#define NAME(name) "_" #name
#define BACK ".text\n"
#else
#define SECTION ".pushsection .rodata\n"
#define NAME(name) #name
#define BACK ".popsection\n"
#endif

/* clang-format off */
#define EMBED(symbol, path)                                                                        \
    extern const char symbol[];                                                                    \
    __asm__(SECTION ".globl " NAME(symbol) "\n" NAME(symbol) ":\n.incbin \"" path "\"\n.byte 0\n" BACK);
/* clang-format on */

EMBED(mica__text_prelude, MICA_KERNEL_FOLDER "/prelude.kc")
EMBED(mica__text_params, MICA_KERNEL_FOLDER "/params.h")
EMBED(mica__text_portable, MICA_KERNEL_PORTABLE)
#define TEXT(name) EMBED(mica__text_##name, MICA_KERNEL_FOLDER "/" #name ".kc")
#define NATIVE(name) EMBED(mica__text_##name, MICA_KERNEL_FOLDER "/native/" #name ".cu")
#include "kernels/texts.def"
#undef TEXT
#undef NATIVE

static const struct {
    const char *name, *text;
} texts[] = {
#define TEXT(name) {#name, mica__text_##name},
#define NATIVE(name) TEXT(name)
#include "kernels/texts.def"
#undef TEXT
#undef NATIVE
};

const char *mica__kernel_text(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strncmp(texts[i].name, name, length) == 0 && texts[i].name[length] == '\0')
            return texts[i].text;
    return NULL;
}

const char *mica__kernel_prelude(void)
{
    return mica__text_prelude;
}

const char *mica__kernel_params(void)
{
    return mica__text_params;
}

/* Modules stand one after the other, each behind a line "//@ key". */
const char *mica__kernel_portable(const char *key, uint64_t *out_bytes)
{
    const size_t length = strlen(key);
    *out_bytes = 0;
    for (const char *at = strstr(mica__text_portable, "//@ "); at != NULL; at = strstr(at, "\n//@ ")) {
        at += at[0] == '\n' ? 5 : 4;
        if (strncmp(at, key, length) != 0 || at[length] != '\n')
            continue;
        at += length + 1;
        const char *end = strstr(at, "\n//@ ");
        *out_bytes = end != NULL ? (uint64_t)(end - at) + 1 : strlen(at);
        return at;
    }
    return NULL;
}
