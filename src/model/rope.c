/*
 * rope.c - how the heads of a model rotate: its base, and what stretches it to longer contexts (linear, Llama 3, YaRN, the
 * long and short factors of Phi-3). All of it becomes a scale of positions, a divisor per pair, and a scale of the
 * result, which is what mica_rope takes.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/parts.h"

typedef struct scaling {
    float factor;
    uint32_t original; /* context that the model was trained for before it was stretched */
    float attention;   /* what the file says about the scale of the result; 0: nothing */
    float beta_fast, beta_slow, ext_factor;
} scaling;

/* The pair that rotates `rotations` times within the original context. */
static double pair_of_rotations(const mica__hparams *h, double theta, const scaling *s, double rotations)
{
    const double tau = 6.283185307179586;
    return h->rotary * log(s->original / (rotations * tau)) / (2 * log(theta));
}

/* YaRN: fast pairs keep their speed, slow ones are slowed down by the factor, those between by a ramp. */
static void yarn_factors(const mica__hparams *h, double theta, const scaling *s, float *out)
{
    double low = floor(pair_of_rotations(h, theta, s, s->beta_fast)),
           high = ceil(pair_of_rotations(h, theta, s, s->beta_slow));
    low = low < 0 ? 0 : low;
    high = high > h->rotary - 1.0 ? h->rotary - 1.0 : high;
    for (uint32_t i = 0; i < h->rotary / 2; i++) {
        double ramp = (i - low) / (high - low > 0.001 ? high - low : 0.001);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        const double fast = (1 - ramp) * s->ext_factor;
        out[i] = (float)(1 / ((1 - fast) / s->factor + fast));
    }
}

static mica_status make_factors(mica_model *model, const scaling *s, mica_buffer **out)
{
    const uint64_t count = model->h.rotary / 2;
    float *factors = mica__alloc((size_t)count * sizeof *factors);
    if (factors == NULL)
        return mica__fail(MICA_ERR_OUT_OF_MEMORY, "no memory for the factors of rotary heads");
    yarn_factors(&model->h, model->rope[0].theta, s, factors);
    mica_status status = mica_buffer_alloc(model->device, MICA_DTYPE_F32, 1, &count, out);
    if (status == MICA_OK)
        status = mica_buffer_write(*out, 0, factors, count * sizeof *factors);
    mica__free(factors);
    return status;
}

static bool is(mica_string text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.data, word, (size_t)text.length) == 0;
}

static void read_scaling(const mica_weights *weights, const mica_model *model, scaling *s)
{
    const char *arch = model->family->name;
    *s = (scaling){
        .factor = 1, .original = model->h.context_length, .beta_fast = 32, .beta_slow = 1, .ext_factor = 1};
    if (!mica__key_f32(weights, arch, "rope.scaling.factor", &s->factor)) /* older files have another word */
        (void)mica__key_f32(weights, arch, "rope.scale_linear", &s->factor);
    (void)mica__key_u32(weights, arch, "rope.scaling.original_context_length", &s->original);
    (void)mica__key_f32(weights, arch, "rope.scaling.attn_factor", &s->attention);
    (void)mica__key_f32(weights, arch, "rope.scaling.yarn_attn_factor", &s->attention);
    (void)mica__key_f32(weights, arch, "rope.scaling.yarn_ext_factor", &s->ext_factor);
    (void)mica__key_f32(weights, arch, "rope.scaling.yarn_beta_fast", &s->beta_fast);
    (void)mica__key_f32(weights, arch, "rope.scaling.yarn_beta_slow", &s->beta_slow);
    if (!(s->factor > 0))
        s->factor = 1;
}

static mica_status take_tensor(mica_buffer *tensor, mica_buffer **out)
{
    mica_buffer_info info;
    if (tensor == NULL)
        return MICA_OK;
    MICA__TRY(mica_buffer_get_info(tensor, &info));
    if (info.dtype != MICA_DTYPE_F32)
        return mica__fail(MICA_ERR_UNSUPPORTED, "the factors of rotary heads are %s, expected f32",
                          mica_dtype_name(info.dtype));
    *out = mica_buffer_retain(tensor);
    return MICA_OK;
}

/* Factors that are tensors: Llama 3's, or Phi-3's for contexts beyond the original one and for those within. */
static mica_status take_factors(mica_model *model, const scaling *s, mica__rope *rope)
{
    mica_buffer *const *t = model->tensor;
    if (t[MICA__T_ROPE_FACTORS] != NULL || t[MICA__T_ROPE_FACTORS_LONG] == NULL)
        return take_tensor(t[MICA__T_ROPE_FACTORS], &rope->factors);
    rope->attention_scale = s->attention > 0 ? s->attention : 1;
    rope->original = s->original;
    MICA__TRY(take_tensor(t[MICA__T_ROPE_FACTORS_LONG], &rope->factors));
    return take_tensor(t[MICA__T_ROPE_FACTORS_SHORT], &rope->near);
}

/* Positions that are learned end with their table. */
static mica_status count_positions(mica_model *model)
{
    mica_buffer_info info;
    MICA__TRY(mica_buffer_get_info(model->tensor[MICA__T_POSITION_EMBEDDING], &info));
    model->h.longest = info.shape[0] < UINT32_MAX ? (uint32_t)info.shape[0] : UINT32_MAX;
    return MICA_OK;
}

mica_status mica__rope_setup(mica_model *model, const mica_weights *weights)
{
    const char *arch = model->family->name;
    mica__rope *rope = &model->rope[0], *sliding = &model->rope[1];
    mica_string type = {"linear", 6}; /* where a factor stands alone */
    scaling s;
    if (model->family->no_rope)
        return count_positions(model);
    *rope = (mica__rope){.theta = 10000, .position_scale = 1, .attention_scale = 1};
    (void)mica__key_f32(weights, arch, "rope.freq_base", &rope->theta);
    if (!(rope->theta > 0))
        return mica__fail(MICA_ERR_MALFORMED_FILE, "the model's \"%s.rope.freq_base\" is not above 0", arch);
    *sliding = *rope;
    if (strcmp(arch, "gemma3") == 0)
        sliding->theta = 10000;
    (void)mica__key_f32(weights, arch, "rope.freq_base_swa", &sliding->theta);
    read_scaling(weights, model, &s);
    (void)mica__key_text(weights, arch, "rope.scaling.type", &type);
    if (is(type, "linear")) {
        rope->position_scale = 1 / s.factor;
    } else if (is(type, "yarn")) {
        rope->attention_scale = (s.attention > 0 ? s.attention : 1) * (1 + 0.1f * logf(s.factor));
        MICA__TRY(make_factors(model, &s, &rope->factors));
    } else if (is(type, "dynamic")) { /* within the trained length it is no scaling */
        model->h.longest = model->h.context_length;
    } else if (!is(type, "none") && !is(type, "longrope") && !is(type, "su")) {
        return mica__fail(MICA_ERR_UNSUPPORTED,
                          "the model's \"%s.rope.scaling.type\" is \"%.40s\"; known are none, "
                          "linear, dynamic, yarn and longrope",
                          arch, type.data);
    }
    if (rope->factors == NULL)
        MICA__TRY(take_factors(model, &s, rope));
    /* Only Gemma 3 has two ways to rotate: its sliding layers are not stretched. */
    if (strcmp(arch, "gemma3") != 0) {
        *sliding = *rope;
        sliding->factors = mica_buffer_retain(rope->factors);
        sliding->near = mica_buffer_retain(rope->near);
    }
    return MICA_OK;
}
