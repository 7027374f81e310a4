/* env.c: the only file that calls getenv. Everything is copied at the first call, since the host may
 * change its environment later. */
#include "base/env.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#ifdef __APPLE__
#define HOME_CACHE "Library/Caches"
#else
#define HOME_CACHE ".cache"
#endif
#define MAX_THREADS 1024

static const char *const debug_words[] = {
#define DEBUG_WORD(name, word, text) word,
    MICA__DEBUG_LIST(DEBUG_WORD)
#undef DEBUG_WORD
};

/* Keeps the first complaint; one is enough to look into. */
static void complain(mica__env *env, const char *format, ...) MICA__PRINTF(2, 3);

static void complain(mica__env *env, const char *format, ...)
{
    va_list arguments;
    if (env->complaint[0] != '\0')
        return;
    va_start(arguments, format);
    if (vsnprintf(env->complaint, sizeof env->complaint, format, arguments) < 0)
        env->complaint[0] = '\0';
    va_end(arguments);
}

static void read_text(mica__env *env, const char *name, const char *value, char *out_text, size_t capacity)
{
    const size_t length = value == NULL ? 0 : strlen(value);
    if (length >= capacity)
        complain(env, "%s ignored: %zu bytes long, at most %zu expected", name, length, capacity - 1);
    else if (length != 0)
        memcpy(out_text, value, length + 1);
}

static void read_threads(mica__env *env, const char *value)
{
    uint32_t number = 0;
    const char *at = value;
    if (value == NULL || *value == '\0')
        return;
    for (; *at >= '0' && *at <= '9' && number <= MAX_THREADS; at++)
        number = number * 10 + (uint32_t)(*at - '0');
    if (*at != '\0' || number == 0 || number > MAX_THREADS)
        complain(env, "MICA_THREADS ignored: \"%.40s\", expected a number from 1 to %d", value, MAX_THREADS);
    else
        env->threads = number;
}

static void read_mode(mica__env *env, const char *value)
{
    static const char *const modes[] = {"", "eager", "lazy", "compiled"};
    if (value == NULL || *value == '\0')
        return;
    for (uint32_t i = 1; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(value, modes[i]) == 0)
            env->mode = i;
    if (env->mode == 0)
        complain(env, "MICA_MODE: \"%.*s\" is none of eager, lazy, compiled: ignored", 40, value);
}

static void read_debug_word(mica__env *env, const char *word, size_t length)
{
    for (size_t i = 0; i < MICA__DEBUG_COUNT; i++) {
        if (strlen(debug_words[i]) == length && memcmp(debug_words[i], word, length) == 0) {
            env->debug |= 1u << i;
            return;
        }
    }
    complain(env, "MICA_DEBUG: unknown word \"%.*s\" ignored", length < 40 ? (int)length : 40, word);
}

static void read_debug(mica__env *env, const char *value)
{
    while (value != NULL && *value != '\0') {
        const size_t length = strcspn(value, ",");
        if (length != 0)
            read_debug_word(env, value, length);
        value += length + (value[length] == ',');
    }
}

/* MICA_CACHE_DIR, else "mica" in the folder where the system wants caches. */
static void read_cache_dir(mica__env *env, const char *(*lookup)(const char *name))
{
    const char *xdg = lookup("XDG_CACHE_HOME"), *home = lookup("HOME");
    int length = 0;
    read_text(env, "MICA_CACHE_DIR", lookup("MICA_CACHE_DIR"), env->cache_dir, sizeof env->cache_dir);
    if (env->cache_dir[0] != '\0')
        return;
    if (xdg != NULL && xdg[0] == '/') /* a relative one counts for nothing, says the rule */
        length = snprintf(env->cache_dir, sizeof env->cache_dir, "%s/mica", xdg);
    else if (home != NULL && home[0] == '/')
        length = snprintf(env->cache_dir, sizeof env->cache_dir, "%s/%s/mica", home, HOME_CACHE);
    if (length < 0 || (size_t)length >= sizeof env->cache_dir)
        env->cache_dir[0] = '\0';
}

void mica__env_read(const char *(*lookup)(const char *name), mica__env *out_env)
{
    mica__env *env = out_env;
    memset(env, 0, sizeof *env);
    read_debug(env, lookup("MICA_DEBUG"));
    read_threads(env, lookup("MICA_THREADS"));
    read_mode(env, lookup("MICA_MODE"));
    read_text(env, "MICA_DEVICE", lookup("MICA_DEVICE"), env->device, sizeof env->device);
    read_text(env, "MICA_CPU_ISA", lookup("MICA_CPU_ISA"), env->cpu_isa, sizeof env->cpu_isa);
    read_cache_dir(env, lookup);
    read_text(env, "MICA_TRACE", lookup("MICA_TRACE"), env->trace_path, sizeof env->trace_path);
}

static mica__env process_env;
static pthread_once_t process_env_once = PTHREAD_ONCE_INIT;
static _Atomic int complaint_pending;

static const char *process_lookup(const char *name)
{
    return getenv(name);
}

static void read_process_env(void)
{
    mica__env_read(process_lookup, &process_env);
    atomic_store_explicit(&complaint_pending, process_env.complaint[0] != '\0', memory_order_relaxed);
}

const mica__env *mica__env_get(void)
{
    pthread_once(&process_env_once, read_process_env);
    /* Said outside the once: the log callback may call mica, and so come back here. */
    if (atomic_load_explicit(&complaint_pending, memory_order_relaxed) && mica__log_wanted() &&
        atomic_exchange(&complaint_pending, 0))
        mica__log(MICA_LOG_WARNING, "%s", process_env.complaint);
    return &process_env;
}
