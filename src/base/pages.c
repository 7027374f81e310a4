/* pages.c: how much memory there is, locking, and large pages. */
#if defined(__APPLE__)
#define _DARWIN_C_SOURCE /* RLIMIT_MEMLOCK */
#else
#define _DEFAULT_SOURCE /* RLIMIT_MEMLOCK */
#define _POSIX_C_SOURCE 200809L
#endif
#include "base/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Linux counts what the cache would give back; sysconf leaves that out. 0 where there is no such file. */
static uint64_t memory_available(void)
{
    static const char key[] = "MemAvailable:";
    char text[512]; /* the line is among the first three */
    const int file = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    const char *line = strstr(text, key);
    return line == NULL ? 0 : (uint64_t)strtoull(line + sizeof key - 1, NULL, 10) * 1024;
}

void mica__pages_amount(uint64_t *out_free, uint64_t *out_total)
{
    const long page = sysconf(_SC_PAGESIZE), pages = sysconf(_SC_PHYS_PAGES);
    *out_total = page > 0 && pages > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    *out_free = memory_available();
    if (*out_free == 0 || *out_free > *out_total)
        *out_free = *out_total;
}

/* Why the system refused, and the limit of the process. */
static void refusal_text(int reason, char *text, size_t size)
{
    struct rlimit limit;
    char most[32] = "unknown";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY)
        snprintf(most, sizeof most, "unlimited");
    else if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
        snprintf(most, sizeof most, "%llu KiB", (unsigned long long)limit.rlim_cur / 1024);
    snprintf(text, size, "%s (RLIMIT_MEMLOCK is %s)",
             reason == EPERM    ? "not permitted"
             : reason == EAGAIN ? "the system has no more to lock"
                                : "over the limit of locked memory, or its file was cut short",
             most);
}

mica_status mica__pages_lock(const void *pointer, size_t bytes, const char *what)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)pointer / page * page;
    char refusal[160];
    if (bytes == 0 || mlock((const void *)begin, (uintptr_t)pointer + bytes - begin) == 0)
        return MICA_OK;
    refusal_text(errno, refusal, sizeof refusal);
    return mica__fail(MICA_ERR_IO, "%s: cannot lock %zu bytes of memory: %s", what, bytes, refusal);
}

void mica__pages_large(void *pointer, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
    const uintptr_t large = (uintptr_t)2 << 20; /* inward: a neighbour's memory is not ours to spread out */
    const uintptr_t begin = ((uintptr_t)pointer + large - 1) / large * large;
    const uintptr_t end = ((uintptr_t)pointer + bytes) / large * large;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)pointer;
    (void)bytes;
#endif
}
