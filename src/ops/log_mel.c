/* log_mel.c - the spectrum that Whisper takes, composed of other ops. */
#include "device/objects.h"
#include "ops/programs.h"

#define NONE MICA_REGION_NONE
#define ULL(x) ((unsigned long long)(x))

typedef struct mel_sizes {
    uint64_t items, samples, window, bins, mels, frames, hop, padded;
} mel_sizes;

uint64_t mica_log_mel_work(uint64_t items, uint64_t samples, uint64_t window, uint64_t frames)
{
    const uint64_t bins = window / 2 + 1;
    return items * (samples + 2 * (window / 2) + frames * (window + 3 * bins) + 2) + 2;
}

static mica_status check(const char *name, const mica_buffer *buffer, uint32_t least)
{
    uint64_t bytes = 4;
    if (buffer == NULL)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "log_mel: %s is NULL", name);
    if (buffer->dtype != MICA_DTYPE_F32 || buffer->ndim < least)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "log_mel: %s is %s with %u dimensions, not f32 with %u or more", name,
                          mica_dtype_name(buffer->dtype), buffer->ndim, least);
    for (uint32_t d = buffer->ndim; d-- > 0; bytes *= buffer->shape[d])
        if (buffer->shape[d] == 0 || (buffer->shape[d] > 1 && buffer->stride[d] != bytes))
            return mica__fail(MICA_ERR_INVALID_ARGUMENT, "log_mel: %s is empty or not contiguous", name);
    return MICA_OK;
}

static mica_status take_sizes(const mica_buffer *audio, const mica_buffer *window, const mica_buffer *filters,
                              const mica_buffer *y, mel_sizes *s)
{
    s->items = 1;
    for (uint32_t d = 0; d + 1 < audio->ndim; d++) {
        if (y->ndim != audio->ndim + 1 || y->shape[d] != audio->shape[d])
            return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                              "log_mel: the leading dimensions of y are not those of audio");
        s->items *= audio->shape[d];
    }
    s->samples = audio->shape[audio->ndim - 1];
    s->window = window->shape[0];
    s->bins = s->window / 2 + 1;
    s->padded = s->samples + 2 * (s->window / 2);
    s->mels = filters->shape[0];
    s->frames = y->shape[y->ndim - 1];
    if (window->ndim != 1 || filters->ndim != 2 || filters->shape[1] != s->bins)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "log_mel: filters is not [.., %llu], window / 2 + 1",
                          ULL(s->bins));
    if (y->ndim != audio->ndim + 1 || y->shape[y->ndim - 2] != s->mels)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "log_mel: y is not [.., %llu, frames], as filters has it", ULL(s->mels));
    if (s->window / 2 >= s->samples)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "log_mel: audio has %llu samples, too few to mirror half a window of %llu",
                          ULL(s->samples), ULL(s->window));
    if (s->hop == 0 || (s->frames - 1) * s->hop + s->window > s->padded)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT,
                          "log_mel: y has %llu frames, at a hop of %llu audio has fewer", ULL(s->frames),
                          ULL(s->hop));
    return MICA_OK;
}

/* (max(x, greatest - 8) + 4) / 4, or log10(max(x, 1e-10)). */
void mica__log_mel_program(bool of_greatest, mica__region_program *p)
{
    const mica_register f32 = MICA_REGISTER_F32;
    mica__region_begin(p, of_greatest ? 2 : 1, 1);
    p->input[0] = f32;
    if (!of_greatest) {
        const uint8_t least = mica__region_constant(p, f32, (mica__scalar_value){.f32 = 1e-10f});
        const uint8_t kept = mica__region_step(p, MICA_SCALAR_MAX, f32, 0, least, NONE);
        p->output[0] = mica__region_step(p, MICA_SCALAR_LOG10, f32, kept, NONE, NONE);
        return;
    }
    p->input[1] = f32;
    const uint8_t eight = mica__region_constant(p, f32, (mica__scalar_value){.f32 = 8.0f});
    const uint8_t four = mica__region_constant(p, f32, (mica__scalar_value){.f32 = 4.0f});
    const uint8_t floor = mica__region_step(p, MICA_SCALAR_SUB, f32, 1, eight, NONE);
    const uint8_t kept = mica__region_step(p, MICA_SCALAR_MAX, f32, 0, floor, NONE);
    const uint8_t moved = mica__region_step(p, MICA_SCALAR_ADD, f32, kept, four, NONE);
    p->output[0] = mica__region_step(p, MICA_SCALAR_DIV, f32, moved, four, NONE);
}

static mica_status logarithm(mica_encoder *encoder, mica_buffer *x, mica_buffer *greatest, mica_buffer *y)
{
    static const char *const inputs[] = {"y", "work"}, *const outputs[] = {"y"};
    static const mica__region_names names = {"log_mel", inputs, outputs};
    mica__region_room room;
    mica__log_mel_program(greatest != NULL, &room.program);
    return mica__region_add(encoder, &names, &room.program, (mica_buffer *const[]){x, greatest},
                            greatest == NULL, &y);
}

enum { AUDIO, PADDED, FRAMES, WINDOWED, SPECTRUM, POWER, MEL, ROWS, GREATEST, VIEWS };

/* All that the steps read and write, as views of the operands and of `work`. */
static mica_status make_views(const mel_sizes *s, mica_buffer *audio, mica_buffer *work, mica_buffer *y,
                              mica_buffer **view)
{
    const uint64_t n = s->items, at_windowed = n * s->padded,
                   at_spectrum = (at_windowed + n * s->frames * s->window + 1) / 2 * 2;
    const uint64_t at_power = at_spectrum + 2 * n * s->frames * s->bins,
                   at_greatest = at_power + n * s->frames * s->bins;
    const uint64_t strides[] = {4 * s->padded, 4 * s->hop, 4};
#define VIEW(which, of, type, at, stride, ...)                                                              \
    MICA__TRY(mica_buffer_view(of, MICA_DTYPE_##type, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), \
                               (const uint64_t[]){__VA_ARGS__}, stride, 4 * (at), &view[which]))
    VIEW(AUDIO, audio, F32, 0, NULL, n, s->samples);
    VIEW(PADDED, work, F32, 0, NULL, n, s->padded);
    VIEW(FRAMES, work, F32, 0, strides, n, s->frames, s->window);
    VIEW(WINDOWED, work, F32, at_windowed, NULL, n, s->frames, s->window);
    VIEW(SPECTRUM, work, C64, at_spectrum, NULL, n, s->frames, s->bins);
    VIEW(POWER, work, F32, at_power, NULL, n, s->frames, s->bins);
    VIEW(MEL, y, F32, 0, NULL, n, s->mels, s->frames);
    VIEW(ROWS, y, F32, 0, NULL, n, s->mels * s->frames);
    VIEW(GREATEST, work, F32, at_greatest, NULL, n, 1);
#undef VIEW
    return MICA_OK;
}

/* mel [M, F] of each item: the frames' powers are the rows that the filters meet. */
static mica_status filter(mica_encoder *encoder, const mel_sizes *s, mica_buffer *filters, mica_buffer *power,
                          mica_buffer *mel)
{
    const mica_matmul_params exact = {MICA_PRECISION_F32};
    mica_status status = MICA_OK;
    for (uint64_t i = 0; i < s->items && status == MICA_OK; i++) {
        mica_buffer *from = NULL, *to = NULL;
        status = mica_buffer_view(power, MICA_DTYPE_F32, 2, (const uint64_t[]){s->frames, s->bins}, NULL,
                                  4 * i * s->frames * s->bins, &from);
        if (status == MICA_OK)
            status = mica_buffer_view(mel, MICA_DTYPE_F32, 2, (const uint64_t[]){s->mels, s->frames}, NULL,
                                      4 * i * s->mels * s->frames, &to);
        if (status == MICA_OK)
            status = mica_matmul(encoder, filters, from, &exact, to);
        mica_buffer_release(from);
        mica_buffer_release(to);
    }
    return status;
}

static mica_status add_steps(mica_encoder *encoder, const mel_sizes *s, mica_buffer *window,
                             mica_buffer *filters, mica_buffer *const *view)
{
    const int64_t side = (int64_t)(s->window / 2);
    const mica_pad_params mirror = {.mode = MICA_PAD_REFLECT, .low = {0, side}, .high = {0, side}};
    const mica_fft_params real = {.kind = MICA_FFT_REAL};
    const mica_reduce_params greatest = {.kind = MICA_REDUCE_MAX, .axes = 1, .keep_dims = 1};
    MICA__TRY(mica_pad(encoder, view[AUDIO], &mirror, view[PADDED]));
    MICA__TRY(mica_mul(encoder, view[FRAMES], window, view[WINDOWED]));
    MICA__TRY(mica_fft(encoder, view[WINDOWED], &real, view[SPECTRUM]));
    MICA__TRY(mica_complex_norm(encoder, view[SPECTRUM], view[POWER]));
    MICA__TRY(filter(encoder, s, filters, view[POWER], view[MEL]));
    MICA__TRY(logarithm(encoder, view[ROWS], NULL, view[ROWS]));
    MICA__TRY(mica_reduce(encoder, view[ROWS], &greatest, view[GREATEST]));
    return logarithm(encoder, view[ROWS], view[GREATEST], view[ROWS]);
}

mica_status mica_log_mel(mica_encoder *encoder, mica_buffer *audio, mica_buffer *window, mica_buffer *filters,
                         uint32_t hop, mica_buffer *work, mica_buffer *y)
{
    mel_sizes sizes = {.hop = hop};
    mica_buffer *view[VIEWS] = {NULL};
    MICA__TRY(check("audio", audio, 1));
    MICA__TRY(check("window", window, 1));
    MICA__TRY(check("filters", filters, 2));
    MICA__TRY(check("work", work, 1));
    MICA__TRY(check("y", y, 2));
    MICA__TRY(take_sizes(audio, window, filters, y, &sizes));
    uint64_t have = 1;
    for (uint32_t d = 0; d < work->ndim; d++)
        have *= work->shape[d];
    const uint64_t need = mica_log_mel_work(sizes.items, sizes.samples, sizes.window, sizes.frames);
    if (have < need)
        return mica__fail(MICA_ERR_INVALID_ARGUMENT, "log_mel: work has %llu elements, not %llu", ULL(have),
                          ULL(need));
    mica_status status = make_views(&sizes, audio, work, y, view);
    if (status == MICA_OK)
        status = add_steps(encoder, &sizes, window, filters, view);
    for (uint32_t v = 0; v < VIEWS; v++)
        mica_buffer_release(view[v]);
    return status;
}
