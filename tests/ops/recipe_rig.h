/*
 * recipe_rig.h - gradients that are made of public calls, on the cpu: a forward and its recipe, both as functions that add ops to an encoder, and
 * the recipe against central differences of the forward in double.
 */
#ifndef TEST_RECIPE_RIG_H
#define TEST_RECIPE_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

enum { RECIPE_INPUTS = 3, RECIPE_BUFFERS = 96, RECIPE_ELEMENTS = 400 };

static mica_device *device;

static inline int open_device(void **state)
{
    (void)state;
    return mica_device_open("cpu", NULL, &device) == MICA_OK ? 0 : -1;
}

static inline int close_device(void **state)
{
    (void)state;
    mica_device_release(device);
    return mica_host_bytes() == 0 ? 0 : -1;
}

/* Work that is being added: its encoder, the type of its numbers, what it made on the way. */
typedef struct tape {
    mica_encoder *encoder;
    mica_dtype type;
    mica_buffer *made[RECIPE_BUFFERS];
    uint32_t count;
} tape;

typedef struct shape {
    uint32_t ndim;
    uint64_t size[MICA_MAX_DIMS];
} shape;

#define S1(a) ((shape){1, {a}})
#define S2(a, b) ((shape){2, {a, b}})
#define S3(a, b, c) ((shape){3, {a, b, c}})
#define S4(a, b, c, d) ((shape){4, {a, b, c, d}})

static inline mica_buffer *keep(tape *t, mica_buffer *buffer)
{
    assert_true(t->count < RECIPE_BUFFERS);
    return t->made[t->count++] = buffer;
}

static inline mica_buffer *room_of(tape *t, mica_dtype type, shape s)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, type, s.ndim, s.size, &buffer));
    return keep(t, buffer);
}

static inline mica_buffer *room(tape *t, shape s)
{
    return room_of(t, t->type, s);
}

static inline mica_buffer *ids(tape *t, shape s, const int32_t *values)
{
    mica_buffer *buffer = room_of(t, MICA_DTYPE_I32, s);
    mica_buffer_info info;

    must(mica_buffer_get_info(buffer, &info));
    must(mica_buffer_write(buffer, 0, values, info.byte_length));
    return buffer;
}

static inline mica_buffer *filled(tape *t, shape s, double value)
{
    mica_buffer *buffer = room(t, s);

    must(mica_fill(t->encoder, value, buffer));
    return buffer;
}

/* The same elements in another shape. */
static inline mica_buffer *as_shape(tape *t, mica_buffer *of, shape s)
{
    mica_buffer *view = NULL;

    must(mica_buffer_reshape(of, s.ndim, s.size, &view));
    return keep(t, view);
}

typedef struct recipe recipe;

struct recipe {
    mica_op op; /* the row whose gradient this is */
    const char *name;
    shape in[RECIPE_INPUTS], y;
    void (*forward)(tape *t, const recipe *r, mica_buffer *const *in, mica_buffer *y);
    /* d[i] is what reaches in[i], or NULL where it is not asked for. */
    void (*backward)(tape *t, const recipe *r, mica_buffer *const *in, mica_buffer *y, mica_buffer *dy,
                     mica_buffer *const *d);
    uint32_t kind, mode; /* whatever the functions make of them */
    bool narrow;         /* the op has no f64: f32, of a forward that is linear in each input */
    bool zero;           /* one element is 0 */
};

typedef struct numbers {
    uint64_t count;
    double value[RECIPE_ELEMENTS];
} numbers;

static inline uint64_t count_of(shape s)
{
    uint64_t count = s.ndim > 0 ? 1 : 0;

    for (uint32_t d = 0; d < s.ndim; d++)
        count *= s.size[d];
    return count;
}

/* Apart from each other and from 0, so that no difference goes over a kink; of both signs. */
static inline void apart(numbers *n, test_random *random, bool zero)
{
    for (uint64_t i = 0; i < n->count; i++) {
        const uint64_t other = test_random_below(random, i + 1);

        n->value[i] = n->value[other];
        n->value[other] = 3 * ((double)i + 0.6) / (double)n->count - 1.4;
        if (fabs(n->value[other]) < 0.02)
            n->value[other] = 1.7;
    }
    if (zero)
        n->value[n->count / 2] = 0;
}

static inline void put(mica_buffer *buffer, mica_dtype type, const numbers *n)
{
    float narrow[RECIPE_ELEMENTS];

    for (uint64_t i = 0; i < n->count; i++)
        narrow[i] = (float)n->value[i];
    must(mica_buffer_write(buffer, 0, type == MICA_DTYPE_F64 ? (const void *)n->value : narrow,
                           n->count * (type == MICA_DTYPE_F64 ? 8 : 4)));
}

static inline void get(mica_buffer *buffer, mica_dtype type, numbers *n)
{
    float narrow[RECIPE_ELEMENTS];

    must(mica_buffer_read(buffer, 0, type == MICA_DTYPE_F64 ? (void *)n->value : narrow,
                          n->count * (type == MICA_DTYPE_F64 ? 8 : 4)));
    for (uint64_t i = 0; i < n->count && type != MICA_DTYPE_F64; i++)
        n->value[i] = (double)narrow[i];
}

/* y for these inputs; where dy is there, what the recipe gives for each of them in d. */
static inline void recipe_run(const recipe *r, const numbers *in, numbers *y, const numbers *dy, numbers *d)
{
    tape t = {.type = r->narrow ? MICA_DTYPE_F32 : MICA_DTYPE_F64};
    mica_buffer *from[RECIPE_INPUTS] = {NULL}, *reached[RECIPE_INPUTS] = {NULL};

    must(mica_encoder_begin(device, NULL, &t.encoder));
    for (uint32_t i = 0; i < RECIPE_INPUTS && r->in[i].ndim > 0; i++) {
        from[i] = room(&t, r->in[i]);
        put(from[i], t.type, &in[i]);
        if (dy != NULL)
            reached[i] = room(&t, r->in[i]);
    }
    mica_buffer *to = room(&t, r->y);
    r->forward(&t, r, from, to);
    if (dy != NULL) {
        mica_buffer *of = room(&t, r->y);

        put(of, t.type, dy);
        r->backward(&t, r, from, to, of, reached);
    }
    must(mica_encoder_commit_and_wait(t.encoder));
    get(to, t.type, y);
    for (uint32_t i = 0; dy != NULL && i < RECIPE_INPUTS && reached[i] != NULL; i++)
        get(reached[i], t.type, &d[i]);
    mica_encoder_release(t.encoder);
    while (t.count > 0)
        mica_buffer_release(t.made[--t.count]);
}

/* The slope of sum(dy y) along element k of input i: two steps whose first error cancels. Linear forwards in f32 take a large one. */
static inline double recipe_slope(const recipe *r, numbers *in, uint32_t i, uint64_t k, const numbers *dy)
{
    const double was = in[i].value[k];
    double slope[2];
    numbers y = {.count = dy->count};

    for (int wide = 0; wide < 2; wide++) {
        const double step = (r->narrow ? 0.5 : 1e-3) * (1 + wide);
        double sum[2] = {0, 0};

        for (int side = 0; side < 2; side++) {
            in[i].value[k] = was + (side == 0 ? -step : step);
            recipe_run(r, in, &y, NULL, NULL);
            for (uint64_t o = 0; o < y.count; o++)
                sum[side] += dy->value[o] * y.value[o];
        }
        slope[wide] = (sum[1] - sum[0]) / (2 * step);
    }
    in[i].value[k] = was;
    return r->narrow ? slope[0] : (4 * slope[0] - slope[1]) / 3;
}

static inline void recipe_check(const recipe *r)
{
    test_random random = test_random_from(17);
    numbers in[RECIPE_INPUTS], y = {.count = count_of(r->y)}, dy = {.count = y.count}, d[RECIPE_INPUTS];
    const double allowed = r->narrow ? 2e-5 : 1e-8;

    assert_true(y.count <= RECIPE_ELEMENTS);
    for (uint32_t i = 0; i < RECIPE_INPUTS; i++) {
        in[i].count = d[i].count = count_of(r->in[i]);
        assert_true(in[i].count <= RECIPE_ELEMENTS);
        apart(&in[i], &random, r->zero && i == 0);
    }
    for (uint64_t k = 0; k < dy.count; k++)
        dy.value[k] = test_random_uniform(&random, -1, 1);
    recipe_run(r, in, &y, &dy, d);
    for (uint32_t i = 0; i < RECIPE_INPUTS; i++)
        for (uint64_t k = 0; k < in[i].count; k++) {
            const double wanted = recipe_slope(r, in, i, k, &dy);

            if (!(fabs(wanted - d[i].value[k]) <= allowed * (1 + fabs(wanted))))
                fail_msg("%s: element %llu of the gradient of input %u is %.12g, differences give %.12g",
                         r->name, (unsigned long long)k, i, d[i].value[k], wanted);
        }
}

/* How recipes are written. */
#define FORWARD(name) static void name(tape *t, const recipe *r, mica_buffer *const *in, mica_buffer *y)
#define BACKWARD(name)                                                                                  \
    static void name(tape *t, const recipe *r, mica_buffer *const *in, mica_buffer *y, mica_buffer *dy, \
                     mica_buffer *const *d)
#define UNUSED(...)        \
    (void)(const void *[]) \
    {                      \
        __VA_ARGS__        \
    }
#define E t->encoder

#endif
