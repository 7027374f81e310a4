/* golden_file.h - what others computed, as the JSON that their scripts wrote: lists of numbers behind keys, and how far away
 * they are. */
#ifndef TEST_GOLDEN_FILE_H
#define TEST_GOLDEN_FILE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/status.h"
#include "support/tensor.h"

/* All of a text file, NUL after it; NULL if it cannot be opened. The caller frees. */
static inline char *golden_text(const char *path)
{
    static const size_t most = 1u << 20;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    char *text = test_alloc(most, 1);
    const size_t got = fread(text, 1, most - 1, file);
    (void)fclose(file);
    assert_true(got > 0 && got < most - 1);
    return text;
}

/* The numbers of the list, or list of lists, behind `key`; 0 if there is no such key. */
static inline uint32_t golden_list(const char *text, const char *key, double *out, uint32_t most)
{
    uint32_t count = 0, depth = 0;
    const char *at = strstr(text, key);
    if (at == NULL)
        return 0;
    at = strchr(at, '[');
    assert_non_null(at);
    do {
        char *end = NULL;
        if (*at == '[' || *at == ']') {
            depth = *at == '[' ? depth + 1 : depth - 1;
            at++;
            continue;
        }
        const double number = strtod(at, &end);
        if (end == at) {
            at++;
            continue;
        }
        assert_true(count < most);
        out[count++] = number;
        at = end;
    } while (depth > 0 && *at != '\0');
    return count;
}

/* The same of whole numbers. */
static inline uint32_t golden_ids(const char *text, const char *key, uint32_t *out, uint32_t most)
{
    double *numbers = test_alloc(most, sizeof *numbers);
    const uint32_t count = golden_list(text, key, numbers, most);
    for (uint32_t i = 0; i < count; i++)
        out[i] = (uint32_t)numbers[i];
    free(numbers);
    return count;
}

/* The largest distance of two rows over the largest |value| of the second. NaN is infinitely far. */
static inline double golden_distance(const float *got, const double *want, uint32_t count)
{
    double worst = 0, top = 0;
    for (uint32_t i = 0; i < count; i++) {
        const double apart = fabs(got[i] - want[i]);
        worst = apart <= worst ? worst : isnan(apart) ? INFINITY : apart;
        top = fmax(top, fabs(want[i]));
    }
    return worst / top;
}

#endif
