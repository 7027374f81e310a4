/* gpu_plan_linear.c - linear algebra, which the cpu has alone: long chains of steps that each wait for the one before. */
#include "backend/gpu/gpu_plan.h"
#include "base/status.h"

#define REFUSED(name)                                                                            \
    mica_status mica__gpu_plan_##name(const mica__record *record, const mica__device_info *info, \
                                      mica__plan *plan)                                          \
    {                                                                                            \
        (void)record;                                                                            \
        (void)info;                                                                              \
        (void)plan;                                                                              \
        return mica__fail(MICA_ERR_UNSUPPORTED, #name ": it is served on the cpu alone");        \
    }
REFUSED(triangular_solve)
REFUSED(cholesky)
REFUSED(solve)
REFUSED(inverse)
REFUSED(determinant)
REFUSED(qr)
REFUSED(eigh)
REFUSED(svd)
