/* checked.h: arithmetic on sizes that came from a caller or a file. Each function returns false on
 * overflow and then leaves *out alone. */
#ifndef MICA_BASE_CHECKED_H
#define MICA_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool mica__add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a > UINT64_MAX - b)
        return false;
    *out = a + b;
    return true;
}

static inline bool mica__mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b != 0 && a > UINT64_MAX / b)
        return false;
    *out = a * b;
    return true;
}

static inline bool mica__add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}

static inline bool mica__mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

/* The smallest multiple of `align` that is not below `value`. Any align but 0 (false). */
static inline bool mica__align_up_u64(uint64_t value, uint64_t align, uint64_t *out)
{
    uint64_t rest = align == 0 ? 0 : value % align;
    if (align == 0)
        return false;
    return mica__add_u64(value, rest == 0 ? 0 : align - rest, out);
}

#endif
