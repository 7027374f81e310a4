/*
 * sort_elements.h - sorting and choosing elements, written once for those of one word and those of two. Whoever includes it defines
 * ELEMENT, their type; NAME(x), what x is called for it; ELEMENT_OF(key, id) and ID(e); KEY(e), which has the key from bit FIRST_BIT on.
 *
 * All is stable: equal keys stay in the order of their ids.
 */

#define BINS MICA__CPU_SORT_BINS
#define FEW 48u /* elements that are sorted by insertion */

static void NAME(insertion)(ELEMENT *e, uint64_t n)
{
    for (uint64_t i = 1; i < n; i++) {
        const ELEMENT own = e[i];
        uint64_t at = i;
        for (; at > 0 && KEY(own) < KEY(e[at - 1]); at--)
            e[at] = e[at - 1];
        e[at] = own;
    }
}

/* By digits from the lowest on; those that are all the same are passed over. Gives where the elements are then: e or `other`. */
static ELEMENT *NAME(radix)(ELEMENT *e, ELEMENT *other, uint64_t n, uint32_t bits)
{
    uint64_t count[64 / MICA__CPU_SORT_DIGIT][BINS];
    const uint32_t digits = bits / MICA__CPU_SORT_DIGIT;
    if (n <= FEW) {
        NAME(insertion)(e, n);
        return e;
    }
    memset(count, 0, digits * sizeof count[0]);
    for (uint64_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < digits; d++)
            count[d][KEY(e[i]) >> (FIRST_BIT + d * MICA__CPU_SORT_DIGIT) & (BINS - 1)]++;
    for (uint32_t d = 0; d < digits; d++) {
        const uint32_t shift = FIRST_BIT + d * MICA__CPU_SORT_DIGIT;
        uint64_t begin = 0;
        if (count[d][KEY(e[0]) >> shift & (BINS - 1)] == n)
            continue;
        for (uint32_t bin = 0; bin < BINS; bin++) {
            const uint64_t own = count[d][bin];
            count[d][bin] = begin;
            begin += own;
        }
        for (uint64_t i = 0; i < n; i++)
            other[count[d][KEY(e[i]) >> shift & (BINS - 1)]++] = e[i];
        ELEMENT *const swapped = e;
        e = other;
        other = swapped;
    }
    return e;
}

/* Puts the first k in the order of the keys into `out`, not sorted. Digits from the highest on: all below the one where the k-th lies are in, all of
 * it stay candidates. Candidates close ranks in e. */
static void NAME(first_of)(ELEMENT *e, uint64_t n, uint64_t k, uint32_t bits, ELEMENT *out)
{
    uint64_t taken = 0;
    for (uint32_t left = bits; taken < k && n > k - taken && left > 0; left -= MICA__CPU_SORT_DIGIT) {
        const uint32_t shift = FIRST_BIT + left - MICA__CPU_SORT_DIGIT;
        uint64_t count[BINS] = {0}, before = 0, candidates = 0;
        uint32_t edge = 0;
        for (uint64_t i = 0; i < n; i++)
            count[KEY(e[i]) >> shift & (BINS - 1)]++;
        for (; before + count[edge] < k - taken; edge++)
            before += count[edge];
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t digit = KEY(e[i]) >> shift & (BINS - 1);
            if (digit < edge)
                out[taken++] = e[i];
            else if (digit == edge)
                e[candidates++] = e[i];
        }
        n = candidates;
    }
    for (uint64_t i = 0; taken < k; i++)
        out[taken++] = e[i];
}

/* The first k, sorted; e and `other` have room for n. Gives where they are. */
static ELEMENT *NAME(sorted)(ELEMENT *e, ELEMENT *other, uint64_t n, uint64_t k, uint32_t bits)
{
    if (k == n)
        return NAME(radix)(e, other, n, bits);
    NAME(first_of)(e, n, k, bits, other);
    return NAME(radix)(other, e, k, bits);
}

/* Elements [begin, begin + n) of a row. */
static void NAME(make)(const sort_row *r, uint64_t begin, uint64_t n, ELEMENT *e)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t value = value_load(r->x + (begin + i) * r->x_step, r->bytes);
        e[i] = ELEMENT_OF(key_of(value, r->dtype, r->descending), begin + i);
    }
}

/* Results [begin, begin + n) of a row out of its sorted elements. */
static void NAME(put)(const sort_row *r, uint64_t begin, uint64_t n, const ELEMENT *e)
{
    for (uint64_t i = 0; i < n && r->values != NULL; i++) {
        const uint64_t key = KEY(e[i]) >> FIRST_BIT;
        const uint64_t value = key_is_shared(key, r->dtype, r->descending)
                                   ? value_load(r->x + ID(e[i]) * r->x_step, r->bytes)
                                   : value_of_key(key, r->dtype, r->descending);
        value_store(r->values + (begin + i) * r->values_step, r->bytes, value);
    }
    for (uint64_t i = 0; i < n && r->ids != NULL; i++) {
        const uint32_t id = (uint32_t)ID(e[i]);
        memcpy(r->ids + (begin + i) * r->ids_step, &id, sizeof id);
    }
}

#undef BINS
#undef FEW
#undef ELEMENT
#undef NAME
#undef KEY
#undef ID
#undef ELEMENT_OF
#undef FIRST_BIT
