/* isa.c: cpuid, the registers that the operating system saves, and what the build compiled (MICA_HAVE_*). */
#include "base/isa.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct {
    const char *name;
    bool built;
} isas[MICA__ISA_COUNT] = {
    [MICA__ISA_PORTABLE] = {"portable", true},
#if defined(MICA_HAVE_AVX2)
    [MICA__ISA_AVX2] = {"avx2", true},
#else
    [MICA__ISA_AVX2] = {"avx2", false},
#endif
#if defined(MICA_HAVE_AVX512)
    [MICA__ISA_AVX512] = {"avx512", true},
#else
    [MICA__ISA_AVX512] = {"avx512", false},
#endif
};

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

/* One bit per instruction set. */
static uint32_t detect(void)
{
    const uint64_t ymm = 0x6, zmm = 0xe6; /* XMM and YMM state; these and opmask, ZMM */
    uint32_t a, b, c, d, found = 1u << MICA__ISA_PORTABLE;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return found;
    const uint64_t saved = saved_registers();
    if ((saved & ymm) != ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_all(b, bit_AVX2))
        return found;
    found |= 1u << MICA__ISA_AVX2;
    if ((saved & zmm) == zmm && has_all(b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL) &&
        has_all(c, bit_AVX512VNNI))
        found |= 1u << MICA__ISA_AVX512;
    return found;
}

void mica__isa_processor(char *name, size_t bytes)
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
    return 1u << MICA__ISA_PORTABLE;
}

void mica__isa_processor(char *name, size_t bytes)
{
#if defined(__aarch64__)
    snprintf(name, bytes, "arm64 processor");
#else
    snprintf(name, bytes, "processor");
#endif
}

#endif

static uint32_t machine(void)
{
    static _Atomic uint32_t known;
    uint32_t found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found == 0) { /* not asked yet; two threads may both ask, they find the same */
        found = detect();
        atomic_store_explicit(&known, found, memory_order_relaxed);
    }
    return found;
}

const char *mica__isa_name(mica__isa isa)
{
    return isas[isa].name;
}

bool mica__isa_built(mica__isa isa)
{
    return (uint32_t)isa < MICA__ISA_COUNT && isas[isa].built;
}

bool mica__isa_runs(mica__isa isa)
{
    return mica__isa_built(isa) && (machine() >> (uint32_t)isa & 1) != 0;
}

mica__isa mica__isa_best(void)
{
    uint32_t isa = MICA__ISA_COUNT - 1;
    while (!mica__isa_runs((mica__isa)isa)) /* portable always runs */
        isa--;
    return (mica__isa)isa;
}
