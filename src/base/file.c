// Files: positioned reads, whole files, and checks of paths.
#define _GNU_SOURCE
#include "base/file.h"

#include "base/memory.h"
#include "base/system_error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// On every system one call transfers less than 2 GiB; stay below that.
enum { READ_MOST = 1 << 30 };

// A change of a file's bytes changes its size or these times. A program can reset the time of the last write, but not
// that of the last status change. The number of links distinguishes a change of the bytes from the removal of a name.
static st_file_state state_of(const struct stat *st) {
#ifdef __APPLE__
  struct timespec written = st->st_mtimespec, changed = st->st_ctimespec;
#else
  struct timespec written = st->st_mtim, changed = st->st_ctim;
#endif
  return (st_file_state){written.tv_sec, written.tv_nsec, changed.tv_sec, changed.tv_nsec, (uint64_t)st->st_nlink};
}

setun_status st_file_open(const char *path, st_file *file, setun_error *err) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO must not block before fstat can refuse it
  if (fd < 0) return st_fail_system(err, errno, "%s: cannot open", path);
  bool known = !fstat(fd, &st);
  if (!known || !S_ISREG(st.st_mode)) {
    setun_status s = known ? st_fail(err, SETUN_ERROR_IO, "%s: not a regular file", path)
                           : st_fail_system(err, errno, "%s: cannot get its status", path);
    close(fd);
    return s;
  }
  char *copy = st_strdup(path);
  if (!copy) {
    close(fd);
    return st_fail_memory(err, path);
  }
  *file = (st_file){.fd = fd, .size = (uint64_t)st.st_size, .state = state_of(&st), .path = copy};
  return SETUN_OK;
}

setun_status st_file_open_source(const char *path, const st_file_source *source, st_file *file, setun_error *err) {
  char *copy = st_strdup(path);
  if (!copy) return st_fail_memory(err, path);
  *file = (st_file){.fd = -1, .size = source->size, .path = copy, .source = source};
  return SETUN_OK;
}

void st_file_close(st_file *file) {
  if (!file->path) return;
  if (!file->source) close(file->fd);
  st_free(file->path);
  *file = (st_file){0};
}

setun_status st_file_read(const st_file *file, uint64_t offset, void *to, size_t n, setun_error *err) {
  size_t got = 0;
  if (file->source) return file->source->read(file->source->context, offset, to, n, err);
  while (got < n) {
    size_t want = n - got < READ_MOST ? n - got : READ_MOST;
    ssize_t r = pread(file->fd, (char *)to + got, want, (off_t)(offset + got));
    if (r < 0 && errno == EINTR) continue;
    if (r < 0) {
      return st_fail_system(err, errno, "%s: reading %zu bytes at offset %llu", file->path, n,
                            (unsigned long long)offset);
    }
    if (r == 0) {
      return st_fail(err, SETUN_ERROR_IO, "%s: ends early: expected %zu bytes at offset %llu, found %zu", file->path, n,
                     (unsigned long long)offset, got);
    }
    got += (size_t)r;
  }
  return SETUN_OK;
}

setun_status st_file_map(st_file *file, uint8_t **data, setun_error *err) {
  if (!file->map) {
    void *map =
        file->size <= SIZE_MAX ? mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, file->fd, 0) : MAP_FAILED;
    if (map == MAP_FAILED) {
      return st_fail_system(err, errno, "%s: cannot map %llu bytes", file->path, (unsigned long long)file->size);
    }
    file->map = map;
  }
  *data = file->map;
  return SETUN_OK;
}

void st_file_unmap(st_file *file) {
  if (file->map) munmap(file->map, (size_t)file->size);
  file->map = NULL;
}

setun_status st_file_check(const st_file *file, setun_error *err) {
  struct stat st;
  if (file->source) return SETUN_OK;
  if (fstat(file->fd, &st)) return st_fail_system(err, errno, "%s", file->path);
  if ((uint64_t)st.st_size < file->size) {
    return st_fail(err, SETUN_ERROR_IO, "%s: expected the %llu bytes that it had when it was opened, found %llu",
                   file->path, (unsigned long long)file->size, (unsigned long long)st.st_size);
  }
  const st_file_state *old = &file->state, now = state_of(&st);
  if (now.written_s != old->written_s || now.written_ns != old->written_ns) {
    return st_fail(err, SETUN_ERROR_IO,
                   "%s: modified while in use: expected %lld.%09lld as the time of its last write, found "
                   "%lld.%09lld",
                   file->path, (long long)old->written_s, (long long)old->written_ns, (long long)now.written_s,
                   (long long)now.written_ns);
  }
  bool changed = now.changed_s != old->changed_s || now.changed_ns != old->changed_ns;
  if (!changed || now.links != old->links) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_IO,
                 "%s: changed while in use (written to with its time of writing reset, renamed, or with changed "
                 "permissions): expected %lld.%09lld as the time of its last status change, found %lld.%09lld",
                 file->path, (long long)old->changed_s, (long long)old->changed_ns, (long long)now.changed_s,
                 (long long)now.changed_ns);
}

setun_status st_file_load(const char *path, uint64_t limit, char **text, size_t *length, setun_error *err) {
  st_file file = {0};
  setun_status s = st_file_open(path, &file, err);
  if (s != SETUN_OK) return s;
  char *bytes = NULL;
  if (file.size > limit) {
    s = st_fail(err, SETUN_ERROR_LIMIT, "%s: expected at most %llu bytes, found %llu", path, (unsigned long long)limit,
                (unsigned long long)file.size);
  } else if (!(bytes = st_malloc((size_t)file.size + 1, 1))) {
    s = st_fail_memory(err, path);
  } else {
    s = st_file_read(&file, 0, bytes, (size_t)file.size, err);
  }
  if (s == SETUN_OK) {
    bytes[file.size] = '\0';
    *text = bytes;
    *length = (size_t)file.size;
  } else {
    st_free(bytes);
  }
  st_file_close(&file);
  return s;
}

bool st_path_is_directory(const char *path) {
  struct stat st;
  return !stat(path, &st) && S_ISDIR(st.st_mode);
}

// Whether nothing exists under that name, not even a link. `reason`: why it is inaccessible.
static bool is_absent(const char *path, int reason) {
  struct stat st;
  if (reason != ENOENT && reason != ENOTDIR) return false;
  return lstat(path, &st) && (errno == ENOENT || errno == ENOTDIR);
}

static setun_status fail_unreachable(const char *path, int reason, setun_error *err) {
  struct stat st;
  bool dangling = reason == ENOENT && !lstat(path, &st) && S_ISLNK(st.st_mode);
  return st_fail_system(err, reason, "%s: %s", path,
                        dangling ? "a symbolic link whose target does not exist" : "cannot check whether it exists");
}

setun_status st_path_exists(const char *path, bool *exists, setun_error *err) {
  struct stat st;
  bool found = !stat(path, &st);
  int reason = found ? 0 : errno;
  if (!found && !is_absent(path, reason)) return fail_unreachable(path, reason, err);
  *exists = found;
  return SETUN_OK;
}

setun_status st_file_load_beside(const char *directory, const char *name, uint64_t limit, char **text, size_t *length,
                                 setun_error *err) {
  char *path = st_path_join(directory, name);
  if (!path) return st_fail_memory(err, name);
  bool exists = false;
  setun_status s = st_path_exists(path, &exists, err);
  if (s == SETUN_OK && exists) s = st_file_load(path, limit, text, length, err);
  st_free(path);
  return s;
}

char *st_path_join(const char *directory, const char *name) {
  st_buffer b = {0};
  size_t n = strlen(directory);
  const char *slash = n && directory[n - 1] == '/' ? "" : "/";
  if (!st_buffer_format(&b, "%s%s%s", directory, slash, name)) st_buffer_free(&b);
  return b.data;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

setun_status st_path_list(const char *directory, const char *suffix, st_names *names, setun_error *err) {
  enum { MOST = 1024 };
  DIR *d = opendir(directory);
  setun_status s = SETUN_OK;
  *names = (st_names){0};
  if (!d) {
    int reason = errno;
    if (reason == ENOTDIR && !lstat(directory, &(struct stat){0})) {
      return st_fail(err, SETUN_ERROR_IO, "%s: expected a directory, found a file", directory);
    }
    return is_absent(directory, reason) ? SETUN_OK : fail_unreachable(directory, reason, err);
  }
  for (struct dirent *entry; s == SETUN_OK && names->n < MOST && (entry = readdir(d));) {
    size_t n = strlen(entry->d_name), tail = strlen(suffix);
    if (n < tail || strcmp(entry->d_name + n - tail, suffix)) continue;
    char *copy = st_strdup(entry->d_name);
    if (copy && st_reserve(&names->items, &names->capacity, names->n + 1, sizeof *names->items)) {
      names->items[names->n++] = copy;
    } else {
      st_free(copy);
      s = st_fail_memory(err, directory);
    }
  }
  closedir(d);
  if (s != SETUN_OK) st_names_free(names);
  if (names->n) qsort(names->items, names->n, sizeof *names->items, compare_names);
  return s;
}

void st_names_free(st_names *names) {
  for (size_t i = 0; i < names->n; i++) st_free(names->items[i]);
  st_free(names->items);
  *names = (st_names){0};
}
