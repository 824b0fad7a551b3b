// The command `tokenize`: convert text to token ids.
#include "commands.h"
#include "input.h"
#include "model.h"
#include "output.h"

#include <stdlib.h>

typedef struct tokenize_options {
  text_options text;
  model_options model;
  bool ids, json, special, bos;
} tokenize_options;

#define AT(member) offsetof(tokenize_options, member)
static const option rows[] = {
    {0, "ids", OPTION_FLAG, AT(ids), NULL, 0, 0, "print only the ids, as a JSON array"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0, "print the table of ids and texts as JSON"},
    {0, "special", OPTION_FLAG, AT(special), NULL, 0, 0,
     "recognize control tokens in the text; otherwise they are plain text"},
    {0, "bos", OPTION_FLAG, AT(bos), NULL, 0, 0, "begin with the model's BOS token"},
};

static void print_row(const tokenize_options *o, bool first, setun_token id, const char *text, size_t length) {
  if (o->json) {
    print_text("%s{\"id\": %d, \"text\": ", first ? "[" : ",\n ", (int)id);
    print_json_string(text, length);
    print_text("}");
  } else {
    print_text("%8d  ", (int)id);
    print_json_string(text, length);
    print_text("\n");
  }
}

// Each id with the text that it completes, so that the column, read downwards, is the text.
static int print_table(const setun_model *model, const tokenize_options *o, const id_list *list) {
  setun_error error;
  setun_decoder *decoder = NULL;
  const char *text = NULL;
  size_t length = 0;
  setun_status s = setun_decoder_new(model, SETUN_DECODE_SPECIAL, &decoder, &error);
  for (size_t i = 0; s == SETUN_OK && i < list->count; i++) {
    s = setun_decoder_push(decoder, list->ids[i], &text, &length, &error);
    if (s == SETUN_OK) print_row(o, i == 0, list->ids[i], text, length);
  }
  if (s == SETUN_OK && o->json) print_text(list->count ? "]\n" : "[]\n");
  setun_decoder_free(decoder);
  return s == SETUN_OK ? 0 : report(&error);
}

static int run(const command *self, int argc, char **argv) {
  tokenize_options o = {0};
  setun_model *model = NULL;
  input_text text = {0};
  id_list list = {0};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  status = read_text(self, &o.text, text_limit(0), &text);
  if (status) return status;
  int flags = (o.special ? SETUN_TOKENIZE_SPECIAL : 0) | (o.bos ? SETUN_TOKENIZE_BOS_ALWAYS : 0);
  status = STATUS_FAILED;
  if (open_vocabulary(argv[1], &o.model, true, &model) && tokenize_text(model, &text, flags, &list)) {
    status = 0;
    if (o.ids)
      print_id_array(list.ids, list.count);
    else
      status = print_table(model, &o, &list);
  }
  free(list.ids);
  free(text.data);
  setun_model_free(model);
  return status ? status : finish_output();
}

const command command_tokenize = {
    .name = "tokenize",
    .summary = "convert text to token ids",
    .arguments = "MODEL",
    .min_arguments = 1,
    .max_arguments = 1,
    .details = "Prints a line for each token: its id, and the text that it completes. The text is used unchanged, and "
               "BOS is added only with --bos.",
    .groups = {TEXT_GROUP(tokenize_options), {"options", OPTION_ROWS(rows), 0}, MODEL_GROUP(tokenize_options)},
    .run = run,
};
