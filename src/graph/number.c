/*
 * number.c - a number as a node: a constant of one element, rounded as mica_fill rounds.
 */
#include <string.h>

#include "base/half.h"
#include "graph/ir.h"
#include "ops/region.h"

mica_tensor mica_graph_number(mica_graph *graph, mica_dtype dtype, double value)
{
    mica__scalar_value number = {.u64 = 0};
    unsigned char bytes[8] = {0};
    if (!mica__graph_begins(graph, "number"))
        return 0;
    if (dtype <= MICA_DTYPE_NONE || dtype >= MICA_DTYPE_COUNT ||
        mica_register_of(dtype) == MICA_REGISTER_NONE)
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "number", "dtype is %s",
                                mica_dtype_name(dtype));
    if (!mica__constant_of(value, dtype, &number))
        return mica__graph_fail(graph, MICA_ERR_INVALID_ARGUMENT, "number", "%g does not fit %s", value,
                                mica_dtype_name(dtype));
    memcpy(bytes, &number, sizeof number); /* integers: their low bytes */
    const uint16_t half =
        dtype == MICA_DTYPE_F16 ? mica__f32_to_f16(number.f32) : mica__f32_to_bf16(number.f32);
    const uint8_t small = dtype == MICA_DTYPE_F8_E4M3   ? mica__f32_to_f8_e4m3(number.f32)
                          : dtype == MICA_DTYPE_F8_E5M2 ? mica__f32_to_f8_e5m2(number.f32)
                                                        : mica__f32_to_e8m0(number.f32);
    if (dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16)
        memcpy(bytes, &half, sizeof half);
    else if (dtype == MICA_DTYPE_F8_E4M3 || dtype == MICA_DTYPE_F8_E5M2 || dtype == MICA_DTYPE_E8M0)
        bytes[0] = small;
    else if (dtype == MICA_DTYPE_C64)
        memset(bytes + 4, 0, 4);
    return mica_graph_constant(graph, dtype, 0, NULL, bytes, mica_dtype_block_bytes(dtype));
}
