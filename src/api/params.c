// Structs of setun.h that begin with their size: parameters and getters for callers with an older or newer header.
#include "api/api.h"

#include <string.h>

// Structs begin with `size`. They end where a size_t may begin, so that no member is cut.
static setun_status check_size(const void *given, size_t own, const char *name, bool reads, setun_error *err) {
  size_t size;
  memcpy(&size, given, sizeof size);
  if (size < 2 * sizeof size || size % sizeof size || size > 1 << 16) {
    return st_fail(err, SETUN_ERROR_ARGUMENT, "%s.size: expected the size of the struct, here %zu, found %zu", name,
                   own, size);
  }
  const unsigned char *bytes = given;
  for (size_t i = own; reads && i < size; i++) {
    if (!bytes[i]) continue;
    return st_fail(err, SETUN_ERROR_ARGUMENT,
                   "%s: expected zeros after the %zu bytes known to this version, found a value at byte %zu", name, own,
                   i);
  }
  return SETUN_OK;
}

// Copies `from`, a struct of `own` bytes, to the caller's of `size` bytes, and zeros the rest.
static void put(void *to, size_t size, const void *from, size_t own) {
  memcpy(to, from, size < own ? size : own);
  if (size > own) memset((char *)to + own, 0, size - own);
  memcpy(to, &size, sizeof size);
}

// `to` holds the defaults.
static setun_status take(void *to, size_t own, const void *given, const char *name, setun_error *err) {
  memcpy(to, &own, sizeof own);
  if (!given) return SETUN_OK;
  setun_status s = check_size(given, own, name, true, err);
  if (s != SETUN_OK) return s;
  size_t size;
  memcpy(&size, given, sizeof size);
  memcpy(to, given, size < own ? size : own);
  memcpy(to, &own, sizeof own);
  return SETUN_OK;
}

setun_status st_check_struct(const void *to, size_t own, const char *name, setun_error *err) {
  return to ? check_size(to, own, name, false, err) : st_fail_null(name, err);
}

setun_status st_fill(void *to, const void *from, size_t own, const char *name, setun_error *err) {
  setun_status s = st_check_struct(to, own, name, err);
  if (s != SETUN_OK) return s;
  size_t size;
  memcpy(&size, to, sizeof size);
  put(to, size, from, own);
  return SETUN_OK;
}

setun_status st_fail_null(const char *what, setun_error *err) {
  return st_fail(err, SETUN_ERROR_ARGUMENT, "%s: expected one, found NULL", what);
}

// The common beginning of each kind's functions.
static const setun_session_params session_defaults = {0};
static const setun_context_params context_defaults = {0};
static const setun_model_params model_defaults = {0};
static const setun_eval_params eval_defaults = {0};
static const setun_chat_params chat_defaults = {0};
static const setun_file_params file_defaults = {0};
static const setun_convert_params convert_defaults = {0};
static const setun_quantize_params quantize_defaults = {0};
static const setun_synthesis_params synthesis_defaults = {0};
static const setun_embedding_params embedding_defaults = {0};
static const setun_constraint_params constraint_defaults = {0};
static const setun_answer_params answer_defaults = {0};
static const setun_generate_params generate_defaults = {.decode_flags = SETUN_DECODE_CONTINUES};

#define PARAMS(kind)                                                                                                   \
  void setun_##kind##_params_init(setun_##kind##_params *params, size_t size) {                                        \
    if (params && size >= sizeof size) put(params, size, &kind##_defaults, sizeof kind##_defaults);                    \
  }                                                                                                                    \
  setun_status st_take_##kind##_params(setun_##kind##_params *own, const setun_##kind##_params *given,                 \
                                       setun_error *err) {                                                             \
    *own = kind##_defaults;                                                                                            \
    return take(own, sizeof *own, given, "setun_" #kind "_params", err);                                               \
  }

PARAMS(session)
PARAMS(context)
PARAMS(model)
PARAMS(eval)
PARAMS(chat)
PARAMS(file)
PARAMS(convert)
PARAMS(quantize)
PARAMS(synthesis)
PARAMS(generate)
PARAMS(embedding)
PARAMS(constraint)
PARAMS(answer)

void setun_sampler_params_init(setun_sampler_params *params, size_t size) {
  setun_sampler_params defaults = st_sampler_params_default();
  if (params && size >= sizeof size) put(params, size, &defaults, sizeof defaults);
}

setun_status st_take_sampler_params(setun_sampler_params *own, const setun_sampler_params *given, setun_error *err) {
  *own = st_sampler_params_default();
  return take(own, sizeof *own, given, "setun_sampler_params", err);
}
