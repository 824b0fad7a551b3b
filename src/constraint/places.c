// The parser's frames and the states of objects and arrays: each stored once, and freed when no text can need it.
//
// A mask tries tokens that are never chosen; the frames behind these serve later masks, until there are too many. Those
// that a text reached (st_engine_keep) have the same ids as long as the constraint exists, since matchers in other
// threads have them.
#include "constraint/engine.h"

#include "base/hash.h"
#include "base/memory.h"

#include <string.h>

static bool out_of_memory(st_engine *e) {
  return st_engine_fail(e, SETUN_ERROR_MEMORY, "out of memory for the parser of a constraint");
}

// The hash of an id's value; false: the id is free.
typedef bool st_place_hash(const st_engine *, size_t id, uint64_t *hash);

static bool frame_hash(const st_engine *e, size_t id, uint64_t *hash) {
  *hash = st_hash(ST_HASH_START, &e->frames[id], sizeof *e->frames);
  return e->frames[id].op != ST_FRAME_FREE;
}
static bool state_hash(const st_engine *e, size_t id, uint64_t *hash) {
  st_state s = e->states[id];
  *hash = st_hash(ST_HASH_START, e->words + s.offset, s.n * sizeof *e->words);
  return s.n;
}

static void fill_table(const st_engine *e, uint32_t *slots, size_t n_slots, size_t n, st_place_hash *hash) {
  uint64_t h;
  for (size_t i = 0; i < n; i++) {
    if (!hash(e, i, &h)) continue;
    size_t at = h & (n_slots - 1);
    while (slots[at]) at = (at + 1) & (n_slots - 1);
    slots[at] = (uint32_t)i + 1;
  }
}

// Doubles a table of ids when it is half full.
static bool grow_table(st_engine *e, uint32_t **slots, size_t *n_slots, size_t n, st_place_hash *hash) {
  if (n * 2 < *n_slots) return true;
  size_t size = *n_slots ? 2 * *n_slots : 256;
  uint32_t *table = st_calloc(size, sizeof *table);
  if (!table) return out_of_memory(e);
  fill_table(e, table, size, n, hash);
  st_free(*slots);
  *slots = table;
  *n_slots = size;
  return st_engine_count(e);
}

uint32_t st_engine_frame(st_engine *e, st_frame frame) {
  if (!grow_table(e, &e->frame_slots, &e->n_frame_slots, e->n_frames, frame_hash)) return ST_STACK_ROOT;
  size_t mask = e->n_frame_slots - 1, at = st_hash(ST_HASH_START, &frame, sizeof frame) & mask;
  for (; e->frame_slots[at]; at = (at + 1) & mask) {
    if (!memcmp(&e->frames[e->frame_slots[at] - 1], &frame, sizeof frame)) return e->frame_slots[at] - 1;
  }
  if (!e->n_free_frames && e->n_frames >= e->limits.max_stacks) {
    if (!e->failure.code) {
      st_fail(&e->failure, SETUN_ERROR_LIMIT, "the constraint needs more than %u nested places", e->limits.max_stacks);
    }
    return ST_STACK_ROOT;
  }
  uint32_t id = (uint32_t)e->n_frames;
  if (e->n_free_frames) {
    id = e->free_frame;
    e->free_frame = e->frames[id].a;
    e->n_free_frames--;
  } else {
    if (!st_engine_reserve(e, &e->frames, &e->frames_capacity, e->n_frames + 1, sizeof frame) ||
        !st_engine_reserve(e, &e->kept, &e->kept_capacity, e->n_frames + 1, sizeof *e->kept)) {
      return ST_STACK_ROOT;
    }
    e->n_frames++;
  }
  e->frames[id] = frame;
  e->kept[id] = false;
  e->frame_slots[at] = id + 1;
  return id;
}

uint32_t st_engine_state(st_engine *e, const uint32_t *words, uint32_t n) {
  if (!grow_table(e, &e->state_slots, &e->n_state_slots, e->n_states, state_hash)) return 0;
  size_t mask = e->n_state_slots - 1, at = st_hash(ST_HASH_START, words, n * sizeof *words) & mask;
  for (; e->state_slots[at]; at = (at + 1) & mask) {
    st_state s = e->states[e->state_slots[at] - 1];
    if (s.n == n && !memcmp(e->words + s.offset, words, n * sizeof *words)) return e->state_slots[at] - 1;
  }
  if (e->n_words + n > UINT32_MAX || (!e->n_free_states && e->n_states >= e->limits.max_stacks)) {
    return st_engine_fail(e, SETUN_ERROR_LIMIT, "the constraint needs too many states of objects and arrays");
  }
  if (!st_engine_reserve(e, &e->words, &e->words_capacity, e->n_words + n, sizeof *words) ||
      !st_engine_reserve(e, &e->states, &e->states_capacity, e->n_states + 1, sizeof *e->states)) {
    return 0;
  }
  memcpy(e->words + e->n_words, words, n * sizeof *words);
  uint32_t id = (uint32_t)e->n_states;
  if (e->n_free_states) {
    id = e->free_state;
    e->free_state = e->states[id].offset;
    e->n_free_states--;
  } else {
    e->n_states++;
  }
  e->states[id] = (st_state){.offset = (uint32_t)e->n_words, .n = n};
  e->n_words += n;
  e->state_slots[at] = id + 1;
  return id;
}

// ---- freeing ----

void st_engine_keep(st_engine *e, const st_config *configs, size_t n) {
  for (size_t i = 0; i < n; i++) {
    uint32_t stack = configs[i].stack;
    if (stack == ST_STACK_END) continue;
    for (; !e->kept[stack]; stack = e->frames[stack].parent) e->kept[stack] = true; // the root's parent is the root
  }
}

static bool has_state(st_frame f) {
  return f.op == ST_FRAME_MEMBER || f.op == ST_FRAME_VALUE || f.op == ST_FRAME_SEPARATOR || f.op == ST_FRAME_ITEM;
}

static void free_frames(st_engine *e) {
  e->n_free_frames = 0;
  for (size_t i = e->n_frames; i-- > 0;) {
    if (e->kept[i]) continue;
    e->frames[i] = (st_frame){ST_FRAME_FREE, e->free_frame, 0, 0, 0};
    e->free_frame = (uint32_t)i;
    e->n_free_frames++;
  }
  memset(e->frame_slots, 0, e->n_frame_slots * sizeof *e->frame_slots);
  fill_table(e, e->frame_slots, e->n_frame_slots, e->n_frames, frame_hash);
}

// Frees the states that no frame refers to; the words of the others move together.
static bool free_states(st_engine *e) {
  bool *used = st_calloc(e->n_states ? e->n_states : 1, sizeof *used);
  uint32_t *words = st_malloc(e->words_capacity ? e->words_capacity : 1, sizeof *words);
  if (!used || !words) return st_free(used), st_free(words), out_of_memory(e);
  for (size_t i = 0; i < e->n_frames; i++) {
    if (has_state(e->frames[i])) used[e->frames[i].b] = true;
  }
  size_t n = 0;
  e->n_free_states = 0;
  for (size_t i = e->n_states; i-- > 0;) {
    st_state *s = &e->states[i];
    if (used[i]) {
      memcpy(words + n, e->words + s->offset, s->n * sizeof *words);
      s->offset = (uint32_t)n;
      n += s->n;
    } else {
      *s = (st_state){.offset = e->free_state};
      e->free_state = (uint32_t)i;
      e->n_free_states++;
    }
  }
  st_free(e->words), st_free(used);
  e->words = words;
  e->n_words = n;
  if (e->n_state_slots) memset(e->state_slots, 0, e->n_state_slots * sizeof *e->state_slots);
  fill_table(e, e->state_slots, e->n_state_slots, e->n_states, state_hash);
  return true;
}

bool st_engine_trim_places(st_engine *e) {
  size_t most = e->limits.max_stacks, frames = e->n_frames - e->n_free_frames, states = e->n_states - e->n_free_states;
  size_t larger = frames > states ? frames : states;
  if (!e->trim_at) e->trim_at = most / 2;
  if (larger < e->trim_at || e->failure.code) return !e->failure.code;
  st_engine_free_sets(e); // these refer to frames
  st_engine_forget(e);
  for (size_t i = 0; i < e->g->n_objects; i++) e->g->objects[i].has_begun = false; // these, to states
  free_frames(e);
  if (!free_states(e)) return false;
  frames = e->n_frames - e->n_free_frames, states = e->n_states - e->n_free_states;
  larger = frames > states ? frames : states;
  e->trim_at = larger + (most - larger) / 2;
  return st_engine_count(e);
}
