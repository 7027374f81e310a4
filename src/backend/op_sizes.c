/* op_sizes.c - shapes by the letters of ops.def, and what a record costs. */
#include <math.h>

#include "backend/op_table.h"
#include "backend/region.h"
#include "quant/dtype.h"

/* ---- shapes ---- */

/* How the dimensions of an operand are shared out among the entries of a shape. */
typedef struct layout {
    uint32_t entries;
    uint32_t missing; /* entries with MAYBE, from the left, that have no dimension */
    uint32_t rest;    /* dimensions that REST has */
} layout;

static bool lay_out(const mica__slot_info *slot, uint32_t ndim, layout *out)
{
    const uint32_t entries = slot->entries;
    *out = (layout){entries, 0, 0};
    if (slot->shape[0] == MICA__SHAPE_REST) {
        out->rest = ndim + 1 - entries;
        return ndim + 1 >= entries;
    }
    if (ndim == entries)
        return true;
    uint32_t maybe = 0;
    for (uint32_t i = 0; i < entries; i++)
        maybe += (slot->shape[i] & MICA__SHAPE_MAYBE) != 0;
    out->missing = entries - ndim;
    return ndim < entries && out->missing <= maybe;
}

/* What the letter is so far; takes `size` where nobody said. */
static bool take_letter(mica__sizes *sizes, uint32_t letter, uint64_t size, uint32_t slot, uint32_t dim)
{
    const uint32_t bit = 1u << letter;
    if ((sizes->known & bit) != 0 && !mica__sizes_agree(sizes->size[letter], size))
        return false;
    if ((sizes->known & bit) == 0 || !mica__size_known(sizes->size[letter])) {
        sizes->size[letter] = size;
        sizes->slot[letter] = (uint8_t)slot;
        sizes->dim[letter] = (uint8_t)dim;
        sizes->known |= bit;
    }
    return true;
}

/* The dimensions of REST, which begin at `dim`. Where some are not known the first to give them stands for all. */
static mica__fit take_rest(mica__sizes *sizes, const mica__operand *operand, uint32_t slot, uint32_t dim,
                           uint32_t count, uint32_t *out_dim)
{
    if (sizes->rest == NULL) {
        sizes->rest = operand;
        sizes->rest_slot = (uint8_t)slot;
        sizes->rest_at = (uint8_t)dim;
        sizes->rest_count = (uint8_t)count;
        return MICA__FITS;
    }
    if (count != sizes->rest_count)
        return MICA__FIT_RANK;
    for (*out_dim = dim; *out_dim < dim + count; ++*out_dim)
        if (!mica__sizes_agree(operand->shape[*out_dim], sizes->rest->shape[sizes->rest_at + *out_dim - dim]))
            return MICA__FIT_SIZE;
    return MICA__FITS;
}

mica__fit mica__sizes_take(mica__sizes *sizes, const mica__slot_info *slot, uint32_t at,
                           const mica__operand *operand, uint32_t *out_dim)
{
    const uint8_t *shape = slot->shape;
    uint32_t dim = 0;
    layout l;
    if (shape[0] == MICA__SHAPE_REPEATS || shape[0] == MICA__SHAPE_RULED)
        return MICA__FITS;
    if (!lay_out(slot, operand->ndim, &l))
        return MICA__FIT_RANK;
    for (uint32_t i = 0; i < l.entries; i++) {
        const uint32_t entry = shape[i];
        if (entry == MICA__SHAPE_REST) {
            const mica__fit fit = take_rest(sizes, operand, at, dim, l.rest, out_dim);
            if (fit != MICA__FITS)
                return fit;
            dim += l.rest;
            continue;
        }
        if ((entry & MICA__SHAPE_MAYBE) != 0 && l.missing > 0) {
            l.missing--;
            continue;
        }
        const uint64_t size = operand->shape[dim];
        const bool fits = (entry & MICA__SHAPE_FIXED) != 0
                              ? mica__sizes_agree(size, entry & ~MICA__SHAPE_FIXED)
                              : take_letter(sizes, entry & ~MICA__SHAPE_MAYBE, size, at, dim);
        if (!fits) {
            *out_dim = dim;
            return MICA__FIT_SIZE;
        }
        dim++;
    }
    return MICA__FITS;
}

void mica__sizes_give(const mica__sizes *sizes, const mica__slot_info *slot, mica__operand *operand)
{
    const uint8_t *shape = slot->shape;
    uint32_t dim = 0;
    for (uint32_t i = 0; i < slot->entries && shape[0] != MICA__SHAPE_REPEATS; i++) {
        const uint32_t entry = shape[i], letter = entry & ~MICA__SHAPE_MAYBE;
        if (entry == MICA__SHAPE_REST)
            for (uint32_t r = 0; sizes->rest != NULL && r < sizes->rest_count; r++)
                operand->shape[dim++] = sizes->rest->shape[sizes->rest_at + r];
        else if ((entry & MICA__SHAPE_MAYBE) == 0 && (entry & MICA__SHAPE_FIXED) != 0)
            operand->shape[dim++] = entry & ~MICA__SHAPE_FIXED;
        else if ((sizes->known >> letter & 1) != 0)
            operand->shape[dim++] = sizes->size[letter];
        else if ((entry & MICA__SHAPE_MAYBE) == 0)
            operand->shape[dim++] = MICA_SIZE_UNKNOWN;
    }
    operand->ndim = (uint8_t)dim;
}

/* ---- cost ---- */

static double elements_of(const mica__operand *operand)
{
    double elements = 1;
    for (uint32_t d = 0; d < operand->ndim; d++)
        elements *= (double)operand->shape[d];
    return elements;
}

static double bytes_of(const mica__operand *operand)
{
    if (!mica__operand_present(operand))
        return 0;
    if (operand->layout != MICA_LAYOUT_CANONICAL && operand->length != 0)
        return (double)operand->length; /* with its tables */
    return elements_of(operand) / mica__dtype_elements(operand->dtype) * mica__dtype_bytes(operand->dtype);
}

static double region_operations(const mica__record *record)
{
    const mica__region_program *program = record->params;
    double operations = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        operations += mica__scalar_of(program->step[s].scalar)->operations;
    return operations * elements_of(&record->operand[program->input_count]);
}

/* The expressions of the table: sizes are doubles by their letters here, those that no operand has are 0. */
static void cost_of(const mica__record *record, const double *size, double ALL, double *out_bytes,
                    double *out_operations)
{
    const double A = size[1], B = size[2], D = size[4], E = size[5], F = size[6], G = size[7], H = size[8],
                 K = size[11], M = size[13], N = size[14], P = size[16], R = size[18], S = size[19],
                 T = size[20], V = size[22], REST = size[MICA__SHAPE_REST];
    (void)G;
    switch (record->op) {
#define COUNT(prefix, slot) elements_of(&record->operand[MICA__##prefix##_##slot])
#define SIZE(prefix, slot, d) ((double)record->operand[MICA__##prefix##_##slot].shape[d])
#define OF(prefix, slot) bytes_of(&record->operand[MICA__##prefix##_##slot])
#define OP(op, name, prefix, call, record_params, rule, empty, gradient, needs, operations, bytes) \
    case MICA_OP_##op:                                                                             \
        *out_bytes = bytes;                                                                        \
        *out_operations = operations;                                                              \
        break;
#include "backend/ops.def"
    default: break;
    }
}

/* Sizes by their letters, of the fixed slots and of one group. */
static void sizes_of(const mica__record *record, const mica__op_info *info, uint32_t group, double *size)
{
    mica__sizes sizes = {.known = 0};
    uint32_t dim = 0;
    for (uint32_t i = 0; i < record->operand_count; i++) {
        const bool here = info->grouped == 0 || i < info->fixed || (i - info->fixed) / info->grouped == group;
        if (here && mica__operand_present(&record->operand[i]))
            (void)mica__sizes_take(&sizes, mica__slot_of(record, i), i, &record->operand[i], &dim);
    }
    for (uint32_t letter = 1; letter < MICA__SHAPE_LETTERS; letter++)
        size[letter] = (sizes.known >> letter & 1) != 0 ? (double)sizes.size[letter] : 0;
    size[MICA__SHAPE_REST] = 1;
    for (uint32_t r = 0; sizes.rest != NULL && r < sizes.rest_count; r++)
        size[MICA__SHAPE_REST] *= (double)sizes.rest->shape[sizes.rest_at + r];
}

void mica__op_cost(const mica__record *record, double *out_bytes, double *out_operations)
{
    const mica__op_info *info = &mica__ops[record->op];
    const uint32_t groups = info->grouped != 0 ? (record->operand_count - info->fixed) / info->grouped : 1;
    double size[MICA__SHAPE_REST + 1] = {0}, all = 0, operations = 0;
    *out_bytes = *out_operations = 0;
    for (uint32_t i = 0; i < record->operand_count; i++)
        all += bytes_of(&record->operand[i]);
    for (uint32_t group = 0; group < groups; group++) {
        sizes_of(record, info, group, size);
        cost_of(record, size, all, out_bytes, &operations);
        *out_operations += operations;
    }
    if (record->op == MICA_OP_REGION)
        *out_operations = region_operations(record);
}
