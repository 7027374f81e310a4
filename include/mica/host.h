/* host.h: what the program around mica gives to it: memory, a place for log lines. And mica's version.
 *
 * All of it is optional, and all of it is process-wide. */
#ifndef MICA_HOST_H
#define MICA_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "mica/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers. mica_version() gives that of the library which was loaded. */
#define MICA_VERSION_MAJOR 0
#define MICA_VERSION_MINOR 1
#define MICA_VERSION_PATCH 0

/* "major.minor.patch" of the library. The text lives for ever. Never fails. Any thread. */
MICA_API const char *mica_version(void);

/* Where host memory comes from. Both functions are called from any thread, several at once.
 * alloc: at least `size` bytes (never 0) aligned to `align` (a power of two), or NULL when there are none.
 * release: gives back what alloc returned; `size` is the size that was asked for; `pointer` is never NULL. */
typedef struct mica_allocator {
    void *context;
    void *(*alloc)(void *context, size_t size, size_t align);
    void (*release)(void *context, void *pointer, size_t size);
} mica_allocator;

/* Sends all host allocations of the library to `allocator`; NULL goes back to the C library's. The struct is
 * copied; what `context` points to must live until another allocator is set. Call it while no other thread is
 * inside mica. MICA_ERR_STATE while any library memory is live, MICA_ERR_INVALID_ARGUMENT if a function is
 * NULL. */
MICA_API mica_status mica_set_allocator(const mica_allocator *allocator);

/* Host bytes that the library holds now, its own bookkeeping included. Never fails. Any thread. */
MICA_API uint64_t mica_host_bytes(void);

/* Number of host blocks that the library holds now. Never fails. Any thread. */
MICA_API uint64_t mica_host_allocations(void);

/* How much a log line matters; a larger number is more talkative. */
typedef enum mica_log_level {
    MICA_LOG_ERROR = 0, /* something failed that no status could report */
    MICA_LOG_WARNING,   /* it works, but not as the user may expect */
    MICA_LOG_INFO,      /* once per device, file or model */
    MICA_LOG_DEBUG      /* only sent when MICA_DEBUG contains the word log */
} mica_log_level;

/* Takes one line without a newline; `text` lives until the function returns. Called from any thread, several
 * at once; it may call mica. */
typedef void (*mica_log_fn)(void *context, mica_log_level level, const char *text);

/* Sends log lines to `log`; NULL (the start value) drops them. A call that is under way on another thread may
 * still end after this returns, so `context` must outlive it. Never fails. Any thread. */
MICA_API void mica_set_log(mica_log_fn log, void *context);

#ifdef __cplusplus
}
#endif

#endif
