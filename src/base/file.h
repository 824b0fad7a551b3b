// Files: positioned reads that name what was wanted and got, and outputs that appear whole or not at all.
#ifndef SETUN_BASE_FILE_H
#define SETUN_BASE_FILE_H

#include "base/buffer.h"

// What stands for a file whose bytes are made when they are asked for: any range of them, from any number of threads.
typedef struct st_file_source {
  setun_status (*read)(const void *context, uint64_t offset, void *to, size_t n, setun_error *err);
  const void *context; // lives as long as the file
  uint64_t size;
} st_file_source;

typedef struct st_file {
  int fd;
  uint64_t size;                 // when it was opened
  int64_t written_s, written_ns; // when it had been written to last, then
  char *path;
  uint8_t *map;                 // see st_file_map
  const st_file_source *source; // NULL: the bytes are on disk
} st_file;

// Opens a regular file for reading. Closed with st_file_close, which accepts a zeroed or closed one.
setun_status st_file_open(const char *path, st_file *file, setun_error *err);
void st_file_close(st_file *file);
// A file of a source's bytes, called `path` in messages; closed likewise. The source must outlive it.
setun_status st_file_open_source(const char *path, const st_file_source *source, st_file *file, setun_error *err);

// Reads exactly `n` bytes at `offset`; short reads are continued. Ending early (a file that shrank) is an error.
setun_status st_file_read(const st_file *file, uint64_t offset, void *to, size_t n, setun_error *err);

// Maps the whole file for reading, once; *data is valid until st_file_unmap. The system ends a process that touches
// pages beyond the end of a file that shrank: st_file_check, which fails for such a file, makes that unlikely.
setun_status st_file_map(st_file *file, uint8_t **data, setun_error *err);
void st_file_unmap(st_file *file);

// SETUN_ERROR_IO when the file has shrunk or was written to since it was opened: what was read before then belongs to
// it as it was.
setun_status st_file_check(const st_file *file, setun_error *err);

// The whole of a file of at most `limit` bytes, ended with a 0 byte that *length does not count; freed with st_free.
setun_status st_file_load(const char *path, uint64_t limit, char **text, size_t *length, setun_error *err);

bool st_path_is_directory(const char *path);
bool st_path_exists(const char *path);
// "directory/name"; NULL when out of memory. Freed with st_free.
char *st_path_join(const char *directory, const char *name);

// The names in a directory that end with `suffix`, sorted, at most 1024 of them; none where there is no such directory.
// Freed with st_names_free.
typedef struct st_names {
  char **items;
  size_t n, capacity;
} st_names;
setun_status st_path_list(const char *directory, const char *suffix, st_names *names, setun_error *err);
void st_names_free(st_names *names);

// An output file, written beside its target and renamed over it when it is whole.
typedef struct st_output {
  int fd;
  uint64_t length;
  char *path, *temporary;
} st_output;

setun_status st_output_open(const char *path, st_output *out, setun_error *err);
setun_status st_output_write(st_output *out, const void *bytes, size_t n, setun_error *err);
// Writes at an earlier place (say, a header that was left open); does not move the end.
setun_status st_output_write_at(st_output *out, uint64_t offset, const void *bytes, size_t n, setun_error *err);
// Syncs, closes and renames. On failure the target is as it was, and the temporary file is gone.
setun_status st_output_commit(st_output *out, setun_error *err);
// Closes and removes what was written; nothing after a commit.
void st_output_discard(st_output *out);

// A directory of output files, filled beside its target and renamed to it when it is whole.
typedef struct st_output_directory {
  char *path, *temporary;
} st_output_directory;

// The target must not exist, or be an empty directory.
setun_status st_output_directory_open(const char *path, st_output_directory *out, setun_error *err);
setun_status st_output_directory_commit(st_output_directory *out, setun_error *err);
// Removes the directory with the files in it; nothing after a commit.
void st_output_directory_discard(st_output_directory *out);

#endif
