/* windows.h - the attributes that convolutions and pools share: kernel, strides, dilations, pads; onnx's way to say "same". */
#ifndef MICA_GRAPH_ONNX_WINDOWS_H
#define MICA_GRAPH_ONNX_WINDOWS_H

#include "graph/onnx/importer.h"

typedef struct mica__ox_windows {
    uint32_t dims;      /* spatial ones, 1 to 3 */
    uint32_t automatic; /* NOTSET, SAME_UPPER, SAME_LOWER, VALID */
    uint64_t in[MICA_SPATIAL_DIMS];
    uint32_t kernel[MICA_SPATIAL_DIMS], stride[MICA_SPATIAL_DIMS], dilation[MICA_SPATIAL_DIMS];
    uint32_t low[MICA_SPATIAL_DIMS], high[MICA_SPATIAL_DIMS];
} mica__ox_windows;

/* Reads them for x [n, c, spatial..]; `kernel` NULL or the sizes that the attribute kernel_shape must have. */
mica_status mica__ox_read_windows(mica__ox_op *o, const mica__type *x, const uint64_t *kernel,
                                  mica__ox_windows *out);

#endif
