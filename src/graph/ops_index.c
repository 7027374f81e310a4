/*
 * ops_index.c - elements by their places: gathering, scattering, and what is made of the places themselves.
 */
#include <math.h>

#include "graph/ops_build.h"

#define ULL(x) ((unsigned long long)(x))

mica_tensor mica_graph_wrap_ids(mica_graph *graph, mica_tensor ids, uint64_t n)
{
    mica__type type;
    if (!mica__graph_begins(graph, "wrap_ids") || !mica__build_takes(graph, "wrap_ids", "ids", ids, &type))
        return 0;
    if (n > INT32_MAX)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "wrap_ids", "n is %llu, over 2^31", ULL(n));
    const mica_tensor id = mica__build_ids(graph, "wrap_ids", "ids", ids);
    if (id == 0 || mica__type_of(graph, id)->dtype == MICA_DTYPE_U32)
        return id;
    const mica_tensor below = mica_graph_less(graph, id, mica__build_number(graph, id, 0));
    const mica_tensor moved = mica_graph_add(graph, id, mica__build_number(graph, id, (double)n));
    return mica__build_end(graph, "wrap_ids", mica_graph_select(graph, below, moved, id));
}

/* ---- slices, and single elements ---- */

mica_tensor mica_graph_gather(mica_graph *graph, mica_tensor x, mica_tensor ids, int32_t axis)
{
    static const char call[] = "gather";
    mica__type type, places;
    mica_gather_params params = {0};
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "x", x, &type) ||
        !mica__build_takes(graph, call, "ids", ids, &places) ||
        !mica__build_axis(graph, call, axis, type.ndim, &params.axis))
        return 0;
    if (type.ndim + places.ndim > MICA_MAX_DIMS + 1)
        return mica__build_refuse(graph, call, "ids", &places, "has too many dimensions beside the %u of x",
                                  type.ndim);
    mica_tensor id = mica__build_ids(graph, call, "ids", ids);
    if (id != 0 && places.ndim != 1)
        id = mica_graph_reshape(graph, id, 1, (const uint64_t[]){MICA_SIZE_REST});
    if (id == 0)
        return 0;
    const mica_tensor y = mica__build_op(graph, MICA_OP_GATHER, &params, (const mica_tensor[]){x, id}, 2);
    if (places.ndim == 1)
        return mica__build_end(graph, call, y);
    mica__type out = {.ndim = 0};
    for (uint32_t d = 0; d < type.ndim; d++)
        if (d != params.axis)
            out.shape[out.ndim++] = type.shape[d];
        else
            for (uint32_t k = 0; k < places.ndim; k++)
                out.shape[out.ndim++] = places.shape[k];
    return mica__build_end(graph, call, mica__build_as(graph, y, &out));
}

mica_tensor mica_graph_take_along_axis(mica_graph *graph, mica_tensor x, mica_tensor ids, int32_t axis)
{
    static const char call[] = "take_along_axis";
    mica__type type, places;
    mica_gather_params params = {0};
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "x", x, &type) ||
        !mica__build_axis(graph, call, axis, type.ndim, &params.axis) ||
        !mica__build_takes_rank(graph, call, "ids", ids, type.ndim, type.ndim, &places))
        return 0;
    const mica_tensor id = mica__build_ids(graph, call, "ids", ids);
    const mica_tensor y =
        id == 0 ? 0 : mica__build_op(graph, MICA_OP_GATHER, &params, (const mica_tensor[]){x, id}, 2);
    return mica__build_end(graph, call, y);
}

mica_tensor mica_graph_scatter(mica_graph *graph, mica_tensor x, mica_tensor ids, mica_tensor updates,
                               int32_t axis, mica_scatter_mode mode)
{
    static const char call[] = "scatter";
    mica__type type;
    mica_scatter_params params = {.mode = (uint32_t)mode};
    if (!mica__graph_begins(graph, call) || !mica__build_takes(graph, call, "x", x, &type) ||
        !mica__build_axis(graph, call, axis, type.ndim, &params.axis))
        return 0;
    const mica_tensor id = mica__build_ids(graph, call, "ids", ids);
    const mica_tensor y =
        id == 0 ? 0
                : mica__build_op(graph, MICA_OP_SCATTER, &params, (const mica_tensor[]){updates, id, x}, 3);
    return mica__build_end(graph, call, y);
}

/* ---- elements by several places ---- */

mica_tensor mica_graph_gather_nd(mica_graph *graph, mica_tensor x, mica_tensor ids, uint32_t batch_dims)
{
    const mica_gather_nd_params params = {.batch_dims = batch_dims};
    if (!mica__graph_begins(graph, "gather_nd"))
        return 0;
    const mica_tensor id = mica__build_ids(graph, "gather_nd", "ids", ids);
    const mica_tensor y =
        id == 0 ? 0 : mica__build_op(graph, MICA_OP_GATHER_ND, &params, (const mica_tensor[]){x, id}, 2);
    return mica__build_end(graph, "gather_nd", y);
}

mica_tensor mica_graph_scatter_nd(mica_graph *graph, mica_tensor x, mica_tensor ids, mica_tensor updates,
                                  mica_scatter_mode mode)
{
    const mica_scatter_nd_params params = {.mode = (uint32_t)mode};
    if (!mica__graph_begins(graph, "scatter_nd"))
        return 0;
    const mica_tensor id = mica__build_ids(graph, "scatter_nd", "ids", ids);
    const mica_tensor y = id == 0 ? 0
                                  : mica__build_op(graph, MICA_OP_SCATTER_ND, &params,
                                                   (const mica_tensor[]){updates, id, x}, 3);
    return mica__build_end(graph, "scatter_nd", y);
}

/* ---- as many as there are ---- */

mica_tensor mica_graph_nonzero(mica_graph *graph, mica_tensor x, uint64_t room, mica_tensor *out_count)
{
    mica__type type;
    mica_tensor out[2] = {0, 0};
    if (out_count != NULL)
        *out_count = 0;
    if (!mica__graph_begins(graph, "nonzero") || !mica__build_takes(graph, "nonzero", "x", x, &type))
        return 0;
    const uint64_t rows = room != 0 ? room : mica__type_elements(&type);
    if (rows == MICA_SIZE_UNKNOWN)
        return mica__build_refuse(graph, "nonzero", "x", &type,
                                  "has no number of elements: room must say one");
    const mica_operand_desc asked[2] = {{.dtype = MICA_DTYPE_I32, .ndim = 2, .shape = {rows, type.ndim}},
                                        {.dtype = MICA_DTYPE_I32, .ndim = 1, .shape = {1}}};
    (void)mica_graph_op(graph, MICA_OP_NONZERO, NULL, &x, 1, 3, asked, out, 2);
    if (out_count != NULL)
        *out_count = out[1];
    return out[0];
}

mica_tensor mica_graph_compress(mica_graph *graph, mica_tensor x, mica_tensor condition, int32_t axis,
                                mica_tensor *out_count)
{
    mica__type type, holds;
    mica_compress_params params = {0};
    mica_tensor out[2] = {0, 0};
    if (out_count != NULL)
        *out_count = 0;
    if (!mica__graph_begins(graph, "compress") || !mica__build_takes(graph, "compress", "x", x, &type) ||
        !mica__build_axis(graph, "compress", axis, type.ndim, &params.axis) ||
        !mica__build_takes_rank(graph, "compress", "condition", condition, 1, 1, &holds))
        return 0;
    if (holds.shape[0] == MICA_SIZE_UNKNOWN)
        return mica__build_refuse(graph, "compress", "condition", &holds,
                                  "has a size of which nothing is known");
    mica_operand_desc asked[2] = {{.dtype = type.dtype, .ndim = type.ndim},
                                  {.dtype = MICA_DTYPE_I32, .ndim = 1, .shape = {1}}};
    memcpy(asked[0].shape, type.shape, sizeof type.shape);
    asked[0].shape[params.axis] = holds.shape[0];
    (void)mica_graph_op(graph, MICA_OP_COMPRESS, &params, (const mica_tensor[]){x, condition}, 2, 3, asked,
                        out, 2);
    if (out_count != NULL)
        *out_count = out[1];
    return out[0];
}

mica_tensor mica_graph_embedding(mica_graph *graph, mica_tensor table, mica_tensor ids, mica_dtype dtype)
{
    static const char call[] = "embedding";
    mica__type type, places;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "table", table, 2, 2, &type) ||
        !mica__build_takes_rank(graph, call, "ids", ids, 0, MICA_MAX_DIMS - 1, &places))
        return 0;
    mica_tensor id = mica__build_ids(graph, call, "ids", ids);
    if (id != 0 && places.ndim != 1)
        id = mica_graph_reshape(graph, id, 1, (const uint64_t[]){MICA_SIZE_REST});
    if (id == 0)
        return 0;
    const bool same = type.dtype == MICA_DTYPE_F16 || type.dtype == MICA_DTYPE_BF16;
    const mica_operand_desc asked = {.dtype = dtype != MICA_DTYPE_NONE ? dtype
                                              : same                   ? type.dtype
                                                                       : MICA_DTYPE_F32,
                                     .ndim = MICA_RANK_UNKNOWN};
    const mica_tensor y = mica_graph_op(graph, MICA_OP_EMBEDDING, NULL, (const mica_tensor[]){table, id}, 2,
                                        1, &asked, NULL, 0);
    places.shape[places.ndim++] = type.shape[1];
    return mica__build_end(graph, call, places.ndim == 2 ? y : mica__build_as(graph, y, &places));
}

/* ---- places as numbers ---- */

mica_tensor mica_graph_one_hot(mica_graph *graph, mica_tensor ids, uint64_t classes, mica_dtype dtype)
{
    mica__type type;
    if (!mica__graph_begins(graph, "one_hot") ||
        !mica__build_takes_rank(graph, "one_hot", "ids", ids, 0, MICA_MAX_DIMS - 1, &type))
        return 0;
    const mica_tensor id = mica__build_ids(graph, "one_hot", "ids", ids);
    if (id == 0)
        return 0;
    const mica_tensor place = mica_graph_index(graph, mica__type_of(graph, id)->dtype, 1, &classes, 0);
    const mica_tensor hit = mica_graph_equal(graph, mica__build_insert(graph, id, type.ndim), place);
    return mica__build_end(graph, "one_hot", hit == 0 ? 0 : mica_graph_cast(graph, hit, dtype));
}

static mica_tensor triangle(mica_graph *graph, const char *call, bool upper, mica_tensor x, int32_t diagonal)
{
    static const char *const names[] = {"x"};
    mica__type type;
    mica__region_room room;
    if (!mica__graph_begins(graph, call) ||
        !mica__build_takes_rank(graph, call, "x", x, 2, MICA_MAX_DIMS, &type))
        return 0;
    const mica_register reg = mica_register_of(type.dtype);
    if (reg == MICA_REGISTER_NONE || type.dtype == MICA_DTYPE_C64)
        return mica__build_refuse(graph, call, "x", &type, "is of no plain real type");
    mica__triangle_program(upper, reg, reg, diagonal, &room.program);
    return mica__build_region(graph, call, &room.program, names, &x, &type.dtype, NULL);
}

mica_tensor mica_graph_tril(mica_graph *graph, mica_tensor x, int32_t diagonal)
{
    return triangle(graph, "tril", false, x, diagonal);
}

mica_tensor mica_graph_triu(mica_graph *graph, mica_tensor x, int32_t diagonal)
{
    return triangle(graph, "triu", true, x, diagonal);
}

mica_tensor mica_graph_arange(mica_graph *graph, mica_dtype dtype, double start, double step, uint64_t count)
{
    static const char call[] = "arange";
    if (!mica__graph_begins(graph, call))
        return 0;
    const mica_register reg = mica_register_of(dtype);
    const bool whole = (MICA__SET_INTEGER >> reg & 1) != 0;
    if ((MICA__SET_NUMBER >> reg & 1) == 0 || dtype == MICA_DTYPE_C64)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call, "dtype is %s",
                                mica_dtype_name(dtype));
    if (!isfinite(start) || !isfinite(step) ||
        (whole &&
         (start != trunc(start) || step != trunc(step) || fabs(start) >= 0x1p63 || fabs(step) >= 0x1p63)))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, call,
                                "start %g or step %g is not a number of %s", start, step,
                                mica_dtype_name(dtype));
    const mica_dtype in = whole ? MICA_DTYPE_I64 : dtype == MICA_DTYPE_F64 ? MICA_DTYPE_F64 : MICA_DTYPE_F32;
    mica_tensor y = mica_graph_cast(graph, mica_graph_index(graph, MICA_DTYPE_I64, 1, &count, 0), in);
    if (step != 1)
        y = mica_graph_mul(graph, y, mica_graph_number(graph, in, step));
    if (start != 0)
        y = mica_graph_add(graph, y, mica_graph_number(graph, in, start));
    return mica__build_end(graph, call, y == 0 ? 0 : mica_graph_cast(graph, y, dtype));
}

mica_tensor mica_graph_eye(mica_graph *graph, mica_dtype dtype, uint64_t rows, uint64_t columns,
                           int32_t diagonal)
{
    const uint64_t shape[] = {rows, columns};
    if (!mica__graph_begins(graph, "eye"))
        return 0;
    const mica_tensor column = mica_graph_index(graph, MICA_DTYPE_I64, 2, shape, 1);
    mica_tensor row = mica_graph_index(graph, MICA_DTYPE_I64, 2, shape, 0);
    if (diagonal != 0)
        row = mica_graph_add(graph, row, mica_graph_number(graph, MICA_DTYPE_I64, diagonal));
    const mica_tensor hit = mica_graph_equal(graph, column, row);
    return mica__build_end(graph, "eye", hit == 0 ? 0 : mica_graph_cast(graph, hit, dtype));
}
