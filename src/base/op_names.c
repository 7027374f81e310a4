/* op_names.c - the names of the ops. */
#include "mica/types.h"

const char *mica_op_name(mica_op op)
{
    static const char *const names[MICA_OP_COUNT] = {"none",
#define NAME(id, text) text,
                                                     MICA_OP_LIST(NAME)
#undef NAME
    };
    return op > MICA_OP_NONE && op < MICA_OP_COUNT ? names[op] : names[0];
}
