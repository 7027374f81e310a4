/* test_convert_far.c - numbers of a GGUF that no config.json would have: each is refused or left out, none is cast out of range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mica/mica.h"
#include "mica/model.h"
#include "support/folder.h"
#include "support/status.h"

static char folder[512];

/* The demo model with one more key, or with another value for one that it has. */
static void write_model(const char *path, const char *key, const mica_value *value)
{
    mica_weights *weights = NULL;
    mica_weights_info info;
    mica_writer *writer = NULL;
    const mica_writer_options options = {.overwrite = 1};
    must(mica_weights_open("models/demo.gguf", NULL, &weights));
    must(mica_weights_get_info(weights, &info));
    must(mica_writer_create(path, &options, &writer));
    must(mica_writer_metadata(writer, key, value));
    for (uint64_t i = 0; i < info.metadata_count; i++) {
        mica_string name;
        const mica_value *old;
        must(mica_weights_metadata(weights, i, &name, &old));
        if (strcmp(name.data, key) != 0)
            must(mica_writer_metadata(writer, name.data, old));
    }
    mica_tensor_info tensor;
    for (uint64_t i = 0; i < info.tensor_count; i++) {
        must(mica_weights_tensor(weights, i, &tensor));
        must(mica_writer_tensor(writer, tensor.name, tensor.dtype, tensor.ndim, tensor.shape));
    }
    for (uint64_t i = 0; i < info.tensor_count; i++) {
        must(mica_weights_tensor(weights, i, &tensor));
        void *bytes = malloc((size_t)tensor.bytes);
        assert_non_null(bytes);
        must(mica_weights_read(weights, i, 0, bytes, tensor.bytes));
        must(mica_writer_write(writer, bytes, tensor.bytes));
        free(bytes);
    }
    must(mica_writer_finish(writer));
    mica_weights_release(weights);
}

static void test_far(void **state)
{
    static const char *const keys[] = {"llama.feed_forward_length",
                                       "llama.context_length",
                                       "tokenizer.ggml.bos_token_id",
                                       "tokenizer.ggml.token_type_count",
                                       "llama.rope.scaling.original_context_length",
                                       "llama.vocab_size"};
    const mica_value values[] = {{.type = MICA_VALUE_U64, .as.u = UINT64_MAX},
                                 {.type = MICA_VALUE_I64, .as.i = -5},
                                 {.type = MICA_VALUE_F64, .as.f = 1e300},
                                 {.type = MICA_VALUE_F32, .as.f = -1e30}};
    char from[600], to[600];
    const mica_convert_options options = {.overwrite = 1};
    (void)state;
    snprintf(from, sizeof from, "%s/far.gguf", folder);
    snprintf(to, sizeof to, "%s/back", folder);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            write_model(from, keys[k], &values[v]);
            const mica_status status = mica_convert(from, to, &options);
            if (status != MICA_OK && status != MICA_ERR_UNSUPPORTED && status != MICA_ERR_MALFORMED_FILE)
                fail_msg("%s: %s: %s", keys[k], mica_status_name(status), mica_status_message());
        }
}

/* A number that is within reach and too large, or has no meaning, is refused by its name. */
static void test_near(void **state)
{
    char from[600], to[600];
    mica_device *device = NULL;
    mica_model *model = NULL;
    (void)state;
    snprintf(from, sizeof from, "%s/near.gguf", folder);
    snprintf(to, sizeof to, "%s/none", folder);
    write_model(from, "llama.block_count", &(mica_value){.type = MICA_VALUE_U32, .as.u = 1 << 20});
    refused(mica_convert(from, to, NULL), MICA_ERR_BUDGET, "layers");
    write_model(from, "llama.pooling_type", &(mica_value){.type = MICA_VALUE_U32, .as.u = 4});
    refused(mica_convert(from, to, NULL), MICA_ERR_UNSUPPORTED, "pooling_type");
    must(mica_device_open("cpu", NULL, &device));
    refused(mica_model_open(from, device, NULL, &model), MICA_ERR_UNSUPPORTED, "llama.pooling_type");
    mica_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_far), cmocka_unit_test(test_near)};
    if (test_folder_make(folder, sizeof folder, "far") != 0)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_folder_remove(folder);
    return failed;
}
