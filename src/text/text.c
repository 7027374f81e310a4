/* text.c - texts that the library allocates and the caller frees. */
#include "base/alloc.h"
#include "mica/text.h"

void mica_text_free(char *text)
{
    mica__free(text);
}
