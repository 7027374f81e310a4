/*
 * config_back.h - the metadata of a GGUF on its way to a config.json, shared by the two files that write it.
 */
#ifndef MICA_FORMAT_CONFIG_CONFIG_BACK_H
#define MICA_FORMAT_CONFIG_CONFIG_BACK_H

#include "base/json/json.h"
#include "format/config/family.h"
#include "format/convert/target.h"

typedef struct mica__config_back {
    mica__target *target;
    const mica__name_family *family;
    const char *architecture, *model_type; /* the class that config.json names */
    mica__json_writer json;
    uint32_t layers, width, heads, head, rotary, context, window; /* window 0: none */
} mica__config_back;

/* The value of a key behind the architecture and a dot, or NULL. */
const mica_value *mica__back_get(const mica__config_back *b, const char *key);
/* It as a number, of a list the one that all its items are; `otherwise` where it is neither. */
double mica__back_number(const mica__config_back *b, const char *key, double otherwise);
/* The same for a whole number; `otherwise` also where it is none from 0 to 2^32 - 1. */
uint32_t mica__back_whole(const mica__config_back *b, const char *key, uint32_t otherwise);
bool mica__back_is(const mica__config_back *b, const char *arch);
/* UNSUPPORTED: what the file says has no word in this class's config.json. */
mica_status mica__back_refuse(const mica__config_back *b, const char *key, const char *why);

/* A number of f32 with as few digits as read back to it: 1e-05, not 9.9999997e-06. */
double mica__back_shortest(double number);
/* Members. */
void mica__back_put_real(mica__config_back *b, const char *key, double number);
void mica__back_put_whole(mica__config_back *b, const char *key, uint64_t number);
void mica__back_put_null(mica__config_back *b, const char *key);

/* rope_theta and rope_scaling. *out_factors says whether they stand for the file's tensors of factors, which then need no
 * place of their own. */
mica_status mica__rope_from_gguf(mica__config_back *b, bool *out_factors);
/* The text of a config.json for what the GGUF of the target says; *out_text is the target's memory. UNSUPPORTED names a key whose
 * meaning the class has no word for. */
mica_status mica__config_from_gguf(mica__target *target, const mica__name_family *family,
                                   const char **out_text, bool *out_factors);

#endif
