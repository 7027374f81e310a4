/* status.h: the result codes of mica and the sentence behind the last one.
 *
 * Every call that can fail returns a mica_status. The code says what kind of failure it was; the sentence
 * says what was tried, on which argument, and why it failed. Nothing here allocates. */
#ifndef MICA_STATUS_H
#define MICA_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what the shared library exports; everything else is hidden. */
#if defined(__GNUC__) || defined(__clang__)
#define MICA_API __attribute__((visibility("default")))
#else
#define MICA_API
#endif

/* The one list of codes: X(code, what it means). New codes go at the end; numbers never change. */
#define MICA_STATUS_LIST(X)                                                                            \
    X(MICA_OK, "success")                                                                              \
    X(MICA_ERR_INVALID_ARGUMENT, "an argument is wrong: dtype, shape, stride, range, overlap or NULL") \
    X(MICA_ERR_OUT_OF_MEMORY, "the machine or the device has no memory left")                          \
    X(MICA_ERR_BUDGET, "a limit that the caller set would be exceeded")                                \
    X(MICA_ERR_UNSUPPORTED, "this machine, device or build does not offer what was asked")             \
    X(MICA_ERR_DEVICE_NOT_FOUND, "no device of that name")                                             \
    X(MICA_ERR_KERNEL_NOT_FOUND, "no kernel of that name, or none that serves these operands")         \
    X(MICA_ERR_KERNEL_COMPILATION, "the device's compiler refused a kernel")                           \
    X(MICA_ERR_DEVICE_LOST, "the device is gone; its handles can only be released")                    \
    X(MICA_ERR_SUBMISSION, "submitted work failed on the device")                                      \
    X(MICA_ERR_FAULT, "an index operand pointed outside its table; raised on the device")              \
    X(MICA_ERR_IO, "the operating system refused a file operation")                                    \
    X(MICA_ERR_MALFORMED_FILE, "the contents of a file break its format")                              \
    X(MICA_ERR_QUANT_CONFIG, "a quantisation configuration is inconsistent or unknown")                \
    X(MICA_ERR_CANCELLED, "the caller's cancel flag or progress callback stopped the work")            \
    X(MICA_ERR_TIMEOUT, "the wait ended before the work did; the work goes on")                        \
    X(MICA_ERR_STATE, "the handle is in a state that does not allow this call")                        \
    X(MICA_ERR_INTERNAL, "a defect in mica; please report it with the sentence")                       \
    X(MICA_ERR_NOT_FOUND, "no tensor, key or file of that name")                                       \
    X(MICA_ERR_FULL, "the context has no room left: a sequence must be trimmed or removed first")

#define MICA_STATUS_ENUMERATOR(code, meaning) code,
typedef enum mica_status { MICA_STATUS_LIST(MICA_STATUS_ENUMERATOR) } mica_status;
#undef MICA_STATUS_ENUMERATOR

/* The code as it is written in C, e.g. "MICA_ERR_IO"; "unknown status" for a number that is no code. The text
 * lives for ever. Never fails. */
MICA_API const char *mica_status_name(mica_status status);

/* The sentence of the last failed call on this thread, "" if none failed yet. A success does not clear it.
 * Never NULL; the text lives until the next failure on this thread, at most 511 bytes and a NUL. */
MICA_API const char *mica_status_message(void);

/* 1 when the same call on the same handles may succeed if tried again (failed submission, timeout), else 0.
 * A lost device is not transient: it must be opened anew. Never fails. */
MICA_API int mica_status_is_transient(mica_status status);

#ifdef __cplusplus
}
#endif

#endif
