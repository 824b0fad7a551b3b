// Files: positioned reads with complete error messages. Outputs are in base/output.h.
#ifndef SETUN_BASE_FILE_H
#define SETUN_BASE_FILE_H

#include "base/buffer.h"

// A source of a file's bytes that are produced on demand: any range, from any number of threads.
typedef struct st_file_source {
  setun_status (*read)(const void *context, uint64_t offset, void *to, size_t n, setun_error *err);
  const void *context; // lives as long as the file
  uint64_t size;
} st_file_source;

// A file's time of last write, of last status change, and its number of names.
typedef struct st_file_state {
  int64_t written_s, written_ns, changed_s, changed_ns;
  uint64_t links;
} st_file_state;

typedef struct st_file {
  int fd;
  uint64_t size;       // at the time of opening
  st_file_state state; // likewise
  char *path;
  uint8_t *map;                 // see st_file_map
  const st_file_source *source; // NULL: the bytes are on disk
} st_file;

// Opens a regular file for reading. Closed with st_file_close, which accepts a zeroed or closed one.
setun_status st_file_open(const char *path, st_file *file, setun_error *err);
void st_file_close(st_file *file);
// A file with a source's bytes, named `path` in messages; closed in the same way. The source must outlive it.
setun_status st_file_open_source(const char *path, const st_file_source *source, st_file *file, setun_error *err);

// Reads exactly `n` bytes at `offset`; short reads are continued. Ending early (a file that shrank) is an error.
setun_status st_file_read(const st_file *file, uint64_t offset, void *to, size_t n, setun_error *err);

// Maps the whole file for reading, once; *data is valid until st_file_unmap. The system ends a process that accesses
// mapped pages beyond the end of a file that shrank; st_file_check fails for such a file, which makes that unlikely.
setun_status st_file_map(st_file *file, uint8_t **data, setun_error *err);
void st_file_unmap(st_file *file);

// SETUN_ERROR_IO if the file has shrunk or was written to since it was opened, even with its time of writing reset:
// what was read before may no longer match. Losing or gaining a name (removal, or another file renamed over it) is not
// a change: its bytes are the same.
setun_status st_file_check(const st_file *file, setun_error *err);

// The whole of a file of at most `limit` bytes, ended with a 0 byte that *length does not count; freed with st_free.
setun_status st_file_load(const char *path, uint64_t limit, char **text, size_t *length, setun_error *err);

// The same for a file that may be absent: *text is then unchanged.
setun_status st_file_load_beside(const char *directory, const char *name, uint64_t limit, char **text, size_t *length,
                                 setun_error *err);

bool st_path_is_directory(const char *path); // also false if unknown: opening it reports why
// Whether something with this name exists. A dangling symbolic link, a folder without search permission and a failing
// disk are errors: what cannot be read is not absent.
setun_status st_path_exists(const char *path, bool *exists, setun_error *err);
// "directory/name"; NULL when out of memory. Freed with st_free.
char *st_path_join(const char *directory, const char *name);

// The names in a directory that end with `suffix`, sorted, at most 1024 of them; none if the directory does not exist.
// Freed with st_names_free.
typedef struct st_names {
  char **items;
  size_t n, capacity;
} st_names;
setun_status st_path_list(const char *directory, const char *suffix, st_names *names, setun_error *err);
void st_names_free(st_names *names);

#endif
