/* resident.h - memory of this process as the operating system counts it. */
#ifndef TEST_SUPPORT_RESIDENT_H
#define TEST_SUPPORT_RESIDENT_H

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* Bytes; 0 where the system does not say. */
static inline uint64_t test_resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long long all, pages = 0;
    if (file != NULL && fscanf(file, "%llu %llu", &all, &pages) != 2)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

#endif
