// The command `render`: applies a chat template.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "conversation.h"
#include "input.h"
#include "model.h"
#include "output.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct render_options {
  model_options model;
  const char *file, *name, *context, *now;
  bool json, ids;
} render_options;

#define AT(member) offsetof(render_options, member)
static const option rows[] = {
    {0, "template", OPTION_FILE, AT(file), "FILE", 0, 0, "use this template instead of the model's own"},
    {0, "template-name", OPTION_TEXT, AT(name), "NAME", 0, 0,
     "use the model's template with this name (default: tool_use if the context has tools and the model has it)"},
    {0, "context", OPTION_FILE, AT(context), "FILE", 0, 0,
     "a JSON object of the template's variables, such as messages and tools; - for standard input"},
    {0, "now", OPTION_TEXT, AT(now), "TIME", 0, 0, "the time for the template, as 'YYYY-MM-DD HH:MM:SS'"},
    {0, "ids", OPTION_FLAG, AT(ids), NULL, 0, 0, "print the token ids as a JSON array instead of the text"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0,
     "print a JSON object: the text, the template's origin, and the parts of the text that come from the context"},
};

// Reads "2026-01-31 12:34:56".
static bool parse_clock(const char *text, setun_clock *clock) {
  int *const parts[] = {&clock->year, &clock->month, &clock->day, &clock->hour, &clock->minute, &clock->second};
  static const int digits[] = {4, 2, 2, 2, 2, 2};
  static const char after[] = {'-', '-', ' ', ':', ':', '\0'};
  for (int i = 0; i < 6; i++) {
    *parts[i] = 0;
    for (int n = 0; n < digits[i]; n++, text++) {
      if (!isdigit((unsigned char)*text)) return false;
      *parts[i] = *parts[i] * 10 + (*text - '0');
    }
    if (*text != after[i] && !(after[i] == ' ' && *text == 'T')) return false;
    text++;
  }
  return true;
}

static void print_json(const setun_chat *chat, const setun_rendering *r) {
  size_t length = 0, n = 0;
  const char *text = setun_rendering_text(r, &length);
  const setun_span *spans = setun_rendering_spans(r, &n);
  print_text("{\"template\": ");
  print_json_string(setun_chat_origin(chat), strlen(setun_chat_origin(chat)));
  print_text(", \"text\": ");
  print_json_string(text, length);
  print_text(", \"spans\": [");
  for (size_t i = 0; i < n; i++) print_text("%s[%zu, %zu]", i ? ", " : "", spans[i].begin, spans[i].end);
  print_text("]}\n");
}

static int print_ids(const setun_rendering *r) {
  setun_error error;
  size_t n = 0;
  setun_status s = setun_rendering_tokenize(r, NULL, 0, &n, &error);
  setun_token *ids = s == SETUN_OK ? malloc((n + 1) * sizeof *ids) : NULL;
  if (s == SETUN_OK && !ids) return failure("out of memory for %zu ids", n);
  if (s == SETUN_OK) s = setun_rendering_tokenize(r, ids, n, &n, &error);
  if (s == SETUN_OK) print_id_array(ids, n);
  free(ids);
  return s == SETUN_OK ? 0 : report(&error);
}

static int render(const render_options *o, const setun_model *model, const input_text *own, const input_text *context,
                  const setun_clock *clock) {
  template_options template = {o->file, o->name, own, false};
  setun_chat *chat = NULL;
  setun_rendering *r = NULL;
  setun_error error;
  if (!context_has_tools(context->data, context->length, &template.tools)) return STATUS_FAILED;
  if (!open_template(model, &template, &chat)) return STATUS_FAILED;
  int status = 0;
  if (setun_chat_render(chat, context->data, context->length, clock, &r, &error) != SETUN_OK) {
    status = report(&error);
  } else if (o->json) {
    print_json(chat, r);
  } else if (o->ids) {
    status = print_ids(r);
  } else {
    size_t length = 0;
    const char *text = setun_rendering_text(r, &length);
    print_bytes(text, length);
  }
  setun_rendering_free(r);
  setun_chat_free(chat);
  return status;
}

static int check(const command *self, const render_options *o, bool model, setun_clock *clock) {
  if (!model && !o->file) return usage_error(self, "expected MODEL or --template FILE");
  if (!model && o->ids) return usage_error(self, "--ids needs a MODEL");
  if (o->file && o->name) return usage_error(self, "--template and --template-name exclude each other");
  if (o->json && o->ids) return usage_error(self, "--json and --ids exclude each other");
  if (!o->context) return usage_error(self, "expected --context FILE with the template's variables");
  if (o->now && !parse_clock(o->now, clock)) {
    return usage_error(self, "--now expects 'YYYY-MM-DD HH:MM:SS', not '%s'", o->now);
  }
  return 0;
}

static int run(const command *self, int argc, char **argv) {
  render_options o = {0};
  setun_model *model = NULL;
  setun_clock clock = {0};
  input_text own = {0}, context = {0};
  int status = 0, n = parse_options(self, argc, argv, &o, &status);
  if (n < 0) return status;
  status = check(self, &o, n > 0, &clock);
  if (!status && o.file) status = read_file(o.file, text_limit(0), &own);
  if (!status) status = read_file(o.context, text_limit(0), &context);
  if (!status && n > 0 && !open_vocabulary(argv[1], &o.model, true, &model)) status = STATUS_FAILED;
  if (!status) status = render(&o, model, &own, &context, o.now ? &clock : NULL);
  free(own.data);
  free(context.data);
  setun_model_free(model);
  int written = finish_output();
  return status ? status : written;
}

const command command_render = {
    .name = "render",
    .summary = "apply a chat template",
    .arguments = "[MODEL]",
    .min_arguments = 0,
    .max_arguments = 1,
    .details = "Prints a conversation rendered by the model's own template, or by --template, which needs no model; "
               "nothing is added. The variables are those in the context, and the tokenizer's bos_token, eos_token and "
               "unk_token if the context has none. With --ids, text from the context never becomes a control token.",
    .groups = {{"options", OPTION_ROWS(rows), 0}, MODEL_GROUP(render_options)},
    .run = run,
};
