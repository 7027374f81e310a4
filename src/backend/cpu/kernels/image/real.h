/*
 * real.h - rows of f32, f16 and bf16 as float, and rows of f64 as double, by the same names: for kernels whose body is written once over REAL.
 * FN(name) is name_float or name_double.
 */
#ifndef MICA_CPU_IMAGE_REAL_H
#define MICA_CPU_IMAGE_REAL_H

#include "backend/cpu/kernels/rows.h"

static inline float load_float(const unsigned char *from, uint16_t dtype)
{
    return row_element(from, dtype);
}

static inline double load_double(const unsigned char *from, uint16_t dtype)
{
    double value;
    (void)dtype;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline const float *row_float(const unsigned char *from, uint16_t dtype, uint64_t stride, uint64_t n,
                                     float *tmp)
{
    return row_f32_strided(from, dtype, stride, n, tmp);
}

static inline const double *row_double(const unsigned char *from, uint16_t dtype, uint64_t stride, uint64_t n,
                                       double *tmp)
{
    for (uint64_t i = 0; i < n; i++)
        tmp[i] = load_double(from + i * stride, dtype);
    return tmp;
}

static inline void put_row_float(unsigned char *to, uint16_t dtype, uint64_t stride, const float *row,
                                 uint64_t n)
{
    row_store_strided(to, dtype, stride, row, n);
}

static inline void put_row_double(unsigned char *to, uint16_t dtype, uint64_t stride, const double *row,
                                  uint64_t n)
{
    (void)dtype;
    for (uint64_t i = 0; i < n; i++)
        memcpy(to + i * stride, &row[i], sizeof row[i]);
}

#endif
