/* dims.h - how many dimensions an operand may have in the kernels that go by elements. */
#define MK_DIMS 8
