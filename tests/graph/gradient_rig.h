/*
 * gradient_rig.h - a case of a derivative: inputs, a graph over them, and what its gradient is compared with: central differences of the graph's own values.
 *
 * What a graph gives is made one number by factors that are drawn, one for each element of it. Each element of each float input is moved by h = 1e-4 max(1, |x|)
 * both ways.
 */
#ifndef TEST_GRADIENT_RIG_H
#define TEST_GRADIENT_RIG_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mica/executable.h"
#include "mica/gradient.h"
#include "mica/host.h"
#include "support/random.h"
#include "support/status.h"

enum { RIG_INPUTS = 8, RIG_ELEMENTS = 4096 };

typedef struct rig_input {
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[6];
    double low, high; /* drawn between; of integers 0 .. high - 1 */
} rig_input;

typedef mica_tensor rig_build(mica_graph *graph, const mica_tensor *x);

typedef struct rig_case {
    const char *name;
    rig_build *build;
    uint32_t
        second; /* 1: its second derivative is compared as well; 2: that alone has no rule, and is refused by name */
    double bound; /* relative to the greatest element of the gradient; 0: 1e-5 */
    rig_input in[RIG_INPUTS];
} rig_case;

/* What an input holds, as doubles and as the bytes of its type. */
typedef struct rig_value {
    uint64_t count;
    double number[RIG_ELEMENTS];
    unsigned char bytes[RIG_ELEMENTS * 8];
} rig_value;

static inline int rig_is_real(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F64;
}

static inline void rig_store(const rig_input *input, rig_value *value)
{
    for (uint64_t i = 0; i < value->count; i++)
        switch (input->dtype) {
        case MICA_DTYPE_F64: ((double *)(void *)value->bytes)[i] = value->number[i]; break;
        case MICA_DTYPE_F32: ((float *)(void *)value->bytes)[i] = (float)value->number[i]; break;
        case MICA_DTYPE_BOOL: value->bytes[i] = value->number[i] != 0; break;
        default: ((int32_t *)(void *)value->bytes)[i] = (int32_t)value->number[i]; break;
        }
}

static inline void rig_draw(test_random *random, const rig_input *input, rig_value *value)
{
    value->count = 1;
    for (uint32_t d = 0; d < input->ndim; d++)
        value->count *= input->shape[d];
    assert_true(value->count <= RIG_ELEMENTS);
    for (uint64_t i = 0; i < value->count; i++) {
        value->number[i] = rig_is_real(input->dtype)
                               ? test_random_uniform(random, input->low, input->high)
                               : (double)test_random_below(random, (uint64_t)input->high);
        if (input->dtype == MICA_DTYPE_F32)
            value->number[i] = (double)(float)value->number[i];
    }
    rig_store(input, value);
}

/* Factors for a value of any known shape, the same for the same seed. */
static inline mica_tensor rig_factors(mica_graph *graph, mica_tensor value, uint64_t seed)
{
    static double wide[RIG_ELEMENTS];
    static float narrow[RIG_ELEMENTS];
    mica_graph_tensor_info info;
    uint64_t count = 1;
    test_random random = test_random_from(seed);
    must(mica_graph_get_tensor(graph, value, &info));
    for (uint32_t d = 0; d < info.ndim; d++)
        count *= info.shape[d];
    assert_true(count <= RIG_ELEMENTS);
    for (uint64_t i = 0; i < count; i++)
        narrow[i] = (float)(wide[i] = (double)(float)test_random_uniform(&random, 0.5, 1.5));
    const int f64 = info.dtype == MICA_DTYPE_F64;
    return mica_graph_constant(graph, info.dtype, info.ndim, info.shape,
                               f64 ? (const void *)wide : (const void *)narrow, count * (f64 ? 8 : 4));
}

static inline mica_tensor rig_sum(mica_graph *graph, mica_tensor value, uint64_t seed)
{
    const mica_tensor each = mica_graph_mul(graph, value, rig_factors(graph, value, seed));
    return mica_graph_reduce(graph, MICA_REDUCE_SUM, each, NULL, 0, 0);
}

typedef struct rig {
    const rig_case *row;
    uint32_t count;
    rig_value *value; /* of the inputs */
    mica_graph *graph;
    mica_tensor x[RIG_INPUTS], loss;
    mica_executable *run;
} rig;

static inline uint32_t rig_inputs(const rig_case *row)
{
    uint32_t count = 0;
    while (count < RIG_INPUTS && row->in[count].dtype != MICA_DTYPE_NONE)
        count++;
    return count;
}

static inline void rig_begin(rig *r, const rig_case *row, uint64_t seed)
{
    test_random random = test_random_from(seed);
    *r = (rig){.row = row, .count = rig_inputs(row)};
    r->value = malloc(r->count * sizeof *r->value);
    assert_non_null(r->value);
    must(mica_graph_create(&r->graph));
    for (uint32_t i = 0; i < r->count; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%u", i);
        rig_draw(&random, &row->in[i], &r->value[i]);
        r->x[i] = mica_graph_input(r->graph, name, row->in[i].dtype, row->in[i].ndim, row->in[i].shape);
    }
    const mica_tensor y = row->build(r->graph, r->x);
    must(mica_graph_status(r->graph));
    r->loss = rig_sum(r->graph, y, 77);
    must(mica_graph_status(r->graph));
}

static inline void rig_end(rig *r)
{
    mica_executable_release(r->run);
    mica_graph_release(r->graph);
    free(r->value);
}

static inline void rig_feed(const rig *r, mica_array *arrays, char names[][16])
{
    for (uint32_t i = 0; i < r->count; i++) {
        const rig_input *in = &r->row->in[i];
        snprintf(names[i], 16, "x%u", i);
        arrays[i] = (mica_array){.name = names[i],
                                 .dtype = in->dtype,
                                 .ndim = in->ndim,
                                 .data = r->value[i].bytes,
                                 .bytes = r->value[i].count * mica_dtype_block_bytes(in->dtype)};
        memcpy(arrays[i].shape, in->shape, sizeof in->shape);
    }
}

/* Runs for one output, as doubles. */
static inline void rig_run(const rig *r, const char *name, mica_dtype dtype, uint64_t count, double *out)
{
    mica_array in[RIG_INPUTS], y = {.name = name};
    char names[RIG_INPUTS][16];
    static double wide[RIG_ELEMENTS];
    static float narrow[RIG_ELEMENTS];
    const int f64 = dtype == MICA_DTYPE_F64;
    rig_feed(r, in, names);
    y.data = f64 ? (void *)wide : (void *)narrow;
    y.bytes = count * (f64 ? 8 : 4);
    must(mica_executable_run(r->run, in, r->count, &y, 1));
    for (uint64_t i = 0; i < count; i++)
        out[i] = f64 ? wide[i] : (double)narrow[i];
}

static inline double rig_loss(const rig *r)
{
    double loss = 0;
    mica_graph_tensor_info info;
    must(mica_graph_get_tensor(r->graph, r->loss, &info));
    rig_run(r, "loss", info.dtype, 1, &loss);
    return loss;
}

/* What the loss changes by where element e of input i does: central. */
static inline double rig_difference(rig *r, uint32_t i, uint64_t e)
{
    rig_value *v = &r->value[i];
    const double x = v->number[e], f32 = r->row->in[i].dtype == MICA_DTYPE_F32;
    const double h = (f32 != 0 ? 0.0078125 : 1e-4) * fmax(1, fabs(x));
    v->number[e] = x + h;
    rig_store(&r->row->in[i], v);
    const double up = rig_loss(r), high = f32 != 0 ? (double)(float)(x + h) : x + h;
    v->number[e] = x - h;
    rig_store(&r->row->in[i], v);
    const double down = rig_loss(r), low = f32 != 0 ? (double)(float)(x - h) : x - h;
    v->number[e] = x;
    rig_store(&r->row->in[i], v);
    return (up - down) / (high - low);
}

static inline int rig_differentiable(const rig *r, uint32_t i)
{
    return rig_is_real(r->row->in[i].dtype) && r->row->in[i].low < r->row->in[i].high;
}

/* Of test_gradient_rules.c: gets each graph that is differentiated here, and nothing is run then. NULL: all is compared. */
extern void (*rig_sees)(const mica_graph *graph);

/* Gradients of r->loss against differences; compiled once for both. */
static inline int rig_compare(rig *r, mica_device *device, const char *what)
{
    mica_tensor of[RIG_INPUTS] = {0}, gradient[RIG_INPUTS] = {0};
    uint32_t place[RIG_INPUTS], count = 0;
    int wrong = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (rig_differentiable(r, i)) {
            place[count] = i;
            of[count++] = r->x[i];
        }
    if (rig_sees != NULL)
        rig_sees(r->graph);
    if (mica_graph_gradient(r->graph, r->loss, 0, of, count, gradient) != MICA_OK) {
        print_error("%s%s: %s\n", r->row->name, what, mica_status_message());
        return 1;
    }
    if (rig_sees != NULL)
        return 0;
    mica_graph_output(r->graph, "loss", r->loss);
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%u", i);
        mica_graph_output(r->graph, name, gradient[i]);
    }
    if (mica_graph_compile(r->graph, device, NULL, &r->run) != MICA_OK) {
        print_error("%s%s: %s\n", r->row->name, what, mica_status_message());
        return 1;
    }
    const double bound = r->row->bound != 0 ? r->row->bound : 1e-5;
    for (uint32_t i = 0; i < count; i++) {
        static double got[RIG_ELEMENTS], wanted[RIG_ELEMENTS];
        char name[16];
        double scale = 0, worst = 0;
        uint64_t at = 0;
        const rig_value *v = &r->value[place[i]];
        snprintf(name, sizeof name, "g%u", i);
        rig_run(r, name, r->row->in[place[i]].dtype, v->count, got);
        for (uint64_t e = 0; e < v->count; e++) {
            wanted[e] = rig_difference(r, place[i], e);
            scale = fmax(scale, fmax(fabs(wanted[e]), fabs(got[e])));
        }
        for (uint64_t e = 0; e < v->count; e++)
            if (!(fabs(got[e] - wanted[e]) <= worst)) {
                worst = fabs(got[e] - wanted[e]);
                at = e;
            }
        if (!(worst <= bound * fmax(scale, 1e-2))) {
            print_error("%s%s: input %u, element %llu of %llu: %.12g, by differences %.12g (greatest %.6g)\n",
                        r->row->name, what, place[i], (unsigned long long)at, (unsigned long long)v->count,
                        got[at], wanted[at], scale);
            wrong = 1;
        }
    }
    return wrong;
}

/* The loss becomes the sum of all gradients, each element with a factor of its own. */
static inline int rig_go_deeper(rig *r)
{
    mica_tensor of[RIG_INPUTS] = {0}, gradient[RIG_INPUTS] = {0}, sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (rig_differentiable(r, i))
            of[count++] = r->x[i];
    if (mica_graph_gradient(r->graph, r->loss, 0, of, count, gradient) != MICA_OK)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        const mica_tensor part = rig_sum(r->graph, gradient[i], 177 + i);
        sum = sum == 0 ? part : mica_graph_add(r->graph, sum, part);
    }
    r->loss = sum;
    return mica_graph_status(r->graph) == MICA_OK;
}

/* Number of derivatives of the rows that are wrong. */
static inline int rig_check(const rig_case *rows, size_t count, mica_device *device)
{
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        rig r;
        const char *only = getenv("RIG_ONLY");
        if (only != NULL && strcmp(only, rows[i].name) != 0)
            continue;
        rig_begin(&r, &rows[i], 1000 + i);
        wrong += rig_compare(&r, device, "");
        rig_end(&r);
        if (rows[i].second == 0)
            continue;
        rig_begin(&r, &rows[i], 1000 + i);
        if (rows[i].second == 2) {
            mica_tensor gradient[RIG_INPUTS];
            const int there = rig_go_deeper(&r);
            const mica_status status = there ? mica_graph_gradient(r.graph, r.loss, 0, r.x, 1, gradient)
                                             : mica_graph_status(r.graph);
            if (status != MICA_ERR_UNSUPPORTED) {
                print_error("%s: its second derivative gave %s\n", rows[i].name, mica_status_name(status));
                wrong++;
            }
        } else if (!rig_go_deeper(&r)) {
            print_error("%s, second: %s\n", rows[i].name, mica_status_message());
            wrong++;
        } else {
            wrong += rig_compare(&r, device, ", second");
        }
        rig_end(&r);
    }
    return wrong;
}

#endif
