// The command `setun`: the table of its commands, and their dispatch.
#define _XOPEN_SOURCE 700 // SIGXFSZ
#include "commands.h"
#include "help.h"
#include "output.h"
#include "spellings.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const command *const all_commands[] = {
    &command_run,      &command_chat,     &command_render,     &command_inspect, &command_convert,
    &command_quantize, &command_tokenize, &command_detokenize, &command_logits,  &command_perplexity,
    &command_embed,    &command_plan,     &command_bench,      &command_devices,
#ifdef SETUN_SERVER
    &command_serve,
#endif
#ifdef SETUN_PULL
    &command_pull,
#endif
    &command_list,     &command_remove,   &command_help,       &command_version, NULL,
};

const command *find_command(const char *name) {
  for (const command *const *c = all_commands; *c; c++) {
    if (strcmp((*c)->name, name) == 0) return *c;
  }
  return NULL;
}

// Files opened later must not get the numbers of standard streams that the caller closed. Each missing one becomes
// /dev/null, opened in the wrong direction, so that using it fails like using a closed one.
static bool reserve_standard_streams(void) {
  for (int fd = 0; fd < 3; fd++) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return false;
  }
  return true;
}

// Whether a word is the name of a model rather than of a command.
static bool is_model(const char *name) {
  struct stat st;
  char config[4096];
  size_t n = strlen(name);
  snprintf(config, sizeof config, "%s/config.json", name);
  bool exists = stat(name, &st) == 0 && (!S_ISDIR(st.st_mode) || stat(config, &st) == 0);
  return exists || strchr(name, '/') || (n > 5 && strcmp(name + n - 5, ".gguf") == 0);
}

int unknown_command(const char *name) {
  const char *near = nearest_command(name);
  if (name[0] == '-') {
    return usage_error(NULL, "unknown option '%s': a command comes first, such as 'setun run MODEL -p TEXT'", name);
  }
  if (is_model(name)) return usage_error(NULL, "'%s' is not a command; did you mean 'setun run %s'?", name, name);
  if (near) return usage_error(NULL, "unknown command '%s'; did you mean %s?", name, near);
  return usage_error(NULL, "unknown command '%s'", name);
}

int main(int argc, char **argv) {
  if (!reserve_standard_streams()) return STATUS_FAILED;
  signal(SIGXFSZ, SIG_IGN); // makes exceeding the file size limit a write error, which is reported
  if (argc < 2) {
    print_overview(stderr);
    return STATUS_USAGE;
  }
  const char *name = argv[1];
  if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0) name = "help";
  if (strcmp(name, "-V") == 0 || strcmp(name, "--version") == 0) name = "version";
  const command *c = find_command(name);
  if (!c) return unknown_command(name);
  return c->run(c, argc - 1, argv + 1);
}
