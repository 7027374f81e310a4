/*
 * piece.h - a target cut into pieces that fit a thread's room, and the making of one: read, decode, move, encode.
 *
 * A piece is some rows of one tensor, or a part of one long row. Pieces depend on the target alone, never on how many
 * threads there are.
 */
#ifndef MICA_FORMAT_CONVERT_PIECE_H
#define MICA_FORMAT_CONVERT_PIECE_H

#include "format/convert/target.h"

typedef struct mica__piece {
    const mica__target_tensor *tensor;
    uint64_t row, rows;       /* of the tensor that is written */
    uint64_t column, columns; /* of each row: all, unless rows is 1 */
    uint64_t bytes_in, bytes_out;
} mica__piece;

/* Where the next piece begins; starts zeroed. */
typedef struct mica__piece_cursor {
    uint32_t tensor;
    uint64_t row, column;
} mica__piece_cursor;

/* Largest needs of any piece of a target. */
typedef struct mica__piece_sizes {
    uint64_t raw;    /* bytes: what is read */
    uint64_t values; /* floats */
    uint64_t out;    /* bytes: what is made */
} mica__piece_sizes;

/* What one thread works in: room of these sizes. */
typedef struct mica__piece_room {
    uint8_t *raw;
    float *values;
} mica__piece_room;

/* The next piece, or false at the end. Tensors without values have none. */
bool mica__piece_next(const mica__target *target, mica__piece_cursor *cursor, mica__piece *out_piece);
/* Room that serves every piece; OUT_OF_MEMORY if a number does not fit. */
mica_status mica__piece_measure(const mica__target *target, mica__piece_sizes *out_sizes);
/* Makes the piece's bytes_out bytes. Any thread, with a room of its own. */
mica_status mica__piece_make(const mica__archive *archive, const mica__piece *piece,
                             const mica__piece_room *room, uint8_t *out_bytes);
/* Whether bytes are moved as they are. */
bool mica__piece_is_copy(const mica__target_tensor *tensor);

#endif
