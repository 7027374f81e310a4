/*
 * lift.h - a graph of what was recorded: op calls that a program has already become nodes, so that they are written
 * once.
 *
 *     mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session);
 *     mica_session_slot(session, "x", x);                       // what the graph is fed
 *     mica_session_slot(session, "y", y);                       // what it gives
 *     mica_matmul(mica_session_encoder(session), x, w, NULL, y);
 *     mica_session_record(session, 0, NULL, &recording);        // no passes: the ops as they were called
 *     const mica_lift_parameter w_is = {"w", w};
 *     mica_graph_from_recording(recording, &(mica_lift_desc){.parameters = &w_is, .parameter_count = 1}, &graph);
 *
 * The graph computes what a replay does, with the same bits where it runs as it is written; it is differentiated,
 * saved and compiled as any other.
 */
#ifndef MICA_LIFT_H
#define MICA_LIFT_H

#include "mica/graph.h"
#include "mica/session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A buffer that becomes a parameter. */
typedef struct mica_lift_parameter {
    const char *name;    /* of the parameter */
    mica_buffer *buffer; /* any type, layout and strides; whatever reads these bytes reads the parameter */
} mica_lift_parameter;

/* All zero is fine. */
typedef struct mica_lift_desc {
    uint64_t size; /* sizeof this struct, or 0 */
    const mica_lift_parameter *parameters;
    uint32_t parameter_count;
} mica_lift_desc;

/* The records of a recording as nodes. Values are followed by the bytes in which they lie, through views of any kind,
 * updates in place and writes of parts: what is put together of several writes is joined again. A slot
 * (mica_session_slot) that is read before it is written whole becomes an input, one that is written an output, both
 * with its name; so one that is updated is both (mica_executable_link carries it over). Buffers that are only read
 * become the parameters that `desc` names, else constants with what they hold now. Labels stay.
 * Refused, each by the record's number, op and label. UNSUPPORTED: kernels of the caller's own; ops that a fusion
 * made (record without MICA_FINISH_FUSE); a write to what is neither a temporary nor inside one slot; reading
 * bytes of a temporary that nothing wrote; a view of blocks that is not the one that was written; an element
 * through a type of another size; a value in more than 4096 pieces. INVALID_ARGUMENT: slots or parameters that
 * share bytes, names that are equal. CANCELLED, OUT_OF_MEMORY. `desc` may be NULL. Nothing runs, but copies of
 * constants; the recording is as it was. The caller releases *out_graph. Threads: any; while a replay runs that
 * somebody waits for, it waits too. */
MICA_API mica_status mica_graph_from_recording(const mica_recording *recording, const mica_lift_desc *desc,
                                               mica_graph **out_graph);

#ifdef __cplusplus
}
#endif
#endif
