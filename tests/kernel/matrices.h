// Matrices for the kernel tests: random or extreme weights in each form, made from the bytes that a file would hold,
// with the same weights as float64 computed here, and buffers whose end touches an unreadable page.
#ifndef SETUN_TESTS_KERNEL_MATRICES_H
#define SETUN_TESTS_KERNEL_MATRICES_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE
#endif

#include "base/float16.h"
#include "base/memory.h"
#include "base/random.h"
#include "kernel/attend.h"
#include "kernel/layout.h"
#include "quant/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef enum { RANDOM, LARGEST, SMALLEST, ZERO, ONE_ELEMENT, MODES } mode;
static const char *const mode_names[MODES] = {"random", "largest", "smallest", "zero", "one element"};
static const char *const form_names[ST_FORM_COUNT] = {"f32", "f16", "bf16", "t16", "t16b", "q8",  "q4",
                                                      "q4m", "q5",  "q5m",  "nl",  "mx",   "nlk", "q2k",
                                                      "q3k", "q4k", "q5k",  "q6k", "t5",   "t5b"};
static const char *const activation_names[ST_ACT_COUNT] = {"f32", "int8-token", "int8-block"};

static st_random random_state;

static inline uint32_t random_below(uint32_t n) {
  return (uint32_t)(st_random_unit(&random_state) * n);
}
static inline float random_float(void) {
  return (float)(st_random_unit(&random_state) * 2 - 1);
}

// Memory that ends where an unreadable page begins.
typedef struct {
  uint8_t *base, *data;
  size_t length;
} guarded;

static inline guarded guarded_alloc(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
  guarded g = {.length = body + page};
  void *p = mmap(NULL, g.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || mprotect((uint8_t *)p + body, page, PROT_NONE)) {
    perror("mmap");
    exit(1);
  }
  g.base = p;
  g.data = g.base + body - bytes;
  return g;
}

static inline void guarded_free(guarded *g) {
  munmap(g->base, g->length);
}

typedef struct {
  st_matrix m;
  guarded memory;
  float *dense;  // [rows][columns], what the weights mean
  float *scales; // of T16
} matrix;

static inline bool has_block(st_form form) {
  return form == ST_FORM_T16B || form == ST_FORM_T5B;
}

static inline st_format format_for(st_form form, uint32_t block) {
  st_format f = {.block = block};
  switch (form) {
  case ST_FORM_F16: f.id = ST_F16; break;
  case ST_FORM_BF16: f.id = ST_BF16; break;
  case ST_FORM_Q8: return *st_format_get(ST_Q8_0);
  case ST_FORM_Q4: return *st_format_get(ST_Q4_0);
  case ST_FORM_Q4M: return *st_format_get(ST_Q4_1);
  case ST_FORM_Q5: return *st_format_get(ST_Q5_0);
  case ST_FORM_Q5M: return *st_format_get(ST_Q5_1);
  case ST_FORM_NL: return *st_format_get(ST_IQ4_NL);
  case ST_FORM_MX: return *st_format_get(ST_MXFP4);
  case ST_FORM_NLK: return *st_format_get(ST_IQ4_XS);
  case ST_FORM_Q2K: return *st_format_get(ST_Q2_K);
  case ST_FORM_Q3K: return *st_format_get(ST_Q3_K);
  case ST_FORM_Q4K: return *st_format_get(ST_Q4_K);
  case ST_FORM_Q5K: return *st_format_get(ST_Q5_K);
  case ST_FORM_Q6K: return *st_format_get(ST_Q6_K);
  case ST_FORM_T5:
  case ST_FORM_T16: f.id = ST_HF_U8, f.scales = ST_SCALE_OUTER; break;
  case ST_FORM_T5B:
  case ST_FORM_T16B: f.id = ST_HF_U8, f.scales = ST_SCALE_BLOCK; break;
  default: f.id = ST_F32;
  }
  return f;
}

static inline float random_scale(mode how) {
  return how == ZERO ? 0 : st_f32_from_f16(st_f16_from_f32(random_float()));
}

static inline int pick(mode how, int low, int high, bool here) {
  switch (how) {
  case LARGEST: return high;
  case SMALLEST: return low;
  case ZERO: return 0;
  case ONE_ELEMENT: return here ? high : 0;
  default: return low + (int)random_below((uint32_t)(high - low + 1));
  }
}

// The bytes of one row of 32-column blocks, and their meaning.
static inline void make_blocks(st_form form, size_t columns, mode how, size_t chosen, uint8_t *bytes, float *dense) {
  size_t size = form == ST_FORM_Q8 ? 34 : form == ST_FORM_Q4 ? 18 : 20, head = form == ST_FORM_Q4M ? 4 : 2;
  for (size_t b = 0; b < columns / 32; b++, bytes += size) {
    float d = random_scale(how), m = random_scale(how);
    uint16_t hd = st_f16_from_f32(d), hm = st_f16_from_f32(m);
    memcpy(bytes, &hd, 2);
    if (head == 4) memcpy(bytes + 2, &hm, 2);
    memset(bytes + head, 0, size - head);
    for (size_t k = 0; k < 32; k++) {
      bool here = b * 32 + k == chosen;
      int code = form == ST_FORM_Q8 ? pick(how, -128, 127, here) : pick(how, 0, 15, here);
      if (form == ST_FORM_Q8)
        bytes[2 + k] = (uint8_t)code;
      else
        bytes[head + k % 16] = (uint8_t)(bytes[head + k % 16] | (unsigned)code << (k < 16 ? 0 : 4));
      dense[b * 32 + k] = form == ST_FORM_Q4M ? d * (float)code + m : d * (float)(form == ST_FORM_Q4 ? code - 8 : code);
    }
  }
}

// The same for the forms behind Q4M: any bytes, but for the scales, and their meaning as the format decodes it, which
// tests/unit/quant_values.c holds to others' decoders. One element: d is 0, the minimum's scale 1.
static inline void make_format_blocks(st_form form, size_t columns, mode how, uint8_t *bytes, float *dense) {
  const st_format f = format_for(form, 0);
  size_t size = columns / f.block * f.block_bytes;
  for (size_t i = 0; i < size; i++) {
    bytes[i] = (uint8_t)(how == LARGEST ? 255 : how == SMALLEST || how == ZERO ? 0 : random_below(256));
  }
  for (uint8_t *block = bytes; block < bytes + size; block += f.block_bytes) {
    for (uint32_t i = 0; i < f.ops->value->n_scales; i++) {
      float scale = how == ONE_ELEMENT ? (float)i : random_scale(how) * (how == LARGEST ? 65000 : 1);
      st_store_f16(block + f.ops->value->scale_at[i], scale);
    }
    for (int i = 192; form == ST_FORM_Q6K && how == LARGEST && i < 208; i++) block[i] = random_below(2) ? 0x80 : 0x7F;
    if (form == ST_FORM_MX && how != SMALLEST && how != ZERO) {
      block[0] = (uint8_t)(how == LARGEST ? 200 : how == ONE_ELEMENT ? random_below(230) : 100 + random_below(40));
    }
  }
  st_strip strip = {.row = 0, .count = 1, .bytes = size};
  f.ops->decode(&f, (st_shape){1, columns}, &strip, bytes, dense);
}

// The source bytes of all rows, which st_form_pack takes 16 rows at a time.
static inline void make_rows(matrix *w, mode how, uint8_t *source, size_t row_bytes, float *scales) {
  size_t rows = w->m.rows, columns = w->m.columns;
  for (size_t r = 0; r < rows; r++) {
    size_t chosen = random_below((uint32_t)columns);
    float *dense = w->dense + r * columns;
    uint8_t *bytes = source + r * row_bytes;
    if (w->m.form > ST_FORM_Q4M && w->m.form < ST_FORM_T5) {
      make_format_blocks(w->m.form, columns, how, bytes, dense);
      continue;
    }
    if (w->m.form >= ST_FORM_Q8 && w->m.form < ST_FORM_T5) {
      make_blocks(w->m.form, columns, how, chosen, bytes, dense);
      continue;
    }
    for (size_t k = 0; k < columns; k++) {
      if (w->m.form <= ST_FORM_BF16) {
        float x = how == LARGEST                                       ? 1
                  : how == SMALLEST                                    ? -1
                  : how == ZERO || (how == ONE_ELEMENT && k != chosen) ? 0
                                                                       : random_float();
        if (w->m.form == ST_FORM_F16) x = st_f32_from_f16(st_f16_from_f32(x));
        if (w->m.form == ST_FORM_BF16) x = st_f32_from_bf16(st_bf16_from_f32(x));
        memcpy(bytes + 4 * k, &x, 4);
        dense[k] = x;
        continue;
      }
      int trit = pick(how, -1, w->m.form >= ST_FORM_T5 ? 1 : 2, k == chosen);
      bytes[k] = (uint8_t)trit;
      size_t blocks = w->m.block ? (columns + w->m.block - 1) / w->m.block : 1;
      float *scale = &scales[w->m.block ? r * blocks + k / w->m.block : r];
      if (w->m.block ? k % w->m.block == 0 : k == 0) *scale = random_scale(how);
      dense[k] = (float)trit * *scale;
    }
  }
}

static inline matrix make_matrix(st_form form, size_t rows, size_t columns, uint32_t block, mode how) {
  matrix w = {.m = {.form = form, .rows = rows, .columns = columns, .block = has_block(form) ? block : 0}};
  st_format format = format_for(form, block);
  size_t groups = (rows + 15) / 16;
  size_t row_bytes = format.block_bytes     ? columns / format.block * format.block_bytes
                     : form <= ST_FORM_BF16 ? columns * 4
                                            : columns;
  size_t blocks = has_block(form) ? (columns + block - 1) / block : 1;
  uint8_t *source = st_aligned_alloc(rows * row_bytes + 64);
  float *scales = st_calloc(groups * 16 * blocks, sizeof *scales);
  w.m.group_bytes = st_form_group_bytes(form, columns, w.m.block);
  w.memory = guarded_alloc(groups * w.m.group_bytes);
  w.dense = st_calloc(rows * columns, sizeof *w.dense);
  make_rows(&w, how, source, row_bytes, scales);
  for (size_t g = 0; g < groups; g++) {
    size_t count = rows - g * 16 < 16 ? rows - g * 16 : 16;
    st_form_pack(form, &format, columns, w.m.block, source + g * 16 * row_bytes, scales + g * 16 * blocks, count,
                 w.memory.data + g * w.m.group_bytes);
  }
  w.m.data = w.memory.data;
  w.scales = scales;
  if (form == ST_FORM_T16 || form == ST_FORM_T5) w.m.scales = scales;
  st_free(source);
  return w;
}

static inline void free_matrix(matrix *w) {
  guarded_free(&w->memory);
  st_free(w->dense);
  st_free(w->scales);
}

#endif
