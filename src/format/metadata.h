// Typed key-value metadata as in GGUF. Values point into the header's bytes, which the metadata owns.
#ifndef SETUN_FORMAT_METADATA_H
#define SETUN_FORMAT_METADATA_H

#include "base/buffer.h"

// GGUF's value types, with GGUF's numbers.
typedef enum st_meta_type {
  ST_META_U8,
  ST_META_I8,
  ST_META_U16,
  ST_META_I16,
  ST_META_U32,
  ST_META_I32,
  ST_META_F32,
  ST_META_BOOL,
  ST_META_STRING,
  ST_META_ARRAY,
  ST_META_U64,
  ST_META_I64,
  ST_META_F64,
  ST_META_TYPE_COUNT
} st_meta_type;

typedef struct st_meta {
  char *key;
  st_meta_type type;
  st_meta_type element; // element type of an array
  bool ignored;         // as requested: st_metadata_find skips it
  uint64_t count;       // elements of an array
  union {
    uint64_t u; // U8..U64, BOOL
    int64_t i;  // I8..I64
    double f;   // F32, F64
    st_text text;
    const void *values;   // an array of numbers: packed in the machine's byte order, maybe unaligned
    const st_text *texts; // an array of strings
  } as;
} st_meta;

typedef struct st_metadata {
  st_meta *items; // in the file's order
  size_t count;
  st_map *by_key;
  void *storage;  // the bytes that values point into
  st_text *texts; // the strings that arrays point into
} st_metadata;

void st_metadata_free(st_metadata *m);
// "u32", "string", "an array of f32": for messages; `text` is the buffer for an array's.
const char *st_meta_kind(const st_meta *item, char text[32]);

const char *st_meta_type_name(st_meta_type type); // "u32", "string"
// Bytes of a number or a boolean; 0 for strings and arrays.
size_t st_meta_bytes(st_meta_type type);
bool st_meta_is_integer(st_meta_type type);

const st_meta *st_metadata_find(const st_metadata *m, const char *key); // NULL when absent or ignored

// Read a key; `*out` keeps its value (the default) if absent. Another type, or a value outside [low, high], is an error
// that names the key, what was expected and what was found. Any integer type is accepted.
setun_status st_metadata_u32(const st_metadata *m, const char *key, uint32_t low, uint32_t high, uint32_t *out,
                             setun_error *err);
setun_status st_metadata_u64(const st_metadata *m, const char *key, uint64_t low, uint64_t high, uint64_t *out,
                             setun_error *err);
setun_status st_metadata_f32(const st_metadata *m, const char *key, float *out, setun_error *err);
setun_status st_metadata_bool(const st_metadata *m, const char *key, bool *out, setun_error *err);
setun_status st_metadata_text(const st_metadata *m, const char *key, st_text *out, setun_error *err);

// Element `i` of an array of any numeric type, converted. The caller has checked the type, and the range of `i`.
double st_meta_number(const st_meta *array, uint64_t i);

// The value as text, arrays and long strings shortened, for `inspect`.
setun_status st_meta_print(const st_meta *item, st_buffer *out, setun_error *err);
// The complete value as JSON: numbers that are not finite as null, bytes that are not UTF-8 as U+FFFD.
setun_status st_meta_json(const st_meta *item, st_buffer *out, setun_error *err);

#endif
