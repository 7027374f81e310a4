/*
 * attention_backward_body.h - attention_backward for numbers of type REAL, whose functions are NAME(..), EXP and TANH; WIDE where that is double. Included once for each.
 *
 * A tile keeps rows of one side (queries or keys) in memory as REAL, and each row of the other side is brought to REAL once for all of
 * them.
 */

/* n numbers at `src` as REAL: in `tmp`, or where they lie. */
static const REAL *NAME(load)(const unsigned char *src, uint16_t dtype, uint64_t n, REAL *tmp)
{
    if (WIDE || dtype == MICA_DTYPE_F32)
        return (const REAL *)(const void *)src;
    return (const REAL *)(const void *)row_f32(src, dtype, n, (float *)(void *)tmp);
}

static void NAME(store)(unsigned char *dst, uint16_t dtype, const REAL *src, uint64_t n)
{
    if (WIDE)
        memcpy(dst, src, n * sizeof(REAL));
    else
        row_store(dst, dtype, (const float *)(const void *)src, n);
}

static REAL NAME(dot)(const REAL *a, const REAL *b, uint64_t n)
{
    REAL lane[LANES] = {0}, rest = 0;
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint64_t l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (; i < n; i++)
        rest += a[i] * b[i];
    for (uint64_t step = LANES / 2; step > 0; step /= 2)
        for (uint64_t l = 0; l < step; l++)
            lane[l] += lane[l + step];
    return lane[0] + rest;
}

static void NAME(add_scaled)(REAL factor, const REAL *x, uint64_t n, REAL *sum)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] += factor * x[i];
}

/* A row of the queries: what every key asks of it. */
typedef struct NAME(query) {
    uint64_t token, head;
    backward_sight sight;
    const REAL *q, *dy;
    REAL lse, delta; /* delta = dy.y */
} NAME(query);

static REAL NAME(of_head)(const mica__cpu_view *view, uint64_t head)
{
    return (REAL)any_element(view->data + head * view->stride[0], view->dtype);
}

/* `y` is room for a row. */
static void NAME(load_query)(const mica__cpu_args *args, uint64_t token, uint64_t head, REAL *q, REAL *dy,
                             REAL *y, NAME(query) * out)
{
    const mica__cpu_view *lse = view_of(args, SLOT(LSE)), *values = view_of(args, SLOT(Y));
    const uint64_t dim = view_of(args, SLOT(Q))->shape[2], v_dim = values->shape[2];
    out->token = token;
    out->head = head;
    (void)look(args, token, &out->sight);
    out->q = NAME(load)(row_at(view_of(args, SLOT(Q)), token, head), view_of(args, SLOT(Q))->dtype, dim, q);
    out->dy =
        NAME(load)(row_at(view_of(args, SLOT(DY)), token, head), view_of(args, SLOT(DY))->dtype, v_dim, dy);
    out->lse = (REAL)any_element(row_at(lse, token, head), lse->dtype);
    out->delta = NAME(dot)(out->dy, NAME(load)(row_at(values, token, head), values->dtype, v_dim, y), v_dim);
}

/* What a key weighs for a query, and the gradient of their product. Both 0 where the mask hides it. */
typedef struct NAME(weight) {
    REAL p, ds;
} NAME(weight);

static REAL NAME(mask_of)(const mica__cpu_args *args, const NAME(query) * query, uint64_t key)
{
    const mica__cpu_view *mask = view_of(args, SLOT(MASK));
    const uint64_t head = mask->ndim > 2 && mask->shape[0] > 1 ? query->head * mask->stride[0] : 0;
    const unsigned char *at =
        mask->data + head + query->token * mask->stride[mask->ndim - 2] + key * mask->stride[mask->ndim - 1];
    if (mask->dtype == MICA_DTYPE_BOOL)
        return *at != 0 ? 0 : -(REAL)INFINITY;
    return (REAL)any_element(at, mask->dtype);
}

static NAME(weight) NAME(weigh)(const mica__cpu_args *args, const NAME(query) * query, uint64_t key,
                                const REAL *k, const REAL *v)
{
    const mica_attention_params *a = &((const mica__attention_backward_plan *)args->params)->attention;
    const uint64_t dim = view_of(args, SLOT(Q))->shape[2], v_dim = view_of(args, SLOT(Y))->shape[2];
    const REAL cap = (REAL)a->softcap, scale = (REAL)a->scale;
    REAL score = NAME(dot)(query->q, k, dim) * scale, slope = scale;
    if (cap > 0) {
        const REAL bent = TANH(score / cap);
        score = cap * bent;
        slope *= 1 - bent * bent;
    }
    if (view_of(args, SLOT(MASK))->data != NULL)
        score += NAME(mask_of)(args, query, key);
    if (view_of(args, SLOT(SLOPES))->data != NULL)
        score += NAME(of_head)(view_of(args, SLOT(SLOPES)), query->head) *
                 (REAL)((int64_t)key - query->sight.position);
    if (score == -(REAL)INFINITY || query->lse == -(REAL)INFINITY)
        return (NAME(weight)){0, 0};
    const REAL p = EXP(score - query->lse);
    return (NAME(weight)){p, p * (NAME(dot)(query->dy, v, v_dim) - query->delta) * slope};
}

static bool NAME(sees)(const NAME(query) * query, uint64_t key)
{
    return key >= query->sight.first && key < query->sight.last;
}

/* dq of a tile of tokens and the query heads of one kv head, at most MICA__ATTENTION_BACKWARD_ROWS rows at a time. */
static void NAME(run_rows)(const mica__cpu_args *args, uint64_t token, uint64_t tokens, uint64_t head,
                           uint64_t heads, uint64_t kv_head)
{
    const mica__cpu_view *k = view_of(args, SLOT(K)), *v = view_of(args, SLOT(V)),
                         *dq = view_of(args, SLOT(DQ));
    const uint64_t dim = k->shape[2], v_dim = v->shape[2], rows = tokens * heads;
    NAME(query) query[MICA__ATTENTION_BACKWARD_ROWS];
    REAL *sum = args->local, *q = sum + rows * dim, *dy = q + rows * dim, *k_row = dy + rows * v_dim,
         *v_row = k_row + dim, *y = v_row + v_dim;
    uint64_t first = UINT64_MAX, last = 0;
    for (uint64_t r = 0; r < rows; r++) {
        NAME(load_query)
        (args, token + r / heads, head + r % heads, q + r * dim, dy + r * v_dim, y, &query[r]);
        first = query[r].sight.first < first ? query[r].sight.first : first;
        last = query[r].sight.last > last ? query[r].sight.last : last;
    }
    memset(sum, 0, rows * dim * sizeof *sum);
    for (uint64_t key = first; key < last; key++) {
        const REAL *key_row = NAME(load)(row_at(k, key, kv_head), k->dtype, dim, k_row);
        const REAL *value_row = NAME(load)(row_at(v, key, kv_head), v->dtype, v_dim, v_row);
        for (uint64_t r = 0; r < rows; r++)
            if (NAME(sees)(&query[r], key))
                NAME(add_scaled)
        (NAME(weigh)(args, &query[r], key, key_row, value_row).ds, key_row, dim, sum + r * dim);
    }
    for (uint64_t r = 0; r < rows; r++)
        NAME(store)(row_at(dq, query[r].token, query[r].head), dq->dtype, sum + r * dim, dim);
}

static void NAME(run_queries)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__attention_backward_plan *plan = args->params;
    const mica__cpu_view *q = view_of(args, SLOT(Q)), *k = view_of(args, SLOT(K));
    const uint64_t kv_heads = k->shape[1], group = q->shape[1] / kv_heads, kv_head = unit % kv_heads;
    const uint64_t token = unit / kv_heads * plan->tile, left = q->shape[0] - token;
    const uint64_t tokens = left < plan->tile ? left : plan->tile;
    for (uint64_t t = 0; t < tokens; t++) {
        backward_sight sight;
        if (!look(args, token + t, &sight))
            mica__cpu_fault(args);
    }
    if (plan->tile * group <= MICA__ATTENTION_BACKWARD_ROWS) {
        NAME(run_rows)(args, token, tokens, kv_head * group, group, kv_head);
        return;
    }
    for (uint64_t h = 0; h < group; h += MICA__ATTENTION_BACKWARD_ROWS) { /* a tile is one token then */
        const uint64_t heads =
            group - h < MICA__ATTENTION_BACKWARD_ROWS ? group - h : MICA__ATTENTION_BACKWARD_ROWS;
        NAME(run_rows)(args, token, tokens, kv_head * group + h, heads, kv_head);
    }
}

/* dk and dv of a tile of keys of one kv head: all its queries go by. */
static void NAME(run_keys)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__attention_backward_plan *plan = args->params;
    const mica__cpu_view *q = view_of(args, SLOT(Q)), *k = view_of(args, SLOT(K)),
                         *v = view_of(args, SLOT(V));
    const mica__cpu_view *dk = view_of(args, SLOT(DK)), *dv = view_of(args, SLOT(DV));
    const uint64_t kv_heads = k->shape[1], group = q->shape[1] / kv_heads, kv_head = unit % kv_heads;
    const uint64_t first = unit / kv_heads * plan->tile, left = k->shape[0] - first;
    const uint64_t keys = left < plan->tile ? left : plan->tile, dim = k->shape[2], v_dim = v->shape[2];
    const REAL *key_row[MICA__ATTENTION_BACKWARD_ROWS], *value_row[MICA__ATTENTION_BACKWARD_ROWS];
    REAL *k_sum = args->local, *v_sum = k_sum + keys * dim, *k_room = v_sum + keys * v_dim,
         *v_room = k_room + keys * dim, *q_row = v_room + keys * v_dim, *dy_row = q_row + dim,
         *y = dy_row + v_dim;
    for (uint64_t i = 0; i < keys; i++) {
        key_row[i] = NAME(load)(row_at(k, first + i, kv_head), k->dtype, dim, k_room + i * dim);
        value_row[i] = NAME(load)(row_at(v, first + i, kv_head), v->dtype, v_dim, v_room + i * v_dim);
    }
    memset(k_sum, 0, keys * (dim + v_dim) * sizeof *k_sum);
    for (uint64_t row = 0; row < q->shape[0] * group; row++) {
        NAME(query) query;
        backward_sight sight;
        (void)look(args, row / group, &sight);
        if (sight.last <= first || sight.first >= first + keys)
            continue;
        NAME(load_query)(args, row / group, kv_head * group + row % group, q_row, dy_row, y, &query);
        for (uint64_t i = 0; i < keys; i++) {
            if (!NAME(sees)(&query, first + i))
                continue;
            const NAME(weight) w = NAME(weigh)(args, &query, first + i, key_row[i], value_row[i]);
            NAME(add_scaled)(w.ds, query.q, dim, k_sum + i * dim);
            NAME(add_scaled)(w.p, query.dy, v_dim, v_sum + i * v_dim);
        }
    }
    for (uint64_t i = 0; i < keys; i++) {
        NAME(store)(row_at(dk, first + i, kv_head), dk->dtype, k_sum + i * dim, dim);
        NAME(store)(row_at(dv, first + i, kv_head), dv->dtype, v_sum + i * v_dim, v_dim);
    }
}

static void NAME(run_sink)(const mica__cpu_args *args, uint64_t head)
{
    const mica__cpu_view *q = view_of(args, SLOT(Q)), *out = view_of(args, SLOT(DSINKS));
    const uint64_t dim = q->shape[2], v_dim = view_of(args, SLOT(Y))->shape[2];
    REAL *q_row = args->local, *dy_row = q_row + dim, *y = dy_row + v_dim, sum = 0;
    const REAL sink = NAME(of_head)(view_of(args, SLOT(SINKS)), head);
    for (uint64_t token = 0; token < q->shape[0]; token++) {
        NAME(query) query;
        backward_sight sight;
        if (!look(args, token, &sight))
            continue;
        NAME(load_query)(args, token, head, q_row, dy_row, y, &query);
        if (sink != -(REAL)INFINITY && query.lse != -(REAL)INFINITY)
            sum -= EXP(sink - query.lse) * query.delta;
    }
    NAME(store)(out->data + head * out->stride[0], out->dtype, &sum, 1);
}

static void NAME(run_unit)(const mica__cpu_args *args, uint64_t unit)
{
    const mica__attention_backward_plan *plan = args->params;
    switch (plan->mode) {
    case MICA__ATTENTION_BACKWARD_QUERIES: NAME(run_queries)(args, unit); break;
    case MICA__ATTENTION_BACKWARD_KEYS: NAME(run_keys)(args, unit); break;
    default: NAME(run_sink)(args, unit); break;
    }
}
