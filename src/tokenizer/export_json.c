// From a tokenizer to the text of a tokenizer.json.
#include "tokenizer/export.h"

#include "base/json.h"
#include "base/memory.h"
#include "tokenizer/internal.h"

#include <string.h>

static setun_status check(const st_tokenizer *t, setun_error *err) {
  const char *what = NULL;
  if (t->model != ST_MODEL_BPE || !t->byte_level) what = "no byte-level BPE";
  if (t->n_normalizers) what = "one that normalizes text";
  for (size_t i = 0; i < t->n_stages; i++) {
    if (t->stages[i].kind != ST_STAGE_SPLIT || !t->stages[i].pattern.data) what = "one with another step than splits";
  }
  if (!what) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "the tokenizer: expected byte-level BPE with split patterns, which tokenizer.json can be made from, "
                 "found %s; convert to GGUF instead",
                 what);
}

// An object with a type and flags, in this order.
static st_json step(st_json *root, const char *type, bool add_prefix_space, bool trim_offsets, bool use_regex) {
  st_json made = st_json_make_object();
  st_json_set(root, &made, "type", st_json_make_text(root, type));
  st_json_set(root, &made, "add_prefix_space", st_json_make_bool(add_prefix_space));
  st_json_set(root, &made, "trim_offsets", st_json_make_bool(trim_offsets));
  st_json_set(root, &made, "use_regex", st_json_make_bool(use_regex));
  return made;
}

static st_json text_of(st_json *root, st_bytes text) {
  return st_json_make_string(root, text.data, text.length);
}

// Tokens that text is split at, or that are not text; the others are the model's.
static bool is_added(const st_tokenizer *t, uint32_t id) {
  return t->texts[id].data && (t->types[id] == ST_TOKEN_CONTROL || t->types[id] == ST_TOKEN_USER_DEFINED ||
                               t->types[id] == ST_TOKEN_UNKNOWN);
}

static st_json added_tokens(const st_tokenizer *t, st_json *root) {
  static const char *const off[] = {"single_word", "lstrip", "rstrip", "normalized"};
  st_json list = st_json_make_array();
  for (uint32_t id = 0; id < t->size; id++) {
    if (!is_added(t, id)) continue;
    st_json token = st_json_make_object();
    st_json_set(root, &token, "id", st_json_make_integer(id));
    st_json_set(root, &token, "content", text_of(root, t->texts[id]));
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) st_json_set(root, &token, off[i], st_json_make_bool(false));
    st_json_set(root, &token, "special", st_json_make_bool(t->types[id] != ST_TOKEN_USER_DEFINED));
    st_json_push(root, &list, token);
  }
  return list;
}

static st_json pre_tokenizer(const st_tokenizer *t, st_json *root) {
  st_json made = st_json_make_object(), list = st_json_make_array();
  for (size_t i = 0; i < t->n_stages; i++) {
    st_json split = st_json_make_object(), pattern = st_json_make_object();
    st_json_set(root, &pattern, "Regex", text_of(root, t->stages[i].pattern));
    st_json_set(root, &split, "type", st_json_make_text(root, "Split"));
    st_json_set(root, &split, "pattern", pattern);
    st_json_set(root, &split, "behavior", st_json_make_text(root, "Isolated"));
    st_json_set(root, &split, "invert", st_json_make_bool(false));
    st_json_push(root, &list, split);
  }
  st_json_push(root, &list, step(root, "ByteLevel", false, true, false));
  st_json_set(root, &made, "type", st_json_make_text(root, "Sequence"));
  st_json_set(root, &made, "pretokenizers", list);
  return made;
}

// No two tokens of the model have one text.
static st_json vocabulary(const st_tokenizer *t, st_json *root) {
  st_json vocab = st_json_make_object();
  for (uint32_t id = 0; id < t->size; id++) {
    if (!t->texts[id].data || (t->outside && t->outside[id])) continue;
    st_json_add(root, &vocab, t->texts[id].data, t->texts[id].length, st_json_make_integer(id));
  }
  return vocab;
}

static st_json merges_of(const st_vocabulary *v, st_json *root) {
  st_json list = st_json_make_array();
  for (size_t i = 0; i < v->n_merges; i++) {
    st_json_push(root, &list, st_json_make_string(root, v->merges[i].data, v->merges[i].length));
  }
  return list;
}

// {kind: {"id": id, "type_id": type_id}} at the end of a list.
static void push_piece(st_json *root, st_json *list, const char *kind, st_json id, int type_id) {
  st_json piece = st_json_make_object(), inner = st_json_make_object();
  st_json_set(root, &inner, "id", id);
  st_json_set(root, &inner, "type_id", st_json_make_integer(type_id));
  st_json_set(root, &piece, kind, inner);
  st_json_push(root, list, piece);
}

// Texts begin with BOS: what transformers do by a template.
static st_json post_processor(const st_tokenizer *t, st_json *root) {
  if (!t->add_bos || t->bos < 0) return step(root, "ByteLevel", true, false, true);
  st_json bos = text_of(root, t->texts[t->bos]), made = st_json_make_object(), special = st_json_make_object();
  st_json entry = st_json_make_object(), ids = st_json_make_array(), tokens = st_json_make_array();
  st_json single = st_json_make_array(), pair = st_json_make_array();
  st_json first = st_json_make_text(root, "A"), second = st_json_make_text(root, "B");
  st_json_push(root, &ids, st_json_make_integer(t->bos));
  st_json_push(root, &tokens, bos);
  st_json_set(root, &entry, "id", bos);
  st_json_set(root, &entry, "ids", ids);
  st_json_set(root, &entry, "tokens", tokens);
  st_json_add(root, &special, t->texts[t->bos].data, t->texts[t->bos].length, entry);
  push_piece(root, &single, "SpecialToken", bos, 0);
  push_piece(root, &single, "Sequence", first, 0);
  push_piece(root, &pair, "Sequence", first, 0);
  push_piece(root, &pair, "Sequence", second, 1);
  st_json_set(root, &made, "type", st_json_make_text(root, "TemplateProcessing"));
  st_json_set(root, &made, "single", single);
  st_json_set(root, &made, "pair", pair);
  st_json_set(root, &made, "special_tokens", special);
  return made;
}

static st_json model_of(const st_tokenizer *t, const st_vocabulary *v, st_json *root) {
  static const char *const absent[] = {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"};
  st_json model = st_json_make_object();
  st_json_set(root, &model, "type", st_json_make_text(root, "BPE"));
  for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) st_json_set(root, &model, absent[i], st_json_make_null());
  st_json_set(root, &model, "fuse_unk", st_json_make_bool(false));
  st_json_set(root, &model, "byte_fallback", st_json_make_bool(false));
  st_json_set(root, &model, "ignore_merges", st_json_make_bool(t->ignore_merges));
  st_json_set(root, &model, "vocab", vocabulary(t, root));
  st_json_set(root, &model, "merges", merges_of(v, root));
  return model;
}

setun_status st_tokenizer_export_json(const st_tokenizer *t, st_buffer *out, setun_error *err) {
  st_vocabulary_export e = {0};
  setun_status s = check(t, err);
  if (!s) s = st_tokenizer_export(t, 0, &e, err);
  if (s) return s;
  st_json *root = st_json_new();
  if (root) {
    st_json_set(root, root, "version", st_json_make_text(root, "1.0"));
    st_json_set(root, root, "truncation", st_json_make_null());
    st_json_set(root, root, "padding", st_json_make_null());
    st_json_set(root, root, "added_tokens", added_tokens(t, root));
    st_json_set(root, root, "normalizer", st_json_make_null());
    st_json_set(root, root, "pre_tokenizer", pre_tokenizer(t, root));
    st_json_set(root, root, "post_processor", post_processor(t, root));
    st_json_set(root, root, "decoder", step(root, "ByteLevel", true, true, true));
    st_json_set(root, root, "model", model_of(t, &e.vocabulary, root));
  }
  if (!root || st_json_failed(root) || !st_json_append_lines(root, out)) s = st_fail_memory(err, "tokenizer.json");
  st_json_free(root);
  st_vocabulary_export_free(&e);
  return s;
}
