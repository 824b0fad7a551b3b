// The option parser: long and short options, joined or separate values, sizes and ranges.
#include "options.h"

#include "output.h"
#include "spellings.h"
#include "store.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct found_option {
  const option *row;
  size_t group_offset;
} found_option;

static found_option find_option(const command *self, const char *name, size_t length, char letter) {
  for (const option_group *g = self->groups; g->title; g++) {
    for (size_t i = 0; i < g->count; i++) {
      const option *o = &g->rows[i];
      bool same =
          letter ? o->letter == letter : o->name && strlen(o->name) == length && memcmp(o->name, name, length) == 0;
      if (same) return (found_option){o, g->offset};
    }
  }
  return (found_option){NULL, 0};
}

// An option's name in messages: "--temp", or "-n" if there is no long name.
static const char *option_label(const option *o, char label[64]) {
  if (o->name)
    snprintf(label, 64, "--%s", o->name);
  else
    snprintf(label, 64, "-%c", o->letter);
  return label;
}

const char *option_value(const option *o) {
  enum { CHOICES = SETUN_CHOICE_SCHEME + 1, WORDS_MOST = 1024 };
  static char words[CHOICES][WORDS_MOST];
  if (o->value || o->kind != OPTION_CHOICE) return o->value;
  char *to = words[(size_t)o->low];
  const char *name;
  size_t used = 0;
  for (size_t i = 0; (name = setun_choice_name((setun_choice)o->low, i)) && used < WORDS_MOST; i++) {
    used += (size_t)snprintf(to + used, WORDS_MOST - used, "%s%s", i ? "|" : "", name);
  }
  return to;
}

const char *next_choice(const char *from, size_t *length) {
  if (!*from) return NULL;
  if (*from == '|') from++;
  *length = strcspn(from, "|");
  return from;
}

static bool is_choice(const char *choices, const char *text) {
  size_t n = 0;
  for (const char *c = choices; (c = next_choice(c, &n)); c += n) {
    if (strlen(text) == n && memcmp(c, text, n) == 0) return true;
  }
  return false;
}

// Numbers beyond int64_t are clamped.
static bool read_integer(const char *text, int64_t *out) {
  char *end = NULL;
  long long v = strtoll(text, &end, 10);
  if (end == text || *end || text[0] == ' ') return false;
  *out = v;
  return true;
}

// Also false beyond uint64_t, and for negative numbers, which strtoull accepts.
static bool read_unsigned(const char *text, uint64_t *out) {
  char *end = NULL;
  if (!(text[0] >= '0' && text[0] <= '9')) return false;
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  if (*end || errno) return false;
  *out = v;
  return true;
}

static bool read_number(const char *text, double *out) {
  char *end = NULL;
  double v = strtod(text, &end);
  if (end == text || *end || !isfinite(v) || text[0] == ' ') return false;
  *out = v;
  return true;
}

// "4096", "512M", "4G", "1.5G", "4GiB", to "P": powers of 1024.
static bool read_size(const char *text, double *out) {
  char *end = NULL;
  if (!(text[0] >= '0' && text[0] <= '9')) return false;
  double v = strtod(text, &end);
  if (end != text + strspn(text, "0123456789.")) return false; // strtod would accept 0x10 and 1e3
  static const char letters[] = "KMGTP";
  const char *unit = *end ? strchr(letters, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
  if (unit) {
    for (long i = 0; i <= unit - letters; i++) v *= 1024;
    end++;
    if (strcmp(end, "B") == 0 || strcmp(end, "iB") == 0) end = "";
  }
  if (*end || !isfinite(v) || v >= 0x1p63) return false;
  *out = v;
  return true;
}

// One of the words, or two with a comma between them.
static bool are_choices(const char *choices, const char *text) {
  char first[32];
  const char *comma = strchr(text, ',');
  if (!comma) return is_choice(choices, text);
  if ((size_t)(comma - text) >= sizeof first) return false;
  memcpy(first, text, (size_t)(comma - text));
  first[comma - text] = 0;
  return is_choice(choices, first) && is_choice(choices, comma + 1);
}

static int bad_value(const command *self, const option *o, const char *text, const char *expected) {
  char label[64];
  return usage_error(self, "%s expects %s, not '%s'", option_label(o, label), expected, text);
}

// Checks a number against its row's range.
static int check_range(const command *self, const option *o, const char *text, double v) {
  char expected[96], low[32], high[32];
  if (v >= o->low && v <= o->high) return 0;
  if (o->kind == OPTION_SIZE)
    snprintf(expected, sizeof expected, "%s to %s", format_bytes((uint64_t)o->low, low),
             format_bytes((uint64_t)o->high, high));
  else if (o->high >= 0x1p62 || o->high >= HUGE_VAL)
    snprintf(expected, sizeof expected, "%.10g or more", o->low);
  else
    snprintf(expected, sizeof expected, "%.10g to %.10g", o->low, o->high);
  return bad_value(self, o, text, expected);
}

// Stores the value; 0, or 2 after a report.
static int store_value(const command *self, const option *o, const char *text, void *to) {
  double v = 0;
  switch (o->kind) {
  case OPTION_FLAG: *(bool *)to = true; return 0;
  case OPTION_FILE:
    if (!*text) return bad_value(self, o, text, "a file's name");
    *(const char **)to = text;
    return 0;
  case OPTION_MODEL:
    if (!*text) return bad_value(self, o, text, "a model");
    return (*(const char **)to = resolve_model(text)) ? 0 : STATUS_FAILED;
  case OPTION_TEXT: *(const char **)to = text; return 0;
  case OPTION_LIST: {
    text_list *list = to;
    char label[64];
    size_t most = o->high > 0 && o->high < LIST_MOST ? (size_t)o->high : LIST_MOST;
    if (!*text && o->low > 0) return bad_value(self, o, text, o->value);
    if (list->count == most) {
      return usage_error(self, "%s is given more than %zu times", option_label(o, label), most);
    }
    list->items[list->count++] = text;
    return 0;
  }
  case OPTION_CHOICE:
    if (!(o->high >= 2 ? are_choices(option_value(o), text) : is_choice(option_value(o), text))) {
      char label[64];
      return usage_error(self, "%s expects one of %s%s, not '%s'", option_label(o, label), option_value(o),
                         o->high >= 2 ? ", or two with a comma between" : "", text);
    }
    *(const char **)to = text;
    return 0;
  case OPTION_INTEGER: {
    int64_t i = 0;
    if (!read_integer(text, &i)) return bad_value(self, o, text, "a whole number");
    if (check_range(self, o, text, (double)i)) return STATUS_USAGE;
    *(int64_t *)to = i;
    return 0;
  }
  case OPTION_SEED:
    *(optional_seed *)to = (optional_seed){0, false};
    if (strcmp(text, "-1") == 0) return 0; // a new one each time
    if (!read_unsigned(text, &((optional_seed *)to)->value)) {
      return bad_value(self, o, text, "a whole number from 0 to 18446744073709551615, or -1");
    }
    ((optional_seed *)to)->given = true;
    return 0;
  case OPTION_NUMBER:
    if (!read_number(text, &v)) return bad_value(self, o, text, "a number");
    if (check_range(self, o, text, v)) return STATUS_USAGE;
    *(double *)to = v;
    return 0;
  case OPTION_SIZE:
    if (!read_size(text, &v)) return bad_value(self, o, text, "a size such as 512M or 4G");
    if (check_range(self, o, text, v)) return STATUS_USAGE;
    *(uint64_t *)to = (uint64_t)v;
    return 0;
  }
  return 0;
}

// The state of parsing: the arguments, and where an option's value may be.
typedef struct parser {
  const command *self;
  char **argv;
  int argc, i; // i: of the current argument
  char *model; // of -m; NULL: not given
} parser;

static int unknown_option(const command *self, const char *arg) {
  char near[64];
  size_t length = strcspn(arg, "=");
  if (nearest_option(self, arg, length, near))
    return usage_error(self, "unknown option '%s'; did you mean %s?", arg, near);
  return usage_error(self, "unknown option '%s'", arg);
}

// The value of the current option: joined to it, or the next argument; NULL: neither.
static char *take_value(parser *p, char *joined) {
  if (joined) return joined;
  return p->i + 1 < p->argc ? p->argv[++p->i] : NULL;
}

// Handles another program's option. 0, or 2 after a report.
static int take_foreign(parser *p, const spelling *s, char *joined) {
  const command *self = p->self;
  if (s->kind == SPELLING_MODEL) {
    char *value = take_value(p, joined);
    if (!value) return usage_error(self, "%s needs a value", s->theirs);
    if (p->model) return usage_error(self, "%s is given twice", s->theirs);
    p->model = value;
    return 0;
  }
  if (s->kind == SPELLING_MEANT)
    return usage_error(self, "unknown option '%s'; did you mean --%s?", s->theirs, s->ours);
  if (s->kind == SPELLING_ALWAYS) {
    return joined ? usage_error(self, "%s takes no value, but '%s' gives one", s->theirs, p->argv[p->i]) : 0;
  }
  const char *value = s->accepted ? take_value(p, joined) : NULL;
  if (value && is_choice(s->accepted, value)) return 0;
  if (!s->accepted) return usage_error(self, "%s is not an option here: %s", s->theirs, s->ours);
  return usage_error(self, "%s: %s: omit it, or use %s", s->theirs, s->ours, s->accepted);
}

// Whether a row of other spellings applies to this command.
static bool applies(const command *self, const spelling *s) {
  if (s->kind == SPELLING_MODEL) return strncmp(self->arguments, "MODEL", 5) == 0;
  if (s->kind == SPELLING_ALIAS) return true;
  if (s->kind == SPELLING_MEANT) return find_option(self, s->ours, strlen(s->ours), 0).row;
  return find_option(self, "threads", strlen("threads"), 0).row;
}

// The first such row for a spelling; NULL: there is none.
static const spelling *find_spelling(const command *self, const char *text, size_t length) {
  size_t index = 0;
  const spelling *s;
  while ((s = next_spelling(text, length, &index)) && !applies(self, s)) continue;
  return s;
}

static found_option find_alias(const command *self, const spelling *s) {
  return s->ours[1] ? find_option(self, s->ours, strlen(s->ours), 0) : find_option(self, NULL, 0, s->ours[0]);
}

static int take_found(parser *p, const found_option *found, char *joined, void *values) {
  char label[64];
  const option *o = found->row;
  char *value = joined, *arg = p->argv[p->i];
  if (o->kind == OPTION_FLAG && joined) {
    return usage_error(p->self, "%s takes no value, but '%s' gives one", option_label(o, label), arg);
  }
  if (o->kind != OPTION_FLAG && !(value = take_value(p, joined))) {
    return usage_error(p->self, "%s needs a value", option_label(o, label));
  }
  return store_value(p->self, o, value, (char *)values + found->group_offset + o->offset);
}

// Parses the option at argv[i], whose value may be the next argument. 0, 2 after a report, or -1 after --help.
static int take_option(parser *p, void *values) {
  const command *self = p->self;
  char *arg = p->argv[p->i], *joined = NULL;
  found_option found = {NULL, 0};
  if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) {
    print_help(self, stdout);
    return -1;
  }
  bool is_long = arg[1] == '-';
  size_t length = is_long ? strcspn(arg, "=") : strlen(arg);
  if (is_long && arg[length]) joined = arg + length + 1;
  if (is_long) found = find_option(self, arg + 2, length - 2, 0);
  const spelling *s = found.row ? NULL : find_spelling(self, arg, length);
  if (!is_long && (!s || !arg[2])) {
    found = find_option(self, NULL, 0, arg[1]);
    if (found.row) s = NULL;
    if (arg[2]) joined = arg + 2;
    if (!found.row && !s) s = find_spelling(self, arg, 2);
  }
  if (s && s->kind == SPELLING_ALIAS) found = find_alias(self, s);
  if (s && s->kind != SPELLING_ALIAS) return take_foreign(p, s, joined);
  return found.row ? take_found(p, &found, joined, values) : unknown_option(self, arg);
}

static const command *parsed; // the current command
static const char *given;     // its first argument

const char *given_argument(void) {
  return given;
}

// Whether the first argument is a model's path or name.
static bool takes_model(const command *self) {
  static const char *const words[] = {"MODEL", "[MODEL]", "SRC"};
  size_t n = strcspn(self->arguments, " ");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strlen(words[i]) == n && strncmp(self->arguments, words[i], n) == 0) return true;
  }
  return false;
}

bool is_option(const char *name) {
  return parsed && find_option(parsed, name, strlen(name), 0).row;
}

// Checks the number of arguments. 0, or 2 after a report.
static int check_count(const command *self, int count, char **argv) {
  if (count < self->min_arguments) {
    int word = (int)strcspn(self->arguments, " ");
    return self->min_arguments == 1 ? usage_error(self, "%.*s is missing", word, self->arguments)
                                    : usage_error(self, "an argument is missing");
  }
  if (count && !*argv[1]) return usage_error(self, "the first argument is empty");
  if (count > self->max_arguments) {
    return usage_error(self, "unexpected argument '%s'", argv[1 + self->max_arguments]);
  }
  return 0;
}

int parse_options(const command *self, int argc, char **argv, void *values, int *status) {
  parsed = self;
  parser p = {.self = self, .argv = argv, .argc = argc};
  int count = 0;
  bool only_arguments = false;
  for (p.i = 1; p.i < argc; p.i++) {
    char *arg = argv[p.i];
    if (only_arguments || arg[0] != '-' || !arg[1]) {
      argv[1 + count++] = arg;
    } else if (strcmp(arg, "--") == 0) {
      only_arguments = true;
    } else {
      int result = take_option(&p, values);
      if (result) {
        *status = result < 0 ? finish_output() : result;
        return -1;
      }
    }
  }
  if (p.model) { // there is room for it in place of its option
    memmove(argv + 2, argv + 1, (size_t)count++ * sizeof *argv);
    argv[1] = p.model;
  }
  *status = check_count(self, count, argv);
  given = count ? argv[1] : NULL;
  if (!*status && count && takes_model(self)) {
    argv[1] = (char *)resolve_model(argv[1]); // which is not modified
    if (!argv[1]) *status = STATUS_FAILED;
  }
  return *status ? -1 : count;
}
