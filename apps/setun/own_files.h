// Prevents commands from writing to the files that they read.
#ifndef SETUN_APP_OWN_FILES_H
#define SETUN_APP_OWN_FILES_H

#include "options.h"

// Whether both names refer to one file.
bool is_same_file(const char *a, const char *b);
// 0; or 2 after a report that `output`, from the option `name`, is one of the files of the model at `path`, also
// through a link, or of the adapters of --lora ("FILE" or "FILE:SCALE"; NULL: none).
int check_output(const command *self, const char *name, const char *output, const char *path,
                 const text_list *adapters);

#endif
