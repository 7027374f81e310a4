/*
 * fft_steps.h - the steps of a transform around fft_block.h: rows in and out, columns, Bluestein's convolution.
 *
 * A body, as fft_block.h, behind it, and with V_TRANSPOSE(from, from_step, to, to_step): a square of LANES by LANES. A row is `length` complex numbers
 * that follow each other, in the type. Between the two steps of a row it is [first / LANES][second][2][LANES].
 */
typedef struct NAME(fft) {
    const mica__cpu_fft *fft;
    fft_roots roots, across;
    unsigned char *tables; /* of this thread; NULL: the plan's are used */
    const R *first_roots, *second_roots, *twiddles, *bases;
    R *own_bases; /* of a few columns, where the tables have none */
    R *block[2], *spectrum, *row, *folded;
} NAME(fft);

static NAME(fft) NAME(fft_of)(const mica__cpu_args *args)
{
    const mica__cpu_fft *fft = args->params;
    const mica__cpu_fft_places p = mica__cpu_fft_places_of(fft);
    unsigned char *local = args->local;
    const unsigned char *table = fft->ready != 0 ? (const unsigned char *)(fft + 1) : local;
    NAME(fft)
    t = {.fft = fft,
         .tables = fft->ready != 0 ? NULL : local,
         .roots = fft_roots_at(table + p.roots, fft->order),
         .across = fft_roots_at(table + p.across, fft->of.length)};
    t.first_roots = (const R *)(const void *)(table + p.first_roots);
    t.second_roots = (const R *)(const void *)(table + p.second_roots);
    t.twiddles = (const R *)(const void *)(table + p.twiddles);
    t.bases = fft->of.length <= MICA__CPU_FFT_MEDIUM ? (const R *)(const void *)(table + p.bases) : NULL;
    t.own_bases = (R *)(void *)(local + p.own_bases);
    t.block[0] = (R *)(void *)(local + p.block[0]);
    t.block[1] = (R *)(void *)(local + p.block[1]);
    t.spectrum = (R *)(void *)(local + p.spectrum);
    t.row = (R *)(void *)(local + p.row);
    t.folded = (R *)(void *)(local + p.folded);
    return t;
}

/* ---- numbers of a row, one at a time ---- */

static inline void NAME(load)(const unsigned char *at, uint64_t half, R *out)
{
    memcpy(&out[0], at, sizeof out[0]);
    memcpy(&out[1], at + half, sizeof out[1]);
}

static inline void NAME(multiply)(R *a, double re, double im)
{
    const R x = a[0], y = a[1], c = (R)re, s = (R)im;
    a[0] = x * c - y * s;
    a[1] = x * s + y * c;
}

/* e^(-pi i k^2 / inner) */
static inline void NAME(chirp)(const NAME(fft) * t, uint64_t k, double *out)
{
    fft_root(&t->roots, k * k % t->fft->order, out); /* the order is twice `inner`, pairs or not */
}

/* Number k of the half spectrum at x, its parts that are 0 left out. */
static inline void NAME(half_spectrum)(const mica__fourier *of, const unsigned char *x, uint64_t k, R *out)
{
    NAME(load)(x + k * of->x_step, of->x_half, out);
    if (k == 0 || 2 * k == of->n)
        out[1] = 0;
    else if (of->inverse == 0) /* the conjugates' inverse transform */
        out[1] = -out[1];
}

/* Number k of what is transformed to get the real row of a half spectrum, parts exchanged. */
static void NAME(unfold)(const NAME(fft) * t, const unsigned char *x, uint64_t k, R *out)
{
    const mica__fourier *of = &t->fft->of;
    R a[2], b[2];
    double root[2];
    if (of->pairs == 0) {
        NAME(half_spectrum)(of, x, 2 * k > of->n ? of->n - k : k, a);
        out[0] = 2 * k > of->n ? -a[1] : a[1];
        out[1] = a[0];
        return;
    }
    NAME(half_spectrum)(of, x, k, a);
    NAME(half_spectrum)(of, x, of->inner - k, b);
    fft_root(&t->roots, k, root);
    R odd[2] = {a[0] - b[0], a[1] + b[1]};
    NAME(multiply)(odd, root[0], -root[1]);
    out[1] = a[0] + b[0] - odd[1];
    out[0] = a[1] - b[1] + odd[0];
}

/* Number k of the row that is transformed: of x, or of the chirp's conjugate for x NULL. */
static inline void NAME(sample)(const NAME(fft) * t, const unsigned char *x, uint64_t k, R *out)
{
    const mica__fourier *of = &t->fft->of;
    double twiddle[2];
    if (x == NULL) {
        const uint64_t own = k < of->inner ? k : of->length - k;
        out[0] = out[1] = 0;
        if (own >= of->inner)
            return;
        NAME(chirp)(t, own, twiddle);
        out[0] = (R)twiddle[0];
        out[1] = (R)-twiddle[1];
        return;
    }
    if (k >= of->inner) {
        out[0] = out[1] = 0;
        return;
    }
    if (of->kind == MICA_FFT_HERMITIAN) {
        NAME(unfold)(t, x, k, out);
    } else if (of->kind == MICA_FFT_COMPLEX) {
        NAME(load)(x + k * of->x_step, of->x_half, out);
        if (of->inverse != 0) {
            const R re = out[0];
            out[0] = out[1];
            out[1] = re;
        }
    } else if (of->pairs != 0) {
        NAME(load)(x + 2 * k * of->x_step, of->x_step, out);
    } else {
        NAME(load)(x + k * of->x_step, 0, out);
        out[1] = 0;
    }
    if (of->chirp != 0) {
        NAME(chirp)(t, k, twiddle);
        NAME(multiply)(out, twiddle[0], twiddle[1]);
    }
}

/* Complex numbers side by side, times scale, parts exchanged or not. */
static void NAME(scale_row)(const R *from, bool swap, R scale, uint64_t count, R *to)
{
    if (swap)
        for (uint64_t k = 0; k < count; k++) {
            const R re = from[2 * k];
            to[2 * k] = from[2 * k + 1] * scale;
            to[2 * k + 1] = re * scale;
        }
    else
        for (uint64_t k = 0; k < 2 * count; k++)
            to[k] = from[k] * scale;
}

/* Numbers [from, to) of the row. */
static void NAME(fill)(const NAME(fft) * t, const unsigned char *x, uint64_t from, uint64_t to, R *row)
{
    const mica__fourier *of = &t->fft->of;
    const bool plain = x != NULL && of->chirp == 0 && of->inverse == 0;
    if (plain && of->kind == MICA_FFT_COMPLEX && of->x_step == 2 * sizeof(R) && of->x_half == sizeof(R))
        memcpy(row, x + from * of->x_step, (to - from) * 2 * sizeof(R));
    else if (plain && of->kind == MICA_FFT_REAL && of->pairs != 0 && of->x_step == sizeof(R))
        memcpy(row, x + 2 * from * of->x_step, (to - from) * 2 * sizeof(R));
    else if (x != NULL && t->fft->direct != 0) /* of an inverse transform */
        NAME(scale_row)((const R *)(const void *)x + 2 * from, true, 1, to - from, row);
    else
        for (uint64_t k = from; k < to; k++)
            NAME(sample)(t, x, k, row + 2 * (k - from));
}

/* Number k of the transform of the `inner` ones. */
static inline void NAME(result)(const NAME(fft) * t, const R *row, uint64_t k, R *out)
{
    const mica__fourier *of = &t->fft->of;
    out[0] = row[2 * k + (of->chirp != 0)]; /* a convolution came back by an inverse transform */
    out[1] = row[2 * k + (of->chirp == 0)];
    if (of->chirp != 0) {
        double twiddle[2];
        NAME(chirp)(t, k, twiddle);
        NAME(multiply)(out, twiddle[0], twiddle[1]);
    }
}

/* Number k, up to inner, of the spectrum of a real row. */
static void NAME(real_spectrum)(const NAME(fft) * t, const R *row, uint64_t k, R *out)
{
    const mica__fourier *of = &t->fft->of;
    R a[2], b[2];
    double root[2];
    if (of->pairs == 0) {
        NAME(result)(t, row, k, out);
        return;
    }
    NAME(result)(t, row, k < of->inner ? k : 0, a);
    NAME(result)(t, row, k > 0 ? of->inner - k : 0, b);
    fft_root(&t->roots, k, root);
    R odd[2] = {a[0] - b[0], a[1] + b[1]};
    NAME(multiply)(odd, root[0], root[1]);
    out[0] = (R)0.5 * (a[0] + b[0] + odd[1]);
    out[1] = (R)0.5 * (a[1] - b[1] - odd[0]);
}

static inline void NAME(store)(unsigned char *at, R value, R scale)
{
    value *= scale;
    memcpy(at, &value, sizeof value);
}

/* What numbers [from, to) of the transform give of y. The row of a real one has all numbers. */
static void NAME(drain)(const NAME(fft) * t, const R *row, uint64_t from, uint64_t to, unsigned char *y)
{
    const mica__fourier *of = &t->fft->of;
    const R scale = (R)of->scale;
    const bool swap = of->kind == MICA_FFT_HERMITIAN || (of->kind == MICA_FFT_COMPLEX && of->inverse != 0);
    R v[2];
    if (from >= of->inner)
        return;
    to = to < of->inner ? to : of->inner;
    if (t->fft->direct != 0) {
        NAME(scale_row)(row + 2 * from, swap, scale, to - from, (R *)(void *)y + 2 * from);
        return;
    }
    if (of->kind == MICA_FFT_REAL) {
        const uint64_t bins = of->n / 2 + 1;
        to = to == of->inner ? bins : to < bins ? to : bins;
        for (uint64_t k = from; k < to; k++) {
            NAME(real_spectrum)(t, row, k, v);
            NAME(store)(y + k * of->y_step, v[0], scale);
            NAME(store)(y + k * of->y_step + of->y_half, of->inverse != 0 ? -v[1] : v[1], scale);
        }
        return;
    }
    for (uint64_t k = from; k < to; k++) {
        NAME(result)(t, row, k, v);
        const R re = v[swap], im = v[!swap];
        if (of->kind == MICA_FFT_COMPLEX) {
            NAME(store)(y + k * of->y_step, re, scale);
            NAME(store)(y + k * of->y_step + of->y_half, im, scale);
        } else if (of->pairs != 0) {
            NAME(store)(y + 2 * k * of->y_step, re, scale);
            NAME(store)(y + (2 * k + 1) * of->y_step, im, scale);
        } else {
            NAME(store)(y + k * of->y_step, re, scale);
        }
    }
}

/* row_k = row_k times spectrum_k / length, parts exchanged for the way back. */
static void NAME(convolve)(const R *spectrum, R factor, uint64_t count, R *row)
{
    for (uint64_t k = 0; k < 2 * count; k += 2) {
        const R c = spectrum[k] * factor, s = spectrum[k + 1] * factor, x = row[k], y = row[k + 1];
        row[k] = x * s + y * c;
        row[k + 1] = x * c - y * s;
    }
}

/* ---- columns of a row ---- */

/* What the numbers of column `column`, the first of a vector's, are multiplied by beside the roots of its lanes. */
static const R *NAME(bases_of)(const NAME(fft) * t, uint64_t column)
{
    if (t->bases != NULL)
        return t->bases + column / MICA__CPU_FFT_BASE_COLUMNS(sizeof(R)) * t->fft->first * 2;
    for (uint64_t k = 0; k < t->fft->first; k++) {
        double base[2];
        fft_root(&t->across, k * column, base);
        t->own_bases[2 * k] = (R)base[0];
        t->own_bases[2 * k + 1] = (R)base[1];
    }
    return t->own_bases;
}

/* Lanes were columns of n numbers, of which `here` are there, and become the numbers of one; m columns lie between two blocks of them. */
static void NAME(fold)(const R *done, uint64_t n, uint64_t m, uint64_t here, R *to)
{
    for (uint64_t k = 0; k < n; k += LANES, to += m * LANES * 2) {
        R square[2][LANES * LANES];
        if (here == LANES && n - k >= LANES) {
            V_TRANSPOSE(done + k * 2 * LANES, 2 * LANES, to, 2 * LANES);
            V_TRANSPOSE(done + k * 2 * LANES + LANES, 2 * LANES, to + LANES, 2 * LANES);
            continue;
        }
        for (uint64_t i = 0; i < 2; i++) {
            if (n - k >= LANES) {
                V_TRANSPOSE(done + k * 2 * LANES + i * LANES, 2 * LANES, square[i], LANES);
                continue;
            }
            for (uint64_t a = 0; a < LANES; a++)
                for (uint64_t b = 0; b < LANES; b++)
                    square[i][b * LANES + a] = a < n - k ? done[(k + a) * 2 * LANES + i * LANES + b] : 0;
        }
        for (uint64_t a = 0; a < here; a++) {
            V_STORE(to + a * 2 * LANES, V_LOAD(square[0] + a * LANES));
            V_STORE(to + a * 2 * LANES + LANES, V_LOAD(square[1] + a * LANES));
        }
    }
}

/* Column `column` and its LANES - 1 neighbours, as far as the row has them: transformed, multiplied by its twiddles and folded. `swap`: parts of the row are exchanged. */
static void NAME(first_columns)(const NAME(fft) * t, const R *row, bool swap, uint64_t column, R *folded)
{
    const uint64_t n = t->fft->first, m = t->fft->second, here = m - column < LANES ? m - column : LANES;
    /* a vector may have fewer lanes than a base has columns */
    const uint64_t off = t->bases != NULL ? column % MICA__CPU_FFT_BASE_COLUMNS(sizeof(R)) : 0;
    NAME(end) x = {.at = (R *)(uintptr_t)(row + 2 * column), .step = 2 * m, .swap = swap};
    NAME(end) y = NAME(block_end)(NULL);
    if (here < LANES) { /* there may be nothing behind the last one */
        R *pad = t->block[1];
        memset(pad, 0, n * 2 * LANES * sizeof(R));
        for (uint64_t k = 0; k < n; k++)
            memcpy(pad + k * 2 * LANES, x.at + k * x.step, here * 2 * sizeof(R));
        x.at = pad;
        x.step = 2 * LANES;
    }
    y.twiddles = t->twiddles + off;
    y.bases = NAME(bases_of)(t, column);
    const R *done = NAME(transform)(&x, NAME(from_pairs), &y, NAME(to_turned), t->block,
                                    &t->fft->first_radices, t->first_roots);
    NAME(fold)(done, n, m, here, folded + column * LANES * 2);
}

/* Rows `first` and its LANES - 1 neighbours of what was folded: transformed, times scale, to their places in the row. */
static void NAME(second_columns)(const NAME(fft) * t, R *folded, uint64_t first, bool swap, R scale, R *row)
{
    const uint64_t n = t->fft->second, m = t->fft->first, here = m - first < LANES ? m - first : LANES;
    const NAME(end) x = NAME(block_end)(folded + first * n * 2);
    NAME(end) y = {.at = row + 2 * first, .step = 2 * m, .swap = swap, .scale = scale};
    if (here == LANES) {
        NAME(transform)
        (&x, NAME(from_block), &y, NAME(to_pairs), t->block, &t->fft->second_radices, t->second_roots);
        return;
    }
    const NAME(end) block = NAME(block_end)(NULL);
    const R *done = NAME(transform)(&x, NAME(from_block), &block, NAME(inner), t->block,
                                    &t->fft->second_radices, t->second_roots);
    for (uint64_t k = 0; k < n; k++) {
        const NAME(complex) a = NAME(at)(done, k);
        R pad[2 * LANES];
        NAME(write_pairs)(pad, swap ? NAME(swapped)(a) : a, V_SET1(scale));
        memcpy(y.at + k * y.step, pad, here * 2 * sizeof(R));
    }
}

/* Both steps of a row, which may be the same; `swap`: parts are exchanged before and behind. */
static void NAME(transform_row)(const NAME(fft) * t, const R *from, bool swap, R scale, R *to)
{
    for (uint64_t c = 0; c < t->fft->second; c += LANES)
        NAME(first_columns)(t, from, swap, c, t->folded);
    for (uint64_t c = 0; c < t->fft->first; c += LANES)
        NAME(second_columns)(t, t->folded, c, swap, scale, to);
}

/* ---- what a thread prepares ---- */

static void NAME(prepare_tables)(const NAME(fft) * t)
{
    if (t->tables != NULL)
        fft_tables_make(t->fft, t->tables);
}

/* ---- short rows in lanes ---- */

/* [lanes][pitch] to [pitch][lanes] or back; rows are `step` numbers apart. */
static void NAME(turn_rows)(const R *rows, uint64_t step, uint64_t pitch, R *block)
{
    for (uint64_t i = 0; i < pitch; i += LANES)
        V_TRANSPOSE(rows + i, step, block + i * LANES, LANES);
}

static void NAME(turn_back)(const R *block, uint64_t step, uint64_t pitch, R *rows)
{
    for (uint64_t i = 0; i < pitch; i += LANES)
        V_TRANSPOSE(block + i * LANES, LANES, rows + i, step);
}

/* Transforms the numbers of block[0] and gives the block where they are then. */
static R *NAME(transform_block)(const NAME(fft) * t)
{
    const NAME(end) x = NAME(block_end)(t->block[0]), y = NAME(block_end)(NULL);
    return NAME(transform)(&x, NAME(from_block), &y, NAME(inner), t->block, &t->fft->first_radices,
                           t->first_roots);
}

/* Transforms rows in lanes, [LANES][pitch] at t->row; block[] are long enough for the pitch. */
static void NAME(transform_lanes)(const NAME(fft) * t, uint64_t pitch)
{
    NAME(turn_rows)(t->row, pitch, pitch, t->block[0]);
    NAME(turn_back)(NAME(transform_block)(t), pitch, pitch, t->row);
}

/* Numbers from each of the next LANES rows of view v to the one behind it, and the first row; 0 where they are not as far apart, or go backwards. */
static uint64_t NAME(even_step)(walk w, uint32_t v, R **out_first)
{
    unsigned char *first = walk_at(&w, v), *last = first;
    uint64_t step = 0;
    for (uint64_t lane = 1; lane < LANES; lane++) {
        walk_next(&w);
        unsigned char *at = walk_at(&w, v);
        if (at <= last || (lane > 1 && (uint64_t)(at - last) != step))
            return 0;
        step = (uint64_t)(at - last);
        last = at;
    }
    *out_first = (R *)(void *)first;
    return step / sizeof(R);
}

/* LANES rows as they lie, forward and without a factor: read and written once. False where they do not lie so. */
static bool NAME(lanes_direct)(const NAME(fft) * t, const walk *w)
{
    const mica__fourier *of = &t->fft->of;
    R *x = NULL, *y = NULL;
    if (t->fft->direct == 0 || of->inverse != 0 || of->scale != 1 || 2 * of->length % LANES != 0)
        return false;
    const uint64_t x_step = NAME(even_step)(*w, 0, &x), y_step = NAME(even_step)(*w, 1, &y);
    if (x_step == 0 || y_step == 0)
        return false;
    NAME(turn_rows)(x, x_step, 2 * of->length, t->block[0]);
    NAME(turn_back)(NAME(transform_block)(t), y_step, 2 * of->length, y);
    return true;
}

static inline uint64_t NAME(pitch)(const mica__cpu_fft *fft)
{
    return (2 * fft->of.length + LANES - 1) / LANES * LANES;
}

static void NAME(prepare_lanes)(const mica__cpu_args *args)
{
    const NAME(fft) t = NAME(fft_of)(args);
    const uint64_t pitch = NAME(pitch)(t.fft);
    NAME(prepare_tables)(&t);
    memset(t.row, 0, LANES * pitch * sizeof(R)); /* lanes that get no row hold numbers, too */
    if (t.fft->of.chirp == 0)
        return;
    NAME(fill)(&t, NULL, 0, t.fft->of.length, t.row);
    NAME(transform_lanes)(&t, pitch);
    memcpy(t.spectrum, t.row, t.fft->of.length * 2 * sizeof(R));
}

static void NAME(run_lanes)(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const NAME(fft) t = NAME(fft_of)(args);
    const mica__fourier *of = &t.fft->of;
    const uint64_t pitch = NAME(pitch)(t.fft);
    walk in, out;
    walk_begin(&in, args->view, 2, args->view->ndim, row);
    out = in;
    while (row < end) {
        const uint64_t here = end - row < LANES ? end - row : LANES;
        if (here == LANES && NAME(lanes_direct)(&t, &in)) {
            for (uint64_t lane = 0; lane < LANES; lane++, walk_next(&in))
                ;
            out = in;
            row += LANES;
            continue;
        }
        for (uint64_t lane = 0; lane < here; lane++, walk_next(&in))
            NAME(fill)(&t, walk_at(&in, 0), 0, of->length, t.row + lane * pitch);
        NAME(transform_lanes)(&t, pitch);
        if (of->chirp != 0) {
            for (uint64_t lane = 0; lane < here; lane++)
                NAME(convolve)(t.spectrum, (R)(1 / (double)of->length), of->length, t.row + lane * pitch);
            NAME(transform_lanes)(&t, pitch);
        }
        for (uint64_t lane = 0; lane < here; lane++, walk_next(&out))
            NAME(drain)(&t, t.row + lane * pitch, 0, of->inner, walk_at(&out, 1));
        row += here;
    }
}

/* ---- rows, each by one thread ---- */

static void NAME(prepare_rows)(const mica__cpu_args *args)
{
    const NAME(fft) t = NAME(fft_of)(args);
    NAME(prepare_tables)(&t);
    if (t.fft->of.chirp == 0)
        return;
    NAME(fill)(&t, NULL, 0, t.fft->of.length, t.spectrum);
    NAME(transform_row)(&t, t.spectrum, false, 1, t.spectrum);
}

static void NAME(run_rows)(const mica__cpu_args *args, uint64_t row, uint64_t end)
{
    const NAME(fft) t = NAME(fft_of)(args);
    walk w;
    walk_begin(&w, args->view, 2, args->view->ndim, row);
    for (; row < end; row++, walk_next(&w)) {
        if (t.fft->direct != 0) {
            NAME(transform_row)
            (&t, (const R *)(const void *)walk_at(&w, 0), t.fft->of.inverse != 0, (R)t.fft->of.scale,
             (R *)(void *)walk_at(&w, 1));
            continue;
        }
        NAME(fill)(&t, walk_at(&w, 0), 0, t.fft->of.length, t.row);
        NAME(transform_row)(&t, t.row, false, 1, t.row);
        if (t.fft->of.chirp != 0) {
            NAME(convolve)(t.spectrum, (R)(1 / (double)t.fft->of.length), t.fft->of.length, t.row);
            NAME(transform_row)(&t, t.row, false, 1, t.row);
        }
        NAME(drain)(&t, t.row, 0, t.fft->of.inner, walk_at(&w, 1));
    }
}

/* ---- long rows, by all threads: views 2 and 3 are the scratch, rows and folded ---- */

static unsigned char *NAME(operand_row)(const mica__cpu_args *args, uint32_t v, uint64_t row)
{
    walk w;
    walk_begin(&w, args->view, 2, args->view->ndim, row);
    return walk_at(&w, v);
}

static R *NAME(scratch_row)(const mica__cpu_args *args, uint64_t row)
{
    const mica__cpu_fft *fft = args->params;
    return (R *)(void *)args->view[2].data + row * fft->of.length * 2;
}

static void NAME(run_pieces)(const mica__cpu_args *args, uint64_t piece, uint64_t end, int step)
{
    const NAME(fft) t = NAME(fft_of)(args);
    const mica__fourier *of = &t.fft->of;
    const uint64_t pieces = (of->length + MICA__CPU_FFT_PIECE - 1) / MICA__CPU_FFT_PIECE;
    for (; piece < end; piece++) {
        const uint64_t row = piece / pieces, from = piece % pieces * MICA__CPU_FFT_PIECE;
        const uint64_t rest = of->length - from,
                       to = from + (rest < MICA__CPU_FFT_PIECE ? rest : MICA__CPU_FFT_PIECE);
        R *own = NAME(scratch_row)(args, row);
        if (step == 0)
            NAME(fill)(&t, row < of->rows ? NAME(operand_row)(args, 0, row) : NULL, from, to, own + 2 * from);
        else if (step == 1)
            NAME(convolve)
        (NAME(scratch_row)(args, of->rows) + 2 * from, (R)(1 / (double)of->length), to - from,
         own + 2 * from);
        else NAME(drain)(&t, own, from, to, NAME(operand_row)(args, 1, row));
    }
}

/* A unit is MICA__CPU_FFT_LANES columns of a row. */
static void NAME(run_columns)(const mica__cpu_args *args, uint64_t unit, uint64_t end, bool second)
{
    const NAME(fft) t = NAME(fft_of)(args);
    const mica__cpu_fft *fft = t.fft;
    const uint64_t columns = second ? fft->first : fft->second;
    const uint64_t blocks = (columns + MICA__CPU_FFT_LANES - 1) / MICA__CPU_FFT_LANES;
    const bool swap = fft->direct != 0 && fft->of.inverse != 0;
    for (; unit < end; unit++) {
        const uint64_t row = unit / blocks, from = unit % blocks * MICA__CPU_FFT_LANES;
        R *folded = (R *)(void *)args->view[3].data + row * mica__cpu_fft_folded(fft) * 2;
        R *own = fft->direct != 0 ? (R *)(void *)NAME(operand_row)(args, second, row)
                                  : NAME(scratch_row)(args, row);
        for (uint64_t c = from; c < from + MICA__CPU_FFT_LANES && c < columns; c += LANES)
            if (second)
                NAME(second_columns)(&t, folded, c, swap, fft->direct != 0 ? (R)fft->of.scale : 1, own);
            else
                NAME(first_columns)(&t, own, swap, c, folded);
    }
}
