/* lint_model.h: what the analyser cannot see from one file: a failure returns the code it was given.
 *
 * Read by clang-tidy alone, before each file of src. */
#include "base/status.h"

#define mica__fail(code, ...) (code)
