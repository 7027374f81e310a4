/*
 * ops_random.c - random numbers as nodes: regions over the step `random`. The offset, which repeats to the shape of the draw, is what gives it that shape.
 */
#include "graph/ops_build.h"
#include "ops/draws.h"

/* One u64 as a scalar; 0 where there is none. */
static mica_tensor word(mica_graph *graph, const char *call, const char *name, mica_tensor x)
{
    mica__type type;
    if (x == 0)
        return mica_graph_number(graph, MICA_DTYPE_U64, 0);
    if (!mica__build_takes(graph, call, name, x, &type))
        return 0;
    if (type.dtype != MICA_DTYPE_U64 || mica__type_elements(&type) != 1)
        return mica__build_refuse(graph, call, name, &type, "is not one u64");
    return type.ndim == 0 ? x : mica_graph_reshape(graph, x, 0, NULL);
}

/* Begins a draw of this shape; `x` 0, or what it is made for. Gives the 64 bits of each element. */
static bool begin(mica__writer *w, mica_graph *graph, const char *call, uint32_t ndim, const uint64_t *shape,
                  const char *name, mica_tensor x, const mica_graph_draw *draw, st_value *out_x,
                  st_value *out_bits)
{
    const mica_graph_draw none = {0, 0};
    char words[160];
    if (!mica__graph_begins(graph, call))
        return false;
    if (ndim > MICA_MAX_DIMS || (ndim != 0 && shape == NULL))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "ndim is %u", ndim) != 0;
    for (uint32_t d = 1; d < ndim; d++)
        if (!mica__size_known(shape[d]))
            return mica__graph_fail(graph, MICA_ERR_UNSUPPORTED, call,
                                    "shape %s has a size behind the first that is no number",
                                    mica__shape_words(graph, ndim, shape, words)) != 0;
    draw = draw != NULL ? draw : &none;
    const mica_tensor seed = word(graph, call, "draw.seed", draw->seed);
    mica_tensor offset = word(graph, call, "draw.offset", draw->offset);
    if (x == 0 && offset != 0)
        offset = mica__build_expand(graph, call, "shape", offset, ndim, shape);
    if (seed == 0 || offset == 0)
        return mica__build_end(graph, call, 0) != 0;
    mica__write_begin(w, graph, call);
    const st_value first = mica__write_input(w, "draw.offset", offset),
                   key = mica__write_input(w, "draw.seed", seed);
    *out_x = x == 0 ? st_none : mica__write_input(w, name, x);
    const st_value place = st_add(mica__draw_place(&w->steps, ndim, shape), first);
    *out_bits = st_step(MICA_SCALAR_RANDOM, MICA_REGISTER_U64, place, key, st_none);
    return graph->status == MICA_OK;
}

static mica_tensor finish(mica__writer *w, st_value value, mica_dtype dtype)
{
    mica__write_output(w, value, dtype);
    return mica__write_end(w, NULL);
}

static bool is_real(mica_graph *graph, const char *call, mica_dtype dtype)
{
    if (dtype == MICA_DTYPE_F32 || dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16 ||
        dtype == MICA_DTYPE_F64)
        return true;
    return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "dtype is %s, not f32, f16, bf16 or f64",
                            mica_dtype_name(dtype)) != 0;
}

mica_tensor mica_graph_uniform(mica_graph *graph, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                               double low, double high, const mica_graph_draw *draw)
{
    static const char call[] = "uniform";
    mica__writer w;
    st_value bits, none;
    if (!mica__graph_begins(graph, call) || !is_real(graph, call, dtype))
        return 0;
    const mica_status status = mica__draw_uniform_check(call, dtype, low, high);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status);
    if (!begin(&w, graph, call, ndim, shape, NULL, 0, draw, &none, &bits))
        return 0;
    return finish(&w, mica__draw_uniform(bits, dtype, low, high), dtype);
}

mica_tensor mica_graph_normal(mica_graph *graph, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                              double mean, double deviation, const mica_graph_draw *draw)
{
    static const char call[] = "normal";
    const mica_register type = mica__build_real(dtype);
    mica__writer w;
    st_value bits, none;
    if (!mica__graph_begins(graph, call) || !is_real(graph, call, dtype))
        return 0;
    const mica_status status = mica__draw_normal_check(call, type, mean, deviation);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status);
    if (!begin(&w, graph, call, ndim, shape, NULL, 0, draw, &none, &bits))
        return 0;
    return finish(&w, mica__draw_normal(bits, type, mean, deviation), dtype);
}

mica_tensor mica_graph_random_integers(mica_graph *graph, mica_dtype dtype, uint32_t ndim,
                                       const uint64_t *shape, int64_t low, int64_t high,
                                       const mica_graph_draw *draw)
{
    static const char call[] = "random_integers";
    mica__writer w;
    st_value bits, none;
    if (!mica__graph_begins(graph, call))
        return 0;
    if (dtype <= MICA_DTYPE_NONE || dtype >= MICA_DTYPE_COUNT)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "dtype is %d", (int)dtype);
    const mica_status status = mica__draw_whole_check(call, dtype, low, high);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status);
    if (!begin(&w, graph, call, ndim, shape, NULL, 0, draw, &none, &bits))
        return 0;
    return finish(&w, mica__draw_whole(bits, low, high, mica_register_of(dtype)), dtype);
}

/* A draw for each element of x, which is of a real type. */
static bool begin_for(mica__writer *w, mica_graph *graph, const char *call, const char *name, mica_tensor x,
                      const mica_graph_draw *draw, mica__type *type, st_value *out_x, st_value *out_bits)
{
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, name, x, type))
        return false;
    if (!is_real(graph, call, type->dtype))
        return false;
    return begin(w, graph, call, type->ndim, type->shape, name, x, draw, out_x, out_bits);
}

mica_tensor mica_graph_bernoulli(mica_graph *graph, mica_dtype dtype, mica_tensor probability,
                                 const mica_graph_draw *draw)
{
    static const char call[] = "bernoulli";
    mica__writer w;
    mica__type type;
    st_value p, bits;
    if (!begin_for(&w, graph, call, "probability", probability, draw, &type, &p, &bits))
        return 0;
    const mica_register reg = mica_register_of(dtype);
    if (reg == MICA_REGISTER_NONE || dtype == MICA_DTYPE_C64)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "dtype is %s",
                                mica_dtype_name(dtype));
    return finish(&w, st_cast(mica__draw_chosen(bits, p), reg), dtype);
}

mica_tensor mica_graph_dropout(mica_graph *graph, mica_tensor x, double p, const mica_graph_draw *draw)
{
    static const char call[] = "dropout";
    mica__writer w;
    mica__type type;
    st_value value, bits;
    if (!mica__graph_begins(graph, call))
        return 0;
    const mica_status status = mica__draw_dropout_check(call, p);
    if (status != MICA_OK)
        return mica__build_failed(graph, call, status);
    if (!begin_for(&w, graph, call, "x", x, draw, &type, &value, &bits))
        return 0;
    return finish(&w, mica__draw_dropout(bits, value, p), type.dtype);
}

mica_tensor mica_graph_categorical(mica_graph *graph, mica_tensor logits, const mica_graph_draw *draw)
{
    static const char call[] = "categorical";
    mica__writer w;
    mica__type type;
    st_value value, bits;
    if (!begin_for(&w, graph, call, "logits", logits, draw, &type, &value, &bits))
        return 0;
    const mica_dtype dtype = type.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    const mica_tensor scores = finish(&w, mica__draw_gumbel(bits, value), dtype);
    return mica__build_end(graph, call, scores == 0 ? 0 : mica_graph_argmax(graph, scores, -1, 0));
}

/* ---- sampling ---- */

mica_tensor mica_graph_penalize(mica_graph *graph, const mica_graph_penalize_operands *operands)
{
    const mica_graph_penalize_operands none = {0}, *o = operands != NULL ? operands : &none;
    return mica__build_op(
        graph, MICA_OP_PENALIZE, NULL,
        (const mica_tensor[]){o->logits, o->settings, o->bias_ids, o->bias, o->mask, o->history}, 6);
}

mica_tensor mica_graph_sample(mica_graph *graph, mica_tensor logits, mica_tensor raw, mica_tensor settings,
                              mica_tensor history, mica_graph_sample_outputs *out)
{
    mica_tensor made[4];
    (void)mica_graph_op(graph, MICA_OP_SAMPLE, NULL, (const mica_tensor[]){logits, raw, settings, history}, 4,
                        out != NULL ? 15 : 4, NULL, made, 4);
    if (out != NULL)
        *out = (mica_graph_sample_outputs){
            .settings = made[0], .history = made[1], .ids = made[2], .log_probabilities = made[3]};
    return made[2];
}

/* A row of settings for each row of logits; the number of the draw goes up from row to row, and by `pick`. */
static mica_tensor settings_of(mica_graph *graph, const char *call, const mica_sample_settings *settings,
                               mica_tensor pick, uint64_t rows)
{
    static const uint32_t counts[MICA_SAMPLE_WORDS] = {0, 0, 1};
    const uint64_t shape[] = {rows, MICA_SAMPLE_WORDS}, one[] = {1, MICA_SAMPLE_WORDS};
    const mica_tensor row = mica_graph_constant(graph, MICA_DTYPE_U32, 2, one, settings, sizeof *settings),
                      moves = mica_graph_constant(graph, MICA_DTYPE_U32, 2, one, counts, sizeof counts);
    mica_tensor at = mica_graph_index(graph, MICA_DTYPE_U32, 2, shape, 0);
    if (pick != 0 && at != 0) {
        mica__type type;
        if (!mica__build_takes(graph, call, "pick", pick, &type))
            return 0;
        if (type.dtype != MICA_DTYPE_U32 || mica__type_elements(&type) != 1)
            return mica__build_refuse(graph, call, "pick", &type, "is not one u32");
        at = mica_graph_add(graph, at, type.ndim == 0 ? pick : mica_graph_reshape(graph, pick, 0, NULL));
    }
    return at == 0 ? 0 : mica_graph_add(graph, row, mica_graph_mul(graph, at, moves));
}

mica_tensor mica_graph_sample_rows(mica_graph *graph, mica_tensor logits,
                                   const mica_sample_settings *settings, mica_tensor pick)
{
    static const char call[] = "sample_rows";
    mica__type type;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "logits", logits, 2, 2, &type))
        return 0;
    if (settings == NULL || settings->history_last != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "settings %s",
                                settings == NULL ? "is NULL"
                                                 : "looks back on a history: that is mica_graph_sample");
    if (type.shape[0] == MICA_SIZE_UNKNOWN)
        return mica__build_refuse(graph, call, "logits", &type, "has rows of which nothing is known");
    const mica_tensor words = settings_of(graph, call, settings, pick, type.shape[0]);
    return mica__build_end(graph, call, words == 0 ? 0 : mica_graph_sample(graph, logits, 0, words, 0, NULL));
}
