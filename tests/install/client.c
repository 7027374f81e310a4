/* A program of a stranger: knows the installed headers and library, nothing of this tree. */
#include <stdio.h>
#include <string.h>

#include "mica/device.h"
#include "mica/host.h"

int main(void)
{
    char headers[32];
    snprintf(headers, sizeof headers, "%d.%d.%d", MICA_VERSION_MAJOR, MICA_VERSION_MINOR, MICA_VERSION_PATCH);
    if (strcmp(headers, mica_version()) != 0) {
        fprintf(stderr, "headers are %s, the library is %s\n", headers, mica_version());
        return 1;
    }
    mica_device *device = NULL;
    if (mica_device_open("cpu", NULL, &device) != MICA_OK) {
        fprintf(stderr, "%s\n", mica_status_message());
        return 1;
    }
    mica_device_release(device);
    printf("%s\n", mica_version());
    return 0;
}
