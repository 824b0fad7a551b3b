// GGUF key-value pairs for writing, as the file's bytes. The functions return false when out of memory, and so do all
// later ones, so that a caller may check only the last.
#ifndef SETUN_FORMAT_GGUF_KEYS_H
#define SETUN_FORMAT_GGUF_KEYS_H

#include "format/metadata.h"

// Zero-initialize; freed with st_keys_free.
typedef struct st_keys {
  st_buffer bytes;
  uint64_t count;
  bool failed;
} st_keys;

void st_keys_free(st_keys *k);
bool st_keys_u32(st_keys *k, const char *key, uint32_t value);
bool st_keys_f32(st_keys *k, const char *key, float value);
bool st_keys_bool(st_keys *k, const char *key, bool value);
bool st_keys_text(st_keys *k, const char *key, const char *value);
bool st_keys_texts(st_keys *k, const char *key, const st_text *values, uint64_t count);
bool st_keys_bools(st_keys *keys, const char *key, const bool *values, uint64_t count);
bool st_keys_i32s(st_keys *k, const char *key, const int32_t *values, uint64_t count);
bool st_keys_f32s(st_keys *k, const char *key, const float *values, uint64_t count);
// Appends a pair as it was read.
bool st_keys_meta(st_keys *k, const st_meta *item);
// Appends all pairs of another list.
bool st_keys_append(st_keys *k, const st_keys *other);

#endif
