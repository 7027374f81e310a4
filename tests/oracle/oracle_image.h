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

typedef enum oracle_pool {
    ORACLE_POOL_MAX,
    ORACLE_POOL_MIN,
    ORACLE_POOL_MEAN,
    ORACLE_POOL_SUM,
    ORACLE_POOL_PROD
} oracle_pool;

/* Windows over a frame x [in]; `high` is where padding ends, for means that count it. */
typedef struct oracle_pooling {
    oracle_windows windows;
    oracle_pool kind;
    size_t high[3];
    bool count_padding;
} oracle_pooling;
/* y [out], and places of what max and min took, -1: nothing. */
void oracle_pool_run(const oracle_pooling *pool, const double *x, double *y, double *places, double *error);
void oracle_pool_backward(const oracle_pooling *pool, const double *x, const double *dy, double *dx,
                          double *error);

/* columns [taps][windows] of an image [in], one channel. */
void oracle_im2col(const oracle_windows *windows, const double *image, double *columns);
void oracle_col2im(const oracle_windows *windows, const double *columns, double *image, double *error);

typedef struct oracle_resize {
    size_t in[3], out[3];
    unsigned mode;    /* 0 nearest, 1 linear, 2 cubic */
    unsigned corners; /* 0 half pixel, 1 aligned, 2 asymmetric */
    bool antialias;
    bool wide; /* f64 */
} oracle_resize;
/* y [out] of x [in]; or dx [in] of dy [out]. */
void oracle_resize_run(const oracle_resize *resize, const double *x, double *y, double *error);
void oracle_resize_backward(const oracle_resize *resize, const double *dy, double *dx, double *error);

typedef struct oracle_grid {
    size_t height, width;
    unsigned mode, padding; /* padding: 0 zeros, 1 border, 2 reflection */
    bool align;
} oracle_grid;
/* One channel x [height, width] at the coordinates (across, down). */
double oracle_grid_sample(const oracle_grid *grid, const double *x, double across, double down,
                          double *error);
/* What dy at that place adds: to dx [height, width], to by[2], the gradients of across and down. Errors are added up, terms of dx counted. */
void oracle_grid_backward(const oracle_grid *grid, const double *x, double across, double down, double dy,
                          double *dx, double *dx_error, double *dx_terms, double *by, double *by_error);

#endif
