/* rewrite.c - the end of quantize and convert. */
#define _POSIX_C_SOURCE 200809L
#include "file/rewrite.h"

#include <sys/stat.h>

#include "commands.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"

/* 1: the output is there already, can be replaced, is not the input, and the user has not said that it may go. */
static int force_would_help(const tool_call *call, mica_status status)
{
    struct stat in, out;
    if (status != MICA_ERR_IO || tool_flag(call, "force") || stat(call->argument[0], &in) != 0 ||
        stat(call->argument[1], &out) != 0)
        return 0;
    int can_be_replaced =
        S_ISREG(out.st_mode) || (S_ISDIR(out.st_mode) && call->command->run == tool_convert);
    return can_be_replaced && (in.st_dev != out.st_dev || in.st_ino != out.st_ino);
}

int tool_rewrite_end(const tool_call *call, tool_progress *progress, mica_status status)
{
    tool_progress_end(progress);
    if (status == MICA_OK)
        return 0;
    if (status == MICA_ERR_CANCELLED && tool_interrupt_number() != 0) {
        tool_fail("stopped; \"%s\" was not written", call->argument[1]);
        return 128 + tool_interrupt_number();
    }
    if (force_would_help(call, status))
        return tool_fail("%s; --force replaces it", mica_status_message());
    return tool_fail_status();
}
