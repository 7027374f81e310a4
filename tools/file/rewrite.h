/* rewrite.h - what quantize and convert share: how a job that writes a model ends. */
#ifndef TOOL_FILE_REWRITE_H
#define TOOL_FILE_REWRITE_H

#include "mica/mica.h"
#include "options.h"
#include "terminal/progress.h"

/* Ends the progress, and says why the job failed. Arguments 0 and 1 of the call are input and output. Returns the exit
 * status. */
int tool_rewrite_end(const tool_call *call, tool_progress *progress, mica_status status);

#endif
