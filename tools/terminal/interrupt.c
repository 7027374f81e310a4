/* interrupt.c - a handler that leaves a mark, cancels the work of the main thread, and wakes who waits through a pipe. */
#define _POSIX_C_SOURCE 200809L
#include "terminal/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "mica/work.h"

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t signal_number;
static volatile sig_atomic_t wake_write = -1; /* the end of the pipe that the handler writes to */
static int wake_read = -1;                    /* has a byte while the mark stands */
static mica_work *work;                       /* of the main thread, as long as the program lives */

static void note_signal(int number)
{
    int before = errno;
    if (signal_number != 0 && number == SIGINT) {
        signal(number, SIG_DFL);
        raise(number);
    }
    signal_number = number;
    mica_work_cancel(work);
    if (wake_write >= 0 && write(wake_write, "", 1) < 0)
        signal_number = number; /* a full pipe wakes as well */
    errno = before;
}

/* Without SA_RESTART: a signal also ends a write that nobody reads. */
static void install(void)
{
    struct sigaction action = {0}, before;
    action.sa_handler = note_signal;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        if (sigaction(caught[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
}

/* What cannot be had is done without: the mark is there in any case. */
void tool_interrupt_catch(void)
{
    int ends[2];
    if (work != NULL)
        return;
    if (mica_work_create(NULL, &work) == MICA_OK)
        mica_work_use(work);
    if (pipe(ends) == 0) {
        for (int i = 0; i < 2; i++) {
            fcntl(ends[i], F_SETFL, O_NONBLOCK);
            fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        }
        wake_read = ends[0];
        wake_write = ends[1];
    }
    install();
}

int tool_interrupt_number(void)
{
    return (int)signal_number;
}

void tool_interrupt_clear(void)
{
    char bytes[64];
    sigset_t set, before;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaddset(&set, caught[i]);
    pthread_sigmask(SIG_BLOCK, &set, &before); /* the next signal leaves all of its marks or none */
    while (wake_read >= 0 && read(wake_read, bytes, sizeof bytes) > 0)
        continue;
    signal_number = 0;
    mica_work_clear(work);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int tool_interrupt_wait(int descriptor, int milliseconds)
{
    struct pollfd ends[2] = {{.fd = descriptor, .events = POLLIN}, {.fd = wake_read, .events = POLLIN}};
    int ready = 0;
    do
        ready = signal_number != 0 ? 0 : poll(ends, 2, milliseconds);
    while (ready < 0 && errno == EINTR);
    if (signal_number != 0)
        return -1;
    return ready > 0; /* what cannot be waited for says so when it is read */
}
