/*
 * mica.h - the whole library. Include this, or the headers below one by one.
 *
 *   status.h   results and their sentences      host.h     allocator, log, version
 *   types.h    element types, ops               device.h   devices, buffers, kernels, encoders, fences
 *   ops.h      one function per operation       session.h  a forward pass, recorded and replayed
 *   op.h       any op by its number: shapes that follow, whether a device serves it
 *   weights.h  model files, read alike          format.h   metadata, writing, quantising, converting
 *   work.h     limits, and stopping a call
 *
 * Workflow: mica_device_open -> mica_buffer_alloc / write -> mica_session_begin (recording) -> ops on
 * mica_session_encoder -> mica_session_record -> mica_recording_replay_and_wait as often as needed -> read.
 *
 * Structs of options begin with `size`: their sizeof, or 0 for that of this version's headers; any other size is
 * INVALID_ARGUMENT, as is a bit that no flag of the call has, and a value that an enum does not have. All other
 * structs stay as they are as long as the library's name does. What is 0 or NULL in a struct has its default.
 *
 * The library never prints, exits or aborts; each call that can fail says so in its status, and
 * mica_status_message() has the sentence.
 */
#ifndef MICA_MICA_H
#define MICA_MICA_H

#include "mica/status.h"
#include "mica/host.h"
#include "mica/work.h"
#include "mica/types.h"
#include "mica/device.h"
#include "mica/ops.h"
#include "mica/session.h"
#include "mica/graph.h"
#include "mica/custom.h"
#include "mica/executable.h"
#include "mica/gradient.h"
#include "mica/lift.h"
#include "mica/train.h"
#include "mica/onnx.h"
#include "mica/cost.h"
#include "mica/format.h"
#include "mica/weights.h"

#endif
