// The command `list`: the models in the store.
#define _POSIX_C_SOURCE 200809L
#include "commands.h"
#include "output.h"
#include "store.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct list_options {
  const char *folder;
  bool json;
} list_options;

#define AT(member) offsetof(list_options, member)
static const option rows[] = {
    {0, "models", OPTION_FILE, AT(folder), "DIR", 0, 0,
     "the folder of the models (default: setun/models in XDG_DATA_HOME, or in ~/.local/share)"},
    {0, "json", OPTION_FLAG, AT(json), NULL, 0, 0, "print JSON"},
};

// From a model's own files: its family and the format of most of its matrices; "" if they cannot be read.
typedef struct description {
  char family[64], format[32];
} description;

static void describe_tensors(const setun_file *file, description *d) {
  enum { FORMATS_MOST = 32 };
  struct {
    const char *name;
    size_t matrices;
  } formats[FORMATS_MOST] = {{0}};
  size_t most = 0;
  for (size_t i = 0; i < setun_file_tensor_count(file); i++) {
    setun_tensor_info info = {.size = sizeof info};
    if (setun_file_tensor(file, i, &info, NULL) != SETUN_OK || info.n_dims < 2) continue;
    size_t f = 0;
    while (f < FORMATS_MOST - 1 && formats[f].name && strcmp(formats[f].name, info.format)) f++;
    formats[f].name = info.format;
    formats[f].matrices++;
    if (formats[f].matrices > formats[most].matrices) most = f;
  }
  if (formats[most].name) snprintf(d->format, sizeof d->format, "%s", formats[most].name);
}

static void describe(const stored_model *m, description *d) {
  setun_file *file = NULL;
  setun_file_info info = {.size = sizeof info};
  setun_error error;
  *d = (description){"", ""};
  if (setun_file_open(m->path, NULL, &file, &error) != SETUN_OK) {
    note("%s", error.message);
    return;
  }
  if (setun_file_get_info(file, &info, &error) == SETUN_OK && info.architecture)
    snprintf(d->family, sizeof d->family, "%s", info.architecture);
  describe_tensors(file, d);
  setun_file_close(file);
}

static void print_member(const char *key, const char *value) {
  print_text("\"%s\": ", key);
  if (*value)
    print_json_string(value, strlen(value));
  else
    print_text("null");
  print_text(", ");
}

static void print_json(const store *s) {
  print_text("[");
  for (size_t i = 0; i < s->count; i++) {
    const stored_model *m = &s->models[i];
    description d;
    describe(m, &d);
    print_text(i ? ",\n {" : "\n {");
    print_member("name", m->name);
    print_member("path", m->path);
    print_text("\"bytes\": %llu, ", (unsigned long long)m->choice.bytes);
    print_member("container", m->choice.parts ? "gguf" : "huggingface");
    print_member("family", d.family);
    print_member("format", d.format);
    print_text("\"modified\": %lld}", (long long)m->choice.modified);
  }
  print_text("%s]\n", s->count ? "\n" : "");
}

static void print_table(const store *s) {
  int width = 4;
  for (size_t i = 0; i < s->count; i++) {
    int n = (int)strlen(s->models[i].name);
    if (n > width) width = n;
  }
  print_text("%-*s  %10s  %-12s %-8s %s\n", width, "name", "size", "family", "format", "modified");
  for (size_t i = 0; i < s->count; i++) {
    const stored_model *m = &s->models[i];
    char size[32], when[32] = "";
    time_t modified = (time_t)m->choice.modified;
    struct tm t;
    description d;
    describe(m, &d);
    if (localtime_r(&modified, &t)) strftime(when, sizeof when, "%Y-%m-%d %H:%M", &t);
    print_clean(m->name);
    print_text("%*s  %10s  ", width - (int)strlen(m->name), "", format_bytes(m->choice.bytes, size));
    print_clean(*d.family ? d.family : "?");
    print_text("%*s ", d.family[0] && strlen(d.family) < 12 ? 12 - (int)strlen(d.family) : d.family[0] ? 0 : 11, "");
    print_text("%-8s %s\n", *d.format ? d.format : "?", when);
  }
}

static int run(const command *self, int argc, char **argv) {
  list_options o = {0};
  store s = {0};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  if (!store_open(o.folder, &s))
    status = STATUS_FAILED;
  else if (o.json)
    print_json(&s);
  else if (s.count)
    print_table(&s);
  else
    note("%s holds no models yet; 'setun pull org/name' fetches one", s.folder);
  store_close(&s);
  return status ? status : finish_output();
}

const command command_list = {
    .name = "list",
    .summary = "list pulled models",
    .arguments = "",
    .details = "Lists the models in the store, by the names that other commands take as MODEL: pulled ones, and GGUF "
               "files and Hugging Face directories placed there.",
    .groups = {{"options", OPTION_ROWS(rows), 0}},
    .run = run,
};
