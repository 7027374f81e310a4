/* fuzz_region.c: any bytes are a description of a region and where its operands lie: each by itself, or all in one storage, strided, on the
 * very place of another or over a part of it, one place twice among the outputs. What is refused has a sentence that names a step, an
 * output or a count; what is accepted is taken by the device that computes nothing, and on the cpu gives the same bits one after the
 * other and joined with itself, by temporaries. */
#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "mica/mica.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        __builtin_trap();
}

/* Bytes in order, 0 behind the last. */
typedef struct reader {
    const uint8_t *data;
    size_t size;
} reader;

static uint8_t next(reader *r)
{
    if (r->size == 0)
        return 0;
    r->size--;
    return *r->data++;
}

/* Mostly values that are there, so that long programs come to be. */
static uint8_t next_value(reader *r, uint32_t there)
{
    const uint8_t byte = next(r);
    return byte < 0xe0 && there > 0 ? (uint8_t)(byte % there) : byte;
}

static void read_desc(reader *r, mica_region_desc *desc, mica_region_step *step)
{
    memset(desc, 0, sizeof *desc);
    desc->input_count = next(r) % (MICA_REGION_INPUTS + 2);
    desc->output_count = next(r) % (MICA_REGION_OUTPUTS + 2);
    desc->step_count = next(r) % (MICA_REGION_STEPS + 2);
    desc->step = step;
    for (uint32_t i = 0; i < MICA_REGION_INPUTS; i++)
        desc->input[i] = i < desc->input_count ? next(r) % (MICA_REGISTER_COUNT + 1) : 0;
    for (uint32_t s = 0; s < desc->step_count && s < MICA_REGION_STEPS; s++) {
        const uint32_t there = desc->input_count + s;
        const uint8_t none = next(r);
        memset(&step[s], 0, sizeof step[s]);
        step[s].scalar = (uint8_t)(next(r) % (MICA_SCALAR_COUNT + 2));
        step[s].type = (uint8_t)(next(r) % (MICA_REGISTER_COUNT + 1));
        for (uint32_t j = 0; j < 3; j++)
            step[s].value[j] = j < none % 4u ? next_value(r, there) : MICA_REGION_NONE;
        step[s].axis = none >> 4 == 3 ? next(r) : 0;
        for (uint32_t b = 0; step[s].scalar == MICA_SCALAR_CONSTANT && b < 4; b++)
            ((uint8_t *)&step[s].constant)[b] = next(r);
    }
    for (uint32_t o = 0; o < MICA_REGION_OUTPUTS; o++) {
        desc->output[o] = next_value(r, desc->input_count + desc->step_count);
        desc->output_imag[o] =
            next(r) % 8 == 0 ? next_value(r, desc->input_count + desc->step_count) : MICA_REGION_NONE;
    }
}

static uint8_t type_of(const mica_region_desc *desc, uint32_t value)
{
    return value < desc->input_count ? desc->input[value] : desc->step[value - desc->input_count].type;
}

/* A dtype of the register type; `turn` chooses. */
static mica_dtype dtype_for(uint8_t type, uint8_t turn)
{
    for (uint32_t i = 0; i < 2 * MICA_DTYPE_COUNT; i++) {
        const mica_dtype dtype = (mica_dtype)((turn + i) % MICA_DTYPE_COUNT);
        if (dtype != MICA_DTYPE_C64 && mica_register_of(dtype) == (mica_register)type)
            return dtype;
    }
    return MICA_DTYPE_F32;
}

#define OPERANDS (MICA_REGION_INPUTS + MICA_REGION_OUTPUTS)
#define ROOM ((uint64_t)1 << 14) /* bytes of an operand in the storage that all share */
#define STORAGE ((OPERANDS + 1) * ROOM)

/* Where an operand lies. */
typedef struct place {
    mica_dtype dtype;
    uint32_t ndim;
    uint64_t shape[3], stride[3], offset; /* bytes */
} place;

/* Sizes of outputs are those of `shape`; of inputs the last of them, where they repeat. */
static void read_place(reader *r, const mica_region_desc *desc, uint32_t i, uint32_t ndim,
                       const uint64_t *shape, uint8_t turn, place *places)
{
    const int input = i < desc->input_count,
              pair = !input && desc->output_imag[i - desc->input_count] != MICA_REGION_NONE;
    const uint8_t type = input ? desc->input[i] : type_of(desc, desc->output[i - desc->input_count]);
    const uint32_t less = input ? next(r) % ndim : 0;
    place *p = &places[i];
    p->dtype = dtype_for(type, (uint8_t)(turn + i));
    if (pair || (input && type == MICA_REGISTER_F32 && turn % 4 == 0))
        p->dtype = MICA_DTYPE_C64;
    p->ndim = ndim - less;
    const uint8_t how = next(r), whose = next(r);
    const uint64_t unit = mica_dtype_block_bytes(p->dtype);
    uint64_t step = unit * (1 + how % 4u / 3); /* every second element, now and then */
    p->offset = i * ROOM;
    for (uint32_t d = 0; d < p->ndim; d++) {
        const uint32_t at = how & 16 ? d : p->ndim - 1 - d; /* the first dimension is the fastest */
        p->shape[at] = shape[less + at];
        p->stride[at] = step;
        step *= p->shape[at];
    }
    if (input && (how & 32) != 0) /* repeats */
        p->stride[whose % p->ndim] = 0;
    if (i == 0 || (how & 192) == 0)
        return;
    /* Where an earlier one lies, or a few elements behind it; or the very place of an earlier one. */
    const place *other = &places[whose % i];
    p->offset = (other->offset + ((how & 192) == 64 ? how & 15 : 0) * unit) / unit * unit;
    if ((how & 192) == 192 && other->ndim == p->ndim && other->dtype == p->dtype)
        *p = *other;
}

static int is_nan(mica_dtype dtype, const uint8_t *at)
{
    uint16_t half;
    float f32;
    double f64;
    switch (dtype) {
    case MICA_DTYPE_F64: memcpy(&f64, at, sizeof f64); return isnan(f64);
    case MICA_DTYPE_F32:
    case MICA_DTYPE_C64: memcpy(&f32, at, sizeof f32); return isnan(f32);
    case MICA_DTYPE_F16: memcpy(&half, at, sizeof half); return (half & 0x7fff) > 0x7c00;
    case MICA_DTYPE_BF16: memcpy(&half, at, sizeof half); return (half & 0x7fff) > 0x7f80;
    case MICA_DTYPE_F8_E4M3: return (*at & 0x7f) == 0x7f;
    case MICA_DTYPE_F8_E5M2: return (*at & 0x7f) > 0x7c;
    case MICA_DTYPE_E8M0: return *at == 0xff;
    default: return 0;
    }
}

/* Every NaN of the output becomes the same one: which it is, nobody promises. */
static void settle_nan(const place *p, uint8_t *bytes)
{
    const uint64_t whole = mica_dtype_block_bytes(p->dtype), unit = p->dtype == MICA_DTYPE_C64 ? 4 : whole;
    uint64_t count = 1;
    for (uint32_t d = 0; d < p->ndim; d++)
        count *= p->shape[d];
    for (uint64_t e = 0; e < count; e++) {
        uint64_t at = p->offset, rest = e;
        for (uint32_t d = p->ndim; d-- > 0; rest /= p->shape[d])
            at += rest % p->shape[d] * p->stride[d];
        for (uint64_t part = 0; part < whole; part += unit)
            if (is_nan(p->dtype, bytes + at + part))
                memset(bytes + at + part, 0xff, unit);
    }
}

/* What lies between the two: values of the first that the second reads in place of inputs like them. */
static void make_between(mica_device *device, mica_session *session, const mica_region_desc *desc,
                         const place *places, mica_buffer **between)
{
    for (uint32_t o = 0; o < desc->output_count; o++) {
        const place *p = &places[desc->input_count + o];
        require((session != NULL
                     ? mica_session_temp(session, p->dtype, p->ndim, p->shape, &between[o])
                     : mica_buffer_alloc(device, p->dtype, p->ndim, p->shape, &between[o])) == MICA_OK);
    }
}

static mica_buffer *input_of_second(const mica_region_desc *desc, const place *places,
                                    mica_buffer *const *view, mica_buffer *const *between, uint32_t i)
{
    for (uint32_t k = 0; k < desc->output_count; k++) {
        const uint32_t o = (i + k) % desc->output_count;
        const place *p = &places[desc->input_count + o];
        if (p->dtype == places[i].dtype && p->ndim == places[i].ndim &&
            memcmp(p->shape, places[i].shape, sizeof p->shape) == 0)
            return between[o];
    }
    return view[i];
}

/* The region, then the region of what it gave, one after the other in order, or `joined`. What it makes of `bytes` is left there; 0: it was
 * refused. */
static int run(mica_device *device, const mica_region *region, const mica_region_desc *desc,
               const place *places, int joined, uint8_t *bytes)
{
    mica_buffer *storage, *view[OPERANDS], *second[MICA_REGION_INPUTS] = {NULL},
                                           *between[MICA_REGION_OUTPUTS];
    mica_session *session = NULL;
    mica_encoder *encoder = NULL;
    const uint32_t inputs = desc->input_count, count = inputs + desc->output_count;
    mica_status status = MICA_OK;
    require(mica_buffer_alloc(device, MICA_DTYPE_U8, 1, (uint64_t[]){STORAGE}, &storage) == MICA_OK);
    require(mica_buffer_write(storage, 0, bytes, STORAGE) == MICA_OK);
    for (uint32_t i = 0; i < count; i++)
        require(mica_buffer_view(storage, places[i].dtype, places[i].ndim, places[i].shape, places[i].stride,
                                 places[i].offset, &view[i]) == MICA_OK);
    if (joined)
        require(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session) == MICA_OK);
    make_between(device, session, desc, places, between);
    for (uint32_t i = 0; i < inputs; i++)
        second[i] = input_of_second(desc, places, view, between, i);
    for (int again = 0; again < 2 && status == MICA_OK; again++) {
        if (!joined)
            require(mica_encoder_begin(device, NULL, &encoder) == MICA_OK);
        status = mica_region_apply(joined ? mica_session_encoder(session) : encoder, region,
                                   again ? second : view, again ? view + inputs : between);
        require(status == MICA_OK ||
                (status == MICA_ERR_INVALID_ARGUMENT && mica_status_message()[0] != '\0'));
        if (!joined && status == MICA_OK)
            require(mica_encoder_commit_and_wait(encoder) == MICA_OK);
        mica_encoder_release(encoder);
        encoder = NULL;
    }
    if (joined)
        require(mica_session_finish(session, MICA_FINISH_ALL, NULL) == MICA_OK);
    require(mica_buffer_read(storage, 0, bytes, STORAGE) == MICA_OK);
    for (uint32_t o = 0; o < desc->output_count; o++)
        mica_buffer_release(between[o]);
    mica_session_release(session);
    for (uint32_t i = 0; i < count; i++)
        mica_buffer_release(view[i]);
    mica_buffer_release(storage);
    for (uint32_t i = inputs; i < count && status == MICA_OK; i++)
        settle_nan(&places[i], bytes);
    return status == MICA_OK;
}

/* Numbers of about 1 and small ones, none of which is NaN in any type. */
static void fill(uint8_t *bytes, uint32_t seed)
{
    for (uint64_t i = 0; i < STORAGE; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 26);
    }
}

/* `bits` shows which NaN it is. */
static int shows_nan(const mica_region_desc *desc)
{
    for (uint32_t s = 0; s < desc->step_count; s++)
        if (desc->step[s].scalar == MICA_SCALAR_BITS)
            return 1;
    return 0;
}

static void apply(mica_device *const *devices, const mica_region_desc *desc, const mica_region *region,
                  reader r)
{
    static uint8_t one[STORAGE], other[STORAGE];
    const uint64_t shape[3] = {1 + next(&r) % 4u, 1 + next(&r) % 5u, 1 + next(&r) % 40u};
    const uint32_t ndim = 1 + next(&r) % 3u, count = desc->input_count + desc->output_count;
    const uint8_t turn = next(&r), apart = next(&r) % 2;
    place places[OPERANDS];
    memset(places, 0, sizeof places);
    for (uint32_t i = 0; i < count; i++) {
        read_place(&r, desc, i, ndim, shape + 3 - ndim, turn, places);
        places[i].offset = apart ? i * ROOM : places[i].offset;
    }
    fill(one, turn + 1u);
    fill(other, turn + 1u);
    (void)run(devices[0], region, desc, places, 1, other);
    fill(other, turn + 1u);
    const int in_order = run(devices[1], region, desc, places, 0, one);
    require(run(devices[1], region, desc, places, 1, other) == in_order);
    require(!in_order || shows_nan(desc) || memcmp(one, other, STORAGE) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mica_device *devices[2];
    mica_region_desc desc;
    mica_region_step step[MICA_REGION_STEPS];
    mica_region *region = NULL;
    reader r = {data, size};
    if (devices[0] == NULL) {
        const mica_device_options options = {.size = sizeof options, .threads = 1};
        require(mica_device_open("null", NULL, &devices[0]) == MICA_OK);
        require(mica_device_open("cpu", &options, &devices[1]) == MICA_OK);
    }
    read_desc(&r, &desc, step);
    if (mica_region_create(&desc, &region) == MICA_OK) {
        apply(devices, &desc, region, r);
    } else {
        const char *why = mica_status_message();
        require(region == NULL && (strstr(why, "step ") != NULL || strstr(why, "put") != NULL ||
                                   strstr(why, "_count") != NULL));
    }
    mica_region_release(region);
    return 0;
}
