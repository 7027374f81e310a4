/*
 * ops_gather.c - operators that pick elements by index, and put them there.
 */
#include <string.h>

#include "base/sort.h"
#include "base/work.h"
#include "graph/onnx/importer.h"
#include "graph/onnx/operators.h"
#include "graph/onnx/rows.h"

/* Ids of a vector along an axis, whatever shape they have. */
static mica_status gather_along(mica__ox_op *o, mica_tensor x, uint32_t axis, uint32_t input,
                                mica_tensor *out)
{
    const mica__type type = mica__ox_type(o, x);
    const mica_gather_params params = {.axis = axis};
    if (!mica__size_known(type.shape[axis]))
        return mica__ox_fail(o, "along a size that is not known while importing");
    mica_tensor ids = mica__ox_ids(o, input, type.shape[axis]);
    const mica__type shape = mica__ox_type(o, ids);
    const uint32_t ndim = type.ndim + shape.ndim - 1;
    uint64_t sizes[2 * MICA_MAX_DIMS], count = 0;
    if (ndim > MICA_MAX_DIMS)
        return mica__ox_fail(o, "to %u dimensions", ndim);
    for (uint32_t d = 0; d < axis; d++)
        sizes[count++] = type.shape[d];
    for (uint32_t d = 0; d < shape.ndim; d++)
        sizes[count++] = shape.shape[d];
    for (uint32_t d = axis + 1; d < type.ndim; d++)
        sizes[count++] = type.shape[d];
    ids = mica__ox_reshape(o, ids, 1, (const uint64_t[]){MICA_SIZE_REST});
    if (type.ndim == 1 && shape.ndim != 1)
        ids = mica__ox_reshape(o, ids, 1, (const uint64_t[]){MICA_SIZE_REST});
    const mica_tensor y = mica__ox_op1(o, MICA_OP_GATHER, &params, (const mica_tensor[]){x, ids}, 2);
    *out = shape.ndim == 1 ? y : mica__ox_reshape(o, y, ndim, sizes);
    return MICA_OK;
}

mica_status mica__ox_gather(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    uint32_t axis = 0;
    mica_tensor y = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), type.ndim, &axis));
    MICA__TRY(gather_along(o, x, axis, 1, &y));
    mica__ox_out(o, 0, y);
    return MICA_OK;
}

/* x cut to the sizes that the ids have, but along the axis. */
static mica_tensor cut_to(const mica__ox_op *o, mica_tensor x, const mica__type *ids, uint32_t axis)
{
    const mica__type type = mica__ox_type(o, x);
    for (uint32_t d = 0; d < type.ndim; d++)
        if (d != axis && type.shape[d] != ids->shape[d])
            x = mica__ox_slice(o, x, d, 0, ids->shape[d]);
    return x;
}

mica_status mica__ox_gather_elements(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x), shape = mica__ox_in_type(o, 1);
    mica_gather_params params = {.axis = 0};
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), type.ndim, &params.axis));
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    if (shape.ndim != type.ndim)
        return mica__ox_fail(o, "indices of %u dimensions for %u", shape.ndim, type.ndim);
    const mica_tensor ids = mica__ox_ids(o, 1, type.shape[params.axis]);
    const mica_tensor y = mica__ox_op1(o, MICA_OP_GATHER, &params,
                                       (const mica_tensor[]){cut_to(o, x, &shape, params.axis), ids}, 2);
    mica__ox_out(o, 0, y);
    return MICA_OK;
}

static const char *const reductions[] = {"none", "add", "mul", "max", "min", NULL};

static mica_tensor scattered(const mica__ox_op *o, mica_tensor into, mica_tensor updates, mica_tensor ids,
                             uint32_t axis, uint32_t mode)
{
    const mica_scatter_params params = {.axis = axis, .mode = mode};
    const mica_tensor inputs[] = {updates, ids, into};
    return into == 0 || updates == 0 || ids == 0
               ? 0
               : mica_graph_op(o->graph, MICA_OP_SCATTER, &params, inputs, 3, 1, NULL, NULL, 0);
}

/* Types that a scatter that adds has not go through i32. */
static mica_dtype scattered_in(mica_dtype dtype, uint32_t mode)
{
    const bool small = dtype == MICA_DTYPE_I8 || dtype == MICA_DTYPE_I16 || dtype == MICA_DTYPE_U8 ||
                       dtype == MICA_DTYPE_U16;
    return mode != MICA_SCATTER_SET && small ? MICA_DTYPE_I32 : dtype;
}

/*
 * ids and updates may be smaller than x in the other dimensions too. Then each update goes to a place of the flattened x, which is computed.
 */
static mica_tensor flat_places(const mica__ox_op *o, mica_tensor ids, const mica__type *shape,
                               const mica__type *x, uint32_t axis)
{
    mica_tensor at = 0;
    uint64_t step = 1;
    for (uint32_t d = x->ndim; d-- > 0;) {
        mica_tensor part = d == axis ? ids : mica__ox_iota(o, shape->ndim, shape->shape, d, MICA_DTYPE_I32);
        part = mica__ox_scalar(o, MICA_SCALAR_MUL, part, mica__ox_number(o, part, (double)step));
        at = at == 0 ? part : mica__ox_scalar(o, MICA_SCALAR_ADD, at, part);
        step *= x->shape[d];
    }
    return at;
}

mica_status mica__ox_scatter_elements(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x), shape = mica__ox_in_type(o, 1);
    const uint32_t mode = mica__ox_word(o, "reduction", 0, reductions);
    const mica_dtype inside = scattered_in(type.dtype, mode);
    uint32_t axis = 0;
    MICA__TRY(mica__ox_axis(o, mica__ox_int(o, "axis", 0), type.ndim, &axis));
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    if (mode == UINT32_MAX || shape.ndim != type.ndim)
        return mica__ox_fail(o, "such a reduction, or indices of other dimensions");
    mica_tensor ids = mica__ox_ids(o, 1, type.shape[axis]),
                updates = mica__ox_cast(o, mica__ox_in(o, 2), inside);
    x = mica__ox_cast(o, x, inside);
    bool same = true;
    uint64_t count = 1;
    for (uint32_t d = 0; d < type.ndim; d++) {
        same = same && (d == axis || type.shape[d] == shape.shape[d]);
        count *= type.shape[d];
    }
    if (!same && count > INT32_MAX)
        return mica__ox_fail(o, "of more than 2^31 elements");
    if (!same) {
        const uint64_t flat[] = {MICA_SIZE_REST};
        ids = mica__ox_reshape(o, flat_places(o, ids, &shape, &type, axis), 1, flat);
        updates = mica__ox_reshape(o, updates, 1, flat);
        x = mica__ox_reshape(o, scattered(o, mica__ox_reshape(o, x, 1, flat), updates, ids, 0, mode),
                             type.ndim, type.shape);
    } else {
        x = scattered(o, x, updates, ids, axis, mode);
    }
    mica__ox_out(o, 0, mica__ox_cast(o, x, type.dtype));
    return MICA_OK;
}

/* The index tuples [.., k] of input i as one number each, over the k dimensions of `shape` from `first` on. */
static mica_status tuple_places(mica__ox_op *o, uint32_t i, const mica__type *x, uint32_t first, uint32_t k,
                                mica_tensor *out)
{
    const mica_tensor indices = mica__ox_in(o, i);
    const mica__type type = mica__ox_type(o, indices);
    mica_tensor at = 0, inside = 0;
    uint64_t step = 1;
    for (uint32_t c = k; c-- > 0;) {
        const uint64_t size = x->shape[first + c];
        mica_tensor part = mica__ox_cast(o, mica__ox_slice(o, indices, type.ndim - 1, c, 1), MICA_DTYPE_I32);
        part = mica__ox_reshape(o, part, type.ndim - 1, type.shape);
        const mica_tensor low = mica__ox_scalar(o, MICA_SCALAR_LESS, part, mica__ox_number(o, part, 0));
        part = mica__ox_select(
            o, low, mica__ox_scalar(o, MICA_SCALAR_ADD, part, mica__ox_number(o, part, (double)size)), part);
        const mica_tensor fits = mica__ox_scalar(
            o, MICA_SCALAR_BIT_AND,
            mica__ox_scalar(o, MICA_SCALAR_GREATER_EQUAL, part, mica__ox_number(o, part, 0)),
            mica__ox_scalar(o, MICA_SCALAR_LESS, part, mica__ox_number(o, part, (double)size)));
        inside = inside == 0 ? fits : mica__ox_scalar(o, MICA_SCALAR_BIT_AND, inside, fits);
        part = mica__ox_scalar(o, MICA_SCALAR_MUL, part, mica__ox_number(o, part, (double)step));
        at = at == 0 ? part : mica__ox_scalar(o, MICA_SCALAR_ADD, at, part);
        step *= size;
    }
    *out = k > 1 || first != 0 /* else the place of another row, or batch, is what would be read */
               ? mica__ox_select(o, inside, at, mica__ox_number(o, at, INT32_MIN))
               : at;
    return step <= INT32_MAX ? MICA_OK : mica__ox_fail(o, "over more than 2^31 places");
}

static uint64_t elements_from(const mica__type *type, uint32_t from, uint32_t to)
{
    uint64_t count = 1;
    for (uint32_t d = from; d < to; d++)
        count *= type->shape[d];
    return count;
}

mica_status mica__ox_gather_nd(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x), shape = mica__ox_in_type(o, 1);
    const int64_t given = mica__ox_int(o, "batch_dims", 0);
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 1), "input 1"));
    const uint32_t b = (uint32_t)given;
    if (given < 0 || shape.ndim <= b || type.ndim <= b || shape.shape[shape.ndim - 1] == 0 ||
        shape.shape[shape.ndim - 1] > type.ndim - b)
        return mica__ox_fail(o, "such shapes and batch_dims");
    const uint32_t k = (uint32_t)shape.shape[shape.ndim - 1];
    mica_tensor at = 0;
    MICA__TRY(tuple_places(o, 1, &type, b, k, &at));
    /* x as [batch * places, rest], batches shifted by their number of places */
    const uint64_t batch = elements_from(&type, 0, b), places = elements_from(&type, b, b + k);
    const uint64_t rest = elements_from(&type, b + k, type.ndim),
                   each = elements_from(&shape, b, shape.ndim - 1);
    if (batch * places > INT32_MAX)
        return mica__ox_fail(o, "over more than 2^31 places");
    at = mica__ox_reshape(o, at, 2, (const uint64_t[]){batch, each});
    const mica_tensor row = mica__ox_iota(o, 2, (const uint64_t[]){batch, each}, 0, MICA_DTYPE_I32);
    at = mica__ox_scalar(o, MICA_SCALAR_ADD, at,
                         mica__ox_scalar(o, MICA_SCALAR_MUL, row, mica__ox_number(o, row, (double)places)));
    at = mica__ox_reshape(o, at, 1, (const uint64_t[]){batch * each});
    const mica_tensor flat = mica__ox_reshape(o, x, 2, (const uint64_t[]){batch * places, rest});
    const mica_tensor y = mica__ox_op1(o, MICA_OP_GATHER, NULL, (const mica_tensor[]){flat, at}, 2);
    uint64_t out[2 * MICA_MAX_DIMS];
    uint32_t ndim = 0;
    for (uint32_t d = 0; d + 1 < shape.ndim; d++)
        out[ndim++] = shape.shape[d];
    for (uint32_t d = b + k; d < type.ndim; d++)
        out[ndim++] = type.shape[d];
    mica__ox_out(o, 0, mica__ox_reshape(o, y, ndim, out));
    return MICA_OK;
}

mica_status mica__ox_scatter_nd(mica__ox_op *o)
{
    const mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x), shape = mica__ox_in_type(o, 1);
    const uint32_t mode = mica__ox_word(o, "reduction", 0, reductions);
    const mica_dtype inside = scattered_in(type.dtype, mode);
    MICA__TRY(mica__ox_need_shape(o, x, "input 0"));
    MICA__TRY(mica__ox_need_shape(o, mica__ox_in(o, 1), "input 1"));
    if (mode == UINT32_MAX || shape.ndim == 0 || shape.shape[shape.ndim - 1] == 0 ||
        shape.shape[shape.ndim - 1] > type.ndim)
        return mica__ox_fail(o, "such a reduction or shapes");
    const uint32_t k = (uint32_t)shape.shape[shape.ndim - 1];
    mica_tensor at = 0;
    MICA__TRY(tuple_places(o, 1, &type, 0, k, &at));
    const uint64_t rest = elements_from(&type, k, type.ndim);
    at = mica__ox_reshape(o, at, 1, (const uint64_t[]){MICA_SIZE_REST});
    const uint64_t count = elements_from(&shape, 0, shape.ndim - 1);
    const mica_tensor updates =
        mica__ox_reshape(o, mica__ox_cast(o, mica__ox_in(o, 2), inside), 2, (const uint64_t[]){count, rest});
    const mica_tensor flat = mica__ox_reshape(o, mica__ox_cast(o, x, inside), 2,
                                              (const uint64_t[]){elements_from(&type, 0, k), rest});
    const mica_tensor y =
        mica__ox_reshape(o, scattered(o, flat, updates, at, 0, mode), type.ndim, type.shape);
    mica__ox_out(o, 0, mica__ox_cast(o, y, type.dtype));
    return MICA_OK;
}

/* ---- results whose size is in the elements --------------------------------------------------------------- */

static bool is_true(const mica__ox_host *host, uint64_t i)
{
    return mica__ox_host_number(host, i) != 0;
}

mica_status mica__ox_non_zero(mica__ox_op *o)
{
    const mica__ox_host *x = mica__ox_known(o, 0);
    uint64_t count = 0, at = 0;
    if (x == NULL)
        return mica__ox_places_found(o);
    MICA__TRY(mica__spend(x->elements * (x->ndim + 1)));
    for (uint64_t i = 0; i < x->elements; i++)
        count += is_true(x, i);
    int64_t *places = mica__ox_memory(o->im, count * x->ndim, sizeof *places);
    if (places == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < x->elements; i++) {
        uint64_t rest = i;
        if (!is_true(x, i))
            continue;
        for (uint32_t d = x->ndim; d-- > 0; rest /= x->shape[d])
            places[d * count + at] = (int64_t)(rest % x->shape[d]);
        at++;
    }
    return mica__ox_out_host(o, 0, MICA_DTYPE_I64, 2, (const uint64_t[]){x->ndim, count}, places);
}

mica_status mica__ox_compress(mica__ox_op *o)
{
    mica_tensor x = mica__ox_in(o, 0);
    const mica__type type = mica__ox_type(o, x);
    const mica__ox_host *condition = mica__ox_known(o, 1);
    const mica__onnx_attribute *given = mica__ox_attribute(o, "axis", MICA__ONNX_KIND_INT);
    mica_gather_params params = {.axis = 0};
    uint64_t count = 0;
    if (condition == NULL || o->in[0].rows != NULL)
        return mica__ox_compressed(o, given);
    if (given != NULL)
        MICA__TRY(mica__ox_axis(o, given->i, type.ndim, &params.axis));
    else
        x = mica__ox_reshape(o, x, 1, (const uint64_t[]){MICA_SIZE_REST});
    int32_t *ids = mica__ox_memory(o->im, condition->elements, sizeof *ids);
    if (ids == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < condition->elements && i <= INT32_MAX; i++)
        if (is_true(condition, i))
            ids[count++] = (int32_t)i;
    const mica_tensor at = mica__ox_constant(o, MICA_DTYPE_I32, 1, &count, ids);
    mica__ox_out(o, 0, mica__ox_op1(o, MICA_OP_GATHER, &params, (const mica_tensor[]){x, at}, 2));
    return MICA_OK;
}

/* Rows along an axis, as Unique compares them. */
typedef struct unique_row {
    const mica__ox_host *x;
    uint64_t outer, size, inner, at; /* row `at` has elements (a * size + at) * inner + b */
    uint64_t order;                  /* of the rows that are equal, the one that came first */
} unique_row;

static int compare_rows(const void *left, const void *right)
{
    const unique_row *a = left, *b = right;
    for (uint64_t i = 0; i < a->outer; i++)
        for (uint64_t k = 0; k < a->inner; k++) {
            const uint64_t at = (i * a->size + a->at) * a->inner + k,
                           to = (i * b->size + b->at) * b->inner + k;
            const double x = mica__ox_host_number(a->x, at), y = mica__ox_host_number(b->x, to);
            const int64_t p = mica__ox_host_int(a->x, at), q = mica__ox_host_int(b->x, to);
            if (x != y || p != q) /* doubles do not tell large integers apart */
                return x < y || (x == y && p < q) ? -1 : 1;
        }
    return 0;
}

static int compare_order(const void *left, const void *right)
{
    const unique_row *a = left, *b = right;
    return a->order < b->order ? -1 : a->order > b->order;
}

static mica_status give_unique(mica__ox_op *o, const unique_row *found, uint64_t count, const int64_t *counts,
                               const int64_t *inverse, uint64_t rows, uint32_t axis)
{
    int64_t *first = mica__ox_memory(o->im, count, sizeof *first);
    const mica__ox_host *x = found[0].x;
    const uint64_t width = mica_dtype_block_bytes(x->dtype), inner = found[0].inner;
    uint8_t *data = mica__ox_memory(o->im, found[0].outer * count * inner, (size_t)width);
    uint64_t shape[MICA_MAX_DIMS] = {count}, ndim = 1;
    if (first == NULL || data == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t k = 0; k < count; k++) {
        first[k] = (int64_t)found[k].order;
        for (uint64_t a = 0; a < found[0].outer; a++)
            memcpy(data + (a * count + k) * inner * width,
                   (const uint8_t *)x->data + (a * found[0].size + found[k].order) * inner * width,
                   (size_t)(inner * width));
    }
    if (axis != UINT32_MAX) {
        ndim = x->ndim;
        memcpy(shape, x->shape, sizeof shape);
        shape[axis] = count;
    }
    MICA__TRY(mica__ox_out_host(o, 0, x->dtype, (uint32_t)ndim, shape, data));
    MICA__TRY(mica__ox_out_host(o, 1, MICA_DTYPE_I64, 1, &count, first));
    MICA__TRY(mica__ox_out_host(o, 2, MICA_DTYPE_I64, 1, &rows, inverse));
    return mica__ox_out_host(o, 3, MICA_DTYPE_I64, 1, &count, counts);
}

mica_status mica__ox_unique(mica__ox_op *o)
{
    const mica__ox_host *x = NULL;
    const mica__onnx_attribute *given = mica__ox_attribute(o, "axis", MICA__ONNX_KIND_INT);
    const bool sorted = mica__ox_int(o, "sorted", 1) != 0;
    unique_row shape = {.outer = 1, .inner = 1};
    uint32_t axis = 0;
    MICA__TRY(mica__ox_need(o, 0, &x));
    shape.x = x;
    shape.size = x->elements;
    if (given != NULL) {
        MICA__TRY(mica__ox_axis(o, given->i, x->ndim, &axis));
        shape.size = x->shape[axis];
        for (uint32_t d = 0; d < x->ndim; d++)
            *(d < axis ? &shape.outer : &shape.inner) *= d == axis ? 1 : x->shape[d];
    }
    const uint64_t n = shape.size;
    if (n == 0 || n > 1u << 20 || x->dtype == MICA_DTYPE_U64)
        return mica__ox_fail(o, "of %llu rows", (unsigned long long)n);
    unique_row *row = mica__ox_memory(o->im, n, sizeof *row);
    int64_t *counts = mica__ox_memory(o->im, n, sizeof *counts),
            *inverse = mica__ox_memory(o->im, n, sizeof *inverse);
    if (row == NULL || counts == NULL || inverse == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < n; i++) {
        row[i] = shape;
        row[i].at = row[i].order = i;
    }
    MICA__TRY(mica__spend(x->elements * 16));
    MICA__TRY(mica__sort(row, (size_t)n, sizeof *row, compare_rows));
    uint64_t count = 0;
    unique_row *found = mica__ox_memory(o->im, n, sizeof *found);
    if (found == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    for (uint64_t i = 0; i < n; i++)
        if (count == 0 || compare_rows(&found[count - 1], &row[i]) != 0)
            found[count++] = row[i];
    if (!sorted)
        MICA__TRY(mica__sort(found, (size_t)count, sizeof *found, compare_order));
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < count; k++) {
            MICA__TRY(mica__spend(shape.outer * shape.inner));
            if (compare_rows(&found[k], &row[i]) == 0) {
                inverse[row[i].at] = (int64_t)k;
                counts[k]++;
                break;
            }
        }
    return give_unique(o, found, count, counts, inverse, n, given == NULL ? UINT32_MAX : axis);
}
