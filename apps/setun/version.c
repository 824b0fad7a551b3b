// The command `version`: version, build, instruction sets.
#include "commands.h"
#include "output.h"

#include <string.h>

typedef struct version_options {
  bool json;
} version_options;

static const option rows[] = {
    {0, "json", OPTION_FLAG, offsetof(version_options, json), NULL, 0, 0, "print JSON"},
};

static void print_json(const char *isa) {
  print_text("{\"version\": ");
  print_json_string(setun_version(), strlen(setun_version()));
  print_text(", \"build\": ");
  print_json_string(SETUN_BUILD, strlen(SETUN_BUILD));
  print_text(", \"isa\": [");
  for (const char *p = isa; *p;) {
    size_t n = strcspn(p, " ");
    if (p != isa) print_text(", ");
    print_json_string(p, n);
    p += n;
    while (*p == ' ') p++;
  }
  print_text("]}\n");
}

static int run(const command *self, int argc, char **argv) {
  version_options o = {false};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  if (o.json) {
    print_json(setun_isa_available());
  } else {
    print_text("setun %s\nbuild: %s\ninstruction sets: %s\n", setun_version(), SETUN_BUILD, setun_isa_available());
  }
  return finish_output();
}

const command command_version = {
    .name = "version",
    .summary = "show version, build, and this machine's instruction sets",
    .arguments = "",
    .details = "",
    .groups = {{"options", OPTION_ROWS(rows), 0}},
    .run = run,
};
