/* hash.c: multiply-and-fold hashing: 16 bytes at a time go through one 64 x 64 -> 128 bit product, both
 * factors mixed with the state, and the halves of the product are joined. */
#include "base/hash.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"

/* Odd 64-bit numbers with no pattern: the fractions of the square roots of 2, 3, 5 and 7, lowest bit set. */
#define SALT_A 0x6a09e667f3bcc909u
#define SALT_B 0xbb67ae8584caa73bu
#define SALT_C 0x3c6ef372fe94f82bu
#define SALT_D 0xa54ff53a5f1d36f1u

static uint64_t fold_product(uint64_t a, uint64_t b)
{
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 wide;
    const wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    const uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
    const uint64_t low = a_low * b_low, middle = a_high * b_low + (low >> 32);
    const uint64_t cross = a_low * b_high + (uint32_t)middle;
    return (cross << 32 | (uint32_t)low) ^ (a_high * b_high + (middle >> 32) + (cross >> 32));
#endif
}

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

/* Both factors carry the state, so that no input makes one of them zero without knowing the seed. */
static uint64_t mix(uint64_t state, uint64_t first, uint64_t second)
{
    return fold_product(first ^ state ^ SALT_A, second ^ rotate(state, 29) ^ SALT_B);
}

uint64_t mica__hash_bytes(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *at = data;
    uint64_t words[2], state = seed ^ fold_product((uint64_t)size ^ SALT_C, SALT_D);
    size_t rest = size;
    for (; rest >= sizeof words; rest -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        state = mix(state, words[0], words[1]);
    }
    words[0] = words[1] = 0; /* the size in the state tells a short tail from zeros */
    if (rest != 0)
        memcpy(words, at, rest);
    state = mix(state, words[0], words[1]);
    return fold_product(state ^ SALT_C, rotate(state, 32) ^ SALT_D);
}

mica__hash128 mica__hash_key(const void *data, size_t size, mica__hash128 seed)
{
    const uint64_t low_seed = fold_product(seed.low ^ SALT_A, seed.high ^ SALT_C);
    const uint64_t high_seed = fold_product(seed.high ^ SALT_B, seed.low ^ SALT_D);
    const mica__hash128 hash = {mica__hash_bytes(data, size, low_seed ^ seed.low),
                                mica__hash_bytes(data, size, ~(high_seed ^ seed.high))};
    return hash;
}

uint64_t mica__hash_seed(void)
{
    static _Atomic uint64_t calls;
    const uint64_t call = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    const uint64_t place = (uint64_t)(uintptr_t)&call; /* where the loader put this stack */
    return mix(mica__clock_ns(), place, call);
}
