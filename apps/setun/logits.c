// The command `logits`: the model's numbers for a text, for checking.
#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "own_files.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct logits_options {
  text_options text;
  model_options model;
  compute_options compute;
  const char *ids, *output;
  bool special, layers;
} logits_options;

#define AT(member) offsetof(logits_options, member)
static const option rows[] = {
    {0, "ids", OPTION_TEXT, AT(ids), "IDS", 0, 0, "token ids instead of a text, such as 1,2,3; taken literally"},
    {0, "special", OPTION_FLAG, AT(special), NULL, 0, 0, "recognize control tokens in the text"},
    {'o', "output", OPTION_FILE, AT(output), "FILE", 0, 0, "the safetensors file to write"},
    {0, "layers", OPTION_FLAG, AT(layers), NULL, 0, 0,
     "also write the hidden states: the input of block 0, then the output of each block"},
};

enum { LOGITS, HIDDEN };

// The destination of the callbacks' rows.
typedef struct row_writer {
  tensor_file file;
  uint32_t n_vocab, n_embd;
  uint64_t tokens;
  bool failed; // and reported
} row_writer;

static bool on_logits(uint32_t position, const float *logits, void *user) {
  row_writer *w = user;
  w->failed = !tensor_write(&w->file, LOGITS, (uint64_t)position * w->n_vocab, logits, w->n_vocab);
  return !w->failed && !interrupt_status(); // also for a signal before the evaluation began
}

static bool on_hidden(uint32_t layer, uint32_t position, uint32_t n, const float *hidden, void *user) {
  row_writer *w = user;
  uint64_t first = (layer * w->tokens + position) * w->n_embd;
  w->failed = !tensor_write(&w->file, HIDDEN, first, hidden, (size_t)n * w->n_embd);
  return !w->failed;
}

// Evaluates all tokens into the file. The exit status.
static int write_rows(setun_session *session, const logits_options *o, const id_list *list, row_writer *w) {
  setun_error error;
  setun_eval_params params = setun_eval_params_default();
  params.on_logits = on_logits;
  params.on_hidden = o->layers ? on_hidden : NULL;
  params.user = w;
  setun_status s = setun_session_eval(session, list->ids, list->count, &params, &error);
  int status = interrupt_status();
  if (s == SETUN_OK) return tensor_commit(&w->file) ? 0 : STATUS_FAILED;
  tensor_discard(&w->file);
  if (w->failed) return STATUS_FAILED;
  return status ? status : report(&error);
}

static int compute(const char *name, const setun_model *model, const logits_options *o, const id_list *list) {
  setun_model_info info = model_info(model);
  setun_session *session = NULL;
  row_writer w = {.n_vocab = info.n_vocab, .n_embd = info.n_embd, .tokens = list->count};
  tensor_spec specs[] = {{"logits", 2, {list->count, info.n_vocab}},
                         {"hidden", 3, {(uint64_t)info.n_layer + 1, list->count, info.n_embd}}};
  if (!open_session(name, model, &o->compute, (uint32_t)list->count, &session)) return STATUS_FAILED;
  int status = STATUS_FAILED;
  watch_interrupts(session); // before creating a file that a signal could leave behind
  if (tensor_create(o->output, specs, o->layers ? 2 : 1, &w.file)) status = write_rows(session, o, list, &w);
  watch_interrupts(NULL);
  setun_session_free(session);
  return status;
}

// The ids of --ids. 0, or the exit status after a report.
static int read_ids(const command *self, const logits_options *o, id_list *list) {
  char why[128];
  if (o->text.prompt || o->text.file) return usage_error(self, "--ids and a text exclude each other");
  if (!parse_ids(o->ids, strlen(o->ids), list, why)) {
    return *why ? usage_error(self, "--ids: %s", why) : STATUS_FAILED;
  }
  if (list->count == 0) {
    free(list->ids);
    return usage_error(self, "--ids: no ids");
  }
  return 0;
}

static int run(const command *self, int argc, char **argv) {
  logits_options o = {.compute = {.all_logits = true}};
  setun_model *model = NULL;
  input_text text = {0};
  id_list list = {0};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  if (!o.output) return usage_error(self, "-o FILE is missing");
  if (strcmp(o.output, "-") == 0) return usage_error(self, "-o needs a file: standard output cannot take the numbers");
  const named_file files[] = {{"--file", o.text.file}, {"-o", o.output}};
  if ((status = check_distinct(self, files, sizeof files / sizeof *files))) return status;
  if ((status = check_output(self, "-o", o.output, argv[1], &o.compute.adapters))) return status;
  status = o.ids ? read_ids(self, &o, &list) : read_text(self, &o.text, text_limit(o.compute.memory), &text);
  if (status) return status;
  int flags = SETUN_TOKENIZE_BOS | (o.special ? SETUN_TOKENIZE_SPECIAL : 0);
  bool ready = o.ids || tokenize_beforehand(argv[1], &o.model, &o.compute, flags, &text, &list);
  if (ready && list.count == 0) {
    status = failure("expected at least one token, found none: the text is empty, and the model adds no BOS");
  } else if (ready && list.count > INT32_MAX) {
    status = failure("%zu tokens do not fit into a context", list.count);
  } else {
    o.compute.n_ctx = (uint32_t)list.count;
    ready = ready && open_model(argv[1], &o.model, &o.compute, false, &model);
    status = ready ? compute(argv[1], model, &o, &list) : failed_status();
  }
  free(list.ids);
  free(text.data);
  setun_model_free(model);
  return status;
}

const command command_logits = {
    .name = "logits",
    .summary = "write the logits (and hidden states) for a text to a safetensors file",
    .arguments = "MODEL -o FILE",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Writes `logits`, float32 [tokens, vocabulary], and with --layers `hidden`, float32 [blocks + 1, tokens, "
        "width], for comparison with other software. The file appears when it is complete. A text begins with BOS as "
        "the model's tokenizer specifies; ids are used unchanged.",
    .groups = {TEXT_GROUP(logits_options),
               {"options", OPTION_ROWS(rows), 0},
               COMPUTE_GROUP(logits_options),
               MODEL_GROUP(logits_options)},
    .run = run,
};
