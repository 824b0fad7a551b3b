// The command `embed`: texts to vectors.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "own_files.h"
#include "tensors.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct embed_options {
  model_options model;
  compute_options compute;
  text_list prompts, files, ids;
  const char *pooling, *prompt_name, *output;
  int64_t dimensions, parallel;
  bool lines, escape, special, json, raw, normalize, no_normalize;
} embed_options;

#define AT(member) offsetof(embed_options, member)
static const option text_rows_of_embed[] = {
    {'p', "prompt", OPTION_LIST, AT(prompts), "TEXT", 0, 0, "a text; may be given several times, like TEXT"},
    {'f', "file", OPTION_LIST, AT(files), "FILE", 1, 0,
     "a file with a text, or - for standard input (the default unless that is a terminal); may be given several times"},
    {0, "lines", OPTION_FLAG, AT(lines), NULL, 0, 0, "each line of a file is a separate text; empty lines are skipped"},
    {'e', "escape", OPTION_FLAG, AT(escape), NULL, 0, 0,
     "\\n, \\r, \\t, \\\\, \\\" and \\xNN in texts are read as in C"},
    {0, "ids", OPTION_LIST, AT(ids), "IDS", 1, 0,
     "token ids instead of a text, such as 1,2,3; taken literally; may be given several times"},
    {0, "special", OPTION_FLAG, AT(special), NULL, 0, 0, "recognize control tokens in the texts"},
    {0, "prompt-name", OPTION_TEXT, AT(prompt_name), "NAME", 0, 0,
     "begin each text with this prompt from the model (config_sentence_transformers.json), such as query; none: no "
     "prompt (default: the model's default, if any)"},
};
static const option rows[] = {
    POOLING_ROW(embed_options),
    {0, "normalize", OPTION_FLAG, AT(normalize), NULL, 0, 0,
     "divide the vectors by their length also where modules.json has no Normalize module"},
    {0, "no-normalize", OPTION_FLAG, AT(no_normalize), NULL, 0, 0, "do not divide the vectors by their length"},
    {0, "dimensions", OPTION_INTEGER, AT(dimensions), "N", 1, 1 << 20,
     "only the first N numbers of each vector, for models whose vectors can be truncated (is_matryoshka)"},
    {0, "parallel", OPTION_INTEGER, AT(parallel), "N", 1, 64, "texts computed together (default 8)"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0, "write a JSON array of arrays (the default without -o)"},
    {0, "raw", OPTION_FLAG, AT(raw), NULL, 0, 0, "write only the numbers, float32, vector after vector"},
    {'o', "output", OPTION_FILE, AT(output), "FILE", 0, 0,
     "write to this file: safetensors, with the tensor `embeddings`, unless --json or --raw is given"},
};

// Lists of ids, one per text, in this order: texts, then files, then ids.
typedef struct text_ids {
  setun_embedding_input *items;
  size_t count, capacity, longest, tokens;
  bool prompted; // whether texts begin with a prompt
} text_ids;

static void free_texts(text_ids *t) {
  for (size_t i = 0; i < t->count; i++) free((void *)t->items[i].ids);
  free(t->items);
}

// Takes ownership of the list. Returns the exit status.
static int add_ids(text_ids *t, id_list *list) {
  if (t->count == t->capacity) {
    size_t more = t->capacity ? 2 * t->capacity : 64;
    setun_embedding_input *grown = realloc(t->items, more * sizeof *grown);
    if (!grown) {
      free(list->ids);
      return failure("out of memory for more than %zu texts", t->count);
    }
    t->items = grown;
    t->capacity = more;
  }
  t->items[t->count++] = (setun_embedding_input){list->ids, list->count};
  if (list->count > t->longest) t->longest = list->count;
  t->tokens += list->count;
  return 0;
}

// ---- texts --------------------------------------------------------------------------------------------------------

typedef struct reading {
  const command *self;
  const embed_options *o;
  const setun_model *vocabulary;
  const char *prompt; // prefix of each text; NULL: none
  text_ids *texts;
} reading;

static int add_text(const reading *r, const char *text, size_t length) {
  text_buffer whole = {0};
  id_list list = {0};
  bool made = append_text(&whole, r->prompt ? r->prompt : "", r->prompt ? strlen(r->prompt) : 0) &&
              append_text(&whole, text, length);
  if (made && r->o->escape) {
    size_t before = whole.length - length;
    whole.length = before + unescape(whole.data + before, length);
  }
  int flags = SETUN_TOKENIZE_BOS | SETUN_TOKENIZE_EOS | (r->o->special ? SETUN_TOKENIZE_SPECIAL : 0);
  const input_text input = {whole.data, whole.length};
  int status = made && tokenize_text(r->vocabulary, &input, flags, &list) ? 0 : STATUS_FAILED;
  free(whole.data);
  if (!status && !list.count)
    status = failure("text %zu: expected at least one token, found none: the text is empty", r->texts->count);
  if (status) {
    free(list.ids);
    return status;
  }
  return add_ids(r->texts, &list);
}

static int add_lines(const reading *r, const input_text *text) {
  int status = 0;
  for (size_t at = 0; at < text->length && !status;) {
    const char *line = text->data + at, *end = memchr(line, '\n', text->length - at);
    size_t n = end ? (size_t)(end - line) : text->length - at;
    at += n + (end != NULL);
    if (n && line[n - 1] == '\r') n--;
    if (n) status = add_text(r, line, n);
  }
  return status;
}

static int add_file(const reading *r, const char *path) {
  input_text text = {0};
  int status = read_file(path, text_limit(r->o->compute.memory), &text);
  if (!status) status = check_text(path, &text);
  if (!status) status = r->o->lines ? add_lines(r, &text) : add_text(r, text.data, text.length);
  free(text.data);
  return status;
}

static int add_id_list(const reading *r, const char *text) {
  char why[128];
  id_list list = {0};
  if (!parse_ids(text, strlen(text), &list, why)) {
    return *why ? usage_error(r->self, "--ids: %s", why) : STATUS_FAILED;
  }
  if (list.count) return add_ids(r->texts, &list);
  free(list.ids);
  return usage_error(r->self, "--ids: no ids");
}

// Chooses the prompt for texts: the one that is named, or the model's default.
static int choose_prompt(reading *r) {
  setun_error error;
  const char *wanted = r->o->prompt_name, *name = NULL, *text = NULL, *given = NULL;
  text_buffer known = {0};
  setun_embedding_info info = {.size = sizeof info};
  if (wanted && !strcmp(wanted, "none")) return 0;
  if (setun_model_get_embedding_info(r->vocabulary, &info, &error) != SETUN_OK) return report(&error);
  for (size_t i = 0; setun_model_get_prompt(r->vocabulary, i, &name, &text, &error) == SETUN_OK; i++) {
    if (!append_text(&known, i ? ", " : "", i ? 2 : 0) || !append_text(&known, name, strlen(name))) break;
    bool chosen = wanted ? !strcmp(wanted, name) : info.prompt == name;
    if (chosen) given = name, r->prompt = text;
  }
  int status = 0;
  if (wanted && !given) {
    status = usage_error(r->self, "--prompt-name: expected one of the model's prompts: %s; found '%s'",
                         known.data ? known.data : "none", wanted);
  } else if (given && !wanted) {
    note("texts begin with the model's prompt '%s' (--prompt-name)", given);
  } else if (known.data && !wanted) {
    note("this model has prompts, and none is used: %s (--prompt-name)", known.data);
  }
  free(known.data);
  r->texts->prompted = given != NULL;
  return status;
}

// All texts as ids.
static int read_texts(reading *r, int argc, char **argv) {
  const embed_options *o = r->o;
  int status = 0;
  bool given = argc > 1 || o->prompts.count || o->files.count || o->ids.count;
  bool any = argc > 1 || o->prompts.count || o->files.count || !given;
  if (any && (status = choose_prompt(r))) return status;
  for (int i = 2; i <= argc && !status; i++) status = add_text(r, argv[i], strlen(argv[i]));
  for (size_t i = 0; i < o->prompts.count && !status; i++) {
    status = add_text(r, o->prompts.items[i], strlen(o->prompts.items[i]));
  }
  for (size_t i = 0; i < o->files.count && !status; i++) status = add_file(r, o->files.items[i]);
  for (size_t i = 0; i < o->ids.count && !status; i++) status = add_id_list(r, o->ids.items[i]);
  if (!given)
    status =
        isatty(STDIN_FILENO) ? usage_error(r->self, "no text: give TEXT or -f FILE, or pipe it in") : add_file(r, "-");
  if (!status && !r->texts->count) return failure("there are no texts");
  return status;
}

// ---- vectors ------------------------------------------------------------------------------------------------------

// Room for a pass of texts, for any longest text.
static setun_context_params context_params(const embed_options *o, const text_ids *t, uint32_t most) {
  enum { PASS = 512, PAGE = 64 };
  const setun_session_params session = session_params(&o->compute);
  setun_context_params p = setun_context_params_default();
  p.n_ctx = t->longest < most ? (uint32_t)t->longest : most;
  p.n_seq_max = (uint32_t)(t->count < (size_t)o->parallel ? t->count : (size_t)o->parallel);
  p.n_cache = (uint64_t)p.n_ctx + (session.n_batch ? session.n_batch : PASS) + (uint64_t)PAGE * p.n_seq_max;
  p.n_batch = session.n_batch;
  p.n_logits = 1;
  p.threads = session.threads;
  p.kv_keys = session.kv_keys;
  p.kv_values = session.kv_values;
  p.pooling = pooling_named(o->pooling);
  return p;
}

static bool on_progress(double fraction, void *line) {
  progress_show(line, fraction);
  return !interrupt_status();
}

// Vectors of a text: one, or one for each token.
static size_t vectors_of(const embed_options *o, const setun_embedding_input *text) {
  return pooling_named(o->pooling) == SETUN_POOLING_NONE ? text->n : 1;
}

static size_t count_vectors(const embed_options *o, const text_ids *t) {
  return pooling_named(o->pooling) == SETUN_POOLING_NONE ? t->tokens : t->count;
}

// [vectors, n] numbers; NULL after a report.
static float *compute(const char *name, const setun_model *model, const embed_options *o, const text_ids *t,
                      uint32_t *n) {
  setun_error error;
  progress_line line;
  setun_context *context = NULL;
  setun_embedding_info info = {.size = sizeof info};
  setun_embedding_params params = setun_embedding_params_default();
  setun_status s = setun_model_get_embedding_info(model, &info, &error);
  const char *prompt_name = NULL, *prompt = NULL; // only to check whether the model supports prompts
  if (s == SETUN_OK && t->prompted) s = setun_model_get_prompt(model, 0, &prompt_name, &prompt, &error);
  *n = o->dimensions ? (uint32_t)o->dimensions : info.n_dimensions;
  size_t count = count_vectors(o, t);
  float *vectors = s == SETUN_OK ? calloc(count, *n * sizeof *vectors) : NULL;
  if (s == SETUN_OK && !vectors) {
    failure("out of memory for %zu vectors of %u numbers", count, *n);
    return NULL;
  }
  const setun_context_params wanted = context_params(o, t, info.n_ctx);
  if (s == SETUN_OK) s = setun_context_new(model, &wanted, &context, &error);
  params.raw = o->no_normalize;
  params.normalize = o->normalize;
  params.n_dimensions = (uint32_t)o->dimensions;
  params.progress = on_progress;
  params.user = &line;
  progress_begin(&line, "reading the texts");
  if (s == SETUN_OK) s = setun_context_embed(context, t->items, t->count, &params, vectors, &error);
  progress_end(&line);
  setun_context_free(context);
  if (s == SETUN_OK) return vectors;
  if (!interrupt_status()) failure("%s: %s", name, error.message);
  free(vectors);
  return NULL;
}

// ---- output -------------------------------------------------------------------------------------------------------

static bool append_vector(text_buffer *b, const float *vector, uint32_t n) {
  char number[40];
  bool made = append_text(b, "[", 1);
  for (uint32_t k = 0; k < n && made; k++) {
    int length = snprintf(number, sizeof number, "%s%.9g", k ? ", " : "", (double)vector[k]);
    made = append_text(b, number, (size_t)length);
  }
  return made && append_text(b, "]", 1);
}

// A vector for each text; where they are not pooled, a list of vectors.
static bool append_json(text_buffer *b, const embed_options *o, const text_ids *t, const float *vectors, uint32_t n) {
  bool pooled = pooling_named(o->pooling) != SETUN_POOLING_NONE, made = append_text(b, "[", 1);
  for (size_t i = 0; i < t->count && made; i++) {
    made = append_text(b, ",\n ", i ? 3 : 0) && append_text(b, "[", !pooled);
    for (size_t k = 0; k < vectors_of(o, &t->items[i]) && made; k++, vectors += n) {
      made = append_text(b, ",\n  ", k ? 4 : 0) && append_vector(b, vectors, n);
    }
    made = made && append_text(b, "]", !pooled);
  }
  return made && append_text(b, "]\n", 2);
}

static int write_bytes(const char *path, const void *bytes, size_t n) {
  setun_error error;
  setun_output *output = NULL;
  if (!path) {
    print_bytes(bytes, n);
    return finish_output();
  }
  if (setun_output_open(path, &output, &error) != SETUN_OK) return report(&error);
  if (setun_output_write(output, 0, bytes, n, &error) == SETUN_OK) {
    return setun_output_commit(output, &error) == SETUN_OK ? 0 : report(&error);
  }
  setun_output_discard(output);
  return report(&error);
}

// Not pooled, a second tensor has the number of each text's tokens.
static int write_tensors(const embed_options *o, const text_ids *t, const float *vectors, uint32_t n) {
  size_t count = count_vectors(o, t);
  bool pooled = pooling_named(o->pooling) != SETUN_POOLING_NONE, written;
  const tensor_spec specs[] = {{"embeddings", 2, {count, n}}, {"tokens", 1, {t->count}}};
  tensor_file file;
  if (!tensor_create(o->output, specs, pooled ? 1 : 2, &file)) return STATUS_FAILED;
  written = tensor_write(&file, 0, 0, vectors, count * n);
  for (size_t i = 0; i < t->count && written && !pooled; i++) {
    float tokens = (float)t->items[i].n;
    written = tensor_write(&file, 1, i, &tokens, 1);
  }
  if (written) return tensor_commit(&file) ? 0 : STATUS_FAILED;
  tensor_discard(&file);
  return STATUS_FAILED;
}

static int write_vectors(const embed_options *o, const text_ids *t, const float *vectors, uint32_t n) {
  size_t count = count_vectors(o, t);
  if (o->raw) return write_bytes(o->output, vectors, count * n * sizeof *vectors);
  if (o->output && !o->json) return write_tensors(o, t, vectors, n);
  text_buffer text = {0};
  int status = append_json(&text, o, t, vectors, n) ? write_bytes(o->output, text.data, text.length) : STATUS_FAILED;
  free(text.data);
  return status;
}

static int check(const command *self, const embed_options *o, const char *model) {
  if (o->json && o->raw) return usage_error(self, "--json and --raw exclude each other");
  if (o->normalize && o->no_normalize) {
    return usage_error(self, "--normalize and --no-normalize exclude each other");
  }
  if (o->lines && (o->prompts.count || o->ids.count) && !o->files.count) {
    return usage_error(self, "--lines applies to files, and none is given");
  }
  if (!o->output) return 0;
  if (!strcmp(o->output, "-")) return usage_error(self, "-o needs a file: omit it for standard output");
  for (size_t i = 0; i < o->files.count; i++) {
    const named_file files[] = {{"--file", o->files.items[i]}, {"-o", o->output}};
    int status = check_distinct(self, files, sizeof files / sizeof *files);
    if (status) return status;
  }
  return check_output(self, "-o", o->output, model, &o->compute.adapters);
}

// Tokenizes all texts with only the tokenizer loaded, so that the memory plan counts the ids.
static int tokenize(const command *self, const embed_options *o, int argc, char **argv, text_ids *texts) {
  setun_model *vocabulary = NULL;
  int status = STATUS_FAILED;
  if (open_vocabulary(argv[1], &o->model, false, &vocabulary)) {
    reading r = {.self = self, .o = o, .vocabulary = vocabulary, .texts = texts};
    status = read_texts(&r, argc, argv);
  }
  setun_model_free(vocabulary);
  return status;
}

static int run(const command *self, int argc, char **argv) {
  embed_options o = {.parallel = 8};
  setun_model *model = NULL;
  text_ids texts = {0};
  int status = 0, n_arguments = parse_options(self, argc, argv, &o, &status);
  if (n_arguments < 0) return status;
  status = check(self, &o, argv[1]);
  if (!status) status = tokenize(self, &o, n_arguments, argv, &texts);
  if (!status) {
    const setun_context_params context = context_params(&o, &texts, INT32_MAX);
    o.compute.context = &context;
    o.compute.beside += texts.tokens * sizeof(setun_token);
    uint32_t n = 0;
    bool open = open_model(argv[1], &o.model, &o.compute, false, &model);
    float *vectors = open ? compute(argv[1], model, &o, &texts, &n) : NULL;
    status = vectors ? write_vectors(&o, &texts, vectors, n) : failed_status();
    free(vectors);
  }
  free_texts(&texts);
  setun_model_free(model);
  return status;
}

const command command_embed = {
    .name = "embed",
    .summary = "vectors of texts (embeddings)",
    .arguments = "MODEL [TEXT...]",
    .min_arguments = 1,
    .max_arguments = INT_MAX,
    .details =
        "Writes one vector of length 1 for each text, or with --pooling none for each of its tokens. The model's files "
        "(sentence-transformers' modules.json and others, GGUF's pooling_type) define how the hidden states of a "
        "text's tokens are pooled, and dense matrices to apply; the default is the state of the last token. They may "
        "also say that vectors are not divided by their length, or end after so many numbers. Texts begin and end with "
        "tokens as the model's tokenizer specifies. A text's vector is bit-identical alone and among others. A text "
        "with more tokens than the model takes is an error.",
    .groups = {{"texts", OPTION_ROWS(text_rows_of_embed), 0},
               {"options", OPTION_ROWS(rows), 0},
               COMPUTE_GROUP(embed_options),
               MODEL_GROUP(embed_options)},
    .run = run,
};
