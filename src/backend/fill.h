/* fill.h - the element that a number becomes: what the plans of fill share. */
#ifndef MICA_BACKEND_FILL_H
#define MICA_BACKEND_FILL_H

#include <stdint.h>

/* The bits of `value` as f32, f16, bf16, i32 or u32 (in the lower half where an element has two bytes): floats round once,
 * to nearest even; whole numbers drop the fraction and stay in their range; NaN is 0 there. */
uint32_t mica__fill_bits(double value, uint16_t dtype);

#endif
