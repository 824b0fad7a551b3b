// The command `detokenize`: token ids to text.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "input.h"
#include "model.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct detokenize_options {
  model_options model;
  bool special;
} detokenize_options;

static const option rows[] = {
    {0, "special", OPTION_FLAG, offsetof(detokenize_options, special), NULL, 0, 0,
     "show control tokens; otherwise they are omitted"},
};

// Joins the ids of all arguments after MODEL. Returns 0, or the exit status after a report.
static int read_arguments(const command *self, int count, char **arguments, id_list *list) {
  size_t length = 1;
  char why[128];
  for (int i = 0; i < count; i++) length += strlen(arguments[i]) + 1;
  char *joined = malloc(length), *end = joined;
  if (!joined) return failure("out of memory for the ids");
  for (int i = 0; i < count; i++) end += snprintf(end, length - (size_t)(end - joined), "%s ", arguments[i]);
  bool good = parse_ids(joined, (size_t)(end - joined), list, why);
  free(joined);
  return good ? 0 : *why ? usage_error(self, "%s", why) : STATUS_FAILED;
}

static int read_standard_input(const command *self, id_list *list) {
  input_text text = {0};
  char why[128];
  if (isatty(STDIN_FILENO)) return usage_error(self, "no ids: give them as arguments, or pipe a JSON array in");
  int status = read_file("-", text_limit(0), &text);
  if (status) return status;
  bool good = parse_ids(text.data, text.length, list, why);
  free(text.data);
  if (good) return 0;
  return !*why ? STATUS_FAILED : failure("standard input: %s; 'setun tokenize --ids' prints ids in this form", why);
}

static int print_decoded(const setun_model *model, bool special, const id_list *list) {
  setun_error error;
  setun_decoder *decoder = NULL;
  const char *text = NULL;
  size_t length = 0;
  char last = '\n';
  setun_status s = setun_decoder_new(model, special ? SETUN_DECODE_SPECIAL : 0, &decoder, &error);
  for (size_t i = 0; s == SETUN_OK && i <= list->count; i++) {
    if (i < list->count)
      s = setun_decoder_push(decoder, list->ids[i], &text, &length, &error);
    else
      s = setun_decoder_finish(decoder, &text, &length, &error);
    if (s != SETUN_OK || !length) continue;
    print_bytes(text, length);
    last = text[length - 1];
  }
  setun_decoder_free(decoder);
  if (s != SETUN_OK) {
    flush_output();
    return report(&error);
  }
  if (last != '\n' && isatty(STDOUT_FILENO)) print_bytes("\n", 1); // otherwise the text is exact
  return 0;
}

static int run(const command *self, int argc, char **argv) {
  detokenize_options o = {0};
  setun_model *model = NULL;
  id_list list = {0};
  int status = 0, count = parse_options(self, argc, argv, &o, &status);
  if (count < 0) return status;
  status = count > 1 ? read_arguments(self, count - 1, argv + 2, &list) : read_standard_input(self, &list);
  if (status) return status;
  status = open_vocabulary(argv[1], &o.model, true, &model) ? print_decoded(model, o.special, &list) : STATUS_FAILED;
  free(list.ids);
  setun_model_free(model);
  return status ? status : finish_output();
}

const command command_detokenize = {
    .name = "detokenize",
    .summary = "token ids to text",
    .arguments = "MODEL [ID...]",
    .min_arguments = 1,
    .max_arguments = INT32_MAX,
    .details =
        "The ids are arguments, or a JSON array on standard input. The text is printed exactly, with no newline added "
        "(except on a terminal); bytes that are not UTF-8 are printed as U+FFFD.",
    .groups = {{"options", OPTION_ROWS(rows), 0}, MODEL_GROUP(detokenize_options)},
    .run = run,
};
