/* codec_table.c - the codecs of one instruction set by dtype. */
#include "mica/types.h"
#include "quant/codec.h"

const mica__codec MICA__CODEC(table)[MICA_DTYPE_COUNT] = {
#define MICA__CODEC_BOTH(dtype, name) \
    [MICA_DTYPE_##dtype] = {MICA__CODEC(decode_##name), MICA__CODEC(encode_##name)},
#define MICA__CODEC_DECODE(dtype, name) [MICA_DTYPE_##dtype] = {MICA__CODEC(decode_##name), NULL},
#include "quant/codecs.def"
#undef MICA__CODEC_BOTH
#undef MICA__CODEC_DECODE
};
