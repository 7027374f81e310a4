/*
 * conform_chain.c - cases of chain, the record that fusion makes of elementwise ops in a row. No public call makes one,
 * so the record is put together here.
 */
#include "conform/conform_rows.h"

#include <math.h>
#include <stdlib.h>

#include "device/encoder.h"
#include "oracle/oracle_ops.h"

#define MOST 6000u

/* One kind of step. The errors of the value that comes in grow by at most `slope`, times the other operand if there is
 * one; `roundings` of the oracle's measure come on top, as in the op's own row of the table. */
typedef struct step_kind {
    mica_op op;
    bool binary;
    double slope, roundings;
} step_kind;

static const step_kind kinds[] = {
    {MICA_OP_ADD, true, 1, 1},         {MICA_OP_MUL, true, 1, 1},      {MICA_OP_SILU_MUL, true, 1.1, 6},
    {MICA_OP_GELU_MUL, true, 1.13, 3}, {MICA_OP_GELU, false, 1.13, 3}, {MICA_OP_GELU_ERF, false, 1.13, 4},
    {MICA_OP_SOFTCAP, false, 1, 6},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static const step_kind *kind_of(uint16_t op)
{
    size_t i = 0;

    while (kinds[i].op != op)
        i++;
    return &kinds[i];
}

static void draw_steps(conform_case *c, test_random *random)
{
    mica__chain_record *chain = &c->params.chain;

    chain->step_count = c->typical ? MICA__CHAIN_STEPS : 1 + (uint32_t)test_random_below(random, 4);
    for (uint32_t i = 0; i < chain->step_count; i++) {
        const step_kind *kind = &kinds[c->typical ? i : test_random_below(random, KINDS)];

        chain->step[i].op = (uint16_t)kind->op;
        chain->step[i].swapped = kind->binary && test_random_one_in(random, 2);
        chain->step[i].value = (float)test_random_uniform(random, 0.5, 30); /* softcap's; no other looks */
    }
}

void conform_make_chain(conform_case *c, test_random *random)
{
    uint64_t shape[MICA_MAX_DIMS] = {64, 4096};
    uint32_t ndim = c->typical ? 2 : 1 + (uint32_t)test_random_below(random, MICA_MAX_DIMS);
    bool in_place = !c->typical && test_random_one_in(random, 2);
    uint32_t on = MICA__CHAIN_X;

    if (!c->typical)
        conform_shape(random, ndim, test_random_one_in(random, 8) ? 6 * MOST : MOST, shape);
    draw_steps(c, random);
    for (uint32_t slot = 0; slot < MICA__CHAIN_Y; slot++) {
        uint32_t step = slot - MICA__CHAIN_OTHER;
        mica_dtype dtype = c->typical ? MICA_DTYPE_F32 : conform_float(random);

        if (slot != MICA__CHAIN_X &&
            (step >= c->params.chain.step_count || !kind_of(c->params.chain.step[step].op)->binary)) {
            conform_add_absent(c);
            continue;
        }
        if (test_random_one_in(random, 2))
            on = slot;
        conform_add(c, random, slot == MICA__CHAIN_X ? "x" : "other", dtype, ndim, shape,
                    in_place ? TEST_ANY : TEST_REPEAT);
        test_tensor_normal(conform_tensor(c, slot), random, 1.5);
        c->bytes += conform_bytes(c, slot);
    }
    conform_add_output(c, random, "y", c->typical ? MICA_DTYPE_F32 : conform_float(random), ndim, shape,
                       TEST_ANY, in_place, on);
    c->bytes += conform_bytes(c, MICA__CHAIN_Y);
}

mica_status conform_encode_chain(const conform_case *c, mica_encoder *encoder)
{
    mica__operand operand[MICA__CHAIN_SLOTS];
    mica__chain_record chain = c->params.chain;
    mica__record record = {.op = MICA_OP_CHAIN,
                           .operand_count = MICA__CHAIN_SLOTS,
                           .params_size = sizeof chain,
                           .operand = operand,
                           .params = &chain};

    for (uint32_t slot = 0; slot < MICA__CHAIN_SLOTS; slot++)
        mica__operand_from(conform_buffer(c, slot),
                           slot == MICA__CHAIN_Y ? MICA_ACCESS_WRITE : MICA_ACCESS_READ, &operand[slot]);
    return mica__encoder_add(encoder, &record);
}

/* op(a, b) with the oracle's measure of its own error. */
static double apply(uint16_t op, double a, double b, double cap, double *error)
{
    double y = op == MICA_OP_ADD ? a + b : a * b;

    *error = fabs(y);
    switch (op) {
    case MICA_OP_SILU_MUL: oracle_silu_mul(1, &a, &b, &y, error); break;
    case MICA_OP_GELU_MUL: oracle_gelu_mul(1, &a, &b, &y, error); break;
    case MICA_OP_GELU: oracle_gelu(1, &a, &y, error); break;
    case MICA_OP_GELU_ERF: oracle_gelu_erf(1, &a, &y, error); break;
    case MICA_OP_SOFTCAP: oracle_softcap(1, &a, cap, &y, error); break;
    default: break;
    }
    return y;
}

/* How much of an error of v comes out of the step. */
static double slope(const mica__chain_step *step, double other)
{
    double up = 1, unused;

    if (!kind_of(step->op)->binary || step->op == MICA_OP_ADD)
        return kind_of(step->op)->slope;
    if (!step->swapped || step->op == MICA_OP_MUL)
        return kind_of(step->op)->slope * fabs(other);
    return fabs(
        apply(step->op, other, up, 0, &unused)); /* v is what the activation of other is multiplied with */
}

void conform_oracle_chain(conform_case *c)
{
    double *values[MICA__CHAIN_Y];

    for (uint32_t slot = 0; slot < MICA__CHAIN_Y; slot++)
        values[slot] = conform_values(c, slot);
    for (uint64_t i = 0; i < conform_tensor(c, MICA__CHAIN_Y)->count; i++) {
        double v = values[MICA__CHAIN_X][i], error = 0, own;

        for (uint32_t s = 0; s < c->params.chain.step_count; s++) {
            const mica__chain_step *step = &c->params.chain.step[s];
            const double *others = values[MICA__CHAIN_OTHER + s];
            double other = others ? others[i] : 0;

            error *= slope(step, other);
            v = apply(step->op, step->swapped ? other : v, step->swapped ? v : other, (double)step->value,
                      &own);
            error += kind_of(step->op)->roundings * own;
        }
        c->expected[i] = v;
        c->error[i] = error;
    }
    for (uint32_t slot = 0; slot < MICA__CHAIN_Y; slot++)
        free(values[slot]);
}
