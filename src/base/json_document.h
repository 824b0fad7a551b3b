// The arena that owns the values of a JSON document. Only for json_*.c.
#ifndef SETUN_BASE_JSON_DOCUMENT_H
#define SETUN_BASE_JSON_DOCUMENT_H

#include "base/json.h"

typedef struct st_json_chunk st_json_chunk;

// Begins with its root, so that a pointer to the root is one to the document.
typedef struct st_json_document {
  st_json root;
  st_json_chunk *chunks; // the newest first
  char *at;              // free bytes of the newest
  size_t left, taken;    // free bytes there, and bytes of all chunks
  bool failed;
} st_json_document;

st_json_document *st_json_document_new(size_t expected); // bytes; NULL: out of memory
// Allocates from the arena; `aligned`: for values. NULL: out of memory, which the document keeps as a failure.
void *st_json_take(st_json_document *d, size_t bytes, bool aligned);

// Makes an object of the members on a reader's stack; duplicates are merged, or are an error, with `*duplicate` the
// second one. False: a duplicate, or out of memory.
bool st_json_gather(st_json_document *d, const st_json_member *from, uint32_t n, bool refuse, st_json *object,
                    const st_json_member **duplicate);

#endif
