/* npy.h: the array format of numpy, for its reader, its writer and the npz files made of it. */
#ifndef MICA_FORMAT_NPY_H
#define MICA_FORMAT_NPY_H

#include "format/writer.h"

#define MICA__NPY_MAGIC "\x93NUMPY"
#define MICA__NPY_MAGIC_BYTES 6

/* The npy that is `bytes` long at `offset` of the archive's first file, as a tensor without a name. `member` names it
 * in sentences; NULL for a file of its own. MALFORMED_FILE where the header breaks the format or the data has another
 * size; a type or an order of elements that mica does not take is the tensor's problem. */
mica_status mica__npy_tensor(mica__archive *archive, const char *member, uint64_t offset, uint64_t bytes,
                             mica__tensor *out);

/* How a header writes a dtype ("<f4"), NULL where it cannot. */
const char *mica__npy_descr(uint16_t dtype);

/* The header of a tensor whose type has a descr, up to its data: a multiple of 64 bytes, which is returned. */
#define MICA__NPY_HEADER_ROOM 320
size_t mica__npy_header(const mica__writer_tensor *tensor, char out_header[MICA__NPY_HEADER_ROOM]);

#endif
