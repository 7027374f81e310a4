/* oracle_places.h - where elements come from and go to: pads step by step, ids one after the other. */
#ifndef ORACLE_PLACES_H
#define ORACLE_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include "mica/types.h"

enum { ORACLE_PAD_CONSTANT, ORACLE_PAD_EDGE, ORACLE_PAD_REFLECT, ORACLE_PAD_SYMMETRIC, ORACLE_PAD_WRAP };

/* The place in a dimension of size n that place p stands for; -1: none. */
int64_t oracle_pad_place(int mode, int64_t p, int64_t n);

/* The dense index of x [shape, n along `axis` instead] that element `index` of `shape` has with the id `id` along the axis. */
uint64_t oracle_at_id(uint32_t ndim, const uint64_t *shape, uint32_t axis, uint64_t n, uint64_t index,
                      uint64_t id);

/* The dense index of ids of what element `index` of `shape` has: ids is a vector along the axis, or has sizes of its own, of which 1 repeats. */
uint64_t oracle_id_place(uint32_t ndim, const uint64_t *shape, uint32_t axis, uint32_t ids_ndim,
                         const uint64_t *ids_shape, uint64_t index);

/* Where the element with these coordinates stands; UINT64_MAX where one is outside of its dimension. */
uint64_t oracle_coordinates(uint32_t ndim, const uint64_t *shape, const double *place);

enum { ORACLE_SET, ORACLE_ADD, ORACLE_MUL, ORACLE_MAX, ORACLE_MIN };

/* y = y and update; `size` grows by what its rounding may stray, and `count` by one. */
void oracle_combine(int mode, double update, double *y, double *size, double *count);

#endif
