/*
 * view.c - places as digits. The strides of an operand that was written, slowest first, are like the values of the digits of a number: each place of the storage
 * is one number, and a view of it is an interval of each digit, as long as no step of the view carries from one digit into the next.
 */
#include "graph/lift/view.h"

#include <string.h>

#include "device/hazard.h"

enum { DIMS = MICA_MAX_DIMS, DIGITS = MICA_MAX_DIMS + 1 };

/* A dimension of a view that runs along a digit, in steps of it. */
typedef struct run {
    uint64_t step, size;
    uint32_t dim;
} run;

typedef struct digits {
    uint32_t count;
    uint64_t size[DIGITS], stride[DIGITS]; /* of the whole; neighbours that follow one another are one */
    uint32_t order[DIMS]; /* its dimensions, slowest first; those of one element behind the others */
    int64_t first[DIGITS];
    uint64_t extent[DIGITS]; /* the view has first .. first + extent of each digit */
    uint32_t runs[DIGITS];
    run run[DIGITS][DIMS]; /* widest steps first */
} digits;

/* ---- the whole ---- */

static void sort_dims(const mica__operand *whole, uint32_t *order)
{
    uint32_t count = 0;
    for (uint32_t d = 0; d < whole->ndim; d++) {
        uint32_t at = count++;
        if (whole->shape[d] > 1)
            while (at > 0 &&
                   (whole->shape[order[at - 1]] <= 1 || whole->stride[order[at - 1]] < whole->stride[d])) {
                order[at] = order[at - 1];
                at--;
            }
        order[at] = d;
    }
}

/* The digits of places; false where elements of the whole do not nest. */
static bool write_digits(const mica__operand *whole, uint64_t unit, digits *out)
{
    uint32_t n = 0;
    memset(out->order, 0, sizeof out->order);
    sort_dims(whole, out->order);
    for (uint32_t i = 0; i < whole->ndim; i++) {
        const uint64_t size = whole->shape[out->order[i]], stride = whole->stride[out->order[i]];
        if (size <= 1)
            continue;
        if (stride < unit || stride % unit != 0 ||
            (n > 0 && (out->stride[n - 1] < size * stride || out->stride[n - 1] % stride != 0)))
            return false;
        if (n > 0 && out->stride[n - 1] == size * stride) {
            out->size[n - 1] *= size;
            out->stride[n - 1] = stride;
        } else {
            out->size[n] = size;
            out->stride[n++] = stride;
        }
    }
    if (n == 0 || out->stride[n - 1] != unit) { /* between the elements */
        out->size[n] = 1;
        out->stride[n++] = unit;
    }
    out->count = n;
    return true;
}

/* ---- a view in these digits ---- */

static void put_run(digits *d, uint32_t digit, run next)
{
    uint32_t at = d->runs[digit]++;
    for (; at > 0 && d->run[digit][at - 1].step < next.step; at--)
        d->run[digit][at] = d->run[digit][at - 1];
    d->run[digit][at] = next;
    d->extent[digit] += (next.size - 1) * next.step;
}

/* False where a step goes along two digits, or carries. */
static bool write_view(const mica__operand *view, uint64_t from, digits *d)
{
    int64_t left = (int64_t)view->offset - (int64_t)from;
    for (uint32_t m = 0; m < d->count; m++) {
        const int64_t stride = (int64_t)d->stride[m];
        d->first[m] = left >= 0 ? left / stride : -((stride - 1 - left) / stride);
        left -= d->first[m] * stride;
        d->extent[m] = d->runs[m] = 0;
    }
    for (uint32_t i = 0; i < view->ndim; i++) {
        const uint64_t size = view->shape[i], stride = view->stride[i];
        uint32_t m = 0;
        if (size <= 1 || stride == 0)
            continue;
        while (m + 1 < d->count && d->stride[m] > stride)
            m++;
        if (stride % d->stride[m] != 0)
            return false;
        put_run(d, m, (run){stride / d->stride[m], size, i});
    }
    for (uint32_t m = 1; m < d->count; m++)
        if ((uint64_t)d->first[m] + d->extent[m] >= d->stride[m - 1] / d->stride[m])
            return false;
    return true;
}

/* ---- nodes ---- */

typedef struct taker {
    mica_graph *graph; /* NULL: it is only asked whether it can be done */
    mica_tensor tensor;
    uint32_t ndim;
    uint64_t shape[DIGITS + DIMS]; /* the next reshape makes it so */
} taker;

/* The tensor gets the shape that it has in `shape`. */
static void settle(taker *t)
{
    mica_graph_tensor_info info;
    if (t->graph == NULL || mica_graph_get_tensor(t->graph, t->tensor, &info) != MICA_OK)
        return;
    if (info.ndim != t->ndim || memcmp(info.shape, t->shape, t->ndim * sizeof t->shape[0]) != 0)
        t->tensor = mica_graph_reshape(t->graph, t->tensor, t->ndim, t->shape);
}

static void cut(taker *t, uint32_t axis, uint64_t first, uint64_t count, uint64_t step)
{
    if (first == 0 && count == t->shape[axis] && step == 1)
        return;
    settle(t);
    if (t->graph != NULL)
        t->tensor = mica_graph_slice(t->graph, t->tensor, axis, first, count, (int64_t)step);
    t->shape[axis] = count;
}

static void drop(taker *t, uint32_t axis)
{
    memmove(t->shape + axis, t->shape + axis + 1, (t->ndim - axis - 1) * sizeof t->shape[0]);
    t->ndim--;
}

static void split(taker *t, uint32_t axis, uint64_t outer, uint64_t inner)
{
    memmove(t->shape + axis + 2, t->shape + axis + 1, (t->ndim - axis - 1) * sizeof t->shape[0]);
    t->shape[axis] = outer;
    t->shape[axis + 1] = inner;
    t->ndim++;
}

/* Where a row of `count` times `step` begins that has the runs behind the first within each step; false: nowhere. */
static bool find_base(uint64_t size, uint64_t first, const run *widest, uint64_t rest, uint64_t *out)
{
    const uint64_t span = widest->size * widest->step;
    const uint64_t bases[3] = {first - first % widest->step, first, size - span};
    for (uint32_t i = 0; i < 3 && span <= size; i++)
        if (bases[i] <= first && bases[i] + span <= size && first - bases[i] + rest < widest->step) {
            *out = bases[i];
            return true;
        }
    return false;
}

/* The dimension `axis`, which is a digit, becomes one for each run, widest first. */
static bool take_digit(taker *t, uint32_t axis, uint64_t first, uint64_t extent, const run *runs,
                       uint32_t count)
{
    for (; count > 1; runs++, count--, axis++) {
        uint64_t base = 0;
        extent -= (runs->size - 1) * runs->step;
        if (!find_base(t->shape[axis], first, runs, extent, &base))
            return false;
        cut(t, axis, base, runs->size * runs->step, 1);
        split(t, axis, runs->size, runs->step);
        first -= base;
    }
    cut(t, axis, first, runs->size, runs->step);
    return true;
}

static bool take_digits(taker *t, const digits *d)
{
    uint32_t axis = 0;
    for (uint32_t m = d->count; m-- > 0;) /* digits of one place go first: no rank is over the view's */
        if (d->runs[m] == 0) {
            cut(t, m, (uint64_t)d->first[m], 1, 1);
            drop(t, m);
        }
    for (uint32_t m = 0; m < d->count; axis += d->runs[m], m++)
        if (d->runs[m] != 0 &&
            !take_digit(t, axis, (uint64_t)d->first[m], d->extent[m], d->run[m], d->runs[m]))
            return false;
    return true;
}

static void permute(taker *t, const uint32_t *order)
{
    uint64_t shape[DIMS];
    bool same = true;
    for (uint32_t i = 0; i < t->ndim; i++)
        same = same && order[i] == i;
    if (same)
        return;
    settle(t);
    for (uint32_t i = 0; i < t->ndim; i++)
        shape[i] = t->shape[order[i]];
    memcpy(t->shape, shape, t->ndim * sizeof shape[0]);
    if (t->graph != NULL)
        t->tensor = mica_graph_permute(t->graph, t->tensor, order);
}

/* What was taken, in the order of the view's dimensions; what repeats repeats. */
static void arrange(taker *t, const digits *d, const mica__operand *view)
{
    uint32_t at[DIMS] = {0}, order[DIMS] = {0}, next = 0, count = 0;
    for (uint32_t m = 0; m < d->count; m++)
        for (uint32_t r = 0; r < d->runs[m]; r++)
            at[d->run[m][r].dim] = next++;
    for (uint32_t i = 0; i < view->ndim; i++)
        if (view->shape[i] > 1 && view->stride[i] != 0)
            order[count++] = at[i];
    permute(t, order);
    bool repeats = false;
    for (uint32_t i = 0; i < view->ndim; i++) {
        const bool once = view->stride[i] == 0;
        t->shape[i] = once ? 1 : view->shape[i];
        repeats = repeats || (once && view->shape[i] != 1);
    }
    t->ndim = view->ndim;
    settle(t);
    if (repeats && t->graph != NULL)
        t->tensor = mica_graph_expand(t->graph, t->tensor, view->ndim, view->shape);
}

/* The tensor of the whole as its digits. */
static void begin(taker *t, const digits *d, const mica__operand *whole)
{
    t->ndim = whole->ndim;
    memcpy(t->shape, whole->shape, sizeof whole->shape);
    uint32_t last = 0;
    bool sorted = true;
    for (uint32_t i = 0; i < whole->ndim && whole->shape[d->order[i]] > 1; i++) {
        sorted = sorted && d->order[i] >= last;
        last = d->order[i];
    }
    if (!sorted)
        permute(t, d->order);
    t->ndim = d->count;
    memcpy(t->shape, d->size, sizeof d->size);
}

/* ---- both ---- */

static bool is_whole_block(const mica__operand *o)
{
    return o->layout != MICA_LAYOUT_CANONICAL || mica_dtype_block_elements((mica_dtype)o->dtype) != 1;
}

static mica__meet hulls(const mica__operand *a, const mica__operand *b, mica__meet else_)
{
    const bool apart = a->offset + a->length <= b->offset || b->offset + b->length <= a->offset;
    return apart ? MICA__MEET_APART : else_;
}

static mica__meet compare(const digits *d)
{
    bool inside = true;
    for (uint32_t m = 0; m < d->count; m++) {
        const int64_t last = d->first[m] + (int64_t)d->extent[m];
        if (last < 0 || d->first[m] >= (int64_t)d->size[m])
            return MICA__MEET_APART;
        inside = inside && d->first[m] >= 0 && last < (int64_t)d->size[m];
    }
    return inside ? MICA__MEET_INSIDE : MICA__MEET_MIXED;
}

mica__meet mica__view_meet(const mica__operand *view, const mica__operand *whole)
{
    digits d;
    taker t = {.graph = NULL};
    const uint64_t unit = mica_dtype_block_bytes((mica_dtype)whole->dtype);
    if (mica__operand_same(view, whole) && view->dtype == whole->dtype && view->layout == whole->layout)
        return MICA__MEET_INSIDE;
    if (is_whole_block(view) || is_whole_block(whole) ||
        unit != mica_dtype_block_bytes((mica_dtype)view->dtype) || !write_digits(whole, unit, &d))
        return hulls(view, whole, MICA__MEET_UNCLEAR);
    const uint64_t off =
        view->offset > whole->offset ? view->offset - whole->offset : whole->offset - view->offset;
    for (uint32_t i = 0; i < view->ndim; i++)
        if (view->shape[i] > 1 && view->stride[i] % unit != 0)
            return hulls(view, whole, MICA__MEET_UNCLEAR);
    if (off % unit != 0)
        return hulls(view, whole, MICA__MEET_UNCLEAR);
    if (!write_view(view, whole->offset, &d))
        return hulls(view, whole, MICA__MEET_MIXED);
    const mica__meet meet = compare(&d);
    if (meet != MICA__MEET_INSIDE)
        return meet;
    begin(&t, &d, whole);
    return take_digits(&t, &d) ? MICA__MEET_INSIDE : MICA__MEET_MIXED;
}

mica_tensor mica__view_take(mica_graph *graph, mica_tensor tensor, const mica__operand *whole,
                            const mica__operand *view)
{
    digits d;
    taker t = {.graph = graph, .tensor = tensor};
    if (mica__operand_same(view, whole) && view->dtype == whole->dtype)
        return tensor;
    if (!write_digits(whole, mica_dtype_block_bytes((mica_dtype)whole->dtype), &d) ||
        !write_view(view, whole->offset, &d))
        return 0;
    begin(&t, &d, whole);
    if (!take_digits(&t, &d))
        return 0;
    arrange(&t, &d, view);
    return view->dtype == whole->dtype ? t.tensor : mica_graph_bits(graph, t.tensor, (mica_dtype)view->dtype);
}

mica__operand mica__view_part(const mica__operand *view, uint32_t dim, uint64_t first, uint64_t count)
{
    mica__operand part = *view;
    part.offset += first * view->stride[dim];
    part.shape[dim] = count;
    part.length -= (view->shape[dim] - count) * view->stride[dim];
    return part;
}
