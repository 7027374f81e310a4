/*
 * keep.c - the figures of a device in a file: JSON beside the compiled kernels, written whole or not at all, taken only where all of it is whole and of that
 * very device. What is damaged or foreign is as good as none.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file/file.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "device/kernel_cache.h"
#include "graph/cost/cost.h"
#include "mica/host.h"

enum { FORMAT = 1, MOST_BYTES = 16384, PATH_BYTES = 1152 };

typedef struct figure {
    const char *name;
    size_t at; /* in mica_calibration */
    bool rate;
} figure;

#define FIGURE(name, unit, meaning) {#name, offsetof(mica_calibration, name), (unit)[0] == 'G'},
static const figure figures[] = {MICA_CALIBRATION_LIST(FIGURE)};
enum { FIGURES = sizeof figures / sizeof *figures };

static double value_of(const mica_calibration *c, const figure *f)
{
    double value;
    memcpy(&value, (const char *)c + f->at, sizeof value);
    return value;
}

mica_status mica__calibration_check(const mica_calibration *calibration)
{
    for (int i = 0; i < FIGURES; i++) {
        const double value = value_of(calibration, &figures[i]);
        if (!(value >= 0) || !isfinite(value) || (figures[i].rate && value <= 0))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "calibration: %s is %g, not %s", figures[i].name,
                              value, figures[i].rate ? "above 0" : "0 or more");
    }
    return MICA_OK;
}

/* A file for each device, driver and number of processors. */
static bool path_of(const mica_calibration *c, bool make, char *path)
{
    char name[64];
    mica__hash128 hash = mica__hash_key(c->device, strlen(c->device), (mica__hash128){0, 0});
    hash = mica__hash_key(c->driver, strlen(c->driver), hash);
    hash = mica__hash_key(&c->processors, sizeof c->processors, hash);
    snprintf(name, sizeof name, "calibration-%016" PRIx64 ".json", hash.low);
    return mica__kernel_cache_path(name, make, path, PATH_BYTES);
}

/* ---- reading ---- */

static bool same_text(const mica__json *json, const char *key, const char *wanted)
{
    const char *text = NULL;
    return mica__json_get_string(json, mica__json_root(json), key, &text, NULL) == MICA_OK &&
           strcmp(text, wanted) == 0;
}

static bool is_of(const mica__json *json, const mica_calibration *c)
{
    uint64_t processors = 0;
    return mica__json_get_uint(json, mica__json_root(json), "format", FORMAT, FORMAT, &processors) ==
               MICA_OK &&
           same_text(json, "version", mica_version()) && same_text(json, "device", c->device) &&
           same_text(json, "driver", c->driver) &&
           mica__json_get_uint(json, mica__json_root(json), "processors", c->processors, c->processors,
                               &processors) == MICA_OK;
}

static bool read_figures(const char *text, size_t size, mica_calibration *out)
{
    mica__json *json = NULL;
    const mica__json_limits limits = {.max_bytes = MOST_BYTES, .max_depth = 2, .max_nodes = 64};
    mica_calibration c = *out;
    if (mica__json_parse(text, size, &limits, &json) != MICA_OK)
        return false;
    bool whole = mica__json_root(json)->type == MICA__JSON_OBJECT && is_of(json, out);
    for (int i = 0; i < FIGURES && whole; i++) {
        double value = 0;
        whole =
            mica__json_get_double(json, mica__json_root(json), figures[i].name, 0, 1e15, &value) == MICA_OK;
        memcpy((char *)&c + figures[i].at, &value, sizeof value);
    }
    mica__json_release(json);
    if (!whole || mica__calibration_check(&c) != MICA_OK)
        return false;
    *out = c;
    return true;
}

bool mica__calibration_load(mica_calibration *calibration)
{
    char path[PATH_BYTES], text[MOST_BYTES];
    mica__file *file = NULL;
    if (!path_of(calibration, false, path) || !mica__file_exists(path) ||
        mica__file_open_own(path, &file) != MICA_OK)
        return false;
    const uint64_t size = mica__file_size(file);
    const bool loaded = size <= sizeof text && mica__file_read_at(file, 0, text, (size_t)size) == MICA_OK &&
                        read_figures(text, (size_t)size, calibration);
    mica__file_close(file);
    return loaded;
}

/* ---- writing ---- */

void mica__calibration_store(const mica_calibration *calibration)
{
    mica__json_writer json;
    char path[PATH_BYTES], *text = NULL;
    size_t length = 0;
    mica__file_writer *writer = NULL;
    if (!path_of(calibration, true, path))
        return;
    mica__json_writer_init(&json);
    mica__json_begin_object(&json);
    mica__json_key(&json, "format");
    mica__json_uint(&json, FORMAT);
    mica__json_key(&json, "version");
    mica__json_string(&json, mica_version());
    mica__json_key(&json, "device");
    mica__json_string(&json, calibration->device);
    mica__json_key(&json, "driver");
    mica__json_string(&json, calibration->driver);
    mica__json_key(&json, "processors");
    mica__json_uint(&json, calibration->processors);
    for (int i = 0; i < FIGURES; i++) {
        mica__json_key(&json, figures[i].name);
        mica__json_double(&json, value_of(calibration, &figures[i]));
    }
    mica__json_end_object(&json);
    if (mica__json_writer_finish(&json, &text, &length) != MICA_OK)
        return;
    mica__file_sweep(path);
    if (mica__file_writer_open(path, &writer) == MICA_OK) {
        mica__file_writer_hide(writer);
        (void)mica__file_writer_write(writer, text, length);
        (void)mica__file_writer_commit(writer);
    }
    mica__free(text);
}
