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
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_begin: device is NULL");
    mica_status status = mica__device_wait_idle(device);
    if (status == MICA_OK)
        status = device->table->timestamps(device->impl, true, NULL);
    if (status == MICA_OK)
        atomic_store(&device->profiling, 1);
    return status;
}

static int more_time_first(const void *a, const void *b)
{
    uint64_t x = ((const mica_profile_bucket *)a)->total_ns, y = ((const mica_profile_bucket *)b)->total_ns;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Moves what the backend has gathered to the device. */
mica_status mica_profile_end(mica_device *device)
{
    mica__profile fresh = {.entry = NULL};
    if (device == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_end: device is NULL");
    if (atomic_exchange(&device->profiling, 0) == 0)
        return mica__fail(MICA_ERR_STATE, "profile_end: device is not being profiled");
    MICA__TRY(mica__device_wait_idle(device));
    MICA__TRY(device->table->timestamps(device->impl, false, &fresh));
    if (fresh.bucket_count > 0)
        qsort(fresh.bucket, fresh.bucket_count, sizeof *fresh.bucket, more_time_first);
    pthread_mutex_lock(&device->lock);
    const mica__profile old = device->profile;
    device->profile = fresh;
    pthread_mutex_unlock(&device->lock);
    mica__free(old.entry);
    mica__free(old.bucket);
    return MICA_OK;
}

static mica_status check_call(const char *call, const mica_device *device, const void *items,
                              uint64_t capacity, const uint64_t *out_count)
{
    if (device != NULL && out_count != NULL && (items != NULL || capacity == 0))
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "profile_%s: %s is NULL", call,
                      device == NULL      ? "device"
                      : out_count == NULL ? "out_count"
                                          : call);
}

mica_status mica_profile_entries(mica_device *device, mica_profile_entry *entries, uint64_t capacity,
                                 uint64_t *out_count)
{
    MICA__TRY(check_call("entries", device, entries, capacity, out_count));
    pthread_mutex_lock(&device->lock);
    const uint64_t n = device->profile.entry_count < capacity ? device->profile.entry_count : capacity;
    if (n > 0)
        memcpy(entries, device->profile.entry, n * sizeof *entries);
    *out_count = device->profile.entry_count;
    pthread_mutex_unlock(&device->lock);
    return MICA_OK;
}

mica_status mica_profile_buckets(mica_device *device, mica_profile_bucket *buckets, uint64_t capacity,
                                 uint64_t *out_count)
{
    MICA__TRY(check_call("buckets", device, buckets, capacity, out_count));
    pthread_mutex_lock(&device->lock);
    const uint64_t n = device->profile.bucket_count < capacity ? device->profile.bucket_count : capacity;
    if (n > 0)
        memcpy(buckets, device->profile.bucket, n * sizeof *buckets);
    *out_count = device->profile.bucket_count;
    pthread_mutex_unlock(&device->lock);
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
    for (uint64_t i = 0; i < device->profile.entry_count; i++)
        write_event(&writer, &device->profile.entry[i], device->profile.entry[0].begin_ns);
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
