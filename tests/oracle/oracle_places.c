/* oracle_places.c - pads, gathering and scattering, one element at a time. */
#include "oracle/oracle_places.h"

#include <math.h>

int64_t oracle_pad_place(int mode, int64_t p, int64_t n)
{
    while (p < 0 || p >= n) {
        switch (mode) {
        case ORACLE_PAD_EDGE: p = p < 0 ? 0 : n - 1; break;
        case ORACLE_PAD_REFLECT:
            if (n == 1)
                return 0;
            p = p < 0 ? -p : 2 * (n - 1) - p;
            break;
        case ORACLE_PAD_SYMMETRIC: p = p < 0 ? -1 - p : 2 * n - 1 - p; break;
        case ORACLE_PAD_WRAP: p += p < 0 ? n : -n; break;
        default: return -1;
        }
    }
    return p;
}

uint64_t oracle_at_id(uint32_t ndim, const uint64_t *shape, uint32_t axis, uint64_t n, uint64_t index,
                      uint64_t id)
{
    uint64_t place = 0, step = 1;

    for (uint32_t d = ndim; d-- > 0;) {
        place += (d == axis ? id : index % shape[d]) * step;
        step *= d == axis ? n : shape[d];
        index /= shape[d];
    }
    return place;
}

uint64_t oracle_id_place(uint32_t ndim, const uint64_t *shape, uint32_t axis, uint32_t ids_ndim,
                         const uint64_t *ids_shape, uint64_t index)
{
    uint64_t place = 0, step = 1;

    for (uint32_t d = ndim; d-- > 0;) {
        const uint64_t here = index % shape[d];
        const uint64_t own = ids_ndim == ndim ? ids_shape[d] : d == axis ? ids_shape[0] : 1;

        place += own == 1 ? 0 : here * step;
        step *= own;
        index /= shape[d];
    }
    return place;
}

uint64_t oracle_coordinates(uint32_t ndim, const uint64_t *shape, const double *place)
{
    uint64_t at = 0;

    for (uint32_t d = 0; d < ndim; d++) {
        if (place[d] < 0 || place[d] >= (double)shape[d])
            return UINT64_MAX;
        at = at * shape[d] + (uint64_t)place[d];
    }
    return at;
}

void oracle_combine(int mode, double update, double *y, double *size, double *count)
{
    switch (mode) {
    case ORACLE_ADD:
        *y += update;
        *size += fabs(update);
        break;
    case ORACLE_MUL:
        *y *= update;
        *size = fabs(*y);
        break;
    case ORACLE_MAX: *y = fmax(*y, update); break;
    case ORACLE_MIN: *y = fmin(*y, update); break;
    default: *y = update; break;
    }
    *count += 1;
}
