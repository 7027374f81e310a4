/*
 * fft_block.h - the transform of a block: LANES sequences side by side, so that every number is a vector and none is shuffled.
 *
 * A body, included once for each type with these words defined: NAME(x), R the type, V its vector of LANES, V_LOAD V_STORE V_SET1 V_ADD
 * V_SUB V_MUL and V_FMA(a, b, c). A block is [n][2][LANES]: real parts, then imaginary ones. Stockham's passes: from one block
 * into another, in order at the end. Every lane goes through the same operations, whatever the others hold.
 */
typedef struct NAME(complex) {
    V re, im;
} NAME(complex);

static inline NAME(complex) NAME(at)(const R *x, uint64_t e)
{
    x += e * 2 * LANES;
    return (NAME(complex)){V_LOAD(x), V_LOAD(x + LANES)};
}

static inline void NAME(put)(R *y, uint64_t e, NAME(complex) a)
{
    y += e * 2 * LANES;
    V_STORE(y, a.re);
    V_STORE(y + LANES, a.im);
}

static inline NAME(complex) NAME(plus)(NAME(complex) a, NAME(complex) b)
{
    return (NAME(complex)){V_ADD(a.re, b.re), V_ADD(a.im, b.im)};
}

static inline NAME(complex) NAME(minus)(NAME(complex) a, NAME(complex) b)
{
    return (NAME(complex)){V_SUB(a.re, b.re), V_SUB(a.im, b.im)};
}

/* -i a */
static inline NAME(complex) NAME(quarter)(NAME(complex) a)
{
    return (NAME(complex)){a.im, V_SUB(V_SET1(0), a.re)};
}

static inline NAME(complex) NAME(times)(NAME(complex) a, V re, V im, V minus_im)
{
    return (NAME(complex)){V_FMA(a.im, minus_im, V_MUL(a.re, re)), V_FMA(a.im, re, V_MUL(a.re, im))};
}

static inline void NAME(dft4)(NAME(complex) * a0, NAME(complex) * a1, NAME(complex) * a2, NAME(complex) * a3)
{
    const NAME(complex) t0 = NAME(plus)(*a0, *a2), t1 = NAME(minus)(*a0, *a2);
    const NAME(complex) t2 = NAME(plus)(*a1, *a3), t3 = NAME(quarter)(NAME(minus)(*a1, *a3));
    *a0 = NAME(plus)(t0, t2);
    *a1 = NAME(plus)(t1, t3);
    *a2 = NAME(minus)(t0, t2);
    *a3 = NAME(minus)(t1, t3);
}

static inline void NAME(dft8)(NAME(complex) * a)
{
    const V half = V_SET1((R)0.70710678118654752440);
    NAME(dft4)(&a[0], &a[2], &a[4], &a[6]);
    NAME(dft4)(&a[1], &a[3], &a[5], &a[7]);
    const NAME(complex) o1 = {V_MUL(half, V_ADD(a[3].re, a[3].im)), V_MUL(half, V_SUB(a[3].im, a[3].re))};
    const NAME(complex) o2 = NAME(quarter)(a[5]);
    const NAME(complex)
        o3 = {V_MUL(half, V_SUB(a[7].im, a[7].re)), V_SUB(V_SET1(0), V_MUL(half, V_ADD(a[7].re, a[7].im)))};
    const NAME(complex) e[4] = {a[0], a[2], a[4], a[6]}, o[4] = {a[1], o1, o2, o3};
    for (int k = 0; k < 4; k++) {
        a[k] = NAME(plus)(e[k], o[k]);
        a[k + 4] = NAME(minus)(e[k], o[k]);
    }
}

#define MOST_PAIRS ((MICA__FOURIER_RADIX - 1) / 2)

/* Of an odd number of points: those that lie the same way from both ends are added and subtracted first. `c` and `s` are the
 * cosines and sines of 2 pi i k / r, [k - 1][i - 1]. */
static inline __attribute__((always_inline)) void NAME(dft_odd)(const uint32_t r, NAME(complex) * a,
                                                                const V *c, const V *s)
{
    const uint32_t h = (r - 1) / 2;
    NAME(complex) sum[MOST_PAIRS], difference[MOST_PAIRS], first = a[0];
    const NAME(complex) all = a[0];
    for (uint32_t i = 0; i < h; i++) {
        sum[i] = NAME(plus)(a[i + 1], a[r - 1 - i]);
        difference[i] = NAME(minus)(a[i + 1], a[r - 1 - i]);
        first = NAME(plus)(first, sum[i]);
    }
    a[0] = first;
    for (uint32_t k = 0; k < h; k++) {
        NAME(complex) even = all, odd = {V_SET1(0), V_SET1(0)};
        for (uint32_t i = 0; i < h; i++) {
            even.re = V_FMA(sum[i].re, c[k * h + i], even.re);
            even.im = V_FMA(sum[i].im, c[k * h + i], even.im);
            odd.re = V_FMA(difference[i].re, s[k * h + i], odd.re);
            odd.im = V_FMA(difference[i].im, s[k * h + i], odd.im);
        }
        a[k + 1] = (NAME(complex)){V_ADD(even.re, odd.im), V_SUB(even.im, odd.re)};
        a[r - 1 - k] = (NAME(complex)){V_SUB(even.re, odd.im), V_ADD(even.im, odd.re)};
    }
}

static inline __attribute__((always_inline)) void NAME(dft)(const uint32_t r, NAME(complex) * a, const V *c,
                                                            const V *s)
{
    if (r == 2) {
        const NAME(complex) sum = NAME(plus)(a[0], a[1]);
        a[1] = NAME(minus)(a[0], a[1]);
        a[0] = sum;
    } else if (r == 4) {
        NAME(dft4)(&a[0], &a[1], &a[2], &a[3]);
    } else if (r == 8) {
        NAME(dft8)(a);
    } else {
        NAME(dft_odd)(r, a, c, s);
    }
}

/* One pass of radix r over n points, of which s were done by those before it. `roots` are the n-th ones, n of them. */
static inline __attribute__((always_inline)) void NAME(pass)(const uint32_t r, const R *x, R *y, uint64_t n,
                                                             uint64_t s, const R *roots)
{
    const uint64_t m = n / (r * s);
    NAME(complex) a[MICA__FOURIER_RADIX];
    V cosines[MOST_PAIRS * MOST_PAIRS], sines[MOST_PAIRS * MOST_PAIRS];
    if (r % 2 == 1)
        for (uint32_t k = 0; k < (r - 1) / 2; k++)
            for (uint32_t i = 0; i < (r - 1) / 2; i++) {
                const R *root = roots + 2 * ((k + 1) * (i + 1) % r * (n / r));
                cosines[k * ((r - 1) / 2) + i] = V_SET1(root[0]);
                sines[k * ((r - 1) / 2) + i] = V_SET1(-root[1]);
            }
    for (uint64_t q = 0; q < s; q++) { /* p is 0: nothing to turn by */
        for (uint32_t i = 0; i < r; i++)
            a[i] = NAME(at)(x, q + s * (i * m));
        NAME(dft)(r, a, cosines, sines);
        for (uint32_t i = 0; i < r; i++)
            NAME(put)(y, q + s * i, a[i]);
    }
    for (uint64_t p = 1; p < m; p++) {
        V re[MICA__FOURIER_RADIX], im[MICA__FOURIER_RADIX], minus[MICA__FOURIER_RADIX];
        for (uint32_t i = 1; i < r; i++) {
            const R *root = roots + 2 * (i * p * s);
            re[i] = V_SET1(root[0]);
            im[i] = V_SET1(root[1]);
            minus[i] = V_SET1(-root[1]);
        }
        for (uint64_t q = 0; q < s; q++) {
            for (uint32_t i = 0; i < r; i++)
                a[i] = NAME(at)(x, q + s * (p + i * m));
            NAME(dft)(r, a, cosines, sines);
            NAME(put)(y, q + s * (r * p), a[0]);
            for (uint32_t i = 1; i < r; i++)
                NAME(put)(y, q + s * (r * p + i), NAME(times)(a[i], re[i], im[i], minus[i]));
        }
    }
}

static void NAME(pass_of)(uint32_t r, const R *x, R *y, uint64_t n, uint64_t s, const R *roots)
{
    switch (r) {
    case 2: NAME(pass)(2, x, y, n, s, roots); break;
    case 3: NAME(pass)(3, x, y, n, s, roots); break;
    case 4: NAME(pass)(4, x, y, n, s, roots); break;
    case 5: NAME(pass)(5, x, y, n, s, roots); break;
    case 7: NAME(pass)(7, x, y, n, s, roots); break;
    case 8: NAME(pass)(8, x, y, n, s, roots); break;
    case 11: NAME(pass)(11, x, y, n, s, roots); break;
    default: NAME(pass)(13, x, y, n, s, roots); break;
    }
}

/* Transforms the block in `from`, which may be `other`; gives `to` or `other`, where the result is; `from` where there is nothing to do. */
static R *NAME(transform)(R *from, R *to, R *other, uint64_t n, const R *roots)
{
    const fft_radices radices = fft_radices_of(n);
    uint64_t s = 1;
    for (uint32_t i = 0; i < radices.count; i++) {
        R *const done = to;
        NAME(pass_of)(radices.radix[i], from, to, n, s, roots);
        s *= radices.radix[i];
        from = done;
        to = other;
        other = done;
    }
    return from;
}
#undef MOST_PAIRS
