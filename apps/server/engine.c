// The engine's thread: admits choices to the slots of the batch, and computes one pass after the other. A pass has the
// next token of every text that is being written; the rest of its budget goes to the prompts, the shortest first.
//
// Everything but the inbox and what engine_look copies belongs to the thread.
#define _POSIX_C_SOURCE 200809L
#include "engine.h"

#include "compiler.h"

#include <stdlib.h>
#include <string.h>

struct engine {
  server *server;
  setun_context *context;
  pthread_t thread;
  bool started;
  // Used only by the thread:
  job *jobs, **last; // the admitted ones, the oldest first
  choice **slots;    // [n_slots]; NULL: free
  uint32_t n_slots, n_batch, n_logits;
  uint32_t *order; // the slots whose prompts are being computed
  setun_batch_entry *entries;
  uint32_t *owners; // the entries' slots
  bool draining;
  // Protected by the lock:
  pthread_mutex_t lock;
  pthread_cond_t some;
  job *inbox, **inbox_last;
  size_t waiting; // choices without a slot
  bool drain;
  atomic_bool stop;
  engine_state state;
  slot_state *shown;
};

// A job's share of the queue: each waiting answer counts, but all texts of a request for vectors count as one.
static size_t weight_of(const job *j) {
  size_t waiting = 0;
  for (size_t i = 0; i < j->n_choices; i++) waiting += j->choices[i].state == CHOICE_WAITING;
  return j->embed && waiting ? 1 : waiting;
}

// ---- jobs that end ----

static void free_place(engine *e, choice *c) {
  for (uint32_t i = 0; i < e->n_slots; i++) {
    if (e->slots[i] != c) continue;
    e->slots[i] = NULL;
    // A text that became a vector is never continued, so it does not displace what the cache keeps for others.
    if (c->job->embed) setun_context_truncate(e->context, c->sequence, 0, NULL);
    setun_context_drop(e->context, c->sequence, NULL);
    c->sequence = -1;
    // Before the reply is sent, so that a client that has it finds the slot free.
    pthread_mutex_lock(&e->lock);
    e->shown[i].busy = false;
    e->state.running--;
    pthread_mutex_unlock(&e->lock);
  }
}

// Removes the job from the list, and its choices from their slots.
static void take_out(engine *e, job *j) {
  size_t waiting = weight_of(j);
  for (job **at = &e->jobs; *at; at = &(*at)->next) {
    if (*at != j) continue;
    *at = j->next;
    break;
  }
  e->last = &e->jobs;
  while (*e->last) e->last = &(*e->last)->next;
  for (size_t i = 0; i < j->n_choices; i++) free_place(e, &j->choices[i]);
  pthread_mutex_lock(&e->lock);
  e->waiting -= waiting;
  pthread_mutex_unlock(&e->lock);
}

static void end_job(engine *e, job *j, const problem *p) {
  take_out(e, j);
  if (p)
    job_fail(j, p);
  else
    job_finish(j);
}

static void unavailable(problem *p, const char *why) {
  fail(p, MHD_HTTP_SERVICE_UNAVAILABLE, "unavailable_error", NULL, "%s", why);
  p->retry_after = 1;
}

// Ends jobs whose clients disconnected and, when the server shuts down, those that have not begun.
static void drop_what_ends(engine *e) {
  problem p = {0};
  for (job *j = e->jobs, *next; j; j = next) {
    next = j->next;
    bool begun = false;
    for (size_t i = 0; i < j->n_choices; i++) begun = begun || j->choices[i].state != CHOICE_WAITING;
    if (atomic_load(&j->x->gone)) {
      take_out(e, j);
      job_free(j);
      pthread_mutex_lock(&e->lock);
      e->state.canceled++;
      pthread_mutex_unlock(&e->lock);
    } else if (e->draining && !begun) {
      unavailable(&p, "the server is shutting down");
      end_job(e, j, &p);
    }
  }
}

// ---- places ----

static bool can_begin(const job *j, const choice *c) {
  const choice *first = &j->choices[(size_t)c->prompt * (size_t)j->g.n];
  // Further choices of a prompt wait until the first one has computed it.
  return c->state == CHOICE_WAITING && (c == first || first->state >= CHOICE_TEXT);
}

// The job with the fewest slots gets the next one; among several, the oldest.
static choice *next_choice(engine *e) {
  choice *best = NULL;
  size_t fewest = SIZE_MAX;
  for (job *j = e->jobs; j; j = j->next) {
    choice *candidate = NULL;
    size_t places = 0;
    for (size_t i = 0; i < j->n_choices; i++) {
      choice *c = &j->choices[i];
      places += c->state == CHOICE_PROMPT || c->state == CHOICE_TEXT;
      if (!candidate && can_begin(j, c)) candidate = c;
    }
    if (candidate && places < fewest) best = candidate, fewest = places;
  }
  return best;
}

// The sequence that a choice begins with: what the first choice of its prompt computed, a cached prefix, or nothing.
static setun_status take_sequence(engine *e, choice *c, setun_error *error) {
  const job *j = c->job;
  const prompt *text = &j->prompts[c->prompt];
  const choice *first = &j->choices[(size_t)c->prompt * (size_t)j->g.n];
  uint32_t position = 0;
  setun_status s;
  if (j->embed) {
    s = setun_context_add(e->context, &c->sequence, error);
  } else if (c != first && first->sequence >= 0 && !text->logprobs) {
    position = (uint32_t)text->n - 1;
    s = setun_context_fork(e->context, first->sequence, &c->sequence, error);
    if (s == SETUN_OK) s = setun_context_truncate(e->context, c->sequence, position, error);
  } else if (text->logprobs || !j->g.use_cache || e->server->options.no_shared_prefix) {
    s = setun_context_add(e->context, &c->sequence, error);
  } else {
    s = setun_context_reuse(e->context, text->ids, text->n, &c->sequence, &position, error);
  }
  c->done = c->cached = position;
  pthread_mutex_lock(&e->lock);
  e->state.cached_tokens += position;
  pthread_mutex_unlock(&e->lock);
  return s;
}

static void admit(engine *e) {
  choice *c;
  for (uint32_t i = 0; i < e->n_slots; i++) {
    setun_error error;
    problem p = {0};
    if (e->slots[i] || !(c = next_choice(e))) continue;
    size_t before = weight_of(c->job);
    c->state = CHOICE_PROMPT;
    pthread_mutex_lock(&e->lock);
    e->waiting -= before - weight_of(c->job);
    e->state.running++;
    pthread_mutex_unlock(&e->lock);
    c->began = now_seconds();
    e->slots[i] = c;
    setun_status s = take_sequence(e, c, &error);
    bool fine =
        s == SETUN_OK ? c->job->embed || choice_open(c, &p) : fail(&p, 500, "server_error", NULL, "%s", error.message);
    if (!fine)
      end_job(e, c->job, &p);
    else if (c->job->g.stream && c->job->g.progress)
      c->job->format->piece(c->job, c);
  }
}

// ---- a pass ----

static size_t left_of(const choice *c) {
  return c->job->prompts[c->prompt].n - c->done;
}

// Whether a choice's prompt is computed before another's.
static bool comes_before(const choice *a, const choice *b) {
  return left_of(a) != left_of(b) ? left_of(a) < left_of(b) : a->began < b->began;
}

// Lists the slots whose prompts are being computed, those with the fewest remaining tokens first, which minimizes the
// average time to the first token. Returns their number; *oldest is the one that began first.
static size_t sort_prompts(engine *e, const choice **oldest) {
  size_t n = 0;
  *oldest = NULL;
  for (uint32_t i = 0; i < e->n_slots; i++) {
    const choice *c = e->slots[i];
    if (!c || c->state != CHOICE_PROMPT) continue;
    size_t at = n++;
    for (; at && comes_before(c, e->slots[e->order[at - 1]]); at--) e->order[at] = e->order[at - 1];
    e->order[at] = i;
    if (!*oldest || c->began < (*oldest)->began) *oldest = c;
  }
  return n;
}

// Adds the next tokens of a prompt, at most `share`, with logits for `rows` of them in addition to the last. Returns
// their number.
static size_t take_prompt(const engine *e, const choice *c, size_t share, size_t *rows, setun_batch_entry *entry) {
  const prompt *text = &c->job->prompts[c->prompt];
  size_t left = left_of(c), n = left < share ? left : share;
  setun_logits mode = n < left ? SETUN_LOGITS_NONE : SETUN_LOGITS_LAST;
  if (c->job->embed) {
    mode = SETUN_LOGITS_POOL;
    if (e->server->embeddings.bidirectional) n = left;
  } else if (text->logprobs && n) {
    if (n > *rows + 1) n = *rows + 1;
    *rows -= n - 1;
    mode = SETUN_LOGITS_ALL;
  }
  *entry = (setun_batch_entry){.sequence = c->sequence, .logits = mode, .ids = text->ids + c->done, .n = n};
  return n;
}

// Fills the entries of the next pass: the next token of every text, with those that must follow it, then tokens of the
// prompts within the budget. A quarter of the budget is reserved for the prompt that began first, so that shorter ones
// cannot delay it forever. Returns the number of entries.
static size_t plan_pass(engine *e) {
  const choice *oldest;
  size_t n = 0, tokens = 0, prompts = sort_prompts(e, &oldest);
  for (uint32_t i = 0; i < e->n_slots; i++) {
    const choice *c = e->slots[i];
    if (!c || c->state != CHOICE_TEXT) continue;
    e->owners[n] = i;
    e->entries[n++] =
        (setun_batch_entry){.sequence = c->sequence, .logits = SETUN_LOGITS_LAST, .ids = c->next, .n = c->n_next};
    tokens += c->n_next;
  }
  size_t budget = n ? e->server->options.prefill_budget : e->n_batch, rows = e->n_logits - n - prompts;
  if (budget + tokens > e->n_batch) budget = e->n_batch > tokens ? e->n_batch - tokens : 1;
  size_t kept = (budget + 3) / 4;
  if (oldest && left_of(oldest) < kept) kept = left_of(oldest);
  for (size_t k = 0; k < prompts; k++) {
    const choice *c = e->slots[e->order[k]];
    if (c == oldest) kept = 0;
    size_t taken = take_prompt(e, c, budget > kept ? budget - kept : 0, &rows, &e->entries[n]);
    budget -= taken < budget ? taken : budget;
    if (taken) e->owners[n++] = e->order[k];
  }
  return n;
}

// A setun_progress_fn.
static bool go_on(double fraction, void *user) {
  engine *e = user;
  (void)fraction;
  return !atomic_load(&e->stop);
}

static void end_choice(engine *e, choice *c) {
  job *j = c->job;
  if (j->embed)
    c->state = CHOICE_ENDED;
  else
    choice_finish(c);
  free_place(e, c);
  if (j->g.stream && j->format->end) j->format->end(j, c);
  pthread_mutex_lock(&e->lock);
  e->state.answers++;
  pthread_mutex_unlock(&e->lock);
  if (!--j->open) end_job(e, j, NULL);
}

// Handles what a pass computed for an entry.
static void take_result(engine *e, size_t entry) {
  choice *c = e->slots[e->owners[entry]];
  const setun_batch_entry *b = &e->entries[entry];
  problem p = {0};
  bool fine = true;
  size_t last = 0;
  if (!c) return; // its job ended in this pass
  if (c->state == CHOICE_PROMPT) {
    const prompt *text = &c->job->prompts[c->prompt];
    size_t before = c->done;
    c->done += b->n;
    if (text->logprobs) {
      last = b->n - 1;
      for (size_t i = 0; fine && i < b->n && before + i + 1 < text->n; i++)
        fine = choice_take_prompt(c, before + i, setun_context_logits(e->context, entry, i), &p);
    }
    if (c->done == text->n) c->state = CHOICE_TEXT;
  }
  if (c->job->embed) {
    fine = c->state != CHOICE_TEXT || choice_embed(c, e->context, &p);
  } else if (fine && c->state == CHOICE_TEXT) {
    fine = choice_draw(c, setun_context_logits(e->context, entry, last), &p);
  }
  if (!fine)
    end_job(e, c->job, &p);
  else if (c->end)
    end_choice(e, c);
  else if (c->job->g.stream)
    c->job->format->piece(c->job, c);
}

static void count_pass(engine *e, size_t n, double seconds) {
  size_t tokens = 0, drawn = 0, prompts = 0;
  for (size_t i = 0; i < n; i++) {
    const choice *c = e->slots[e->owners[i]];
    if (!c) continue;
    if (c->state == CHOICE_PROMPT) tokens += e->entries[i].n, prompts++;
    drawn += !c->job->embed && (c->state == CHOICE_TEXT || c->done + e->entries[i].n == c->job->prompts[c->prompt].n);
  }
  pthread_mutex_lock(&e->lock);
  e->state.passes++;
  e->state.beside_compiling += compiler_is_busy(e->server->compiler);
  e->state.places += n;
  e->state.prompt_tokens += tokens;
  e->state.drawn_tokens += drawn;
  *(prompts ? &e->state.prompt_seconds : &e->state.drawing_seconds) += seconds;
  pthread_mutex_unlock(&e->lock);
}

static void show_slots(engine *e) {
  setun_context_info info = {.size = sizeof info};
  setun_context_get_info(e->context, &info, NULL);
  pthread_mutex_lock(&e->lock);
  e->state.pages = info.pages;
  e->state.pages_used = info.pages_used;
  e->state.pages_kept = info.pages_kept;
  e->state.running = 0;
  for (uint32_t i = 0; i < e->n_slots; i++) {
    const choice *c = e->slots[i];
    slot_state *to = &e->shown[i];
    to->busy = c != NULL;
    if (!c) continue;
    e->state.running++;
    to->drawing = c->state == CHOICE_TEXT;
    to->prompt = (uint32_t)c->job->prompts[c->prompt].n;
    to->cached = (uint32_t)c->cached;
    to->done = (uint32_t)c->done;
    to->drawn = (uint32_t)c->n_ids;
    memcpy(to->id, c->job->id, sizeof to->id);
  }
  pthread_mutex_unlock(&e->lock);
}

static void fail_all(engine *e, const problem *p) {
  while (e->jobs) end_job(e, e->jobs, p);
}

static void pass(engine *e) {
  setun_eval_params params = setun_eval_params_default();
  setun_error error;
  problem p = {0};
  params.progress = go_on;
  params.user = e;
  size_t n = plan_pass(e);
  if (!n) return;
  double begin = now_seconds();
  setun_status s = setun_context_eval(e->context, e->entries, n, &params, &error);
  if (s == SETUN_OK) {
    count_pass(e, n, now_seconds() - begin);
    for (size_t i = 0; i < n; i++) take_result(e, i);
    return;
  }
  if (atomic_load(&e->stop)) return;
  // After a failure the sequences no longer match their choices.
  fail(&p, MHD_HTTP_INTERNAL_SERVER_ERROR, "server_error", NULL, "%s", error.message);
  for (uint32_t i = 0; i < e->n_slots; i++) {
    if (e->slots[i]) end_job(e, e->slots[i]->job, &p);
  }
}

// ---- the thread ----

// Takes new jobs; waits if there is nothing to do. False: the engine is to stop.
static bool receive(engine *e) {
  pthread_mutex_lock(&e->lock);
  while (!e->jobs && !e->inbox && !atomic_load(&e->stop)) pthread_cond_wait(&e->some, &e->lock);
  if (e->inbox) {
    *e->last = e->inbox;
    e->last = e->inbox_last;
    e->inbox = NULL;
    e->inbox_last = &e->inbox;
  }
  e->draining = e->drain;
  pthread_mutex_unlock(&e->lock);
  return !atomic_load(&e->stop);
}

static void *work(void *cls) {
  engine *e = cls;
  problem p = {0};
  while (receive(e)) {
    drop_what_ends(e);
    admit(e);
    show_slots(e);
    pass(e);
    if (!e->jobs) show_slots(e);
  }
  receive(e);
  unavailable(&p, "the server is shutting down");
  fail_all(e, &p);
  return NULL;
}

bool engine_add(engine *e, job *j, problem *p) {
  bool room;
  pthread_mutex_lock(&e->lock);
  // If the queue is empty, a request is accepted whatever its size.
  size_t running = e->state.running, places = e->n_slots - running;
  room = e->waiting + weight_of(j) <= e->server->options.queue_limit + places || (!e->waiting && !running);
  if (atomic_load(&e->stop) || e->drain) {
    unavailable(p, "the server is shutting down");
  } else if (!room) {
    e->state.refused++;
    unavailable(p, "the queue is full");
  } else {
    if (j->g.stream) exchange_stream(j->x);
    if (j->g.stream && j->format->begin) j->format->begin(j);
    e->waiting += weight_of(j);
    j->next = NULL;
    *e->inbox_last = j;
    e->inbox_last = &j->next;
    pthread_cond_signal(&e->some);
  }
  pthread_mutex_unlock(&e->lock);
  return !p->status;
}

static setun_status make_lists(engine *e, setun_error *error) {
  e->slots = calloc(e->n_slots, sizeof *e->slots);
  e->shown = calloc(e->n_slots, sizeof *e->shown);
  e->entries = calloc(e->n_slots, sizeof *e->entries);
  e->owners = calloc(e->n_slots, sizeof *e->owners);
  e->order = calloc(e->n_slots, sizeof *e->order);
  e->started =
      e->slots && e->shown && e->entries && e->owners && e->order && !pthread_create(&e->thread, NULL, work, e);
  if (e->started) return SETUN_OK;
  if (error) *error = (setun_error){SETUN_ERROR_MEMORY, "out of memory for the engine"};
  return SETUN_ERROR_MEMORY;
}

setun_status engine_new(server *s, const setun_context_params *params, engine **made, setun_error *error) {
  setun_context_info info = {.size = sizeof info};
  engine *e = calloc(1, sizeof *e);
  if (!e) {
    if (error) *error = (setun_error){SETUN_ERROR_MEMORY, "out of memory for the engine"};
    return SETUN_ERROR_MEMORY;
  }
  e->server = s;
  e->last = &e->jobs;
  e->inbox_last = &e->inbox;
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->some, NULL);
  setun_status status = setun_context_new(s->model, params, &e->context, error);
  if (status == SETUN_OK) status = setun_context_get_info(e->context, &info, error);
  s->n_ctx = s->n_embed = info.n_ctx;
  if (s->embeddings.n_ctx < s->n_embed) s->n_embed = s->embeddings.n_ctx;
  if (s->embeddings.bidirectional && info.n_batch < s->n_embed) s->n_embed = info.n_batch;
  s->n_slots = e->n_slots = e->state.n_slots = info.n_seq_max;
  e->n_batch = info.n_batch;
  e->n_logits = info.n_logits;
  s->n_forced = e->n_slots && e->n_batch / e->n_slots > 1 ? e->n_batch / e->n_slots - 1 : 0;
  if (s->n_forced > FORCED_MOST) s->n_forced = FORCED_MOST;
  if (status == SETUN_OK) status = make_lists(e, error);
  if (status == SETUN_OK)
    *made = e;
  else
    engine_free(e);
  return status;
}

void engine_drain(engine *e) {
  pthread_mutex_lock(&e->lock);
  e->drain = true;
  pthread_cond_signal(&e->some);
  pthread_mutex_unlock(&e->lock);
}

bool engine_busy(engine *e) {
  pthread_mutex_lock(&e->lock);
  bool busy = e->waiting || e->inbox || e->state.running;
  pthread_mutex_unlock(&e->lock);
  return busy;
}

void engine_stop(engine *e) {
  if (!e->started) return;
  pthread_mutex_lock(&e->lock);
  atomic_store(&e->stop, true);
  setun_context_stop(e->context);
  pthread_cond_signal(&e->some);
  pthread_mutex_unlock(&e->lock);
  pthread_join(e->thread, NULL);
  e->started = false;
}

void engine_free(engine *e) {
  if (!e) return;
  setun_context_free(e->context);
  free(e->slots);
  free(e->shown);
  free(e->entries);
  free(e->owners);
  free(e->order);
  pthread_cond_destroy(&e->some);
  pthread_mutex_destroy(&e->lock);
  free(e);
}

void engine_look(engine *e, engine_state *state, slot_state *slots) {
  pthread_mutex_lock(&e->lock);
  *state = e->state;
  state->waiting = (uint32_t)e->waiting;
  if (slots) memcpy(slots, e->shown, e->n_slots * sizeof *slots);
  pthread_mutex_unlock(&e->lock);
}
