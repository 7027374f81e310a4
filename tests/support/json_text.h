/* json_text.h - a parsed document written again, for tests that read what they wrote. */
#ifndef TEST_SUPPORT_JSON_TEXT_H
#define TEST_SUPPORT_JSON_TEXT_H

#include "base/json/json.h"

/* The whole document; *out_text is freed with mica__free. */
mica_status test_json_text(const mica__json *json, char **out_text, size_t *out_length);

#endif
