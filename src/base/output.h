// Output files and directories, which are written completely or not at all. All outputs use this.
//
// They are written next to their target, under its name with the suffix ".PID-N.part", and then renamed. The writer
// holds a lock on them; a file with such a name and no lock was left by a killed process, and is removed when the
// target is written again.
#ifndef SETUN_BASE_OUTPUT_H
#define SETUN_BASE_OUTPUT_H

#include "base/error.h"

#include <dirent.h>

#include <stddef.h>
#include <stdint.h>

typedef struct st_output {
  int fd;
  uint64_t length;
  char *path, *temporary;
} st_output;

// The target is a regular file, whose permissions are kept, or does not exist; or it is a symbolic link to a file: the
// link stays and its file is replaced.
setun_status st_output_open(const char *path, st_output *out, setun_error *err);
setun_status st_output_write(st_output *out, const void *bytes, size_t n, setun_error *err);
// Overwrites earlier bytes (such as a reserved header); does not move the end.
setun_status st_output_write_at(st_output *out, uint64_t offset, const void *bytes, size_t n, setun_error *err);
// Syncs, closes and renames. On failure the target is unchanged, and the temporary file is removed.
setun_status st_output_commit(st_output *out, setun_error *err);
// Closes and removes what was written; nothing after a commit.
void st_output_discard(st_output *out);

// A directory of output files.
typedef struct st_output_directory {
  int fd;       // holds the lock
  DIR *entries; // its entries, opened in advance: removing them needs no memory
  char *path, *temporary;
} st_output_directory;

// The target must not exist, or be an empty directory.
setun_status st_output_directory_open(const char *path, st_output_directory *out, setun_error *err);
setun_status st_output_directory_commit(st_output_directory *out, setun_error *err);
// Makes a folder in the temporary directory, for a single file with this name.
#define ST_OUTPUT_FOLDER_FILE "config.json"
setun_status st_output_folder(const char *path, setun_error *err);
// Removes the directory with the files and such folders in it; nothing after a commit.
void st_output_directory_discard(st_output_directory *out);

#endif
