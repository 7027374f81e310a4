/*
 * test_delta_chunk.c - the delta rule by chunks against the same token by token and against double precision: sequences of many chunks, of one token
 * and of none, ragged ones, decays whose inverse no f32 holds, decays of 0. On every device that there is.
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
#include "oracle/oracle_number.h"
#include "oracle/oracle_recurrent.h"
#include "support/random.h"
#include "support/status.h"
#include "support/tensor.h"

enum { TOKENS = 203, SEQUENCES = 5, GROUPS = 2, HEADS = 4, DIM = 40, COLUMNS = 37 };
enum { Q, K, V, G, BETA, SKIP, STATE, OPERANDS };
static const uint32_t starts[SEQUENCES + 1] = {0, 1, 1, 65, 129, TOKENS};
static const uint64_t counts[OPERANDS] = {TOKENS * GROUPS * DIM,
                                          TOKENS *GROUPS *DIM,
                                          TOKENS *HEADS *COLUMNS,
                                          TOKENS *HEADS,
                                          TOKENS *HEADS,
                                          HEADS,
                                          SEQUENCES *HEADS *DIM *COLUMNS};
enum { Y_COUNT = TOKENS * HEADS * COLUMNS, NEXT_COUNT = SEQUENCES * HEADS * DIM * COLUMNS };

/* What goes in. */
typedef struct problem {
    float *value[OPERANDS];
    mica_delta_params params;
} problem;

static problem draw(uint64_t seed, mica_delta_rule rule, double steep)
{
    test_random random = test_random_from(seed);
    problem p = {.params = {.rule = rule, .normalise = 1, .eps = 1e-6f}};

    for (int o = 0; o < OPERANDS; o++) {
        p.value[o] = test_alloc(counts[o], sizeof(float));
        for (uint64_t i = 0; i < counts[o]; i++)
            p.value[o][i] = (float)test_random_normal(&random);
    }
    for (uint64_t i = 0; i < counts[G]; i++) {
        p.value[G][i] = (float)(-steep * fabs((double)p.value[G][i]));
        p.value[BETA][i] = 1 / (1 + expf(p.value[BETA][i]));
    }
    for (uint64_t h = 0; h < HEADS; h++) /* all that was is forgotten, in the middle of a chunk */
        p.value[G][100 * HEADS + h] = -INFINITY;
    return p;
}

static void end_problem(problem *p)
{
    for (int o = 0; o < OPERANDS; o++)
        free(p->value[o]);
}

static mica_buffer *sent(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                         const void *values, uint64_t bytes)
{
    mica_buffer *buffer = NULL;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    if (values)
        must(mica_buffer_write(buffer, 0, values, bytes));
    return buffer;
}

/* y and the next states in that form. */
static void run_form(mica_device *device, const problem *p, mica_delta_form form, float *y, float *next)
{
    static const uint64_t shape[OPERANDS][4] = {{TOKENS, GROUPS, DIM},
                                                {TOKENS, GROUPS, DIM},
                                                {TOKENS, HEADS, COLUMNS},
                                                {TOKENS, HEADS},
                                                {TOKENS, HEADS},
                                                {HEADS},
                                                {SEQUENCES, HEADS, DIM, COLUMNS}};
    static const uint32_t ndim[OPERANDS] = {3, 3, 3, 2, 2, 1, 4};
    static const uint64_t ends[] = {SEQUENCES + 1};
    mica_delta_params params = p->params;
    mica_buffer *b[OPERANDS];
    mica_encoder *encoder;

    params.form = form;
    for (int o = 0; o < OPERANDS; o++)
        b[o] = sent(device, MICA_DTYPE_F32, ndim[o], shape[o], p->value[o], counts[o] * sizeof(float));
    mica_buffer *split = sent(device, MICA_DTYPE_U32, 1, ends, starts, sizeof starts),
                *out = sent(device, MICA_DTYPE_F32, 3, shape[V], NULL, 0),
                *after = sent(device, MICA_DTYPE_F32, 4, shape[STATE], NULL, 0);
    must(mica_encoder_begin(device, NULL, &encoder));
    must(mica_delta_net(encoder, &(mica_delta_operands){b[Q], b[K], b[V], b[G], b[BETA], b[SKIP]},
                        &(mica_sequences){.state = b[STATE], .starts = split, .next_state = after}, &params,
                        out));
    must(mica_encoder_commit_and_wait(encoder));
    mica_encoder_release(encoder);
    must(mica_buffer_read(out, 0, y, Y_COUNT * sizeof *y));
    must(mica_buffer_read(after, 0, next, NEXT_COUNT * sizeof *next));
    for (int o = 0; o < OPERANDS; o++)
        mica_buffer_release(b[o]);
    mica_buffer_release(split);
    mica_buffer_release(out);
    mica_buffer_release(after);
}

/* What must come out, and how far from it f32 may be. */
typedef struct wanted {
    double *y, *error, *next, *next_error;
} wanted;

static wanted expect(const problem *p)
{
    double *x[OPERANDS], ends[SEQUENCES + 1];
    wanted w = {test_alloc(Y_COUNT, sizeof(double)), test_alloc(Y_COUNT, sizeof(double)),
                test_alloc(NEXT_COUNT, sizeof(double)), test_alloc(NEXT_COUNT, sizeof(double))};

    for (int n = 0; n <= SEQUENCES; n++)
        ends[n] = starts[n];
    for (int o = 0; o < OPERANDS; o++) {
        x[o] = test_alloc(counts[o], sizeof(double));
        for (uint64_t i = 0; i < counts[o]; i++)
            x[o][i] = (double)p->value[o][i];
    }
    const oracle_sequences of = {.tokens = TOKENS,
                                 .count = SEQUENCES,
                                 .state_slots = SEQUENCES,
                                 .next_slots = SEQUENCES,
                                 .starts = ends,
                                 .state = x[STATE],
                                 .next = w.next,
                                 .next_error = w.next_error};
    const oracle_delta delta = {.groups = GROUPS,
                                .heads = HEADS,
                                .dim = DIM,
                                .columns = COLUMNS,
                                .q = x[Q],
                                .k = x[K],
                                .v = x[V],
                                .g = x[G],
                                .beta = x[BETA],
                                .skip = x[SKIP],
                                .correct = p->params.rule == MICA_DELTA_CORRECT,
                                .normalise = true,
                                .tokenwise = true,
                                .chunked = true,
                                .eps = (double)p->params.eps,
                                .scale = (double)(float)(1 / sqrt((double)DIM))};
    oracle_delta_net(&of, &delta, w.y, w.error);
    for (int o = 0; o < OPERANDS; o++)
        free(x[o]);
    return w;
}

static void hold(const char *what, uint64_t count, const float *got, const double *want, const double *error)
{
    for (uint64_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i]) <=
              2 * ORACLE_F32_EPS * fmax(error[i], 0) + ORACLE_F32_EPS * fabs(want[i])))
            fail_msg("%s: element %llu is %.9g, not %.9g", what, (unsigned long long)i, (double)got[i],
                     want[i]);
}

/* Both forms on one device; each is as near to the oracle as its roundings, so both are to each other. They are not the same sums. */
static void compare(mica_device *device, const problem *p)
{
    float *y = test_alloc(Y_COUNT, sizeof *y), *next = test_alloc(NEXT_COUNT, sizeof *next),
          *other = test_alloc(Y_COUNT, sizeof *other), *last = test_alloc(NEXT_COUNT, sizeof *last);
    wanted w = expect(p);

    run_form(device, p, MICA_DELTA_CHUNKED, y, next);
    hold("y by chunks", Y_COUNT, y, w.y, w.error);
    hold("next_state by chunks", NEXT_COUNT, next, w.next, w.next_error);
    run_form(device, p, MICA_DELTA_SEQUENTIAL, other, last);
    hold("y by tokens", Y_COUNT, other, w.y, w.error);
    hold("next_state by tokens", NEXT_COUNT, last, w.next, w.next_error);
    assert_memory_not_equal(y, other, Y_COUNT * sizeof *y);
    free(y);
    free(next);
    free(other);
    free(last);
    free(w.y);
    free(w.error);
    free(w.next);
    free(w.next_error);
}

static void test_delta_chunked(void **state)
{
    static const double steep[] = {0.02, 1, 60};
    static const char *const names[] = {"cpu", "opencl", "cuda"};

    (void)state;
    for (int d = 0; d < 3; d++) {
        mica_device *device = NULL;

        if (mica_device_open(names[d], NULL, &device) != MICA_OK)
            continue;
        for (uint32_t i = 0; i < 6; i++) {
            problem p = draw(11 + i, i % 2 ? MICA_DELTA_ADD : MICA_DELTA_CORRECT, steep[i / 2]);

            compare(device, &p);
            end_problem(&p);
        }
        mica_device_release(device);
    }
    assert_int_equal(mica_host_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_delta_chunked)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
