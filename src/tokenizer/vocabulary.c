// A tokenizer from the arrays of a GGUF file.
#include "tokenizer/internal.h"

#include "base/memory.h"

#include <string.h>

void st_vocabulary_init(st_vocabulary *v) {
  *v = (st_vocabulary){.bos = -1,
                       .eos = -1,
                       .unk = -1,
                       .eot = -1,
                       .eom = -1,
                       .add_bos = -1,
                       .add_eos = -1,
                       .add_space_prefix = -1,
                       .remove_extra_whitespaces = -1,
                       .lowercase = -1};
}

static setun_status fill(st_tokenizer *t, const st_vocabulary *v, setun_error *err) {
  for (uint32_t id = 0; id < t->size; id++) {
    int32_t type = v->types ? v->types[id] : ST_TOKEN_NORMAL;
    if (type < ST_TOKEN_NORMAL || type > ST_TOKEN_BYTE) {
      return st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.token_type: token %u has type %d, expected 1 to 6", id,
                     type);
    }
    setun_status s = st_tokenizer_set(t, id, v->tokens[id].data, v->tokens[id].length, (st_token_type)type, err);
    if (s) return s;
  }
  if (v->scores) {
    t->scores = st_malloc(t->size, sizeof *t->scores);
    if (!t->scores) return st_fail_memory(err, "the scores");
    for (uint32_t id = 0; id < t->size; id++) {
      if (v->scores[id] != v->scores[id]) {
        return st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.scores: the score of token %u is not a number", id);
      }
      t->scores[id] = v->scores[id];
    }
  }
  return st_tokenizer_index(t, err);
}

static setun_status add_merges(st_tokenizer *t, const st_vocabulary *v, setun_error *err) {
  if (!v->merges) {
    return st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.merges: absent, expected for tokenizer.ggml.model \"%s\"",
                   v->model);
  }
  st_merge_row rows[ST_MERGE_ROWS];
  setun_status s = st_merges_reserve(t, v->n_merges, err);
  for (size_t i = 0, n = 0; !s && i < v->n_merges; i++) {
    st_text m = v->merges[i];
    const char *space = m.length > 1 ? memchr(m.data + 1, ' ', m.length - 1) : NULL;
    size_t left = space ? (size_t)(space - m.data) : 0;
    if (!space || left + 1 == m.length) {
      return st_fail(err, SETUN_ERROR_FORMAT,
                     "tokenizer.ggml.merges: merge %zu is not two strings separated by a space", i);
    }
    rows[n++] = (st_merge_row){{m.data, left}, {space + 1, m.length - left - 1}, i};
    if (n < ST_MERGE_ROWS && i + 1 < v->n_merges) continue;
    s = st_merges_add(t, rows, n, false, err);
    n = 0;
  }
  return s ? st_fail_in(err, s, "tokenizer.ggml.merges") : SETUN_OK;
}

static setun_status add_replace(st_tokenizer *t, const char *from, const char *to, setun_error *err) {
  char *a = st_arena_copy(&t->arena, from, strlen(from)), *b = st_arena_copy(&t->arena, to, strlen(to));
  if (!a || !b) return st_fail_memory(err, "the tokenizer");
  t->normalizers[t->n_normalizers++] = (st_normalize_step){
      .kind = ST_NORMALIZE_REPLACE, .from = {a, (uint32_t)strlen(a)}, .text = {b, (uint32_t)strlen(b)}};
  t->decoders[t->n_decoders++] =
      (st_decode_step){.kind = ST_DECODE_REPLACE, .from = {b, (uint32_t)strlen(b)}, .text = {a, (uint32_t)strlen(a)}};
  return SETUN_OK;
}

// Spaces as U+2581, in the vocabulary and in the text; a space before the text if `prefix`.
static setun_status use_marks(st_tokenizer *t, bool prefix, setun_error *err) {
  if (prefix) {
    t->normalizers[t->n_normalizers++] = (st_normalize_step){.kind = ST_NORMALIZE_PREPEND, .text = {" ", 1}};
    t->strip[0] = ' ';
    t->strip_count = 1;
  }
  setun_status s = add_replace(t, " ", ST_SPACE_MARK, err);
  t->decoders[t->n_decoders++] = (st_decode_step){.kind = ST_DECODE_BYTE_FALLBACK};
  t->byte_fallback = true;
  return s;
}

static setun_status setup_bpe(st_tokenizer *t, const st_vocabulary *v, setun_error *err) {
  const char *pre = v->pre ? v->pre : "default";
  if (!strcmp(v->model, "gemma4")) pre = "gemma4";
  setun_status s = st_pretokenizer_apply(t, pre, err);
  if (s || (s = add_merges(t, v, err))) return s;
  if (st_pretokenizer_find(pre)->alphabet == ST_ALPHABET_WORDS) {
    t->byte_fallback = true;
    t->decoders[t->n_decoders++] = (st_decode_step){.kind = ST_DECODE_BYTE_FALLBACK};
    if (v->lowercase == 1) t->normalizers[t->n_normalizers++] = (st_normalize_step){.kind = ST_NORMALIZE_LOWERCASE};
    return SETUN_OK;
  }
  if (!t->byte_level) return use_marks(t, v->add_space_prefix == 1, err);
  if (v->add_space_prefix == 1)
    t->normalizers[t->n_normalizers++] = (st_normalize_step){.kind = ST_NORMALIZE_PREPEND, .text = {" ", 1}};
  t->decoders[t->n_decoders++] = (st_decode_step){.kind = ST_DECODE_BYTE_LEVEL};
  return SETUN_OK;
}

static setun_status setup_scores(st_tokenizer *t, const st_vocabulary *v, setun_error *err) {
  if (!t->scores)
    return st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.scores: absent, expected for model \"llama\"");
  t->model = ST_MODEL_SCORES;
  t->add_bos = true;
  t->bos = t->size > 1 ? 1 : -1;
  t->eos = t->size > 2 ? 2 : -1;
  t->fuse_unk = true;
  return use_marks(t, v->add_space_prefix != 0, err);
}

static setun_status setup_unigram(st_tokenizer *t, const st_vocabulary *v, setun_error *err) {
  if (!t->scores) return st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.scores: absent, expected for model \"t5\"");
  t->model = ST_MODEL_UNIGRAM;
  t->add_eos = true;
  t->eos = t->size > 1 ? 1 : -1;
  t->fuse_unk = true;
  if (v->charsmap_length) {
    setun_status s = st_charsmap_read(t, v->charsmap, v->charsmap_length, &t->sp.map, err);
    if (s) return st_fail_in(err, s, "tokenizer.ggml.precompiled_charsmap");
  }
  t->sp.dummy_prefix = v->add_space_prefix == 1;
  t->sp.remove_extra = v->remove_extra_whitespaces == 1;
  t->sp.escape = true;
  t->normalizers[t->n_normalizers++] = (st_normalize_step){.kind = ST_NORMALIZE_SENTENCEPIECE};
  t->decoders[t->n_decoders++] =
      (st_decode_step){.kind = ST_DECODE_REPLACE, .from = {ST_SPACE_MARK, 3}, .text = {" ", 1}};
  t->decoders[t->n_decoders++] = (st_decode_step){.kind = ST_DECODE_BYTE_FALLBACK};
  t->strip[0] = ' ';
  t->strip_count = t->sp.dummy_prefix;
  return SETUN_OK;
}

static setun_status special_id(const st_tokenizer *t, int64_t id, const char *key, int32_t *out, setun_error *err) {
  if (id == -1) return SETUN_OK;
  if (id == ST_ID_NONE) {
    *out = -1;
    return SETUN_OK;
  }
  if (id < 0 || id >= t->size) {
    return st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.%s: token %lld is not in the vocabulary of %u", key,
                   (long long)id, t->size);
  }
  *out = (int32_t)id;
  return SETUN_OK;
}

// Without a key for it, the unknown token is the one marked in token_type or, without types, the usual one of the
// model's kind.
static int32_t default_unknown(const st_tokenizer *t, const st_vocabulary *v) {
  for (uint32_t id = 0; v->types && id < t->size; id++) {
    if (t->types[id] == ST_TOKEN_UNKNOWN) return (int32_t)id;
  }
  uint32_t usual = t->model == ST_MODEL_UNIGRAM ? 2 : 0;
  return v->types || t->model == ST_MODEL_BPE || usual >= t->size ? -1 : (int32_t)usual;
}

// Text must not become a token that begins or ends a text, whatever the keys say, and with BPE by merges not the
// unknown token.
static int32_t unknown_of_text(const st_tokenizer *t) {
  bool ends = t->unk >= 0 && (t->unk == t->bos || t->unk == t->eos || t->ends[t->unk]);
  return ends || t->model == ST_MODEL_BPE ? -1 : t->unk;
}

static setun_status set_ids(st_tokenizer *t, const st_vocabulary *v, setun_error *err) {
  int32_t eot = -1, eom = -1;
  t->unk = default_unknown(t, v);
  setun_status s = special_id(t, v->bos, "bos_token_id", &t->bos, err);
  if (!s) s = special_id(t, v->eos, "eos_token_id", &t->eos, err);
  if (!s) s = special_id(t, v->unk, "unknown_token_id", &t->unk, err);
  if (!s) s = special_id(t, v->eot, "eot_token_id", &eot, err);
  if (!s) s = special_id(t, v->eom, "eom_token_id", &eom, err);
  if (s) return s;
  if (eot >= 0) t->ends[eot] = 1;
  if (eom >= 0) t->ends[eom] = 1;
  if (v->add_bos >= 0) t->add_bos = v->add_bos;
  if (v->add_eos >= 0) t->add_eos = v->add_eos;
  return SETUN_OK;
}

static setun_status make(st_tokenizer *t, const st_vocabulary *v, setun_error *err) {
  setun_status s = fill(t, v, err);
  if (s) return s;
  t->plain_added = true;
  bool unigram = !strcmp(v->model, "t5") || !strcmp(v->model, "unigram");
  if (v->charsmap_length && !unigram) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "tokenizer.ggml.precompiled_charsmap: expected with tokenizer.ggml.model \"t5\", found with \"%s\"",
                   v->model);
  }
  if (!strcmp(v->model, "gpt2") || !strcmp(v->model, "gemma4") || !strcmp(v->model, "whitespace")) {
    s = setup_bpe(t, v, err);
  } else if (!strcmp(v->model, "llama")) {
    s = setup_scores(t, v, err);
  } else if (unigram) {
    s = setup_unigram(t, v, err);
  } else {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED,
                   "tokenizer.ggml.model: \"%s\" is not supported (gpt2, gemma4, llama and t5 are)", v->model);
  }
  if (s || (s = set_ids(t, v, err))) return s;
  t->text_unk = unknown_of_text(t);
  st_tokenizer_guard_ends(t);
  if ((s = st_tokenizer_build_added(t, err))) return s;
  return st_tokenizer_finish(t, err);
}

setun_status st_tokenizer_from_vocabulary(const st_vocabulary *v, st_tokenizer **out, setun_error *err) {
  if (!v->model) return st_fail(err, SETUN_ERROR_FORMAT, "tokenizer.ggml.model: absent");
  if (v->n > ST_MAX_TOKENS) {
    return st_fail(err, SETUN_ERROR_UNSUPPORTED, "a vocabulary of %zu tokens, more than %d", v->n, ST_MAX_TOKENS);
  }
  st_tokenizer *t = NULL;
  setun_status s = st_tokenizer_new((uint32_t)v->n, &t, err);
  if (s) return s;
  if ((s = make(t, v, err))) {
    st_tokenizer_free(t);
    return s;
  }
  *out = t;
  return SETUN_OK;
}
