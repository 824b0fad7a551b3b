// Help, man pages and shell completions, all made from the command tables.
#ifndef SETUN_APP_HELP_H
#define SETUN_APP_HELP_H

#include "options.h"

enum { HELP_MOST = 1024 };
// An option's help with its other spellings, written to `text`.
const char *option_help(const option *o, char text[HELP_MOST]);
void print_overview(FILE *to);
void print_man_page(const command *self); // NULL: setun itself
// `shell` is "bash", "zsh" or "fish".
void print_completion(const char *shell);

#endif
