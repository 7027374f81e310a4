/* test_backend_shapes.c - the shapes of llama.cpp's test-backend-ops, for the ops that both have, on the cpu's instruction sets. */
#include "conform/shapes_main.h"

int main(int argc, char **argv)
{
    return shapes_main("cpu", TEST_ANY_SANITIZER ? 16 : 1, argc, argv);
}
