/* version.c: the version as text, made from the macros of mica/host.h. */
#include "mica/host.h"

#define TEXT(x) TEXT_OF(x)
#define TEXT_OF(x) #x

const char *mica_version(void)
{
    return TEXT(MICA_VERSION_MAJOR) "." TEXT(MICA_VERSION_MINOR) "." TEXT(MICA_VERSION_PATCH);
}
