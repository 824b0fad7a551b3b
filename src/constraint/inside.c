// The tokens that stay inside a term, and the nodes of the trie where others leave it: computed once for each term,
// whatever follows it.
#include "constraint/engine.h"
#include "constraint/trie.h"

#include "base/memory.h"

#include <string.h>

enum {
  MOST_EXITS = 8192,
  MOST_MEMBERS = 64,
  BRANCH = 4,
  LARGE_BRANCH = 128,
  LONG = 8, // after a run of this length, no other run is tried
  MOST_KEPT = 64 << 20,
  MOST_ITEMS = 200000
};

st_inside *st_constraint_item(st_constraint *c, st_term term) {
  st_insides *s = &c->engine.insides;
  size_t before = s->of_capacity;
  if (term >= before) {
    if (!st_engine_reserve(&c->engine, &s->of, &s->of_capacity, (size_t)term + 1, sizeof *s->of)) return NULL;
    memset(s->of + before, 0, (s->of_capacity - before) * sizeof *s->of);
  }
  if (!s->of[term]) {
    if (!st_engine_reserve(&c->engine, &s->items, &s->capacity, s->n + 1, sizeof *s->items)) return NULL;
    s->items[s->n++] = (st_inside){.slice = -1};
    s->of[term] = (uint32_t)s->n;
  }
  return &s->items[s->of[term] - 1];
}

void st_engine_free_insides(st_engine *e) {
  st_insides *s = &e->insides;
  for (size_t i = 0; i < s->n; i++) st_free(s->items[i].bits), st_free(s->items[i].tokens), st_free(s->items[i].exits);
  st_free(s->items), st_free(s->of), st_free(s->tokens), st_free(s->exits);
  *s = (st_insides){0};
}

void st_engine_trim_insides(st_engine *e) {
  size_t most = e->limits.max_bytes / 4 < MOST_KEPT ? e->limits.max_bytes / 4 : MOST_KEPT;
  if (e->insides.kept > most || e->insides.n > MOST_ITEMS) st_engine_free_insides(e);
}

size_t st_insides_bytes(const st_insides *s) {
  return s->kept + s->capacity * sizeof *s->items + s->of_capacity * sizeof *s->of +
         s->exits_capacity * sizeof *s->exits + s->tokens_capacity * sizeof *s->tokens;
}

const st_trie_part *st_inside_part(const st_token_trie *trie, const st_inside *inside) {
  return inside->slice >= 0 ? &trie->without[inside->slice] : &trie->all;
}

// ---- the walk ----

// Adds n tokens in a row.
static bool add_tokens(st_constraint *c, uint32_t first, uint32_t n) {
  st_insides *s = &c->engine.insides;
  if (!st_engine_reserve(&c->engine, &s->tokens, &s->tokens_capacity, s->n_tokens + n, sizeof *s->tokens)) return false;
  for (uint32_t i = 0; i < n; i++) s->tokens[s->n_tokens + i] = first + i;
  s->n_tokens += n;
  return true;
}

static bool add_exit(st_constraint *c, st_exit exit) {
  st_insides *s = &c->engine.insides;
  if (s->n_exits == MOST_EXITS) return false;
  if (!st_engine_reserve(&c->engine, &s->exits, &s->exits_capacity, s->n_exits + 1, sizeof *s->exits)) return false;
  s->exits[s->n_exits++] = exit;
  return true;
}

// Adds what the node itself contributes, in the state that its byte leads to.
static bool add_node(st_constraint *c, const st_trie_part *part, size_t i, st_term state) {
  st_trie_node node = part->nodes[i];
  unsigned flags = c->engine.t->flags[state];
  bool final = flags & ST_TERM_FINAL;
  if (flags & ST_TERM_NULLABLE && (st_trie_size(node) > 1 || final) && !add_exit(c, (st_exit){(uint32_t)i, state})) {
    return false;
  }
  return final || st_trie_token(node) == ST_TRIE_NONE || add_tokens(c, part->below[i].first, 1);
}

static bool covers(st_char_run run, const st_trie_below *below) {
  return !(below->classes & ~run.classes & ~ST_TRIE_BETWEEN) &&
         (run.length == ST_ANY_LENGTH || run.length >= st_trie_height(*below));
}

// The run after one more byte. Each byte of a character counts as one.
static st_char_run shortened(const st_token_trie *trie, st_char_run run, uint8_t byte) {
  bool begins = byte < 0x80 || byte > 0xBF;
  if (begins && !(run.classes & st_class_bit(trie->classes[byte]))) return (st_char_run){0};
  if (run.length != ST_ANY_LENGTH && run.length && !--run.length) run.classes = 0;
  return run;
}

// Can all tokens below the node follow? `run` is that of the place before it, and becomes its own.
static bool covered(st_constraint *c, st_trie_node node, const st_trie_below *below, st_term term, st_char_run *run) {
  *run = shortened(c->trie, *run, st_trie_byte(node));
  uint32_t size = st_trie_size(node);
  if (size >= BRANCH && run->classes && covers(*run, below)) return true;
  if (size < LARGE_BRANCH || run->length >= LONG || !(below->classes & ST_TRIE_BETWEEN)) return false;
  st_char_run own = st_constraint_run(c, term);
  if (own.classes) *run = own;
  return own.classes && covers(own, below);
}

// Walks a part of the trie inside the term; false: too many exits, or failed.
static bool walk(st_constraint *c, st_term start, st_char_run start_run, const st_trie_part *part) {
  st_terms *t = c->engine.t;
  st_term states[ST_TRIE_DEPTH + 1];
  st_char_run runs[ST_TRIE_DEPTH + 1];
  states[0] = start;
  runs[0] = start_run;
  for (size_t i = 0; i < part->n;) {
    st_trie_node node = part->nodes[i];
    uint32_t depth = st_trie_depth(node), size = st_trie_size(node);
    st_term next = st_terms_next(t, states[depth - 1], st_trie_byte(node));
    if (next == ST_TERM_EMPTY) {
      i += size;
      continue;
    }
    bool final = t->flags[next] & ST_TERM_FINAL;
    if (size > 1 && !final) {
      const st_trie_below *below = &part->below[i];
      runs[depth] = runs[depth - 1];
      if (covered(c, node, below, next, &runs[depth])) {
        if (!add_tokens(c, below->first, st_trie_count(*below))) return false;
        i += size;
        continue;
      }
      states[depth] = next;
    }
    if (!add_node(c, part, i, next)) return false;
    i += final ? size : 1;
  }
  return !t->failure.code;
}

// What was found for another term, as far as it was copied.
typedef struct st_copied {
  const st_inside *of;
  uint32_t token, exit;
} st_copied;

// Copies the tokens and exits before `token` and `node`, then skips those before `next_token` and `next_node`.
static bool copy_until(st_constraint *c, st_copied *from, uint32_t token, uint32_t node, uint32_t next_token,
                       uint32_t next_node) {
  const st_inside *of = from->of;
  for (; from->token < of->n_tokens && of->tokens[from->token] < token; from->token++) {
    if (!add_tokens(c, of->tokens[from->token], 1)) return false;
  }
  while (from->token < of->n_tokens && of->tokens[from->token] < next_token) from->token++;
  for (; from->exit < of->n_exits && of->exits[from->exit].node < node; from->exit++) {
    if (!add_exit(c, of->exits[from->exit])) return false;
  }
  while (from->exit < of->n_exits && of->exits[from->exit].node < next_node) from->exit++;
  return true;
}

// The same walk when the tokens and exits of a similar term are known: it visits only nodes at which the states differ.
static bool walk_beside(st_constraint *c, st_term start, st_term other, st_copied from, const st_trie_part *part) {
  st_terms *t = c->engine.t;
  st_term states[ST_TRIE_DEPTH + 1], others[ST_TRIE_DEPTH + 1];
  states[0] = start, others[0] = other;
  for (size_t i = 0; i < part->n;) {
    st_trie_node node = part->nodes[i];
    const st_trie_below *below = &part->below[i];
    uint32_t depth = st_trie_depth(node), size = st_trie_size(node);
    uint8_t byte = st_trie_byte(node);
    st_term next = st_terms_next(t, states[depth - 1], byte), beside = ST_TERM_EMPTY;
    if (others[depth - 1] != ST_TERM_EMPTY) beside = st_terms_next(t, others[depth - 1], byte);
    if (next == beside) {
      i += size;
      continue;
    }
    bool ends = next == ST_TERM_EMPTY || t->flags[next] & ST_TERM_FINAL;
    uint32_t tokens = ends ? st_trie_count(*below) : st_trie_token(node) != ST_TRIE_NONE, nodes = ends ? size : 1;
    if (!copy_until(c, &from, below->first, (uint32_t)i, below->first + tokens, (uint32_t)i + nodes)) return false;
    if (next != ST_TERM_EMPTY && !add_node(c, part, i, next)) return false;
    states[depth] = next, others[depth] = beside;
    i += nodes;
  }
  return copy_until(c, &from, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX) && !t->failure.code;
}

// A term with mostly the same tokens: for a language that excludes a few texts, the whole language; for alternatives,
// one that is an intersection or a repeat, like the keys of an object's other members. ST_TERM_EMPTY: none.
static st_term similar(st_terms *t, st_term term) {
  st_term_entry e = t->entries[term];
  for (uint32_t i = 0; e.kind == ST_KIND_ALT && e.b <= MOST_MEMBERS && i < e.b; i++) {
    st_term member = t->children[e.a + i],
            head = t->entries[member].kind == ST_KIND_SEQ ? t->entries[member].a : member;
    st_term_kind kind = t->entries[head].kind;
    if (kind == ST_KIND_AND || kind == ST_KIND_REPEAT) return st_term_with_few(t, member);
  }
  st_term whole = st_term_with_few(t, term);
  return whole == term ? ST_TERM_EMPTY : whole;
}

// Stores what the walk found.
static bool keep(st_constraint *c, st_inside *item) {
  st_insides *s = &c->engine.insides;
  size_t words = st_mask_words(c->trie->size), n = s->n_tokens, exits = s->n_exits;
  const st_trie_part *part = st_inside_part(c->trie, item);
  bool fine = true;
  if (n < words) {
    item->tokens = st_malloc(n ? n : 1, sizeof *item->tokens);
    fine = item->tokens;
    if (fine && n) memcpy(item->tokens, s->tokens, n * sizeof *item->tokens);
    item->n_tokens = (uint32_t)n;
    s->kept += n * sizeof *item->tokens;
  } else {
    item->bits = st_calloc(words, sizeof *item->bits);
    fine = item->bits;
    for (size_t i = 0; fine && i < n; i++) st_set_bit(item->bits, part->tokens[s->tokens[i]]);
    s->kept += words * sizeof *item->bits;
  }
  item->exits = st_malloc(exits ? exits : 1, sizeof *item->exits);
  if (!fine || !item->exits) return st_engine_fail(&c->engine, SETUN_ERROR_MEMORY, "out of memory for a mask");
  if (exits) memcpy(item->exits, s->exits, exits * sizeof *item->exits);
  item->n_exits = (uint32_t)exits;
  s->kept += exits * sizeof *item->exits;
  return st_engine_count(&c->engine);
}

// Walks beside a similar term, if there is one; false: there is none.
static bool try_beside(st_constraint *c, st_term term, int slice, const st_trie_part *part, bool *separable) {
  st_term other = similar(c->engine.t, term);
  const st_inside *of = other == ST_TERM_EMPTY || other == term ? NULL : st_constraint_inside(c, other);
  if (!of || !of->separable || of->bits || of->slice != slice) return false;
  c->engine.insides.n_tokens = c->engine.insides.n_exits = 0;
  *separable = walk_beside(c, term, other, (st_copied){of, 0, 0}, part);
  return true;
}

static const int READY[ST_SLICES + 1] = {0, ST_SLICE_SHORT, ST_SLICE_MIDDLE, ST_READY_ALL}; // by slice + 1

const st_inside *st_constraint_inside(st_constraint *c, st_term term) {
  st_inside *item = st_constraint_item(c, term);
  if (!item || item->has_tokens) return item;
  st_char_run run = st_constraint_run(c, term);
  int slice = st_run_slice(c->trie, run), ready = READY[slice + 1];
  if (run.exact && run.length <= ST_SLICE_MIDDLE) slice = ST_SLICES - 1, ready = run.length;
  const st_trie_part *part = slice >= 0 ? &c->trie->without[slice] : &c->trie->all;
  bool separable;
  if (!try_beside(c, term, slice, part, &separable)) {
    c->engine.insides.n_tokens = c->engine.insides.n_exits = 0;
    separable = walk(c, term, run, part);
  }
  if (c->engine.t->failure.code || c->engine.failure.code) return NULL;
  item = st_constraint_item(c, term);
  item->slice = (int8_t)slice;
  item->ready = (uint8_t)ready;
  item->has_tokens = true;
  item->separable = separable;
  return !separable || keep(c, item) ? item : NULL;
}
