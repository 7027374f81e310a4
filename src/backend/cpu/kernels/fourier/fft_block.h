/*
 * fft_block.h - the transform of a block: LANES sequences side by side, so that every number is a vector and none is shuffled.
 *
 * A body, included once for each type with these words defined: NAME(x), R the type, V its vector of LANES, V_LOAD V_STORE V_SET1 V_ADD
 * V_SUB V_MUL V_FMA(a, b, c) V_FNMA(a, b, c), which is c - a b, V_EVEN V_ODD V_LOW V_HIGH. A block is [n][2][LANES]: real parts, then imaginary ones. Stockham's passes: from one
 * block into another, in order at the end; the first and the last may have ends of another kind. Every lane goes through the same operations,
 * whatever the others hold.
 */
/* Numbers stay in registers only if all that works on them is in one function, without a loop. */
#ifndef FFT_INLINE
#define FFT_INLINE static inline __attribute__((always_inline))
#define FFT_UNROLL _Pragma("GCC unroll 16")
#endif

typedef struct NAME(complex) {
    V re, im;
} NAME(complex);

FFT_INLINE NAME(complex) NAME(at)(const R *x, uint64_t e)
{
    x += e * 2 * LANES;
    return (NAME(complex)){V_LOAD(x), V_LOAD(x + LANES)};
}

FFT_INLINE void NAME(put)(R *y, uint64_t e, NAME(complex) a)
{
    y += e * 2 * LANES;
    V_STORE(y, a.re);
    V_STORE(y + LANES, a.im);
}

/* What the first pass reads, or the last writes: numbers of all lanes, `step` apart. */
typedef struct NAME(end) {
    R *at; /* NULL: one of the blocks that the transform is given */
    uint64_t step;
    R scale;                   /* pairs that are written: times this */
    uint64_t swap;             /* pairs: parts exchanged */
    const R *twiddles, *bases; /* turned: what number k is multiplied by, that of each lane and that of all */
} NAME(end);

/* Which pass it is. A block lies as the numbers of all lanes do inside; pairs are complex numbers that follow each other, one a lane. */
typedef enum NAME(ends) {
    NAME(inner),      /* from block to block */
    NAME(from_block), /* the first, the same: each root turns one number */
    NAME(from_pairs), /* the first, to a block */
    NAME(to_turned),  /* the last, from block to block, numbers turned by roots of their own */
    NAME(to_pairs)    /* the last, from a block */
} NAME(ends);

FFT_INLINE NAME(end) NAME(block_end)(R *block)
{
    return (NAME(end)){.at = block, .step = 2 * LANES};
}

FFT_INLINE NAME(complex) NAME(plus)(NAME(complex) a, NAME(complex) b)
{
    return (NAME(complex)){V_ADD(a.re, b.re), V_ADD(a.im, b.im)};
}

FFT_INLINE NAME(complex) NAME(minus)(NAME(complex) a, NAME(complex) b)
{
    return (NAME(complex)){V_SUB(a.re, b.re), V_SUB(a.im, b.im)};
}

/* a - i b and a + i b */
FFT_INLINE NAME(complex) NAME(plus_quarter)(NAME(complex) a, NAME(complex) b)
{
    return (NAME(complex)){V_ADD(a.re, b.im), V_SUB(a.im, b.re)};
}

FFT_INLINE NAME(complex) NAME(minus_quarter)(NAME(complex) a, NAME(complex) b)
{
    return (NAME(complex)){V_SUB(a.re, b.im), V_ADD(a.im, b.re)};
}

FFT_INLINE NAME(complex) NAME(times)(NAME(complex) a, V re, V im)
{
    return (NAME(complex)){V_FNMA(a.im, im, V_MUL(a.re, re)), V_FMA(a.im, re, V_MUL(a.re, im))};
}

FFT_INLINE NAME(complex) NAME(read_pairs)(const R *from)
{
    const V a = V_LOAD(from), b = V_LOAD(from + LANES);
    return (NAME(complex)){V_EVEN(a, b), V_ODD(a, b)};
}

FFT_INLINE void NAME(write_pairs)(R *to, NAME(complex) a, V scale)
{
    a = (NAME(complex)){V_MUL(a.re, scale), V_MUL(a.im, scale)};
    V_STORE(to, V_LOW(a.re, a.im));
    V_STORE(to + LANES, V_HIGH(a.re, a.im));
}

FFT_INLINE NAME(complex) NAME(swapped)(NAME(complex) a)
{
    return (NAME(complex)){a.im, a.re};
}

/* Number e times its root of each lane, which is the product of two. */
FFT_INLINE NAME(complex) NAME(turned)(const R *twiddles, const R *bases, uint64_t e, NAME(complex) a)
{
    const R *lanes = twiddles + e * 2 * MICA__CPU_FFT_TABLE_LANES(sizeof(R)), *base = bases + 2 * e;
    NAME(complex) by = {V_LOAD(lanes), V_LOAD(lanes + MICA__CPU_FFT_TABLE_LANES(sizeof(R)))};
    by = NAME(times)(by, V_SET1(base[0]), V_SET1(base[1]));
    return NAME(times)(a, by.re, by.im);
}

FFT_INLINE void NAME(dft4)(NAME(complex) * a0, NAME(complex) * a1, NAME(complex) * a2, NAME(complex) * a3)
{
    const NAME(complex) t0 = NAME(plus)(*a0, *a2), t1 = NAME(minus)(*a0, *a2);
    const NAME(complex) t2 = NAME(plus)(*a1, *a3), t3 = NAME(minus)(*a1, *a3);
    *a0 = NAME(plus)(t0, t2);
    *a1 = NAME(plus_quarter)(t1, t3);
    *a2 = NAME(minus)(t0, t2);
    *a3 = NAME(minus_quarter)(t1, t3);
}

FFT_INLINE void NAME(dft8)(NAME(complex) * a)
{
    const V half = V_SET1((R)0.70710678118654752440);
    NAME(dft4)(&a[0], &a[2], &a[4], &a[6]);
    NAME(dft4)(&a[1], &a[3], &a[5], &a[7]);
    const NAME(complex) e[4] = {a[0], a[2], a[4], a[6]};
    /* odd ones, times the first root and the third one, of which -1 is left to what follows */
    const NAME(complex) o1 = {V_MUL(half, V_ADD(a[3].re, a[3].im)), V_MUL(half, V_SUB(a[3].im, a[3].re))};
    const NAME(complex) o3 = {V_MUL(half, V_SUB(a[7].re, a[7].im)), V_MUL(half, V_ADD(a[7].re, a[7].im))};
    const NAME(complex) o0 = a[1], o2 = a[5];
    a[0] = NAME(plus)(e[0], o0);
    a[1] = NAME(plus)(e[1], o1);
    a[2] = NAME(plus_quarter)(e[2], o2);
    a[3] = NAME(minus)(e[3], o3);
    a[4] = NAME(minus)(e[0], o0);
    a[5] = NAME(minus)(e[1], o1);
    a[6] = NAME(minus_quarter)(e[2], o2);
    a[7] = NAME(plus)(e[3], o3);
}

#define MOST_PAIRS ((MICA__FOURIER_RADIX - 1) / 2)

/* Of an odd number of points: those that lie the same way from both ends are added and subtracted first. `c` and `s` are the
 * cosines and sines of 2 pi i k / r, [k - 1][i - 1]. */
FFT_INLINE void NAME(dft_odd)(const uint32_t r, NAME(complex) * a, const V *c, const V *s)
{
    const uint32_t h = (r - 1) / 2;
    NAME(complex) sum[MOST_PAIRS], difference[MOST_PAIRS], first = a[0];
    const NAME(complex) all = a[0];
    FFT_UNROLL
    for (uint32_t i = 0; i < h; i++) {
        sum[i] = NAME(plus)(a[i + 1], a[r - 1 - i]);
        difference[i] = NAME(minus)(a[i + 1], a[r - 1 - i]);
        first = NAME(plus)(first, sum[i]);
    }
    a[0] = first;
    FFT_UNROLL
    for (uint32_t k = 0; k < h; k++) {
        NAME(complex) even = all, odd = {V_SET1(0), V_SET1(0)};
        FFT_UNROLL
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

FFT_INLINE void NAME(dft)(const uint32_t r, NAME(complex) * a, const V *c, const V *s)
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

/* The r numbers at e, e + apart .. of what a pass reads. */
FFT_INLINE void NAME(read)(const uint32_t r, const NAME(ends) ends, const NAME(end) * x, uint64_t e,
                           uint64_t apart, NAME(complex) * a)
{
    FFT_UNROLL
    for (uint32_t i = 0; i < r; i++)
        a[i] = ends == NAME(from_pairs) ? NAME(read_pairs)(x->at + (e + i * apart) * x->step)
                                        : NAME(at)(x->at, e + i * apart);
    if (ends == NAME(from_pairs) && x->swap)
        FFT_UNROLL
    for (uint32_t i = 0; i < r; i++)
        a[i] = NAME(swapped)(a[i]);
}

FFT_INLINE void NAME(write)(const uint32_t r, const NAME(ends) ends, const NAME(end) * y, uint64_t e,
                            uint64_t apart, NAME(complex) * a)
{
    if (ends == NAME(to_pairs) && y->swap)
        FFT_UNROLL
    for (uint32_t i = 0; i < r; i++)
        a[i] = NAME(swapped)(a[i]);
    FFT_UNROLL
    for (uint32_t i = 0; i < r; i++) {
        const uint64_t to = e + i * apart;
        if (ends == NAME(to_pairs))
            NAME(write_pairs)(y->at + to * y->step, a[i], V_SET1(y->scale));
        else if (ends == NAME(to_turned))
            NAME(put)(y->at, to, NAME(turned)(y->twiddles, y->bases, to, a[i]));
        else
            NAME(put)(y->at, to, a[i]);
    }
}

/* One pass of radix r over n points, of which `done` were by those before it. `roots` are the n-th ones, n of them. */
FFT_INLINE void NAME(pass)(const uint32_t r, const NAME(ends) ends, const NAME(end) * from,
                           const NAME(end) * to, uint64_t n, uint64_t done, const R *roots)
{
    const NAME(end) x = *from, y = *to;
    const uint64_t s = ends == NAME(from_block) || ends == NAME(from_pairs) ? 1 : done, m = n / (r * s);
    const bool last = ends == NAME(to_turned) || ends == NAME(to_pairs);
    NAME(complex) a[MICA__FOURIER_RADIX];
    V cosines[MOST_PAIRS * MOST_PAIRS], sines[MOST_PAIRS * MOST_PAIRS];
    if (r % 2 == 1)
        FFT_UNROLL
    for (uint32_t k = 0; k < (r - 1) / 2; k++)
        FFT_UNROLL
    for (uint32_t i = 0; i < (r - 1) / 2; i++) {
        const R *root = roots + 2 * ((k + 1) * (i + 1) % r * (n / r));
        cosines[k * ((r - 1) / 2) + i] = V_SET1(root[0]);
        sines[k * ((r - 1) / 2) + i] = V_SET1(-root[1]);
    }
    for (uint64_t q = 0; q < s; q++) { /* p is 0: nothing to turn by */
        NAME(read)(r, ends, &x, q, s * m, a);
        NAME(dft)(r, a, cosines, sines);
        NAME(write)(r, ends, &y, q, s, a);
    }
    for (uint64_t p = 1; p < m && !last; p++) {
        V re[MICA__FOURIER_RADIX], im[MICA__FOURIER_RADIX];
        FFT_UNROLL
        for (uint32_t i = 1; i < r; i++) {
            const R *root = roots + 2 * (i * p * s);
            re[i] = V_SET1(root[0]);
            im[i] = V_SET1(root[1]);
        }
        for (uint64_t q = 0; q < s; q++) {
            NAME(read)(r, ends, &x, q + s * p, s * m, a);
            NAME(dft)(r, a, cosines, sines);
            NAME(put)(y.at, q + s * (r * p), a[0]);
            FFT_UNROLL
            for (uint32_t i = 1; i < r; i++)
                NAME(put)(y.at, q + s * (r * p + i), NAME(times)(a[i], re[i], im[i]));
        }
    }
}

/* A function each: in one that has them all the compiler loses track of its registers. */
typedef void NAME(pass_of)(const NAME(end) * x, const NAME(end) * y, uint64_t n, uint64_t s, const R *roots);

#define PASS(radix, ends)                                                                         \
    static void NAME(pass_##radix##_##ends)(const NAME(end) * x, const NAME(end) * y, uint64_t n, \
                                            uint64_t s, const R *roots)                           \
    {                                                                                             \
        NAME(pass)(radix, NAME(ends), x, y, n, s, roots);                                         \
    }
#define PASSES(radix)       \
    PASS(radix, inner)      \
    PASS(radix, from_block) \
    PASS(radix, from_pairs) \
    PASS(radix, to_turned)  \
    PASS(radix, to_pairs)
PASSES(2)
PASSES(3)
PASSES(4)
PASSES(5)
PASSES(7)
PASSES(8)
PASSES(11)
PASSES(13)
#undef PASS
#undef PASSES

#define PASSES(radix)                                                                                        \
    [radix] = {NAME(pass_##radix##_inner), NAME(pass_##radix##_from_block), NAME(pass_##radix##_from_pairs), \
               NAME(pass_##radix##_to_turned), NAME(pass_##radix##_to_pairs)}
static NAME(pass_of) *const NAME(passes)[MICA__FOURIER_RADIX + 1][5] = {
    PASSES(2), PASSES(3), PASSES(4), PASSES(5), PASSES(7), PASSES(8), PASSES(11), PASSES(13)};
#undef PASSES

/* Transforms what lies in x, `first` being how its first pass reads it and `last` how the last one writes, which are two passes unless one of them is
 * `inner`; by way of the blocks, of which x may be one. Gives where the result is: in y, or a block if that says so, or x where there is nothing to do. */
static R *NAME(transform)(const NAME(end) * x, NAME(ends) first, const NAME(end) * y, NAME(ends) last,
                          R *const *block, const mica__cpu_fft_radices *radices, const R *roots)
{
    NAME(end) from = *x;
    uint64_t s = 1;
    for (uint32_t i = 0; i < radices->count; i++) {
        const bool ending = i + 1 == radices->count;
        NAME(end) to = ending ? *y : NAME(block_end)(NULL);
        if (to.at == NULL)
            to.at = block[from.at == block[0]];
        const NAME(ends) ends = ending && last != NAME(inner) ? last : i == 0 ? first : NAME(inner);
        NAME(passes)[radices->radix[i]][ends](&from, &to, radices->points, s, roots);
        s *= radices->radix[i];
        from = to;
    }
    return from.at;
}
#undef MOST_PAIRS
