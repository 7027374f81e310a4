/*
 * opencl_ptx.c - what NVIDIA's OpenCL compiler has no word for: how many groups are to fit on a multiprocessor.
 *
 * A text that asks for many loads ahead says so in MK_BOUNDS, else the compiler puts them off again to save registers. CUDA's
 * compilers read it there. The programs of this one are PTX, which has a directive for it.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/opencl/opencl_device.h"
#include "base/alloc.h"

#define BOUNDS "#define MK_BOUNDS MK_WG, " /* and the groups */
#define SIZE_OF_GROUP "\n.reqntid "        /* of an entry, to the end of its line */
#define GROUPS_THAT_FIT "\n.minnctapersm "

char *mica__opencl_ptx_bound(const char *ptx, const char *text, size_t *out_bytes)
{
    const char *bounds = strstr(text, BOUNDS), *from = ptx;
    char *out = NULL, *to;
    size_t entries = 0;
    for (const char *at = ptx; bounds != NULL && (at = strstr(at, SIZE_OF_GROUP)) != NULL; at++)
        entries++;
    if (entries == 0)
        return NULL;
    bounds += strlen(BOUNDS);
    const size_t digits = strspn(bounds, "0123456789"), more = strlen(GROUPS_THAT_FIT) + digits;
    to = out = mica__alloc(strlen(ptx) + entries * more + 1);
    while (out != NULL && (from = strstr(ptx, SIZE_OF_GROUP)) != NULL) {
        from += 1 + strcspn(from + 1, "\n"); /* the end of the line */
        memcpy(to, ptx, (size_t)(from - ptx));
        to += from - ptx;
        memcpy(to, GROUPS_THAT_FIT, more - digits);
        memcpy(to + more - digits, bounds, digits);
        to += more;
        ptx = from;
    }
    if (out != NULL)
        memcpy(to, ptx, strlen(ptx) + 1);
    *out_bytes = out != NULL ? strlen(out) + 1 : 0;
    return out;
}
