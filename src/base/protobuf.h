/*
 * protobuf.h - a bounded reader of protocol buffers: the fields of a message, one behind another, over bytes in memory.
 *
 * Knows the coding alone, no message. What it is given comes from strangers: a field never passes the end of the message around it, and each
 * field takes steps of the call (work.h). It does not go into messages by itself, so that how deep one looks is the caller's to bound.
 */
#ifndef MICA_BASE_PROTOBUF_H
#define MICA_BASE_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* How a field is coded: the low three bits of its key. */
enum { MICA__PROTO_VARINT = 0, MICA__PROTO_64 = 1, MICA__PROTO_BYTES = 2, MICA__PROTO_32 = 5 };

/* The bytes that are read, for sentences. */
typedef struct mica__proto {
    const char *path;
    const uint8_t *start;
} mica__proto;

/* A message, or what is left of it. */
typedef struct mica__proto_message {
    const uint8_t *at, *end;
} mica__proto_message;

typedef struct mica__proto_field {
    uint32_t number, wire;
    uint64_t value;              /* of a varint or a number of fixed width; of bytes how many */
    mica__proto_message content; /* of bytes */
} mica__proto_field;

/* MALFORMED_FILE with the path, the byte and what is wrong there. */
mica_status mica__proto_malformed(const mica__proto *proto, const uint8_t *at, const char *what);
/* The next field of a message that is not at its end. Groups, which nobody writes any more, are malformed. */
mica_status mica__proto_next(const mica__proto *proto, mica__proto_message *message,
                             mica__proto_field *out_field);
/* The next number of a packed field: of 4 or 8 bytes, or with 0 a varint. The message is not at its end. */
mica_status mica__proto_number(const mica__proto *proto, mica__proto_message *message, uint32_t bytes,
                               uint64_t *out_number);

#endif
