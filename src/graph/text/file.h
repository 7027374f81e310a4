/* file.h - a graph out of an opened file. */
#ifndef MICA_GRAPH_TEXT_FILE_H
#define MICA_GRAPH_TEXT_FILE_H

#include "graph/ir.h"
#include "mica/weights.h"

/* NOT_FOUND where the file holds no graph. */
mica_status mica__graph_from_weights(const mica_weights *weights, mica_graph **out_graph);

#endif
