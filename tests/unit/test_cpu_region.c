/* test_cpu_region.c: what conformance does not reach of the cpu's regions: seams of tiles and blocks, many slots, outputs over
 * every input, ranges of any size, bits that are the same on each instruction set, errors of the vector functions. */
#include "kernel_rig.h"

#include <math.h>
#include <stdio.h>

#include "backend/cpu/kernels/philox.h"
#include "backend/region.h"
#include "base/half.h"
#include "support/random.h"

#define MOST 3000

typedef struct fixture {
    mica__record record;
    mica__operand operand[MICA__MAX_OPERANDS];
    mica__region_room room;
} fixture;

static mica__region_program *begin(fixture *f, uint32_t inputs, uint32_t outputs)
{
    memset(f, 0, sizeof *f);
    mica__region_begin(&f->room.program, inputs, outputs);
    memset(f->room.program.input, MICA_REGISTER_F32, inputs);
    f->record.op = MICA_OP_REGION;
    f->record.operand = f->operand;
    f->record.operand_count = (uint16_t)(inputs + outputs);
    f->record.params = &f->room.program;
    return &f->room.program;
}

/* Adds a step and gives the value it makes. */
static uint8_t step(fixture *f, mica_scalar scalar, mica_register type, uint32_t a, uint32_t b, uint32_t c)
{
    mica__region_program *program = &f->room.program;
    mica_region_step *s = &program->step[program->step_count];
    *s =
        (mica_region_step){(uint8_t)scalar, (uint8_t)type, {(uint8_t)a, (uint8_t)b, (uint8_t)c}, 0, {0}, {0}};
    f->record.params_size = (uint16_t)mica__region_bytes(program->step_count + 1u);
    return (uint8_t)(program->input_count + program->step_count++);
}

static uint8_t f32_step(fixture *f, mica_scalar scalar, uint32_t a, uint32_t b)
{
    return step(f, scalar, MICA_REGISTER_F32, a, b, MICA_REGION_NONE);
}

static void bind(fixture *f, uint32_t slot, void *data, mica_dtype dtype, uint64_t n)
{
    const bool reads = slot < f->room.program.input_count;
    f->operand[slot] = rig_operand(data, dtype, 1, &n, reads ? MICA_ACCESS_READ : MICA_ACCESS_WRITE);
}

static void run(fixture *f, const char *isa, uint32_t piece)
{
    rig_run(rig_table(isa), mica__cpu_plan_region, &f->record, 2, piece);
}

/* From -most / 2 to most / 2, one step of 1 apart. */
static int32_t draw_whole(uint32_t most)
{
    static test_random random;
    if (random.state == 0)
        random = test_random_from(7);
    return (int32_t)test_random_below(&random, most + 1) - (int32_t)(most / 2);
}

static void draw(float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)draw_whole(4000) / 256.0f;
}

/* A chain that exercises registers, slots and constants of blocks: exact in f32, so that any way gives the same bits. */
static uint8_t exact_chain(fixture *f)
{
    const uint8_t sum = f32_step(f, MICA_SCALAR_ADD, 0, 1);
    const uint8_t low = f32_step(f, MICA_SCALAR_MIN, sum, 0);
    const uint8_t half = step(f, MICA_SCALAR_CONSTANT, MICA_REGISTER_F32, MICA_REGION_NONE, MICA_REGION_NONE,
                              MICA_REGION_NONE);
    f->room.program.step[f->room.program.step_count - 1].constant.f32 = 0.5f;
    const uint8_t scaled = f32_step(f, MICA_SCALAR_MUL, half, low);
    const uint8_t difference =
        f32_step(f, MICA_SCALAR_SUB, 1, scaled); /* swapped: what is held comes second */
    const uint8_t square = f32_step(f, MICA_SCALAR_MUL, difference, difference);
    const uint8_t most = f32_step(f, MICA_SCALAR_MAX, square, sum);
    return f32_step(f, MICA_SCALAR_ADD, most, difference);
}

static float exact_value(float a, float b)
{
    const float sum = a + b, low = fminf(sum, a), difference = b - 0.5f * low;
    return fmaxf(difference * difference, sum) + difference;
}

static void test_seams(void **state)
{
    static const uint64_t sizes[] = {1,   7,   15,  16,  17,   31,   32,   33,   63,   64,   65,
                                     127, 128, 129, 255, 1023, 1024, 1025, 1089, 2047, 2175, MOST};
    static float a[MOST], b[MOST], y[MOST + 2];
    (void)state;
    for (uint32_t t = 0; t < sizeof sizes / sizeof sizes[0]; t++)
        for (uint32_t i = 0; i < RIG_ISAS; i++) {
            fixture f;
            if (rig_table(rig_isa_name[i]) == NULL)
                continue;
            const uint64_t n = sizes[t];
            draw(a, n), draw(b, n);
            memset(y, 0xcb, sizeof y);
            begin(&f, 2, 1);
            f.room.program.output[0] = exact_chain(&f);
            bind(&f, 0, a, MICA_DTYPE_F32, n), bind(&f, 1, b, MICA_DTYPE_F32, n);
            bind(&f, 2, y + 1, MICA_DTYPE_F32, n);
            run(&f, rig_isa_name[i], 1);
            for (uint64_t j = 0; j < n; j++)
                if (y[j + 1] != exact_value(a[j], b[j]))
                    fail_msg("%s, %u elements: element %u is %g, not %g", rig_isa_name[i], (unsigned)n,
                             (unsigned)j, (double)y[j + 1], (double)exact_value(a[j], b[j]));
            uint32_t poison[2];
            memcpy(&poison[0], &y[0], 4), memcpy(&poison[1], &y[n + 1], 4);
            assert_true(poison[0] == 0xcbcbcbcbu && poison[1] == 0xcbcbcbcbu);
        }
}

/* Every step reads two values that were made long before, so that most of them live at once. As f32 in blocks and, with
 * one cast, over tiles. */
static void many_values(bool tiles)
{
    static float a[300], b[300], y[300], expected[300];
    float value[66];
    fixture f;
    draw(a, 300), draw(b, 300);
    for (uint32_t i = 0; i < RIG_ISAS; i++) {
        if (rig_table(rig_isa_name[i]) == NULL)
            continue;
        begin(&f, 2, 1);
        uint8_t last = 1;
        for (uint32_t s = 0; s < (tiles ? 62 : 64); s++) {
            const uint32_t from =
                s < 32 ? s % 2 : 2 + (63 - s) % 32; /* the first 32 are read by the last 32 */
            last = f32_step(&f,
                            s % 3 == 0   ? MICA_SCALAR_MAX
                            : s % 3 == 1 ? MICA_SCALAR_ADD
                                         : MICA_SCALAR_SUB,
                            last, from);
        }
        if (tiles) {
            last = step(&f, MICA_SCALAR_CAST, MICA_REGISTER_F64, last, MICA_REGION_NONE, MICA_REGION_NONE);
            last = step(&f, MICA_SCALAR_CAST, MICA_REGISTER_F32, last, MICA_REGION_NONE, MICA_REGION_NONE);
        }
        f.room.program.output[0] = last;
        for (uint32_t j = 0; j < 300; j++) {
            value[0] = a[j], value[1] = b[j];
            for (uint32_t s = 0; s < (tiles ? 62u : 64u); s++) {
                const mica_region_step *p = &f.room.program.step[s];
                const float l = value[p->value[0]], r = value[p->value[1]];
                value[2 + s] = s % 3 == 0 ? fmaxf(l, r) : s % 3 == 1 ? l + r : l - r;
            }
            expected[j] = value[tiles ? 63 : 65];
        }
        bind(&f, 0, a, MICA_DTYPE_F32, 300), bind(&f, 1, b, MICA_DTYPE_F32, 300);
        bind(&f, 2, y, MICA_DTYPE_F32, 300);
        run(&f, rig_isa_name[i], 0);
        for (uint32_t j = 0; j < 300; j++)
            if (y[j] != expected[j])
                fail_msg("%s %s: element %u is %g, not %g", rig_isa_name[i], tiles ? "tiles" : "blocks", j,
                         (double)y[j], (double)expected[j]);
    }
}

static void test_many_values(void **state)
{
    (void)state;
    many_values(false);
    many_values(true);
}

/* Three inputs, three outputs, each output over one of the inputs, in every order: y0 = a + b, y1 = a, y2 = b - c, all of
 * which are read after the first is made. In f32, f16 and, as tiles, i32. */
static void over_inputs(const char *isa, mica_dtype dtype, bool tiles, const uint32_t *over)
{
    enum { N = 700 };
    static unsigned char memory[3][4 * N], before[3][4 * N];
    const uint32_t size = mica_dtype_block_bytes(dtype);
    const mica_register type = mica_register_of(dtype);
    float x[3][N];
    fixture f;
    for (uint32_t v = 0; v < 3; v++)
        for (uint32_t j = 0; j < N; j++) {
            const int32_t whole = draw_whole(200);
            const uint16_t half = mica__f32_to_f16((float)whole);
            x[v][j] = (float)whole;
            memcpy(memory[v] + j * size,
                   dtype == MICA_DTYPE_F32   ? (const void *)&x[v][j]
                   : dtype == MICA_DTYPE_F16 ? (const void *)&half
                                             : (const void *)&whole,
                   size);
        }
    memcpy(before, memory, sizeof before);
    mica__region_program *program = begin(&f, 3, 3);
    memset(program->input, (int)type, 3);
    program->output[0] = step(&f, MICA_SCALAR_ADD, type, 0, 1, MICA_REGION_NONE);
    program->output[1] = tiles ? 0 : step(&f, MICA_SCALAR_MAX, type, 0, 0, MICA_REGION_NONE);
    program->output[2] = step(&f, MICA_SCALAR_SUB, type, 1, 2, MICA_REGION_NONE);
    for (uint32_t v = 0; v < 3; v++) {
        bind(&f, v, memory[v], dtype, N);
        bind(&f, 3 + v, memory[over[v]], dtype, N);
    }
    run(&f, isa, 0);
    for (uint32_t o = 0; o < 3; o++)
        for (uint32_t j = 0; j < N; j++) {
            const float want = o == 0 ? x[0][j] + x[1][j] : o == 1 ? x[0][j] : x[1][j] - x[2][j];
            float got;
            int32_t whole;
            uint16_t half;
            memcpy(&got, memory[over[o]] + j * size, size), memcpy(&whole, &got, 4), memcpy(&half, &got, 2);
            got = dtype == MICA_DTYPE_F16   ? mica__f16_to_f32(half)
                  : dtype == MICA_DTYPE_I32 ? (float)whole
                                            : got;
            if (got != want)
                fail_msg("%s %s: output %u over input %u, element %u is %g, not %g", isa,
                         mica_dtype_name(dtype), o, over[o], j, (double)got, (double)want);
        }
}

static void test_in_place(void **state)
{
    static const uint32_t order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    (void)state;
    for (uint32_t i = 0; i < RIG_ISAS; i++)
        for (uint32_t k = 0; k < 6 && rig_table(rig_isa_name[i]) != NULL; k++) {
            over_inputs(rig_isa_name[i], MICA_DTYPE_F32, false, order[k]);
            over_inputs(rig_isa_name[i], MICA_DTYPE_F32, true, order[k]);
            over_inputs(rig_isa_name[i], MICA_DTYPE_F16, false, order[k]);
            over_inputs(rig_isa_name[i], MICA_DTYPE_I32, true, order[k]);
        }
}

/* Inexact functions too: how the units are cut changes no bit. */
static void test_pieces(void **state)
{
    static float a[MOST], b[MOST], y[3][MOST];
    static const uint32_t pieces[3] = {0, 1, 2};
    (void)state;
    draw(a, MOST), draw(b, MOST);
    for (uint32_t i = 0; i < RIG_ISAS; i++) {
        if (rig_table(rig_isa_name[i]) == NULL)
            continue;
        for (uint32_t k = 0; k < 3; k++) {
            fixture f;
            begin(&f, 2, 1);
            const uint8_t gate = f32_step(&f, MICA_SCALAR_SILU, 0, MICA_REGION_NONE);
            const uint8_t product = f32_step(&f, MICA_SCALAR_MUL, gate, 1);
            const uint8_t bent = f32_step(&f, MICA_SCALAR_TANH, product, MICA_REGION_NONE);
            f.room.program.output[0] = f32_step(&f, MICA_SCALAR_DIV, bent, 1);
            bind(&f, 0, a, MICA_DTYPE_F32, MOST), bind(&f, 1, b, MICA_DTYPE_F32, MOST);
            bind(&f, 2, y[k], MICA_DTYPE_F32, MOST);
            run(&f, rig_isa_name[i], pieces[k]);
            assert_memory_equal(y[0], y[k], sizeof y[0]);
        }
    }
}

/* ---- errors of the vector functions, as simd.h states them ---- */

static double log_of(double x)
{
    return log(x);
}

static double log1p_of(double x)
{
    return log1p(x);
}

static double exp_of(double x)
{
    return exp(x);
}

static double sqrt_of(double x)
{
    return sqrt(x);
}

static double tanh_of(double x)
{
    return tanh(x);
}

/* In units in the last place of the exact result. */
static double error_of(float got, double exact)
{
    int exponent;
    if (isnan(exact) || fabs(exact) >= 0x1.ffffffp127 || isinf(got))
        return (isnan(exact) && isnan(got)) || got == (float)exact ? 0 : INFINITY;
    frexp(exact, &exponent);
    return fabs(got - exact) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

static void test_errors(void **state)
{
    static const struct {
        mica_scalar scalar;
        double (*exact)(double);
        double most;
    } rows[] = {{MICA_SCALAR_LOG, log_of, 1.11},
                {MICA_SCALAR_LOG1P, log1p_of, 1.66},
                {MICA_SCALAR_EXP, exp_of, 1.01},
                {MICA_SCALAR_SQRT, sqrt_of, 0.5001},
                {MICA_SCALAR_TANH, tanh_of, 2.3}};
    enum { N = 8192, STRIDE = 524309 }; /* a prime: all exponents, all kinds of last bits */
    static float x[N], y[N];
    (void)state;
    for (uint32_t j = 0; j < N; j++) {
        const uint32_t bits = j * (uint32_t)STRIDE;
        memcpy(&x[j], &bits, sizeof bits);
    }
    for (uint32_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (uint32_t i = 0; i < RIG_ISAS; i++) {
            fixture f;
            if (rig_table(rig_isa_name[i]) == NULL)
                continue;
            begin(&f, 1, 1);
            f.room.program.output[0] = f32_step(&f, rows[r].scalar, 0, MICA_REGION_NONE);
            bind(&f, 0, x, MICA_DTYPE_F32, N), bind(&f, 1, y, MICA_DTYPE_F32, N);
            run(&f, rig_isa_name[i], 0);
            for (uint32_t j = 0; j < N; j++)
                if (!(error_of(y[j], rows[r].exact(x[j])) <= rows[r].most))
                    fail_msg("%s %s(%a) is %a, %g units from %a", rig_isa_name[i],
                             mica_scalar_name(rows[r].scalar), (double)x[j], (double)y[j],
                             error_of(y[j], rows[r].exact(x[j])), rows[r].exact(x[j]));
        }
}

/* NaN, zeros of both signs, infinities: max and min by what they promise, and the bits of exact functions of numbers are
 * the same everywhere. */
static void test_special(void **state)
{
    static const float kind[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-45f, 3e38f};
    enum { K = sizeof kind / sizeof kind[0], N = K * K };
    static float a[N], b[N], most[N], least[N];
    (void)state;
    for (uint32_t j = 0; j < N; j++)
        a[j] = kind[j / K], b[j] = kind[j % K];
    for (uint32_t i = 0; i < RIG_ISAS; i++) {
        fixture f;
        if (rig_table(rig_isa_name[i]) == NULL)
            continue;
        begin(&f, 2, 2);
        f.room.program.output[0] = f32_step(&f, MICA_SCALAR_MAX, 0, 1);
        f.room.program.output[1] = f32_step(&f, MICA_SCALAR_MIN, 0, 1);
        bind(&f, 0, a, MICA_DTYPE_F32, N), bind(&f, 1, b, MICA_DTYPE_F32, N);
        bind(&f, 2, most, MICA_DTYPE_F32, N), bind(&f, 3, least, MICA_DTYPE_F32, N);
        run(&f, rig_isa_name[i], 0);
        for (uint32_t j = 0; j < N; j++) {
            const bool nan = isnan(a[j]) || isnan(b[j]),
                       swap = a[j] < b[j] || (a[j] == b[j] && signbit(a[j]));
            const float high = swap ? b[j] : a[j], low = swap ? a[j] : b[j];
            if (nan ? !isnan(most[j]) || !isnan(least[j])
                    : memcmp(&most[j], &high, 4) != 0 || memcmp(&least[j], &low, 4) != 0)
                fail_msg("%s: max(%g, %g) is %g, min %g", rig_isa_name[i], (double)a[j], (double)b[j],
                         (double)most[j], (double)least[j]);
        }
    }
}

static void test_philox(void **state)
{
    static const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    uint32_t word[4] = {0}, all[4] = {~0u, ~0u, ~0u, ~0u};
    uint64_t counter[70] = {0}, key[70] = {0}, y[70];
    (void)state;
    philox(word, 0, 0);
    philox(all, ~0u, ~0u);
    assert_memory_equal(word, zeros, sizeof zeros);
    assert_memory_equal(all, ones, sizeof ones);
    for (uint32_t j = 0; j < 70; j++)
        counter[j] = j * 0x100000001u, key[j] = j / 3;
    for (uint32_t i = 0; i < RIG_ISAS; i++) {
        fixture f;
        if (rig_table(rig_isa_name[i]) == NULL)
            continue;
        begin(&f, 2, 1);
        memset(f.room.program.input, MICA_REGISTER_U64, 2);
        f.room.program.output[0] = step(&f, MICA_SCALAR_RANDOM, MICA_REGISTER_U64, 0, 1, MICA_REGION_NONE);
        bind(&f, 0, counter, MICA_DTYPE_U64, 70), bind(&f, 1, key, MICA_DTYPE_U64, 70);
        bind(&f, 2, y, MICA_DTYPE_U64, 70);
        run(&f, rig_isa_name[i], 0);
        assert_true(y[0] == (zeros[0] | (uint64_t)zeros[1] << 32));
        for (uint32_t j = 0; j < 70; j++)
            assert_true(y[j] == philox_bits(counter[j], key[j]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seams),  cmocka_unit_test(test_many_values), cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_errors),      cmocka_unit_test(test_special),
        cmocka_unit_test(test_philox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
