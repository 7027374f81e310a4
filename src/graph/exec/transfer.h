/*
 * transfer.h - elements from one device to another, by the host.
 */
#ifndef MICA_GRAPH_TRANSFER_H
#define MICA_GRAPH_TRANSFER_H

#include "mica/device.h"

/* Copies a buffer to a contiguous one of its type and shape on any device, and waits. The caller knows that no work in flight touches either: other work goes on. */
mica_status mica__transfer(mica_buffer *from, mica_buffer *to);

#endif
