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

/* The text of a kernel file ("norm" is norm.kc), of which `length` bytes of `name` count; NULL if there is none. */
const char *mica__kernel_text(const char *name, size_t length);
/* What stands before every kernel file: prelude.kc and params.h. Two texts; never NULL. */
const char *mica__kernel_prelude(void);
const char *mica__kernel_params(void);
/* Code made at build time for a kernel file and its constants ("norm|A=1"): PTX of *out_bytes
 * bytes without a NUL; NULL if there is none. */
const char *mica__kernel_portable(const char *key, uint64_t *out_bytes);

#endif
