/* json.h: reading tokenizer.json, between its two files: the model, and the steps around it. */
#ifndef MICA_TEXT_TOKENIZER_JSON_H
#define MICA_TEXT_TOKENIZER_JSON_H

#include "base/json/json.h"
#include "text/tokenizer/tokenizer.h"

/* A text member; "" where it is not there or null. MALFORMED_FILE for another type. */
mica_status mica__tokenizer_json_text(const mica__json *json, const mica__json_node *object, const char *key,
                                      mica_string *out_text);
/* A flag; *out_value is left alone where it is not there or null. */
mica_status mica__tokenizer_json_bool(const mica__json *json, const mica__json_node *object, const char *key,
                                      bool *out_value);

/* "normalizer", "pre_tokenizer" and "decoder" into the steps and the spelling. UNSUPPORTED names the type. */
mica_status mica__tokenizer_json_steps(mica_tokenizer *tokenizer, const mica__json *json);
mica_status mica__tokenizer_json_decoder(mica_tokenizer *tokenizer, const mica__json *json);

#endif
