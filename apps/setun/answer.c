// Making answers. The KV cache holds the tokens of the last prompt and answer: of the next prompt, only what follows
// the first difference from those is computed.
#define _POSIX_C_SOURCE 200809L
#include "answer.h"

#include "input.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

// Tokens that may be evaluated together with the one before them, since a constraint leaves no others.
enum { FORCED_MOST = 32 };

// The state of one answer.
typedef struct turn {
  answerer *a;
  id_list prompt; // the conversation rendered by the template
  id_list made;   // the answer's tokens
  size_t made_capacity;
  setun_sampler *sampler;
  setun_constraint *constraint; // NULL: any answer
  setun_reply *reply;
  text_buffer content, reasoning;
  bool dim, line_open, any, failed, called, stopped; // stopped: by a stop text
  setun_channel channel;                             // of what was printed last
} turn;

// ---- text ----

// A model's text must not control the terminal: control characters are shown as '?'.
static void print_safely(const char *text, size_t n) {
  size_t from = 0;
  for (size_t i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
    bool c1 = c == 0xC2 && next >= 0x80 && next < 0xA0; // U+0080 to U+009F
    if (!c1 && (c >= 32 || c == '\n' || c == '\t') && c != 127) continue;
    print_bytes(text + from, i - from);
    print_bytes("?", 1);
    i += c1;
    from = i + 1;
  }
  if (from < n) print_bytes(text + from, n - from);
}

static void set_dim(turn *t, bool dim) {
  if (t->dim == dim || !t->a->color) return;
  print_text("%s", dim ? "\033[2m" : "\033[0m");
  t->dim = dim;
}

static void show(turn *t, setun_channel channel, const char *text, size_t n) {
  bool thoughts =
      channel == SETUN_CHANNEL_REASONING || channel == SETUN_CHANNEL_CALL || channel == SETUN_CHANNEL_CALL_NAME;
  if (t->a->silent || (thoughts && (!t->a->terminal || t->a->hide_reasoning))) return;
  block_signals(true);
  if (t->any && channel != t->channel) print_text("%s\n", t->line_open ? "\n" : "");
  t->any = true;
  t->channel = channel;
  if (t->a->terminal) {
    set_dim(t, thoughts);
    print_safely(text, n);
  } else {
    print_bytes(text, n);
  }
  flush_output();
  block_signals(false);
  t->line_open = text[n - 1] != '\n';
}

static bool take_text(turn *t, setun_channel channel, const char *text, size_t n) {
  text_buffer *to = channel == SETUN_CHANNEL_CONTENT     ? &t->content
                    : channel == SETUN_CHANNEL_REASONING ? &t->reasoning
                                                         : NULL;
  // Templates add white space before an answer, or trim it.
  while (to && !to->length && n && strchr(" \t\n\r", *text)) text++, n--;
  if (!n) return true;
  if (channel == SETUN_CHANNEL_CALL) t->called = true;
  if (to && !append_text(to, text, n)) {
    t->failed = true;
    return false;
  }
  show(t, channel, text, n);
  return true;
}

// Prints the answer's text that was held back for a stop text that did not follow.
static bool take_rest(turn *t) {
  const char *text = NULL;
  size_t n = 0;
  if (!t->a->stops || setun_stops_finish(t->a->stops, &text, &n, NULL) != SETUN_OK) return true;
  return take_text(t, SETUN_CHANNEL_CONTENT, text, n);
}

// A setun_reply_fn. Stop texts apply to the answer itself.
static bool take(setun_channel channel, const char *text, size_t n, void *user) {
  turn *t = user;
  setun_error error;
  if (t->stopped) return true;
  if (!t->a->stops) return take_text(t, channel, text, n);
  if (channel != SETUN_CHANNEL_CONTENT) return take_rest(t) && take_text(t, channel, text, n);
  if (setun_stops_push(t->a->stops, text, n, &text, &n, &t->stopped, &error) == SETUN_OK) {
    return take_text(t, channel, text, n);
  }
  report(&error);
  t->failed = true;
  return false;
}

static void end_line(turn *t) {
  block_signals(true);
  set_dim(t, false);
  if (t->line_open) print_bytes("\n", 1);
  t->line_open = false;
  flush_output();
  block_signals(false);
}

// ---- the prompt ----

static bool tokenize(const answerer *a, bool generate, setun_rendering **rendering, id_list *list) {
  setun_error error;
  char *context = conversation_context(a->talk, generate);
  size_t n = 0;
  if (!context) return false;
  setun_status s = setun_chat_render(a->chat, context, strlen(context), NULL, rendering, &error);
  free(context);
  if (s == SETUN_OK) s = setun_rendering_tokenize(*rendering, NULL, 0, &n, &error);
  if (s == SETUN_OK) {
    setun_token *ids = malloc((n + 1) * sizeof *ids);
    if (!ids) {
      failure("out of memory for %zu ids", n);
      return false;
    }
    *list = (id_list){ids, n};
    s = setun_rendering_tokenize(*rendering, ids, n, &list->count, &error);
  }
  if (s != SETUN_OK) report(&error);
  return s == SETUN_OK;
}

bool count_tokens(const answerer *a, size_t *count) {
  id_list list = {0};
  setun_rendering *rendering = NULL;
  *count = 0;
  bool ok = !conversation_count(a->talk) || tokenize(a, conversation_wants_answer(a->talk), &rendering, &list);
  *count = list.count;
  free(list.ids);
  setun_rendering_free(rendering);
  return ok;
}

static bool is_yes(const char *text, size_t length, const char *word) {
  return length && length <= strlen(word) && !memcmp(text, word, length);
}

static answer_result say_full(turn *t, size_t tokens) {
  if (t->a->terminal)
    note("stopped: the conversation has %zu tokens, and the context holds %u (see --ctx and --overflow)", tokens,
         (unsigned)t->a->room);
  else
    failure("the conversation has %zu tokens, and the context holds %u (see --ctx and --overflow)", tokens,
            (unsigned)t->a->room);
  return ANSWER_FULL;
}

// Decides about a conversation with too many tokens. ANSWER_DONE: continue.
static answer_result choose(turn *t, size_t tokens) {
  answerer *a = t->a;
  const char *text = NULL;
  size_t length = 0;
  if (a->overflow == OVERFLOW_DROP) return ANSWER_DONE;
  if (a->overflow == OVERFLOW_STOP) return say_full(t, tokens);
  note("the conversation has %zu tokens, and the context holds %u", tokens, (unsigned)a->room);
  for (;;) {
    input_event event = editor_line(a->input, "stop, or drop the oldest tokens? [s/d] ", &text, &length);
    if (event != INPUT_TEXT || is_yes(text, length, "stop")) return say_full(t, tokens);
    if (is_yes(text, length, "drop")) break;
  }
  a->overflow = OVERFLOW_DROP; // from here on
  return ANSWER_DONE;
}

static answer_result make_prompt(turn *t) {
  setun_rendering *rendering = NULL;
  setun_error error;
  bool ok = tokenize(t->a, true, &rendering, &t->prompt);
  if (ok && setun_reply_new(rendering, &t->reply, &error) != SETUN_OK) {
    report(&error);
    ok = false;
  }
  setun_answer_params wanted = setun_answer_params_default();
  wanted.text = t->a->constraint;
  if (ok && wanted.text && setun_constraint_new_answer(rendering, &wanted, &t->constraint, &error) != SETUN_OK) {
    report(&error);
    ok = false;
  }
  setun_rendering_free(rendering);
  if (!ok) return ANSWER_FAILED;
  return t->prompt.count < t->a->room ? ANSWER_DONE : choose(t, t->prompt.count);
}

static answer_result evaluate(turn *t, const setun_token *ids, size_t n) {
  setun_error error;
  if (interrupt_pending()) return ANSWER_INTERRUPTED;
  if (evaluate_prompt(t->a->session, ids, n, t->a->terminal && n > 1, &error) == SETUN_OK) return ANSWER_DONE;
  if (error.code == SETUN_ERROR_CANCELED && interrupt_pending()) return ANSWER_INTERRUPTED;
  report(&error);
  return ANSWER_FAILED;
}

// Computes what the session does not have yet, at least the last token, whose logits are needed. If it would have to
// begin among forgotten tokens, it starts over.
static answer_result compute_prompt(turn *t) {
  setun_session *session = t->a->session;
  const setun_token *old = t->a->evaluated.ids, *ids = t->prompt.ids;
  size_t position = setun_session_position(session), evaluated = t->a->evaluated.count;
  uint32_t same = 0;
  setun_error error;
  if (evaluated > position) evaluated = position;
  while (same < evaluated && same < t->prompt.count && old[same] == ids[same]) same++;
  if (t->prompt.count && same == t->prompt.count) same--;
  setun_status s = setun_session_truncate(session, same, &error);
  if (s == SETUN_ERROR_ARGUMENT && setun_session_forgotten(session)) {
    same = 0;
    s = setun_session_truncate(session, 0, &error);
  }
  if (s != SETUN_OK) {
    report(&error);
    return ANSWER_FAILED;
  }
  t->a->facts.computed_tokens += t->prompt.count - same;
  if (t->a->verbose) note("prompt: %zu tokens, %u of them in the cache", t->prompt.count, (unsigned)same);
  return evaluate(t, ids + same, t->prompt.count - same);
}

// Records what the session has evaluated; nothing if out of memory, so that all is computed again. False after a
// report, which is omitted for an answer that has failed and was reported.
static bool keep_held(turn *t, bool failed) {
  size_t n = setun_session_position(t->a->session), prompt = n < t->prompt.count ? n : t->prompt.count;
  setun_token *ids = malloc((n + 1) * sizeof *ids);
  if (!ids) {
    t->a->evaluated.count = 0;
    if (!failed) failure("out of memory for %zu ids", n);
    return false;
  }
  if (prompt) memcpy(ids, t->prompt.ids, prompt * sizeof *ids);
  if (n > prompt) memcpy(ids + prompt, t->made.ids, (n - prompt) * sizeof *ids);
  free(t->a->evaluated.ids);
  t->a->evaluated = (id_list){ids, n};
  return true;
}

// ---- the answer ----

// Makes a sampler that has accepted the text.
static bool make_turn_sampler(turn *t) {
  sampling_options o = *t->a->sampling;
  setun_sampler_params params;
  setun_error error;
  o.seed = (optional_seed){t->a->seed + t->a->answers, true};
  if (!make_sampler(t->a->model, &o, &t->sampler, &params)) return false;
  for (size_t i = 0; i < t->prompt.count; i++) {
    if (setun_sampler_accept(t->sampler, t->prompt.ids[i], &error) == SETUN_OK) continue;
    report(&error);
    return false;
  }
  t->a->answers++;
  return !t->constraint || setun_sampler_constrain(t->sampler, t->constraint, &error) == SETUN_OK || !report(&error);
}

static bool keep_token(turn *t, setun_token id) {
  setun_error error;
  if (t->made.count == t->made_capacity) {
    size_t larger = t->made_capacity * 2 + 256;
    setun_token *grown = realloc(t->made.ids, larger * sizeof *grown);
    if (!grown) {
      failure("out of memory for %zu ids", larger);
      return false;
    }
    t->made.ids = grown;
    t->made_capacity = larger;
  }
  t->made.ids[t->made.count++] = id;
  setun_status s = setun_sampler_accept(t->sampler, id, &error);
  if (s == SETUN_OK) s = setun_reply_push(t->reply, id, take, t, &error);
  if (s != SETUN_OK && !t->failed) report(&error);
  return s == SETUN_OK;
}

// The context is full in the middle of an answer.
static answer_result go_on(turn *t, setun_token id) {
  size_t tokens = setun_session_position(t->a->session) + (size_t)1;
  if (t->a->overflow != OVERFLOW_DROP) end_line(t);
  answer_result result = choose(t, tokens);
  return result == ANSWER_DONE ? evaluate(t, &id, 1) : result;
}

static bool is_limit(const turn *t) {
  return t->a->most >= 0 && t->made.count >= (uint64_t)t->a->most;
}

// Adds to the tokens of the next pass those that must follow them. *ended: an end token is the last of these. False
// after a report.
static bool add_forced(turn *t, setun_token *pass, size_t *n, bool *ended) {
  setun_token ids[FORCED_MOST];
  size_t count = 0;
  setun_error error;
  if (!t->constraint) return true;
  if (setun_sampler_forced(t->sampler, ids, FORCED_MOST, &count, &error) != SETUN_OK) return !report(&error);
  size_t room = t->a->room - setun_session_position(t->a->session);
  for (size_t i = 0; i < count && i < FORCED_MOST && *n < room && !t->stopped && !is_limit(t); i++) {
    *ended = setun_token_is_end(t->a->model, ids[i]);
    if (*ended) break;
    if (!keep_token(t, ids[i])) return false;
    pass[(*n)++] = ids[i];
  }
  return true;
}

static answer_result generate(turn *t) {
  setun_session *session = t->a->session;
  setun_error error;
  uint32_t n_vocab = setun_model_n_vocab(t->a->model);
  answer_result result = ANSWER_DONE;
  t->a->facts.reason = setun_end_name(SETUN_END_LENGTH);
  while (result == ANSWER_DONE && !is_limit(t)) {
    setun_token id = 0, pass[1 + FORCED_MOST];
    size_t n = 1;
    bool ended = false;
    if (setun_sampler_sample(t->sampler, setun_session_logits(session), n_vocab, &id, &error) != SETUN_OK) {
      report(&error);
      return ANSWER_FAILED;
    }
    if (setun_token_is_end(t->a->model, id) && !t->a->ignore_end) {
      t->a->facts.reason = setun_end_name(SETUN_END_TOKEN);
      break;
    }
    if (!keep_token(t, id)) return ANSWER_FAILED;
    pass[0] = id;
    bool full = setun_session_position(session) == t->a->room;
    if (!t->stopped && !full && !add_forced(t, pass, &n, &ended)) return ANSWER_FAILED;
    if (ended) t->a->facts.reason = setun_end_name(SETUN_END_TOKEN);
    if (t->stopped || ended) break;
    result = full ? go_on(t, id) : evaluate(t, pass, n);
  }
  return result;
}

// Reports an answer without text.
static void report_empty(const turn *t) {
  bool thoughts = t->reasoning.length != 0, limit = is_limit(t);
  if (t->content.length || (!thoughts && !t->called)) return;
  note("the answer has no text, only %s%s",
       !t->called  ? "reasoning"
       : !thoughts ? "a tool call"
                   : "reasoning and a tool call",
       limit ? ", and ends at the limit of -n" : "");
}

// Adds the answer to the conversation.
static bool keep_answer(turn *t, answer_result result) {
  if (result != ANSWER_DONE && !t->content.length) return true;
  return conversation_add_answer(t->a->talk, t->content.data ? t->content.data : "", t->content.length,
                                 t->reasoning.data, t->reasoning.length);
}

static void note_facts(turn *t, answer_result result) {
  answer_facts *f = &t->a->facts;
  f->prompt_tokens = t->prompt.count;
  f->new_tokens = t->made.count;
  if (result == ANSWER_INTERRUPTED) f->reason = "interrupted";
  if (result == ANSWER_FULL) f->reason = setun_end_name(SETUN_END_CONTEXT);
  if (t->stopped) f->reason = setun_end_name(SETUN_END_STOP);
}

// Prints the speed below the answer.
static void print_speed(const answerer *a) {
  const answer_facts *f = &a->facts;
  if (!a->terminal || !f->new_tokens || f->decode_seconds <= 0) return;
  fprintf(stderr, "%s[%zu token%s, %.1f tokens/s; prompt: %zu of %zu tokens computed in %.2f s]%s\n",
          a->color ? "\033[2m" : "", f->new_tokens, plural(f->new_tokens), (double)f->new_tokens / f->decode_seconds,
          f->computed_tokens, f->prompt_tokens, f->prompt_seconds, a->color ? "\033[0m" : "");
}

static void free_turn(turn *t) {
  setun_sampler_free(t->sampler);
  setun_constraint_free(t->constraint);
  setun_reply_free(t->reply);
  free(t->prompt.ids);
  free(t->made.ids);
  free(t->content.data);
  free(t->reasoning.data);
}

answer_result answer(answerer *a) {
  turn t = {.a = a};
  setun_error error;
  answer_result result = make_prompt(&t);
  if (result == ANSWER_DONE && !make_turn_sampler(&t)) result = ANSWER_FAILED;
  a->facts = (answer_facts){0};
  double begin = seconds_now(), decode = begin;
  if (result == ANSWER_DONE) {
    result = compute_prompt(&t);
    decode = seconds_now();
    if (result == ANSWER_DONE) result = generate(&t);
    if (!keep_held(&t, result == ANSWER_FAILED)) result = ANSWER_FAILED;
  }
  a->facts.prompt_seconds = decode - begin;
  a->facts.decode_seconds = seconds_now() - decode;
  if (result != ANSWER_FAILED && t.reply && setun_reply_finish(t.reply, take, &t, &error) != SETUN_OK) {
    if (!t.failed) report(&error);
    result = ANSWER_FAILED;
  }
  if (!take_rest(&t)) result = ANSWER_FAILED;
  end_line(&t);
  if (result == ANSWER_DONE || result == ANSWER_FULL) report_empty(&t);
  if (result != ANSWER_FAILED && !keep_answer(&t, result)) result = ANSWER_FAILED;
  note_facts(&t, result);
  print_speed(a);
  free_turn(&t);
  return result;
}
