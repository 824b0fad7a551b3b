// Small system files such as those in /proc, line by line. Nothing is allocated: a limit must not be missed for lack of
// memory, as with stdio, whose buffers come from the heap.
#ifndef SETUN_BASE_SYSTEM_FILE_H
#define SETUN_BASE_SYSTEM_FILE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct st_system_file {
  int fd; // -1: absent or unreadable
  size_t at, count;
  char buffer[512];
} st_system_file;

// A file that cannot be opened has no lines. Closed with st_system_file_close.
void st_system_file_open(st_system_file *f, const char *path);
// The next line of fewer than `size` bytes, without its line end; longer ones are skipped. False after the last.
bool st_system_file_line(st_system_file *f, char *line, size_t size);
void st_system_file_close(st_system_file *f);

#endif
