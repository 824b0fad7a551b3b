// A safetensors writer for float32: 8 bytes of header length, a JSON header, then the tensors one after another.
// Source: the safetensors format description (Hugging Face).
#include "tensors.h"

#include "output.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MOST = 1024, HEADER_MOST = 16384 };

// The name as the contents of a JSON string. False if too long.
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

// One tensor's entry in the header; returns the number of characters, or 0 if it does not fit.
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

// The header with its length first; fills file->start and file->floats. 0 if the sizes are too large.
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

// Reports the library's message. Returns false.
static bool failed(const setun_error *error) {
  report(error);
  return false;
}

bool tensor_create(const char *path, const tensor_spec *specs, int n, tensor_file *file) {
  char header[HEADER_MOST];
  setun_error error;
  *file = (tensor_file){.path = path};
  size_t length = build_header(specs, n, file, header);
  if (!length) {
    failure("%s: the tensors are too large, or their names too long, for one file", path);
    return false;
  }
  if (setun_output_open(path, &file->output, &error) != SETUN_OK) return failed(&error);
  if (setun_output_write(file->output, 0, header, length, &error) == SETUN_OK) return true;
  tensor_discard(file);
  return failed(&error);
}

bool tensor_write(tensor_file *file, int tensor, uint64_t first, const float *values, size_t n) {
  uint64_t floats = file->floats[tensor], offset = file->start[tensor] + first * sizeof(float);
  setun_error error;
  if (first > floats || n > floats - first) {
    failure("%s: elements %llu and %zu more do not fit into %llu", file->path, (unsigned long long)first, n,
            (unsigned long long)floats);
    return false;
  }
  return setun_output_write(file->output, offset, values, n * sizeof(float), &error) == SETUN_OK || failed(&error);
}

bool tensor_commit(tensor_file *file) {
  setun_error error;
  setun_status s = setun_output_commit(file->output, &error);
  file->output = NULL;
  return s == SETUN_OK || failed(&error);
}

void tensor_discard(tensor_file *file) {
  setun_output_discard(file->output);
  file->output = NULL;
}
