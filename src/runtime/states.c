// Slots of states and their users.
#include "runtime/states.h"

#include "runtime/sequences.h"

#include <string.h>

uint64_t st_states_list_size(uint32_t n_slots) {
  return n_slots * sizeof(st_snapshot);
}

static bool is_idle(const st_sequences *a, const st_sequence *s) {
  return (size_t)(s - a->all) >= a->n_max;
}

static void release(st_sequences *a, const st_sequence *s, uint32_t *slot) {
  if (*slot != ST_NO_STATE) st_page_release(&a->states, *slot, is_idle(a, s));
  *slot = ST_NO_STATE;
}

// The state before the last pass.
static void release_before(st_sequences *a, st_sequence *s) {
  st_snapshot *before = &s->states.before;
  if (before->position) release(a, s, &before->slot);
  before->position = 0;
}

static void remove_snapshot(st_sequences *a, st_sequence *s, uint32_t i) {
  st_sequence_states *q = &s->states;
  release(a, s, &q->snapshots[i].slot);
  q->n_snapshots--;
  memmove(q->snapshots + i, q->snapshots + i + 1, (q->n_snapshots - i) * sizeof *q->snapshots);
}

// ---- room ---------------------------------------------------------------------------------------------------------

// The value of a snapshot: the tokens between its neighbors, divided by its age in tokens. Older snapshots are
// therefore sparser.
static double worth(const st_sequence *s, uint32_t i) {
  const st_sequence_states *q = &s->states;
  uint32_t before = i ? q->snapshots[i - 1].position : 0, end = s->cached;
  uint32_t behind = i + 1 < q->n_snapshots ? q->snapshots[i + 1].position : end;
  return ((double)behind - before) / ((double)end - q->snapshots[i].position + 1);
}

// Whether the slot holds a sequence's current state, or one of a pass.
static bool is_live(const st_sequences *a, uint32_t slot) {
  for (size_t k = 0; k < (size_t)2 * a->n_max; k++) {
    const st_sequence_states *q = &a->all[k].states;
    if (!a->all[k].used) continue;
    if (q->slot == slot || q->next == slot || (q->before.position && q->before.slot == slot)) return true;
  }
  return false;
}

// Removes the least valuable snapshot from all sequences that share it; false: none would free its slot.
static bool thin(st_sequences *a) {
  uint32_t slot = ST_NO_STATE;
  double least = 0;
  for (size_t k = 0; k < (size_t)2 * a->n_max; k++) {
    const st_sequence *s = &a->all[k];
    for (uint32_t i = 0; s->used && i < s->states.n_snapshots; i++) {
      double w = worth(s, i);
      if ((slot != ST_NO_STATE && w >= least) || is_live(a, s->states.snapshots[i].slot)) continue;
      slot = s->states.snapshots[i].slot, least = w;
    }
  }
  for (size_t k = 0; slot != ST_NO_STATE && k < (size_t)2 * a->n_max; k++) {
    st_sequence *s = &a->all[k];
    for (uint32_t i = s->used ? s->states.n_snapshots : 0; i; i--) {
      if (s->states.snapshots[i - 1].slot == slot) remove_snapshot(a, s, i - 1);
    }
  }
  return slot != ST_NO_STATE;
}

// Beyond one snapshot per sequence, snapshots are worth less than a dropped sequence.
static bool has_many(const st_sequences *a) {
  uint32_t snapshots = 0, sequences = 0;
  for (size_t k = 0; k < (size_t)2 * a->n_max; k++) {
    if (a->all[k].used) snapshots += a->all[k].states.n_snapshots, sequences++;
  }
  return snapshots > sequences;
}

// A free slot, freeing one if necessary; ST_NO_STATE: all are in use.
static uint32_t acquire(st_sequences *a) {
  while (!a->states.n_free && ((has_many(a) && thin(a)) || st_sequences_forget(a) || thin(a))) {}
  return a->states.n_free ? st_page_acquire(&a->states) : ST_NO_STATE;
}

// ---- passes -------------------------------------------------------------------------------------------------------

void st_states_begin(st_sequences *a, st_sequence *s) {
  st_sequence_states *q = &s->states;
  if (!a->run->n_states) return;
  release_before(a, s);
  q->next = acquire(a); // st_delta_slots provides two per sequence
}

void st_states_commit(st_sequences *a, st_sequence *s, uint32_t n) {
  st_sequence_states *q = &s->states;
  if (q->next == ST_NO_STATE) return;
  q->before = (st_snapshot){s->cached - n, q->slot};
  q->slot = q->next;
  q->next = ST_NO_STATE;
  if (n == 1 || q->n_snapshots == a->run->n_states) return;
  st_page_share(&a->states, q->slot, false);
  q->snapshots[q->n_snapshots++] = (st_snapshot){s->cached, q->slot};
}

void st_states_abandon(st_sequences *a, st_sequence *s) {
  if (a->run->n_states) release(a, s, &s->states.next);
}

// ---- positions ----------------------------------------------------------------------------------------------------

uint32_t st_states_reach(const st_sequences *a, const st_sequence *s, uint32_t n) {
  const st_sequence_states *q = &s->states;
  if (!a->run->n_states) return n;
  if (n >= s->cached && q->slot != ST_NO_STATE) return s->cached;
  uint32_t reach = q->before.position <= n ? q->before.position : 0;
  for (uint32_t i = 0; i < q->n_snapshots && q->snapshots[i].position <= n; i++) {
    if (q->snapshots[i].position > reach) reach = q->snapshots[i].position;
  }
  return reach;
}

// The slot with the state after n tokens; ST_NO_STATE for 0.
static uint32_t slot_at(const st_sequence *s, uint32_t n) {
  const st_sequence_states *q = &s->states;
  for (uint32_t i = 0; i < q->n_snapshots; i++) {
    if (q->snapshots[i].position == n) return q->snapshots[i].slot;
  }
  if (n && n == q->before.position) return q->before.slot;
  return n && n == s->cached ? q->slot : ST_NO_STATE;
}

void st_states_truncate(st_sequences *a, st_sequence *s, uint32_t n) {
  st_sequence_states *q = &s->states;
  if (!a->run->n_states) return;
  uint32_t slot = slot_at(s, n);
  if (slot != ST_NO_STATE) st_page_share(&a->states, slot, is_idle(a, s));
  release(a, s, &q->slot);
  q->slot = slot;
  release_before(a, s);
  while (q->n_snapshots && q->snapshots[q->n_snapshots - 1].position > n) remove_snapshot(a, s, q->n_snapshots - 1);
}

void st_states_share(st_sequences *a, const st_sequence *from, st_sequence *to, uint32_t n) {
  st_sequence_states *q = &to->states;
  if (!a->run->n_states) return;
  q->slot = slot_at(from, n);
  if (q->slot != ST_NO_STATE) st_page_share(&a->states, q->slot, is_idle(a, to));
  for (uint32_t i = 0; i < from->states.n_snapshots && from->states.snapshots[i].position <= n; i++) {
    q->snapshots[q->n_snapshots++] = from->states.snapshots[i];
    st_page_share(&a->states, from->states.snapshots[i].slot, is_idle(a, to));
  }
}

void st_states_set_idle(st_sequences *a, st_sequence *s, bool idle) {
  st_sequence_states *q = &s->states;
  if (!a->run->n_states) return;
  if (q->slot != ST_NO_STATE) st_page_set_idle(&a->states, q->slot, idle);
  if (q->before.position) st_page_set_idle(&a->states, q->before.slot, idle);
  for (uint32_t i = 0; i < q->n_snapshots; i++) st_page_set_idle(&a->states, q->snapshots[i].slot, idle);
}

bool st_states_restore(st_sequences *a, st_sequence *s, uint32_t position) {
  st_sequence_states *q = &s->states;
  q->slot = acquire(a);
  if (q->slot == ST_NO_STATE || !position) return q->slot != ST_NO_STATE;
  q->before = (st_snapshot){position, acquire(a)};
  if (q->before.slot == ST_NO_STATE) q->before.position = 0;
  return q->before.position;
}
