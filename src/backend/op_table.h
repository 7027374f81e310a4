/*
 * op_table.h - the rows of ops.def as C: what ops, sessions and tests know of an op.
 *
 * Knows operands and their shapes; no kernel, no device. A shape here may hold sizes that are not known yet: MICA_SIZE_UNKNOWN, or a
 * symbol, any number above it, which equals itself. Threads: any; everything is constant.
 */
#ifndef MICA_BACKEND_OP_TABLE_H
#define MICA_BACKEND_OP_TABLE_H

#include "backend/record.h"

/* Entries of a slot's shape: a letter is 1 to 26, 0 ends it. */
#define MICA__SHAPE_REST 27u
#define MICA__SHAPE_REPEATS 28u
#define MICA__SHAPE_RULED 29u
#define MICA__SHAPE_FIXED 0x40u /* and a size below 64 */
#define MICA__SHAPE_MAYBE 0x80u /* and a letter */
#define MICA__SHAPE_LETTERS 27u

typedef enum mica__strides { MICA__STRIDES_ANY, MICA__STRIDES_ROWS, MICA__STRIDES_WHOLE } mica__strides;

#define MICA__SLOT_OPTIONAL 1u
#define MICA__SLOT_INNER 2u
#define MICA__SLOT_TABLE 4u
#define MICA__SLOT_PART 8u

#define MICA__TYPES_SAME 0x80u /* of mica__slot_info.types: and a slot, whose type this one has */

typedef struct mica__slot_info {
    const char *name;
    uint32_t shares; /* bit s: an output here may be the very view of slot s */
    uint8_t access;  /* MICA_ACCESS_* */
    uint8_t types;   /* row of mica__types, or MICA__TYPES_SAME */
    uint8_t strides; /* mica__strides */
    uint8_t flags;   /* MICA__SLOT_* */
    uint8_t entries; /* of `shape` */
    uint8_t shape[MICA_MAX_DIMS];
} mica__slot_info;

typedef struct mica__types_info {
    uint64_t set; /* bit d: mica_dtype d */
    const char *text;
} mica__types_info;

typedef enum mica__empty { MICA__EMPTY_REFUSED, MICA__EMPTY_IDENTITY } mica__empty;

typedef struct mica__op_info {
    const char *name;
    const mica__slot_info *slot;         /* rows, the last has no name */
    uint16_t call_params, record_params; /* bytes */
    uint8_t rows;                        /* of `slot` */
    uint8_t fixed;                       /* slots that every record has: they come first */
    uint8_t grouped;                     /* slots behind them that repeat; 0: those are in some records */
    uint8_t empty;                       /* mica__empty */
    uint8_t gradient;                    /* mica_op_gradient */
    uint8_t needs;                       /* mica_op_needs */
} mica__op_info;

extern const mica__op_info mica__ops[MICA_OP_COUNT];
extern const mica__types_info mica__types[];

/* What the table says of a slot of a record; of a custom kernel's nothing is known: written in part, alone. */
const mica__slot_info *mica__slot_of(const mica__record *record, uint32_t slot);
/* May output `out` of the record be the very view of its input `in`? */
bool mica__may_share(const mica__record *record, uint32_t out, uint32_t in);
/* Does the record write every element of this operand, and read none? */
bool mica__writes_whole(const mica__record *record, uint32_t slot);

/* UNSUPPORTED where the record needs more than a device other than the cpu has: what the table says, not what a plan does. */
mica_status mica__op_is_served(const mica__record *record, bool computes_f64);

/* ---- sizes by their letters ---- */

typedef struct mica__sizes {
    uint64_t size[MICA__SHAPE_LETTERS];
    uint32_t known;                                              /* bit of each letter that was seen */
    uint8_t slot[MICA__SHAPE_LETTERS], dim[MICA__SHAPE_LETTERS]; /* whose it is, for sentences */
    uint8_t rest_slot, rest_at, rest_count;                      /* dimensions that REST stands for */
    const mica__operand *rest;                                   /* of whom; NULL: not seen */
    /* Where slots repeat: what those before them said. */
    uint32_t fixed_known;
    const mica__operand *fixed_rest;
} mica__sizes;

static inline bool mica__size_known(uint64_t size)
{
    return size < MICA_SIZE_UNKNOWN;
}
/* Equal, or may be once they are known. */
static inline bool mica__sizes_agree(uint64_t a, uint64_t b)
{
    return a == b || !mica__size_known(a) || !mica__size_known(b);
}

typedef enum mica__fit { MICA__FITS, MICA__FIT_RANK, MICA__FIT_SIZE } mica__fit;

/* The operand of slot `at` against the slot's shape; what nobody gave yet is taken from it. FIT_SIZE: *out_dim is the dimension. */
mica__fit mica__sizes_take(mica__sizes *sizes, const mica__slot_info *slot, uint32_t at,
                           const mica__operand *operand, uint32_t *out_dim);
/* Before the first slot of a group: what the group before it said is forgotten. */
static inline void mica__sizes_group(mica__sizes *sizes, bool first)
{
    if (first) {
        sizes->fixed_known = sizes->known;
        sizes->fixed_rest = sizes->rest;
    }
    sizes->known = sizes->fixed_known;
    sizes->rest = sizes->fixed_rest;
}
/* Writes rank and shape of an operand that has none, out of what is known; letters that nobody gave are MICA_SIZE_UNKNOWN. */
void mica__sizes_give(const mica__sizes *sizes, const mica__slot_info *slot, mica__operand *operand);

/* ---- cost ---- */

/* Bytes that the record must move at the least, and arithmetic operations. Regions: by their steps. */
void mica__op_cost(const mica__record *record, double *out_bytes, double *out_operations);

#endif
