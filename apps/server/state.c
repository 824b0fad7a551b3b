// The server's state: /props, /slots, /metrics.
#include "compiler.h"
#include "engine.h"
#include "models.h"
#include "replies.h"
#include "routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void handle_props(server *s, exchange *x) {
  st_json *root = st_json_new();
  st_json defaults = st_json_make_object(), modalities = st_json_make_object(), caps = st_json_make_object();
  generation g;
  size_t n = 0;
  const char *text = setun_chat_text(s->chat, &n);
  generation_default(s, &g);
  put(root, &defaults, "params", settings_value(root, &g));
  put_integer(root, &defaults, "n_ctx", s->n_ctx);
  put(root, root, "default_generation_settings", defaults);
  put_integer(root, root, "total_slots", s->n_slots);
  put_text(root, root, "model_alias", s->about->name);
  put_text(root, root, "model_path", s->about->file);
  put_bool(root, &modalities, "vision", false);
  put_bool(root, &modalities, "audio", false);
  put(root, root, "modalities", modalities);
  put_bytes(root, root, "chat_template", text ? text : "", n);
  put_bool(root, &caps, "supports_tools", s->chat != NULL);
  put(root, root, "chat_template_caps", caps);
  put_token_text(s, root, "bos_token", setun_token_bos(s->model));
  put_token_text(s, root, "eos_token", setun_token_eos(s->model));
  put_text(root, root, "build_info", s->fingerprint);
  put_bool(root, root, "is_sleeping", false);
  reply_json(x, root);
}

// Answers that the server was started without this endpoint.
static bool is_off(exchange *x, bool off, const char *option) {
  problem p = {0};
  if (!off) return false;
  fail(&p, MHD_HTTP_NOT_IMPLEMENTED, "not_supported_error", NULL, "this server was started with %s", option);
  reply_problem(x, &p);
  return true;
}

void handle_slots(server *s, exchange *x) {
  if (is_off(x, s->options.no_slots, "--no-slots")) return;
  st_json *root = st_json_new();
  st_json list = st_json_make_array();
  engine_state state;
  slot_state *slots = calloc(s->n_slots, sizeof *slots);
  engine_look(s->engine, &state, slots);
  for (uint32_t i = 0; slots && i < s->n_slots; i++) {
    st_json value = st_json_make_object(), next = st_json_make_object();
    put_integer(root, &value, "id", i);
    put_integer(root, &value, "n_ctx", s->n_ctx);
    put_bool(root, &value, "speculative", false);
    put_bool(root, &value, "is_processing", slots[i].busy);
    if (slots[i].busy) {
      put_text(root, &value, "id_task", slots[i].id);
      put_integer(root, &value, "n_prompt_tokens", slots[i].prompt);
      put_integer(root, &value, "n_prompt_tokens_processed", slots[i].done - slots[i].cached);
      put_integer(root, &value, "n_prompt_tokens_cache", slots[i].cached);
      put_bool(root, &next, "has_next_token", true);
      put_integer(root, &next, "n_decoded", slots[i].drawn);
      put(root, &value, "next_token", next);
    }
    push(root, &list, value);
  }
  free(slots);
  if (root) *root = list;
  reply_json(x, root);
}

// ---- metrics ----

typedef struct metric {
  const char *prefix, *name, *kind, *help;
  double value;
} metric;

enum { METRICS = 23 };

// The metrics of a model.
static void measure(const server *s, metric metrics[METRICS]) {
  engine_state e;
  engine_look(s->engine, &e, NULL);
  const double drawing = e.drawing_seconds, prompts = e.prompt_seconds;
  const double occupied = e.passes ? (double)e.places / (double)e.passes : 0;
  const double reading = prompts > 0 ? (double)e.prompt_tokens / prompts : 0;
  const double writing = drawing > 0 ? (double)e.drawn_tokens / drawing : 0;
  static const char shared[] = "llamacpp", own[] = "setun";
  const metric all[METRICS] = {
      {shared, "prompt_tokens_total", "counter", "Prompt tokens that were computed.", (double)e.prompt_tokens},
      {shared, "prompt_tokens_cached_total", "counter", "Prompt tokens that were in the cache.",
       (double)e.cached_tokens},
      {shared, "prompt_seconds_total", "counter", "Seconds spent in passes with prompt tokens.", prompts},
      {shared, "tokens_predicted_total", "counter", "Tokens that were generated.", (double)e.drawn_tokens},
      {shared, "tokens_predicted_seconds_total", "counter", "Seconds spent in passes without prompt tokens.", drawing},
      {shared, "n_decode_total", "counter", "Passes.", (double)e.passes},
      {shared, "n_tokens_max", "counter", "The most tokens that a sequence may have.", s->n_ctx},
      {shared, "n_busy_slots_per_decode", "gauge", "Sequences in a pass, on average.", occupied},
      {shared, "prompt_tokens_seconds", "gauge", "Prompt tokens per second.", reading},
      {shared, "predicted_tokens_seconds", "gauge", "Generated tokens per second.", writing},
      {shared, "requests_processing", "gauge", "Answers being computed.", e.running},
      {shared, "requests_deferred", "gauge", "Answers waiting in the queue.", e.waiting},
      {shared, "spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", 0},
      {shared, "spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens that were accepted.", 0},
      {shared, "spec_decode_num_drafts_total", "counter", "Times that tokens were drafted.", 0},
      {own, "slots", "gauge", "Slots of the batch.", e.n_slots},
      {own, "answers_total", "counter", "Answers finished.", (double)e.answers},
      {own, "requests_canceled_total", "counter", "Requests whose clients disconnected.", (double)e.canceled},
      {own, "requests_refused_total", "counter", "Requests refused because the queue was full.", (double)e.refused},
      {own, "passes_beside_compiling_total", "counter", "Passes computed while a constraint was being compiled.",
       (double)e.beside_compiling},
      {own, "cache_pages", "gauge", "Pages of the KV cache.", (double)e.pages},
      {own, "cache_pages_used", "gauge", "Pages of sequences that are computed.", (double)e.pages_used},
      {own, "cache_pages_kept", "gauge", "Pages kept for prompts that begin the same.", (double)e.pages_kept},
  };
  memcpy(metrics, all, sizeof all);
}

typedef struct metrics_text {
  st_buffer text;
  size_t which;  // index of the metric: the values of all models for one metric are adjacent
  bool labelled; // with the models' names, if there may be several
  bool fine, headed;
} metrics_text;

// `{model="name"}`.
static bool write_label(st_buffer *text, const char *name) {
  bool fine = st_buffer_text(text, "{model=\"");
  for (; fine && *name; name++) {
    const char *guard = strchr("\\\"", *name) ? "\\" : "";
    fine = *name == '\n' ? st_buffer_text(text, "\\n") : st_buffer_format(text, "%s%c", guard, *name);
  }
  return fine && st_buffer_text(text, "\"}");
}

static void write_metric(const server_model *about, bool loading, server *s, void *user) {
  metrics_text *t = user;
  metric all[METRICS];
  (void)loading;
  if (!s || !t->fine) return;
  measure(s, all);
  const metric *m = &all[t->which];
  if (!t->headed)
    t->fine = st_buffer_format(&t->text, "# HELP %s:%s %s\n# TYPE %s:%s %s\n", m->prefix, m->name, m->help, m->prefix,
                               m->name, m->kind);
  t->headed = true;
  t->fine = t->fine && st_buffer_format(&t->text, "%s:%s", m->prefix, m->name);
  if (t->labelled) t->fine = t->fine && write_label(&t->text, about->name);
  t->fine = t->fine && st_buffer_format(&t->text, " %.17g\n", m->value);
}

// Those of all models together.
static void write_constraints(compiler *c, metrics_text *t) {
  compiler_state state;
  compiler_look(c, &state);
  const metric all[] = {
      {"setun", "constraints_compiled_total", "counter", "Constraints compiled.", (double)state.compiled},
      {"setun", "constraints_reused_total", "counter", "Requests whose constraint was kept from an earlier one.",
       (double)state.found},
      {"setun", "constraints_waiting", "gauge", "Requests that wait for theirs.", state.waiting},
      {"setun", "constraints_kept", "gauge", "Constraints in memory.", state.kept},
      {"setun", "constraints_bytes", "gauge", "Their memory.", (double)state.bytes},
  };
  for (size_t i = 0; t->fine && i < sizeof all / sizeof *all; i++) {
    const metric *m = &all[i];
    t->fine = st_buffer_format(&t->text, "# HELP %s:%s %s\n# TYPE %s:%s %s\n%s:%s %.17g\n", m->prefix, m->name, m->help,
                               m->prefix, m->name, m->kind, m->prefix, m->name, m->value);
  }
}

void handle_metrics(server *s, exchange *x) {
  problem p = {0};
  char started[24];
  metrics_text t = {.labelled = models_are_chosen(s->models), .fine = true};
  if (is_off(x, s->options.no_metrics, "--no-metrics")) return;
  for (t.which = 0; t.which < METRICS; t.which++) {
    t.headed = false;
    models_each(s->models, write_metric, &t);
  }
  write_constraints(s->compiler, &t);
  if (t.fine) {
    snprintf(started, sizeof started, "%lld", (long long)s->started);
    exchange_header(x, "Process-Start-Time-Unix", started);
    exchange_reply(x, MHD_HTTP_OK, "text/plain; version=0.0.4", &t.text);
  } else {
    st_buffer_free(&t.text);
    fail_memory(&p);
    reply_problem(x, &p);
  }
}
