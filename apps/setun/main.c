// The command `setun`: the table of its commands, and the way from a word to one of them.
#define _XOPEN_SOURCE 700 // SIGXFSZ
#include "commands.h"
#include "help.h"
#include "output.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

const command *const all_commands[] = {
    &command_run,        &command_chat,
    &command_render,     &command_inspect,
    &command_convert,    &command_tokenize,
    &command_detokenize, &command_logits,
    &command_perplexity, &command_plan,
    &command_bench,      &command_help,
    &command_version,    NULL,
};

const command *find_command(const char *name) {
  for (const command *const *c = all_commands; *c; c++) {
    if (strcmp((*c)->name, name) == 0) return *c;
  }
  return NULL;
}

// Files opened later must not get the numbers of standard streams that the caller closed. Each missing one becomes
// /dev/null opened the wrong way round, so that using it fails as using a closed one does.
static bool reserve_standard_streams(void) {
  for (int fd = 0; fd < 3; fd++) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return false;
  }
  return true;
}

int main(int argc, char **argv) {
  if (!reserve_standard_streams()) return STATUS_FAILED;
  signal(SIGXFSZ, SIG_IGN); // a file that may not grow further is an error of the write, which is reported
  if (argc < 2) {
    print_overview(stderr);
    return STATUS_USAGE;
  }
  const char *name = argv[1];
  if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0) name = "help";
  if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0) name = "version";
  const command *c = find_command(name);
  if (!c) return usage_error(NULL, "unknown %s '%s'", name[0] == '-' ? "option" : "command", name);
  return c->run(c, argc - 1, argv + 1);
}
