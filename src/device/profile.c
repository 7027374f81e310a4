/* profile.c - per-dispatch times: entries, buckets per kernel, a trace file. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
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

#define MAX_BUCKETS 128

static void add_to_bucket(mica_profile_bucket *buckets, uint64_t *count, const mica_profile_entry *entry)
{
    uint64_t ns = entry->end_ns - entry->begin_ns, i = 0;
    while (i < *count && (buckets[i].op != entry->op || strcmp(buckets[i].kernel, entry->kernel) != 0))
        i++;
    if (i == MAX_BUCKETS)
        return;
    if (i == *count) {
        memset(&buckets[i], 0, sizeof buckets[i]);
        memcpy(buckets[i].kernel, entry->kernel, sizeof entry->kernel);
        buckets[i].op = entry->op;
        buckets[i].min_ns = UINT64_MAX;
        (*count)++;
    }
    buckets[i].count++;
    buckets[i].total_ns += ns;
    buckets[i].min_ns = ns < buckets[i].min_ns ? ns : buckets[i].min_ns;
    buckets[i].max_ns = ns > buckets[i].max_ns ? ns : buckets[i].max_ns;
}

mica_status mica_profile_buckets(mica_device *device, mica_profile_bucket *buckets, uint64_t capacity,
                                 uint64_t *out_count)
{
    mica_profile_bucket all[MAX_BUCKETS];
    uint64_t count = 0;
    if (device == NULL || out_count == NULL || (buckets == NULL && capacity > 0))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_buckets: %s is NULL",
                          device == NULL      ? "device"
                          : out_count == NULL ? "out_count"
                                              : "buckets");
    pthread_mutex_lock(&device->lock);
    for (uint64_t i = 0; i < device->profile_count; i++)
        add_to_bucket(all, &count, &device->profile[i]);
    pthread_mutex_unlock(&device->lock);
    qsort(all, count, sizeof all[0], more_time_first);
    if (capacity > 0)
        memcpy(buckets, all, (count < capacity ? count : capacity) * sizeof *buckets);
    *out_count = count;
    return MICA_OK;
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
