/*
 * delta_chunk_body.h - a head of the delta rule by chunks, as ops_recurrent.h has it, for REAL float or double. Whoever includes it has NAME() for
 * names, and
 *   NAME(product)(m, k, n, a, a_step, b, b_step, c, c_step)   c [m, n] += a [m, k] b [k, n], n a multiple of 16
 *   NAME(exponents)(x, n, to)                                 to [n] = e^x, n a multiple of 16
 *   NAME(load_keys)(chunk, slot, token, scale, to), NAME(load_values)(chunk, token, to), NAME(load_element)(view, token, head, absent),
 *   NAME(store_values)(chunk, token, from)                    rows of operands
 *
 * All sums inside of a chunk are products of matrices whose rows are whole vectors, filled up with zeros. Where a token must not see those behind it
 * the sums end in time, row by row: a zero in their place would let a NaN through.
 */
#define CHUNK MICA__CPU_DELTA_CHUNK
#define BLOCK 8u /* rows that are solved one by one, behind a product with all before them */

typedef struct NAME(chunk) {
    const mica__cpu_view *view;
    const mica_delta_params *delta;
    uint64_t head, dim, columns;
    uint64_t deep, wide;        /* dim and columns, padded */
    REAL *q, *k;                /* [CHUNK, deep] */
    REAL *turned;               /* k, [deep, CHUNK] */
    REAL *value, *change, *out; /* v, d and y, [CHUNK, wide] */
    REAL *decay, *mix; /* [CHUNK, CHUNK], used up to the diagonal: e^D_ij; k.k or q.k with their factors */
    REAL *start, *beta, *stretch, *g; /* [CHUNK]; start: e^D_i0 */
    REAL *state;                      /* [dim, wide] */
} NAME(chunk);

static NAME(chunk) NAME(chunk_in)(const mica__cpu_args *args)
{
    const mica__cpu_delta *params = args->params;
    NAME(chunk) c = {.view = args->view, .delta = &params->delta};
    c.dim = args->view[MICA__DELTA_Q].shape[2];
    c.columns = args->view[MICA__DELTA_V].shape[2];
    c.deep = mica__cpu_delta_padded(c.dim);
    c.wide = mica__cpu_delta_padded(c.columns);
    c.q = args->local;
    c.k = c.q + CHUNK * c.deep;
    c.turned = c.k + CHUNK * c.deep;
    c.value = c.turned + CHUNK * c.deep;
    c.change = c.value + CHUNK * c.wide;
    c.out = c.change + CHUNK * c.wide;
    c.decay = c.out + CHUNK * c.wide;
    c.mix = c.decay + CHUNK * CHUNK;
    c.start = c.mix + CHUNK * CHUNK;
    c.beta = c.start + CHUNK;
    c.stretch = c.beta + CHUNK;
    c.g = c.stretch + CHUNK;
    c.state = c.g + CHUNK;
    memset(c.q, 0, CHUNK * (3 * c.deep + 3 * c.wide) * sizeof(REAL)); /* what no token fills */
    return c;
}

/* D_ij = D_(i-1)j + g_i for all j before i at once: a sum of what lies between alone, exact to its own size. */
static void NAME(find_decays)(const NAME(chunk) * c, uint64_t n)
{
    REAL all = 0;
    memset(c->stretch, 0, CHUNK * sizeof(REAL));
    memset(c->start, 0, CHUNK * sizeof(REAL));
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t j = 0; j < CHUNK; j++)
            c->stretch[j] += c->g[i];
        c->stretch[i] = 0;
        all += c->g[i];
        c->start[i] = all;
        NAME(exponents)(c->stretch, (i + 16) / 16 * 16, c->decay + i * CHUNK);
    }
    NAME(exponents)(c->start, CHUNK, c->start);
}

static void NAME(load_chunk)(const NAME(chunk) * c, uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        NAME(load_keys)(c, MICA__DELTA_Q, first + i, c->delta->scale, c->q + i * c->deep);
        NAME(load_keys)(c, MICA__DELTA_K, first + i, 1, c->k + i * c->deep);
        NAME(load_values)(c, first + i, c->value + i * c->wide);
        c->g[i] = NAME(load_element)(&c->view[MICA__DELTA_G], first + i, c->head, 0);
        c->beta[i] = NAME(load_element)(&c->view[MICA__DELTA_BETA], first + i, c->head, 1);
    }
    for (uint64_t j = 0; j < c->dim; j++)
        for (uint64_t i = 0; i < n; i++)
            c->turned[j * CHUNK + i] = c->k[i * c->deep + j];
    NAME(find_decays)(c, n);
}

/* mix_ij = a_i.k_j e^D_ij up to the diagonal, times -beta_i where it is the delta rule's. */
static void NAME(find_mix)(const NAME(chunk) * c, uint64_t n, const REAL *a, bool negative)
{
    memset(c->mix, 0, n * CHUNK * sizeof(REAL));
    for (uint64_t i = 0; i < n; i += 16) {
        const uint64_t rows = n - i < 16 ? n - i : 16;
        NAME(product)
        (rows, c->dim, i + 16, a + i * c->deep, c->deep, c->turned, CHUNK, c->mix + i * CHUNK, CHUNK);
    }
    for (uint64_t i = 0; i < n; i++) {
        const REAL factor = negative ? -c->beta[i] : 1;
        for (uint64_t j = 0; j <= i; j++)
            c->mix[i * CHUNK + j] *= factor * c->decay[i * CHUNK + j];
    }
}

/* to_i += sum of mix_ij d_j over j < i, or with `itself` over j <= i. `to` may be d: rows are finished in order. */
static void NAME(add_mixed)(const NAME(chunk) * c, uint64_t n, bool itself, REAL *to)
{
    for (uint64_t b = 0; b < n; b += BLOCK) {
        const uint64_t end = n - b < BLOCK ? n : b + BLOCK;
        NAME(product)
        (end - b, b, c->wide, c->mix + b * CHUNK, CHUNK, c->change, c->wide, to + b * c->wide, c->wide);
        for (uint64_t i = b; i < end; i++)
            NAME(product)
        (1, i - b + itself, c->wide, c->mix + i * CHUNK + b, CHUNK, c->change + b * c->wide, c->wide,
         to + i * c->wide, c->wide);
    }
}

static void NAME(find_changes)(const NAME(chunk) * c, uint64_t n)
{
    const bool correct = c->delta->rule == MICA_DELTA_CORRECT;
    memset(c->change, 0, n * c->wide * sizeof(REAL));
    if (correct)
        NAME(product)(n, c->dim, c->wide, c->k, c->deep, c->state, c->wide, c->change, c->wide);
    for (uint64_t i = 0; i < n; i++) {
        const REAL beta = c->beta[i], start = c->start[i], *value = c->value + i * c->wide;
        REAL *change = c->change + i * c->wide;
        for (uint64_t v = 0; v < c->wide; v++)
            change[v] = beta * (correct ? value[v] - start * change[v] : value[v]);
    }
    if (!correct)
        return;
    NAME(find_mix)(c, n, c->k, true);
    NAME(add_mixed)(c, n, false, c->change);
}

static void NAME(find_outputs)(const NAME(chunk) * c, uint64_t first, uint64_t n)
{
    const mica__cpu_view *skip = &c->view[MICA__DELTA_SKIP];
    const REAL through = NAME(load_element)(skip, c->head, 0, 0);
    memset(c->out, 0, n * c->wide * sizeof(REAL));
    NAME(product)(n, c->dim, c->wide, c->q, c->deep, c->state, c->wide, c->out, c->wide);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t v = 0; v < c->wide; v++)
            c->out[i * c->wide + v] *= c->start[i];
    NAME(find_mix)(c, n, c->q, false);
    NAME(add_mixed)(c, n, true, c->out);
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t v = 0; v < c->wide && skip->data != NULL; v++)
            c->out[i * c->wide + v] += through * c->value[i * c->wide + v];
        NAME(store_values)(c, first + i, c->out + i * c->wide);
    }
}

static void NAME(run_chunk)(const NAME(chunk) * c, uint64_t first, uint64_t n)
{
    NAME(load_chunk)(c, first, n);
    NAME(find_changes)(c, n);
    NAME(find_outputs)(c, first, n);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t v = 0; v < c->wide; v++)
            c->change[i * c->wide + v] *= c->decay[(n - 1) * CHUNK + i];
    for (uint64_t e = 0; e < c->dim * c->wide; e++)
        c->state[e] *= c->start[n - 1];
    NAME(product)(c->dim, n, c->wide, c->turned, CHUNK, c->change, c->wide, c->state, c->wide);
}

static void NAME(run_sequence)(const NAME(chunk) * c, const sequence *s)
{
    const mica__cpu_view *state = &c->view[MICA__DELTA_STATE], *next = &c->view[MICA__DELTA_NEXT_STATE];
    memset(c->state, 0, c->dim * c->wide * sizeof(REAL));
    for (uint64_t j = 0; s->from != NULL && j < c->dim; j++)
        memcpy(c->state + j * c->wide, s->from + c->head * state->stride[1] + j * state->stride[2],
               c->columns * sizeof(REAL));
    for (uint64_t t = 0; t < s->count; t += CHUNK)
        NAME(run_chunk)(c, s->first + t, s->count - t < CHUNK ? s->count - t : CHUNK);
    for (uint64_t j = 0; s->to != NULL && j < c->dim; j++)
        memcpy(s->to + c->head * next->stride[1] + j * next->stride[2], c->state + j * c->wide,
               c->columns * sizeof(REAL));
}

static void NAME(run_heads)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__cpu_delta *params = args->params;
    const mica__cpu_sequences *of = &params->sequences;
    const uint64_t heads = args->view[MICA__DELTA_V].shape[1], end = mica__cpu_rows_end(&params->range, last);
    NAME(chunk) c = NAME(chunk_in)(args);
    for (uint64_t row = mica__cpu_rows_begin(&params->range, first); row < end; row++) {
        if (row == of->count * heads) {
            sequence_gaps(args, of);
            continue;
        }
        const sequence s = sequence_of(args, of, row / heads);
        c.head = row % heads;
        if (s.fine && s.count >= params->chunk_from)
            NAME(run_sequence)(&c, &s);
    }
}

#undef CHUNK
#undef BLOCK
