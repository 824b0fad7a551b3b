// tokenizer.json: normalizers and pre-tokenizers.
#include "tokenizer/json.h"

#include "base/memory.h"

#include <string.h>

enum { MAX_NESTING = 8 }; // Sequences within Sequences

// The Whitespace pre-tokenizer's word characters: those of a class, and the joiners.
#define WORD "\\w\\x{200C}\\x{200D}"

// ---- patterns ----

// {"String": "..."} or {"Regex": "..."}.
static setun_status read_pattern(st_tokenizer *t, const st_json *object, const char *what, st_bytes *text,
                                 st_regex **regex, setun_error *err) {
  const st_json *pattern = st_json_get(object, "pattern");
  const st_json *literal = st_json_get(pattern, "String"), *expression = st_json_get(pattern, "Regex");
  if (st_json_is_string(expression)) {
    setun_status s = st_regex_new(st_json_string(expression), st_json_length(expression), regex, err);
    return s ? st_fail_in(err, s, "%s", what) : SETUN_OK;
  }
  if (!st_json_is_string(literal) || !st_json_length(literal)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "%s: \"pattern\" is neither a String nor a Regex", what);
  }
  return st_json_copy(t, pattern, "String", what, text, err);
}

// ---- normalizers ----

static setun_status add_normalizer(st_tokenizer *t, st_normalize_step step, setun_error *err) {
  if (t->n_normalizers == ST_MAX_STEPS) {
    st_regex_free(step.regex);
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a normalizer of more than %d steps", ST_MAX_STEPS);
  }
  t->normalizers[t->n_normalizers++] = step;
  return SETUN_OK;
}

static setun_status read_replace(st_tokenizer *t, const st_json *value, setun_error *err) {
  st_normalize_step step = {.kind = ST_NORMALIZE_REPLACE};
  setun_status s = st_json_copy(t, value, "content", "normalizer Replace", &step.text, err);
  if (!s) s = read_pattern(t, value, "normalizer Replace", &step.from, &step.regex, err);
  return s ? s : add_normalizer(t, step, err);
}

static int base64_digit(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c ? strchr(digits, c) : NULL;
  return at ? (int)(at - digits) : -1;
}

// Padded base64 (RFC 4648, section 4); `out` holds 3 bytes for each 4. False: invalid.
static bool read_base64(const char *text, size_t n, char *out, size_t *length) {
  *length = 0;
  if (n % 4) return false;
  for (size_t i = 0; i < n; i += 4) {
    size_t bytes = i + 4 < n || text[i + 3] != '=' ? 3 : text[i + 2] != '=' ? 2 : 1;
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) {
      int digit = k <= bytes ? base64_digit(text[i + k]) : 0;
      if (digit < 0) return false;
      bits = bits << 6 | (uint32_t)digit;
    }
    for (size_t k = 0; k < bytes; k++) out[(*length)++] = (char)(bits >> (16 - 8 * k) & 0xFF);
  }
  return true;
}

static setun_status read_precompiled(st_tokenizer *t, const st_json *value, setun_error *err) {
  static const char what[] = "normalizer Precompiled: \"precompiled_charsmap\"";
  const char *text = NULL;
  setun_status s = st_json_text(value, "precompiled_charsmap", &text, err);
  if (s) return st_fail_in(err, s, "normalizer Precompiled");
  if (!text) return st_fail(err, SETUN_ERROR_FORMAT, "%s: expected base64, found none", what);
  size_t n = strlen(text), length;
  st_charsmap *map = (st_charsmap *)(void *)st_arena_take(&t->arena, sizeof *map);
  char *bytes = st_malloc(n / 4 * 3 + 1, 1);
  if (!map || !bytes) {
    st_free(bytes);
    return st_fail_memory(err, what);
  }
  if (!read_base64(text, n, bytes, &length)) {
    s = st_fail(err, SETUN_ERROR_FORMAT, "%s: expected base64, found other characters in its %zu", what, n);
  } else if ((s = st_charsmap_read(t, bytes, length, map, err)) != SETUN_OK) {
    s = st_fail_in(err, s, "%s", what);
  }
  st_free(bytes);
  return s ? s : add_normalizer(t, (st_normalize_step){.kind = ST_NORMALIZE_PRECOMPILED, .map = map}, err);
}

static setun_status read_normalizer(st_tokenizer *t, const st_json *value, int depth, setun_error *err);

static setun_status read_normalizers(st_tokenizer *t, const st_json *list, int depth, setun_error *err) {
  if (!st_json_is_array(list))
    return st_fail(err, SETUN_ERROR_FORMAT, "normalizer Sequence: \"normalizers\" is not an array");
  setun_status s = SETUN_OK;
  for (size_t i = 0; !s && i < st_json_size(list); i++) s = read_normalizer(t, st_json_at(list, i), depth, err);
  return s;
}

static setun_status read_normalizer(st_tokenizer *t, const st_json *value, int depth, setun_error *err) {
  static const struct {
    const char *name;
    st_normalize_kind kind;
  } plain[] = {{"NFC", ST_NORMALIZE_NFC},
               {"NFD", ST_NORMALIZE_NFD},
               {"NFKC", ST_NORMALIZE_NFKC},
               {"NFKD", ST_NORMALIZE_NFKD},
               {"Lowercase", ST_NORMALIZE_LOWERCASE}};
  const char *type;
  setun_status s = st_json_type(value, "normalizer", &type, err);
  if (s) return s;
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
    if (!strcmp(type, plain[i].name)) return add_normalizer(t, (st_normalize_step){.kind = plain[i].kind}, err);
  }
  if (!strcmp(type, "Sequence") && depth < MAX_NESTING) {
    return read_normalizers(t, st_json_get(value, "normalizers"), depth + 1, err);
  }
  st_normalize_step step = {.kind = ST_NORMALIZE_STRIP, .left = true, .right = true};
  if (!strcmp(type, "Strip")) {
    s = st_json_bool(value, "strip_left", &step.left, err);
    if (!s) s = st_json_bool(value, "strip_right", &step.right, err);
    return s ? s : add_normalizer(t, step, err);
  }
  if (!strcmp(type, "Prepend")) {
    step = (st_normalize_step){.kind = ST_NORMALIZE_PREPEND};
    s = st_json_copy(t, value, "prepend", "normalizer Prepend", &step.text, err);
    return s ? s : add_normalizer(t, step, err);
  }
  if (!strcmp(type, "Replace")) return read_replace(t, value, err);
  if (!strcmp(type, "Precompiled")) return read_precompiled(t, value, err);
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "normalizer \"%.40s\" is not supported", type);
}

setun_status st_json_read_normalizer(st_tokenizer *t, const st_json *value, setun_error *err) {
  return value ? read_normalizer(t, value, 0, err) : SETUN_OK;
}

// ---- pre-tokenizers ----

// Every stage is added through this: what follows ByteLevel sees text in its printable form.
static setun_status before_stage(st_tokenizer *t, setun_error *err) {
  if (!t->byte_level || t->bytes_stage) return SETUN_OK;
  if (!st_stage_add(t, ST_STAGE_BYTES, err)) return SETUN_ERROR_UNSUPPORTED;
  t->bytes_stage = true;
  return SETUN_OK;
}

static setun_status add_split(st_tokenizer *t, const char *pattern, st_split_behavior behavior, bool invert,
                              setun_error *err) {
  setun_status s = before_stage(t, err);
  return s ? s : st_stage_add_split(t, pattern, behavior, invert, err);
}

static setun_status read_behavior(const st_json *value, const char *what, st_split_behavior *behavior,
                                  setun_error *err) {
  static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const char *name = NULL;
  setun_status s = st_json_text(value, "behavior", &name, err);
  if (s || !name) return s;
  for (int i = 0; i < 5; i++) {
    if (!strcmp(name, names[i])) {
      *behavior = (st_split_behavior)i;
      return SETUN_OK;
    }
  }
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "%s: behavior \"%.40s\" is not supported", what, name);
}

static setun_status read_split(st_tokenizer *t, const st_json *value, setun_error *err) {
  st_split_behavior behavior = ST_SPLIT_REMOVED;
  bool invert = false;
  st_bytes literal = {0};
  st_regex *regex = NULL;
  setun_status s = read_behavior(value, "pre-tokenizer Split", &behavior, err);
  if (!s) s = st_json_bool(value, "invert", &invert, err);
  if (!s) s = before_stage(t, err);
  if (!s) s = read_pattern(t, value, "pre-tokenizer Split", &literal, &regex, err);
  if (!s && !regex) s = st_regex_new_literal(literal.data, literal.length, &regex, err);
  if (s) return s;
  const char *pattern = st_json_string(st_json_get(st_json_get(value, "pattern"), "Regex"));
  return st_stage_add_regex(t, regex, pattern, behavior, invert, err);
}

static setun_status read_byte_level(st_tokenizer *t, const st_json *value, setun_error *err) {
  bool prefix = true, use_regex = true;
  setun_status s = st_json_bool(value, "add_prefix_space", &prefix, err);
  if (!s) s = st_json_bool(value, "use_regex", &use_regex, err);
  if (s) return s;
  if (t->byte_level) return st_fail(err, SETUN_ERROR_UNSUPPORTED, "pre-tokenizer ByteLevel appears twice");
  if (prefix && !st_stage_add(t, ST_STAGE_PREFIX_SPACE, err)) return SETUN_ERROR_UNSUPPORTED;
  if (use_regex) s = st_stage_add_split(t, ST_PATTERN_GPT2, ST_SPLIT_ISOLATED, false, err);
  t->byte_level = true;
  return s;
}

static setun_status read_prepend(const st_json *value, st_prepend *prepend, setun_error *err) {
  bool add = true; // before there was prepend_scheme
  const char *scheme = NULL;
  setun_status s = st_json_bool(value, "add_prefix_space", &add, err);
  if (!s) s = st_json_text(value, "prepend_scheme", &scheme, err);
  if (s) return s;
  *prepend = add ? ST_PREPEND_ALWAYS : ST_PREPEND_NEVER;
  if (!scheme) return SETUN_OK;
  if (!strcmp(scheme, "always")) {
    *prepend = ST_PREPEND_ALWAYS;
  } else if (!strcmp(scheme, "first")) {
    *prepend = ST_PREPEND_FIRST;
  } else if (!strcmp(scheme, "never")) {
    *prepend = ST_PREPEND_NEVER;
  } else {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "Metaspace: prepend_scheme \"%.40s\" is not supported", scheme);
  }
  return SETUN_OK;
}

static setun_status read_metaspace(st_tokenizer *t, const st_json *value, setun_error *err) {
  st_bytes mark;
  st_prepend prepend;
  bool split = true;
  setun_status s = st_json_copy(t, value, "replacement", "pre-tokenizer Metaspace", &mark, err);
  if (!s && !mark.length) s = st_fail(err, SETUN_ERROR_FORMAT, "pre-tokenizer Metaspace: \"replacement\" is empty");
  if (!s) s = read_prepend(value, &prepend, err);
  if (!s) s = st_json_bool(value, "split", &split, err);
  if (!s) s = before_stage(t, err);
  if (s) return s;
  st_stage *stage = st_stage_add(t, ST_STAGE_METASPACE, err);
  if (!stage) return SETUN_ERROR_UNSUPPORTED;
  stage->text = mark;
  stage->prepend = prepend;
  if (!split) return SETUN_OK;
  st_regex *regex = NULL;
  if ((s = st_regex_new_literal(mark.data, mark.length, &regex, err))) return s;
  return st_stage_add_regex(t, regex, NULL, ST_SPLIT_MERGED_WITH_NEXT, false, err);
}

static setun_status read_digits(st_tokenizer *t, const st_json *value, setun_error *err) {
  bool individual = false;
  setun_status s = st_json_bool(value, "individual_digits", &individual, err);
  return s ? s : add_split(t, "\\p{N}", individual ? ST_SPLIT_ISOLATED : ST_SPLIT_CONTIGUOUS, false, err);
}

static setun_status read_punctuation(st_tokenizer *t, const st_json *value, setun_error *err) {
  st_split_behavior behavior = ST_SPLIT_ISOLATED;
  setun_status s = read_behavior(value, "pre-tokenizer Punctuation", &behavior, err);
  return s ? s : add_split(t, "[!-/:-@\\[-`{-~\\p{P}]", behavior, false, err);
}

static setun_status read_pretokenizer(st_tokenizer *t, const st_json *value, int depth, setun_error *err);

static setun_status read_pretokenizers(st_tokenizer *t, const st_json *list, int depth, setun_error *err) {
  if (!st_json_is_array(list)) {
    return st_fail(err, SETUN_ERROR_FORMAT, "pre-tokenizer Sequence: \"pretokenizers\" is not an array");
  }
  setun_status s = SETUN_OK;
  for (size_t i = 0; !s && i < st_json_size(list); i++) s = read_pretokenizer(t, st_json_at(list, i), depth, err);
  return s;
}

static setun_status read_pretokenizer(st_tokenizer *t, const st_json *value, int depth, setun_error *err) {
  const char *type;
  setun_status s = st_json_type(value, "pre_tokenizer", &type, err);
  if (s) return s;
  if (!strcmp(type, "Sequence") && depth < MAX_NESTING) {
    return read_pretokenizers(t, st_json_get(value, "pretokenizers"), depth + 1, err);
  }
  if (!strcmp(type, "Split")) return read_split(t, value, err);
  if (!strcmp(type, "ByteLevel")) return read_byte_level(t, value, err);
  if (!strcmp(type, "Metaspace")) return read_metaspace(t, value, err);
  if (!strcmp(type, "Digits")) return read_digits(t, value, err);
  if (!strcmp(type, "Punctuation")) return read_punctuation(t, value, err);
  if (!strcmp(type, "Whitespace")) return add_split(t, "[" WORD "]+|[^" WORD "\\s]+", ST_SPLIT_REMOVED, true, err);
  if (!strcmp(type, "WhitespaceSplit")) return add_split(t, "\\s", ST_SPLIT_REMOVED, false, err);
  return st_fail(err, SETUN_ERROR_UNSUPPORTED, "pre-tokenizer \"%.40s\" is not supported", type);
}

setun_status st_json_read_pretokenizer(st_tokenizer *t, const st_json *value, setun_error *err) {
  setun_status s = value ? read_pretokenizer(t, value, 0, err) : SETUN_OK;
  if (!s && t->byte_level && t->model == ST_MODEL_UNIGRAM) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "pre-tokenizer ByteLevel with a Unigram model is not supported");
  }
  return s;
}
