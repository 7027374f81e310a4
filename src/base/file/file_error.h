/* file_error.h: the sentence of a failed file operation, for the two halves of file. */
#ifndef MICA_BASE_FILE_ERROR_H
#define MICA_BASE_FILE_ERROR_H

#include "base/status.h"

/* MICA_ERR_IO with "cannot <verb> "<path>": <the system's text for the errno>". */
mica_status mica__file_fail(const char *verb, const char *path, int reason);

#endif
