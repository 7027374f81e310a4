/* env.h: the environment variables that mica obeys. env.c is the only file that calls getenv.
 *
 * They choose where things go and which diagnostics run; none of them changes what a computation means. */
#ifndef MICA_BASE_ENV_H
#define MICA_BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

/* The words of MICA_DEBUG, separated by commas: X(NAME, "word", "what it does"). */
#define MICA__DEBUG_LIST(X)                                                                \
    X(VALIDATE, "validate", "log the buffers that outlive a reset of their pool")          \
    X(LOG, "log", "send debug lines to the log callback too")                              \
    X(POISON, "poison", "fill fresh and freed host memory with a pattern")                 \
    X(SERIAL, "serial", "run each dispatch to its end before the next one starts")         \
    X(TRACE, "trace", "log every op record, dispatch and barrier as it is encoded")        \
    X(NONATIVE, "nonative", "use the portable kernels only")                               \
    X(NOAHEAD, "noahead", "start no kernel of a graph before those it waits for are over") \
    X(NOCUBLAS, "nocublas", "do as if cuBLASLt were not on this machine")                  \
    X(NONVRTC, "nonvrtc", "do as if NVRTC were not on this machine")                       \
    X(SUBGROUPS, "subgroups", "use OpenCL's sub-groups on a CPU too")                      \
    X(NOSUBGROUPS, "nosubgroups", "use none of OpenCL's sub-groups")                       \
    X(GENERATE, "generate", "make a kernel for every region on GPUs")                      \
    X(INTERPRET, "interpret", "make no kernels for regions on GPUs, interpret them")

#define MICA__DEBUG_INDEX(name, word, text) MICA__DEBUG_INDEX_##name,
enum { MICA__DEBUG_LIST(MICA__DEBUG_INDEX) MICA__DEBUG_COUNT };
#undef MICA__DEBUG_INDEX

/* MICA__DEBUG_VALIDATE, MICA__DEBUG_LOG, ...: one bit each. */
#define MICA__DEBUG_BIT(name, word, text) MICA__DEBUG_##name = 1 << MICA__DEBUG_INDEX_##name,
enum { MICA__DEBUG_LIST(MICA__DEBUG_BIT) MICA__DEBUG_ALL = (1 << MICA__DEBUG_COUNT) - 1 };
#undef MICA__DEBUG_BIT

typedef struct mica__env {
    uint32_t debug;        /* MICA_DEBUG: bits above */
    uint32_t threads;      /* MICA_THREADS: 1 to 1024; 0 = not set */
    uint32_t mode;         /* MICA_MODE: 1 eager, 2 lazy, 3 compiled; 0 = not set */
    char device[64];       /* MICA_DEVICE: what "auto" opens; "" = not set, here and below */
    char cpu_isa[32];      /* MICA_CPU_ISA: instruction-set variant of the CPU kernels */
    char cache_dir[1024];  /* MICA_CACHE_DIR: folder of compiled kernels; else XDG's or HOME's; "": nowhere */
    char trace_path[1024]; /* MICA_TRACE: file that gets the timeline */
    char complaint[256];   /* what was ignored and why; "" = nothing */
} mica__env;

/* The environment as it was at the first call. Lives for ever, never NULL. Any thread. Never fails: a value
 * that cannot be used is ignored and named in the log as soon as there is a callback. */
const mica__env *mica__env_get(void);

/* True when the word is on: mica__env_debug(MICA__DEBUG_VALIDATE). */
static inline bool mica__env_debug(uint32_t bit)
{
    return (mica__env_get()->debug & bit) != 0;
}

/* The same reading from any source of name -> text or NULL. For mica__env_get and for tests. */
void mica__env_read(const char *(*lookup)(const char *name), mica__env *out_env);

#endif
