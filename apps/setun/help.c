// The command `help`, and the text of `--help`.
#include "help.h"

#include "commands.h"
#include "output.h"
#include "spellings.h"

#include <string.h>

enum { HELP_WIDTH = 96, HELP_COLUMN = 30 };

// Prints words from `text` in lines up to HELP_WIDTH, the first one at `column`, later ones at `indent`.
static void print_wrapped(FILE *to, const char *text, int column, int indent) {
  bool first = true;
  for (const char *p = text; *p;) {
    int n = (int)strcspn(p, " \n");
    if (!first && column + 1 + n > HELP_WIDTH) {
      fprintf(to, "\n%*s", indent, "");
      column = indent;
      first = true;
    }
    fprintf(to, "%s%.*s", first ? "" : " ", n, p);
    column += n + !first;
    first = n == 0;
    p += n;
    if (*p == '\n') {
      fprintf(to, "\n%*s", indent, "");
      column = indent;
      first = true;
    }
    if (*p) p++;
  }
  fputc('\n', to);
}

// Prints an option's value after `column`: a long list of choices on several lines. Returns the new column.
static int print_value(FILE *to, const char *value, int column) {
  int indent = column;
  for (const char *p = value; *p;) {
    int n = (int)strcspn(p + 1, "|") + 1; // with the bar before it
    if (column > indent && column + n > HELP_WIDTH) {
      fprintf(to, "\n%*s", indent, "");
      column = indent;
    }
    column += fprintf(to, "%.*s", n, p);
    p += n;
  }
  return column;
}

const char *option_help(const option *o, char text[HELP_MOST]) {
  size_t index = 0, used = (size_t)snprintf(text, HELP_MOST, "%s", o->help);
  const char *before = " (also ", *alias;
  while ((alias = next_alias(o, &index)) && used < HELP_MOST) {
    used += (size_t)snprintf(text + used, HELP_MOST - used, "%s%s", before, alias);
    before = ", ";
  }
  if (*before == ',' && used < HELP_MOST) snprintf(text + used, HELP_MOST - used, ")");
  return text;
}

static void print_option(const option *o, FILE *to) {
  int column = o->letter ? fprintf(to, "  -%c%s", o->letter, o->name ? ", " : "") : fprintf(to, "      ");
  if (o->name) column += fprintf(to, "--%s", o->name);
  if (o->kind != OPTION_FLAG) column = print_value(to, option_value(o), column + fprintf(to, " "));
  if (column > HELP_COLUMN - 2)
    fprintf(to, "\n%*s", HELP_COLUMN, "");
  else
    fprintf(to, "%*s", HELP_COLUMN - column, "");
  char help[HELP_MOST];
  print_wrapped(to, option_help(o, help), HELP_COLUMN, HELP_COLUMN);
}

void print_help(const command *self, FILE *to) {
  fprintf(to, "usage: setun %s%s%s [options]\n\n", self->name, *self->arguments ? " " : "", self->arguments);
  print_wrapped(to, self->summary, 0, 0);
  if (*self->details) {
    fputc('\n', to);
    print_wrapped(to, self->details, 0, 0);
  }
  for (const option_group *g = self->groups; g->title; g++) {
    fprintf(to, "\n%s:\n", g->title);
    for (size_t i = 0; i < g->count; i++) print_option(&g->rows[i], to);
  }
  fprintf(to, "\n  %-*s  this text\n", HELP_COLUMN - 4, "-h, --help");
}

void print_overview(FILE *to) {
  fprintf(to, "usage: setun COMMAND [MODEL] [options]\n\n"
              "Runs language models with ternary and other very low-bit weights. MODEL is a GGUF file (of a\n"
              "split one, its first part), a Hugging Face directory, or the name of a pulled model.\n\ncommands:\n");
  for (const command *const *c = all_commands; *c; c++) fprintf(to, "  %-12s %s\n", (*c)->name, (*c)->summary);
  fprintf(to, "\n'setun COMMAND --help' lists a command's options. Results go to standard output, everything else to\n"
              "standard error. Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted.\n");
}

typedef struct help_options {
  bool man;
  const char *completion;
} help_options;

static const option rows[] = {
    {0, "man", OPTION_FLAG, offsetof(help_options, man), NULL, 0, 0, "print the manual page's source (roff)"},
    {0, "completion", OPTION_CHOICE, offsetof(help_options, completion), "bash|zsh|fish", 0, 0,
     "print a completion script for that shell"},
};

static int run(const command *self, int argc, char **argv) {
  help_options o = {false, NULL};
  int status = 0, count = parse_options(self, argc, argv, &o, &status);
  if (count < 0) return status;
  const command *about = count ? find_command(argv[1]) : NULL;
  if (count && !about) return unknown_command(argv[1]);
  if (o.completion)
    print_completion(o.completion);
  else if (o.man)
    print_man_page(about);
  else if (about)
    print_help(about, stdout);
  else
    print_overview(stdout);
  return finish_output();
}

const command command_help = {
    .name = "help",
    .summary = "list commands, or show a command's options",
    .arguments = "[COMMAND]",
    .max_arguments = 1,
    .details = "",
    .groups = {{"options", OPTION_ROWS(rows), 0}},
    .run = run,
};
