// Forced text: the bytes that must follow, and the tokens with which the model would have written them.
#include "constraint/engine.h"
#include "constraint/trie.h"

#include "base/memory.h"
#include "base/utf8.h"

#include <string.h>

enum { MOST_FORCED = 4096, CONTEXT = 8, ANY_BYTE = -2, NO_BYTE = -1 };

// The only byte with which the term may continue; NO_BYTE: none; ANY_BYTE: several.
static int only_byte(st_terms *t, st_term term) {
  int only = NO_BYTE;
  for (int byte = 0; byte < 256; byte++) {
    if (st_terms_next(t, term, (uint8_t)byte) == ST_TERM_EMPTY) continue;
    if (only != NO_BYTE) return ANY_BYTE;
    only = byte;
  }
  return only;
}

// The byte that must follow these configurations; negative: there is a choice, or the text may end.
static int forced_byte(st_engine *e, const st_config *configs, size_t n) {
  int forced = NO_BYTE;
  for (size_t i = 0; i < n; i++) {
    if (configs[i].term == ST_TERM_OF_TOKENS) return ANY_BYTE;
    int byte = only_byte(e->t, configs[i].term);
    if (byte < 0 || (forced >= 0 && byte != forced)) return ANY_BYTE;
    forced = byte;
  }
  return forced;
}

// Writes the forced bytes to m->text after its end; m->walk then holds the configurations after them. Needs the lock.
static setun_status force(st_matcher *m, size_t *n, setun_error *err) {
  st_engine *e = &m->c->engine;
  size_t count;
  const st_config *now = st_matcher_now(m, &count);
  if (!st_reserve(&m->walk.items, &m->walk.capacity, count, sizeof *now)) return st_fail_memory(err, "a matcher");
  if (count) memcpy(m->walk.items, now, count * sizeof *now);
  m->walk.n = count;
  for (*n = 0; *n < MOST_FORCED; ++*n) {
    int byte = forced_byte(e, m->walk.items, m->walk.n);
    if (byte < 0) break;
    setun_status status = st_matcher_room(m, *n + 1 + ST_TRIE_DEPTH, err);
    if (status) return status;
    m->text[m->length + *n] = (char)byte;
    e->text = m->text;
    e->position = m->length + *n + 1;
    count = m->walk.n;
    if (!st_engine_step(e, &m->walk, 0, count, (uint8_t)byte, &m->walk)) break;
    m->walk.n -= count;
    memmove(m->walk.items, m->walk.items + count, m->walk.n * sizeof *m->walk.items);
  }
  return st_constraint_status(m->c, err);
}

// The trie's node that the bytes lead to, or SIZE_MAX.
static size_t find_node(const st_trie_part *part, const char *bytes, size_t n) {
  size_t at = 0, end = part->n, found = SIZE_MAX;
  for (size_t depth = 0; depth < n; depth++) {
    while (at < end && st_trie_byte(part->nodes[at]) != (uint8_t)bytes[depth]) at += st_trie_size(part->nodes[at]);
    if (at >= end) return SIZE_MAX;
    found = at;
    end = at + st_trie_size(part->nodes[at]);
    at++;
  }
  return found;
}

// Could a token that begins with text[from, end) extend across the end? m->walk holds the configurations at the end.
// Needs the lock.
static bool could_cross(st_matcher *m, size_t from, size_t end) {
  const st_trie_part *part = &m->c->trie->all;
  st_engine *e = &m->c->engine;
  st_configs *list = &m->walk;
  size_t base = list->n, root = end - from > ST_TRIE_DEPTH ? SIZE_MAX : find_node(part, m->text + from, end - from);
  uint32_t first[ST_TRIE_DEPTH + 1], count[ST_TRIE_DEPTH + 1];
  if (root == SIZE_MAX) return false;
  uint32_t above = st_trie_depth(part->nodes[root]);
  first[above] = 0, count[above] = (uint32_t)base;
  bool crosses = false;
  for (size_t i = root + 1, stop = root + st_trie_size(part->nodes[root]); i < stop && !crosses;) {
    st_trie_node node = part->nodes[i];
    uint32_t depth = st_trie_depth(node);
    list->n = first[depth - 1] + count[depth - 1];
    first[depth] = (uint32_t)list->n;
    m->text[from + depth - 1] = (char)st_trie_byte(node);
    e->position = from + depth;
    if (!st_engine_step(e, list, first[depth - 1], count[depth - 1], st_trie_byte(node), list)) break;
    count[depth] = (uint32_t)(list->n - first[depth]);
    crosses = count[depth] && st_trie_token(node) != ST_TRIE_NONE;
    i += count[depth] ? 1 : st_trie_size(node);
  }
  list->n = base;
  return crosses;
}

// Where the text of the last tokens begins that is encoded together with the forced text.
static size_t context_begin(const st_matcher *m) {
  size_t n = m->n_steps > CONTEXT ? CONTEXT : m->n_steps - 1;
  size_t begin = m->steps[m->n_steps - 1 - n].length;
  while (begin < m->length && ((uint8_t)m->text[begin] & 0xC0) == 0x80) begin++; // whole characters
  return begin;
}

// Encodes the forced text[m->length, m->length + n) as a continuation of the text before it; `ids` gets its tokens, if
// there is a boundary between tokens at its beginning.
static setun_status encode_forced(const st_matcher *m, size_t n, st_token_list *ids, setun_error *err) {
  const st_token_trie *trie = m->c->trie;
  st_token_list all = {0};
  size_t begin = context_begin(m), at = begin, skip = 0, end = m->length + n;
  while (n && !st_utf8_valid(m->text + begin, end - begin) && m->length + n - end < 4) end--; // whole characters
  if (end < m->length || !st_utf8_valid(m->text + begin, end - begin)) return SETUN_OK;
  setun_status status = st_tokenizer_encode(trie->tokenizer, m->text + begin, end - begin, false, &all, err);
  while (!status && skip < all.length && at < m->length) {
    const char *bytes;
    size_t length;
    status = st_token_bytes(trie, all.ids[skip++], &bytes, &length, err);
    // if the vocabulary puts a space before a text, the first token contains it
    if (!status && skip == 1 && length && bytes[0] == ' ' && m->text[begin] != ' ') length--;
    at += length;
  }
  for (size_t i = skip; !status && at == m->length && i < all.length; i++) {
    if (!st_token_list_append(ids, all.ids[i])) status = st_fail_memory(err, "forced text");
  }
  st_token_list_free(&all);
  return status;
}

// Keeps the tokens that spell the forced text, and drops the last ones while a longer token could replace them.
static setun_status keep_certain(st_matcher *m, st_token_list *ids, size_t end, setun_error *err) {
  size_t at = m->length, kept = 0;
  for (; kept < ids->length; kept++) {
    const char *bytes;
    size_t n;
    setun_status status = st_token_bytes(m->c->trie, ids->ids[kept], &bytes, &n, err);
    if (status) return status;
    if (!n || n > end - at || memcmp(m->text + at, bytes, n)) break; // the spelling differs from here on
    at += n;
  }
  size_t certain = kept, from = at;
  for (size_t back = 0; back < 4 && back < kept; back++) {
    const char *bytes;
    size_t n;
    st_token_bytes(m->c->trie, ids->ids[kept - 1 - back], &bytes, &n, NULL);
    from -= n;
    if (could_cross(m, from, end)) certain = kept - 1 - back;
  }
  ids->length = certain;
  return SETUN_OK;
}

setun_status st_matcher_forced_tokens(st_matcher *m, st_token_list *out, setun_error *err) {
  size_t n = 0, length = out->length;
  st_token_list ids = {0};
  if (m->steps[m->n_steps - 1].ended) return SETUN_OK;
  pthread_mutex_lock(&m->c->lock);
  st_terms_begin_steps(m->c->engine.t);
  setun_status status = force(m, &n, err);
  if (!status && n) {
    status = encode_forced(m, n, &ids, err);
    if (!status) status = keep_certain(m, &ids, m->length + n, err);
    if (!status) status = st_constraint_status(m->c, err);
  }
  pthread_mutex_unlock(&m->c->lock);
  for (size_t i = 0; !status && i < ids.length; i++) {
    if (!st_token_list_append(out, ids.ids[i])) status = st_fail_memory(err, "forced text");
  }
  if (status) out->length = length;
  st_token_list_free(&ids);
  return status;
}
