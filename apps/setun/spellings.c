// Other spellings as data, and distances between words.
#include "spellings.h"

#include "commands.h"

#include <string.h>

static const spelling spellings[] = {
    {"-m", SPELLING_MODEL, NULL, NULL},
    {"--model", SPELLING_MODEL, NULL, NULL},
    {"--ctx-size", SPELLING_ALIAS, "ctx", NULL},
    {"--n-predict", SPELLING_ALIAS, "n", NULL},
    {"--predict", SPELLING_ALIAS, "n", NULL},
    {"--max-tokens", SPELLING_ALIAS, "n", NULL},
    {"-ub", SPELLING_ALIAS, "batch-size", NULL},
    {"--ubatch-size", SPELLING_ALIAS, "batch-size", NULL},
    {"-s", SPELLING_ALIAS, "seed", NULL},
    {"--temperature", SPELLING_ALIAS, "temp", NULL},
    {"--typical-p", SPELLING_ALIAS, "typical", NULL},
    {"--top-nsigma", SPELLING_ALIAS, "top-n-sigma", NULL},
    {"--sampler-seq", SPELLING_ALIAS, "sampling-seq", NULL},
    {"--repetition-penalty", SPELLING_ALIAS, "repeat-penalty", NULL},
    {"-l", SPELLING_ALIAS, "logit-bias", NULL},
    {"--n-probs", SPELLING_ALIAS, "logprobs", NULL},
    {"--reverse-prompt", SPELLING_ALIAS, "stop", NULL},
    {"--no-display-prompt", SPELLING_ALIAS, "no-echo", NULL},
    {"--prompt-cache", SPELLING_ALIAS, "session", NULL},
    {"-bf", SPELLING_ALIAS, "file", NULL},
    {"--binary-file", SPELLING_ALIAS, "file", NULL},
    {"-v", SPELLING_ALIAS, "verbose", NULL},
    {"--log-verbose", SPELLING_ALIAS, "verbose", NULL},
    {"-sys", SPELLING_ALIAS, "system", NULL},
    {"--system-prompt", SPELLING_ALIAS, "system", NULL},
    {"--chat-template-file", SPELLING_ALIAS, "template", NULL},
    {"-md", SPELLING_ALIAS, "draft", NULL},
    {"--model-draft", SPELLING_ALIAS, "draft", NULL},
    {"--no-mmap", SPELLING_ALWAYS, NULL, NULL},
    {"--no-warmup", SPELLING_ALWAYS, NULL, NULL},
    {"--jinja", SPELLING_ALWAYS, NULL, NULL},
    {"-no-cnv", SPELLING_ALWAYS, NULL, NULL},
    {"--no-conversation", SPELLING_ALWAYS, NULL, NULL},
    {"-nkvo", SPELLING_ALWAYS, NULL, NULL},
    {"--no-kv-offload", SPELLING_ALWAYS, NULL, NULL},
#define ON_THE_PROCESSOR "a whole model is on one device, the CPU or that of --device"
    {"-ngl", SPELLING_INSTEAD, ON_THE_PROCESSOR, "0"},
    {"--gpu-layers", SPELLING_INSTEAD, ON_THE_PROCESSOR, "0"},
    {"--n-gpu-layers", SPELLING_INSTEAD, ON_THE_PROCESSOR, "0"},
    {"-dev", SPELLING_ALIAS, "device", NULL},
    {"-mg", SPELLING_INSTEAD, ON_THE_PROCESSOR, "0"},
    {"--main-gpu", SPELLING_INSTEAD, ON_THE_PROCESSOR, "0"},
    {"-sm", SPELLING_INSTEAD, ON_THE_PROCESSOR, "none"},
    {"--split-mode", SPELLING_INSTEAD, ON_THE_PROCESSOR, "none"},
    {"-ts", SPELLING_INSTEAD, ON_THE_PROCESSOR, NULL},
    {"--tensor-split", SPELLING_INSTEAD, ON_THE_PROCESSOR, NULL},
    {"-ot", SPELLING_INSTEAD, "--memory limits what stays in memory, for all tensors together", NULL},
    {"--override-tensor", SPELLING_INSTEAD, "--memory limits what stays in memory, for all tensors together", NULL},
    {"-fa", SPELLING_INSTEAD, "attention never stores a matrix of scores", "auto"},
    {"--flash-attn", SPELLING_INSTEAD, "attention never stores a matrix of scores", "auto"},
    {"-ctk", SPELLING_INSTEAD, "--kv KEYS,VALUES names both formats, such as --kv q8,q4", NULL},
    {"--cache-type-k", SPELLING_INSTEAD, "--kv KEYS,VALUES names both formats, such as --kv q8,q4", NULL},
    {"-ctv", SPELLING_INSTEAD, "--kv KEYS,VALUES names both formats, such as --kv q8,q4", NULL},
    {"--cache-type-v", SPELLING_INSTEAD, "--kv KEYS,VALUES names both formats, such as --kv q8,q4", NULL},
    {"-tb", SPELLING_INSTEAD, "-t sets the threads for prompts and new tokens", NULL},
    {"--threads-batch", SPELLING_INSTEAD, "-t sets the threads for prompts and new tokens", NULL},
    {"--mlock", SPELLING_INSTEAD, "weights are read into the process's own memory, within --memory", NULL},
    {"--mmap", SPELLING_INSTEAD, "--no-stream maps the file", NULL},
    {"-p", SPELLING_MEANT, "port", NULL},
    {"-p", SPELLING_INSTEAD, "'setun run' takes a prompt; 'setun chat' reads messages, also from a pipe", NULL},
    {"--prompt", SPELLING_INSTEAD, "'setun run' takes a prompt; 'setun chat' reads messages, also from a pipe", NULL},
    {"-cnv", SPELLING_INSTEAD, "'setun chat' is for conversations, and needs no such option", NULL},
    {"--conversation", SPELLING_INSTEAD, "'setun chat' is for conversations, and needs no such option", NULL},
    {"-i", SPELLING_INSTEAD, "'setun chat' is for conversations, and needs no such option", NULL},
    {"--interactive", SPELLING_INSTEAD, "'setun chat' is for conversations, and needs no such option", NULL},
    {"--keep", SPELLING_INSTEAD, "--kv-sinks N keeps the first tokens of the context", NULL},
    {"--chat-template", SPELLING_INSTEAD, "'setun chat' and 'setun serve' take a template by --template FILE", NULL},
    {"--grammar-file", SPELLING_INSTEAD, "--grammar FILE takes a grammar", NULL},
    {"-j", SPELLING_INSTEAD, "--json-schema FILE takes a schema", NULL},
    {"-st", SPELLING_INSTEAD, "'setun chat' with a pipe as standard input answers its lines and ends", NULL},
    {"--single-turn", SPELLING_INSTEAD, "'setun chat' with a pipe as standard input answers its lines and ends", NULL},
    {"-hf", SPELLING_INSTEAD, "MODEL may be org/name or org/name:Q4_K_M, after 'setun pull' has fetched it", NULL},
    {"--hf-repo", SPELLING_INSTEAD, "MODEL may be org/name or org/name:Q4_K_M, after 'setun pull' has fetched it",
     NULL},
};
enum { SPELLINGS = sizeof spellings / sizeof *spellings };

const spelling *next_spelling(const char *text, size_t length, size_t *index) {
  while (*index < SPELLINGS) {
    const spelling *s = &spellings[(*index)++];
    if (strlen(s->theirs) == length && memcmp(s->theirs, text, length) == 0) return s;
  }
  return NULL;
}

const char *next_alias(const option *o, size_t *index) {
  while (*index < SPELLINGS) {
    const spelling *s = &spellings[(*index)++];
    if (s->kind != SPELLING_ALIAS) continue;
    bool letter = !s->ours[1] && s->ours[0] == o->letter;
    if (letter || (o->name && strcmp(s->ours, o->name) == 0)) return s->theirs;
  }
  return NULL;
}

// ---- distances ----

// The number of insertions, deletions, replacements and swaps of neighbours between two words (optimal string
// alignment; Damerau, 1964). FAR for long words.
enum { WORD_MOST = 32, FAR = 99 };

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

static size_t distance(const char *a, size_t n, const char *b, size_t m) {
  size_t d[WORD_MOST + 1][WORD_MOST + 1];
  if (n > WORD_MOST || m > WORD_MOST) return FAR;
  for (size_t i = 0; i <= n; i++) d[i][0] = i;
  for (size_t j = 0; j <= m; j++) d[0][j] = j;
  for (size_t i = 1; i <= n; i++) {
    for (size_t j = 1; j <= m; j++) {
      size_t best = least(d[i - 1][j] + 1, d[i][j - 1] + 1);
      best = least(best, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) best = least(best, d[i - 2][j - 2] + 1);
      d[i][j] = best;
    }
  }
  return d[n][m];
}

// The largest distance of a suggestion: one letter in three, at most three; longer words with this prefix are near too.
static size_t distance_if_near(const char *text, size_t length, const char *word) {
  size_t n = strlen(word), d = distance(text, length, word, n), most = least(3, (length + 1) / 3);
  if (length >= 3 && n > length && memcmp(text, word, length) == 0) return d < most ? d : most;
  return d <= most ? d : FAR;
}

bool nearest_option(const command *self, const char *text, size_t length, char name[64]) {
  size_t best = FAR;
  if (length < 3 || text[1] != '-') return false;
  for (const option_group *g = self->groups; g->title; g++) {
    for (size_t i = 0; i < g->count; i++) {
      const option *o = &g->rows[i];
      size_t d = o->name ? distance_if_near(text + 2, length - 2, o->name) : FAR;
      if (d < best) {
        best = d;
        snprintf(name, 64, "--%s", o->name);
      }
      size_t index = 0;
      for (const char *alias; (alias = next_alias(o, &index));) {
        d = alias[1] == '-' ? distance_if_near(text + 2, length - 2, alias + 2) : FAR;
        if (d >= best) continue;
        best = d;
        snprintf(name, 64, "%s", alias);
      }
    }
  }
  return best < FAR;
}

// Other programs' names of commands.
static const struct {
  const char *theirs, *ours;
} other_commands[] = {
    {"ls", "list"},          {"models", "list"},  {"rm", "remove"},       {"delete", "remove"},
    {"download", "pull"},    {"fetch", "pull"},   {"generate", "run"},    {"complete", "run"},
    {"completion", "run"},   {"info", "inspect"}, {"show", "inspect"},    {"embedding", "embed"},
    {"embeddings", "embed"}, {"server", "serve"}, {"benchmark", "bench"}, {"ppl", "perplexity"},
};

const char *nearest_command(const char *text) {
  const char *name = NULL;
  size_t best = FAR;
  for (size_t i = 0; i < sizeof other_commands / sizeof *other_commands; i++) {
    if (strcmp(text, other_commands[i].theirs) == 0 && find_command(other_commands[i].ours)) {
      return other_commands[i].ours;
    }
  }
  for (const command *const *c = all_commands; *c; c++) {
    size_t d = distance_if_near(text, strlen(text), (*c)->name);
    if (d < best) {
      best = d;
      name = (*c)->name;
    }
  }
  return name;
}
