/* work.c: what calls may spend, who stops them, and what their sentences begin with. */
#define _POSIX_C_SOURCE 200809L
#include "base/argument.h"
#include "base/work.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

#define LIMIT_DEFAULT(name, by_default, bounds) .name = (by_default),
static const mica_limits defaults = {.size = sizeof(mica_limits), MICA_LIMIT_LIST(LIMIT_DEFAULT)};
#undef LIMIT_DEFAULT

/* Initial-exec, as the sentence: no call into the loader. */
static _Thread_local mica_work *used __attribute__((tls_model("initial-exec")));
static _Thread_local mica__call *innermost __attribute__((tls_model("initial-exec")));

/* ---- works ---------------------------------------------------------------------------------------------- */

mica_status mica_work_create(const mica_limits *limits, mica_work **out_work)
{
    if (out_work == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "work_create: out_work is NULL");
    *out_work = NULL;
    mica_limits taken;
    MICA__TRY(mica__take_options("work_create: limits", limits, sizeof taken, &taken));
    mica_work *work = mica__calloc(1, sizeof *work);
    if (work == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "work_create: no memory");
    mica__work_init(work, limits);
    *out_work = work;
    return MICA_OK;
}

void mica__work_init(mica_work *work, const mica_limits *limits)
{
    *work = (mica_work){.limits = defaults};
    if (limits == NULL)
        return;
    work->steps_chosen = limits->steps != 0;
#define TAKE_LIMIT(name, by_default, bounds) \
    if (limits->name != 0)                   \
        work->limits.name = limits->name;
    MICA_LIMIT_LIST(TAKE_LIMIT)
#undef TAKE_LIMIT
}

void mica_work_release(mica_work *work)
{
    mica__free(work);
}

mica_work *mica_work_use(mica_work *work)
{
    mica_work *before = used;
    used = work;
    return before;
}

void mica_work_cancel(mica_work *work)
{
    if (work != NULL)
        atomic_store(&work->cancelled, 1);
}

void mica_work_clear(mica_work *work)
{
    if (work != NULL)
        atomic_store(&work->cancelled, 0);
}

mica_status mica_work_spent(const mica_work *work, uint64_t *out_steps, uint64_t *out_bytes)
{
    if (work == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "work_spent: work is NULL");
    if (out_steps != NULL)
        *out_steps = atomic_load(&work->steps);
    if (out_bytes != NULL)
        *out_bytes = atomic_load(&work->bytes);
    return MICA_OK;
}

/* ---- calls ---------------------------------------------------------------------------------------------- */

void mica__call_begin(mica__call *call, const char *name)
{
    *call = (mica__call){.name = name, .outer = innermost, .work = used};
    call->root = call->outer != NULL ? call->outer->root : call;
    call->allowed = mica__limits()->steps;
    innermost = call;
}

void mica__call_cancelled_by(mica__call *call, mica_work *own)
{
    call->own = own;
}

mica_status mica__call_end(mica__call *call, mica_status status)
{
    innermost = call->outer;
    if (call->root != call)
        return status;
    if (call->work != NULL) {
        atomic_fetch_add(&call->work->steps, call->steps);
        atomic_fetch_add(&call->work->bytes, call->bytes);
    }
    const size_t length = strlen(call->name);
    const char *sentence = mica_status_message();
    if (status == MICA_OK || (strncmp(sentence, call->name, length) == 0 && sentence[length] == ':'))
        return status;
    return mica__fail(status, "%s: %s", call->name, sentence);
}

bool mica__is_cancelled(void)
{
    for (const mica__call *call = innermost; call != NULL; call = call->outer)
        if ((call->work != NULL && atomic_load_explicit(&call->work->cancelled, memory_order_relaxed)) ||
            (call->own != NULL && atomic_load_explicit(&call->own->cancelled, memory_order_relaxed)))
            return true;
    return false;
}

mica_status mica__spend(uint64_t steps)
{
    if (innermost == NULL)
        return MICA_OK;
    mica__call *root = innermost->root;
    if (!mica__add_u64(root->steps, steps, &root->steps))
        root->steps = UINT64_MAX;
    if (root->steps > root->allowed)
        return mica__fail(MICA_ERR_BUDGET, "more than %llu steps (the limit 'steps' of mica_work)",
                          (unsigned long long)root->allowed);
    return mica__is_cancelled() ? mica__fail(MICA_ERR_CANCELLED, "cancelled") : MICA_OK;
}

void mica__spend_allow(uint64_t bytes)
{
    if (innermost == NULL)
        return;
    mica__call *root = innermost->root;
    uint64_t more;
    if (root->work != NULL && root->work->steps_chosen)
        return;
    if (!mica__mul_u64(bytes, MICA__STEPS_PER_BYTE, &more) ||
        !mica__add_u64(root->allowed, more, &root->allowed))
        root->allowed = UINT64_MAX;
}

const mica_limits *mica__limits(void)
{
    const mica_work *work = innermost != NULL ? innermost->root->work : used;
    return work != NULL ? &work->limits : &defaults;
}

mica_status mica__limit_check(const char *what, uint64_t limit, uint64_t found)
{
    return found <= limit
               ? MICA_OK
               : mica__fail(MICA_ERR_BUDGET, "%llu %s, at most %llu are allowed (a limit of mica_work)",
                            (unsigned long long)found, what, (unsigned long long)limit);
}

void mica__call_count(size_t bytes)
{
    if (innermost != NULL)
        innermost->root->bytes += bytes;
}
