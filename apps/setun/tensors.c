// A safetensors writer for float32: 8 bytes of header length, a JSON header, then the tensors one after another.
// Source: the safetensors format description (Hugging Face).
#define _XOPEN_SOURCE 700 // realpath
#include "tensors.h"

#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ATTEMPTS = 100, NAME_MOST = 1024, HEADER_MOST = 16384, WRITE_MOST = 1 << 30 };

// The name as the inside of a JSON string. False when it is too long.
static bool escape_name(const char *name, char *out, size_t size) {
  size_t n = 0;
  for (; *name; name++) {
    if (n + 8 > size) return false;
    unsigned char c = (unsigned char)*name;
    if (c < ' ')
      n += (size_t)snprintf(out + n, size - n, "\\u%04x", c);
    else {
      if (c == '"' || c == '\\') out[n++] = '\\';
      out[n++] = (char)c;
    }
  }
  out[n] = 0;
  return true;
}

// One tensor's entry in the header; the number of characters, or 0 when it does not fit.
static size_t describe(const tensor_spec *t, uint64_t start, uint64_t end, char *out, size_t size) {
  char name[NAME_MOST], shape[128] = "";
  size_t n = 0;
  if (!escape_name(t->name, name, sizeof name)) return 0;
  for (int i = 0; i < t->n_dims; i++) {
    n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%llu", i ? "," : "", (unsigned long long)t->dims[i]);
  }
  int length = snprintf(out, size, "\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}", name,
                        shape, (unsigned long long)start, (unsigned long long)end);
  return length > 0 && (size_t)length < size ? (size_t)length : 0;
}

// Header with its length in front; fills file->start and file->floats. 0 when the sizes cannot be meant.
static size_t build_header(const tensor_spec *specs, int n, tensor_file *file, char *out) {
  uint64_t offset = 0;
  size_t length = 8;
  out[length++] = '{';
  for (int i = 0; i < n; i++) {
    uint64_t floats = 1, bytes = 0;
    for (int d = 0; d < specs[i].n_dims; d++) {
      if (__builtin_mul_overflow(floats, specs[i].dims[d], &floats)) return 0;
    }
    if (__builtin_mul_overflow(floats, sizeof(float), &bytes) || bytes > (uint64_t)INT64_MAX - HEADER_MOST - offset) {
      return 0;
    }
    if (i) out[length++] = ',';
    size_t added = describe(&specs[i], offset, offset + bytes, out + length, HEADER_MOST - length - 16);
    if (!added) return 0;
    length += added;
    file->start[i] = offset;
    file->floats[i] = floats;
    offset += bytes;
  }
  out[length++] = '}';
  while (length % 8) out[length++] = ' ';
  for (int i = 0; i < 8; i++) out[i] = (char)((uint64_t)(length - 8) >> (8 * i) & 255);
  for (int i = 0; i < n; i++) file->start[i] += length;
  return length;
}

static bool write_at(tensor_file *file, uint64_t offset, const char *bytes, size_t n) {
  for (size_t done = 0; done < n;) {
    size_t want = n - done < WRITE_MOST ? n - done : WRITE_MOST;
    ssize_t w = pwrite(file->fd, bytes + done, want, (off_t)(offset + done));
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) {
      failure("%s: writing %zu bytes at offset %llu: %s", file->path, n, (unsigned long long)offset,
              w < 0 ? strerror(errno) : "nothing was taken");
      return false;
    }
    done += (size_t)w;
  }
  return true;
}

// The path, or where a symbolic link leads, so that the link stays and its file is replaced. NULL after a report.
static char *follow_link(const char *path) {
  struct stat st;
  bool link = !lstat(path, &st) && S_ISLNK(st.st_mode);
  char *target = link ? realpath(path, NULL) : strdup(path);
  if (!target) failure("%s: %s", path, strerror(errno));
  return target;
}

// Opens a file beside the target under a name that nobody has.
static bool open_beside(const char *path, tensor_file *file) {
  struct stat st;
  bool replaces = !stat(path, &st);
  if (replaces && !S_ISREG(st.st_mode)) {
    failure("%s: exists and is not a regular file", path);
    return false;
  }
  if (!(file->path = follow_link(path))) return false;
  path = file->path;
  size_t size = strlen(path) + 48;
  if (!(file->temporary = malloc(size))) {
    failure("no memory for the name of %s", path);
    return false;
  }
  for (int i = 0; i < PATH_ATTEMPTS && file->fd < 0; i++) {
    snprintf(file->temporary, size, "%s.%ld-%d.part", path, (long)getpid(), i);
    file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0 && errno != EEXIST) break;
  }
  if (file->fd < 0) {
    failure("%s: cannot create a file beside it: %s", path, strerror(errno));
    return false;
  }
  bool same = !replaces || !fchmod(file->fd, st.st_mode & 0777); // what was private stays so
  if (!same) failure("%s: cannot give its permissions to the new file: %s", path, strerror(errno));
  return same;
}

bool tensor_create(const char *path, const tensor_spec *specs, int n, tensor_file *file) {
  char header[HEADER_MOST];
  *file = (tensor_file){.fd = -1};
  size_t length = build_header(specs, n, file, header);
  if (!length) {
    failure("%s: the tensors are too large, or their names too long, for one file", path);
    return false;
  }
  if (open_beside(path, file) && write_at(file, 0, header, length)) return true;
  tensor_discard(file);
  return false;
}

bool tensor_write(tensor_file *file, int tensor, uint64_t first, const float *values, size_t n) {
  uint64_t floats = file->floats[tensor];
  if (first > floats || n > floats - first) {
    failure("%s: elements %llu and %zu more do not fit into %llu", file->path, (unsigned long long)first, n,
            (unsigned long long)floats);
    return false;
  }
  return write_at(file, file->start[tensor] + first * sizeof(float), (const char *)values, n * sizeof(float));
}

bool tensor_commit(tensor_file *file) {
  int fd = file->fd;
  bool done = fsync(fd) == 0;
  int reason = errno;
  file->fd = -1;
  if (close(fd) && done) reason = errno, done = false;
  if (done && rename(file->temporary, file->path)) reason = errno, done = false;
  if (!done) {
    failure("%s: cannot finish the file: %s", file->path, strerror(reason));
    unlink(file->temporary);
  }
  tensor_discard(file);
  return done;
}

void tensor_discard(tensor_file *file) {
  if (file->fd >= 0) {
    close(file->fd);
    unlink(file->temporary);
  }
  free(file->path);
  free(file->temporary);
  *file = (tensor_file){.fd = -1};
}
