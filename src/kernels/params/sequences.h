/* sequences: which tokens and states each of `count` sequences has (sequences.kc). Steps are bytes from one index to the next, of states from one slot
 * to the next. `present` has the bits of what is there. */
#define MK_SEQUENCES_STATE 1u
#define MK_SEQUENCES_STARTS 2u
#define MK_SEQUENCES_READ 4u
#define MK_SEQUENCES_WRITE 8u
#define MK_SEQUENCES_NEXT 16u
typedef struct mk_sequences {
    mk_u64 state_step, next_step, starts_step, read_step, write_step;
    mk_u32 tokens, count;
    mk_u32 each; /* tokens of a sequence where there are no starts */
    mk_u32 state_slots, next_slots;
    mk_u32 present;
    mk_u32 fault_code, reserved;
} mk_sequences;
