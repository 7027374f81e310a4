/* argument.h: what every public call checks alike: words of flags, enum values, and structs that say their size. `argument`
 * names it in the sentence, with the call before it: "session_begin: flags". */
#ifndef MICA_BASE_ARGUMENT_H
#define MICA_BASE_ARGUMENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* INVALID_ARGUMENT for a bit of `flags` that is not among the `known` ones. */
mica_status mica__check_flags(const char *argument, uint32_t flags, uint32_t known);

/* INVALID_ARGUMENT for a value that is not below `count`, the number of enumerators. */
mica_status mica__check_enum(const char *argument, uint32_t value, uint32_t count);

/* Copies a struct of options, which begins with its size, to `out`, of `bytes` bytes: 0 and `bytes` are the sizes that are known,
 * anything else is INVALID_ARGUMENT. Options that are NULL become all zero. A struct that has grown since a release also takes
 * the size that it had there. */
mica_status mica__take_options(const char *argument, const void *options, size_t bytes, void *out);

#endif
