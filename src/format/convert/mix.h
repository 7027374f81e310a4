/*
 * mix.h - which type each tensor of a target gets when it is quantised: the mixes people know by name, what stays as it
 * is, and what a row gets that the block does not divide. Knows the names that GGUF gives to tensors; writes nothing.
 */
#ifndef MICA_FORMAT_CONVERT_MIX_H
#define MICA_FORMAT_CONVERT_MIX_H

#include "format/convert/target.h"

typedef struct mica__mix {
    const char *name;
    mica_dtype type;
    int32_t file_type; /* the number of general.file_type; -1: none */
    uint32_t rules;    /* which rows of mixes.def are its own */
} mica__mix;

/* The mix or plain type of that name, any case. INVALID_ARGUMENT lists those that are known. */
mica_status mica__mix_find(const char *name, mica__mix *out_mix);

typedef struct mica__mix_choice {
    mica__mix mix;
    const mica_keep_rule *keep;
    uint32_t keep_count;
    bool pure, imatrix;
} mica__mix_choice;

/* Sets the types of the target's tensors, whose names and metadata are GGUF's. *out_fallbacks counts rows that the
 * block does not divide. INVALID_ARGUMENT for a keep rule that fits no matrix, or whose type does not fit one. */
mica_status mica__mix_apply(mica__target *target, const mica__mix_choice *choice, uint64_t *out_fallbacks);

#endif
