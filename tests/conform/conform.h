/*
 * conform.h - the conformance suite: one table of ops, and what runs it.
 *
 * A row of the table makes random cases of an op, knows its oracle, its tolerance with the reason, and what the
 * case costs (for the timing rows of the benchmarks). The runner puts a case on a device and runs it in each mode.
 */
#ifndef CONFORM_H
#define CONFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/record.h"
#include "mica/mica.h"
#include "support/random.h"
#include "support/tensor.h"

#define CONFORM_OPERANDS 48
#define CONFORM_TEXT 1024

typedef struct conform_row conform_row;

typedef struct conform_operand {
    test_tensor tensor;
    bool present, written;
    bool shared; /* in place: the tensor of operand `same_as` */
    uint32_t same_as;
    uint8_t *right;           /* what it was when all was found right, for a written one; NULL: not yet */
    double *expected, *error; /* of an output beside the one of the case; NULL: nothing */
} conform_operand;

/* A program, and who is called to add it: 0 mica_region_apply, else a row of rows/conform_region.c. */
typedef struct conform_region {
    mica_region_desc desc; /* without its steps */
    mica_region_step step[MICA_REGION_STEPS];
    uint32_t call;
    double number; /* fill's value, advance's delta, softcap's cap */
} conform_region;

typedef union conform_params {
    float real;
    mica_rope_params rope;
    mica_scan_params scan;
    mica_argmax_params argmax;
    mica_sort_params sort;
    mica_reduce_params reduce;
    mica_normalize_params normalize;
    mica_softmax_params softmax;
    mica_kv_params kv;
    mica_attention_params attention;
    mica_matmul_params matmul;
    conform_region region;
    mica_route_params route;
    mica_expert_places_params expert_places;
    mica_pad_params pad;
    mica_gather_params gather;
    mica_scatter_params scatter;
    mica_compress_params compress;
    mica_gather_nd_params gather_nd;
    mica_scatter_nd_params scatter_nd;
    mica_cross_entropy_params cross_entropy;
    mica_hadamard_params hadamard;
    mica_conv_params conv;
    mica_pool_windows_params pool;
    mica_im2col_params im2col;
    mica_resize_params resize;
    mica_grid_params grid;
    mica_fft_params fft;
    mica_triangular_params triangular;
    mica_cholesky_params cholesky;
    mica_determinant_params determinant;
    mica_ssm_conv_params ssm_conv;
    mica_delta_params delta;
    mica_selective_params selective;
    mica_rnn_params rnn;
} conform_params;

/* One case: operands on the host, what must come out, and the buffers while it is on a device. */
typedef struct conform_case {
    const conform_row *row;
    uint64_t number; /* the seed; rows that enumerate their cases count by it */
    bool typical;    /* asked for: the shape that benchmarks time, no oddities */
    conform_operand operand[CONFORM_OPERANDS];
    uint32_t operand_count, output;
    conform_params params;
    uint32_t weight_slot, group_size; /* weight_slot UINT32_MAX: no weight */
    bool packed;
    bool aligned; /* operands are contiguous and begin at multiples of 16 bytes; set before they are added */
    bool whole;   /* scales as MLX writes them: of 16 bits, for whole groups of 32, 64 or 128; set likewise */
    mica_status wanted;       /* MICA_OK or MICA_ERR_FAULT */
    uint32_t bits_of;         /* the output must be that operand bit for bit; UINT32_MAX: compare numbers */
    double *expected, *error; /* of the output, once it was asked for */
    /* of regions: oracle_value of each element of each output, then of its imaginary part */
    void *wanted_values;
    double *other, *other_error; /* what is right as well, element for element; NULL: nothing */
    double flops, bytes;
    mica_buffer *weight; /* on the device: affine parts joined, packed if asked */
} conform_case;

struct conform_row {
    const char *name;
    mica_op op;
    mica_dtype weight; /* the type that this row is about, or NONE */
    void (*make)(conform_case *, test_random *);
    mica_status (*encode)(const conform_case *, mica_encoder *);
    void (*oracle)(conform_case *);
    double factor; /* tolerance = factor * oracle's error + one store */
    const char *reason;
    bool (*judge)(conform_case *, char *why); /* of what came back; NULL: numbers, within the tolerance */
};

typedef enum conform_mode {
    CONFORM_DIRECT, /* one encoder, one submission */
    CONFORM_REPLAY, /* recorded, replayed twice */
    CONFORM_FUSED,  /* recorded with FUSE and REORDER, replayed twice */
    CONFORM_MODES
} conform_mode;

/* Set by the programs of devices that multiply 16-bit numbers: there activations may enter a matmul as f16 where ops.h leaves
 * it open. */
extern bool conform_half_activations;
/* Set by the programs of GPUs for one with few processors, as PoCL is: cases that are large to give a hundred of them work are
 * small there. */
extern bool conform_few_processors;
/* The device runs kernel texts, which have not every type of every scalar. */
extern bool conform_kernels;
extern const conform_row conform_table[];
extern const uint32_t conform_table_count;
/* Lengths, windows, pages and masks that end exactly where something else does. Its cases are numbered, not drawn, so
 * it stands outside the table: cases 0 to CONFORM_ATTENTION_EDGES - 1. */
#define CONFORM_ATTENTION_EDGES 32
extern const conform_row conform_attention_edges;

/* The case that `seed` gives for this row. `typical`: the benchmark's shape. */
void conform_case_make(conform_case *c, const conform_row *row, uint64_t seed, bool typical);
/* Asks the oracle what must come out, which takes longer than making the case: for those who look at it. */
void conform_case_expect(conform_case *c);
/* For oracles of several outputs: what must come out in `slot` too, and its error measure. */
void conform_expect_also(conform_case *c, uint32_t slot, double **out_expected, double **out_error);
void conform_case_free(conform_case *c);
/* "add x f32 [3, 7] ..." */
void conform_case_describe(const conform_case *c, char *text, size_t bytes);

mica_status conform_case_upload(conform_case *c, mica_device *device);
void conform_case_unload(conform_case *c);
/* Runs an uploaded case and checks everything; false with a sentence in `why` (CONFORM_TEXT bytes) on failure. */
bool conform_case_run(conform_case *c, mica_device *device, conform_mode mode, char *why);
const char *conform_mode_name(conform_mode mode);

/* For the rows. */
conform_operand *conform_add(conform_case *c, test_random *random, const char *name, mica_dtype dtype,
                             uint32_t ndim, const uint64_t *shape, test_layout layout);
/* Adds the output; with `in_place` it is operand `same_as`. */
void conform_add_output(conform_case *c, test_random *random, const char *name, mica_dtype dtype,
                        uint32_t ndim, const uint64_t *shape, test_layout layout, bool in_place,
                        uint32_t same_as);
/* An optional operand that is not there. */
void conform_add_absent(conform_case *c);
/* A weight [.., rows, columns] of row->weight with its scales and biases (absent unless affine): three slots. */
void conform_add_weight(conform_case *c, test_random *random, const char *name, uint32_t ndim,
                        const uint64_t *shape);
/* Rows of f64, on a device that has it; elsewhere they are of smaller floats. */
bool conform_is_wide(const conform_case *c);
/* Of f64 outputs: what counts roundings of f32 becomes as many of f64, twice over, since the oracle is in f64 itself. */
void conform_narrow(conform_case *c);
/* What the op gets for a slot: NULL when absent. */
mica_buffer *conform_buffer(const conform_case *c, uint32_t slot);
test_tensor *conform_tensor(conform_case *c, uint32_t slot);
/* Dense values of a slot; NULL when absent. The caller frees. */
double *conform_values(conform_case *c, uint32_t slot);
/* The dense index in `from` of what element `index` of `to` reads, where `from` broadcasts to `to`. */
uint64_t conform_broadcast_place(const test_tensor *from, const test_tensor *to, uint64_t index);
mica_dtype conform_float(test_random *random);
mica_dtype conform_index(test_random *random);
/* A shape of `ndim` odd sizes with at most `most` elements. */
void conform_shape(test_random *random, uint32_t ndim, uint64_t most, uint64_t *shape);
/* Bytes that the elements of a slot take. */
double conform_bytes(conform_case *c, uint32_t slot);

#endif
