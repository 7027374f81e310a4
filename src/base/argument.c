/* argument.c: the sentences about arguments that could mean something in another version, and mean nothing in this one. */
#include "base/argument.h"

#include <string.h>

mica_status mica__check_flags(const char *argument, uint32_t flags, uint32_t known)
{
    return (flags & ~known) == 0 ? MICA_OK
                                 : mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is 0x%x, known bits are 0x%x",
                                              argument, flags, known);
}

mica_status mica__check_enum(const char *argument, uint32_t value, uint32_t count)
{
    return value < count ? MICA_OK
                         : mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s is %d, known values are 0 to %u",
                                      argument, (int)value, count - 1);
}

mica_status mica__take_options(const char *argument, const void *options, size_t bytes, void *out)
{
    uint64_t size = 0;
    memset(out, 0, bytes);
    if (options == NULL)
        return MICA_OK;
    memcpy(&size, options, sizeof size);
    if (size != 0 && size != bytes)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s.size is %llu, expected %zu, or 0 for this version's",
                          argument, (unsigned long long)size, bytes);
    memcpy(out, options, bytes);
    return MICA_OK;
}
