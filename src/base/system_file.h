// Small files by which the system tells of itself, line by line. Nothing is allocated: a limit must not be missed for
// want of memory, as it would be with stdio, whose buffers come from the heap.
#ifndef SETUN_BASE_SYSTEM_FILE_H
#define SETUN_BASE_SYSTEM_FILE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct st_system_file {
  int fd; // -1: there is no such file, or it cannot be read
  size_t at, count;
  char buffer[512];
} st_system_file;

// A file that cannot be opened has no lines. Ended by st_system_file_close.
void st_system_file_open(st_system_file *f, const char *path);
// The next line of fewer than `size` bytes, without what ends it; longer ones are passed over. False after the last.
bool st_system_file_line(st_system_file *f, char *line, size_t size);
void st_system_file_close(st_system_file *f);

#endif
