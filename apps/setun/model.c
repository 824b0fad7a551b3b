// Opening models and sessions: options to parameters, progress, log lines.
#define _POSIX_C_SOURCE 200809L
#include "model.h"

#include "interrupt.h"
#include "output.h"
#include "state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ADAPTERS_MOST = 16 };

const option model_rows[5] = {
    {0, "isa", OPTION_CHOICE, offsetof(model_options, isa), NULL, SETUN_CHOICE_ISA, 0,
     "use this instruction set instead of the best available"},
    {0, "device", OPTION_TEXT, offsetof(model_options, device), "NAME", 1, 0,
     "compute on this device (`setun devices`): vulkan, vulkan:1; vulkan,cpu: on the CPU where there is none (default "
     "cpu)"},
    {0, "assume", OPTION_CHOICE, offsetof(model_options, assume), NULL, SETUN_CHOICE_ASSUME, 0,
     "how to read an ambiguous tensor type, such as i2_s-arm"},
    {0, "activation", OPTION_CHOICE, offsetof(model_options, activation), "int8|float", 0, 0,
     "the precision of activations, instead of the model's own"},
    IGNORE_KEY_ROW(model_options),
};

const option compute_rows[8] = {
    {'t', "threads", OPTION_INTEGER, offsetof(compute_options, threads), "N", 1, 1024,
     "threads (default: as many as suit the machine)"},
    {'b', "batch-size", OPTION_INTEGER, offsetof(compute_options, batch), "N", 1, 65536,
     "tokens of the prompt per pass (default 512, or less if --memory is small)"},
    {0, "precise", OPTION_FLAG, offsetof(compute_options, precise), NULL, 0, 0,
     "float32 activations, except where the model prescribes int8"},
    {0, "kv", OPTION_CHOICE, offsetof(compute_options, kv), NULL, SETUN_CHOICE_KV, 2,
     "the KV cache's format, or those of keys and of values, such as q8,q4 (default f16; f32 with --precise)"},
    {0, "lora", OPTION_LIST, offsetof(compute_options, adapters), "FILE[:SCALE]", 1, ADAPTERS_MOST,
     "apply a LoRA adapter, a PEFT directory or a GGUF file, scaled by SCALE (default 1); may be given several times"},
    {0, "memory", OPTION_SIZE, offsetof(compute_options, memory), "SIZE", 1 << 20, 0x1p60,
     "total memory to use (default: what is available, less a margin); weights that do not fit are read from disk for "
     "each pass"},
    {0, "device-memory", OPTION_SIZE, offsetof(compute_options, device_memory), "SIZE", 1 << 20, 0x1p60,
     "with --device: how much of its memory to use (default: what is free); other weights are copied to it for each "
     "pass"},
    {0, "no-stream", OPTION_FLAG, offsetof(compute_options, no_stream), NULL, 0, 0,
     "map the file instead, and let the system decide which parts are in memory (t16 files)"},
};

enum { LONG = 20 }; // seconds after which the time that is left is shown

void progress_begin(progress_line *p, const char *what) {
  double now = seconds_now();
  *p = (progress_line){what, now, now, false};
}

void progress_show(progress_line *p, double fraction) {
  double now = seconds_now();
  if (now - p->start < 1 || now - p->last < 0.1 || !isatty(STDERR_FILENO)) return;
  double left = fraction > 0 ? (now - p->start) * (1 - fraction) / fraction : 0;
  fprintf(stderr, "\r%s %3.0f%%", p->what, fraction * 100);
  if (now - p->start > LONG) fprintf(stderr, ", %.0f min left", ceil(left / 60));
  fflush(stderr);
  p->shown = true;
  p->last = now;
}

void progress_end(progress_line *p) {
  if (p->shown) fprintf(stderr, "\r%*s\r", (int)strlen(p->what) + 24, "");
  p->shown = false;
}

// A setun_progress_fn that shows a progress_line and never asks to cancel.
static bool progress_callback(double fraction, void *line) {
  progress_show(line, fraction);
  return true;
}

setun_status evaluate_prompt(setun_session *session, const setun_token *ids, size_t n, bool shown, setun_error *error) {
  progress_line line;
  setun_eval_params params = setun_eval_params_default();
  progress_begin(&line, "reading the prompt");
  params.progress = shown ? progress_callback : NULL;
  params.user = &line;
  setun_status s = setun_session_eval(session, ids, n, &params, error);
  progress_end(&line);
  return s;
}

void log_to_stderr(setun_log_level level, const char *message, void *user) {
  const bool *verbose = user;
  if (level == SETUN_LOG_WARNING)
    note("warning: %s%s", message, option_hint(message));
  else if (verbose && *verbose)
    note("%s", message);
}

void log_beside_progress(setun_log_level level, const char *message, void *user) {
  long_work *work = user;
  progress_end(&work->progress);
  log_to_stderr(level, message, &work->verbose);
}

bool progress_until_interrupt(double fraction, void *user) {
  long_work *work = user;
  progress_show(&work->progress, fraction);
  return !interrupt_status();
}

setun_model_params model_params(const model_options *o) {
  setun_model_params params = setun_model_params_default();
  params.isa = o->isa;
  params.device = o->device && strcmp(o->device, "none") == 0 ? "cpu" : o->device; // as other programs spell it
  params.assume = o->assume;
  params.activation = o->activation;
  params.ignore_keys = o->ignore_keys.items;
  params.n_ignore_keys = o->ignore_keys.count;
  return params;
}

// Whether the option accepts it.
static setun_kv_type kv_type(const char *text, size_t length) {
  const char *name;
  int type = 0;
  while ((name = setun_choice_name(SETUN_CHOICE_KV, (size_t)type)) && (strncmp(name, text, length) || name[length]))
    type++;
  return (setun_kv_type)type;
}

setun_session_params session_params(const compute_options *o) {
  enum { DRAFT_TOKENS = 15 }; // with the token before them two tiles of products
  setun_session_params params = setun_session_params_default();
  if (o->kv) {
    const char *comma = strchr(o->kv, ',');
    params.kv_keys = kv_type(o->kv, comma ? (size_t)(comma - o->kv) : strlen(o->kv));
    params.kv_values = comma ? kv_type(comma + 1, strlen(comma + 1)) : params.kv_keys;
  } else if (o->precise) {
    params.kv_keys = params.kv_values = SETUN_KV_F32;
  }
  params.n_ctx = o->n_ctx;
  params.n_batch = (uint32_t)o->batch;
  params.threads = (int)o->threads;
  params.all_logits = o->all_logits;
  params.window = (uint32_t)o->window;
  params.sinks = (uint32_t)o->sinks;
  if (o->draft && strcmp(o->draft, "none")) params.n_draft = DRAFT_TOKENS;
  params.draft = o->draft_model;
  return params;
}

int check_window(const command *self, const compute_options *o, int64_t ctx) {
  if (!o->window || !ctx) return 0;
  return usage_error(self, "--window and --ctx exclude each other: with a window the text's length is not limited");
}

static bool names_model(const char *draft) {
  return draft && strcmp(draft, "none") && strcmp(draft, "ngram");
}

setun_pooling pooling_named(const char *name) {
  setun_pooling p = SETUN_POOLING_MEAN;
  if (!name) return SETUN_POOLING_MODEL;
  while (setun_pooling_name(p) && strcmp(setun_pooling_name(p), name)) p++;
  return p;
}

setun_model_info model_info(const setun_model *model) {
  setun_model_info info = {.size = sizeof info};
  setun_model_get_info(model, &info, NULL);
  return info;
}

setun_plan model_plan_of(const setun_model *model) {
  setun_plan plan = {.size = sizeof plan};
  setun_model_get_plan(model, &plan, NULL);
  return plan;
}

setun_stream_stats stream_stats(const setun_model *model) {
  setun_stream_stats stats = {.size = sizeof stats};
  setun_model_get_stream_stats(model, &stats, NULL);
  return stats;
}

char *parse_adapter(const char *text, float *scale) {
  const char *colon = strrchr(text, ':');
  char *end = NULL;
  double value = colon && colon > text ? strtod(colon + 1, &end) : 0;
  bool scaled = end && end > colon + 1 && !*end && isfinite(value);
  *scale = scaled ? (float)value : 1;
  return scaled ? strndup(text, (size_t)(colon - text)) : strdup(text);
}

// Loads the model, from the file or, with `synthesis`, synthetic; or only makes the plan if `model` is NULL.
static bool load_with_adapters(const char *path, const setun_synthesis_params *synthesis, const text_list *list,
                               setun_model_params *params, setun_model **model, setun_plan *plan, setun_error *error) {
  setun_adapter adapters[ADAPTERS_MOST] = {{0}};
  char *paths[ADAPTERS_MOST] = {0};
  bool fine = true;
  for (size_t i = 0; fine && i < list->count; i++) {
    adapters[i].path = paths[i] = parse_adapter(list->items[i], &adapters[i].scale);
    fine = paths[i] != NULL;
    if (!fine) snprintf(error->message, sizeof error->message, "out of memory for a path");
  }
  params->adapters = adapters;
  params->n_adapters = list->count;
  if (fine) {
    setun_status s;
    if (model)
      s = synthesis ? setun_model_load_synthetic(synthesis, params, model, error)
                    : setun_model_load(path, params, model, error);
    else
      s = synthesis ? setun_model_plan_synthetic(synthesis, params, plan, error)
                    : setun_model_plan(path, params, plan, error);
    fine = s == SETUN_OK;
  }
  for (size_t i = 0; i < ADAPTERS_MOST; i++) free(paths[i]);
  return fine;
}

setun_model_params loading_params(const model_options *o, const compute_options *compute,
                                  const setun_session_params *session) {
  setun_model_params params = model_params(o);
  params.precise = compute->precise;
  params.threads = (int)compute->threads;
  params.memory = compute->memory;
  params.device_memory = compute->device_memory;
  params.no_stream = compute->no_stream;
  params.session = compute->context ? NULL : session;
  params.context = compute->context;
  params.beside = compute->beside;
  params.experts_state = compute->experts_state;
  if (compute->experts_ahead)
    params.experts_ahead = strcmp(compute->experts_ahead, "off") ? compute->experts_ahead[0] - '0' : -1;
  if (compute->trace) {
    params.on_experts = write_experts;
    params.experts_user = compute->trace;
  }
  return params;
}

// Adds to an error what of the device's memory is the draft model's.
static void name_draft_share(const compute_options *compute, setun_error *error) {
  size_t length = strlen(error->message);
  char text[32];
  if (error->code != SETUN_ERROR_MEMORY || !compute->device_beside) return;
  snprintf(error->message + length, sizeof error->message - length,
           "; beside this, %s of the device's memory are for --draft", format_bytes(compute->device_beside, text));
}

static bool plan_any(const char *path, const setun_synthesis_params *synthesis, const model_options *o,
                     const compute_options *compute, setun_plan *plan) {
  setun_session_params session = session_params(compute);
  setun_model_params params = loading_params(o, compute, &session);
  setun_error error;
  params.log = log_to_stderr;
  if (load_with_adapters(path, synthesis, &compute->adapters, &params, NULL, plan, &error)) return true;
  name_draft_share(compute, &error);
  return !report(&error);
}

bool plan_model(const char *path, const model_options *o, const compute_options *compute, setun_plan *plan) {
  return plan_any(path, NULL, o, compute, plan);
}

bool plan_synthetic(const setun_synthesis_params *synthesis, const model_options *o, const compute_options *compute,
                    setun_plan *plan) {
  return plan_any(NULL, synthesis, o, compute, plan);
}

// --experts-state concerns a cache of experts: without experts it is an error, and where all are resident this is said.
static bool check_experts_state(const setun_model *model, const compute_options *compute) {
  if (!compute->experts_state) return true;
  setun_plan plan = model_plan_of(model);
  if (!plan.n_expert_layers) return !failure("--experts-state: expected a model with experts, found one without");
  if (!plan.n_experts_cached) note("--experts-state %s is not used: all experts are resident", compute->experts_state);
  return true;
}

static bool open_any(const char *path, const setun_synthesis_params *synthesis, const model_options *o,
                     const compute_options *compute, bool verbose, setun_model **model) {
  setun_session_params session = session_params(compute);
  setun_model_params params = loading_params(o, compute, &session);
  setun_error error;
  char *cache = o->device ? cache_folder() : NULL;
  params.device_cache = cache;
  static long_work work; // a model's log may be written to as long as the model lives
  work = (long_work){.verbose = verbose};
  progress_begin(&work.progress, "loading");
  note_interrupts();
  params.progress = progress_until_interrupt;
  params.log = log_beside_progress;
  params.user = &work;
  bool fine = load_with_adapters(path, synthesis, &compute->adapters, &params, model, NULL, &error);
  if (!fine) name_draft_share(compute, &error);
  free(cache);
  progress_end(&work.progress);
  if (interrupt_status()) return false; // nothing to report; the caller frees what was loaded
  if (!fine) return !report(&error);
  return check_experts_state(*model, compute);
}

bool open_model(const char *path, const model_options *o, const compute_options *compute, bool verbose,
                setun_model **model) {
  return open_any(path, NULL, o, compute, verbose, model);
}

// The draft model's parameters: a session like the model's, without its adapters.
static compute_options draft_options(const compute_options *compute) {
  compute_options own = *compute;
  own.draft = NULL;
  own.experts_state = NULL;
  own.adapters = (text_list){0};
  own.context = NULL;
  own.window = own.sinks = 0;
  return own;
}

// Whether the draft model is resident and leaves some of the device's memory, which is then the other's limit.
static bool draft_fits(compute_options *compute, const setun_plan *plan) {
  uint64_t limit = plan->device_budget;
  compute->device_beside = plan->device_total;
  if (!plan->streamed && limit) compute->device_memory = limit > plan->device_total ? limit - plan->device_total : 1;
  if (!plan->streamed) return true;
  char need[32], found[32], where[128] = "";
  if (limit && plan->device_whole > limit) {
    snprintf(where, sizeof where, ": all of it takes %s of the device's memory, found %s",
             format_bytes(plan->device_whole, need), format_bytes(limit, found));
  }
  failure("--draft: %s: expected a model that fits into memory together with the other, found one whose weights would "
          "be read for each pass%s",
          compute->draft, where);
  return false;
}

bool save_experts_state(const setun_model *model, const compute_options *compute) {
  setun_error error;
  if (!compute->experts_state || !model_plan_of(model).n_experts_cached) return true;
  return setun_model_save_experts(model, compute->experts_state, &error) == SETUN_OK || !report(&error);
}

bool open_draft(const model_options *o, compute_options *compute, bool verbose, setun_model **draft) {
  if (!names_model(compute->draft)) return true;
  compute_options own = draft_options(compute);
  if (!open_model(compute->draft, o, &own, verbose, draft)) return false;
  setun_plan plan = model_plan_of(*draft);
  compute->draft_model = *draft;
  compute->beside = plan.cache + plan.work;
  return draft_fits(compute, &plan);
}

bool plan_draft(const model_options *o, compute_options *compute) {
  setun_plan plan = {.size = sizeof plan};
  if (!names_model(compute->draft)) return true;
  compute_options own = draft_options(compute);
  own.memory = (uint64_t)1 << 60; // it stays in memory as a whole
  if (!plan_model(compute->draft, o, &own, &plan)) return false;
  compute->beside = plan.total - plan.process;
  return draft_fits(compute, &plan);
}

bool open_synthetic_model(const setun_synthesis_params *synthesis, const model_options *o,
                          const compute_options *compute, setun_model **model) {
  return open_any(NULL, synthesis, o, compute, false, model);
}

bool open_vocabulary(const char *path, const model_options *o, bool log, setun_model **model) {
  setun_model_params params = model_params(o);
  setun_error error;
  if (log) params.log = log_to_stderr;
  setun_status s = setun_model_load_vocabulary(path, &params, model, &error);
  if (s != SETUN_OK) report(&error);
  return s == SETUN_OK;
}

uint64_t measuring_room(const setun_plan *plan) {
  const uint64_t least = 1 << 20, taken = plan->process + plan->reserve + (4 << 20); // reserve some for the threads
  if (!plan->budget) return UINT64_MAX;
  return plan->budget > taken + least ? plan->budget - taken : least;
}

uint64_t measuring_buffer(const setun_plan *plan, uint64_t wanted) {
  const uint64_t cached = 64 << 20, room = measuring_room(plan);
  char text[32];
  if (room >= wanted) return wanted;
  if (room < cached)
    note("the budget leaves only %s for measuring reads: this may measure a cache", format_bytes(room, text));
  return room;
}

// Whether tokenizing a text of this length stays within the budget; false after a report.
static bool text_fits(const input_text *text, uint64_t memory) {
  uint64_t most = setun_memory_peak() + setun_tokenize_memory(text->length);
  if (!memory || memory >= most || text->length < 1 << 20)
    return true; // short ones fit into the memory that loading will take
  failure("--memory: expected at least %lluM for a text of %zu bytes, found %.1fM", least_mib(most), text->length,
          (double)memory / (1 << 20));
  return false;
}

bool tokenize_beforehand(const char *path, const model_options *o, const compute_options *compute, int flags,
                         input_text *text, id_list *list) {
  setun_session_params session = session_params(compute);
  session.n_ctx = session.n_batch = 1; // the smallest possible request; the text's length is not known
  setun_model_params params = loading_params(o, compute, &session); // loading the model reports its warnings
  setun_model *vocabulary = NULL;
  setun_error error;
  bool fine = setun_model_load_vocabulary(path, &params, &vocabulary, &error) == SETUN_OK || !report(&error);
  fine = fine && text_fits(text, compute->memory) && tokenize_text(vocabulary, text, flags, list);
  setun_model_free(vocabulary);
  free(text->data);
  *text = (input_text){NULL, 0};
  return fine;
}

bool open_template(const setun_model *model, const template_options *o, setun_chat **chat) {
  setun_chat_params params = setun_chat_params_default();
  setun_error error;
  params.log = log_to_stderr;
  params.name = o->file ? o->file : o->name;
  params.tools = o->tools;
  if (o->file) {
    params.text = o->text->data;
    params.length = o->text->length;
  }
  setun_status s = setun_chat_new(model, &params, chat, &error);
  if (s != SETUN_OK) report(&error);
  return s == SETUN_OK;
}

bool open_session(const char *name, const setun_model *model, const compute_options *compute, uint32_t n_ctx,
                  setun_session **session) {
  setun_session_params params = session_params(compute);
  setun_error error;
  params.n_ctx = n_ctx;
  setun_status s = setun_session_new(model, &params, session, &error);
  if (s != SETUN_OK) failure("%s: %s", name, error.message);
  return s == SETUN_OK;
}
