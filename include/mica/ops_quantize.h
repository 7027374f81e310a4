/*
 * ops_quantize.h - numbers as codes with scales: quantise, dequantise, and training through both. All are regions and
 * reductions. What ops.h says of all ops holds here.
 *
 * A code c stands for (c - zero_point) scale, or with biases for c scale + bias. scale is scales times `global`,
 * where that is there (the two levels of NVFP4). Scales, zero points and biases are of a tensor (one element), of
 * an axis, or of blocks along one.
 */
#ifndef MICA_OPS_QUANTIZE_H
#define MICA_OPS_QUANTIZE_H

#include "mica/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mica_code {
    /* whole numbers from low to high; where codes are of a float dtype (f8_e4m3 ..) its numbers */
    MICA_CODE_INTEGER = 0,
    /* E2M1: bit 3 the sign, then 0, 0.5, 1, 1.5, 2, 3, 4, 6; low and high are not looked at */
    MICA_CODE_FP4 = 1
} mica_code;

typedef struct mica_quantizer {
    /* Any plain float type. They broadcast to x; with `block` they have the rank of x and along
     * `axis` ceil(size / block) elements. */
    mica_buffer *scales;
    mica_buffer *zero_points; /* as scales, any plain numbers but f64 (with f64 x: of f64 alone); NULL: 0 */
    mica_buffer *biases;      /* as scales; NULL: none. Not together with zero_points */
    mica_buffer *global;      /* one element; NULL: 1 */
    /* of codes. Both 0: all that the codes' dtype holds, of fake-quantise -128 to 127, packed 0 to 15 */
    int32_t low, high;
    uint32_t block; /* elements along `axis` that share a scale; 0: scales broadcast */
    uint32_t axis;  /* counted from the last, which is 0 */
    uint32_t away;  /* 1: halves are rounded away from 0; 0: to even */
    /* 1: codes are u8 with two of 4 bits, the even one low; the last dimension is even, and so is a block along it;
     * low is 0 or -8 */
    uint32_t packed;
    mica_code code;
} mica_quantizer;

/* codes = clamp(round(x / scale) + zero_point, low, high), with biases clamp(round((x - bias) / scale), low, high);
 * NaN gives 0, what is infinite the nearest end. FP4: the nearest number, of two the one with an even code, beyond 6
 * it is 6. x f32, f16, bf16 (or f64 on the cpu, with scales of f64); codes of x's shape: i8 u8 i16 u16 i32 u32,
 * f8_e4m3 and f8_e5m2; packed u8 with half the last dimension. */
MICA_API mica_status mica_quantize_codes(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by,
                                         mica_buffer *codes);
/* y = (codes - zero_point) scale, or codes scale + bias. As mica_quantize_codes has them; low
 * tells packed codes below 0 apart. */
MICA_API mica_status mica_dequantize_codes(mica_encoder *encoder, mica_buffer *codes,
                                           const mica_quantizer *by, mica_buffer *y);
/* codes = clamp(round(sums multiplier) + zero_point, low, high) with the multipliers in by->scales: a sum of products
 * of codes, i32, of scales s_a and s_b as codes of scale s_y has s_a s_b / s_y. In f32, halves to even (by->away:
 * away from 0). codes i8, u8, i16 or u16, of the shape of sums; by->biases, global, block and packed are not there.
 * What becomes of mica_product_codes. */
MICA_API mica_status mica_requantize(mica_encoder *encoder, mica_buffer *sums, const mica_quantizer *by,
                                     mica_buffer *codes);
/* y = what the code of x stands for, without writing codes. Not packed. In place. */
MICA_API mica_status mica_fake_quantize(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by,
                                        mica_buffer *y);

/* How dy goes through the rounding; v = x / scale + zero_point. */
typedef enum mica_straight {
    MICA_STRAIGHT_ROUNDED = 0,  /* dy where round(v) lies from low to high, as PyTorch */
    MICA_STRAIGHT_CLIPPED = 1,  /* dy where v lies there, as LSQ */
    MICA_STRAIGHT_IDENTITY = 2, /* dy */
    MICA_STRAIGHT_TANH = 3,     /* dy (1 - tanh(x / scale)^2) */
    MICA_STRAIGHT_HARD_TANH = 4 /* dy max(0, 1 - |x| / (high scale)) */
} mica_straight;

/* Of mica_fake_quantize with integer codes and without biases. dx as `straight` says. dscale has the shape of x: what
 * each element sends to its scale, dy times (round(v) - v) where v lies from low to high (ROUNDED: where round(v)
 * does), else low or high less zero_point; mica_reduce adds up what shares a scale. Either may be NULL. In place. */
MICA_API mica_status mica_fake_quantize_backward(mica_encoder *encoder, mica_buffer *x,
                                                 const mica_quantizer *by, mica_buffer *dy,
                                                 mica_straight straight, mica_buffer *dx,
                                                 mica_buffer *dscale);

/* Writes by->scales, and by->biases where they are there, from x [any shape], over whatever shares one: all elements
 * along dimensions of size 1 of scales, and blocks. Without biases scale = max(max|x| / high, 1e-12). With biases
 * scale = (max x - min x) / (high - low), 1 where that is not above 0, bias = min x - low scale. Scales and biases
 * have the rank of x; f32, f16, bf16 or, with f64 x, f64. zero_points and global NULL; low and high as in
 * mica_quantize_codes with i8 codes where both are 0. */
MICA_API mica_status mica_quantize_scales(mica_encoder *encoder, mica_buffer *x, const mica_quantizer *by);
/* state = state > 0 ? decay state + (1 - decay) scales : scales: scales that follow those of batches. decay from 0 to
 * 1. */
MICA_API mica_status mica_scales_follow(mica_encoder *encoder, mica_buffer *scales, double decay,
                                        mica_buffer *state);

#ifdef __cplusplus
}
#endif
#endif
