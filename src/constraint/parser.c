// The parser: stacks of frames, and what can be read next at a position between terms.
#include "constraint/engine.h"

#include "base/hash.h"
#include "base/memory.h"

#include <string.h>

bool st_engine_fail(st_engine *e, setun_status code, const char *message) {
  if (!e->failure.code) st_fail(&e->failure, code, "%s", message);
  return false;
}

static size_t own_bytes(const st_engine *e) {
  return e->frames_capacity * sizeof *e->frames + e->kept_capacity * sizeof *e->kept +
         e->n_frame_slots * sizeof(uint32_t) + e->words_capacity * sizeof *e->words +
         e->states_capacity * sizeof *e->states + e->n_state_slots * sizeof(uint32_t) +
         e->n_memo_slots * sizeof *e->memos + e->pool.capacity * sizeof *e->pool.items +
         e->work_capacity * sizeof *e->work + e->n_visited * sizeof *e->visited + e->sets.kept +
         e->sets.capacity * sizeof *e->sets.items + e->sets.configs.capacity * sizeof(st_config) +
         e->sets.n_slots * sizeof(uint32_t) + st_insides_bytes(&e->insides);
}

size_t st_engine_bytes(const st_engine *e) {
  return st_terms_bytes(e->t) - e->counted + own_bytes(e);
}

bool st_engine_count(st_engine *e) {
  size_t before = e->counted;
  e->counted = own_bytes(e);
  st_terms_discharge(e->t, before);
  return st_terms_charge(e->t, e->counted);
}

bool st_engine_reserve(st_engine *e, void *items, size_t *capacity, size_t need, size_t size) {
  if (need <= *capacity) return true;
  if (e->failure.code) return false;
  if (!st_reserve(items, capacity, need, size))
    return st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for the parser of a constraint");
  return st_engine_count(e);
}

static bool add_config(st_engine *e, st_configs *out, st_config config) {
  if (!st_engine_reserve(e, &out->items, &out->capacity, out->n + 1, sizeof *out->items)) return false;
  out->items[out->n++] = config;
  return true;
}

void st_engine_close(st_engine *e) {
  st_grammar_free(e->g);
  st_free(e->rules), st_free(e->productions), st_free(e->frames), st_free(e->kept), st_free(e->frame_slots),
      st_free(e->words);
  st_free(e->states), st_free(e->state_slots), st_free(e->memos), st_free(e->pool.items), st_free(e->work);
  st_free(e->visited);
  st_engine_free_sets(e);
  st_engine_free_insides(e);
}

// ---- the work list of one closure: each item once ----

static bool first_visit(st_engine *e, uint32_t what, uint32_t a, uint32_t stack) {
  if (e->n_work * 2 >= e->n_visited) {
    size_t n = e->n_visited ? 2 * e->n_visited : 256;
    uint64_t *visited = st_calloc(n, sizeof *visited);
    if (!visited) return st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for the parser of a constraint");
    st_free(e->visited);
    e->visited = visited;
    e->n_visited = n;
    e->stamp = 1;
    for (size_t i = 0; i < e->n_work; i++) {
      uint64_t h = st_hash(ST_HASH_START, &e->work[i], sizeof *e->work);
      size_t at = h & (n - 1);
      while (visited[at]) at = (at + 1) & (n - 1);
      visited[at] = (uint64_t)1 << 32 | (uint32_t)i;
    }
  }
  st_work item = {what, a, stack};
  uint64_t hash = st_hash(ST_HASH_START, &item, sizeof item);
  size_t mask = e->n_visited - 1, at = hash & mask;
  for (; e->visited[at] >> 32 == e->stamp; at = (at + 1) & mask) {
    if (!memcmp(&e->work[(uint32_t)e->visited[at]], &item, sizeof item)) return false;
  }
  e->visited[at] = (uint64_t)e->stamp << 32 | (uint32_t)e->n_work;
  return true;
}

void st_engine_push(st_engine *e, uint32_t what, uint32_t a, uint32_t stack) {
  enum { MOST_WORK = 200000 };
  if (e->failure.code || !st_terms_work(e->t, 1) || !first_visit(e, what, a, stack)) return;
  if (e->n_work >= MOST_WORK) {
    st_engine_fail(e, SETUN_ERROR_LIMIT, "the grammar can continue in too many ways at one position");
    return;
  }
  if (!st_engine_reserve(e, &e->work, &e->work_capacity, e->n_work + 1, sizeof *e->work)) return;
  e->work[e->n_work++] = (st_work){what, a, stack};
}

static void push_node(st_engine *e, st_node node, uint32_t stack) {
  st_engine_push(e, ST_WORK_NODE, node, stack);
}

typedef struct st_marks {
  st_engine *e;
  uint32_t stack;
  bool any;
} st_marks;
static void push_mark(void *user, uint32_t mark) {
  st_marks *m = user;
  m->any = true;
  st_engine_push(m->e, ST_WORK_RETURN, mark, m->stack);
}

void st_engine_emit(st_engine *e, st_configs *out, st_term term, uint32_t stack) {
  if (term == ST_TERM_EMPTY || e->failure.code) return;
  unsigned flags = e->t->flags[term];
  if (flags & ST_TERM_NULLABLE) {
    st_marks marks = {e, stack, false};
    st_term_marks(e->t, term, push_mark, &marks);
    if (!marks.any) st_engine_push(e, ST_WORK_RETURN, ST_MARK_NONE, stack);
  }
  if (!(flags & ST_TERM_FINAL)) add_config(e, out, (st_config){term, stack});
}

// ---- rules that begin with each other ----

// Begins the rule `goal`: all alternatives of its component that do not begin with a rule of the component.
static void begin_goal(st_engine *e, st_rule goal, uint32_t stack) {
  for (size_t i = 0; i < e->n_productions; i++) {
    st_production p = e->productions[i];
    if (p.corner != ST_RULE_NONE || e->rules[p.rule].component != e->rules[goal].component) continue;
    uint32_t corner = st_engine_frame(e, (st_frame){ST_FRAME_CORNER, p.rule, goal, 0, stack});
    uint32_t rest = st_engine_frame(e, (st_frame){ST_FRAME_NODES, p.rest, 1, 0, corner});
    if (p.guarded) {
      e->uses_position = true;
      rest = st_engine_frame(e, (st_frame){ST_FRAME_PROGRESS, (uint32_t)e->position, 0, 0, rest});
    }
    push_node(e, p.first, rest);
  }
  if (e->rules[goal].nullable) st_engine_push(e, ST_WORK_RETURN, ST_MARK_NONE, stack);
}

// `rule` was read on the way to `goal`: it is the goal itself, or the left corner of another alternative.
static void end_corner(st_engine *e, st_rule rule, st_rule goal, uint32_t stack) {
  if (rule == goal) st_engine_push(e, ST_WORK_RETURN, ST_MARK_NONE, stack);
  for (size_t i = 0; i < e->n_productions; i++) {
    st_production p = e->productions[i];
    if (p.corner != rule) continue;
    uint32_t corner = st_engine_frame(e, (st_frame){ST_FRAME_CORNER, p.rule, goal, 0, stack});
    push_node(e, e->g->members[p.rest], corner);
  }
}

// ---- nodes and frames ----

static void repeat_from(st_engine *e, st_node node, uint32_t done, uint32_t stack) {
  st_node_entry n = e->g->nodes[node];
  if (done >= n.b) st_engine_push(e, ST_WORK_RETURN, ST_MARK_NONE, stack);
  if (done >= n.c) return;
  uint32_t next = n.c == ST_UNBOUNDED && done >= n.b ? done : done + 1;
  push_node(e, n.a, st_engine_frame(e, (st_frame){ST_FRAME_REPEAT, node, next, 0, stack}));
}

static void begin_node(st_engine *e, st_node node, uint32_t stack, st_configs *out) {
  st_node_entry n = e->g->nodes[node];
  switch ((st_node_kind)n.kind) {
  case ST_NODE_TERM: st_engine_emit(e, out, n.a, stack); return;
  case ST_NODE_SEQ:
    push_node(e, e->g->members[n.a], st_engine_frame(e, (st_frame){ST_FRAME_NODES, n.a + 1, n.b - 1, 0, stack}));
    return;
  case ST_NODE_ALT:
    for (uint32_t i = 0; i < n.b; i++) push_node(e, e->g->members[n.a + i], stack);
    return;
  case ST_NODE_REPEAT: repeat_from(e, node, 0, stack); return;
  case ST_NODE_RULE:
    if (e->rules[n.a].recursive_left)
      st_engine_push(e, ST_WORK_GOAL, n.a, stack);
    else
      push_node(e, e->g->rules[n.a].body, stack);
    return;
  case ST_NODE_TOKENS: {
    uint32_t frame = st_engine_frame(e, (st_frame){ST_FRAME_TOKENS, n.a, 0, 0, stack});
    add_config(e, out, (st_config){ST_TERM_OF_TOKENS, frame});
    return;
  }
  case ST_NODE_OBJECT: st_object_begin(e, n.a, stack, out); return;
  case ST_NODE_ARRAY: st_array_begin(e, n.a, stack, out); return;
  }
}

static void end_frame(st_engine *e, uint32_t stack, uint32_t mark, st_configs *out) {
  st_frame f = e->frames[stack];
  switch ((st_frame_op)f.op) {
  case ST_FRAME_ROOT: add_config(e, out, (st_config){ST_TERM_EPSILON, ST_STACK_END}); return;
  case ST_FRAME_NODES: {
    uint32_t rest = f.parent;
    if (f.b > 1) rest = st_engine_frame(e, (st_frame){ST_FRAME_NODES, f.a + 1, f.b - 1, 0, f.parent});
    push_node(e, e->g->members[f.a], rest);
    return;
  }
  case ST_FRAME_REPEAT: repeat_from(e, f.a, f.b, f.parent); return;
  case ST_FRAME_CORNER: end_corner(e, f.a, f.b, f.parent); return;
  case ST_FRAME_PROGRESS:
    e->uses_position = true;
    if (e->position != f.a) st_engine_push(e, ST_WORK_RETURN, ST_MARK_NONE, f.parent);
    return;
  case ST_FRAME_TOKENS: st_engine_push(e, ST_WORK_RETURN, ST_MARK_NONE, f.parent); return;
  case ST_FRAME_MEMBER: st_object_member(e, f, mark); return;
  case ST_FRAME_VALUE: st_object_value(e, f, out); return;
  case ST_FRAME_SEPARATOR: st_array_separator(e, f, mark, out); return;
  case ST_FRAME_ITEM: st_array_item(e, f, out); return;
  case ST_FRAME_FREE: return;
  }
}

// Processes the items that were pushed.
static bool work_through(st_engine *e, st_configs *out) {
  size_t base = out->n;
  for (size_t i = 0; i < e->n_work && !e->failure.code; i++) {
    st_work w = e->work[i];
    if (w.what == ST_WORK_NODE)
      begin_node(e, w.a, w.stack, out);
    else if (w.what == ST_WORK_GOAL)
      begin_goal(e, w.a, w.stack);
    else
      end_frame(e, w.stack, w.a, out);
  }
  e->n_work = 0;
  if (++e->stamp == 0) { // the stamps wrapped around
    memset(e->visited, 0, e->n_visited * sizeof *e->visited);
    e->stamp = 1;
  }
  st_engine_merge(e, out, base);
  if (e->t->failure.code && !e->failure.code) e->failure = e->t->failure;
  if (out->n - base > e->limits.max_configs) {
    st_engine_fail(e, SETUN_ERROR_LIMIT, "the text can be read in too many ways at once (max_configs)");
  }
  return !e->failure.code;
}

void st_engine_merge(st_engine *e, st_configs *configs, size_t base) {
  size_t n = configs->n;
  if (n - base < 2) return;
  size_t kept = base;
  for (size_t i = base; i < n; i++) {
    st_config c = configs->items[i];
    size_t k = n - base > 512 ? kept : base; // that many are not merged: the limit is near
    while (k < kept && (configs->items[k].stack != c.stack ||
                        (configs->items[k].term == ST_TERM_OF_TOKENS) != (c.term == ST_TERM_OF_TOKENS))) {
      k++;
    }
    if (k == kept)
      configs->items[kept++] = c;
    else if (configs->items[k].term != c.term)
      configs->items[k].term = st_term_alt2(e->t, configs->items[k].term, c.term);
  }
  configs->n = kept;
}

bool st_engine_begin(st_engine *e, st_node node, uint32_t stack, st_configs *out) {
  push_node(e, node, stack);
  return work_through(e, out);
}

// ---- stored results of what follows a frame ----

static st_memo *find_memo(st_engine *e, uint32_t stack, uint32_t mark, uint32_t position) {
  uint32_t key[3] = {stack, mark, position};
  size_t mask = e->n_memo_slots - 1, at = st_hash(ST_HASH_START, key, sizeof key) & mask;
  for (; e->memos[at].offset != SIZE_MAX; at = (at + 1) & mask) {
    const st_memo *m = &e->memos[at];
    if (m->stack == stack && m->mark == mark && m->position == position) break;
  }
  return &e->memos[at];
}

static bool grow_memos(st_engine *e) {
  if (e->n_memos * 2 < e->n_memo_slots) return true;
  size_t before = e->n_memo_slots, n = before ? 2 * before : 256;
  st_memo *old = e->memos, *memos = st_malloc(n, sizeof *memos);
  if (!memos) return st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for the parser of a constraint");
  for (size_t i = 0; i < n; i++) memos[i].offset = SIZE_MAX;
  e->memos = memos;
  e->n_memo_slots = n;
  for (size_t i = 0; i < before; i++) {
    if (old[i].offset != SIZE_MAX) *find_memo(e, old[i].stack, old[i].mark, old[i].position) = old[i];
  }
  st_free(old);
  return true;
}

void st_engine_forget(st_engine *e) {
  for (size_t i = 0; i < e->n_memo_slots; i++) e->memos[i].offset = SIZE_MAX;
  e->n_memos = 0;
  e->pool.n = 0;
}

static bool add_memo(st_engine *e, const st_memo *m, st_configs *out) {
  if (!st_engine_reserve(e, &out->items, &out->capacity, out->n + m->n, sizeof *out->items)) return false;
  memcpy(out->items + out->n, e->pool.items + m->offset, m->n * sizeof *out->items);
  out->n += m->n;
  return true;
}

// Adds what may be read once the frame `stack` is finished (with a mark, if its term ends with marks).
static bool return_frame(st_engine *e, uint32_t stack, uint32_t mark, st_configs *out) {
  if (!grow_memos(e)) return false;
  const st_memo *known = find_memo(e, stack, mark, 0);
  if (known->offset == SIZE_MAX && e->position) known = find_memo(e, stack, mark, (uint32_t)e->position);
  if (known->offset != SIZE_MAX) {
    e->walk_position |= known->position != 0;
    return add_memo(e, known, out);
  }
  size_t base = out->n;
  e->uses_position = e->uses_text = false;
  st_engine_push(e, ST_WORK_RETURN, mark, stack);
  if (!work_through(e, out)) return false;
  size_t n = out->n - base;
  e->walk_position |= e->uses_position;
  e->walk_text_now |= e->uses_text;
  e->walk_text |= e->uses_text;
  if (e->uses_text || (e->uses_position && !e->position)) return true;
  if (st_engine_bytes(e) > e->limits.max_bytes) {
    return st_engine_fail(e, SETUN_ERROR_LIMIT, "the constraint exceeds its memory limit (max_bytes)");
  }
  if (!st_engine_reserve(e, &e->pool.items, &e->pool.capacity, e->pool.n + n, sizeof *e->pool.items)) return false;
  st_memo *m = find_memo(e, stack, mark, e->uses_position ? (uint32_t)e->position : 0);
  *m = (st_memo){stack, mark, e->uses_position ? (uint32_t)e->position : 0, (uint32_t)n, e->pool.n};
  memcpy(e->pool.items + e->pool.n, out->items + base, n * sizeof *out->items);
  e->pool.n += n;
  e->n_memos++;
  return true;
}

// ---- steps ----

typedef struct st_step {
  st_engine *e;
  uint32_t stack;
  st_configs *out;
  bool any;
} st_step;
static void return_mark(void *user, uint32_t mark) {
  st_step *s = user;
  s->any = true;
  return_frame(s->e, s->stack, mark, s->out);
}

void st_engine_leave(st_engine *e, st_term term, uint32_t stack, st_configs *out) {
  st_step step = {e, stack, out, false};
  st_term_marks(e->t, term, return_mark, &step);
  if (!step.any) return_frame(e, stack, ST_MARK_NONE, out);
}

bool st_engine_step(st_engine *e, const st_configs *list, size_t from, size_t n, uint8_t byte, st_configs *out) {
  size_t base = out->n;
  for (size_t i = 0; i < n; i++) {
    st_config c = list->items[from + i];
    if (c.term == ST_TERM_OF_TOKENS) continue;
    st_term next = st_terms_next(e->t, c.term, byte);
    if (next == ST_TERM_EMPTY) continue;
    unsigned flags = e->t->flags[next];
    if (!(flags & ST_TERM_FINAL) && !add_config(e, out, (st_config){next, c.stack})) return false;
    if (flags & ST_TERM_NULLABLE) st_engine_leave(e, next, c.stack, out);
  }
  if (e->t->failure.code && !e->failure.code) e->failure = e->t->failure;
  if (out->n - base > 1) st_engine_merge(e, out, base);
  if (out->n - base > e->limits.max_configs) {
    st_engine_fail(e, SETUN_ERROR_LIMIT, "the text can be read in too many ways at once (max_configs)");
  }
  return !e->failure.code;
}

bool st_token_set_has(const st_token_set *set, int32_t token) {
  size_t low = 0, high = set->n;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (set->ids[middle] < token)
      low = middle + 1;
    else
      high = middle;
  }
  return (low < set->n && set->ids[low] == token) != set->negated;
}

bool st_engine_token(st_engine *e, const st_configs *list, size_t from, size_t n, int32_t token, st_configs *out) {
  for (size_t i = 0; i < n; i++) {
    st_config c = list->items[from + i];
    if (c.term != ST_TERM_OF_TOKENS) continue;
    if (st_token_set_has(&e->g->tokens[e->frames[c.stack].a], token)) return_frame(e, c.stack, ST_MARK_NONE, out);
  }
  return !e->failure.code;
}
