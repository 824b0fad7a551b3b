// Files: positioned reads, and outputs that appear whole or not at all.
#define _GNU_SOURCE
#include "base/file.h"

#include "base/memory.h"

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

// One system call moves less than 2 GiB on every system; stay under it.
enum { READ_MOST = 1 << 30 };

static struct timespec time_of_change(const struct stat *st) {
#ifdef __APPLE__
  return st->st_mtimespec;
#else
  return st->st_mtim;
#endif
}

setun_status st_file_open(const char *path, st_file *file, setun_error *err) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO must not block before fstat can refuse it
  if (fd < 0) return st_fail(err, SETUN_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
  if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
    close(fd);
    return st_fail(err, SETUN_ERROR_IO, "%s: not a regular file", path);
  }
  char *copy = st_strdup(path);
  if (!copy) {
    close(fd);
    return st_fail_memory(err, path);
  }
  struct timespec written = time_of_change(&st);
  *file = (st_file){
      .fd = fd, .size = (uint64_t)st.st_size, .written_s = written.tv_sec, .written_ns = written.tv_nsec, .path = copy};
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
      return st_fail(err, SETUN_ERROR_IO, "%s: reading %zu bytes at offset %llu: %s", file->path, n,
                     (unsigned long long)offset, strerror(errno));
    }
    if (r == 0) {
      return st_fail(err, SETUN_ERROR_IO, "%s: ends early: wanted %zu bytes at offset %llu, got %zu", file->path, n,
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
      return st_fail(err, SETUN_ERROR_IO, "%s: cannot map %llu bytes: %s", file->path, (unsigned long long)file->size,
                     strerror(errno));
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
  if (fstat(file->fd, &st)) return st_fail(err, SETUN_ERROR_IO, "%s: %s", file->path, strerror(errno));
  if ((uint64_t)st.st_size < file->size) {
    return st_fail(err, SETUN_ERROR_IO, "%s: expected the %llu bytes that it had when it was opened, found %llu",
                   file->path, (unsigned long long)file->size, (unsigned long long)st.st_size);
  }
  struct timespec written = time_of_change(&st);
  if (written.tv_sec == file->written_s && written.tv_nsec == file->written_ns) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_IO,
                 "%s: written to while it is in use: expected %lld.%09lld as the time of its last change, found "
                 "%lld.%09lld",
                 file->path, (long long)file->written_s, (long long)file->written_ns, (long long)written.tv_sec,
                 (long long)written.tv_nsec);
}

setun_status st_file_load(const char *path, uint64_t limit, char **text, size_t *length, setun_error *err) {
  st_file file;
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

bool st_path_exists(const char *path) {
  struct stat st;
  return !stat(path, &st);
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
    if (errno == ENOENT || errno == ENOTDIR) return SETUN_OK;
    return st_fail(err, SETUN_ERROR_IO, "%s: %s", directory, strerror(errno));
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

// What a symbolic link leads to, in `real`; any other path as it is. NULL: the link leads nowhere.
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
  const char *target = follow_link(path, real); // the link stays, and its file is replaced
  if (!target) return st_fail(err, SETUN_ERROR_IO, "%s: a symbolic link that leads nowhere: %s", path, strerror(errno));
  path = target;
  out->path = st_strdup(path);
  if (!out->path) return st_fail_memory(err, path);
  // A name that nobody has, beside the target so that renaming stays on one file system.
  for (unsigned i = 0; i < 1000 && out->fd < 0; i++) {
    st_buffer name = {0};
    st_free(out->temporary);
    out->temporary = NULL;
    if (!st_buffer_format(&name, "%s.%ld-%u.part", path, (long)getpid(), i)) {
      st_output_discard(out);
      return st_fail_memory(err, path);
    }
    out->temporary = name.data;
    out->fd = open(out->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out->fd < 0 && errno != EEXIST) break;
  }
  if (out->fd < 0) {
    setun_status s = st_fail(err, SETUN_ERROR_IO, "%s: cannot create a file beside it: %s", out->path, strerror(errno));
    st_output_discard(out);
    return s;
  }
  if (replaces && fchmod(out->fd, st.st_mode & 0777)) { // what was private stays so
    setun_status s =
        st_fail(err, SETUN_ERROR_IO, "%s: cannot give its permissions to the new file: %s", out->path, strerror(errno));
    st_output_discard(out);
    return s;
  }
  return SETUN_OK;
}

setun_status st_output_write_at(st_output *out, uint64_t offset, const void *bytes, size_t n, setun_error *err) {
  for (size_t done = 0; done < n;) {
    size_t want = n - done < READ_MOST ? n - done : READ_MOST;
    ssize_t w = pwrite(out->fd, (const char *)bytes + done, want, (off_t)(offset + done));
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) {
      return st_fail(err, SETUN_ERROR_IO, "%s: writing %zu bytes at offset %llu: %s", out->path, n,
                     (unsigned long long)offset, w < 0 ? strerror(errno) : "nothing was written");
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
  if (fsync(out->fd)) s = st_fail(err, SETUN_ERROR_IO, "%s: syncing: %s", out->path, strerror(errno));
  int fd = out->fd;
  out->fd = -1;
  if (close(fd) && s == SETUN_OK) s = st_fail(err, SETUN_ERROR_IO, "%s: closing: %s", out->path, strerror(errno));
  if (s == SETUN_OK && rename(out->temporary, out->path)) {
    s = st_fail(err, SETUN_ERROR_IO, "%s: renaming %s to it: %s", out->path, out->temporary, strerror(errno));
  }
  if (s == SETUN_OK) {
    st_free(out->temporary);
    out->temporary = NULL;
  } else {
    unlink(out->temporary);
  }
  st_output_discard(out);
  return s;
}

void st_output_discard(st_output *out) {
  if (out->fd >= 0) {
    close(out->fd);
    unlink(out->temporary);
  }
  st_free(out->path);
  st_free(out->temporary);
  *out = (st_output){.fd = -1};
}

// ---- directories --------------------------------------------------------------------------------------------------

// True when something other than an empty directory is there.
static bool is_taken(const char *path) {
  DIR *dir = opendir(path);
  if (!dir) return st_path_exists(path);
  bool taken = false;
  for (struct dirent *entry; (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) taken = true;
  }
  closedir(dir);
  return taken;
}

setun_status st_output_directory_open(const char *path, st_output_directory *out, setun_error *err) {
  size_t n = strlen(path);
  *out = (st_output_directory){0};
  if (is_taken(path)) {
    return st_fail(err, SETUN_ERROR_IO, "%s: exists and is no empty directory; name another, or remove it", path);
  }
  while (n > 1 && path[n - 1] == '/') n--;
  if (!(out->path = st_strndup(path, n))) return st_fail_memory(err, path);
  bool made = false;
  for (unsigned i = 0; i < 1000 && !made; i++) {
    st_buffer name = {0};
    st_free(out->temporary);
    out->temporary = NULL;
    if (!st_buffer_format(&name, "%s.%ld-%u.part", out->path, (long)getpid(), i)) {
      st_free(out->path);
      *out = (st_output_directory){0};
      return st_fail_memory(err, path);
    }
    out->temporary = name.data;
    made = !mkdir(out->temporary, 0777);
    if (!made && errno != EEXIST) break;
  }
  if (made) return SETUN_OK;
  setun_status s = st_fail(err, SETUN_ERROR_IO, "%s: cannot create a directory beside it: %s", path, strerror(errno));
  st_free(out->temporary);
  st_free(out->path);
  *out = (st_output_directory){0};
  return s;
}

setun_status st_output_directory_commit(st_output_directory *out, setun_error *err) {
  setun_status s = SETUN_OK;
  if (rename(out->temporary, out->path)) {
    s = st_fail(err, SETUN_ERROR_IO, "%s: renaming %s to it: %s", out->path, out->temporary, strerror(errno));
    st_output_directory_discard(out);
    return s;
  }
  st_free(out->temporary);
  st_free(out->path);
  *out = (st_output_directory){0};
  return s;
}

void st_output_directory_discard(st_output_directory *out) {
  DIR *dir = out->temporary ? opendir(out->temporary) : NULL;
  if (dir) {
    for (struct dirent *entry; (entry = readdir(dir));) {
      if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    rmdir(out->temporary);
  }
  st_free(out->temporary);
  st_free(out->path);
  *out = (st_output_directory){0};
}
