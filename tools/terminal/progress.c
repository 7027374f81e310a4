/* progress.c - drawing the bar. */
#define _POSIX_C_SOURCE 200809L
#define _DARWIN_C_SOURCE
#define _DEFAULT_SOURCE
#include "terminal/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "terminal/interrupt.h"
#include "terminal/output.h"
#include "terminal/text.h"

#define REDRAW_NS 100000000u
#define BAR 20

static int is_terminal(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && kind != NULL && strcmp(kind, "dumb") != 0;
}

void tool_progress_begin(tool_progress *progress, const char *verb)
{
    *progress = (tool_progress){.verb = verb, .shown = is_terminal(), .began_ns = tool_clock_ns()};
}

static size_t terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static void time_text(double seconds, char *out, size_t capacity)
{
    if (!(seconds < 360000))
        snprintf(out, capacity, "?");
    else if (seconds >= 3600)
        snprintf(out, capacity, "%d:%02d:%02d", (int)seconds / 3600, (int)seconds / 60 % 60,
                 (int)seconds % 60);
    else
        snprintf(out, capacity, "%d:%02d", (int)seconds / 60, (int)seconds % 60);
}

/* A name with escapes or wide characters could wrap the line, which then could not be wiped. */
static int is_plain(const char *what)
{
    while (*what >= ' ' && *what < 0x7f)
        what++;
    return *what == '\0';
}

static void draw(const tool_progress *p, const char *what, uint64_t done, uint64_t total)
{
    static const char full[] = "####################", empty[] = "....................";
    char rate[TOOL_SIZE_BYTES], of[TOOL_SIZE_BYTES], left[32];
    double seconds = tool_progress_seconds(p), share = total > 0 ? (double)done / (double)total : 1;
    double speed = seconds > 0 ? (double)done / seconds : 0;
    int filled = (int)(share * BAR);
    time_text(speed > 0 ? (double)(total - done) / speed : 1e9, left, sizeof left);
    char line[160];
    int used = snprintf(line, sizeof line, "%s [%.*s%.*s] %3d %% of %s, %s/s, %s left ", p->verb, filled,
                        full, BAR - filled, empty, (int)(share * 100), tool_size_text(total, of),
                        tool_size_text((uint64_t)speed, rate), left);
    size_t columns = terminal_columns(), width = used > 0 ? (size_t)used : 0;
    fprintf(stderr, "\r%.*s", (int)(width < columns ? width : columns - 1), line);
    if (what != NULL && width + 8 < columns && is_plain(what))
        tool_text_print(stderr, what, strlen(what), columns - width - 4);
    fputs("\033[K", stderr);
    fflush(stderr);
}

int tool_progress_step(void *context, const char *what, uint64_t done_bytes, uint64_t total_bytes)
{
    tool_progress *p = context;
    uint64_t now = tool_clock_ns();
    uint64_t before = p->drawn_ns != 0 ? p->drawn_ns : p->began_ns; /* what is quick shows no bar */
    if (p->shown && done_bytes <= total_bytes && now - before >= REDRAW_NS) {
        p->drawn_ns = now;
        draw(p, what, done_bytes, total_bytes);
    }
    return tool_interrupt_number() != 0;
}

void tool_progress_end(tool_progress *progress)
{
    if (progress->drawn_ns != 0)
        fputs("\r\033[K", stderr);
}

double tool_progress_seconds(const tool_progress *progress)
{
    return (double)(tool_clock_ns() - progress->began_ns) * 1e-9;
}
