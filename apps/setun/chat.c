// The command `chat`: a conversation in the terminal, or line by line.
#define _POSIX_C_SOURCE 200809L
#include "answer.h"
#include "commands.h"
#include "constraint.h"
#include "input.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "session.h"
#include "state.h"
#include "stops.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chat_options {
  model_options model;
  compute_options compute;
  sampling_options sampling;
  constraint_options constraint;
  int64_t n, ctx; // n < 0: until the end; ctx 0: the model's
  const char *system, *file, *overflow, *name, *color;
  text_list variables, stops;
  bool hide_thinking, ignore_end, no_history, json, jsonl, verbose;
} chat_options;

#define AT(member) offsetof(chat_options, member)
static const option rows[] = {
    {0, "system", OPTION_TEXT, AT(system), "TEXT", 0, 0, "the system prompt"},
    {0, "template", OPTION_FILE, AT(file), "FILE", 0, 0, "use this chat template instead of the model's own"},
    {0, "template-name", OPTION_TEXT, AT(name), "NAME", 0, 0, "use the model's template with this name"},
    {0, "template-arg", OPTION_LIST, AT(variables), "KEY=JSON", 0, 0,
     "a variable for the template, such as enable_thinking=false or reasoning_effort='\"low\"'"},
    {'n', NULL, OPTION_INTEGER, AT(n), "N", -1, INT32_MAX,
     "maximum tokens of an answer (default -1: until the model ends it)"},
    {'c', "ctx", OPTION_INTEGER, AT(ctx), "N", 1, INT32_MAX,
     "tokens in the context (default: the model's, at most 4096)"},
    {0, "overflow", OPTION_CHOICE, AT(overflow), "stop|drop", 0, 0,
     "when the context is full: stop, or drop the oldest tokens except the first ones as new ones come (default: ask, "
     "or stop if there is no terminal; drop with --window or --kv-sinks)"},
    WINDOW_ROWS(chat_options),
    STOP_ROW(AT(stops)),
    CONSTRAINT_ROWS(chat_options),
    {0, "hide-thinking", OPTION_FLAG, AT(hide_thinking), NULL, 0, 0,
     "do not show the model's reasoning before its answer"},
    {0, "ignore-eos", OPTION_FLAG, AT(ignore_end), NULL, 0, 0, "continue past end tokens"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0,
     "read one JSON text, {\"messages\": [...]} or the array, answer its last message, and print the messages with the "
     "answer"},
    {0, "jsonl", OPTION_FLAG, AT(jsonl), NULL, 0, 0,
     "read one message per line as a JSON object, and print each answer as one"},
    {0, "no-history", OPTION_FLAG, AT(no_history), NULL, 0, 0,
     "do not keep a history of what you type (in $XDG_STATE_HOME/setun, by default ~/.local/state/setun)"},
    {0, "color", OPTION_CHOICE, AT(color), "auto|always|never", 0, 0,
     "dimmed reasoning and a coloured prompt: on a terminal unless NO_COLOR is set (default), always, or never"},
    DRAFT_ROW(chat_options, "ngram"),
    EXPERTS_STATE_ROW(chat_options),
    EXPERTS_AHEAD_ROW(chat_options),
    {0, "verbose", OPTION_FLAG, AT(verbose), NULL, 0, 0, "print progress and settings on standard error"},
};

// ---- commands ----

typedef enum chat_next { CHAT_GO_ON, CHAT_QUIT } chat_next;

// Answers the last message, and removes it if there was no answer. Returns the exit status for non-interactive use.
static int respond(answerer *a) {
  answer_result result = answer(a);
  if (result == ANSWER_INTERRUPTED && a->terminal) {
    take_interrupt();
    note("stopped%s", conversation_wants_answer(a->talk) ? " before the answer began: the message is removed" : "");
  }
  if (conversation_wants_answer(a->talk) && result != ANSWER_DONE) {
    conversation_undo(a->talk);
    if (result != ANSWER_INTERRUPTED && a->terminal) note("the message is removed");
  }
  if (result == ANSWER_INTERRUPTED) return interrupt_status();
  return result == ANSWER_DONE ? 0 : STATUS_FAILED;
}

static void show_tokens(answerer *a) {
  size_t n = 0;
  if (!count_tokens(a, &n)) return;
  note("%zu message%s, %zu of %u tokens; %u in the cache", conversation_count(a->talk),
       plural(conversation_count(a->talk)), n, (unsigned)a->room, (unsigned)setun_session_position(a->session));
}

static void command_system(answerer *a, const char *text) {
  const char *old = conversation_system(a->talk);
  if (*text) {
    if (conversation_set_system(a->talk, text, strlen(text))) note("system prompt set");
  } else if (old) {
    note("system prompt: %s", old);
  } else {
    note("there is no system prompt (/system TEXT sets one)");
  }
}

// The most bytes of a file of messages: a short message takes many times its text.
static size_t longest_file(const answerer *a) {
  enum { LEAST = 65536, A_TEXT = 4 };
  return a->longest / A_TEXT > LEAST ? a->longest / A_TEXT : LEAST;
}

static void command_save(answerer *a, const char *path) {
  if (!*path)
    note("/save FILE");
  else if (conversation_save(a->talk, path, longest_file(a)))
    note("%zu message%s saved in %s", conversation_count(a->talk), plural(conversation_count(a->talk)), path);
}

static void command_load(answerer *a, const char *path) {
  if (!*path) {
    note("/load FILE");
  } else if (conversation_load(a->talk, path, longest_file(a))) {
    note("%zu message%s loaded from %s", conversation_count(a->talk), plural(conversation_count(a->talk)), path);
    if (conversation_wants_answer(a->talk)) note("the last one has no answer (/regen gives it one)");
  }
}

static void command_regen(answerer *a, const char *text) {
  (void)text;
  if (conversation_drop_answer(a->talk))
    respond(a);
  else
    note("there is no message to answer yet");
}

static void command_undo(answerer *a, const char *text) {
  (void)text;
  bool undone = conversation_undo(a->talk);
  size_t left = conversation_count(a->talk);
  note("%s; %zu message%s left", undone ? "removed your last message and its answer" : "there is no message to remove",
       left, left == 1 ? " is" : "s are");
}

static void command_tokens(answerer *a, const char *text) {
  (void)text;
  show_tokens(a);
}

static void command_clear(answerer *a, const char *text) {
  (void)text;
  conversation_clear(a->talk);
  note("a new conversation; %zu message%s", conversation_count(a->talk), plural(conversation_count(a->talk)));
}

static void command_image(answerer *a, const char *text) {
  (void)a;
  (void)text;
  failure("/image: only text is supported, not images, audio or video");
}

static void show_commands(answerer *a, const char *text);

static const struct {
  const char *name, *help;
  void (*run)(answerer *a, const char *text); // NULL: quit
  bool path;                                  // it has a text argument
} chat_commands[] = {
    {"help", "this list", show_commands, false},
    {"system", "[TEXT] sets the system prompt, or shows it", command_system, false},
    {"regen", "answers your last message again", command_regen, false},
    {"undo", "removes your last message and its answer", command_undo, false},
    {"clear", "starts a new conversation with the same system prompt", command_clear, false},
    {"tokens", "shows how full the context is", command_tokens, false},
    {"save", "FILE saves the conversation as JSON", command_save, true},
    {"load", "FILE loads and continues a conversation", command_load, true},
    {"image", "is not supported", command_image, false},
    {"quit", "ends the program, as does Ctrl-D", NULL, false},
};
enum { CHAT_COMMANDS = sizeof chat_commands / sizeof *chat_commands };

static void show_commands(answerer *a, const char *text) {
  (void)a;
  (void)text;
  for (size_t i = 0; i < CHAT_COMMANDS; i++)
    fprintf(stderr, "  /%-8s %s\n", chat_commands[i].name, chat_commands[i].help);
  fputs(
      "A backslash at the end continues a line; lines between two \"\"\" are one message; a message that begins with\n"
      "a slash is written with two. Ctrl-C stops an answer.\n",
      stderr);
}

static chat_next run_command(answerer *a, const char *line) {
  size_t n = strcspn(line, " \t");
  const char *text = line + n + strspn(line + n, " \t");
  for (size_t i = 0; i < CHAT_COMMANDS; i++) {
    if (strlen(chat_commands[i].name) != n || memcmp(chat_commands[i].name, line, n) != 0) continue;
    if (!chat_commands[i].run) return CHAT_QUIT;
    chat_commands[i].run(a, text);
    return CHAT_GO_ON;
  }
  note("there is no command /%.*s (see /help)", (int)n, line);
  return CHAT_GO_ON;
}

// Completes a line for the Tab key.
static completion complete_line(const char *line, size_t length) {
  const char *words[CHAT_COMMANDS], *space = memchr(line, ' ', length);
  if (*line != '/') return (completion){0};
  for (size_t i = 0; i < CHAT_COMMANDS; i++) words[i] = chat_commands[i].name;
  if (!space) return complete_word(words, CHAT_COMMANDS, line + 1, length - 1);
  size_t n = (size_t)(space - line) - 1, before = (size_t)(space - line);
  while (before < length && line[before] == ' ') before++;
  for (size_t i = 0; i < CHAT_COMMANDS; i++) {
    bool same = strlen(words[i]) == n && memcmp(words[i], line + 1, n) == 0;
    if (same && chat_commands[i].path) return complete_path(line + before, length - before);
  }
  return (completion){0};
}

// ---- the conversation ----

static bool is_blank(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (!strchr(" \t\r\n", text[i]) || !text[i]) return false;
  }
  return true;
}

// Interactive: until the end of input, in spite of failures.
static int converse(answerer *a) {
  const char *text = NULL;
  size_t length = 0;
  for (;;) {
    input_event event = editor_message(a->input, &text, &length);
    if (event == INPUT_INTERRUPTED) {
      take_interrupt();
      if (interrupt_status()) return interrupt_status(); // the other signal
      print_bytes("\n", 1);
      note("Ctrl-D or /quit ends; Ctrl-C stops an answer");
      continue;
    }
    if (event == INPUT_TOO_LONG) {
      note("the message has more than %zu bytes, too many for the memory: it is not sent", a->longest);
      continue;
    }
    if (event == INPUT_END) print_bytes("\n", 1);
    if (event != INPUT_TEXT) return event == INPUT_END ? 0 : STATUS_FAILED;
    if (is_blank(text, length)) continue;
    bool slashed = text[0] == '/' && text[1] != '/' && !memchr(text, '\n', length);
    if (slashed) {
      if (run_command(a, text + 1) == CHAT_QUIT) return 0;
    } else {
      bool slash = text[0] == '/' && text[1] == '/';
      if (conversation_add_user(a->talk, text + slash, length - slash)) respond(a);
    }
    if (interrupt_status()) return interrupt_status();
  }
}

// ---- JSON ----

// Whether the last message can be answered.
static bool is_answerable(const answerer *a) {
  const char *role = conversation_last_role(a->talk);
  return *role && strcmp(role, "assistant") != 0 && strcmp(role, "system") != 0 && strcmp(role, "developer") != 0;
}

// Answers and prints. The exit status.
static int respond_json(answerer *a, bool line) {
  answer_result result = answer(a);
  int status = result == ANSWER_DONE ? 0 : result == ANSWER_INTERRUPTED ? interrupt_status() : STATUS_FAILED;
  if (strcmp(conversation_last_role(a->talk), "assistant") != 0) return status ? status : STATUS_FAILED;
  char *text = line ? conversation_last_line(a->talk, a->facts.reason) : conversation_lines(a->talk);
  if (!text) return STATUS_FAILED;
  if (line)
    print_bytes(text, strlen(text));
  else
    print_text("{\"messages\": %s,\n\"stop_reason\": \"%s\", \"prompt_tokens\": %zu, \"new_tokens\": %zu}\n", text,
               a->facts.reason, a->facts.prompt_tokens, a->facts.new_tokens);
  flush_output();
  free(text);
  return status;
}

// All of standard input as one conversation.
static int answer_json(answerer *a, const char *system) {
  input_text text = {0};
  int status = read_file("-", longest_file(a), &text);
  if (status) return status;
  bool read = conversation_read(a->talk, text.data, text.length, "standard input", true);
  free(text.data);
  if (!read || (system && !conversation_set_system(a->talk, system, strlen(system)))) return STATUS_FAILED;
  if (!is_answerable(a)) return failure("standard input: expected a last message to answer, found none");
  return respond_json(a, false);
}

// A message as an object. The exit status.
static int take_json(answerer *a, const char *text, size_t length) {
  if (is_blank(text, length)) return 0;
  if (!conversation_add_json(a->talk, text, length, "standard input")) return STATUS_FAILED;
  return is_answerable(a) ? respond_json(a, true) : 0;
}

// ---- lines ----

static int take_text(answerer *a, const char *text, size_t length) {
  return conversation_add_user(a->talk, text, length) ? respond(a) : STATUS_FAILED;
}

// As a filter: one message per line; ends at the first failure.
static int filter(answerer *a, int (*take)(answerer *a, const char *text, size_t length)) {
  const char *text = NULL;
  size_t length = 0;
  int status = 0;
  while (!status) {
    input_event event = editor_message(a->input, &text, &length);
    if (event == INPUT_END) break;
    if (event == INPUT_INTERRUPTED) return interrupt_status();
    if (event == INPUT_TOO_LONG)
      return failure(
          "standard input: expected a message of at most %zu bytes, the room left by --memory, found a longer one",
          a->longest);
    if (event != INPUT_TEXT) return STATUS_FAILED;
    status = take(a, text, length);
  }
  return status;
}

// The bytes of text for which the plan leaves room.
static size_t longest_text(const answerer *a) {
  enum { LEAST = 65536, A_TOKEN = 8, A_BYTE = 24 }; // each byte is copied to a dozen texts and lists of ids
  setun_plan plan = model_plan_of(a->model);
  size_t counted = (size_t)a->room * A_TOKEN;
  uint64_t spare = plan.budget > plan.total ? (plan.budget - plan.total) / A_BYTE : 0;
  if (!plan.budget) return SIZE_MAX;
  return (counted > LEAST ? counted : LEAST) + (size_t)spare;
}

enum { SINKS = 64 }; // tokens kept when the oldest are dropped: a page of the cache

// Whether text may have colours: by the option, else by the terminal and NO_COLOR.
static bool wants_color(const char *choice, bool terminal) {
  const char *none = getenv("NO_COLOR"), *kind = getenv("TERM");
  if (choice && strcmp(choice, "auto") != 0) return strcmp(choice, "always") == 0;
  return terminal && !(none && *none) && kind && strcmp(kind, "dumb") != 0;
}

// Model, context, and how to stop it.
static void print_greeting(const answerer *a, const char *path) {
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  size_t from = n;
  while (from && path[from - 1] != '/') from--;
  note("%.*s, a context of %u tokens; Ctrl-C stops an answer, Ctrl-D ends, /help lists the commands", (int)(n - from),
       path + from, (unsigned)a->room);
}

// The template comes first: its errors need no model in memory.
static bool prepare(const chat_options *o, const char *path, const input_text *own, const char *history, answerer *a) {
  setun_sampler *sampler = NULL;
  setun_sampler_params params;
  if (o->system && !conversation_set_system(a->talk, o->system, strlen(o->system))) return false;
  compute_options compute = o->compute;
  compute.n_ctx = (uint32_t)o->ctx;
  if (a->overflow != OVERFLOW_STOP && !compute.window && !compute.sinks) {
    compute.sinks = o->ctx && o->ctx < 4 * SINKS ? o->ctx / 4 : SINKS;
  }
  if (!open_draft(&o->model, &compute, o->verbose, &a->draft)) return false;
  if (!open_model(path, &o->model, &compute, o->verbose, &a->model)) return false;
  a->room = model_plan_of(a->model).n_ctx;
  if (!open_template(a->model, &(template_options){o->file, o->name, own, false}, &a->chat)) return false;
  if (!open_session(path, a->model, &compute, (uint32_t)o->ctx, &a->session)) return false;
  if (!make_sampler(a->model, &o->sampling, &sampler, &params)) return false;
  setun_sampler_free(sampler);
  a->seed = params.seed;
  if (o->verbose) {
    note("chat template: %s", setun_chat_origin(a->chat));
    print_sampling(a->model, &o->sampling, &params);
  }
  if (o->stops.count && !open_stops(&o->stops, false, &a->stops)) return false;
  a->longest = longest_text(a);
  a->input = editor_new(&(editor_options){
      .terminal = a->terminal, .color = a->color, .most = a->longest, .history = history, .complete = complete_line});
  return a->input != NULL;
}

static void free_answerer(answerer *a) {
  editor_free(a->input);
  conversation_free(a->talk);
  setun_chat_free(a->chat);
  setun_stops_free(a->stops);
  setun_session_free(a->session);
  free(a->evaluated.ids);
  setun_model_free(a->model);
  setun_model_free(a->draft);
}

static int run(const command *self, int argc, char **argv) {
  chat_options o = {.n = -1, .sampling = sampling_unset(), .compute.draft = "ngram"};
  answerer a = {0};
  input_text own = {0};
  constraint_text constraint = {0};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  status = check_sampling(self, &o.sampling);
  bool endless = o.compute.window || o.compute.sinks;
  if (!status) status = check_window(self, &o.compute, o.ctx);
  if (!status && endless && o.overflow && *o.overflow == 's') {
    status = usage_error(self, "--overflow stop and %s exclude each other: the text's length is not limited",
                         o.compute.window ? "--window" : "--kv-sinks");
  }
  if (!status && o.file && o.name) status = usage_error(self, "--template and --template-name exclude each other");
  if (!status && o.json && o.jsonl) status = usage_error(self, "--json and --jsonl exclude each other");
  if (!status && !(a.talk = conversation_new())) status = STATUS_FAILED;
  for (size_t i = 0; !status && i < o.variables.count; i++) {
    status = conversation_set_variable(a.talk, self, o.variables.items[i]);
  }
  if (!status && o.file) status = read_file(o.file, text_limit(o.compute.memory), &own);
  if (!status) status = read_constraint(self, &o.constraint, o.ignore_end, &constraint);
  if (status) {
    free(own.data);
    free_answerer(&a);
    return status;
  }
  a.silent = o.json || o.jsonl;
  a.terminal = !a.silent && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  a.sampling = &o.sampling;
  if (constraint.params.text) a.constraint = &constraint.params;
  a.most = o.n;
  a.hide_reasoning = o.hide_thinking;
  a.ignore_end = o.ignore_end;
  a.verbose = o.verbose;
  a.overflow = endless      ? OVERFLOW_DROP
               : o.overflow ? (*o.overflow == 's' ? OVERFLOW_STOP : OVERFLOW_DROP)
               : a.terminal ? OVERFLOW_ASK
                            : OVERFLOW_STOP;
  a.color = wants_color(o.color, a.terminal);
  char *history = a.terminal && !o.no_history ? state_file("chat_history") : NULL;
  if (!prepare(&o, argv[1], &own, history, &a)) {
    status = failed_status();
  } else {
    catch_interrupts(a.session);
    if (a.terminal) print_greeting(&a, argv[1]);
    status = o.json                   ? answer_json(&a, o.system)
             : a.terminal && !o.jsonl ? converse(&a)
                                      : filter(&a, o.jsonl ? take_json : take_text);
    catch_interrupts(NULL);
    if (o.verbose) print_draft_report(a.session);
    if (!status && !save_experts_state(a.model, &o.compute)) status = STATUS_FAILED;
  }
  free_answerer(&a);
  free(history);
  free(own.data);
  free(constraint.text.data);
  int written = finish_output();
  return status ? status : written;
}

const command command_chat = {
    .name = "chat",
    .summary = "a conversation in the terminal",
    .arguments = "MODEL",
    .min_arguments = 1,
    .max_arguments = 1,
    .details = "Talks with the model by its own chat template, or by its family's, with a notice, if the model has "
               "none or a wrong one; otherwise --template is needed. At the prompt /help lists the commands, Tab "
               "completes them and their paths, and Ctrl-R searches the history, which is kept between runs. A "
               "backslash at the end continues a line, and lines between two \"\"\" are one message. "
               "Ctrl-C stops an answer; Ctrl-D ends the program. Keys pressed during an answer go to the next line.\n"
               "What you write never becomes a control token. The model's reasoning before an answer is shown dimmed, "
               "and omitted from later turns as its template says.\n"
               "If standard input or output is not a terminal, each line of the input is a message, and its answer is "
               "printed, without reasoning, before the next line is read. With --json and --jsonl messages are JSON, "
               "see docs/json.md.",
    .groups = {{"conversation", OPTION_ROWS(rows), 0},
               SAMPLING_GROUP(chat_options),
               COMPUTE_GROUP(chat_options),
               MODEL_GROUP(chat_options)},
    .run = run,
};
