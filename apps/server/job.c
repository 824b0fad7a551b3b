// Jobs: creating them, checking that they fit, ending them.
#define _POSIX_C_SOURCE 200809L
#include "job.h"

#include "calls.h"
#include "compiler.h"
#include "constraints.h"
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHOICES_OF_A_JOB_MOST = 4096 };

job *job_new(server *s, exchange *x, const job_format *format, const char *id_prefix) {
  static atomic_uint_fast64_t count;
  job *j = calloc(1, sizeof *j);
  if (!j) return NULL;
  if (x) exchange_keep(x);
  j->server = s;
  j->x = x;
  j->format = format;
  j->created = time(NULL);
  j->submitted = now_seconds();
  uint64_t number = atomic_fetch_add(&count, 1);
  snprintf(j->id, sizeof j->id, "%s%llx%08llx", id_prefix, (unsigned long long)s->started, (unsigned long long)number);
  generation_default(s, &j->g);
  return j;
}

void job_free(job *j) {
  if (!j) return;
  for (size_t i = 0; i < j->n_choices; i++) {
    choice *c = &j->choices[i];
    choice_close(c);
    st_buffer_free(&c->text);
    st_buffer_free(&c->reasoning);
    st_buffer_free(&c->held);
    calls_free(c);
    free(c->ids);
    free(c->entries);
    free(c->tops);
    free(c->vector);
  }
  for (size_t i = 0; i < j->n_prompts; i++) free(j->prompts[i].ids);
  free(j->prompts);
  free(j->choices);
  setun_rendering_free(j->rendering);
  compiler_release(j->server->compiler, j->compiled);
  constraint_request_free(j->request);
  free(j->tool_name);
  st_json_free(j->asked);
  generation_free(&j->g);
  exchange_release(j->x);
  free(j);
}

bool job_add_prompt(job *j, setun_token *ids, size_t n, problem *p) {
  prompt *grown = realloc(j->prompts, (j->n_prompts + 1) * sizeof *grown);
  if (!grown) {
    free(ids);
    return fail_memory(p);
  }
  j->prompts = grown;
  grown[j->n_prompts++] = (prompt){.ids = ids, .n = n};
  return true;
}

setun_token *prompt_tokens_of(const server *s, const char *text, size_t length, int flags, size_t *n, problem *p) {
  setun_error error;
  size_t room = length + 2; // every token except BOS has at least one byte
  setun_token *ids = malloc((room + 1) * sizeof *ids);
  if (!ids) {
    fail_memory(p);
    return NULL;
  }
  setun_status status = setun_tokenize(s->model, text, length, flags, ids, room, n, &error);
  if (status == SETUN_OK && *n > room) {
    room = *n;
    setun_token *grown = realloc(ids, (room + 1) * sizeof *ids);
    if (grown) ids = grown;
    if (grown) status = setun_tokenize(s->model, text, length, flags, ids, room, n, &error);
    if (!grown) *n = 0;
  }
  if (status == SETUN_OK) return ids;
  free(ids);
  fail_with(p, NULL, &error);
  return NULL;
}

static bool check_prompt(const job *j, const prompt *one, problem *p) {
  const server *s = j->server;
  uint32_t n_ctx = j->embed ? s->n_embed : s->n_ctx;
  const char *what = j->embed ? "input" : "prompt";
  if (!one->n) return invalid(p, what, "the %s is empty, and the model has no token that begins a text", what);
  if (!j->embed && s->embeddings.no_text) {
    return invalid(p, "model", "the model computes embeddings and generates no text: see /v1/embeddings");
  }
  if (one->n < n_ctx || (j->embed && one->n == n_ctx)) return true;
  fail(p, MHD_HTTP_BAD_REQUEST, "exceed_context_size_error", NULL,
       j->embed ? "the input (%zu tokens) is too large: a text may have %u tokens"
                : "the prompt (%zu tokens) exceeds the available context size (%u tokens, one of them for the answer)",
       one->n, (unsigned)n_ctx);
  p->code = "context_length_exceeded";
  p->n_prompt_tokens = (int64_t)one->n;
  p->n_ctx = n_ctx;
  return false;
}

// A seed that is unique to the request, and that the reply can report.
static uint64_t new_seed(const job *j) {
  static atomic_uint_fast64_t count;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  uint64_t mixed = ((uint64_t)t.tv_sec * 1000000007u + (uint64_t)t.tv_nsec) ^ atomic_fetch_add(&count, 1) << 20 ^
                   (uint64_t)(uintptr_t)j;
  mixed *= 0x9E3779B97F4A7C15u;
  return mixed >> 33; // small enough for the number types of all clients
}

static bool make_choices(job *j, problem *p) {
  size_t n = (size_t)j->g.n;
  const uint32_t most = j->server->options.answer_limit;
  if (most && (j->g.max_tokens < 0 || (uint32_t)j->g.max_tokens > most)) j->g.max_tokens = (int32_t)most;
  if (!j->g.seeded) j->g.sampling.seed = new_seed(j);
  if (j->n_prompts * n > CHOICES_OF_A_JOB_MOST)
    return invalid(p, "n", "expected at most %d answers in all, found %zu", CHOICES_OF_A_JOB_MOST, j->n_prompts * n);
  j->choices = calloc(j->n_prompts * n, sizeof *j->choices);
  if (!j->choices) return fail_memory(p);
  j->n_choices = j->open = j->n_prompts * n;
  for (size_t i = 0; i < j->n_choices; i++) {
    j->choices[i] = (choice){.job = j, .index = (uint32_t)i, .prompt = (uint32_t)(i / n), .sequence = -1};
  }
  return true;
}

// Creates the choices, and checks that everything fits.
static bool complete(job *j, problem *p) {
  bool fine = j->n_prompts || invalid(p, "prompt", "expected a prompt, found none");
  for (size_t i = 0; fine && i < j->n_prompts; i++) fine = check_prompt(j, &j->prompts[i], p);
  return fine && make_choices(j, p);
}

void job_submit(job *j) {
  problem p = {0};
  if (engine_add(j->server->engine, j, &p)) return;
  reply_problem(j->x, &p);
  job_free(j);
}

void start_job(server *s, exchange *x, const job_format *format, const char *id_prefix, read_fn read) {
  problem p = {0};
  st_json *body = read_body(x, &p);
  job *j = body ? job_new(s, x, format, id_prefix) : NULL;
  bool fine = body && (j ? read(j, body, &p) && complete(j, &p) : fail_memory(&p));
  if (fine && j->keep_asked) {
    j->asked = body;
    body = NULL;
  }
  st_json_free(body);
  if (fine && j->request) {
    compiler_submit(s->compiler, j);
  } else if (fine) {
    job_submit(j);
  } else {
    job_free(j);
    reply_problem(x, &p);
  }
}

void reply_count(server *s, exchange *x, read_fn read) {
  problem p = {0};
  st_json *body = read_body(x, &p), *root = NULL;
  job *j = body ? job_new(s, x, NULL, "") : NULL;
  bool fine = body && (j ? read(j, body, &p) : fail_memory(&p));
  size_t n = 0;
  for (size_t i = 0; fine && i < j->n_prompts; i++) n += j->prompts[i].n;
  st_json_free(body);
  job_free(j);
  if (fine && (root = st_json_new())) {
    put_integer(root, root, "input_tokens", (int64_t)n);
    reply_json(x, root);
  } else {
    if (fine) fail_memory(&p);
    reply_problem(x, &p);
  }
}

// ---- the end ----

void job_finish(job *j) {
  if (!atomic_load(&j->x->gone)) j->format->finish(j);
  if (j->g.stream) exchange_end(j->x);
  job_free(j);
}

void job_fail(job *j, const problem *p) {
  if (!j->g.stream) {
    reply_problem(j->x, p);
  } else if (j->format->failed) {
    j->format->failed(j, p);
  } else {
    st_json *root = st_json_new();
    put(root, root, "error", root ? problem_value(root, p) : st_json_make_null());
    send_event(j->x, NULL, root);
  }
  if (j->g.stream) exchange_end(j->x);
  job_free(j);
}

// ---- for formats ----

const char *finish_reason(const choice *c) {
  if (c->end != END_TOKEN && c->end != END_STOP) return "length";
  return c->n_calls ? "tool_calls" : "stop";
}

usage job_usage(const job *j) {
  usage u = {0};
  for (size_t i = 0; i < j->n_prompts; i++) u.prompt += j->prompts[i].n;
  for (size_t i = 0; i < j->n_choices; i++) {
    if (i % (size_t)j->g.n == 0) u.cached += j->choices[i].cached;
    u.drawn += j->choices[i].n_ids;
  }
  return u;
}
