// The files of the page to chat on (apps/server/page/), which the build puts into the program.
#ifndef SETUN_SERVER_PAGE_H
#define SETUN_SERVER_PAGE_H

#include <stddef.h>

typedef struct page_file {
  const char *name, *tag; // tag: an HTTP entity tag, with its quotes
  const unsigned char *bytes;
  size_t n;
} page_file;

extern const page_file page_files[]; // ended by a row without a name

#endif
