/*
 * inflight.h - submissions on their way: who waits for what, and what to give back when they end.
 */
#ifndef MICA_DEVICE_INFLIGHT_H
#define MICA_DEVICE_INFLIGHT_H

#include "device/work_object.h"

/* Submits and notes the submission; waits for the oldest when too many are on their way. One-shot work is consumed, also
 * on failure. */
mica_status mica__inflight_submit(mica_device *device, mica__work *work, mica_queue *queue,
                                  mica_fence **out_fence);
/* `fence` answers for `before` too (NULL is fine), the stage submitted before it to the same queue; once, before anyone else has
 * the fence. */
void mica__fence_follow(mica_fence *fence, mica_fence *before);
/* Waits for one submission, then gives back what ended. */
mica_status mica__inflight_wait(mica_device *device, mica_queue *queue, uint64_t value, uint64_t timeout_ns,
                                mica__completion *out);
/* The result of reusable work's last submission, all zero if there was none; waits for it. */
mica_status mica__inflight_work(mica__work *work, mica__completion *out);
/* What is submitted to the queue from now on starts after the fence: the device holds it back where it can, else this
 * waits. The fence's own result stays with the fence. */
mica_status mica__inflight_order(mica_device *device, mica_queue *queue, mica_fence *fence);
/* Gives one inside reference on a queue back. NULL ok. */
void mica__queue_unref(mica_queue *queue);

#endif
