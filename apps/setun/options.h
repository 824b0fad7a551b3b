// Commands and their options as data. Parsing, help, man pages and shell completions all read the same tables.
#ifndef SETUN_APP_OPTIONS_H
#define SETUN_APP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum option_kind {
  OPTION_FLAG,    // bool, set to true
  OPTION_TEXT,    // const char *, as given
  OPTION_FILE,    // the same; shells complete it with file names
  OPTION_MODEL,   // the same for a path or the name of a pulled model, which is replaced by its path
  OPTION_LIST,    // text_list: may be given several times; each adds a text of at least `low` bytes; at most `high`
                  // texts, unless 0
  OPTION_CHOICE,  // const char *, one of the words in `value`, separated by '|'; with `value` NULL those of
                  // the library's choice `low`, a setun_choice; with `high` 2 also two, separated by a comma
  OPTION_INTEGER, // int64_t in [low, high]
  OPTION_SEED,    // optional_seed
  OPTION_NUMBER,  // double in [low, high]
  OPTION_SIZE     // uint64_t bytes in [low, high], such as 512M or 4G (powers of 1024)
} option_kind;

// The texts of an OPTION_LIST, owned by the command line.
enum { LIST_MOST = 256 };
typedef struct text_list {
  const char *items[LIST_MOST];
  size_t count;
} text_list;

typedef struct optional_seed {
  uint64_t value;
  bool given;
} optional_seed;

typedef struct option {
  char letter;      // "-t"; 0: none
  const char *name; // "threads"; NULL: none
  option_kind kind;
  size_t offset;     // offset of the value in the group's struct
  const char *value; // the value's name in help: "N", "FILE", "f32|f16"; see option_value
  double low, high;  // limits of numbers and lists; for a choice see above
  const char *help;
} option;

// A group of options, and the offset of their struct in the command's.
typedef struct option_group {
  const char *title; // NULL ends a list of groups
  const option *rows;
  size_t count, offset;
} option_group;

enum { COMMAND_GROUPS = 6, STATUS_FAILED = 1, STATUS_USAGE = 2 };

typedef struct command {
  const char *name, *summary;
  const char *arguments; // "MODEL", for the usage line
  int min_arguments, max_arguments;
  const char *details; // paragraphs for help and the man page, separated by newlines
  option_group groups[COMMAND_GROUPS];
  int (*run)(const struct command *self, int argc,
             char **argv); // argv[0] is the command's name; returns the exit status
} command;

#define OPTION_ROWS(rows) (rows), sizeof(rows) / sizeof *(rows)

// Reads argv[1..argc-1] into the command's struct `values` (its offsets are the tables'); moves other arguments to the
// front of argv+1. Returns their number; or -1 when the command is done, with its exit status in *status: 0 after
// --help, 2 after reported wrong usage.
int parse_options(const command *self, int argc, char **argv, void *values, int *status);
// The command's first argument as given; a MODEL may have been replaced by a path since.
const char *given_argument(void);
// Whether the current command has an option with this name, for hints.
bool is_option(const char *name);

// The name of an option's value in help, or the words of a choice. Valid until the program ends.
const char *option_value(const option *o);

// Iterates over the words of a choice: for "f32|f16", "f32" (3 bytes), then "f16". NULL at the end.
const char *next_choice(const char *from, size_t *length);

// The text of --help.
void print_help(const command *self, FILE *to);

#endif
