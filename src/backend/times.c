/* times.c - when each dispatch ran. */
#include "backend/times.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"

#define FIRST_BUCKETS 64u

/* ---- sums ---- */

static uint32_t *place_of(const mica__times *times, const mica_profile_entry *entry)
{
    const uint32_t mask = 2 * times->bucket_capacity - 1;
    uint64_t at = mica__hash_bytes(entry->kernel, strlen(entry->kernel), entry->op);
    for (;; at++) {
        uint32_t *place = &times->place[at & mask];
        if (*place == 0)
            return place;
        const mica_profile_bucket *bucket = &times->bucket[*place - 1];
        if (bucket->op == entry->op && strcmp(bucket->kernel, entry->kernel) == 0)
            return place;
    }
}

/* Room for one bucket more, those that are there at their new places. */
static bool grow_buckets(mica__times *times)
{
    const uint32_t capacity = times->bucket_capacity == 0 ? FIRST_BUCKETS : 2 * times->bucket_capacity;
    uint32_t *place = mica__calloc(2 * (size_t)capacity, sizeof *place);
    mica_profile_bucket *bucket =
        place == NULL ? NULL : mica__realloc(times->bucket, capacity * sizeof *bucket);
    if (bucket == NULL) {
        mica__free(place);
        return false;
    }
    mica__free(times->place);
    times->place = place;
    times->bucket = bucket;
    times->bucket_capacity = capacity;
    for (uint32_t i = 0; i < times->bucket_count; i++) {
        mica_profile_entry key = {.op = bucket[i].op};
        memcpy(key.kernel, bucket[i].kernel, sizeof key.kernel);
        *place_of(times, &key) = i + 1;
    }
    return true;
}

static void sum_up(mica__times *times, const mica_profile_entry *entry)
{
    const uint64_t ns = entry->end_ns - entry->begin_ns;
    if (times->bucket_count == times->bucket_capacity && !grow_buckets(times)) {
        times->lost = true;
        return;
    }
    uint32_t *place = place_of(times, entry);
    if (*place == 0) {
        mica_profile_bucket *fresh = &times->bucket[times->bucket_count++];
        *fresh = (mica_profile_bucket){.op = entry->op, .min_ns = UINT64_MAX};
        memcpy(fresh->kernel, entry->kernel, sizeof fresh->kernel);
        *place = times->bucket_count;
    }
    mica_profile_bucket *bucket = &times->bucket[*place - 1];
    bucket->count++;
    bucket->total_ns += ns;
    bucket->min_ns = ns < bucket->min_ns ? ns : bucket->min_ns;
    bucket->max_ns = ns > bucket->max_ns ? ns : bucket->max_ns;
    bucket->bytes += entry->bytes;
    bucket->operations += entry->operations;
}

/* ---- entries ---- */

void mica__times_add(mica__times *times, const mica_profile_entry *entry, const char *kernel,
                     const char *label)
{
    if (times->entry == NULL)
        return;
    mica_profile_entry *kept = &times->entry[times->count++ % MICA__TIMES_KEPT];
    *kept = *entry;
    snprintf(kept->kernel, sizeof kept->kernel, "%s", kernel != NULL ? kernel : "copy_bytes");
    snprintf(kept->label, sizeof kept->label, "%s", label);
    sum_up(times, kept);
}

static mica_status enable_times(mica__times *times)
{
    if (times->entry == NULL)
        times->entry = mica__alloc(MICA__TIMES_KEPT * sizeof *times->entry);
    if (times->entry == NULL || (times->bucket_capacity == 0 && !grow_buckets(times)))
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to keep %u times", MICA__TIMES_KEPT);
    times->count = times->bucket_count = 0;
    times->lost = false;
    memset(times->place, 0, 2 * (size_t)times->bucket_capacity * sizeof *times->place);
    return MICA_OK;
}

static void reverse(mica_profile_entry *entry, uint64_t begin, uint64_t end)
{
    for (; begin + 1 < end; begin++, end--) {
        const mica_profile_entry first = entry[begin];
        entry[begin] = entry[end - 1];
        entry[end - 1] = first;
    }
}

/* Oldest first: where the newest are over the oldest, both parts are reversed, then the whole. */
static void put_in_order(mica_profile_entry *entry, uint64_t count)
{
    const uint64_t oldest = count % MICA__TIMES_KEPT;
    if (count <= MICA__TIMES_KEPT)
        return;
    reverse(entry, 0, oldest);
    reverse(entry, oldest, MICA__TIMES_KEPT);
    reverse(entry, 0, MICA__TIMES_KEPT);
}

static void give(mica__times *times, mica__profile *out)
{
    put_in_order(times->entry, times->count);
    *out = (mica__profile){
        .entry = times->entry,
        .bucket = times->bucket,
        .entry_count = times->count < MICA__TIMES_KEPT ? times->count : MICA__TIMES_KEPT,
        .bucket_count = times->bucket_count,
    };
    mica__free(times->place);
    times->entry = NULL;
    times->bucket = NULL;
    times->place = NULL;
    times->count = times->bucket_count = times->bucket_capacity = 0;
}

mica_status mica__times_read(mica__times *times, bool enable, mica__profile *out)
{
    if (out != NULL)
        memset(out, 0, sizeof *out);
    const mica_status status = enable ? enable_times(times) : MICA_OK;
    if (status != MICA_OK)
        return status;
    atomic_store(&times->enabled, enable);
    if (times->lost)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to sum up the times of %u kernels",
                          times->bucket_count + 1);
    if (!enable && out != NULL)
        give(times, out);
    return MICA_OK;
}

void mica__times_free(mica__times *times)
{
    mica__free(times->entry);
    mica__free(times->bucket);
    mica__free(times->place);
}
