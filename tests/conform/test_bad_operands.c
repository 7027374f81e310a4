/*
 * test_bad_operands.c - every op of the table with one operand made wrong: missing, of a wrong type, shape or stride,
 * on another device, overlapping the output. What is wrong the table (ops.def) says. Each is refused with a sentence that names the
 * operand, and adds nothing.
 */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "conform/conform_op.h"
#include "conform/conform_rows.h"
#include "ops/check.h"
#include "oracle/oracle_blocks.h"
#include "oracle/oracle_number.h"
#include "support/status.h"
#include "support/sanitizer.h"

static const char *const device_names[] = {"null", "cpu"};
static mica_device *devices[2];

static int open_devices(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (mica_device_open(device_names[i], NULL, &devices[i]) != MICA_OK)
            return -1;
    }
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        mica_device_release(devices[i]);
    return mica_host_bytes() == 0 ? 0 : -1;
}

/* Does the sentence hold `name` as a word of its own? */
static bool names(const char *sentence, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = strstr(sentence, name); at; at = strstr(at + 1, name)) {
        bool starts = at == sentence || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        bool ends = !(isalnum((unsigned char)at[length]) || at[length] == '_');

        if (starts && ends)
            return true;
    }
    return false;
}

/* Encodes the case as it stands: it must be refused, name the operand, and leave the encoder as it was. */
static void refuse(const conform_case *c, mica_device *device, const char *name, const char *what)
{
    mica_encoder *encoder;
    mica_encoder_stats stats;
    mica_status status;

    must(mica_encoder_begin(device, NULL, &encoder));
    status = c->row->encode(c, encoder);
    if (status != MICA_ERR_INVALID_ARGUMENT && status != MICA_ERR_UNSUPPORTED)
        fail_msg("%s, %s %s: %s instead of a refusal", c->row->name, name, what, mica_status_name(status));
    if (!names(mica_status_message(), name))
        fail_msg("%s, %s %s: the sentence does not name it: %s", c->row->name, name, what,
                 mica_status_message());
    must(mica_encoder_get_stats(encoder, &stats));
    assert_int_equal(0, stats.records);
    mica_encoder_release(encoder);
}

/* Puts `bad` (given away) in the place of the operand, tries, and puts the right one back. */
static void refuse_with(conform_case *c, mica_device *device, uint32_t slot, mica_buffer *bad,
                        const char *what)
{
    mica_buffer **place = slot == c->weight_slot ? &c->weight : &c->operand[slot].tensor.view;
    mica_buffer *right = *place;

    *place = bad;
    refuse(c, device, c->operand[slot].tensor.name, what);
    *place = right;
    mica_buffer_release(bad);
}

static mica_buffer *fresh(mica_device *device, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    mica_buffer *buffer;

    must(mica_buffer_alloc(device, dtype, ndim, shape, &buffer));
    return buffer;
}

static bool is_region(const conform_case *c)
{
    return c->row->op == MICA_OP_REGION;
}

/* What the table says of the operand in this slot; of a region's that it broadcasts, of any plain type and strides. */
static mica_op_operand table_of(const conform_case *c, uint32_t slot)
{
    mica_op_operand operand = {.shape = "any"};
    uint32_t slots[CONFORM_OPERANDS];

    if (is_region(c)) {
        if (c->operand[slot].written)
            snprintf(operand.shape, sizeof operand.shape, "[..]");
        return operand;
    }
    const uint32_t count = conform_operands(c, slots);
    for (uint32_t i = 0; i < count; i++)
        if (slots[i] == slot)
            operand = conform_table_operand(c->row->op, i);
    return operand;
}

static void try_null(conform_case *c, mica_device *device, uint32_t slot)
{
    if (!table_of(c, slot).optional)
        refuse_with(c, device, slot, NULL, "NULL");
}

static void try_dtype(conform_case *c, mica_device *device, uint32_t slot)
{
    static const mica_dtype wrong[] = {MICA_DTYPE_F64, MICA_DTYPE_BOOL, MICA_DTYPE_I64, MICA_DTYPE_U32,
                                       MICA_DTYPE_F16};
    const test_tensor *t = &c->operand[slot].tensor;
    const mica_op_operand operand = table_of(c, slot);

    if (is_region(c) ||
        c->row->op == MICA_OP_COPY) /* what fits the others: test_scalar_types, test_region, test_bad_input */
        return;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (operand.types != 0 ? (operand.types >> wrong[i] & 1) == 0 : t->dtype != wrong[i])
            refuse_with(c, device, slot, fresh(device, wrong[i], t->ndim, t->shape),
                        mica_dtype_name(wrong[i]));
    }
}

/* The size that dimension `d` of an operand of `ndim` has in the text of its shape: a letter, '.' for the rest, '#' for a number. */
static char size_word(const char *shape, uint32_t ndim, uint32_t d)
{
    char words[2 * MICA_MAX_DIMS];
    uint32_t count = 0, maybe = 0, rest = UINT32_MAX;

    for (const char *at = shape + 1; *at != ']'; at++) {
        if (*at == ' ' || *at == ',')
            continue;
        if (at[0] == '.') {
            rest = count;
            at++;
        } else if (*at >= '0' && *at <= '9') {
            words[count++] = '#';
            while (at[1] >= '0' && at[1] <= '9')
                at++;
        } else {
            words[count++] = *at;
            if (at[1] == '?') {
                words[count - 1] = (char)(*at - 'a' + 'A');
                maybe++;
                at++;
            }
        }
    }
    if (rest != UINT32_MAX) /* at the front or nowhere */
        return d + count < ndim ? '.' : words[d + count - ndim];
    for (uint32_t i = 0, at = 0, missing = count > ndim ? count - ndim : 0; i < count; i++) {
        const bool upper = words[i] >= 'A' && words[i] <= 'Z';

        if (upper && missing > 0) {
            missing--;
            continue;
        }
        if (at++ == d)
            return upper ? (char)(words[i] - 'A' + 'a') : words[i];
    }
    return 0;
}

/* Whether another operand that is there has this size as well, or it is a number. */
static bool is_tied(const conform_case *c, uint32_t slot, char word)
{
    bool tied = word == '#';

    for (uint32_t s = 0; s < c->operand_count && !tied; s++) {
        const test_tensor *t = conform_tensor((conform_case *)(uintptr_t)c, s);
        const mica_op_operand operand = table_of(c, s);

        for (uint32_t d = 0; c->operand[s].present && s != slot && operand.name != NULL &&
                             operand.shape[0] == '[' && d < t->ndim;
             d++)
            tied = tied || size_word(operand.shape, t->ndim, d) == word;
    }
    return tied;
}

/* One more element, or block, in each dimension whose size others have too; and a dimension more than any op takes. */
static void try_shape(conform_case *c, mica_device *device, uint32_t slot)
{
    const test_tensor *t = &c->operand[slot].tensor;
    const mica_op_operand operand = table_of(c, slot);
    uint64_t shape[MICA_MAX_DIMS];

    if (!is_region(c) && oracle_has_scales(t->dtype))
        return;
    for (uint32_t d = 0; operand.shape[0] == '[' && d < t->ndim; d++) {
        memcpy(shape, t->shape, sizeof shape);
        shape[d] += d + 1 == t->ndim ? oracle_block_values(t->dtype) : 1;
        if (operand.name != NULL && c->row->op != MICA_OP_COPY &&
            is_tied(c, slot, size_word(operand.shape, t->ndim, d)))
            refuse_with(c, device, slot, fresh(device, t->dtype, t->ndim, shape), "one longer");
    }
    /* What broadcasts may not grow, but a size of 1 may; what is there before, and follows a rule, may be larger. */
    const bool room = c->row->op == MICA_OP_COMPRESS && slot == c->output; /* is the caller's */
    const bool before =
        room || (strcmp(operand.shape, "ruled") == 0 && (operand.access & MICA_ACCESS_READ) != 0 &&
                 (operand.access & MICA_ACCESS_WRITE) != 0);
    if (operand.shape[0] != '[' && t->ndim > 0 && t->shape[t->ndim - 1] != 1 && !before) {
        memcpy(shape, t->shape, sizeof shape);
        shape[t->ndim - 1] += oracle_block_values(t->dtype);
        refuse_with(c, device, slot, fresh(device, t->dtype, t->ndim, shape), "one longer");
    }
    for (uint32_t i = 0; i < MICA_MAX_DIMS; i++)
        shape[i] = i < MICA_MAX_DIMS - t->ndim ? 2 : t->shape[i - (MICA_MAX_DIMS - t->ndim)];
    if (t->ndim < MICA_MAX_DIMS && strcmp(operand.shape, "[..]") != 0)
        refuse_with(c, device, slot, fresh(device, t->dtype, MICA_MAX_DIMS, shape), "of eight dimensions");
}

/* A last dimension with gaps where rows are asked for; an output that repeats anywhere. */
static void try_stride(conform_case *c, mica_device *device, uint32_t slot)
{
    const test_tensor *t = &c->operand[slot].tensor;
    uint64_t wide[MICA_MAX_DIMS], stride[MICA_MAX_DIMS], last = t->ndim > 0 ? t->shape[t->ndim - 1] : 1,
                                                         unit = oracle_block_bytes(t->dtype);
    bool plain = t->dtype == MICA_DTYPE_F32 || t->dtype == MICA_DTYPE_F16 || t->dtype == MICA_DTYPE_BF16;
    mica_buffer *whole, *view;

    if (!plain || last < 2)
        return;
    memcpy(wide, t->shape, sizeof wide);
    wide[t->ndim - 1] *= 2;
    whole = fresh(device, t->dtype, t->ndim, wide);
    stride[t->ndim - 1] = 2 * unit;
    for (uint32_t i = t->ndim - 1; i > 0; i--)
        stride[i - 1] = (i == t->ndim - 1 ? 2 * last * unit : stride[i] * t->shape[i]);
    if (table_of(c, slot).rows != 0) {
        must(mica_buffer_view(whole, t->dtype, t->ndim, t->shape, stride, 0, &view));
        refuse_with(c, device, slot, view, "with a gap between elements");
    }
    if (slot == c->output) {
        stride[t->ndim - 1] = 0;
        must(mica_buffer_view(whole, t->dtype, t->ndim, t->shape, stride, 0, &view));
        refuse_with(c, device, slot, view, "that repeats");
    }
    mica_buffer_release(whole);
}

static void try_device(conform_case *c, mica_device *device, uint32_t slot)
{
    const test_tensor *t = &c->operand[slot].tensor;
    mica_device *other = device == devices[0] ? devices[1] : devices[0];

    if (is_region(c) || !oracle_has_scales(t->dtype))
        refuse_with(c, device, slot, fresh(other, t->dtype, t->ndim, t->shape), "on another device");
}

/* A type with tables of scales, without them. */
static void try_bare(conform_case *c, mica_device *device, uint32_t slot)
{
    const test_tensor *t = &c->operand[slot].tensor;

    if (slot == c->weight_slot && oracle_has_scales(t->dtype))
        refuse_with(c, device, slot, fresh(device, t->dtype, t->ndim, t->shape), "without scales");
}

/* The output starts in the middle of an input: in place is the very same view or nothing. */
static void try_overlap(conform_case *c, mica_device *device, uint32_t slot)
{
    const test_tensor *in = &c->operand[slot].tensor, *out = &c->operand[c->output].tensor;
    uint64_t in_bytes = oracle_row_bytes(in->dtype, in->count),
             out_bytes = oracle_row_bytes(out->dtype, out->count);
    uint64_t total = in_bytes + out_bytes + 8, begin = in_bytes / 2 / 8 * 8;
    mica_buffer *whole, *input, *right;

    if (slot == c->output || slot == c->weight_slot || in->ndim == 0)
        return;
    whole = fresh(device, MICA_DTYPE_U8, 1, &total);
    must(mica_buffer_view(whole, in->dtype, in->ndim, in->shape, NULL, 0, &input));
    right = c->operand[slot].tensor.view;
    c->operand[slot].tensor.view = input;
    if (begin > 0) {
        mica_buffer *output;

        must(mica_buffer_view(whole, out->dtype, out->ndim, out->shape, NULL, begin, &output));
        refuse_with(c, device, c->output, output, "over half of an input");
    }
    c->operand[slot].tensor.view = right;
    mica_buffer_release(input);
    mica_buffer_release(whole);
}

/* Scales and biases stand in the weight, and an output in place is an input. */
static bool is_tried(const conform_case *c, uint32_t slot)
{
    const conform_operand *operand = &c->operand[slot];

    return operand->present && !operand->shared && !c->operand[c->output].shared &&
           strcmp(operand->tensor.name, "scales") != 0 && strcmp(operand->tensor.name, "biases") != 0;
}

static void test_row(void **state)
{
    static void (*const tries[])(conform_case *, mica_device *, uint32_t) = {
        try_null, try_dtype, try_shape, try_stride, try_device, try_bare, try_overlap};
    const conform_row *row = *state;

    for (uint32_t i = 0; i < (TEST_ANY_SANITIZER ? 4 : 16); i++) {
        mica_device *device = devices[i % 2];
        conform_case c;

        conform_case_make(&c, row, 1 + i / 2, false);
        must(conform_case_upload(&c, device));
        for (uint32_t slot = 0; slot < c.operand_count; slot++) {
            for (size_t t = 0; is_tried(&c, slot) && t < sizeof tries / sizeof *tries; t++)
                tries[t](&c, device, slot);
        }
        conform_case_free(&c);
    }
}

/* Parameters out of their range are refused by name as well. */
static void test_parameters(void **state)
{
    uint64_t shape[3] = {2, 2, 8}, tokens = 2, one = 1;

    (void)state;
    for (int d = 0; d < 2; d++) {
        mica_buffer *x = fresh(devices[d], MICA_DTYPE_F32, 3, shape),
                    *y = fresh(devices[d], MICA_DTYPE_F32, 3, shape);
        mica_buffer *positions = fresh(devices[d], MICA_DTYPE_U32, 1, &tokens);
        mica_buffer *weight = fresh(devices[d], MICA_DTYPE_F32, 2, (uint64_t[]){8, 8});
        mica_buffer *ids = fresh(devices[d], MICA_DTYPE_U32, 2, (uint64_t[]){8, 9});
        mica_buffer *chosen = fresh(devices[d], MICA_DTYPE_F32, 2, (uint64_t[]){8, 9});
        mica_route_params bad_route = {.scale = 1.0f / 0.0f};
        mica_buffer *lengths = fresh(devices[d], MICA_DTYPE_U32, 1, &one);
        mica_rope_params odd = {.theta = 10000, .rotary_dims = 3}, wide = {.theta = 10000, .rotary_dims = 10};
        mica_rope_params cold = {.theta = -1}, mode = {.theta = 10000, .mode = (mica_rope_mode)7};
        mica_attention_params bad_scale = {.scale = 1.0f / 0.0f}, bad_cap = {.softcap = -1};
        mica_attention_operands attention = {
            .q = x, .k = x, .v = x, .positions = positions, .lengths = lengths};
        mica_matmul_params precision = {(mica_precision)9};
        mica_encoder *e;

        must(mica_encoder_begin(devices[d], NULL, &e));
#define REFUSED(call, word)                                             \
    do {                                                                \
        assert_int_equal(MICA_ERR_INVALID_ARGUMENT, (call));            \
        if (!names(mica_status_message(), word))                        \
            fail_msg("%s: not named: %s", word, mica_status_message()); \
    } while (0)
        REFUSED(mica_softcap(e, x, 0, y), "cap");
        REFUSED(mica_softcap(e, x, 0.0f / 0.0f, y), "cap");
        REFUSED(mica_rms_norm(e, x, NULL, -1, y), "eps");
        REFUSED(mica_layer_norm(e, x, NULL, NULL, 1.0f / 0.0f, y), "eps");
        REFUSED(mica_route(e, weight, NULL, NULL, &bad_route, ids, chosen), "scale");
        REFUSED(mica_route(e, weight, NULL, NULL, NULL, ids, chosen), "ids");
        REFUSED(mica_route(e, weight, NULL, NULL, &(mica_route_params){.scoring = 2}, ids, chosen),
                "scoring");
        REFUSED(mica_softmax(e, x, 1.0f / 0.0f, y), "scale");
        REFUSED(mica_rope(e, x, positions, NULL, &odd, y), "rotary_dims");
        REFUSED(mica_rope(e, x, positions, NULL, &wide, y), "rotary_dims");
        REFUSED(mica_rope(e, x, positions, NULL, &cold, y), "theta");
        REFUSED(mica_rope(e, x, positions, NULL, &mode, y), "mode");
        REFUSED(mica_rope(e, x, positions, NULL, NULL, y), "params");
        REFUSED(mica_attention(e, NULL, NULL, y), "operands");
        REFUSED(mica_penalize(e, NULL, y), "operands");
        REFUSED(mica_sample(e, NULL, ids, NULL), "operands");
        REFUSED(mica_attention(e, &attention, &bad_scale, y), "scale");
        REFUSED(mica_attention(e, &attention, &bad_cap, y), "softcap");
        REFUSED(mica_matmul(e, x, weight, &precision, y), "precision");
        REFUSED(mica_fill(e, -1, positions), "value");
        REFUSED(mica_add(NULL, x, x, y), "encoder");
#undef REFUSED
        mica_encoder_release(e);
        mica_buffer_release(x);
        mica_buffer_release(y);
        mica_buffer_release(positions);
        mica_buffer_release(weight);
        mica_buffer_release(lengths);
        mica_buffer_release(ids);
        mica_buffer_release(chosen);
    }
}

/* What lies where an operand is absent does not depend on what lay there: plans ask for types, shapes and places. */
static void test_absent(void **state)
{
    mica__op_builder op;
    mica_encoder *e = NULL;
    uint32_t params = 0;
    (void)state;
    memset(&op, 0xa5, sizeof op);
    must(mica_encoder_begin(devices[0], NULL, &e));
    mica__op_begin(&op, e, MICA_OP_MATMUL, MICA__MAX_OPERANDS, NULL, &params, sizeof params);
    mica__op_clear(&op);
    for (uint32_t i = 0; i < MICA__MAX_OPERANDS; i++) {
        assert_null(op.record.operand[i].memory);
        assert_int_equal(op.record.operand[i].dtype, MICA_DTYPE_NONE);
        assert_int_equal(op.record.operand[i].ndim, 0);
        assert_int_equal(op.record.operand[i].offset, 0);
    }
    mica_encoder_release(e);
}

int main(void)
{
    struct CMUnitTest *tests = test_alloc(conform_table_count + 2, sizeof *tests);
    uint32_t count = 0;
    int failed;

    for (uint32_t i = 0; i < conform_table_count; i++) {
        tests[count] =
            (struct CMUnitTest)cmocka_unit_test_prestate(test_row, (void *)(uintptr_t)&conform_table[i]);
        tests[count++].name = conform_table[i].name;
    }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_parameters);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_absent);
    failed = _cmocka_run_group_tests("bad_operands", tests, count, open_devices, close_devices);
    free(tests);
    return failed;
}
