/*
 * train.h - training: optimisers as nodes of the graph that they train, and a loop around its executable.
 *
 *     mica_optimizer adam = mica_optimizer_of(MICA_OPTIMIZER_ADAMW);
 *     adam.learning_rate = 3e-4;
 *     mica_graph_optimize(graph, loss, parameters, count, &adam);
 *     mica_trainer *trainer;
 *     mica_trainer_desc desc = {.batch = next_batch, .checkpoint = "run.safetensors", .every = 100};
 *     mica_trainer_create(graph, device, &desc, &trainer);
 *     mica_executable_set(mica_trainer_executable(trainer), &weights);  // where the parameters begin
 *     mica_trainer_resume(trainer, &step);                              // or where a run before was killed
 *     mica_trainer_run(trainer, 10000);
 *
 * What a step changes are states: parameters of the graph, the moments of each ("w.m", "w.v"), "train.step" and, with
 * a scale of the loss that moves, "train.scale" and "train.good". For each state "s" the graph gives an output
 * "next.s", which mica_executable_link carries over; the trainer does that by itself.
 *
 * Failure of what adds nodes as in graph.h, of the rest as in device.h. Threads: one trainer, one thread at a time.
 */
#ifndef MICA_TRAIN_H
#define MICA_TRAIN_H

#include "mica/executable.h"
#include "mica/gradient.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimisers ---- */

typedef enum mica_optimizer_kind {
    /* b = step 1: g, else momentum b + (1 - dampening) g; w -= rate (nesterov: g + momentum b, else b) */
    MICA_OPTIMIZER_SGD = 0,
    /* m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -= rate m / (1 - beta1^t) / (sqrt(v / (1 -
     * beta2^t)) + eps); g has weight_decay w added */
    MICA_OPTIMIZER_ADAM,
    MICA_OPTIMIZER_ADAMW, /* the same, where w is multiplied by 1 - rate weight_decay instead */
    MICA_OPTIMIZER_LION /* w -= rate (sign(beta1 m + (1 - beta1) g) + weight_decay w); m = beta2 m + (1 - beta2) g */
} mica_optimizer_kind;

/* The learning rate of step t, from 1 on: it rises to t / warmup of itself until `warmup`; then, until
 * `steps`, where `last` of it is left .. */
typedef enum mica_rate_schedule {
    MICA_RATE_CONSTANT = 0, /* stays */
    MICA_RATE_LINEAR,       /* falls in a line */
    MICA_RATE_COSINE        /* falls as half a wave */
} mica_rate_schedule;

typedef struct mica_optimizer {
    uint64_t size; /* sizeof this struct, or 0 */
    mica_optimizer_kind kind;
    double learning_rate;
    mica_rate_schedule schedule;
    uint64_t warmup, steps; /* steps above warmup, unless CONSTANT */
    double last;            /* from 0 on */
    double beta1, beta2;    /* from 0 to below 1 */
    double eps, weight_decay, momentum, dampening;
    uint32_t nesterov;
    /* above 0: gradients are multiplied by min(1, clip_norm / (norm + 1e-6)), norm that of all of them together */
    double clip_norm;
    /* above 0: the gradient is that of the loss times this, divided by it again: for f16 */
    double loss_scale;
    /* above 0: the scale is doubled after so many steps in a row whose gradients are finite; a step whose are not
     * changes nothing but the scale, which is halved */
    uint32_t scale_every;
} mica_optimizer;

/* What PyTorch's optimiser of that kind begins with; Lion: rate 1e-4, beta 0.9 and 0.99. */
MICA_API mica_optimizer mica_optimizer_of(mica_optimizer_kind kind);

/* Adds one step: the gradients of `loss` (one float) by `parameters` (of the graph, floats), and for each state the
 * output of its next value. Outputs besides: "train.loss", "train.rate" and, where gradients are clipped or the scale
 * moves, "train.norm". Moments are f32, f64 of f64. `gradients` NULL, or those to be taken instead (added up over
 * parts of a batch), in the order of the parameters. */
MICA_API mica_status mica_graph_optimize(mica_graph *graph, mica_tensor loss, const mica_tensor *parameters,
                                         const mica_tensor *gradients, uint32_t count,
                                         const mica_optimizer *optimizer);
/* Links every output "next.s" of the executable's graph to its state. */
MICA_API mica_status mica_executable_link_states(mica_executable *executable, const mica_graph *graph);

/* ---- the loop ---- */

typedef struct mica_train_progress {
    uint64_t step, steps; /* that is done, of so many */
    double loss, rate;
    double norm; /* of all gradients; 0 where the graph does not give it */
} mica_train_progress;

/* Fills `inputs`: names are there, of all inputs of the graph; the caller sets data (or buffer), bytes and shape.
 * `step` counts from 1: data that depends on it alone makes a resumed run the same to the last bit. Another
 * status than OK ends the run with it. */
typedef mica_status (*mica_train_batch)(void *context, uint64_t step, mica_array *inputs, uint32_t count);
/* After each step. Another result than 0 ends the run with CANCELLED, after a checkpoint. */
typedef int (*mica_train_report)(void *context, const mica_train_progress *progress);

typedef struct mica_trainer_desc {
    uint64_t size;                       /* sizeof this struct, or 0 */
    const mica_compile_options *compile; /* NULL: defaults. TRAINING is added */
    mica_train_batch batch;
    mica_train_report report; /* may be NULL */
    void *context;
    const char *checkpoint; /* a safetensors file with all states: written whole or not at all; NULL: none */
    uint64_t every;         /* steps between checkpoints; 0: at the end of a run alone */
} mica_trainer_desc;

typedef struct mica_trainer mica_trainer;

/* Compiles a graph that mica_graph_optimize was called for. The graph may be released afterwards. */
MICA_API mica_status mica_trainer_create(const mica_graph *graph, mica_device *device,
                                         const mica_trainer_desc *desc, mica_trainer **out_trainer);
/* NULL is fine. */
MICA_API void mica_trainer_release(mica_trainer *trainer);
/* Borrowed: to set and to get parameters. */
MICA_API mica_executable *mica_trainer_executable(mica_trainer *trainer);
/* Sets all states from the checkpoint, if there is one: *out_step is the step that it was written after, else 0.
 * MALFORMED_FILE where a state is missing in it, or has another type or shape: nothing is set then. */
MICA_API mica_status mica_trainer_resume(mica_trainer *trainer, uint64_t *out_step);
/* Writes the checkpoint now. */
MICA_API mica_status mica_trainer_save(mica_trainer *trainer);
/* Runs until step `steps` is done: those that a checkpoint has count. STATE: a trained parameter was not set. */
MICA_API mica_status mica_trainer_run(mica_trainer *trainer, uint64_t steps);

#ifdef __cplusplus
}
#endif
#endif
