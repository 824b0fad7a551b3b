// Little-endian numbers in byte strings of any alignment, on any machine.
#ifndef SETUN_BASE_BYTES_H
#define SETUN_BASE_BYTES_H

#include "base/float16.h"

static inline uint16_t st_load_u16(const uint8_t *p) {
  return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t st_load_u32(const uint8_t *p) {
  return st_load_u16(p) | (uint32_t)st_load_u16(p + 2) << 16;
}
static inline float st_load_f16(const uint8_t *p) {
  return st_f32_from_f16(st_load_u16(p));
}
static inline float st_load_f32(const uint8_t *p) {
  return st_float_from_bits(st_load_u32(p));
}

static inline void st_store_u16(uint8_t *p, uint16_t v) {
  p[0] = (uint8_t)v;
  p[1] = (uint8_t)(v >> 8);
}
static inline void st_store_u32(uint8_t *p, uint32_t v) {
  st_store_u16(p, (uint16_t)v);
  st_store_u16(p + 2, (uint16_t)(v >> 16));
}
static inline void st_store_f16(uint8_t *p, float v) {
  st_store_u16(p, st_f16_from_f32(v));
}
static inline void st_store_f32(uint8_t *p, float v) {
  st_store_u32(p, st_float_bits(v));
}

#endif
