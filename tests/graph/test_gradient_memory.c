/* Derivatives, slices and optimisers where memory runs out, at each allocation in turn: OUT_OF_MEMORY, and nothing is left. No device: graphs alone. */
#include "mica/train.h"
#include "support/meter.h"
#include "support/status.h"

/* h' = tanh(h w); the slice h' */
static mica_graph *step_body(void)
{
    mica_graph *body = NULL;
    if (mica_graph_create(&body) != MICA_OK)
        return NULL;
    const uint64_t n = mica_graph_symbol(body, "n");
    const mica_tensor h = mica_graph_input(body, "h", MICA_DTYPE_F32, 1, &n),
                      w = mica_graph_input(body, "w", MICA_DTYPE_F32, 1, &n);
    const mica_tensor next = mica_graph_tanh(body, mica_graph_mul(body, h, w));
    mica_graph_output(body, "h", next);
    mica_graph_output(body, "y", next);
    return body;
}

static mica_graph *one_output(mica_graph *body, bool condition)
{
    mica_graph *made = NULL;
    if (mica_graph_create(&made) != MICA_OK)
        return NULL;
    const uint64_t four = 4;
    const mica_tensor h = mica_graph_input(made, "h", MICA_DTYPE_F32, 1, &four),
                      w = mica_graph_input(made, "w", MICA_DTYPE_F32, 1, &four);
    mica_tensor y[2] = {0, 0};
    if (!condition)
        (void)mica_graph_call(made, body, NULL, MICA_CALL_CHECKPOINT, (mica_tensor[]){h, w}, 2, y, 2);
    else
        y[0] = mica_graph_less(made, mica_graph_reduce(made, MICA_REDUCE_SUM, h, NULL, 0, 0),
                               mica_graph_number(made, MICA_DTYPE_F32, 9));
    mica_graph_output(made, "y", y[0]);
    return made;
}

static mica_tensor loops(mica_graph *g, mica_tensor x, mica_tensor w)
{
    mica_graph *body = step_body(), *call = one_output(body, false), *condition = one_output(body, true);
    const mica_scan_desc desc = {.carried = 1, .others = 1, .length = 300};
    mica_tensor y[2] = {0, 0}, z = 0, v = 0;
    if (body != NULL && call != NULL && condition != NULL) {
        (void)mica_graph_scan(g, body, &desc, (mica_tensor[]){x, w}, y, 2);
        (void)mica_graph_while(g, condition, call, 5, (mica_tensor[]){y[0], w}, 2, 1, &z);
        const mica_tensor more =
            mica_graph_reduce(g, MICA_REDUCE_ANY, mica_graph_greater(g, z, w), NULL, 0, 0);
        (void)mica_graph_if(g, more, call, call, (mica_tensor[]){z, w}, 2, &v, 1);
        const mica_tensor rows = mica_graph_expand(g, v, 2, (uint64_t[]){3, 4});
        (void)mica_graph_vmap(g, call, (const uint8_t[]){1, 0}, (mica_tensor[]){rows, w}, 2, &z, 1);
        z = mica_graph_add(g, mica_graph_reduce(g, MICA_REDUCE_PROD, z, NULL, 0, 0),
                           mica_graph_reduce(g, MICA_REDUCE_SUM, y[1], NULL, 0, 0));
    }
    mica_graph_release(body);
    mica_graph_release(call);
    mica_graph_release(condition);
    return body != NULL && call != NULL && condition != NULL ? z : 0;
}

static mica_status build(mica_graph *g)
{
    const uint64_t four = 4;
    const mica_tensor x = mica_graph_input(g, "x", MICA_DTYPE_F32, 1, &four),
                      w = mica_graph_parameter(g, "w", MICA_DTYPE_F32, 1, &four);
    const mica_tensor loss = loops(g, x, w);
    mica_tensor d = 0, t = 0;
    mica_optimizer adam = mica_optimizer_of(MICA_OPTIMIZER_ADAM);
    adam.clip_norm = 1;
    adam.loss_scale = 8;
    adam.scale_every = 4;
    if (loss == 0)
        return mica_graph_status(g) == MICA_OK ? MICA_ERR_OUT_OF_MEMORY : mica_graph_status(g);
    (void)mica_graph_gradient(g, mica_graph_square(g, loss), 0, &x, 1, &d);
    (void)mica_graph_jvp(g, &loss, 1, &w, &x, 1, &t);
    return mica_graph_optimize(g, mica_graph_add(g, loss, t), &w, NULL, 1, &adam);
}

/* False: all allocations were made before the one that fails. */
static bool survive(uint64_t fail_at, bool for_good)
{
    test_meter meter = {.fail_at = fail_at, .for_good = for_good};
    mica_graph *g = NULL;
    assert_int_equal(test_meter_set(&meter), MICA_OK);
    mica_status status = mica_graph_create(&g);
    if (status == MICA_OK)
        status = build(g);
    if (status != MICA_OK && (fail_at == 0 || status != MICA_ERR_OUT_OF_MEMORY))
        fail_msg("allocation %llu: %s: %s", (unsigned long long)fail_at, mica_status_name(status),
                 mica_status_message());
    mica_graph_release(g);
    if (atomic_load(&meter.live) != 0)
        fail_msg("allocation %llu: %llu blocks leak", (unsigned long long)fail_at,
                 (unsigned long long)atomic_load(&meter.live));
    assert_int_equal(mica_set_allocator(NULL), MICA_OK);
    return atomic_load(&meter.calls) >= fail_at;
}

static void every_allocation(void **state)
{
    (void)state;
    (void)survive(0, false);
    for (int for_good = 0; for_good < 2; for_good++)
        for (uint64_t n = 1; survive(n, for_good != 0); n += n < 300 ? 1 : 7)
            ;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
