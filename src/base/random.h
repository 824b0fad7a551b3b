// Random numbers: xoshiro256** (Blackman and Vigna, 2018), seeded through splitmix64. The same everywhere.
#ifndef SETUN_BASE_RANDOM_H
#define SETUN_BASE_RANDOM_H

#include <stdint.h>

typedef struct st_random {
  uint64_t s[4];
} st_random;

static inline void st_random_seed(st_random *r, uint64_t seed) {
  for (int i = 0; i < 4; i++) {
    uint64_t z = seed += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    r->s[i] = z ^ z >> 31;
  }
}

static inline uint64_t st_random_u64(st_random *r) {
  uint64_t *s = r->s, x = s[1] * 5, result = (x << 7 | x >> 57) * 9, t = s[1] << 17;
  s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t;
  s[3] = s[3] << 45 | s[3] >> 19;
  return result;
}

// Uniform in [0, 1), a multiple of 2^-53.
static inline double st_random_unit(st_random *r) {
  return (double)(st_random_u64(r) >> 11) * 0x1p-53;
}

#endif
