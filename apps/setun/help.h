// Help, man pages and shell completions, all made from the command tables.
#ifndef SETUN_APP_HELP_H
#define SETUN_APP_HELP_H

#include "options.h"

void print_overview(FILE *to);
void print_man_page(const command *self); // NULL: of setun itself
// `shell` is "bash", "zsh" or "fish".
void print_completion(const char *shell);

#endif
