// Files that the build puts into the program: the page to chat on (apps/server/page/), and schemas for the OpenAPI
// description (apps/server/schemas/).
#ifndef SETUN_SERVER_EMBEDDED_H
#define SETUN_SERVER_EMBEDDED_H

#include <stddef.h>

typedef struct embedded_file {
  const char *name, *tag; // tag: an HTTP entity tag, with its quotes
  const unsigned char *bytes;
  size_t n;
} embedded_file;

extern const embedded_file page_files[], schema_files[]; // each ended by a row without a name

#endif
