// A 64-bit hash of bytes that is the same on every machine: for identities and checksums, not for security.
#ifndef SETUN_BASE_HASH_H
#define SETUN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ST_HASH_START = 0 };

// Continues `hash` (ST_HASH_START at first) with `n` more bytes; the result depends on how the bytes are split into
// calls.
static inline uint64_t st_hash(uint64_t hash, const void *bytes, size_t n) {
  const unsigned char *p = (const unsigned char *)bytes;
  uint64_t h = hash ^ (0x9E3779B97F4A7C15u + n);
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t w = 0;
    for (int i = 0; i < 8; i++) w |= (uint64_t)p[i] << 8 * i; // little-endian on every machine
    h = (h ^ w) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  }
  for (; n; p++, n--) h = (h ^ *p) * 0x100000001B3u;
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93u;
  return h ^ h >> 32;
}

#endif
