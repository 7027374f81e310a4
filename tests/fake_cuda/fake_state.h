/* fake_state.h - what the files of the stand-in share. All of it is guarded by one lock, which fake_enter takes. */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include "fake_cuda.h"

#define FAKE(symbol, arguments) \
    int symbol arguments;       \
    int symbol arguments

enum {
    FAKE_OK = 0,
    FAKE_INVALID = 1,
    FAKE_NO_MEMORY = 2,
    FAKE_NO_CONTEXT = 201,
    FAKE_NO_IMAGE = 200,
    FAKE_NOT_FOUND = 500,
    FAKE_NOT_READY = 600,
    FAKE_ILLEGAL_ADDRESS = 700
};

typedef enum fake_kind {
    FAKE_STREAM = 1,
    FAKE_EVENT,
    FAKE_MODULE,
    FAKE_FUNCTION,
    FAKE_GRAPH,
    FAKE_EXECUTABLE,
    FAKE_POOL,
    FAKE_PROGRAM,
    FAKE_BLAS,
    FAKE_BLAS_PART
} fake_kind;

#define FAKE_NODE_WAITS 512
#define FAKE_ARGUMENTS 40
#define FAKE_PARAMS 4096

/* A launch with its arguments copied, a copy, an empty node, or a graph inside a graph. */
typedef struct fake_node {
    struct fake_object *graph;
    uint32_t number, wait_count, early; /* early: how many of what it waits for it waits for by itself */
    uint32_t wait[FAKE_NODE_WAITS];
    struct fake_object *function, *child;
    unsigned grid[3], block[3];
    uint64_t address[FAKE_ARGUMENTS]; /* of a copy: from, to */
    unsigned char params[FAKE_PARAMS];
    uint64_t copy_bytes;
    struct fake_node *next;
} fake_node;

typedef struct fake_object {
    struct fake_object *next, *parent;
    fake_kind kind;
    int device;
    char name[128];
    char *text;        /* of modules and programs; of functions: the module's, not owned */
    uint64_t ready_ns; /* events: when it happens; 0: never recorded */
    uint64_t recorded_ns;
    bool dynamic;                  /* functions: more local memory was asked for */
    struct fake_object *capture;   /* streams: the graph being captured */
    fake_node *nodes, **last_node; /* graphs and executables */
    uint32_t node_count;
} fake_object;

/* Takes the lock. Counts the call; not 0: it has to fail with that, after its effect if it gives something back. */
int fake_enter(const char *name);
/* Gives the lock back and returns `result`. */
int fake_leave(int result);
/* Remembers the first complaint. */
void fake_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Lock held. */
fake_object *fake_new(fake_kind kind, const char *name);
fake_object *fake_find(const void *handle, fake_kind kind); /* NULL and a complaint if it is none */
void fake_delete(fake_object *object);
int fake_current(void); /* device of the current context; -1: none */
bool fake_inside(uint64_t address, uint64_t bytes);
fake_counts *fake_count(void);
void fake_set_options(int count, const char *const *options);

/* fake_kernels.c: how many bindings an entry of a text has, and the size of its parameters; false: not known. */
bool fake_signature(const fake_object *function, uint32_t *out_bindings, uint32_t *out_params);
/* Checks a launch and runs it if it is known. */
int fake_run(const fake_object *function, const unsigned *grid, const unsigned *block, unsigned shared,
             const uint64_t *address, const void *params);
/* Copies the arguments of a launch out of the caller's list. */
void fake_take_arguments(const fake_object *function, void *const *arguments, fake_node *out);

/* fake_graph.c: a launch on a stream that is being captured becomes a node. */
void fake_capture(fake_object *stream, const fake_node *node);
void fake_free_nodes(fake_object *graph);

#endif
