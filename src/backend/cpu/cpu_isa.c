/*
 * cpu_isa.c - which compiled form of the kernels this machine can run.
 *
 * The build says which forms exist (MICA_HAVE_*), cpuid and the operating system which of them may run.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/env.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define FEATURE_AVX2 1u   /* with FMA and F16C */
#define FEATURE_AVX512 2u /* F, BW, DQ, VL, VNNI */

#if defined(__x86_64__)

/* The register sets that the operating system saves: XCR0. */
static uint64_t saved_registers(void)
{
    uint32_t low, high;
    __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_all(uint32_t word, uint32_t bits)
{
    return (word & bits) == bits;
}

static uint32_t detect(void)
{
    const uint64_t ymm = 0x6, zmm = 0xe6; /* XMM and YMM state; these and opmask, ZMM */
    uint32_t a, b, c, d, features = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return 0;
    const uint64_t saved = saved_registers();
    if ((saved & ymm) != ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, bit_AVX2))
        return 0;
    features |= FEATURE_AVX2;
    if ((saved & zmm) == zmm && has_all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) &&
        has_all(c, bit_AVX512VNNI))
        features |= FEATURE_AVX512;
    return features;
}

void mica__cpu_isa_processor(char *name, size_t bytes)
{
    uint32_t text[12];
    snprintf(name, bytes, "x86-64 processor");
    if ((uint32_t)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u)
        return;
    for (uint32_t i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &text[4 * i], &text[4 * i + 1], &text[4 * i + 2], &text[4 * i + 3]);
    char brand[sizeof text + 1] = {0};
    memcpy(brand, text, sizeof text);
    const char *start = brand + strspn(brand, " ");
    if (*start != '\0')
        snprintf(name, bytes, "%s", start);
}

#else

static uint32_t detect(void)
{
    return 0;
}

void mica__cpu_isa_processor(char *name, size_t bytes)
{
#if defined(__aarch64__)
    snprintf(name, bytes, "arm64 processor");
#else
    snprintf(name, bytes, "processor");
#endif
}

#endif

extern const mica__cpu_kernel mica__cpu_table__portable[];
#if defined(MICA_HAVE_AVX2)
extern const mica__cpu_kernel mica__cpu_table__avx2[];
#endif
#if defined(MICA_HAVE_AVX512)
extern const mica__cpu_kernel mica__cpu_table__avx512[];
#endif

/* Worst first: the last one that can run is the default. */
static const struct {
    const char *name;
    const mica__cpu_kernel *table;
    uint32_t features;
} isas[] = {
    {"portable", mica__cpu_table__portable, 0},
#if defined(MICA_HAVE_AVX2)
    {"avx2", mica__cpu_table__avx2, FEATURE_AVX2},
#endif
#if defined(MICA_HAVE_AVX512)
    {"avx512", mica__cpu_table__avx512, FEATURE_AVX2 | FEATURE_AVX512},
#endif
};
#define ISA_COUNT ((uint32_t)(sizeof isas / sizeof isas[0]))

mica_status mica__cpu_isa_choose(const char *name, uint32_t *out_isa)
{
    const uint32_t features = detect();
    const char *wanted = name[0] != '\0' ? name : mica__env_get()->cpu_isa;
    char known[64] = "";
    *out_isa = 0;
    for (uint32_t i = ISA_COUNT; i-- > 0;) {
        const bool runs = (isas[i].features & ~features) == 0;
        if (wanted[0] == '\0' ? runs : strcmp(wanted, isas[i].name) == 0) {
            *out_isa = i;
            if (runs)
                return MICA_OK;
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "isa: \"%s\" asked for, but this processor does not have it", wanted);
        }
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used == 0 ? "" : ", ", isas[i].name);
    }
    return mica__fail(MICA_ERR_UNSUPPORTED, "isa: \"%s\" is unknown, expected one of %s", wanted, known);
}

const char *mica__cpu_isa_name(uint32_t isa)
{
    return isas[isa].name;
}

const mica__cpu_kernel *mica__cpu_isa_table(uint32_t isa)
{
    return isas[isa].table;
}
