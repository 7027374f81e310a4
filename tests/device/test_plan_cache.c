/* Plans that are kept: whatever was asked before, a record gets the plan that the registry would make for it now.
 * White-box: src/device/plan_cache.h, which no public call shows. */
#include "device_test.h"

#include "backend/cpu/cpu_kernel.h"
#include "backend/cpu/cpu_params.h"
#include "backend/planning.h"
#include "device/plan_cache.h"
#include "support/meter.h"
#include "support/random.h"

enum { ROUNDS = 4000, BYTES = 1 << 16 };

typedef struct scene {
    mica_device *device;
    mica_buffer *whole;
    mica__plan_cache *cache;
    mica__plan plan; /* the registry's own */
} scene;

static scene open_scene(void)
{
    scene s = {.device = open_device("cpu", 2)};
    s.whole = new_vector(s.device, MICA_DTYPE_U8, BYTES);
    s.cache = malloc(sizeof *s.cache);
    assert_non_null(s.cache);
    mica__plan_cache_init(s.cache);
    return s;
}

static void close_scene(scene *s)
{
    mica__plan_cache_free(s->cache);
    free(s->cache);
    mica__planning_end(&s->plan);
    mica_buffer_release(s->whole);
    mica_device_release(s->device);
    assert_int_equal(mica_host_bytes(), 0);
}

/* A record of few kinds and few sizes, so that they come again. */
typedef struct drawn {
    mica__record record;
    mica__operand operand[MICA__MAX_OPERANDS];
    mica_softmax_params softmax;
    mica_norm_params norm;
} drawn;

static void draw_operand(test_random *random, const scene *s, const uint64_t *shape, uint32_t access,
                         mica__operand *out)
{
    static const mica_dtype types[] = {MICA_DTYPE_F32, MICA_DTYPE_F16, MICA_DTYPE_BF16};
    mica_dtype dtype = types[test_random_below(random, 3)];
    uint64_t unit = mica_dtype_block_bytes(dtype), gap = test_random_below(random, 2) * 64;
    uint64_t stride[2] = {shape[1] * unit + gap, unit};
    mica_buffer *view = NULL;
    must(mica_buffer_view(s->whole, dtype, 2, shape, stride, 64 * test_random_below(random, 8), &view));
    mica__operand_from(view, access, out);
    mica_buffer_release(view); /* a record borrows; the whole buffer stays */
}

static void draw_record(test_random *random, const scene *s, drawn *d)
{
    static const mica_op ops[] = {MICA_OP_EXPERT_SUM, MICA_OP_SOFTMAX, MICA_OP_RMS_NORM};
    static const uint32_t slots[] = {MICA__EXPERT_SUM_SLOTS, MICA__SOFTMAX_SLOTS, MICA__NORM_SLOTS};
    uint32_t kind = (uint32_t)test_random_below(random, 3), count = slots[kind];
    uint64_t shape[2] = {1 + test_random_below(random, 2), 16 + test_random_below(random, 3)};
    memset(d, 0, sizeof *d);
    d->record = (mica__record){.op = (uint16_t)ops[kind], .operand_count = (uint16_t)count};
    d->record.operand = d->operand;
    d->softmax.scale = (float)(1 + test_random_below(random, 2));
    d->norm.eps = (float)(1 + test_random_below(random, 2));
    if (kind == 1) {
        d->record.params = &d->softmax;
        d->record.params_size = sizeof d->softmax;
    } else if (kind == 2) {
        d->record.params = &d->norm;
        d->record.params_size = sizeof d->norm;
    }
    for (uint32_t slot = 0; slot < count; slot++)
        if (kind != 2 || slot == MICA__NORM_X || slot == MICA__NORM_Y || test_random_one_in(random, 3))
            draw_operand(random, s, shape, slot + 1 == count ? MICA_ACCESS_WRITE : MICA_ACCESS_READ,
                         &d->operand[slot]);
}

/* Views to the byte; the parameters behind them by what they say, for they may have gaps. */
static void same_params(uint16_t op, uint32_t views, const unsigned char *got, const unsigned char *want)
{
    const size_t bytes = views * sizeof(mica__cpu_view);
    assert_memory_equal(got, want, bytes);
    if (op != MICA_OP_EXPERT_SUM) {
        const mica__cpu_row_params *a = (const void *)(got + bytes), *b = (const void *)(want + bytes);
        assert_true(a->range.rows == b->range.rows && a->value == b->value);
    } else {
        const mica__cpu_row_range *a = (const void *)(got + bytes), *b = (const void *)(want + bytes);
        assert_true(a->rows == b->rows && a->rows_per_unit == b->rows_per_unit);
    }
}

static void same_binding(const mica__plan_binding *a, const mica__plan_binding *b)
{
    assert_true(a->source == b->source && a->access == b->access && a->length == b->length);
}

static void same_plan(uint16_t op, const mica__planned *got, const mica__plan *want)
{
    assert_int_equal(got->dispatch_count, want->dispatch_count);
    assert_int_equal(got->scratch_bytes, want->scratch_bytes);
    for (uint32_t i = 0; i < want->dispatch_count; i++) {
        const mica__plan_dispatch *a = &got->dispatch[i], *b = &want->dispatch[i];
        assert_ptr_equal(a->kernel, b->kernel);
        assert_memory_equal(a->groups, b->groups, sizeof a->groups);
        assert_true(a->grain == b->grain && a->local_bytes == b->local_bytes);
        assert_true(a->binding_count == b->binding_count && a->params_size == b->params_size);
        for (uint32_t j = 0; j < a->binding_count; j++)
            same_binding(&got->binding[a->first_binding + j], &want->binding[b->first_binding + j]);
        same_params(op, a->binding_count, got->params + a->params_offset, want->params + b->params_offset);
    }
}

/* What is not written of a plan's views must be the same in both to be compared. */
static void clear_params(mica__plan *plan)
{
    if (plan->params != NULL)
        memset(plan->params, 0, plan->params_capacity);
}

static void kept_plans_are_the_registrys(void **state)
{
    test_random random = test_random_from(11);
    scene s = open_scene();
    drawn d;
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        mica__planned got;
        draw_record(&random, &s, &d);
        clear_params(&s.cache->fresh);
        clear_params(&s.plan);
        must(mica__registry_plan(s.device, &d.record, &s.plan));
        must(mica__plan_cache_get(s.cache, s.device, &d.record, &got));
        same_plan(d.record.op, &got, &s.plan);
    }
    close_scene(&s);
}

static void places_do_not_matter(void **state)
{
    test_random random = test_random_from(12);
    scene s = open_scene();
    drawn d;
    mica__planned first, second;
    (void)state;
    draw_record(&random, &s, &d);
    must(mica__plan_cache_get(s.cache, s.device, &d.record, &first));
    d.operand[0].offset += 128;
    d.operand[0].temporary = 1;
    must(mica__plan_cache_get(s.cache, s.device, &d.record, &second));
    assert_ptr_equal(first.dispatch, second.dispatch); /* found, not planned again */
    d.operand[0].stride[0] += 64;
    must(mica__plan_cache_get(s.cache, s.device, &d.record, &second));
    assert_ptr_not_equal(first.dispatch, second.dispatch);
    close_scene(&s);
}

/* A record of many operands and a long block of parameters: told apart by its last operand and its last byte, and carried whole. */
static void long_records_are_carried(void **state)
{
    enum { OPERANDS = 24, PARAMS = 2051 };
    mica_device *device = open_device("null", 1);
    mica_buffer *buffer = new_vector(device, MICA_DTYPE_F32, 64);
    mica__plan_cache *cache = malloc(sizeof *cache);
    mica__operand operand[OPERANDS];
    unsigned char params[PARAMS];
    mica__record record = {.op = MICA_OP_EXPERT_SUM,
                           .operand_count = OPERANDS,
                           .params_size = PARAMS,
                           .label = "",
                           .operand = operand,
                           .params = params};
    mica__planned first, second;
    (void)state;
    assert_non_null(cache);
    mica__plan_cache_init(cache);
    for (uint32_t i = 0; i < OPERANDS; i++)
        mica__operand_from(buffer, MICA_ACCESS_READ, &operand[i]);
    for (uint32_t i = 0; i < PARAMS; i++)
        params[i] = (unsigned char)(i * 7);
    must(mica__plan_cache_get(cache, device, &record, &first));
    assert_int_equal(first.dispatch[0].binding_count, OPERANDS);
    assert_int_equal(first.binding[first.dispatch[0].first_binding + OPERANDS - 1].source, OPERANDS - 1);
    assert_int_equal(first.dispatch[0].params_size, PARAMS);
    assert_memory_equal(first.params + first.dispatch[0].params_offset, params, PARAMS);
    must(mica__plan_cache_get(cache, device, &record, &second));
    assert_ptr_equal(first.dispatch, second.dispatch);
    params[PARAMS - 1]++;
    assert_false(mica__plan_cache_has(cache, &record));
    params[PARAMS - 1]--;
    operand[OPERANDS - 1].shape[0]--;
    assert_false(mica__plan_cache_has(cache, &record));
    mica__plan_cache_free(cache);
    free(cache);
    mica_buffer_release(buffer);
    mica_device_release(device);
}

static void no_memory_keeps_nothing(void **state)
{
    test_meter meter = {0};
    test_random random = test_random_from(13);
    drawn d;
    mica__planned got;
    (void)state;
    must(test_meter_set(&meter));
    scene s = open_scene();
    draw_record(&random, &s, &d);
    must(mica__plan_cache_get(s.cache, s.device, &d.record, &got)); /* arrays grow once */
    d.operand[0].stride[0] += 64;
    clear_params(&s.cache->fresh);
    clear_params(&s.plan);
    must(mica__registry_plan(s.device, &d.record, &s.plan));
    test_meter_allow(&meter, 0);
    must(mica__plan_cache_get(s.cache, s.device, &d.record, &got));
    test_meter_allow(&meter, UINT64_MAX);
    same_plan(d.record.op, &got, &s.plan);
    assert_ptr_equal(got.dispatch, s.cache->fresh.dispatch);
    close_scene(&s);
    must(mica_set_allocator(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(kept_plans_are_the_registrys),
        test(places_do_not_matter),
        test(long_records_are_carried),
        test(no_memory_keeps_nothing),
    };
    return cmocka_run_group_tests_name("plan_cache", tests, NULL, NULL);
}
