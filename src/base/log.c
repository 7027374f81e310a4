/* log.c: the log callback. The function and its context change together, so both sit behind one mutex;
 * whether there is a callback at all is a flag, so that a log line nobody reads costs one load. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/env.h"
#include "base/thread.h"

#define LINE_BYTES 1024

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static mica__fork_guard mutex_guard;
static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
static mica_log_fn callback;
static void *callback_context;
static _Atomic int callback_set;

/* Until the first callback is set nobody else takes the mutex, so that no fork can find it held. */
static void guard_mutex(void)
{
    mica__lock_init(&mutex, &mutex_guard, true);
}

void mica_set_log(mica_log_fn log, void *context)
{
    pthread_once(&guard_once, guard_mutex);
    pthread_mutex_lock(&mutex);
    callback = log;
    callback_context = context;
    atomic_store_explicit(&callback_set, log != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&mutex);
}

bool mica__log_wanted(void)
{
    return atomic_load_explicit(&callback_set, memory_order_relaxed) != 0;
}

void mica__log(mica_log_level level, const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    if (!mica__log_wanted() || (level == MICA_LOG_DEBUG && !mica__env_debug(MICA__DEBUG_LOG)))
        return;
    va_start(arguments, format);
    const int written = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&mutex);
    const mica_log_fn log = callback;
    void *context = callback_context;
    pthread_mutex_unlock(&mutex);
    if (written >= 0 && log != NULL)
        log(context, level, line);
}
