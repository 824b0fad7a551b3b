// Quantized weights that checkpoints store in several tensors per module: GPTQ's (MODULE.qweight, qzeros, scales,
// g_idx) and compressed-tensors' (MODULE.weight_packed with its scales; MODULE.compressed with its bitmask). They are
// assembled into a format's blocks, or into floats if no format has such groups. Private to src/source.
#ifndef SETUN_SOURCE_PACKED_H
#define SETUN_SOURCE_PACKED_H

#include "source/hf_quant.h"
#include "source/weight.h"

// Looks for a module's packed weights and fills *w: `shape` is as in st_weight_find; a stored matrix has `part.of`
// rows.
setun_status st_packed_find(const st_directory *directory, const st_hf_quant *quant, const char *module, st_shape shape,
                            st_part part, bool *found, st_weight *w, setun_error *err);

// Reads what a reader needs from g_idx: reader->groups, and reader->order if the columns are in the order of their
// groups.
setun_status st_packed_open(st_row_reader *reader, setun_error *err);
// As st_load_scattered.
setun_status st_packed_load(st_row_reader *reader, uint64_t row, uint64_t want, st_strip *strip, setun_error *err);
// The bytes of a reader's buffers, without the rows themselves.
uint64_t st_packed_bytes(const st_weight *w, uint64_t rows);

// g_idx as it is stored, checked. The caller frees *out with st_free.
setun_status st_packed_groups(const st_directory *d, const st_tensor *t, uint64_t groups, uint32_t **out,
                              setun_error *err);
// Elements [first, first + count) of each of the rows [row, row + rows) of a tensor, as [rows][count] at `out`.
setun_status st_packed_slice(const st_directory *d, const st_tensor *t, uint64_t row, uint64_t rows, uint64_t first,
                             uint64_t count, void *out, setun_error *err);
// The value of `bits` bits that begins at bit `at` of a row of 32-bit words.
static inline uint32_t st_packed_bits(const uint32_t *words, unsigned bits, uint64_t at) {
  uint32_t value = words[at / 32] >> at % 32;
  if (at % 32 + bits > 32) value |= words[at / 32 + 1] << (32 - at % 32);
  return value & ((1u << bits) - 1);
}
// Value i of a row: `stream`, values follow each other across words; otherwise each word has 32 / bits of them.
static inline uint32_t st_packed_field(const uint32_t *words, unsigned bits, bool stream, uint64_t i) {
  return st_packed_bits(words, bits, stream ? i * bits : i / (32 / bits) * 32 + i % (32 / bits) * bits);
}

#endif
