/* checks.h - what every backend asks of its callers, in the same words. Each is MICA_OK or INVALID_ARGUMENT with a sentence. */
#ifndef MICA_BACKEND_CHECKS_H
#define MICA_BACKEND_CHECKS_H

#include "backend/backend.h"

/* The bytes of an upload or a download end within the memory. */
mica_status mica__check_range(const mica__memory *memory, uint64_t offset, uint64_t bytes);
mica_status mica__refuse_binding(uint32_t index, const mica__binding *binding);
/* A binding ends within its memory; an absent one is fine. Every binding of every dispatch comes through here. */
static inline mica_status mica__check_binding(uint32_t index, const mica__binding *binding)
{
    const mica__memory *memory = binding->memory;
    const bool fits = memory == NULL || (binding->offset <= memory->bytes &&
                                         binding->length <= memory->bytes - binding->offset);
    return fits ? MICA_OK : mica__refuse_binding(index, binding);
}
/* A dispatch without a kernel: two bindings that are there, of equal lengths, within their memories. */
mica_status mica__check_copy(const mica__dispatch *dispatch);
/* `index` is less than `count`; `what` begins the sentence. */
mica_status mica__check_index(const char *what, uint32_t index, uint32_t count);
/* `value` was handed out by a queue whose last submission is `submitted`. */
mica_status mica__check_value(uint64_t value, uint64_t submitted);

#endif
