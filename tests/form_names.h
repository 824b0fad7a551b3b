// The names of the kernels' forms, for what tests print and choose by.
#ifndef SETUN_TESTS_FORM_NAMES_H
#define SETUN_TESTS_FORM_NAMES_H

#include "kernel/kernel.h"

static inline const char *form_name(st_form form) {
  static const char *const names[ST_FORM_COUNT] = {
#define FORM(id, name, ...) name,
#include "kernel/forms.def"
  };
  return names[form];
}

#endif
