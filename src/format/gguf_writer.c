// Writing GGUF files.
#include "format/gguf_writer.h"

#include "base/memory.h"

#include <string.h>

enum { GGUF_VERSION = 3 };

setun_status st_gguf_place(st_output_tensor *tensors, size_t n, uint64_t alignment, uint64_t *data_bytes,
                           setun_error *err) {
  uint64_t at = 0;
  for (size_t i = 0; i < n; i++) {
    uint64_t end;
    tensors[i].offset = at;
    if (!st_add_u64(at, tensors[i].bytes, &end) || !st_add_u64(end, alignment - 1, &end)) {
      return st_fail(err, SETUN_ERROR_LIMIT, "%s: the tensors' sizes overflow", tensors[i].name);
    }
    at = end / alignment * alignment;
  }
  *data_bytes = at;
  return SETUN_OK;
}

void st_gguf_layout_keys(st_keys *keys, uint64_t alignment, const char *layouts, bool int8,
                         const st_output_tensor *tensors, size_t n) {
  const char *digits = NULL;
  for (size_t i = 0; i < n && !digits; i++) digits = tensors[i].format ? tensors[i].format->ops->digits : NULL;
  if (alignment != ST_GGUF_USUAL) st_keys_u32(keys, "general.alignment", (uint32_t)alignment);
  st_keys_text(keys, "setun.layout", layouts);
  st_keys_text(keys, "setun.activation", int8 ? "int8" : "float");
  if (digits) st_keys_text(keys, "setun.t5.digits", digits);
}

// ---- the header ---------------------------------------------------------------------------------------------------

static bool put_number(st_buffer *b, uint64_t value, size_t n) {
  return st_buffer_append(b, &value, n);
}

// The type's number; false for a type that the container lacks.
static bool type_of(const st_output_tensor *t, uint32_t *type) {
  static const struct {
    const char *name;
    uint32_t type;
  } sized[] = {{"I8", 24}, {"I16", 25}, {"I32", 26}, {"I64", 27}, {"F64", 28}};
  if (t->format) {
    *type = (uint32_t)t->format->gguf_type;
    return t->format->gguf_type >= 0;
  }
  for (size_t i = 0; i < sizeof sized / sizeof *sized; i++) {
    if (strcmp(sized[i].name, t->dtype)) continue;
    *type = sized[i].type;
    return true;
  }
  return false;
}

static setun_status put_info(const st_output_tensor *t, st_buffer *b, setun_error *err) {
  uint32_t type;
  if (!type_of(t, &type)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: GGUF has no type for %s", t->name,
                   t->format ? t->format->name : t->dtype);
  }
  size_t length = strlen(t->name);
  bool ok = put_number(b, length, 8) && st_buffer_append(b, t->name, length) && put_number(b, t->n_dims, 4);
  for (uint32_t i = 0; i < t->n_dims; i++) ok = ok && put_number(b, t->dims[i], 8);
  ok = ok && put_number(b, type, 4) && put_number(b, t->offset, 8);
  return ok ? SETUN_OK : st_fail_memory(err, t->name);
}

setun_status st_gguf_header(const st_keys *keys, const st_output_tensor *tensors, size_t n, uint64_t alignment,
                            st_buffer *b, setun_error *err) {
  bool ok = !keys->failed && st_buffer_text(b, "GGUF") && put_number(b, GGUF_VERSION, 4) && put_number(b, n, 8) &&
            put_number(b, keys->count, 8) && st_buffer_append(b, keys->bytes.data, keys->bytes.length);
  setun_status s = ok ? SETUN_OK : st_fail_memory(err, "the header");
  for (size_t i = 0; i < n && s == SETUN_OK; i++) s = put_info(&tensors[i], b, err);
  while (s == SETUN_OK && b->length % alignment) {
    if (!st_buffer_append(b, "", 1)) s = st_fail_memory(err, "the header");
  }
  return s;
}

// ---- the file -----------------------------------------------------------------------------------------------------

static setun_status pad(uint64_t alignment, st_output *out, setun_error *err) {
  static const uint8_t zeros[ST_GGUF_BLOCKS];
  setun_status s = SETUN_OK;
  while (s == SETUN_OK && out->length % alignment) {
    uint64_t left = alignment - out->length % alignment;
    s = st_output_write(out, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros, err);
  }
  return s;
}

// Lets the source read the header back from a file of the final length.
static setun_status verify(const st_output_source *source, st_output *out, uint64_t length, setun_error *err) {
  uint8_t zero = 0;
  st_directory *d = NULL;
  setun_status s = SETUN_OK;
  if (!source->verify) return s;
  if (length > out->length) s = st_output_write_at(out, length - 1, &zero, 1, err);
  if (s == SETUN_OK) s = st_directory_open(out->temporary, NULL, &d, err);
  if (s == SETUN_OK) s = source->verify(source->user, d, err);
  st_directory_free(d);
  return s;
}

setun_status st_gguf_write(const char *path, const st_keys *keys, st_output_tensor *tensors, size_t n,
                           uint64_t alignment, const st_output_source *source, setun_error *err) {
  st_buffer header = {0};
  st_output out;
  uint64_t data_bytes = 0;
  setun_status s = st_gguf_place(tensors, n, alignment, &data_bytes, err);
  if (s == SETUN_OK) s = st_gguf_header(keys, tensors, n, alignment, &header, err);
  if (s == SETUN_OK) s = st_output_open(path, &out, err);
  if (s != SETUN_OK) {
    st_buffer_free(&header);
    return s;
  }
  uint64_t length = header.length + data_bytes;
  s = st_output_write(&out, header.data, header.length, err);
  st_buffer_free(&header);
  if (s == SETUN_OK) s = verify(source, &out, length, err);
  for (size_t i = 0; i < n && s == SETUN_OK; i++) {
    s = st_output_tensor_write(source, i, &tensors[i], &out, err);
    if (s == SETUN_OK) s = pad(alignment, &out, err);
  }
  if (s == SETUN_OK) return st_output_commit(&out, err);
  st_output_discard(&out);
  return s;
}
