// The command `run`: text that continues a prompt.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct run_options {
  text_options text;
  model_options model;
  compute_options compute;
  int64_t n, ctx, top_k, seed; // n < 0: until the end; ctx 0: the model's; seed < 0: another one each time
  double temperature, top_p, min_p;
  bool special, ignore_end, no_echo, ids, verbose;
} run_options;

#define AT(member) offsetof(run_options, member)
static const option output_rows[] = {
    {'n', NULL, OPTION_INTEGER, AT(n), "N", -1, INT32_MAX,
     "new tokens at most (default -1: until the model ends the text or the context is full)"},
    {'c', "ctx", OPTION_INTEGER, AT(ctx), "N", 1, INT32_MAX,
     "tokens that the context holds, prompt and new ones together (default: the model's, at most 4096)"},
    {0, "special", OPTION_FLAG, AT(special), NULL, 0, 0, "recognize control tokens in the prompt"},
    {0, "ignore-eos", OPTION_FLAG, AT(ignore_end), NULL, 0, 0, "continue past the end token"},
    {0, "no-echo", OPTION_FLAG, AT(no_echo), NULL, 0, 0, "print the new text without the prompt"},
    {0, "ids", OPTION_FLAG, AT(ids), NULL, 0, 0,
     "print the new token ids as a JSON array instead of text, with the end token where one ended it"},
    {0, "verbose", OPTION_FLAG, AT(verbose), NULL, 0, 0, "print settings and timings on standard error"},
};

static const option sampler_rows[] = {
    {0, "temp", OPTION_NUMBER, AT(temperature), "T", 0, 1000,
     "temperature (default 0.8); 0 always takes the likeliest token"},
    {0, "top-k", OPTION_INTEGER, AT(top_k), "N", 0, INT32_MAX, "only the N likeliest tokens (default 40; 0: all)"},
    {0, "top-p", OPTION_NUMBER, AT(top_p), "P", 0, 1,
     "only the likeliest tokens that together have this probability (default 0.95; 1: all)"},
    {0, "min-p", OPTION_NUMBER, AT(min_p), "P", 0, 1,
     "only tokens at least this likely, relative to the likeliest (default 0.05; 0: all)"},
    {0, "seed", OPTION_INTEGER, AT(seed), "N", 0, (double)INT64_MAX,
     "the same seed gives the same text (default: another one each time, shown by --verbose)"},
};

// Everything that generating needs, and what the timings report.
typedef struct generation {
  setun_model *model;
  setun_session *session;
  setun_sampler *sampler;
  setun_decoder *decoder;
  id_list prompt;
  setun_token *made; // for --ids
  size_t count, capacity;
  uint64_t seed;
  bool line_open; // the last byte printed was no newline
  double load_seconds, prompt_seconds, decode_seconds;
  size_t prompt_done;
} generation;

static void print_piece(generation *g, const char *text, size_t length) {
  if (!length) return;
  print_bytes(text, length);
  flush_output();
  g->line_open = text[length - 1] != '\n';
}

// Takes one new token: prints its text, or keeps it for --ids. False after a report.
static bool emit(generation *g, const run_options *o, setun_token id, bool is_end) {
  setun_error error;
  const char *text = NULL;
  size_t length = 0;
  if (o->ids) {
    if (g->count == g->capacity) {
      size_t larger = g->capacity * 2 + 256;
      setun_token *grown = realloc(g->made, larger * sizeof *grown);
      if (!grown) {
        failure("no memory for %zu ids", larger);
        return false;
      }
      g->made = grown;
      g->capacity = larger;
    }
    g->made[g->count] = id;
  }
  g->count++;
  if (o->ids || is_end) return true;
  if (setun_decoder_push(g->decoder, id, &text, &length, &error) != SETUN_OK) {
    report(&error);
    return false;
  }
  print_piece(g, text, length);
  return true;
}

static bool tokenize_prompt(generation *g, const run_options *o, const input_text *text) {
  int flags = (o->special ? SETUN_TOKENIZE_SPECIAL : 0);
  flags |= text->length ? SETUN_TOKENIZE_BOS : SETUN_TOKENIZE_BOS_ALWAYS;
  if (!tokenize_text(g->model, text, flags, &g->prompt)) return false;
  if (g->prompt.count == 0) {
    failure("the prompt is empty, and this model has no BOS token to begin a text with");
    return false;
  }
  uint32_t room = setun_session_context(g->session);
  if (g->prompt.count > room) {
    failure("the prompt has %zu tokens, but the context holds %u (see --ctx)", g->prompt.count, (unsigned)room);
    return false;
  }
  return true;
}

// Evaluates tokens. True when done; false after an interrupt or a report, and then *status says which.
static bool evaluate(generation *g, const setun_token *ids, size_t n, int *status) {
  setun_error error;
  *status = interrupt_status();
  if (*status) return false;
  if (setun_session_eval(g->session, ids, n, NULL, &error) == SETUN_OK) return true;
  *status = interrupt_status();
  if (!*status || error.code != SETUN_ERROR_CANCELED) *status = report(&error);
  return false;
}

// New tokens until one of the ends that there are: the model's, -n, the context's, an interrupt. The exit status.
static int generate(generation *g, const run_options *o) {
  setun_error error;
  int status = 0;
  uint32_t n_vocab = setun_model_get_info(g->model).n_vocab, room = setun_session_context(g->session);
  while (o->n < 0 || g->count < (uint64_t)o->n) {
    setun_token id = 0;
    setun_status s = setun_sampler_sample(g->sampler, setun_session_logits(g->session), n_vocab, &id, &error);
    if (s != SETUN_OK) return report(&error);
    bool is_end = setun_token_is_end(g->model, id);
    if (!emit(g, o, id, is_end)) return STATUS_FAILED;
    if (is_end && !o->ignore_end) break;
    if (o->n >= 0 && g->count == (uint64_t)o->n) break;
    if (setun_session_position(g->session) == room) {
      if (g->line_open) print_bytes("\n", 1);
      g->line_open = false;
      flush_output();
      note("stopped: the context of %u tokens is full (%zu of the prompt, %zu new; see --ctx)", (unsigned)room,
           g->prompt.count, g->count);
      break;
    }
    if (!evaluate(g, &id, 1, &status)) break;
  }
  return status;
}

static void end_text(generation *g, const run_options *o) {
  const char *text = NULL;
  size_t length = 0;
  if (o->ids) {
    print_id_array(g->made, g->count);
  } else {
    if (setun_decoder_finish(g->decoder, &text, &length, NULL) == SETUN_OK) print_piece(g, text, length);
    if (g->line_open) print_bytes("\n", 1);
  }
  flush_output();
}

static void print_rate(const char *what, size_t tokens, double seconds, const char *end) {
  fprintf(stderr, "%-8s %6zu tokens in %8.3f s  %9.2f tokens/s%s", what, tokens, seconds,
          seconds > 0 ? (double)tokens / seconds : 0, end);
}

static void print_timings(const generation *g) {
  setun_model_info info = setun_model_get_info(g->model);
  size_t decoded = g->count ? g->count - 1 : 0; // the first new token comes from the prompt's own pass
  double bytes = (double)decoded * (double)info.bytes_per_token;
  char text[32];
  fprintf(stderr, "load     %s in %8.3f s\n", format_bytes(info.weight_bytes, text), g->load_seconds);
  print_rate("prompt", g->prompt_done, g->prompt_seconds, "\n");
  print_rate("decode", decoded, g->decode_seconds, "");
  fprintf(stderr, "  %.2f GB/s of weights\n", g->decode_seconds > 0 ? bytes / g->decode_seconds / 1e9 : 0);
}

static void print_settings(const generation *g, const run_options *o) {
  setun_model_info info = setun_model_get_info(g->model);
  note("%s from %s, %s kernels, %s activations, %d threads, context %u", info.architecture, info.container, info.isa,
       info.activation, setun_session_threads(g->session), (unsigned)setun_session_context(g->session));
  if (o->temperature > 0) {
    note("temperature %g, top-k %lld, top-p %g, min-p %g, seed %llu", o->temperature, (long long)o->top_k, o->top_p,
         o->min_p, (unsigned long long)g->seed);
  } else {
    note("temperature 0: always the likeliest token");
  }
}

// Model, session, sampler and decoder. False after a report; what was made is freed by the caller.
static bool prepare(generation *g, const run_options *o, const char *path) {
  setun_error error;
  double start = seconds_now();
  if (!open_model(path, &o->model, &o->compute, o->verbose, &g->model)) return false;
  if (!open_session(g->model, &o->compute, (uint32_t)o->ctx, &g->session)) return false;
  g->load_seconds = seconds_now() - start;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  g->seed = o->seed >= 0
                ? (uint64_t)o->seed
                : ((uint64_t)t.tv_sec * 1000003u ^ (uint64_t)t.tv_nsec ^ (uint64_t)getpid() << 20) % 1000000007u;
  setun_sampler_params params = setun_sampler_params_default();
  params.temperature = (float)o->temperature;
  params.top_k = (int32_t)o->top_k;
  params.top_p = (float)o->top_p;
  params.min_p = (float)o->min_p;
  params.seed = g->seed;
  setun_status s = setun_sampler_new(&params, &g->sampler, &error);
  if (s == SETUN_OK) s = setun_decoder_new(g->model, 0, &g->decoder, &error);
  if (s != SETUN_OK) report(&error);
  return s == SETUN_OK;
}

static int run_prompt(generation *g, const run_options *o, const input_text *text) {
  int status = 0;
  if (!tokenize_prompt(g, o, text)) return STATUS_FAILED;
  if (o->verbose) print_settings(g, o);
  watch_interrupts(g->session);
  if (!o->no_echo && !o->ids) print_piece(g, text->data, text->length);
  double start = seconds_now();
  bool evaluated = evaluate(g, g->prompt.ids, g->prompt.count, &status);
  g->prompt_seconds = seconds_now() - start;
  g->prompt_done = setun_session_position(g->session);
  start = seconds_now();
  if (evaluated) status = generate(g, o);
  g->decode_seconds = seconds_now() - start;
  if (status != STATUS_FAILED)
    end_text(g, o);
  else if (g->line_open)
    print_bytes("\n", 1);
  if (o->verbose || status > 128) print_timings(g);
  watch_interrupts(NULL);
  return status;
}

static void free_generation(generation *g) {
  setun_decoder_free(g->decoder);
  setun_sampler_free(g->sampler);
  setun_session_free(g->session);
  setun_model_free(g->model);
  free(g->prompt.ids);
  free(g->made);
}

static int run(const command *self, int argc, char **argv) {
  setun_sampler_params s = setun_sampler_params_default();
  run_options o = {.n = -1,
                   .seed = -1,
                   .temperature = (double)s.temperature,
                   .top_k = s.top_k,
                   .top_p = (double)s.top_p,
                   .min_p = (double)s.min_p};
  generation g = {0};
  input_text text = {0};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  status = read_text(self, &o.text, &text);
  if (status) return status;
  status = prepare(&g, &o, argv[1]) ? run_prompt(&g, &o, &text) : STATUS_FAILED;
  free_generation(&g);
  free(text.data);
  int written = finish_output();
  return status ? status : written;
}

const command command_run = {
    .name = "run",
    .summary = "text that continues a prompt",
    .arguments = "MODEL",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Prints the prompt and then what the model adds to it, word by word. The prompt comes from -p, from a file, or "
        "from standard input, and is taken as it is; the tokenizer's BOS token is put before it, once, where the "
        "model wants one. An empty prompt begins from BOS alone. A prompt longer than the context is an error; "
        "reaching the context's end stops the text, and both say the numbers. Ctrl-C stops the text, prints the "
        "timings, and gives exit status 130.",
    .groups = {TEXT_GROUP(run_options),
               {"output", OPTION_ROWS(output_rows), 0},
               {"sampling", OPTION_ROWS(sampler_rows), 0},
               COMPUTE_GROUP(run_options),
               MODEL_GROUP(run_options)},
    .run = run,
};
