// Writing a Hugging Face directory: model.safetensors, config.json, and the tokenizer's files.
#include "convert/gguf_keys.h"
#include "convert/hf_config.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { COPIED_MOST = 512 << 20 };

// ---- model.safetensors --------------------------------------------------------------------------------------------

static const char *dtype_of(const st_item *item) {
  if (!item->format) return item->dtype;
  switch (item->format->id) {
  case ST_F32: return "F32";
  case ST_F16: return "F16";
  case ST_BF16: return "BF16";
  case ST_F8_E4M3: return "F8_E4M3";
  case ST_F8_E5M2: return "F8_E5M2";
  case ST_HF_U8: return "U8";
  default: return NULL;
  }
}

// Bytes that the tensor's offset should be a multiple of.
static uint64_t width_of(const st_item *item) {
  if (item->format) return item->format->id == ST_HF_U8 ? 1 : item->format->block_bytes;
  const char *t = item->dtype;
  return strstr(t, "64") ? 8 : strstr(t, "32") ? 4 : strstr(t, "16") ? 2 : 1;
}

typedef struct {
  st_item *item;
  size_t index;
} ordered;

static int by_width(const void *a, const void *b) {
  const ordered *x = a, *y = b;
  uint64_t v = width_of(x->item), w = width_of(y->item);
  return v > w ? -1 : v < w ? 1 : x->index < y->index ? -1 : x->index > y->index;
}

// Places the tensors in the order of use, or, where one would not be aligned so (readers map the file), wide ones
// first.
static void place(ordered *order, size_t n) {
  uint64_t at = 0;
  bool aligned = true;
  for (size_t i = 0; i < n; i++) {
    aligned = aligned && at % width_of(order[i].item) == 0;
    at += order[i].item->bytes;
  }
  if (!aligned) qsort(order, n, sizeof *order, by_width);
  at = 0;
  for (size_t i = 0; i < n; i++) {
    order[i].item->offset = at;
    at += order[i].item->bytes;
  }
}

static setun_status put_entry(const st_item *item, st_json *header, setun_error *err) {
  const char *dtype = dtype_of(item);
  if (!dtype) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: safetensors has no type for %s", item->name,
                   item->format ? item->format->name : item->dtype);
  }
  st_json entry = st_json_make_object(), shape = st_json_make_array(), offsets = st_json_make_array();
  for (uint32_t i = item->n_dims; i-- > 0;) {
    uint64_t dim = item->dims[i];
    if (item->format && item->format->id == ST_HF_U8 && i == 1) dim = dim / 4 + (dim % 4 != 0);
    st_json_push(header, &shape, st_json_make_integer((int64_t)dim));
  }
  st_json_push(header, &offsets, st_json_make_integer((int64_t)item->offset));
  st_json_push(header, &offsets, st_json_make_integer((int64_t)(item->offset + item->bytes)));
  st_json_set(header, &entry, "dtype", st_json_make_text(header, dtype));
  st_json_set(header, &entry, "shape", shape);
  st_json_set(header, &entry, "data_offsets", offsets);
  st_json_add(header, header, item->name, strlen(item->name), entry); // a plan names each tensor once
  return SETUN_OK;
}

// The length and the JSON, with spaces so that the data begins at a multiple of 8.
static setun_status make_header(const ordered *order, size_t n, st_buffer *out, setun_error *err) {
  st_json *header = st_json_new(), metadata = st_json_make_object();
  st_buffer text = {0};
  if (!header) return st_fail_memory(err, "the header");
  setun_status s = SETUN_OK;
  st_json_set(header, &metadata, "format", st_json_make_text(header, "pt"));
  st_json_set(header, header, "__metadata__", metadata);
  for (size_t i = 0; i < n && s == SETUN_OK; i++) s = put_entry(order[i].item, header, err);
  bool ok = s != SETUN_OK || (!st_json_failed(header) && st_json_append(header, &text));
  while (ok && s == SETUN_OK && text.length % 8) ok = st_buffer_text(&text, " ");
  uint64_t length = text.length;
  if (s == SETUN_OK && (!ok || !st_buffer_append(out, &length, 8) || !st_buffer_append(out, text.data, text.length))) {
    s = st_fail_memory(err, "the header");
  }
  st_buffer_free(&text);
  st_json_free(header);
  return s;
}

static setun_status write_file(const char *directory, const char *name, const void *bytes, size_t n, setun_error *err) {
  st_output out;
  char *path = st_path_join(directory, name);
  if (!path) return st_fail_memory(err, name);
  setun_status s = st_output_open(path, &out, err);
  st_free(path);
  if (s != SETUN_OK) return s;
  s = st_output_write(&out, bytes, n, err);
  if (s == SETUN_OK) return st_output_commit(&out, err);
  st_output_discard(&out);
  return s;
}

static setun_status write_weights(st_conversion *p, const ordered *order, const char *directory, setun_error *err) {
  st_output out;
  st_buffer header = {0};
  char *path = st_path_join(directory, "model.safetensors");
  if (!path) return st_fail_memory(err, "model.safetensors");
  setun_status s = make_header(order, p->n_items, &header, err);
  if (s == SETUN_OK) s = st_output_open(path, &out, err);
  st_free(path);
  if (s == SETUN_OK) {
    s = st_output_write(&out, header.data, header.length, err);
    for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) s = st_item_write(p, order[i].item, &out, err);
    if (s == SETUN_OK) {
      s = st_output_commit(&out, err);
    } else {
      st_output_discard(&out);
    }
  }
  st_buffer_free(&header);
  return s;
}

// ---- the rest -----------------------------------------------------------------------------------------------------

// A directory's files that say nothing of weights.
static setun_status copy_files(const st_conversion *p, const char *directory, setun_error *err) {
  static const char *const names[] = {
      "tokenizer.json",      "tokenizer.model",         "tokenizer_config.json",    "vocab.json",
      "merges.txt",          "special_tokens_map.json", "added_tokens.json",        "generation_config.json",
      "chat_template.jinja", "chat_template.json",      "preprocessor_config.json", "LICENSE"};
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names && s == SETUN_OK; i++) {
    char *text = NULL;
    size_t length = 0;
    s = st_file_load_beside(p->d->path, names[i], COPIED_MOST, &text, &length, err);
    if (s == SETUN_OK && text) s = write_file(directory, names[i], text, length, err);
    st_free(text);
  }
  return s;
}

static setun_status write_tokenizer(const st_conversion *p, const char *directory, setun_error *err) {
  const st_buffer *json = p->o->tokenizer_json, *config = p->o->tokenizer_config;
  if (!p->from_gguf) return copy_files(p, directory, err);
  setun_status s = json ? write_file(directory, "tokenizer.json", json->data, json->length, err) : SETUN_OK;
  if (s != SETUN_OK || !config) return s;
  return write_file(directory, "tokenizer_config.json", config->data, config->length, err);
}

// Reads what was written: its hyperparameters must be the source's. Needs a directory with its weights' header.
static setun_status verify(const st_conversion *p, const char *directory, setun_error *err) {
  st_directory *d = NULL;
  setun_status s = st_directory_open(directory, NULL, &d, err);
  if (s == SETUN_OK) s = st_verify_hparams(p, d, err);
  st_directory_free(d);
  return s;
}

static setun_status fill(st_conversion *p, const ordered *order, const char *directory, setun_error *err) {
  st_buffer config = {0};
  static const char empty[] = "\2\0\0\0\0\0\0\0{}";
  setun_status s = st_hf_config(p, &config, err);
  if (s == SETUN_OK) s = write_file(directory, "config.json", config.data, config.length, err);
  st_buffer_free(&config);
  // Before the weights, so that a refusal costs no time.
  if (s == SETUN_OK) s = write_file(directory, "model.safetensors", empty, sizeof empty - 1, err);
  if (s == SETUN_OK) s = verify(p, directory, err);
  if (s == SETUN_OK) s = write_tokenizer(p, directory, err);
  return s == SETUN_OK ? write_weights(p, order, directory, err) : s;
}

setun_status st_write_huggingface(st_conversion *p, const char *path, setun_error *err) {
  st_output_directory out;
  ordered *order = st_malloc(p->n_items, sizeof *order);
  if (!order) return st_fail_memory(err, "the conversion");
  for (size_t i = 0; i < p->n_items; i++) order[i] = (ordered){&p->items[i], i};
  place(order, p->n_items);
  setun_status s = st_output_directory_open(path, &out, err);
  if (s == SETUN_OK) {
    s = fill(p, order, out.temporary, err);
    if (s == SETUN_OK) {
      s = st_output_directory_commit(&out, err);
    } else {
      st_output_directory_discard(&out);
    }
  }
  st_free(order);
  return s;
}
