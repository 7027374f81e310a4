/* matmul_activation.c - rows of x made ready for a quantised matmul: converted, normalised, quantised. */
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/quant/quant_activation.h"

void MICA__ISA(matmul_activation)(const mica__cpu_args *args, uint32_t first, uint32_t last)
{
    const mica__quant_activation *a = args->params;
    for (uint64_t r = first; r < last; r++)
        quant_activate(a, &args->view[0], &args->view[1], r, args->local,
                       args->view[2].data + r * mica__quant_activation_bytes(a));
}
