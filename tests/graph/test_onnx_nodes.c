/* test_onnx_nodes.c - the smallest node test of each ONNX operator with each set of attributes, and com.microsoft's beside ONNX Runtime, on the cpu in every mode. */
#include "graph/onnx_nodes.h"
#include "support/only_cpu.h"

static void test_compiled(void **state)
{
    (void)state;
    assert_int_equal(nodes_run_all(cpu, MICA_MODE_COMPILED, NODES_FILE), 0);
}

static void test_eager(void **state)
{
    (void)state;
    assert_int_equal(nodes_run_all(cpu, MICA_MODE_EAGER, NODES_FILE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compiled), cmocka_unit_test(test_eager)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
