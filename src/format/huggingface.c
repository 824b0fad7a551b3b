// A Hugging Face directory: config.json, and safetensors in one file or in the shards named by an index.
#define _POSIX_C_SOURCE 200809L
#include "base/memory.h"
#include "base/suffix.h"
#include "format/builder.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

// Reads a JSON file of the directory; *root stays NULL if it does not exist.
static setun_status load_json(const char *directory, const char *name, uint64_t limit, st_json **root,
                              setun_error *err) {
  char *path = st_path_join(directory, name);
  if (!path) return st_fail_memory(err, name);
  char *text = NULL;
  size_t length = 0;
  setun_status s = st_file_load_beside(directory, name, limit, &text, &length, err);
  if (s == SETUN_OK && text) s = st_json_parse(text, length, path, root, err);
  st_free(text);
  st_free(path);
  return s;
}

// The first file in the directory (by name, so that the message does not depend on the file system) with this suffix;
// NULL: none. Freed with st_free.
static char *find_ending(const char *directory, const char *const *endings) {
  char *found = NULL;
  DIR *dir = opendir(directory);
  if (!dir) return NULL;
  for (struct dirent *entry; (entry = readdir(dir));) {
    for (const char *const *e = endings; *e; e++) {
      if (!st_has_suffix(entry->d_name, *e) || (found && strcmp(found, entry->d_name) <= 0)) continue;
      char *copy = st_strdup(entry->d_name);
      if (!copy) continue;
      st_free(found);
      found = copy;
    }
  }
  closedir(dir);
  return found;
}

// The error for a directory without weights: a pickled checkpoint, a GGUF file that should be given instead, or nothing
// known.
static setun_status fail_absent(const char *path, const char *expected, setun_error *err) {
  static const char *const pickles[] = {".bin", ".bin.index.json", ".pt", ".pth", ".ckpt", NULL};
  static const char *const ggufs[] = {".gguf", NULL};
  static const char *const adapters[] = {"adapter_config.json", NULL};
  char *gguf = find_ending(path, ggufs), *pickle = find_ending(path, pickles), *adapter = find_ending(path, adapters);
  setun_status s;
  if (adapter) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT,
                "%s: expected %s, found a LoRA adapter: give the model, and this with --lora", path, expected);
  } else if (gguf) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected %s, found none, but %s: give that file's path", path, expected,
                gguf);
  } else if (pickle) {
    char *full = st_path_join(path, pickle);
    s = full ? st_fail_pickled(full, err) : st_fail_memory(err, path);
    st_free(full);
  } else {
    s = st_fail(err, SETUN_ERROR_IO, "%s: expected %s, found none", path, expected);
  }
  st_free(adapter);
  st_free(gguf);
  st_free(pickle);
  return s;
}

// ---- shards -------------------------------------------------------------------------------------------------------

bool st_is_plain_name(const char *name) {
  return *name && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, ".") && strcmp(name, "..") &&
         strlen(name) <= ST_NAME_MOST;
}

typedef struct shards {
  const char **names; // point into the index
  size_t count, capacity;
  st_map *by_name;
} shards;

// The files named by the index, in the order of first mention.
static setun_status collect_shards(const st_json *map, shards *all, setun_error *err) {
  if (!(all->by_name = st_map_new(0))) return st_fail_memory(err, "the index");
  for (size_t i = 0; i < st_json_members(map); i++) {
    const char *tensor = st_json_member_at(map, i)->key;
    const st_json *value = &st_json_member_at(map, i)->value;
    setun_status s = st_name_check(tensor, strlen(tensor), "weight_map: a tensor", err);
    if (s != SETUN_OK) return s;
    const char *file = st_json_string(value);
    if (!file) {
      return st_fail(err, SETUN_ERROR_FORMAT, "weight_map: %s: expected a file name, found %s", tensor,
                     st_json_kind(value));
    }
    if (!st_is_plain_name(file) || st_name_check(file, st_json_length(value), "", NULL) != SETUN_OK) {
      return st_fail(err, SETUN_ERROR_FORMAT,
                     "weight_map: %s: expected the name of a file in the same directory, found a path or an empty name",
                     tensor);
    }
    int64_t previous;
    if (!st_map_add(all->by_name, file, strlen(file), (int64_t)all->count, &previous)) {
      return st_fail_memory(err, "the index");
    }
    if (previous >= 0) continue;
    if (!st_reserve(&all->names, &all->capacity, all->count + 1, sizeof *all->names)) {
      return st_fail_memory(err, "the index");
    }
    all->names[all->count++] = file;
  }
  if (!all->count) return st_fail(err, SETUN_ERROR_FORMAT, "weight_map: expected at least one tensor, found none");
  return SETUN_OK;
}

static setun_status fail_missing(const char *path, const char *directory, const shards *all, setun_error *err) {
  size_t there = 0;
  for (size_t k = 0; k < all->count; k++) {
    char *other = st_path_join(directory, all->names[k]);
    bool exists = false;
    if (other && st_path_exists(other, &exists, NULL) == SETUN_OK) there += exists;
    st_free(other);
  }
  return st_fail(err, SETUN_ERROR_IO, "%s: missing: %s names %zu files, of which %zu exist", path, index_name,
                 all->count, there);
}

static setun_status open_shard(st_builder *b, const char *directory, const shards *all, size_t i, const st_json *map,
                               setun_error *err) {
  char *path = st_path_join(directory, all->names[i]);
  if (!path) return st_fail_memory(err, all->names[i]);
  uint32_t part;
  bool exists = false;
  setun_status s = st_path_exists(path, &exists, err);
  if (s == SETUN_OK && !exists) s = fail_missing(path, directory, all, err);
  if (s == SETUN_OK) s = st_builder_part(b, path, &part, err);
  if (s == SETUN_OK) s = st_safetensors_read(b, part, map, all->names[i], err);
  st_free(path);
  return s;
}

// Every tensor of the index must be in the file named for it; names are unique within a file and each is taken from
// only one file, so the counts show whether one is missing.
static setun_status check_complete(const st_builder *b, const st_json *map, setun_error *err) {
  const st_directory *d = b->directory;
  if (d->n_tensors == st_json_members(map)) return SETUN_OK;
  st_map *seen = st_map_new(d->n_tensors);
  bool ok = seen != NULL;
  for (size_t i = 0; ok && i < d->n_tensors; i++) {
    ok = st_map_add(seen, d->tensors[i].name, strlen(d->tensors[i].name), (int64_t)i, NULL);
  }
  setun_status s = ok ? SETUN_OK : st_fail_memory(err, "the index");
  for (size_t i = 0; s == SETUN_OK && i < st_json_members(map); i++) {
    const st_json_member *m = st_json_member_at(map, i);
    if (st_map_get(seen, m->key, m->length) >= 0) continue;
    s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected in %s according to %s, but that file does not have it", m->key,
                st_json_string(&m->value), index_name);
  }
  st_map_free(seen);
  return s;
}

static setun_status open_sharded(st_builder *b, const char *path, const st_json *index, setun_error *err) {
  const st_json *map = st_json_find(index, "weight_map");
  if (!st_json_is_object(map)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: %s: weight_map: expected an object, found %s", path, index_name,
                   st_json_kind(map));
  }
  shards all = {0};
  setun_status s = collect_shards(map, &all, err);
  if (s != SETUN_OK) st_fail_in(err, s, "%s: %s", path, index_name);
  for (size_t i = 0; s == SETUN_OK && i < all.count; i++) s = open_shard(b, path, &all, i, map, err);
  if (s == SETUN_OK && (s = check_complete(b, map, err)) != SETUN_OK) st_fail_in(err, s, "%s", path);
  st_map_free(all.by_name);
  st_free(all.names);
  return s;
}

// An index takes precedence; model.safetensors is used only without one.
static setun_status open_weights(st_builder *b, const char *path, setun_error *err) {
  st_json *index = NULL;
  setun_status s = load_json(path, index_name, ST_INDEX_MOST, &index, err);
  if (s != SETUN_OK) return s;
  if (index) {
    s = open_sharded(b, path, index, err);
    st_json_free(index);
    return s;
  }
  uint32_t part;
  char *single = st_path_join(path, single_name);
  if (!single) return st_fail_memory(err, path);
  bool exists = false;
  s = st_path_exists(single, &exists, err);
  if (s == SETUN_OK && !exists) s = fail_absent(path, "model.safetensors or model.safetensors.index.json", err);
  if (s == SETUN_OK) s = st_builder_part(b, single, &part, err);
  if (s == SETUN_OK) s = st_safetensors_read(b, part, NULL, NULL, err);
  st_free(single);
  return s;
}

// GPTQ's older programs wrote what config.json now has as quantization_config into a file of its own.
static setun_status load_quantize_config(st_directory *d, const char *path, setun_error *err) {
  st_json *own = NULL;
  if (!d->config || st_json_get(d->config, "quantization_config")) return SETUN_OK;
  setun_status s = load_json(path, "quantize_config.json", ST_CONFIG_MOST, &own, err);
  if (s != SETUN_OK || !own) return s;
  if (!st_json_get(own, "quant_method")) st_json_set(own, own, "quant_method", st_json_make_text(own, "gptq"));
  st_json_set(d->config, d->config, "quantization_config", st_json_copy_of(d->config, own));
  bool failed = st_json_failed(own) || st_json_failed(d->config);
  st_json_free(own);
  return failed ? st_fail_memory(err, "quantize_config.json") : SETUN_OK;
}

setun_status st_huggingface_open(st_builder *b, const char *path, setun_error *err) {
  st_directory *d = b->directory;
  setun_error own;
  if (!err) err = &own;
  d->container = ST_HUGGINGFACE;
  setun_status s = load_json(path, "config.json", ST_CONFIG_MOST, &d->config, err);
  bool whole = !b->options->texts_only;
  if (s == SETUN_OK && !d->config && whole) return fail_absent(path, "config.json", err);
  if (s == SETUN_OK && whole) s = load_quantize_config(d, path, err);
  if (s == SETUN_OK) s = load_json(path, "generation_config.json", ST_CONFIG_MOST, &d->generation_config, err);
  if (s == SETUN_OK) s = st_sentence_open_prompts(b, err);
  if (s == SETUN_OK && whole) s = open_weights(b, path, err);
  return s == SETUN_OK && whole ? st_sentence_open(b, err) : s;
}
