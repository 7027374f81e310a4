/* alloc.c: the allocator hook, the counts, and the 64-byte head that remembers a block's size. */
#define _POSIX_C_SOURCE 200809L
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/env.h"
#include "base/status.h"
#include "base/work.h"
#include "mica/host.h"

/* In front of every block; as large as the alignment so that what follows is aligned. */
typedef struct block_head {
    size_t total; /* bytes asked of the hook, this head included */
    char padding[MICA__ALLOC_ALIGN - sizeof(size_t)];
} block_head;

_Static_assert(sizeof(block_head) == MICA__ALLOC_ALIGN, "the block after the head must be aligned");

#define POISON_FRESH 0xc5
#define POISON_FREED 0xdf

static void *libc_alloc(void *context, size_t size, size_t align)
{
    void *pointer = NULL;
    (void)context;
    return posix_memalign(&pointer, align, size) == 0 ? pointer : NULL;
}

static void libc_release(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)size;
    free(pointer);
}

static mica_allocator hook = {NULL, libc_alloc, libc_release};
static _Atomic uint64_t live_bytes;
static _Atomic uint64_t live_blocks;

mica_status mica_set_allocator(const mica_allocator *allocator)
{
    static const mica_allocator libc = {NULL, libc_alloc, libc_release};
    const uint64_t blocks = mica_host_allocations();
    if (allocator != NULL && (allocator->alloc == NULL || allocator->release == NULL))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "allocator: %s is NULL, expected a function",
                          allocator->alloc == NULL ? "alloc" : "release");
    if (blocks != 0)
        return mica__fail(MICA_ERR_STATE,
                          "allocator: %llu blocks of the present allocator are live, expected none",
                          (unsigned long long)blocks);
    hook = allocator != NULL ? *allocator : libc;
    return MICA_OK;
}

uint64_t mica_host_bytes(void)
{
    return atomic_load_explicit(&live_bytes, memory_order_relaxed);
}

uint64_t mica_host_allocations(void)
{
    return atomic_load_explicit(&live_blocks, memory_order_relaxed);
}

static block_head *head_of(void *pointer)
{
    return (block_head *)pointer - 1;
}

void *mica__alloc(size_t size)
{
    size_t total;
    if (!mica__add_size(size == 0 ? 1 : size, sizeof(block_head), &total))
        return NULL;
    block_head *head = hook.alloc(hook.context, total, MICA__ALLOC_ALIGN);
    if (head == NULL)
        return NULL;
    head->total = total;
    mica__call_count(total);
    atomic_fetch_add_explicit(&live_bytes, total, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    if (mica__env_debug(MICA__DEBUG_POISON))
        memset(head + 1, POISON_FRESH, total - sizeof *head);
    return head + 1;
}

void *mica__calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!mica__mul_size(count, size, &bytes))
        return NULL;
    void *pointer = mica__alloc(bytes);
    if (pointer != NULL)
        memset(pointer, 0, bytes);
    return pointer;
}

void *mica__realloc(void *pointer, size_t new_size)
{
    if (pointer == NULL)
        return mica__alloc(new_size);
    const size_t old_size = head_of(pointer)->total - sizeof(block_head);
    void *moved = mica__alloc(new_size);
    if (moved == NULL)
        return NULL;
    memcpy(moved, pointer, old_size < new_size ? old_size : new_size);
    mica__free(pointer);
    return moved;
}

void mica__free(void *pointer)
{
    if (pointer == NULL)
        return;
    block_head *head = head_of(pointer);
    const size_t total = head->total;
    if (mica__env_debug(MICA__DEBUG_POISON))
        memset(head, POISON_FREED, total);
    hook.release(hook.context, head, total);
    atomic_fetch_sub_explicit(&live_bytes, total, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
}

char *mica__strdup(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = mica__alloc(size);
    if (copy != NULL)
        memcpy(copy, text, size);
    return copy;
}
