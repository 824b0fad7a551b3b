// Prevents commands from writing to the files that they read.
#ifndef SETUN_APP_OWN_FILES_H
#define SETUN_APP_OWN_FILES_H

#include "options.h"

// A file that an option names; NULL: the option is not given.
typedef struct named_file {
  const char *option, *path;
} named_file;

// Whether both names refer to one file, or will when it is written.
bool is_same_file(const char *a, const char *b);
// 0; or 2 after a report that `output`, from the option `name`, is one of the files of the model at `path`, also
// through a link, or of the adapters of --lora ("FILE" or "FILE:SCALE"; NULL: none).
int check_output(const command *self, const char *name, const char *output, const char *path,
                 const text_list *adapters);

// 0; or 2 after a report that two of these are one file, of which something would be lost.
int check_distinct(const command *self, const named_file *files, size_t n);

#endif
