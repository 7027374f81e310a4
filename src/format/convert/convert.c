/*
 * convert.c - mica_convert: which way a conversion goes, the place it goes to, and the folder around the tensors.
 *
 * A folder that was not there appears whole, by one rename. Into one that is there files come one by one, each whole, and
 * config.json, without which it is no model, is the last of them and its old one the first that goes; if one cannot be
 * written, those that came are taken back.
 */
#include "format/convert/convert.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/file/file_error.h"
#include "base/sort.h"
#include "base/work.h"
#include "format/convert/mix.h"
#include "format/safetensors.h"
#include "quant/dtype.h"
#include "quant/quant.h"

#define POOLING_FOLDER "1_Pooling" /* as pooling.c names it */

/* What stands beside the tensors of a checkpoint. */
static const struct {
    const char *name;
    enum { OF_TOKENIZER, OF_USE, MADE } kind; /* copied from folder to folder, but for those that are made */
} side_files[] = {
    {"tokenizer.json", OF_TOKENIZER},
    {"tokenizer_config.json", OF_TOKENIZER},
    {"tokenizer.model", OF_TOKENIZER},
    {"special_tokens_map.json", OF_TOKENIZER},
    {"added_tokens.json", OF_TOKENIZER},
    {"vocab.json", OF_TOKENIZER},
    {"merges.txt", OF_TOKENIZER},
    {"vocab.txt", OF_TOKENIZER},
    {"chat_template.jinja", OF_TOKENIZER},
    {"generation_config.json", OF_USE},
    {"sentence_bert_config.json", OF_USE},
    {"config_sentence_transformers.json", OF_USE},
    {"modules.json", MADE}, /* without it nobody looks into POOLING_FOLDER */
};

#define SIDE_FILES (sizeof side_files / sizeof side_files[0])

typedef struct conversion {
    const char *input, *output;
    mica_convert_options options;
    mica_format format;
    bool folder;      /* the output is one */
    const char *root; /* of a folder: where its files are written */
    mica__target target;
    const char *config; /* of a folder; NULL: none */
} conversion;

mica_status mica__convert_check_place(const mica__archive *archive, const char *input, const char *output)
{
    bool same = mica__file_same(input, output);
    for (uint32_t i = 0; i < archive->file_count && !same; i++)
        same = mica__file_same(mica__archive_path(archive, i), output);
    return same ? mica__fail(MICA_ERR_INVALID_ARGUMENT, "output: \"%s\" is the input itself", output)
                : MICA_OK;
}

/* ---- the way -------------------------------------------------------------------------------------------- */

static bool ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), tail = strlen(ending);
    return length > tail && strcmp(path + length - tail, ending) == 0;
}

static mica_status find_way(conversion *c)
{
    const mica_dtype type = c->options.type;
    c->format = c->options.format;
    if (c->format == MICA_FORMAT_NONE)
        c->format = ends_with(c->output, ".gguf")           ? MICA_FORMAT_GGUF
                    : mica__dtype_is_affine((uint32_t)type) ? MICA_FORMAT_MLX
                                                            : MICA_FORMAT_SAFETENSORS;
    if (c->format != MICA_FORMAT_GGUF && c->format != MICA_FORMAT_SAFETENSORS && c->format != MICA_FORMAT_MLX)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "options.format: %s (%d), expected gguf, safetensors or mlx",
                          mica_format_name(c->format), (int)c->format);
    c->folder = c->format == MICA_FORMAT_MLX ||
                (c->format == MICA_FORMAT_SAFETENSORS && !ends_with(c->output, ".safetensors"));
    return MICA_OK;
}

/* Zero is MLX's own choice; a size is only for what has groups. */
static mica_status check_group(conversion *c)
{
    const uint32_t group = c->options.group_size;
    if (group == 0) {
        c->options.group_size = 64;
        return MICA_OK;
    }
    if (!mica__dtype_is_affine((uint32_t)c->options.type))
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options.group_size: %u, but the type %s has no groups",
                          group, mica_dtype_name(c->options.type));
    if (group != 32 && group != 64 && group != 128)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options.group_size: %u, expected 32, 64 or 128", group);
    return MICA_OK;
}

static mica_status check_type(const conversion *c)
{
    const mica_dtype type = c->options.type;
    if (type == MICA_DTYPE_NONE)
        return MICA_OK;
    if (mica__dtype_is_affine((uint32_t)type) && c->format == MICA_FORMAT_MLX)
        return MICA_OK;
    if (mica__quant_can_encode((uint16_t)type) &&
        (c->format == MICA_FORMAT_GGUF || mica__safetensors_type_of((uint16_t)type) != NULL))
        return MICA_OK;
    return mica__fail(MICA_ERR_INVALID_ARGUMENT, "options.type: %s, which %s cannot hold or mica cannot make",
                      mica_dtype_name(type), mica_format_name(c->format));
}

/* ---- the target ------------------------------------------------------------------------------------------- */

static mica_status make_gguf_target(conversion *c)
{
    c->target.accepted = (mica__accepted){c->options.accept_keys, c->options.accept_key_count};
    const mica__mix_choice choice = {
        .mix = {mica_dtype_name(c->options.type), c->options.type, -1, UINT32_MAX}, .pure = true};
    uint64_t fallbacks;
    mica_status status = c->target.archive->format == MICA_FORMAT_GGUF
                             ? mica__convert_copy_gguf(&c->target)
                             : mica__convert_to_gguf(&c->target, c->input, false);
    for (uint32_t i = c->target.meta_count; i-- > 0 && c->options.without_tokenizer != 0;)
        if (strncmp(c->target.meta[i].key.data, "tokenizer.", 10) == 0)
            mica__target_unset(&c->target, c->target.meta[i].key.data);
    if (status != MICA_OK || c->options.type == MICA_DTYPE_NONE)
        return status;
    status = mica__mix_apply(&c->target, &choice, &fallbacks);
    return status == MICA_OK ? mica__convert_mark(&c->target) : status;
}

/* Wide types first: so all data is aligned for its type, though the format knows no padding. */
static int compare_width(const void *a, const void *b)
{
    const mica__target_tensor *x = a, *y = b;
    return (int)mica__dtype_bytes((uint32_t)y->dtype) - (int)mica__dtype_bytes((uint32_t)x->dtype);
}

static mica_status make_hf_target(conversion *c)
{
    const mica_dtype type = c->options.type;
    const bool words = c->target.archive->format == MICA_FORMAT_MLX && c->folder && type == MICA_DTYPE_NONE;
    mica_status status = mica__convert_to_hf(&c->target, words, &c->config);
    if (status != MICA_OK)
        return status;
    if (mica__dtype_is_affine((uint32_t)type))
        status = mica__convert_to_mlx(&c->target, type, c->options.group_size, &c->config);
    else if (!words && c->target.archive->format == MICA_FORMAT_MLX && c->config != NULL)
        status = mica__convert_set_bits(&c->target, 0, 0, &c->config);
    if (type != MICA_DTYPE_NONE && !mica__dtype_is_affine((uint32_t)type))
        for (uint32_t i = 0; i < c->target.tensor_count; i++)
            if (c->target.tensor[i].ndim >= 2 &&
                mica__convert_has_values(&c->target, c->target.tensor[i].source[0]))
                c->target.tensor[i].dtype = type;
    if (status == MICA_OK)
        status =
            mica__sort(c->target.tensor, c->target.tensor_count, sizeof *c->target.tensor, compare_width);
    return status;
}

/* ---- the folder ----------------------------------------------------------------------------------------- */

/* Small files that are written and wait for their names. */
typedef struct side {
    mica__file_writer *writer[SIDE_FILES + 2]; /* and the pooling's, and config.json, the last */
    char *path[SIDE_FILES + 2];
    uint32_t count;
    const char *folder; /* POOLING_FOLDER, where it was made; goes again if the conversion fails */
} side;

static mica_status put_file(conversion *c, side *files, const char *name, const void *bytes, size_t size)
{
    char *path = mica__target_text(&c->target, "%s/%s", c->root, name);
    if (path == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (!c->options.overwrite && mica__file_exists(path))
        return mica__fail(MICA_ERR_IO, "cannot write \"%s\": it exists and overwrite is not set", path);
    MICA__TRY(mica__file_writer_open(path, &files->writer[files->count]));
    files->path[files->count] = path;
    return mica__file_writer_write(files->writer[files->count++], bytes, size);
}

/* The place of the pooling's configuration; what an older model has there may stay, but for a link. */
static mica_status make_pooling_folder(conversion *c, side *files)
{
    const char *path = mica__target_text(&c->target, "%s/" POOLING_FOLDER, c->root);
    const char *inside = mica__target_text(&c->target, "%s/" POOLING_FOLDER "/config.json", c->root);
    struct stat info;
    if (path == NULL || inside == NULL)
        return MICA_ERR_OUT_OF_MEMORY;
    if (mkdir(path, 0777) == 0)
        files->folder = path;
    else if (errno != EEXIST)
        return mica__file_fail("create the folder", path, errno);
    else if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return mica__fail(MICA_ERR_IO, "cannot write \"%s\": it is no folder, or a link to one", path);
    mica__file_sweep(inside);
    return MICA_OK;
}

/* modules.json and what it names, of a GGUF or of another folder: there the configuration stays as it is. */
static mica_status make_pooling(conversion *c, side *files)
{
    mica__pooling pooling;
    MICA__TRY(c->target.archive->format == MICA_FORMAT_GGUF
                  ? mica__pooling_from_gguf(&c->target, &pooling)
                  : mica__pooling_read(&c->target, c->input, &pooling));
    if (pooling.type == 0)
        return MICA_OK;
    const char *modules = mica__pooling_modules(&pooling);
    MICA__TRY(make_pooling_folder(c, files));
    MICA__TRY(put_file(c, files, POOLING_FOLDER "/config.json", pooling.config, strlen(pooling.config)));
    return put_file(c, files, "modules.json", modules, strlen(modules));
}

/* What a GGUF says of its tokenizer and of sampling, as files. */
static mica_status make_side_files(conversion *c, side *files)
{
    mica__tokenizer_files made = {0};
    const char *generation = NULL;
    if (c->target.archive->format != MICA_FORMAT_GGUF)
        return MICA_OK;
    mica_status status = mica__convert_generation(&c->target, &generation);
    if (status == MICA_OK && generation != NULL)
        status = put_file(c, files, "generation_config.json", generation, strlen(generation));
    if (status == MICA_OK && c->options.without_tokenizer == 0)
        status = mica__tokenizer_to_hf(c->target.archive, &made);
    if (status == MICA_OK && made.tokenizer != NULL)
        status = put_file(c, files, "tokenizer.json", made.tokenizer, strlen(made.tokenizer));
    if (status == MICA_OK && made.settings != NULL)
        status = put_file(c, files, "tokenizer_config.json", made.settings, strlen(made.settings));
    if (status == MICA_OK && made.map != NULL)
        status = put_file(c, files, "special_tokens_map.json", made.map, strlen(made.map));
    if (status == MICA_OK && made.model != NULL)
        status = put_file(c, files, "tokenizer.model", made.model, made.model_size);
    mica__tokenizer_files_free(&made);
    return status;
}

/* The files beside a checkpoint, if it is one in a folder. */
static mica_status copy_side_files(conversion *c, side *files)
{
    mica_status status = MICA_OK;
    if (mica__file_look(c->input) != MICA__FILE_KIND_FOLDER || c->target.archive->format == MICA_FORMAT_GGUF)
        return MICA_OK;
    for (size_t i = 0; i < SIDE_FILES && status == MICA_OK; i++) {
        mica__side_file file;
        if (side_files[i].kind == MADE ||
            (side_files[i].kind == OF_TOKENIZER && c->options.without_tokenizer != 0))
            continue;
        status = mica__target_read_side(&c->target, c->input, side_files[i].name, &file);
        if (status == MICA_OK && file.data != NULL)
            status = put_file(c, files, side_files[i].name, file.data, file.size);
        mica__free(file.data);
    }
    return status;
}

static mica_status name_side_files(const conversion *c, side *files)
{
    mica_status status = MICA_OK;
    for (uint32_t i = 0; i < files->count && status == MICA_OK; i++) {
        mica__file_writer *writer = files->writer[i];
        files->writer[i] = NULL;
        status =
            c->options.overwrite ? mica__file_writer_commit(writer) : mica__file_writer_commit_new(writer);
        for (uint32_t k = 0; status != MICA_OK && k < i; k++)
            unlink(files->path[k]);
    }
    return status;
}

/* What an older model in the folder had beside its tensors, and the index that would be read before the new ones: config.json
 * first. Nothing of it may be taken for the new model's. */
static void clear_folder(void *context)
{
    static const char *const first[] = {"config.json", "model.safetensors.index.json"};
    conversion *c = context;
    for (size_t i = 0; c->options.overwrite && i < 2 + SIDE_FILES; i++) {
        const char *path =
            mica__target_text(&c->target, "%s/%s", c->root, i < 2 ? first[i] : side_files[i - 2].name);
        if (path != NULL)
            unlink(path);
    }
}

static mica_status put_side_files(conversion *c, side *files)
{
    mica_status status = copy_side_files(c, files);
    if (status == MICA_OK)
        status = make_side_files(c, files);
    if (status == MICA_OK)
        status = make_pooling(c, files);
    if (status == MICA_OK && c->config != NULL)
        status = put_file(c, files, "config.json", c->config, strlen(c->config));
    return status;
}

static mica_status fill_folder(conversion *c, const mica_writer_options *writing, mica__target_run run)
{
    const char *path = mica__target_text(&c->target, "%s/model.safetensors", c->root);
    side files = {.count = 0};
    mica_writer *writer = NULL;
    mica_status status = path == NULL ? MICA_ERR_OUT_OF_MEMORY : mica_writer_create(path, writing, &writer);
    if (status == MICA_OK)
        status = put_side_files(c, &files);
    run.ready = clear_folder;
    run.ready_context = c;
    if (status == MICA_OK)
        status = mica__target_write(&c->target, writer, &run);
    else
        mica_writer_discard(writer);
    if (status == MICA_OK) {
        status = name_side_files(c, &files);
        if (status != MICA_OK)
            unlink(path);
    }
    for (uint32_t i = 0; i < files.count; i++)
        mica__file_writer_discard(files.writer[i]);
    if (status != MICA_OK && files.folder != NULL)
        rmdir(files.folder);
    return status;
}

static mica_status write_folder(conversion *c, const mica_writer_options *writing,
                                const mica__target_run *run)
{
    mica__folder_writer *folder = NULL;
    c->root = c->output;
    mica__file_sweep(c->output);
    if (mica__file_look(c->output) == MICA__FILE_KIND_FOLDER)
        return fill_folder(c, writing, *run);
    if (mica__file_exists(c->output))
        return mica__fail(MICA_ERR_IO, "cannot write \"%s\": it is %s, expected a folder or nothing there",
                          c->output, mica__file_kind_name(c->output));
    MICA__TRY(mica__folder_writer_open(c->output, &folder));
    c->root = mica__folder_writer_path(folder);
    mica_status status = fill_folder(c, writing, *run);
    if (status == MICA_OK)
        return mica__folder_writer_commit(folder);
    mica__folder_writer_discard(folder);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

static mica_status write_output(conversion *c)
{
    const mica_writer_options writing = {.format = c->format == MICA_FORMAT_GGUF ? MICA_FORMAT_GGUF
                                                                                 : MICA_FORMAT_SAFETENSORS,
                                         .overwrite = c->options.overwrite};
    const mica__target_run run = {
        .threads = c->options.threads, .progress = c->options.progress, .context = c->options.context};
    mica_writer *writer = NULL;
    if (c->folder)
        return write_folder(c, &writing, &run);
    const mica_status status = mica_writer_create(c->output, &writing, &writer);
    return status == MICA_OK ? mica__target_write(&c->target, writer, &run) : status;
}

static mica_status convert(conversion *c, const mica__archive *archive)
{
    mica_status status = mica__convert_check_place(archive, c->input, c->output);
    c->target.archive = archive;
    if (status == MICA_OK)
        status = c->format == MICA_FORMAT_GGUF ? make_gguf_target(c) : make_hf_target(c);
    if (status == MICA_OK)
        status = write_output(c);
    mica__target_free(&c->target);
    return status;
}

static mica_status convert_path(const char *input, const char *output, const mica_convert_options *options)
{
    conversion c = {.input = input, .output = output};
    mica__archive *archive = NULL;
    if (input == NULL || input[0] == '\0' || output == NULL || output[0] == '\0')
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "%s: NULL or empty, expected a path",
                          input == NULL || input[0] == '\0' ? "input" : "output");
    mica_status status = mica__take_options("convert: options", options, sizeof c.options, &c.options);
    if (status == MICA_OK)
        status = mica__check_enum("convert: options.format", (uint32_t)c.options.format, MICA_FORMAT_NPZ + 1);
    if (status == MICA_OK)
        status = mica__check_enum("convert: options.type", (uint32_t)c.options.type, MICA_DTYPE_COUNT);
    if (status == MICA_OK)
        status = find_way(&c);
    if (status == MICA_OK)
        status = check_type(&c);
    if (status == MICA_OK)
        status = check_group(&c);
    if (status == MICA_OK)
        status = mica__archive_open(input, &archive);
    if (status == MICA_OK)
        status = convert(&c, archive);
    mica__archive_close(archive);
    return status;
}

mica_status mica_convert(const char *input, const char *output, const mica_convert_options *options)
{
    mica__call call;
    mica__call_begin(&call, "convert");
    return mica__call_end(&call, convert_path(input, output, options));
}
