// A GGUF file as the target: its keys, carried over or made from hyperparameters.
#include "convert/conversion.h"

#include "base/memory.h"
#include "format/gguf_writer.h"
#include "model/hparams_write.h"

#include <stdio.h>
#include <string.h>

// Keys that describe the file that was read, not the one being written.
static bool is_dropped(const char *key) {
  static const char *const dropped[] = {"general.alignment", "general.file_type",   "split.no",
                                        "split.count",       "split.tensors.count", "setun.layout",
                                        "setun.activation",  "setun.t5.digits",     NULL};
  for (const char *const *d = dropped; *d; d++) {
    if (!strcmp(*d, key)) return true;
  }
  return !strncmp(key, ST_ROTATION_KEYS, strlen(ST_ROTATION_KEYS)); // written again
}

// Weights with dividing scales, and the divisors.
static setun_status put_divisors(const st_conversion *p, st_keys *keys, setun_error *err) {
  st_text *names = st_malloc(p->n_items, sizeof *names);
  float *divisors = st_malloc(p->n_items, sizeof *divisors);
  size_t n = 0;
  setun_status s = names && divisors ? SETUN_OK : st_fail_memory(err, "the keys");
  for (size_t i = 0; i < p->n_items && s == SETUN_OK; i++) {
    const st_item *item = &p->items[i];
    const st_weight *w = item->n_pieces == 1 ? &item->pieces[0].weight : NULL;
    if (!w || !w->scale_divides || w->n_scales != 1) continue;
    st_weight scale = {.name = w->scale->name,
                       .format = w->scale->format,
                       .shape = {1, 1},
                       .stored = {1, 1},
                       .row_step = 1,
                       .data = w->scale};
    st_row_reader r;
    s = st_row_reader_open(p->d, &scale, &r, err);
    if (s != SETUN_OK) break;
    s = st_read_floats(&r, 0, 1, &divisors[n], err);
    st_row_reader_close(&r);
    names[n++] = (st_text){item->name, strlen(item->name)};
  }
  if (s == SETUN_OK && n) {
    st_keys_texts(keys, "setun.divisors.tensors", names, n);
    st_keys_f32s(keys, "setun.divisors.values", divisors, n);
  }
  st_free(names);
  st_free(divisors);
  return s;
}

// A GGUF source's own keys, except those that the conversion invalidates; otherwise the family's hyperparameters and
// the tokenizer's keys from the options. Then Setun's keys.
static setun_status make_keys(const st_conversion *p, const st_output_tensor *tensors, st_keys *keys,
                              setun_error *err) {
  const st_metadata *m = &p->d->metadata;
  setun_status s = SETUN_OK;
  if (!p->from_gguf) st_hparams_write_gguf(p->target_spec, &p->h, keys);
  for (size_t i = 0; p->from_gguf && i < m->count; i++) {
    if (!is_dropped(m->items[i].key) && !m->items[i].ignored) st_keys_meta(keys, &m->items[i]);
  }
  if (!p->from_gguf && p->o->tokenizer_keys) st_keys_append(keys, p->o->tokenizer_keys);
  s = st_conversion_rotation_keys(p, keys, err);
  st_gguf_layout_keys(keys, p->alignment, p->o->to->name, p->int8, tensors, p->n_items);
  if (s == SETUN_OK && !p->from_gguf) s = put_divisors(p, keys, err);
  return s == SETUN_OK && keys->failed ? st_fail_memory(err, "the keys") : s;
}

bool st_gguf_target_name(const st_spec *spec, st_role role, uint32_t layer, int32_t expert, char *name, size_t size) {
  char module[ST_USE_NAME];
  const st_tensor_use place = {.known = true,
                               .role = role,
                               .in_layer = true,
                               .layer = layer,
                               .expert_of = expert >= 0,
                               .expert = (uint32_t)(expert < 0 ? 0 : expert)};
  if (!st_use_name(spec, true, &place, module)) return false;
  snprintf(name, size, "%s.weight", module);
  return true;
}

static setun_status write_item(void *user, size_t index, st_output *out, setun_error *err) {
  st_conversion *p = user;
  return st_item_write(p, &p->items[index], out, err);
}

// The header must read back as the source's model.
static setun_status verify(void *user, const st_directory *written, setun_error *err) {
  return st_verify_hparams(user, written, err);
}

// What sentence-transformers' files say beyond the pooling and the dense matrices, for which GGUF has no keys.
static void tell_left_out(const st_conversion *p) {
  static const char key[] = "not carried over, since GGUF has no key for it";
  if (st_json_members(st_json_get(p->d->sentence_config, "prompts")))
    st_log_write(p->o->log, SETUN_LOG_WARNING, "prompts (%s): %s", ST_SENTENCE_CONFIG, key);
  if (!p->has_hparams) return;
  if (p->h.embedding.n_ctx) st_log_write(p->o->log, SETUN_LOG_WARNING, "max_seq_length: %s", key);
  if (p->h.embedding.nested) {
    st_log_write(p->o->log, SETUN_LOG_WARNING, "is_matryoshka, matryoshka_dimensions: %s", key);
  }
}

setun_status st_write_gguf(st_conversion *p, const char *path, setun_error *err) {
  st_keys keys = {0};
  const st_output_source source = {.write = write_item, .verify = verify, .user = p};
  st_output_tensor *tensors = st_conversion_tensors(p);
  setun_status s = tensors ? make_keys(p, tensors, &keys, err) : st_fail_memory(err, "the conversion");
  if (s == SETUN_OK) s = st_gguf_write(path, &keys, tensors, p->n_items, p->alignment, &source, err);
  if (s == SETUN_OK && !p->from_gguf) tell_left_out(p);
  st_keys_free(&keys);
  st_free(tensors);
  return s;
}
