/*
 * test_recurrent_threads.c - cells whose hidden units are shared by threads: the same bits as one thread gives, a sequence alone and token by token; of
 * gradients too.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

enum { MOST_THREADS = 5, ODD = 201, SEQUENCES = 11 };

static mica_device *device_of(uint32_t threads)
{
    const mica_device_options options = {.threads = threads};
    mica_device *device = NULL;

    must(mica_device_open("cpu", &options, &device));
    return device;
}

/* Cells of one kind over packed sequences, some empty; what all ways are to give. */
typedef struct cells {
    mica_rnn_params params;
    uint64_t hidden, gates, kept, count, tokens;
    uint32_t starts[SEQUENCES + 2];
    float *x, *weight, *bias, *state, *dy, *dnext;
} cells;

static float *drawn(test_random *random, uint64_t count, double spread)
{
    float *values = test_alloc(count, sizeof *values);

    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(spread * test_random_normal(random));
    return values;
}

static cells draw(uint32_t kind, uint64_t hidden, uint64_t count, uint64_t longest)
{
    static const uint64_t gates[] = {1, 1, 3, 4};
    test_random random = test_random_from(kind + 17);
    cells c = {.params = {kind, kind % 2}, .hidden = hidden, .gates = gates[kind], .count = count};

    c.kept = kind == MICA_RNN_LSTM ? 2 : 1;
    for (uint64_t n = 0; n < count; n++)
        c.starts[n + 1] = c.starts[n] + (uint32_t)(n == 1 ? 0 : 1 + test_random_below(&random, longest));
    c.tokens = c.starts[count];
    c.x = drawn(&random, c.tokens * c.gates * hidden, 1);
    c.weight = drawn(&random, c.gates * hidden * hidden, 1 / sqrt((double)hidden));
    c.bias = drawn(&random, c.gates * hidden, 1);
    c.state = drawn(&random, count * c.kept * hidden, 1);
    c.dy = drawn(&random, c.tokens * hidden, 1);
    c.dnext = drawn(&random, count * c.kept * hidden, 1);
    return c;
}

static void drop(const cells *c)
{
    float *const all[] = {c->x, c->weight, c->bias, c->state, c->dy, c->dnext};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static mica_buffer *given(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                          const void *values)
{
    mica_buffer *buffer = NULL;
    mica_buffer_info info;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    must(mica_buffer_get_info(buffer, &info));
    if (values != NULL && info.element_count > 0)
        must(mica_buffer_write(buffer, 0, values, info.element_count * 4));
    return buffer;
}

#define GIVEN(type, values, ...) \
    given(device, MICA_DTYPE_##type, sizeof(uint64_t[]){__VA_ARGS__} / 8, (uint64_t[]){__VA_ARGS__}, values)

static void take(mica_buffer *buffer, float *to)
{
    mica_buffer_info info;

    must(mica_buffer_get_info(buffer, &info));
    if (info.element_count > 0)
        must(mica_buffer_read(buffer, 0, to, info.element_count * sizeof *to));
    mica_buffer_release(buffer);
}

/* All sequences at once: y [tokens, hidden], then the last states. */
static float *forward(const cells *c, uint32_t threads)
{
    mica_device *device = device_of(threads);
    float *out = test_alloc(c->tokens * c->hidden + c->count * c->kept * c->hidden, sizeof *out);
    mica_buffer *x = GIVEN(F32, c->x, c->tokens, c->gates * c->hidden),
                *weight = GIVEN(F32, c->weight, c->gates * c->hidden, c->hidden),
                *bias = GIVEN(F32, c->bias, c->gates * c->hidden),
                *state = GIVEN(F32, c->state, c->count, c->kept, c->hidden),
                *starts = GIVEN(U32, c->starts, c->count + 1), *y = GIVEN(F32, NULL, c->tokens, c->hidden);
    const mica_sequences of = {.state = state, .starts = starts, .next_state = state};
    mica_encoder *encoder;

    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_rnn(encoder, x, weight, bias, &of, &c->params, y));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    take(y, out);
    take(state, out + c->tokens * c->hidden);
    mica_buffer *const all[] = {x, weight, bias, starts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
    mica_device_release(device);
    return out;
}

/* One sequence alone, a token a call, which is how a program streams. */
static float *forward_in_tokens(const cells *c, uint64_t n)
{
    const uint64_t first = c->starts[n], count = c->starts[n + 1] - first, width = c->gates * c->hidden;
    mica_device *device = device_of(1);
    float *out = test_alloc((count + c->kept) * c->hidden, sizeof *out);
    mica_buffer *weight = GIVEN(F32, c->weight, width, c->hidden), *bias = GIVEN(F32, c->bias, width),
                *state = GIVEN(F32, c->state + n * c->kept * c->hidden, 1, c->kept, c->hidden);
    const mica_sequences of = {.state = state, .next_state = state};

    for (uint64_t i = 0; i < count; i++) {
        const uint64_t t = c->params.reverse != 0 ? count - 1 - i : i;
        mica_buffer *x = GIVEN(F32, c->x + (first + t) * width, 1, width),
                    *y = GIVEN(F32, NULL, 1, c->hidden);
        mica_encoder *encoder;

        must(mica_encoder_begin(device, NULL, &encoder));
        must(mica_rnn(encoder, x, weight, bias, &of, &c->params, y));
        must(mica_encoder_commit_and_wait(encoder));
        mica_encoder_release(encoder);
        take(y, out + t * c->hidden);
        mica_buffer_release(x);
    }
    take(state, out + count * c->hidden);
    mica_buffer_release(weight);
    mica_buffer_release(bias);
    mica_device_release(device);
    return out;
}

static void check_forward(const cells *c)
{
    const uint64_t size = c->tokens * c->hidden, kept = c->kept * c->hidden;
    float *one = forward(c, 1);

    for (uint32_t threads = 2; threads <= MOST_THREADS; threads++) {
        float *many = forward(c, threads);
        assert_memory_equal(one, many, (size + c->count * kept) * sizeof *one);
        free(many);
    }
    for (uint64_t n = 0; n < c->count; n += 3) {
        const uint64_t first = c->starts[n], count = c->starts[n + 1] - first;
        float *alone = forward_in_tokens(c, n);
        assert_memory_equal(one + first * c->hidden, alone, count * c->hidden * sizeof *one);
        assert_memory_equal(one + size + n * kept, alone + count * c->hidden, kept * sizeof *one);
        free(alone);
    }
    free(one);
}

static void test_cells(void **state)
{
    (void)state;
    for (uint32_t kind = MICA_RNN_TANH; kind <= MICA_RNN_LSTM; kind++) {
        const cells alone = draw(kind, 2 * ODD, 1, 9), few = draw(kind, ODD, 3, 9),
                    many = draw(kind, ODD, SEQUENCES, 7);
        check_forward(&alone);
        check_forward(&few);
        check_forward(&many);
        drop(&alone);
        drop(&few);
        drop(&many);
    }
}

/* dx, dweight, dbias, dstate, one behind the other. */
static float *backward(const cells *c, uint32_t threads, uint64_t *out_count)
{
    const uint64_t width = c->gates * c->hidden,
                   size[] = {c->tokens * width, width * c->hidden, width, c->count * c->kept * c->hidden};
    mica_device *device = device_of(threads);
    mica_buffer *x = GIVEN(F32, c->x, c->tokens, width), *weight = GIVEN(F32, c->weight, width, c->hidden),
                *bias = GIVEN(F32, c->bias, width),
                *state = GIVEN(F32, c->state, c->count, c->kept, c->hidden),
                *starts = GIVEN(U32, c->starts, c->count + 1), *dy = GIVEN(F32, c->dy, c->tokens, c->hidden),
                *dnext = GIVEN(F32, c->dnext, c->count, c->kept, c->hidden),
                *dx = GIVEN(F32, NULL, c->tokens, width), *dweight = GIVEN(F32, NULL, width, c->hidden),
                *dbias = GIVEN(F32, NULL, width), *dstate = GIVEN(F32, NULL, c->count, c->kept, c->hidden);
    const mica_sequences of = {.state = state, .starts = starts};
    mica_encoder *encoder;

    *out_count = size[0] + size[1] + size[2] + size[3];
    float *out = test_alloc(*out_count, sizeof *out);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_rnn_backward(encoder, x, weight, bias, &of, &c->params, dy, dnext, dx, dweight, dbias, dstate));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    take(dx, out);
    take(dweight, out + size[0]);
    take(dbias, out + size[0] + size[1]);
    take(dstate, out + size[0] + size[1] + size[2]);
    mica_buffer *const all[] = {x, weight, bias, state, starts, dy, dnext};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mica_buffer_release(all[i]);
    mica_device_release(device);
    return out;
}

static void test_gradients(void **state)
{
    (void)state;
    for (uint32_t kind = MICA_RNN_TANH; kind <= MICA_RNN_LSTM; kind++)
        for (uint64_t count = 1; count <= SEQUENCES; count += SEQUENCES - 1) {
            const cells c = draw(kind, count == 1 ? 2 * ODD : ODD, count, 7);
            uint64_t size;
            float *one = backward(&c, 1, &size);

            for (uint32_t threads = 2; threads <= MOST_THREADS; threads++) {
                float *many = backward(&c, threads, &size);
                assert_memory_equal(one, many, size * sizeof *one);
                free(many);
            }
            free(one);
            drop(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_gradients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
