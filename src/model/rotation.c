// The declaration of a rotated basis, in both containers. Every key is used or refused.
#include "model/rotation.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WIDTHS = 64, MOST_BLOCK = 1 << 20 };

#define TRANSFORM "normalized-sylvester-walsh-hadamard"
#define AXIS "input-last-dimension"

static const char *const known[] = {"version",       "block_size",           "transform",   "axis",
                                    "sign_mode",     "sign_widths",          "sign_values", "weight_names",
                                    "gdn_v_grouped", "inverse_weight_names", "tied_output"};

// One of the two containers' values.
typedef struct {
  const st_directory *d;
  const st_json *object; // config.json's; NULL: GGUF
  setun_error *err;
} declaration;

typedef struct {
  char text[64];
} key_text;

static key_text key_of(const declaration *d, const char *name) {
  key_text key;
  snprintf(key.text, sizeof key.text, "%s%.32s", d->object ? ST_ROTATION_MEMBER "." : ST_ROTATION_KEYS, name);
  return key;
}

static setun_status fail(const declaration *d, const char *name, const char *expected, const char *found) {
  return st_fail(d->err, SETUN_ERROR_UNSUPPORTED, "%s: expected %s, found %s", key_of(d, name).text, expected, found);
}

static setun_status fail_number(const declaration *d, const char *name, const char *expected, double found) {
  char text[32];
  snprintf(text, sizeof text, "%.15g", found);
  return fail(d, name, expected, text);
}

static setun_status fail_text(const declaration *d, const char *name, const char *expected, st_text found) {
  char text[80];
  snprintf(text, sizeof text, found.data ? "\"%.*s\"" : "none", (int)(found.length < 64 ? found.length : 64),
           found.data ? found.data : "");
  return fail(d, name, expected, text);
}

// ---- values -------------------------------------------------------------------------------------------------------

static bool has(const declaration *d, const char *name) {
  return d->object ? st_json_find(d->object, name) != NULL
                   : st_metadata_find(&d->d->metadata, key_of(d, name).text) != NULL;
}

static setun_status read_u32(const declaration *d, const char *name, uint32_t most, uint32_t *out) {
  return d->object ? st_json_u32(d->object, name, 0, most, out, d->err)
                   : st_metadata_u32(&d->d->metadata, key_of(d, name).text, 0, most, out, d->err);
}

static setun_status read_bool(const declaration *d, const char *name, bool *out) {
  return d->object ? st_json_bool(d->object, name, out, d->err)
                   : st_metadata_bool(&d->d->metadata, key_of(d, name).text, out, d->err);
}

static setun_status read_text(const declaration *d, const char *name, st_text *out) {
  if (!d->object) return st_metadata_text(&d->d->metadata, key_of(d, name).text, out, d->err);
  const char *text = NULL;
  setun_status s = st_json_text(d->object, name, &text, d->err);
  if (text) *out = (st_text){text, strlen(text)};
  return s;
}

static bool is(st_text text, const char *word) {
  return text.data && text.length == strlen(word) && !memcmp(text.data, word, text.length);
}

// A key with only one valid value.
static setun_status need_text(const declaration *d, const char *name, const char *word) {
  st_text text = {0};
  setun_status s = read_text(d, name, &text);
  return s != SETUN_OK || is(text, word) ? s : fail_text(d, name, word, text);
}

// The number of elements of a list of numbers or texts; 0 where it is absent.
static setun_status list_of(const declaration *d, const char *name, bool texts, const st_meta **meta,
                            const st_json **json, size_t *n) {
  *meta = d->object ? NULL : st_metadata_find(&d->d->metadata, key_of(d, name).text);
  *json = d->object ? st_json_get(d->object, name) : NULL;
  *n = 0;
  if (*meta) {
    bool array = (*meta)->type == ST_META_ARRAY;
    if (!array || (texts ? (*meta)->element != ST_META_STRING : !st_meta_is_integer((*meta)->element))) {
      char kind[32];
      return fail(d, name, texts ? "an array of strings" : "an array of integers", st_meta_kind(*meta, kind));
    }
    *n = (size_t)(*meta)->count;
  } else if (*json) {
    bool right = st_json_is_array(*json);
    *n = st_json_size(*json);
    for (size_t i = 0; i < *n && right; i++) {
      const st_json *v = st_json_at(*json, i);
      right = texts ? st_json_is_string(v) : st_json_is_number(v);
    }
    if (!right) return fail(d, name, texts ? "an array of strings" : "an array of integers", "something else");
  }
  return SETUN_OK;
}

static double number_at(const st_meta *meta, const st_json *json, size_t i) {
  return meta ? st_meta_number(meta, i) : st_json_number(st_json_at(json, i));
}

static st_text text_at(const st_meta *meta, const st_json *json, size_t i) {
  if (meta) return meta->as.texts[i];
  const st_json *v = st_json_at(json, i);
  return (st_text){st_json_string(v), st_json_length(v)};
}

// ---- signs --------------------------------------------------------------------------------------------------------

static setun_status read_widths(const declaration *d, st_rotation *r, uint64_t *total) {
  const st_meta *meta;
  const st_json *json;
  size_t n;
  setun_status s = list_of(d, "sign_widths", false, &meta, &json, &n);
  if (s != SETUN_OK) return s;
  if (!n || n > MOST_WIDTHS) return fail_number(d, "sign_widths", "1 to 64 widths", (double)n);
  if (!(r->widths = st_malloc(n, sizeof *r->widths))) return st_fail_memory(d->err, "the signs");
  *total = 0;
  for (size_t i = 0; i < n; i++) {
    double w = number_at(meta, json, i);
    if (!(w >= 1 && w <= INT32_MAX) || w != (double)(uint32_t)w || (uint32_t)w % r->block) {
      return fail_number(d, "sign_widths", "multiples of block_size", w);
    }
    for (uint32_t k = 0; k < r->n_widths; k++) {
      if (r->widths[k] == (uint32_t)w) return fail(d, "sign_widths", "each width once", "one twice");
    }
    r->widths[r->n_widths++] = (uint32_t)w;
    *total += (uint32_t)w;
  }
  return SETUN_OK;
}

static setun_status read_signs(const declaration *d, st_rotation *r) {
  const st_meta *meta;
  const st_json *json;
  size_t n;
  uint64_t total = 0;
  setun_status s = read_widths(d, r, &total);
  if (s == SETUN_OK) s = list_of(d, "sign_values", false, &meta, &json, &n);
  if (s != SETUN_OK) return s;
  if (n != total) {
    char expected[64];
    snprintf(expected, sizeof expected, "%llu, the sum of sign_widths", (unsigned long long)total);
    return fail_number(d, "sign_values", expected, (double)n);
  }
  if (!(r->signs = st_malloc(n, sizeof *r->signs))) return st_fail_memory(d->err, "the signs");
  for (size_t i = 0; i < n; i++) {
    double v = number_at(meta, json, i);
    if (v != 1 && v != -1) return fail_number(d, "sign_values", "1 and -1", v);
    r->signs[i] = (float)v;
  }
  return SETUN_OK;
}

static setun_status read_sign_mode(const declaration *d, st_rotation *r) {
  st_text mode = {0};
  setun_status s = read_text(d, "sign_mode", &mode);
  if (s != SETUN_OK) return s;
  r->has_signs = is(mode, "explicit");
  if (r->has_signs) return read_signs(d, r);
  if (!is(mode, "identity")) return fail_text(d, "sign_mode", "identity or explicit", mode);
  static const char *const arrays[] = {"sign_widths", "sign_values"};
  for (size_t i = 0; i < 2; i++) {
    const st_meta *meta;
    const st_json *json;
    size_t n;
    if ((s = list_of(d, arrays[i], false, &meta, &json, &n)) != SETUN_OK) return s;
    if (meta || json) return fail(d, arrays[i], "no signs with sign_mode identity", "some");
  }
  return SETUN_OK;
}

// ---- names --------------------------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static setun_status read_names(const declaration *d, st_rotation *r) {
  const st_meta *meta;
  const st_json *json;
  size_t n;
  setun_status s = list_of(d, "weight_names", true, &meta, &json, &n);
  if (s != SETUN_OK) return s;
  if (!n) return fail(d, "weight_names", "names of tensors", "none");
  if (!(r->names = st_calloc(n, sizeof *r->names))) return st_fail_memory(d->err, "names of tensors");
  for (; r->n_names < n; r->n_names++) {
    st_text name = text_at(meta, json, r->n_names);
    if (!(r->names[r->n_names] = st_strndup(name.data, name.length))) return st_fail_memory(d->err, "names of tensors");
  }
  qsort(r->names, n, sizeof *r->names, by_name);
  for (size_t i = 1; i < n; i++) {
    if (!strcmp(r->names[i - 1], r->names[i])) return fail(d, "weight_names", "each name once", r->names[i]);
  }
  return SETUN_OK;
}

static bool is_embedding(const declaration *d, st_text name) {
  size_t end = strlen("embed_tokens.weight");
  if (!d->object) return is(name, "token_embd.weight");
  return name.length >= end && !memcmp(name.data + name.length - end, "embed_tokens.weight", end);
}

static bool is_listed(const st_rotation *r, const char *tensor) {
  return bsearch(&tensor, r->names, r->n_names, sizeof *r->names, by_name) != NULL;
}

static setun_status read_inverse(const declaration *d, st_rotation *r) {
  const st_meta *meta;
  const st_json *json;
  size_t n;
  setun_status s = list_of(d, "inverse_weight_names", true, &meta, &json, &n);
  for (size_t i = 0; i < n && s == SETUN_OK; i++) {
    st_text name = text_at(meta, json, i);
    if (!is_embedding(d, name) || r->embedding) {
      return fail(d, "inverse_weight_names", "the embedding's name alone", "another");
    }
    if (!(r->embedding = st_strndup(name.data, name.length))) return st_fail_memory(d->err, "names of tensors");
    if (is_listed(r, r->embedding)) {
      s = fail(d, "inverse_weight_names", "a name that weight_names does not have", r->embedding);
    }
  }
  return s;
}

// ---- against the tensors ------------------------------------------------------------------------------------------

// Matrices that may be rotated in a GGUF file: those of blocks and the head, except those that read plain activations.
static bool is_foldable(const char *name) {
  static const char *const parts[] = {
      "attn_q",           "attn_k",         "attn_v",       "attn_qkv",       "attn_gate",   "attn_output",
      "ffn_gate",         "ffn_up",         "ffn_down",     "ffn_gate_exps",  "ffn_up_exps", "ffn_down_exps",
      "ffn_gate_up_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "ssm_out"};
  static const char *const experts[] = {"ffn_gate.", "ffn_up.", "ffn_down."}; // one expert's
  size_t n = strlen(name), end = strlen(".weight"), digits = strspn(name + (n > 4 ? 4 : n), "0123456789");
  if (!strcmp(name, "output.weight")) return true;
  if (strncmp(name, "blk.", 4) || !digits || name[4 + digits] != '.' || n < end || strcmp(name + n - end, ".weight")) {
    return false;
  }
  const char *part = name + 5 + digits;
  size_t length = n - end > (size_t)(part - name) ? n - end - (size_t)(part - name) : 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (strlen(parts[i]) == length && !memcmp(part, parts[i], length)) return true;
  }
  for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
    size_t m = strlen(experts[i]);
    if (length > m && !strncmp(part, experts[i], m) && strspn(part + m, "0123456789") == length - m) return true;
  }
  return false;
}

static setun_status check_tensor(const declaration *d, const st_rotation *r, const char *name) {
  const st_tensor *t = st_directory_find(d->d, name);
  if (!t || t->n_dims < 2 || t->n_dims > 3) {
    return st_fail(d->err, SETUN_ERROR_UNSUPPORTED, "%s: expected the name of a weight matrix, found \"%.128s\"%s",
                   key_of(d, name == r->embedding ? "inverse_weight_names" : "weight_names").text, name,
                   t ? "" : ", which is not in the file");
  }
  if (t->dims[0] % r->block || (r->has_signs && !st_rotation_signs(r, t->dims[0]))) {
    return st_fail(d->err, SETUN_ERROR_UNSUPPORTED, "%s: expected rows of a multiple of %u weights%s, found %llu", name,
                   r->block, r->has_signs ? " for which there are signs" : "", (unsigned long long)t->dims[0]);
  }
  return SETUN_OK;
}

static setun_status check_tensors(const declaration *d, const st_rotation *r) {
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < r->n_names && s == SETUN_OK; i++) {
    if (!d->object && !is_foldable(r->names[i])) {
      return fail(d, "weight_names", "names of weight matrices", r->names[i]);
    }
    s = check_tensor(d, r, r->names[i]);
  }
  if (s == SETUN_OK && r->embedding) s = check_tensor(d, r, r->embedding);
  const char *head = d->object ? "lm_head.weight" : "output.weight";
  bool untied = st_directory_find(d->d, head) != NULL;
  if (s != SETUN_OK || !r->embedding) return s;
  if (r->tied_output && untied) return fail(d, "tied_output", "false with a separate head", "true");
  if (!r->tied_output && !untied) return fail(d, "tied_output", "true with a rotated embedding as the head", "false");
  return s;
}

// ---- the whole ----------------------------------------------------------------------------------------------------

static setun_status check_known(const declaration *d, const char *name) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (!strcmp(known[i], name)) return SETUN_OK;
  }
  return st_fail(d->err, SETUN_ERROR_UNSUPPORTED, "%s: expected a key of version 1 or 2, found an unknown one",
                 key_of(d, name).text);
}

// Whether there is a declaration, and whether all its keys are known.
static setun_status find(const declaration *d, bool *found) {
  setun_status s = SETUN_OK;
  const st_metadata *m = &d->d->metadata;
  size_t n = strlen(ST_ROTATION_KEYS);
  *found = d->object != NULL;
  for (size_t i = 0; i < st_json_members(d->object) && s == SETUN_OK; i++) {
    s = check_known(d, st_json_member_at(d->object, i)->key);
  }
  for (size_t i = 0; !d->object && i < m->count && s == SETUN_OK; i++) {
    if (m->items[i].ignored || strncmp(m->items[i].key, ST_ROTATION_KEYS, n)) continue;
    *found = true;
    s = check_known(d, m->items[i].key + n);
  }
  return s;
}

static setun_status read_version(const declaration *d, st_rotation *r) {
  uint32_t version = 0;
  setun_status s = read_u32(d, "version", UINT32_MAX, &version);
  if (s == SETUN_OK && !has(d, "version")) s = fail(d, "version", "1 or 2", "none");
  if (s == SETUN_OK && version != 1 && version != 2) s = fail_number(d, "version", "1 or 2", version);
  if (s == SETUN_OK) s = read_bool(d, "tied_output", &r->tied_output);
  if (s == SETUN_OK && r->tied_output != (version == 2)) {
    s = fail(d, "tied_output", "true only in version 2", r->tied_output ? "true" : "false");
  }
  if (s == SETUN_OK) s = read_u32(d, "block_size", MOST_BLOCK, &r->block);
  if (s == SETUN_OK && !has(d, "block_size")) s = fail(d, "block_size", "a power of two", "none");
  if (s == SETUN_OK && (!r->block || (r->block & (r->block - 1)))) {
    s = fail_number(d, "block_size", "a power of two", r->block);
  }
  return s;
}

static setun_status read_all(const declaration *d, st_rotation *r) {
  setun_status s = read_version(d, r);
  if (s == SETUN_OK) s = need_text(d, "transform", TRANSFORM);
  if (s == SETUN_OK) s = need_text(d, "axis", AXIS);
  if (s == SETUN_OK) s = read_sign_mode(d, r);
  if (s == SETUN_OK) s = read_names(d, r);
  if (s == SETUN_OK) s = read_inverse(d, r);
  if (s == SETUN_OK) s = read_bool(d, "gdn_v_grouped", &r->gdn_v_grouped);
  if (s == SETUN_OK && r->tied_output && !r->embedding) {
    s = fail(d, "inverse_weight_names", "the embedding's name with tied_output", "none");
  }
  return s;
}

static declaration declaration_of(const st_directory *d, setun_error *err) {
  return (declaration){.d = d, .object = st_json_find(d->config, ST_ROTATION_MEMBER), .err = err};
}

setun_status st_rotation_check(const st_rotation *rotation, const st_directory *directory, setun_error *err) {
  const declaration d = declaration_of(directory, err);
  return check_tensors(&d, rotation);
}

setun_status st_rotation_read(const st_directory *directory, st_rotation **rotation, setun_error *err) {
  const declaration d = declaration_of(directory, err);
  const char *type = st_json_string(st_json_get(directory->config, "model_type"));
  bool found;
  *rotation = NULL;
  if (!d.object && st_rotation_plain_type(type) != type) {
    return st_fail(err, SETUN_ERROR_FORMAT, "config.json: %s: expected this object, as model_type is %.64s, found none",
                   ST_ROTATION_MEMBER, type);
  }
  if (d.object && !st_json_is_object(d.object)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, ST_ROTATION_MEMBER ": expected an object, found %s",
                   st_json_kind(d.object));
  }
  setun_status s = find(&d, &found);
  if (s != SETUN_OK || !found) return s;
  st_rotation *r = st_calloc(1, sizeof *r);
  if (!r) return st_fail_memory(err, "the weights' basis");
  s = read_all(&d, r);
  if (s == SETUN_OK) {
    *rotation = r;
  } else {
    st_rotation_free(r);
  }
  return s;
}

void st_rotation_free(st_rotation *r) {
  if (!r) return;
  for (size_t i = 0; i < r->n_names; i++) st_free(r->names[i]);
  st_free(r->names);
  st_free(r->embedding);
  st_free(r->widths);
  st_free(r->signs);
  st_free(r);
}

bool st_rotation_has(const st_rotation *r, const char *tensor) {
  return r && ((r->embedding && !strcmp(r->embedding, tensor)) || is_listed(r, tensor));
}

const float *st_rotation_signs(const st_rotation *r, uint64_t width) {
  const float *signs = r->signs;
  for (uint32_t i = 0; i < r->n_widths; signs += r->widths[i++]) {
    if (r->widths[i] == width) return signs;
  }
  return NULL;
}

void st_rotation_undo(const st_rotation *r, float *row, size_t width, double *scratch) {
  const float *signs = st_rotation_signs(r, width);
  for (size_t i = 0; i < width; i++) scratch[i] = (double)row[i];
  for (size_t half = r->block / 2; half; half /= 2) {
    for (size_t i = 0; i < width; i += 2 * half) {
      for (size_t j = i; j < i + half; j++) {
        double a = scratch[j], b = scratch[j + half];
        scratch[j] = a + b, scratch[j + half] = a - b;
      }
    }
  }
  double root = sqrt((double)r->block);
  for (size_t i = 0; i < width; i++) row[i] = (float)(scratch[i] / (signs && signs[i] < 0 ? -root : root));
}

const char *st_rotation_plain_type(const char *model_type) {
  size_t n = strlen(ST_ROTATION_MODEL_TYPE);
  return model_type && !strncmp(model_type, ST_ROTATION_MODEL_TYPE, n) ? model_type + n : model_type;
}

// ---- writing ------------------------------------------------------------------------------------------------------

// The number of elements in the list of signs, or of widths.
static size_t count_integers(const st_rotation *r, bool signs) {
  size_t n = 0;
  for (uint32_t i = 0; i < r->n_widths; i++) n += signs ? r->widths[i] : 1;
  return n;
}

static void put_integers(const st_rotation *r, bool signs, st_keys *keys) {
  size_t n = count_integers(r, signs);
  int32_t *values = st_malloc(n, sizeof *values);
  keys->failed = keys->failed || !values;
  for (size_t i = 0; values && i < n; i++) values[i] = signs ? (int32_t)r->signs[i] : (int32_t)r->widths[i];
  if (values) st_keys_i32s(keys, signs ? ST_ROTATION_KEYS "sign_values" : ST_ROTATION_KEYS "sign_widths", values, n);
  st_free(values);
}

void st_rotation_write_gguf(const st_rotation *r, const st_text *names, size_t n, const char *embedding,
                            st_keys *keys) {
  const st_text inverse = {embedding, embedding ? strlen(embedding) : 0};
  st_keys_u32(keys, ST_ROTATION_KEYS "version", r->tied_output ? 2 : 1);
  st_keys_u32(keys, ST_ROTATION_KEYS "block_size", r->block);
  st_keys_text(keys, ST_ROTATION_KEYS "transform", TRANSFORM);
  st_keys_text(keys, ST_ROTATION_KEYS "axis", AXIS);
  st_keys_text(keys, ST_ROTATION_KEYS "sign_mode", r->has_signs ? "explicit" : "identity");
  if (r->has_signs) {
    put_integers(r, false, keys);
    put_integers(r, true, keys);
  }
  st_keys_texts(keys, ST_ROTATION_KEYS "weight_names", names, n);
  if (r->embedding) st_keys_texts(keys, ST_ROTATION_KEYS "inverse_weight_names", &inverse, 1);
  if (r->gdn_v_grouped) st_keys_bool(keys, ST_ROTATION_KEYS "gdn_v_grouped", true);
  if (r->tied_output) st_keys_bool(keys, ST_ROTATION_KEYS "tied_output", true);
}

static void set_integers(const st_rotation *r, bool signs, st_json *root, st_json *object) {
  st_json list = st_json_make_array();
  for (size_t i = 0, n = count_integers(r, signs); i < n; i++) {
    st_json_push(root, &list, st_json_make_integer(signs ? (int64_t)r->signs[i] : (int64_t)r->widths[i]));
  }
  st_json_set(root, object, signs ? "sign_values" : "sign_widths", list);
}

static void set_names(const st_text *names, size_t n, const char *key, st_json *root, st_json *object) {
  st_json list = st_json_make_array();
  for (size_t i = 0; i < n; i++) st_json_push(root, &list, st_json_make_string(root, names[i].data, names[i].length));
  st_json_set(root, object, key, list);
}

void st_rotation_write_config(const st_rotation *r, const st_text *names, size_t n, const char *embedding,
                              st_json *root) {
  const st_text inverse = {embedding, embedding ? strlen(embedding) : 0};
  st_json object = st_json_make_object();
  st_json_set(root, &object, "version", st_json_make_integer(r->tied_output ? 2 : 1));
  st_json_set(root, &object, "block_size", st_json_make_integer(r->block));
  st_json_set(root, &object, "transform", st_json_make_text(root, TRANSFORM));
  st_json_set(root, &object, "axis", st_json_make_text(root, AXIS));
  st_json_set(root, &object, "sign_mode", st_json_make_text(root, r->has_signs ? "explicit" : "identity"));
  if (r->has_signs) set_integers(r, false, root, &object);
  if (r->has_signs) set_integers(r, true, root, &object);
  set_names(names, n, "weight_names", root, &object);
  if (r->embedding) set_names(&inverse, 1, "inverse_weight_names", root, &object);
  if (r->gdn_v_grouped) st_json_set(root, &object, "gdn_v_grouped", st_json_make_bool(true));
  if (r->tied_output) st_json_set(root, &object, "tied_output", st_json_make_bool(true));
  st_json_set(root, root, ST_ROTATION_MEMBER, object);
}
