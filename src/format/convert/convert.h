/*
 * convert.h - how a model of one format becomes the target of another: names, transforms, metadata.
 *
 * convert.c decides the way and writes; convert_gguf.c makes targets of GGUF, convert_hf.c for safetensors; family.c knows
 * the names; config_map.c, rope_map.c and tokenizer_map.c the metadata.
 */
#ifndef MICA_FORMAT_CONVERT_CONVERT_H
#define MICA_FORMAT_CONVERT_CONVERT_H

#include "base/json/json.h"
#include "format/config/family.h"
#include "format/convert/target.h"

/* True in the metadata of a checkpoint that is used in place: partners of rotary heads lie half a head apart, though
 * GGUF has them side by side in this family. */
#define MICA__ROPE_HALVES "mica.rope_halves"

/* INVALID_ARGUMENT if the output is the input, or one of its files. */
mica_status mica__convert_check_place(const mica__archive *archive, const char *input, const char *output);

/* Tensors and metadata of a GGUF as they are. */
mica_status mica__convert_copy_gguf(mica__target *target);
/* Tensors and metadata of any other archive as GGUF has them. `input` is its path, for the files beside it. With
 * `in_place` tensors stay as they are where GGUF's form of them is no other: types are kept, and the rows of rotary heads
 * (MICA__ROPE_HALVES). */
mica_status mica__convert_to_gguf(mica__target *target, const char *input, bool in_place);
/* general.file_type for the type that most values of matrices have, and general.quantization_version. */
mica_status mica__convert_mark(mica__target *target);

/* Tensors of any archive as a safetensors file or folder has them; *out_config is the text of a config.json, or NULL. `words` keeps MLX
 * weights as they are. */
mica_status mica__convert_to_hf(mica__target *target, bool words, const char **out_config);
/* The text of a generation_config.json out of a GGUF's metadata, in the target's memory; NULL where it says nothing that belongs
 * there. */
mica_status mica__convert_generation(mica__target *target, const char **out_text);
/* How a sentence-transformers folder makes one vector of those of a text's tokens: pooling.c. */
typedef struct mica__pooling {
    uint32_t type;      /* GGUF's pooling_type: 1 mean, 2 the first token, 3 the last; 0: nothing is said */
    bool normalise;     /* a module does it */
    const char *config; /* the text of the pooling module's config.json, the target's memory */
    uint64_t width;     /* of the vectors; 0: not said */
} mica__pooling;

/* What modules.json of a folder and the configuration that it names say; type is 0 where there is no modules.json. UNSUPPORTED
 * names a module or a mode that mica does not have. */
mica_status mica__pooling_read(mica__target *target, const char *folder, mica__pooling *out);
/* Sets pooling_type, if the folder says it; the target has embedding_length. */
mica_status mica__pooling_to_gguf(mica__target *target, const char *folder, const mica__name_family *family);
/* The other way. UNSUPPORTED where the GGUF has a type that a folder has no word for. */
mica_status mica__pooling_from_gguf(mica__target *target, mica__pooling *out);
/* The text of a modules.json for it, with the pooling in 1_Pooling. */
const char *mica__pooling_modules(const mica__pooling *pooling);

/* Writes config.json anew: with affine words of that many bits in groups, or of plain tensors for 0. */
mica_status mica__convert_set_bits(mica__target *target, uint32_t bits, uint32_t group,
                                   const char **inout_config);
/* Gives the matrices an MLX folder's affine words, and the config its quantization. */
mica_status mica__convert_to_mlx(mica__target *target, mica_dtype type, uint32_t group,
                                 const char **inout_config);
/* Whether values become floats: plain and block types, MLX weights. */
bool mica__convert_has_values(const mica__target *target, const mica__tensor *tensor);
/* The plain type that MLX weights and types no format but their own has become. */
mica_dtype mica__convert_plain_type(const mica__target *target, const mica__tensor *tensor);

/* What tokenizer.json, tokenizer.model and tokenizer_config.json of a folder say; nothing where they are not. */
mica_status mica__tokenizer_to_gguf(mica__target *target, const char *folder, const mica__json *config,
                                    const mica__name_family *family);

/* Adds the text of the folder's tokenizer.json to the target, where it is and GGUF's words do not hold it, or always. */
mica_status mica__tokenizer_carry(mica__target *target, const char *folder, bool always);

/* A GGUF's tokenizer as files; NULL: there is none. */
typedef struct mica__tokenizer_files {
    char *tokenizer, *settings; /* tokenizer.json and tokenizer_config.json */
    char *map;                  /* special_tokens_map.json */
    char *model;                /* tokenizer.model, of tokenizers with scores */
    size_t model_size;
} mica__tokenizer_files;

/* The other way. No file where the GGUF has no tokenizer; no tokenizer.model where there are no scores. UNSUPPORTED says why
 * a tokenizer cannot be written: one that cuts texts otherwise would be worse than none. On failure there is nothing to free. */
mica_status mica__tokenizer_to_hf(const mica__archive *archive, mica__tokenizer_files *out_files);
/* A zeroed one is fine. */
void mica__tokenizer_files_free(mica__tokenizer_files *files);

#endif
