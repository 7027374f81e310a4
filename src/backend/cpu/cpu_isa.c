/* cpu_isa.c - the kernel table of each instruction set, and which one a device uses. */
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/env.h"
#include "base/isa.h"

extern const mica__cpu_kernel mica__cpu_table__portable[];
#if defined(MICA_HAVE_AVX2)
extern const mica__cpu_kernel mica__cpu_table__avx2[];
#endif
#if defined(MICA_HAVE_AVX512)
extern const mica__cpu_kernel mica__cpu_table__avx512[];
#endif

static const mica__cpu_kernel *const tables[MICA__ISA_COUNT] = {
    [MICA__ISA_PORTABLE] = mica__cpu_table__portable,
#if defined(MICA_HAVE_AVX2)
    [MICA__ISA_AVX2] = mica__cpu_table__avx2,
#endif
#if defined(MICA_HAVE_AVX512)
    [MICA__ISA_AVX512] = mica__cpu_table__avx512,
#endif
};

mica_status mica__cpu_isa_choose(const char *name, uint32_t *out_isa)
{
    const char *wanted = name[0] != '\0' ? name : mica__env_get()->cpu_isa;
    char known[64] = "";
    *out_isa = mica__isa_best();
    if (wanted[0] == '\0')
        return MICA_OK;
    for (uint32_t i = MICA__ISA_COUNT; i-- > 0;) {
        const mica__isa isa = (mica__isa)i;
        if (!mica__isa_built(isa))
            continue;
        if (strcmp(wanted, mica__isa_name(isa)) == 0) {
            *out_isa = i;
            if (mica__isa_runs(isa))
                return MICA_OK;
            return mica__fail(MICA_ERR_UNSUPPORTED,
                              "isa: \"%s\" asked for, but this processor does not have it", wanted);
        }
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used == 0 ? "" : ", ", mica__isa_name(isa));
    }
    return mica__fail(MICA_ERR_UNSUPPORTED, "isa: \"%s\" is not in this build, expected one of %s", wanted,
                      known);
}

const char *mica__cpu_isa_name(uint32_t isa)
{
    return mica__isa_name((mica__isa)isa);
}

const mica__cpu_kernel *mica__cpu_isa_table(uint32_t isa)
{
    return tables[isa];
}
