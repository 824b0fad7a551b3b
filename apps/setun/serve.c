// The command `serve`: the HTTP server, from its options to its orderly end.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "sampling.h"
#include "serve_models.h"
#include "server/server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KEYS_MOST = LIST_MOST };

typedef struct serve_options {
  model_options model;
  compute_options compute;
  sampling_options sampling;
  const char *host, *key_file, *models, *template_file, *pooling;
  text_list keys, hosts, origins, names;
  int64_t port, parallel, ctx, queue, prefill_budget, answer_limit;
  uint64_t body_limit, constraint_memory;
  bool no_shared_prefix, no_slots, no_metrics, verbose;
} serve_options;

#define AT(member) offsetof(serve_options, member)
static const option rows[] = {
    {0, "host", OPTION_TEXT, AT(host), "ADDRESS", 0, 0, "listen on this address (default 127.0.0.1; 0.0.0.0: all)"},
    {0, "port", OPTION_INTEGER, AT(port), "N", 0, 65535, "listen on this port (default 8080; 0: any free one)"},
    {0, "api-key", OPTION_LIST, AT(keys), "KEY", 1, KEYS_MOST,
     "requests need this key; may be given several times, for several valid keys"},
    {0, "api-key-file", OPTION_FILE, AT(key_file), "FILE", 0, 0,
     "a file of keys, one per line; empty lines and those that begin with # are ignored"},
    {0, "allow-host", OPTION_LIST, AT(hosts), "NAME", 1, 0,
     "a name by which clients may reach the server, in addition to addresses and localhost; may be given several "
     "times"},
    {0, "allow-origin", OPTION_LIST, AT(origins), "ORIGIN", 1, 0,
     "pages of this origin, such as http://example.com:3000, may use the server; *: all; may be given several times"},
    {0, "models", OPTION_FILE, AT(models), "DIR", 0, 0,
     "serve all models in this folder instead of MODEL, by name; each is loaded when it is first requested, and "
     "--memory is for all of them together"},
    {'a', "alias", OPTION_LIST, AT(names), "NAME", 1, 0,
     "the name that clients see (default: the file's name); with --models NAME=MODEL, another name for one of them; "
     "may then be given several times"},
    {0, "template", OPTION_FILE, AT(template_file), "FILE", 0, 0, "this chat template instead of the model's own"},
    {0, "parallel", OPTION_INTEGER, AT(parallel), "N", 1, 256, "answers computed at once (default 4)"},
    {'c', "ctx", OPTION_INTEGER, AT(ctx), "N", 1, INT32_MAX,
     "tokens of each answer with its prompt (default: the model's, at most 4096); not shared by the --parallel "
     "answers"},
    {'n', NULL, OPTION_INTEGER, AT(answer_limit), "N", 1, INT32_MAX - 1,
     "the most tokens that an answer may have (default: as many as fit into the context)"},
    {0, "queue", OPTION_INTEGER, AT(queue), "N", 0, 65536,
     "answers that may wait to be computed; requests beyond them get status 503 (default 256)"},
    {0, "prefill-budget", OPTION_INTEGER, AT(prefill_budget), "N", 1, 65536,
     "prompt tokens that a pass takes while other answers are being generated (default 128)"},
    POOLING_ROW(serve_options),
    {0, "no-shared-prefix", OPTION_FLAG, AT(no_shared_prefix), NULL, 0, 0,
     "compute every prompt from its beginning, so that the time it takes reveals nothing about other clients' prompts"},
    {0, "body-limit", OPTION_SIZE, AT(body_limit), "SIZE", 1024, 0x1p31, "the largest request (default 16M)"},
    {0, "constraint-memory", OPTION_SIZE, AT(constraint_memory), "SIZE", 1 << 20, 0x1p40,
     "memory for compiled constraints, which are kept for further requests; each may take a third of it (default "
     "64M, or a sixteenth of --memory if that is less)"},
    {0, "no-slots", OPTION_FLAG, AT(no_slots), NULL, 0, 0, "turn off /slots, which shows what is being answered"},
    {0, "no-metrics", OPTION_FLAG, AT(no_metrics), NULL, 0, 0, "turn off /metrics"},
    {'v', "verbose", OPTION_FLAG, AT(verbose), NULL, 0, 0, "print notices about loading"},
};

static void log_line(setun_log_level level, const char *message, void *user) {
  log_to_stderr(level, message, user);
}

// ---- keys ----

// Collects keys from the options and from the file's lines, which are terminated in place.
static bool read_keys(const command *self, serve_options *o, input_text *text) {
  if (!o->key_file) return true;
  size_t before = o->keys.count;
  if (read_file(o->key_file, 1 << 20, text)) return false;
  for (char *line = text->data, *end = text->data + text->length; line < end;) {
    char *stop = memchr(line, '\n', (size_t)(end - line)), *next = stop ? stop + 1 : end;
    if (!stop) stop = end;
    while (stop > line && strchr("\r\t ", stop[-1])) stop--;
    while (line < stop && strchr("\t ", *line)) line++;
    *stop = 0; // read_file leaves room for a byte after the text
    if (*line && *line != '#') {
      if (o->keys.count == KEYS_MOST) {
        usage_error(self, "%s: more than %d keys", o->key_file, KEYS_MOST);
        return false;
      }
      o->keys.items[o->keys.count++] = line;
    }
    line = next;
  }
  if (o->keys.count > before) return true;
  failure("%s: expected at least one key, found none", o->key_file);
  return false;
}

// ---- signals ----

static volatile sig_atomic_t signals;

static void on_signal(int number) {
  (void)number;
  signals = signals + 1;
}

// From now on termination signals are counted; each one ends a waiting call.
static void count_signals(void) {
  const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  struct sigaction action = {.sa_handler = on_signal};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
  signal(SIGPIPE, SIG_IGN);
}

static void wait_a_little(long milliseconds) {
  struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&t, NULL);
}

// Waits until a signal arrives, and then until running answers have finished or a second signal arrives.
static void wait_for_end(server *s) {
  while (!signals) wait_a_little(200);
  note("finishing the answers that have begun; a second signal ends at once");
  server_drain(s);
  while (server_busy(s) && signals < 2) wait_a_little(20);
}

// ---- serving ----

// The last part of a path, with or without .gguf.
static const char *last_part(const char *path, bool whole, char name[256]) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  size_t from = n;
  while (from > 0 && path[from - 1] != '/') from--;
  if (!whole && n - from > 5 && !strncmp(path + n - 5, ".gguf", 5)) n -= 5;
  snprintf(name, 256, "%.*s", (int)(n - from < 255 ? n - from : 255), path + from);
  return name;
}

// The name of a model for clients: that of a pulled model, or its file's.
static const char *model_name(const char *given, char name[256]) {
  char repository[256];
  const char *selector;
  struct stat st;
  if (stat(given, &st) && parse_model_name(given, repository, &selector)) return given;
  return last_part(given, false, name);
}

static setun_context_params context_of(const serve_options *o) {
  setun_context_params params = setun_context_params_default();
  setun_session_params session = session_params(&o->compute);
  enum { PROMPT_LOGITS = 64 };
  params.n_ctx = (uint32_t)o->ctx;
  params.n_seq_max = (uint32_t)o->parallel;
  params.n_batch = session.n_batch;
  params.n_logits = (uint32_t)o->parallel + PROMPT_LOGITS;
  params.threads = session.threads;
  params.kv_keys = session.kv_keys;
  params.kv_values = session.kv_values;
  params.pooling = pooling_named(o->pooling);
  return params;
}

// Loads the model, while the listening server answers that it is loading. 0, or the exit status after a report.
static int serve_one(server *s, const char *path, serve_options *o, serve_models *m) {
  server_loaded only = {.context = m->context};
  setun_error error;
  int status = open_model(path, &o->model, &o->compute, o->verbose, &only.model) ? 0 : failed_status();
  if (!status) {
    count_signals();
    if (!sampling_params(only.model, &o->sampling, &only.sampling)) status = STATUS_FAILED;
  }
  if (status)
    setun_model_free(only.model);
  else
    status = server_serve(s, &only, &error) == SETUN_OK ? 0 : report(&error);
  return status;
}

static int serve_several(server *s) {
  setun_error error;
  count_signals();
  return server_serve(s, NULL, &error) == SETUN_OK ? 0 : report(&error);
}

static int serve(server *s, const char *path, serve_options *o, serve_models *m) {
  int status = path ? serve_one(s, path, o, m) : serve_several(s);
  if (!status) {
    note("ready");
    wait_for_end(s);
  }
  return status;
}

// Checks options that exclude each other. 0, or 2 after a report.
static int check(const command *self, const serve_options *o, bool one) {
  int status = check_sampling(self, &o->sampling);
  if (status) return status;
  if (o->sampling.biases.count || o->sampling.breakers.count) {
    return usage_error(self,
                       "--logit-bias and --dry-sequence-breaker belong to requests: logit_bias, dry_sequence_breakers");
  }
  if (one && o->models) return usage_error(self, "MODEL and --models exclude each other");
  if (!one && !o->models) return usage_error(self, "expected MODEL, or --models DIR");
  if (one && o->names.count > 1) return usage_error(self, "--alias is given more than once, for one model");
  if (o->models && (o->template_file || o->compute.adapters.count)) {
    return usage_error(self, "--template and --lora are for one model, but --models has several");
  }
  return 0;
}

static server_options options_of(const serve_options *o, const input_text *template_text, serve_models *m) {
  return (server_options){.host = o->host,
                          .port = (uint16_t)o->port,
                          .keys = o->keys.items,
                          .hosts = o->hosts.items,
                          .origins = o->origins.items,
                          .n_keys = o->keys.count,
                          .n_hosts = o->hosts.count,
                          .n_origins = o->origins.count,
                          .models = m->models,
                          .n_models = m->n_models,
                          .loader = models_loader(m),
                          .template_text = template_text->data,
                          .template_name = o->template_file,
                          .template_length = template_text->length,
                          .body_limit = o->body_limit,
                          .constraint_memory = o->constraint_memory,
                          .queue_limit = (uint32_t)o->queue,
                          .prefill_budget = (uint32_t)o->prefill_budget,
                          .fixed_seed = o->sampling.seed.given,
                          .no_shared_prefix = o->no_shared_prefix,
                          .answer_limit = (uint32_t)o->answer_limit,
                          .no_slots = o->no_slots,
                          .no_metrics = o->no_metrics,
                          .log = log_line,
                          .user = (bool *)&o->verbose};
}

// Whether the model can be loaded as far as its directory and the memory tell: before any client is told to connect.
static bool can_load(const char *path, const serve_options *o) {
  setun_session_params session = session_params(&o->compute);
  setun_model_params params = loading_params(&o->model, &o->compute, &session);
  setun_plan plan = {.size = sizeof plan};
  setun_error error;
  return setun_model_plan(path, &params, &plan, &error) == SETUN_OK || !report(&error);
}

static int listen_and_serve(const char *path, serve_options *o, const input_text *template_text, serve_models *m) {
  server_options options = options_of(o, template_text, m);
  server *s = NULL;
  setun_error error;
  if (path && !can_load(path, o)) return STATUS_FAILED;
  if (server_start(&options, &s, &error) != SETUN_OK) return report(&error);
  print_text("listening on %s\n", server_address(s));
  flush_output();
  int status = serve(s, path, o, m);
  server_free(s);
  return status;
}

static int run(const command *self, int argc, char **argv) {
  serve_options o = {.sampling = sampling_unset(),
                     .host = "127.0.0.1",
                     .port = 8080,
                     .parallel = 4,
                     .queue = 256,
                     .prefill_budget = 128,
                     .body_limit = 16 << 20};
  char name[256], file[256];
  int status = 0, count = parse_options(self, argc, argv, &o, &status);
  input_text key_text = {0}, template_text = {0};
  if (count < 0) return status;
  const char *path = count ? argv[1] : NULL;
  if ((status = check(self, &o, path != NULL))) return status;
  if (!read_keys(self, &o, &key_text)) return STATUS_FAILED;
  if (o.template_file && read_file(o.template_file, 16 << 20, &template_text)) return STATUS_FAILED;
  serve_models m = {.model = &o.model, .compute = &o.compute, .sampling = &o.sampling, .verbose = o.verbose};
  if (!o.constraint_memory) {
    const uint64_t most = 64 << 20, share = o.compute.memory / 16;
    o.constraint_memory = share && share < most ? share : most;
  }
  m.constraints = o.compute.beside = o.constraint_memory;
  if (o.verbose) note("memory plan: %llu bytes for constraints", (unsigned long long)o.constraint_memory);
  m.context = context_of(&o);
  o.compute.context = &m.context;
  server_model one = {.name = o.names.count ? o.names.items[0]
                              : path        ? model_name(given_argument(), name)
                                            : NULL,
                      .file = path ? last_part(path, true, file) : NULL};
  served_model own = {.path = path};
  if (path) {
    m.models = &one;
    m.served = &own;
    m.n_models = 1;
  }
  if (path || read_models(o.models, &o.names, &m))
    status = listen_and_serve(path, &o, &template_text, &m);
  else
    status = STATUS_FAILED;
  if (!path) free_models(&m);
  free(template_text.data);
  free(key_text.data);
  return status ? status : finish_output();
}

const command command_serve = {
    .name = "serve",
    .summary = "an HTTP server for programs that use OpenAI's API",
    .arguments = "MODEL | --models DIR",
    .min_arguments = 0,
    .max_arguments = 1,
    .details = "Listens, loads the model, and answers requests until it is stopped (Ctrl-C, SIGTERM): answers that "
               "have begun are then finished; a second signal ends it at once. The first line on standard output is "
               "the address, where a browser finds a page to chat on. Requests that do not say how tokens are sampled "
               "use the options under `sampling`.\n"
               "With --models each request names the model that is to answer. A model is loaded when it is first "
               "requested, and requests for it wait; if it does not fit into memory with those that are loaded, the "
               "least recently requested one is unloaded, once it has finished the answers that it had begun.",
    .groups = {{"options", OPTION_ROWS(rows), 0},
               SAMPLING_GROUP(serve_options),
               COMPUTE_GROUP(serve_options),
               MODEL_GROUP(serve_options)},
    .run = run,
};
