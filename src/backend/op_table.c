/* op_table.c - the rows of ops.def, and what they say of a record. */
#include "backend/op_table.h"

#include "backend/backend.h"
#include "base/status.h"
#include "mica/op.h"

/* ---- the table ---- */

/* The words of ops.def, for this part of the file. */
enum { READ = MICA_ACCESS_READ, WRITE = MICA_ACCESS_WRITE, UPDATE = READ | WRITE, PART = WRITE | 4 };
enum { ANY = MICA__STRIDES_ANY, ROWS = MICA__STRIDES_ROWS, WHOLE = MICA__STRIDES_WHOLE };
enum { NEEDED = 0, OPTIONAL = MICA__SLOT_OPTIONAL, INNER = MICA__SLOT_INNER, TABLE = MICA__SLOT_TABLE };
enum { A = 1, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z };
enum { REST = MICA__SHAPE_REST, REPEATS = MICA__SHAPE_REPEATS, RULED = MICA__SHAPE_RULED };
#define MAYBE(letter) (letter | MICA__SHAPE_MAYBE)
#define FIXED(size) (size | MICA__SHAPE_FIXED)
#define ALONE 0u
#define ANYWHERE UINT32_MAX
#define BESIDE(prefix, slot) (1u << MICA__##prefix##_##slot)
#define SAME(slot) (MICA__TYPES_SAME | (slot))
#define BIT(dtype) (1ull << MICA_DTYPE_##dtype)

enum {
#define TYPES(name, set, text) TYPES_##name,
#include "backend/ops.def"
    TYPES_COUNT
};

const mica__types_info mica__types[] = {
#define BLOCK_BIT(name, text, elements, bytes) | (uint64_t)((elements) > 1) << MICA_DTYPE_##name
#define PLAIN_BIT(name, text, elements, bytes) | (uint64_t)((elements) == 1) << MICA_DTYPE_##name
/* Those that attention reads and kv_write makes. */
#define CACHE_TYPES                                                                                \
    (BIT(F32) | BIT(F16) | BIT(BF16) | BIT(Q8_0) | BIT(Q4_0) | BIT(Q4_1) | BIT(Q5_0) | BIT(Q5_1) | \
     BIT(IQ4_NL) | TURBO_TYPES)
#define TURBO_TYPES \
    (BIT(TURBO2) | BIT(TURBO2_5) | BIT(TURBO3) | BIT(TURBO4) | BIT(TURBO5) | BIT(TURBO6) | BIT(TURBO8))
#define BLOCK_TYPES ((0 MICA_DTYPE_LIST(BLOCK_BIT)) & ~TURBO_TYPES)
#define PLAIN_TYPES (0 MICA_DTYPE_LIST(PLAIN_BIT))
#define TYPES(name, set, text) {set, text},
#include "backend/ops.def"
};

#define OP(op, name, prefix, ...) static const mica__slot_info slots_##prefix[] = {
#define SLOT(prefix, slot, name, access, types, strides, who, shares, ...) \
    {name,                                                                 \
     shares,                                                               \
     (access)&3,                                                           \
     TYPES_##types,                                                        \
     strides,                                                              \
     who | ((access) == PART ? MICA__SLOT_PART : 0),                       \
     sizeof(uint8_t[]){__VA_ARGS__},                                       \
     {__VA_ARGS__}},
#define END(prefix) \
    {               \
        0           \
    }               \
    }               \
    ;
#define TYPES_SAME(slot) SAME(slot)
#include "backend/ops.def"

typedef char NO_PARAMS[1];
#define BYTES_OF(type) (sizeof(type) == 1 ? 0 : sizeof(type))

const mica__op_info mica__ops[MICA_OP_COUNT] = {
    [MICA_OP_NONE] = {.name = "none"},
    [MICA_OP_CUSTOM] = {.name = "custom"}, /* a kernel of the caller's: what it does is not known */
#define OP(op, name_, prefix, call, record, rule, empty_, gradient_, needs_, ...) \
    [MICA_OP_##op] = {.name = #name_,                                             \
                      .slot = slots_##prefix,                                     \
                      .call_params = BYTES_OF(call),                              \
                      .record_params = BYTES_OF(record),                          \
                      .rows = sizeof slots_##prefix / sizeof *slots_##prefix - 1, \
                      .fixed = MICA__##prefix##_SLOTS,                            \
                      .grouped = MICA__##prefix##_GROUPED,                        \
                      .empty = MICA__EMPTY_##empty_,                              \
                      .gradient = MICA_GRADIENT_##gradient_,                      \
                      .needs = MICA_NEEDS_##needs_},
#include "backend/ops.def"
};

/* ---- what it says of a record ---- */

const mica__slot_info *mica__slot_of(const mica__record *record, uint32_t slot)
{
    static const mica__slot_info unknown = {.name = "operand", .flags = MICA__SLOT_PART};
    const mica__op_info *info = &mica__ops[record->op];
    if (info->rows == 0)
        return &unknown;
    if (record->op == MICA_OP_REGION)
        slot = record->operand[slot].access == MICA_ACCESS_WRITE ? MICA__REGION_OUTPUT : MICA__REGION_INPUT;
    else if (info->grouped != 0 && slot >= info->rows)
        slot = info->fixed + (slot - info->fixed) % info->grouped;
    return &info->slot[slot];
}

bool mica__may_share(const mica__record *record, uint32_t out, uint32_t in)
{
    const mica__op_info *info = &mica__ops[record->op];
    const uint32_t shares = mica__slot_of(record, out)->shares;
    if (shares == ANYWHERE)
        return true;
    /* Of outputs that repeat the first one alone: the others are written beside it. */
    return in < 32 && (shares >> in & 1) != 0 && out < (uint32_t)info->fixed + info->grouped;
}

bool mica__writes_whole(const mica__record *record, uint32_t slot)
{
    return record->operand[slot].access == MICA_ACCESS_WRITE &&
           (mica__slot_of(record, slot)->flags & MICA__SLOT_PART) == 0;
}

mica_status mica__op_is_served(const mica__record *record, bool computes_f64)
{
    const mica__op_info *info = &mica__ops[record->op];
    if (info->needs == MICA_NEEDS_CPU)
        return mica__fail(MICA_ERR_UNSUPPORTED, "%s: it is served on the cpu alone", info->name);
    if (info->needs == MICA_NEEDS_ANYWHERE || (info->needs == MICA_NEEDS_F64 && computes_f64))
        return MICA_OK;
    for (uint32_t slot = 0; slot < record->operand_count; slot++)
        if (record->operand[slot].dtype == MICA_DTYPE_F64)
            return mica__fail(MICA_ERR_UNSUPPORTED, "%s: %s is f64, %s", info->name,
                              mica__slot_of(record, slot)->name,
                              info->needs == MICA_NEEDS_F64 ? "in which this device does not compute"
                                                            : "which is served on the cpu alone");
    return MICA_OK;
}

const char *mica_op_name(mica_op op)
{
    return mica__ops[op > MICA_OP_NONE && op < MICA_OP_COUNT ? op : MICA_OP_NONE].name;
}
