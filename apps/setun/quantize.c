// The command `quantize`: fewer bits per weight, with loss.
#include "commands.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "own_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct quantize_options {
  const char *output, *scheme, *embedding, *head, *assume, *calibration;
  int64_t bits, group, windows, window; // 0: the default
  text_list ignore_keys;
  bool force, verbose;
} quantize_options;

#define AT(member) offsetof(quantize_options, member)
static const option rows[] = {
    {'o', "output", OPTION_FILE, AT(output), "DST", 0, 0,
     "the GGUF file to write, or, for zpB-G and gptq, a directory in the layout of GPTQ checkpoints"},
    {0, "scheme", OPTION_FILE, AT(scheme), "SCHEME|FILE", 0, 0,
     "the format for the layers' matrices: q2_k, q4_0, q4_1, q4_k, q5_0, q5_1, q6_k, q8_0; zpB-G, codes of B (2, 3, "
     "4, 8) bits with a scale and a zero point for each G (32, 64, 128) weights; gptq, the same by --bits and --group, "
     "which needs --calibration; 2:4-int4 or 2:4-fp4, which keep two of four; ternary, for latent floats; "
     "ternary-experts, with gptq of 2 bits for the layers' other matrices and an int8-row embedding; or a file of "
     "lines PATTERN = SCHEME"},
    {0, "bits", OPTION_INTEGER, AT(bits), "B", 2, 8, "of gptq's codes: 2, 3, 4 or 8 (default 4)"},
    {0, "group", OPTION_INTEGER, AT(group), "G", 32, 256,
     "weights that share a scale: 32, 64 or 128 in gptq, 2:4 and ternary-experts (default 64), 64, 128 or 256 in "
     "ternary ones "
     "(default: a row)"},
    {0, "force", OPTION_FLAG, AT(force), NULL, 0, 0,
     "make ternary weights also of floats that were not trained for it, and say what is lost"},
    {0, "calibration", OPTION_FILE, AT(calibration), "FILE", 0, 0,
     "a text that the model reads; matrices are quantized for the inputs that they get there"},
    {0, "windows", OPTION_INTEGER, AT(windows), "N", 1, 65536, "how many parts of the text it reads (default 128)"},
    {0, "window", OPTION_INTEGER, AT(window), "N", 16, 65536,
     "tokens of each (default 2048, or the model's context if that is less)"},
    {0, "embedding", OPTION_CHOICE, AT(embedding), NULL, SETUN_CHOICE_EMBEDDING, 0,
     "the embedding's format (default: keep)"},
    {0, "head", OPTION_CHOICE, AT(head), NULL, SETUN_CHOICE_EMBEDDING, 0,
     "the output matrix's format; for a tied one either option applies (default: keep)"},
    {0, "assume", OPTION_CHOICE, AT(assume), NULL, SETUN_CHOICE_ASSUME, 0,
     "how to read tensor types that several projects use, such as i2_s-arm"},
    IGNORE_KEY_ROW(quantize_options),
    {'v', "verbose", OPTION_FLAG, AT(verbose), NULL, 0, 0, "print notices"},
};

// Whether it is the name of a scheme; anything else is the path of a recipe.
static bool is_scheme(const char *name) {
  const char *found;
  for (size_t i = 0; (found = setun_choice_name(SETUN_CHOICE_SCHEME, i)); i++) {
    if (!strcmp(found, name)) return true;
  }
  return false;
}

// The scheme's full name where --bits and --group complete it; NULL: they do not fit.
static const char *full_name(const quantize_options *o, char *name, size_t size) {
  bool gptq = !strcmp(o->scheme, "gptq"), ternary = !strcmp(o->scheme, "ternary") && o->group;
  if (!gptq && !ternary && strcmp(o->scheme, "ternary-experts") && strcmp(o->scheme, "2:4-int4") &&
      strcmp(o->scheme, "2:4-fp4")) {
    return o->bits || o->group ? NULL : o->scheme;
  }
  if (!gptq && o->bits) return NULL;
  int group = o->group ? (int)o->group : 64;
  if (gptq)
    snprintf(name, size, "zp%d-%d", o->bits ? (int)o->bits : 4, group);
  else
    snprintf(name, size, "%s-%d", o->scheme, group);
  return is_scheme(name) ? name : NULL;
}

static int run(const command *self, int argc, char **argv) {
  quantize_options o = {0};
  setun_error error;
  char name[32];
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  if (!o.output) return usage_error(self, "expected -o DST");
  if (!o.scheme) return usage_error(self, "expected --scheme SCHEME");
  const char *scheme = full_name(&o, name, sizeof name);
  if (!scheme) {
    return usage_error(self,
                       "--bits, --group: expected --scheme gptq with 2, 3, 4 or 8 bits, a 2:4 scheme or "
                       "ternary-experts, and groups of 32, 64 or 128; or ternary, and groups of 64, 128 or 256; found "
                       "--scheme %s with %d bits and groups of %d (0: the default)",
                       o.scheme, (int)o.bits, (int)o.group);
  }
  if ((!strcmp(o.scheme, "gptq") || !strncmp(o.scheme, "ternary-experts", 15)) && !o.calibration)
    return usage_error(self, "expected --calibration FILE with gptq and ternary-experts");
  if (!o.calibration && (o.windows || o.window))
    return usage_error(self, "--windows, --window: expected --calibration");
  const named_file files[] = {
      {"--calibration", o.calibration}, {"--scheme", is_scheme(scheme) ? NULL : scheme}, {"-o", o.output}};
  if ((status = check_distinct(self, files, sizeof files / sizeof *files))) return status;
  if ((status = check_output(self, "-o", o.output, argv[1], NULL))) return status;
  if (!is_scheme(scheme) && access(scheme, F_OK))
    return usage_error(
        self, "--scheme: expected the name of a scheme, or of a recipe's file, found \"%s\", which is neither", scheme);
  long_work work = {.verbose = o.verbose};
  setun_quantize_params params = setun_quantize_params_default();
  if (is_scheme(scheme))
    params.scheme = scheme;
  else
    params.recipe = scheme;
  params.calibration = o.calibration;
  params.windows = (uint32_t)o.windows;
  params.window = (uint32_t)o.window;
  params.force = o.force;
  params.embedding = o.embedding;
  params.head = o.head;
  params.assume = o.assume;
  params.ignore_keys = o.ignore_keys.items;
  params.n_ignore_keys = o.ignore_keys.count;
  params.progress = progress_until_interrupt;
  params.log = log_beside_progress;
  params.user = &work;
  progress_begin(&work.progress, "quantizing");
  note_interrupts();
  setun_status s = setun_quantize(argv[1], o.output, &params, &error);
  progress_end(&work.progress);
  if (s == SETUN_ERROR_CANCELED) return failed_status();
  return s == SETUN_OK ? 0 : report(&error);
}

const command command_quantize = {
    .name = "quantize",
    .summary = "write a model with fewer bits per weight, with some loss",
    .arguments = "SRC -o DST --scheme SCHEME",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Reads a GGUF file or a Hugging Face directory and writes a GGUF file, or a directory. Each weight of the "
        "layers' matrices becomes the nearest code, with the scales of least squared error; norms, biases and routers "
        "are kept. A matrix whose rows the scheme's blocks do not divide is refused by name before anything is "
        "written.\n"
        "In a recipe, patterns match the names of the target's tensors (blk.0.ffn_down.weight), with * and ?; the "
        "first line that matches applies, \"keep\" is a scheme, and tensors that no line matches are kept. \"setun "
        "perplexity DST --against SRC\" measures the loss.",
    .groups = {{"options", OPTION_ROWS(rows), 0}},
    .run = run,
};
