/*
 * encoder.h - how ops and sessions use an encoder from inside the library.
 */
#ifndef MICA_DEVICE_ENCODER_H
#define MICA_DEVICE_ENCODER_H

#include "device/work.h"

/* Records in the order they were added, each with copies of its operands, params and label, and a reference on every
 * storage. */
typedef struct mica__record_list {
    mica__record **record;
    uint32_t count, capacity;
} mica__record_list;

/* Copies `record` to the end. */
mica_status mica__record_list_add(mica__record_list *list, const mica__record *record);
/* A fresh record with room for `operand_count` operands (all absent) and `params_size` bytes of params (zeroed), not in
 * any list. Operands put into it must be retained with mica__record_hold. */
mica_status mica__record_create(uint16_t op, uint32_t operand_count, uint32_t params_size,
                                mica__record **out);
/* Takes references on the storages of all present operands: call once, after filling them. */
void mica__record_hold(mica__record *record);
/* Gives the references back and frees it. NULL ok. */
void mica__record_free(mica__record *record);
void mica__record_list_free(mica__record_list *list);

/* What every op calls: direct encoders lower it now, capturing ones keep a copy. STATE when spent. Fills the label. */
mica_status mica__encoder_add(mica_encoder *encoder, mica__record *record);
/* Begins an encoder that keeps records instead of lowering them. */
mica_status mica__encoder_begin_capture(mica_device *device, mica_queue *queue, mica_encoder **out);
/* Takes the captured records away; the encoder goes on with none. */
mica_status mica__encoder_take(mica_encoder *encoder, mica__record_list *out);
mica_queue *mica__encoder_queue(const mica_encoder *encoder);

#endif
