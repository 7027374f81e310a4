/* cache.h - what kernels of caches say of one: its type beside the floats, and flags. */
#define MK_Q8_0 3u /* types of caches: blocks of 32 */
#define MK_Q4_0 4u
#define MK_Q4_1 5u
#define MK_Q5_0 6u
#define MK_Q5_1 7u
#define MK_IQ4_NL 8u
#define MK_TURBO2 16u /* blocks of 64, rotated */
#define MK_TURBO2_5 17u
#define MK_TURBO3 18u
#define MK_TURBO4 19u
#define MK_TURBO5 20u
#define MK_TURBO6 21u
#define MK_TURBO8 22u
#define MK_HAS_SEQUENCES 1u /* flags */
#define MK_HAS_PAGES 2u
#define MK_HAS_MASK 4u
#define MK_RING 8u
#define MK_BIDIRECTIONAL 16u
#define MK_SIGNED_POSITIONS 32u /* i32: a negative one is outside */
#define MK_SIGNED_LENGTHS 64u
