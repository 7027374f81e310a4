/*
 * test_lift.c - recordings as graphs: what a replay writes the graph gives, bit for bit, in every mode; what is not understood is refused by name.
 *
 * Random passes read and write views of every kind (parts, steps, other orders, repeated, other types) of storages that they share.
 */
#include <stdlib.h>

#include "mica/lift.h"
#include "graph/graph_rig.h"
#include "support/meter.h"
#include "support/only_cpu.h"

enum { STORAGES = 6, MOST = 360, STEPS = 14 };
/* What a storage is to the recording. */
enum { FED, UPDATED, WRITTEN, NAMED, HELD, INNER };
static const char *const storage_names[STORAGES] = {"fed", "updated", "written", "named", "held", "inner"};

typedef struct scene {
    test_random random;
    mica_session *session;
    mica_encoder *e;
    mica_buffer *storage[STORAGES]; /* f32, contiguous */
    uint64_t elements[STORAGES];
    float before[STORAGES][MOST], after[STORAGES][MOST];
    mica_buffer *view[STEPS * 4];
    uint32_t views;
    mica_recording *recording;
} scene;

static mica_buffer *keep(scene *s, mica_buffer *view)
{
    return s->view[s->views++] = view;
}

/* A box of `shape` somewhere in a storage: dimensions in any order, with steps and gaps; where it is read, some repeat. NULL: no room. */
static mica_buffer *draw_view(scene *s, int storage, mica_dtype dtype, uint32_t ndim, const uint64_t *shape,
                              bool read)
{
    uint64_t stride[MICA_MAX_DIMS], span = 1, at = 0;
    uint32_t order[MICA_MAX_DIMS];
    mica_buffer *view = NULL;
    for (uint32_t i = 0; i < ndim; i++) {
        const uint32_t other = (uint32_t)test_random_below(&s->random, i + 1);
        order[i] = order[other];
        order[other] = i;
    }
    const bool plain = test_random_below(&s->random, 3) != 0;
    for (uint32_t i = 0; i < ndim; i++) {
        const uint32_t d = plain ? ndim - 1 - i : order[i];
        if (read && test_random_one_in(&s->random, 6)) {
            stride[d] = 0;
            continue;
        }
        if (test_random_one_in(&s->random, 5))
            span *= 2; /* a step, or a gap behind each row */
        stride[d] = span * 4;
        span *= shape[d];
    }
    if (span > s->elements[storage])
        return NULL;
    if (!test_random_one_in(&s->random, 2))
        at = test_random_below(&s->random, s->elements[storage] - span + 1);
    must(mica_buffer_view(s->storage[storage], dtype, ndim, shape, stride, at * 4, &view));
    return keep(s, view);
}

static mica_buffer *draw_read(scene *s, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    for (;;) {
        const int storage = (int)test_random_below(&s->random, STORAGES);
        mica_buffer *view = draw_view(s, storage, dtype, ndim, shape, true);
        if (view != NULL)
            return view;
    }
}

static mica_buffer *draw_write(scene *s, mica_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
    static const int may[] = {UPDATED, WRITTEN, INNER};
    for (;;) {
        mica_buffer *view = draw_view(s, may[test_random_below(&s->random, 3)], dtype, ndim, shape, false);
        if (view != NULL)
            return view;
    }
}

/* One op over views; one whose output lies across an operand is refused, and nothing happens. */
static void draw_step(scene *s)
{
    uint64_t shape[3];
    const uint32_t ndim = 1 + (uint32_t)test_random_below(&s->random, 3);
    for (uint32_t d = 0; d < ndim; d++)
        shape[d] = 1 + test_random_below(&s->random, 5);
    const int kind = (int)test_random_below(&s->random, 9);
    const mica_dtype dtype = kind == 0 ? MICA_DTYPE_U32 : MICA_DTYPE_F32;
    mica_buffer *a = draw_read(s, dtype, ndim, shape), *b = draw_read(s, dtype, ndim, shape),
                *y = draw_write(s, dtype, ndim, shape);
    switch (kind) {
    case 0: /* the bits of floats, as another type */
    case 1: (void)mica_copy(s->e, a, y); break;
    case 2: (void)mica_fill(s->e, 0.25, y); break;
    case 3: (void)mica_tanh(s->e, y, y); break;
    case 4: (void)mica_mul(s->e, a, b, y); break;
    case 5: (void)mica_rms_norm(s->e, a, NULL, 1e-3f, y); break;
    case 6: (void)mica_sigmoid(s->e, a, y); break;
    case 7: (void)mica_softmax(s->e, a, 0.5f, y); break;
    default: (void)mica_add(s->e, y, b, y); break;
    }
}

static void open_scene(scene *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    s->random = test_random_from(seed);
    must(mica_session_begin(cpu, NULL, MICA_SESSION_RECORD, &s->session));
    s->e = mica_session_encoder(s->session);
    for (int i = 0; i < STORAGES; i++) {
        s->elements[i] = 130 + test_random_below(&s->random, MOST - 130);
        if (i == INNER) {
            must(mica_session_temp(s->session, MICA_DTYPE_F32, 1, &s->elements[i], &s->storage[i]));
            continue;
        }
        must(mica_buffer_alloc(cpu, MICA_DTYPE_F32, 1, &s->elements[i], &s->storage[i]));
        for (uint64_t k = 0; k < s->elements[i]; k++)
            s->before[i][k] = (float)test_random_uniform(&s->random, -1, 1);
        must(mica_buffer_write(s->storage[i], 0, s->before[i], s->elements[i] * 4));
        if (i == FED || i == UPDATED || i == WRITTEN)
            must(mica_session_slot(s->session, storage_names[i], s->storage[i]));
    }
    must(mica_arange(s->e, -1, 0.015625, s->storage[INNER]));
    must(mica_fill(s->e, -0.5, s->storage[WRITTEN]));
    for (int i = 0; i < STEPS; i++)
        draw_step(s);
    must(mica_session_record(s->session, 0, NULL, &s->recording));
}

static void close_scene(scene *s)
{
    mica_recording_release(s->recording);
    for (uint32_t i = 0; i < s->views; i++)
        mica_buffer_release(s->view[i]);
    for (int i = 0; i < STORAGES; i++)
        mica_buffer_release(s->storage[i]);
    mica_session_release(s->session);
}

static mica_status lift(scene *s, mica_graph **out)
{
    const mica_lift_parameter named = {"named", s->storage[NAMED]};
    return mica_graph_from_recording(s->recording,
                                     &(mica_lift_desc){.parameters = &named, .parameter_count = 1}, out);
}

static mica_array array_of(scene *s, int storage, float *data)
{
    return rig_array(storage_names[storage], MICA_DTYPE_F32, data, s->elements[storage] * 4, 1,
                     &s->elements[storage]);
}

/* Runs the graph, and compares what it gives with what the replay wrote. */
static void compare(scene *s, const mica_graph *graph, mica_graph_mode mode, uint64_t seed)
{
    static float got[2][MOST];
    static const int outputs[] = {UPDATED, WRITTEN};
    mica_executable *executable = NULL;
    mica_array in[2], out[2];
    uint32_t fed = 0, given = 0;
    must(mica_graph_compile(graph, cpu, &(mica_compile_options){.mode = mode}, &executable));
    if (mica_graph_find(graph, "named") != 0)
        must(rig_set(executable, array_of(s, NAMED, s->before[NAMED])));
    for (uint32_t i = 0; i < mica_graph_input_count(graph); i++) {
        const char *name;
        (void)mica_graph_get_input(graph, i, &name);
        const int storage = strcmp(name, "fed") == 0 ? FED : UPDATED;
        assert_string_equal(name, storage_names[storage]);
        in[fed++] = array_of(s, storage, s->before[storage]);
    }
    for (uint32_t i = 0; i < mica_graph_output_count(graph); i++) {
        const char *name;
        (void)mica_graph_get_output(graph, i, &name);
        const int storage = strcmp(name, "updated") == 0 ? UPDATED : WRITTEN;
        assert_string_equal(name, storage_names[storage]);
        out[given] = array_of(s, storage, got[storage == WRITTEN]);
        given++;
    }
    must(mica_executable_run(executable, in, fed, out, given));
    for (uint32_t i = 0; i < 2; i++) {
        const bool is_output = mica_graph_output_count(graph) == 2 || outputs[i] == WRITTEN;
        if (is_output && memcmp(got[i], s->after[outputs[i]], s->elements[outputs[i]] * 4) != 0)
            fail_msg("seed %llu, mode %d: '%s' differs", (unsigned long long)seed, (int)mode,
                     storage_names[outputs[i]]);
        if (!is_output) /* nothing wrote there */
            assert_memory_equal(s->after[UPDATED], s->before[UPDATED], s->elements[UPDATED] * 4);
    }
    mica_executable_release(executable);
}

static void random_passes(void **state)
{
    static scene s;
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        mica_graph *graph = NULL;
        open_scene(&s, seed);
        must(mica_recording_replay_and_wait(s.recording));
        for (int i = UPDATED; i <= WRITTEN; i++)
            must(mica_buffer_read(s.storage[i], 0, s.after[i], s.elements[i] * 4));
        must(lift(&s, &graph));
        must(mica_graph_verify(graph));
        EACH_MODE(mode) compare(&s, graph, mode, seed);
        mica_graph_release(graph);
        close_scene(&s);
    }
}

/* ---- passes as models have them ---- */

enum { ROWS = 6, WIDTH = 64, HEADS = 4, SIZE = 16, CACHE = 8 };

typedef struct layer {
    mica_session *session;
    mica_encoder *e;
    mica_buffer *x, *y, *w, *packed, *positions, *lengths, *qkv, *cache, *out, *view[4];
    mica_recording *recording;
} layer;

static mica_buffer *buffer_of(mica_dtype dtype, uint32_t ndim, const uint64_t *shape, uint64_t seed)
{
    mica_buffer *buffer = NULL;
    test_random random = test_random_from(seed);
    float data[3 * WIDTH * WIDTH];
    uint64_t count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        count *= shape[d];
    must(mica_buffer_alloc(cpu, dtype, ndim, shape, &buffer));
    for (uint64_t i = 0; i < count; i++)
        data[i] = (float)test_random_normal(&random);
    if (dtype == MICA_DTYPE_Q8_0) /* a scale and 32 codes, whatever they are */
        for (uint64_t b = 0; b < count / 32; b++)
            memcpy((unsigned char *)data + b * 34, (const uint16_t[]){0x1800}, 2);
    must(mica_buffer_write(buffer, 0, data,
                           count / mica_dtype_block_elements(dtype) * mica_dtype_block_bytes(dtype)));
    return buffer;
}

/* One matrix for queries, keys and values, two texts that do not see each other; keys are rotated. Cached: the weight is packed, keys are written to a cache of which
 * the rest is never written, and are values too. */
static void open_layer(layer *l, bool cached)
{
    static const uint32_t at[ROWS] = {0, 1, 2, 0, 1, 2};
    const uint32_t three = 3;
    const mica_rope_params rope = {.mode = MICA_ROPE_NEOX, .rotary_dims = SIZE, .theta = 1000};
    memset(l, 0, sizeof *l);
    l->x = buffer_of(MICA_DTYPE_F32, 2, SHAPE(ROWS, WIDTH), 1);
    l->w = buffer_of(cached ? MICA_DTYPE_Q8_0 : MICA_DTYPE_F32, 2, SHAPE(3 * WIDTH, WIDTH), 2);
    l->y = buffer_of(MICA_DTYPE_F32, 3, SHAPE(ROWS, HEADS, SIZE), 3);
    l->positions = buffer_of(MICA_DTYPE_U32, 1, SHAPE(ROWS), 0);
    l->lengths = buffer_of(MICA_DTYPE_U32, 1, SHAPE(1), 0);
    must(mica_buffer_write(l->positions, 0, at, sizeof at));
    must(mica_buffer_write(l->lengths, 0, &three, sizeof three));
    must(mica_buffer_pack(l->w, &l->packed));
    must(mica_session_begin(cpu, NULL, MICA_SESSION_RECORD, &l->session));
    l->e = mica_session_encoder(l->session);
    must(mica_session_slot(l->session, "x", l->x));
    must(mica_session_slot(l->session, "y", l->y));
    must(mica_session_temp(l->session, MICA_DTYPE_F32, 2, SHAPE(ROWS, 3 * WIDTH), &l->qkv));
    must(mica_session_temp(l->session, MICA_DTYPE_F32, 3, SHAPE(CACHE, HEADS, SIZE), &l->cache));
    must(mica_encoder_label_push(l->e, "layer 1"));
    must(mica_matmul(l->e, l->x, l->packed, NULL, l->qkv));
    for (int text = 0; text < 2; text++) {
        mica_buffer *part[3], *turned, *positions, *out;
        must(mica_buffer_slice(l->positions, 0, text * 3u, 3, &positions));
        must(mica_buffer_slice(l->y, 0, text * 3u, 3, &out));
        must(mica_session_temp(l->session, MICA_DTYPE_F32, 3, SHAPE(3, HEADS, SIZE), &turned));
        for (uint64_t i = 0; i < 3; i++)
            must(mica_buffer_view(l->qkv, MICA_DTYPE_F32, 3, SHAPE(3, HEADS, SIZE),
                                  SHAPE(3 * WIDTH * 4, SIZE * 4, 4),
                                  ((uint64_t)text * 3 * 3 * WIDTH + i * WIDTH) * 4, &part[i]));
        must(mica_rope(l->e, part[1], positions, NULL, &rope, turned));
        if (cached)
            must(mica_kv_write(l->e, turned, positions, NULL, NULL, NULL, l->cache));
        must(mica_attention(l->e,
                            &(mica_attention_operands){.q = part[0],
                                                       .k = cached ? l->cache : turned,
                                                       .v = cached ? l->cache : part[2],
                                                       .positions = positions,
                                                       .lengths = l->lengths},
                            &(mica_attention_params){.scale = 0.25f}, out));
        for (int i = 0; i < 3; i++)
            mica_buffer_release(part[i]);
        mica_buffer_release(turned);
        mica_buffer_release(positions);
        mica_buffer_release(out);
    }
    must(mica_encoder_label_pop(l->e));
}

static void close_layer(layer *l)
{
    mica_buffer *const all[] = {l->x, l->y, l->w, l->packed, l->positions, l->lengths, l->qkv, l->cache};
    mica_recording_release(l->recording);
    mica_session_release(l->session);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mica_buffer_release(all[i]);
}

static mica_status lift_layer(layer *l, mica_graph **out)
{
    const mica_lift_parameter w = {"w", l->packed};
    return mica_graph_from_recording(l->recording, &(mica_lift_desc){.parameters = &w, .parameter_count = 1},
                                     out);
}

static uint32_t count_nodes(const mica_graph *graph, mica_node_kind kind, uint32_t code)
{
    uint32_t count = 0;
    mica_graph_node_info info;
    for (uint32_t i = 0; i < mica_graph_node_count(graph); i++) {
        must(mica_graph_get_node(graph, i, &info));
        count += info.kind == kind && (code == 0 || info.code == code);
    }
    return count;
}

static void attention(void **state)
{
    layer l;
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        mica_graph *graph = NULL;
        float x[ROWS * WIDTH], wanted[ROWS * WIDTH], got[ROWS * WIDTH];
        open_layer(&l, cached);
        must(mica_session_record(l.session, 0, NULL, &l.recording));
        must(mica_recording_replay_and_wait(l.recording));
        must(mica_buffer_read(l.y, 0, wanted, sizeof wanted));
        must(mica_buffer_read(l.x, 0, x, sizeof x));
        must(lift_layer(&l, &graph));
        /* Views stay views: the two results are joined, and nothing else is. */
        assert_int_equal(count_nodes(graph, MICA_NODE_CONCAT, 0), 1);
        assert_int_equal(count_nodes(graph, MICA_NODE_OP, MICA_OP_ATTENTION), 2);
        assert_int_equal(mica_graph_input_count(graph), 1);
        assert_int_equal(mica_graph_parameter_count(graph), 1);
        EACH_MODE(mode)
        {
            mica_executable *run = rig_compile(graph, cpu, mode);
            mica_array in = F32_ARRAY("x", x, ROWS, WIDTH), out = OUT_ARRAY("y", got);
            must(rig_set(run, (mica_array){.name = "w", .buffer = l.packed}));
            must(mica_executable_run(run, &in, 1, &out, 1));
            assert_memory_equal(got, wanted, sizeof got);
            mica_executable_release(run);
        }
        mica_graph_release(graph);
        close_layer(&l);
    }
}

/* Of the sum of squares: central differences by some of x. */
static void gradient(void **state)
{
    layer l;
    mica_graph *graph = NULL;
    float x[ROWS * WIDTH], d[ROWS * WIDTH], value[2];
    (void)state;
    open_layer(&l, false);
    must(mica_session_record(l.session, 0, NULL, &l.recording));
    must(mica_buffer_read(l.x, 0, x, sizeof x));
    must(lift_layer(&l, &graph));
    const mica_tensor y = mica_graph_find(graph, "y"), fed = mica_graph_find(graph, "x");
    const mica_tensor loss =
        mica_graph_reduce(graph, MICA_REDUCE_SUM, mica_graph_square(graph, y), NULL, 0, 0);
    mica_tensor dx = 0;
    must(mica_graph_gradient(graph, loss, 0, &fed, 1, &dx));
    mica_graph_output(graph, "loss", loss);
    mica_graph_output(graph, "dx", dx);
    mica_executable *run = rig_compile(graph, cpu, MICA_MODE_COMPILED);
    must(rig_set(run, (mica_array){.name = "w", .buffer = l.packed}));
    mica_array in = F32_ARRAY("x", x, ROWS, WIDTH), out = OUT_ARRAY("dx", d);
    must(mica_executable_run(run, &in, 1, &out, 1));
    for (int i = 5; i < ROWS * WIDTH; i += 61) {
        const float at = x[i], step = 1e-2f;
        for (int side = 0; side < 2; side++) {
            mica_array got = {.name = "loss", .data = &value[side], .bytes = 4};
            x[i] = side == 0 ? at - step : at + step;
            must(mica_executable_run(run, &in, 1, &got, 1));
        }
        x[i] = at;
        const double slope = ((double)value[1] - (double)value[0]) / (2 * (double)step);
        if (fabs(slope - (double)d[i]) > 2e-2 * (1 + fabs(slope)))
            fail_msg("d loss / d x[%d] is %g, differences say %g", i, (double)d[i], slope);
    }
    mica_executable_release(run);
    mica_graph_release(graph);
    close_layer(&l);
}

/* ---- refusals ---- */

/* A recording of what `calls` encodes over x [4, 8] and y of the same shape, with slots as `slots` says: bit 0 x, bit 1 y. */
typedef struct small {
    mica_session *session;
    mica_encoder *e;
    mica_buffer *x, *y, *t;
    mica_recording *recording;
    mica_graph *graph;
} small;

static void open_small(small *s, int slots)
{
    memset(s, 0, sizeof *s);
    s->x = buffer_of(MICA_DTYPE_F32, 2, SHAPE(4, 8), 1);
    s->y = buffer_of(MICA_DTYPE_F32, 2, SHAPE(4, 8), 2);
    must(mica_session_begin(cpu, NULL, MICA_SESSION_RECORD, &s->session));
    s->e = mica_session_encoder(s->session);
    if (slots & 1)
        must(mica_session_slot(s->session, "x", s->x));
    if (slots & 2)
        must(mica_session_slot(s->session, "y", s->y));
    must(mica_session_temp(s->session, MICA_DTYPE_F32, 2, SHAPE(4, 8), &s->t));
}

static mica_status lift_small(small *s, uint32_t flags, const mica_lift_desc *desc)
{
    must(mica_session_record(s->session, flags, NULL, &s->recording));
    return mica_graph_from_recording(s->recording, desc, &s->graph);
}

static void close_small(small *s)
{
    assert_null(s->graph);
    mica_recording_release(s->recording);
    mica_session_release(s->session);
    mica_buffer_release(s->x);
    mica_buffer_release(s->y);
    mica_buffer_release(s->t);
}

static void nothing(const mica_host_binding *bindings, uint32_t count, const void *params, uint32_t first,
                    uint32_t last)
{
    (void)bindings, (void)count, (void)params, (void)first, (void)last;
}

static void refused_records(void **state)
{
    small s;
    mica_buffer *part = NULL;
    (void)state;
    open_small(&s, 1); /* y is no slot */
    must(mica_tanh(s.e, s.x, s.t));
    must(mica_tanh(s.e, s.t, s.y));
    refused(lift_small(&s, 0, NULL), MICA_ERR_UNSUPPORTED,
            "record 1 (region): writes to a buffer that is neither");
    close_small(&s);
    open_small(&s, 3);
    must(mica_buffer_slice(s.t, 0, 0, 3, &part));
    must(mica_fill(s.e, 1, part));
    must(mica_tanh(s.e, s.t, s.y));
    refused(lift_small(&s, 0, NULL), MICA_ERR_UNSUPPORTED,
            "record 1 (region): reads bytes of a temporary that no");
    mica_buffer_release(part);
    close_small(&s);
    open_small(&s, 3);
    must(mica_buffer_view(s.x, MICA_DTYPE_F16, 2, SHAPE(4, 8), NULL, 0, &part));
    must(mica_copy(s.e, part, s.y));
    refused(lift_small(&s, 0, NULL), MICA_ERR_UNSUPPORTED, "record 0 (copy): reads f16 from elements of f32");
    mica_buffer_release(part);
    close_small(&s);
    open_small(&s, 3);
    must(mica_add(s.e, s.x, s.y, s.t));
    must(mica_rms_norm(s.e, s.t, NULL, 1e-3f, s.y));
    refused(lift_small(&s, MICA_FINISH_FUSE, NULL), MICA_ERR_UNSUPPORTED, "record without MICA_FINISH_FUSE");
    close_small(&s);
    open_small(&s, 3);
    mica_kernel *kernel = NULL;
    const mica_kernel_desc own = {.name = "own", .host = nothing};
    must(mica_kernel_register(cpu, &own));
    must(mica_kernel_get(cpu, "own", NULL, 0, &kernel));
    must(mica_encoder_dispatch(s.e, &(mica_dispatch_desc){.kernel = kernel, .groups = {1, 1, 1}}));
    refused(lift_small(&s, 0, NULL), MICA_ERR_UNSUPPORTED, "kernel of the caller's own");
    mica_kernel_release(kernel);
    close_small(&s);
}

static void refused_leaves(void **state)
{
    small s;
    mica_buffer *part = NULL;
    (void)state;
    open_small(&s, 3);
    must(mica_tanh(s.e, s.x, s.y));
    const mica_lift_parameter again[] = {{"w", s.x}}, empty[] = {{NULL, s.x}};
    refused(lift_small(&s, 0, &(mica_lift_desc){.parameters = again, .parameter_count = 1}),
            MICA_ERR_INVALID_ARGUMENT, "'x' and 'w' share bytes");
    refused(mica_graph_from_recording(s.recording,
                                      &(mica_lift_desc){.parameters = empty, .parameter_count = 1}, &s.graph),
            MICA_ERR_INVALID_ARGUMENT, "parameters[0].name");
    refused(mica_graph_from_recording(s.recording, &(mica_lift_desc){.parameter_count = 1}, &s.graph),
            MICA_ERR_INVALID_ARGUMENT, "desc.parameters");
    refused(mica_graph_from_recording(s.recording, &(mica_lift_desc){.size = 3}, &s.graph),
            MICA_ERR_INVALID_ARGUMENT, "desc");
    refused(mica_graph_from_recording(NULL, NULL, &s.graph), MICA_ERR_INVALID_ARGUMENT, "recording");
    refused(mica_graph_from_recording(s.recording, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "out_graph");
    close_small(&s);
    open_small(&s, 3);
    must(mica_buffer_slice(s.x, 0, 0, 2, &part));
    must(mica_session_slot(s.session, "part", part));
    must(mica_tanh(s.e, s.x, s.y));
    refused(lift_small(&s, 0, NULL), MICA_ERR_INVALID_ARGUMENT, "'x' and 'part' share bytes");
    mica_buffer_release(part);
    close_small(&s);
    layer l; /* a packed weight is a parameter or nothing */
    mica_graph *graph = NULL;
    open_layer(&l, true);
    must(mica_session_record(l.session, 0, NULL, &l.recording));
    refused(mica_graph_from_recording(l.recording, NULL, &graph), MICA_ERR_UNSUPPORTED,
            "record 0 (matmul, layer 1): reads a weight of q8_0 that is packed, which has no name");
    close_layer(&l);
}

/* ---- memory ---- */

static void every_allocation(void **state)
{
    mica_device *other = NULL;
    mica_buffer *x = NULL, *y = NULL, *held = NULL, *part = NULL;
    mica_session *session = NULL;
    mica_recording *recording = NULL;
    test_meter meter = {.fail_at = 0};
    (void)state;
    must(test_meter_set(&meter));
    must(mica_device_open("cpu", NULL, &other));
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 2, SHAPE(4, 8), &x));
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 2, SHAPE(4, 8), &y));
    must(mica_buffer_alloc(other, MICA_DTYPE_F32, 1, SHAPE(8), &held));
    must(mica_session_begin(other, NULL, MICA_SESSION_RECORD, &session));
    must(mica_session_slot(session, "x", x));
    must(mica_session_slot(session, "y", y));
    must(mica_buffer_slice(y, 1, 2, 3, &part));
    must(mica_add(mica_session_encoder(session), x, held, y));
    must(mica_fill(mica_session_encoder(session), 1, part));
    must(mica_rms_norm(mica_session_encoder(session), y, NULL, 1e-3f, y));
    must(mica_session_record(session, 0, NULL, &recording));
    mica_session_release(session);
    for (uint64_t n = 0;; n++) {
        mica_graph *graph = NULL;
        const uint64_t live = atomic_load(&meter.live);
        test_meter_allow(&meter, n);
        const mica_status status = mica_graph_from_recording(recording, NULL, &graph);
        test_meter_allow(&meter, UINT64_MAX - 1);
        mica_graph_release(graph);
        assert_int_equal(atomic_load(&meter.live), live);
        if (status == MICA_OK) {
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, MICA_ERR_OUT_OF_MEMORY);
        assert_null(graph);
    }
    mica_recording_release(recording);
    mica_buffer_release(part);
    mica_buffer_release(held);
    mica_buffer_release(x);
    mica_buffer_release(y);
    mica_device_release(other);
    must(mica_set_allocator(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_passes), cmocka_unit_test(attention),
                                       cmocka_unit_test(gradient),

                                       cmocka_unit_test(refused_records), cmocka_unit_test(refused_leaves)};
    const struct CMUnitTest memory[] = {cmocka_unit_test(every_allocation)};
    const int failed =
        cmocka_run_group_tests(memory, NULL, NULL) + cmocka_run_group_tests(tests, open_cpu, close_cpu);
    return failed;
}
