/* log.h: lines for the host program's log callback. Without a callback nothing happens: the library never
 * prints. */
#ifndef MICA_BASE_LOG_H
#define MICA_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"
#include "mica/host.h"

/* Formats one line (at most 1023 bytes, longer is cut) and hands it to the callback on this thread. DEBUG
 * lines need the word log in MICA_DEBUG. Hold no lock while calling: the callback may call mica. */
void mica__log(mica_log_level level, const char *format, ...) MICA__PRINTF(2, 3);

/* Whether a callback is set: lets a caller skip the work of preparing a line. */
bool mica__log_wanted(void);

#endif
