/*
 * family.h - the model families whose tensors have known names in both worlds: HF checkpoints and GGUF.
 *
 * A family is a row of families in family.c and a table names_*.def. To add one: both, and a row of docs/formats.md.
 *   MICA__NAME("hf", "gguf", HOW)
 * In the names # is the layer, @ the expert, $ is weight or bias; a * at the end is anything. On the way back to HF the first row
 * with the name counts, so what old checkpoints say stands below what new ones do.
 */
#ifndef MICA_FORMAT_CONFIG_FAMILY_H
#define MICA_FORMAT_CONFIG_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mica__how {
    MICA__HOW_KEEP = 0,
    MICA__HOW_SKIP,       /* GGUF has no place for it */
    MICA__HOW_HEAD,       /* left out where it is the embedding */
    MICA__HOW_PAIR_QUERY, /* rows of rotary heads: halves become partners */
    MICA__HOW_PAIR_KEY,
    MICA__HOW_ADD_ONE,
    MICA__HOW_TRANSPOSE, /* but not in MLX folders, which have it the other way round already */
    MICA__HOW_STACK,     /* one matrix an expert becomes one tensor */
    MICA__HOW_FACTORS    /* rotary factors, which GGUF makes a tensor of and config.json a list or a rule */
} mica__how;

typedef struct mica__name_row {
    const char *hf, *gguf;
    uint8_t how; /* mica__how */
} mica__name_row;

typedef struct mica__name_family {
    const char *arch;         /* GGUF's word: general.architecture */
    const char *architecture; /* HF's word that is written: config.json architectures */
    const char *model_type;   /* and its model_type */
    const char *classes;      /* its model_types, each with a blank before and behind; keys.def */
    const char *others[6];    /* further words for it in architectures; ends with NULL */
    const char *prefix;       /* that names may lack */
    const char *extra;        /* that names may have */
    const mica__name_row *row;
    uint32_t row_count;
    bool tied; /* the head is the embedding unless config.json says no */
} mica__name_family;

/* What a name says beside the words of its row. */
typedef struct mica__name_parts {
    uint32_t layer, expert;
    size_t expert_at, expert_end; /* where the expert's digits are in the name */
    bool bias;
} mica__name_parts;

/* Whether `word` is in a list of a table: words with a blank before and behind; "" is all, '!' before them all others. */
bool mica__name_family_listed(const char *list, const char *word);
/* By HF's words (architectures or model_type), or by GGUF's; NULL if it is not known. */
const mica__name_family *mica__name_family_of_hf(const char *architecture);
const mica__name_family *mica__name_family_of_gguf(const char *arch);
/* The row of an HF name, its prefix as it may be, or NULL. */
const mica__name_row *mica__name_family_from_hf(const mica__name_family *family, const char *name,
                                                mica__name_parts *out_parts);
/* The row of a GGUF name, or NULL. */
const mica__name_row *mica__name_family_from_gguf(const mica__name_family *family, const char *name,
                                                  mica__name_parts *out_parts);
/* Writes the name that a pattern has with these parts; false if there is no room. */
bool mica__name_expand(const char *pattern, const mica__name_parts *parts, char *out, size_t size);

#endif
