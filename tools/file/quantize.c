/* quantize.c - `mica quantize`: the library's quantiser with a bar, and a word at the end. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "commands.h"
#include "terminal/interrupt.h"
#include "mica/mica.h"
#include "terminal/output.h"
#include "terminal/progress.h"
#include "file/rewrite.h"

#define MAX_RULES 64

/* "PATTERN=TYPE"; the pattern gets an end of its own in `room`. */
static int read_rule(const tool_call *call, const char *text, char *room, size_t capacity,
                     mica_keep_rule *out)
{
    const char *equals = strrchr(text, '=');
    if (equals == NULL || equals == text)
        return tool_misuse("quantize: --keep is \"%.60s\", not PATTERN=TYPE", text);
    if ((size_t)(equals - text) >= capacity)
        return tool_misuse("quantize: the pattern of --keep has %zu letters, the most are %zu",
                           (size_t)(equals - text), capacity - 1);
    out->type = tool_type_find(call, "--keep", equals + 1, strlen(equals + 1));
    if (out->type == MICA_DTYPE_NONE)
        return 2;
    snprintf(room, capacity, "%.*s", (int)(equals - text), text);
    out->pattern = room;
    return 0;
}

/* Other programs refuse this; here it is the user's affair, but not a silent one. Blocks that are only opened lose nothing. */
static void warn_of_blocks(const tool_call *call)
{
    const char *path = call->argument[0], *type = call->argument[2];
    mica_weights *weights = NULL;
    mica_weights_info info;
    uint64_t quantized = 0, matrices = 0;
    if (mica_weights_open(path, NULL, &weights) != MICA_OK ||
        mica_weights_get_info(weights, &info) != MICA_OK) {
        mica_weights_release(weights); /* mica_quantize will say why */
        return;
    }
    for (uint64_t i = 0; i < info.tensor_count; i++) {
        mica_tensor_info tensor;
        int is_matrix = mica_weights_tensor(weights, i, &tensor) == MICA_OK && tensor.ndim > 1;
        matrices += is_matrix;
        quantized += is_matrix && mica_dtype_block_elements(tensor.dtype) > 1;
    }
    mica_weights_release(weights);
    if (quantized > 0 && strcasecmp(type, info.type) != 0 && type[0] != 'f' && type[0] != 'F' &&
        type[0] != 'b' && type[0] != 'B')
        tool_warn("\"%.200s\" is quantized already: %llu of its %llu matrices, as %s; what that lost stays "
                  "lost, and %s made of "
                  "the f16, bf16 or f32 file is better",
                  path, (unsigned long long)quantized, (unsigned long long)matrices, info.type, type);
}

/* What became of the tensors: "201 of 272 tensors quantized", or why none was. */
static void print_counts(const mica_quantize_report *r)
{
    const unsigned long long all = r->tensors, quantized = r->quantized, plain = r->plain;
    if (quantized + plain == 0)
        printf("all %llu tensors have their types already and were copied", all);
    else if (quantized == 0)
        printf("%llu of %llu tensors converted, which quantizes none", plain, all);
    else
        printf("%llu of %llu tensors quantized", quantized, all);
    if (r->requantized > 0)
        printf(" (%llu of them had been before)", (unsigned long long)r->requantized);
    if (quantized > 0 && plain > 0)
        printf(" and %llu converted to plain numbers", plain);
}

static void print_report(const tool_call *call, const mica_quantize_report *report, double seconds)
{
    char in[TOOL_SIZE_BYTES], out[TOOL_SIZE_BYTES], rate[TOOL_SIZE_BYTES];
    printf("%s: ", call->argument[2]);
    print_counts(report);
    printf(", %s to %s in %.1f s, %s/s\n", tool_size_text(report->bytes_in, in),
           tool_size_text(report->bytes_out, out), seconds,
           tool_size_text(seconds > 0 ? (uint64_t)((double)report->bytes_in / seconds) : 0, rate));
    if (report->fallbacks > 0)
        printf("%llu got another type, because blocks of theirs do not divide the rows\n",
               (unsigned long long)report->fallbacks);
}

int tool_quantize(const tool_call *call)
{
    char patterns[MAX_RULES][256];
    mica_keep_rule rules[MAX_RULES];
    mica_quantize_report report;
    tool_progress progress;
    const char *rule;
    size_t cursor = 0, count = 0;
    while ((rule = tool_repeat(call, "keep", &cursor)) != NULL) {
        int wrong = count == MAX_RULES
                        ? tool_misuse("quantize: --keep is given more than %d times", MAX_RULES)
                        : read_rule(call, rule, patterns[count], sizeof patterns[count], &rules[count]);
        if (wrong != 0)
            return wrong;
        count++;
    }
    tool_accepted accepted;
    tool_accepted_keys(call, &accepted);
    mica_quantize_options options = {
        .size = sizeof options,
        .type = call->argument[2],
        .imatrix = tool_word(call, "imatrix"),
        .keep = rules,
        .keep_count = (uint32_t)count,
        .threads = (uint32_t)tool_number(call, "threads"),
        .overwrite = (uint32_t)tool_flag(call, "force"),
        .pure = (uint32_t)tool_flag(call, "pure"),
        .progress = tool_progress_step,
        .context = &progress,
        .accept_keys = accepted.name,
        .accept_key_count = accepted.count,
    };
    warn_of_blocks(call);
    tool_interrupt_catch();
    tool_progress_begin(&progress, "quantizing");
    mica_status status = mica_quantize(call->argument[0], call->argument[1], &options, &report);
    double seconds = tool_progress_seconds(&progress);
    int result = tool_rewrite_end(call, &progress, status);
    if (result == 0)
        print_report(call, &report, seconds);
    return result;
}
