/*
 * test_adapter_experts.c - adapters of experts in llama.cpp's convention: each row by the matrices of the experts that it goes to, which is what merging gives.
 */
#include "adapter_rig.h"

/* Of the qwen3moe in tests/model/golden: width 32, 5 experts of 16. */
enum { EXPERTS = 5 };
static const part expert_parts[] = {{"blk.0.ffn_gate_exps.weight", 3, 16, 32},
                                    {"blk.1.ffn_up_exps.weight", 2, 16, 32},
                                    {"blk.1.ffn_down_exps.weight", 4, 32, 16}};

/* llama.cpp's convention: A [experts, rank, in], B [experts, out, rank]; `experts` of the last B, where a test wants it wrong. */
static void write_experts(const char *path, uint32_t experts)
{
    const mica_value alpha = {.type = MICA_VALUE_F32, .as.f = 6};
    mica_writer *writer = NULL;
    char name[100];
    must(mica_writer_create(path, &(mica_writer_options){.format = MICA_FORMAT_GGUF, .overwrite = 1},
                            &writer));
    must(mica_writer_string(writer, "general.type", "adapter"));
    must(mica_writer_string(writer, "general.architecture", "qwen3moe"));
    must(mica_writer_string(writer, "adapter.type", "lora"));
    must(mica_writer_metadata(writer, "adapter.lora.alpha", &alpha));
    for (int writing = 0; writing < 2; writing++)
        for (uint32_t m = 0; m < 6; m++) {
            const part *p = &expert_parts[m / 2];
            const uint64_t shape[3] = {m == 5 ? experts : EXPERTS, m % 2 == 0 ? p->rank : p->rows,
                                       m % 2 == 0 ? p->columns : p->rank};
            float values[EXPERTS * 4 * 32];
            snprintf(name, sizeof name, "%s.lora_%c", p->matrix, "ab"[m % 2]);
            for (uint64_t i = 0; i < shape[0] * shape[1] * shape[2]; i++)
                values[i] = value_of(9, m / 2, m % 2, i);
            if (writing == 0)
                must(mica_writer_tensor(writer, name, MICA_DTYPE_F32, 3, shape));
            else
                must(mica_writer_write(writer, values, shape[0] * shape[1] * shape[2] * 4));
        }
    must(mica_writer_finish(writer));
}

static mica_status merge_experts(mica_executable *run, void *context)
{
    const rig *r = context;
    for (uint32_t m = 0; m < 3; m++) {
        const part *p = &expert_parts[m];
        const uint64_t shape[3] = {EXPERTS, p->rows, p->columns}, each = (uint64_t)p->rows * p->columns;
        mica_buffer *buffer = NULL, *plain = NULL;
        float w[EXPERTS * 16 * 32];
        mica_encoder *e = NULL;
        must(mica_executable_get(run, p->matrix, &buffer));
        must(mica_buffer_alloc(r->device, MICA_DTYPE_F32, 3, shape, &plain));
        must(mica_encoder_begin(r->device, NULL, &e));
        must(mica_copy(e, buffer, plain));
        must(mica_encoder_commit_and_wait(e));
        mica_encoder_release(e);
        must(mica_buffer_read(plain, 0, w, sizeof w));
        for (uint64_t i = 0; i < EXPERTS * each; i++) {
            const uint64_t x = i / each, o = i % each / p->columns, c = i % p->columns;
            double sum = (double)w[i];
            for (uint32_t k = 0; k < p->rank; k++)
                sum += 6.0 / p->rank * (double)value_of(9, m, 1, (x * p->rows + o) * p->rank + k) *
                       (double)value_of(9, m, 0, (x * p->rank + k) * p->columns + c);
            w[i] = (float)sum;
        }
        mica_buffer_release(buffer);
        must(mica_buffer_alloc(r->device, MICA_DTYPE_F32, 3, shape, &buffer));
        must(mica_buffer_write(buffer, 0, w, sizeof w));
        must(mica_executable_set(run, &(mica_array){.name = p->matrix, .buffer = buffer}));
        mica_buffer_release(plain);
        mica_buffer_release(buffer);
    }
    return MICA_OK;
}

/* Each row by the matrices of the experts that it goes to: what merging gives; saved and read again, the same. */
static void experts(void **state)
{
    char folder[256], path[300], other[300];
    uint32_t tokens[TEXTS * LENGTH];
    mica_adapter_use use = {.scale = 1};
    mica_adapter_info info;
    (void)state;
    rig r = open_gguf("qwen3moe", 2);
    assert_int_equal(test_folder_make(folder, sizeof folder, "experts"), 0);
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    snprintf(other, sizeof other, "%s/b.gguf", folder);
    write_experts(path, EXPERTS - 1);
    refused(mica_adapter_open(path, r.model, &use.adapter), MICA_ERR_MALFORMED_FILE,
            "blk.1.ffn_down_exps.weight.lora_b");
    write_experts(path, EXPERTS);
    must(mica_adapter_open(path, r.model, &use.adapter));
    must(mica_adapter_get_info(use.adapter, &info));
    assert_true(info.matrices == 3 && info.rank == 2 && info.most == 4);
    assert_int_equal(info.parameters, EXPERTS * (3 * 48 + 2 * 48 + 4 * 48));
    rig_tokens(&r, 3, tokens, TEXTS * LENGTH);
    const size_t count = (size_t)TEXTS * LENGTH * r.info.vocabulary;
    const mica_context_options options = {.adapters = &use, .adapter_count = 1};
    mica_model_graph_desc desc = {.batch = TEXTS, .length = LENGTH};
    float *plain = context_rows(&r, &(mica_context_options){.sequences = 1}, tokens, TEXTS, LENGTH, LENGTH);
    float *wanted = graph_rows(&r, &desc, tokens, r.info.vocabulary, merge_experts, &r);
    float *got = context_rows(&r, &options, tokens, TEXTS, LENGTH, LENGTH);
    float *one = context_rows(&r, &options, tokens, TEXTS, LENGTH, 1);
    desc.adapters = &use;
    desc.adapter_count = 1;
    float *graph = graph_rows(&r, &desc, tokens, r.info.vocabulary, NULL, NULL);
    assert_true(distance(got, wanted, count) <= 1e-5);
    assert_true(distance(graph, got, count) <= 2e-6);
    assert_true(distance(plain, wanted, count) > 1e-2);
    assert_memory_equal(one, got, count * sizeof *got);
    must(mica_adapter_save(use.adapter, other));
    mica_adapter_release(use.adapter);
    must(mica_adapter_open(other, r.model, &use.adapter));
    float *again = context_rows(&r, &options, tokens, TEXTS, LENGTH, 7);
    assert_memory_equal(again, got, count * sizeof *got);
    mica_adapter_release(use.adapter);
    free(plain);
    free(wanted);
    free(got);
    free(one);
    free(graph);
    free(again);
    assert_int_equal(test_folder_remove(folder), 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
