// Files of sentence-transformers: modules.json, a configuration for each module after the transformer, and the weights
// of dense ones.
#include "base/memory.h"
#include "format/builder.h"

#include <stdio.h>
#include <string.h>

static const char list_name[] = "modules.json";
static const char type_prefix[] = "sentence_transformers.";

// Reads a JSON file of the model's folder, whose root may be a list; *root stays NULL if absent. Errors of its text are
// named by `within` too; NULL: by the caller.
static setun_status load(const char *folder, const char *name, const char *within, st_json **root, setun_error *err) {
  char *text = NULL;
  size_t length = 0;
  setun_status s = st_file_load_beside(folder, name, ST_CONFIG_MOST, &text, &length, err);
  bool parsed = s != SETUN_OK || !text || (s = st_json_parse_any(text, length, name, root, err)) == SETUN_OK;
  st_free(text);
  return parsed || !within ? s : st_fail_in(err, s, "%s", within);
}

// The last part of a type such as "sentence_transformers.models.Pooling".
static setun_status read_kind(const char *type, st_sentence_module *module, setun_error *err) {
  static const char *const kinds[] = {[ST_SENTENCE_TRANSFORMER] = "Transformer",
                                      [ST_SENTENCE_POOLING] = "Pooling",
                                      [ST_SENTENCE_DENSE] = "Dense",
                                      [ST_SENTENCE_NORMALIZE] = "Normalize"};
  const char *last = strrchr(type, '.');
  for (size_t i = 0; last && i < sizeof kinds / sizeof *kinds; i++) {
    if (strncmp(type, type_prefix, sizeof type_prefix - 1) || strcmp(last + 1, kinds[i])) continue;
    module->kind = (st_sentence_kind)i;
    return SETUN_OK;
  }
  return st_fail(
      err, SETUN_ERROR_UNSUPPORTED,
      "type: expected one of sentence_transformers' Transformer, Pooling, Dense and Normalize, found \"%.80s\"", type);
}

// Adds the weights of a dense module with the names "dense.0.linear.weight" etc.
static setun_status open_dense(st_builder *b, const char *folder, uint32_t number, setun_error *err) {
  char prefix[32];
  bool exists = false;
  uint32_t part;
  char *path = st_path_join(folder, "model.safetensors"), *pickle = st_path_join(folder, "pytorch_model.bin");
  setun_status s = path && pickle ? st_path_exists(path, &exists, err) : st_fail_memory(err, folder);
  if (s == SETUN_OK && !exists) {
    s = st_path_exists(pickle, &exists, err);
    if (s == SETUN_OK) {
      s = exists ? st_fail_pickled(pickle, err)
                 : st_fail(err, SETUN_ERROR_IO, "%s: expected this file, found none", path);
    }
  } else if (s == SETUN_OK) {
    s = st_builder_part(b, path, &part, err);
    snprintf(prefix, sizeof prefix, "dense.%u.", number);
    b->prefix = prefix;
    if (s == SETUN_OK) s = st_safetensors_read(b, part, NULL, NULL, err);
    b->prefix = NULL;
  }
  st_free(path);
  st_free(pickle);
  return s;
}

static setun_status open_module(st_builder *b, const st_json *item, uint32_t *n_dense, setun_error *err) {
  st_directory *d = b->directory;
  const char *type = NULL, *place = "";
  setun_status s = st_json_text(item, "type", &type, err);
  if (s == SETUN_OK && !type) s = st_fail(err, SETUN_ERROR_FORMAT, "type: expected a string, found none");
  if (s == SETUN_OK) s = st_json_text(item, "path", &place, err);
  if (s != SETUN_OK) return s;
  st_sentence_module *m = &d->modules[d->n_modules];
  if ((s = read_kind(type, m, err)) != SETUN_OK) return s;
  bool plain = !*place || st_is_plain_name(place);
  if (!plain || !*place != (m->kind == ST_SENTENCE_TRANSFORMER)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "path of %s: expected %s, found \"%.80s\"", strrchr(type, '.') + 1,
                   m->kind == ST_SENTENCE_TRANSFORMER ? "the model's own folder, \"\"" : "the name of a folder in it",
                   place);
  }
  if (!(m->name = st_strdup(place))) return st_fail_memory(err, list_name);
  d->n_modules++;
  if (!*place) return load(d->path, "sentence_bert_config.json", NULL, &m->config, err);
  char *folder = st_path_join(d->path, place);
  if (!folder) return st_fail_memory(err, list_name);
  s = load(folder, "config.json", NULL, &m->config, err);
  if (s == SETUN_OK && m->kind == ST_SENTENCE_DENSE) s = open_dense(b, folder, (*n_dense)++, err);
  st_free(folder);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", place);
}

setun_status st_sentence_open(st_builder *b, setun_error *err) {
  st_directory *d = b->directory;
  st_json *list = NULL;
  uint32_t n_dense = 0;
  setun_status s = load(d->path, list_name, d->path, &list, err);
  if (s != SETUN_OK || !list) return s;
  if (!st_json_is_array(list) || st_json_size(list) > ST_SENTENCE_MODULES) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "expected a list of at most %d modules, found %s of %zu", ST_SENTENCE_MODULES,
                st_json_kind(list), st_json_size(list));
  }
  for (size_t i = 0; i < st_json_size(list) && s == SETUN_OK; i++)
    s = open_module(b, st_json_at(list, i), &n_dense, err);
  st_json_free(list);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s: %s", d->path, list_name);
}

setun_status st_sentence_open_prompts(st_builder *b, setun_error *err) {
  st_directory *d = b->directory;
  setun_status s = load(d->path, ST_SENTENCE_CONFIG, d->path, &d->sentence_config, err);
  if (s != SETUN_OK || !d->sentence_config || st_json_is_object(d->sentence_config)) return s;
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: %s: expected an object, found %s", d->path, ST_SENTENCE_CONFIG,
                 st_json_kind(d->sentence_config));
}

void st_sentence_free(st_directory *d) {
  for (uint32_t i = 0; i < d->n_modules; i++) {
    st_free(d->modules[i].name);
    st_json_free(d->modules[i].config);
  }
  st_json_free(d->sentence_config);
}
