// Keys that a caller wants to be treated as absent: hidden before anything reads them, and named in notices on every
// run.
#include "base/memory.h"
#include "format/builder.h"

#include <string.h>

// "prism.hadamard.*" names all keys that begin with "prism.hadamard.".
static bool names(const char *wanted, const char *key) {
  size_t n = strlen(wanted);
  if (n && wanted[n - 1] == '*') return !strncmp(wanted, key, n - 1);
  return !strcmp(wanted, key);
}

static setun_status note(st_directory *d, const char *key, size_t *found, setun_error *err) {
  size_t capacity = d->n_ignored;
  ++*found;
  if (!st_reserve(&d->ignored, &capacity, d->n_ignored + 1, sizeof *d->ignored) ||
      !(d->ignored[d->n_ignored] = st_strdup(key))) {
    return st_fail_memory(err, "an ignored key");
  }
  d->n_ignored++;
  return st_notices_add(d->notices, SETUN_LOG_WARNING, err, "%s: %s: ignored, as requested", d->path, key);
}

static setun_status ignore_in_metadata(st_directory *d, const char *wanted, size_t *found, setun_error *err) {
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < d->metadata.count && s == SETUN_OK; i++) {
    st_meta *item = &d->metadata.items[i];
    if (!names(wanted, item->key)) continue;
    item->ignored = true;
    s = note(d, item->key, found, err);
  }
  return s;
}

static bool remove_member(st_json *object, const char *name) {
  const char *dot = strchr(name, '.');
  char part[ST_NAME_MOST];
  size_t n = dot ? (size_t)(dot - name) : 0;
  if (!st_json_is_object(object)) return false;
  if (st_json_find(object, name)) {
    st_json_delete(object, name);
    return true;
  }
  if (!dot || n >= sizeof part) return false;
  memcpy(part, name, n);
  part[n] = '\0';
  return remove_member(st_json_edit(object, part), dot + 1);
}

bool st_config_remove(st_json *config, const char *name) {
  return remove_member(config, name) || remove_member(st_json_edit(config, "text_config"), name);
}

setun_status st_ignore_keys(st_builder *b, setun_error *err) {
  st_directory *d = b->directory;
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < b->options->n_ignore_keys && s == SETUN_OK; i++) {
    const char *wanted = b->options->ignore_keys[i];
    size_t found = 0;
    s = ignore_in_metadata(d, wanted, &found, err);
    if (s == SETUN_OK && d->config && st_config_remove(d->config, wanted)) s = note(d, wanted, &found, err);
    if (s == SETUN_OK && !found) {
      s = st_notices_add(d->notices, SETUN_LOG_WARNING, err, "%s: %s: to be ignored, but the key is absent", d->path,
                         wanted);
    }
  }
  return s;
}
