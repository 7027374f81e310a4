/*
 * conform_product.c - cases of the product of two dense matrices: any strides, so transposes too, leading dimensions that broadcast, an
 * operand that is added, in place or as a row; floats of all kinds, f64, integers that wrap, with zero points of tensors, rows and columns;
 * no k at all, NaN and infinities.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "oracle/oracle_ops.h"

enum { A, B, ADD, A_ZERO, B_ZERO, Y, OPERANDS };

typedef struct shapes {
    uint32_t ndim[OPERANDS];
    uint64_t size[OPERANDS][MICA_MAX_DIMS];
} shapes;

/* Some leading dimensions of y; each operand has the last few of them, or ones. */
static void draw_leading(shapes *s, test_random *random)
{
    const uint32_t leading = (uint32_t)test_random_below(random, 4);
    uint64_t batch[3];

    for (uint32_t d = 0; d < leading; d++)
        batch[d] = 1 + test_random_below(random, 3);
    for (uint32_t o = A; o <= Y; o++) {
        const uint32_t count = o == Y ? leading : (uint32_t)test_random_below(random, leading + 1);

        s->ndim[o] = count + 2;
        for (uint32_t d = 0; d < count; d++)
            s->size[o][d] = o != Y && test_random_one_in(random, 3) ? 1 : batch[leading - count + d];
    }
    /* y has what a and b make of each other. */
    s->ndim[Y] = s->ndim[A] > s->ndim[B] ? s->ndim[A] : s->ndim[B];
    for (uint32_t d = 0; d + 2 < s->ndim[Y]; d++) {
        const uint32_t back = s->ndim[Y] - d;
        const uint64_t a = back <= s->ndim[A] ? s->size[A][s->ndim[A] - back] : 1,
                       b = back <= s->ndim[B] ? s->size[B][s->ndim[B] - back] : 1;
        s->size[Y][d] = a > b ? a : b;
    }
}

static void draw_shapes(conform_case *c, shapes *s, test_random *random)
{
    const bool wide = test_random_one_in(random, 4);
    uint64_t m = test_random_size(random, wide ? 150 : 20), n = test_random_size(random, wide ? 400 : 70),
             k = test_random_one_in(random, 12) ? 0 : test_random_size(random, wide ? 600 : 60);

    draw_leading(s, random);
    if (c->typical) {
        m = n = k = 1024;
        s->ndim[A] = s->ndim[B] = s->ndim[Y] = 2;
    }
    const uint64_t last[OPERANDS][2] = {{m, k}, {k, n}, {m, n}, {m, 1}, {1, n}, {m, n}};
    for (uint32_t o = A; o <= Y; o++) {
        s->size[o][s->ndim[o] - 2] = last[o][0];
        s->size[o][s->ndim[o] - 1] = last[o][1];
    }
    /* Added: a row, a column, or all of y. */
    s->ndim[ADD] = s->ndim[Y];
    for (uint32_t d = 0; d < s->ndim[Y]; d++)
        s->size[ADD][d] = test_random_one_in(random, 3) ? 1 : s->size[Y][d];
    /* Zero points: of all, of some batches, of lines. */
    for (uint32_t o = A_ZERO; o <= B_ZERO; o++) {
        s->ndim[o] = test_random_one_in(random, 4) ? 0 : s->ndim[Y];
        for (uint32_t d = 0; d < s->ndim[o]; d++) {
            const uint64_t whole = d + 2 < s->ndim[o] ? s->size[Y][d] : last[o][d + 2 - s->ndim[o]];

            s->size[o][d] = test_random_one_in(random, 3) ? 1 : whole;
        }
    }
}

static void draw_types(const conform_case *c, test_random *random, mica_dtype type[OPERANDS])
{
    static const mica_dtype bytes[] = {MICA_DTYPE_I8, MICA_DTYPE_U8};
    const uint64_t kind = c->typical ? 9 : test_random_below(random, 8);

    for (uint32_t o = A; o <= Y; o++) {
        if (kind == 0 && !conform_kernels)
            type[o] = MICA_DTYPE_F64;
        else if (kind == 1)
            type[o] = o < ADD ? bytes[test_random_below(random, 2)] : MICA_DTYPE_I32;
        else if (kind == 2)
            type[o] = MICA_DTYPE_I32;
        else
            type[o] = c->typical ? MICA_DTYPE_F32 : conform_float(random);
    }
    for (uint32_t o = A_ZERO; o <= B_ZERO; o++)
        type[o] = test_random_one_in(random, 2) ? MICA_DTYPE_I32 : bytes[test_random_below(random, 2)];
}

static bool is_whole(mica_dtype dtype)
{
    return dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_U8 || dtype == MICA_DTYPE_I32;
}

static void fill(test_tensor *x, test_random *random, bool odd)
{
    static const double rare[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0.0};

    test_tensor_normal(x, random, 1);
    for (uint64_t i = 0; i < x->count; i++) {
        if (x->dtype == MICA_DTYPE_I32 && x->name[1] == '_') /* zero points that no byte holds */
            test_tensor_set(x, i, (double)test_random_below(random, 2000) - 1000);
        else if (x->dtype == MICA_DTYPE_I32) /* sums of these are exact in double, and some leave 32 bits */
            test_tensor_set(x, i, (double)test_random_below(random, 1 << 20) - (1 << 19));
        else if (is_whole(x->dtype))
            test_tensor_set(x, i,
                            (double)test_random_below(random, 256) - (x->dtype == MICA_DTYPE_I8 ? 128 : 0));
        else if (odd && test_random_one_in(random, 200))
            test_tensor_set(x, i, rare[test_random_below(random, 4)]);
    }
}

void conform_make_product(conform_case *c, test_random *random)
{
    static const char *const names[] = {"a", "b", "add", "a_zero", "b_zero"};
    shapes s = {0};
    mica_dtype type[OPERANDS];
    const bool odd = !c->typical && test_random_one_in(random, 5);

    draw_shapes(c, &s, random);
    draw_types(c, random, type);
    const bool none = s.size[A][s.ndim[A] - 1] == 0;
    for (uint32_t o = A; o < Y; o++) {
        const bool wanted = o == ADD || is_whole(type[A]);

        if (o >= ADD && (!wanted || c->typical || test_random_one_in(random, 2))) {
            conform_add_absent(c);
            continue;
        }
        const bool plain = (none && o < ADD) || c->typical;
        conform_add(c, random, names[o], type[o], s.ndim[o], s.size[o], plain ? TEST_CONTIGUOUS : TEST_ANY);
        fill(conform_tensor(c, o), random, odd);
    }
    bool whole = c->operand[ADD].present;
    for (uint32_t d = 0; d < s.ndim[Y]; d++)
        whole = whole && s.size[ADD][d] == s.size[Y][d];
    const bool in_place = whole && type[ADD] == type[Y] && test_random_one_in(random, 2);
    conform_add_output(c, random, "y", type[Y], s.ndim[Y], s.size[Y], c->typical ? TEST_CONTIGUOUS : TEST_ANY,
                       in_place, ADD);
    const test_tensor *y = conform_tensor(c, Y);
    c->flops = 2.0 * (double)y->count * (double)s.size[A][s.ndim[A] - 1];
    c->bytes = conform_bytes(c, A) + conform_bytes(c, B) + conform_bytes(c, Y);
}

mica_status conform_encode_product(const conform_case *c, mica_encoder *encoder)
{
    if (c->operand[A_ZERO].present || c->operand[B_ZERO].present)
        return mica_product_codes(encoder, conform_buffer(c, A), conform_buffer(c, A_ZERO),
                                  conform_buffer(c, B), conform_buffer(c, B_ZERO), conform_buffer(c, ADD),
                                  conform_buffer(c, Y));
    return mica_product(encoder, conform_buffer(c, A), conform_buffer(c, B), conform_buffer(c, ADD),
                        conform_buffer(c, Y));
}

/* Where the matrix of an operand begins, dense, for the matrix of y that begins at `at`. */
static uint64_t matrix_of(const test_tensor *o, const test_tensor *y, uint64_t at)
{
    uint64_t place = 0, step = o->shape[o->ndim - 2] * o->shape[o->ndim - 1];

    at /= y->shape[y->ndim - 2] * y->shape[y->ndim - 1];
    for (uint32_t back = 2; back < y->ndim; back++) {
        const uint64_t size = y->shape[y->ndim - 1 - back], index = at % size;

        if (back < o->ndim) {
            const uint64_t mine = o->shape[o->ndim - 1 - back];

            place += mine == 1 ? 0 : index * step;
            step *= mine;
        }
        at /= size;
    }
    return place;
}

/* As 32 bits that wrap. */
static double wrapped(double value)
{
    const double turn = 4294967296.0, low = value - turn * floor(value / turn);

    return low >= turn / 2 ? low - turn : low;
}

/* The zero point of element i of y; 0 where there is none. */
static double zero_at(conform_case *c, uint32_t slot, const double *values, uint64_t i)
{
    return values == NULL ? 0
                          : values[conform_broadcast_place(conform_tensor(c, slot), conform_tensor(c, Y), i)];
}

/* What zero points change in a sum over k: sum (a - z)(b - w) = sum a b - w sum a - z sum b + k z w; whole numbers, exact in double. */
static double zeros_change(uint64_t k, const double *a, const double *b, uint64_t step, double z, double w)
{
    double change = (double)k * z * w;

    for (uint64_t i = 0; (z != 0 || w != 0) && i < k; i++)
        change -= w * a[i] + z * b[i * step];
    return change;
}

void conform_oracle_product(conform_case *c)
{
    const test_tensor *ta = conform_tensor(c, A), *tb = conform_tensor(c, B), *y = conform_tensor(c, Y);
    const uint64_t n = y->shape[y->ndim - 1], k = ta->shape[ta->ndim - 1], m = y->shape[y->ndim - 2];
    double *a = conform_values(c, A), *b = conform_values(c, B), *add = conform_values(c, ADD),
           *a_zero = conform_values(c, A_ZERO), *b_zero = conform_values(c, B_ZERO);

    for (uint64_t i = 0; i < y->count; i++) {
        const uint64_t row = i / n % m, column = i % n;
        double sum = oracle_dot(k, a + matrix_of(ta, y, i) + row * k, 1, b + matrix_of(tb, y, i) + column, n,
                                &c->error[i]);

        sum += zeros_change(k, a + matrix_of(ta, y, i) + row * k, b + matrix_of(tb, y, i) + column, n,
                            zero_at(c, A_ZERO, a_zero, i), zero_at(c, B_ZERO, b_zero, i));
        if (add != NULL) {
            const double more = add[conform_broadcast_place(conform_tensor(c, ADD), y, i)];

            sum += more;
            c->error[i] += fabs(more);
        }
        c->expected[i] = is_whole(y->dtype) ? wrapped(sum) : sum;
        if (is_whole(y->dtype))
            c->error[i] = ORACLE_EXACT;
        else if (y->dtype == MICA_DTYPE_F64) /* the measure counts roundings of f32 */
            c->error[i] *= 0x1p-29;
    }
    free(a);
    free(b);
    free(add);
    free(a_zero);
    free(b_zero);
}
