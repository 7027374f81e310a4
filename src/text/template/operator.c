/* operator.c: arithmetic, comparison and slices, as Python has them, in 64 bits. */
#include <math.h>
#include <string.h>

#include "text/template/builtin.h"
#include "text/template/chars.h"

static const char *const signs[] = {
    [MICA__JINJA_OP_NONE] = "",         [MICA__JINJA_OP_ADD] = "+",  [MICA__JINJA_OP_SUB] = "-",
    [MICA__JINJA_OP_MUL] = "*",         [MICA__JINJA_OP_DIV] = "/",  [MICA__JINJA_OP_FLOOR] = "//",
    [MICA__JINJA_OP_MOD] = "%",         [MICA__JINJA_OP_POW] = "**", [MICA__JINJA_OP_EQ] = "==",
    [MICA__JINJA_OP_NE] = "!=",         [MICA__JINJA_OP_LT] = "<",   [MICA__JINJA_OP_LE] = "<=",
    [MICA__JINJA_OP_GT] = ">",          [MICA__JINJA_OP_GE] = ">=",  [MICA__JINJA_OP_IN] = "in",
    [MICA__JINJA_OP_NOT_IN] = "not in",
};

static mica_status too_large(const mica__jinja_run *run)
{
    return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "integers beyond 64 bits are not known");
}

static mica_status by_zero(const mica__jinja_run *run)
{
    return mica__jinja_raise(run, "division by zero");
}

static mica_status power(const mica__jinja_run *run, int64_t base, int64_t exponent, mica__jinja_value *out)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return by_zero(run);
        *out = mica__jinja_float(pow((double)base, (double)exponent));
        return MICA_OK;
    }
    for (;;) { /* by squares */
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
            return too_large(run);
        exponent >>= 1;
        if (exponent == 0)
            break;
        if (__builtin_mul_overflow(base, base, &base))
            return too_large(run);
    }
    *out = mica__jinja_int(result);
    return MICA_OK;
}

static mica_status integers(const mica__jinja_run *run, mica__jinja_operator op, int64_t a, int64_t b,
                            mica__jinja_value *out)
{
    int64_t result = 0;
    bool overflow = false;
    switch ((int)op) {
    case MICA__JINJA_OP_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case MICA__JINJA_OP_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
    case MICA__JINJA_OP_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
    case MICA__JINJA_OP_DIV:
        if (b == 0)
            return by_zero(run);
        *out = mica__jinja_float((double)a / (double)b);
        return MICA_OK;
    case MICA__JINJA_OP_FLOOR:
    case MICA__JINJA_OP_MOD:
        if (b == 0)
            return by_zero(run);
        if (b == -1) { /* the one quotient that may not fit */
            overflow = op == MICA__JINJA_OP_FLOOR && a == INT64_MIN;
            result = op == MICA__JINJA_OP_FLOOR && !overflow ? -a : 0;
            break;
        }
        result = op == MICA__JINJA_OP_FLOOR ? a / b : a % b;
        if (a % b != 0 && (a % b < 0) != (b < 0)) /* Python rounds down */
            result += op == MICA__JINJA_OP_FLOOR ? -1 : b;
        break;
    default: return power(run, a, b, out);
    }
    if (overflow)
        return too_large(run);
    *out = mica__jinja_int(result);
    return MICA_OK;
}

/* The rest with the sign of b, and the quotient that goes with it. */
static double divide_down(double a, double b, double *out_rest)
{
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
    }
    *out_rest = rest != 0 ? rest : copysign(0, b);
    const double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static mica_status reals(const mica__jinja_run *run, mica__jinja_operator op, double a, double b,
                         mica__jinja_value *out)
{
    double result, rest;
    if (b == 0 && (op == MICA__JINJA_OP_DIV || op == MICA__JINJA_OP_FLOOR || op == MICA__JINJA_OP_MOD))
        return by_zero(run);
    switch ((int)op) {
    case MICA__JINJA_OP_ADD: result = a + b; break;
    case MICA__JINJA_OP_SUB: result = a - b; break;
    case MICA__JINJA_OP_MUL: result = a * b; break;
    case MICA__JINJA_OP_DIV: result = a / b; break;
    case MICA__JINJA_OP_FLOOR: result = divide_down(a, b, &rest); break;
    case MICA__JINJA_OP_MOD: (void)divide_down(a, b, &result); break;
    default:
        if (a == 0 && b < 0)
            return by_zero(run);
        if (a < 0 && floor(b) != b)
            return mica__jinja_stop(run, MICA_ERR_UNSUPPORTED, "complex numbers are not known");
        result = pow(a, b);
        if (isinf(result) && isfinite(a) && isfinite(b))
            return mica__jinja_raise(run, "the result of ** is too large");
        break;
    }
    *out = mica__jinja_float(result);
    return MICA_OK;
}

/* Text or list, so many times. */
static mica_status repeat(mica__jinja_run *run, const mica__jinja_value *v, int64_t times,
                          mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    const uint64_t count = times < 0 ? 0 : (uint64_t)times;
    mica_status status = MICA_OK;
    if (v->kind == MICA__JINJA_STRING) {
        for (uint64_t i = 0; status == MICA_OK && v->length != 0 && i < count; i++) {
            status = mica__jinja_put(run, v->text, v->length);
            if (status == MICA_OK)
                status = mica__jinja_spend(run, 1);
        }
        return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
    }
    size_t total = SIZE_MAX / sizeof(mica__jinja_value);
    if (v->length == 0 || count <= total / v->length)
        total = v->length * (size_t)count;
    mica__jinja_value *items = mica__jinja_values(run, total);
    if (items == NULL)
        return mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; i < total; i++)
        items[i] = v->items[i % v->length];
    *out = (mica__jinja_value){.kind = v->kind, .length = total, .items = items};
    return mica__jinja_spend(run, total);
}

static mica_status join_lists(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                              mica__jinja_value *out)
{
    mica__jinja_value *items = mica__jinja_values(run, a->length + b->length);
    if (items == NULL)
        return mica__jinja_arena_failure(&run->arena);
    if (a->length != 0)
        memcpy(items, a->items, a->length * sizeof *items);
    if (b->length != 0)
        memcpy(items + a->length, b->items, b->length * sizeof *items);
    *out = (mica__jinja_value){.kind = a->kind, .length = a->length + b->length, .items = items};
    return mica__jinja_spend(run, a->length + b->length);
}

mica_status mica__jinja_concat(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                               mica__jinja_value *out)
{
    mica__jinja_value left, right;
    mica_status status = mica__jinja_str(run, a, &left);
    if (status == MICA_OK)
        status = mica__jinja_str(run, b, &right);
    if (status == MICA_OK)
        /* copies of the left one are limited by the memory */
        status = mica__jinja_spend_bytes(run, right.length);
    if (status != MICA_OK)
        return status;
    const char *text = mica__jinja_append(&run->arena, left.text, left.length, right.text, right.length);
    if (text == NULL)
        return mica__jinja_arena_failure(&run->arena);
    *out = mica__jinja_text(text, left.length + right.length);
    return MICA_OK;
}

/* Markup + text: the text is escaped, and the result is markup. */
static mica_status join_markup(mica__jinja_run *run, const mica__jinja_value *a, const mica__jinja_value *b,
                               mica__jinja_value *out)
{
    const size_t mark = run->out_length;
    mica_status status = a->mark != 0 ? mica__jinja_put(run, a->text, a->length)
                                      : mica__jinja_put_escaped(run, a->text, a->length);
    if (status == MICA_OK)
        status = b->mark != 0 ? mica__jinja_put(run, b->text, b->length)
                              : mica__jinja_put_escaped(run, b->text, b->length);
    if (status == MICA_OK)
        status = mica__jinja_cut(run, mark, out);
    if (status == MICA_OK)
        out->mark = 1;
    return status;
}

mica_status mica__jinja_binary(mica__jinja_run *run, mica__jinja_operator op, const mica__jinja_value *a,
                               const mica__jinja_value *b, mica__jinja_value *out)
{
    int64_t left, right;
    const bool a_list = a->kind == MICA__JINJA_LIST || a->kind == MICA__JINJA_TUPLE;
    const bool b_list = b->kind == MICA__JINJA_LIST || b->kind == MICA__JINJA_TUPLE;
    if (a->kind == MICA__JINJA_STRING && op == MICA__JINJA_OP_MOD)
        return mica__jinja_percent(run, a, b, out);
    if (a->kind == MICA__JINJA_UNDEFINED || b->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, a->kind == MICA__JINJA_UNDEFINED ? a : b);
    if (mica__jinja_as_int(a, &left) && mica__jinja_as_int(b, &right))
        return integers(run, op, left, right, out);
    if (mica__jinja_is_number(a) && mica__jinja_is_number(b)) {
        if (a->kind != MICA__JINJA_FLOAT && b->kind != MICA__JINJA_FLOAT)
            return too_large(run);
        return reals(run, op, mica__jinja_as_double(a), mica__jinja_as_double(b), out);
    }
    if (op == MICA__JINJA_OP_ADD && a->kind == MICA__JINJA_STRING && b->kind == MICA__JINJA_STRING)
        return a->mark != 0 || b->mark != 0 ? join_markup(run, a, b, out)
                                            : mica__jinja_concat(run, a, b, out);
    if (op == MICA__JINJA_OP_ADD && a_list && a->kind == b->kind)
        return join_lists(run, a, b, out);
    if (op == MICA__JINJA_OP_MUL && (a->kind == MICA__JINJA_STRING || a_list) &&
        mica__jinja_as_int(b, &right))
        return repeat(run, a, right, out);
    if (op == MICA__JINJA_OP_MUL && (b->kind == MICA__JINJA_STRING || b_list) && mica__jinja_as_int(a, &left))
        return repeat(run, b, left, out);
    return mica__jinja_raise(run, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op],
                             mica__jinja_type(a), mica__jinja_type(b));
}

mica_status mica__jinja_unary(mica__jinja_run *run, mica__jinja_operator op, const mica__jinja_value *a,
                              mica__jinja_value *out)
{
    int64_t integer;
    if (a->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, a);
    if (mica__jinja_as_int(a, &integer)) {
        if (op == MICA__JINJA_OP_SUB && integer == INT64_MIN)
            return too_large(run);
        *out = mica__jinja_int(op == MICA__JINJA_OP_SUB ? -integer : integer);
        return MICA_OK;
    }
    if (!mica__jinja_is_number(a))
        return mica__jinja_raise(run, "bad operand type for unary %s: '%s'", signs[op], mica__jinja_type(a));
    if (a->kind != MICA__JINJA_FLOAT)
        return too_large(run);
    *out = mica__jinja_float(op == MICA__JINJA_OP_SUB ? -a->real : a->real);
    return MICA_OK;
}

mica_status mica__jinja_compare(mica__jinja_run *run, mica__jinja_operator op, const mica__jinja_value *a,
                                const mica__jinja_value *b, bool *out)
{
    int order = 0;
    mica_status status;
    switch ((int)op) {
    case MICA__JINJA_OP_EQ: return mica__jinja_equal(run, a, b, out);
    case MICA__JINJA_OP_NE:
        status = mica__jinja_equal(run, a, b, out);
        *out = !*out;
        return status;
    case MICA__JINJA_OP_IN: return mica__jinja_contains(run, b, a, out);
    case MICA__JINJA_OP_NOT_IN:
        status = mica__jinja_contains(run, b, a, out);
        *out = !*out;
        return status;
    default: break;
    }
    *out = false;
    MICA__TRY(mica__jinja_order(run, a, b, signs[op], &order));
    if (mica__jinja_is_number(a) && mica__jinja_is_number(b) &&
        (isnan(mica__jinja_as_double(a)) || isnan(mica__jinja_as_double(b))))
        return MICA_OK; /* NaN is in no order */
    *out = op == MICA__JINJA_OP_LT   ? order < 0
           : op == MICA__JINJA_OP_LE ? order <= 0
           : op == MICA__JINJA_OP_GT ? order > 0
                                     : order >= 0;
    return MICA_OK;
}

/* ---- slices ---- */

typedef struct slice_range {
    int64_t start, stop, step;
    size_t count;
} slice_range;

static mica_status take_bound(const mica__jinja_run *run, const mica__jinja_value *v, int64_t standard,
                              int64_t *out)
{
    *out = standard;
    if (v->kind == MICA__JINJA_NONE)
        return MICA_OK;
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    return mica__jinja_as_int(v, out)
               ? MICA_OK
               : mica__jinja_raise(run, "slice indices must be integers or None, not %s",
                                   mica__jinja_type(v));
}

static int64_t clamp(int64_t index, int64_t length, int64_t low, int64_t high)
{
    if (index < 0)
        index += length;
    return index < low ? low : index > high ? high : index;
}

/* Which of `length` items a slice means. */
static mica_status resolve(const mica__jinja_run *run, const mica__jinja_value bounds[3], size_t length,
                           slice_range *out)
{
    int64_t step, start, stop;
    const int64_t count = (int64_t)length;
    mica_status status = take_bound(run, &bounds[2], 1, &step);
    if (status == MICA_OK && step == 0)
        return mica__jinja_raise(run, "slice step cannot be zero");
    if (status == MICA_OK && step < -INT64_MAX)
        step = -INT64_MAX;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    if (status == MICA_OK)
        status = take_bound(run, &bounds[0], 0, &start);
    if (status == MICA_OK)
        status = take_bound(run, &bounds[1], 0, &stop);
    if (status != MICA_OK)
        return status;
    start = bounds[0].kind == MICA__JINJA_NONE ? (step < 0 ? high : low) : clamp(start, count, low, high);
    stop = bounds[1].kind == MICA__JINJA_NONE ? (step < 0 ? low : high) : clamp(stop, count, low, high);
    out->start = start;
    out->stop = stop;
    out->step = step;
    out->count = 0;
    if (step > 0 && start < stop)
        out->count = (size_t)((stop - start - 1) / step + 1);
    else if (step < 0 && stop < start)
        out->count = (size_t)((start - stop - 1) / -step + 1);
    return MICA_OK;
}

static mica_status slice_text(mica__jinja_run *run, const mica__jinja_value *v,
                              const mica__jinja_value bounds[3], mica__jinja_value *out)
{
    slice_range range = {.step = 1};
    const size_t length = mica__jinja_char_count(v->text, v->length), mark = run->out_length;
    mica_status status = length == v->length ? mica__jinja_spend_bytes(run, v->length)
                                             : mica__jinja_spend_chars(run, v->length);
    if (status == MICA_OK)
        status = resolve(run, bounds, length, &range);
    if (status != MICA_OK)
        return status;
    if (range.count == 0) {
        *out = mica__jinja_text(v->text, 0);
        return MICA_OK;
    }
    if (range.step == 1) { /* a view */
        const size_t from = length == v->length
                                ? (size_t)range.start
                                : mica__jinja_char_offset(v->text, v->length, (size_t)range.start);
        const size_t bytes = length == v->length
                                 ? range.count
                                 : mica__jinja_char_offset(v->text + from, v->length - from, range.count);
        *out = mica__jinja_text(v->text + from, bytes);
        return MICA_OK;
    }
    const mica__jinja_value *items = NULL;
    size_t count = 0;
    if (length != v->length)
        status = mica__jinja_items(run, v, &items, &count);
    for (size_t i = 0; status == MICA_OK && i < range.count; i++) {
        const size_t at = (size_t)range.start + i * (size_t)range.step; /* wraps back for a step below 0 */
        status = items == NULL ? mica__jinja_put(run, v->text + at, 1)
                               : mica__jinja_put(run, items[at].text, items[at].length);
        if (status == MICA_OK)
            status = mica__jinja_spend(run, 1);
    }
    return status != MICA_OK ? status : mica__jinja_cut(run, mark, out);
}

static mica_status slice_range_value(mica__jinja_run *run, const mica__jinja_value *v,
                                     const slice_range *part, mica__jinja_value *out)
{
    mica__jinja_range *range = mica__jinja_alloc(&run->arena, sizeof *range);
    if (range == NULL)
        return mica__jinja_arena_failure(&run->arena);
    const mica__jinja_range *of = v->range;
    int64_t start, stop;
    if (__builtin_mul_overflow(part->start, of->step, &start) ||
        __builtin_add_overflow(of->start, start, &range->start) ||
        __builtin_mul_overflow(part->stop, of->step, &stop) ||
        __builtin_add_overflow(of->start, stop, &range->stop) ||
        __builtin_mul_overflow(of->step, part->step, &range->step))
        return too_large(run);
    *out = (mica__jinja_value){.kind = MICA__JINJA_RANGE, .length = part->count, .range = range};
    return MICA_OK;
}

mica_status mica__jinja_slice(mica__jinja_run *run, const mica__jinja_value *v,
                              const mica__jinja_value bounds[3], mica__jinja_value *out)
{
    slice_range range = {.step = 1};
    if (v->kind == MICA__JINJA_UNDEFINED)
        return mica__jinja_raise_undefined(run, v);
    if (v->kind == MICA__JINJA_STRING)
        return slice_text(run, v, bounds, out);
    if (v->kind != MICA__JINJA_LIST && v->kind != MICA__JINJA_TUPLE && v->kind != MICA__JINJA_RANGE)
        return mica__jinja_raise(run, "'%s' object is not subscriptable by a slice", mica__jinja_type(v));
    const mica_status status = resolve(run, bounds, v->length, &range);
    if (status != MICA_OK)
        return status;
    if (v->kind == MICA__JINJA_RANGE)
        return slice_range_value(run, v, &range, out);
    if (range.step == 1 || range.count == 0) {
        *out = (mica__jinja_value){.kind = v->kind, .length = range.count, .items = v->items};
        if (range.count != 0)
            out->items += range.start;
        return MICA_OK;
    }
    mica__jinja_value *items = mica__jinja_values(run, range.count);
    if (items == NULL)
        return mica__jinja_arena_failure(&run->arena);
    for (size_t i = 0; i < range.count; i++)
        items[i] = v->items[(size_t)range.start + i * (size_t)range.step];
    *out = (mica__jinja_value){.kind = v->kind, .length = range.count, .items = items};
    return mica__jinja_spend(run, range.count);
}
