// Pre-tokenization: stages that cut a text into ever smaller pieces; what the last leaves are the model's words.
//
// Each stage sees one piece as if it were the whole text, as the reference does: a pattern's lookahead and $ end at its
// end. Pieces go through all stages in order, so that only the current piece is stored.
#include "tokenizer/internal.h"

#include "base/utf8.h"

#include <string.h>

enum { SHORT_PIECE = 16 }; // bytes: longer ones rarely recur

static setun_status run(st_encoder *e, size_t stage, const char *text, size_t length, bool first);

st_stage *st_stage_add(st_tokenizer *t, st_stage_kind kind, setun_error *err) {
  if (t->n_stages == ST_MAX_STEPS) {
    st_fail(err, SETUN_ERROR_UNSUPPORTED, "a pre-tokenizer of more than %d steps", ST_MAX_STEPS);
    return NULL;
  }
  st_stage *s = &t->stages[t->n_stages++];
  *s = (st_stage){.kind = kind};
  return s;
}

setun_status st_stage_add_regex(st_tokenizer *t, st_regex *regex, const char *pattern, st_split_behavior behavior,
                                bool invert, setun_error *err) {
  st_stage *stage = st_stage_add(t, ST_STAGE_SPLIT, err);
  if (!stage) {
    st_regex_free(regex);
    return SETUN_ERROR_UNSUPPORTED;
  }
  stage->regex = regex;
  stage->behavior = behavior;
  stage->invert = invert;
  if (!pattern) return SETUN_OK;
  size_t n = strlen(pattern);
  const char *copy = st_arena_copy(&t->arena, pattern, n);
  if (!copy) return st_fail_memory(err, "the tokenizer");
  stage->pattern = (st_bytes){copy, (uint32_t)n};
  return SETUN_OK;
}

setun_status st_stage_add_split(st_tokenizer *t, const char *pattern, st_split_behavior behavior, bool invert,
                                setun_error *err) {
  st_regex *regex = NULL;
  setun_status s = st_regex_new(pattern, strlen(pattern), &regex, err);
  return s ? s : st_stage_add_regex(t, regex, pattern, behavior, invert, err);
}

// The pieces of a split as they come: matches and what lies between them, in order.
typedef struct {
  st_encoder *e;
  size_t next; // the stage that takes the pieces
  const char *text;
  bool first;
  st_split_behavior behavior;
  bool pending, was_match; // a piece [start, end) is held back; the last one was a match
  size_t start, end;
} cutter;

static setun_status flush(cutter *c) {
  if (!c->pending) return SETUN_OK;
  c->pending = false;
  return run(c->e, c->next, c->text + c->start, c->end - c->start, c->first && c->start == 0);
}

static setun_status hold(cutter *c, size_t start, size_t end) {
  setun_status s = flush(c);
  c->pending = true;
  c->start = start;
  c->end = end;
  return s;
}

// One match or gap. Merging keeps one piece back until it is known what follows.
static setun_status cut(cutter *c, size_t start, size_t end, bool match) {
  bool was = c->was_match;
  c->was_match = match;
  switch (c->behavior) {
  case ST_SPLIT_REMOVED:
    if (match) return SETUN_OK;
    break;
  case ST_SPLIT_ISOLATED: break;
  case ST_SPLIT_CONTIGUOUS:
    if (c->pending && was == match) {
      c->end = end;
      return SETUN_OK;
    }
    return hold(c, start, end);
  case ST_SPLIT_MERGED_WITH_PREVIOUS:
    if (match && !was && c->pending) {
      c->end = end;
      return SETUN_OK;
    }
    return hold(c, start, end);
  case ST_SPLIT_MERGED_WITH_NEXT:
    if (!match && was && c->pending) {
      c->end = end;
      return SETUN_OK;
    }
    return hold(c, start, end);
  }
  if (start == end) return SETUN_OK;
  return run(c->e, c->next, c->text + start, end - start, c->first && start == 0);
}

static setun_status split(st_encoder *e, size_t index, const char *text, size_t length, bool first) {
  const st_stage *stage = &e->t->stages[index];
  cutter c = {.e = e, .next = index + 1, .text = text, .first = first, .behavior = stage->behavior};
  size_t done = 0, from = 0;
  while (from < length) { // an empty match at the very end splits nothing
    bool found;
    size_t start, end;
    setun_status s = st_regex_match(stage->regex, &e->matcher, text, length, from, &found, &start, &end, e->err);
    if (s) return s;
    if (!found) break;
    if (start > done && (s = cut(&c, done, start, stage->invert))) return s;
    if ((s = cut(&c, start, end, !stage->invert))) return s;
    done = from = end;
    if (start == end) { // an empty match splits, and the search continues one character further
      for (from++; from < length && ((unsigned char)text[from] & 0xC0) == 0x80;) from++;
    }
  }
  setun_status s = done < length ? cut(&c, done, length, stage->invert) : SETUN_OK;
  return s ? s : flush(&c);
}

static setun_status prefix_space(st_encoder *e, size_t index, const char *text, size_t length, bool first) {
  if (length && text[0] == ' ') return run(e, index + 1, text, length, first);
  st_buffer *b = &e->stage[index];
  b->length = 0;
  if (!st_buffer_append(b, " ", 1) || !st_buffer_append(b, text, length)) return st_fail_memory(e->err, "the text");
  return run(e, index + 1, b->data, b->length, first);
}

static setun_status metaspace(st_encoder *e, size_t index, const char *text, size_t length, bool first) {
  const st_stage *stage = &e->t->stages[index];
  st_bytes mark = stage->text;
  st_buffer *b = &e->stage[index];
  b->length = 0;
  bool has = (length && text[0] == ' ') || (length >= mark.length && !memcmp(text, mark.data, mark.length));
  bool prepend = stage->prepend == ST_PREPEND_ALWAYS || (stage->prepend == ST_PREPEND_FIRST && first);
  bool ok = !prepend || has || st_buffer_append(b, mark.data, mark.length);
  while (ok && length) {
    const char *space = memchr(text, ' ', length);
    size_t n = space ? (size_t)(space - text) : length;
    ok = st_buffer_append(b, text, n) && (!space || st_buffer_append(b, mark.data, mark.length));
    text += n + (space != NULL);
    length -= n + (space != NULL);
  }
  if (!ok) return st_fail_memory(e->err, "the text");
  return run(e, index + 1, b->data, b->length, first);
}

static setun_status bytes(st_encoder *e, size_t index, const char *text, size_t length, bool first) {
  st_buffer *b = &e->stage[index];
  b->length = 0;
  for (size_t i = 0; i < length; i += 256) {
    char printed[512];
    size_t n = length - i < 256 ? length - i : 256;
    if (!st_buffer_append(b, printed, st_bytes_print(text + i, n, printed))) return st_fail_memory(e->err, "the text");
  }
  return run(e, index + 1, b->data, b->length, first);
}

// A finished word goes to the model; one that a stage had put in printable form is read back first.
static setun_status word(st_encoder *e, const char *text, size_t length) {
  const st_tokenizer *t = e->t;
  if (t->bytes_stage) {
    e->print.length = 0;
    if (!st_buffer_append(&e->print, text, length)) return st_fail_memory(e->err, "the text");
    size_t n = st_bytes_read(text, length, e->print.data);
    if (n == SIZE_MAX) return st_fail(e->err, SETUN_ERROR_STATE, "a word lost its printable form");
    text = e->print.data;
    length = n;
  }
  return t->model == ST_MODEL_UNIGRAM ? st_unigram_word(e, text, length) : st_bpe_word(e, text, length);
}

static setun_status run_stage(st_encoder *e, size_t stage, const char *text, size_t length, bool first) {
  switch (e->t->stages[stage].kind) {
  case ST_STAGE_SPLIT: return split(e, stage, text, length, first);
  case ST_STAGE_PREFIX_SPACE: return prefix_space(e, stage, text, length, first);
  case ST_STAGE_METASPACE: return metaspace(e, stage, text, length, first);
  case ST_STAGE_BYTES: return bytes(e, stage, text, length, first);
  }
  return SETUN_OK;
}

// A short piece with further stages: most recur, such as a digit or a newline, or a word that other patterns do not
// split.
static setun_status run_piece(st_encoder *e, size_t stage, const char *text, size_t length, bool first) {
  bool found;
  unsigned kind = ST_CACHE_STAGE + (unsigned)stage;
  st_cached *slot = st_cache_find(e, text, length, kind, &found);
  e->unk_at = SIZE_MAX;
  if (found) return st_cache_emit(e, slot);
  size_t ids = e->out->length;
  e->in_piece = true;
  setun_status s = run_stage(e, stage, text, length, first);
  e->in_piece = false;
  return s ? s : st_cache_keep(e, slot, text, length, kind, ids);
}

// Recursion ends at ST_MAX_STEPS stages.
static setun_status run(st_encoder *e, size_t stage, const char *text, size_t length, bool first) {
  const st_tokenizer *t = e->t;
  if (!length) return SETUN_OK;
  if (stage == t->n_stages) return word(e, text, length);
  bool piece = stage && stage >= t->first_cached && length <= SHORT_PIECE && !e->in_piece;
  return piece ? run_piece(e, stage, text, length, first) : run_stage(e, stage, text, length, first);
}

setun_status st_pretokenize(st_encoder *e, const char *text, size_t length, bool first) {
  return run(e, 0, text, length, first);
}

void st_pretokenize_prepare(st_tokenizer *t) {
  size_t i = t->n_stages;
  while (i && t->stages[i - 1].kind == ST_STAGE_SPLIT) i--;
  t->first_cached = i;
}
