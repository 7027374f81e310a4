/* fuzz_template.c: any bytes up to the first NUL are a template, those after it its variables (a fixed conversation when
 * there are none). It gives an output or a sentence, the same one twice, and keeps no memory. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mica/host.h"
#include "mica/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

static const char conversation[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"be \\u00fc\"}, "
                                   "{\"role\": \"user\", \"content\": [{\"type\": "
                                   "\"text\", \"text\": \"hi\"}]}, {\"role\": \"assistant\", \"content\": "
                                   "null, \"tool_calls\": [{\"function\": {\"name\": "
                                   "\"f\", \"arguments\": {\"a\": 1.5, \"b\": [true, null]}}}]}], "
                                   "\"add_generation_prompt\": true, \"bos_token\": \"<s>\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const mica_template_options options = {
        .size = sizeof options, .most_steps = 20000, .most_bytes = 1 << 20, .now = 1700000000};
    const uint8_t *end = size == 0 ? NULL : memchr(data, 0, size);
    const size_t length = end == NULL ? size : (size_t)(end - data);
    const char *variables = end == NULL ? conversation : (const char *)end + 1;
    const size_t variables_length = end == NULL ? sizeof conversation - 1 : size - length - 1;
    mica_template *template = NULL;
    char *out[2] = {NULL, NULL};
    uint64_t out_length[2] = {0, 0};
    mica_status status = mica_template_create((const char *)data, length, &options, &template);
    require((status == MICA_OK) == (template != NULL));
    if (status == MICA_OK) {
        for (int i = 0; i < 2; i++) {
            const mica_status again =
                mica_template_render(template, variables, variables_length, &out[i], &out_length[i]);
            require((again == MICA_OK) == (out[i] != NULL) && (i == 0 || again == status));
            status = again;
        }
        require(out_length[0] == out_length[1]);
        require(status != MICA_OK || memcmp(out[0], out[1], out_length[0] + 1) == 0);
    }
    require(status == MICA_OK || mica_status_message()[0] != '\0');
    mica_text_free(out[0]);
    mica_text_free(out[1]);
    mica_template_release(template);
    require(mica_host_bytes() == 0);
    return 0;
}
