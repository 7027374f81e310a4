/*
 * ops_quantize.c - codes with scales as nodes. A block is a dimension of its own, to which x is filled up; the two codes of a byte are two operands that take every
 * second element.
 */
#include "graph/ops_build.h"
#include "ops/codes.h"

#define ULL(x) ((unsigned long long)(x))

typedef struct coder {
    mica_graph *graph;
    const char *call;
    const mica_graph_quantizer *by;
    mica_quantizer own; /* its numbers, completed */
    mica__type x;       /* the numbers' shape */
    uint32_t at;        /* the dimension of blocks */
    uint64_t blocks;    /* 0: none */
} coder;

/* ---- shapes ---- */

static bool even_last(const mica__type *x)
{
    return x->ndim != 0 && mica__size_known(x->shape[x->ndim - 1]) && x->shape[x->ndim - 1] % 2 == 0;
}

static bool check_packed(coder *c)
{
    const mica_graph_quantizer *by = c->by;
    if (by->packed > 1 || by->away > 1 || (unsigned)by->code > MICA_CODE_FP4)
        return mica__graph_fail(c->graph, MICA_ERR_INVALID_ARGUMENT, c->call,
                                "by.packed, away or code is not 0 or 1") != 0;
    if (by->packed == 0)
        return true;
    if (!even_last(&c->x) || (by->axis == 0 && by->block % 2 != 0))
        return mica__build_refuse(c->graph, c->call, "x", &c->x,
                                  "is packed, but its last dimension or the block along it is not even") != 0;
    const bool integer = by->code == MICA_CODE_INTEGER;
    const bool held = (by->low == 0 && (by->high == 0 || by->high == 15)) ||
                      (by->low >= -8 && by->low < 0 && by->high <= 7 && by->high >= 0) ||
                      (by->low >= 0 && by->high <= 15);
    return !integer || held ||
           mica__graph_fail(c->graph, MICA_ERR_INVALID_ARGUMENT, c->call,
                            "by.low is %d and high %d, which 4 bits do not hold", by->low, by->high) != 0;
}

/* Begins to code numbers of shape `x`. */
static bool begin(coder *c, mica_graph *graph, const char *call, const mica_graph_quantizer *by,
                  const mica__type *x)
{
    *c = (coder){.graph = graph, .call = call, .by = by, .x = *x};
    if (by->low > by->high)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "by.low is %d, above high, %d",
                                by->low, by->high) != 0;
    if (by->zero_points != 0 && by->biases != 0)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                "by.zero_points and biases are both there") != 0;
    c->own = (mica_quantizer){.low = by->low,
                              .high = by->high,
                              .block = by->block,
                              .axis = by->axis,
                              .away = by->away,
                              .packed = by->packed,
                              .code = by->code};
    if (!check_packed(c))
        return false;
    if (by->block == 0)
        return true;
    if (by->axis >= x->ndim || x->ndim == MICA_MAX_DIMS)
        return mica__build_refuse(graph, call, "x", x, "has no axis %u from the last for blocks", by->axis) !=
               0;
    c->at = x->ndim - 1 - by->axis;
    const uint64_t n = x->shape[c->at];
    if (!mica__size_known(n) || n == 0)
        return mica__build_refuse(graph, call, "x", x, "has no size along its blocks that is a number") != 0;
    c->blocks = n / by->block + (n % by->block != 0);
    return true;
}

/* A tensor of the numbers' shape with whole blocks as a dimension of their own; `halves` 2: two of them lie in one element of the last dimension. */
static mica_tensor blocked(coder *c, mica_tensor x, uint32_t halves)
{
    mica_pad_params pad = {.mode = MICA_PAD_EDGE};
    if (c->blocks == 0 || x == 0)
        return x;
    const mica__type type = *mica__type_of(c->graph, x);
    const uint64_t block = c->by->block / (c->by->axis == 0 ? halves : 1);
    uint64_t shape[MICA_MAX_DIMS];
    if (type.shape[c->at] != c->blocks * block) {
        pad.high[c->at] = (int64_t)(c->blocks * block - type.shape[c->at]);
        x = mica_graph_pad(c->graph, x, &pad);
    }
    for (uint32_t d = 0; d <= type.ndim; d++)
        shape[d] = type.shape[d - (d > c->at)];
    shape[c->at] = c->blocks;
    shape[c->at + 1] = block;
    return mica__build_reshape(c->graph, x, type.ndim + 1, shape);
}

/* Back, to `n` elements along the axis of blocks. */
static mica_tensor unblocked(coder *c, mica_tensor y, uint64_t n)
{
    if (c->blocks == 0 || y == 0)
        return y;
    y = mica__build_merge(c->graph, y, c->at, c->at + 2);
    return y != 0 && mica__type_of(c->graph, y)->shape[c->at] != n
               ? mica_graph_slice(c->graph, y, c->at, 0, n, 1)
               : y;
}

/* Every second element of the last dimension from `half` on; below 0: all. */
static mica_tensor half_of(mica_graph *graph, mica_tensor x, int half)
{
    if (half < 0 || x == 0)
        return x;
    const mica__type type = *mica__type_of(graph, x);
    return mica_graph_slice(graph, x, type.ndim - 1, (uint64_t)half, type.shape[type.ndim - 1] / 2, 2);
}

/* Scales and what lies beside them, for the elements of this half. 0 stays 0. */
static mica_tensor shared(coder *c, const char *name, mica_tensor s, int half)
{
    mica__type type;
    if (s == 0 ||
        !mica__build_takes_rank(c->graph, c->call, name, s, c->blocks != 0 ? c->x.ndim : 0, c->x.ndim, &type))
        return 0;
    for (uint32_t k = 0; k < type.ndim; k++) {
        const uint32_t d = c->x.ndim - type.ndim + k;
        const uint64_t wanted = c->blocks != 0 && d == c->at ? c->blocks : c->x.shape[d];
        if (type.shape[k] != 1 && !mica__sizes_agree(type.shape[k], wanted))
            return mica__build_refuse(c->graph, c->call, name, &type, "has not 1 or %llu in dimension %u",
                                      ULL(wanted), k);
    }
    const bool along = c->blocks != 0 && c->by->axis == 0;
    const bool own = half >= 0 && !along && type.ndim > 0 && type.shape[type.ndim - 1] != 1;
    if (own)
        s = half_of(c->graph, s, half);
    return c->blocks != 0 ? mica__build_insert(c->graph, s, c->at + 1) : s;
}

/* ---- regions ---- */

typedef struct shares { /* tensors of one half */
    mica_tensor scales, points, biases;
} shares;

static bool take_shares(coder *c, int half, shares *out)
{
    *out = (shares){shared(c, "by.scales", c->by->scales, half),
                    shared(c, "by.zero_points", c->by->zero_points, half),
                    shared(c, "by.biases", c->by->biases, half)};
    if (c->graph->status == MICA_OK && out->scales == 0)
        (void)mica__graph_fail(c->graph, MICA_ERR_INVALID_ARGUMENT, c->call, "by.scales is no tensor");
    return c->graph->status == MICA_OK;
}

static mica__scaling write_shares(mica__writer *w, const shares *s)
{
    mica__scaling out = {mica__write_input(w, "by.scales", s->scales), st_none, st_none};
    if (s->points != 0)
        out.point = mica__write_input(w, "by.zero_points", s->points);
    if (s->biases != 0)
        out.bias = mica__write_input(w, "by.biases", s->biases);
    return out;
}

/* The last input: of one element. */
static st_value write_global(mica__writer *w, const coder *c)
{
    mica__type type;
    if (c->by->global == 0 || !mica__build_takes(c->graph, c->call, "by.global", c->by->global, &type))
        return st_none;
    if (mica__type_elements(&type) != 1)
        (void)mica__build_refuse(c->graph, c->call, "by.global", &type, "is not one element");
    const mica_tensor one =
        type.ndim == 0 ? c->by->global : mica_graph_reshape(c->graph, c->by->global, 0, NULL);
    return one == 0 ? st_none : mica__write_input(w, "by.global", one);
}

static bool takes_float(mica_graph *graph, const char *call, const char *name, mica_tensor x,
                        const mica_graph_quantizer *by, mica__type *out)
{
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, name, x, out))
        return false;
    if (by == NULL)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "by is NULL") != 0;
    return mica__build_is_float(out->dtype) || mica__build_refuse(graph, call, name, out, "is no float") != 0;
}

static bool completes(coder *c, mica_dtype dtype)
{
    return mica__codes_complete(&c->own, dtype) ||
           mica__graph_fail(c->graph, MICA_ERR_INVALID_ARGUMENT, c->call,
                            "dtype of codes is %s, which does not hold them from %d to %d",
                            mica_dtype_name(dtype), c->by->low, c->by->high) != 0;
}

mica_tensor mica_graph_quantize(mica_graph *graph, mica_tensor x, const mica_graph_quantizer *by,
                                mica_dtype dtype)
{
    static const char call[] = "quantize";
    coder c;
    mica__type type;
    mica__writer w;
    shares s[2];
    st_value from[2], code[2];
    mica__scaling scaling[2];
    mica_tensor part[2];
    if (!takes_float(graph, call, "x", x, by, &type) || !begin(&c, graph, call, by, &type) ||
        !completes(&c, dtype))
        return 0;
    const uint32_t halves = by->packed != 0 ? 2 : 1;
    const mica_tensor all = blocked(&c, x, 1);
    for (uint32_t h = 0; h < halves; h++) {
        part[h] = half_of(graph, all, halves == 2 ? (int)h : -1);
        if (!take_shares(&c, halves == 2 ? (int)h : -1, &s[h]))
            return mica__build_end(graph, call, 0);
    }
    mica__write_begin(&w, graph, call);
    for (uint32_t h = 0; h < halves; h++) {
        from[h] = mica__write_input(&w, "x", part[h]);
        scaling[h] = write_shares(&w, &s[h]);
    }
    const st_value global = write_global(&w, &c);
    if (graph->status != MICA_OK)
        return mica__build_end(graph, call, 0);
    const mica_register to = mica_register_of(dtype);
    for (uint32_t h = 0; h < halves; h++) {
        mica__scaling_finish(&scaling[h], global, mica__build_real(type.dtype));
        code[h] = mica__code_of(&c.own, from[h], &scaling[h], to != MICA_REGISTER_F32);
    }
    const st_value both = halves == 2 ? mica__codes_pack(&c.own, code[0], code[1]) : code[0];
    mica__write_output(&w, st_cast(both, to), dtype);
    const uint64_t n = c.blocks == 0 ? 0 : type.shape[c.at] / (by->axis == 0 ? halves : 1);
    return mica__build_end(graph, call, unblocked(&c, mica__write_end(&w, NULL), n));
}

/* The numbers of both halves of bytes, one beside the other. */
static mica_tensor interleaved(mica_graph *graph, const mica_tensor *half)
{
    const mica_tensor pairs = mica_graph_stack(graph, half, 2, -1);
    if (pairs == 0)
        return 0;
    const uint32_t ndim = mica__type_of(graph, pairs)->ndim;
    return mica__build_merge(graph, pairs, ndim - 2, ndim);
}

mica_tensor mica_graph_dequantize(mica_graph *graph, mica_tensor codes, const mica_graph_quantizer *by,
                                  mica_dtype dtype)
{
    static const char call[] = "dequantize";
    coder c;
    mica__type type;
    mica__writer w;
    shares s[2];
    mica__scaling scaling[2];
    mica_tensor out[2] = {0, 0};
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "codes", codes, &type))
        return 0;
    if (by == NULL || !mica__build_is_float(dtype))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "by is NULL, or dtype %s is no float",
                                mica_dtype_name(dtype));
    const uint32_t halves = by->packed != 0 ? 2 : 1;
    mica__type numbers = type;
    if (halves == 2 && type.ndim != 0)
        numbers.shape[type.ndim - 1] = mica__build_times(2, type.shape[type.ndim - 1]);
    if (!begin(&c, graph, call, by, &numbers) || !completes(&c, type.dtype))
        return 0;
    const mica_tensor all = blocked(&c, codes, halves);
    for (uint32_t h = 0; h < halves; h++)
        if (!take_shares(&c, halves == 2 ? (int)h : -1, &s[h]))
            return mica__build_end(graph, call, 0);
    mica__write_begin(&w, graph, call);
    const st_value from = mica__write_input(&w, "codes", all);
    for (uint32_t h = 0; h < halves; h++)
        scaling[h] = write_shares(&w, &s[h]);
    const st_value global = write_global(&w, &c);
    if (graph->status != MICA_OK)
        return mica__build_end(graph, call, 0);
    for (uint32_t h = 0; h < halves; h++) {
        const mica_register reg = mica__build_real(dtype);
        mica__scaling_finish(&scaling[h], global, reg);
        const st_value code = halves == 2 ? mica__codes_unpack(&c.own, from, h, reg) : st_cast(from, reg);
        mica__write_output(&w, mica__value_of(&c.own, code, &scaling[h]), dtype);
    }
    mica_tensor y = mica__write_end(&w, out);
    if (halves == 2 && y != 0)
        y = interleaved(graph, out);
    return mica__build_end(graph, call, unblocked(&c, y, c.blocks == 0 ? 0 : numbers.shape[c.at]));
}

mica_tensor mica_graph_requantize(mica_graph *graph, mica_tensor sums, const mica_graph_quantizer *by,
                                  mica_dtype dtype)
{
    static const char call[] = "requantize";
    coder c;
    mica__type type;
    mica__writer w;
    shares s;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "sums", sums, &type))
        return 0;
    if (type.dtype != MICA_DTYPE_I32)
        return mica__build_refuse(graph, call, "sums", &type, "is not i32");
    if (by == NULL || by->biases != 0 || by->global != 0 || by->block != 0 || by->packed != 0 ||
        by->code != MICA_CODE_INTEGER)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                "by is NULL, or has biases, global, block, packed or code");
    if (mica_dtype_block_bytes(dtype) > 2 || mica_register_of(dtype) == MICA_REGISTER_F32)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "dtype is %s, not i8, u8, i16 or u16",
                                mica_dtype_name(dtype));
    if (!begin(&c, graph, call, by, &type) || !completes(&c, dtype) || !take_shares(&c, -1, &s))
        return mica__build_end(graph, call, 0);
    mica__write_begin(&w, graph, call);
    const st_value sum = mica__write_input(&w, "sums", sums);
    mica__scaling scaling = write_shares(&w, &s);
    if (graph->status != MICA_OK)
        return 0;
    mica__scaling_finish(&scaling, st_none, MICA_REGISTER_F32);
    mica__write_output(&w, st_cast(mica__code_of_sum(&c.own, sum, &scaling), mica_register_of(dtype)), dtype);
    return mica__write_end(&w, NULL);
}

/* ---- training through codes ---- */

static bool begin_fake(coder *c, mica_graph *graph, const char *call, mica_tensor x,
                       const mica_graph_quantizer *by)
{
    mica__type type;
    if (!takes_float(graph, call, "x", x, by, &type) || !begin(c, graph, call, by, &type))
        return false;
    return mica__codes_complete_fake(&c->own) ||
           mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                            "by.packed is 1, but no codes are written") != 0;
}

mica_tensor mica_graph_fake_quantize(mica_graph *graph, mica_tensor x, const mica_graph_quantizer *by)
{
    static const char call[] = "fake_quantize";
    coder c;
    mica__writer w;
    shares s;
    if (!begin_fake(&c, graph, call, x, by))
        return 0;
    const mica_tensor all = blocked(&c, x, 1);
    if (all == 0 || !take_shares(&c, -1, &s))
        return mica__build_end(graph, call, 0);
    mica__write_begin(&w, graph, call);
    const st_value from = mica__write_input(&w, "x", all);
    mica__scaling scaling = write_shares(&w, &s);
    const st_value global = write_global(&w, &c);
    if (graph->status != MICA_OK)
        return mica__build_end(graph, call, 0);
    mica__scaling_finish(&scaling, global, mica__build_real(c.x.dtype));
    const st_value code = mica__code_of(&c.own, from, &scaling, true);
    mica__write_output(&w, mica__value_of(&c.own, code, &scaling), c.x.dtype);
    const mica_tensor y = mica__write_end(&w, NULL);
    return mica__build_end(graph, call, unblocked(&c, y, c.blocks == 0 ? 0 : c.x.shape[c.at]));
}

mica_tensor mica_graph_fake_quantize_backward(mica_graph *graph, mica_tensor x,
                                              const mica_graph_quantizer *by, mica_tensor dy,
                                              mica_straight straight, mica_tensor *out_dscale)
{
    static const char call[] = "fake_quantize_backward";
    coder c;
    mica__writer w;
    shares s;
    st_value dx, dscale;
    mica_tensor out[2] = {0, 0};
    if (out_dscale != NULL)
        *out_dscale = 0;
    if (!begin_fake(&c, graph, call, x, by))
        return 0;
    if (by->biases != 0 || by->code != MICA_CODE_INTEGER || by->block != 0 ||
        (unsigned)straight > MICA_STRAIGHT_HARD_TANH || (straight == MICA_STRAIGHT_HARD_TANH && by->high < 0))
        return mica__graph_fail(
            graph, MICA_ERR_INVALID_ARGUMENT, call,
            "by has biases, blocks or another code than INTEGER, or straight is %u, high %d",
            (unsigned)straight, by->high);
    if (!take_shares(&c, -1, &s))
        return mica__build_end(graph, call, 0);
    mica__write_begin(&w, graph, call);
    const st_value from = mica__write_input(&w, "x", x), reaches = mica__write_input(&w, "dy", dy);
    mica__scaling scaling = write_shares(&w, &s);
    const st_value global = write_global(&w, &c);
    if (graph->status != MICA_OK)
        return mica__build_end(graph, call, 0);
    mica__scaling_finish(&scaling, global, mica__build_real(c.x.dtype));
    mica__code_slopes(&c.own, straight, from, reaches, &scaling, &dx, out_dscale != NULL ? &dscale : NULL);
    mica__write_output(&w, dx, c.x.dtype);
    if (out_dscale != NULL)
        mica__write_output(&w, dscale, c.x.dtype);
    (void)mica__write_end(&w, out);
    if (out_dscale != NULL)
        *out_dscale = out[1];
    return out[0];
}

/* ---- scales ---- */

static mica_tensor extreme(coder *c, mica_reduce_kind kind, mica_tensor x, uint32_t axes)
{
    const mica_reduce_params params = {.kind = (uint32_t)kind, .axes = axes, .keep_dims = 1};
    const mica_operand_desc asked = {.dtype = c->x.dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32,
                                     .ndim = MICA_RANK_UNKNOWN};
    const mica_tensor y = mica_graph_op(c->graph, MICA_OP_REDUCE, &params, &x, 1, 1, &asked, NULL, 0);
    return c->blocks != 0 ? mica__build_merge(c->graph, y, c->at, c->at + 2) : y;
}

mica_tensor mica_graph_quantize_scales(mica_graph *graph, mica_tensor x, const mica_graph_quantizer *by,
                                       uint32_t axes, mica_tensor *out_biases)
{
    static const char call[] = "quantize_scales";
    coder c;
    mica__writer w;
    st_value scale, bias = st_none, least = st_none;
    mica_tensor out[2] = {0, 0};
    if (out_biases != NULL)
        *out_biases = 0;
    if (!begin_fake(&c, graph, call, x, by))
        return 0;
    if (c.own.high <= 0 || axes >> c.x.ndim != 0)
        return mica__build_refuse(graph, call, "x", &c.x, "has no axes 0x%x, or by.high is %d, not above 0",
                                  axes, c.own.high);
    uint32_t over = axes;
    if (c.blocks != 0) /* axes behind the blocks' have one more before them */
        over = (axes & ((1u << by->axis) - 1)) | 1u << by->axis | (axes >> by->axis & ~1u) << (by->axis + 1);
    const mica_tensor all = blocked(&c, x, 1);
    const mica_tensor top =
        all == 0 ? 0 : extreme(&c, out_biases != NULL ? MICA_REDUCE_MAX : MICA_REDUCE_MAX_ABS, all, over);
    const mica_tensor bottom = top == 0 || out_biases == NULL ? 0 : extreme(&c, MICA_REDUCE_MIN, all, over);
    if (graph->status != MICA_OK)
        return mica__build_end(graph, call, 0);
    mica__write_begin(&w, graph, call);
    const st_value most = mica__write_input(&w, "x", top);
    if (bottom != 0)
        least = mica__write_input(&w, "x", bottom);
    if (bottom != 0)
        mica__scale_of_ends(&c.own, most, least, &scale, &bias);
    else
        scale = mica__scale_of_most(&c.own, most);
    const mica_dtype dtype = mica__type_of(graph, top)->dtype;
    mica__write_output(&w, scale, dtype);
    if (bottom != 0)
        mica__write_output(&w, bias, dtype);
    (void)mica__write_end(&w, out);
    if (out_biases != NULL)
        *out_biases = out[1];
    return out[0];
}

mica_tensor mica_graph_scales_follow(mica_graph *graph, mica_tensor scales, double decay, mica_tensor state)
{
    static const char call[] = "scales_follow";
    mica__type type, before;
    mica__writer w;
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "scales", scales, &type) ||
        !mica__build_takes(graph, call, "state", state, &before))
        return 0;
    if (!(decay >= 0 && decay <= 1) || !mica__build_is_float(type.dtype))
        return mica__build_refuse(graph, call, "scales", &type,
                                  "is no float, or decay is %g, not from 0 to 1", decay);
    mica__write_begin(&w, graph, call);
    const st_value now = mica__write_input(&w, "scales", scales), old = mica__write_input(&w, "state", state);
    if (graph->status != MICA_OK || mica__build_real(before.dtype) != mica__build_real(type.dtype))
        return mica__build_refuse(graph, call, "state", &before, "is of another register than scales");
    mica__write_output(&w, mica__scale_that_follows(old, now, decay), before.dtype);
    return mica__write_end(&w, NULL);
}

mica_tensor mica_graph_product_scaled(mica_graph *graph, mica_tensor a, const mica_graph_quantizer *a_by,
                                      mica_tensor b, const mica_graph_quantizer *b_by, mica_tensor add,
                                      mica_dtype dtype)
{
    const mica_dtype in = dtype != MICA_DTYPE_NONE ? dtype : MICA_DTYPE_F32;
    if (!mica__graph_begins(graph, "product_scaled"))
        return 0;
    const mica_tensor left = mica_graph_dequantize(graph, a, a_by, in),
                      right = left == 0 ? 0 : mica_graph_dequantize(graph, b, b_by, in);
    const mica_tensor transposed = right == 0 ? 0 : mica_graph_transpose(graph, right);
    return mica__build_end(graph, "product_scaled",
                           transposed == 0 ? 0 : mica_graph_product(graph, left, transposed, add));
}
