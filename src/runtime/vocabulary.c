// From a model's files to its tokenizer.
#include "runtime/vocabulary.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

// No published tokenizer file comes near; Gemma's is 33 MB.
enum { FILE_LIMIT = 512 << 20 };

// ---- GGUF ----

static const st_meta *find_array(const st_metadata *m, const char *key, st_meta_type element, setun_status *s,
                                 setun_error *err) {
  const st_meta *a = st_metadata_find(m, key);
  if (*s != SETUN_OK || !a) return NULL;
  if (a->type == ST_META_ARRAY && a->element == element) return a;
  char kind[32];
  *s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an array of %s, found %s", key, st_meta_type_name(element),
               st_meta_kind(a, kind));
  return NULL;
}

// Some converters write all ones for "none". For padding, which is not used here, that is accepted silently; for other
// tokens it is reported.
static void read_id(const st_metadata *m, const char *key, int64_t *id, const st_log *log, setun_status *s,
                    setun_error *err) {
  uint32_t value = 0;
  if (*s != SETUN_OK || !st_metadata_find(m, key)) return;
  *s = st_metadata_u32(m, key, 0, UINT32_MAX, &value, err);
  *id = value == UINT32_MAX ? ST_ID_NONE : (int64_t)value;
  if (value == UINT32_MAX) {
    st_log_write(log, SETUN_LOG_WARNING, "%s: %u is ignored: it is not in the vocabulary", key, value);
  }
}

// Padding is not used here, but an id beyond the vocabulary means that the keys belong to another one.
static void check_padding(const st_metadata *m, setun_status *s, setun_error *err) {
  int64_t padding = -1;
  const st_meta *tokens = st_metadata_find(m, "tokenizer.ggml.tokens");
  read_id(m, "tokenizer.ggml.padding_token_id", &padding, NULL, s, err);
  if (*s != SETUN_OK || !tokens || tokens->type != ST_META_ARRAY || padding < (int64_t)tokens->count) return;
  *s = st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.padding_token_id: token %lld is not in the vocabulary of %llu",
               (long long)padding, (unsigned long long)tokens->count);
}

static void read_flag(const st_metadata *m, const char *key, int *flag, setun_status *s, setun_error *err) {
  bool value = false;
  if (*s != SETUN_OK || !st_metadata_find(m, key)) return;
  *s = st_metadata_bool(m, key, &value, err);
  *flag = value;
}

static char *read_text(const st_metadata *m, const char *key, setun_status *s, setun_error *err) {
  st_text text = {0};
  if (*s == SETUN_OK) *s = st_metadata_text(m, key, &text, err);
  if (*s != SETUN_OK || !text.data) return NULL;
  char *copy = st_strndup(text.data, text.length);
  if (!copy) *s = st_fail_memory(err, key);
  return copy;
}

// Arrays of numbers are unaligned in the header, so they are copied.
static void *copy_numbers(const st_meta *a, size_t expected, const char *key, setun_status *s, setun_error *err) {
  if (*s != SETUN_OK || !a) return NULL;
  if (a->count != expected) {
    *s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected %zu elements, one per token, found %llu", key, expected,
                 (unsigned long long)a->count);
    return NULL;
  }
  void *copy = st_malloc(expected, 4);
  if (copy) {
    if (expected) memcpy(copy, a->as.values, expected * 4);
  } else {
    *s = st_fail_memory(err, key);
  }
  return copy;
}

// SentencePiece's character map: bytes, of either sign.
static void read_charsmap(const st_metadata *m, st_vocabulary *v, setun_status *s, setun_error *err) {
  static const char key[] = "tokenizer.ggml.precompiled_charsmap";
  const st_meta *a = st_metadata_find(m, key);
  if (*s != SETUN_OK || !a) return;
  if (a->type == ST_META_ARRAY && (a->element == ST_META_U8 || a->element == ST_META_I8)) {
    v->charsmap = a->as.values;
    v->charsmap_length = (size_t)a->count;
    return;
  }
  char kind[32];
  *s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected an array of u8 or i8, found %s", key, st_meta_kind(a, kind));
}

static setun_status read_keys(const st_metadata *m, st_vocabulary *v, const st_log *log, setun_error *err) {
  setun_status s = SETUN_OK;
  read_id(m, "tokenizer.ggml.bos_token_id", &v->bos, log, &s, err);
  read_id(m, "tokenizer.ggml.eos_token_id", &v->eos, log, &s, err);
  read_id(m, "tokenizer.ggml.unknown_token_id", &v->unk, log, &s, err);
  read_id(m, "tokenizer.ggml.eot_token_id", &v->eot, log, &s, err);
  read_id(m, "tokenizer.ggml.eom_token_id", &v->eom, log, &s, err);
  check_padding(m, &s, err);
  read_flag(m, "tokenizer.ggml.add_bos_token", &v->add_bos, &s, err);
  read_flag(m, "tokenizer.ggml.add_eos_token", &v->add_eos, &s, err);
  read_flag(m, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, &s, err);
  read_flag(m, "tokenizer.ggml.remove_extra_whitespaces", &v->remove_extra_whitespaces, &s, err);
  read_flag(m, "tokenizer.ggml.normalizer.lowercase", &v->lowercase, &s, err);
  read_charsmap(m, v, &s, err);
  return s;
}

static setun_status from_gguf(const st_metadata *m, const char *default_pre, const st_log *log, st_tokenizer **t,
                              setun_error *err) {
  static const st_text none = {0};
  st_vocabulary v;
  st_vocabulary_init(&v);
  setun_status s = read_keys(m, &v, log, err);
  const st_meta *tokens = find_array(m, "tokenizer.ggml.tokens", ST_META_STRING, &s, err);
  const st_meta *merges = find_array(m, "tokenizer.ggml.merges", ST_META_STRING, &s, err);
  const st_meta *scores = find_array(m, "tokenizer.ggml.scores", ST_META_F32, &s, err);
  const st_meta *types = find_array(m, "tokenizer.ggml.token_type", ST_META_I32, &s, err);
  if (s == SETUN_OK && !tokens) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.tokens: expected an array of strings, found none");
  }
  char *model = read_text(m, "tokenizer.ggml.model", &s, err), *pre = read_text(m, "tokenizer.ggml.pre", &s, err);
  if (s == SETUN_OK && !model) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.model: expected a string, found none");
  }
  size_t n = tokens ? (size_t)tokens->count : 0;
  float *score = copy_numbers(scores, n, "tokenizer.ggml.scores", &s, err);
  int32_t *type = copy_numbers(types, n, "tokenizer.ggml.token_type", &s, err);
  if (s == SETUN_OK) {
    v.model = model;
    v.pre = pre ? pre : default_pre;
    v.n = n;
    v.tokens = tokens->as.texts;
    v.scores = score;
    v.types = type;
    v.n_merges = merges ? (size_t)merges->count : 0;
    v.merges = merges && merges->count ? merges->as.texts : merges ? &none : NULL;
    s = st_tokenizer_from_vocabulary(&v, t, err);
  }
  st_free(score);
  st_free(type);
  st_free(model);
  st_free(pre);
  return s;
}

// ---- Hugging Face directories ----

static setun_status from_vocab_merges(const st_directory *d, const char *pre, st_tokenizer **t, setun_error *err) {
  if (!d->config) { // which would define how text is split
    return st_fail(err, SETUN_ERROR_IO, "%s: expected tokenizer.json, tokenizer.model, or config.json, found none",
                   d->path);
  }
  char *vocab = NULL, *merges = NULL;
  size_t vocab_length = 0, merges_length = 0;
  setun_status s = st_file_load_beside(d->path, "vocab.json", FILE_LIMIT, &vocab, &vocab_length, err);
  if (s == SETUN_OK) s = st_file_load_beside(d->path, "merges.txt", FILE_LIMIT, &merges, &merges_length, err);
  if (s == SETUN_OK && (!vocab || !merges)) {
    s = st_fail(err, SETUN_ERROR_IO,
                "%s: expected tokenizer.json, tokenizer.model, or vocab.json with merges.txt, found none", d->path);
  }
  if (s == SETUN_OK && !pre) {
    const char *type = st_json_string(st_json_get(d->config, "model_type"));
    s = st_fail(err, SETUN_ERROR_UNSUPPORTED,
                "config.json: model_type: expected a known family, since vocab.json and merges.txt do not say how "
                "texts are split, found \"%.64s\"",
                type ? type : "none");
  }
  if (s == SETUN_OK) s = st_tokenizer_from_vocab_merges(vocab, vocab_length, merges, merges_length, pre, t, err);
  st_free(vocab);
  st_free(merges);
  return s;
}

// The path of tokenizer.json itself, or of its directory.
static setun_status from_files(const st_directory *d, const char *pre, st_tokenizer **t, setun_error *err) {
  char *text = NULL;
  size_t length = 0;
  bool directory = st_path_is_directory(d->path);
  setun_status s = directory ? st_file_load_beside(d->path, "tokenizer.json", FILE_LIMIT, &text, &length, err)
                             : st_file_load(d->path, FILE_LIMIT, &text, &length, err);
  if (s != SETUN_OK) return s;
  if (text) {
    s = st_tokenizer_from_json(text, length, directory ? "tokenizer.json" : "read as tokenizer.json", t, err);
  } else {
    s = st_file_load_beside(d->path, "tokenizer.model", FILE_LIMIT, &text, &length, err);
    if (s == SETUN_OK && text) s = st_tokenizer_from_sentencepiece(text, length, "tokenizer.model", t, err);
    if (s == SETUN_OK && !text) s = from_vocab_merges(d, pre, t, err);
  }
  st_free(text);
  return s;
}

static setun_status fail_id(const char *name, const char *key, const st_json *id, setun_error *err) {
  if (st_json_is_number(id)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: %s: expected a token id, found %.17g", name, key, st_json_number(id));
  }
  return st_fail(err, SETUN_ERROR_FORMAT, "%s: %s: expected a token id, found %s", name, key, st_json_kind(id));
}

// `eos_token_id` is a number or a list of numbers.
static setun_status add_ends(st_tokenizer *t, const st_json *config, const char *name, setun_error *err) {
  const st_json *ids = st_json_get(config, "eos_token_id");
  size_t n = st_json_is_array(ids) ? st_json_size(ids) : ids ? 1 : 0;
  for (size_t i = 0; i < n; i++) {
    const st_json *id = st_json_is_array(ids) ? st_json_at(ids, i) : ids;
    double x = st_json_is_number(id) ? st_json_number(id) : -1;
    if (!(x >= 0 && x < 2147483648.0) || x != (double)(int64_t)x) {
      return fail_id(name, "eos_token_id", id, err);
    }
    setun_status s = st_tokenizer_add_end(t, (int64_t)x, err);
    if (s != SETUN_OK) return st_fail_in(err, s, "%s", name);
  }
  return SETUN_OK;
}

// BOS from config.json, for directories whose tokenizer files do not define it.
static setun_status set_bos(st_tokenizer *t, const st_json *config, setun_error *err) {
  const st_json *id = st_json_get(config, "bos_token_id");
  double x = st_json_is_number(id) ? st_json_number(id) : -2;
  if (!id || x == -1) return SETUN_OK; // published files use both spellings of "none"
  if (!(x >= 0 && x < 2147483648.0) || x != (double)(int64_t)x) return fail_id("config.json", "bos_token_id", id, err);
  if (st_tokenizer_bos(t) >= 0) return SETUN_OK;
  setun_status s = st_tokenizer_set_bos(t, (int64_t)x, err);
  return s == SETUN_OK ? s : st_fail_in(err, s, "config.json");
}

// Padding is not used here; checked as a sign that the file is sound. Padded rows of the embedding are allowed.
static setun_status check_padding_json(const st_tokenizer *t, const st_json *config, setun_error *err) {
  const st_json *id = st_json_get(config, "pad_token_id");
  double x = st_json_is_number(id) ? st_json_number(id) : -2;
  double rows = st_json_number(st_json_get(config, "vocab_size"));
  double most = rows > st_tokenizer_size(t) ? rows : st_tokenizer_size(t);
  if (!id || x == -1) return SETUN_OK; // published files use both spellings of "none"
  return x >= 0 && x < most && x == floor(x) ? SETUN_OK : fail_id("config.json", "pad_token_id", id, err);
}

static setun_status adjust(const st_directory *d, st_tokenizer *t, setun_error *err) {
  static const char *const names[] = {"special_tokens_map.json", "tokenizer_config.json"};
  setun_status s = SETUN_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names && s == SETUN_OK; i++) {
    char *text = NULL;
    size_t length = 0;
    s = st_file_load_beside(d->path, names[i], FILE_LIMIT, &text, &length, err);
    if (s == SETUN_OK && text) s = st_tokenizer_apply_config(t, text, length, names[i], err);
    st_free(text);
  }
  if (s == SETUN_OK) s = set_bos(t, d->config, err);
  if (s == SETUN_OK) s = check_padding_json(t, d->config, err);
  if (s == SETUN_OK) s = add_ends(t, d->config, "config.json", err);
  if (s == SETUN_OK) s = add_ends(t, st_json_get(d->config, "text_config"), "config.json: text_config", err);
  if (s == SETUN_OK) s = add_ends(t, d->generation_config, "generation_config.json", err);
  return s;
}

// Measured: 155 to 165 bytes per token, including merges, and 3 MiB in addition.
enum { TOKEN_LEAST = 128, TOKEN_ENOUGH = 176, ONCE = 4 << 20 };

st_vocabulary_size st_vocabulary_measure(const st_directory *d) {
  // Per byte of the file: its text is read as a whole, in addition to the tokens.
  static const struct {
    const char *name;
    uint32_t least, enough;
  } files[] = {{"tokenizer.json", 2, 5}, {"tokenizer.model", 4, 11}, {"vocab.json", 2, 8}};
  const st_meta *tokens = st_metadata_find(&d->metadata, "tokenizer.ggml.tokens");
  if (tokens && tokens->type == ST_META_ARRAY) {
    return (st_vocabulary_size){tokens->count * TOKEN_LEAST, tokens->count * TOKEN_ENOUGH + ONCE};
  }
  for (size_t i = 0; d->container == ST_HUGGINGFACE && i < sizeof files / sizeof *files; i++) {
    char *path = st_path_join(d->path, files[i].name);
    st_file file = {0};
    bool found = path && st_file_open(path, &file, NULL) == SETUN_OK; // loading reports what is wrong with it
    uint64_t size = file.size;
    st_file_close(&file);
    st_free(path);
    if (found && size <= FILE_LIMIT) {
      return (st_vocabulary_size){size * files[i].least, size * files[i].enough + ONCE};
    }
  }
  return (st_vocabulary_size){0, 0};
}

setun_status st_vocabulary_load(const st_directory *d, const char *default_pre, const st_log *log,
                                st_tokenizer **tokenizer, setun_error *err) {
  if (d->container == ST_GGUF) return from_gguf(&d->metadata, default_pre, log, tokenizer, err);
  st_tokenizer *t = NULL;
  setun_status s = from_files(d, default_pre, &t, err);
  if (s == SETUN_OK) s = adjust(d, t, err);
  if (s == SETUN_OK) {
    *tokenizer = t;
  } else {
    st_tokenizer_free(t);
  }
  return s;
}

setun_status st_vocabulary_load_sentencepiece(const st_directory *d, st_tokenizer **tokenizer, setun_error *err) {
  char *text = NULL;
  size_t length = 0;
  st_tokenizer *t = NULL;
  setun_status s = st_file_load_beside(d->path, "tokenizer.model", FILE_LIMIT, &text, &length, err);
  if (s != SETUN_OK || !text) return s;
  s = st_tokenizer_from_sentencepiece(text, length, "tokenizer.model", &t, err);
  st_free(text);
  if (s == SETUN_OK) s = adjust(d, t, err);
  if (s == SETUN_OK) {
    *tokenizer = t;
  } else {
    st_tokenizer_free(t);
  }
  return s;
}
