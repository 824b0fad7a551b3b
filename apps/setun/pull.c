// The command `pull`: a model from the hub into the store.
//
// Every file is received next to its place, as ".FILE.CHECKSUM.partial", which a later run continues. Only when all
// files of the model are complete and have the hub's checksums are they renamed, the main file last.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "download.h"
#include "hub.h"
#include "interrupt.h"
#include "output.h"
#include "store.h"

#include <stdlib.h>
#include <string.h>

typedef struct pull_options {
  const char *folder, *endpoint, *revision;
  int64_t retries;
} pull_options;

#define AT(member) offsetof(pull_options, member)
static const option rows[] = {
    {0, "models", OPTION_FILE, AT(folder), "DIR", 0, 0,
     "the folder of the models (default: setun/models in XDG_DATA_HOME, or in ~/.local/share)"},
    {0, "hub", OPTION_TEXT, AT(endpoint), "URL", 0, 0,
     "the hub's address (default: HF_ENDPOINT, or https://huggingface.co)"},
    {0, "revision", OPTION_TEXT, AT(revision), "NAME", 0, 0, "a branch, a tag or a commit (default: main)"},
    {0, "retries", OPTION_INTEGER, AT(retries), "N", 0, 100,
     "consecutive attempts without progress before giving up (default 6)"},
};

// The model to pull.
typedef struct wanted {
  const char *word, *revision, *selector;
  char repository[256];
  model_choice choice;
} wanted;

// Lists the commands that would pull each of several models.
static int report_choices(const wanted *w, const model_choice *choices, size_t n) {
  char size[32];
  failure("%s: expected one model, found %zu; name one of these", w->word, n);
  for (size_t i = 0; i < n; i++) {
    fprintf(stderr, "  setun pull %s:%-24s %10s\n", w->repository, choices[i].label,
            format_bytes(choices[i].bytes, size));
  }
  return STATUS_FAILED;
}

// GGUF files take precedence: without a selector, a directory is considered only if there are none.
static size_t select_default(model_choice *choices, size_t n) {
  size_t kept = 0;
  for (size_t i = 0; i < n; i++) {
    if (!choices[i].parts) continue;
    model_choice c = choices[kept];
    choices[kept++] = choices[i];
    choices[i] = c;
  }
  return kept ? kept : n;
}

// Chooses one of the repository's models. 0, or the exit status after a report.
static int choose(wanted *w, const file_list *files, size_t left_out) {
  model_choice *choices = NULL;
  size_t all = 0;
  if (!find_choices(files, &choices, &all)) return STATUS_FAILED;
  size_t n = w->selector ? select_choices(choices, all, w->selector) : select_default(choices, all);
  int status = 0;
  if (n == 1)
    w->choice = choices[0];
  else if (n > 1)
    status = report_choices(w, choices, n);
  else if (all)
    status = report_choices(w, choices, all);
  else
    status = failure("%s: expected a .gguf file, or config.json and safetensors, found neither among %zu files%s",
                     w->word, files->count + left_out, left_out ? "; some have names that are not accepted" : "");
  free(choices);
  return status;
}

// Receives all files of the model, and moves them to their places when they are complete. 0, or the exit status.
static int fetch(const hub *h, const wanted *w, const file_list *files, const char *folder) {
  download *d = download_open(h, w->repository, w->revision, folder);
  bool fine = d != NULL;
  for (size_t i = 0; fine && i < files->count; i++) {
    if (is_file_of(&w->choice, &files->items[i])) fine = download_add(d, &files->items[i]);
  }
  fine = fine && download_receive(d) && download_finish(d, w->choice.first);
  download_free(d);
  if (fine) return 0;
  if (interrupt_status()) note("received data is kept: the same command continues from there");
  return failed_status();
}

static int pull(const hub *h, const pull_options *o, wanted *w) {
  file_list files = {0};
  size_t left_out = 0;
  char *root = NULL, *folder = NULL, *path = NULL;
  int status = hub_list(h, w->repository, w->revision, &files, &left_out) ? 0 : failed_status();
  if (!status) status = choose(w, &files, left_out);
  bool ready = !status && (root = store_folder(o->folder)) && (folder = join_path(root, w->repository)) &&
               (path = join_path(folder, w->choice.parts ? w->choice.first->path : ""));
  if (!status) status = ready ? fetch(h, w, &files, folder) : STATUS_FAILED;
  if (!status) print_text("%s\n", path);
  free_files(&files);
  free(root);
  free(folder);
  free(path);
  return status;
}

static int run(const command *self, int argc, char **argv) {
  pull_options o = {.retries = 6};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  wanted w = {.word = argv[1], .revision = o.revision ? o.revision : "main"};
  char buffer[1024];
  hub h = {0};
  note_interrupts();
  if (!hub_open(o.endpoint, o.retries, &h))
    status = STATUS_FAILED;
  else if (!hub_parse(&h, w.word, buffer, w.repository, &w.revision, &w.selector))
    status = usage_error(self, "expected the name of a model such as org/name or org/name:Q4_K_M, found '%s'", w.word);
  else
    status = pull(&h, &o, &w);
  hub_close(&h);
  return status ? status : finish_output();
}

const command command_pull = {
    .name = "pull",
    .summary = "download a model from the hub",
    .arguments = "ORG/NAME[:WORD]",
    .min_arguments = 1,
    .max_arguments = 1,
    .details =
        "Downloads a model from huggingface.co and prints its path; commands then take its name as MODEL. WORD is a "
        "file's name or the quantization in it, such as Q4_K_M, or \"safetensors\". Without it the only GGUF file is "
        "used (all parts of a split one) or, if there are none, config.json with the safetensors and the tokenizer; if "
        "there are several, they are listed. The address of the model's page or of a file works too.\n"
        "An interrupted download continues when the command is run again. A file is moved to its place when it is "
        "complete and has the hub's checksum. Models that are not public need a token in HF_TOKEN, or in the file that "
        "HF_TOKEN_PATH names; it is sent only to the hub.",
    .groups = {{"options", OPTION_ROWS(rows), 0}},
    .run = run,
};
