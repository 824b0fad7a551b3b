// Manual pages and shell completions from the command tables, so that they always match the parser.
#include "help.h"

#include "commands.h"
#include "output.h"

#include <string.h>

// Text as roff: escapes hyphens and backslashes, and prevents lines that begin with a request.
static void print_roff(const char *text) {
  bool line_start = true;
  for (const char *p = text; *p; p++) {
    if (line_start && (*p == '.' || *p == '\'')) print_text("\\&");
    if (*p == '\\')
      print_text("\\e");
    else if (*p == '-')
      print_text("\\-");
    else if (*p == '|') // a long list of choices may break here
      print_text("|\\:");
    else if (*p == '\n')
      print_text("\n.PP\n");
    else
      print_text("%c", *p);
    line_start = *p == '\n';
  }
}

static void print_man_title(const char *name, const char *summary) {
  // Long lists of choices produce lines that cannot be justified.
  print_text(".TH \"%s\" 1 \"\" \"Setun %s\" \"Setun Manual\"\n.ad l\n.SH NAME\n", name, setun_version());
  print_roff(name);
  print_text(" \\- ");
  print_roff(summary);
  print_text("\n.SH SYNOPSIS\n");
}

static void print_man_option(const option *o) {
  print_text(".TP\n");
  if (o->letter) print_text("\\fB\\-%c\\fR", o->letter);
  if (o->letter && o->name) print_text(", ");
  if (o->name) {
    print_text("\\fB\\-\\-");
    print_roff(o->name);
    print_text("\\fR");
  }
  if (o->kind != OPTION_FLAG) {
    print_text(" \\fI");
    print_roff(option_value(o));
    print_text("\\fR");
  }
  char help[HELP_MOST];
  print_text("\n");
  print_roff(option_help(o, help));
  print_text("\n");
}

static void print_command_page(const command *self) {
  char name[64];
  snprintf(name, sizeof name, "setun-%s", self->name);
  print_man_title(name, self->summary);
  print_text(".B setun %s\n", self->name);
  if (*self->arguments) print_text(".I %s\n", self->arguments);
  print_text("[\\fIoptions\\fR]\n");
  if (*self->details) {
    print_text(".SH DESCRIPTION\n");
    print_roff(self->details);
    print_text("\n");
  }
  print_text(".SH OPTIONS\n");
  for (const option_group *g = self->groups; g->title; g++) {
    print_text(".SS ");
    print_roff(g->title);
    print_text("\n");
    for (size_t i = 0; i < g->count; i++) print_man_option(&g->rows[i]);
  }
  print_text(".SS help\n.TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprint a summary of the options\n"
             ".SH EXIT STATUS\n0: success; 1: failure; 2: wrong usage; 130: interrupted.\n"
             ".SH SEE ALSO\n.BR setun (1)\n");
}

void print_man_page(const command *self) {
  if (self) {
    print_command_page(self);
    return;
  }
  print_man_title("setun", "run language models with very low-bit weights");
  print_text(".B setun\n.I COMMAND\n[\\fIMODEL\\fR] [\\fIoptions\\fR]\n.SH DESCRIPTION\n");
  print_roff("Runs language models with ternary and other very low-bit weights. MODEL is a GGUF file (of a split one, "
             "its first part), a Hugging Face directory, or the name of a pulled model. Results go to standard output, "
             "everything else to standard error.");
  print_text("\n.SH COMMANDS\n");
  for (const command *const *c = all_commands; *c; c++) {
    print_text(".TP\n.BR setun\\-%s (1)\n", (*c)->name);
    print_roff((*c)->summary);
    print_text("\n");
  }
  print_text(".SH EXIT STATUS\n0: success; 1: failure, with one line on standard error that names what failed, what "
             "was expected and what was found; 2: wrong usage; 130: interrupted.\n");
}

static bool takes_file(const option *o) {
  return o->kind == OPTION_FILE || o->kind == OPTION_MODEL;
}

static void print_bash_words(const command *c) {
  for (const option_group *g = c->groups; g->title; g++) {
    for (size_t i = 0; i < g->count; i++) {
      if (g->rows[i].name) print_text("--%s ", g->rows[i].name);
      if (g->rows[i].letter) print_text("-%c ", g->rows[i].letter);
    }
  }
  print_text("--help");
}

// "--kv|-k" as a pattern of bash's case.
static void print_bash_pattern(const char *command_name, const option *o) {
  if (o->name) print_text("%s:--%s", command_name, o->name);
  if (o->name && o->letter) print_text("|");
  if (o->letter) print_text("%s:-%c", command_name, o->letter);
}

static void print_bash_values(const command *c) {
  for (const option_group *g = c->groups; g->title; g++) {
    for (size_t i = 0; i < g->count; i++) {
      const option *o = &g->rows[i];
      if (o->kind == OPTION_FLAG) continue;
      print_text("    ");
      print_bash_pattern(c->name, o);
      print_text(") ");
      if (o->kind == OPTION_CHOICE) {
        print_text("COMPREPLY=($(compgen -W \"");
        for (const char *p = option_value(o); *p; p++) print_text("%c", *p == '|' ? ' ' : *p);
        print_text("\" -- \"$word\")); return");
      } else {
        print_text(takes_file(o) ? "COMPREPLY=($(compgen -f -- \"$word\")); return" : "return");
      }
      print_text(" ;;\n");
    }
  }
}

static void print_bash(void) {
  print_text("# bash completion for setun\n_setun() {\n"
             "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
             "  local name=\"${COMP_WORDS[1]}\" options=\"\"\n  COMPREPLY=()\n"
             "  if [ \"$COMP_CWORD\" -eq 1 ] || { [ \"$COMP_CWORD\" -eq 2 ] && [ \"$name\" = help ] && "
             "[ \"${word:0:1}\" != - ]; }; then\n    COMPREPLY=($(compgen -W \"");
  for (const command *const *c = all_commands; *c; c++) print_text("%s%s", c == all_commands ? "" : " ", (*c)->name);
  print_text("\" -- \"$word\"))\n    return\n  fi\n  case \"$name:$before\" in\n");
  for (const command *const *c = all_commands; *c; c++) print_bash_values(*c);
  print_text("  esac\n  case \"$name\" in\n");
  for (const command *const *c = all_commands; *c; c++) {
    print_text("    %s) options=\"", (*c)->name);
    print_bash_words(*c);
    print_text("\" ;;\n");
  }
  print_text("  esac\n  case \"$word\" in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
             "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n  esac\n}\n"
             "complete -o filenames -F _setun setun\n");
}

// Text inside single quotes of zsh or fish; `also` are further characters to escape with a backslash.
static void print_quoted(const char *text, const char *quote, const char *also) {
  for (const char *p = text; *p; p++) {
    if (*p == '\'')
      print_text("%s", quote);
    else if (strchr(also, *p))
      print_text("\\%c", *p);
    else
      print_text("%c", *p == '\n' ? ' ' : *p);
  }
}

static void print_zsh_option(const option *o) {
  for (int long_form = 0; long_form < 2; long_form++) {
    if (long_form ? !o->name : !o->letter) continue;
    print_text("        '%s", o->kind == OPTION_LIST ? "*" : "");
    if (long_form)
      print_text("--%s%s", o->name, o->kind == OPTION_FLAG ? "" : "=");
    else
      print_text("-%c%s", o->letter, o->kind == OPTION_FLAG ? "" : "+");
    print_text("[");
    print_quoted(o->help, "'\\''", "\\[]:");
    print_text("]");
    if (o->kind == OPTION_CHOICE) {
      print_text(":value:(");
      for (const char *p = option_value(o); *p; p++) print_text("%c", *p == '|' ? ' ' : *p);
      print_text(")");
    } else if (o->kind != OPTION_FLAG) {
      print_text(":value:%s", takes_file(o) ? "_files" : "");
    }
    print_text("' \\\n");
  }
}

static void print_zsh(void) {
  print_text("#compdef setun\n# zsh completion for setun\n_setun() {\n  local -a commands=(\n");
  for (const command *const *c = all_commands; *c; c++) {
    print_text("    '%s:", (*c)->name);
    print_quoted((*c)->summary, "'\\''", "\\:");
    print_text("'\n");
  }
  print_text("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
             "  local name=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $name in\n");
  for (const command *const *c = all_commands; *c; c++) {
    print_text("    %s)\n      _arguments \\\n", (*c)->name);
    for (const option_group *g = (*c)->groups; g->title; g++) {
      for (size_t i = 0; i < g->count; i++) print_zsh_option(&g->rows[i]);
    }
    bool names = strcmp((*c)->name, "help") == 0;
    print_text("        '(-h --help)'{-h,--help}'[how the command is used]' \\\n        '*:argument:%s' ;;\n",
               names ? "(($commands))" : "_files");
  }
  print_text("  esac\n}\nif [[ \"$funcstack[1]\" = _setun ]]; then _setun \"$@\"; else compdef _setun setun; fi\n");
}

static void print_fish_option(const command *c, const option *o) {
  print_text("complete -c setun -n '__fish_seen_subcommand_from %s'", c->name);
  if (o->letter) print_text(" -s %c", o->letter);
  if (o->name) print_text(" -l %s", o->name);
  if (o->kind == OPTION_CHOICE) {
    print_text(" -x -a '");
    for (const char *p = option_value(o); *p; p++) print_text("%c", *p == '|' ? ' ' : *p);
    print_text("'");
  } else if (o->kind != OPTION_FLAG) {
    print_text(takes_file(o) ? " -r -F" : " -x");
  }
  print_text(" -d '");
  print_quoted(o->help, "\\'", "\\");
  print_text("'\n");
}

static void print_fish(void) {
  print_text("# fish completion for setun\n");
  for (const command *const *c = all_commands; *c; c++) {
    print_text("complete -c setun -n __fish_use_subcommand -f -a %s -d '", (*c)->name);
    print_quoted((*c)->summary, "\\'", "\\");
    print_text("'\n");
    print_text("complete -c setun -n '__fish_seen_subcommand_from help' -f -a %s\n", (*c)->name);
    for (const option_group *g = (*c)->groups; g->title; g++) {
      for (size_t i = 0; i < g->count; i++) print_fish_option(*c, &g->rows[i]);
    }
  }
  print_text("complete -c setun -s h -l help -d 'how the command is used'\n");
}

void print_completion(const char *shell) {
  if (strcmp(shell, "bash") == 0)
    print_bash();
  else if (strcmp(shell, "zsh") == 0)
    print_zsh();
  else
    print_fish();
}
