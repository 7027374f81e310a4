/* regex.h: patterns of tokenizers, over PCRE2. A pattern comes from a file: its size, its nesting and the steps
 * and memory of a match are limited, and it is never run over text that is not UTF-8.
 *
 * Patterns are written in Oniguruma's dialect, as tokenizer.json has them; what means something else in PCRE2 is rewritten
 * or refused. A regex is immutable: any thread. A scratch belongs to one call. */
#ifndef MICA_TEXT_TOKENIZER_REGEX_H
#define MICA_TEXT_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct mica__regex mica__regex;
typedef struct mica__regex_scratch mica__regex_scratch;

/* UNSUPPORTED for a construct that cannot be rewritten, MALFORMED_FILE for a pattern that is none or too long,
 * OUT_OF_MEMORY. The caller releases *out_regex. */
mica_status mica__regex_create(const char *pattern, size_t length, mica__regex **out_regex);
/* NULL is fine. */
void mica__regex_release(mica__regex *regex);

/* What the searches in one text need, and what they took. BUDGET when that is above the limit of patterns. */
mica_status mica__regex_scratch_create(size_t length, mica__regex_scratch **out_scratch);
/* Spends what is still owed. NULL is fine. */
mica_status mica__regex_scratch_settle(mica__regex_scratch *scratch);

/* The first match in text[at .. length), which is valid UTF-8; `at` is the beginning of a character. *out_found false:
 * there is none. BUDGET past the limits, CANCELLED. */
mica_status mica__regex_find(const mica__regex *regex, mica__regex_scratch *scratch, const char *text,
                             size_t length, size_t at, bool *out_found, size_t *out_start, size_t *out_end);
/* NULL is fine. */
void mica__regex_scratch_release(mica__regex_scratch *scratch);

#endif
