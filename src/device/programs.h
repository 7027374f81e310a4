/*
 * programs.h - kernel text -> program: joined, looked up in the disk cache, compiled.
 */
#ifndef MICA_DEVICE_PROGRAMS_H
#define MICA_DEVICE_PROGRAMS_H

#include "device/objects.h"

/* The program of a kernel file that mica brings, with constants "A=1|B=2" ("" = none). KERNEL_NOT_FOUND: there is no
 * compiler here, nothing cached and nothing embedded; KERNEL_COMPILATION has the compiler's log. */
mica_status mica__program_of_file(mica_device *device, const char *file, size_t file_length,
                                  const char *constants, mica__program **out);
/* The program of a user's kernel; the device wants text or a host function. */
mica_status mica__program_of_user(mica_device *device, const mica_kernel_desc *desc, const char *constants,
                                  mica__program **out);

#endif
