// Outputs that are written completely or not at all.
#define _GNU_SOURCE
#include "base/output.h"

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/system_error.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// On every system one call transfers less than 2 GiB; stay below that.
enum { WRITE_MOST = 1 << 30, NAMES_MOST = 1000 };

// ---- temporary names ----------------------------------------------------------------------------------------------

// True for NAME.PID-N.part.
static bool is_temporary_of(const char *entry, const char *name) {
  size_t n = strlen(name);
  if (strncmp(entry, name, n) || entry[n] != '.') return false;
  const char *p = entry + n + 1, *number = p;
  while (isdigit((unsigned char)*p)) p++;
  if (p == number || *p++ != '-') return false;
  for (number = p; isdigit((unsigned char)*p);) p++;
  return p > number && !strcmp(p, ".part");
}

// A directory's entries, by a descriptor of its own. NULL with errno.
static DIR *list_directory(int fd) {
  int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  DIR *dir = copy < 0 ? NULL : fdopendir(copy);
  if (!dir && copy >= 0) {
    int reason = errno;
    close(copy);
    errno = reason;
  }
  return dir;
}

// Removes the files in a directory, and folders with only the one file that st_output_folder allows.
static void remove_files(DIR *dir) {
  char inner[NAME_MAX + sizeof ST_OUTPUT_FOLDER_FILE + 1];
  rewinddir(dir);
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (!unlinkat(dirfd(dir), entry->d_name, 0)) continue;
    snprintf(inner, sizeof inner, "%s/%s", entry->d_name, ST_OUTPUT_FOLDER_FILE);
    unlinkat(dirfd(dir), inner, 0);
    unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
  }
}

// Removes one that is not locked and belongs to this user. Without file locks nothing is removed.
static void remove_abandoned(int folder, const char *name) {
  struct stat opened, named;
  int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return;
  bool abandoned = !fstat(fd, &opened) && opened.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB) &&
                   !fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) && named.st_dev == opened.st_dev &&
                   named.st_ino == opened.st_ino; // its writer may have renamed it before releasing the lock
  if (abandoned && S_ISREG(opened.st_mode)) unlinkat(folder, name, 0);
  if (abandoned && S_ISDIR(opened.st_mode)) {
    DIR *dir = list_directory(fd);
    if (dir) remove_files(dir), closedir(dir);
    unlinkat(folder, name, AT_REMOVEDIR);
  }
  close(fd);
}

// Best effort: what cannot be removed stays; the output gets another name.
static void remove_all_abandoned(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  char *folder = slash ? st_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : st_strdup(".");
  DIR *dir = folder ? opendir(folder) : NULL;
  st_free(folder);
  if (!dir) return;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (is_temporary_of(entry->d_name, name)) remove_abandoned(dirfd(dir), entry->d_name);
  }
  closedir(dir);
}

// Makes a file or a directory with this name. -1 with errno; EEXIST: try another name.
static int create(const char *name, bool directory, mode_t mode) {
  if (!directory) return open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (mkdir(name, mode)) return -1;
  int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) errno = EEXIST; // removed as abandoned before it was locked
  return fd;
}

// False if it was removed as abandoned before it was locked.
static bool take_lock(int fd) {
  struct stat st;
  if (flock(fd, LOCK_EX | LOCK_NB)) return errno != EWOULDBLOCK; // no locks here: nothing is removed either
  return !fstat(fd, &st) && st.st_nlink;
}

// Makes a file or a directory next to `path`, so that renaming stays on one file system, under an unused name.
static setun_status create_beside(const char *path, bool directory, mode_t mode, int *fd, char **temporary,
                                  setun_error *err) {
  int reason = EEXIST;
  remove_all_abandoned(path);
  for (unsigned i = 0; i < NAMES_MOST && reason == EEXIST; i++) {
    st_buffer name = {0};
    if (!st_buffer_format(&name, "%s.%ld-%u.part", path, (long)getpid(), i)) return st_fail_memory(err, path);
    *fd = create(name.data, directory, mode);
    reason = *fd < 0 ? errno : 0;
    if (*fd >= 0 && take_lock(*fd)) {
      *temporary = name.data;
      return SETUN_OK;
    }
    if (*fd >= 0) close(*fd), reason = EEXIST;
    st_buffer_free(&name);
  }
  *fd = -1;
  return st_fail_system(err, reason, "%s: cannot create a %s next to it", path, directory ? "directory" : "file");
}

// ---- files --------------------------------------------------------------------------------------------------------

// The target of a symbolic link, in `real`; other paths unchanged. NULL with errno: a dangling link.
static const char *follow_link(const char *path, char real[PATH_MAX]) {
  struct stat st;
  if (lstat(path, &st) || !S_ISLNK(st.st_mode)) return path;
  return realpath(path, real);
}

setun_status st_output_open(const char *path, st_output *out, setun_error *err) {
  struct stat st;
  char real[PATH_MAX];
  *out = (st_output){.fd = -1};
  bool replaces = !stat(path, &st);
  if (replaces && !S_ISREG(st.st_mode)) {
    return st_fail(err, SETUN_ERROR_IO, "%s: exists and is not a regular file", path);
  }
  const char *target = follow_link(path, real);
  if (!target) return st_fail_system(err, errno, "%s: a symbolic link whose target does not exist", path);
  out->path = st_strdup(target);
  if (!out->path) return st_fail_memory(err, path);
  const mode_t kept = replaces ? st.st_mode & 0777 : 0666;
  setun_status s = create_beside(target, false, kept, &out->fd, &out->temporary, err);
  if (s == SETUN_OK && replaces && fchmod(out->fd, kept)) { // the process's umask may have removed permissions
    s = st_fail_system(err, errno, "%s: cannot give its permissions to the new file", out->path);
  }
  if (s != SETUN_OK) st_output_discard(out);
  return s;
}

setun_status st_output_write_at(st_output *out, uint64_t offset, const void *bytes, size_t n, setun_error *err) {
  for (size_t done = 0; done < n;) {
    size_t want = n - done < WRITE_MOST ? n - done : WRITE_MOST;
    ssize_t w = pwrite(out->fd, (const char *)bytes + done, want, (off_t)(offset + done));
    if (w < 0 && errno == EINTR) continue;
    if (w < 0) {
      return st_fail_system(err, errno, "%s: writing %zu bytes at offset %llu", out->path, n,
                            (unsigned long long)offset);
    }
    if (!w) {
      return st_fail(err, SETUN_ERROR_IO, "%s: writing %zu bytes at offset %llu: no bytes were written", out->path, n,
                     (unsigned long long)offset);
    }
    done += (size_t)w;
  }
  return SETUN_OK;
}

setun_status st_output_write(st_output *out, const void *bytes, size_t n, setun_error *err) {
  setun_status s = st_output_write_at(out, out->length, bytes, n, err);
  if (s == SETUN_OK) out->length += n;
  return s;
}

setun_status st_output_commit(st_output *out, setun_error *err) {
  setun_status s = SETUN_OK;
  if (fsync(out->fd)) s = st_fail_system(err, errno, "%s: syncing", out->path);
  int fd = out->fd, lock = fcntl(fd, F_DUPFD_CLOEXEC, 0); // keep the lock until it has the target's name
  out->fd = -1;
  if (close(fd) && s == SETUN_OK) s = st_fail_system(err, errno, "%s: closing", out->path);
  if (s == SETUN_OK && rename(out->temporary, out->path)) {
    s = st_fail_system(err, errno, "%s: renaming %s to it", out->path, out->temporary);
  }
  if (s != SETUN_OK) unlink(out->temporary);
  if (lock >= 0) close(lock);
  st_output_discard(out);
  return s;
}

void st_output_discard(st_output *out) {
  if (out->fd >= 0) {
    unlink(out->temporary);
    close(out->fd);
  }
  st_free(out->path);
  st_free(out->temporary);
  *out = (st_output){.fd = -1};
}

// ---- directories --------------------------------------------------------------------------------------------------

// Whether something other than an empty directory exists there.
static setun_status is_taken(const char *path, bool *taken, setun_error *err) {
  DIR *dir = opendir(path);
  if (!dir && errno == ENOMEM) return st_fail_memory(err, path);
  if (!dir) return st_path_exists(path, taken, err);
  *taken = false;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) *taken = true;
  }
  closedir(dir);
  return SETUN_OK;
}

static void free_directory(st_output_directory *out) {
  if (out->entries) closedir(out->entries);
  if (out->fd >= 0) close(out->fd);
  st_free(out->temporary);
  st_free(out->path);
  *out = (st_output_directory){.fd = -1};
}

setun_status st_output_directory_open(const char *path, st_output_directory *out, setun_error *err) {
  char real[PATH_MAX];
  bool taken = false;
  *out = (st_output_directory){.fd = -1};
  setun_status s = is_taken(path, &taken, err);
  if (s != SETUN_OK) return s;
  if (taken) {
    return st_fail(err, SETUN_ERROR_IO, "%s: exists and is not an empty directory; name another, or remove it", path);
  }
  const char *target = follow_link(path, real);
  if (!target) return st_fail_system(err, errno, "%s: a symbolic link whose target does not exist", path);
  size_t n = strlen(target);
  while (n > 1 && target[n - 1] == '/') n--;
  if (!(out->path = st_strndup(target, n))) return st_fail_memory(err, path);
  s = create_beside(out->path, true, 0777, &out->fd, &out->temporary, err);
  if (s == SETUN_OK && !(out->entries = list_directory(out->fd))) {
    s = st_fail_system(err, errno, "%s: cannot list the new directory", out->temporary);
    rmdir(out->temporary);
  }
  if (s != SETUN_OK) free_directory(out);
  return s;
}

setun_status st_output_directory_commit(st_output_directory *out, setun_error *err) {
  if (rename(out->temporary, out->path)) {
    setun_status s = st_fail_system(err, errno, "%s: renaming %s to it", out->path, out->temporary);
    st_output_directory_discard(out);
    return s;
  }
  free_directory(out);
  return SETUN_OK;
}

setun_status st_output_folder(const char *path, setun_error *err) {
  return mkdir(path, 0777) ? st_fail_system(err, errno, "%s: cannot create the folder", path) : SETUN_OK;
}

void st_output_directory_discard(st_output_directory *out) {
  if (out->entries) {
    remove_files(out->entries);
    rmdir(out->temporary);
  }
  free_directory(out);
}
