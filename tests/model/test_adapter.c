/*
 * test_adapter.c - models as graphs and adapters of low rank: the graph of every family gives the logits of its context; what an adapter adds is what merging it
 * into the weights gives; gradients against central differences; files that are wrong are refused by name.
 */
#include <unistd.h>

#include "adapter_rig.h"
#include "mica/gradient.h"
#include "mica/train.h"
#include "support/meter.h"

/* The same kernels in the same order: the bits of a context with a cache of f32. */
static void graph_of_family(void **state)
{
    const golden *g = *state;
    const mica_model_graph_desc desc = {.batch = TEXTS, .length = LENGTH};
    uint32_t tokens[TEXTS * LENGTH];
    rig r = rig_open(g->name, 2);
    if (r.info.encoder) {
        const golden_expected *want = golden_read(g->name);
        const mica_model_graph_desc one = {.batch = 1, .length = want->token_count};
        float *states = graph_rows(&r, &one, want->tokens, r.info.width, NULL, NULL);
        float mean[GOLDEN_VOCABULARY], norm = 0;
        for (uint32_t c = 0; c < r.info.width; c++) {
            mean[c] = 0;
            for (uint32_t t = 0; t < want->token_count; t++)
                mean[c] += states[(size_t)t * r.info.width + c];
            norm += mean[c] * mean[c];
        }
        for (uint32_t c = 0; c < r.info.width; c++)
            mean[c] /= sqrtf(norm);
        assert_true(golden_distance(mean, want->embedding, want->width) <= g->near);
        free(states);
        free((void *)(uintptr_t)want);
        rig_close(&r);
        return;
    }
    rig_tokens(&r, 7, tokens, TEXTS * LENGTH);
    float *wanted = context_rows(&r, &(mica_context_options){.sequences = 1}, tokens, TEXTS, LENGTH, LENGTH);
    float *got = graph_rows(&r, &desc, tokens, r.info.vocabulary, NULL, NULL);
    const size_t count = (size_t)TEXTS * LENGTH * r.info.vocabulary;
    /* A chain of elementwise ops may be one program in the context, which is exact; other fusions say what they change. */
    const double apart = distance(got, wanted, count);
    if (!(apart <= 2e-6) && g->near <= GOLDEN_NEAR)
        fail_msg("%s: the graph's logits are %.3g of the largest away", g->name, apart);
    assert_true(apart <= g->near);
    free(wanted);
    free(got);
    rig_close(&r);
}

/* ---- adapters ------------------------------------------------------------------------------------------- */

/* Of the llama in tests/model/golden: width 32, 4 heads of 12 over 2, 28 wide. */
static const part parts[] = {{"blk.0.attn_q.weight", 4, 48, 32},
                             {"blk.1.attn_v.weight", 2, 24, 32},
                             {"blk.0.ffn_down.weight", 3, 32, 28},
                             {"blk.1.attn_output.weight", 5, 32, 48},
                             {"output.weight", 2, 80, 32}};
enum { PARTS = 5, MOST_VALUES = 80 * 32 };

/* What a test changes in a file. */
typedef struct damage {
    const char *architecture, *type, *key,
        *only; /* NULL: as it should be; a key more; this matrix's name in place of the first's */
    float alpha;
    int no_b, more_rank, more_rows, nan;
} damage;

static void write_adapter(const char *path, uint64_t seed, const damage *d)
{
    const mica_value alpha = {.type = MICA_VALUE_F32, .as.f = (double)d->alpha};
    mica_writer *writer = NULL;
    char name[100];
    must(mica_writer_create(path, &(mica_writer_options){.format = MICA_FORMAT_GGUF, .overwrite = 1},
                            &writer));
    must(mica_writer_string(writer, "general.type", d->type == NULL ? "adapter" : d->type));
    must(mica_writer_string(writer, "general.architecture",
                            d->architecture == NULL ? "llama" : d->architecture));
    must(mica_writer_string(writer, "adapter.type", "lora"));
    must(mica_writer_metadata(writer, "adapter.lora.alpha", &alpha));
    if (d->key != NULL)
        must(mica_writer_string(writer, d->key, "x"));
    for (int writing = 0; writing < 2; writing++)
        for (uint32_t m = 0; m < PARTS; m++)
            for (uint32_t half = 0; half < 2; half++) {
                const part *p = &parts[m];
                const char *matrix = m == 0 && d->only != NULL ? d->only : p->matrix;
                const uint64_t shape[2] = {
                    half == 0 ? p->rank : p->rows + (m == 0 ? (uint32_t)d->more_rows : 0),
                    half == 0 ? p->columns : p->rank + (m == 0 ? (uint32_t)d->more_rank : 0)};
                if (m == 0 && half == 1 && d->no_b)
                    continue;
                snprintf(name, sizeof name, "%s.lora_%c", matrix, "ab"[half]);
                if (writing == 0) {
                    must(mica_writer_tensor(writer, name, MICA_DTYPE_F32, 2, shape));
                    continue;
                }
                float values[MOST_VALUES];
                for (uint64_t i = 0; i < shape[0] * shape[1]; i++)
                    values[i] = d->nan && m == 1 && i == 3 ? NAN : value_of(seed, m, half, i);
                must(mica_writer_write(writer, values, shape[0] * shape[1] * 4));
            }
    must(mica_writer_finish(writer));
}

/* W + sum of scale alpha / rank B A, in double, in place of W. */
typedef struct merging {
    const rig *r;
    mica_model_graph_desc desc;
    struct {
        uint64_t seed;
        double scale, alpha;
    } adapter[2];
    int count;
} merging;

static mica_status merge(mica_executable *run, void *context)
{
    const merging *m = context;
    for (uint32_t p = 0; p < PARTS; p++) {
        const part *q = &parts[p];
        mica_buffer *buffer = NULL, *plain = NULL;
        float w[MOST_VALUES];
        must(mica_executable_get(run, q->matrix, &buffer));
        must(mica_buffer_alloc(m->r->device, MICA_DTYPE_F32, 2, (uint64_t[]){q->rows, q->columns}, &plain));
        mica_encoder *e = NULL;
        must(mica_encoder_begin(m->r->device, NULL, &e));
        must(mica_copy(e, buffer, plain)); /* whatever its layout is */
        must(mica_encoder_commit_and_wait(e));
        mica_encoder_release(e);
        must(mica_buffer_read(plain, 0, w, (uint64_t)q->rows * q->columns * 4));
        for (uint32_t o = 0; o < q->rows; o++)
            for (uint32_t i = 0; i < q->columns; i++) {
                double sum = (double)w[o * q->columns + i];
                for (int a = 0; a < m->count; a++)
                    for (uint32_t k = 0; k < q->rank; k++)
                        sum += m->adapter[a].scale * m->adapter[a].alpha / q->rank *
                               (double)value_of(m->adapter[a].seed, p, 1, o * q->rank + k) *
                               (double)value_of(m->adapter[a].seed, p, 0, k * q->columns + i);
                w[o * q->columns + i] = (float)sum;
            }
        const mica_array array = {.name = q->matrix,
                                  .dtype = MICA_DTYPE_F32,
                                  .ndim = 2,
                                  .shape = {q->rows, q->columns},
                                  .data = w,
                                  .bytes = (uint64_t)q->rows * q->columns * 4};
        mica_buffer *fresh = NULL; /* the model's own stays as it is */
        must(mica_buffer_alloc(m->r->device, MICA_DTYPE_F32, 2, array.shape, &fresh));
        must(mica_buffer_write(fresh, 0, w, array.bytes));
        must(mica_executable_set(run, &(mica_array){.name = q->matrix, .buffer = fresh}));
        mica_buffer_release(fresh);
        mica_buffer_release(plain);
        mica_buffer_release(buffer);
    }
    return MICA_OK;
}

static void merged(void **state)
{
    char folder[256], path[2][300];
    uint32_t tokens[TEXTS * LENGTH];
    mica_adapter_use use[2];
    (void)state;
    rig r = open_gguf("llama", 2);
    assert_int_equal(test_folder_make(folder, sizeof folder, "lora"), 0);
    for (int a = 0; a < 2; a++) {
        snprintf(path[a], sizeof path[a], "%s/%d.gguf", folder, a);
        write_adapter(path[a], (uint64_t)a + 1, &(damage){.alpha = a == 0 ? 8 : 3});
        must(mica_adapter_open(path[a], r.model, &use[a].adapter));
    }
    use[0].scale = 1;
    use[1].scale = -0.5f;
    mica_adapter_info info;
    must(mica_adapter_get_info(use[0].adapter, &info));
    assert_int_equal(info.matrices, PARTS);
    assert_int_equal(info.rank, 2);
    assert_int_equal(info.most, 5);
    rig_tokens(&r, 3, tokens, TEXTS * LENGTH);
    const size_t count = (size_t)TEXTS * LENGTH * r.info.vocabulary;
    merging m = {.r = &r, .desc = {.batch = TEXTS, .length = LENGTH}, .adapter = {{1, 1, 8}, {2, -0.5, 3}}};
    float *plain = context_rows(&r, &(mica_context_options){.sequences = 1}, tokens, TEXTS, LENGTH, LENGTH);
    for (m.count = 1; m.count <= 2; m.count++) {
        const mica_context_options options = {.adapters = use, .adapter_count = (uint32_t)m.count};
        mica_model_graph_desc with = m.desc;
        with.adapters = use;
        with.adapter_count = (uint32_t)m.count;
        float *wanted = graph_rows(&r, &m.desc, tokens, r.info.vocabulary, merge, &m);
        float *got = context_rows(&r, &options, tokens, TEXTS, LENGTH, LENGTH);
        float *one = context_rows(&r, &options, tokens, TEXTS, LENGTH, 1);
        float *graph = graph_rows(&r, &with, tokens, r.info.vocabulary, NULL, NULL);
        assert_true(distance(got, wanted, count) <= 1e-5);
        assert_true(distance(graph, got, count) <= 2e-6);
        assert_true(distance(plain, wanted, count) > 1e-2);
        assert_memory_equal(
            one, got, count * sizeof *got); /* however it is fed: recorded steps, and a prompt in stages */
        rig other = open_gguf("llama", 1);
        mica_adapter_use again[2];
        for (int a = 0; a < 2; a++) {
            must(mica_adapter_open(path[a], other.model, &again[a].adapter));
            again[a].scale = use[a].scale;
        }
        const mica_context_options single = {.adapters = again, .adapter_count = (uint32_t)m.count};
        float *alone = context_rows(&other, &single, tokens, TEXTS, LENGTH, LENGTH);
        assert_memory_equal(alone, got, count * sizeof *got);
        for (int a = 0; a < 2; a++)
            mica_adapter_release(again[a].adapter);
        rig_close(&other);
        free(alone);
        free(wanted);
        free(got);
        free(one);
        free(graph);
    }
    free(plain);
    for (int a = 0; a < 2; a++)
        mica_adapter_release(use[a].adapter);
    assert_int_equal(test_folder_remove(folder), 0);
    rig_close(&r);
}

/* ---- training ------------------------------------------------------------------------------------------- */

/* Loss of the next tokens, with what it changes by along some parameters of an adapter; through weights of blocks, too. */
static void gradients_of(const char *name, double step, double bound, const char *const *targets,
                         uint32_t target_count)
{
    uint32_t tokens[2 * LENGTH];
    rig r = open_gguf(name, 2);
    mica_adapter_use use = {.scale = 1};
    mica_graph *graph = NULL;
    mica_executable *run = NULL;
    mica_tensor of[64], d[64];
    char out_name[64][80];
    uint32_t count = 0;
    const mica_adapter_desc like = {.rank = 2, .seed = 5, .targets = targets, .target_count = target_count};
    must(mica_adapter_create(r.model, &like, &use.adapter));
    mica_model_graph_desc desc = {.batch = 2, .length = LENGTH, .adapters = &use, .adapter_count = 1};
    must(mica_model_graph(r.model, &desc, &graph));
    const mica_tensor labels = mica_graph_input(graph, "labels", MICA_DTYPE_U32, 1, (uint64_t[]){2 * LENGTH});
    const mica_tensor each =
        mica_graph_cross_entropy(graph, mica_graph_find(graph, "logits"), labels, 0, 0, NULL, NULL);
    const mica_tensor loss = mica_graph_reduce(graph, MICA_REDUCE_MEAN, each, NULL, 0, 0);
    mica_graph_output(graph, "loss", loss);
    for (const char *tensor; count < 64 && mica_adapter_tensor(use.adapter, count, &tensor, NULL) == MICA_OK;
         count++) {
        of[count] = mica_graph_find(graph, tensor);
        assert_int_not_equal(of[count], 0);
        snprintf(out_name[count], sizeof out_name[0], "d.%s", tensor);
    }
    assert_true(count >= (target_count == 0 ? 16 : 4 * target_count));
    must(mica_graph_gradient(graph, loss, 0, of, count, d));
    for (uint32_t i = 0; i < count; i++)
        mica_graph_output(graph, out_name[i], d[i]);
    must(mica_graph_compile(graph, r.device, &(mica_compile_options){.flags = MICA_COMPILE_TRAINING}, &run));
    must(mica_model_graph_set(r.model, &desc, graph, run));
    rig_tokens(&r, 11, tokens, 2 * LENGTH);
    const uint64_t n = 2 * LENGTH;
    mica_array in[2] = {
        {.name = "tokens", .dtype = MICA_DTYPE_U32, .ndim = 1, .shape = {n}, .data = tokens, .bytes = n * 4},
        {.name = "labels", .dtype = MICA_DTYPE_U32, .ndim = 1, .shape = {n}, .data = tokens, .bytes = n * 4}};
    for (uint32_t i = 0; i < count; i++) { /* no B is zero: A has a gradient too */
        const char *tensor;
        mica_buffer *buffer;
        mica_buffer_info info;
        float value[4096], got[4096], side[2] = {0};
        test_random random = test_random_from(i + 1);
        must(mica_adapter_tensor(use.adapter, i, &tensor, &buffer));
        must(mica_buffer_get_info(buffer, &info));
        assert_true(info.element_count <= 4096);
        must(mica_buffer_read(buffer, 0, value, info.byte_length));
        if (i % 2 == 1)
            for (uint64_t k = 0; k < info.element_count; k++)
                value[k] = (float)test_random_uniform(&random, -0.3, 0.3);
        mica_array set = {.name = tensor,
                          .dtype = MICA_DTYPE_F32,
                          .ndim = info.ndim,
                          .data = value,
                          .bytes = info.byte_length};
        memcpy(set.shape, info.shape, sizeof set.shape);
        must(mica_executable_set(run, &set));
        if (i % 2 == 0)
            continue;
        for (uint32_t half = 0; half < 2; half++) { /* along a direction of this matrix's A, then B */
            float direction[4096], saved[4096];
            double slope = 0;
            must(mica_adapter_tensor(use.adapter, i - 1 + half, &tensor, &buffer));
            must(mica_buffer_get_info(buffer, &info));
            mica_buffer *now = NULL;
            must(mica_executable_get(run, tensor, &now));
            must(mica_buffer_read(now, 0, saved, info.byte_length));
            mica_buffer_release(now);
            mica_array out = {.name = out_name[i - 1 + half], .data = got, .bytes = info.byte_length};
            must(mica_executable_run(run, in, 2, &out, 1));
            for (uint64_t k = 0; k < info.element_count; k++) {
                direction[k] = got[k] >= 0 ? 1.0f : -1.0f;
                slope += fabs((double)got[k]);
            }
            set = (mica_array){.name = tensor,
                               .dtype = MICA_DTYPE_F32,
                               .ndim = info.ndim,
                               .data = value,
                               .bytes = info.byte_length};
            memcpy(set.shape, info.shape, sizeof set.shape);
            for (int s = 0; s < 2; s++) {
                mica_array l = {.name = "loss", .data = &side[s], .bytes = 4};
                for (uint64_t k = 0; k < info.element_count; k++)
                    value[k] = saved[k] + (s == 0 ? -(float)step : (float)step) * direction[k];
                must(mica_executable_set(run, &set));
                must(mica_executable_run(run, in, 2, &l, 1));
            }
            set.data = saved;
            must(mica_executable_set(run, &set));
            const double differences = ((double)side[1] - (double)side[0]) / (2 * step);
            if (!(fabs(differences - slope) <= bound * (1e-2 + fabs(slope))))
                fail_msg("%s: %s: the gradient says %g, differences %g", name, tensor, slope, differences);
        }
    }
    must(mica_adapter_take(use.adapter, run)); /* what the executable has now */
    for (uint32_t i = 0; i < count; i++) {
        const char *tensor;
        mica_buffer *buffer, *now;
        mica_buffer_info info;
        float mine[4096], its[4096];
        must(mica_adapter_tensor(use.adapter, i, &tensor, &buffer));
        must(mica_executable_get(run, tensor, &now));
        must(mica_buffer_get_info(buffer, &info));
        must(mica_buffer_read(buffer, 0, mine, info.byte_length));
        must(mica_buffer_read(now, 0, its, info.byte_length));
        assert_memory_equal(mine, its, info.byte_length);
        assert_true(mine[0] != 0 && mine[info.element_count - 1] != 0);
        mica_buffer_release(now);
    }
    refused(mica_adapter_take(use.adapter, NULL), MICA_ERR_INVALID_ARGUMENT, "executable");
    mica_executable_release(run);
    mica_graph_release(graph);
    mica_adapter_release(use.adapter);
    rig_close(&r);
}

static void gradients(void **state)
{
    (void)state;
    static const char *const experts[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    gradients_of("llama", 1e-3, 1e-2, NULL, 0);
    gradients_of("gemma2", 1e-3, 1e-2, NULL, 0);
    gradients_of("qwen3moe", 1e-4, 2e-2, NULL, 0);
    gradients_of("qwen3moe", 1e-4, 2e-2, experts, 3);
}

/* Loss and gradients by the model's own weights against PyTorch's, in double (scripts/golden_model_gradient.py). */
static void gradients_of_weights(void **state)
{
    enum { ROWS = 24, WEIGHTS = 7, MOST = 8192 };
    static const char *const names[WEIGHTS] = {
        "token_embd.weight",     "blk.0.attn_q.weight",   "blk.1.attn_v.weight", "blk.0.attn_output.weight",
        "blk.0.ffn_gate.weight", "blk.1.ffn_down.weight", "output_norm.weight"};
    static const char *const models[] = {"llama", "gemma2", "qwen3"};
    const mica_model_graph_desc desc = {.length = ROWS};
    char *text = golden_text("tests/golden/model_gradient.json");
    (void)state;
    assert_non_null(text);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        golden_expected *want = golden_read(models[m]);
        rig r = rig_open(models[m], 2);
        mica_graph *graph = NULL;
        mica_executable *run = NULL;
        mica_tensor of[WEIGHTS], d[WEIGHTS];
        double wanted[13];
        char key[120];
        float loss = 0;
        must(mica_model_graph(r.model, &desc, &graph));
        const mica_tensor labels = mica_graph_input(graph, "labels", MICA_DTYPE_U32, 1, (uint64_t[]){ROWS});
        const mica_tensor each =
            mica_graph_cross_entropy(graph, mica_graph_find(graph, "logits"), labels, 0, 0, NULL, NULL);
        const mica_tensor mean = mica_graph_reduce(graph, MICA_REDUCE_MEAN, each, NULL, 0, 0);
        for (int w = 0; w < WEIGHTS; w++)
            of[w] = mica_graph_find(graph, names[w]);
        must(mica_graph_gradient(graph, mean, 0, of, WEIGHTS, d));
        mica_graph_output(graph, "loss", mean);
        for (int w = 0; w < WEIGHTS; w++) {
            snprintf(key, sizeof key, "d.%s", names[w]);
            mica_graph_output(graph, key, d[w]);
        }
        must(mica_graph_compile(graph, r.device, NULL, &run));
        must(mica_model_graph_set(r.model, &desc, graph, run));
        mica_array in[2] = {
            {.name = "tokens", .dtype = MICA_DTYPE_U32, .ndim = 1, .shape = {ROWS}, .bytes = ROWS * 4},
            {.name = "labels", .dtype = MICA_DTYPE_U32, .ndim = 1, .shape = {ROWS}, .bytes = ROWS * 4}};
        in[0].data = want->tokens;
        in[1].data = want->tokens + 1;
        for (int w = -1; w < WEIGHTS; w++) {
            float got[MOST], *value = w < 0 ? &loss : got;
            double norm = 0;
            mica_graph_tensor_info info;
            snprintf(key, sizeof key, w < 0 ? "loss" : "d.%s", w < 0 ? "" : names[w]);
            must(mica_graph_get_tensor(graph, w < 0 ? mean : d[w], &info));
            const uint64_t count = info.ndim == 0   ? 1
                                   : info.ndim == 1 ? info.shape[0]
                                                    : info.shape[0] * info.shape[1];
            assert_true(count <= MOST);
            mica_array out = {.name = key, .data = value, .bytes = count * 4};
            must(mica_executable_run(run, in, 2, &out, 1));
            snprintf(key, sizeof key, "\"%s.%s\"", models[m], w < 0 ? "loss" : names[w]);
            assert_int_equal(golden_list(text, key, wanted, 13), w < 0 ? 1 : 13);
            if (w < 0) {
                assert_true(fabs((double)loss - wanted[0]) <= 1e-5 * wanted[0]);
                continue;
            }
            for (uint64_t i = 0; i < count; i++)
                norm += (double)got[i] * (double)got[i];
            norm = sqrt(norm);
            assert_true(fabs(norm - wanted[0]) <= 1e-4 * wanted[0]);
            for (uint64_t i = 0; i < 12;
                 i++) /* f32 sums of some hundred terms, of the whole gradient's size */
                if (!(fabs((double)got[i * (count - 1) / 11] - wanted[i + 1]) <= 1e-5 * wanted[0]))
                    fail_msg("%s, element %llu is %g, not %g", key,
                             (unsigned long long)(i * (count - 1) / 11), (double)got[i * (count - 1) / 11],
                             wanted[i + 1]);
        }
        mica_executable_release(run);
        mica_graph_release(graph);
        free(want);
        rig_close(&r);
    }
    free(text);
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static void refused_files(void **state)
{
    static const struct {
        damage d;
        mica_status status;
        const char *word;
    } rows[] = {
        {{.architecture = "qwen3", .alpha = 8},
         MICA_ERR_UNSUPPORTED,
         "\"general.architecture\" is \"qwen3\", expected \"llama\""},
        {{.type = "model", .alpha = 8}, MICA_ERR_UNSUPPORTED, "\"general.type\" is \"model\""},
        {{.key = "adapter.alora.invocation_tokens", .alpha = 8},
         MICA_ERR_UNSUPPORTED,
         "adapter.alora.invocation_tokens"},
        {{.only = "blk.9.attn_q.weight", .alpha = 8},
         MICA_ERR_UNSUPPORTED,
         "no tensor \"blk.9.attn_q.weight\""},
        {{.only = "token_embd.weight", .alpha = 8},
         MICA_ERR_UNSUPPORTED,
         "\"token_embd.weight\" is no matrix"},
        {{.only = "blk.0.attn_k.weight", .alpha = 8}, MICA_ERR_MALFORMED_FILE, "blk.0.attn_k.weight.lora_b"},
        {{.alpha = NAN}, MICA_ERR_MALFORMED_FILE, "adapter.lora.alpha"},
        {{.no_b = 1, .alpha = 8}, MICA_ERR_MALFORMED_FILE, "is there without \"blk.0.attn_q.weight.lora_b\""},
        {{.more_rank = 1, .alpha = 8}, MICA_ERR_MALFORMED_FILE, "is of rank 4"},
        {{.more_rows = 1, .alpha = 8}, MICA_ERR_MALFORMED_FILE, "ends with [49, 4]"},
        {{.nan = 1, .alpha = 8}, MICA_ERR_MALFORMED_FILE, "not finite"},
    };
    char folder[256], path[300];
    mica_adapter *adapter = NULL;
    (void)state;
    rig r = open_gguf("llama", 1);
    assert_int_equal(test_folder_make(folder, sizeof folder, "lora"), 0);
    snprintf(path, sizeof path, "%s/bad.gguf", folder);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_adapter(path, 1, &rows[i].d);
        refused(mica_adapter_open(path, r.model, &adapter), rows[i].status, rows[i].word);
        assert_null(adapter);
    }
    refused(mica_adapter_open("tests/model/golden/llama", r.model, &adapter), MICA_ERR_UNSUPPORTED,
            "no adapter_config.json");
    rig halves = rig_open("llama", 1); /* a folder: rows of rotary heads lie in another order */
    write_adapter(path, 1, &(damage){.alpha = 8});
    refused(mica_adapter_open(path, halves.model, &adapter), MICA_ERR_UNSUPPORTED, "mica convert");
    rig_close(&halves);
    const char *word = "ffn_up_exps";
    refused(mica_adapter_create(r.model, &(mica_adapter_desc){.targets = &word, .target_count = 1}, &adapter),
            MICA_ERR_NOT_FOUND, "ffn_up_exps");
    word = "token_embd";
    refused(mica_adapter_create(r.model, &(mica_adapter_desc){.targets = &word, .target_count = 1}, &adapter),
            MICA_ERR_INVALID_ARGUMENT, "ffn_down_exps or ffn_gate_inp");
    word = "attn_qkv";
    refused(mica_adapter_create(r.model, &(mica_adapter_desc){.targets = &word, .target_count = 1}, &adapter),
            MICA_ERR_NOT_FOUND, "no layer of the model has it");
    refused(mica_adapter_create(r.model, &(mica_adapter_desc){.rank = 5000}, &adapter),
            MICA_ERR_INVALID_ARGUMENT, "rank");
    must(mica_adapter_open(path, r.model, &adapter));
    mica_context *context = NULL;
    mica_adapter_use use = {adapter, NAN};
    refused(
        mica_context_create(r.model, &(mica_context_options){.adapters = &use, .adapter_count = 1}, &context),
        MICA_ERR_INVALID_ARGUMENT, "adapters[0].scale");
    rig other = open_gguf("llama", 1);
    use.scale = 1;
    refused(mica_context_create(other.model, &(mica_context_options){.adapters = &use, .adapter_count = 1},
                                &context),
            MICA_ERR_INVALID_ARGUMENT, "of another model");
    rig_close(&other);
    mica_adapter_release(adapter);
    assert_int_equal(test_folder_remove(folder), 0);
    rig_close(&r);
}

/* A file cut at any length, and one with any byte changed, is refused or gives an adapter; saved and read again it is the same. */
static void hostile_files(void **state)
{
    static char bytes[40000], back[40000];
    char folder[256], path[300], other[300];
    mica_adapter *adapter = NULL;
    (void)state;
    rig r = open_gguf("llama", 1);
    assert_int_equal(test_folder_make(folder, sizeof folder, "lora"), 0);
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    snprintf(other, sizeof other, "%s/b.gguf", folder);
    write_adapter(path, 1, &(damage){.alpha = 8});
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_true(size > 4000 && size < sizeof bytes);
    must(mica_adapter_open(path, r.model, &adapter));
    must(mica_adapter_save(adapter, other));
    mica_adapter_release(adapter);
    must(mica_adapter_open(other, r.model, &adapter));
    for (uint32_t p = 0; p < PARTS; p++)
        for (uint32_t half = 0; half < 2; half++) {
            mica_buffer *buffer;
            mica_buffer_info info;
            must(mica_adapter_tensor(adapter, 2 * p + half, NULL, &buffer));
            must(mica_buffer_get_info(buffer, &info));
            must(mica_buffer_read(buffer, 0, back, info.byte_length));
            for (uint64_t i = 0; i < info.element_count; i++)
                assert_true(((float *)(void *)back)[i] == value_of(1, p, half, i));
        }
    mica_adapter_release(adapter);
    for (size_t at = 0; at < size; at += at < 1200 ? 1 : 97) {
        adapter = NULL;
        file = fopen(path, "wb");
        fwrite(bytes, 1, at, file);
        fclose(file);
        assert_true(mica_adapter_open(path, r.model, &adapter) != MICA_OK && adapter == NULL);
        if (at >= 1200)
            continue;
        memcpy(back, bytes, size); /* a byte of the header changed */
        back[at] = (char)(back[at] ^ (1 << (at % 8)));
        file = fopen(path, "wb");
        fwrite(back, 1, size, file);
        fclose(file);
        if (mica_adapter_open(path, r.model, &adapter) != MICA_OK)
            assert_null(adapter);
        mica_adapter_release(adapter);
    }
    assert_int_equal(test_folder_remove(folder), 0);
    rig_close(&r);
}

/* A state that an adapter helped to make is refused without it. */
static void saved_states(void **state)
{
    const uint32_t tokens[4] = {1, 2, 3, 4};
    char folder[256], path[300];
    mica_adapter_use use = {.scale = 1};
    (void)state;
    rig r = open_gguf("llama", 1);
    assert_int_equal(test_folder_make(folder, sizeof folder, "lora"), 0);
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    write_adapter(path, 1, &(damage){.alpha = 8});
    must(mica_adapter_open(path, r.model, &use.adapter));
    snprintf(path, sizeof path, "%s/state", folder);
    for (int with = 1; with >= 0; with--) {
        mica_context *context = NULL;
        must(mica_context_create(
            r.model, &(mica_context_options){.adapters = &use, .adapter_count = (uint32_t)with}, &context));
        uint32_t sequence = rig_sequence(context);
        const mica_feed feed = {sequence, tokens, 4, MICA_WANT_NONE};
        must(mica_context_feed(context, &feed, 1));
        if (with)
            must(mica_sequence_save(context, sequence, path));
        must(mica_sequence_remove(context, sequence));
        if (with)
            must(mica_sequence_load(context, path, &sequence));
        else
            refused(mica_sequence_load(context, path, &sequence), MICA_ERR_INVALID_ARGUMENT, "mica.model");
        mica_context_release(context);
    }
    mica_adapter_release(use.adapter);
    assert_int_equal(test_folder_remove(folder), 0);
    rig_close(&r);
}

/* ---- memory --------------------------------------------------------------------------------------------- */

/* Reads an adapter, makes the graph and a context with it. */
static mica_status play(mica_model *model, const char *path)
{
    mica_adapter_use use = {.scale = 1};
    mica_graph *graph = NULL;
    mica_context *context = NULL;
    mica_status status = mica_adapter_open(path, model, &use.adapter);
    const mica_model_graph_desc desc = {.length = 3, .adapters = &use, .adapter_count = 1};
    if (status == MICA_OK)
        status = mica_model_graph(model, &desc, &graph);
    if (status == MICA_OK)
        status = mica_context_create(model, &(mica_context_options){.adapters = &use, .adapter_count = 1},
                                     &context);
    mica_context_release(context);
    mica_graph_release(graph);
    mica_adapter_release(use.adapter);
    return status;
}

static void every_allocation(void **state)
{
    static test_meter meter;
    char folder[256], path[300], model_path[300];
    mica_device *device = NULL;
    mica_model *model = NULL;
    (void)state;
    assert_int_equal(test_folder_make(folder, sizeof folder, "lora"), 0);
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    snprintf(model_path, sizeof model_path, "%s/m.gguf", folder);
    write_adapter(path, 1, &(damage){.alpha = 8});
    must(mica_convert(GOLDEN_HOME "llama", model_path, NULL));
    must(test_meter_set(&meter));
    must(mica_device_open("cpu", &(mica_device_options){.threads = 1}, &device));
    must(mica_model_open(model_path, device, NULL, &model));
    uint64_t step = 1;
    for (uint64_t n = 0;; n += step) {
        test_meter_allow(&meter, n);
        const mica_status status = play(model, path);
        test_meter_allow(&meter, UINT64_MAX - 1);
        if (status == MICA_OK) {
            assert_true(n > 100);
            break;
        }
        assert_int_equal(status, MICA_ERR_OUT_OF_MEMORY);
        step = n < 60 ? 1 : 13;
    }
    mica_model_release(model);
    mica_device_release(device);
    assert_int_equal(atomic_load(&meter.live), 0);
    must(mica_set_allocator(NULL));
    assert_int_equal(test_folder_remove(folder), 0);
}

int main(void)
{
    struct CMUnitTest families[GOLDEN_COUNT];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation), cmocka_unit_test(merged),
        cmocka_unit_test(gradients),        cmocka_unit_test(gradients_of_weights),
        cmocka_unit_test(refused_files),    cmocka_unit_test(hostile_files),
        cmocka_unit_test(saved_states)};
    for (size_t i = 0; i < GOLDEN_COUNT; i++)
        families[i] = (struct CMUnitTest){golden_checkpoints[i].name, graph_of_family, NULL, NULL,
                                          (void *)(uintptr_t)&golden_checkpoints[i]};
    const int failed = cmocka_run_group_tests_name("graphs", families, NULL, NULL);
    return failed + cmocka_run_group_tests_name("adapters", tests, NULL, NULL);
}
