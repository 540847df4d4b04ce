/* Numbers that every program of the bench makes alike, in C and in Python. */
#ifndef BITS_H
#define BITS_H

#include <stdint.h>

/* 24 random bits, the same for an index and a seed in every language: see peers/common.py. */
static inline uint32_t random_bits(uint32_t i, uint32_t seed)
{
    uint32_t x = i * 2654435761u + seed * 2246822519u;
    for (int round = 0; round < 2; ++round) {
        x ^= x >> 16;
        x *= 0x45d9f3bu;
    }
    return (x ^ (x >> 16)) >> 8;
}

#endif
