// The table of facts, and the check of a file's keys against it.
#include "model/facts.h"

#include "model/arch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USED ST_FACT_USED
#define NEUTRAL ST_FACT_NEUTRAL
#define AT ST_FACT_AT
#define FACT(gguf, config, ...) {gguf, config, __VA_ARGS__},
static const st_fact common[] = {
#include "model/facts.def"
};
#define CONFIG_NEUTRAL(names, why) {NULL, names, ST_FACT_NEUTRAL, "", why},
#define CONFIG_AT(names, values) {NULL, names, ST_FACT_AT, values, ""},
#define CONFIG_OFF(names) {NULL, names, ST_FACT_AT, "0|false|", ""},
static const st_fact config_only[] = {
#include "model/facts_config.def"
};

// Whether `list`, words separated by `separator`, contains this word.
static bool has_word(const char *list, char separator, const char *word, size_t length) {
  for (;;) {
    const char *end = strchr(list, separator);
    size_t n = end ? (size_t)(end - list) : strlen(list);
    if (n == length && !memcmp(list, word, length)) return true;
    if (!end) return false;
    list = end + 1;
  }
}

static const st_fact *find_in(const st_fact *rows, size_t n, bool gguf, const char *name, size_t length) {
  for (size_t i = 0; i < n && rows[i].use != ST_FACT_NONE; i++) {
    const char *names = gguf ? rows[i].gguf : rows[i].config;
    if (names && has_word(names, ' ', name, length)) return &rows[i];
  }
  return NULL;
}

const st_fact *st_fact_find(const st_spec *spec, st_container container, const char *name, size_t length) {
  bool gguf = container == ST_GGUF;
  const st_fact *f = spec->facts ? find_in(spec->facts, SIZE_MAX, gguf, name, length) : NULL;
  if (!f) f = find_in(common, sizeof common / sizeof *common, gguf, name, length);
  if (!f && !gguf) f = find_in(config_only, sizeof config_only / sizeof *config_only, gguf, name, length);
  return f;
}

// ---- values -------------------------------------------------------------------------------------------------------

// Whether one of the values equals this number, compared as float32 (files hold float32 or float64).
static bool is_number(const char *values, double x) {
  for (const char *at = values; at; at = strchr(at, '|')) {
    char *end;
    if (*at == '|') at++;
    double value = strtod(at, &end);
    if (end > at && (*end == '|' || !*end) && (float)value == (float)x) return true;
  }
  return false;
}

static bool is_text(const char *values, const char *text, size_t length) {
  return has_word(values, '|', text, length);
}

static bool is_flag(const char *values, bool x) {
  return x ? is_text(values, "true", 4) : is_text(values, "false", 5);
}

static bool neutral_meta(const char *values, const st_meta *item) {
  switch (item->type) {
  case ST_META_STRING: return is_text(values, item->as.text.data, item->as.text.length);
  case ST_META_BOOL: return is_flag(values, item->as.u != 0);
  case ST_META_F32:
  case ST_META_F64: return is_number(values, item->as.f);
  case ST_META_I8:
  case ST_META_I16:
  case ST_META_I32:
  case ST_META_I64: return is_number(values, (double)item->as.i);
  case ST_META_ARRAY: break;
  default: return is_number(values, (double)item->as.u);
  }
  for (uint64_t i = 0; i < item->count; i++) {
    if (item->element == ST_META_STRING || item->element == ST_META_ARRAY) return false;
    double x = st_meta_number(item, i);
    if (!(item->element == ST_META_BOOL ? is_flag(values, x != 0) : is_number(values, x))) return false;
  }
  return true;
}

static bool neutral_json(const char *values, const st_json *x) {
  if (st_json_is_null(x)) return true;
  if (st_json_is_bool(x)) return is_flag(values, st_json_is(x, ST_JSON_TRUE));
  if (st_json_is_number(x)) return is_number(values, st_json_number(x));
  if (st_json_is_string(x)) return is_text(values, st_json_string(x), st_json_length(x));
  if (st_json_is_object(x)) return !st_json_members(x);
  for (size_t i = 0; i < st_json_size(x); i++) {
    const st_json *element = st_json_at(x, i);
    if (st_json_is_array(element) || st_json_is_object(element) || !neutral_json(values, element)) return false;
  }
  return true;
}

// "0 or 1": the values for a message.
static void format_values(const char *values, st_buffer *out) {
  if (!strcmp(values, "0|false|")) {
    st_buffer_text(out, "0, false or none");
    return;
  }
  if (!*values) st_buffer_text(out, "none");
  for (const char *at = values; *at;) {
    size_t n = strcspn(at, "|");
    st_buffer_format(out, "%.*s%s", (int)n, at, at[n] ? " or " : "");
    at += n + (at[n] == '|');
  }
}

static setun_status refuse(const char *key, const st_fact *f, st_buffer *found, setun_error *err) {
  st_buffer expected = {0};
  format_values(f->values, &expected);
  setun_status s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected %s, found %.100s, which is not supported", key,
                           expected.data ? expected.data : "none", found->data ? found->data : "a value");
  st_buffer_free(&expected);
  st_buffer_free(found);
  return s;
}

// ---- GGUF ---------------------------------------------------------------------------------------------------------

static bool begins(const char *key, const char *with) {
  return !strncmp(key, with, strlen(with));
}

static setun_status check_own(const st_spec *spec, const st_meta *item, const char *name, setun_error *err) {
  const st_fact *f = st_fact_find(spec, ST_GGUF, name, strlen(name));
  st_buffer found = {0};
  if (!f) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected a known hyperparameter, found %s", item->key,
                   "which is not supported");
  }
  if (f->use != ST_FACT_AT || neutral_meta(f->values, item)) return SETUN_OK;
  setun_status s = st_meta_print(item, &found, err);
  return s == SETUN_OK ? refuse(item->key, f, &found, err) : s;
}

// The rest of a key whose first part is not the architecture.
typedef enum st_namespace {
  NAMESPACE_READ,    // in other namespaces
  NAMESPACE_ORIGIN,  // describes a file's origin, not the meaning of its numbers
  NAMESPACE_FOREIGN, // unknown
} st_namespace;

static st_namespace namespace_of(const char *key) {
  static const struct {
    const char *prefix;
    st_namespace kind;
  } known[] = {{"general.", NAMESPACE_READ},        {"tokenizer.", NAMESPACE_READ},     {"split.", NAMESPACE_READ},
               {"setun.", NAMESPACE_READ},          {ST_ROTATION_KEYS, NAMESPACE_READ}, {"quantize.", NAMESPACE_ORIGIN},
               {"imatrix.", NAMESPACE_ORIGIN},      {"training.", NAMESPACE_ORIGIN},    {"unsloth.", NAMESPACE_ORIGIN},
               {"mradermacher.", NAMESPACE_ORIGIN}, {NULL, NAMESPACE_FOREIGN}};
  size_t i = 0;
  while (known[i].prefix && !begins(key, known[i].prefix)) i++;
  return known[i].kind;
}

// A namespace that is known to change what the weights mean.
static setun_status refuse_foreign(const char *key, setun_error *err) {
  static const struct { const char *prefix, *meaning; } refused[] = {{"xielu.", "an activation function of its own"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    if (!begins(key, refused[i].prefix)) continue;
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected the key to be absent, found it (%s), which is not supported", key, refused[i].meaning);
  }
  return SETUN_OK;
}

static bool is_own(const st_meta *item, st_text architecture) {
  return architecture.data && !strncmp(item->key, architecture.data, architecture.length) &&
         item->key[architecture.length] == '.';
}

// One notice for all namespaces of a kind, with the number of keys in each.
static setun_status note_namespaces(const st_directory *d, st_text architecture, st_namespace kind, setun_error *err) {
  enum { NAMED = 8 };
  struct {
    const char *name;
    size_t length, keys;
  } named[NAMED];
  size_t n = 0, others = 0;
  for (size_t i = 0; i < d->metadata.count; i++) {
    const st_meta *item = &d->metadata.items[i];
    if (item->ignored || is_own(item, architecture) || namespace_of(item->key) != kind) continue;
    size_t length = strcspn(item->key, "."), at = 0;
    while (at < n && (named[at].length != length || memcmp(named[at].name, item->key, length))) at++;
    if (at == n && n < NAMED) {
      named[n].name = item->key;
      named[n].length = length;
      named[n++].keys = 0;
    }
    if (at < n) named[at].keys++;
    others += at == n;
  }
  st_buffer list = {0};
  for (size_t i = 0; i < n; i++) {
    int length = (int)(named[i].length < 64 ? named[i].length : 64);
    st_buffer_format(&list, "%s%.*s%s (%zu)", i ? ", " : "", length, named[i].name,
                     named[i].name[named[i].length] ? ".*" : "", named[i].keys);
  }
  if (others) st_buffer_format(&list, " and %zu of others", others);
  bool origin = kind == NAMESPACE_ORIGIN;
  setun_status s = n ? st_notices_add(d->notices, origin ? SETUN_LOG_INFO : SETUN_LOG_WARNING, err,
                                      "%s: keys in %s are not read: %s", d->path,
                                      origin ? "namespaces that describe a file's origin" : "unknown namespaces",
                                      list.data ? list.data : "")
                     : SETUN_OK;
  st_buffer_free(&list);
  return s;
}

setun_status st_facts_check_type(const st_metadata *m, setun_error *err) {
  static const struct {
    const char *type, *hint;
  } others[] = {{"adapter", ": give the model, and this file with --lora"},
                {"mmproj", ": a projector for images or sound, which belongs to a text model"},
                {"imatrix", ": statistics of activations"},
                {"controlvector", ": control vectors, which are not supported"}};
  st_text type = {0};
  setun_status s = st_metadata_text(m, "general.type", &type, err);
  if (s != SETUN_OK || !type.data || (type.length == 5 && !memcmp(type.data, "model", 5))) return s;
  if (type.length == 5 && !memcmp(type.data, "vocab", 5)) return s; // files without tensors are refused later
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (strlen(others[i].type) == type.length && !memcmp(others[i].type, type.data, type.length)) {
      return st_fail(err, SETUN_ERROR_UNSUPPORTED, "general.type: expected model, found %s%s", others[i].type,
                     others[i].hint);
    }
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "general.type: expected model, found \"%.*s\"",
                 (int)(type.length < 64 ? type.length : 64), type.data);
}

// Names of what is not read, for one notice.
typedef struct unread {
  st_buffer list;
  size_t n;
} unread;

static void add_unread(unread *u, const char *name) {
  enum { NAMED = 8 };
  if (u->n++ < NAMED) st_buffer_format(&u->list, "%s%.64s", u->n > 1 ? ", " : "", name);
  if (u->n == NAMED + 1) st_buffer_format(&u->list, " and others");
}

// One notice for all of them; frees the list.
static setun_status note_unread(const st_directory *d, const char *what, unread *u, setun_error *err) {
  setun_status s = SETUN_OK;
  if (u->n) {
    s = st_notices_add(d->notices, SETUN_LOG_WARNING, err, "%s: %s are not read: %s", d->path, what,
                       u->list.data ? u->list.data : "");
  }
  st_buffer_free(&u->list);
  return s;
}

static bool is_tokenizer_key(const char *name) {
  static const char *const known[] = {
#define TOKENIZER_KEY(key) key,
#include "model/facts_tokenizer.def"
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i], name)) return true;
  return false;
}

// Keys of the tokenizer that no row knows.
static setun_status note_tokenizer(const st_directory *d, setun_error *err) {
  static const char prefix[] = "tokenizer.", template[] = "tokenizer.chat_template.";
  unread u = {.n = 0};
  for (size_t i = 0; i < d->metadata.count; i++) {
    const st_meta *item = &d->metadata.items[i];
    if (item->ignored || !begins(item->key, prefix) || begins(item->key, template)) continue;
    if (!is_tokenizer_key(item->key + sizeof prefix - 1)) add_unread(&u, item->key);
  }
  return note_unread(d, "unknown keys of the tokenizer", &u, err);
}

static setun_status check_gguf(const st_directory *d, const st_spec *spec, setun_error *err) {
  const st_metadata *m = &d->metadata;
  st_text name = {0};
  setun_status s = st_metadata_text(m, "general.architecture", &name, err);
  for (size_t i = 0; i < m->count && s == SETUN_OK; i++) {
    const st_meta *item = &m->items[i];
    if (item->ignored) continue;
    s = is_own(item, name) ? check_own(spec, item, item->key + name.length + 1, err) : refuse_foreign(item->key, err);
  }
  if (s == SETUN_OK) s = note_tokenizer(d, err);
  if (s == SETUN_OK) s = note_namespaces(d, name, NAMESPACE_ORIGIN, err);
  return s == SETUN_OK ? note_namespaces(d, name, NAMESPACE_FOREIGN, err) : s;
}

// ---- config.json --------------------------------------------------------------------------------------------------

// `key` is the member's path, for messages and for --ignore-key; `name` is its name in the tables. Those that no
// published class has are added to `u`.
static setun_status check_member(const st_spec *spec, const char *key, const char *name, const st_json *value,
                                 unread *u, setun_error *err) {
  const st_fact *f = st_fact_find(spec, ST_HUGGINGFACE, name, strlen(name));
  st_buffer found = {0};
  if (!f && !st_json_is_null(value)) add_unread(u, key);
  if (!f || f->use == ST_FACT_NEUTRAL) return SETUN_OK;
  if (f->use == ST_FACT_USED) {
    if (!st_json_is_null(value) || !strcmp(f->values, "null")) return SETUN_OK;
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "%s: expected a value, found null, for which the official class has no default", key);
  }
  if (neutral_json(f->values, value)) return SETUN_OK;
  return st_json_append(value, &found) ? refuse(key, f, &found, err) : st_fail_memory(err, key);
}

// `path` leads to the object, "text_config." or "rope_scaling."; it is too long only for names that are in no table.
static setun_status check_object(const st_spec *spec, const char *path, bool rope, const st_json *object, unread *u,
                                 setun_error *err) {
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < st_json_members(object) && s == SETUN_OK; i++) {
    const st_json_member *m = st_json_member_at(object, i);
    char key[320], name[160], inner[324];
    bool leads = !strcmp(m->key, "rope_scaling") || !strcmp(m->key, "rope_parameters") ||
                 (rope && (!strcmp(m->key, "full_attention") || !strcmp(m->key, "sliding_attention")));
    if (snprintf(name, sizeof name, "%s%s", rope ? "rope:" : "", m->key) >= (int)sizeof name) {
      add_unread(u, m->key);
      continue;
    }
    snprintf(key, sizeof key, "%s%s", path, m->key);
    snprintf(inner, sizeof inner, "%s.", key);
    s = check_member(spec, key, name, &m->value, u, err);
    if (s == SETUN_OK && leads) s = check_object(spec, inner, true, &m->value, u, err);
  }
  return s;
}

setun_status st_facts_check(const st_directory *d, const st_spec *spec, setun_error *err) {
  if (d->container == ST_GGUF) return check_gguf(d, spec, err);
  const st_json *text = st_json_find(d->config, "text_config");
  unread u = {.n = 0};
  setun_status s = check_object(spec, "", false, d->config, &u, err);
  if (s == SETUN_OK && st_json_is_object(text)) s = check_object(spec, "text_config.", false, text, &u, err);
  if (s != SETUN_OK) {
    st_buffer_free(&u.list);
    return st_fail_in(err, s, "config.json");
  }
  return note_unread(d, "members of config.json that no published class has", &u, err);
}
