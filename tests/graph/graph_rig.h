/*
 * graph_rig.h - tests of graphs that run: every device and mode, arrays in memory of the test, answers in double.
 */
#ifndef TEST_GRAPH_RIG_H
#define TEST_GRAPH_RIG_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "mica/mica.h"
#include "support/devices.h"
#include "support/random.h"
#include "support/status.h"

static const mica_graph_mode rig_modes[] = {MICA_MODE_EAGER, MICA_MODE_LAZY, MICA_MODE_COMPILED};

#define EACH_DEVICE(device)              \
    for (int d_ = 0; d_ < DEVICES; d_++) \
        for (mica_device *device = devices[d_]; device != NULL; device = NULL)
#define EACH_MODE(mode)            \
    for (int m_ = 0; m_ < 3; m_++) \
        for (mica_graph_mode mode = rig_modes[m_]; mode != MICA_MODE_DEFAULT; mode = MICA_MODE_DEFAULT)

static inline mica_executable *rig_compile(mica_graph *graph, mica_device *device, mica_graph_mode mode)
{
    mica_executable *executable = NULL;
    const mica_compile_options options = {.mode = mode};
    must(mica_graph_compile(graph, device, &options, &executable));
    return executable;
}

static inline mica_array rig_array(const char *name, mica_dtype dtype, void *data, uint64_t bytes,
                                   uint32_t ndim, const uint64_t *shape)
{
    mica_array array = {.name = name, .dtype = dtype, .ndim = ndim, .data = data, .bytes = bytes};
    memcpy(array.shape, shape, ndim * sizeof *shape);
    return array;
}

static inline mica_status rig_set(mica_executable *executable, mica_array array)
{
    return mica_executable_set(executable, &array);
}

#define F32_ARRAY(name, data, ...) \
    rig_array(name, MICA_DTYPE_F32, data, sizeof(data), sizeof(SHAPE(__VA_ARGS__)) / 8, SHAPE(__VA_ARGS__))
#define OUT_ARRAY(name_, data_)                              \
    (mica_array)                                             \
    {                                                        \
        .name = name_, .data = data_, .bytes = sizeof(data_) \
    }

static inline void rig_fill(test_random *random, float *x, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        x[i] = (float)test_random_normal(random);
}

static inline void rig_near_at(const float *x, const double *wanted, uint64_t count, double relative,
                               const char *file, int line)
{
    for (uint64_t i = 0; i < count; i++)
        if (!(fabs((double)x[i] - wanted[i]) <= relative * (1 + fabs(wanted[i])))) {
            print_error("element %llu is %.9g, not %.9g\n", (unsigned long long)i, (double)x[i], wanted[i]);
            _fail(file, line);
        }
}
#define rig_near(x, wanted, count, relative) rig_near_at(x, wanted, count, relative, __FILE__, __LINE__)

#endif
