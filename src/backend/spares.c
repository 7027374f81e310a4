/* spares.c - places that an object is put into and taken out of whole, each by one atomic step. */
#include "backend/spares.h"

mica__commands *mica__spares_take(mica__spares *spares)
{
    for (uint32_t i = 0; i < MICA__SPARES; i++) {
        if (atomic_load_explicit(&spares->kept[i], memory_order_relaxed) == NULL)
            continue; /* looking is cheaper than exchanging */
        mica__commands *commands = atomic_exchange(&spares->kept[i], NULL);
        if (commands != NULL)
            return commands;
    }
    return NULL;
}

bool mica__spares_give(mica__spares *spares, mica__commands *commands)
{
    for (uint32_t i = 0; i < MICA__SPARES; i++) {
        mica__commands *none = NULL;
        if (atomic_compare_exchange_strong(&spares->kept[i], &none, commands))
            return true;
    }
    return false;
}
