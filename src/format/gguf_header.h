// A GGUF file's header, read through a window that grows as needed. Private to src/format.
#ifndef SETUN_FORMAT_GGUF_HEADER_H
#define SETUN_FORMAT_GGUF_HEADER_H

#include "base/file.h"
#include "format/metadata.h"

// Bytes [0, have) of the file are at `data`; `at` is the next to be parsed. The window at least doubles when it grows,
// and never exceeds the file or ST_GGUF_HEADER_MOST.
typedef struct st_gguf_header {
  const st_file *file;
  char *data;
  size_t have, at;
} st_gguf_header;

setun_status st_gguf_u32(st_gguf_header *h, const char *what, uint32_t *out, setun_error *err);
setun_status st_gguf_u64(st_gguf_header *h, const char *what, uint64_t *out, setun_error *err);
// Reads a length and that many bytes; *at is their offset in the window (pointers would not survive its growth).
setun_status st_gguf_string(st_gguf_header *h, const char *what, size_t *at, size_t *length, setun_error *err);

// Parses `count` key-value pairs. On success the metadata owns the window (h->data becomes NULL), so parse the rest of
// the header through the same window first: the two steps are st_gguf_pairs and st_gguf_adopt.
setun_status st_gguf_pairs(st_gguf_header *h, uint64_t count, st_metadata *m, setun_error *err);
setun_status st_gguf_adopt(st_gguf_header *h, st_metadata *m, setun_error *err);

#endif
