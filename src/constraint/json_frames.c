// Objects and arrays as frames: which members may come next after those so far, and when they may end.
//
// The last word of a state identifies its object or array, so that results for a state can be stored with it.
//
// The words of an object's state: the number of members, the first property that may still come (ordered), a term for
// the keys of classes seen so far, the counters, and a bit per property. Of an array's state: the number of items (as
// far as it matters), where the array began and a term for the scalars seen so far (unique), and the counters.
#include "constraint/engine.h"

#include "base/memory.h"

#include <string.h>

enum { COUNT, NEXT, OTHERS, COUNTERS, MARK_CLOSE = UINT32_MAX - 1, MARK_MORE = UINT32_MAX - 2 };
enum { BEGAN = NEXT, SEEN = OTHERS };
static const uint32_t OF_ARRAY = 1u << 31;

typedef struct st_words {
  uint32_t few[64], *words;
  uint32_t n;
} st_words;

// A copy of a state for changes, or with `state` UINT32_MAX the owner's first state.
static bool words_open(st_engine *e, st_words *w, uint32_t state, uint32_t n, uint32_t owner) {
  w->n = n;
  w->words = n <= 64 ? w->few : st_malloc(n, sizeof *w->words);
  if (!w->words) return st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for an object's state");
  if (state != UINT32_MAX) {
    memcpy(w->words, e->words + e->states[state].offset, n * sizeof *w->words);
    return true;
  }
  memset(w->words, 0, n * sizeof *w->words);
  w->words[n - 1] = owner;
  return true;
}
static void words_close(st_words *w) {
  if (w->words != w->few) st_free(w->words);
}

static st_term text(st_engine *e, const char *bytes) {
  return st_term_text(e->t, bytes, strlen(bytes));
}
static st_term spaced(st_engine *e, bool bare, st_term a) {
  return bare ? a : st_term_seq(e->t, e->g->space, a);
}
// A comma or a colon, and the white space after it.
static st_term punctuation(st_engine *e, bool bare, const char *sign) {
  return bare ? text(e, sign) : st_term_seq(e->t, text(e, sign), e->g->gap);
}

// ---- counters ----

static bool choice_allowed(const st_counter *counters, size_t n, const uint32_t *counts, st_value_choice c) {
  for (size_t i = 0; i < n; i++) {
    if (c.counters >> i & 1 && counts[i] >= counters[i].max) return false;
  }
  return true;
}
static void count_choice(const st_counter *counters, size_t n, uint32_t *counts, st_value_choice c) {
  for (size_t i = 0; i < n; i++) {
    uint32_t most = counters[i].max == ST_UNBOUNDED ? counters[i].min : counters[i].max;
    if (c.counters >> i & 1 && counts[i] < most) counts[i]++;
  }
}
// The number that counter i is short of its minimum, if `c` is taken (NULL: no choice).
static uint32_t counter_missing(const st_counter *counters, size_t i, const uint32_t *counts,
                                const st_value_choice *c) {
  uint32_t have = counts[i] + (c && c->counters >> i & 1);
  return have < counters[i].min ? counters[i].min - have : 0;
}
// The least number of further members or items that the counters need, if `c` is taken (NULL: no choice).
static uint32_t counters_missing(const st_counter *counters, size_t n, const uint32_t *counts,
                                 const st_value_choice *c) {
  uint32_t most = 0;
  for (size_t i = 0; i < n; i++) {
    uint32_t missing = counter_missing(counters, i, counts, c);
    if (missing > most) most = missing;
  }
  return most;
}
// Does one of the choices count there? Counter UINT32_MAX: is there a choice at all?
static bool any_counts(const st_value_choice *choices, size_t n, uint32_t counter) {
  for (size_t i = 0; i < n; i++) {
    if (counter == UINT32_MAX || choices[i].counters >> counter & 1) return true;
  }
  return false;
}

// ---- objects ----

static uint32_t *object_bits(const st_grammar_object *o, uint32_t *words) {
  return words + COUNTERS + o->n_counters;
}
static uint32_t object_words(const st_grammar_object *o) {
  return (uint32_t)(COUNTERS + o->n_counters + (o->n_properties + 31) / 32 + 1);
}
static bool has_bit(const uint32_t *bits, size_t i) {
  return bits[i / 32] >> i % 32 & 1;
}

// Property i must still come: it is required, or a property that is present depends on it.
static bool property_missing(const st_grammar_object *o, const uint32_t *bits, size_t i) {
  if (has_bit(bits, i)) return false;
  if (o->properties[i].required) return true;
  for (size_t d = 0; d < o->n_dependencies; d++) {
    if (o->dependencies[d].needs == i && has_bit(bits, o->dependencies[d].property)) return true;
  }
  return false;
}
static uint32_t properties_missing(const st_grammar_object *o, const uint32_t *bits) {
  uint32_t n = 0;
  for (size_t i = 0; i < o->n_properties; i++) n += property_missing(o, bits, i);
  return n;
}

// After the member, can `missing` more come that count there (any_counts)? The keys of a class are taken as unlimited.
static bool enough_follow(const st_grammar_object *o, uint32_t *words, size_t entry, uint32_t counter,
                          uint32_t missing) {
  bool named = entry < o->n_properties;
  size_t i = !o->ordered ? 0 : named ? entry + 1 : o->n_properties;
  if (o->max != ST_UNBOUNDED && missing > o->max - words[COUNT] - 1) return false;
  for (; missing && i < o->n_properties + o->n_classes; i++) {
    size_t n;
    const st_value_choice *choices = st_object_choices(o, i, &n);
    if (!any_counts(choices, n, counter)) continue;
    if (i >= o->n_properties) return true;
    missing -= i != entry && !has_bit(object_bits(o, words), i);
  }
  return !missing;
}

// May the member come with this choice, so that the minimums can still be reached?
static bool member_choice_allowed(const st_grammar_object *o, uint32_t *words, size_t entry, const st_value_choice *c) {
  if (words[COUNT] >= o->max || !choice_allowed(o->counters, o->n_counters, words + COUNTERS, *c)) return false;
  uint32_t have = words[COUNT] + 1;
  if (have < o->min && !enough_follow(o, words, entry, UINT32_MAX, o->min - have)) return false;
  for (size_t i = 0; i < o->n_counters; i++) {
    uint32_t missing = counter_missing(o->counters, i, words + COUNTERS, c);
    if (missing && !enough_follow(o, words, entry, (uint32_t)i, missing)) return false;
  }
  return true;
}

// May the member come next, in its order and with room left for the required ones?
static bool member_allowed(const st_grammar_object *o, uint32_t *words, size_t entry) {
  uint32_t *bits = object_bits(o, words);
  bool named = entry < o->n_properties, any = false;
  if (words[COUNT] >= o->max || (named && has_bit(bits, entry))) return false;
  size_t n, before = named ? entry : o->n_properties;
  const st_value_choice *choices = st_object_choices(o, entry, &n);
  for (size_t i = 0; i < n && !any; i++) any = member_choice_allowed(o, words, entry, &choices[i]);
  if (!any || (o->ordered && named && entry < words[NEXT])) return false;
  for (size_t i = words[NEXT]; o->ordered && i < before; i++) {
    if (property_missing(o, bits, i)) return false;
  }
  if (o->max == ST_UNBOUNDED && !o->n_dependencies) return true;
  if (named) bits[entry / 32] |= 1u << entry % 32;
  bool fits = o->max == ST_UNBOUNDED || properties_missing(o, bits) <= o->max - words[COUNT] - 1;
  for (size_t d = 0; named && fits && d < o->n_dependencies; d++) { // the properties it depends on can still come
    size_t needs = o->dependencies[d].needs;
    if (o->dependencies[d].property != entry || has_bit(bits, needs)) continue;
    fits = o->properties[needs].n_choices && (!o->ordered || needs > entry);
  }
  if (named) bits[entry / 32] &= ~(1u << entry % 32);
  return fits;
}

static bool object_may_end(const st_grammar_object *o, uint32_t *words) {
  return words[COUNT] >= o->min && !counters_missing(o->counters, o->n_counters, words + COUNTERS, NULL) &&
         !properties_missing(o, object_bits(o, words));
}

// A term for the keys that may come next, each with its colon and a mark.
static st_term object_keys(st_engine *e, const st_object_entry *entry, uint32_t *words) {
  const st_grammar_object *o = &entry->shape;
  st_terms *t = e->t;
  size_t base = t->n_stack;
  for (size_t i = 0; i < o->n_properties + o->n_classes; i++) {
    if (!member_allowed(o, words, i)) continue;
    size_t other = i - o->n_properties;
    st_term key = i < o->n_properties ? entry->named[i] : entry->others[other];
    if (i >= o->n_properties && words[OTHERS]) {
      st_term keys = st_term_and2(t, entry->keys[other], st_term_not(t, words[OTHERS]));
      key = st_term_seq(t, keys, st_object_colon(e, o->bare, (uint32_t)i));
    }
    st_terms_push(t, key);
  }
  return st_terms_join(t, ST_KIND_ALT, base);
}

st_term st_object_colon(st_engine *e, bool bare, uint32_t mark) {
  return st_term_seq(e->t, spaced(e, bare, punctuation(e, bare, ":")), st_term_mark(e->t, mark));
}

// A term for what may follow an opening brace or a value: `lead` (nothing, or a comma) and a key, or the end.
static st_term members_term(st_engine *e, const st_object_entry *entry, uint32_t *words, st_term before, st_term lead) {
  st_term keys = st_term_seq(e->t, lead, object_keys(e, entry, words)), close = ST_TERM_EMPTY;
  if (object_may_end(&entry->shape, words)) close = st_term_seq(e->t, text(e, "}"), st_term_mark(e->t, MARK_CLOSE));
  st_term term = st_term_seq(e->t, before, spaced(e, entry->shape.bare, st_term_alt2(e->t, keys, close)));
  return st_term_is_empty(e->t, term) ? ST_TERM_EMPTY : term;
}

static void emit_members(st_engine *e, uint32_t object, uint32_t state, st_term term, uint32_t parent,
                         st_configs *out) {
  uint32_t position = 0;
  if (e->g->objects[object].shape.n_classes) { // its keys are read back from the text
    position = (uint32_t)e->position;
    e->uses_position = true;
  }
  if (term == ST_TERM_EMPTY) return;
  st_engine_emit(e, out, term, st_engine_frame(e, (st_frame){ST_FRAME_MEMBER, object, state, position, parent}));
}

void st_object_begin(st_engine *e, uint32_t object, uint32_t stack, st_configs *out) {
  st_object_entry *entry = &e->g->objects[object];
  if (!entry->has_begun) {
    st_words w;
    if (!words_open(e, &w, UINT32_MAX, object_words(&entry->shape), object)) return;
    entry->begin = members_term(e, entry, w.words, text(e, "{"), ST_TERM_EPSILON);
    entry->state = st_engine_state(e, w.words, w.n);
    entry->has_begun = true;
    words_close(&w);
  }
  emit_members(e, object, entry->state, entry->begin, stack, out);
}

void st_object_value(st_engine *e, st_frame f, st_configs *out) {
  if (!e->states[f.b].has_term) { // the same for every position of the object
    st_words w;
    if (!words_open(e, &w, f.b, e->states[f.b].n, 0)) return;
    st_term comma = punctuation(e, e->g->objects[f.a].shape.bare, ",");
    st_term term = members_term(e, &e->g->objects[f.a], w.words, ST_TERM_EPSILON, comma);
    e->states[f.b].term = term;
    e->states[f.b].has_term = true;
    words_close(&w);
  }
  emit_members(e, f.a, f.b, e->states[f.b].term, f.parent, out);
}

// The bare key that was read last, between a brace or a comma and a colon.
static st_term bare_key_term(st_engine *e, const char *begin, const char *end) {
  while (end > begin && *--end != ':') {}
  const char *key = end;
  while (key > begin && !strchr("{,", key[-1])) key--;
  return st_term_text(e->t, key, (size_t)(end - key));
}

// A term for all spellings of the key that was read last, after a brace or a comma at `from`.
static st_term key_term(st_engine *e, bool bare, size_t from) {
  const char *begin = e->text + from, *end = e->text + e->position;
  if (bare) {
    e->uses_text = true;
    return bare_key_term(e, begin, end);
  }
  while (begin < end && *begin != '"') begin++;
  const char *last = end;
  while (last > begin && last[-1] != '"') last--;
  e->uses_text = true;
  return st_scalar_term(e->t, begin, (size_t)(last - begin));
}

void st_object_member(st_engine *e, st_frame f, uint32_t mark) {
  if (mark == MARK_CLOSE) {
    st_engine_push(e, ST_WORK_RETURN, ST_MARK_NONE, f.parent);
    return;
  }
  const st_grammar_object *o = &e->g->objects[f.a].shape;
  if (mark >= o->n_properties + o->n_classes) return;
  size_t n;
  const st_value_choice *choices = st_object_choices(o, mark, &n);
  for (size_t i = 0; i < n; i++) {
    st_words w;
    if (!words_open(e, &w, f.b, e->states[f.b].n, 0)) return;
    if (member_choice_allowed(o, w.words, mark, &choices[i])) {
      uint32_t most = o->max == ST_UNBOUNDED ? o->min : o->max;
      if (w.words[COUNT] < most) w.words[COUNT]++;
      count_choice(o->counters, o->n_counters, w.words + COUNTERS, choices[i]);
      if (mark < o->n_properties)
        object_bits(o, w.words)[mark / 32] |= 1u << mark % 32;
      else
        w.words[OTHERS] = st_term_alt2(e->t, w.words[OTHERS], key_term(e, o->bare, f.c));
      if (o->ordered) w.words[NEXT] = mark < o->n_properties ? mark + 1 : (uint32_t)o->n_properties;
      uint32_t state = st_engine_state(e, w.words, w.n);
      uint32_t frame = st_engine_frame(e, (st_frame){ST_FRAME_VALUE, f.a, state, 0, f.parent});
      st_engine_push(e, ST_WORK_NODE, choices[i].node, frame);
    }
    words_close(&w);
  }
}

// ---- arrays ----

// The number of items in [from, last) that can count there.
static uint32_t items_left(const st_grammar_array *a, uint32_t from, uint32_t last, uint32_t counter) {
  uint32_t n = 0;
  for (; from < a->n_prefix && from < last; from++) {
    n += any_counts(a->prefix[from].choices, a->prefix[from].n_choices, counter);
  }
  if (from >= last || !any_counts(a->rest.choices, a->rest.n_choices, counter)) return n;
  return last == ST_UNBOUNDED ? ST_UNBOUNDED : n + (last - from);
}

// May an item come next, with this choice?
static bool item_choice_allowed(const st_grammar_array *a, const uint32_t *words, const st_value_choice *c) {
  uint32_t last = a->max; // the number of items that are possible
  if (!a->rest.n_choices && a->n_prefix < last) last = (uint32_t)a->n_prefix;
  if (words[COUNT] >= last || !choice_allowed(a->counters, a->n_counters, words + COUNTERS, *c)) return false;
  for (size_t i = 0; i < a->n_counters; i++) {
    uint32_t missing = counter_missing(a->counters, i, words + COUNTERS, c);
    if (missing && missing > items_left(a, words[COUNT] + 1, last, (uint32_t)i)) return false;
  }
  return true;
}

// Is the node a rule whose body begin_item looks into?
static bool opened(const st_engine *e, st_node_entry n, int depth) {
  return n.kind == ST_NODE_RULE && !e->rules[n.a].recursive_left && depth < 8;
}
static st_term unseen(st_engine *e, st_term term, st_term seen) {
  st_term rest = st_term_and2(e->t, term, st_term_not(e->t, seen));
  return st_term_is_empty(e->t, rest) ? ST_TERM_EMPTY : rest;
}
// Has the node a value other than the scalars that came before? Objects and arrays are taken as having one.
static bool has_unseen(st_engine *e, st_node node, st_term seen, int depth) {
  st_node_entry n = e->g->nodes[node];
  if (opened(e, n, depth)) return has_unseen(e, e->g->rules[n.a].body, seen, depth + 1);
  if (n.kind == ST_NODE_TERM) return unseen(e, n.a, seen) != ST_TERM_EMPTY;
  if (n.kind != ST_NODE_ALT) return true;
  for (uint32_t i = 0; i < n.b; i++) {
    if (has_unseen(e, e->g->members[n.a + i], seen, depth + 1)) return true;
  }
  return false;
}

static bool item_allowed(st_engine *e, const st_grammar_array *a, const uint32_t *words) {
  size_t n;
  const st_value_choice *choices = st_array_choices(a, words[COUNT], &n);
  st_term seen = a->unique ? words[SEEN] : ST_TERM_EMPTY;
  for (size_t i = 0; i < n; i++) {
    if (item_choice_allowed(a, words, &choices[i]) && (!seen || has_unseen(e, choices[i].node, seen, 0))) return true;
  }
  return false;
}

// What may follow an opening bracket or an item: `lead` (nothing, or a comma) and an item, or the end.
static st_term items_term(st_engine *e, uint32_t array, const uint32_t *words, st_term before, st_term lead) {
  const st_grammar_array *a = &e->g->arrays[array].shape;
  st_terms *t = e->t;
  st_term more = ST_TERM_EMPTY, close = ST_TERM_EMPTY;
  if (item_allowed(e, a, words)) more = st_term_seq(t, lead, st_term_mark(t, MARK_MORE));
  bool may_end = words[COUNT] >= a->min && !counters_missing(a->counters, a->n_counters, words + COUNTERS, NULL);
  if (may_end) close = st_term_seq(t, text(e, "]"), st_term_mark(t, MARK_CLOSE));
  return st_term_seq(t, before, spaced(e, a->bare, st_term_alt2(t, more, close)));
}

static void emit_items(st_engine *e, uint32_t array, uint32_t state, st_term term, uint32_t parent, st_configs *out) {
  st_engine_emit(e, out, term, st_engine_frame(e, (st_frame){ST_FRAME_SEPARATOR, array, state, 0, parent}));
}

void st_array_begin(st_engine *e, uint32_t array, uint32_t stack, st_configs *out) {
  const st_grammar_array *a = &e->g->arrays[array].shape;
  st_words w;
  if (!words_open(e, &w, UINT32_MAX, (uint32_t)(COUNTERS + a->n_counters + 1), array | OF_ARRAY)) return;
  if (a->unique) {
    w.words[BEGAN] = (uint32_t)e->position;
    e->uses_position = true;
  }
  st_term term = items_term(e, array, w.words, text(e, "["), ST_TERM_EPSILON);
  emit_items(e, array, st_engine_state(e, w.words, w.n), term, stack, out);
  words_close(&w);
}

// Adds the beginnings of an item; in a unique array, scalars that it already has are excluded.
static void begin_item(st_engine *e, st_node node, st_term seen, uint32_t frame, int depth, st_configs *out) {
  st_node_entry n = e->g->nodes[node];
  if (seen && opened(e, n, depth)) {
    begin_item(e, e->g->rules[n.a].body, seen, frame, depth + 1, out);
    return;
  }
  if (seen && n.kind == ST_NODE_TERM) {
    st_term rest = unseen(e, n.a, seen);
    if (rest != ST_TERM_EMPTY) st_engine_emit(e, out, rest, frame);
    return;
  }
  for (uint32_t i = 0; seen && n.kind == ST_NODE_ALT && i < n.b; i++) {
    begin_item(e, e->g->members[n.a + i], seen, frame, depth + 1, out);
  }
  if (!seen || n.kind != ST_NODE_ALT) st_engine_push(e, ST_WORK_NODE, node, frame);
}

void st_array_separator(st_engine *e, st_frame f, uint32_t mark, st_configs *out) {
  if (mark == MARK_CLOSE) {
    st_engine_push(e, ST_WORK_RETURN, ST_MARK_NONE, f.parent);
    return;
  }
  const st_grammar_array *a = &e->g->arrays[f.a].shape;
  size_t n;
  const st_value_choice *choices = st_array_choices(a, e->words[e->states[f.b].offset + COUNT], &n);
  uint32_t position = 0;
  if (a->unique) {
    position = (uint32_t)e->position;
    e->uses_position = true;
  }
  for (size_t i = 0; i < n; i++) {
    st_words w;
    if (!words_open(e, &w, f.b, e->states[f.b].n, 0)) return;
    if (item_choice_allowed(a, w.words, &choices[i])) {
      uint32_t most = a->max == ST_UNBOUNDED ? a->min : a->max;
      if (a->n_prefix > most) most = (uint32_t)a->n_prefix;
      if (w.words[COUNT] < most) w.words[COUNT]++;
      count_choice(a->counters, a->n_counters, w.words + COUNTERS, choices[i]);
      uint32_t state = st_engine_state(e, w.words, w.n);
      uint32_t frame = st_engine_frame(e, (st_frame){ST_FRAME_ITEM, f.a, state, position, f.parent});
      begin_item(e, choices[i].node, a->unique ? w.words[SEEN] : ST_TERM_EMPTY, frame, 0, out);
    }
    words_close(&w);
  }
}

static bool has_exponent(const char *number, size_t n) {
  return memchr(number, 'e', n) || memchr(number, 'E', n);
}

// Records the item that ends here; false: it is equal to an earlier one.
static bool note_item(st_engine *e, st_frame f, st_words *w) {
  const char *inside = e->text + w->words[BEGAN] + 1, *item = e->text + f.c, *end = e->text + e->position;
  e->uses_text = true;
  st_term scalar = st_scalar_term(e->t, item, (size_t)(end - item));
  if (scalar != ST_TERM_EMPTY) {
    if (st_term_matches(e->t, w->words[SEEN], item, (size_t)(end - item))) return false;
    w->words[SEEN] = st_term_alt2(e->t, w->words[SEEN], scalar);
    bool number = *item == '-' || (*item >= '0' && *item <= '9');
    if (!number || !has_exponent(item, (size_t)(end - item))) return true;
  }
  int repeats = st_last_item_repeats(inside, (size_t)(end - inside));
  if (repeats < 0) return st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for an array's items");
  return !repeats;
}

void st_array_item(st_engine *e, st_frame f, st_configs *out) {
  st_words w;
  if (!words_open(e, &w, f.b, e->states[f.b].n, 0)) return;
  if (!e->g->arrays[f.a].shape.unique || note_item(e, f, &w)) {
    uint32_t state = st_engine_state(e, w.words, w.n);
    if (!e->failure.code && !e->states[state].has_term) {
      st_term comma = punctuation(e, e->g->arrays[f.a].shape.bare, ",");
      st_term term = items_term(e, f.a, w.words, ST_TERM_EPSILON, comma);
      e->states[state].term = term;
      e->states[state].has_term = true;
    }
    if (!e->failure.code) emit_items(e, f.a, state, e->states[state].term, f.parent, out);
  }
  words_close(&w);
}
