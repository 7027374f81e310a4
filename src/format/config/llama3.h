/* llama3.h - the rule by which Llama 3 stretches its rotary waves: long ones by a factor, short ones not, those between
 * in part. */
#ifndef MICA_FORMAT_CONFIG_LLAMA3_H
#define MICA_FORMAT_CONFIG_LLAMA3_H

#include <math.h>
#include <stdint.h>

typedef struct mica__llama3 {
    double base;
    float factor, low, high, context;
} mica__llama3;

/* Factor i of `count`. In f32 and with reciprocals, as the programs compute it that trained these models, so that files
 * agree to the last bit. */
static inline float mica__llama3_factor(const mica__llama3 *rule, uint32_t i, uint32_t count)
{
    const float power = (float)pow(rule->base, (double)((float)i / (float)count));
    const float frequency = 1 / power, wave = 1 / frequency * (float)(2 * 3.14159265358979323846);
    const float smooth = (1 / wave * rule->context - rule->low) / (rule->high - rule->low);
    if (wave < rule->context / rule->high)
        return 1;
    return wave > rule->context / rule->low ? rule->factor : 1 / ((1 - smooth) / rule->factor + smooth);
}

#endif
