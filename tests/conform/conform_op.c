/*
 * conform_op.c - cases out of the table of ops: operands of the sizes, types, strides and places that it allows, some absent, some in
 * place, some repeated; and calling any op by its number.
 */
#include "conform/conform_op.h"

#include <string.h>

#include "oracle/oracle_blocks.h"
#include "support/status.h"

#define MOST_GROUPS 9u

/* Sizes by their letters as they are drawn, and where slots of the table stand in the case. */
typedef struct draw {
    conform_draw as;
    const mica__op_info *info;
    uint64_t rest[MICA_MAX_DIMS];
    uint32_t rest_count;
    bool rest_drawn, wide;
    uint32_t in_place;     /* slot of the table that the first output lies on; UINT32_MAX: none */
    uint32_t given[32];    /* place in the case of each slot of the table, the last where it repeats */
    uint32_t first_output; /* place in the case; UINT32_MAX: not yet */
} draw;

static uint64_t size_of(const conform_case *c, draw *d, test_random *random, uint32_t letter)
{
    uint64_t *size = &d->as.size[letter];

    if (*size == 0)
        *size = c->typical ? 1024 : test_random_size(random, d->as.most);
    d->as.most = d->as.most / *size > 1 ? (uint32_t)(d->as.most / *size) : 2;
    return *size;
}

static void draw_rest(const conform_case *c, draw *d, test_random *random)
{
    if (d->rest_drawn)
        return;
    d->rest_drawn = true;
    d->rest_count = c->typical             ? 1
                    : d->as.rest_dims != 0 ? d->as.rest_dims
                                           : (uint32_t)test_random_below(random, 4);
    d->rest[0] = 1024;
    if (!c->typical)
        conform_shape(random, d->rest_count, d->as.rest, d->rest);
}

/* A shape that repeats to that of operand 0: its last dimensions, some of size 1. */
static uint32_t draw_repeating(conform_case *c, test_random *random, uint64_t *shape)
{
    const test_tensor *whole = conform_tensor(c, 0);
    const uint32_t ndim = c->typical ? whole->ndim : (uint32_t)test_random_below(random, whole->ndim + 1);

    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = !c->typical && test_random_one_in(random, 3) ? 1 : whole->shape[whole->ndim - ndim + d];
    return ndim;
}

/* What the op's rule says of an output, asked of the library as callers may. */
static uint32_t infer_shape(const conform_case *c, const draw *d, uint32_t slot, uint64_t *shape)
{
    mica_operand_desc desc[CONFORM_OPERANDS] = {{0}};
    uint32_t count = 0, asked = 0;

    for (uint32_t s = 0; s < d->info->rows; s++) {
        const mica__slot_info *info = &d->info->slot[s];

        if ((info->flags & (MICA__SLOT_INNER | MICA__SLOT_TABLE)) != 0)
            continue;
        if (s == slot)
            asked = count;
        if (s < slot)
            desc[count++] = conform_describe_operand(c, d->given[s]);
        else
            desc[count++].ndim = (info->access & MICA_ACCESS_WRITE) != 0 ? MICA_RANK_UNKNOWN : 0;
    }
    must(mica_op_infer(c->row->op, &c->params, desc, count));
    memcpy(shape, desc[asked].shape, desc[asked].ndim * sizeof *shape);
    return desc[asked].ndim;
}

static uint32_t draw_shape(conform_case *c, draw *d, test_random *random, uint32_t slot, uint64_t *shape)
{
    const mica__slot_info *info = &d->info->slot[slot];
    uint32_t ndim = 0;

    if (info->shape[0] == MICA__SHAPE_RULED)
        return info->access == MICA_ACCESS_WRITE && (info->flags & MICA__SLOT_PART) == 0
                   ? infer_shape(c, d, slot, shape)
                   : d->as.ruled(c, random, slot, shape);
    if (info->shape[0] == MICA__SHAPE_REPEATS)
        return draw_repeating(c, random, shape);
    for (uint32_t i = 0; i < info->entries; i++) {
        const uint8_t entry = info->shape[i];

        if (entry == MICA__SHAPE_REST) {
            draw_rest(c, d, random);
            memcpy(shape + ndim, d->rest, d->rest_count * sizeof *shape);
            ndim += d->rest_count;
        } else if ((entry & MICA__SHAPE_MAYBE) != 0) {
            uint64_t *size = &d->as.size[entry & ~MICA__SHAPE_MAYBE];

            if (*size == 0 && !c->typical && test_random_one_in(random, 2))
                *size = CONFORM_MISSING;
            if (*size != CONFORM_MISSING)
                shape[ndim++] = size_of(c, d, random, entry & ~MICA__SHAPE_MAYBE);
        } else {
            shape[ndim++] =
                (entry & MICA__SHAPE_FIXED) != 0 ? entry & ~MICA__SHAPE_FIXED : size_of(c, d, random, entry);
        }
    }
    return ndim;
}

/* Types of blocks are the row's; f64 comes in every operand that can have it, and like i64 not on GPUs. */
static mica_dtype draw_dtype(conform_case *c, const draw *d, test_random *random, const mica__slot_info *info)
{
    mica_dtype found[MICA_DTYPE_COUNT] = {MICA_DTYPE_NONE};
    uint32_t count = 0;

    if (info->types >= MICA__TYPES_SAME)
        return conform_tensor(c, d->given[info->types - MICA__TYPES_SAME])->dtype;
    uint64_t set = mica__types[info->types].set;
    if (c->row->weight != MICA_DTYPE_NONE && (set >> MICA_DTYPE_Q4_0 & 1) != 0)
        return c->row->weight;
    set &= d->as.types != 0 && info == d->info->slot ? d->as.types : UINT64_MAX;
    const bool wide = d->wide && (set >> MICA_DTYPE_F64 & 1) != 0;
    for (mica_dtype t = MICA_DTYPE_NONE + 1; t < MICA_DTYPE_COUNT; t++) {
        const bool real = t == MICA_DTYPE_F32 || t == MICA_DTYPE_F16 || t == MICA_DTYPE_BF16;

        if ((set >> t & 1) == 0 || oracle_is_block(t) || oracle_has_scales(t) || (wide && real) ||
            (t == MICA_DTYPE_F64 && !wide) || (t == MICA_DTYPE_I64 && conform_kernels))
            continue;
        found[count++] = t;
    }
    return found[c->typical ? 0 : test_random_below(random, count)];
}

static test_layout layout_of(const draw *d, uint32_t slot)
{
    const mica__slot_info *info = &d->info->slot[slot];
    const bool repeats =
        info->access == MICA_ACCESS_READ && slot != d->in_place && (d->as.distinct >> slot & 1) == 0;

    if (info[1].flags == MICA__SLOT_TABLE) /* weights lie row after row, as files have them */
        return TEST_CONTIGUOUS;
    switch (info->strides) {
    case MICA__STRIDES_ANY: return repeats ? TEST_REPEAT : TEST_ANY;
    case MICA__STRIDES_ROWS: return repeats ? TEST_ROWS_REPEAT : TEST_ROWS;
    default: return TEST_CONTIGUOUS;
    }
}

static void fill(test_tensor *tensor, test_random *random)
{
    if (oracle_is_block(tensor->dtype))
        test_tensor_blocks(tensor, random);
    else if (tensor->dtype == MICA_DTYPE_U32 || tensor->dtype == MICA_DTYPE_I32)
        test_tensor_indices(tensor, random, 1);
    else
        test_tensor_normal(tensor, random, 1);
}

/* May this output be the very operand that was chosen for it? */
static bool fits_in_place(conform_case *c, const draw *d, const mica__slot_info *info, uint32_t ndim,
                          const uint64_t *shape)
{
    const uint32_t at = d->in_place == UINT32_MAX ? UINT32_MAX : d->given[d->in_place];

    if (d->first_output != UINT32_MAX || at == UINT32_MAX)
        return false;
    const test_tensor *from = conform_tensor(c, at);
    return from->ndim == ndim && memcmp(from->shape, shape, ndim * sizeof *shape) == 0 &&
           (info->types >= MICA__TYPES_SAME || (mica__types[info->types].set >> from->dtype & 1) != 0);
}

static void add_operand(conform_case *c, draw *d, test_random *random, uint32_t slot)
{
    const mica__slot_info *info = &d->info->slot[slot];
    uint64_t shape[MICA_MAX_DIMS] = {0};

    const bool leave = !c->typical && test_random_one_in(random, 3);
    d->given[slot] = UINT32_MAX;
    if ((d->as.absent >> slot & 1) != 0 ||
        ((info->flags & MICA__SLOT_OPTIONAL) != 0 && leave && (d->as.needed >> slot & 1) == 0)) {
        conform_add_absent(c);
        return;
    }
    const uint32_t ndim = draw_shape(c, d, random, slot, shape);
    const bool written = (info->access & MICA_ACCESS_WRITE) != 0,
               in_place = written && fits_in_place(c, d, info, ndim, shape);
    const mica_dtype dtype = draw_dtype(c, d, random, info);
    const test_layout layout = oracle_is_block(dtype) && !written ? TEST_CONTIGUOUS : layout_of(d, slot);
    if (written)
        conform_add_output(c, random, info->name, dtype, ndim, shape, layout, in_place,
                           in_place ? d->given[d->in_place] : 0);
    else
        conform_add(c, random, info->name, dtype, ndim, shape, layout);
    d->given[slot] = c->operand_count - 1;
    if (written && d->first_output == UINT32_MAX)
        d->first_output = d->given[slot];
    if (info->access != MICA_ACCESS_WRITE || (info->flags & MICA__SLOT_PART) != 0)
        fill(conform_tensor(c, d->given[slot]), random);
}

/* One in three cases is in place, where the table lets the first output be. */
static uint32_t draw_in_place(const conform_case *c, const draw *d, test_random *random)
{
    uint32_t found[32], count = 0, first = 0;

    while (first + 1u < d->info->rows && (d->info->slot[first].access & MICA_ACCESS_WRITE) == 0)
        first++;
    for (uint32_t s = 0; s < first; s++)
        if ((d->info->slot[first].shares >> s & 1) != 0 && (d->info->slot[s].flags & MICA__SLOT_INNER) == 0)
            found[count++] = s;
    if (c->typical || count == 0 || !test_random_one_in(random, 3))
        return UINT32_MAX;
    return found[test_random_below(random, count)];
}

void conform_make_op_as(conform_case *c, test_random *random, const conform_draw *as)
{
    draw d = {.as = *as, .info = &mica__ops[c->row->op], .first_output = UINT32_MAX};
    uint64_t fixed[MICA__SHAPE_LETTERS];

    d.as.most = d.as.most != 0 ? d.as.most : 3000;
    d.as.rest = d.as.rest != 0 ? d.as.rest : 60;
    d.wide = !c->typical && !conform_kernels && test_random_one_in(random, 4);
    d.in_place = draw_in_place(c, &d, random);
    memset(d.given, 0xff, sizeof d.given);
    const uint32_t fixed_slots = d.info->fixed,
                   drawn = c->typical ? 1 : 1 + (uint32_t)test_random_below(random, MOST_GROUPS),
                   groups = d.info->grouped == 0 ? 0
                            : d.as.groups != 0   ? d.as.groups
                                                 : drawn;
    for (uint32_t s = 0; s < fixed_slots + groups * d.info->grouped; s++) {
        const uint32_t slot = s < fixed_slots ? s : fixed_slots + (s - fixed_slots) % d.info->grouped;

        if (s == fixed_slots)
            memcpy(fixed, d.as.size, sizeof fixed);
        if (slot == fixed_slots) /* what the group before said is forgotten */
            memcpy(d.as.size, fixed, sizeof fixed);
        if ((d.info->slot[slot].flags & (MICA__SLOT_INNER | MICA__SLOT_TABLE)) == 0)
            add_operand(c, &d, random, slot);
    }
    c->output = d.first_output;
}

void conform_make_op(conform_case *c, test_random *random)
{
    conform_make_op_as(c, random, &(conform_draw){.most = 0});
}

/* ---- its operands by the table ---- */

/* The `nth` operand of the case of that name. */
static uint32_t find_named(const conform_case *c, const char *name, uint32_t nth)
{
    for (uint32_t s = 0; s < c->operand_count; s++) {
        const conform_operand *o = &c->operand[s];

        if (o->present && !o->shared && strcmp(o->tensor.name, name) == 0 && nth-- == 0)
            return s;
    }
    return UINT32_MAX;
}

static uint32_t find_shared(const conform_case *c)
{
    for (uint32_t s = 0; s < c->operand_count; s++)
        if (c->operand[s].shared)
            return s;
    return UINT32_MAX;
}

mica_op_operand conform_table_operand(mica_op op, uint32_t i)
{
    mica_op_info info = {0};
    mica_op_operand operand = {0};

    must(mica_op_get_info(op, &info));
    must(mica_op_get_operand(op, i < info.operands ? i : info.operands + (i - info.operands) % info.grouped,
                             &operand));
    return operand;
}

uint32_t conform_operands(const conform_case *c, uint32_t *slots)
{
    mica_op_info info = {0};
    mica_op_operand operand = {0};
    uint32_t groups = 0;
    bool found = false; /* an output in place has no name: it is the first that an op writes */

    (void)mica_op_get_info(c->row->op, &info);
    if (info.grouped != 0 && mica_op_get_operand(c->row->op, info.operands, &operand) == MICA_OK)
        while (find_named(c, operand.name, groups) != UINT32_MAX)
            groups++;
    const uint32_t count = info.operands + groups * info.grouped;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t group = i < info.operands ? 0 : (i - info.operands) / info.grouped;

        operand = conform_table_operand(c->row->op, i);
        slots[i] = find_named(c, operand.name, group);
        if (!found && (operand.access & MICA_ACCESS_WRITE) != 0) {
            found = true;
            slots[i] = find_shared(c) != UINT32_MAX ? find_shared(c) : slots[i];
        }
    }
    return count;
}

mica_operand_desc conform_describe_operand(const conform_case *c, uint32_t slot)
{
    mica_operand_desc desc = {.dtype = MICA_DTYPE_NONE};

    if (slot == UINT32_MAX)
        return desc;
    const conform_operand *o = &c->operand[slot];
    const test_tensor *t = o->shared ? &c->operand[o->same_as].tensor : &o->tensor;
    desc.dtype = t->dtype;
    desc.ndim = t->ndim;
    memcpy(desc.shape, t->shape, sizeof desc.shape);
    memcpy(desc.stride, t->stride, sizeof desc.stride);
    if (slot == c->weight_slot && c->group_size != 0) {
        desc.group_size = c->group_size;
        desc.scale_dtype = c->operand[slot + 1].tensor.dtype;
    }
    return desc;
}

mica_status conform_encode_op(const conform_case *c, mica_encoder *encoder)
{
    uint32_t slots[CONFORM_OPERANDS];
    mica_buffer *operand[CONFORM_OPERANDS];
    const uint32_t count = conform_operands(c, slots);

    for (uint32_t i = 0; i < count; i++)
        operand[i] = slots[i] == UINT32_MAX ? NULL : conform_buffer(c, slots[i]);
    return mica_op_apply(encoder, c->row->op, &c->params, operand, count);
}
