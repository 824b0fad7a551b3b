/* How functions and parameters are declared. A part of setun.h, which states the conventions. */
#ifndef SETUN_API_H
#define SETUN_API_H

#include "setun_types.h"

#if defined(__GNUC__)
#define SETUN_API __attribute__((visibility("default")))
#else
#define SETUN_API
#endif

/* For each kind of parameters: X_init writes the defaults to a struct of `size` bytes, X_default returns a struct with
 * them. */
#define SETUN_PARAMS(kind)                                                                                             \
  SETUN_API void kind##_init(kind *params, size_t size);                                                               \
  static inline kind kind##_default(void) {                                                                            \
    kind params;                                                                                                       \
    kind##_init(&params, sizeof params);                                                                               \
    return params;                                                                                                     \
  }

#endif
