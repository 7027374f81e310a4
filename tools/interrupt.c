/* interrupt.c - a handler that leaves a mark and wakes a thread through a pipe, since only that thread may call the
 * library. */
#define _POSIX_C_SOURCE 200809L
#include "interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "output.h"

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t signal_number;
static volatile sig_atomic_t is_watching;
static volatile sig_atomic_t wake_write = -1; /* the end of the pipe that the handler writes to */

static struct {
    pthread_mutex_t lock;
    mica_context *context; /* NULL: nothing is watched */
    int wake_read;
} watcher = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake_read = -1};

static void note_signal(int number)
{
    int before = errno;
    if (signal_number != 0 && is_watching) {
        signal(number, SIG_DFL);
        raise(number);
    }
    signal_number = number;
    if (wake_write >= 0 && write(wake_write, "", 1) < 0)
        signal_number = number; /* a full pipe wakes the thread as well */
    errno = before;
}

static void install(int flags)
{
    struct sigaction action = {0}, before;
    action.sa_handler = note_signal;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        if (sigaction(caught[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(caught[i], &action, NULL);
}

void tool_interrupt_catch(void)
{
    install(SA_RESTART);
}

void tool_interrupt_break_calls(int yes)
{
    install(yes ? 0 : SA_RESTART);
}

int tool_interrupt_number(void)
{
    return (int)signal_number;
}

void tool_interrupt_clear(void)
{
    signal_number = 0;
}

static void *watch(void *unused)
{
    char byte;
    (void)unused;
    while (read(watcher.wake_read, &byte, 1) == 1) {
        pthread_mutex_lock(&watcher.lock);
        if (watcher.context != NULL && signal_number != 0)
            mica_context_cancel(watcher.context);
        pthread_mutex_unlock(&watcher.lock);
    }
    return NULL;
}

/* The thread lives as long as the program, with signals left to the main thread. */
static int start_watcher(void)
{
    int ends[2];
    pthread_t thread;
    sigset_t all, before;
    if (pipe(ends) != 0)
        return tool_fail("there are no more files to be had for Ctrl-C");
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    watcher.wake_read = ends[0];
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int wrong = pthread_create(&thread, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (wrong != 0)
        return tool_fail("there are no more threads to be had for Ctrl-C");
    pthread_detach(thread);
    wake_write = ends[1];
    return 0;
}

int tool_interrupt_watch(mica_context *context)
{
    if (context != NULL && wake_write < 0 && start_watcher() != 0)
        return 1;
    pthread_mutex_lock(&watcher.lock);
    watcher.context = context;
    pthread_mutex_unlock(&watcher.lock);
    is_watching = context != NULL;
    if (context != NULL && signal_number != 0)
        mica_context_cancel(context);
    return 0;
}
