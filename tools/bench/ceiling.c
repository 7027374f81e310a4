/*
 * ceiling.c - two kernels of our own: one that only reads, one that only multiplies and adds.
 *
 * They are compiled for the instruction sets that the cpu device may choose, and the one whose name the device gives is
 * used, so that an op is compared with what its own instructions could reach.
 */
#include "bench/ceiling.h"

#include <string.h>

#include "terminal/output.h"
#include "bench/weights.h"

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

/* The same two for GPUs, in the dialect of docs/kernels.md. Each group reads its own run of 16-byte words, several
 * groups' worth in flight; what it finds is stored only if it is a certain number, which no compiler can rule out. */
#define GPU_READ_BYTES ((uint64_t)1 << 30)
#define GPU_GROUPS 8192u
#define GPU_CHAINS 16u
#define GPU_STEPS 4096u
#define GPU_ITEMS 256u

static const char gpu_text[] =
    "typedef struct tool_params { mk_u64 words; mk_u32 steps, pad; } tool_params;\n"
    "MK_KERNEL(tool_read) MK_RO(x), MK_OUT(y), MK_PARAM(tool_params, p) MK_END\n"
    "{\n"
    "    MK_BIND(x);\n"
    "    MK_BIND(y);\n"
    "    mk_u32 sum = 0u;\n"
    "    const mk_u64 from = MK_GROUP_X * p.words + MK_LID;\n"
    "    for (mk_u64 i = 0; i < p.words; i += 4u * MK_WG) {\n"
    "        const mk_u32x4 a = mk_ld4_u32(x, 16u * (from + i)), b = mk_ld4_u32(x, 16u * (from + i + "
    "MK_WG));\n"
    "        const mk_u32x4 c = mk_ld4_u32(x, 16u * (from + i + 2u * MK_WG));\n"
    "        const mk_u32x4 d = mk_ld4_u32(x, 16u * (from + i + 3u * MK_WG));\n"
    "        sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) +\n"
    "               (d.x ^ d.y ^ d.z ^ d.w);\n"
    "    }\n"
    "    if (sum == 0x9e3779b9u)\n"
    "        mk_st_u32(y, 0, sum);\n"
    "}\n"
    "MK_KERNEL(tool_fma) MK_RO(x), MK_OUT(y), MK_PARAM(tool_params, p) MK_END\n"
    "{\n"
    "    MK_BIND(x);\n"
    "    MK_BIND(y);\n"
    "    const mk_f32 factor = 0.999f + mk_ld_f32(x, 0) * 1e-30f;\n"
    "    mk_f32 sum[16], all = 0.0f;\n"
    "    MK_UNROLL\n"
    "    for (mk_u32 c = 0; c < 16u; c++)\n"
    "        sum[c] = (mk_f32)(MK_LID + c);\n"
    "    for (mk_u32 i = 0; i < p.steps; i++) {\n"
    "        MK_UNROLL\n"
    "        for (mk_u32 c = 0; c < 16u; c++)\n"
    "            sum[c] = mk_fma(sum[c], factor, 0.5f);\n"
    "    }\n"
    "    MK_UNROLL\n"
    "    for (mk_u32 c = 0; c < 16u; c++)\n"
    "        all += sum[c];\n"
    "    if (all == 12345.678f)\n"
    "        mk_st_f32(y, 0, all);\n"
    "}\n";

typedef struct gpu_params {
    uint64_t words; /* of 16 bytes, a group */
    uint32_t steps, pad;
} gpu_params;

/* Best time of the rounds that fit, in seconds by the device's own clock. `dispatch` lacks its kernel. */
static mica_status best_time(mica_device *device, const mica_kernel_desc *desc, mica_dispatch_desc dispatch,
                             double *out_seconds)
{
    mica_kernel *kernel = NULL;
    TOOL_TRY(mica_kernel_register(device, desc));
    TOOL_TRY(mica_kernel_get(device, desc->name, NULL, 0, &kernel));
    dispatch.kernel = kernel;
    mica_status status = MICA_OK;
    *out_seconds = 1e9;
    uint64_t until = tool_clock_ns() + MEASURE_NS;
    for (int round = 0; status == MICA_OK && (round < LEAST_ROUNDS || tool_clock_ns() < until); round++) {
        mica_encoder *encoder = NULL;
        mica_fence *fence = NULL;
        uint64_t begin = 0, end = 0;
        status = mica_encoder_begin(device, NULL, &encoder);
        if (status == MICA_OK)
            status = mica_encoder_dispatch(encoder, &dispatch);
        if (status == MICA_OK)
            status = mica_encoder_commit(encoder, &fence);
        if (status == MICA_OK)
            status = mica_fence_wait(fence, MICA_WAIT_FOREVER);
        if (status == MICA_OK)
            status = mica_fence_times(fence, &begin, &end);
        double seconds = (double)(end - begin) * 1e-9;
        *out_seconds = seconds < *out_seconds ? seconds : *out_seconds;
        mica_fence_release(fence);
        mica_encoder_release(encoder);
    }
    mica_kernel_release(kernel);
    return status;
}

static mica_status measure_cpu(mica_device *device, const mica_device_properties *p, tool_ceilings *out)
{
    mica_buffer *memory = NULL;
    uint64_t words = READ_BYTES / 4;
    double read_s = 0, fma_s = 0;
    const ceiling_row *row = rows;
    while (row->isa[0] != '\0' && strstr(p->driver, row->isa) == NULL)
        row++;
    const uint32_t pieces = p->threads * 64;
    TOOL_TRY(tool_constant_create(device, MICA_DTYPE_F32, 1, &words, 1, &memory));
    const mica_binding binding = {memory, MICA_ACCESS_READ};
    mica_dispatch_desc dispatch = {
        .groups = {(uint32_t)(READ_BYTES / PIECE_BYTES), 1, 1}, .bindings = &binding, .binding_count = 1};
    const mica_kernel_desc read = {.name = "tool_read", .host = row->read},
                           fma = {.name = "tool_fma", .host = row->fma};
    mica_status status = best_time(device, &read, dispatch, &read_s);
    dispatch.groups[0] = pieces;
    if (status == MICA_OK)
        status = best_time(device, &fma, dispatch, &fma_s);
    mica_buffer_release(memory);
    out->read_gbs = (double)READ_BYTES / read_s * 1e-9;
    out->gflops = 2.0 * CHAINS * row->lanes * STEPS * pieces / fma_s * 1e-9;
    return status;
}

static mica_status measure_gpu(mica_device *device, const mica_device_properties *p, tool_ceilings *out)
{
    mica_buffer *memory = NULL, *sink = NULL;
    const uint64_t all = GPU_READ_BYTES < p->total_memory / 8 ? GPU_READ_BYTES : p->total_memory / 8;
    const uint64_t group = all / GPU_GROUPS / (64 * GPU_ITEMS) * (64 * GPU_ITEMS), bytes = group * GPU_GROUPS;
    const uint64_t words = bytes / 4, one = 4;
    double read_s = 0, fma_s = 0;
    gpu_params params = {group / 16, GPU_STEPS, 0};
    TOOL_TRY(tool_constant_create(device, MICA_DTYPE_F32, 1, &words, 1, &memory));
    mica_status status = mica_buffer_alloc(device, MICA_DTYPE_F32, 1, &one, &sink);
    const mica_binding bindings[] = {{memory, MICA_ACCESS_READ}, {sink, MICA_ACCESS_WRITE}};
    const mica_dispatch_desc dispatch = {.groups = {GPU_GROUPS, 1, 1},
                                         .local = {GPU_ITEMS, 1, 1},
                                         .bindings = bindings,
                                         .binding_count = 2,
                                         .params = &params,
                                         .params_size = sizeof params};
    const mica_kernel_desc read = {.name = "tool_read", .source = gpu_text},
                           fma = {.name = "tool_fma", .source = gpu_text};
    if (status == MICA_OK)
        status = best_time(device, &read, dispatch, &read_s);
    if (status == MICA_OK)
        status = best_time(device, &fma, dispatch, &fma_s);
    mica_buffer_release(memory);
    mica_buffer_release(sink);
    out->read_gbs = (double)bytes / read_s * 1e-9;
    out->gflops = 2.0 * GPU_CHAINS * GPU_STEPS * GPU_ITEMS * GPU_GROUPS / fma_s * 1e-9;
    return status;
}

mica_status tool_ceilings_measure(mica_device *device, tool_ceilings *out)
{
    mica_device_properties p;
    TOOL_TRY(mica_device_get_properties(device, &p));
    return p.threads > 0 ? measure_cpu(device, &p, out) : measure_gpu(device, &p, out);
}
