/* texts.c - the kernel files as strings, put here by the assembler so that they need no quoting. */
#include "kernels/kernels.h"

#include <stdlib.h>
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
EMBED(mica__text_portable, MICA_KERNEL_PORTABLE)
#define TEXT(name) EMBED(mica__text_##name, MICA_KERNEL_FOLDER "/" #name ".kc")
#define TEXT_IN(folder, name) EMBED(mica__text_##name, MICA_KERNEL_FOLDER "/" #folder "/" #name ".kc")
#define NATIVE(target, name, ending) \
    EMBED(mica__text_##target##_##name, MICA_KERNEL_FOLDER "/native/" #target "/" #name "." #ending)
#define PARAMS(name) EMBED(mica__text_params_##name, MICA_KERNEL_FOLDER "/params/" #name ".h")
#define TABLE(name) EMBED(mica__text_table_##name, MICA_KERNEL_FOLDER "/../backend/" #name ".def")
#include "kernels/texts.def"
#undef TEXT
#undef NATIVE
#undef PARAMS
#undef TABLE

static const struct {
    const char *name, *text;
} texts[] = {
#define TEXT(name) {#name, mica__text_##name},
#define NATIVE(target, name, ending) {#name, mica__text_##target##_##name},
#define PARAMS(name) {"params/" #name, mica__text_params_##name},
#define TABLE(name) {#name ".def", mica__text_table_##name},
#include "kernels/texts.def"
#undef TEXT
#undef NATIVE
#undef PARAMS
#undef TABLE
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

/* Modules stand one after the other, each behind a line "//@ bytes key": megabytes that are stepped over. */
const char *mica__kernel_portable(const char *key, uint64_t *out_bytes)
{
    const size_t length = strlen(key);
    const char *at = mica__text_portable;
    while (strncmp(at, "//@ ", 4) == 0) {
        char *name = NULL;
        *out_bytes = strtoull(at + 4, &name, 10);
        at = strchr(++name, '\n') + 1;
        if (strncmp(name, key, length) == 0 && name[length] == '\n')
            return at;
        at += *out_bytes;
    }
    *out_bytes = 0;
    return NULL;
}
