// All commands, each defined in the file of its name.
#ifndef SETUN_APP_COMMANDS_H
#define SETUN_APP_COMMANDS_H

#include "options.h"

extern const command command_run, command_chat, command_render, command_tokenize, command_detokenize, command_inspect,
    command_convert, command_quantize, command_logits, command_perplexity, command_embed, command_bench, command_plan,
    command_devices, command_serve, command_pull, command_list, command_remove, command_help, command_version;

// In the order of `setun help`, NULL-terminated.
extern const command *const all_commands[];
const command *find_command(const char *name); // NULL if there is none
// Reports a word that is not a command, with a suggestion if there is a similar one. Returns 2.
int unknown_command(const char *name);

#endif
