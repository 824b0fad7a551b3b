// A tokenizer from tokenizer.model, which is SentencePiece's ModelProto (sentencepiece_model.proto): field 1 the pieces
// (text 1, score 2, type 3), field 2 the trainer's settings, field 3 the normalizer's. Other fields are skipped.
#include "tokenizer/internal.h"

#include "base/memory.h"

#include <string.h>

// ---- protocol buffers ----

typedef struct {
  const unsigned char *at, *end;
} reader;

typedef struct {
  uint32_t number;
  uint64_t value; // of a varint or a fixed-size field
  reader bytes;   // of a length-delimited one
  int wire;
} field;

static bool read_varint(reader *r, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
    unsigned char b = *r->at++;
    *value |= (uint64_t)(b & 0x7F) << shift;
    if (b < 0x80) return true;
  }
  return false;
}

static bool read_fixed(reader *r, int size, uint64_t *value) {
  if (r->end - r->at < size) return false;
  *value = 0;
  for (int i = 0; i < size; i++) *value |= (uint64_t)r->at[i] << (8 * i);
  r->at += size;
  return true;
}

// The next field; false when what is there is not a field.
static bool read_field(reader *r, field *f) {
  uint64_t key, length;
  *f = (field){0};
  if (!read_varint(r, &key) || key >> 3 == 0 || key >> 3 > UINT32_MAX) return false;
  f->number = (uint32_t)(key >> 3);
  f->wire = (int)(key & 7);
  switch (f->wire) {
  case 0: return read_varint(r, &f->value);
  case 1: return read_fixed(r, 8, &f->value);
  case 5: return read_fixed(r, 4, &f->value);
  case 2:
    if (!read_varint(r, &length) || length > (uint64_t)(r->end - r->at)) return false;
    f->bytes = (reader){r->at, r->at + length};
    r->at += length;
    return true;
  default: return false;
  }
}

// ---- the model ----

enum { UNIGRAM = 1, BPE = 2 };

typedef struct {
  st_tokenizer *t;
  uint64_t model_type;
  bool byte_fallback, space_suffix;
  st_text bos, eos, charsmap, unk_surface;
  setun_error *err;
} model;

static setun_status malformed(model *m, const char *what) {
  return st_fail(m->err, SETUN_ERROR_FORMAT, "%s is malformed or cut off", what);
}

static setun_status read_piece(model *m, uint32_t id, reader r) {
  field f;
  reader text = {0};
  float score = 0;
  uint64_t type = ST_TOKEN_NORMAL;
  while (r.at < r.end) {
    if (!read_field(&r, &f)) return st_fail(m->err, SETUN_ERROR_FORMAT, "piece %u is malformed or cut off", id);
    if (f.number == 1 && f.wire == 2) text = f.bytes;
    if (f.number == 2 && f.wire == 5) {
      uint32_t bits = (uint32_t)f.value;
      memcpy(&score, &bits, 4);
    }
    if (f.number == 3 && f.wire == 0) type = f.value;
  }
  if (type < ST_TOKEN_NORMAL || type > ST_TOKEN_BYTE) {
    return st_fail(m->err, SETUN_ERROR_FORMAT, "piece %u has type %llu, expected 1 to 6", id, (unsigned long long)type);
  }
  if (score != score) return st_fail(m->err, SETUN_ERROR_FORMAT, "the score of piece %u is not a number", id);
  m->t->scores[id] = score;
  return st_tokenizer_set(m->t, id, (const char *)text.at, (size_t)(text.end - text.at), (st_token_type)type, m->err);
}

static setun_status read_trainer(model *m, reader r) {
  field f;
  while (r.at < r.end) {
    if (!read_field(&r, &f)) return malformed(m, "trainer_spec");
    st_text text = {(const char *)f.bytes.at, (size_t)(f.bytes.end - f.bytes.at)};
    if (f.number == 3 && f.wire == 0) m->model_type = f.value;
    if (f.number == 24 && f.wire == 0) m->space_suffix = f.value != 0;
    if (f.number == 35 && f.wire == 0) m->byte_fallback = f.value != 0;
    if (f.number == 44 && f.wire == 2) m->unk_surface = text;
    if (f.number == 46 && f.wire == 2) m->bos = text;
    if (f.number == 47 && f.wire == 2) m->eos = text;
  }
  return SETUN_OK;
}

static setun_status read_normalizer(model *m, reader r) {
  field f;
  st_sp_normalizer *sp = &m->t->sp;
  while (r.at < r.end) {
    if (!read_field(&r, &f)) return malformed(m, "normalizer_spec");
    if (f.number == 2 && f.wire == 2) {
      m->charsmap = (st_text){(const char *)f.bytes.at, (size_t)(f.bytes.end - f.bytes.at)};
    }
    if (f.number == 3 && f.wire == 0) sp->dummy_prefix = f.value != 0;
    if (f.number == 4 && f.wire == 0) sp->remove_extra = f.value != 0;
    if (f.number == 5 && f.wire == 0) sp->escape = f.value != 0;
  }
  if (!m->charsmap.length) return SETUN_OK;
  setun_status s = st_charsmap_read(m->t, m->charsmap.data, m->charsmap.length, &m->t->sp.map, m->err);
  return s ? st_fail_in(m->err, s, "normalizer_spec.precompiled_charsmap") : SETUN_OK;
}

static setun_status read_model(model *m, reader r) {
  uint32_t id = 0;
  setun_status s = SETUN_OK;
  for (field f; !s && r.at < r.end;) {
    if (!read_field(&r, &f)) return malformed(m, "the file");
    if (f.wire != 2) continue;
    if (f.number == 1) s = read_piece(m, id++, f.bytes);
    if (f.number == 2) s = read_trainer(m, f.bytes);
    if (f.number == 3) s = read_normalizer(m, f.bytes);
  }
  return s;
}

// The number of pieces; 0 also for what is not a ModelProto.
static uint32_t count_pieces(reader r) {
  uint32_t n = 0;
  for (field f; r.at < r.end;) {
    if (!read_field(&r, &f)) return n;
    if (f.number == 1 && f.wire == 2) n++;
    if (n > ST_MAX_TOKENS) return n;
  }
  return n;
}

// User-defined pieces are found in normalized text, and what they match is not normalized. BPE cuts them out; Unigram
// gives them a score that almost no other path exceeds.
static setun_status protect_user_defined(st_tokenizer *t, setun_error *err) {
  bool any = false;
  float best = 0;
  for (uint32_t id = 0; id < t->size; id++) {
    if (t->types[id] == ST_TOKEN_NORMAL && (!any || t->scores[id] > best)) best = t->scores[id], any = true;
  }
  for (uint32_t id = 0; id < t->size; id++) {
    if (t->types[id] != ST_TOKEN_USER_DEFINED) continue;
    t->flags[id] |= ST_ADDED_NORMALIZED;
    if (t->model == ST_MODEL_UNIGRAM) t->scores[id] = (float)((float)t->texts[id].length * best - 0.1);
  }
  return st_tokenizer_build_protected(t, err);
}

static setun_status add_steps(st_tokenizer *t) {
  t->normalizers[t->n_normalizers++] = (st_normalize_step){.kind = ST_NORMALIZE_SENTENCEPIECE};
  if (t->sp.escape) {
    t->decoders[t->n_decoders++] =
        (st_decode_step){.kind = ST_DECODE_REPLACE, .from = {ST_SPACE_MARK, 3}, .text = {" ", 1}};
  }
  t->decoders[t->n_decoders++] = (st_decode_step){.kind = ST_DECODE_BYTE_FALLBACK};
  t->strip_marked = t->sp.escape;
  t->mark = (st_bytes){ST_SPACE_MARK, 3};
  t->strip[0] = ' ';
  t->strip_count = t->sp.remove_extra ? UINT32_MAX : t->sp.dummy_prefix;
  return SETUN_OK;
}

static setun_status setup(model *m) {
  st_tokenizer *t = m->t;
  if (m->model_type != UNIGRAM && m->model_type != BPE) {
    return st_fail(m->err, SETUN_ERROR_UNSUPPORTED,
                   "trainer_spec.model_type %llu is not supported (UNIGRAM and BPE are)",
                   (unsigned long long)m->model_type);
  }
  if (m->space_suffix) {
    return st_fail(m->err, SETUN_ERROR_UNSUPPORTED, "trainer_spec.treat_whitespace_as_suffix is not supported");
  }
  t->model = m->model_type == BPE ? ST_MODEL_SCORES : ST_MODEL_UNIGRAM;
  t->byte_fallback = m->byte_fallback;
  t->fuse_unk = t->sentencepiece = true;
  t->bos = st_tokenizer_find(t, m->bos.data, m->bos.length);
  t->eos = st_tokenizer_find(t, m->eos.data, m->eos.length);
  t->add_bos = m->model_type == BPE;
  for (uint32_t id = 0; id < t->size && t->unk < 0; id++) {
    if (t->types[id] == ST_TOKEN_UNKNOWN) t->unk = (int32_t)id;
  }
  t->text_unk = t->unk;
  if (t->unk < 0) return st_fail(m->err, SETUN_ERROR_FORMAT, "no piece is of the type UNKNOWN");
  setun_status s = protect_user_defined(t, m->err);
  if (!s) s = add_steps(t);
  if (!s) s = st_tokenizer_build_added(t, m->err);
  if (!s) s = st_tokenizer_finish(t, m->err);
  if (s) return s;
  char *surface = st_arena_copy(&t->arena, m->unk_surface.data, m->unk_surface.length);
  if (!surface) return st_fail_memory(m->err, "the tokenizer");
  t->pieces[t->unk] = (st_bytes){surface, (uint32_t)m->unk_surface.length};
  return SETUN_OK;
}

static setun_status make(model *m, reader r) {
  uint32_t n = count_pieces(r);
  if (!n) return st_fail(m->err, SETUN_ERROR_FORMAT, "not a SentencePiece model: it has no pieces");
  setun_status s = st_tokenizer_new(n, &m->t, m->err);
  if (s) return s;
  m->t->sp = (st_sp_normalizer){.dummy_prefix = true, .remove_extra = true, .escape = true};
  m->t->scores = st_calloc(n, sizeof *m->t->scores);
  if (!m->t->scores) return st_fail_memory(m->err, "the scores");
  s = read_model(m, r);
  if (!s) s = st_tokenizer_index(m->t, m->err);
  return s ? s : setup(m);
}

setun_status st_tokenizer_from_sentencepiece(const void *bytes, size_t length, const char *name, st_tokenizer **out,
                                             setun_error *err) {
  model m = {
      .model_type = UNIGRAM, .bos = {"<s>", 3}, .eos = {"</s>", 4}, .unk_surface = {" \xE2\x81\x87 ", 5}, .err = err};
  setun_status s = make(&m, (reader){bytes, (const unsigned char *)bytes + length});
  if (s) {
    st_tokenizer_free(m.t);
    return st_fail_in(err, s, "%s", name);
  }
  *out = m.t;
  return SETUN_OK;
}
