/*
 * random.c - splitmix64 and what tests draw from it.
 */
#include "support/random.h"

test_random test_random_from(uint64_t seed)
{
    test_random random = {seed};

    return random;
}

uint64_t test_random_next(test_random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t test_random_below(test_random *random, uint64_t below)
{
    return test_random_next(random) % below;
}

int test_random_one_in(test_random *random, uint32_t n)
{
    return test_random_below(random, n) == 0;
}

double test_random_uniform(test_random *random, double low, double high)
{
    return low + (high - low) * ((double)(test_random_next(random) >> 11) / 9007199254740992.0);
}

double test_random_normal(test_random *random)
{
    double sum = 0;

    for (int i = 0; i < 5; i++)
        sum += test_random_uniform(random, -1, 1);
    return sum * 0.7745966692414834;
}

uint64_t test_random_size(test_random *random, uint64_t most)
{
    static const uint64_t odd[] = {1, 3, 7, 31, 33, 65, 127, 257};
    uint64_t size = odd[test_random_below(random, sizeof odd / sizeof *odd)];

    return size <= most && !test_random_one_in(random, 4) ? size : 1 + test_random_below(random, most);
}
