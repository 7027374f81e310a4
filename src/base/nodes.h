/* nodes.h: whether the system shows programs any GPU. Knows no driver. */
#ifndef MICA_BASE_NODES_H
#define MICA_BASE_NODES_H

#include <stdbool.h>

/* False only where it is certain that there is none; then no driver need be loaded to ask. Cheap. */
bool mica__gpu_possible(void);

#endif
