/* fuzz_region.c: any bytes are a description of a region and the shapes of its operands. What is refused has a sentence that
 * names a step, an output or a count; what is accepted runs on the cpu and is taken by the device that computes nothing,
 * alone and joined with itself. */
#include <stddef.h>
#include <stdint.h>
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

static void apply(mica_device *device, const mica_region_desc *desc, const mica_region *region, reader r)
{
    mica_buffer *buffer[MICA_REGION_INPUTS + MICA_REGION_OUTPUTS] = {NULL};
    mica_session *session = NULL;
    uint64_t shape[3] = {1 + next(&r) % 4u, 1 + next(&r) % 9u, 1 + next(&r) % 70u};
    const uint32_t ndim = 1 + next(&r) % 3u, count = desc->input_count + desc->output_count;
    const uint8_t turn = next(&r);
    for (uint32_t i = 0; i < count; i++) {
        const int input = i < desc->input_count,
                  pair = !input && desc->output_imag[i - desc->input_count] != MICA_REGION_NONE;
        const uint8_t type = input ? desc->input[i] : type_of(desc, desc->output[i - desc->input_count]);
        const uint32_t less = input ? next(&r) % ndim : 0;
        mica_dtype dtype = dtype_for(type, (uint8_t)(turn + i));
        if (pair || (input && type == MICA_REGISTER_F32 && turn % 4 == 0))
            dtype = MICA_DTYPE_C64;
        require(mica_buffer_alloc(device, dtype, ndim - less, shape + less, &buffer[i]) == MICA_OK);
    }
    require(mica_session_begin(device, NULL, MICA_SESSION_RECORD, &session) == MICA_OK);
    for (int again = 0; again < 2; again++) {
        const mica_status status =
            mica_region_apply(mica_session_encoder(session), region, buffer, buffer + desc->input_count);
        require(status == MICA_OK ||
                (status == MICA_ERR_INVALID_ARGUMENT && mica_status_message()[0] != '\0'));
    }
    require(mica_session_finish(session, MICA_FINISH_ALL, NULL) == MICA_OK);
    mica_session_release(session);
    for (uint32_t i = 0; i < count; i++)
        mica_buffer_release(buffer[i]);
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
        for (int d = 0; d < 2; d++)
            apply(devices[d], &desc, region, r);
    } else {
        const char *why = mica_status_message();
        require(region == NULL && (strstr(why, "step ") != NULL || strstr(why, "put") != NULL ||
                                   strstr(why, "_count") != NULL));
    }
    mica_region_release(region);
    return 0;
}
