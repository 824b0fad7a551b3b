// The command `inspect`: the contents of a model's files, without loading them.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "own_files.h"
#include "tensors.h"

#include <stdlib.h>
#include <string.h>

typedef struct inspect_options {
  model_options model;
  bool tensors, json, check, zeros, bytes;
  const char *tensor, *output;
} inspect_options;

#define AT(member) offsetof(inspect_options, member)
static const option rows[] = {
    {0, "tensors", OPTION_FLAG, AT(tensors), NULL, 0, 0, "list every tensor: name, format, shape, bytes, offset"},
    {0, "bytes", OPTION_FLAG, AT(bytes), NULL, 0, 0,
     "show the bytes of a session's KV cache in each format, for the default context"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0, "print JSON"},
    {0, "check", OPTION_FLAG, AT(check), NULL, 0, 0,
     "read everything and look for invalid codes and numbers that are not finite; exit status 1 if there are any"},
    {0, "zeros", OPTION_FLAG, AT(zeros), NULL, 0, 0,
     "count the zeros of each ternary tensor, and its columns of zeros"},
    {0, "tensor", OPTION_TEXT, AT(tensor), "NAME", 0, 0,
     "write this tensor to -o FILE as float32, dequantized, with rows as the model uses them; a quantized weight that "
     "is stored as several tensors is named by its module"},
    {'o', "output", OPTION_FILE, AT(output), "FILE", 0, 0, "the safetensors file for --tensor"},
};

// The tensors of one format.
typedef struct format_sum {
  const char *format;
  uint64_t tensors, bytes;
} format_sum;

typedef struct contents {
  setun_file *file;
  setun_file_info info;
  setun_tensor_info *tensors;
  size_t n_tensors;
  format_sum *formats; // by bytes, descending
  size_t n_formats;
} contents;

static int by_bytes(const void *a, const void *b) {
  const format_sum *x = a, *y = b;
  return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : strcmp(x->format, y->format);
}

static void add_format(contents *c, const setun_tensor_info *t) {
  size_t i = 0;
  while (i < c->n_formats && strcmp(c->formats[i].format, t->format) != 0) i++;
  if (i == c->n_formats) c->formats[c->n_formats++] = (format_sum){t->format, 0, 0};
  c->formats[i].tensors++;
  c->formats[i].bytes += t->bytes;
}

// False after a report.
static bool read_contents(contents *c) {
  setun_error error;
  c->info.size = sizeof c->info;
  if (setun_file_get_info(c->file, &c->info, &error) != SETUN_OK) {
    report(&error);
    return false;
  }
  c->n_tensors = setun_file_tensor_count(c->file);
  c->tensors = calloc(c->n_tensors + 1, sizeof *c->tensors);
  c->formats = calloc(c->n_tensors + 1, sizeof *c->formats);
  if (!c->tensors || !c->formats) {
    failure("out of memory for a list of %zu tensors", c->n_tensors);
    return false;
  }
  for (size_t i = 0; i < c->n_tensors; i++) {
    c->tensors[i].size = sizeof c->tensors[i];
    if (setun_file_tensor(c->file, i, &c->tensors[i], &error) != SETUN_OK) {
      report(&error);
      return false;
    }
    add_format(c, &c->tensors[i]);
  }
  qsort(c->formats, c->n_formats, sizeof *c->formats, by_bytes);
  return true;
}

static void format_shape(const setun_tensor_info *t, const char *separator, char text[128]) {
  size_t n = 0;
  text[0] = 0;
  for (int i = 0; i < t->n_dims; i++) {
    n += (size_t)snprintf(text + n, 128 - n, "%s%llu", i ? separator : "", (unsigned long long)t->dims[i]);
  }
}

static void print_tensor_table(const contents *c) {
  size_t widest = 4;
  for (size_t i = 0; i < c->n_tensors; i++) {
    size_t n = strlen(c->tensors[i].name);
    if (n > widest) widest = n < 64 ? n : 64;
  }
  print_text("\n%-*s  %-10s %18s %14s %16s\n", (int)widest, "tensor", "format", "shape", "bytes", "offset");
  for (size_t i = 0; i < c->n_tensors; i++) {
    const setun_tensor_info *t = &c->tensors[i];
    char shape[128];
    size_t n = strlen(t->name);
    format_shape(t, " x ", shape);
    print_clean(t->name);
    print_text("%*s  %-10s %18s %14llu %16llu", n < widest ? (int)(widest - n) : 0, "", t->format, shape,
               (unsigned long long)t->bytes, (unsigned long long)t->offset);
    print_text(c->info.n_parts > 1 ? "  part %u\n" : "\n", (unsigned)t->part + 1);
  }
}

// A value as JSON. False after a report.
static bool print_json_value(const contents *c, size_t i) {
  setun_error error;
  size_t length = 0;
  char *text = NULL;
  setun_status s = setun_file_meta_json(c->file, i, NULL, 0, &length, &error);
  if (s == SETUN_OK && !(text = malloc(length + 1))) {
    failure("out of memory for %zu bytes of metadata", length);
    return false;
  }
  if (s == SETUN_OK) s = setun_file_meta_json(c->file, i, text, length, &length, &error);
  if (s == SETUN_OK) print_bytes(text, length);
  free(text);
  return s == SETUN_OK || !report(&error);
}

static int print_metadata(const contents *c, bool json) {
  setun_error error;
  size_t n = setun_file_meta_count(c->file);
  for (size_t i = 0; i < n; i++) {
    const char *key = NULL, *value = NULL;
    if (setun_file_meta(c->file, i, &key, &value, &error) != SETUN_OK) return report(&error);
    if (json) {
      print_text("%s", i ? ",\n    " : "\n    ");
      print_json_string(key, strlen(key));
      print_text(": ");
      if (!print_json_value(c, i)) return STATUS_FAILED;
    } else {
      print_text("  ");
      print_clean(key);
      print_text(" = ");
      print_clean(value);
      print_text("\n");
    }
  }
  return 0;
}

// Prints notices, such as how ambiguous tensor types were read.
static void print_notices(const contents *c) {
  size_t n = setun_file_notice_count(c->file);
  if (n) print_text("\nnotices\n");
  for (size_t i = 0; i < n; i++) {
    print_text("  ");
    print_clean(setun_file_notice(c->file, i));
    print_text("\n");
  }
}

// Prints a line, or a member, for each format. Returns the exit status.
static int print_cache(const inspect_options *o, const char *path) {
  setun_model_params params = model_params(&o->model);
  setun_session_params session = setun_session_params_default();
  unsigned long long states = 0; // of recurrent layers, in addition to the cache in any format
  char size[32];
  params.session = &session;
  for (size_t i = 0; setun_choice_name(SETUN_CHOICE_KV, i); i++) {
    setun_plan plan = {.size = sizeof plan};
    setun_error error;
    session.kv_keys = session.kv_values = (setun_kv_type)i;
    setun_status s = setun_model_plan(path, &params, &plan, &error);
    if (s != SETUN_OK && s != SETUN_ERROR_MEMORY) return report(&error);
    const char *name = setun_choice_name(SETUN_CHOICE_KV, i);
    unsigned long long bytes = plan.cache_pages;
    char text[32];
    if (o->json) {
      if (!i) print_text(",\n  \"kv_cache\": {\"context\": %u", (unsigned)plan.n_ctx);
      print_text(", \"%s\": %llu", name, bytes);
    } else {
      if (!i) print_text("\nKV cache of %u tokens\n", (unsigned)plan.n_ctx);
      print_text("%-10s %8s %16llu\n", name, format_bytes(bytes, text), bytes);
    }
    states = plan.cache_states;
  }
  if (states && o->json) print_text(", \"states\": %llu", states);
  if (states && !o->json) print_text("%-10s %8s %16llu\n", "states", format_bytes(states, size), states);
  if (o->json) print_text("}");
  return 0;
}

static int print_summary(const contents *c, const inspect_options *o, const char *path) {
  char bytes[32];
  print_text("file          ");
  print_clean(path);
  print_text("\ncontainer     %s", c->info.container);
  if (c->info.n_parts > 1) print_text(", %u parts", (unsigned)c->info.n_parts);
  print_text("\narchitecture  ");
  print_clean(c->info.architecture ? c->info.architecture : "not known");
  print_text("\nweights       %llu\n", (unsigned long long)c->info.n_params);
  print_text("tensors       %zu, %s\n\n%-10s %8s %16s\n", c->n_tensors, format_bytes(c->info.bytes, bytes), "format",
             "tensors", "bytes");
  for (size_t i = 0; i < c->n_formats; i++) {
    print_text("%-10s %8llu %16llu\n", c->formats[i].format, (unsigned long long)c->formats[i].tensors,
               (unsigned long long)c->formats[i].bytes);
  }
  if (setun_file_meta_count(c->file)) print_text("\nmetadata\n");
  int status = print_metadata(c, false);
  print_notices(c);
  if (o->tensors) print_tensor_table(c);
  return status || !o->bytes ? status : print_cache(o, path);
}

static void print_json_tensors(const contents *c) {
  print_text(",\n  \"tensor_list\": [");
  for (size_t i = 0; i < c->n_tensors; i++) {
    const setun_tensor_info *t = &c->tensors[i];
    char shape[128];
    format_shape(t, ", ", shape);
    print_text("%s{\"name\": ", i ? ",\n    " : "\n    ");
    print_json_string(t->name, strlen(t->name));
    print_text(", \"format\": \"%s\", \"shape\": [%s], \"bytes\": %llu, \"offset\": %llu, \"part\": %u}", t->format,
               shape, (unsigned long long)t->bytes, (unsigned long long)t->offset, (unsigned)t->part);
  }
  print_text("\n  ]");
}

static int print_json(const contents *c, const inspect_options *o, const char *path) {
  print_text("{\n  \"file\": ");
  print_json_string(path, strlen(path));
  print_text(",\n  \"container\": \"%s\",\n  \"parts\": %u,\n  \"architecture\": ", c->info.container,
             (unsigned)c->info.n_parts);
  if (c->info.architecture)
    print_json_string(c->info.architecture, strlen(c->info.architecture));
  else
    print_text("null");
  print_text(",\n  \"weights\": %llu,\n  \"tensors\": %zu,\n  \"bytes\": %llu,\n  \"formats\": [",
             (unsigned long long)c->info.n_params, c->n_tensors, (unsigned long long)c->info.bytes);
  for (size_t i = 0; i < c->n_formats; i++) {
    print_text("%s{\"format\": \"%s\", \"tensors\": %llu, \"bytes\": %llu}", i ? ",\n    " : "\n    ",
               c->formats[i].format, (unsigned long long)c->formats[i].tensors,
               (unsigned long long)c->formats[i].bytes);
  }
  print_text("\n  ],\n  \"metadata\": {");
  if (print_metadata(c, true)) return STATUS_FAILED; // stops in the middle of the object
  print_text("\n  }");
  print_text(",\n  \"notices\": [");
  for (size_t i = 0; i < setun_file_notice_count(c->file); i++) {
    const char *line = setun_file_notice(c->file, i);
    print_text("%s", i ? ",\n    " : "\n    ");
    print_json_string(line, strlen(line));
  }
  print_text("\n  ]");
  if (o->tensors) print_json_tensors(c);
  if (o->bytes && print_cache(o, path)) return STATUS_FAILED;
  print_text("\n}\n");
  return 0;
}

// Writes in pieces, checking for signals in between. False after a report or a signal.
static bool write_values(tensor_file *out, const float *data, uint64_t count) {
  enum { PIECE = 1 << 20 };
  for (uint64_t done = 0; done < count; done += PIECE) {
    size_t n = count - done < PIECE ? (size_t)(count - done) : PIECE;
    if (interrupt_status() || !tensor_write(out, 0, done, data + done, n)) return false;
  }
  return !interrupt_status();
}

static int write_tensor(const setun_file *file, const inspect_options *o) {
  setun_error error;
  tensor_spec spec = {.name = o->tensor};
  tensor_file out;
  uint64_t count = 1;
  if (setun_file_read(file, o->tensor, &spec.n_dims, spec.dims, NULL, 0, &error) != SETUN_OK) return report(&error);
  for (int i = 0; i < spec.n_dims; i++) {
    if (__builtin_mul_overflow(count, spec.dims[i], &count)) return failure("%s: its size overflows", o->tensor);
  }
  float *data = count <= SIZE_MAX / sizeof *data - 1 ? malloc((size_t)(count + 1) * sizeof *data) : NULL;
  if (!data) return failure("%s: out of memory for %llu float32 values", o->tensor, (unsigned long long)count);
  bool done = false;
  note_interrupts(); // before creating a file that a signal could leave behind
  if (setun_file_read(file, o->tensor, &spec.n_dims, spec.dims, data, (size_t)count, &error) != SETUN_OK) {
    report(&error);
  } else if (tensor_create(o->output, &spec, 1, &out)) {
    if (write_values(&out, data, count))
      done = tensor_commit(&out);
    else
      tensor_discard(&out);
  }
  free(data);
  return done ? 0 : failed_status();
}

// A bad tensor for --check --json; `offset` -1: the whole tensor.
static void print_bad_tensor(const setun_tensor_info *t, int64_t offset, const char *message, bool first) {
  print_text("%s{\"name\": ", first ? "\n    " : ",\n    ");
  print_json_string(t->name, strlen(t->name));
  print_text(", \"format\": \"%s\", \"offset\": ", t->format);
  if (offset < 0)
    print_text("null");
  else
    print_text("%lld", (long long)offset);
  print_text(", \"message\": ");
  print_json_string(message, strlen(message));
  print_text("}");
}

// All tensors are checked, so that one bad tensor does not hide another.
static int check_tensors(const contents *c, bool json) {
  setun_error error;
  size_t bad = 0;
  if (json) print_text("{\n  \"tensors\": %zu,\n  \"bad\": [", c->n_tensors);
  for (size_t i = 0; i < c->n_tensors; i++) {
    int64_t offset = -1;
    if (setun_file_check(c->file, i, &offset, &error) != SETUN_OK) {
      report(&error);
      if (json) print_bad_tensor(&c->tensors[i], -1, error.message, !bad);
      bad++;
    } else if (offset >= 0) {
      if (json) print_bad_tensor(&c->tensors[i], offset, "invalid code, scale or number", !bad);
      failure("%s: invalid code, scale or number in the byte at offset %lld of the tensor (%s)", c->tensors[i].name,
              (long long)offset, c->tensors[i].format);
      bad++;
    }
  }
  if (json) print_text("%s]\n}\n", bad ? "\n  " : "");
  if (json) flush_output();
  if (bad) return failure("%zu of %zu tensors are bad", bad, c->n_tensors);
  if (json) return 0;
  print_text("%zu tensors checked: no invalid codes or numbers\n", c->n_tensors);
  return 0;
}

static void print_zeros_row(const setun_tensor_info *t, const setun_tensor_zeros *z, bool json, bool first) {
  double share = (double)z->zeros / (double)z->weights;
  if (json) {
    print_text("%s{\"name\": ", first ? "\n  " : ",\n  ");
    print_json_string(t->name, strlen(t->name));
    print_text(", \"weights\": %llu, \"zeros\": %llu, \"columns\": %llu, \"zero_columns\": %llu}",
               (unsigned long long)z->weights, (unsigned long long)z->zeros, (unsigned long long)z->columns,
               (unsigned long long)z->zero_columns);
    return;
  }
  print_text("%14llu %14llu %8.4f %8llu %12llu  ", (unsigned long long)z->weights, (unsigned long long)z->zeros, share,
             (unsigned long long)z->columns, (unsigned long long)z->zero_columns);
  print_clean(t->name);
  print_text("\n");
}

static int print_zeros(const contents *c, bool json) {
  setun_error error;
  bool first = true;
  if (json)
    print_text("[");
  else
    print_text("%14s %14s %8s %8s %12s  tensor\n", "weights", "zeros", "share", "columns", "zero columns");
  for (size_t i = 0; i < c->n_tensors; i++) {
    setun_tensor_zeros z = {.size = sizeof z};
    if (setun_file_zeros(c->file, i, &z, &error) != SETUN_OK) return report(&error);
    if (!z.weights) continue;
    print_zeros_row(&c->tensors[i], &z, json, first);
    first = false;
  }
  if (json) print_text("%s]\n", first ? "" : "\n");
  return 0;
}

static int run(const command *self, int argc, char **argv) {
  inspect_options o = {0};
  contents c = {0};
  setun_error error;
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  if (!o.tensor != !o.output) return usage_error(self, "--tensor NAME and -o FILE need each other");
  if (o.output && strcmp(o.output, "-") == 0) {
    return usage_error(self, "-o needs a file: standard output cannot take the tensor");
  }
  setun_file_params params = setun_file_params_default();
  params.assume = o.model.assume;
  params.ignore_keys = o.model.ignore_keys.items;
  params.n_ignore_keys = o.model.ignore_keys.count;
  params.log = log_to_stderr;
  if (o.output && (status = check_output(self, "-o", o.output, argv[1], NULL))) return status;
  if (setun_file_open(argv[1], &params, &c.file, &error) != SETUN_OK) return report(&error);
  if (o.tensor)
    status = write_tensor(c.file, &o);
  else if (!read_contents(&c))
    status = STATUS_FAILED;
  else if (o.check)
    status = check_tensors(&c, o.json);
  else if (o.zeros)
    status = print_zeros(&c, o.json);
  else
    status = o.json ? print_json(&c, &o, argv[1]) : print_summary(&c, &o, argv[1]);
  free(c.tensors);
  free(c.formats);
  setun_file_close(c.file);
  return status ? status : finish_output();
}

const command command_inspect = {
    .name = "inspect",
    .summary = "show a model's files: architecture, sizes, formats, tokenizer",
    .arguments = "MODEL",
    .min_arguments = 1,
    .max_arguments = 1,
    .details = "Reads only headers, so that it is quick for files of any size, except with --check, --zeros and "
               "--tensor, and for a separate head of a tied embedding: the two are compared. Also takes a .gguf or "
               ".safetensors file with an unknown architecture.",
    .groups = {{"options", OPTION_ROWS(rows), 0}, MODEL_GROUP(inspect_options)},
    .run = run,
};
