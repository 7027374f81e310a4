/*
 * region.h - the program of a region record, as fusion joins it and plans read it.
 *
 * The record (MICA_OP_REGION) has input_count operands that are read, then output_count that are written; each has the
 * shape of the outputs (broadcast inputs repeat with stride 0). Its parameters are a mica__region_program followed by
 * its steps and nothing else: params_size = mica__region_bytes(step_count). Every program in a record was checked
 * (mica__region_check) or joined from ones that were. What a step does not use is 0 (values: MICA_REGION_NONE), so that
 * programs can be compared and hashed as bytes.
 */
#ifndef MICA_BACKEND_REGION_H
#define MICA_BACKEND_REGION_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "mica/region.h"
#include "backend/record.h"

typedef struct mica__region_program {
    uint8_t input_count, output_count, step_count;
    uint8_t axes;                        /* bit k: some step asks for the index along axis k from the last */
    uint8_t input[MICA_REGION_INPUTS];   /* mica_register */
    uint8_t output[MICA_REGION_OUTPUTS]; /* value */
    uint8_t output_imag[MICA_REGION_OUTPUTS]; /* value or MICA_REGION_NONE */
    uint8_t special; /* 1: some step is index or imag, which ask for more than their values */
    uint8_t reserved[3];
    _Alignas(8) mica_region_step step[];
} mica__region_program;

#define MICA__REGION_MOST_BYTES (sizeof(mica__region_program) + MICA_REGION_STEPS * sizeof(mica_region_step))

static inline uint32_t mica__region_bytes(uint32_t steps)
{
    return (uint32_t)(sizeof(mica__region_program) + steps * sizeof(mica_region_step));
}

/* A program with room for any number of steps, for whoever puts one together. */
typedef union mica__region_room {
    mica__region_program program;
    _Alignas(8) unsigned char bytes[MICA__REGION_MOST_BYTES];
} mica__region_room;

/* With room for the few steps of a named op. */
typedef union mica__region_small {
    mica__region_program program;
    _Alignas(8) unsigned char bytes[sizeof(mica__region_program) + 4 * sizeof(mica_region_step)];
} mica__region_small;

/* No steps yet, unused entries as they must be. */
static inline void mica__region_begin(mica__region_program *program, uint32_t inputs, uint32_t outputs)
{
    memset(program, 0, sizeof *program);
    memset(program->output, MICA_REGION_NONE, sizeof program->output);
    memset(program->output_imag, MICA_REGION_NONE, sizeof program->output_imag);
    program->input_count = (uint8_t)inputs;
    program->output_count = (uint8_t)outputs;
}

/* The value of a constant, in the member of its type. */
typedef union mica__scalar_value {
    float f32;
    double f64;
    int64_t i64;
    uint64_t u64;
} mica__scalar_value;

/* One more step of a program with room for it; values that it does not take are MICA_REGION_NONE. Returns its value. */
static inline uint8_t mica__region_step(mica__region_program *program, mica_scalar scalar, mica_register type,
                                        uint8_t a, uint8_t b, uint8_t c)
{
    mica_region_step *step = &program->step[program->step_count];
    memset(step, 0, sizeof *step);
    step->scalar = (uint8_t)scalar;
    step->type = (uint8_t)type;
    step->value[0] = a;
    step->value[1] = b;
    step->value[2] = c;
    return (uint8_t)(program->input_count + program->step_count++);
}

static inline uint8_t mica__region_constant(mica__region_program *program, mica_register type,
                                            mica__scalar_value value)
{
    const uint8_t at = mica__region_step(program, MICA_SCALAR_CONSTANT, type, MICA_REGION_NONE,
                                         MICA_REGION_NONE, MICA_REGION_NONE);
    /* An f32's other half stays 0. */
    memcpy(&program->step[at - program->input_count].constant, &value, type == MICA_REGISTER_F32 ? 4 : 8);
    return at;
}

/* The numbers of scalars by their names in the table: MICA__SCALAR_add is MICA_SCALAR_ADD. */
enum {
    MICA__SCALAR_none,
#define STEP(name, ...) MICA__SCALAR_##name,
#define STEP_OF(name, ...) MICA__SCALAR_##name,
#define PUBLIC(name, ...) MICA__SCALAR_##name,
#include "backend/scalars.def"
#undef STEP
#undef STEP_OF
#undef PUBLIC
    MICA__SCALAR_count
};

/* Sets of register types: bit r stands for mica_register r. */
#define MICA__SET_NONE 0u
#define MICA__SET_SAME 0u
#define MICA__SET_F32 (1u << MICA_REGISTER_F32)
#define MICA__SET_I32 (1u << MICA_REGISTER_I32)
#define MICA__SET_U32 (1u << MICA_REGISTER_U32)
#define MICA__SET_U64 (1u << MICA_REGISTER_U64)
#define MICA__SET_BOOL (1u << MICA_REGISTER_BOOL)
#define MICA__SET_FLOAT (MICA__SET_F32 | 1u << MICA_REGISTER_F64)
#define MICA__SET_SIGNED (MICA__SET_FLOAT | MICA__SET_I32 | 1u << MICA_REGISTER_I64)
#define MICA__SET_INTEGER (MICA__SET_I32 | MICA__SET_U32 | 1u << MICA_REGISTER_I64 | MICA__SET_U64)
#define MICA__SET_NUMBER (MICA__SET_FLOAT | MICA__SET_INTEGER)
#define MICA__SET_WORD (MICA__SET_INTEGER | MICA__SET_BOOL)
#define MICA__SET_ANY (MICA__SET_NUMBER | MICA__SET_BOOL)
#define MICA__SET_REAL MICA__SET_FLOAT
/* What kernel texts have of a set. */
#define MICA__KERNEL_SET_NONE MICA__SET_NONE
#define MICA__KERNEL_SET_F32 MICA__SET_F32
#define MICA__KERNEL_SET_I32 MICA__SET_I32
#define MICA__KERNEL_SET_U32 MICA__SET_U32
#define MICA__KERNEL_SET_U64 MICA__SET_U64
#define MICA__KERNEL_SET_FLOAT MICA__SET_FLOAT
#define MICA__KERNEL_SET_SIGNED MICA__SET_SIGNED
#define MICA__KERNEL_SET_INTEGER MICA__SET_INTEGER
#define MICA__KERNEL_SET_NUMBER MICA__SET_NUMBER
#define MICA__KERNEL_SET_WORD MICA__SET_WORD
#define MICA__KERNEL_SET_ANY MICA__SET_ANY
#define MICA__KERNEL_SET_REAL MICA__SET_F32

/* One row of scalars.def. */
typedef struct mica__scalar_info {
    const char *name;
    uint8_t arity; /* values it reads: 0 to 3 */
    uint8_t in;    /* set of types its values may have (all of them the same one; select: the last two) */
    uint8_t out;   /* set of results where it is not the type that went in; 0: the type that went in */
    uint8_t operations; /* about how many arithmetic operations, for costs */
    uint8_t plain;      /* 1: it has formulas */
    uint8_t is_op;      /* 1: PUBLIC */
    uint8_t kernel_in;  /* those of `in` that kernel texts have */
    uint8_t derivative; /* 1: it has one */
} mica__scalar_info;

/* NULL for a number that is no scalar. */
const mica__scalar_info *mica__scalar_of(uint32_t scalar);
/* mica_register_of without a call, of a dtype below MICA_DTYPE_COUNT. */
extern const uint8_t mica__registers[MICA_DTYPE_COUNT];
static inline mica_register mica__register_of(uint32_t dtype)
{
    return (mica_register)mica__registers[dtype];
}
/* Bytes of a register: 4 or 8; of bool 1. */
uint32_t mica__register_bytes(uint32_t type);

/* Checks a description and writes it as a program. A refusal begins with `who`. */
mica_status mica__region_check(const char *who, const mica_region_desc *desc, mica__region_room *out);

/* The type of value v. */
mica_register mica__region_value_type(const mica__region_program *program, uint32_t value);
/* The program of a region record, NULL for a record of another op. */
const mica__region_program *mica__region_of(const mica__record *record);
/* Whether the record is a region of this one step over its inputs in order: what fusion patterns look for. */
bool mica__region_is(const mica__record *record, mica_scalar scalar);
/* A region cap tanh(x / cap) of its one input. */
bool mica__region_is_softcap(const mica__record *record, float *out_cap);
/* A region act(g) * u of its two inputs, act silu or gelu: which inputs they are. */
bool mica__region_is_gate(const mica__record *record, mica_scalar *out_act, uint32_t *out_gate,
                          uint32_t *out_up);
/* The step that gives what a value is after a store to `dtype` and a load; NONE where it is the same. */
mica_scalar mica__region_rounding(mica_dtype dtype);
/* About how many arithmetic operations an element takes. */
uint32_t mica__region_operations(const mica__region_program *program);

#endif
