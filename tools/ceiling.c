/*
 * ceiling.c - two kernels of our own: one that only reads, one that only multiplies and adds.
 *
 * They are compiled for the instruction sets that the cpu device may choose, and the one whose name the device gives is
 * used, so that an op is compared with what its own instructions could reach.
 */
#include "ceiling.h"

#include <string.h>

#include "output.h"
#include "weights.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define READ_BYTES ((uint64_t)256 << 20)
#define PIECE_BYTES ((uint64_t)1 << 20)
#define CHAINS 12 /* independent sums: enough to hide the latency of one multiply-add on two ports */
#define STEPS 20000u
#define MEASURE_NS 400000000u
#define LEAST_ROUNDS 3

/* Plain C: the compiler makes vectors of it for the instruction set of the enclosing function. */
static inline __attribute__((always_inline)) void read_pieces(const mica_host_binding *bindings,
                                                              uint32_t first, uint32_t last)
{
    volatile uint64_t sink; /* a result that must be stored: no compiler drops the work */
    uint64_t sum[8] = {0};
    for (uint32_t piece = first; piece < last; piece++) {
        const uint64_t *words = (const uint64_t *)((const char *)bindings[0].data + piece * PIECE_BYTES);
        for (uint64_t i = 0; i < PIECE_BYTES / 8; i += 8)
            for (int lane = 0; lane < 8; lane++)
                sum[lane] += words[i + (uint64_t)lane];
    }
    for (int lane = 0; lane < 8; lane++)
        sink = sum[lane];
    (void)sink;
}

static void read_portable(const mica_host_binding *bindings, uint32_t count, const void *params,
                          uint32_t first, uint32_t last)
{
    (void)count, (void)params;
    read_pieces(bindings, first, last);
}

static void fma_portable(const mica_host_binding *bindings, uint32_t count, const void *params,
                         uint32_t first, uint32_t last)
{
    (void)bindings, (void)count, (void)params;
    volatile float sink;
    float sum[CHAINS * 4];
    for (int c = 0; c < CHAINS * 4; c++)
        sum[c] = (float)c;
    for (uint64_t i = 0; i < (uint64_t)(last - first) * STEPS; i++)
        for (int c = 0; c < CHAINS * 4; c++)
            sum[c] = sum[c] * 0.999f + 0.5f;
    for (int c = 0; c < CHAINS * 4; c++)
        sink = sum[c];
    (void)sink;
}

/* One chain loop for a vector type: name, target, type, set, multiply-add, first lane. */
#define FMA_KERNEL(name, target, vector, set, multiply_add, lane)                                  \
    target static void name(const mica_host_binding *bindings, uint32_t count, const void *params, \
                            uint32_t first, uint32_t last)                                         \
    {                                                                                              \
        (void)bindings, (void)count, (void)params;                                                 \
        volatile float sink;                                                                       \
        vector sum[CHAINS], factor = set(0.999f), term = set(0.5f);                                \
        for (int c = 0; c < CHAINS; c++)                                                           \
            sum[c] = set((float)c);                                                                \
        for (uint64_t i = 0; i < (uint64_t)(last - first) * STEPS; i++)                            \
            for (int c = 0; c < CHAINS; c++)                                                       \
                sum[c] = multiply_add(sum[c], factor, term);                                       \
        for (int c = 0; c < CHAINS; c++)                                                           \
            sink = lane(sum[c]);                                                                   \
        (void)sink;                                                                                \
    }

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,fma")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
FMA_KERNEL(fma_avx2, AVX2, __m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_cvtss_f32)
FMA_KERNEL(fma_avx512, AVX512, __m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_cvtss_f32)

AVX2 static void read_avx2(const mica_host_binding *bindings, uint32_t count, const void *params,
                           uint32_t first, uint32_t last)
{
    (void)count, (void)params;
    read_pieces(bindings, first, last);
}
#elif defined(__aarch64__)
#define NEON_FMA(sum, factor, term) vfmaq_f32(term, sum, factor)
#define NEON_LANE(v) vgetq_lane_f32(v, 0)
FMA_KERNEL(fma_neon, , float32x4_t, vdupq_n_f32, NEON_FMA, NEON_LANE)
#endif

typedef struct ceiling_row {
    const char *isa; /* as the device names it; "" fits all */
    uint32_t lanes;
    mica_host_kernel read, fma;
} ceiling_row;

static const ceiling_row rows[] = {
#if defined(__x86_64__)
    {"avx512", 16, read_avx2, fma_avx512},
    {"avx2", 8, read_avx2, fma_avx2},
#elif defined(__aarch64__)
    {"neon", 4, read_portable, fma_neon},
#endif
    {"", 4, read_portable, fma_portable},
};

/* Best time of the rounds that fit, in seconds. */
static mica_status best_time(mica_device *device, const char *name, mica_host_kernel function,
                             mica_buffer *buffer, uint32_t groups, double *out_seconds)
{
    mica_kernel_desc desc = {.name = name, .host = function};
    mica_kernel *kernel = NULL;
    mica_binding binding = {buffer, MICA_ACCESS_READ};
    TOOL_TRY(mica_kernel_register(device, &desc));
    TOOL_TRY(mica_kernel_get(device, name, NULL, 0, &kernel));
    mica_dispatch_desc dispatch = {
        .kernel = kernel, .groups = {groups, 1, 1}, .bindings = &binding, .binding_count = 1};
    mica_status status = MICA_OK;
    *out_seconds = 1e9;
    uint64_t until = tool_clock_ns() + MEASURE_NS;
    for (int round = 0; status == MICA_OK && (round < LEAST_ROUNDS || tool_clock_ns() < until); round++) {
        mica_encoder *encoder = NULL;
        status = mica_encoder_begin(device, NULL, &encoder);
        if (status == MICA_OK)
            status = mica_encoder_dispatch(encoder, &dispatch);
        uint64_t start = tool_clock_ns();
        if (status == MICA_OK)
            status = mica_encoder_commit_and_wait(encoder);
        double seconds = (double)(tool_clock_ns() - start) * 1e-9;
        *out_seconds = seconds < *out_seconds ? seconds : *out_seconds;
        mica_encoder_release(encoder);
    }
    mica_kernel_release(kernel);
    return status;
}

mica_status tool_ceilings_measure(mica_device *device, tool_ceilings *out)
{
    mica_device_properties p;
    mica_buffer *memory = NULL;
    uint64_t words = READ_BYTES / 4;
    double read_s = 0, fma_s = 0;
    TOOL_TRY(mica_device_get_properties(device, &p));
    const ceiling_row *row = rows;
    while (row->isa[0] != '\0' && strstr(p.driver, row->isa) == NULL)
        row++;
    uint32_t pieces = p.threads * 64;
    TOOL_TRY(tool_constant_create(device, MICA_DTYPE_F32, 1, &words, 1, &memory));
    mica_status status =
        best_time(device, "tool_read", row->read, memory, (uint32_t)(READ_BYTES / PIECE_BYTES), &read_s);
    if (status == MICA_OK)
        status = best_time(device, "tool_fma", row->fma, memory, pieces, &fma_s);
    mica_buffer_release(memory);
    out->read_gbs = (double)READ_BYTES / read_s * 1e-9;
    out->gflops = 2.0 * CHAINS * row->lanes * STEPS * pieces / fma_s * 1e-9;
    return status;
}
