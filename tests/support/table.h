/* table.h - what tests of a backend's own table share. */
#ifndef SUPPORT_TABLE_H
#define SUPPORT_TABLE_H

#include "backend/backend.h"

/* Encodes a copy of the bytes of `from` to `to`. */
static inline void table_copy(const mica__backend_table *table, mica__encoding *encoding, mica__binding from,
                              mica__binding to, const char *label)
{
    const mica__binding bindings[2] = {from, to};
    const mica__dispatch dispatch = {
        .bindings = bindings, .binding_count = 2, .op = MICA_OP_COPY, .label = label};
    table->dispatch(encoding, &dispatch);
}

#endif
