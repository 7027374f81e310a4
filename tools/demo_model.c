/*
 * demo_model.c - the bytes of the model inside (models/demo.gguf, see models/README.md), put here by the assembler: a compiler
 * would take a minute over an array of three million numbers.
 */
#include <stdint.h>

extern const unsigned char mica_demo_model[], mica_demo_model_end[];
extern const uint64_t mica_demo_model_size;

#ifdef __APPLE__
#define SECTION ".section __TEXT,__const\n"
#define NAME(name) "_" name
#define BACK ".text\n"
#else
#define SECTION ".pushsection .rodata\n"
#define NAME(name) name
#define BACK ".popsection\n"
#endif

/* Aligned as tensors in a mapped file would be. */
/* clang-format off */
__asm__(SECTION ".balign 64\n"
        ".globl " NAME("mica_demo_model") "\n" NAME("mica_demo_model") ":\n"
        ".incbin \"" MICA_DEMO_MODEL "\"\n"
        ".globl " NAME("mica_demo_model_end") "\n" NAME("mica_demo_model_end") ":\n"
        ".balign 8\n"
        ".globl " NAME("mica_demo_model_size") "\n" NAME("mica_demo_model_size") ":\n"
        ".quad " NAME("mica_demo_model_end") " - " NAME("mica_demo_model") "\n" BACK);
/* clang-format on */
