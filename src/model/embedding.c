// Poolings and dense modules, from sentence-transformers' files and from GGUF.
#include "model/embedding.h"

#include "base/buffer.h"

#include <stdio.h>
#include <string.h>

uint32_t st_embedding_width(const st_hparams *h) {
  const st_embedding *e = &h->embedding;
  return e->n_dense ? (uint32_t)e->dense[e->n_dense - 1].rows : h->n_embd;
}

uint32_t st_embedding_length(const st_hparams *h) {
  uint32_t width = st_embedding_width(h), n = h->embedding.truncated;
  return n && n < width ? n : width;
}

setun_pooling st_embedding_pooling(const st_hparams *h) {
  if (h->embedding.pooling != SETUN_POOLING_MODEL) return h->embedding.pooling;
  return h->bidirectional ? SETUN_POOLING_MEAN : SETUN_POOLING_LAST;
}

const char *st_pooling_name(setun_pooling pooling) {
  static const char *const names[] = {[SETUN_POOLING_MEAN] = "mean",
                                      [SETUN_POOLING_CLS] = "cls",
                                      [SETUN_POOLING_LAST] = "last",
                                      [SETUN_POOLING_NONE] = "none"};
  return (size_t)pooling < sizeof names / sizeof *names ? names[pooling] : NULL;
}

// ---- modules ------------------------------------------------------------------------------------------------------

static bool is_listed(const char *const *names, const char *name) {
  while (*names && strcmp(*names, name)) names++;
  return *names != NULL;
}

static bool is_empty(const st_json *v) {
  return st_json_is_null(v) || st_json_is(v, ST_JSON_FALSE) || (st_json_is_object(v) && !st_json_members(v)) ||
         (st_json_is_string(v) && !st_json_length(v));
}

static setun_status fail_value(const char *key, const char *expected, const st_json *found, setun_error *err) {
  st_buffer text = {0};
  bool made = st_json_append(found, &text);
  setun_status s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected %s, found %.80s", key, expected,
                           made && text.data ? text.data : st_json_kind(found));
  st_buffer_free(&text);
  return s;
}

// A member with only one supported value.
typedef struct fixed_member {
  const char *key, *value;
} fixed_member;

// Checks members that are not read: they must have their only supported value or be empty.
static setun_status check_members(const st_json *config, const char *const *read, const fixed_member *fixed,
                                  setun_error *err) {
  for (size_t i = 0; i < st_json_members(config); i++) {
    const st_json_member *m = st_json_member_at(config, i);
    const fixed_member *f = fixed;
    const char *text = st_json_string(&m->value);
    if (is_listed(read, m->key) || is_empty(&m->value)) continue;
    while (f->key && strcmp(f->key, m->key)) f++;
    if (!f->key || !text || strcmp(text, f->value)) {
      return fail_value(m->key, f->key ? f->value : "none", &m->value, err);
    }
  }
  return SETUN_OK;
}

// What all modules after the pooling work on.
static const fixed_member pooled_state[] = {
    {"module_input_name", "sentence_embedding"}, {"module_output_name", "sentence_embedding"}, {NULL, NULL}};

static setun_status read_transformer(const st_json *config, st_hparams *h, setun_error *err) {
  static const char *const read[] = {"max_seq_length", "modality_config", NULL}; // of these modalities text is used
  static const fixed_member fixed[] = {
      {"transformer_task", "feature-extraction"}, {"module_output_name", "token_embeddings"}, {NULL, NULL}};
  setun_status s = check_members(config, read, fixed, err);
  return s == SETUN_OK ? st_json_u32(config, read[0], 1, 1u << 30, &h->embedding.n_ctx, err) : s;
}

// The modes in both styles: one flag each, or one name.
static const struct {
  const char *flag, *name;
  setun_pooling pooling; // SETUN_POOLING_OFF: not supported
} modes[] = {{"pooling_mode_cls_token", "cls", SETUN_POOLING_CLS},
             {"pooling_mode_mean_tokens", "mean", SETUN_POOLING_MEAN},
             {"pooling_mode_lasttoken", "lasttoken", SETUN_POOLING_LAST},
             {"pooling_mode_max_tokens", "max", SETUN_POOLING_OFF},
             {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", SETUN_POOLING_OFF},
             {"pooling_mode_weightedmean_tokens", "weightedmean", SETUN_POOLING_OFF}};
enum { MODES = sizeof modes / sizeof *modes };

static setun_status fail_mode(const char *key, const char *found, setun_error *err) {
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected one of cls, mean and lasttoken, found %.80s", key, found);
}

static setun_status read_modes(const st_json *config, st_embedding *e, setun_error *err) {
  static const char key[] = "pooling_mode";
  const char *name = NULL;
  const st_json *mode = st_json_get(config, key);
  setun_pooling found = SETUN_POOLING_OFF;
  if (mode && !(name = st_json_string(mode))) return fail_mode(key, st_json_kind(mode), err);
  for (size_t i = 0; i < MODES; i++) {
    bool on = name && !strcmp(name, modes[i].name);
    setun_status s = st_json_bool(config, modes[i].flag, &on, err);
    if (s != SETUN_OK) return s;
    if (!on) continue;
    if (modes[i].pooling == SETUN_POOLING_OFF) return fail_mode(name ? key : modes[i].flag, modes[i].name, err);
    if (found != SETUN_POOLING_OFF) return fail_mode(modes[i].flag, "several of them", err);
    found = modes[i].pooling;
  }
  if (found == SETUN_POOLING_OFF) return fail_mode(key, name ? name : "none", err);
  e->pooling = found;
  e->source = "modules.json";
  return SETUN_OK;
}

static setun_status read_pooling(const st_json *config, st_hparams *h, setun_error *err) {
  static const char *const read[] = {
      "pooling_mode",           "include_prompt",           "pooling_mode_cls_token", "pooling_mode_mean_tokens",
      "pooling_mode_lasttoken", "word_embedding_dimension", "embedding_dimension",    NULL};
  static const fixed_member none[] = {{NULL, NULL}};
  uint32_t width = h->n_embd;
  bool include = true;
  if (!config) return st_fail(err, SETUN_ERROR_IO, "config.json: expected this file, found none");
  setun_status s = read_modes(config, &h->embedding, err);
  if (s == SETUN_OK) s = check_members(config, read, none, err);
  for (int i = 5; i < 7 && s == SETUN_OK; i++) s = st_json_u32(config, read[i], 1, 1u << 30, &width, err);
  if (s == SETUN_OK) s = st_json_bool(config, "include_prompt", &include, err);
  if (s == SETUN_OK && width != h->n_embd) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "word_embedding_dimension: expected the model's %u, found %u", h->n_embd,
                width);
  }
  h->embedding.skips_prompt = !include;
  return s;
}

static setun_status read_dense(const st_json *config, st_hparams *h, setun_error *err) {
  static const char identity[] = "torch.nn.modules.linear.Identity";
  static const char *const read[] = {"in_features", "out_features", "bias", "activation_function", NULL};
  st_embedding *e = &h->embedding;
  uint32_t in = 0, out = 0, width = st_embedding_width(h);
  const char *activation = "torch.nn.modules.activation.Tanh"; // the class's default
  if (!config) return st_fail(err, SETUN_ERROR_IO, "config.json: expected this file, found none");
  if (e->n_dense == ST_DENSE_MOST) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "expected at most %d dense modules, found more", ST_DENSE_MOST);
  }
  setun_status s = check_members(config, read, pooled_state, err);
  if (s == SETUN_OK) s = st_json_u32(config, read[0], 1, 1u << 20, &in, err);
  if (s == SETUN_OK) s = st_json_u32(config, read[1], 1, 1u << 20, &out, err);
  if (s == SETUN_OK) s = st_json_text(config, read[3], &activation, err);
  if (s != SETUN_OK) return s;
  if (in != width || !out) {
    return st_fail(err, SETUN_ERROR_FORMAT,
                   "in_features, out_features: expected %u and a positive number, found %u and %u", width, in, out);
  }
  if (strcmp(activation, identity)) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "activation_function: expected %s, found \"%.80s\"", identity,
                   activation);
  }
  e->dense[e->n_dense++] = (st_shape){out, in};
  return SETUN_OK;
}

static setun_status read_normalize(const st_json *config, st_hparams *h, setun_error *err) {
  static const char *const read[] = {NULL};
  h->embedding.unscaled = false;
  return check_members(config, read, pooled_state, err);
}

// The model, then a pooling, dense modules, and the normalization.
static setun_status read_module(const st_directory *d, uint32_t index, st_hparams *h, setun_error *err) {
  const st_sentence_module *m = &d->modules[index];
  bool pooled = h->embedding.source != NULL, first = index == 0;
  bool last = index + 1 == d->n_modules;
  switch (m->kind) {
  case ST_SENTENCE_TRANSFORMER:
    if (first) return read_transformer(m->config, h, err);
    break;
  case ST_SENTENCE_POOLING:
    if (!first && !pooled) return read_pooling(m->config, h, err);
    break;
  case ST_SENTENCE_DENSE:
    if (pooled) return read_dense(m->config, h, err);
    break;
  case ST_SENTENCE_NORMALIZE:
    if (pooled && last) return read_normalize(m->config, h, err);
    break;
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                 "modules.json: expected Transformer, Pooling, Dense and Normalize in this order, found another order");
}

// Whether embeddings may be cut, and to which lengths; as in vLLM, a list allows those alone.
static setun_status read_lengths(const st_json *config, st_hparams *h, setun_error *err) {
  static const char key[] = "matryoshka_dimensions";
  st_embedding *e = &h->embedding;
  const st_json *list = st_json_get(config, key);
  uint32_t width = st_embedding_width(h);
  setun_status s = st_json_bool(config, "is_matryoshka", &e->nested, err);
  if (s != SETUN_OK || !list) return s;
  if (!st_json_is_array(list) || st_json_size(list) > ST_LENGTHS_MOST) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected a list of at most %d lengths, found %s", key,
                   ST_LENGTHS_MOST, st_json_is_array(list) ? "more" : st_json_kind(list));
  }
  for (size_t i = 0; i < st_json_size(list); i++) {
    const st_json *item = st_json_at(list, i);
    double n = st_json_number(item);
    if (!st_json_is_number(item) || !(n >= 1 && n <= width) || n != (double)(uint32_t)n) {
      char expected[48];
      snprintf(expected, sizeof expected, "integers from 1 to %u", width);
      return fail_value(key, expected, item, err);
    }
    e->lengths[e->n_lengths++] = (uint32_t)n;
  }
  if (e->n_lengths) e->nested = true;
  return SETUN_OK;
}

setun_status st_embedding_check_length(const st_hparams *h, uint32_t n, setun_error *err) {
  const st_embedding *e = &h->embedding;
  uint32_t most = st_embedding_length(h);
  st_buffer listed = {0};
  bool allowed = n == most || (n < most && e->nested && !e->n_lengths);
  for (uint32_t i = 0; i < e->n_lengths; i++) {
    if (e->lengths[i] >= most) continue;
    allowed = allowed || e->lengths[i] == n;
    st_buffer_format(&listed, "%u, ", e->lengths[i]);
  }
  setun_status s = SETUN_OK;
  if (!allowed && e->n_lengths) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "n_dimensions: expected one of %s%u, found %u",
                listed.data ? listed.data : "", most, n);
  } else if (!allowed) {
    s = st_fail(err, SETUN_ERROR_ARGUMENT, "n_dimensions: expected %s%u%s, found %u", e->nested ? "at most " : "", most,
                e->nested ? "" : ", since the model's vectors cannot be cut", n);
  }
  st_buffer_free(&listed);
  return s;
}

static setun_status read_modules(const st_directory *d, st_hparams *h, setun_error *err) {
  setun_status s = SETUN_OK;
  h->embedding.unscaled = d->n_modules != 0;
  for (uint32_t i = 0; i < d->n_modules && s == SETUN_OK; i++) {
    s = read_module(d, i, h, err);
    if (s != SETUN_OK) st_fail_in(err, s, "%s", *d->modules[i].name ? d->modules[i].name : "sentence_bert_config.json");
  }
  if (s == SETUN_OK && d->n_modules && !h->embedding.source) {
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED, "modules.json: expected a Pooling module, found none");
  }
  if (s == SETUN_OK) s = read_lengths(d->config, h, err);
  if (s != SETUN_OK) return s;
  s = st_json_u32(d->sentence_config, "truncate_dim", 1, 1u << 20, &h->embedding.truncated, err);
  return s == SETUN_OK ? s : st_fail_in(err, s, "%s", ST_SENTENCE_CONFIG);
}

// ---- GGUF ---------------------------------------------------------------------------------------------------------

static const char *key_of(st_text architecture, const char *name, char key[128]) {
  snprintf(key, 128, "%.*s.%s", (int)(architecture.length < 64 ? architecture.length : 64), architecture.data, name);
  return key;
}

// llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last, 4 rank, and -1 unspecified.
static setun_status read_type(const st_metadata *m, const char *key, st_embedding *e, setun_error *err) {
  static const setun_pooling poolings[] = {SETUN_POOLING_OFF, SETUN_POOLING_MEAN, SETUN_POOLING_CLS,
                                           SETUN_POOLING_LAST};
  const st_meta *item = st_metadata_find(m, key);
  uint32_t type = 0;
  if (!item) return SETUN_OK;
  bool is_signed =
      item->type == ST_META_I8 || item->type == ST_META_I16 || item->type == ST_META_I32 || item->type == ST_META_I64;
  if (is_signed && item->as.i == -1) return SETUN_OK;
  if (!is_signed && st_meta_is_integer(item->type) && item->as.u == UINT32_MAX) return SETUN_OK;
  setun_status s = st_metadata_u32(m, key, 0, 4, &type, err);
  if (s != SETUN_OK) return s;
  if (type == 4) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "%s: expected 0 (none), 1 (mean), 2 (cls) or 3 (last), found 4 (rank), which is not supported", key);
  }
  e->pooling = poolings[type];
  e->source = "pooling_type";
  return SETUN_OK;
}

static setun_status read_gguf(const st_directory *d, st_hparams *h, setun_error *err) {
  static const char *const names[ST_DENSE_MOST][2] = {{"dense_2_feat_in", "dense_2_feat_out"},
                                                      {"dense_3_feat_in", "dense_3_feat_out"}};
  char key[128];
  st_embedding *e = &h->embedding;
  st_text architecture = {0};
  setun_status s = st_metadata_text(&d->metadata, "general.architecture", &architecture, err);
  if (s == SETUN_OK) s = read_type(&d->metadata, key_of(architecture, "pooling_type", key), e, err);
  for (uint32_t i = 0; i < ST_DENSE_MOST && s == SETUN_OK; i++) {
    uint32_t in = 0, out = 0, width = st_embedding_width(h);
    s = st_metadata_u32(&d->metadata, key_of(architecture, names[i][0], key), 0, 1u << 20, &in, err);
    if (s == SETUN_OK)
      s = st_metadata_u32(&d->metadata, key_of(architecture, names[i][1], key), 0, 1u << 20, &out, err);
    if (s != SETUN_OK || (!in && !out)) continue;
    if (in != width || !out || e->n_dense != i) {
      return st_fail(err, SETUN_ERROR_FORMAT, "%s, %s: expected %u and a positive number, found %u and %u", names[i][0],
                     names[i][1], width, in, out);
    }
    e->dense[e->n_dense++] = (st_shape){out, in};
  }
  uint32_t width = st_embedding_width(h), stated = 0;
  if (s == SETUN_OK) {
    s = st_metadata_u32(&d->metadata, key_of(architecture, "embedding_length_out", key), 0, 1u << 30, &stated, err);
  }
  if (s != SETUN_OK || !stated || stated == width) return s;
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: expected %u, the output size of the dense matrices, found %u", key,
                 width, stated);
}

setun_status st_embedding_read(const st_directory *d, st_hparams *h, setun_error *err) {
  h->embedding = (st_embedding){.pooling = SETUN_POOLING_MODEL};
  return d->container == ST_GGUF ? read_gguf(d, h, err) : read_modules(d, h, err);
}
