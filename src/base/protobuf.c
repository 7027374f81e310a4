/* protobuf.c - the coding of protocol buffers, as far as it is read. */
#include "base/protobuf.h"

#include "base/work.h"

mica_status mica__proto_malformed(const mica__proto *proto, const uint8_t *at, const char *what)
{
    return mica__fail(MICA_ERR_MALFORMED_FILE, "\"%s\" at byte %zu: %s", proto->path,
                      (size_t)(at - proto->start), what);
}

static mica_status read_varint(const mica__proto *proto, mica__proto_message *m, uint64_t *out)
{
    *out = 0;
    for (uint32_t shift = 0; shift < 64 && m->at != m->end; shift += 7) {
        const uint8_t byte = *m->at++;
        if (shift == 63 && byte > 1)
            return mica__proto_malformed(proto, m->at, "a number has more than 64 bits");
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return MICA_OK;
    }
    return mica__proto_malformed(
        proto, m->at, m->at == m->end ? "the message ends inside a number" : "a number has no end");
}

static mica_status read_fixed(const mica__proto *proto, mica__proto_message *m, uint32_t bytes, uint64_t *out)
{
    *out = 0;
    if ((size_t)(m->end - m->at) < bytes)
        return mica__proto_malformed(proto, m->at, "the message ends inside a number");
    for (uint32_t i = 0; i < bytes; i++)
        *out |= (uint64_t)*m->at++ << 8 * i;
    return MICA_OK;
}

mica_status mica__proto_number(const mica__proto *proto, mica__proto_message *message, uint32_t bytes,
                               uint64_t *out_number)
{
    return bytes == 0 ? read_varint(proto, message, out_number)
                      : read_fixed(proto, message, bytes, out_number);
}

mica_status mica__proto_next(const mica__proto *proto, mica__proto_message *message,
                             mica__proto_field *out_field)
{
    uint64_t key = 0;
    const uint8_t *start = message->at;
    mica_status status = mica__spend(4);
    if (status == MICA_OK)
        status = read_varint(proto, message, &key);
    *out_field = (mica__proto_field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    if (status != MICA_OK)
        return status;
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return mica__proto_malformed(proto, start, "a field without a valid number");
    switch (out_field->wire) {
    case MICA__PROTO_VARINT: return read_varint(proto, message, &out_field->value);
    case MICA__PROTO_64: return read_fixed(proto, message, 8, &out_field->value);
    case MICA__PROTO_32: return read_fixed(proto, message, 4, &out_field->value);
    case MICA__PROTO_BYTES: break;
    default: return mica__proto_malformed(proto, start, "a field that is neither a number nor bytes");
    }
    MICA__TRY(read_varint(proto, message, &out_field->value));
    if (out_field->value > (uint64_t)(message->end - message->at))
        return mica__proto_malformed(proto, start, "a field that is longer than the message around it");
    out_field->content = (mica__proto_message){message->at, message->at + out_field->value};
    message->at += out_field->value;
    return MICA_OK;
}
