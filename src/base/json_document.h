// What owns the values of a JSON document: its arena. For json_*.c alone.
#ifndef SETUN_BASE_JSON_DOCUMENT_H
#define SETUN_BASE_JSON_DOCUMENT_H

#include "base/json.h"

typedef struct st_json_chunk st_json_chunk;

// Begins with its root, so that a pointer to the root is one to the document.
typedef struct st_json_document {
  st_json root;
  st_json_chunk *chunks; // the newest first
  char *at;              // free bytes of the newest
  size_t left, taken;    // those, and the bytes of all chunks
  bool failed;
} st_json_document;

st_json_document *st_json_document_new(size_t expected); // bytes; NULL: out of memory
// Bytes of the arena; `aligned`: for values. NULL: out of memory, which the document remembers.
void *st_json_take(st_json_document *d, size_t bytes, bool aligned);

// The members that lie on a reader's stack, as an object's; duplicates become one, or are an error: then `*duplicate`
// is the second one. False: that, or out of memory.
bool st_json_gather(st_json_document *d, const st_json_member *from, uint32_t n, bool refuse, st_json *object,
                    const st_json_member **duplicate);

#endif
