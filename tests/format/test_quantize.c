/* test_quantize.c - mica_quantize: values against the oracle, types of the mixes, refusals, cancelling. */
#define _DEFAULT_SOURCE
#include "rewrite_rig.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define LAYERS 16

static mica_status quantize(const char *type, uint32_t threads)
{
    const mica_quantize_options options = {.type = type, .threads = threads, .overwrite = 1};
    return mica_quantize(rewrite_path("in.gguf"), rewrite_path("out.gguf"), &options, NULL);
}

static void quantize_ok(const char *type)
{
    if (quantize(type, 2) != MICA_OK)
        fail_msg("%s: %s", type, mica_status_message());
}

/* A few tensors of all kinds: matrices in three types, a stack, a norm, a router, an odd row, a vector. */
static const rewrite_tensor mixed[] = {
    {"token_embd.weight", MICA_DTYPE_F16, 2, {37, 256}},
    {"blk.0.attn_norm.weight", MICA_DTYPE_F32, 1, {256}},
    {"blk.0.attn_q.weight", MICA_DTYPE_BF16, 2, {33, 256}},
    {"blk.0.attn_k.weight", MICA_DTYPE_F32, 2, {7, 256}},
    {"blk.0.ffn_gate_inp.weight", MICA_DTYPE_F32, 2, {4, 256}},
    {"blk.0.ffn_down_exps.weight", MICA_DTYPE_F16, 3, {4, 5, 512}},
    {"blk.0.attn_output.weight", MICA_DTYPE_F16, 2, {256, 96}},
    {"blk.0.ffn_up.weight", MICA_DTYPE_F16, 2, {11, 72}},
    {"blk.0.attn_q.bias", MICA_DTYPE_F32, 1, {33}},
    {"output.weight", MICA_DTYPE_F16, 2, {1100, 256}},
};
#define MIXED (sizeof mixed / sizeof mixed[0])

static void make_mixed(void)
{
    test_gguf gguf = {0};
    test_gguf_string(&gguf, "general.architecture", "llama");
    test_gguf_u32(&gguf, "general.file_type", 1);
    test_gguf_u32(&gguf, "llama.block_count", 1);
    test_gguf_strings(&gguf, "tokenizer.ggml.tokens", 37, "token");
    rewrite_gguf(&gguf, rewrite_path("in.gguf"), mixed, MIXED, 7);
}

/* Half a step of an 8-bit block of 32, and the rounding of its scale and of the values. */
static void check_near(const double *was, const double *is, uint64_t count)
{
    for (uint64_t block = 0; block < count; block += 32) {
        double most = 0;
        for (uint64_t i = block; i < block + 32; i++)
            most = fmax(most, fabs(was[i]));
        for (uint64_t i = block; i < block + 32; i++)
            if (fabs(was[i] - is[i]) > most * (0.5 / 127 + 1.0 / 1024))
                fail_msg("value %llu was %g and is %g", (unsigned long long)i, was[i], is[i]);
    }
}

static void test_values_are_near(void **state)
{
    (void)state;
    make_mixed();
    quantize_ok("q8_0");
    mica__archive *in = rewrite_open(rewrite_path("in.gguf")), *out = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(out->visible_count, MIXED);
    for (size_t i = 0; i < MIXED; i++) {
        uint64_t count, again;
        double *was = rewrite_decode(in, mixed[i].name, &count);
        double *is = rewrite_decode(out, mixed[i].name, &again);
        const mica__tensor *tensor = rig_tensor(out, mixed[i].name);
        assert_int_equal(count, again);
        assert_string_equal(out->tensor[i].name, mixed[i].name);
        assert_memory_equal(tensor->shape, mixed[i].shape, mixed[i].ndim * sizeof(uint64_t));
        if (tensor->dtype == MICA_DTYPE_Q8_0)
            check_near(was, is, count);
        else
            assert_memory_equal(was, is, count * sizeof *was);
        free(was);
        free(is);
    }
    assert_int_equal(rig_tensor(out, "blk.0.attn_norm.weight")->dtype, MICA_DTYPE_F32);
    assert_int_equal(rig_tensor(out, "blk.0.ffn_gate_inp.weight")->dtype, MICA_DTYPE_F32);
    assert_int_equal(rig_tensor(out, "blk.0.ffn_down_exps.weight")->dtype, MICA_DTYPE_Q8_0);
    assert_int_equal(rig_tensor(out, "blk.0.ffn_up.weight")->dtype,
                     MICA_DTYPE_F16); /* 72 is no multiple of 32 */
    mica__archive_close(in);
    mica__archive_close(out);
}

static void test_metadata_is_kept(void **state)
{
    (void)state;
    make_mixed();
    quantize_ok("Q4_K_M");
    mica__archive *out = rewrite_open(rewrite_path("out.gguf"));
    assert_int_equal(mica__archive_meta(out, "general.file_type")->as.u, 15);
    assert_int_equal(mica__archive_meta(out, "general.quantization_version")->as.u, 2);
    assert_int_equal(mica__archive_meta(out, "llama.block_count")->as.u, 1);
    assert_string_equal(mica__archive_meta(out, "general.architecture")->as.string.data, "llama");
    const mica_value *tokens = mica__archive_meta(out, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->count, 37);
    assert_string_equal(((const mica_string *)tokens->as.items)[36].data, "token36");
    mica__archive_close(out);
    assert_int_equal(mica_host_bytes(), 0);
}

/* Whoever makes the pieces, the file is the same. */
static void test_threads_change_nothing(void **state)
{
    static const uint32_t threads[] = {1, 2, 3, 7, 300};
    (void)state;
    make_mixed();
    quantize_ok("q4_k_m");
    rename(rewrite_path("out.gguf"), rewrite_path("first.gguf"));
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        assert_int_equal(quantize("q4_k_m", threads[i]), MICA_OK);
        assert_true(rewrite_same_bytes(rewrite_path("out.gguf"), rewrite_path("first.gguf")));
    }
}

static void test_every_type(void **state)
{
    static const char *const types[] = {"F32",    "f16",  "BF16",   "q4_0",      "q4_1",  "q5_0",  "q5_1",
                                        "q8_0",   "q2_k", "q3_k",   "q4_k",      "q5_k",  "q6_k",  "iq4_nl",
                                        "iq4_xs", "q8_1", "q8_k",   "tq1_0",     "tq2_0", "mxfp4", "nvfp4",
                                        "q3_k_s", "f64",  "q5_k_m", "mxfp4_moe", "q2_k_s"};
    (void)state;
    make_mixed();
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        quantize_ok(types[i]);
        mica__archive *out = rewrite_open(rewrite_path("out.gguf"));
        const mica_dtype plain = mica_dtype_from_name(types[i]);
        if (plain != MICA_DTYPE_NONE && plain != MICA_DTYPE_F32)
            assert_int_equal(rig_tensor(out, "blk.0.attn_q.weight")->dtype, plain);
        rig_check(out);
        mica__archive_close(out);
    }
}

/* A file that is quantised already may be quantised again, and one of the same type is copied. */
static void test_again(void **state)
{
    const mica_quantize_options options = {.type = "q4_0", .pure = 1}, same = {.type = "q8_0", .pure = 1};
    mica_quantize_report report;
    (void)state;
    make_mixed();
    const mica_quantize_options first = {.type = "q8_0", .pure = 1, .overwrite = 1};
    assert_int_equal(mica_quantize(rewrite_path("in.gguf"), rewrite_path("out.gguf"), &first, &report),
                     MICA_OK);
    assert_int_equal(report.quantized, 6);
    assert_int_equal(mica_quantize(rewrite_path("out.gguf"), rewrite_path("same.gguf"), &same, &report),
                     MICA_OK);
    assert_int_equal(report.quantized, 0);
    assert_true(rewrite_same_bytes(rewrite_path("out.gguf"), rewrite_path("same.gguf")));
    assert_int_equal(mica_quantize(rewrite_path("out.gguf"), rewrite_path("again.gguf"), &options, &report),
                     MICA_OK);
    assert_int_equal(report.quantized, 6);
    assert_int_equal(report.fallbacks, 1);
    unlink(rewrite_path("same.gguf"));
    unlink(rewrite_path("again.gguf"));
}

/* ---- mixes ---------------------------------------------------------------------------------------------- */

/* A model of 16 layers; `shared` query heads to a key head. */
static void make_layers(const char *arch, uint32_t shared, uint32_t experts, bool tied, uint64_t width)
{
    static const char *const names[] = {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"};
    rewrite_tensor list[LAYERS * 6 + 2];
    static char text[LAYERS * 6][48];
    test_gguf gguf = {0};
    uint32_t count = 0;
    char key[64];
    test_gguf_string(&gguf, "general.architecture", arch);
    const struct {
        const char *key;
        uint32_t number;
    } facts[] = {{"block_count", LAYERS},
                 {"attention.head_count", 8},
                 {"attention.head_count_kv", 8 / shared},
                 {"expert_count", experts}};
    for (size_t i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, facts[i].key);
        test_gguf_u32(&gguf, key, facts[i].number);
    }
    list[count++] = (rewrite_tensor){"token_embd.weight", MICA_DTYPE_F32, 2, {2, width}};
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (size_t i = 0; i < 6; i++) {
            snprintf(text[layer * 6 + i], sizeof text[0], "blk.%u.%s.weight", layer, names[i]);
            list[count++] = (rewrite_tensor){text[layer * 6 + i], MICA_DTYPE_F32, 2, {2, width}};
        }
    if (!tied)
        list[count++] = (rewrite_tensor){"output.weight", MICA_DTYPE_F32, 2, {2, width}};
    rewrite_gguf(&gguf, rewrite_path("in.gguf"), list, count, 3);
}

static void check_type(const mica__archive *out, const char *name, mica_dtype type)
{
    const mica__tensor *tensor = rig_tensor(out, name);
    if (tensor->dtype != type)
        fail_msg("%s is %s, expected %s", name, mica_dtype_name((mica_dtype)tensor->dtype),
                 mica_dtype_name(type));
}

/* For each layer the type's letter in `types`: 2 to 6 of the K types, 8 of q8_0. */
static void check_layers(const mica__archive *out, const char *name, const char *types)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        char full[64], type[8];
        snprintf(full, sizeof full, "blk.%u.%s.weight", layer, name);
        snprintf(type, sizeof type, types[layer] == '8' ? "q8_0" : "q%c_k", types[layer]);
        check_type(out, full, mica_dtype_from_name(type));
    }
}

typedef struct mix_row {
    const char *mix, *arch;
    uint32_t shared, experts;
    const char *v, *down, *out, *other; /* a letter per layer; of other tensors one for all */
} mix_row;

static void test_mixes(void **state)
{
    /* Of 16 layers an eighth is 2 and a sixteenth 1; spread: 0 1, 14 15, and 4 7 10 13 of those between. */
    static const mix_row rows[] = {
        {"q4_k_m", "llama", 1, 0, "6644644644644666", "6644644644644666", "4444444444444444", "4"},
        {"q4_k_s", "llama", 1, 0, "5555444444444444", "5544444444444444", "4444444444444444", "4"},
        {"q5_k_m", "llama", 1, 0, "6655655655655666", "6655655655655666", "5555555555555555", "5"},
        {"q5_k_s", "llama", 1, 0, "5555555555555555", "5555555555555555", "5555555555555555", "5"},
        {"q3_k_m", "llama", 1, 0, "5544444444444444", "5444444444444444", "4444444444444444", "3"},
        {"q3_k_l", "llama", 1, 0, "5555555555555555", "5555555555555555", "5555555555555555", "3"},
        {"q3_k_s", "llama", 1, 0, "3333333333333333", "3333333333333333", "3333333333333333", "3"},
        {"q2_k", "llama", 1, 0, "3333333333333333", "3333333333333333", "3333333333333333", "2"},
        {"q2_k", "llama", 4, 0, "4444444444444444", "3333333333333333", "3333333333333333", "2"},
        {"q2_k_s", "llama", 4, 0, "4444444444444444", "4422222222222222", "2222222222222222", "2"},
        {"q6_k", "gemma2", 2, 0, "6666666666666666", "6666666666666666", "6666666666666666", "6"},
        {"q4_k_m", "qwen3", 2, 8, "8888888888888888", "6644644644644666", "5555555555555555", "4"},
        {"q4_k_m", "qwen3", 2, 16, "6644644644644666", "6644644644644666", "4444444444444444", "4"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char other[LAYERS + 1] = {0};
        make_layers(rows[i].arch, rows[i].shared, rows[i].experts, i % 2 == 1, 256);
        quantize_ok(rows[i].mix);
        mica__archive *out = rewrite_open(rewrite_path("out.gguf"));
        memset(other, rows[i].other[0], LAYERS);
        check_layers(out, "attn_v", rows[i].v);
        check_layers(out, "ffn_down", rows[i].down);
        check_layers(out, "attn_output", rows[i].out);
        check_layers(out, "attn_q", other);
        check_layers(out, "ffn_up", other);
        check_layers(out, "attn_k", rows[i].experts == 8 ? "8888888888888888" : other);
        if (i % 2 == 1)
            check_type(out, "token_embd.weight", MICA_DTYPE_Q6_K);
        else
            check_type(out, "output.weight", MICA_DTYPE_Q6_K);
        mica__archive_close(out);
    }
}

static void test_fallbacks(void **state)
{
    static const struct {
        const char *type;
        uint64_t width;
        mica_dtype becomes;
    } rows[] = {
        {"q2_k", 288, MICA_DTYPE_Q4_0},  {"q3_k_s", 96, MICA_DTYPE_Q4_0}, {"q4_k_s", 288, MICA_DTYPE_Q5_0},
        {"q5_k_s", 32, MICA_DTYPE_Q5_1}, {"q6_k", 320, MICA_DTYPE_Q8_0},  {"iq4_xs", 64, MICA_DTYPE_IQ4_NL},
        {"tq1_0", 96, MICA_DTYPE_Q4_0},  {"q4_0", 72, MICA_DTYPE_F16},    {"q6_k", 40, MICA_DTYPE_F16},
        {"nvfp4", 96, MICA_DTYPE_MXFP4}, {"q8_k", 128, MICA_DTYPE_Q8_0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const mica_quantize_options options = {.type = rows[i].type, .overwrite = 1};
        mica_quantize_report report;
        make_layers("llama", 1, 0, false, rows[i].width);
        assert_int_equal(mica_quantize(rewrite_path("in.gguf"), rewrite_path("out.gguf"), &options, &report),
                         MICA_OK);
        assert_true(report.fallbacks >= LAYERS);
        mica__archive *out = rewrite_open(rewrite_path("out.gguf"));
        check_type(out, "blk.9.attn_q.weight", rows[i].becomes);
        mica__archive_close(out);
    }
}

static void test_pure_and_keep(void **state)
{
    const mica_keep_rule keep[] = {{"blk.?.attn_v*", MICA_DTYPE_F16}, {"*ffn_down*", MICA_DTYPE_Q8_0}};
    mica_quantize_options options = {
        .type = "q4_k_m", .pure = 1, .overwrite = 1, .keep = keep, .keep_count = 2};
    (void)state;
    make_layers("llama", 1, 0, false, 256);
    assert_int_equal(mica_quantize(rewrite_path("in.gguf"), rewrite_path("out.gguf"), &options, NULL),
                     MICA_OK);
    mica__archive *out = rewrite_open(rewrite_path("out.gguf"));
    check_type(out, "output.weight", MICA_DTYPE_Q4_K);
    check_type(out, "blk.9.attn_v.weight", MICA_DTYPE_F16);
    check_type(out, "blk.10.attn_v.weight", MICA_DTYPE_Q4_K); /* two digits, one question mark */
    check_type(out, "blk.15.ffn_down.weight", MICA_DTYPE_Q8_0);
    mica__archive_close(out);
    options.keep = &(mica_keep_rule){"*atn_v*", MICA_DTYPE_F16};
    options.keep_count = 1;
    rewrite_refused(mica_quantize(rewrite_path("in.gguf"), rewrite_path("no.gguf"), &options, NULL),
                    MICA_ERR_INVALID_ARGUMENT, "\"*atn_v*\" fits no matrix");
    options.keep = &(mica_keep_rule){"*", MICA_DTYPE_IQ2_S};
    rewrite_refused(mica_quantize(rewrite_path("in.gguf"), rewrite_path("no.gguf"), &options, NULL),
                    MICA_ERR_INVALID_ARGUMENT, "iq2_s");
    make_layers("llama", 1, 0, false, 96);
    options.keep = &(mica_keep_rule){"*attn_q*", MICA_DTYPE_Q6_K};
    rewrite_refused(mica_quantize(rewrite_path("in.gguf"), rewrite_path("no.gguf"), &options, NULL),
                    MICA_ERR_INVALID_ARGUMENT, "blk.0.attn_q.weight");
}

/* ---- what is refused ------------------------------------------------------------------------------------ */

static void test_refusals(void **state)
{
    mica_quantize_options options = {.type = "q4_9"};
    const char *in = rewrite_path("in.gguf"), *out = rewrite_path("out2.gguf");
    (void)state;
    test_folder_empty(rewrite_folder);
    make_mixed();
    rewrite_refused(mica_quantize(in, out, &options, NULL), MICA_ERR_INVALID_ARGUMENT, "q4_k_m");
    options.type = NULL;
    rewrite_refused(mica_quantize(in, out, &options, NULL), MICA_ERR_INVALID_ARGUMENT, "options.type");
    options.type = "iq2_xxs";
    rewrite_refused(mica_quantize(in, out, &options, NULL), MICA_ERR_INVALID_ARGUMENT, "iq2_xxs");
    options.type = "q8_0";
    rewrite_refused(mica_quantize(in, out, NULL, NULL), MICA_ERR_INVALID_ARGUMENT, "options");
    rewrite_refused(mica_quantize(NULL, out, &options, NULL), MICA_ERR_INVALID_ARGUMENT, "input");
    rewrite_refused(mica_quantize(in, "", &options, NULL), MICA_ERR_INVALID_ARGUMENT, "output");
    rewrite_refused(mica_quantize(in, rewrite_path("none/out.gguf"), &options, NULL), MICA_ERR_IO,
                    "none/out.gguf");
    rewrite_refused(mica_quantize(rewrite_path("none.gguf"), out, &options, NULL), MICA_ERR_IO, "none.gguf");
    quantize_ok("q8_0");
    rewrite_refused(mica_quantize(in, rewrite_path("out.gguf"), &options, NULL), MICA_ERR_IO, "exists");
    options.overwrite = 1;
    rewrite_refused(mica_quantize(in, in, &options, NULL), MICA_ERR_INVALID_ARGUMENT, "input itself");
    assert_int_equal(symlink(in, rewrite_path("link.gguf")), 0);
    rewrite_refused(mica_quantize(in, rewrite_path("link.gguf"), &options, NULL), MICA_ERR_INVALID_ARGUMENT,
                    "input itself");
    unlink(rewrite_path("link.gguf"));
    rewrite_refused(mica_quantize(in, rewrite_folder, &options, NULL), MICA_ERR_IO, "folder");
    assert_int_equal(test_folder_count(rewrite_folder), 2);
}

/* The system refuses to let files grow, as it does when a disk is full. */
static void test_full_disk(void **state)
{
    struct rlimit before, small = {0};
    (void)state;
    test_folder_empty(rewrite_folder);
    make_mixed();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 20000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const mica_status status = quantize("q8_0", 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    rewrite_refused(status, MICA_ERR_IO, "out.gguf");
    assert_int_equal(test_folder_count(rewrite_folder), 1);
}

/* A file that got shorter after it was opened: the progress callback cuts it. */
static int cut_input(void *context, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    return truncate(context, 1 << 20) != 0;
}

static void test_shrinking_input(void **state)
{
    const rewrite_tensor list[] = {{"a.weight", MICA_DTYPE_F16, 2, {4096, 1024}}};
    char in[512];
    test_gguf gguf = {0};
    (void)state;
    test_folder_empty(rewrite_folder);
    test_gguf_string(&gguf, "general.architecture", "llama");
    rewrite_gguf(&gguf, rewrite_path("in.gguf"), list, 1, 5);
    snprintf(in, sizeof in, "%s", rewrite_path("in.gguf"));
    const mica_quantize_options options = {
        .type = "q8_0", .threads = 2, .overwrite = 1, .progress = cut_input, .context = in};
    const mica_status status = mica_quantize(in, rewrite_path("out.gguf"), &options, NULL);
    rewrite_refused(status, MICA_ERR_MALFORMED_FILE, "in.gguf");
    assert_int_equal(test_folder_count(rewrite_folder), 1);
}

typedef struct watch {
    uint64_t calls, stop_at, last, total;
} watch;

static int watch_progress(void *context, const char *what, uint64_t done, uint64_t total)
{
    watch *w = context;
    assert_non_null(what);
    assert_true(done >= w->last && done <= total && (w->total == 0 || total == w->total));
    w->last = done;
    w->total = total;
    return ++w->calls == w->stop_at;
}

static void test_progress_and_cancel(void **state)
{
    watch w = {0};
    mica_quantize_options options = {.type = "q4_0", .threads = 3, .progress = watch_progress, .context = &w};
    mica_quantize_report report;
    (void)state;
    make_mixed();
    assert_int_equal(mica_quantize(rewrite_path("in.gguf"), rewrite_path("done.gguf"), &options, &report),
                     MICA_OK);
    assert_int_equal(w.last, w.total);
    assert_int_equal(w.total, report.bytes_in);
    unlink(rewrite_path("done.gguf"));
    const uint64_t calls = w.calls;
    const uint32_t files = test_folder_count(rewrite_folder);
    assert_true(calls >= MIXED);
    for (uint64_t at = 1; at <= MIXED; at++) {
        w = (watch){.stop_at = at};
        rewrite_refused(mica_quantize(rewrite_path("in.gguf"), rewrite_path("done.gguf"), &options, &report),
                        MICA_ERR_CANCELLED, "stopped");
        assert_int_equal(test_folder_count(rewrite_folder), files);
    }
}

static mica_status play(void *context)
{
    (void)context;
    return quantize("q4_k_m", 2);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    make_mixed();
    rig_fail_allocations(play, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_near),
        cmocka_unit_test(test_metadata_is_kept),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_mixes),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_pure_and_keep),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_shrinking_input),
        cmocka_unit_test(test_progress_and_cancel),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, rewrite_setup, rewrite_teardown);
}
