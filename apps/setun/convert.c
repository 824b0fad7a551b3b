// The command `convert`: from any container and layout to any other, exactly.
#include "commands.h"
#include "interrupt.h"
#include "model.h"
#include "output.h"
#include "own_files.h"

#include <string.h>

typedef struct convert_options {
  const char *output, *to, *embedding, *head, *experts, *assume;
  text_list ignore_keys;
  bool round_scales, unrotate, deltas, verbose;
} convert_options;

#define AT(member) offsetof(convert_options, member)
static const option rows[] = {
    {'o', "output", OPTION_FILE, AT(output), "DST", 0, 0,
     "the target: a GGUF file if it ends in .gguf, otherwise a directory, which must not exist or be empty"},
    {0, "to", OPTION_CHOICE, AT(to), NULL, SETUN_CHOICE_LAYOUT, 0,
     "the layout of the ternary weights; f32, f16 and bf16 also convert quantized weights to floats, where those hold "
     "them"},
    {0, "embedding", OPTION_CHOICE, AT(embedding), NULL, SETUN_CHOICE_EMBEDDING, 0,
     "the embedding's format; all except keep may lose information (default: keep; if quantized, with --to f32, f16 or "
     "bf16, that format)"},
    {0, "head", OPTION_CHOICE, AT(head), NULL, SETUN_CHOICE_EMBEDDING, 0,
     "the output matrix's format; for a tied one either option applies"},
    {0, "experts", OPTION_CHOICE, AT(experts), "split|stacked", 0, 0,
     "one tensor for each expert, with gate, up and down adjacent (the default), or one for all experts of a "
     "layer"},
    {0, "deltas", OPTION_FLAG, AT(deltas), NULL, 0, 0,
     "with --to t16: measure how much the experts of a layer differ, and store the differences too where they are "
     "shorter than an expert, so that less is read with --memory"},
    {0, "round-scales", OPTION_FLAG, AT(round_scales), NULL, 0, 0,
     "round scales that the layout cannot hold instead of failing"},
    {0, "unrotate", OPTION_FLAG, AT(unrotate), NULL, 0, 0,
     "transform matrices in a rotated basis back to the original one, as floats (--to f32); otherwise the basis is "
     "kept"},
    {0, "assume", OPTION_CHOICE, AT(assume), NULL, SETUN_CHOICE_ASSUME, 0,
     "how to read tensor types that several projects use, such as i2_s-arm"},
    IGNORE_KEY_ROW(convert_options),
    {'v', "verbose", OPTION_FLAG, AT(verbose), NULL, 0, 0, "print notices"},
};

static int run(const command *self, int argc, char **argv) {
  convert_options o = {0};
  setun_error error;
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  if (!o.output) return usage_error(self, "expected -o DST");
  if (!o.to) return usage_error(self, "expected --to LAYOUT");
  // Overwriting SRC itself is allowed: nothing is lost. Overwriting a part of it is not.
  if (!is_same_file(o.output, argv[1]) && (status = check_output(self, "-o", o.output, argv[1], NULL))) return status;
  long_work work = {.verbose = o.verbose || o.deltas}; // the measured differences are a result
  setun_convert_params params = setun_convert_params_default();
  params.to = o.to;
  params.embedding = o.embedding;
  params.head = o.head;
  params.experts = o.experts;
  params.assume = o.assume;
  params.ignore_keys = o.ignore_keys.items;
  params.n_ignore_keys = o.ignore_keys.count;
  params.round_scales = o.round_scales;
  params.unrotate = o.unrotate;
  params.deltas = o.deltas;
  params.progress = progress_until_interrupt;
  params.log = log_beside_progress;
  params.user = &work;
  progress_begin(&work.progress, "converting");
  note_interrupts();
  setun_status s = setun_convert(argv[1], o.output, &params, &error);
  progress_end(&work.progress);
  if (s == SETUN_ERROR_CANCELED) return failed_status();
  return s == SETUN_OK ? 0 : report(&error);
}

const command command_convert = {
    .name = "convert",
    .summary = "convert a model exactly to another container or layout of ternary weights",
    .arguments = "SRC -o DST --to LAYOUT",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Reads a GGUF file or a Hugging Face directory. The trits stay the same, and each scale keeps its float32 "
        "value; what the target cannot hold is refused before anything is written, with the tensor, the reason and "
        "layouts that can hold it. Floats that are trits times scales are recognized, and latent weights of "
        "checkpoints that declare BitNet quantization are made ternary as in training. With a float layout, quantized "
        "weights become floats too. All other tensors, the tokenizer and the metadata are carried over.\n"
        "The target gets its name when it is complete; after Ctrl-C nothing remains. An existing GGUF file is "
        "replaced, even SRC itself, but not the model's other files; a directory must be empty or new.",
    .groups = {{"options", OPTION_ROWS(rows), 0}},
    .run = run,
};
