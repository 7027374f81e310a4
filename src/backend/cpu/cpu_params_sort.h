/* cpu_params_sort.h - parameter blocks that the plans of scans and of sorting hand to their kernels. */
#ifndef MICA_CPU_PARAMS_SORT_H
#define MICA_CPU_PARAMS_SORT_H

#include "backend/cpu/cpu_params.h"

/* scan: a row of the range is part r % parts of row r / parts of the views. Elements are scanned in blocks, whose totals are added up in
 * f64; the totals of whole parts again by themselves, so that a row has the same bits cut or whole. scan_totals leaves the total
 * of each part (8 bytes) in the scratch. scan_columns: a row of the range is a tile of neighbouring rows, which lie side by side. */
#define MICA__CPU_SCAN_BLOCK 1024u
#define MICA__CPU_SCAN_PART 65536u
#define MICA__CPU_SCAN_TILE 256u

typedef struct mica__cpu_scan {
    mica__cpu_row_range range;
    uint64_t parts; /* 1: rows are whole */
    uint64_t tiles; /* scan_columns: of the last dimension but one */
    mica_scan_params scan;
} mica__cpu_scan;

typedef struct mica__cpu_argmax {
    mica__cpu_row_range range;
    mica_argmax_params argmax;
} mica__cpu_argmax;

/* sort: an element is its key, which orders as an unsigned number, with its place in the row behind it. Of types up to 32 bits both are one
 * word, the key above; of 64 bits two words. `sort` takes whole rows. Long ones are cut into parts:
 *   few of many wanted    sort_best finds the k first of each part, sort_join those of them all
 *   else                  sort_keys makes elements; a pass for each digit of the key, from the lowest on, has sort_count count the digits of each part,
 *                         sort_places make of the counts where they go, and sort_move move; sort_put writes what came out
 * A row of the range is a part, of sort, sort_join and sort_places a row of x. */
#define MICA__CPU_SORT_DIGIT 8u
#define MICA__CPU_SORT_BINS 256u
#define MICA__CPU_SORT_PART 32768u /* elements of a part */

typedef struct mica__cpu_sort {
    mica__cpu_row_range range;
    uint64_t n, k, parts;
    uint64_t element_bytes;
    uint32_t shift; /* sort_count and sort_move: of the digit in the key */
    uint32_t descending;
} mica__cpu_sort;

static inline uint64_t mica__cpu_sort_element_bytes(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F64 || dtype == MICA_DTYPE_I64 ? 16 : 8;
}

static inline uint32_t mica__cpu_sort_key_bits(uint16_t dtype)
{
    return dtype == MICA_DTYPE_F64 || dtype == MICA_DTYPE_I64    ? 64
           : dtype == MICA_DTYPE_F16 || dtype == MICA_DTYPE_BF16 ? 16
                                                                 : 32;
}

#endif
