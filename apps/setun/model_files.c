// Models among files, by name.
#define _POSIX_C_SOURCE 200809L
#include "model_files.h"

#include "base/suffix.h"
#include "output.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool add_file(file_list *list, const char *path, uint64_t size, int64_t modified, const char *checksum) {
  size_t n = list->count;
  char *copy = strdup(path);
  // Grown whenever the count is a power of two.
  bool full = (n & (n - 1)) == 0;
  model_file *grown = !copy ? NULL : full ? realloc(list->items, (n ? 2 * n : 1) * sizeof *grown) : list->items;
  if (!grown) {
    free(copy);
    failure("out of memory for the names of %zu files", n);
    return false;
  }
  list->items = grown;
  grown[n] = (model_file){.path = copy, .size = size, .modified = modified};
  snprintf(grown[n].checksum, sizeof grown[n].checksum, "%s", checksum);
  list->count++;
  return true;
}

void free_files(file_list *list) {
  for (size_t i = 0; i < list->count; i++) free(list->items[i].path);
  free(list->items);
  *list = (file_list){0};
}

// ---- names ----

static bool is_plain(char c) {
  return c && (isalnum((unsigned char)c) ? (unsigned char)c < 128 : strchr("._-+=,@()~", c) != NULL);
}

bool is_plain_path(const char *path, size_t components_most) {
  enum { COMPONENT_MOST = 200 }; // leaves room for the suffix of a partial file's name
  for (size_t i = 0; i < components_most; i++) {
    size_t n = 0;
    while (is_plain(path[n])) n++;
    if (!n || n > COMPONENT_MOST || path[0] == '.' || path[0] == '-') return false;
    if (!path[n]) return true;
    if (path[n] != '/') return false;
    path += n + 1;
  }
  return false;
}

// "organization/name", as on the hub.
static bool is_repository_name(const char *name, size_t length) {
  char copy[256];
  const char *slash = memchr(name, '/', length);
  if (!slash || length >= sizeof copy) return false;
  memcpy(copy, name, length);
  copy[length] = 0;
  return is_plain_path(copy, 2) && !strpbrk(copy, "+=,@()~");
}

bool parse_model_name(const char *name, char repository[256], const char **selector) {
  const char *colon = strchr(name, ':');
  size_t n = colon ? (size_t)(colon - name) : strlen(name);
  *selector = colon ? colon + 1 : NULL;
  if (!is_repository_name(name, n) || (colon && !is_plain_path(colon + 1, 3))) return false;
  snprintf(repository, 256, "%.*s", (int)n, name);
  return true;
}

static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static bool has_word(const char *name, const char *word) {
  for (; *name; name++) {
    if (strncasecmp(name, word, strlen(word)) == 0) return true;
  }
  return false;
}

// Whether a GGUF file holds a language model's weights: not an image projector, nor an importance matrix.
static bool is_gguf_model(const char *path) {
  return st_has_suffix(path, ".gguf") && !has_word(base_of(path), "mmproj") && !has_word(base_of(path), "imatrix");
}

// The length of a GGUF file's path that its parts share, "model" of "model-00002-of-00003.gguf", and the part's number.
static size_t stem_of(const char *path, uint32_t *part, uint32_t *parts) {
  enum { TAIL = sizeof "-00002-of-00003" - 1 };
  size_t n = strlen(path) - strlen(".gguf");
  unsigned a = 0, b = 0;
  int used = 0;
  *part = *parts = 1;
  bool split = n > TAIL && sscanf(path + n - TAIL, "-%5u-of-%5u.gguf%n", &a, &b, &used) == 2 &&
               (size_t)used == TAIL + strlen(".gguf") && a >= 1 && a <= b;
  if (!split) return n;
  *part = a;
  *parts = b;
  return n - TAIL;
}

static bool same_stem(const char *a, const char *b) {
  uint32_t part, parts, other, others;
  size_t n = stem_of(a, &part, &parts);
  return stem_of(b, &other, &others) == n && parts == others && memcmp(a, b, n) == 0;
}

// The files of a Hugging Face directory, except weights.
static bool is_directory_text(const char *path) {
  static const char *const names[] = {"config.json",
                                      "generation_config.json",
                                      "tokenizer.json",
                                      "tokenizer.model",
                                      "tokenizer_config.json",
                                      "vocab.json",
                                      "merges.txt",
                                      "added_tokens.json",
                                      "chat_template.jinja",
                                      "special_tokens_map.json",
                                      "chat_template.json",
                                      "model.safetensors.index.json",
                                      "modules.json",
                                      "1_Pooling/config.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(path, names[i]) == 0) return true;
  }
  return false;
}

static bool is_weights(const char *path) {
  return strncmp(path, "model", 5) == 0 && st_has_suffix(path, ".safetensors") && !strchr(path, '/');
}

bool is_file_of(const model_choice *c, const model_file *file) {
  if (!c->parts) return is_directory_text(file->path) || is_weights(file->path);
  return is_gguf_model(file->path) && same_stem(c->first->path, file->path);
}

// ---- choices ----

// The last word of a name: after its last dash or dot, including a preceding "UD-".
static const char *label_in(const char *name, size_t n) {
  size_t from = n;
  while (from && name[from - 1] != '-' && name[from - 1] != '.') from--;
  if (from >= 4 && strncasecmp(name + from - 3, "UD-", 3) == 0) from -= 3;
  return name + from;
}

static void label(model_choice *c) {
  uint32_t part, parts;
  const char *path = c->first->path, *name = base_of(path);
  if (!c->parts) {
    snprintf(c->label, sizeof c->label, "safetensors");
    return;
  }
  const char *end = path + stem_of(path, &part, &parts), *word = label_in(name, (size_t)(end - name));
  snprintf(c->label, sizeof c->label, "%.*s", (int)(end - word), word);
}

static void label_all(model_choice *choices, size_t count) {
  for (size_t i = 0; i < count; i++) label(&choices[i]);
  for (size_t i = 0; i < count; i++) {
    bool shared = false;
    for (size_t j = 0; !shared && j < count; j++) {
      char other[LABEL_SIZE];
      model_choice copy = choices[j];
      label(&copy);
      snprintf(other, sizeof other, "%s", copy.label);
      shared = j != i && strcasecmp(choices[i].label, other) == 0;
    }
    if (shared) snprintf(choices[i].label, sizeof choices[i].label, "%s", choices[i].first->path);
  }
}

// Whether a file begins a model; if so, fills in everything except the label.
static bool begins_model(const file_list *list, const model_file *file, model_choice *c) {
  uint32_t part = 1, found = 0;
  *c = (model_choice){.first = file};
  if (is_gguf_model(file->path))
    stem_of(file->path, &part, &c->parts);
  else if (strcmp(file->path, "config.json") != 0)
    return false;
  if (part != 1) return false;
  for (size_t i = 0; i < list->count; i++) {
    const model_file *other = &list->items[i];
    if (!is_file_of(c, other)) continue;
    c->bytes += other->size;
    if (other->modified > c->modified) c->modified = other->modified;
    found += c->parts || is_weights(other->path);
  }
  return c->parts ? found == c->parts : found > 0;
}

bool find_choices(const file_list *list, model_choice **choices, size_t *count) {
  *count = 0;
  *choices = malloc((list->count + 1) * sizeof **choices);
  if (!*choices) {
    failure("out of memory for the names of %zu files", list->count);
    return false;
  }
  for (size_t i = 0; i < list->count; i++) {
    if (begins_model(list, &list->items[i], &(*choices)[*count])) ++*count;
  }
  label_all(*choices, *count);
  return true;
}

// How well a model matches a word; 0: not at all.
static int match(const model_choice *c, const char *selector) {
  const char *path = c->first->path, *name = base_of(path);
  uint32_t part, parts;
  size_t m = strlen(selector);
  if (strcasecmp(selector, c->label) == 0) return 2;
  if (!c->parts || !m) return 0;
  size_t n = stem_of(path, &part, &parts), before = (size_t)(name - path);
  bool named = strcmp(selector, path) == 0 || strcmp(selector, name) == 0 ||
               (n - before == m && strncmp(name, selector, m) == 0);
  if (named) return 3;
  model_choice short_label = *c;
  label(&short_label);
  if (strcasecmp(selector, short_label.label) == 0) return 2;
  if (n - before > m && strchr("-._", path[n - m - 1]) && strncasecmp(path + n - m, selector, m) == 0) return 1;
  return before == m + 1 && strncasecmp(path, selector, m) == 0;
}

size_t select_choices(model_choice *choices, size_t count, const char *selector) {
  int best = 1;
  size_t kept = 0;
  if (!selector) return count;
  for (size_t i = 0; i < count; i++) {
    int m = match(&choices[i], selector);
    if (m > best) best = m;
  }
  for (size_t i = 0; i < count; i++) {
    if (match(&choices[i], selector) != best) continue;
    model_choice c = choices[kept];
    choices[kept++] = choices[i];
    choices[i] = c;
  }
  return kept;
}
