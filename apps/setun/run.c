// The command `run`: generates text from a prompt.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "constraint.h"
#include "experts_trace.h"
#include "input.h"
#include "interrupt.h"
#include "logprobs.h"
#include "model.h"
#include "output.h"
#include "own_files.h"
#include "sampling.h"
#include "session.h"
#include "stops.h"
#include "streaming.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct run_options {
  text_options text;
  model_options model;
  compute_options compute;
  sampling_options sampling;
  constraint_options constraint;
  constraint_text constraint_text; // that was read of it
  int64_t n, ctx;                  // n < 0: until the end; ctx 0: the model's
  int64_t logprobs;                // likeliest alternatives for each token; negative: no log-probabilities
  const char *session, *trace;
  text_list stops;
  bool special, ignore_end, no_echo, ids, json, jsonl, verbose;
} run_options;

#define AT(member) offsetof(run_options, member)
static const option output_rows[] = {
    {'n', NULL, OPTION_INTEGER, AT(n), "N", -1, INT32_MAX,
     "maximum new tokens (default -1: until the model ends the text or the context is full)"},
    {'c', "ctx", OPTION_INTEGER, AT(ctx), "N", 1, INT32_MAX,
     "tokens in the context, prompt and new ones together (default: the model's, at most 4096)"},
    {0, "special", OPTION_FLAG, AT(special), NULL, 0, 0, "recognize control tokens in the prompt"},
    STOP_ROW(AT(stops)),
    CONSTRAINT_ROWS(run_options),
    {0, "ignore-eos", OPTION_FLAG, AT(ignore_end), NULL, 0, 0, "continue past the end token"},
    {0, "no-echo", OPTION_FLAG, AT(no_echo), NULL, 0, 0, "print the new text without the prompt"},
    {0, "ids", OPTION_FLAG, AT(ids), NULL, 0, 0,
     "print the new token ids as a JSON array instead of text, including an end token that ended it"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0,
     "print one JSON object at the end: the new text, its ids, why it ended, timings"},
    {0, "jsonl", OPTION_FLAG, AT(jsonl), NULL, 0, 0,
     "print a JSON object per line for each new token, and a last one with why the text ended and timings"},
    {0, "logprobs", OPTION_INTEGER, AT(logprobs), "N", 0, 1000,
     "with --json or --jsonl: each new token's log-probability from the model, before sampling steps, and those of the "
     "N likeliest"},
    {0, "session", OPTION_FILE, AT(session), "FILE", 0, 0,
     "continue the text in this file, if it exists, and save the text with the new part there"},
    WINDOW_ROWS(run_options),
    DRAFT_ROW(run_options, "none"),
    TRACE_ROW(AT(trace)),
    EXPERTS_STATE_ROW(run_options),
    EXPERTS_AHEAD_ROW(run_options),
    {0, "verbose", OPTION_FLAG, AT(verbose), NULL, 0, 0, "print settings and timings on standard error"},
};

// Tokens that may follow each other without logits in between, and those that are evaluated at once.
enum { FORCED_MOST = 32, WAITING_MOST = 64 };

// The state of generating, and data for the timings.
typedef struct generation {
  setun_model *model, *draft;
  setun_session *session;
  setun_sampler *sampler;
  setun_constraint *constraint; // NULL: any text
  setun_decoder *decoder;
  id_list prompt;
  setun_stops *stops;
  setun_token *made;            // [count]
  uint64_t *ends;               // [count] bytes of new text after each token
  size_t count, capacity, kept; // kept: tokens before the one where a stop text begins
  uint64_t text, shown;         // bytes of decoded new text, and those not held back
  bool stopped;                 // by a stop text
  const char *reason;           // why the text ended
  text_buffer json_text;        // still to be included in JSON
  logprobs likely;
  setun_sampler_params sampling;
  uint32_t earlier; // tokens from the session file
  bool line_open;   // the last byte printed was not a newline
  bool prompt_read; // whether all of it was evaluated
  setun_token waiting[WAITING_MOST],
      forced[FORCED_MOST]; // tokens of the text that are not evaluated yet; tokens that must follow them
  size_t n_waiting, n_forced, next_forced;
  bool is_drawn; // the next token was, when the text was evaluated
  setun_token drawn;
  double load_seconds, prompt_seconds, decode_seconds;
  experts_trace trace;
  setun_stream_stats prompt_stream; // time when the prompt was evaluated
  size_t prompt_done, decoded;      // tokens that were evaluated
} generation;

static bool is_json(const run_options *o) {
  return o->json || o->jsonl;
}

static void print_piece(generation *g, const char *text, size_t length) {
  if (!length) return;
  print_bytes(text, length);
  flush_output();
  g->line_open = text[length - 1] != '\n';
}

static bool keep_id(generation *g, setun_token id) {
  if (g->count == g->capacity) {
    size_t larger = g->capacity * 2 + 256;
    setun_token *ids = realloc(g->made, larger * sizeof *ids);
    if (ids) g->made = ids;
    uint64_t *ends = ids ? realloc(g->ends, larger * sizeof *ends) : NULL;
    if (!ends) {
      failure("out of memory for %zu ids", larger);
      return false;
    }
    g->ends = ends;
    g->capacity = larger;
  }
  g->made[g->count] = id;
  g->ends[g->count++] = g->text;
  return true;
}

// Outputs text not held back: prints it, unless ids are printed, or keeps it for JSON. False after a report.
static bool give_text(generation *g, const run_options *o, const char *text, size_t length) {
  if (is_json(o)) return append_text(&g->json_text, text, length);
  if (!o->ids) print_piece(g, text, length);
  return true;
}

// New text: outputs what cannot belong to a stop text. False after a report.
static bool add_text(generation *g, const run_options *o, const char *text, size_t length) {
  const char *certain = NULL;
  setun_error error;
  size_t n = 0;
  g->text += length;
  if (setun_stops_push(g->stops, text, length, &certain, &n, &g->stopped, &error) != SETUN_OK) return !report(&error);
  g->shown += n;
  return give_text(g, o, certain, n);
}

// Adds one new token and its text. False after a report.
static bool emit(generation *g, const run_options *o, setun_token id, bool is_end) {
  setun_error error;
  const char *text = NULL;
  size_t length = 0;
  if (!keep_id(g, id)) return false;
  if (is_end) return true;
  if (setun_decoder_push(g->decoder, id, &text, &length, &error) != SETUN_OK) return !report(&error);
  if (!add_text(g, o, text, length)) return false;
  g->ends[g->count - 1] = g->text;
  if (g->stopped) {
    while (g->kept < g->count && g->ends[g->kept] <= g->shown) g->kept++;
  }
  return true;
}

static bool too_long(const generation *g) {
  uint32_t room = setun_session_context(g->session);
  if (g->prompt.count <= room - g->earlier) return false;
  if (g->earlier)
    failure("the session has %u token%s and the prompt %zu, but the context holds %u (see --ctx)", (unsigned)g->earlier,
            plural(g->earlier), g->prompt.count, (unsigned)room);
  else
    failure("the prompt has %zu token%s, but the context holds %u (see --ctx)", g->prompt.count,
            plural(g->prompt.count), (unsigned)room);
  return true;
}

// Whether the plan leaves room for the ids of a text of this length; false after a report. The ids of texts that may
// fit into the context fit into the session's memory.
static bool ids_fit(const generation *g, const input_text *text) {
  enum { LEAST = 65536, A_TOKEN = 8 };
  setun_plan plan = model_plan_of(g->model);
  uint64_t need = plan.total + plan.reserve + setun_tokenize_memory(text->length);
  uint64_t counted = (uint64_t)plan.n_ctx * A_TOKEN;
  if (!plan.budget || plan.budget >= need || text->length <= LEAST || text->length <= counted) return true;
  failure("--memory: expected at least %lluM for a prompt of %zu bytes, found %.1fM", least_mib(need), text->length,
          (double)plan.budget / (1 << 20));
  return false;
}

static bool tokenize_prompt(generation *g, const run_options *o, const input_text *text) {
  setun_error error;
  if (!ids_fit(g, text)) return false;
  int flags = (o->special ? SETUN_TOKENIZE_SPECIAL : 0);
  if (!g->earlier) flags |= text->length ? SETUN_TOKENIZE_BOS : SETUN_TOKENIZE_BOS_ALWAYS;
  if (!tokenize_text(g->model, text, flags, &g->prompt)) return false;
  if (g->prompt.count == 0 && g->earlier) { // the last token is evaluated again for its logits
    g->earlier--;
    g->prompt.ids[0] = setun_session_tokens(g->session)[g->earlier - setun_session_forgotten(g->session)];
    g->prompt.count = 1;
    if (setun_session_truncate(g->session, g->earlier, &error) == SETUN_OK) return true;
    report(&error);
    return false;
  }
  if (g->prompt.count == 0) {
    failure("the prompt is empty, and this model has no BOS token to begin a text with");
    return false;
  }
  return !too_long(g);
}

static bool fail_evaluation(const setun_error *error, int *status) {
  *status = interrupt_status();
  if (!*status || error->code != SETUN_ERROR_CANCELED) *status = report(error);
  return false;
}

// Evaluates tokens. False after an interrupt or a report, with *status.
static bool evaluate(generation *g, const setun_token *ids, size_t n, bool is_prompt, int *status) {
  setun_error error;
  *status = interrupt_status();
  if (*status) return false;
  return evaluate_prompt(g->session, ids, n, is_prompt, &error) == SETUN_OK || fail_evaluation(&error, status);
}

// The same for the tokens that wait; the next one is drawn, unless all logits are shown. The sampler has seen them.
static bool evaluate_waiting(generation *g, const run_options *o, int *status) {
  setun_error error;
  if (o->logprobs >= 0) return evaluate(g, g->waiting, g->n_waiting, false, status);
  *status = interrupt_status();
  if (*status) return false;
  setun_status s = setun_session_eval_sample(g->session, g->waiting, g->n_waiting, g->sampler, &g->drawn, &error);
  g->is_drawn = s == SETUN_OK;
  return g->is_drawn || fail_evaluation(&error, status);
}

// The penalties cover the whole text, the session's and the prompt's, except forgotten tokens; the constraint what is
// new.
static bool show_text_to_sampler(generation *g) {
  setun_error error;
  const setun_token *ids = setun_session_tokens(g->session);
  uint32_t n = setun_session_position(g->session) - setun_session_forgotten(g->session);
  for (uint32_t i = 0; i < n; i++) {
    if (setun_sampler_accept(g->sampler, ids[i], &error) == SETUN_OK) continue;
    report(&error);
    return false;
  }
  return !g->constraint || setun_sampler_constrain(g->sampler, g->constraint, &error) == SETUN_OK || !report(&error);
}

static void note_full_context(generation *g) {
  uint32_t room = setun_session_context(g->session);
  char earlier[32] = "";
  if (g->line_open) print_bytes("\n", 1);
  g->line_open = false;
  flush_output();
  if (g->earlier) snprintf(earlier, sizeof earlier, "%u of the session, ", (unsigned)g->earlier);
  note("stopped: the context of %u token%s is full (%s%zu of the prompt, %zu new; see --ctx)", (unsigned)room,
       plural(room), earlier, g->prompt.count, g->count);
}

// ---- JSON ----

static void print_json_timings(const generation *g, bool drafts) {
  double prompt = g->prompt_seconds, decode = g->decode_seconds;
  print_text("\"timings\": {");
  print_json_member("load_s", g->load_seconds);
  print_text("\"prefill_tokens\": %zu, ", g->prompt_done);
  print_json_member("prefill_s", prompt);
  print_json_member("prefill_tokens_per_s", prompt > 0 ? (double)g->prompt_done / prompt : 0);
  print_text("\"decode_tokens\": %zu, ", g->decoded);
  print_json_member("decode_s", decode);
  print_text("\"decode_tokens_per_s\": ");
  print_json_number(decode > 0 ? (double)g->decoded / decode : 0);
  if (drafts) print_draft_json(g->session);
  print_text("}");
}

// The line of --jsonl for the last token, with the text output since the previous line.
static void print_token_line(generation *g, const run_options *o) {
  print_text("{\"text\": ");
  print_json_string(g->json_text.data ? g->json_text.data : "", g->json_text.length);
  g->json_text.length = 0;
  print_text(", ");
  if (o->logprobs >= 0)
    print_logprob_members(g->model, &g->likely, 0);
  else
    print_text("\"id\": %d", (int)g->made[g->count - 1]);
  print_text("}\n");
  flush_output();
  g->likely.count = 0;
}

// The object of --json, or the last line of --jsonl.
static void print_json_end(generation *g, const run_options *o) {
  print_text("{\"text\": ");
  print_json_string(g->json_text.data ? g->json_text.data : "", g->json_text.length);
  for (size_t i = 0; o->json && i < g->count; i++) print_text(i ? ", %d" : ", \"ids\": [%d", (int)g->made[i]);
  if (o->json) print_text(g->count ? "]" : ", \"ids\": []");
  if (o->json && o->logprobs >= 0) {
    print_text(", \"logprobs\": [");
    for (size_t i = 0; i < g->likely.count; i++) {
      print_text(i ? ", {" : "{");
      print_logprob_members(g->model, &g->likely, i);
      print_text("}");
    }
    print_text("]");
  }
  print_text(", \"stop_reason\": \"%s\", \"prompt_tokens\": %zu, \"session_tokens\": %u, ", g->reason, g->prompt.count,
             (unsigned)g->earlier);
  print_json_timings(g, session_params(&o->compute).n_draft);
  print_text("}\n");
}

// ---- the text ----

// One new token: drawn, added, and its text output. False after a report.
static bool draw(generation *g, const run_options *o, setun_token *id, bool *is_end) {
  setun_error error;
  const float *logits = setun_session_logits(g->session);
  uint32_t n_vocab = setun_model_n_vocab(g->model);
  *id = g->drawn;
  if (!g->is_drawn && setun_sampler_sample(g->sampler, logits, n_vocab, id, &error) != SETUN_OK) return !report(&error);
  g->is_drawn = false;
  if (o->logprobs >= 0 && !logprobs_add(&g->likely, logits, n_vocab, *id)) return false;
  *is_end = setun_token_is_end(g->model, *id);
  if (!emit(g, o, *id, *is_end)) return false;
  if (o->jsonl) print_token_line(g, o);
  return true;
}

// The next token: one that must follow, or a drawn one. False after a report, or an interrupt.
static bool next_token(generation *g, const run_options *o, setun_token *id, bool *is_end, int *status) {
  if (g->next_forced < g->n_forced) {
    *id = g->forced[g->next_forced++];
    *is_end = setun_token_is_end(g->model, *id);
    *status = STATUS_FAILED;
    if (!emit(g, o, *id, *is_end)) return false;
    if (o->jsonl) print_token_line(g, o);
    *status = 0;
    return true;
  }
  if (g->n_waiting && !evaluate_waiting(g, o, status)) return false;
  g->n_waiting = 0;
  if (!draw(g, o, id, is_end)) *status = STATUS_FAILED;
  return !*status;
}

// The tokens that must follow the text, if there is room for them: their logits are not needed.
static bool find_forced(generation *g, const run_options *o) {
  setun_error error;
  size_t count = 0;
  if (!g->constraint || o->logprobs >= 0 || g->next_forced < g->n_forced || g->n_waiting + FORCED_MOST > WAITING_MOST)
    return true;
  g->next_forced = g->n_forced = 0;
  if (setun_sampler_forced(g->sampler, g->forced, FORCED_MOST, &count, &error) != SETUN_OK) return !report(&error);
  g->n_forced = count < FORCED_MOST ? count : FORCED_MOST;
  return true;
}

// Generates until the model ends the text, -n, the end of the context, or an interrupt. Returns the exit status.
static int generate(generation *g, const run_options *o) {
  setun_error error;
  int status = 0;
  uint32_t room = setun_session_context(g->session);
  g->reason = setun_end_name(SETUN_END_LENGTH);
  if (!find_forced(g, o)) return STATUS_FAILED;
  while (o->n < 0 || g->count < (uint64_t)o->n) {
    setun_token id = 0;
    bool is_end = false;
    // every token needs its position, including the last one, which is evaluated only with --session
    if (setun_session_position(g->session) + g->n_waiting == room) {
      note_full_context(g);
      g->reason = setun_end_name(SETUN_END_CONTEXT);
      break;
    }
    if (!next_token(g, o, &id, &is_end, &status)) break;
    if ((is_end && !o->ignore_end) || g->stopped) {
      g->reason = setun_end_name(g->stopped ? SETUN_END_STOP : SETUN_END_TOKEN);
      break;
    }
    if (setun_sampler_accept(g->sampler, id, &error) != SETUN_OK) return report(&error);
    g->waiting[g->n_waiting++] = id;
    if (!find_forced(g, o)) return STATUS_FAILED;
  }
  return status;
}

// Outputs what the decoder and the stop texts held back. False after a report.
static bool end_text(generation *g, const run_options *o) {
  const char *text = NULL;
  size_t length = 0;
  setun_error error;
  if (o->ids) {
    print_id_array(g->made, g->count);
    flush_output();
    return true;
  }
  setun_status s = setun_decoder_finish(g->decoder, &text, &length, &error);
  bool fine = s == SETUN_OK && add_text(g, o, text, length);
  if (fine) s = setun_stops_finish(g->stops, &text, &length, &error);
  if (fine && s == SETUN_OK) fine = give_text(g, o, text, length);
  if (g->stopped) g->reason = setun_end_name(SETUN_END_STOP);
  if (g->line_open) print_bytes("\n", 1);
  flush_output();
  if (s != SETUN_OK) report(&error);
  return fine && s == SETUN_OK;
}

// Saves the text in the session file. False after a report.
static bool keep_text(generation *g, const run_options *o) {
  setun_error error;
  if (!g->prompt_read) { // if saved now, the text would end within the prompt
    note("%s is unchanged: the prompt was not evaluated completely", o->session);
    return true;
  }
  if (g->n_waiting && setun_session_eval(g->session, g->waiting, g->n_waiting, NULL, &error) != SETUN_OK) {
    report(&error);
    return false;
  }
  g->n_waiting = 0;
  size_t kept =
      g->earlier + g->prompt.count + g->kept; // without the stop text, and without the rest of its first token
  if (g->stopped && kept < setun_session_position(g->session) &&
      setun_session_truncate(g->session, (uint32_t)kept, &error) != SETUN_OK) {
    report(&error);
    return false;
  }
  return save_session(g->session, o->session);
}

static void print_rate(const char *what, size_t tokens, double seconds, const char *end) {
  fprintf(stderr, "%-8s %6zu %-6s in %8.3f s  %9.2f tokens/s%s", what, tokens, tokens == 1 ? "token" : "tokens",
          seconds, seconds > 0 ? (double)tokens / seconds : 0, end);
}

static void print_timings(const generation *g) {
  setun_model_info info = model_info(g->model);
  double bytes = (double)g->decoded * (double)info.bytes_per_token;
  char text[32];
  fprintf(stderr, "load     %s in %8.3f s  %.2f GB/s\n", format_bytes(info.weight_bytes, text), g->load_seconds,
          g->load_seconds > 0 ? (double)info.weight_bytes / g->load_seconds / 1e9 : 0);
  print_rate("prompt", g->prompt_done, g->prompt_seconds, "\n");
  print_rate("decode", g->decoded, g->decode_seconds, "");
  fprintf(stderr, "  %.2f GB/s of weights\n", g->decode_seconds > 0 ? bytes / g->decode_seconds / 1e9 : 0);
  print_draft_report(g->session);
  streaming_report decode = make_streaming_report(g->model, &g->prompt_stream, 0);
  print_memory_report(&decode);
  print_streaming_report("decode", &decode);
  print_expert_report(g->model);
}

static void print_settings(const generation *g, const run_options *o) {
  setun_model_info info = model_info(g->model);
  int threads = setun_session_threads(g->session);
  setun_plan plan = model_plan_of(g->model);
  char cache[32];
  note("%s from %s, %s kernels, %s activations, %d thread%s, context %u%s, %s of KV cache", info.architecture,
       info.container, info.isa, info.activation, threads, plural((uint64_t)threads), (unsigned)plan.n_ctx,
       setun_session_context(g->session) == UINT32_MAX ? ", length not limited" : "",
       format_bytes(plan.cache_pages, cache));
  print_sampling(g->model, &o->sampling, &g->sampling);
}

// Model, session, sampler and decoder. False after a report; what was made is freed by the caller.
static bool prepare(generation *g, const run_options *o, const char *path, bool begins) {
  setun_error error;
  double start = seconds_now();
  compute_options compute = o->compute;
  compute.n_ctx = (uint32_t)o->ctx;
  if (!open_draft(&o->model, &compute, o->verbose, &g->draft)) return false;
  if (o->trace && !open_experts_trace(&g->trace, o->trace)) return false;
  compute.trace = o->trace ? &g->trace : NULL;
  if (!open_model(path, &o->model, &compute, o->verbose, &g->model)) return false;
  if (!begin_experts_trace(&g->trace, g->model)) return false;
  if (!open_session(path, g->model, &compute, (uint32_t)o->ctx, &g->session)) return false;
  g->load_seconds = seconds_now() - start;
  if (o->session && !load_session(g->session, o->session)) return false;
  g->earlier = setun_session_position(g->session);
  if (o->verbose && g->earlier) note("%s holds %u token%s", o->session, (unsigned)g->earlier, plural(g->earlier));
  if (!make_sampler(g->model, &o->sampling, &g->sampler, &g->sampling)) return false;
  if (!open_stops(&o->stops, o->text.escape, &g->stops)) return false;
  if (o->constraint_text.params.text &&
      setun_constraint_new(g->model, &o->constraint_text.params, &g->constraint, &error) != SETUN_OK) {
    report(&error);
    return false;
  }
  int flags = begins && !g->earlier ? 0 : SETUN_DECODE_CONTINUES;
  if (setun_decoder_new(g->model, flags, &g->decoder, &error) == SETUN_OK) return true;
  report(&error);
  return false;
}

static int run_prompt(generation *g, const run_options *o, const input_text *text) {
  int status = 0;
  if (!tokenize_prompt(g, o, text)) return STATUS_FAILED;
  if (o->verbose) print_settings(g, o);
  watch_interrupts(g->session);
  bool echo = !o->no_echo && !o->ids && !is_json(o);
  // The progress line must not overwrite the prompt.
  bool echo_first = echo && !(isatty(STDOUT_FILENO) && isatty(STDERR_FILENO));
  if (echo_first) print_piece(g, text->data, text->length);
  double start = seconds_now();
  g->prompt_read = evaluate(g, g->prompt.ids, g->prompt.count, true, &status);
  g->prompt_seconds = seconds_now() - start;
  if (echo && !echo_first) print_piece(g, text->data, text->length);
  g->prompt_stream = stream_stats(g->model);
  g->prompt_done = setun_session_position(g->session) - g->earlier;
  start = seconds_now();
  if (g->prompt_read) status = show_text_to_sampler(g) ? generate(g, o) : STATUS_FAILED;
  g->decode_seconds = seconds_now() - start;
  g->decoded = setun_session_position(g->session) - g->earlier - g->prompt_done;
  if (status == STATUS_FAILED && g->line_open) print_bytes("\n", 1);
  if (status > 128) g->reason = "interrupted";
  if (status != STATUS_FAILED && !end_text(g, o)) status = STATUS_FAILED;
  if (status != STATUS_FAILED && is_json(o)) print_json_end(g, o);
  if (o->session && status != STATUS_FAILED && !keep_text(g, o)) status = STATUS_FAILED;
  if (!close_experts_trace(&g->trace, status != STATUS_FAILED)) status = STATUS_FAILED;
  if (status != STATUS_FAILED && !save_experts_state(g->model, &o->compute)) status = STATUS_FAILED;
  if (o->verbose || status > 128) print_timings(g);
  watch_interrupts(NULL);
  return status;
}

static void free_generation(generation *g) {
  close_experts_trace(&g->trace, false);
  setun_decoder_free(g->decoder);
  setun_stops_free(g->stops);
  setun_sampler_free(g->sampler);
  setun_constraint_free(g->constraint);
  setun_session_free(g->session);
  setun_model_free(g->model);
  setun_model_free(g->draft);
  free(g->prompt.ids);
  free(g->made);
  free(g->ends);
  free(g->json_text.data);
  logprobs_free(&g->likely);
}

// The trace replaces what is there. The other files are read first, and refused if they are of another kind.
static int check_files(const command *self, const run_options *o, const char *model) {
  const char *draft = o->compute.draft;
  const named_file files[] = {
      {"--file", o->text.file},  {"--json-schema", o->constraint.schema},       {"--grammar", o->constraint.grammar},
      {"--session", o->session}, {"--experts-state", o->compute.experts_state}, {"--trace", o->trace}};
  int status = check_distinct(self, files, sizeof files / sizeof *files);
  if (!status && o->trace) status = check_output(self, "--trace", o->trace, model, &o->compute.adapters);
  if (!status && o->trace && draft) status = check_output(self, "--trace", o->trace, draft, NULL);
  return status;
}

static int run(const command *self, int argc, char **argv) {
  run_options o = {.n = -1, .logprobs = -1, .sampling = sampling_unset()};
  generation g = {0};
  input_text text = {0};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  g.likely.top = o.logprobs > 0 ? (size_t)o.logprobs : 0;
  status = check_sampling(self, &o.sampling);
  if (!status) status = check_window(self, &o.compute, o.ctx);
  if (!status && o.ids + o.json + o.jsonl > 1)
    status = usage_error(self, "--ids, --json and --jsonl exclude each other");
  if (!status && o.logprobs >= 0 && !is_json(&o)) status = usage_error(self, "--logprobs goes with --json or --jsonl");
  if (!status) status = check_files(self, &o, argv[1]);
  if (!status) status = read_constraint(self, &o.constraint, o.ignore_end, &o.constraint_text);
  if (!status) status = read_text(self, &o.text, text_limit(o.compute.memory), &text);
  if (status) {
    free(o.constraint_text.text.data);
    return status;
  }
  status = prepare(&g, &o, argv[1], !text.length) ? run_prompt(&g, &o, &text) : failed_status();
  free_generation(&g);
  free(text.data);
  free(o.constraint_text.text.data);
  int written = finish_output();
  return status ? status : written;
}

const command command_run = {
    .name = "run",
    .summary = "generate text from a prompt",
    .arguments = "MODEL",
    .min_arguments = 1,
    .max_arguments = 1,
    .details = "Prints the prompt and then the model's continuation as it is generated. The prompt comes from -p, a "
               "file, or standard input, and is used unchanged; the tokenizer's BOS token is prepended, once, if the "
               "model requires it. An empty prompt is just BOS. A prompt longer than the context is an error; reaching "
               "the end of the context stops the text; both report the numbers. Ctrl-C stops the text, prints the "
               "timings, and results in exit status 130.\n"
               "With --session the text can be continued later: the prompt is then appended to the text in the file, "
               "and an empty one (-p '') continues where it ended. The file is written completely or not at all, also "
               "after Ctrl-C; it does not include an end token that stopped the text, nor a token with --stop's text. "
               "Sampling follows the options, then the model's own files, then the defaults.",
    .groups = {TEXT_GROUP(run_options),
               {"output", OPTION_ROWS(output_rows), 0},
               SAMPLING_GROUP(run_options),
               COMPUTE_GROUP(run_options),
               MODEL_GROUP(run_options)},
    .run = run,
};
