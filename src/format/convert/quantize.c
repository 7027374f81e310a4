/*
 * quantize.c - mica_quantize: a model file with its matrices in fewer bits. GGUF comes out; what goes in may also be a
 * folder of a family whose names are known, which is converted on the way.
 */
#include <string.h>

#include "base/work.h"
#include "format/convert/convert.h"
#include "format/gguf.h"
#include "format/convert/imatrix.h"
#include "format/convert/mix.h"
#include "quant/dtype.h"
#include "base/argument.h"

#define QUANTIZATION_VERSION 2 /* of the block formats: what GGUF readers look for */

static mica_status check_arguments(const char *input, const char *output,
                                   const mica_quantize_options *options, mica_quantize_options *out_options)
{
    *out_options = (mica_quantize_options){0};
    if (input == NULL || input[0] == '\0' || output == NULL || output[0] == '\0')
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: %s, expected a path",
                          input == NULL || input[0] == '\0' ? "input" : "output",
                          (input == NULL || input[0] == '\0' ? input : output) == NULL ? "NULL" : "empty");
    if (options == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options: NULL, expected at least a type");
    MICA__TRY(mica__take_options("quantize: options", options, sizeof *out_options, out_options));
    if (out_options->type == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options.type: NULL, expected a type such as q4_k_m");
    if (out_options->keep == NULL && out_options->keep_count != 0)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options.keep: NULL, but keep_count is %u",
                          out_options->keep_count);
    for (uint32_t i = 0; i < out_options->keep_count; i++)
        MICA__TRY(mica__check_enum("quantize: options.keep.type", (uint32_t)out_options->keep[i].type,
                                   MICA_DTYPE_COUNT));
    return MICA_OK;
}

/* The alignment of the file that is read, where the writer can have the same. */
static uint32_t find_alignment(const mica__archive *archive)
{
    const mica_value *value = mica__archive_meta(archive, "general.alignment");
    if (archive->format != MICA_FORMAT_GGUF || value == NULL || value->type != MICA_VALUE_U32 ||
        value->as.u < 8 || (value->as.u & (value->as.u - 1)) != 0)
        return MICA__GGUF_ALIGNMENT;
    return (uint32_t)value->as.u;
}

static mica_status mark_plan(mica__target *target, const mica__mix *mix)
{
    mica_status status = mica__target_set_u32(target, "general.quantization_version", QUANTIZATION_VERSION);
    if (mix->file_type < 0)
        mica__target_unset(target, "general.file_type");
    else if (status == MICA_OK)
        status = mica__target_set_u32(target, "general.file_type", (uint64_t)mix->file_type);
    return status;
}

static mica_status make_plan(const char *input, const mica__mix *mix, const mica_quantize_options *options,
                             mica__target *target, mica_quantize_report *report)
{
    const mica__mix_choice choice = {.mix = *mix,
                                     .keep = options->keep,
                                     .keep_count = options->keep_count,
                                     .pure = options->pure != 0,
                                     .imatrix = options->imatrix != NULL};
    mica_status status = target->archive->format == MICA_FORMAT_GGUF
                             ? mica__convert_copy_gguf(target)
                             : mica__convert_to_gguf(target, input, false);
    if (status == MICA_OK)
        status = mica__mix_apply(target, &choice, &report->fallbacks);
    if (status == MICA_OK && options->imatrix != NULL)
        status = mica__imatrix_apply(options->imatrix, target);
    if (status == MICA_OK)
        status = mark_plan(target, mix);
    report->tensors = target->tensor_count;
    for (uint32_t i = 0; i < target->tensor_count; i++) {
        const mica_dtype from = mica__target_source_type(&target->tensor[i]), to = target->tensor[i].dtype;
        const bool blocks = mica__dtype_elements((uint32_t)to) > 1;
        report->quantized += from != to && blocks;
        report->requantized += from != to && blocks && mica__dtype_elements((uint32_t)from) > 1;
        report->plain += from != to && !blocks;
    }
    report->bytes_in = mica__target_bytes_in(target);
    report->bytes_out = mica__target_bytes_out(target);
    return status;
}

static mica_status run(const mica__archive *archive, const char *input, const char *output,
                       const mica_quantize_options *options, mica_quantize_report *report)
{
    const mica_writer_options writing = {
        .format = MICA_FORMAT_GGUF, .alignment = find_alignment(archive), .overwrite = options->overwrite};
    const mica__target_run running = {
        .threads = options->threads, .progress = options->progress, .context = options->context};
    mica__target target = {.archive = archive, .accepted = {options->accept_keys, options->accept_key_count}};
    mica__mix mix;
    mica_writer *writer = NULL;
    mica_status status = mica__mix_find(options->type, &mix);
    if (status == MICA_OK)
        status = mica__convert_check_place(archive, input, output);
    if (status == MICA_OK)
        status = mica_writer_create(output, &writing, &writer);
    if (status == MICA_OK)
        status = make_plan(input, &mix, options, &target, report);
    if (status == MICA_OK)
        status = mica__target_write(&target, writer, &running);
    else
        mica_writer_discard(writer);
    mica__target_free(&target);
    return status;
}

static mica_status quantize(const char *input, const char *output, const mica_quantize_options *options,
                            mica_quantize_report *out_report)
{
    mica_quantize_options used;
    mica_quantize_report report = {0};
    mica__archive *archive = NULL;
    mica_status status = check_arguments(input, output, options, &used);
    if (out_report != NULL)
        *out_report = report;
    if (status == MICA_OK)
        status = mica__archive_open(input, &archive);
    if (status == MICA_OK)
        status = run(archive, input, output, &used, &report);
    mica__archive_close(archive);
    if (status == MICA_OK && out_report != NULL)
        *out_report = report;
    return status;
}

mica_status mica_quantize(const char *input, const char *output, const mica_quantize_options *options,
                          mica_quantize_report *out_report)
{
    mica__call call;
    mica__call_begin(&call, "quantize");
    return mica__call_end(&call, quantize(input, output, options, out_report));
}
