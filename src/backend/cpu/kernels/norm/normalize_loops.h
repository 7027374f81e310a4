/*
 * normalize_loops.h - the loops over one contiguous row in REAL, with the names that FN makes: included once for each; VECTORS is 1 where REAL is float.
 *
 * Sums of floats go through four vectors for at most BLOCK elements, then lane by lane in double; those of doubles through LANES sums. Their order is that
 * of the elements alone.
 */
#define BLOCK 1024u

/* A row of gradients: x and dy become n and, with what the weights make of it, g; then dx. */
typedef struct FN(gradient) {
    const REAL *x, *dy, *weight;   /* weight NULL: 1 */
    REAL *n, *g, *dweight, *dbias; /* the latter two, sums over rows that grow by this one's, may be NULL */
    const unsigned char *next_x, *next_dy; /* what is asked for meanwhile, elements of so many bytes */
    uint64_t x_bytes, dy_bytes;
    REAL mean, scale, share, shift; /* sums of g n and of g, over their number */
} FN(gradient);

#if VECTORS

/* Lanes of double that sums of blocks are added up in. */
typedef struct wide_sum {
    vd lane[VD_PARTS];
} wide_sum;

static inline void widen_sum(wide_sum *total, const vf *sum)
{
    for (uint32_t k = 0; k < 4; k++) {
        vd part[VD_PARTS];
        vf_widen(sum[k], part);
        for (uint32_t j = 0; j < VD_PARTS; j++)
            total->lane[j] += part[j];
    }
}

static inline double end_sum(const wide_sum *total)
{
    double sum = 0;
    for (uint32_t j = 0; j < VD_PARTS; j++)
        for (uint32_t k = 0; k < VW / VD_PARTS; k++)
            sum += total->lane[j][k];
    return sum;
}

/* What remains of a block behind whole steps of four vectors: vector k, which has `left` lanes, goes to sum k. */
#define FOR_REST(i, k, left, end)                                                                     \
    for (uint32_t k = 0, left = 0; i < end && (left = (uint32_t)(end - i < VW ? end - i : VW), true); \
         i += VW, k++)

static inline vf sum_term(vf a, const float *b, vf from)
{
    const vf d = vf_sub(a, from);
    return b != NULL ? vf_mul(d, vf_sub(vf_load(b), from)) : d;
}

/* The sum of (a[i] - from) * (b[i] - from), b NULL: of a[i] - from. */
static inline double sum_each(const float *a, const float *b, float from, uint64_t n)
{
    wide_sum total = {{{0}}};
    const vf origin = vf_set1(from);
    for (uint64_t i = 0; i < n;) {
        const uint64_t end = n - i < BLOCK ? n : i + BLOCK;
        vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (; i + 4 * VW <= end; i += 4 * VW)
            for (uint32_t k = 0; k < 4; k++)
                sum[k] = vf_add(sum[k],
                                sum_term(vf_load(a + i + k * VW), b != NULL ? b + i + k * VW : NULL, origin));
        FOR_REST(i, k, left, end)
        {
            const vf d = vf_sub(vf_load_n(a + i, left), origin);
            const vf term = b != NULL ? vf_mul(d, vf_sub(vf_load_n(b + i, left), origin)) : d;
            sum[k] = vf_add(sum[k], vf_merge_n(term, vf_zero(), left));
        }
        widen_sum(&total, sum);
    }
    return end_sum(&total);
}

static double sum_f32(const float *a, const float *b, float from, uint64_t n)
{
    return b != NULL ? sum_each(a, b, from, n) : sum_each(a, NULL, from, n);
}

/* One vector, of which `left` lanes are there: a constant in most calls. */
static inline void gradient_step(const gradient_f32 *r, uint64_t i, uint64_t left, bool weighted, bool summed,
                                 vf *product, vf *sum)
{
    const vf value = vf_mul(vf_sub(vf_load_n(r->x + i, left), vf_set1(r->mean)), vf_set1(r->scale));
    const vf dy = vf_load_n(r->dy + i, left);
    const vf slope = weighted ? vf_mul(dy, vf_load_n(r->weight + i, left)) : dy;
    const vf term = vf_mul(slope, value);
    vf_store_n(r->n + i, value, left);
    vf_store_n(r->g + i, slope, left);
    *product = vf_add(*product, left == VW ? term : vf_merge_n(term, vf_zero(), left));
    *sum = vf_add(*sum, slope);
    if (!summed)
        return;
    vf_store_n(r->dweight + i, vf_fma(dy, value, vf_load_n(r->dweight + i, left)), left);
    vf_store_n(r->dbias + i, vf_add(dy, vf_load_n(r->dbias + i, left)), left);
}

/* n and g, and the sums of g n and of g. Constants in each call: whether there are weights and sums over rows. */
static inline void gradient_terms_f32(const gradient_f32 *row, uint64_t count, bool weighted, bool summed,
                                      double *of_products, double *of_g)
{
    const gradient_f32 r = *row;
    wide_sum products = {{{0}}}, all = {{{0}}};
    for (uint64_t i = 0; i < count;) {
        const uint64_t end = count - i < BLOCK ? count : i + BLOCK;
        vf product[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()},
           sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (; i + 4 * VW <= end; i += 4 * VW)
            for (uint32_t k = 0; k < 4; k++)
                gradient_step(&r, i + k * VW, VW, weighted, summed, &product[k], &sum[k]);
        FOR_REST(i, k, left, end)
        gradient_step(&r, i, left, weighted, summed, &product[k], &sum[k]);
        widen_sum(&products, product);
        widen_sum(&all, sum);
    }
    *of_products = end_sum(&products);
    *of_g = end_sum(&all);
}

/* dx of a line that begins with element `from`; `to` may be the line of g. */
static void gradient_line_f32(const gradient_f32 *row, uint64_t from, uint64_t count, float *to)
{
    const gradient_f32 r = *row;
    const vf shift = vf_set1(r.shift), share = vf_set1(r.share), scale = vf_set1(r.scale);
    for (uint64_t i = 0; i < count; i += VW) {
        const uint64_t left = count - i < VW ? count - i : VW, at = from + i;
        __builtin_prefetch(r.next_x + at * r.x_bytes);
        __builtin_prefetch(r.next_dy + at * r.dy_bytes);
        const vf g = vf_sub(vf_load_n(r.g + at, left), shift), n = vf_mul(vf_load_n(r.n + at, left), share);
        vf_store_n(to + i, vf_mul(scale, vf_sub(g, n)), left);
    }
}

/* (x - mean) * scale * weight + bias, both of which may be NULL; what lies at `next` comes meanwhile. */
static void scale_line_f32(const float *x, float mean, float scale, const float *weight, const float *bias,
                           uint64_t n, float *to, const unsigned char *next)
{
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        __builtin_prefetch(next + i * sizeof *x);
        vf v = vf_mul(vf_sub(vf_load_n(x + i, left), vf_set1(mean)), vf_set1(scale));
        if (weight != NULL)
            v = vf_mul(v, vf_load_n(weight + i, left));
        if (bias != NULL)
            v = vf_add(v, vf_load_n(bias + i, left));
        vf_store_n(to + i, v, left);
    }
}

/* scale y (dy - sum); what lies at the two places comes meanwhile. `to` may be y or dy. */
static void softmax_line_f32(const float *y, const float *dy, float scale, float sum, uint64_t n, float *to,
                             const unsigned char *next_y, const unsigned char *next_dy)
{
    for (uint64_t i = 0; i < n; i += VW) {
        const uint64_t left = n - i < VW ? n - i : VW;
        __builtin_prefetch(next_y + i * sizeof *y);
        __builtin_prefetch(next_dy + i * sizeof *dy);
        const vf d = vf_sub(vf_load_n(dy + i, left), vf_set1(sum));
        vf_store_n(to + i, vf_mul(vf_mul(vf_set1(scale), vf_load_n(y + i, left)), d), left);
    }
}

#undef FOR_REST

#else

#define LANES 16u

static double FN(sum)(const REAL *a, const REAL *b, REAL from, uint64_t n)
{
    double total = 0;
    for (uint64_t begin = 0; begin < n; begin += BLOCK) {
        const uint64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        REAL lane[LANES] = {0};
        uint64_t i = begin;
        for (; i + LANES <= end; i += LANES)
            for (uint32_t j = 0; j < LANES; j++)
                lane[j] += b != NULL ? (a[i + j] - from) * (b[i + j] - from) : a[i + j] - from;
        for (uint32_t j = 0; i + j < end; j++)
            lane[j] += b != NULL ? (a[i + j] - from) * (b[i + j] - from) : a[i + j] - from;
        for (uint32_t j = 0; j < LANES; j++)
            total += (double)lane[j];
    }
    return total;
}

static inline void FN(gradient_terms)(const FN(gradient) * r, uint64_t count, bool weighted, bool summed,
                                      double *of_products, double *of_g)
{
    REAL *n = r->n, *g = r->g;
    for (uint64_t i = 0; i < count; i++) {
        const REAL d = r->dy[i];
        n[i] = (r->x[i] - r->mean) * r->scale;
        g[i] = weighted ? d * r->weight[i] : d;
        if (summed) {
            r->dweight[i] += d * n[i];
            r->dbias[i] += d;
        }
    }
    *of_products = FN(sum)(g, n, 0, count);
    *of_g = FN(sum)(g, NULL, 0, count);
}

static void FN(gradient_line)(const FN(gradient) * r, uint64_t from, uint64_t count, REAL *to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = r->scale * (r->g[from + i] - r->shift - r->n[from + i] * r->share);
}

static void FN(scale_line)(const REAL *x, REAL mean, REAL scale, const REAL *weight, const REAL *bias,
                           uint64_t n, REAL *to, const unsigned char *next)
{
    (void)next;
    for (uint64_t i = 0; i < n; i++)
        to[i] = (x[i] - mean) * scale;
    for (uint64_t i = 0; i < n && weight != NULL; i++)
        to[i] *= weight[i];
    for (uint64_t i = 0; i < n && bias != NULL; i++)
        to[i] += bias[i];
}

static void FN(softmax_line)(const REAL *y, const REAL *dy, REAL scale, REAL sum, uint64_t n, REAL *to,
                             const unsigned char *next_y, const unsigned char *next_dy)
{
    (void)next_y, (void)next_dy;
    for (uint64_t i = 0; i < n; i++)
        to[i] = scale * y[i] * (dy[i] - sum);
}

#undef LANES

#endif
#undef BLOCK
