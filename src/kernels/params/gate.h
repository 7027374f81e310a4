/* What happens to a sum before it is stored. */
#define MK_GATE_SILU 1u
#define MK_GATE_GELU 2u
