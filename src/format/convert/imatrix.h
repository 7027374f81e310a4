/*
 * imatrix.h - importance matrices: how much an error in each column of a weight costs, measured on text by others.
 *
 * A GGUF with two tensors for each weight NAME: NAME.in_sum2 [matrices, columns], sums of squares of what met the column,
 * and NAME.counts [matrices, 1], how many were summed. One matrix, or one per expert.
 */
#ifndef MICA_FORMAT_CONVERT_IMATRIX_H
#define MICA_FORMAT_CONVERT_IMATRIX_H

#include "format/convert/target.h"

/* Gives the target's tensors that change their type the weights that the file has for them, and notes the file in the
 * metadata; a tensor it does not know goes without. MALFORMED_FILE or QUANT_CONFIG names what does not fit. */
mica_status mica__imatrix_apply(const char *path, mica__target *target);

#endif
