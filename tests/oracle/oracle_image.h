/* oracle_image.h - windows over images in double precision: dense arrays [batch, channels, three spatial dimensions]. */
#ifndef ORACLE_IMAGE_H
#define ORACLE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Window p of dimension d covers places p stride - low + k dilation. */
typedef struct oracle_windows {
    size_t in[3], out[3], kernel[3], stride[3], dilation[3], low[3];
} oracle_windows;

typedef struct oracle_conv {
    oracle_windows windows;                  /* of a transposed one y has the places, x is at the windows */
    size_t batch, groups, channels, outputs; /* the latter two of a group */
    bool transposed;
    const double *x, *weight, *bias; /* bias may be NULL */
} oracle_conv;

/* y and the error measure of sums of products. */
void oracle_conv_run(const oracle_conv *conv, double *y, double *error);
/* dweight out of x and dy [batch, groups outputs, windows]. */
void oracle_conv_weight(const oracle_conv *conv, const double *dy, double *dweight, double *error);

#endif
