// The command `devices`: what can compute on this machine.
#include "commands.h"
#include "output.h"

#include <string.h>

typedef struct devices_options {
  bool json;
} devices_options;

static const option rows[] = {
    {0, "json", OPTION_FLAG, offsetof(devices_options, json), NULL, 0, 0, "print JSON"},
};

static void print_member(const char *name, const char *text) {
  print_text(", \"%s\": ", name);
  print_json_string(text, strlen(text));
}

static void print_json(const setun_device_info *d, bool first) {
  print_text("%s{\"name\": ", first ? "" : ",\n ");
  print_json_string(d->name, strlen(d->name));
  print_member("description", d->description);
  print_text(", \"memory\": %llu", (unsigned long long)d->memory);
  if (d->problem[0]) print_member("problem", d->problem);
  print_text("}");
}

static void print_line(const setun_device_info *d) {
  char text[32];
  print_text("%-10s %-40s %12s%s%s\n", d->name, d->description, format_bytes(d->memory, text),
             d->problem[0] ? "  cannot be used: " : "", d->problem);
}

static int run(const command *self, int argc, char **argv) {
  devices_options o = {false};
  setun_device_info d = {.size = sizeof d};
  int status = 0;
  if (parse_options(self, argc, argv, &o, &status) < 0) return status;
  if (o.json) print_text("[");
  for (size_t i = 0; setun_get_device(i, &d, NULL) == SETUN_OK; i++) {
    if (o.json)
      print_json(&d, i == 0);
    else
      print_line(&d);
  }
  if (o.json) print_text("]\n");
  return finish_output();
}

const command command_devices = {
    .name = "devices",
    .summary = "list what can compute on this machine",
    .arguments = "",
    .details =
        "The CPU, with its instruction sets and the memory that is available, and the GPUs that Vulkan finds, for "
        "--device. docs/gpu.md says what a GPU needs.",
    .groups = {{"options", OPTION_ROWS(rows), 0}},
    .run = run,
};
