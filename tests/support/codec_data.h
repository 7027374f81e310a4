/*
 * codec_data.h - a seeded tensor for codecs that has the same bits on every machine, and a hash of what it becomes.
 * Golden figures in tests were made from this tensor by the format's reference quantiser.
 */
#ifndef TEST_SUPPORT_CODEC_DATA_H
#define TEST_SUPPORT_CODEC_DATA_H

#include <stddef.h>
#include <stdint.h>

/* Bell-shaped values whose size changes from run to run of 64, with rows of zeros and of one value among them. */
void codec_data_fill(uint64_t seed, float *values, size_t n);
/* Weights from 1/16 to 16, one in sixteen zero. */
void codec_data_importance(uint64_t seed, float *weights, size_t n);
/* FNV-1a, 64 bits. */
uint64_t codec_data_hash(const void *bytes, size_t size);

#endif
