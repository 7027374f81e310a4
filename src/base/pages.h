/* pages.h: what the system knows about pages of memory. */
#ifndef MICA_BASE_PAGES_H
#define MICA_BASE_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Memory of the machine, and how much of it programs could still get, files in the cache counted as free. 0 where the
 * system does not say. */
void mica__pages_amount(uint64_t *out_free, uint64_t *out_total);

/* Keeps the pages of a range in memory until they are unmapped; brings them in first. MICA_ERR_IO, with the limit of
 * the process in the sentence, where the system refuses. `what` names the memory. Locking twice is fine. */
mica_status mica__pages_lock(const void *pointer, size_t bytes, const char *what);

/* Asks for large pages behind memory that is about to be filled: far fewer faults, and fewer misses when it is read.
 * A hint; nothing happens where there are none. */
void mica__pages_large(void *pointer, size_t bytes);

#endif
