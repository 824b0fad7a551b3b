// setun.h: conversion. The tokenizer's part of a container is made here, since only this layer knows both.
#include "api/api.h"

#include "base/float_modes.h"
#include "base/memory.h"
#include "convert/convert.h"
#include "tokenizer/export.h"

#include <string.h>

// ---- parameters ---------------------------------------------------------------------------------------------------

static setun_status find_layout(const char *name, st_convert_options *o, setun_error *err) {
  if (!name) return st_fail(err, SETUN_ERROR_ARGUMENT, "to: expected a layout's name, found none");
  const st_format *f = st_format_by_layout(name, &o->divides);
  if (!f || !(st_format_is_number(f) || st_format_is_ternary(f))) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "to: expected a ternary layout, f32, f16 or bf16, found \"%.40s\"", name);
  }
  o->to = f;
  return SETUN_OK;
}

setun_status st_find_end_format(const char *what, const char *name, const st_format **format, bool *kept,
                                setun_error *err) {
  *kept = name && !strcmp(name, "keep");
  if (!name || *kept) return SETUN_OK;
  *format = st_format_by_name(name);
  if (*format && st_format_is_fine(*format)) return SETUN_OK;
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected keep, f32, f16, bf16, q8_0 or q6_k, found \"%.40s\"", what,
                 name);
}

static setun_status read_params(const setun_convert_params *p, st_convert_options *o, setun_error *err) {
  setun_status s = st_check_reading(p->assume, p->ignore_keys, p->n_ignore_keys, err);
  if (s == SETUN_OK) s = find_layout(p->to, o, err);
  if (s == SETUN_OK) s = st_find_end_format("embedding", p->embedding, &o->embedding, &o->keep_embedding, err);
  if (s == SETUN_OK) s = st_find_end_format("head", p->head, &o->head, &o->keep_head, err);
  if (s == SETUN_OK && p->experts && strcmp(p->experts, "split") && strcmp(p->experts, "stacked")) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "experts: expected split or stacked, found \"%.40s\"", p->experts);
  }
  o->stacked = p->experts && !strcmp(p->experts, "stacked");
  o->round_scales = p->round_scales;
  o->unrotate = p->unrotate;
  o->deltas = p->deltas;
  o->progress = p->progress;
  o->user = p->user;
  return s;
}

// ---- tokenizers ---------------------------------------------------------------------------------------------------

static void put_id(st_keys *k, const char *key, int64_t id) {
  if (id >= 0) st_keys_u32(k, key, (uint32_t)id);
}

static void put_flag(st_keys *k, const char *key, int flag) {
  if (flag >= 0) st_keys_bool(k, key, flag != 0);
}

static void put_vocabulary(st_keys *k, const st_vocabulary *v) {
  st_keys_text(k, "tokenizer.ggml.model", v->model);
  st_keys_text(k, "tokenizer.ggml.pre", v->pre);
  st_keys_texts(k, "tokenizer.ggml.tokens", v->tokens, v->n);
  if (v->scores) st_keys_f32s(k, "tokenizer.ggml.scores", v->scores, v->n);
  st_keys_i32s(k, "tokenizer.ggml.token_type", v->types, v->n);
  if (v->merges) st_keys_texts(k, "tokenizer.ggml.merges", v->merges, v->n_merges);
  put_id(k, "tokenizer.ggml.bos_token_id", v->bos);
  put_id(k, "tokenizer.ggml.eos_token_id", v->eos);
  put_id(k, "tokenizer.ggml.unknown_token_id", v->unk);
  put_id(k, "tokenizer.ggml.eot_token_id", v->eot);
  put_id(k, "tokenizer.ggml.eom_token_id", v->eom);
  put_flag(k, "tokenizer.ggml.add_bos_token", v->add_bos);
  put_flag(k, "tokenizer.ggml.add_eos_token", v->add_eos);
  put_flag(k, "tokenizer.ggml.add_space_prefix", v->add_space_prefix);
}

// The chat template in tokenizer_config.json or chat_template.jinja; GGUF has it in a key.
static setun_status put_template(const st_directory *d, st_keys *k, setun_error *err) {
  static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json"};
  setun_status s = SETUN_OK;
  for (int i = 0; i < 2 && s == SETUN_OK; i++) {
    char *text = NULL;
    size_t length = 0;
    s = st_file_load_beside(d->path, names[i], 64 << 20, &text, &length, err);
    if (!text) continue;
    st_json *config = NULL;
    if (i) s = st_json_parse(text, length, names[i], &config, err);
    const char *found = i ? st_json_string(st_json_get(config, "chat_template")) : text;
    if (found) st_keys_text(k, "tokenizer.chat_template", found);
    bool done = found != NULL;
    st_json_free(config);
    st_free(text);
    if (done) break;
  }
  return s;
}

// tokenizer.json may have merges for a SentencePiece vocabulary, for which GGUF has scores: these are in
// tokenizer.model.
static setun_status export(const st_directory *d, st_tokenizer **t, uint32_t size, st_vocabulary_export *e,
                           setun_error *err) {
  setun_error why = {SETUN_OK, ""};
  st_tokenizer *scores = NULL;
  setun_status s = st_tokenizer_export(*t, size, e, &why);
  if (s == SETUN_ERROR_UNSUPPORTED) {
    setun_error other;
    setun_status loaded = st_vocabulary_load_sentencepiece(d, &scores, &other);
    if (loaded == SETUN_ERROR_MEMORY) s = loaded, why = other;
  }
  if (scores) {
    st_tokenizer_free(*t);
    *t = scores;
    s = st_tokenizer_export(scores, size, e, &why);
  }
  if (s != SETUN_OK && err) *err = why;
  return s;
}

// Keys from a directory's tokenizer files, for a vocabulary of the embedding's size.
static setun_status make_keys(const st_directory *d, st_keys *keys, setun_error *err) {
  st_tokenizer *t = NULL;
  st_vocabulary_export e = {0};
  uint32_t size = 0;
  const st_json *text = st_json_get(d->config, "text_config");
  st_json_u32(st_json_is_object(text) ? text : d->config, "vocab_size", 0, 1u << 24, &size, NULL);
  setun_status s = st_vocabulary_load(d, st_default_pre(d), NULL, &t, err);
  if (s == SETUN_OK) s = export(d, &t, size, &e, err);
  if (s == SETUN_OK) {
    put_vocabulary(keys, &e.vocabulary);
    s = put_template(d, keys, err);
  }
  if (s == SETUN_OK && keys->failed) s = st_fail_memory(err, "the vocabulary");
  st_vocabulary_export_free(&e);
  st_tokenizer_free(t);
  return s;
}

// tokenizer_config.json: the special tokens by name, and the chat template.
static bool put_config(const st_directory *d, const st_tokenizer *t, st_buffer *out) {
  st_json *c = st_json_new();
  if (!c) return false;
  bool scores = st_tokenizer_has_scores(t), prefix = true;
  st_json_set(c, c, "tokenizer_class", st_json_make_text(c, scores ? "LlamaTokenizer" : "PreTrainedTokenizerFast"));
  st_json_set(c, c, "add_bos_token", st_json_make_bool(st_tokenizer_add_bos(t)));
  if (scores) {
    st_metadata_bool(&d->metadata, "tokenizer.ggml.add_space_prefix", &prefix, NULL);
    st_json_set(c, c, "add_prefix_space", st_json_make_bool(prefix));
    st_json_set(c, c, "legacy", st_json_make_bool(false));
  }
  const struct {
    const char *key;
    int32_t id;
  } tokens[] = {
      {"bos_token", st_tokenizer_bos(t)}, {"eos_token", st_tokenizer_eos(t)}, {"unk_token", st_tokenizer_unk(t)}};
  st_text text = {0};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    if (tokens[i].id < 0 || st_tokenizer_text(t, tokens[i].id, &text, NULL) != SETUN_OK) continue;
    st_json_set(c, c, tokens[i].key, st_json_make_string(c, text.data, text.length));
  }
  text = (st_text){0};
  st_metadata_text(&d->metadata, "tokenizer.chat_template", &text, NULL);
  if (text.data) st_json_set(c, c, "chat_template", st_json_make_string(c, text.data, text.length));
  bool ok = !st_json_failed(c) && st_json_append_lines(c, out);
  st_json_free(c);
  return ok;
}

// The tokenizer's file, and tokenizer_config.json.
static setun_status make_files(const st_directory *d, const char **name, st_buffer *made, st_buffer *config,
                               setun_error *err) {
  st_tokenizer *t = NULL;
  setun_status s = st_vocabulary_load(d, st_default_pre(d), NULL, &t, err);
  *name = s == SETUN_OK && st_tokenizer_has_scores(t) ? "tokenizer.model" : "tokenizer.json";
  if (s == SETUN_OK) {
    s = st_tokenizer_has_scores(t) ? st_tokenizer_export_sentencepiece(t, made, err)
                                   : st_tokenizer_export_json(t, made, err);
  }
  if (s == SETUN_OK && !put_config(d, t, config)) s = st_fail_memory(err, "tokenizer_config.json");
  st_tokenizer_free(t);
  return s;
}

static bool has_tokenizer(const st_directory *d) {
  return st_metadata_find(&d->metadata, "tokenizer.ggml.model") ||
         st_metadata_find(&d->metadata, "tokenizer.ggml.tokens");
}

setun_status st_convert_whole(const char *source, const char *target, const st_open_options *open,
                              st_convert_options *o, setun_error *error) {
  st_directory *d = NULL;
  st_keys keys = {0};
  st_buffer tokenizer = {0}, config = {0};
  setun_status s = st_directory_open(source, open, &d, error);
  if (s != SETUN_OK) return s;
  bool to_gguf = st_is_gguf_name(target);
  if (d->container == ST_HUGGINGFACE && to_gguf) {
    s = make_keys(d, &keys, error);
    o->tokenizer_keys = &keys;
  } else if (d->container == ST_GGUF && !to_gguf && !has_tokenizer(d)) {
    st_log_write(o->log, SETUN_LOG_WARNING, "%s: has no tokenizer, so the directory will not have one either", source);
  } else if (d->container == ST_GGUF && !to_gguf) {
    s = make_files(d, &o->tokenizer_name, &tokenizer, &config, error);
    o->tokenizer = &tokenizer;
    o->tokenizer_config = &config;
  }
  if (s == SETUN_OK) s = st_convert(d, target, o, error);
  st_keys_free(&keys);
  st_buffer_free(&tokenizer);
  st_buffer_free(&config);
  st_directory_free(d);
  return s;
}

setun_status setun_convert(const char *source, const char *target, const setun_convert_params *given,
                           setun_error *error) {
  ST_DEFAULT_FLOAT_MODES;
  setun_convert_params own, *const params = &own;
  ST_NEED(source);
  ST_NEED(target);
  setun_status s = st_take_convert_params(&own, given, error);
  if (s != SETUN_OK) return s;
  st_log log = {params->log, params->user};
  st_convert_options o = {.log = &log};
  st_open_options open = {.assume = params->assume,
                          .ignore_keys = params->ignore_keys,
                          .n_ignore_keys = params->n_ignore_keys,
                          .log = &log};
  s = read_params(params, &o, error);
  return s == SETUN_OK ? st_convert_whole(source, target, &open, &o, error) : s;
}
