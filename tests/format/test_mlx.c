/* test_mlx.c: packed words joined with their scales as a config says, from files made in memory. */
#define _DEFAULT_SOURCE
#include "format_rig.h"

/* A tensor of a test's file. */
typedef struct entry {
    const char *name, *dtype;
    int bytes; /* of one element */
    uint64_t shape[3];
    int ndim;
} entry;

static rig_bytes make(const entry *entries, int count)
{
    rig_bytes header = {0}, b = {0};
    uint64_t offset = 0;
    for (int i = 0; i < count; i++) {
        const entry *e = &entries[i];
        char text[256];
        uint64_t bytes = (uint64_t)e->bytes;
        snprintf(text, sizeof text, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[", i == 0 ? '{' : ',', e->name,
                 e->dtype);
        rig_text(&header, text);
        for (int d = 0; d < e->ndim; d++) {
            snprintf(text, sizeof text, "%s%llu", d == 0 ? "" : ",", (unsigned long long)e->shape[d]);
            rig_text(&header, text);
            bytes *= e->shape[d];
        }
        snprintf(text, sizeof text, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                 (unsigned long long)(offset + bytes));
        rig_text(&header, text);
        offset += bytes;
    }
    rig_text(&header, "}");
    rig_number(&b, header.size, 8);
    rig_put(&b, header.data, header.size);
    rig_data(&b, (size_t)offset);
    rig_free(&header);
    return b;
}

static const char *config_text;

static mica_status read_and_join(mica__archive *archive)
{
    mica_status status = mica__safetensors_read(archive);
    if (status != MICA_OK)
        return status;
    archive->config_length = strlen(config_text);
    archive->config = mica__archive_text(archive, config_text, archive->config_length);
    return archive->config == NULL ? MICA_ERR_OUT_OF_MEMORY : mica__mlx_join(archive);
}

static mica__archive *join_ok(const rig_bytes *b, const char *config)
{
    mica__archive *archive;
    config_text = config;
    archive = rig_open_ok(read_and_join, b);
    rig_check(archive);
    return archive;
}

static void refuse(const entry *entries, int count, const char *config, mica_status code, const char *part)
{
    rig_bytes b = make(entries, count);
    config_text = config;
    rig_refused(read_and_join, &b, code, part);
    rig_free(&b);
}

/* 5 rows of 192 values: 24 words and 3 scales a row with 4 bits in groups of 64. */
static const entry affine4[] = {
    {"norm.weight", "F16", 2, {192}, 1}, {"x.scales", "F16", 2, {5, 3}, 2}, {"x.biases", "F16", 2, {5, 3}, 2},
    {"x.weight", "U32", 4, {5, 24}, 2},  {"tail.weight", "F16", 2, {7}, 1},
};

#define COMMON "{\"quantization\":{\"group_size\":64,\"bits\":4}}"

static void joins(void **state)
{
    rig_bytes b = make(affine4, 5);
    mica__archive *archive = join_ok(&b, COMMON);
    const mica__tensor *t = rig_tensor(archive, "x.weight");
    rig_opening opening = {read_and_join, &b, 1};
    (void)state;
    assert_int_equal(archive->format, MICA_FORMAT_MLX);
    assert_int_equal(archive->visible_count, 3);
    assert_int_equal(archive->tensor_count, 5);
    assert_int_equal(mica__archive_find(archive, "x.scales", 8), MICA__NO_TENSOR);
    assert_int_equal(t->dtype, MICA_DTYPE_AFFINE4);
    assert_int_equal(t->shape[0], 5);
    assert_int_equal(t->shape[1], 192);
    assert_int_equal(t->bytes, 5 * 24 * 4);
    assert_int_equal(t->group_size, 64);
    assert_string_equal(t->type_name, "affine");
    assert_string_equal(archive->tensor[t->scales].name, "x.scales");
    assert_string_equal(archive->tensor[t->biases].name, "x.biases");
    assert_true(t->scales >= archive->visible_count && t->biases >= archive->visible_count);
    assert_int_equal(rig_tensor(archive, "norm.weight")->scales, MICA__NO_TENSOR);
    assert_string_equal(archive->tensor[0].name, "norm.weight");
    assert_string_equal(archive->tensor[2].name, "tail.weight");
    mica__archive_close(archive);
    rig_fail_allocations(rig_play_open, &opening);
    rig_free(&b);
}

static void knows_modes(void **state)
{
    static const struct {
        const char *config;
        mica_dtype dtype, scale;
        uint64_t words, groups; /* of a row of 384 values */
        const char *scale_type;
        int scale_bytes;
        bool biases;
    } modes[] = {
        {"\"bits\":2,\"group_size\":128", MICA_DTYPE_AFFINE2, MICA_DTYPE_F32, 24, 3, "F32", 4, true},
        {"\"bits\":3,\"group_size\":64", MICA_DTYPE_AFFINE3, MICA_DTYPE_BF16, 36, 6, "BF16", 2, true},
        {"\"bits\":4,\"group_size\":32", MICA_DTYPE_AFFINE4, MICA_DTYPE_F16, 48, 12, "F16", 2, true},
        {"\"bits\":5,\"group_size\":64,\"mode\":\"affine\"", MICA_DTYPE_AFFINE5, MICA_DTYPE_F16, 60, 6, "F16",
         2, true},
        {"\"bits\":6,\"group_size\":64", MICA_DTYPE_AFFINE6, MICA_DTYPE_F16, 72, 6, "F16", 2, true},
        {"\"bits\":8,\"group_size\":64", MICA_DTYPE_AFFINE8, MICA_DTYPE_F16, 96, 6, "F16", 2, true},
        {"\"mode\":\"mxfp4\",\"bits\":4,\"group_size\":32", MICA_DTYPE_FP4, MICA_DTYPE_E8M0, 48, 12, "U8", 1,
         false},
        {"\"mode\":\"mxfp8\",\"bits\":8,\"group_size\":32", MICA_DTYPE_F8_E4M3, MICA_DTYPE_E8M0, 96, 12, "U8",
         1, false},
        {"\"mode\":\"nvfp4\",\"bits\":4,\"group_size\":16", MICA_DTYPE_FP4, MICA_DTYPE_F8_E4M3, 48, 24, "U8",
         1, false},
        {"\"mode\":\"nvfp4\"", MICA_DTYPE_FP4, MICA_DTYPE_F8_E4M3, 48, 24, "U8", 1, false},
        {"\"mode\":\"mxfp8\",\"bits\":null", MICA_DTYPE_F8_E4M3, MICA_DTYPE_E8M0, 96, 12, "U8", 1, false},
        {"\"quantize_input\":false", MICA_DTYPE_AFFINE4, MICA_DTYPE_F16, 48, 6, "F16", 2, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        /* Experts: one more dimension. */
        const entry entries[] = {
            {"x.weight", "U32", 4, {2, 3, modes[i].words}, 3},
            {"x.scales", modes[i].scale_type, modes[i].scale_bytes, {2, 3, modes[i].groups}, 3},
            {"x.biases", modes[i].scale_type, modes[i].scale_bytes, {2, 3, modes[i].groups}, 3},
        };
        char config[200];
        rig_bytes b = make(entries, modes[i].biases ? 3 : 2);
        mica__archive *archive;
        const mica__tensor *t;
        snprintf(config, sizeof config, "{\"quantization\":{%s}}", modes[i].config);
        archive = join_ok(&b, config);
        t = rig_tensor(archive, "x.weight");
        assert_int_equal(archive->visible_count, 1);
        assert_int_equal(t->dtype, modes[i].dtype);
        assert_int_equal(t->shape[2], 384);
        assert_int_equal(archive->tensor[t->scales].dtype, modes[i].scale);
        assert_int_equal(t->biases == MICA__NO_TENSOR, !modes[i].biases);
        assert_int_equal(t->group_size, 384 / modes[i].groups);
        mica__archive_close(archive);
        rig_free(&b);
    }
}

/* 4 bits in groups of 64 for all, 8 in groups of 32 for one, nothing for another: the same sizes mean other shapes. */
static void obeys_rules(void **state)
{
    static const entry entries[] = {
        {"language_model.a.weight", "U32", 4, {2, 16}, 2},
        {"language_model.a.scales", "F16", 2, {2, 2}, 2},
        {"language_model.a.biases", "F16", 2, {2, 2}, 2},
        {"b.weight", "U32", 4, {2, 16}, 2},
        {"b.scales", "F16", 2, {2, 2}, 2},
        {"b.biases", "F16", 2, {2, 2}, 2},
        {"c.weight", "U32", 4, {2, 16}, 2},
        {"c.scales", "F16", 2, {2, 2}, 2},
        {"d.weight", "U32", 4, {2, 16}, 2},
        {"d.scales", "U8", 1, {2, 4}, 2},
        {"e.weight", "U32", 4, {2, 16}, 2},
        {"e.scales", "F16", 2, {2, 2}, 2},
        {"e.biases", "F16", 2, {2, 2}, 2},
        {"table.weight", "U32", 4, {2, 16}, 2},
    };
    static const char config[] =
        "{\"quantization\":{\"group_size\":64,\"bits\":4,\"a\":{\"group_size\":32,\"bits\":8},"
        "\"language_model.b\":{\"bits\":8,\"group_size\":32},\"c\":false,\"d\":{\"mode\":\"mxfp4\"},\"e\":"
        "true},"
        "\"quantization_config\":{\"bits\":99}}";
    rig_bytes b = make(entries, 14);
    mica__archive *archive = join_ok(&b, config);
    (void)state;
    assert_int_equal(rig_tensor(archive, "language_model.a.weight")->shape[1], 64);
    assert_int_equal(rig_tensor(archive, "language_model.a.weight")->dtype, MICA_DTYPE_AFFINE8);
    assert_int_equal(rig_tensor(archive, "b.weight")->dtype, MICA_DTYPE_AFFINE8);
    assert_int_equal(rig_tensor(archive, "c.weight")->dtype, MICA_DTYPE_U32);
    assert_int_equal(rig_tensor(archive, "c.scales")->dtype, MICA_DTYPE_F16);
    assert_int_equal(rig_tensor(archive, "d.weight")->dtype, MICA_DTYPE_FP4);
    assert_int_equal(rig_tensor(archive, "e.weight")->dtype, MICA_DTYPE_AFFINE4);
    assert_int_equal(rig_tensor(archive, "e.weight")->shape[1], 128);
    assert_int_equal(rig_tensor(archive, "table.weight")->dtype, MICA_DTYPE_U32);
    mica__archive_close(archive);
    rig_free(&b);
}

/* Without MLX's settings nothing is joined. */
static void leaves_others_alone(void **state)
{
    static const char *const configs[] = {
        "{}",
        "{\"quantization\":null}",
        "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":64}}",
        "{\"quantization_config\":{\"bits\":4}}",
        "{\"note\":\"NaN \\\" Infinity\",\"x\":[NaN,-Infinity,Infinity]}",
        "[]",
    };
    rig_bytes b = make(affine4, 5);
    mica__archive *archive;
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        archive = join_ok(&b, configs[i]);
        assert_int_equal(archive->format, MICA_FORMAT_SAFETENSORS);
        assert_int_equal(archive->visible_count, 5);
        mica__archive_close(archive);
    }
    archive = join_ok(&b, "{\"quantization_config\":{\"bits\":4,\"group_size\":64}}");
    assert_int_equal(archive->format, MICA_FORMAT_MLX);
    mica__archive_close(archive);
    rig_free(&b);
}

static void refuses_configs(void **state)
{
    static const struct {
        const char *config;
        mica_status code;
        const char *part;
    } cases[] = {
        {"{", MICA_ERR_MALFORMED_FILE, "config.json"},
        {"{\"quantization\":{\"bits\":4},\"quantization\":{}}", MICA_ERR_MALFORMED_FILE, "config.json"},
        {"{\"quantization\":{\"bits\":7,\"group_size\":64}}", MICA_ERR_QUANT_CONFIG, "bits"},
        {"{\"quantization\":{\"bits\":1,\"group_size\":64}}", MICA_ERR_QUANT_CONFIG, "bits"},
        {"{\"quantization\":{\"bits\":-4,\"group_size\":64}}", MICA_ERR_QUANT_CONFIG, "bits"},
        {"{\"quantization\":{\"bits\":\"4\",\"group_size\":64}}", MICA_ERR_QUANT_CONFIG, "bits"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":0}}", MICA_ERR_QUANT_CONFIG, "group_size"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":18446744073709551615}}", MICA_ERR_QUANT_CONFIG,
         "group_size"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"mode\":\"nf4\"}}", MICA_ERR_QUANT_CONFIG, "mode"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"mode\":\"mxfp4\"}}", MICA_ERR_QUANT_CONFIG,
         "mode"},
        {"{\"quantization\":{\"mode\":3}}", MICA_ERR_QUANT_CONFIG, "mode"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"x\":{\"bits\":9}}}", MICA_ERR_QUANT_CONFIG,
         "\"x\""},
        {"{\"quantization\":{\"bits\":4,\"group_size\":32}}", MICA_ERR_QUANT_CONFIG, "\"x.weight\""},
        {"{\"quantization\":{\"bits\":8,\"group_size\":64}}", MICA_ERR_QUANT_CONFIG, "shape of its scales"},
        {"{\"quantization\":{\"bits\":5,\"group_size\":64}}", MICA_ERR_QUANT_CONFIG,
         "whole number of values"},
        {"{\"quantization\":{\"mode\":\"mxfp4\"}}", MICA_ERR_QUANT_CONFIG, "scales are of another type"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(affine4, 5, cases[i].config, cases[i].code, cases[i].part);
}

static void refuses_tensors(void **state)
{
    static const entry bare[] = {{"x.weight", "U32", 4, {5, 24}, 2}};
    static const entry flat[] = {{"x.weight", "U32", 4, {24}, 1}, {"x.scales", "F16", 2, {3}, 1}};
    static const entry lone[] = {{"x.weight", "U32", 4, {5, 24}, 2}, {"x.scales", "F16", 2, {5, 3}, 2}};
    static const entry rows[] = {{"x.weight", "U32", 4, {5, 24}, 2},
                                 {"x.scales", "F16", 2, {4, 3}, 2},
                                 {"x.biases", "F16", 2, {4, 3}, 2}};
    static const entry dims[] = {{"x.weight", "U32", 4, {5, 24}, 2},
                                 {"x.scales", "F16", 2, {1, 5, 3}, 3},
                                 {"x.biases", "F16", 2, {5, 3}, 2}};
    static const entry types[] = {{"x.weight", "U32", 4, {5, 24}, 2},
                                  {"x.scales", "F16", 2, {5, 3}, 2},
                                  {"x.biases", "F32", 4, {5, 3}, 2}};
    static const entry integers[] = {{"x.weight", "U32", 4, {5, 24}, 2},
                                     {"x.scales", "I16", 2, {5, 3}, 2},
                                     {"x.biases", "I16", 2, {5, 3}, 2}};
    static const entry extra[] = {{"x.weight", "U32", 4, {5, 24}, 2},
                                  {"x.scales", "U8", 1, {5, 6}, 2},
                                  {"x.biases", "U8", 1, {5, 6}, 2}};
    (void)state;
    refuse(bare, 1, "{\"quantization\":{\"x\":{\"bits\":4}}}", MICA_ERR_QUANT_CONFIG, "no scales");
    refuse(flat, 2, COMMON, MICA_ERR_QUANT_CONFIG, "whole number of values");
    refuse(lone, 2, COMMON, MICA_ERR_QUANT_CONFIG, "no biases");
    refuse(rows, 3, COMMON, MICA_ERR_QUANT_CONFIG, "shape of its scales");
    refuse(dims, 3, COMMON, MICA_ERR_QUANT_CONFIG, "shape of its scales");
    refuse(types, 3, COMMON, MICA_ERR_QUANT_CONFIG, "biases are of another type");
    refuse(integers, 3, COMMON, MICA_ERR_QUANT_CONFIG, "scales are of another type");
    refuse(extra, 3, "{\"quantization\":{\"mode\":\"mxfp4\"}}", MICA_ERR_QUANT_CONFIG, "it has biases");
}

/* The config cut at every length and with every bit flipped never ends in anything but a status. */
static void takes_cuts_and_flips(void **state)
{
    static const char whole[] =
        "{\"quantization\":{\"group_size\":64,\"bits\":4,\"x\":{\"bits\":4,\"mode\":\"affine\"}}}";
    rig_bytes b = make(affine4, 5);
    char text[sizeof whole];
    (void)state;
    for (size_t at = 0; at < sizeof whole - 1; at++) {
        for (int bit = 0; bit < 9; bit++) {
            mica__archive *archive = NULL;
            mica_status status;
            memcpy(text, whole, sizeof whole);
            if (bit == 8)
                text[at] = '\0';
            else
                text[at] ^= (char)(1 << bit);
            config_text = text;
            status = rig_open(read_and_join, &b, &archive);
            if (status == MICA_OK)
                rig_check(archive);
            else
                assert_true(status == MICA_ERR_MALFORMED_FILE || status == MICA_ERR_QUANT_CONFIG);
            mica__archive_close(archive);
            assert_int_equal(mica_host_bytes(), 0);
        }
    }
    rig_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins),
        cmocka_unit_test(knows_modes),
        cmocka_unit_test(obeys_rules),
        cmocka_unit_test(leaves_others_alone),
        cmocka_unit_test(refuses_configs),
        cmocka_unit_test(refuses_tensors),
        cmocka_unit_test(takes_cuts_and_flips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
