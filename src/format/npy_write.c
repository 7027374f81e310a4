/* npy_write.c: writes numpy's array format, version 1.0: one tensor and no metadata. */
#include "format/npy.h"

#include <stdio.h>
#include <string.h>

#define HEADER_ALIGN 64 /* data begins at a multiple of it */
#define PREAMBLE 10     /* magic, version, length */

size_t mica__npy_header(const mica__writer_tensor *tensor, char out_header[MICA__NPY_HEADER_ROOM])
{
    char *text = out_header + PREAMBLE;
    const size_t room = MICA__NPY_HEADER_ROOM - PREAMBLE;
    size_t at, total;
    /* 52 bytes, eight dimensions of at most 22, and 5 to close: what is written always fits. */
    at = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          mica__npy_descr((uint16_t)tensor->dtype));
    for (uint32_t d = 0; d < tensor->ndim; d++)
        at += (size_t)snprintf(text + at, room - at, d == 0 ? "%llu," : " %llu,",
                               (unsigned long long)tensor->shape[d]);
    if (tensor->ndim > 1)
        at--; /* only a tuple of one needs its comma */
    at += (size_t)snprintf(text + at, room - at, "), }");
    total = (PREAMBLE + at + 1 + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    memset(text + at, ' ', total - PREAMBLE - at);
    out_header[total - 1] = '\n';
    memcpy(out_header, MICA__NPY_MAGIC "\x01", MICA__NPY_MAGIC_BYTES + 2);
    out_header[8] = (char)((total - PREAMBLE) & 0xff);
    out_header[9] = (char)((total - PREAMBLE) >> 8);
    return total;
}

static mica_status check_tensor(const mica_writer *writer, const mica__writer_tensor *tensor)
{
    if (writer->tensor_count != 0)
        return mica__fail(MICA_ERR_UNSUPPORTED, "\"%s\": tensor \"%s\" is the second, and an npy holds one",
                          writer->path, tensor->name);
    if (mica__npy_descr((uint16_t)tensor->dtype) == NULL)
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "\"%s\": tensor \"%s\" is of type %s, which npy does not have", writer->path,
                          tensor->name, mica_dtype_name(tensor->dtype));
    return MICA_OK;
}

static mica_status begin(mica_writer *writer, const mica__writer_file *part)
{
    char header[MICA__NPY_HEADER_ROOM];
    if (part->count != 1)
        return mica__fail(MICA_ERR_STATE, "\"%s\": no tensor was declared, and an npy holds one", part->path);
    return mica__writer_put(writer, header, mica__npy_header(&writer->tensor[part->first], header));
}

const mica__writer_format mica__npy_format = {
    .format = MICA_FORMAT_NPY,
    .ending = ".npy",
    .check_tensor = check_tensor,
    .begin = begin,
};
