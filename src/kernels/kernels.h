/*
 * kernels.h - the texts of the portable and native kernels, embedded, and the parameter blocks they share with plans.
 *
 * Knows no device and no backend: the registry joins texts into programs, plans fill parameter blocks.
 */
#ifndef MICA_KERNELS_KERNELS_H
#define MICA_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

typedef uint8_t mk_u8;
typedef uint16_t mk_u16;
typedef uint32_t mk_u32;
typedef uint64_t mk_u64;
typedef int32_t mk_i32;
typedef float mk_f32;

#include "kernels/params.h"

/* What the numbers of prelude.kc are called in C. */
enum { MICA__MK_F32 = 0, MICA__MK_F16 = 1, MICA__MK_BF16 = 2 };
#define MICA__MK_WG 256u /* work-items of a group where a plan says nothing else */

/* How many texts there are. */
enum {
    MICA__KERNEL_TEXTS = 0
#define TEXT(name) +1
#define NATIVE(target, name, ending) +1
#define PARAMS(name) +1
#define TABLE(name) +1
#include "kernels/texts.def"
#undef TEXT
#undef NATIVE
#undef PARAMS
#undef TABLE
};

/* The text of a kernel file ("norm" is norm.kc) or of a parameter block ("params/norm"), or a table ("scalars.def"), of which `length` bytes of `name`
 * count; NULL if there is none. */
const char *mica__kernel_text(const char *name, size_t length);
/* What stands before every kernel file: prelude.kc. Never NULL. */
const char *mica__kernel_prelude(void);
/* Code made at build time for a kernel file and its constants ("norm|A=1"): PTX of *out_bytes
 * bytes without a NUL; NULL if there is none. */
const char *mica__kernel_portable(const char *key, uint64_t *out_bytes);

#endif
