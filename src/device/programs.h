/*
 * programs.h - kernel text -> program: joined, looked up in the disk cache, compiled.
 */
#ifndef MICA_DEVICE_PROGRAMS_H
#define MICA_DEVICE_PROGRAMS_H

#include "device/objects.h"

/* "file|constants" of a dispatch of the plan, without the bar where there are no constants; the caller frees it. NULL: no
 * memory, or a kernel that is built in. */
char *mica__program_key(const mica__plan *plan, const mica__plan_dispatch *dispatch);
/* The text of "file|constants" as it is compiled: the key in the disk cache. The caller frees it. NULL: no memory, or no such
 * file. */
char *mica__program_text(const mica__device_info *info, const char *key);
/* The program of a kernel file that mica brings, by "file|constants". KERNEL_NOT_FOUND: there is no compiler here, nothing
 * cached and nothing embedded; KERNEL_COMPILATION has the compiler's log. */
mica_status mica__program_of_file(mica_device *device, const char *key, mica__program **out);
/* The program of a user's kernel; the device wants text or a host function. */
mica_status mica__program_of_user(mica_device *device, const mica_kernel_desc *desc, const char *constants,
                                  mica__program **out);

#endif
