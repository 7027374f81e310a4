/* profile.c - per-dispatch times: entries, buckets per kernel, a trace file. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file/file.h"
#include "base/json/json.h"
#include "base/status.h"
#include "device/objects.h"

mica_status mica_profile_begin(mica_device *device)
{
    uint64_t count = 0;
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_begin: device is NULL");
    mica_status status = mica__device_wait_idle(device);
    if (status == MICA_OK)
        status = device->table->timestamps(device->impl, true, NULL, 0, &count);
    if (status == MICA_OK)
        atomic_store(&device->profiling, 1);
    return status;
}

/* Moves what the backend has gathered to the device's own list. */
mica_status mica_profile_end(mica_device *device)
{
    uint64_t count = 0;
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_end: device is NULL");
    if (atomic_exchange(&device->profiling, 0) == 0)
        return mica__fail(MICA_ERR_STATE, "profile_end: device is not being profiled");
    mica_status status = mica__device_wait_idle(device);
    if (status != MICA_OK)
        return status;
    status = device->table->timestamps(device->impl, false, NULL, 0, &count);
    mica_profile_entry *entries = NULL;
    if (status == MICA_OK && count > 0) {
        entries = mica__calloc(count, sizeof *entries);
        if (entries == NULL)
            return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory for %llu profile entries",
                              (unsigned long long)count);
        status = device->table->timestamps(device->impl, false, entries, count, &count);
    }
    if (status != MICA_OK) {
        mica__free(entries);
        return status;
    }
    pthread_mutex_lock(&device->lock);
    mica_profile_entry *old = device->profile;
    device->profile = entries;
    device->profile_count = count;
    pthread_mutex_unlock(&device->lock);
    mica__free(old);
    return MICA_OK;
}

mica_status mica_profile_entries(mica_device *device, mica_profile_entry *entries, uint64_t capacity,
                                 uint64_t *out_count)
{
    if (device == NULL || out_count == NULL || (entries == NULL && capacity > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_entries: %s is NULL",
                          device == NULL      ? "device"
                          : out_count == NULL ? "out_count"
                                              : "entries");
    pthread_mutex_lock(&device->lock);
    uint64_t n = device->profile_count < capacity ? device->profile_count : capacity;
    if (n > 0)
        memcpy(entries, device->profile, n * sizeof *entries);
    *out_count = device->profile_count;
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}

static int more_time_first(const void *a, const void *b)
{
    uint64_t x = ((const mica_profile_bucket *)a)->total_ns, y = ((const mica_profile_bucket *)b)->total_ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

static int by_kernel(const void *a, const void *b)
{
    const mica_profile_entry *x = *(const mica_profile_entry *const *)a,
                             *y = *(const mica_profile_entry *const *)b;
    return x->op != y->op ? (x->op < y->op ? -1 : 1) : strcmp(x->kernel, y->kernel);
}

static void add_to_bucket(mica_profile_bucket *bucket, const mica_profile_entry *entry)
{
    const uint64_t ns = entry->end_ns - entry->begin_ns;
    bucket->count++;
    bucket->total_ns += ns;
    bucket->min_ns = ns < bucket->min_ns ? ns : bucket->min_ns;
    bucket->max_ns = ns > bucket->max_ns ? ns : bucket->max_ns;
}

/* A bucket for each op and kernel among the entries, which are put in their order; `buckets` has room for as many. */
static uint64_t sum_up(const mica_profile_entry **entries, uint64_t entry_count, mica_profile_bucket *buckets)
{
    uint64_t count = 0;
    qsort(entries, entry_count, sizeof *entries, by_kernel);
    for (uint64_t i = 0; i < entry_count; i++) {
        if (i == 0 || by_kernel(&entries[i - 1], &entries[i]) != 0) {
            buckets[count] = (mica_profile_bucket){.op = entries[i]->op, .min_ns = UINT64_MAX};
            memcpy(buckets[count++].kernel, entries[i]->kernel, sizeof entries[i]->kernel);
        }
        add_to_bucket(&buckets[count - 1], entries[i]);
    }
    qsort(buckets, count, sizeof *buckets, more_time_first);
    return count;
}

mica_status mica_profile_buckets(mica_device *device, mica_profile_bucket *buckets, uint64_t capacity,
                                 uint64_t *out_count)
{
    if (device == NULL || out_count == NULL || (buckets == NULL && capacity > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_buckets: %s is NULL",
                          device == NULL      ? "device"
                          : out_count == NULL ? "out_count"
                                              : "buckets");
    pthread_mutex_lock(&device->lock);
    const uint64_t n = device->profile_count;
    const mica_profile_entry **entries = mica__calloc(n, sizeof *entries);
    mica_profile_bucket *all = mica__calloc(n, sizeof *all);
    mica_status status = MICA_OK;
    *out_count = 0;
    if (entries == NULL || all == NULL) {
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no host memory to sum up %llu profile entries",
                            (unsigned long long)n);
    } else {
        for (uint64_t i = 0; i < n; i++)
            entries[i] = &device->profile[i];
        *out_count = sum_up(entries, n, all);
        if (capacity > 0)
            memcpy(buckets, all, (*out_count < capacity ? *out_count : capacity) * sizeof *buckets);
    }
    pthread_mutex_unlock(&device->lock);
    mica__free(entries);
    mica__free(all);
    return status;
}

/* One complete event ("ph": "X") of the trace event format; times in microseconds. */
static void write_event(mica__json_writer *w, const mica_profile_entry *entry, uint64_t origin_ns)
{
    mica__json_begin_object(w);
    mica__json_key(w, "name");
    mica__json_string(w, entry->kernel);
    mica__json_key(w, "cat");
    mica__json_string(w, mica_op_name(entry->op));
    mica__json_key(w, "ph");
    mica__json_string(w, "X");
    mica__json_key(w, "ts");
    mica__json_double(w, (double)(entry->begin_ns - origin_ns) / 1000.0);
    mica__json_key(w, "dur");
    mica__json_double(w, (double)(entry->end_ns - entry->begin_ns) / 1000.0);
    mica__json_key(w, "pid");
    mica__json_uint(w, 1);
    mica__json_key(w, "tid");
    mica__json_uint(w, 1);
    mica__json_key(w, "args");
    mica__json_begin_object(w);
    mica__json_key(w, "label");
    mica__json_string(w, entry->label);
    mica__json_key(w, "submission");
    mica__json_uint(w, entry->submission);
    mica__json_key(w, "index");
    mica__json_uint(w, entry->index);
    mica__json_end_object(w);
    mica__json_end_object(w);
}

static mica_status write_file(const char *path, const char *text, size_t size)
{
    mica__file_writer *file = NULL;
    mica_status status = mica__file_writer_open(path, &file);
    if (status != MICA_OK)
        return status;
    status = mica__file_writer_write(file, text, size);
    if (status != MICA_OK) {
        mica__file_writer_discard(file);
        return status;
    }
    return mica__file_writer_commit(file);
}

mica_status mica_profile_write_trace(mica_device *device, const char *path)
{
    if (device == NULL || path == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_write_trace: %s is NULL",
                          device == NULL ? "device" : "path");
    mica__json_writer writer;
    char *text = NULL;
    size_t size = 0;
    mica__json_writer_init(&writer);
    mica__json_begin_object(&writer);
    mica__json_key(&writer, "displayTimeUnit");
    mica__json_string(&writer, "ns");
    mica__json_key(&writer, "traceEvents");
    mica__json_begin_array(&writer);
    pthread_mutex_lock(&device->lock);
    for (uint64_t i = 0; i < device->profile_count; i++)
        write_event(&writer, &device->profile[i], device->profile[0].begin_ns);
    pthread_mutex_unlock(&device->lock);
    mica__json_end_array(&writer);
    mica__json_end_object(&writer);
    mica_status status = mica__json_writer_finish(&writer, &text, &size);
    if (status == MICA_OK)
        status = write_file(path, text, size);
    mica__free(text);
    return status;
}

mica_status mica_capture_begin(mica_device *device, const char *path)
{
    if (device == NULL || path == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "capture_begin: %s is NULL",
                          device == NULL ? "device" : "path");
    return mica__fail(MICA_ERR_UNSUPPORTED,
                      "capture_begin: device %s has no frame capture; use mica_profile_write_trace",
                      device->info.properties.id);
}

mica_status mica_capture_end(mica_device *device)
{
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "capture_end: device is NULL");
    return mica__fail(MICA_ERR_STATE, "capture_end: device: no capture was begun");
}
