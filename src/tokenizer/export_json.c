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

static json_t *text_of(st_bytes text) {
  return json_stringn(text.data, text.length);
}

// Tokens that text is cut at, or that are no text at all; the others are the model's.
static bool is_added(const st_tokenizer *t, uint32_t id) {
  return t->texts[id].data && (t->types[id] == ST_TOKEN_CONTROL || t->types[id] == ST_TOKEN_USER_DEFINED ||
                               t->types[id] == ST_TOKEN_UNKNOWN);
}

static json_t *added_tokens(const st_tokenizer *t) {
  json_t *list = json_array();
  for (uint32_t id = 0; id < t->size; id++) {
    if (!is_added(t, id)) continue;
    bool special = t->types[id] != ST_TOKEN_USER_DEFINED;
    json_t *token =
        json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", text_of(t->texts[id]),
                  "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", (int)special);
    if (json_array_append_new(list, token)) {
      json_decref(list);
      return NULL;
    }
  }
  return list;
}

static json_t *pre_tokenizer(const st_tokenizer *t) {
  json_t *list = json_array();
  bool ok = list != NULL;
  for (size_t i = 0; i < t->n_stages && ok; i++) {
    json_t *split = json_pack("{s:s, s:{s:o}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                              text_of(t->stages[i].pattern), "behavior", "Isolated", "invert", 0);
    ok = !json_array_append_new(list, split);
  }
  json_t *bytes =
      json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0);
  ok = ok && !json_array_append_new(list, bytes);
  if (ok) return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
  json_decref(list);
  return NULL;
}

static json_t *vocabulary(const st_tokenizer *t) {
  json_t *vocab = json_object();
  for (uint32_t id = 0; id < t->size && vocab; id++) {
    if (!t->texts[id].data || (t->outside && t->outside[id])) continue;
    if (!json_object_setn_new(vocab, t->texts[id].data, t->texts[id].length, json_integer(id))) continue;
    json_decref(vocab);
    return NULL;
  }
  return vocab;
}

static json_t *merges_of(const st_vocabulary *v) {
  json_t *list = json_array();
  for (size_t i = 0; i < v->n_merges && list; i++) {
    if (!json_array_append_new(list, json_stringn(v->merges[i].data, v->merges[i].length))) continue;
    json_decref(list);
    return NULL;
  }
  return list;
}

// Texts begin with BOS: what transformers do by a template.
static json_t *post_processor(const st_tokenizer *t) {
  if (!t->add_bos || t->bos < 0) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 0, "use_regex",
                     1);
  }
  json_t *bos = text_of(t->texts[t->bos]);
  json_t *special = json_object();
  if (!bos || !special) return json_decref(bos), json_decref(special), NULL;
  const char *text = json_string_value(bos);
  json_object_set_new(special, text, json_pack("{s:O, s:[i], s:[O]}", "id", bos, "ids", t->bos, "tokens", bos));
  json_t *all = json_pack("{s:s, s:[{s:{s:O, s:i}}, {s:{s:s, s:i}}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:o}", "type",
                          "TemplateProcessing", "single", "SpecialToken", "id", bos, "type_id", 0, "Sequence", "id",
                          "A", "type_id", 0, "pair", "Sequence", "id", "A", "type_id", 0, "Sequence", "id", "B",
                          "type_id", 1, "special_tokens", special);
  json_decref(bos);
  return all;
}

setun_status st_tokenizer_export_json(const st_tokenizer *t, st_buffer *out, setun_error *err) {
  st_vocabulary_export e = {0};
  setun_status s = check(t, err);
  if (!s) s = st_tokenizer_export(t, 0, &e, err);
  if (s) return s;
  json_t *model =
      json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout", "unk_token",
                "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges",
                (int)t->ignore_merges, "vocab", vocabulary(t), "merges", merges_of(&e.vocabulary));
  json_t *decoder =
      json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1);
  json_t *root = json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation", "padding",
                           "added_tokens", added_tokens(t), "normalizer", "pre_tokenizer", pre_tokenizer(t),
                           "post_processor", post_processor(t), "decoder", decoder, "model", model);
  if (!root || !st_json_append_lines(root, out)) s = st_fail_memory(err, "tokenizer.json");
  json_decref(root);
  st_vocabulary_export_free(&e);
  return s;
}
