// Finds the chat templates in a model's files.
#include "runtime/templates.h"

#include "base/memory.h"
#include "model/rotation.h"

#include <string.h>

enum { FILE_LIMIT = 64 << 20 };

static st_text as_text(const char *s) {
  return (st_text){s, strlen(s)};
}

static setun_status add(st_templates *t, st_text name, st_text text, const char *origin, setun_error *err) {
  return st_templates_add(t, name, text, origin) ? SETUN_OK : st_fail_memory(err, "a chat template");
}

// ---- GGUF ----

static setun_status from_gguf(const st_directory *d, st_templates *t, setun_error *err) {
  static const char key[] = "tokenizer.chat_template";
  const st_metadata *m = &d->metadata;
  size_t prefix = sizeof key - 1;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < m->count && s == SETUN_OK; i++) {
    const st_meta *item = &m->items[i];
    if (strncmp(item->key, key, prefix) || (item->key[prefix] && item->key[prefix] != '.')) continue;
    if (item->type != ST_META_STRING) {
      char kind[32];
      s = st_notices_add(d->notices, SETUN_LOG_WARNING, err, "%s: expected a string, found %s; ignored", item->key,
                         st_meta_kind(item, kind));
      continue;
    }
    const char *name = item->key[prefix] ? item->key + prefix + 1 : "default";
    s = add(t, as_text(name), item->as.text, item->key, err);
  }
  return s;
}

// ---- Hugging Face directories ----

static setun_status add_file(const char *folder, const char *file, st_text name, const char *origin, st_templates *t,
                             setun_error *err) {
  char *text = NULL;
  size_t length = 0;
  setun_status s = st_file_load_beside(folder, file, FILE_LIMIT, &text, &length, err);
  if (s == SETUN_OK && text) s = add(t, name, (st_text){text, length}, origin, err);
  st_free(text);
  return s;
}

static setun_status add_folder(const char *folder, st_templates *t, setun_error *err) {
  static const char additional[] = "additional_chat_templates";
  char *path = st_path_join(folder, additional);
  st_names names;
  if (!path) return st_fail_memory(err, additional);
  setun_status s = st_path_list(path, ".jinja", &names, err);
  for (size_t i = 0; s == SETUN_OK && i < names.n; i++) {
    char *origin = st_path_join(additional, names.items[i]);
    st_text name = {names.items[i], strlen(names.items[i]) - strlen(".jinja")};
    s = origin ? add_file(path, names.items[i], name, origin, t, err) : st_fail_memory(err, additional);
    st_free(origin);
  }
  if (s == SETUN_OK || names.n) st_names_free(&names);
  st_free(path);
  return s;
}

static st_text json_text(const st_json *string) {
  return (st_text){st_json_string(string), st_json_length(string)};
}

// The chat_template member of one of the JSON files.
static setun_status add_member(const st_directory *d, const st_json *config, const char *file, st_templates *t,
                               setun_error *err) {
  const st_json *value = st_json_get(config, "chat_template");
  setun_status s = SETUN_OK;
  if (!value) return SETUN_OK;
  if (st_json_is_string(value)) return add(t, as_text("default"), json_text(value), file, err);
  if (!st_json_is_array(value)) {
    s = st_notices_add(d->notices, SETUN_LOG_WARNING, err,
                       "%s: chat_template: expected a string or an array, found %s; ignored", file,
                       st_json_kind(value));
  }
  for (size_t i = 0; i < st_json_size(value) && s == SETUN_OK; i++) {
    const st_json *item = st_json_at(value, i);
    const st_json *name = st_json_get(item, "name"), *text = st_json_get(item, "template");
    if (st_json_is_string(name) && st_json_is_string(text)) {
      s = add(t, json_text(name), json_text(text), file, err);
    } else {
      s = st_notices_add(d->notices, SETUN_LOG_WARNING, err,
                         "%s: chat_template: element %zu: expected name and template; ignored", file, i);
    }
  }
  return s;
}

static setun_status add_json(const st_directory *d, const char *file, st_templates *t, setun_error *err) {
  char *text = NULL;
  size_t length = 0;
  setun_status s = st_file_load_beside(d->path, file, FILE_LIMIT, &text, &length, err);
  if (s != SETUN_OK || !text) return s;
  st_json *config;
  s = st_json_parse(text, length, file, &config, err);
  if (s == SETUN_OK) s = add_member(d, config, file, t, err);
  st_json_free(config);
  st_free(text);
  return s;
}

static setun_status from_directory(const st_directory *d, st_templates *t, setun_error *err) {
  setun_status s = add_file(d->path, "chat_template.jinja", as_text("default"), "chat_template.jinja", t, err);
  if (s == SETUN_OK) s = add_folder(d->path, t, err);
  if (s == SETUN_OK) s = add_json(d, "tokenizer_config.json", t, err);
  if (s == SETUN_OK) s = add_json(d, "chat_template.json", t, err);
  return s;
}

setun_status st_templates_load(const st_directory *d, st_templates *t, setun_error *err) {
  if (d->container == ST_SAFETENSORS) return SETUN_OK;
  setun_status s = d->container == ST_GGUF ? from_gguf(d, t, err) : from_directory(d, t, err);
  if (s != SETUN_OK || t->n) return s;
  return st_notices_add(d->notices, SETUN_LOG_INFO, err,
                        "%s: no chat template: `chat` uses the family's if its tokens identify it, or --template",
                        d->path);
}

setun_status st_architecture_name(const st_directory *d, char **out, setun_error *err) {
  st_text name = {0};
  const st_json *type = st_json_get(d->config, "model_type");
  const char *plain = st_rotation_plain_type(st_json_string(type));
  if (plain) name = (st_text){plain, strlen(plain)};
  const st_meta *key = st_metadata_find(&d->metadata, "general.architecture");
  if (d->container == ST_GGUF && key && key->type == ST_META_STRING) name = key->as.text;
  *out = NULL;
  if (!name.data) return SETUN_OK;
  *out = st_strndup(name.data, name.length);
  return *out ? SETUN_OK : st_fail_memory(err, "the architecture's name");
}
