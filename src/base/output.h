// Output files and directories, which appear whole or not at all: the one way in which anything is written.
//
// They are made beside their target, under its name with ".PID-N.part" behind it, and renamed to it. Their writer keeps
// a lock on them; what bears such a name and is not locked was left by a process that was killed, and goes when the
// target is written anew.
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

// The target is a regular file, whose permissions the new one gets, or nothing yet; or a symbolic link to a file, which
// stays and whose file is replaced.
setun_status st_output_open(const char *path, st_output *out, setun_error *err);
setun_status st_output_write(st_output *out, const void *bytes, size_t n, setun_error *err);
// Writes at an earlier place (say, a header that was left open); does not move the end.
setun_status st_output_write_at(st_output *out, uint64_t offset, const void *bytes, size_t n, setun_error *err);
// Syncs, closes and renames. On failure the target is as it was, and the temporary file is gone.
setun_status st_output_commit(st_output *out, setun_error *err);
// Closes and removes what was written; nothing after a commit.
void st_output_discard(st_output *out);

// A directory of output files.
typedef struct st_output_directory {
  int fd;       // keeps the lock
  DIR *entries; // of what is made, opened before there are any: to remove them needs no memory
  char *path, *temporary;
} st_output_directory;

// The target must not exist, or be an empty directory.
setun_status st_output_directory_open(const char *path, st_output_directory *out, setun_error *err);
setun_status st_output_directory_commit(st_output_directory *out, setun_error *err);
// Makes a folder in the temporary directory, which may get one file, of this name.
#define ST_OUTPUT_FOLDER_FILE "config.json"
setun_status st_output_folder(const char *path, setun_error *err);
// Removes the directory with the files and such folders in it; nothing after a commit.
void st_output_directory_discard(st_output_directory *out);

#endif
