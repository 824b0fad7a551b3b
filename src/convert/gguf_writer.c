// Writing a GGUF file: keys, tensor infos, tensors in the order of use.
#include "convert/gguf_writer.h"

#include "convert/conversion.h"
#include "convert/gguf_keys.h"

#include "base/memory.h"

#include <string.h>

enum { GGUF_VERSION = 3 };

static bool put_number(st_buffer *b, uint64_t value, size_t n) {
  return st_buffer_append(b, &value, n);
}

// The type's number; false for a type that the container does not know.
static bool type_of(const st_item *item, uint32_t *type) {
  static const struct {
    const char *name;
    uint32_t type;
  } sized[] = {{"I8", 24}, {"I16", 25}, {"I32", 26}, {"I64", 27}, {"F64", 28}};
  if (item->format) {
    *type = (uint32_t)item->format->gguf_type;
    return item->format->gguf_type >= 0;
  }
  for (size_t i = 0; i < sizeof sized / sizeof *sized; i++) {
    if (strcmp(sized[i].name, item->dtype)) continue;
    *type = sized[i].type;
    return true;
  }
  return false;
}

static setun_status put_info(const st_item *item, st_buffer *b, setun_error *err) {
  uint32_t type;
  if (!type_of(item, &type)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: GGUF has no type for %s", item->name,
                   item->format ? item->format->name : item->dtype);
  }
  size_t length = strlen(item->name);
  bool ok = put_number(b, length, 8) && st_buffer_append(b, item->name, length) && put_number(b, item->n_dims, 4);
  for (uint32_t i = 0; i < item->n_dims; i++) ok = ok && put_number(b, item->dims[i], 8);
  ok = ok && put_number(b, type, 4) && put_number(b, item->offset, 8);
  return ok ? SETUN_OK : st_fail_memory(err, item->name);
}

setun_status st_gguf_header(const st_keys *keys, const st_item *items, size_t n, uint64_t alignment, st_buffer *b,
                            setun_error *err) {
  bool ok = !keys->failed && st_buffer_text(b, "GGUF") && put_number(b, GGUF_VERSION, 4) && put_number(b, n, 8) &&
            put_number(b, keys->count, 8) && st_buffer_append(b, keys->bytes.data, keys->bytes.length);
  setun_status s = ok ? SETUN_OK : st_fail_memory(err, "the header");
  for (size_t i = 0; i < n && s == SETUN_OK; i++) s = put_info(&items[i], b, err);
  while (s == SETUN_OK && b->length % alignment) {
    if (!st_buffer_append(b, "", 1)) s = st_fail_memory(err, "the header");
  }
  return s;
}

static setun_status make_header(const st_conversion *p, st_buffer *b, setun_error *err) {
  st_keys keys = {0};
  setun_status s = st_gguf_keys(p, &keys, err);
  if (s == SETUN_OK) s = st_gguf_header(&keys, p->items, p->n_items, p->alignment, b, err);
  st_keys_free(&keys);
  return s;
}

static setun_status pad(uint64_t alignment, st_output *out, setun_error *err) {
  static const uint8_t zeros[ST_GGUF_BLOCKS];
  size_t over = (size_t)(out->length % alignment);
  return over ? st_output_write(out, zeros, (size_t)alignment - over, err) : SETUN_OK;
}

// Reads the header back from a file that is as long as it will be: what a reader makes of it must be the source's
// model.
static setun_status verify(const st_conversion *p, st_output *out, uint64_t header, setun_error *err) {
  uint8_t zero = 0;
  st_directory *d = NULL;
  if (p->data_bytes) {
    setun_status s = st_output_write_at(out, header + p->data_bytes - 1, &zero, 1, err);
    if (s != SETUN_OK) return s;
  }
  setun_status s = st_directory_open(out->temporary, NULL, &d, err);
  if (s == SETUN_OK) s = st_verify_hparams(p, d, err);
  st_directory_free(d);
  return s;
}

setun_status st_write_gguf(st_conversion *p, const char *path, setun_error *err) {
  st_buffer header = {0};
  st_output out;
  setun_status s = make_header(p, &header, err);
  if (s == SETUN_OK) s = st_output_open(path, &out, err);
  if (s != SETUN_OK) {
    st_buffer_free(&header);
    return s;
  }
  uint64_t length = header.length;
  s = st_output_write(&out, header.data, header.length, err);
  st_buffer_free(&header);
  if (s == SETUN_OK) s = verify(p, &out, length, err);
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) {
    s = st_item_write(p, &p->items[i], &out, err);
    if (s == SETUN_OK) s = pad(p->alignment, &out, err);
  }
  if (s == SETUN_OK) return st_output_commit(&out, err);
  st_output_discard(&out);
  return s;
}
