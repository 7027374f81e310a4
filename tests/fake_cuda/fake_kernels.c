/* fake_kernels.c - what launches are checked for, and the few kernels that compute. */
#include "fake_state.h"

#include <stdio.h>
#include <string.h>

/* y[i] = a[i] + b[i], f32. */
typedef struct add_params {
    uint64_t count;
} add_params;

static void run_add(const uint64_t *address, const void *params)
{
    const float *a = (const float *)(uintptr_t)address[0], *b = (const float *)(uintptr_t)address[1];
    float *y = (float *)(uintptr_t)address[2];
    const add_params *p = params;
    if (!fake_inside(address[0], p->count * 4) || !fake_inside(address[1], p->count * 4) ||
        !fake_inside(address[2], p->count * 4)) {
        fake_complain("fake_add: %llu elements leave their memory", (unsigned long long)p->count);
        return;
    }
    for (uint64_t i = 0; i < p->count; i++)
        y[i] = a[i] + b[i];
}

/* The fault word of the second binding gets a code; the first may be absent. */
typedef struct fault_params {
    uint32_t code;
} fault_params;

static void run_fault(const uint64_t *address, const void *params)
{
    const fault_params *p = params;
    __atomic_store_n((uint32_t *)(uintptr_t)address[1], p->code, __ATOMIC_SEQ_CST);
}

/* A block in memory: a number of words, and they, which y gets. */
static void run_far(const uint64_t *address, const void *params)
{
    const uint32_t *block = (const uint32_t *)(uintptr_t)address[0];
    (void)params;
    if (!fake_inside(address[0], 4) || !fake_inside(address[0], 4 + 4ull * block[0]) ||
        !fake_inside(address[1], 4ull * block[0]))
        fake_complain("fake_far: the block leaves its memory");
    else
        memcpy((void *)(uintptr_t)address[1], block + 1, 4ull * block[0]);
}

static const struct {
    const char *name;
    uint32_t bindings, params;
    void (*run)(const uint64_t *address, const void *params);
} known[] = {
    {"fake_add", 3, sizeof(add_params), run_add},
    {"fake_fault", 2, sizeof(fault_params), run_fault},
    {"fake_bare", 1, 0, NULL},
    {"fake_far", 2, 0, run_far},
};

bool fake_signature(const fake_object *function, uint32_t *out_bindings, uint32_t *out_params)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, function->name) == 0) {
            *out_bindings = known[i].bindings;
            *out_params = known[i].params;
            return true;
        }
    }
    return false;
}

/* Whether `at` stands between "#ifdef NAME" and "#endif", both behind `begin`, and the program has no constant of that name. */
static bool is_left_out(const fake_object *function, const char *begin, const char *at)
{
    const char *opened = NULL;
    char constant[96];
    for (const char *line = begin; line != NULL && line < at; line = strchr(line, '\n')) {
        line += line[0] == '\n';
        if (strncmp(line, "#ifdef ", 7) == 0)
            opened = line + 7;
        else if (strncmp(line, "#endif", 6) == 0)
            opened = NULL;
    }
    if (opened == NULL)
        return false;
    snprintf(constant, sizeof constant, "#define %.*s ", (int)strcspn(opened, "\n"), opened);
    return strstr(function->text, constant) == NULL;
}

/* The bindings of an entry of the kernel dialect, counted in its text: between MK_KERNEL(name) and MK_END. */
static uint32_t count_bindings(const fake_object *function)
{
    static const char *const words[] = {"MK_IN(", "MK_RO(", "MK_OUT("};
    uint32_t count = 0, params;
    char head[160];
    if (fake_signature(function, &count, &params))
        return count;
    snprintf(head, sizeof head, "MK_KERNEL(%s)", function->name);
    const char *begin = strstr(function->text, head), *end = begin == NULL ? NULL : strstr(begin, "MK_END");
    for (size_t i = 0; end != NULL && i < 3; i++)
        for (const char *at = strstr(begin, words[i]); at != NULL && at < end; at = strstr(at + 1, words[i]))
            count += !is_left_out(function, begin, at);
    return count;
}

void fake_take_arguments(const fake_object *function, void *const *arguments, fake_node *out)
{
    uint32_t bindings = count_bindings(function), known_bindings, params = 0;
    for (uint32_t i = 0; i < bindings && i < FAKE_ARGUMENTS; i++)
        memcpy(&out->address[i], arguments[i], sizeof out->address[i]);
    if (fake_signature(function, &known_bindings, &params) && params != 0)
        memcpy(out->params, arguments[bindings], params);
}

static bool is_large(const unsigned *grid, const unsigned *block)
{
    return grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 0x7fffffffu || grid[1] > 65535 ||
           grid[2] > 65535 || (uint64_t)block[0] * block[1] * block[2] > 1024 || block[0] == 0;
}

int fake_run(const fake_object *function, const unsigned *grid, const unsigned *block, unsigned shared,
             const uint64_t *address, const void *params)
{
    const uint32_t bindings = count_bindings(function);
    if (is_large(grid, block) || (shared + 1024 > 49152 && !function->dynamic)) {
        fake_complain("%s: %u x %u x %u groups of %u work-items, %u local bytes", function->name, grid[0],
                      grid[1], grid[2], block[0] * block[1] * block[2], shared);
        return FAKE_INVALID;
    }
    for (uint32_t i = 0; i < bindings; i++) {
        if (!fake_inside(address[i], 1)) {
            fake_complain("%s: binding %u shows no live memory", function->name, i);
            return FAKE_ILLEGAL_ADDRESS;
        }
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, function->name) == 0 && known[i].run != NULL)
            known[i].run(address, params);
    return 0;
}
