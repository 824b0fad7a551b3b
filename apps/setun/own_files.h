// Keeps what commands write away from the files that they read.
#ifndef SETUN_APP_OWN_FILES_H
#define SETUN_APP_OWN_FILES_H

#include "options.h"

// Do both names lead to one file?
bool is_same_file(const char *a, const char *b);
// 0; or 2 after a report that `output`, which the option `name` gave, is one of the files of the model at `path`, also
// by a link, or of the adapters of --lora ("FILE" or "FILE:SCALE"; NULL: none).
int check_output(const command *self, const char *name, const char *output, const char *path,
                 const text_list *adapters);

#endif
