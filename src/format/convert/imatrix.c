/* imatrix.c - reads importance matrices and gives them to the tensors of a target. */
#include "format/convert/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/work.h"

#define SUMS ".in_sum2"
#define COUNTS ".counts"
#define PIECE 65536u /* values between two looks for a cancel */

/* A tensor of the file by a weight's name and an ending, or NULL. */
static const mica__tensor *find(const mica__archive *file, const char *name, const char *ending)
{
    char full[512];
    const int length = snprintf(full, sizeof full, "%s%s", name, ending);
    if (length < 0 || (size_t)length >= sizeof full)
        return NULL;
    const uint32_t index = mica__archive_find(file, full, (size_t)length);
    return index == MICA__NO_TENSOR ? NULL : &file->tensor[index];
}

/* Matrices of [.., rows, row] that a tensor holds. */
static uint64_t count_matrices(const mica__target_tensor *tensor)
{
    uint64_t matrices = 1;
    for (uint32_t i = 0; i + 2 < tensor->ndim; i++)
        matrices *= tensor->shape[i];
    return matrices;
}

static uint64_t count_values(const mica__tensor *tensor)
{
    return tensor->bytes / sizeof(float);
}

static mica_status check_sizes(const mica__archive *file, const mica__tensor *sums,
                               const mica__tensor *counts, const mica__target_tensor *tensor)
{
    const uint64_t matrices = count_matrices(tensor);
    if (sums->dtype != MICA_DTYPE_F32 || counts->dtype != MICA_DTYPE_F32 ||
        sums->problem != MICA__TENSOR_FINE || counts->problem != MICA__TENSOR_FINE)
        return mica__fail(MICA_ERR_MALFORMED_FILE,
                          "\"%s\": \"%s\" is of type %s and its counts of %s, expected F32",
                          mica__archive_path(file, 0), sums->name, sums->type_name, counts->type_name);
    if (count_values(sums) != matrices * tensor->row || count_values(counts) != matrices)
        return mica__fail(MICA_ERR_QUANT_CONFIG,
                          "\"%s\": \"%s\" has %llu values and %llu counts, expected %llu and %llu for %llu "
                          "matrices with rows of %llu; it was made for another model",
                          mica__archive_path(file, 0), sums->name, (unsigned long long)count_values(sums),
                          (unsigned long long)count_values(counts),
                          (unsigned long long)(matrices * tensor->row), (unsigned long long)matrices,
                          (unsigned long long)matrices, (unsigned long long)tensor->row);
    return MICA_OK;
}

/* Sums become means; a matrix that met nothing weighs all columns alike. */
static mica_status average(const mica__archive *file, const mica__tensor *sums, float *values,
                           const float *counts, uint64_t matrices, uint64_t row)
{
    for (uint64_t m = 0; m < matrices; m++)
        for (uint64_t i = 0; i < row; i++) {
            float *value = &values[m * row + i];
            if (i % PIECE == 0)
                MICA__TRY(mica__spend(row - i < PIECE ? row - i : PIECE));
            if (!(*value >= 0.0f) || !isfinite(*value) || !isfinite(counts[m]))
                return mica__fail(
                    MICA_ERR_MALFORMED_FILE,
                    "\"%s\": value %llu of \"%s\" is %g over %g, expected finite and not below 0",
                    mica__archive_path(file, 0), (unsigned long long)(m * row + i), sums->name,
                    (double)*value, (double)counts[m]);
            *value = counts[m] > 0.0f ? *value / counts[m] : 1.0f;
            /* A count below 1 may take a large sum past what f32 holds. */
            if (!isfinite(*value))
                return mica__fail(MICA_ERR_MALFORMED_FILE,
                                  "\"%s\": value %llu of \"%s\" is too large for f32",
                                  mica__archive_path(file, 0), (unsigned long long)(m * row + i), sums->name);
        }
    return MICA_OK;
}

static mica_status load(const mica__archive *file, const mica__tensor *sums, const mica__tensor *counts,
                        mica__target *target, mica__target_tensor *tensor)
{
    const uint64_t matrices = count_matrices(tensor);
    float *values = mica__chunks_alloc(&target->chunks, (size_t)sums->bytes);
    float *numbers = mica__alloc((size_t)counts->bytes);
    mica_status status = MICA_ERR_OUT_OF_MEMORY;
    if (numbers == NULL)
        status = mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the counts of \"%s\"", sums->name);
    if (values != NULL && numbers != NULL) {
        status = mica__archive_read(file, sums, 0, values, sums->bytes);
        if (status == MICA_OK)
            status = mica__archive_read(file, counts, 0, numbers, counts->bytes);
        if (status == MICA_OK)
            status = average(file, sums, values, numbers, matrices, tensor->row);
    }
    mica__free(numbers);
    if (status != MICA_OK)
        return status;
    tensor->importance = values;
    tensor->importance_count = matrices;
    return MICA_OK;
}

static mica_status apply_to(const mica__archive *file, mica__target *target, mica__target_tensor *tensor)
{
    const mica__tensor *sums = find(file, tensor->name, SUMS), *counts = find(file, tensor->name, COUNTS);
    if (sums == NULL)
        return MICA_OK;
    if (counts == NULL)
        return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\": \"%s\" has no \"%s" COUNTS "\" beside it",
                          mica__archive_path(file, 0), sums->name, tensor->name);
    const mica_status status = check_sizes(file, sums, counts, tensor);
    return status == MICA_OK ? load(file, sums, counts, target, tensor) : status;
}

/* How many weights the file knows. */
static uint32_t count_entries(const mica__archive *file)
{
    uint32_t entries = 0;
    for (uint32_t i = 0; i < file->visible_count; i++) {
        const mica__tensor *tensor = &file->tensor[i];
        const size_t tail = sizeof SUMS - 1;
        entries += tensor->name_length > tail && strcmp(tensor->name + tensor->name_length - tail, SUMS) == 0;
    }
    return entries;
}

static mica_status note(const mica__archive *file, mica__target *target, const char *path, uint32_t entries)
{
    const mica_value *chunks = mica__archive_meta(file, "imatrix.chunk_count");
    const mica_value *sets = mica__archive_meta(file, "imatrix.datasets");
    const char *slash = strrchr(path, '/');
    mica_status status = mica__target_set_string(
        target, "quantize.imatrix.file", mica__target_text(target, "%s", slash == NULL ? path : slash + 1));
    if (status == MICA_OK)
        status = mica__target_set_u32(target, "quantize.imatrix.entries_count", entries);
    if (status == MICA_OK && chunks != NULL && chunks->type == MICA_VALUE_U32)
        status = mica__target_set_u32(target, "quantize.imatrix.chunks_count", chunks->as.u);
    if (status == MICA_OK && sets != NULL && sets->type == MICA_VALUE_ARRAY &&
        sets->item_type == MICA_VALUE_STRING && sets->count != 0)
        status = mica__target_set_string(
            target, "quantize.imatrix.dataset",
            mica__target_text(target, "%s", ((const mica_string *)sets->as.items)[0].data));
    return status;
}

mica_status mica__imatrix_apply(const char *path, mica__target *target)
{
    mica__archive *file = NULL;
    mica_status status = mica__archive_open(path, &file);
    if (status != MICA_OK)
        return status;
    const uint32_t entries = count_entries(file);
    if (file->format != MICA_FORMAT_GGUF || entries == 0)
        status = mica__fail(MICA_ERR_UNSUPPORTED,
                            "\"%s\" is no importance matrix: expected a GGUF with tensors NAME" SUMS
                            " and NAME" COUNTS,
                            path);
    for (uint32_t i = 0; i < target->tensor_count && status == MICA_OK; i++) {
        mica__target_tensor *tensor = &target->tensor[i];
        status = mica__spend(1);
        if (status == MICA_OK && tensor->dtype != mica__target_source_type(tensor))
            status = apply_to(file, target, tensor);
    }
    if (status == MICA_OK)
        status = note(file, target, path, entries);
    mica__archive_close(file);
    return status;
}
