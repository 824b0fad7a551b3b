// MLX's affine groups: 32, 64 or 128 weights with a scale s and a minimum m of 16 bits, both half-precision or both
// bfloat16: w = s * code + m. A block begins with these two, followed by the codes of 2, 3, 4, 5, 6 or 8 bits as one
// string of bits, the first weight's lowest, as MLX packs them into its words (MLX stores scales and minimums in
// separate tensors; src/source assembles the blocks). 128 is subtracted from codes of 8 bits, and 128 s is added to m,
// so that they are int8.
#include "quant/rows.h"

enum { HEAD = 4 };

static float number_at(const st_format *format, const uint8_t *p) {
  uint16_t bits = st_load_u16(p);
  return format->ops->bfloat ? st_f32_from_bf16(bits) : st_f32_from_f16(bits);
}

// Eight codes at a time, which are `bits` bytes; `bits` is a constant, so that the shifts are constant too.
static inline void unpack(const uint8_t *in, unsigned bits, size_t n, uint8_t *codes) {
  const uint64_t mask = (1u << bits) - 1;
  if (8 % bits == 0) {
    for (size_t i = 0; i < n * bits / 8; i++) {
      for (unsigned k = 0; k < 8 / bits; k++) *codes++ = (uint8_t)(in[i] >> bits * k & mask);
    }
    return;
  }
  for (size_t i = 0; i < n; i += 8, in += bits) {
    uint64_t string = 0;
    for (unsigned b = 0; b < bits; b++) string |= (uint64_t)in[b] << 8 * b;
    for (unsigned k = 0; k < 8; k++) codes[i + k] = (uint8_t)(string >> bits * k & mask);
  }
}

static void unpack_codes(const uint8_t *in, unsigned bits, size_t n, uint8_t *codes) {
  switch (bits) {
  case 2: unpack(in, 2, n, codes); break;
  case 3: unpack(in, 3, n, codes); break;
  case 4: unpack(in, 4, n, codes); break;
  case 5: unpack(in, 5, n, codes); break;
  case 6: unpack(in, 6, n, codes); break;
  default: unpack(in, 8, n, codes); break;
  }
}

static void affine_parts(const st_format *format, const uint8_t *block, st_block_parts *out) {
  unsigned bits = format->ops->affine_bits;
  unpack_codes(block + HEAD, bits, format->block, out->codes);
  for (uint32_t i = 0; bits == 8 && i < format->block; i++) out->codes[i] ^= 0x80;
}

static void affine_decode(const st_format *format, st_shape shape, const st_strip *strip, const void *data,
                          float *out) {
  const uint8_t *block = data;
  const bool wide = format->ops->affine_bits == 8;
  st_block_parts parts;
  for (uint64_t n = shape.columns / format->block * strip->count; n; n--, block += format->block_bytes) {
    float scale = number_at(format, block), minimum = number_at(format, block + 2);
    affine_parts(format, block, &parts);
    if (wide) minimum += 128 * scale;
    for (uint32_t i = 0; i < format->block; i++) {
      float code = wide ? (float)(int8_t)parts.codes[i] : (float)parts.codes[i], w = code * scale;
      *out++ = w + minimum;
    }
  }
}

static const st_value_block affine = {.n_scales = 2, .scale_at = {0, 2}};

#define AFFINE(bits)                                                                                                   \
  const st_format_ops st_ops_affine##bits = {.value = &affine,                                                         \
                                             .decode = affine_decode,                                                  \
                                             .parts = affine_parts,                                                    \
                                             .packed_as = ST_AFFINE##bits##_32,                                        \
                                             .affine_bits = (bits)};                                                   \
  const st_format_ops st_ops_affine##bits##_bf16 = {.value = &affine,                                                  \
                                                    .decode = affine_decode,                                           \
                                                    .parts = affine_parts,                                             \
                                                    .packed_as = ST_AFFINE##bits##_32,                                 \
                                                    .affine_bits = (bits),                                             \
                                                    .bfloat = true};
AFFINE(2)
AFFINE(3)
AFFINE(4)
AFFINE(5)
AFFINE(6)
AFFINE(8)
