/* oracle_turbo.c - the Walsh-Hadamard transform, each element from the signs of its own sum; turbo blocks, from their definition (docs/turbo.md). */
#include <math.h>
#include <string.h>

#include "oracle/oracle_codes.h"
#include "oracle/oracle_number.h"
#include "oracle/oracle_ops.h"

static bool is_odd(size_t bits)
{
    for (unsigned half = 32; half > 0; half /= 2)
        bits ^= (uint64_t)bits >> half;
    return (bits & 1) != 0;
}

void oracle_hadamard(size_t rows, size_t dim, const double *x, const double *signs, double scale, bool undo,
                     double *y, double *error)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < dim; i++) {
            double sum = 0, size = 0;

            for (size_t j = 0; j < dim; j++) {
                const double term = x[r * dim + j] * (signs != NULL && !undo ? signs[j] : 1);

                sum += is_odd(i & j) ? -term : term;
                size += fabs(term);
            }
            if (signs != NULL && undo) {
                sum *= signs[i];
                size *= fabs(signs[i]);
            }
            y[r * dim + i] = scale * sum;
            error[r * dim + i] = fabs(scale) * size * (1 + 0.25 * sqrt((double)dim));
        }
}

/* The levels above 0 of N(0, 1), as f32. */
/* clang-format off */
static const double above_2[] = {
    0.45278004, 1.5104176
};
static const double above_3[] = {
    0.24509418, 0.7560053, 1.3439093, 2.1519456
};
static const double above_4[] = {
    0.12839504, 0.3880483, 0.65675914, 0.94234043, 1.2562312, 1.6180464, 2.0690172, 2.7325895
};
static const double above_5[] = {
    0.06588966, 0.19805183, 0.3313783, 0.4666995, 0.6049336, 0.7471357, 0.8945651, 1.0487833, 1.2118044,
    1.3863404, 1.576228, 1.7872332, 2.0287285, 2.3177395, 2.6911197, 3.2607324
};
static const double above_6[] = {
    0.033409506, 0.10027829, 0.1672969, 0.23456699, 0.30219284, 0.37028265, 0.43894967, 0.5083138, 0.578503,
    0.6496556, 0.7219219, 0.7954677, 0.8704766, 0.94715494, 1.0257363, 1.1064882, 1.1897202, 1.2757945,
    1.365141, 1.4582764, 1.5558312, 1.6585889, 1.7675419, 1.8839773, 2.0096111, 2.1468103, 2.2989812,
    2.471305, 2.6722739, 2.9174068, 3.240437, 3.7441013
};
static const double above_8[] = {
    0.008446193, 0.025339384, 0.042234983, 0.059134603, 0.07603986, 0.092952356, 0.10987372, 0.12680559,
    0.14374956, 0.16070732, 0.17768049, 0.19467075, 0.21167976, 0.2287092, 0.24576078, 0.26283622,
    0.27993724, 0.2970656, 0.31422305, 0.3314114, 0.34863243, 0.365888, 0.38317996, 0.40051022, 0.41788065,
    0.4352932, 0.45274988, 0.47025266, 0.4878036, 0.5054048, 0.5230583, 0.5407663, 0.55853105, 0.5763547,
    0.5942396, 0.6121881, 0.6302026, 0.6482855, 0.6664394, 0.68466675, 0.70297027, 0.72135264, 0.7398166,
    0.75836504, 0.77700084, 0.795727, 0.8145467, 0.833463, 0.8524793, 0.8715989, 0.8908253, 0.91016203,
    0.92961293, 0.9491818, 0.9688726, 0.98868936, 1.0086365, 1.0287182, 1.0489392, 1.0693042, 1.0898181,
    1.110486, 1.1313132, 1.1523054, 1.1734682, 1.1948076, 1.2163299, 1.2380418, 1.2599499, 1.2820615,
    1.304384, 1.3269253, 1.3496937, 1.3726976, 1.3959464, 1.4194493, 1.4432166, 1.4672587, 1.491587,
    1.5162132, 1.5411496, 1.5664098, 1.5920075, 1.6179578, 1.6442765, 1.6709803, 1.6980875, 1.7256169,
    1.7535894, 1.7820269, 1.8109531, 1.8403933, 1.8703752, 1.900928, 1.9320842, 1.9638784, 1.9963485,
    2.0295358, 2.0634851, 2.0982466, 2.1338742, 2.1704283, 2.2079754, 2.24659, 2.2863545, 2.3273618,
    2.3697171, 2.4135387, 2.4589622, 2.5061426, 2.5552595, 2.6065214, 2.660174, 2.7165077, 2.7758706,
    2.8386858, 2.905473, 2.9768822, 3.053742, 3.1371326, 3.2285001, 3.3298485, 3.4440718, 3.575588,
    3.7316663, 3.9256377, 4.1865954, 4.6035357
};
/* clang-format on */
static const double *const above[] = {NULL, NULL, above_2, above_3, above_4, above_5, above_6, NULL, above_8};

double oracle_turbo_level(unsigned bits, unsigned code)
{
    const unsigned half = 1u << (bits - 1);

    return code < half ? -above[bits][half - 1 - code] : above[bits][code - half];
}

double oracle_turbo_sign(size_t i)
{
    static const uint8_t signs[8] = {0xa7, 0x3b, 0x91, 0xf4, 0x6d, 0xc2, 0x58, 0x0e};

    return (signs[i / 8] >> i % 8 & 1) != 0 ? -1 : 1;
}

unsigned oracle_turbo_bits(unsigned halfbits, size_t i)
{
    return halfbits != 5 ? halfbits / 2 : i < 32 ? 3 : 2;
}

/* Before the rotation back: bit k of the code of value i is bit i of plane k, 8 bytes each. */
double oracle_turbo_rotated(unsigned halfbits, const uint8_t *block, size_t i)
{
    const unsigned bits = oracle_turbo_bits(halfbits, i);
    unsigned code = 0;

    for (unsigned k = 0; k < bits; k++)
        code |= (block[2 + 8 * k + i / 8] >> i % 8 & 1u) << k;
    return oracle_get(MICA_DTYPE_F16, block) * oracle_turbo_level(bits, code);
}

/* The values of a block before the rotation back. All 64 values are asked for one by one and each is a sum of all of these, so
 * those of the last block are kept. */
static const double *rotated_values(unsigned halfbits, const uint8_t *block)
{
    static _Thread_local struct {
        unsigned halfbits;
        uint8_t block[2 + 8 * 8];
        double value[64];
    } last;
    const size_t bytes = 2 + 4 * halfbits;

    if (last.halfbits != halfbits || memcmp(last.block, block, bytes) != 0) {
        last.halfbits = halfbits;
        memcpy(last.block, block, bytes);
        for (size_t j = 0; j < 64; j++)
            last.value[j] = oracle_turbo_rotated(halfbits, block, j);
    }
    return last.value;
}

static void turbo_value(unsigned halfbits, const uint8_t *block, size_t i, double *value, double *magnitude)
{
    const double *term = rotated_values(halfbits, block);
    double sum = 0, size = 0;

    for (size_t j = 0; j < 64; j++) {
        sum += is_odd(i & j) ? -term[j] : term[j];
        size += fabs(term[j]);
    }
    *value = sum / 8 * oracle_turbo_sign(i);
    *magnitude = size / 8;
}

#define TURBO(name, halfbits)                                                                    \
    void oracle_##name##_value(const uint8_t *block, size_t i, double *value, double *magnitude) \
    {                                                                                            \
        turbo_value(halfbits, block, i, value, magnitude);                                       \
    }
TURBO(turbo2, 4)
TURBO(turbo2_5, 5)
TURBO(turbo3, 6)
TURBO(turbo4, 8)
TURBO(turbo5, 10)
TURBO(turbo6, 12)
TURBO(turbo8, 16)
