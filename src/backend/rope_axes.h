/* rope_axes.h - which axis of the positions a pair of a rope turns by. Kernel texts have the same in rope.kc. */
#ifndef MICA_BACKEND_ROPE_AXES_H
#define MICA_BACKEND_ROPE_AXES_H

#include "mica/ops.h"

/* The axis of pair `pair`, of `count`; *out_place is the number that its frequency goes by. Not of ONE. */
static inline uint32_t mica__rope_axis(const mica_rope_params *rope, uint32_t count, uint32_t pair,
                                       uint32_t *out_place)
{
    const uint32_t sum = rope->sections[0] + rope->sections[1] + rope->sections[2] + rope->sections[3];
    uint32_t sector = pair % sum, axis = 0;
    *out_place = pair;
    if (rope->axes == MICA_ROPE_AXES_INTERLEAVED) {
        axis = sector % 3;
        return sector < 3 * rope->sections[axis] ? axis : count > 3 ? 3 : 0;
    }
    for (; axis < 3 && sector >= rope->sections[axis]; axis++)
        sector -= rope->sections[axis];
    *out_place = rope->axes == MICA_ROPE_AXES_SEPARATE ? sector : pair;
    return axis;
}

#endif
